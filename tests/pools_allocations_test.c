/* Live allocations by address against a naive model, and frees that wait for other streams. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/pools_fixture.h"
#include "tests/test_main.h"

/* ---- the table ---- */

enum { PLACES = 6000, TABLE_STEPS = 300000 };

typedef struct model_entry {
  bool live;
  uint64_t size, requested;
  int tag; /* the owner points here */
} model_entry;

static vmm_address address_of(uint64_t place) {
  /* Close together, far apart, and equal in their low bits: what a hash may not take to. */
  if (place % 3 == 0) return 512 * (place + 1);
  if (place % 3 == 1) return (place + 1) << 33;
  return UINT64_C(0x7f0000000000) + (place << 21);
}

START_TEST(agrees_with_a_naive_table) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  heap->memory_elsewhere = true;
  uint64_t random = pools_random_seed("agrees_with_a_naive_table");
  model_entry *model = calloc(PLACES, sizeof *model);
  ck_assert_ptr_nonnull(model);
  uint64_t live = 0, bytes = 0, requested = 0, peak = 0;
  for (int step = 0; step < TABLE_STEPS; step++) {
    uint64_t place = pools_random_below(&random, PLACES);
    model_entry *entry = &model[place];
    vmm_address address = address_of(place);
    pool_allocation *found = pool_heap_find(heap, address);
    require(entry->live == (found != NULL), "step %d: place %" PRIu64, step, place);
    if (!entry->live) {
      *entry = (model_entry){.live = true, .size = 512};
      entry->requested = 1 + pools_random_below(&random, 512);
      vmm_status status = pool_heap_hand_out(heap, address, entry->size, entry->requested,
                                             (vmm_stream)(place % 4), &entry->tag);
      require(status == VMM_SUCCESS, "step %d: %s", step, vmm_status_name(status));
      live++;
      bytes += entry->size;
      requested += entry->requested;
      if (bytes > peak) peak = bytes;
      continue;
    }
    require(found->size == entry->size && found->requested == entry->requested &&
                found->owner == &entry->tag && found->stream == place % 4 && found->address == address,
            "step %d: place %" PRIu64 " is not what was handed out", step, place);
    /* More places are live than not, so that the table grows; now and then all but few are freed. */
    if (step / 20000 % 2 == 0 && pools_random_below(&random, 4) != 0) {
      require(pool_heap_hand_out(heap, address, 1, 1, 0, NULL) == VMM_INVALID_VALUE,
              "step %d: handed out twice", step);
      continue;
    }
    pool_allocation taken;
    vmm_status status;
    require(pool_heap_take_back(heap, found, &taken, &status) && taken.owner == &entry->tag,
            "step %d: not taken back", step);
    live--;
    bytes -= entry->size;
    requested -= entry->requested;
    entry->live = false;
    if (step % 5000 == 0) pools_fixture_check(&fixture, "random table");
    const pool_statistics *statistics = &heap->statistics;
    require(statistics->allocations.current == live && statistics->allocated_bytes.current == bytes &&
                statistics->active_bytes.current == bytes && statistics->requested_bytes.current == requested,
            "step %d: statistics", step);
  }
  ck_assert_uint_eq(heap->statistics.allocated_bytes.peak, peak);
  for (uint64_t place = 0; place < PLACES; place++) {
    require((pool_heap_find(heap, address_of(place)) != NULL) == model[place].live, "place %" PRIu64, place);
  }
  free(model);
  pools_fixture_close(&fixture);
}
END_TEST

/* ---- frees that wait ---- */

/* A fixture with allocations of 2 MiB to free. */
static void hand_out(pools_fixture *fixture, vmm_address *addresses, int count) {
  fixture->heap.memory_elsewhere = true;
  for (int i = 0; i < count; i++) {
    addresses[i] = (uint64_t)(i + 1) * 2 * MIB;
    ck_assert_int_eq(pool_heap_hand_out(&fixture->heap, addresses[i], 2 * MIB, MIB, 0, fixture), VMM_SUCCESS);
  }
}

/* Frees; true when the memory is free for reuse at once. */
static bool take_back(pools_fixture *fixture, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(&fixture->heap, address), taken;
  require(allocation != NULL, "0x%" PRIx64 " is not live", address);
  vmm_status status;
  bool at_once = pool_heap_take_back(&fixture->heap, allocation, &taken, &status);
  require(status == VMM_SUCCESS && (!at_once || taken.address == address), "0x%" PRIx64 " is not taken back",
          address);
  return at_once;
}

START_TEST(waits_for_the_other_stream) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 5, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  vmm_address address[2];
  hand_out(&fixture, address, 2);
  ck_assert_int_eq(pool_heap_record_stream(heap, address[0], 7), VMM_SUCCESS);
  ck_assert_int_eq(pool_heap_record_stream(heap, address[0], 7), VMM_SUCCESS); /* once counts */
  ck_assert_int_eq(pool_heap_record_stream(heap, address[1], 0), VMM_SUCCESS); /* its own stream: nothing */
  ck_assert(take_back(&fixture, address[1]));
  ck_assert(!take_back(&fixture, address[0]));
  /* Freed for the caller, active for the device. */
  const pool_statistics *statistics = &heap->statistics;
  ck_assert_uint_eq(statistics->allocations.current, 0);
  ck_assert_uint_eq(statistics->allocated_bytes.current, 0);
  ck_assert_uint_eq(statistics->active_bytes.current, 2 * MIB);
  ck_assert_uint_eq(statistics->requested_bytes.current, MIB);
  ck_assert_ptr_null(pool_heap_find(heap, address[0]));
  ck_assert_int_eq(pool_heap_record_stream(heap, address[0], 3), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_heap_hand_out(heap, address[0], 512, 1, 0, NULL), VMM_INVALID_VALUE);
  pool_allocation taken;
  for (int tick = 0; tick < 5; tick++) {
    ck_assert(!pool_heap_next_complete(heap, false, &taken));
    pools_fixture_check(&fixture, "waiting");
    vmm_sim_tick(fixture.sim);
  }
  ck_assert(pool_heap_next_complete(heap, false, &taken));
  ck_assert_uint_eq(taken.address, address[0]);
  ck_assert_uint_eq(statistics->active_bytes.current, 0);
  ck_assert_uint_eq(statistics->requested_bytes.current, 0);
  ck_assert(!pool_heap_next_complete(heap, true, &taken));
  ck_assert_uint_eq(statistics->host_waits, 0);
  ck_assert_int_eq(pool_heap_hand_out(heap, address[0], 512, 1, 0, NULL), VMM_SUCCESS);
  pools_fixture_close(&fixture);
}
END_TEST

START_TEST(waits_for_every_stream) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 5, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  vmm_address address[3];
  hand_out(&fixture, address, 3);
  for (vmm_stream stream = 1; stream <= 20; stream++) {
    ck_assert_int_eq(pool_heap_record_stream(heap, address[0], stream), VMM_SUCCESS);
  }
  ck_assert_int_eq(pool_heap_record_stream(heap, address[1], 4), VMM_SUCCESS);
  ck_assert(!take_back(&fixture, address[0]));
  vmm_sim_tick(fixture.sim);
  ck_assert(!take_back(&fixture, address[1]));
  vmm_sim_usage usage;
  vmm_sim_usage_get(fixture.sim, &usage);
  ck_assert_uint_eq(usage.events, 21);
  ck_assert_uint_eq(heap->pending_count, 2);
  pool_allocation taken;
  for (int tick = 1; tick < 5; tick++) {
    ck_assert(!pool_heap_next_complete(heap, false, &taken));
    vmm_sim_tick(fixture.sim);
  }
  ck_assert(pool_heap_next_complete(heap, false, &taken));
  ck_assert_uint_eq(taken.address, address[0]);
  ck_assert(!pool_heap_next_complete(heap, false, &taken));
  /* The host waits for the other. */
  ck_assert(pool_heap_next_complete(heap, true, &taken));
  ck_assert_uint_eq(taken.address, address[1]);
  ck_assert_uint_eq(heap->statistics.host_waits, 1);
  vmm_sim_usage_get(fixture.sim, &usage);
  ck_assert_uint_eq(usage.events, 0);
  pools_fixture_close(&fixture);
}
END_TEST

START_TEST(stays_live_when_no_event_can_be_recorded) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 5, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  vmm_address address[2];
  hand_out(&fixture, address, 2);
  for (vmm_stream stream = 1; stream <= 3; stream++) {
    for (int i = 0; i < 2; i++)
      ck_assert_int_eq(pool_heap_record_stream(heap, address[i], stream), VMM_SUCCESS);
  }
  ck_assert(!take_back(&fixture, address[1]));
  for (uint64_t k = 1; k <= 3; k++) {
    pools_picture before, after;
    pools_picture_take(&fixture, &before);
    vmm_sim_fail(fixture.sim, VMM_CALL_EVENT_RECORD, k, VMM_UNKNOWN);
    pool_allocation *allocation = pool_heap_find(heap, address[0]), taken;
    vmm_status status;
    ck_assert(!pool_heap_take_back(heap, allocation, &taken, &status));
    ck_assert_int_eq(status, VMM_UNKNOWN);
    pools_picture_take(&fixture, &after);
    pools_picture_same(&before, &after, "event_record");
    ck_assert_ptr_eq(pool_heap_find(heap, address[0]), allocation);
  }
  /* The streams are still known, and the other free is not disturbed. */
  ck_assert(!take_back(&fixture, address[0]));
  pool_allocation taken;
  ck_assert(pool_heap_next_complete(heap, true, &taken));
  ck_assert_uint_eq(taken.address, address[1]);
  ck_assert(pool_heap_next_complete(heap, true, &taken));
  ck_assert_uint_eq(taken.address, address[0]);
  pools_fixture_close(&fixture);
}
END_TEST

START_TEST(stays_out_of_use_when_the_device_cannot_tell) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 2, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  vmm_address address[1];
  hand_out(&fixture, address, 1);
  ck_assert_int_eq(pool_heap_record_stream(heap, address[0], 1), VMM_SUCCESS);
  ck_assert(!take_back(&fixture, address[0]));
  pool_allocation taken;
  vmm_sim_fail(fixture.sim, VMM_CALL_EVENT_WAIT, 1, VMM_UNKNOWN);
  ck_assert(!pool_heap_next_complete(heap, true, &taken));
  for (int i = 0; i < 2; i++) vmm_sim_tick(fixture.sim);
  vmm_sim_fail(fixture.sim, VMM_CALL_EVENT_QUERY, 1, VMM_UNKNOWN);
  ck_assert(!pool_heap_next_complete(heap, true, &taken));
  ck_assert_uint_eq(heap->pending_count, 1);
  pools_fixture_check(&fixture, "a device that cannot tell");
  ck_assert(pool_heap_next_complete(heap, false, &taken));
  pools_fixture_close(&fixture);
}
END_TEST

START_TEST(refuses_absurd_streams) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  vmm_address address[1];
  hand_out(&fixture, address, 1);
  ck_assert_int_eq(pool_heap_record_stream(&fixture.heap, address[0], UINT32_MAX), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_heap_record_stream(&fixture.heap, address[0], POOL_STREAM_LIMIT), VMM_INVALID_VALUE);
  ck_assert_int_eq(pool_heap_record_stream(&fixture.heap, address[0], POOL_STREAM_LIMIT - 1), VMM_SUCCESS);
  ck_assert(!take_back(&fixture, address[0]));
  pools_fixture_close(&fixture);
}
END_TEST

/* ---- a random program of frees on streams ---- */

enum { BLOCKS = 300, STREAMS = 6, DELAY = 40, DEFERRED_STEPS = 60000 };

typedef struct model_block {
  enum { UNUSED, LIVE, WAITING } state;
  unsigned used_by; /* bit per stream */
  uint64_t due;     /* tick at which all its events are reached */
} model_block;

START_TEST(never_reuses_before_the_event_and_always_after) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, DELAY, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  heap->memory_elsewhere = true;
  uint64_t random = pools_random_seed("never_reuses_before_the_event_and_always_after"), now = 0,
           deferred = 0;
  model_block model[BLOCKS] = {0};
  for (int step = 0; step < DEFERRED_STEPS; step++) {
    uint64_t i = pools_random_below(&random, BLOCKS), action = pools_random_below(&random, 8);
    vmm_address address = (i + 1) * 512;
    model_block *block = &model[i];
    vmm_stream stream = (vmm_stream)pools_random_below(&random, STREAMS);
    if (block->state == UNUSED) {
      require(pool_heap_hand_out(heap, address, 512, 1, 0, block) == VMM_SUCCESS, "step %d", step);
      *block = (model_block){.state = LIVE};
    } else if (block->state == LIVE && action < 5) {
      require(pool_heap_record_stream(heap, address, stream) == VMM_SUCCESS, "step %d", step);
      if (stream != 0) block->used_by |= 1u << stream;
    } else if (block->state == LIVE) {
      bool at_once = take_back(&fixture, address);
      require(at_once == (block->used_by == 0), "step %d", step);
      block->state = at_once ? UNUSED : WAITING;
      block->due = now + DELAY;
      deferred += !at_once;
    } else {
      require(!pool_heap_find(heap, address), "step %d: found while it waits", step);
    }
    if (action == 7) {
      vmm_sim_tick(fixture.sim);
      now++;
    }
    pool_allocation taken;
    while (pool_heap_next_complete(heap, false, &taken)) {
      model_block *done = taken.owner;
      require(done->state == WAITING && done->due <= now, "step %d: taken %" PRId64 " ticks too early", step,
              (int64_t)(done->due - now));
      done->state = UNUSED;
    }
    for (int k = 0; k < BLOCKS; k++) {
      require(model[k].state != WAITING || model[k].due > now, "step %d: block %d is not given back", step,
              k);
    }
    if (step % 2000 == 0) pools_fixture_check(&fixture, "random frees");
  }
  ck_assert_uint_gt(deferred, 1000);
  pool_allocation taken;
  while (pool_heap_next_complete(heap, true, &taken)) ((model_block *)taken.owner)->state = UNUSED;
  for (int k = 0; k < BLOCKS; k++) ck_assert_int_ne(model[k].state, WAITING);
  ck_assert_uint_eq(heap->pending_count, 0);
  pools_fixture_close(&fixture);
}
END_TEST

static Suite *allocations_suite(void) {
  Suite *suite = suite_create("pools_allocations");
  TCase *table = tcase_create("table");
  tcase_add_test(table, agrees_with_a_naive_table);
  suite_add_tcase(suite, table);
  TCase *waiting = tcase_create("waiting");
  tcase_add_test(waiting, waits_for_the_other_stream);
  tcase_add_test(waiting, waits_for_every_stream);
  tcase_add_test(waiting, stays_live_when_no_event_can_be_recorded);
  tcase_add_test(waiting, stays_out_of_use_when_the_device_cannot_tell);
  tcase_add_test(waiting, refuses_absurd_streams);
  tcase_add_test(waiting, never_reuses_before_the_event_and_always_after);
  suite_add_tcase(suite, waiting);
  return suite;
}

TEST_MAIN(allocations_suite)
