/* What verification fills an allocation with: a pattern that tells of which event the allocation is, so
 * that a word found in the wrong place tells who wrote it. */
#ifndef LAKEBED_HARNESS_VERIFY_PATTERN_H
#define LAKEBED_HARNESS_VERIFY_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

/* For vmm_fill and vmm_verify. event: 0 .. 2^40 - 2. Patterns of different events differ in many bits, so
 * that a flipped bit does not look like another event's. */
uint64_t verify_pattern(uint64_t event);
/* The event of a pattern. */
uint64_t verify_pattern_event(uint64_t pattern);

/* Finds the event below events, and the offset in its allocation of at most largest_bytes, whose word this
 * is. false when it is no such word. A word of anything else is taken for one with a chance of about events *
 * largest_bytes / 2^67. O(largest_bytes / 8): about a second for 8 GiB. */
bool verify_pattern_find(uint64_t word, uint64_t events, uint64_t largest_bytes, uint64_t *event,
                         uint64_t *offset);

#endif
