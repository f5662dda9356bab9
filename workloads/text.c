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

trace_status trace_text_next(trace_text *text, trace_input *input, trace_error *error) {
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
    text->end = content_end(text->at, end);
    if (!trace_text_at_end(text)) return TRACE_OK;
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
