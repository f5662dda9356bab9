#include "workloads/failure.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST_NAME = 200 };

static trace_status write_message(trace_error *error, trace_status status, const char *name,
                                  const char *place, const char *format, va_list arguments) {
  if (error == NULL) return status;
  error->status = status;
  size_t length = strlen(name);
  bool shortened = length > LONGEST_NAME;
  const char *tail = shortened ? name + (length - LONGEST_NAME) : name;
  int used = snprintf(error->message, sizeof error->message, "%s%s%s", shortened ? "..." : "", tail, place);
  if (used > 0 && (size_t)used < sizeof error->message) {
    vsnprintf(error->message + used, sizeof error->message - (size_t)used, format, arguments);
  }
  return status;
}

trace_status trace_fail(trace_error *error, trace_status status, const char *name, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_message(error, status, name, ": ", format, arguments);
  va_end(arguments);
  return status;
}

trace_status trace_fail_offset(trace_error *error, const char *name, uint64_t offset, const char *format,
                               ...) {
  char place[48];
  snprintf(place, sizeof place, ": offset %" PRIu64 ": ", offset);
  va_list arguments;
  va_start(arguments, format);
  write_message(error, TRACE_MALFORMED, name, place, format, arguments);
  va_end(arguments);
  return TRACE_MALFORMED;
}

trace_status trace_fail_line(trace_error *error, const char *name, uint64_t line, const char *format, ...) {
  char place[48];
  snprintf(place, sizeof place, ":%" PRIu64 ": ", line);
  va_list arguments;
  va_start(arguments, format);
  write_message(error, TRACE_MALFORMED, name, place, format, arguments);
  va_end(arguments);
  return TRACE_MALFORMED;
}

trace_status trace_fail_memory(trace_error *error, const char *name) {
  return trace_fail(error, TRACE_NO_MEMORY, name, "the host has no memory left to read this trace");
}
