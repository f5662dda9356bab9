#include "policies/pytorch_rounding.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DIVISION_ENTRIES = 16, FIRST_ENTRY_LOG2 = 20 };

static unsigned floor_log2(uint64_t value) { return 63u - (unsigned)__builtin_clzll(value); }

static bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

static unsigned entry_of(uint64_t size) {
  unsigned log2 = floor_log2(size);
  if (log2 < FIRST_ENTRY_LOG2) return 0;
  unsigned entry = log2 - FIRST_ENTRY_LOG2;
  return entry < DIVISION_ENTRIES ? entry : DIVISION_ENTRIES - 1;
}

/* A power of two, or 0 for off. */
static bool parse_divisions(const char **text, uint32_t *divisions) {
  char *end;
  errno = 0;
  unsigned long value = strtoul(*text, &end, 10);
  if (end == *text || **text < '0' || **text > '9' || errno != 0 || value > 1u << 20) return false;
  if (value != 0 && !is_power_of_two(value)) return false;
  *divisions = (uint32_t)value;
  *text = end;
  return true;
}

bool pytorch_rounding_parse(pytorch_rounding *rounding, const char *text) {
  uint32_t divisions;
  memset(rounding->divisions, 0, sizeof rounding->divisions);
  if (*text != '[') {
    if (!parse_divisions(&text, &divisions) || *text) return false;
    for (unsigned i = 0; i < DIVISION_ENTRIES; i++) rounding->divisions[i] = divisions;
    return true;
  }
  unsigned next = 0; /* the first entry that no key has reached */
  bool first = true;
  do {
    text++;
    unsigned entry = next;
    bool rest = *text == '>';
    if (rest) {
      text++;
    } else {
      char *end;
      errno = 0;
      unsigned long long key = strtoull(text, &end, 10);
      if (end == text || *text < '0' || *text > '9' || errno != 0 || !is_power_of_two(key) || key > 1u << 20)
        return false;
      entry = entry_of(key << FIRST_ENTRY_LOG2);
      text = end;
    }
    if (*text++ != ':' || !parse_divisions(&text, &divisions)) return false;
    if (rest) {
      for (unsigned i = entry; i < DIVISION_ENTRIES; i++) rounding->divisions[i] = divisions;
      return strcmp(text, "]") == 0;
    }
    /* The first key's value holds for everything below it as well. */
    for (unsigned i = first ? 0 : entry; i <= entry; i++) rounding->divisions[i] = divisions;
    next = entry + 1;
    first = false;
  } while (*text == ',');
  return strcmp(text, "]") == 0;
}

/* Up to the next of so many equal steps between two powers of two. */
static uint64_t round_up_division(uint64_t size, uint32_t divisions) {
  if (is_power_of_two(size)) return size;
  uint64_t floor_power = UINT64_C(1) << floor_log2(size);
  uint64_t step = floor_power >> floor_log2(divisions);
  if (step == 0) return floor_power << 1;
  uint64_t rounded_down = size & ~(step - 1);
  return rounded_down == size ? size : rounded_down + step;
}

uint64_t pytorch_round(const pytorch_rounding *rounding, uint64_t size) {
  if (size < PYTORCH_BLOCK_MINIMUM) return PYTORCH_BLOCK_MINIMUM;
  uint32_t divisions = rounding->divisions[entry_of(size)];
  if (divisions > 1 && size > PYTORCH_BLOCK_MINIMUM * divisions) return round_up_division(size, divisions);
  return (size + PYTORCH_BLOCK_MINIMUM - 1) / PYTORCH_BLOCK_MINIMUM * PYTORCH_BLOCK_MINIMUM;
}

uint64_t pytorch_segment_size(const pytorch_rounding *rounding, uint64_t size) {
  if (size <= PYTORCH_SMALL_MAXIMUM) return PYTORCH_SMALL_SEGMENT;
  if (size < PYTORCH_LARGE_MINIMUM) return rounding->large_segment;
  return (size + PYTORCH_SMALL_SEGMENT - 1) / PYTORCH_SMALL_SEGMENT * PYTORCH_SMALL_SEGMENT;
}
