/* Lines of a text trace, and the fields in them. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_TEXT_H
#define LAKEBED_WORKLOADS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/input.h"

enum { TRACE_LONGEST_LINE = 4096, TRACE_QUOTED_BYTES = 48 };

typedef struct trace_text {
  uint64_t line;     /* number of the line below, from 1 */
  const uint8_t *at; /* what is left of it */
  const uint8_t *end;
} trace_text;

/* The next line that says something: not empty, not a comment. TRACE_END after the last one. Its
 * line feed, a carriage return before it, and a comment at its end (" #...") are left out. */
trace_status trace_text_next(trace_text *text, trace_input *input, trace_error *error);

/* Blanks are skipped before each field. */
bool trace_text_at_end(trace_text *text);
/* One character that stands alone; 0: something else. */
char trace_text_letter(trace_text *text);
/* A decimal number without a sign; false: something else, or 2^64 or more. */
bool trace_text_unsigned(trace_text *text, uint64_t *value);
/* The same with an optional minus. */
bool trace_text_signed(trace_text *text, int64_t *value);

/* The next field as it can be shown in a message: shortened, with ? for what does not print. */
const char *trace_text_quote(trace_text *text, char quoted[TRACE_QUOTED_BYTES]);

#endif
