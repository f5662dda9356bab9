#include "workloads/generate_sequence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

generate_random_state generate_random_begin(uint64_t seed) { return (generate_random_state){seed}; }

uint64_t generate_random_next(generate_random_state *random) {
  uint64_t mixed = random->state += UINT64_C(0x9e3779b97f4a7c15);
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
  return mixed ^ (mixed >> 31);
}

uint64_t generate_random_below(generate_random_state *random, uint64_t below) {
  uint64_t unfair = (0 - below) % below; /* so many of the lowest numbers have one chance more */
  uint64_t number;
  do {
    number = generate_random_next(random);
  } while (number < unfair);
  return number % below;
}

double generate_random_unit(generate_random_state *random) {
  return (double)(generate_random_next(random) >> 11) * 0x1p-53;
}

/* The sum of twelve: additions alone, so that every C library agrees on the last bit. */
double generate_random_normal(generate_random_state *random) {
  double sum = -6;
  for (unsigned i = 0; i < 12; i++) sum += generate_random_unit(random);
  return sum;
}

static uint32_t clamp(const generate_sequence *sequence, double length) {
  if (!(length >= sequence->low)) return sequence->low;
  return length >= sequence->high ? sequence->high : (uint32_t)length;
}

uint32_t generate_sequence_draw(const generate_sequence *sequence, uint32_t iteration, uint32_t batch,
                                generate_random_state *random) {
  switch (sequence->kind) {
    case GENERATE_SEQUENCE_UNIFORM:
      return sequence->low +
             (uint32_t)generate_random_below(random, (uint64_t)sequence->high - sequence->low + 1);
    case GENERATE_SEQUENCE_LOGNORMAL: {
      double longest = generate_random_normal(random);
      for (uint32_t i = 1; i < batch; i++) {
        double drawn = generate_random_normal(random);
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
