/* What the tests of the pool layer share: a heap over a simulated device, a picture of
 * everything both hold to compare before and after a failure, and random numbers. */
#ifndef LAKEBED_TESTS_POOLS_FIXTURE_H
#define LAKEBED_TESTS_POOLS_FIXTURE_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "pools/heap.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)

/* For loops: ck_assert tells the parent process of every assertion that holds. */
#define require(condition, ...)                  \
  do {                                           \
    if (!(condition)) ck_abort_msg(__VA_ARGS__); \
  } while (0)

typedef struct pools_fixture {
  vmm_driver *sim;
  pool_heap heap;
} pools_fixture;

/* A device with granules of 2 MiB and calls without cost. capacity 0: 1 GiB. */
void pools_fixture_open(pools_fixture *fixture, uint64_t capacity, uint64_t event_delay, uint64_t limit);
/* Ends the heap, which must succeed, and finds nothing left on the device. */
void pools_fixture_close(pools_fixture *fixture);
/* pool_heap_check, and that heap and device agree on what is held. */
void pools_fixture_check(pools_fixture *fixture, const char *where);

/* All that a failed function must leave as it was. */
typedef struct pools_picture {
  pool_statistics statistics;
  vmm_sim_usage usage;
  uint64_t chunks, ranges, address_bytes, allocations, pending;
  uint64_t layout; /* a hash of segments, chunks, ranges and what each slot maps */
} pools_picture;

void pools_picture_take(const pools_fixture *fixture, pools_picture *picture);
/* Fails the test, naming what differs. */
void pools_picture_same(const pools_picture *before, const pools_picture *after, const char *where);

/* The seed of a random test: LAKEBED_SEED or a fixed one. Printed, so that a failure can be repeated. */
uint64_t pools_random_seed(const char *test);
uint64_t pools_random(uint64_t *state);
/* Below bound, which is not 0. */
static inline uint64_t pools_random_below(uint64_t *state, uint64_t bound) {
  return pools_random(state) % bound;
}

#endif
