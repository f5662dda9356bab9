#include "harness/verify_pattern.h"

#include "vmm/driver.h"

#define TAG UINT64_C(0x4c4b42) /* "LKB" */
#define EVENT_BITS 40

#define EVENT_MASK ((UINT64_C(1) << EVENT_BITS) - 1)
/* Each other's inverse modulo 2^EVENT_BITS. */
#define SPREAD UINT64_C(0xb97f4a7c15)
#define GATHER UINT64_C(0xe19937733d)

uint64_t verify_pattern(uint64_t event) { return TAG << EVENT_BITS | ((event + 1) * SPREAD & EVENT_MASK); }

uint64_t verify_pattern_event(uint64_t pattern) { return ((pattern & EVENT_MASK) * GATHER & EVENT_MASK) - 1; }

bool verify_pattern_find(uint64_t word, uint64_t events, uint64_t largest_bytes, uint64_t *event,
                         uint64_t *offset) {
  uint64_t words = (largest_bytes + 7) / 8;
  for (uint64_t index = 0; index < words; index++) {
    /* The pattern that has this word at this index: vmm_pattern_word turned round. */
    uint64_t pattern = (word - index) ^ (vmm_pattern_word(0, index) - index);
    if (pattern >> EVENT_BITS != TAG) continue;
    uint64_t found = verify_pattern_event(pattern);
    if (found >= events) continue;
    *event = found;
    *offset = 8 * index;
    return true;
  }
  return false;
}
