#include "workloads/generate_sequence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t clamp(const generate_sequence *sequence, double length) {
  if (!(length >= sequence->low)) return sequence->low;
  return length >= sequence->high ? sequence->high : (uint32_t)length;
}

uint32_t generate_sequence_draw(const generate_sequence *sequence, uint32_t iteration, uint32_t batch,
                                trace_random *random) {
  switch (sequence->kind) {
    case GENERATE_SEQUENCE_UNIFORM:
      return sequence->low +
             (uint32_t)trace_random_below(random, (uint64_t)sequence->high - sequence->low + 1);
    case GENERATE_SEQUENCE_LOGNORMAL: {
      double longest = trace_random_normal(random);
      for (uint32_t i = 1; i < batch; i++) {
        double drawn = trace_random_normal(random);
        if (drawn > longest) longest = drawn;
      }
      return clamp(sequence, exp(sequence->mean + sequence->deviation * longest));
    }
    case GENERATE_SEQUENCE_LIST:
      return sequence->list[iteration % sequence->list_count];
    default:
      return sequence->high;
  }
}

/* A number from 1, up to a character of `ends` or the text's end; NULL: none. Returns what is behind it. */
static const char *parse_length(const char *text, char ends, uint32_t *length) {
  char *end;
  if (*text < '0' || *text > '9') return NULL;
  unsigned long number = strtoul(text, &end, 10);
  if (number == 0 || number > UINT32_MAX || (*end != ends && *end != '\0')) return NULL;
  *length = (uint32_t)number;
  return end;
}

static bool parse_range(const char *text, generate_sequence *sequence) {
  text = parse_length(text, '-', &sequence->low);
  if (!text || *text != '-') return false;
  text = parse_length(text + 1, '\0', &sequence->high);
  return text && sequence->low <= sequence->high;
}

bool generate_sequence_parse(const char *text, generate_sequence *sequence) {
  generate_sequence parsed = {.kind = GENERATE_SEQUENCE_UNIFORM};
  bool valid = false;
  if (strncmp(text, "uniform:", 8) == 0) {
    valid = parse_range(text + 8, &parsed);
  } else if (strncmp(text, "lognormal:", 10) == 0) {
    char *end;
    parsed.kind = GENERATE_SEQUENCE_LOGNORMAL;
    parsed.mean = strtod(text + 10, &end);
    if (*end == ',' && end > text + 10) {
      const char *second = end + 1;
      parsed.deviation = strtod(second, &end);
      valid = end > second && *end == ':' && parsed.mean > -50 && parsed.mean < 50 && parsed.deviation >= 0 &&
              parsed.deviation < 50 && parse_range(end + 1, &parsed);
    }
  } else {
    parsed.kind = GENERATE_SEQUENCE_LIST;
    for (const char *at = text; at && parsed.list_count < GENERATE_SEQUENCE_LIST_LIMIT;) {
      uint32_t length = 0;
      at = parse_length(at, ',', &length);
      if (!at) break;
      parsed.list[parsed.list_count++] = length;
      if (length > parsed.high) parsed.high = length;
      if (parsed.low == 0 || length < parsed.low) parsed.low = length;
      valid = *at == '\0';
      if (valid) break;
      at++;
    }
    if (parsed.list_count == 1) parsed.kind = GENERATE_SEQUENCE_FIXED;
  }
  if (valid) *sequence = parsed;
  return valid;
}
