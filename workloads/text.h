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

/* The next line that is not blank, with whatever it holds: # begins no comment. *complete: it ends with
 * a line feed. TRACE_END after the last one. */
trace_status trace_text_line(trace_text *text, trace_input *input, bool *complete, trace_error *error);

/* Blanks are skipped before each field. */
bool trace_text_at_end(trace_text *text);
/* One character that stands alone; 0: something else. */
char trace_text_letter(trace_text *text);
/* A decimal number without a sign; false: something else, or 2^64 or more. */
bool trace_text_unsigned(trace_text *text, uint64_t *value);
/* The same with an optional minus. */
bool trace_text_signed(trace_text *text, int64_t *value);
/* A pointer as programs print it: 0x and up to 16 hexadecimal digits, a decimal number, or (nil) for 0. */
bool trace_text_pointer(trace_text *text, uint64_t *value);

/* A number without a sign, perhaps with a fraction and an exponent, times 10 to the power of shift (0 to 9)
 * and cut off to a whole number; false: something else, or 2^63 or more. */
bool trace_text_decimal(trace_text *text, int shift, uint64_t *value);

/* "expected WHAT, found" the next field; TRACE_MALFORMED. name: of the file. */
trace_status trace_text_expected(trace_text *text, const char *name, const char *what, trace_error *error);

/* The next field as it can be shown in a message: shortened, with ? for what does not print. */
const char *trace_text_quote(trace_text *text, char quoted[TRACE_QUOTED_BYTES]);

#endif
