#include "workloads/json.h"

#include <string.h>

#include "workloads/failure.h"

enum { END_OF_INPUT = -1 };

void trace_json_begin(trace_json *json, trace_input *input) {
  memset(json, 0, sizeof *json);
  json->input = input;
}

/* The next byte, not taken, or END_OF_INPUT. */
static inline trace_status peek(const trace_json *json, int *byte, trace_error *error) {
  trace_input *input = json->input;
  if (input->at == input->end) {
    trace_status status = trace_input_fill(input, 1, error);
    if (status != TRACE_OK) return status;
  }
  *byte = input->at < input->end ? *input->at : END_OF_INPUT;
  return TRACE_OK;
}

/* At the next byte, which is byte. */
static trace_status unexpected(const trace_json *json, int byte, const char *what, trace_error *error) {
  uint64_t offset = trace_input_offset(json->input);
  if (byte == END_OF_INPUT) {
    return trace_fail_offset(error, json->input->name, offset,
                             "expected %s, found the end: the file is truncated", what);
  }
  if (byte > ' ' && byte < 0x7F)
    return trace_fail_offset(error, json->input->name, offset, "expected %s, found '%c'", what, byte);
  return trace_fail_offset(error, json->input->name, offset, "expected %s, found byte 0x%02x", what,
                           (unsigned)byte);
}

static inline void keep(trace_json *json, char character) {
  if (json->length < TRACE_JSON_TEXT_BYTES - 1) json->text[json->length] = character;
  json->length++;
}

static void terminate(trace_json *json) {
  json->text[json->length < TRACE_JSON_TEXT_BYTES ? json->length : TRACE_JSON_TEXT_BYTES - 1] = '\0';
}

static trace_status skip_blanks(trace_json *json, int *byte, trace_error *error) {
  for (;;) {
    trace_status status = peek(json, byte, error);
    if (status != TRACE_OK) return status;
    if (*byte != ' ' && *byte != '\n' && *byte != '\t' && *byte != '\r') return TRACE_OK;
    json->input->at++;
  }
}

static bool is_hexadecimal(int byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

static trace_status read_unicode_escape(trace_json *json, trace_error *error) {
  unsigned code = 0;
  for (int i = 0; i < 4; i++) {
    int byte;
    trace_status status = peek(json, &byte, error);
    if (status != TRACE_OK) return status;
    if (!is_hexadecimal(byte)) return unexpected(json, byte, "four hexadecimal digits after '\\u'", error);
    json->input->at++;
    code = code << 4 | (unsigned)(byte <= '9' ? byte - '0' : (byte | 0x20) - 'a' + 10);
  }
  keep(json, code < 0x80 ? (char)code : '?');
  return TRACE_OK;
}

/* Behind a backslash. */
static trace_status read_escape(trace_json *json, trace_error *error) {
  static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  int byte;
  trace_status status = peek(json, &byte, error);
  if (status != TRACE_OK) return status;
  if (byte == 'u') {
    json->input->at++;
    return read_unicode_escape(json, error);
  }
  const char *found = byte > 0 ? strchr(escapes, byte) : NULL;
  if (found == NULL) return unexpected(json, byte, "an escape after '\\'", error);
  json->input->at++;
  keep(json, meanings[found - escapes]);
  return TRACE_OK;
}

/* At the opening quote. */
static trace_status read_string(trace_json *json, trace_error *error) {
  trace_input *input = json->input;
  input->at++;
  json->length = 0;
  for (;;) {
    int byte;
    trace_status status = peek(json, &byte, error);
    if (status != TRACE_OK) return status;
    if (byte < ' ') return unexpected(json, byte, "the end of a string", error);
    input->at++;
    if (byte == '"') break;
    if (byte == '\\') {
      status = read_escape(json, error);
      if (status != TRACE_OK) return status;
    } else {
      keep(json, (char)byte);
    }
  }
  terminate(json);
  return TRACE_OK;
}

static bool is_word_byte(int byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         byte == '+' || byte == '-' || byte == '.';
}

static const char *skip_digits(const char *at) {
  while (*at >= '0' && *at <= '9') at++;
  return at;
}

static bool is_number(const char *at) {
  if (*at == '-') at++;
  static const char *const words[] = {"nan", "inf", "NaN", "Infinity"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    if (strcmp(at, words[i]) == 0) return true;
  }
  const char *digits = skip_digits(at);
  if (digits == at || (*at == '0' && digits > at + 1)) return false;
  at = digits;
  if (*at == '.') {
    digits = skip_digits(++at);
    if (digits == at) return false;
    at = digits;
  }
  if (*at == 'e' || *at == 'E') {
    at++;
    if (*at == '+' || *at == '-') at++;
    digits = skip_digits(at);
    if (digits == at) return false;
    at = digits;
  }
  return *at == '\0';
}

/* A number, true, false or null, at its first byte. */
static trace_status read_word(trace_json *json, trace_json_token *token, trace_error *error) {
  json->length = 0;
  for (;;) {
    int byte;
    trace_status status = peek(json, &byte, error);
    if (status != TRACE_OK) return status;
    if (json->length == 0 && !is_word_byte(byte)) return unexpected(json, byte, "a value", error);
    if (byte == END_OF_INPUT && json->depth > 0) return unexpected(json, byte, "the end of a value", error);
    if (!is_word_byte(byte)) break;
    keep(json, (char)byte);
    json->input->at++;
  }
  terminate(json);
  if (strcmp(json->text, "true") == 0) {
    *token = TRACE_JSON_TRUE;
  } else if (strcmp(json->text, "false") == 0) {
    *token = TRACE_JSON_FALSE;
  } else if (strcmp(json->text, "null") == 0) {
    *token = TRACE_JSON_NULL;
  } else if (json->length < TRACE_JSON_TEXT_BYTES && is_number(json->text)) {
    *token = TRACE_JSON_NUMBER;
  } else {
    return trace_fail_offset(error, json->input->name, json->offset, "expected a value, found '%.40s%s'",
                             json->text, json->length > 40 ? "..." : "");
  }
  return TRACE_OK;
}

static void value_ended(trace_json *json) {
  json->state = json->depth == 0 ? TRACE_JSON_WANTS_NOTHING : TRACE_JSON_WANTS_COMMA_OR_END;
}

static trace_status open_nest(trace_json *json, bool is_object, trace_json_token *token, trace_error *error) {
  if (json->depth == TRACE_JSON_DEEPEST) {
    return trace_fail_offset(error, json->input->name, json->offset, "nested deeper than %d levels",
                             TRACE_JSON_DEEPEST);
  }
  json->input->at++;
  json->is_object[json->depth++] = is_object;
  json->state = is_object ? TRACE_JSON_WANTS_KEY_OR_END : TRACE_JSON_WANTS_VALUE_OR_END;
  *token = is_object ? TRACE_JSON_OBJECT : TRACE_JSON_ARRAY;
  return TRACE_OK;
}

static trace_status close_nest(trace_json *json, trace_json_token *token) {
  json->input->at++;
  json->depth--;
  *token = json->is_object[json->depth] ? TRACE_JSON_OBJECT_END : TRACE_JSON_ARRAY_END;
  value_ended(json);
  return TRACE_OK;
}

static trace_status read_value(trace_json *json, int byte, trace_json_token *token, trace_error *error) {
  if (byte == '{' || byte == '[') return open_nest(json, byte == '{', token, error);
  trace_status status;
  if (byte == '"') {
    *token = TRACE_JSON_STRING;
    status = read_string(json, error);
  } else {
    status = read_word(json, token, error);
  }
  if (status == TRACE_OK) value_ended(json);
  return status;
}

static trace_status read_key(trace_json *json, int byte, trace_json_token *token, trace_error *error) {
  if (byte != '"') return unexpected(json, byte, "a key", error);
  trace_status status = read_string(json, error);
  if (status == TRACE_OK) status = skip_blanks(json, &byte, error);
  if (status != TRACE_OK) return status;
  if (byte != ':') return unexpected(json, byte, "':' after a key", error);
  json->input->at++;
  json->state = TRACE_JSON_WANTS_VALUE;
  *token = TRACE_JSON_KEY;
  return TRACE_OK;
}

trace_status trace_json_next(trace_json *json, trace_json_token *token, trace_error *error) {
  int byte;
  trace_status status = skip_blanks(json, &byte, error);
  if (status != TRACE_OK) return status;
  if (json->state == TRACE_JSON_WANTS_NOTHING) {
    if (byte != END_OF_INPUT) return unexpected(json, byte, "nothing after the end of the JSON", error);
    *token = TRACE_JSON_END;
    return TRACE_OK;
  }
  bool in_object = json->depth > 0 && json->is_object[json->depth - 1];
  bool at_end = byte == (in_object ? '}' : ']');
  if (json->state == TRACE_JSON_WANTS_COMMA_OR_END) {
    if (at_end) return close_nest(json, token);
    if (byte != ',') return unexpected(json, byte, in_object ? "',' or '}'" : "',' or ']'", error);
    json->input->at++;
    status = skip_blanks(json, &byte, error);
    if (status != TRACE_OK) return status;
    json->state = in_object ? TRACE_JSON_WANTS_KEY : TRACE_JSON_WANTS_VALUE;
  } else if (at_end &&
             (json->state == TRACE_JSON_WANTS_KEY_OR_END || json->state == TRACE_JSON_WANTS_VALUE_OR_END)) {
    return close_nest(json, token);
  }
  json->offset = trace_input_offset(json->input);
  if (json->state == TRACE_JSON_WANTS_KEY || json->state == TRACE_JSON_WANTS_KEY_OR_END)
    return read_key(json, byte, token, error);
  return read_value(json, byte, token, error);
}

trace_status trace_json_skip(trace_json *json, trace_json_token token, trace_error *error) {
  if (token != TRACE_JSON_OBJECT && token != TRACE_JSON_ARRAY) return TRACE_OK;
  unsigned depth = json->depth - 1;
  while (json->depth > depth) {
    trace_status status = trace_json_next(json, &token, error);
    if (status != TRACE_OK) return status;
  }
  return TRACE_OK;
}

bool trace_json_is(const trace_json *json, const char *text) {
  return json->length == strlen(text) && strcmp(json->text, text) == 0;
}
