/* A byte stream into a file, compressed on the way by what its name ends with. Internal to workloads.
 *
 * A regular file appears under its name only when all of it has been written. */
#ifndef LAKEBED_WORKLOADS_OUTPUT_H
#define LAKEBED_WORKLOADS_OUTPUT_H

#include <stddef.h>

#include "workloads/trace.h"

typedef struct trace_output trace_output;

/* path ends with .xz, .gz or .zst: compressed. "-" is standard output, uncompressed. */
trace_status trace_output_open(const char *path, trace_output **opened, trace_error *error);
trace_status trace_output_write(trace_output *output, const void *bytes, size_t size, trace_error *error);
/* Writes what is left and gives the file its name; on failure nothing is left behind. Frees output. */
trace_status trace_output_finish(trace_output *output, trace_error *error);
/* Leaves no file behind. Frees output; accepts NULL. */
void trace_output_abandon(trace_output *output);

#endif
