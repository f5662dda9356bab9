/* Where 'lakebed stress' and 'lakebed faults' write their results. */
#ifndef LAKEBED_HARNESS_STRESS_SINKS_H
#define LAKEBED_HARNESS_STRESS_SINKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "harness/exit_status.h"

typedef struct stress_sinks {
  const char *json_path, *csv_path;
  FILE *json, *csv;
  FILE *report; /* for people; NULL: standard output has a file's content */
  json_t *array;
} stress_sinks;

/* Opens the files (a path may be NULL), so that a wrong one shows before the work. On failure says why and
 * leaves nothing. */
bool stress_sinks_open(stress_sinks *sinks, const char *json_path, const char *csv_path);
/* Writes the array, closes the files. written: false when the results are not whole; then the files are left
 * as they were. */
exit_status stress_sinks_close(stress_sinks *sinks, bool written);

#endif
