/* Keeps what a generator emits, and checks it on the way: slots dense and free when they are used, ids new,
 * frees of what is live. */
#ifndef LAKEBED_TESTS_WORKLOADS_GENERATE_FIXTURE_H
#define LAKEBED_TESTS_WORKLOADS_GENERATE_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/generate.h"

typedef struct generated {
  trace_event *events;
  size_t count, capacity;
  uint64_t *live; /* size by slot; UINT64_MAX: free */
  uint32_t slots;
  uint64_t allocations, live_bytes, peak_bytes; /* as they were asked for, not rounded */
  size_t refuse_at;                             /* the event with this number fails; 0: none */
} generated;

generate_sink generated_sink(generated *kept);
void generated_free(generated *kept);
/* How many allocations have this size, and how many of them are never freed. */
uint64_t generated_of_size(const generated *kept, uint64_t bytes);
uint64_t generated_lasting(const generated *kept, uint64_t bytes);
bool generated_equal(const generated *left, const generated *right);

#endif
