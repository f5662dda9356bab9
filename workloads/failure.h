/* Filling a trace_error. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_FAILURE_H
#define LAKEBED_WORKLOADS_FAILURE_H

#include <stdint.h>

#include "workloads/trace.h"

/* Writes "NAME: MESSAGE" into error (NULL is fine; a very long name loses its
 * beginning) and returns status, so that callers can return the call. */
trace_status trace_fail(trace_error *error, trace_status status, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "NAME: offset N: MESSAGE", TRACE_MALFORMED. */
trace_status trace_fail_offset(trace_error *error, const char *name, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "NAME:LINE: MESSAGE", TRACE_MALFORMED. */
trace_status trace_fail_line(trace_error *error, const char *name, uint64_t line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

trace_status trace_fail_memory(trace_error *error, const char *name);

#endif
