/* The model of the stream-ordered pool: reuse between streams, giving memory back, its bound. */
#include <string.h>

#include "tests/test_main.h"
#include "tests/vmm_conformance.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static const vmm_pool_configuration everything = {.release_threshold = UINT64_MAX,
                                                  .maximum_bytes = UINT64_MAX,
                                                  .reuse_event = true,
                                                  .reuse_opportunistic = true,
                                                  .reuse_internal = true};

static vmm_driver *make(vmm_sim_configuration configuration, const vmm_pool_configuration *pool) {
  vmm_driver *driver = NULL;
  if (!configuration.capacity) configuration.capacity = GIB;
  ck_assert_success(vmm_sim_create(&configuration, &driver));
  ck_assert_success(vmm_pool_configure(driver, pool));
  return driver;
}

static vmm_address take(vmm_driver *driver, uint64_t size, vmm_stream stream) {
  vmm_address address = 0;
  ck_assert_success(vmm_malloc_async(driver, size, stream, &address));
  return address;
}

static uint64_t reserved(vmm_driver *driver) {
  vmm_pool_usage usage;
  vmm_sim_usage held;
  ck_assert_success(vmm_pool_usage_get(driver, &usage));
  vmm_sim_usage_get(driver, &held);
  ck_assert_uint_eq(usage.reserved_bytes, held.pool_bytes);
  return usage.reserved_bytes;
}

/* ---- reuse ---- */

START_TEST(a_wait_for_an_event_orders_reuse) {
  vmm_pool_configuration pool = everything;
  pool.reuse_event = _i;
  vmm_driver *driver = make((vmm_sim_configuration){.event_delay = 3}, &pool);
  vmm_address first = take(driver, 40 * MIB, 1);
  ck_assert_success(vmm_free_async(driver, first, 1));
  vmm_event event;
  ck_assert_success(vmm_event_record(driver, 1, &event));
  ck_assert_uint_ne(take(driver, 40 * MIB, 2), first);
  ck_assert_success(vmm_stream_wait_event(driver, 2, event));
  /* What is freed after the event is not covered by it. */
  vmm_address late = take(driver, 33 * MIB, 1);
  ck_assert_uint_eq(late, first);
  ck_assert_success(vmm_free_async(driver, late, 1));
  ck_assert_uint_ne(take(driver, 33 * MIB, 2), first);
  if (_i) {
    ck_assert_uint_eq(take(driver, 7 * MIB, 2), first + 33 * MIB); /* the rest was freed before it */
  } else {
    ck_assert_uint_ne(take(driver, 7 * MIB, 2), first + 33 * MIB);
  }
  vmm_event_discard(driver, event);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(completed_frees_serve_all_when_allowed) {
  vmm_pool_configuration pool = everything;
  pool.reuse_opportunistic = _i;
  vmm_driver *driver = make((vmm_sim_configuration){.event_delay = 3}, &pool);
  vmm_address first = take(driver, 32 * MIB, 1);
  ck_assert_success(vmm_free_async(driver, first, 1));
  for (int i = 0; i < 3; i++) vmm_sim_tick(driver);
  vmm_address second = take(driver, 32 * MIB, 2);
  ck_assert_int_eq(second == first, _i);
  ck_assert_success(vmm_free_async(driver, second, 2));
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_uint_eq(take(driver, 32 * MIB, 3), first);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(a_full_device_takes_what_another_stream_freed) {
  vmm_pool_configuration pool = everything;
  pool.reuse_internal = _i;
  vmm_driver *driver = make((vmm_sim_configuration){.event_delay = 3, .capacity = 64 * MIB}, &pool);
  vmm_address first = take(driver, 64 * MIB, 1), second = 0;
  ck_assert_success(vmm_free_async(driver, first, 1));
  ck_assert_status(vmm_malloc_async(driver, 48 * MIB, 2, &second), _i ? VMM_SUCCESS : VMM_OUT_OF_MEMORY);
  ck_assert_uint_eq(second, _i ? first : 0);
  ck_assert_uint_eq(reserved(driver), 64 * MIB);
  vmm_driver_destroy(driver);
}
END_TEST

/* ---- giving back ---- */

START_TEST(trimming_leaves_holes_that_are_filled_again) {
  vmm_profile *profile;
  char message[200];
  ck_assert_success(vmm_profile_load("h200", &profile, message, sizeof message));
  vmm_driver *driver = make((vmm_sim_configuration){.profile = profile, .backed = _i}, &everything);
  vmm_address blocks[6];
  for (int i = 0; i < 6; i++) blocks[i] = take(driver, 64 * MIB, 0);
  ck_assert_uint_eq(reserved(driver), 384 * MIB);
  ck_assert_success(vmm_free_async(driver, blocks[1], 0));
  ck_assert_success(vmm_free_async(driver, blocks[3], 0));
  ck_assert_success(vmm_pool_trim(driver, 320 * MIB)); /* from the end down, no more than asked */
  ck_assert_uint_eq(reserved(driver), 320 * MIB);
  uint64_t before = driver->busy_ns;
  ck_assert_uint_eq(take(driver, 64 * MIB, 0), blocks[1]); /* has its memory still */
  uint64_t kept = driver->busy_ns - before;
  before = driver->busy_ns;
  ck_assert_uint_eq(take(driver, 40 * MIB, 0), blocks[3]); /* gets some */
  ck_assert_uint_gt(driver->busy_ns - before, kept);
  ck_assert_uint_eq(reserved(driver), 384 * MIB);
  ck_assert(vmm_sim_accessible(driver, blocks[3], 40 * MIB));
  ck_assert_uint_ne(vmm_sim_physical(driver, blocks[3]), vmm_sim_physical(driver, blocks[1]));
  if (_i) {
    vmm_mismatch mismatch;
    ck_assert_success(vmm_fill(driver, blocks[3], 40 * MIB, 0, 5));
    ck_assert_success(vmm_fill(driver, blocks[1], 64 * MIB, 0, 6));
    ck_assert_success(vmm_verify(driver, blocks[3], 40 * MIB, 0, 5, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 0);
  }
  for (int i = 0; i < 6; i++) ck_assert_success(vmm_free_async(driver, blocks[i], 0));
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_success(vmm_pool_trim(driver, 0));
  ck_assert_uint_eq(reserved(driver), 0);
  ck_assert_uint_eq(take(driver, 500 * MIB, 0), blocks[0]);
  vmm_driver_destroy(driver);
  vmm_profile_destroy(profile);
}
END_TEST

/* Chunks that are free apart from each other serve one request together: nothing new is taken. */
START_TEST(free_chunks_move_to_where_they_are_needed) {
  vmm_driver *driver = make((vmm_sim_configuration){.backed = true}, &everything);
  vmm_address blocks[8];
  vmm_mismatch mismatch;
  for (uint64_t i = 0; i < 8; i++) {
    blocks[i] = take(driver, 32 * MIB, 0);
    ck_assert_success(vmm_fill(driver, blocks[i], 32 * MIB, 0, i));
  }
  uint64_t moved[2] = {vmm_sim_physical(driver, blocks[1]), vmm_sim_physical(driver, blocks[4])};
  ck_assert_success(vmm_free_async(driver, blocks[1], 0));
  ck_assert_success(vmm_free_async(driver, blocks[4], 0));
  vmm_address whole = take(driver, 64 * MIB, 0);
  ck_assert_uint_eq(whole, blocks[7] + 32 * MIB);
  ck_assert_uint_eq(reserved(driver), 256 * MIB);
  uint64_t physical[2] = {vmm_sim_physical(driver, whole), vmm_sim_physical(driver, whole + 32 * MIB)};
  ck_assert((physical[0] == moved[0] && physical[1] == moved[1]) ||
            (physical[0] == moved[1] && physical[1] == moved[0]));
  ck_assert_success(vmm_fill(driver, whole, 64 * MIB, 0, 99));
  for (uint64_t i = 0; i < 8; i++) {
    if (i == 1 || i == 4) continue;
    ck_assert_success(vmm_verify(driver, blocks[i], 32 * MIB, 0, i, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 0);
  }
  ck_assert_success(vmm_verify(driver, whole, 64 * MIB, 0, 99, &mismatch));
  ck_assert_uint_eq(mismatch.wrong_words, 0);
  /* The places that they left are filled again, the lowest first. */
  ck_assert_uint_eq(take(driver, 20 * MIB, 0), blocks[1]);
  ck_assert_uint_eq(reserved(driver), 288 * MIB);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(a_free_that_the_host_has_not_seen_cannot_be_trimmed) {
  vmm_driver *driver = make((vmm_sim_configuration){.event_delay = 1}, &everything);
  ck_assert_success(vmm_free_async(driver, take(driver, 64 * MIB, 0), 0));
  vmm_sim_tick(driver);
  ck_assert_success(vmm_pool_trim(driver, 0));
  ck_assert_uint_eq(reserved(driver), 64 * MIB);
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_success(vmm_pool_trim(driver, 0));
  ck_assert_uint_eq(reserved(driver), 0);
  vmm_driver_destroy(driver);
}
END_TEST

/* rmm#2510: with a threshold of 0 every synchronisation gives all back, and it has to be taken again. */
START_TEST(synchronising_gives_back_what_is_beyond_the_threshold) {
  vmm_profile *profile;
  char message[200];
  ck_assert_success(vmm_profile_load("h200", &profile, message, sizeof message));
  static const uint64_t thresholds[] = {0, 256 * MIB, 512 * MIB, 1024 * MIB, UINT64_MAX};
  uint64_t cost[5];
  for (int i = 0; i < 5; i++) {
    vmm_pool_configuration pool = everything;
    pool.release_threshold = thresholds[i];
    vmm_driver *driver = make((vmm_sim_configuration){.profile = profile, .capacity = 2 * GIB}, &pool);
    for (int step = 0; step < 20; step++) {
      ck_assert_success(vmm_free_async(driver, take(driver, 800 * MIB, 0), 0));
      ck_assert_success(vmm_synchronize(driver));
      ck_assert_uint_eq(reserved(driver), thresholds[i] < 800 * MIB ? thresholds[i] : 800 * MIB);
    }
    cost[i] = driver->busy_ns;
    vmm_driver_destroy(driver);
  }
  ck_assert_uint_gt(cost[0], cost[1]);
  ck_assert_uint_gt(cost[1], cost[2]);
  ck_assert_uint_gt(cost[2], 2 * cost[3]); /* the knee: from here on all of it stays */
  ck_assert_uint_eq(cost[3], cost[4]);
  vmm_profile_destroy(profile);
}
END_TEST

/* ---- against a list ---- */

typedef struct block {
  vmm_address address;
  uint64_t size;
} block;

/* Random programs: live blocks never overlap, are accessible, and the pool's numbers are sums. */
START_TEST(random_programs_keep_the_accounts) {
  enum { LIVE = 64, STEPS = 4000 };
  block live[LIVE];
  int count = 0;
  uint64_t random = (uint64_t)_i + 1, used = 0, served = 0;
  vmm_pool_configuration pool = everything;
  pool.release_threshold = _i % 3 == 0 ? 64 * MIB : UINT64_MAX;
  pool.maximum_bytes = _i % 2 ? 640 * MIB : UINT64_MAX;
  pool.reuse_event = _i & 4;
  pool.reuse_opportunistic = !(_i & 8);
  vmm_driver *driver =
      make((vmm_sim_configuration){.event_delay = (uint64_t)_i % 5, .capacity = 768 * MIB}, &pool);
  for (int step = 0; step < STEPS; step++) {
    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t value = random >> 20, kind = value % 16;
    vmm_stream stream = (vmm_stream)(value >> 5) % 3;
    if (kind < 7 && count < LIVE) {
      uint64_t size = 1 + (value >> 8) % (value & 64 ? 80 * MIB : 64 * 1024);
      vmm_address address = 0;
      vmm_status status = vmm_malloc_async(driver, size, stream, &address);
      if (status == VMM_OUT_OF_MEMORY) continue;
      ck_assert_success(status);
      uint64_t rounded = (size + 511) / 512 * 512;
      for (int i = 0; i < count; i++) {
        if (address + rounded <= live[i].address || live[i].address + live[i].size <= address) continue;
        ck_abort_msg("step %d: overlap", step);
      }
      if (!vmm_sim_accessible(driver, address, rounded)) ck_abort_msg("step %d: no memory", step);
      live[count++] = (block){address, rounded};
      used += rounded;
      served++;
    } else if (kind < 13 && count > 0) {
      int i = (int)((value >> 9) % (uint64_t)count);
      used -= live[i].size;
      ck_assert_success(vmm_free_async(driver, live[i].address, stream));
      live[i] = live[--count];
    } else if (kind == 13) {
      ck_assert_success(vmm_pool_trim(driver, value % (800 * MIB)));
    } else if (kind == 14) {
      vmm_event event;
      ck_assert_success(vmm_event_record(driver, stream, &event));
      ck_assert_success(vmm_stream_wait_event(driver, (stream + 1) % 3, event));
      if (value & 128) ck_assert_success(vmm_event_wait(driver, event));
      vmm_event_discard(driver, event);
    } else {
      vmm_sim_tick(driver);
      if (value % 128 == 15) ck_assert_success(vmm_synchronize(driver));
    }
    vmm_pool_usage usage;
    if (vmm_pool_usage_get(driver, &usage) != VMM_SUCCESS || usage.used_bytes != used ||
        usage.reserved_bytes < used || usage.reserved_bytes % (32 * MIB) != 0 ||
        usage.reserved_peak_bytes > pool.maximum_bytes || usage.reserved_bytes > 768 * MIB)
      ck_abort_msg("step %d: the pool's numbers", step);
  }
  ck_assert_uint_gt(served, STEPS / 8);
  while (count > 0) ck_assert_success(vmm_free_async(driver, live[--count].address, 0));
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_success(vmm_pool_trim(driver, 0));
  ck_assert_uint_eq(reserved(driver), 0);
  vmm_driver_destroy(driver);
}
END_TEST

static Suite *pool_suite(void) {
  Suite *suite = suite_create("vmm pool");
  TCase *tcase = tcase_create("reuse");
  tcase_add_loop_test(tcase, a_wait_for_an_event_orders_reuse, 0, 2);
  tcase_add_loop_test(tcase, completed_frees_serve_all_when_allowed, 0, 2);
  tcase_add_loop_test(tcase, a_full_device_takes_what_another_stream_freed, 0, 2);
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("giving back");
  tcase_add_loop_test(tcase, trimming_leaves_holes_that_are_filled_again, 0, 2);
  tcase_add_test(tcase, free_chunks_move_to_where_they_are_needed);
  tcase_add_test(tcase, a_free_that_the_host_has_not_seen_cannot_be_trimmed);
  tcase_add_test(tcase, synchronising_gives_back_what_is_beyond_the_threshold);
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("random");
  tcase_add_loop_test(tcase, random_programs_keep_the_accounts, 0, 24);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(pool_suite)
