#define _GNU_SOURCE
#include "harness/output_options.h"

#include <stdio.h>

enum { OPTION_QUIET = 'q', OPTION_JSON = 0x4c0, OPTION_CSV };

static const struct argp_option option_table[] = {
    {"json", OPTION_JSON, "FILE|-", 0, "write the results as JSON", 0},
    {"csv", OPTION_CSV, "FILE|-", 0, "write the results as CSV", 0},
    {"quiet", OPTION_QUIET, NULL, 0, "no progress", 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  output_options *options = state->input;
  switch (key) {
    case OPTION_JSON:
      options->json_path = argument;
      return 0;
    case OPTION_CSV:
      options->csv_path = argument;
      return 0;
    case OPTION_QUIET:
      options->quiet = true;
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

/* argp frees what is not the text itself. */
static char *describe(int key, const char *text, void *input) {
  const output_options *options = input;
  char *longer;
  if (key != OPTION_CSV || !options || !options->csv_rows ||
      asprintf(&longer, "%s, %s", text, options->csv_rows) < 0)
    return (char *)text;
  return longer;
}

const struct argp output_options_parser = {option_table, parse_option, NULL, NULL, NULL, describe, NULL};
