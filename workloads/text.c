#include "workloads/text.h"

#include <string.h>

#include "workloads/failure.h"

static inline bool blank(uint8_t byte) { return byte == ' ' || byte == '\t'; }

static void skip_blanks(trace_text *text) {
  while (text->at < text->end && blank(*text->at)) text->at++;
}

/* Where the comment of a line begins, or its end. */
static const uint8_t *content_end(const uint8_t *at, const uint8_t *end) {
  const uint8_t *from = at;
  while (from < end) {
    const uint8_t *hash = memchr(from, '#', (size_t)(end - from));
    if (hash == NULL) return end;
    if (hash == at || blank(hash[-1])) return hash;
    from = hash + 1;
  }
  return end;
}

/* The next line, whatever it holds. *complete: a line feed ends it. */
static inline trace_status take_line(trace_text *text, trace_input *input, bool *complete,
                                     trace_error *error) {
  for (;;) {
    size_t have = (size_t)(input->end - input->at);
    const uint8_t *feed = have > 0 ? memchr(input->at, '\n', have) : NULL;
    if (feed == NULL && !input->finished && have <= TRACE_LONGEST_LINE) {
      trace_status status = trace_input_fill(input, TRACE_LONGEST_LINE + 1, error);
      if (status != TRACE_OK) return status;
      continue;
    }
    if (feed == NULL && have == 0) return TRACE_END;
    const uint8_t *end = feed != NULL ? feed : input->end;
    text->line++;
    if (end - input->at > TRACE_LONGEST_LINE) {
      return trace_fail_line(error, input->name, text->line, "a line of more than %d bytes",
                             TRACE_LONGEST_LINE);
    }
    text->at = input->at;
    input->at = feed != NULL ? feed + 1 : input->end;
    if (end > text->at && end[-1] == '\r') end--;
    text->end = end;
    *complete = feed != NULL;
    return TRACE_OK;
  }
}

trace_status trace_text_next(trace_text *text, trace_input *input, trace_error *error) {
  for (;;) {
    bool complete;
    trace_status status = take_line(text, input, &complete, error);
    if (status != TRACE_OK) return status;
    text->end = content_end(text->at, text->end);
    if (!trace_text_at_end(text)) return TRACE_OK;
  }
}

trace_status trace_text_line(trace_text *text, trace_input *input, bool *complete, trace_error *error) {
  for (;;) {
    trace_status status = take_line(text, input, complete, error);
    if (status != TRACE_OK) return status;
    const uint8_t *start = text->at;
    if (trace_text_at_end(text)) continue;
    text->at = start;
    return TRACE_OK;
  }
}

bool trace_text_at_end(trace_text *text) {
  skip_blanks(text);
  return text->at == text->end;
}

char trace_text_letter(trace_text *text) {
  if (trace_text_at_end(text)) return 0;
  if (text->at + 1 < text->end && !blank(text->at[1])) return 0;
  return (char)*text->at++;
}

bool trace_text_unsigned(trace_text *text, uint64_t *value) {
  skip_blanks(text);
  const uint8_t *at = text->at;
  uint64_t number = 0;
  while (at < text->end && *at >= '0' && *at <= '9') {
    uint64_t digit = (uint64_t)(*at - '0');
    if (number > (UINT64_MAX - digit) / 10) return false;
    number = number * 10 + digit;
    at++;
  }
  if (at == text->at || (at < text->end && !blank(*at))) return false;
  text->at = at;
  *value = number;
  return true;
}

bool trace_text_signed(trace_text *text, int64_t *value) {
  skip_blanks(text);
  const uint8_t *start = text->at;
  bool negative = start < text->end && *start == '-';
  if (negative) text->at++;
  uint64_t magnitude;
  bool digit_follows = text->at < text->end && !blank(*text->at);
  if (!digit_follows || !trace_text_unsigned(text, &magnitude) || magnitude > INT64_MAX) {
    text->at = start;
    return false;
  }
  *value = negative ? -(int64_t)magnitude : (int64_t)magnitude;
  return true;
}

static int hexadecimal_digit(uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  byte |= 0x20;
  return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

bool trace_text_pointer(trace_text *text, uint64_t *value) {
  static const char nothing[] = "(nil)";
  enum { NOTHING_BYTES = sizeof nothing - 1, MOST_DIGITS = 16 };
  skip_blanks(text);
  const uint8_t *at = text->at;
  size_t size = (size_t)(text->end - at);
  uint64_t number = 0;
  if (size >= NOTHING_BYTES && memcmp(at, nothing, NOTHING_BYTES) == 0) {
    at += NOTHING_BYTES;
  } else if (size >= 2 && at[0] == '0' && at[1] == 'x') {
    at += 2;
    const uint8_t *first = at;
    int digit;
    while (at < text->end && (digit = hexadecimal_digit(*at)) >= 0) {
      if (at - first == MOST_DIGITS) return false;
      number = number << 4 | (uint64_t)digit;
      at++;
    }
    if (at == first) return false;
  } else {
    return trace_text_unsigned(text, value);
  }
  if (at < text->end && !blank(*at)) return false;
  text->at = at;
  *value = number;
  return true;
}

static inline bool is_digit(const uint8_t *at, const uint8_t *end) {
  return at < end && *at >= '0' && *at <= '9';
}

/* [+-]DIGITS at *at; false: something else, or too many digits. */
static bool take_exponent(const uint8_t **at, const uint8_t *end, int *exponent) {
  bool negative = *at < end && **at == '-';
  if (*at < end && (**at == '-' || **at == '+')) (*at)++;
  const uint8_t *first = *at;
  int number = 0;
  while (is_digit(*at, end)) number = number * 10 + (*(*at)++ - '0');
  *exponent = negative ? -number : number;
  return *at > first && *at - first <= 3;
}

/* number * 10^power, cut off; false: 2^63 or more. */
static bool scale(uint64_t number, int power, uint64_t *value) {
  for (; power < 0 && number > 0; power++) number /= 10;
  for (; power > 0 && number > 0; power--) {
    if (number > INT64_MAX / 10) return false;
    number *= 10;
  }
  *value = number;
  return number <= INT64_MAX;
}

bool trace_text_decimal(trace_text *text, int shift, uint64_t *value) {
  enum { MOST_DIGITS = 18 }; /* of those that are not leading zeros */
  skip_blanks(text);
  const uint8_t *at = text->at, *end = text->end;
  uint64_t number = 0;
  int digits = 0, power = shift, exponent = 0;
  if (!is_digit(at, end)) return false;
  for (; is_digit(at, end); at++) {
    if (digits == MOST_DIGITS) return false;
    number = number * 10 + (uint64_t)(*at - '0');
    if (number > 0) digits++;
  }
  if (at < end && *at == '.') {
    at++;
    if (!is_digit(at, end)) return false;
    for (; is_digit(at, end); at++) {
      if (digits == MOST_DIGITS) continue;
      number = number * 10 + (uint64_t)(*at - '0');
      if (number > 0) digits++;
      power--;
    }
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    at++;
    if (!take_exponent(&at, end, &exponent)) return false;
  }
  if (at < end && !blank(*at)) return false;
  if (!scale(number, power + exponent, value)) return false;
  text->at = at;
  return true;
}

trace_status trace_text_expected(trace_text *text, const char *name, const char *what, trace_error *error) {
  char quoted[TRACE_QUOTED_BYTES];
  return trace_fail_line(error, name, text->line, "expected %s, found %s", what,
                         trace_text_quote(text, quoted));
}

const char *trace_text_quote(trace_text *text, char quoted[TRACE_QUOTED_BYTES]) {
  if (trace_text_at_end(text)) return "nothing";
  size_t used = 0;
  quoted[used++] = '\'';
  for (const uint8_t *at = text->at; at < text->end && !blank(*at); at++) {
    if (used == TRACE_QUOTED_BYTES - 5) {
      memcpy(quoted + used, "...", 3);
      used += 3;
      break;
    }
    quoted[used++] = *at >= 0x20 && *at < 0x7F ? (char)*at : '?';
  }
  quoted[used++] = '\'';
  quoted[used] = '\0';
  return quoted;
}
