/* The files that a command writes its results to, and the report for people on standard output. */
#ifndef LAKEBED_HARNESS_OUTPUT_SET_H
#define LAKEBED_HARNESS_OUTPUT_SET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "harness/exit_status.h"
#include "harness/output_options.h"
#include "harness/trace_list.h"

enum { OUTPUT_SET_FILES = 8 };

typedef struct output_set {
  FILE *report;     /* for people; NULL: standard output has a file's content */
  FILE *json, *csv; /* NULL: not asked for */
  json_t *array;    /* what --json gets; NULL: not asked for */
  struct {
    const char *path; /* borrowed */
    FILE *stream;
    bool whole; /* nothing that belongs in it is missing */
  } files[OUTPUT_SET_FILES];
  size_t count;
} output_set;

/* May these be written (NULL: not asked for)? None is one of the traces (NULL: there are none) or another one
 * of them, and one at most is standard output. If not, says so. */
bool output_paths_are_apart(const char *const *paths, size_t count, const trace_list *traces);

/* Opens --json and --csv, so that a wrong path shows before the work. When it fails it has said why; the
 * caller abandons the set. */
bool output_set_open(output_set *set, const output_options *options);
/* One more file; path NULL: none, and *stream NULL. Fails as output_set_open does. */
bool output_set_add(output_set *set, const char *path, FILE **stream);
/* That not all that belongs in this file went into it, where written is false. */
void output_set_wrote(output_set *set, const FILE *stream, bool written);
/* Writes the array, closes the files. EXIT_STATUS_USAGE where not all is written, which is said. */
exit_status output_set_close(output_set *set);
/* Leaves what the files held before. */
void output_set_abandon(output_set *set);

#endif
