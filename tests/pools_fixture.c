#include "tests/pools_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pools_fixture_open(pools_fixture *fixture, uint64_t capacity, uint64_t event_delay, uint64_t limit) {
  vmm_sim_configuration configuration = {.capacity = capacity ? capacity : 1024 * MIB,
                                         .event_delay = event_delay};
  ck_assert_int_eq(vmm_sim_create(&configuration, &fixture->sim), VMM_SUCCESS);
  ck_assert_int_eq(pool_heap_init(&fixture->heap, fixture->sim, true, limit), VMM_SUCCESS);
  ck_assert_uint_eq(fixture->heap.granularity, 2 * MIB);
}

static void assert_nothing_held(const vmm_driver *sim) {
  vmm_sim_usage usage, none = {0};
  vmm_sim_usage_get(sim, &usage);
  ck_assert_msg(memcmp(&usage, &none, sizeof usage) == 0,
                "left on the device: %" PRIu64 " bytes, %" PRIu64 " handles, %" PRIu64 " mappings, %" PRIu64
                " reservations, %" PRIu64 " mallocs, %" PRIu64 " events",
                usage.physical_bytes, usage.handles, usage.mappings, usage.reservations, usage.mallocs,
                usage.events);
}

void pools_fixture_close(pools_fixture *fixture) {
  vmm_sim_fail_none(fixture->sim);
  ck_assert_int_eq(pool_heap_fini(&fixture->heap), VMM_SUCCESS);
  assert_nothing_held(fixture->sim);
  vmm_driver_destroy(fixture->sim);
}

void pools_fixture_check(pools_fixture *fixture, const char *where) {
  char message[512] = "";
  ck_assert_msg(pool_heap_check(&fixture->heap, message, sizeof message), "%s: %s", where, message);
  const pool_heap *heap = &fixture->heap;
  vmm_sim_usage usage; /* ranges may share a reservation, which goes with the last of them */
  vmm_sim_usage_get(fixture->sim, &usage);
  uint64_t mappings = 0;
  for (const pool_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) mappings += chunk->mappings;
  ck_assert_msg(usage.physical_bytes == heap->statistics.reserved_bytes.current &&
                    usage.handles == heap->chunk_count && usage.reservations <= heap->range_count &&
                    usage.reserved_address_bytes >= heap->reserved_address_bytes &&
                    usage.mappings == mappings && usage.mallocs == heap->statistics.segments.current,
                "%s: the heap does not hold what the device says", where);
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 29;
}

void pools_picture_take(const pools_fixture *fixture, pools_picture *picture) {
  const pool_heap *heap = &fixture->heap;
  *picture = (pools_picture){.statistics = heap->statistics,
                             .chunks = heap->chunk_count,
                             .ranges = heap->range_count,
                             .address_bytes = heap->reserved_address_bytes,
                             .allocations = heap->allocations.count,
                             .pending = heap->pending_count};
  vmm_sim_usage_get(fixture->sim, &picture->usage);
  uint64_t hash = 0;
  for (const pool_segment *segment = heap->segments; segment; segment = segment->next) {
    hash = mix(mix(hash, segment->address), segment->size);
  }
  for (const pool_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) {
    hash = mix(mix(mix(mix(hash, chunk->handle), chunk->size), chunk->mappings), (uintptr_t)chunk->owner);
  }
  for (const pool_range *range = heap->ranges; range; range = range->next) {
    hash = mix(mix(mix(hash, range->address), range->size), range->mapped);
    for (uint64_t i = 0; i < range->size / range->unit; i++) {
      hash = mix(mix(hash, (uintptr_t)range->slots[i].chunk), range->slots[i].offset);
    }
  }
  picture->layout = hash;
}

void pools_picture_same(const pools_picture *before, const pools_picture *after, const char *where) {
  ck_assert_msg(memcmp(&before->statistics, &after->statistics, sizeof before->statistics) == 0,
                "%s: statistics changed", where);
  ck_assert_msg(memcmp(&before->usage, &after->usage, sizeof before->usage) == 0, "%s: the device changed",
                where);
  ck_assert_msg(before->chunks == after->chunks && before->ranges == after->ranges &&
                    before->address_bytes == after->address_bytes &&
                    before->allocations == after->allocations && before->pending == after->pending,
                "%s: counts changed", where);
  ck_assert_msg(before->layout == after->layout, "%s: segments, chunks or mappings changed", where);
}

uint64_t pools_random_seed(const char *test) {
  const char *text = getenv("LAKEBED_SEED");
  uint64_t seed = text ? strtoull(text, NULL, 0) : UINT64_C(20260111);
  printf("%s: LAKEBED_SEED=%" PRIu64 "\n", test, seed);
  return seed;
}

/* SplitMix64, as published by Steele, Lea and Flood (2014). */
uint64_t pools_random(uint64_t *state) {
  uint64_t value = *state += UINT64_C(0x9E3779B97F4A7C15);
  value = (value ^ value >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  value = (value ^ value >> 27) * UINT64_C(0x94D049BB133111EB);
  return value ^ value >> 31;
}
