/* Checks that generators share. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_GENERATE_CHECK_H
#define LAKEBED_WORKLOADS_GENERATE_CHECK_H

#include <stddef.h>

#include "workloads/generate.h"

typedef struct generate_check_range {
  const char *what;
  uint64_t value, least, most;
} generate_check_range;

/* TRACE_MALFORMED with the first that is out of its range. */
trace_status generate_check_ranges(const generate_check_range *ranges, size_t count, trace_error *error);
/* The model itself, and that it can take `batch` sequences of so many tokens. */
trace_status generate_check_model(const generate_model *model, uint64_t tokens, uint64_t batch,
                                  trace_error *error);

#endif
