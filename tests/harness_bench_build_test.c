/* What the benchmarks are made of: samples, builds from chunks, other handles, stitched memory. */
#include <stdlib.h>
#include <string.h>

#include "harness/bench_build.h"
#include "harness/bench_samples.h"
#include "harness/bench_stitch.h"
#include "tests/test_main.h"
#include "vmm/meter.h"
#include "vmm/profile.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)

static vmm_driver *open_sim(const vmm_profile *profile, bool backed) {
  const vmm_sim_configuration configuration = {
      .profile = profile, .capacity = 256 * MIB, .granularity = profile ? 0 : 2 * MIB, .backed = backed};
  vmm_driver *sim;
  ck_assert_int_eq(vmm_sim_create(&configuration, &sim), VMM_SUCCESS);
  return sim;
}

static void assert_empty(vmm_driver *sim) {
  vmm_sim_usage usage;
  vmm_sim_usage_get(sim, &usage);
  ck_assert_uint_eq(usage.physical_bytes, 0);
  ck_assert_uint_eq(usage.handles, 0);
  ck_assert_uint_eq(usage.mappings, 0);
  ck_assert_uint_eq(usage.reservations, 0);
}

START_TEST(samples_are_ranked) {
  bench_samples samples = {0};
  bench_summary summary = bench_samples_summarize(&samples);
  ck_assert_uint_eq(summary.count, 0);
  ck_assert(summary.p50 == 0 && summary.maximum == 0);
  bench_samples_add(&samples, 7);
  summary = bench_samples_summarize(&samples);
  ck_assert(summary.p50 == 7 && summary.p90 == 7 && summary.p99 == 7 && summary.maximum == 7);
  bench_samples_free(&samples);
  for (uint64_t i = 200; i > 0; i--) bench_samples_add(&samples, i);
  summary = bench_samples_summarize(&samples);
  ck_assert_uint_eq(summary.count, 200);
  ck_assert_double_eq(summary.p50, 100.5);
  ck_assert_double_eq(summary.mean, 100.5);
  ck_assert_uint_eq(summary.minimum, 1);
  ck_assert_uint_eq(summary.p90, 180);
  ck_assert_uint_eq(summary.p99, 198);
  ck_assert_uint_eq(summary.maximum, 200);
  bench_samples_free(&samples);
}
END_TEST

/* Calls of a kind that went through a meter. */
static uint64_t counted(const vmm_driver *meter, vmm_call call) {
  vmm_meter_call counts;
  vmm_meter_get(meter, call, &counts);
  return counts.count;
}

START_TEST(builds_make_the_calls_that_they_say) {
  vmm_driver *sim = open_sim(NULL, false), *meter, *failed;
  ck_assert_int_eq(vmm_meter_create(sim, &meter), VMM_SUCCESS);
  for (int whole = 0; whole < 2; whole++) {
    vmm_meter_reset(meter);
    /* The last chunk is the rest: 3 of 6 MiB and one of 2 MiB. */
    const bench_build_plan plan = {
        .total = 20 * MIB, .chunk = 6 * MIB, .whole_range = whole, .aliases = 1, .threads = 1};
    bench_build_times times;
    ck_assert_int_eq(bench_build_run(&meter, &plan, &times, NULL, &failed), VMM_SUCCESS);
    for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) {
      ck_assert_uint_eq(times.calls[stage], counted(meter, bench_stage_calls[stage]));
    }
    ck_assert_uint_eq(bench_build_chunks(&plan), 4);
    ck_assert_uint_eq(times.calls[BENCH_RESERVE], 1);
    ck_assert_uint_eq(times.calls[BENCH_CREATE], 4);
    ck_assert_uint_eq(times.calls[BENCH_MAP], 4);
    ck_assert_uint_eq(times.calls[BENCH_SET_ACCESS], whole ? 1 : 4);
    ck_assert_uint_eq(times.calls[BENCH_UNMAP], whole ? 1 : 4);
    ck_assert_uint_eq(times.calls[BENCH_RELEASE], 4);
    ck_assert_uint_eq(times.calls[BENCH_ADDRESS_FREE], 1);
    assert_empty(sim);
  }
  vmm_driver_destroy(meter);
  vmm_driver_destroy(sim);
}
END_TEST

START_TEST(aliases_are_mapped_but_not_measured) {
  char message[256];
  vmm_profile *profile;
  ck_assert_int_eq(vmm_profile_load("h200", &profile, message, sizeof message), VMM_SUCCESS);
  vmm_driver *sim = open_sim(profile, false), *meter, *failed;
  ck_assert_int_eq(vmm_meter_create(sim, &meter), VMM_SUCCESS);
  bench_build_times times[2];
  for (unsigned i = 0; i < 2; i++) {
    vmm_meter_reset(meter);
    const bench_build_plan plan = {.total = 16 * MIB, .chunk = 2 * MIB, .aliases = i ? 5 : 1, .threads = 1};
    ck_assert_int_eq(bench_build_run(&meter, &plan, &times[i], NULL, &failed), VMM_SUCCESS);
    ck_assert_uint_eq(counted(meter, VMM_CALL_MAP), 8 * plan.aliases);
    assert_empty(sim);
  }
  /* The simulated device charges aliases no more than others. */
  for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++)
    ck_assert_uint_eq(times[0].ns[stage], times[1].ns[stage]);
  ck_assert_uint_eq(times[0].ns[BENCH_MAP], 8 * vmm_profile_cost_ns(profile, VMM_CALL_MAP, 2 * MIB, 8));
  vmm_driver_destroy(meter);
  vmm_driver_destroy(sim);
  vmm_profile_destroy(profile);
}
END_TEST

START_TEST(samples_of_calls_add_up_to_stages) {
  char message[256];
  vmm_profile *profile;
  ck_assert_int_eq(vmm_profile_load("h200", &profile, message, sizeof message), VMM_SUCCESS);
  vmm_driver *sim = open_sim(profile, false), *failed;
  const bench_build_plan plan = {.total = 64 * MIB, .chunk = 2 * MIB, .aliases = 1, .threads = 1};
  bench_samples calls[BENCH_STAGE_COUNT] = {0};
  bench_build_times times;
  ck_assert_int_eq(bench_build_run(&sim, &plan, &times, calls, &failed), VMM_SUCCESS);
  uint64_t all = 0;
  for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) {
    uint64_t sum = 0;
    ck_assert_uint_eq(calls[stage].count, times.calls[stage]);
    for (size_t i = 0; i < calls[stage].count; i++) sum += calls[stage].values[i];
    ck_assert_uint_eq(sum, times.ns[stage]);
    ck_assert_uint_gt(sum, 0);
    all += sum;
    bench_samples_free(&calls[stage]);
  }
  ck_assert_uint_eq(bench_build_ns(&times) + bench_teardown_ns(&times), all);
  vmm_driver_destroy(sim);
  vmm_profile_destroy(profile);
}
END_TEST

/* Every call that a build with aliases makes fails once: what it was comes back, nothing is left. */
START_TEST(failed_builds_leave_nothing) {
  const vmm_call call = bench_stage_calls[_i];
  vmm_driver *sim = open_sim(NULL, false), *failed;
  const bench_build_plan plan = {.total = 8 * MIB, .chunk = 2 * MIB, .aliases = 3, .threads = 1};
  bench_build_times times;
  unsigned failures = 0;
  for (uint64_t k = 1; k < 32; k++) {
    ck_assert_int_eq(vmm_sim_fail(sim, call, k, VMM_NOT_PERMITTED), VMM_SUCCESS);
    vmm_status status = bench_build_run(&sim, &plan, &times, NULL, &failed);
    vmm_sim_fail_none(sim);
    if (status == VMM_SUCCESS) break;
    failures++;
    ck_assert_int_eq(status, VMM_NOT_PERMITTED);
    ck_assert_ptr_eq(failed, sim);
    ck_assert_int_eq(sim->error.call, call);
    vmm_error_clear(sim);
    assert_empty(sim);
  }
  ck_assert_uint_gt(failures, 0);
  vmm_driver_destroy(sim);
}
END_TEST

START_TEST(impossible_plans_are_refused) {
  vmm_driver *sim = open_sim(NULL, false), *failed;
  static const bench_build_plan plans[] = {
      {.total = 4 * MIB, .chunk = 0, .aliases = 1, .threads = 1},
      {.total = 4 * MIB, .chunk = 2 * MIB, .aliases = 0, .threads = 1},
      {.total = 4 * MIB, .chunk = 2 * MIB, .aliases = 1, .threads = 0},
      {.total = 4 * MIB, .chunk = 2 * MIB, .aliases = 1, .threads = 3},
  };
  bench_build_times times;
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    ck_assert_int_eq(bench_build_run(&sim, &plans[i], &times, NULL, &failed), VMM_INVALID_VALUE);
  }
  /* More than the device has. */
  const bench_build_plan large = {.total = 512 * MIB, .chunk = 2 * MIB, .aliases = 1, .threads = 1};
  ck_assert_int_eq(bench_build_run(&sim, &large, &times, NULL, &failed), VMM_OUT_OF_MEMORY);
  assert_empty(sim);
  vmm_driver_destroy(sim);
}
END_TEST

/* Threads need a driver object each; separate simulated devices serve. */
START_TEST(threads_share_the_chunks) {
  vmm_driver *drivers[3], *failed;
  for (int i = 0; i < 3; i++) drivers[i] = open_sim(NULL, false);
  const bench_build_plan plan = {.total = 20 * MIB, .chunk = 2 * MIB, .aliases = 1, .threads = 3};
  bench_samples calls[BENCH_STAGE_COUNT] = {0};
  bench_build_times times;
  ck_assert_int_eq(bench_build_run(drivers, &plan, &times, calls, &failed), VMM_SUCCESS);
  ck_assert_uint_eq(times.calls[BENCH_CREATE], 10);
  ck_assert_uint_eq(times.calls[BENCH_RESERVE], 3);
  ck_assert_uint_eq(calls[BENCH_MAP].count, 10);
  ck_assert_uint_gt(times.ns[BENCH_CREATE], 0);
  ck_assert_int_eq(vmm_sim_fail(drivers[1], VMM_CALL_MAP, 2, VMM_OUT_OF_MEMORY), VMM_SUCCESS);
  ck_assert_int_eq(bench_build_run(drivers, &plan, &times, calls, &failed), VMM_OUT_OF_MEMORY);
  ck_assert_ptr_eq(failed, drivers[1]);
  for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) bench_samples_free(&calls[stage]);
  for (int i = 0; i < 3; i++) {
    assert_empty(drivers[i]);
    vmm_driver_destroy(drivers[i]);
  }
}
END_TEST

START_TEST(filler_grows_and_goes) {
  vmm_driver *sim = open_sim(NULL, false);
  bench_filler filler = {0};
  ck_assert_int_eq(bench_filler_open(&filler, sim, 64, 2 * MIB), VMM_SUCCESS);
  ck_assert_int_eq(bench_filler_grow(&filler, sim, 10), VMM_SUCCESS);
  ck_assert_int_eq(bench_filler_grow(&filler, sim, 64), VMM_SUCCESS);
  vmm_sim_usage usage;
  vmm_sim_usage_get(sim, &usage);
  ck_assert_uint_eq(usage.handles, 64);
  ck_assert_uint_eq(usage.mappings, 64);
  ck_assert(vmm_sim_accessible(sim, filler.address, 128 * MIB));
  ck_assert_int_eq(bench_filler_grow(&filler, sim, 65), VMM_INVALID_VALUE);
  ck_assert_int_eq(bench_filler_close(&filler, sim), VMM_SUCCESS);
  assert_empty(sim);
  /* A failure on the way leaves what can be closed. */
  ck_assert_int_eq(bench_filler_open(&filler, sim, 200, 2 * MIB), VMM_SUCCESS);
  ck_assert_int_eq(bench_filler_grow(&filler, sim, 200), VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(bench_filler_close(&filler, sim), VMM_SUCCESS);
  assert_empty(sim);
  ck_assert_int_eq(bench_filler_open(&filler, sim, 0, 2 * MIB), VMM_SUCCESS);
  ck_assert_int_eq(bench_filler_close(&filler, sim), VMM_SUCCESS);
  vmm_driver_destroy(sim);
}
END_TEST

/* The places of all chunks of a stitched range. */
static void read_places(vmm_driver *sim, const bench_stitch *stitch, unsigned place, uint64_t *physical) {
  for (uint64_t i = 0; i < stitch->count; i++) {
    physical[i] = vmm_sim_physical(sim, stitch->places[place] + i * stitch->chunk);
  }
}

static int compare_numbers(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return a < b ? -1 : a > b;
}

START_TEST(stitches_hold_every_chunk_once) {
  enum { CHUNKS = 16 };
  vmm_driver *sim = open_sim(NULL, true);
  bench_stitch stitch;
  uint64_t ordered[CHUNKS], shuffled[CHUNKS], again[CHUNKS];
  ck_assert_int_eq(bench_stitch_open(&stitch, sim, CHUNKS * 2 * MIB, 2 * MIB), VMM_SUCCESS);
  ck_assert_int_eq(bench_stitch_map(&stitch, false, 1, 0), VMM_SUCCESS);
  ck_assert_int_eq(bench_stitch_map(&stitch, true, 1, 1), VMM_SUCCESS);
  ck_assert_int_eq(bench_stitch_map(&stitch, true, 1, 2), VMM_SUCCESS);
  ck_assert_int_eq(bench_stitch_map(&stitch, true, 1, 2), VMM_INVALID_VALUE);
  ck_assert_int_eq(bench_stitch_map(&stitch, true, 1, BENCH_STITCH_PLACES), VMM_INVALID_VALUE);
  read_places(sim, &stitch, 0, ordered);
  read_places(sim, &stitch, 1, shuffled);
  read_places(sim, &stitch, 2, again);
  ck_assert_mem_eq(shuffled, again, sizeof shuffled);
  ck_assert_mem_ne(shuffled, ordered, sizeof shuffled);
  qsort(ordered, CHUNKS, sizeof *ordered, compare_numbers);
  qsort(shuffled, CHUNKS, sizeof *shuffled, compare_numbers);
  ck_assert_mem_eq(shuffled, ordered, sizeof shuffled);
  for (int i = 1; i < CHUNKS; i++) ck_assert_uint_lt(ordered[i - 1], ordered[i]);
  /* What is written through one place is read through another. */
  vmm_mismatch mismatch;
  ck_assert_int_eq(vmm_fill(sim, stitch.places[1], stitch.size, 0, 5), VMM_SUCCESS);
  ck_assert_int_eq(vmm_verify(sim, stitch.places[2], stitch.size, 0, 5, &mismatch), VMM_SUCCESS);
  ck_assert_uint_eq(mismatch.wrong_words, 0);
  ck_assert_int_eq(bench_stitch_close(&stitch), VMM_SUCCESS);
  assert_empty(sim);
  vmm_driver_destroy(sim);
}
END_TEST

START_TEST(failed_stitches_leave_nothing) {
  vmm_driver *sim = open_sim(NULL, false);
  bench_stitch stitch;
  ck_assert_int_eq(bench_stitch_open(&stitch, sim, 5 * MIB, 2 * MIB), VMM_INVALID_VALUE);
  ck_assert_int_eq(bench_stitch_open(&stitch, sim, 512 * MIB, 2 * MIB), VMM_OUT_OF_MEMORY);
  assert_empty(sim);
  static const vmm_call calls[] = {VMM_CALL_ADDRESS_RESERVE, VMM_CALL_MAP, VMM_CALL_SET_ACCESS};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    ck_assert_int_eq(bench_stitch_open(&stitch, sim, 8 * MIB, 2 * MIB), VMM_SUCCESS);
    ck_assert_int_eq(bench_stitch_map(&stitch, false, 0, 0), VMM_SUCCESS);
    ck_assert_int_eq(vmm_sim_fail(sim, calls[i], 1, VMM_NOT_PERMITTED), VMM_SUCCESS);
    ck_assert_int_eq(bench_stitch_map(&stitch, false, 0, 1), VMM_NOT_PERMITTED);
    vmm_sim_usage usage;
    vmm_sim_usage_get(sim, &usage);
    ck_assert_uint_eq(usage.mappings, 4);
    ck_assert_uint_eq(usage.reservations, 1);
    ck_assert_int_eq(bench_stitch_map(&stitch, false, 0, 1), VMM_SUCCESS);
    ck_assert_int_eq(bench_stitch_close(&stitch), VMM_SUCCESS);
    assert_empty(sim);
  }
  vmm_driver_destroy(sim);
}
END_TEST

static Suite *bench_build_suite(void) {
  Suite *suite = suite_create("bench building blocks");
  TCase *cases = tcase_create("blocks");
  tcase_add_test(cases, samples_are_ranked);
  tcase_add_test(cases, builds_make_the_calls_that_they_say);
  tcase_add_test(cases, aliases_are_mapped_but_not_measured);
  tcase_add_test(cases, samples_of_calls_add_up_to_stages);
  tcase_add_loop_test(cases, failed_builds_leave_nothing, 0, BENCH_STAGE_COUNT);
  tcase_add_test(cases, impossible_plans_are_refused);
  tcase_add_test(cases, threads_share_the_chunks);
  tcase_add_test(cases, filler_grows_and_goes);
  tcase_add_test(cases, stitches_hold_every_chunk_once);
  tcase_add_test(cases, failed_stitches_leave_nothing);
  suite_add_tcase(suite, cases);
  return suite;
}

TEST_MAIN(bench_build_suite)
