/* The heap's dealings with the driver: what each function takes and gives back, and what it refuses. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/pools_fixture.h"
#include "tests/test_main.h"

enum { CHUNKS = 5 };

static int owner_of_all; /* what chunks of these tests belong to */

/* ---- what the functions do ---- */

START_TEST(takes_and_returns_segments) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  pool_segment *first, *second;
  ck_assert_int_eq(pool_segment_allocate(heap, 20 * MIB, &first), VMM_SUCCESS);
  ck_assert_int_eq(pool_segment_allocate(heap, 2 * MIB, &second), VMM_SUCCESS);
  pools_fixture_check(&fixture, "two segments");
  ck_assert(vmm_sim_accessible(fixture.sim, first->address, first->size));
  ck_assert_uint_eq(heap->statistics.reserved_bytes.current, 22 * MIB);
  ck_assert_uint_eq(heap->statistics.segments.current, 2);
  ck_assert_uint_eq(heap->statistics.driver_allocations, 2);
  ck_assert_int_eq(pool_segment_free(heap, first), VMM_SUCCESS);
  pools_fixture_check(&fixture, "one segment");
  ck_assert_uint_eq(heap->statistics.reserved_bytes.current, 2 * MIB);
  ck_assert_uint_eq(heap->statistics.reserved_bytes.peak, 22 * MIB);
  ck_assert_uint_eq(heap->statistics.driver_frees, 1);
  pools_fixture_close(&fixture);
}
END_TEST

START_TEST(maps_a_chunk_in_two_places) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  pool_chunk *chunks[3], *reversed[3];
  pool_range *plain, *alias;
  ck_assert_int_eq(pool_chunks_create(heap, 4 * MIB, 3, &owner_of_all, chunks), VMM_SUCCESS);
  ck_assert_uint_eq(heap->statistics.driver_allocations, 1);
  for (int i = 0; i < 3; i++) reversed[i] = chunks[2 - i];
  ck_assert_int_eq(pool_range_reserve(heap, 16 * MIB, 2 * MIB, &plain), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_reserve(heap, 12 * MIB, 4 * MIB, &alias), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, plain, 2 * MIB, chunks, 3), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, alias, 0, reversed, 3), VMM_SUCCESS);
  pools_fixture_check(&fixture, "mapped twice");
  for (uint64_t i = 0; i < 3; i++) {
    ck_assert_uint_eq(vmm_sim_physical(fixture.sim, plain->address + 2 * MIB + 4 * i * MIB),
                      vmm_sim_physical(fixture.sim, alias->address + 4 * (2 - i) * MIB));
    ck_assert_uint_eq(chunks[i]->mappings, 2);
  }
  ck_assert(vmm_sim_accessible(fixture.sim, alias->address, alias->size));
  ck_assert_ptr_eq(plain->slots[2].chunk, chunks[0]);
  ck_assert_uint_eq(plain->slots[2].offset, 1);
  ck_assert_int_eq(pool_range_unmap(heap, plain, 6 * MIB, 4 * MIB), VMM_SUCCESS);
  ck_assert_uint_eq(chunks[1]->mappings, 1);
  ck_assert_uint_eq(plain->mapped, 8 * MIB);
  pools_fixture_check(&fixture, "a hole");
  pools_fixture_close(&fixture);
}
END_TEST

/* Ranges of one reservation follow each other; the reservation goes with the last one. */
START_TEST(reserves_ranges_together) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  static const uint64_t sizes[] = {8 * MIB, 2 * MIB, 6 * MIB};
  pool_range *ranges[3];
  ck_assert_int_eq(pool_ranges_reserve(heap, sizes, 3, 2 * MIB, ranges), VMM_SUCCESS);
  ck_assert_uint_eq(ranges[1]->address, ranges[0]->address + 8 * MIB);
  ck_assert_uint_eq(ranges[2]->address, ranges[1]->address + 2 * MIB);
  vmm_sim_usage usage;
  for (int i = 0; i < 3; i++) {
    vmm_sim_usage_get(fixture.sim, &usage);
    ck_assert_uint_eq(usage.reservations, 1);
    ck_assert_uint_eq(heap->range_count, (uint64_t)(3 - i));
    if (i == 2) {
      pools_picture before, after;
      pools_picture_take(&fixture, &before);
      vmm_sim_fail(fixture.sim, VMM_CALL_ADDRESS_FREE, 1, VMM_UNKNOWN);
      ck_assert_int_eq(pool_range_free(heap, ranges[0]), VMM_UNKNOWN);
      pools_picture_take(&fixture, &after);
      pools_picture_same(&before, &after, "the last range");
    }
    ck_assert_int_eq(pool_range_free(heap, ranges[(i + 1) % 3]), VMM_SUCCESS);
    pools_fixture_check(&fixture, "ranges of one reservation");
  }
  vmm_sim_usage_get(fixture.sim, &usage);
  ck_assert_uint_eq(usage.reservations, 0);
  /* Refused, nothing is pointed to. */
  vmm_sim_fail(fixture.sim, VMM_CALL_ADDRESS_RESERVE, 1, VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(pool_ranges_reserve(heap, sizes, 3, 2 * MIB, ranges), VMM_OUT_OF_MEMORY);
  for (int i = 0; i < 3; i++) ck_assert_ptr_null(ranges[i]);
  pools_fixture_close(&fixture);
}
END_TEST

START_TEST(refuses_what_makes_no_sense) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  pool_chunk *chunks[3], *large, *none[1];
  pool_range *range, *refused = NULL;
  pools_picture before, after;
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, 3, &owner_of_all, chunks), VMM_SUCCESS);
  ck_assert_int_eq(pool_chunk_create(heap, 4 * MIB, &owner_of_all, &large), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_reserve(heap, 8 * MIB, 2 * MIB, &range), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, range, 0, chunks, 1), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, range, 4 * MIB, &large, 1), VMM_SUCCESS);
  pools_picture_take(&fixture, &before);
  ck_assert_int_eq(pool_chunk_release(heap, chunks[0]), VMM_INVALID_VALUE); /* mapped */
  ck_assert_int_eq(pool_range_free(heap, range), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_range_map(heap, range, 0, &chunks[1], 1), VMM_INVALID_VALUE); /* occupied */
  ck_assert_int_eq(pool_range_map(heap, range, 2 * MIB, &chunks[1], 2),
                   VMM_INVALID_VALUE); /* the second one is */
  ck_assert_int_eq(pool_range_map(heap, range, 1 * MIB, &chunks[1], 1), VMM_INVALID_VALUE); /* crooked */
  ck_assert_int_eq(pool_range_map(heap, range, 8 * MIB, &chunks[1], 1), VMM_INVALID_VALUE); /* past the end */
  ck_assert_int_eq(pool_range_map(heap, range, 10 * MIB, &chunks[1], 1), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_range_map(heap, range, 2 * MIB, &chunks[1], 0), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_range_unmap(heap, range, 2 * MIB, 2 * MIB), VMM_INVALID_VALUE); /* a hole */
  ck_assert_int_eq(pool_range_unmap(heap, range, 0, 8 * MIB), VMM_INVALID_VALUE);       /* with a hole */
  ck_assert_int_eq(pool_range_unmap(heap, range, 4 * MIB, 2 * MIB), VMM_INVALID_VALUE); /* half a chunk */
  ck_assert_int_eq(pool_range_unmap(heap, range, 6 * MIB, 2 * MIB), VMM_INVALID_VALUE); /* the other half */
  ck_assert_int_eq(pool_range_unmap(heap, range, 0, 0), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_range_unmap(heap, range, 0, 10 * MIB), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_range_reserve(heap, 0, 2 * MIB, &refused), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_range_reserve(heap, 6 * MIB, 4 * MIB, &refused), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_range_reserve(heap, 2 * MIB, 0, &refused), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_chunk_create(heap, 2 * MIB + 1, &owner_of_all, none), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, 0, &owner_of_all, none), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_chunks_create_sizes(heap, NULL, 0, &owner_of_all, none), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_ranges_reserve(heap, NULL, 0, 2 * MIB, &refused), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_heap_hand_out(heap, 0, 512, 1, 0, NULL), VMM_INVALID_VALUE);
  pools_picture_take(&fixture, &after);
  pools_picture_same(&before, &after, "refused calls");

  /* A chunk that is no multiple of the range's unit. */
  pool_range *wide;
  ck_assert_int_eq(pool_range_reserve(heap, 8 * MIB, 4 * MIB, &wide), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, wide, 0, &chunks[1], 1), VMM_INVALID_VALUE);
  pools_fixture_close(&fixture);
}
END_TEST

START_TEST(keeps_to_its_limit_without_asking) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, 10 * MIB);
  pool_heap *heap = &fixture.heap;
  pool_segment *segment, *refused;
  pool_chunk *chunk, *chunks[4];
  ck_assert_int_eq(pool_segment_allocate(heap, 4 * MIB, &segment), VMM_SUCCESS);
  ck_assert_int_eq(pool_chunk_create(heap, 2 * MIB, &owner_of_all, &chunk), VMM_SUCCESS);
  pools_picture before, after;
  pools_picture_take(&fixture, &before);
  /* Were the driver asked, it would fail otherwise. */
  vmm_sim_fail(fixture.sim, VMM_CALL_MALLOC, 1, VMM_UNKNOWN);
  vmm_sim_fail(fixture.sim, VMM_CALL_CREATE, 1, VMM_UNKNOWN);
  ck_assert_int_eq(pool_segment_allocate(heap, 4 * MIB + 1, &refused), VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(pool_segment_allocate(heap, UINT64_MAX, &refused), VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(pool_chunk_create(heap, 6 * MIB, &owner_of_all, chunks), VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, 3, &owner_of_all, chunks), VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, UINT64_MAX / 4, &owner_of_all, chunks),
                   VMM_OUT_OF_MEMORY);
  pools_picture_take(&fixture, &after);
  pools_picture_same(&before, &after, "past the limit");
  vmm_sim_fail_none(fixture.sim);
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, 2, &owner_of_all, chunks), VMM_SUCCESS);
  ck_assert_uint_eq(heap->statistics.reserved_bytes.current, heap->limit);
  pools_fixture_check(&fixture, "at the limit");
  pools_fixture_close(&fixture);
}
END_TEST

START_TEST(a_batch_that_the_device_cannot_hold_never_was) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 16 * MIB, 0, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  pool_chunk *chunks[16];
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, 3, &owner_of_all, chunks), VMM_SUCCESS);
  pools_picture before, after;
  pools_picture_take(&fixture, &before);
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, 6, &owner_of_all, chunks + 3), VMM_OUT_OF_MEMORY);
  pools_picture_take(&fixture, &after);
  pools_picture_same(&before, &after, "six chunks where five fit");
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, 5, &owner_of_all, chunks + 3), VMM_SUCCESS);
  pools_fixture_close(&fixture);
}
END_TEST

/* ---- operations ---- */

static char heard[256];

static void hear_begin(void *context, unsigned operation, const char *name, uint64_t bytes) {
  (void)operation;
  size_t used = strlen(heard);
  snprintf(heard + used, sizeof heard - used, "%s%s(%" PRIu64 " ", (const char *)context, name, bytes);
}

static void hear_end(void *context, unsigned operation) {
  (void)context;
  size_t used = strlen(heard);
  snprintf(heard + used, sizeof heard - used, ")%u", operation);
}

START_TEST(measures_nested_operations) {
  char message[256];
  vmm_profile *profile;
  ck_assert_int_eq(vmm_profile_load("h200", &profile, message, sizeof message), VMM_SUCCESS);
  vmm_sim_configuration configuration = {.profile = profile};
  vmm_driver *sim;
  ck_assert_int_eq(vmm_sim_create(&configuration, &sim), VMM_SUCCESS);
  pool_heap heap;
  ck_assert_int_eq(pool_heap_init(&heap, sim, true, UINT64_MAX), VMM_SUCCESS);
  unsigned own = pool_operation_define(&heap, "own");
  ck_assert_uint_eq(own, POOL_OPERATION_FIRST_OWN);
  const pool_observer observer = {"-", hear_begin, hear_end};
  heap.observer = &observer;
  pool_segment *segment;
  uint64_t before = sim->busy_ns;
  pool_operation_begin(&heap, POOL_OPERATION_ALLOC, 7);
  ck_assert_int_eq(pool_segment_allocate(&heap, 2 * MIB, &segment), VMM_SUCCESS);
  uint64_t one = sim->busy_ns - before;
  pool_operation_begin(&heap, own, 9);
  ck_assert_int_eq(pool_segment_allocate(&heap, 2 * MIB, &segment), VMM_SUCCESS);
  pool_operation_end(&heap);
  pool_operation_end(&heap);
  ck_assert_uint_gt(one, 0);
  ck_assert_uint_eq(heap.operations[POOL_OPERATION_ALLOC].count, 1);
  ck_assert_uint_eq(heap.operations[POOL_OPERATION_ALLOC].driver_ns, sim->busy_ns - before);
  ck_assert_uint_eq(heap.operations[own].driver_ns, sim->busy_ns - before - one);
  ck_assert_str_eq(heard, "-alloc(7 -own(9 )5)0");
  ck_assert_int_eq(pool_heap_fini(&heap), VMM_SUCCESS);
  vmm_driver_destroy(sim);
  vmm_profile_destroy(profile);
}
END_TEST

static Suite *heap_suite(void) {
  Suite *suite = suite_create("pools_heap");
  TCase *objects = tcase_create("objects");
  tcase_add_test(objects, takes_and_returns_segments);
  tcase_add_test(objects, maps_a_chunk_in_two_places);
  tcase_add_test(objects, reserves_ranges_together);
  tcase_add_test(objects, refuses_what_makes_no_sense);
  tcase_add_test(objects, keeps_to_its_limit_without_asking);
  tcase_add_test(objects, a_batch_that_the_device_cannot_hold_never_was);
  tcase_add_test(objects, measures_nested_operations);
  suite_add_tcase(suite, objects);
  return suite;
}

TEST_MAIN(heap_suite)
