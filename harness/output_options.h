/* --json, --csv and --quiet, of all commands that have results. */
#ifndef LAKEBED_HARNESS_OUTPUT_OPTIONS_H
#define LAKEBED_HARNESS_OUTPUT_OPTIONS_H

#include <argp.h>
#include <stdbool.h>

typedef struct output_options {
  const char *json_path, *csv_path; /* "-": standard output; NULL: not asked for */
  bool quiet;
  const char *csv_rows; /* for --help, what its rows are: "a row a policy"; NULL: that is not said */
} output_options;

/* A child of a command's parser. Its input is an output_options. */
extern const struct argp output_options_parser;

#endif
