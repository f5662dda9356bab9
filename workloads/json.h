/* The tokens of a JSON text of any size, in bounded memory. Internal to workloads.
 *
 * Strict (RFC 8259) except for one thing: nan, inf, NaN and Infinity, with or without a minus,
 * are numbers too, because profilers print ratios without looking (pytorch/kineto#105). Bytes
 * beyond ASCII in strings are taken as they are. */
#ifndef LAKEBED_WORKLOADS_JSON_H
#define LAKEBED_WORKLOADS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/input.h"

enum { TRACE_JSON_DEEPEST = 256, TRACE_JSON_TEXT_BYTES = 64 };

typedef enum trace_json_token {
  TRACE_JSON_OBJECT, /* its keys and values follow, up to TRACE_JSON_OBJECT_END */
  TRACE_JSON_OBJECT_END,
  TRACE_JSON_ARRAY, /* its values follow, up to TRACE_JSON_ARRAY_END */
  TRACE_JSON_ARRAY_END,
  TRACE_JSON_KEY,
  TRACE_JSON_STRING,
  TRACE_JSON_NUMBER,
  TRACE_JSON_TRUE,
  TRACE_JSON_FALSE,
  TRACE_JSON_NULL,
  TRACE_JSON_END /* nothing but blanks follows */
} trace_json_token;

typedef enum trace_json_state {
  TRACE_JSON_WANTS_VALUE,
  TRACE_JSON_WANTS_VALUE_OR_END, /* after [ */
  TRACE_JSON_WANTS_KEY,
  TRACE_JSON_WANTS_KEY_OR_END, /* after { */
  TRACE_JSON_WANTS_COMMA_OR_END,
  TRACE_JSON_WANTS_NOTHING
} trace_json_state;

typedef struct trace_json {
  trace_input *input;
  trace_json_state state;
  unsigned depth;
  bool is_object[TRACE_JSON_DEEPEST];
  uint64_t offset; /* of the token's first byte */
  /* A key's or string's characters, or a number as it stands; cut off and terminated. A
   * character beyond ASCII that was written as an escape is a ?. */
  char text[TRACE_JSON_TEXT_BYTES];
  uint64_t length; /* of all of it, also where it was cut off */
} trace_json;

void trace_json_begin(trace_json *json, trace_input *input);

/* The next token. A failure has the offset and what was expected. Amortised O(1) a byte. */
trace_status trace_json_next(trace_json *json, trace_json_token *token, trace_error *error);

/* Skips what is left of the value that token, just read, begins; nothing for what is not an object or array.
 */
trace_status trace_json_skip(trace_json *json, trace_json_token token, trace_error *error);

/* The text of the last key or string is this one. */
bool trace_json_is(const trace_json *json, const char *text);

#endif
