/* Every function of the heap is all or nothing when any of its calls fails, and its end comes in spite of
 * failures. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/pools_fixture.h"
#include "tests/test_main.h"

enum { CHUNKS = 5 };

static int owner_of_all; /* what chunks of these tests belong to */

/* ---- every call of every function fails once ---- */

/* Something with segments, chunks, mappings and allocations, for the failing step to act on. */
typedef struct scene {
  pools_fixture fixture;
  pool_segment *segment, *shared_segment;
  pool_chunk *free_chunks[CHUNKS], *mapped_chunks[CHUNKS];
  pool_range *empty, *mapped;
  vmm_address shared; /* an allocation that streams 1, 2 and 3 use */
} scene;

static void scene_open(scene *set) {
  memset(set, 0, sizeof *set);
  pools_fixture *fixture = &set->fixture;
  pools_fixture_open(fixture, 0, 3, UINT64_MAX);
  pool_heap *heap = &fixture->heap;
  ck_assert_int_eq(pool_segment_allocate(heap, 20 * MIB, &set->segment), VMM_SUCCESS);
  ck_assert_int_eq(pool_segment_allocate(heap, 2 * MIB, &set->shared_segment), VMM_SUCCESS);
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, CHUNKS, &owner_of_all, set->free_chunks), VMM_SUCCESS);
  ck_assert_int_eq(pool_chunks_create(heap, 2 * MIB, CHUNKS, &owner_of_all, set->mapped_chunks), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_reserve(heap, 2 * CHUNKS * MIB, 2 * MIB, &set->empty), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_reserve(heap, 2 * CHUNKS * MIB, 2 * MIB, &set->mapped), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, set->mapped, 0, set->mapped_chunks, CHUNKS), VMM_SUCCESS);
  set->shared = set->shared_segment->address;
  ck_assert_int_eq(pool_heap_hand_out(heap, set->shared, 512, 100, 0, &owner_of_all), VMM_SUCCESS);
  for (vmm_stream stream = 1; stream <= 3; stream++) {
    ck_assert_int_eq(pool_heap_record_stream(heap, set->shared, stream), VMM_SUCCESS);
  }
}

static vmm_status step_segment_allocate(scene *set) {
  pool_segment *segment;
  return pool_segment_allocate(&set->fixture.heap, 2 * MIB, &segment);
}
static vmm_status step_segment_free(scene *set) {
  return pool_segment_free(&set->fixture.heap, set->segment);
}
static vmm_status step_chunk_create(scene *set) {
  pool_chunk *chunk;
  return pool_chunk_create(&set->fixture.heap, 2 * MIB, &owner_of_all, &chunk);
}
static vmm_status step_chunks_create(scene *set) {
  pool_chunk *chunks[CHUNKS];
  return pool_chunks_create(&set->fixture.heap, 2 * MIB, CHUNKS, &owner_of_all, chunks);
}
static vmm_status step_chunks_create_sizes(scene *set) {
  static const uint64_t sizes[] = {2 * MIB, 8 * MIB, 4 * MIB};
  pool_chunk *chunks[3];
  return pool_chunks_create_sizes(&set->fixture.heap, sizes, 3, &owner_of_all, chunks);
}
static vmm_status step_ranges_reserve(scene *set) {
  static const uint64_t sizes[] = {8 * MIB, 2 * MIB};
  pool_range *ranges[2];
  return pool_ranges_reserve(&set->fixture.heap, sizes, 2, 2 * MIB, ranges);
}
static vmm_status step_chunk_release(scene *set) {
  return pool_chunk_release(&set->fixture.heap, set->free_chunks[0]);
}
static vmm_status step_range_reserve(scene *set) {
  pool_range *range;
  return pool_range_reserve(&set->fixture.heap, 8 * MIB, 2 * MIB, &range);
}
static vmm_status step_range_free(scene *set) { return pool_range_free(&set->fixture.heap, set->empty); }
static vmm_status step_range_map(scene *set) {
  return pool_range_map(&set->fixture.heap, set->empty, 0, set->free_chunks, CHUNKS);
}
static vmm_status step_range_map_alias(scene *set) {
  return pool_range_map(&set->fixture.heap, set->empty, 0, set->mapped_chunks, CHUNKS);
}
static vmm_status step_range_unmap(scene *set) {
  return pool_range_unmap(&set->fixture.heap, set->mapped, 2 * MIB, 6 * MIB);
}
static vmm_status step_take_back(scene *set) {
  pool_heap *heap = &set->fixture.heap;
  pool_allocation taken;
  vmm_status status;
  ck_assert(!pool_heap_take_back(heap, pool_heap_find(heap, set->shared), &taken, &status));
  return status;
}

static const struct step {
  const char *name;
  vmm_status (*run)(scene *set);
  vmm_call call;
  uint64_t calls; /* so many of this kind it makes when all goes well */
} steps[] = {
    {"pool_segment_allocate", step_segment_allocate, VMM_CALL_MALLOC, 1},
    {"pool_segment_free", step_segment_free, VMM_CALL_FREE, 1},
    {"pool_chunk_create", step_chunk_create, VMM_CALL_CREATE, 1},
    {"pool_chunks_create", step_chunks_create, VMM_CALL_CREATE, CHUNKS},
    {"pool_chunks_create_sizes", step_chunks_create_sizes, VMM_CALL_CREATE, 3},
    {"pool_ranges_reserve", step_ranges_reserve, VMM_CALL_ADDRESS_RESERVE, 1},
    {"pool_chunk_release", step_chunk_release, VMM_CALL_RELEASE, 1},
    {"pool_range_reserve", step_range_reserve, VMM_CALL_ADDRESS_RESERVE, 1},
    {"pool_range_free", step_range_free, VMM_CALL_ADDRESS_FREE, 1},
    {"pool_range_map", step_range_map, VMM_CALL_MAP, CHUNKS},
    {"pool_range_map", step_range_map, VMM_CALL_SET_ACCESS, 1},
    {"pool_range_map of an alias", step_range_map_alias, VMM_CALL_MAP, CHUNKS},
    {"pool_range_map of an alias", step_range_map_alias, VMM_CALL_SET_ACCESS, 1},
    {"pool_range_unmap", step_range_unmap, VMM_CALL_UNMAP, 1},
    {"pool_heap_take_back", step_take_back, VMM_CALL_EVENT_RECORD, 3},
};

START_TEST(leaves_everything_as_it_was) {
  const struct step *step = &steps[_i];
  static const vmm_status failures[] = {VMM_OUT_OF_MEMORY, VMM_UNKNOWN};
  for (size_t f = 0; f < 2; f++) {
    scene set;
    scene_open(&set);
    uint64_t k = 1;
    for (;; k++) {
      char where[128];
      snprintf(where, sizeof where, "%s, %s number %" PRIu64, step->name, vmm_call_name(step->call), k);
      pools_picture before, after;
      pools_picture_take(&set.fixture, &before);
      vmm_sim_fail_none(set.fixture.sim);
      ck_assert_int_eq(vmm_sim_fail(set.fixture.sim, step->call, k, failures[f]), VMM_SUCCESS);
      vmm_status status = step->run(&set);
      if (status == VMM_SUCCESS) break;
      ck_assert_msg(status == failures[f], "%s: returned %s", where, vmm_status_name(status));
      pools_picture_take(&set.fixture, &after);
      pools_picture_same(&before, &after, where);
      pools_fixture_check(&set.fixture, where);
    }
    ck_assert_msg(k == step->calls + 1, "%s makes %" PRIu64 " calls to %s, not %" PRIu64, step->name, k - 1,
                  vmm_call_name(step->call), step->calls);
    pools_fixture_check(&set.fixture, step->name);
    pools_fixture_close(&set.fixture);
  }
}
END_TEST

/* The way back fails too: a second unmap is tried, and what then still is mapped stays on the books. */
START_TEST(records_what_a_failed_rollback_leaves) {
  for (uint64_t refusals = 1; refusals <= 2; refusals++) {
    scene set;
    scene_open(&set);
    pools_picture before, after;
    pools_picture_take(&set.fixture, &before);
    vmm_sim_fail(set.fixture.sim, VMM_CALL_MAP, 4, VMM_OUT_OF_MEMORY);
    for (uint64_t k = 1; k <= refusals; k++) vmm_sim_fail(set.fixture.sim, VMM_CALL_UNMAP, k, VMM_UNKNOWN);
    ck_assert_int_eq(step_range_map(&set), VMM_OUT_OF_MEMORY);
    pools_fixture_check(&set.fixture, "a rollback that failed");
    if (refusals == 1) {
      pools_picture_take(&set.fixture, &after);
      pools_picture_same(&before, &after, "a rollback whose first unmap failed");
    } else {
      ck_assert_uint_eq(set.empty->mapped, 6 * MIB);
      for (int i = 0; i < CHUNKS; i++) ck_assert_uint_eq(set.free_chunks[i]->mappings, i < 3);
      ck_assert_int_eq(pool_range_unmap(&set.fixture.heap, set.empty, 0, 6 * MIB), VMM_SUCCESS);
    }
    ck_assert_int_eq(step_range_map(&set), VMM_SUCCESS);
    pools_fixture_close(&set.fixture);
  }
}
END_TEST

/* A chunk that the driver will not take back belongs to the heap from then on. */
START_TEST(keeps_chunks_that_are_refused) {
  scene set;
  scene_open(&set);
  pool_heap *heap = &set.fixture.heap;
  uint64_t reserved = heap->statistics.reserved_bytes.current;
  vmm_sim_fail(set.fixture.sim, VMM_CALL_CREATE, 4, VMM_OUT_OF_MEMORY);
  vmm_sim_fail(set.fixture.sim, VMM_CALL_RELEASE, 2, VMM_UNKNOWN);
  ck_assert_int_eq(step_chunks_create(&set), VMM_OUT_OF_MEMORY);
  pools_fixture_check(&set.fixture, "a batch with a chunk that stays");
  ck_assert_uint_eq(heap->statistics.reserved_bytes.current, reserved + 2 * MIB);
  ck_assert_uint_eq(heap->stranded_bytes, 2 * MIB);

  vmm_sim_fail(set.fixture.sim, VMM_CALL_RELEASE, 1, VMM_UNKNOWN);
  ck_assert_int_eq(pool_chunk_give_up(heap, set.free_chunks[0]), VMM_UNKNOWN);
  ck_assert_int_eq(pool_chunk_give_up(heap, set.mapped_chunks[0]), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_chunk_give_up(heap, set.free_chunks[1]), VMM_SUCCESS);
  ck_assert_uint_eq(heap->stranded_bytes, 6 * MIB);
  pools_fixture_check(&set.fixture, "chunks given up");
  pools_fixture_close(&set.fixture);
}
END_TEST

/* ---- the end of a heap ---- */

START_TEST(ends_with_everything_live) {
  scene set;
  scene_open(&set);
  ck_assert_int_eq(pool_range_map(&set.fixture.heap, set.empty, 2 * MIB, &set.mapped_chunks[1], 2),
                   VMM_SUCCESS);
  ck_assert_int_eq(step_take_back(&set), VMM_SUCCESS);
  vmm_sim_usage usage;
  vmm_sim_usage_get(set.fixture.sim, &usage);
  ck_assert_uint_eq(usage.events, 3);
  pools_fixture_close(&set.fixture);
}
END_TEST

/* Each call that ends a heap fails once: reported, tried again, nothing left. */
START_TEST(ends_in_spite_of_a_failure) {
  static const vmm_call calls[] = {VMM_CALL_SYNCHRONIZE, VMM_CALL_UNMAP, VMM_CALL_RELEASE,
                                   VMM_CALL_ADDRESS_FREE, VMM_CALL_FREE};
  for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
    bool met = true;
    for (uint64_t k = 1; met; k++) {
      scene set;
      scene_open(&set);
      vmm_sim_fail(set.fixture.sim, calls[c], k, VMM_UNKNOWN);
      vmm_status status = pool_heap_fini(&set.fixture.heap);
      met = status != VMM_SUCCESS;
      ck_assert(status == VMM_SUCCESS || status == VMM_UNKNOWN);
      ck_assert_msg(met || k > 1, "%s was not called", vmm_call_name(calls[c]));
      vmm_sim_usage usage, none = {0};
      vmm_sim_usage_get(set.fixture.sim, &usage);
      ck_assert_msg(memcmp(&usage, &none, sizeof usage) == 0, "%s number %" PRIu64 ": something is left",
                    vmm_call_name(calls[c]), k);
      vmm_driver_destroy(set.fixture.sim);
    }
  }
}
END_TEST

/* A device that refuses everything: the heap's own memory goes all the same (for ASan to see). */
START_TEST(ends_over_a_dead_device) {
  scene set;
  scene_open(&set);
  ck_assert_int_eq(step_take_back(&set), VMM_SUCCESS);
  for (vmm_call call = 0; call < VMM_CALL_COUNT; call++) {
    for (uint64_t k = 1; k <= 64; k++) vmm_sim_fail(set.fixture.sim, call, k, VMM_DEINITIALIZED);
  }
  ck_assert_int_eq(pool_heap_fini(&set.fixture.heap), VMM_DEINITIALIZED);
  vmm_driver_destroy(set.fixture.sim);
}
END_TEST

START_TEST(begins_with_a_device_that_answers) {
  vmm_sim_configuration configuration = {.capacity = 64 * MIB};
  vmm_driver *sim;
  ck_assert_int_eq(vmm_sim_create(&configuration, &sim), VMM_SUCCESS);
  vmm_sim_fail(sim, VMM_CALL_GRANULARITY, 1, VMM_NO_DEVICE);
  pool_heap heap;
  ck_assert_int_eq(pool_heap_init(&heap, sim, true, UINT64_MAX), VMM_NO_DEVICE);
  ck_assert_int_eq(pool_heap_init(&heap, sim, false, UINT64_MAX), VMM_SUCCESS);
  ck_assert_uint_eq(heap.granularity, 0);
  ck_assert_int_eq(pool_heap_fini(&heap), VMM_SUCCESS);
  vmm_driver_destroy(sim);
}
END_TEST

static Suite *heap_failures_suite(void) {
  Suite *suite = suite_create("pools_heap_failures");
  TCase *failures = tcase_create("failures");
  tcase_add_loop_test(failures, leaves_everything_as_it_was, 0, (int)(sizeof steps / sizeof *steps));
  tcase_add_test(failures, records_what_a_failed_rollback_leaves);
  tcase_add_test(failures, keeps_chunks_that_are_refused);
  suite_add_tcase(suite, failures);
  TCase *ends = tcase_create("ends");
  tcase_add_test(ends, begins_with_a_device_that_answers);
  tcase_add_test(ends, ends_with_everything_live);
  tcase_add_test(ends, ends_in_spite_of_a_failure);
  tcase_add_test(ends, ends_over_a_dead_device);
  suite_add_tcase(suite, ends);
  return suite;
}

TEST_MAIN(heap_failures_suite)
