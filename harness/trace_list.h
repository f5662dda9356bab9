/* The traces that a command was given, and the options of reading them that commands share. */
#ifndef LAKEBED_HARNESS_TRACE_LIST_H
#define LAKEBED_HARNESS_TRACE_LIST_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#include "harness/exit_status.h"
#include "workloads/trace.h"

/* Begins as {0}. */
typedef struct trace_list {
  char **paths; /* owned */
  size_t count;
} trace_list;

/* Adds a path. A bare name that is no file may be a bundled trace's, with or without its endings
 * ("edge", "edge.txt"): then that one's path. ENOMEM when the host has no memory. */
error_t trace_list_add(trace_list *list, const char *name);
/* Adds the recording that is replayed when none is named. Says what is wrong. */
exit_status trace_list_add_default(trace_list *list);
void trace_list_free(trace_list *list);

/* Is a file that is to be written none of the traces? If it is one, says so. */
bool trace_list_spares(const trace_list *list, const char *output);

/* Says that a trace cannot be read, and for a bare name which bundled traces there are. */
void trace_list_complain(const char *path, const trace_error *error);

/* --seed-from-segments and --trace-device. Its input is a trace_options. */
extern const struct argp trace_options_parser;

#endif
