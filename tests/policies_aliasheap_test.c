/* aliasheap by hand: second mappings of free pieces, windows that run out, which hole serves whom, splits;
 * and on recordings of training runs: memory against the other policies, no driver call once shapes repeat,
 * laps, limits. Takes the bundled traces, and all of ../shared/traces where that folder is there. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/policies_fixture.h"
#include "tests/test_main.h"

enum { TRACES = 64, LAPS = 10, SETTLED = 3 };

/* Handles of 4 MiB, so that the layout is easy to see. */
#define EVEN "handle_start=4MiB,start_share=1,handle_least=4MiB,handle_edge=4MiB,handle_limit=4MiB"
#define BY_HAND "aliasheap:huge=12MiB,small_job=0,medium=1GiB,keep=0,near=0,settled=0," EVEN

static policies_fixture open_policy(const char *spec, uint64_t limit) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = spec, .limit = limit});
  return fixture;
}

static void expect_same_memory(const policies_fixture *fixture, vmm_address one, vmm_address other,
                               uint64_t size) {
  for (uint64_t at = 0; at < size; at += 512) {
    require(vmm_sim_physical(fixture->sim, one + at) == vmm_sim_physical(fixture->sim, other + at),
            "%" PRIu64 " bytes in, the memory is another", at);
  }
}

/* ---- by hand ---- */

/* Three holes of 4 MiB, the second not on borders: a request of 12 begins with the free end of a handle, goes
 * on with whole ones, and is the same memory at two addresses. Freed and asked for again it costs nothing. */
START_TEST(stitches_free_handles) {
  policies_fixture fixture = open_policy(BY_HAND, 0);
  vmm_address blocks[8];
  for (int i = 0; i < 8; i++) blocks[i] = policies_alloc(&fixture, 4 * MIB, 0);
  uint64_t reserved = policies_statistics(&fixture)->reserved_bytes.current;
  ck_assert_uint_eq(reserved, 32 * MIB);
  for (int i = 0; i < 6; i += 2) policies_free(&fixture, blocks[i]);
  uint64_t calls = policies_calls(&fixture, VMM_CALL_CREATE);
  vmm_address whole = policies_alloc(&fixture, 12 * MIB, 0);
  ck_assert_uint_eq(policies_counter(&fixture, "stitches_count"), 1);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, reserved);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_CREATE), calls);
  for (uint64_t i = 0; i < 3; i++) expect_same_memory(&fixture, whole + i * 4 * MIB, blocks[2 * i], 4 * MIB);
  policies_fixture_check(&fixture, "stitched");
  policies_free(&fixture, whole);
  calls = policies_memory_calls(&fixture);
  ck_assert_uint_eq(policies_alloc(&fixture, 12 * MIB, 0), whole);
  ck_assert_uint_eq(policies_counter(&fixture, "window_hits_count"), 1);
  policies_free(&fixture, whole);
  /* The handles serve at home meanwhile, and then the window does not. */
  vmm_address small = policies_alloc(&fixture, MIB, 0);
  ck_assert_uint_eq(small, blocks[0]);
  ck_assert_uint_eq(policies_memory_calls(&fixture), calls);
  policies_fixture_check(&fixture, "hit");
  policies_fixture_close(&fixture);
}
END_TEST

/* Every stitch here lacks memory: its window gets handles of its own and cannot be unmapped. With two windows
 * the third block lies behind the second; once that is idle, what it maps a second time goes. */
START_TEST(does_with_few_windows) {
  policies_fixture fixture = open_policy(BY_HAND ",windows=2,extension_minimum=1", 0);
  const pool_statistic *reserved = &policies_statistics(&fixture)->reserved_bytes;
  vmm_address blocks[16];
  for (int i = 0; i < 16; i++) blocks[i] = policies_alloc(&fixture, 4 * MIB, 0);
  for (int i = 0; i < 16; i += 2) policies_free(&fixture, blocks[i]);
  policies_alloc(&fixture, 40 * MIB, 0); /* 32 that are free and 8 new ones */
  policies_free(&fixture, blocks[1]);
  policies_free(&fixture, blocks[3]);
  vmm_address second = policies_alloc(&fixture, 12 * MIB, 0);
  policies_free(&fixture, blocks[5]);
  policies_free(&fixture, blocks[7]);
  vmm_address third = policies_alloc(&fixture, 12 * MIB, 0);
  ck_assert_uint_eq(third, second + 12 * MIB);
  ck_assert_uint_eq(reserved->current, (64 + 8 + 4 + 4) * MIB);
  ck_assert_uint_eq(policies_counter(&fixture, "windows_count"), 2);
  policies_fixture_check(&fixture, "behind");

  policies_free(&fixture, second);
  policies_free(&fixture, third);
  ck_assert_uint_eq(policies_alloc(&fixture, MIB, 0), blocks[1]);
  ck_assert_uint_eq(policies_alloc(&fixture, 4 * MIB, 0), blocks[3]);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_UNMAP), 0);
  /* The host looks at the stream after 64 frees. */
  for (int i = 0; i < 64; i++) policies_free(&fixture, policies_alloc(&fixture, 512, 0));
  /* 3 MiB of the second block, 16 MiB in whole handles, 2 new ones. */
  vmm_address fourth = policies_alloc(&fixture, 20 * MIB, 0);
  ck_assert_uint_eq(reserved->current, (64 + 8 + 4 + 4 + 2) * MIB);
  ck_assert_uint_eq(policies_counter(&fixture, "windows_count"), 2);
  ck_assert_uint_eq(policies_counter(&fixture, "evictions_count"), 1);
  ck_assert_uint_gt(policies_calls(&fixture, VMM_CALL_UNMAP), 0);
  policies_fixture_check(&fixture, "behind what was unmapped");
  policies_free(&fixture, fourth);
  ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
  policies_fixture_check(&fixture, "trimmed");
  policies_fixture_close(&fixture);
}
END_TEST

/* A request of 1 MiB takes the second hole, which is not much longer than it; one of 8 leaves the long one;
 * when nothing else is left the lowest is taken. */
START_TEST(leaves_long_holes) {
  policies_fixture fixture =
      open_policy("aliasheap:keep=32MiB,near=4,near_least=4MiB,near_limit=2MiB,settled=0", 0);
  static const uint64_t sizes[] = {40, 1, 12, 1, 3, 1};
  vmm_address blocks[6];
  for (int i = 0; i < 6; i++) blocks[i] = policies_alloc(&fixture, sizes[i] * MIB, 0);
  for (int i = 0; i < 6; i += 2) policies_free(&fixture, blocks[i]);
  ck_assert_uint_eq(policies_alloc(&fixture, MIB, 0), blocks[4]);
  ck_assert_uint_eq(policies_alloc(&fixture, 8 * MIB, 0), blocks[2]);
  ck_assert_uint_eq(policies_alloc(&fixture, 36 * MIB, 0), blocks[0]);
  policies_fixture_close(&fixture);
}
END_TEST

/* A stitch takes the hole of 8 MiB and 4 new ones. A later request of 2 MiB has those, the nearer ones in
 * length, until the live peak has stood for half of itself: from then on they are left to the stitch. */
START_TEST(leaves_what_a_stitch_was_short_of) {
  policies_fixture fixture =
      open_policy("aliasheap:huge=12MiB,small_job=0,medium=1GiB,keep=0,near_least=0,settled=0.5," EVEN, 0);
  vmm_address first = policies_alloc(&fixture, 8 * MIB, 0);
  policies_alloc(&fixture, 4 * MIB, 0);
  policies_free(&fixture, first);
  vmm_address stitched = policies_alloc(&fixture, 12 * MIB, 0);
  ck_assert_uint_eq(policies_counter(&fixture, "stitches_count"), 1);
  policies_free(&fixture, stitched);
  for (int i = 0; i < 8; i++) {
    vmm_address small = policies_alloc(&fixture, 2 * MIB, 0);
    ck_assert_uint_eq(small, i < 5 ? stitched + 8 * MIB : first);
    policies_free(&fixture, small);
  }
  policies_fixture_check(&fixture, "settled");
  policies_fixture_close(&fixture);
}
END_TEST

/* Under a limit that the live memory nearly fills, everything is stitched before anything fails, and the host
 * waits for nothing. */
START_TEST(stitches_before_it_fails) {
  policies_fixture fixture = open_policy(BY_HAND, 32 * MIB);
  vmm_address blocks[8];
  for (int i = 0; i < 8; i++) blocks[i] = policies_alloc(&fixture, 4 * MIB, 0);
  for (int i = 0; i < 8; i += 2) policies_free(&fixture, blocks[i]);
  policies_alloc(&fixture, 8 * MIB, 0);
  policies_alloc(&fixture, 8 * MIB, 0);
  ck_assert_uint_eq(policies_counter(&fixture, "stitches_count"), 2);
  ck_assert_uint_eq(policies_statistics(&fixture)->host_waits, 0);
  vmm_address none;
  ck_assert_int_eq(policy_alloc(fixture.policy, 512, 0, &none), VMM_OUT_OF_MEMORY);
  policies_fixture_check(&fixture, "full");
  policies_fixture_close(&fixture);
}
END_TEST

/* Handles of 16 MiB under a limit of six. Blocks of 8 and 10 are put into free handles: those are split
 * behind them, and what is left are whole handles, so that 30 MiB are served that were out of reach else. */
#define COARSE "handle_start=16MiB,start_share=1,handle_least=16MiB,handle_edge=16MiB,handle_limit=16MiB"
#define COARSE_BY_HAND "aliasheap:huge=12MiB,small_job=0,medium=1GiB,keep=0,near=0,settled=0," COARSE

static policies_fixture open_full(const char *spec, uint64_t delay, vmm_address *blocks) {
  policies_fixture fixture;
  policies_fixture_open(&fixture,
                        &(policies_fixture_options){.spec = spec, .limit = 96 * MIB, .event_delay = delay});
  for (int i = 0; i < 6; i++) blocks[i] = policies_alloc(&fixture, 16 * MIB, 0);
  for (int i = 0; i < 6; i += 2) policies_free(&fixture, blocks[i]);
  return fixture;
}

START_TEST(splits_near_the_limit) {
  vmm_address blocks[6];
  policies_fixture fixture = open_full(COARSE_BY_HAND, 0, blocks);
  ck_assert_uint_eq(policies_alloc(&fixture, 8 * MIB, 0), blocks[0]);
  ck_assert_uint_eq(policies_alloc(&fixture, 10 * MIB, 0), blocks[2]);
  ck_assert_uint_eq(policies_counter(&fixture, "handles_count"), 8);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 96 * MIB);
  policies_fixture_check(&fixture, "split");
  vmm_address whole = policies_alloc(&fixture, 30 * MIB, 0);
  expect_same_memory(&fixture, whole, blocks[0] + 8 * MIB, 8 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->host_waits, 0);
  policies_fixture_check(&fixture, "stitched");
  /* A handle in a window is cut out of it: the rest of the window still serves. */
  policies_free(&fixture, whole);
  vmm_address small = policies_alloc(&fixture, 12 * MIB, 0);
  policies_fixture_check(&fixture, "cut out");
  policies_free(&fixture, small);
  ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
  policies_fixture_check(&fixture, "trimmed");
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(splits_as_the_options_say) {
  static const struct {
    const char *spec;
    uint64_t handles;
  } cases[] = {{COARSE_BY_HAND ",split_below=0", 6},
               /* 4 granules are set free; the limit is reached, so that half of split_least is asked for. */
               {COARSE_BY_HAND ",split_least=8", 7},
               {COARSE_BY_HAND ",split_least=10", 6},
               {COARSE_BY_HAND ",split_least=8,split_tight=0", 6}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    vmm_address blocks[6];
    policies_fixture fixture = open_full(cases[i].spec, 0, blocks);
    ck_assert_uint_eq(policies_alloc(&fixture, 8 * MIB, 0), blocks[0]);
    ck_assert_uint_eq(policies_counter(&fixture, "handles_count"), cases[i].handles);
    policies_fixture_close(&fixture);
  }
}
END_TEST

/* What the device may still be working on is not unmapped. */
START_TEST(splits_nothing_in_use) {
  vmm_address blocks[6];
  policies_fixture fixture = open_full(COARSE_BY_HAND, 1000, blocks);
  ck_assert_uint_eq(policies_alloc(&fixture, 8 * MIB, 0), blocks[0]);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_UNMAP), 0);
  ck_assert_uint_eq(policies_counter(&fixture, "handles_count"), 6);
  policies_fixture_close(&fixture);
}
END_TEST

/* Whichever call of a split the device refuses, the request is served: at the same place, or, when the two
 * new handles are refused after the old one has gone, elsewhere. */
START_TEST(survives_a_split_that_fails) {
  static const vmm_call calls[] = {VMM_CALL_UNMAP, VMM_CALL_RELEASE, VMM_CALL_CREATE, VMM_CALL_MAP,
                                   VMM_CALL_SET_ACCESS};
  for (uint64_t number = 1; number <= 2; number++) {
    vmm_address blocks[6];
    policies_fixture fixture = open_full(COARSE_BY_HAND, 0, blocks);
    vmm_sim_fail(fixture.sim, calls[_i], number, VMM_OUT_OF_MEMORY);
    vmm_address block = policies_alloc(&fixture, 8 * MIB, 0);
    policies_fixture_check(&fixture, "a call of the split was refused");
    uint64_t reserved = policies_statistics(&fixture)->reserved_bytes.current;
    require(reserved <= 96 * MIB, "%" PRIu64 " bytes are reserved", reserved);
    policies_free(&fixture, block);
    policies_fixture_check(&fixture, "freed");
    policies_fixture_close(&fixture);
  }
}
END_TEST

/* ---- recordings ---- */

typedef struct measured {
  uint64_t live_peak, reserved_peak, late_calls, failures, host_waits;
  double driver_ms;
} measured;

static measured replay_once(const char *spec, const trace_events *events, uint64_t limit, uint64_t delay) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){
                                      .spec = spec, .profile = "h200", .limit = limit, .event_delay = delay});
  policies_replay replay;
  policies_replay_open(&replay, events);
  policies_replay_lap(&replay, &fixture, events->count / 3 + 1);
  policies_fixture_check(&fixture, "the end");
  measured outcome = {.live_peak = replay.live_peak,
                      .reserved_peak = policies_statistics(&fixture)->reserved_bytes.peak,
                      .late_calls = replay.last_third_calls,
                      .failures = replay.out_of_memory,
                      .host_waits = policies_statistics(&fixture)->host_waits,
                      .driver_ms = (double)fixture.meter->busy_ns * 1e-6};
  policies_replay_close(&replay);
  policies_fixture_close(&fixture);
  return outcome;
}

static double utilisation(const measured *of) { return (double)of->live_peak / (double)of->reserved_peak; }

static bool has_fixed_shapes(const policies_trace *found) { return strstr(found->name, "-v0") != NULL; }

/* More than expandable never; more than bfc or gmlake on one recording at most. */
START_TEST(holds_the_least) {
  policies_trace traces[TRACES];
  size_t count = policies_traces(traces, TRACES), recordings = 0, beaten = 0;
  double sum = 0, ours_ms = 0, theirs_ms = 0;
  printf("%-40s %10s %10s %10s %10s\n", "trace", "aliasheap", "expandable", "ms", "ms");
  for (size_t i = 0; i < count; i++) {
    trace_events events;
    policies_trace_load(&traces[i], &events);
    measured ours = replay_once("aliasheap", &events, 0, 0),
             theirs = replay_once("expandable", &events, 0, 0), bfc = replay_once("bfc", &events, 0, 0);
    trace_events_free(&events);
    printf("%-40s %10.4f %10.4f %10.1f %10.1f\n", traces[i].name, utilisation(&ours), utilisation(&theirs),
           ours.driver_ms, theirs.driver_ms);
    ck_assert_msg(ours.failures == 0, "%s: out of memory", traces[i].name);
    ck_assert_msg(ours.reserved_peak <= theirs.reserved_peak, "%s: more than expandable", traces[i].name);
    beaten += ours.reserved_peak > bfc.reserved_peak;
    if (!traces[i].recording) continue;
    recordings++;
    sum += utilisation(&ours);
    ours_ms += ours.driver_ms;
    theirs_ms += theirs.driver_ms;
    ck_assert_msg(utilisation(&ours) >= 0.98, "%s: utilisation %.4f", traces[i].name, utilisation(&ours));
    if (has_fixed_shapes(&traces[i])) ck_assert_uint_eq(ours.late_calls, 0);
  }
  ck_assert_uint_gt(recordings, 0);
  printf("mean utilisation %.4f, driver time %.3f times expandable's\n", sum / (double)recordings,
         ours_ms / theirs_ms);
  ck_assert_double_ge(sum / (double)recordings, recordings > 3 ? 0.99 : 0.98);
  if (recordings > 3) ck_assert_double_le(ours_ms, 1.15 * theirs_ms);
  ck_assert_uint_eq(beaten, 0);
}
END_TEST

/* When work takes long, other streams get the memory by waiting on the device: the layout is the same. */
START_TEST(does_not_depend_on_timing) {
  policies_trace traces[TRACES];
  size_t count = policies_traces(traces, TRACES);
  for (size_t i = 0; i < count; i++) {
    if (!traces[i].bundled) continue;
    trace_events events;
    policies_trace_load(&traces[i], &events);
    measured at_once = replay_once("aliasheap", &events, 0, 0);
    measured late = replay_once("aliasheap", &events, 0, 1000);
    trace_events_free(&events);
    ck_assert_uint_eq(at_once.reserved_peak, late.reserved_peak);
    ck_assert_uint_eq(late.host_waits, 0);
  }
}
END_TEST

/* Ten laps: after the third no recording's memory grows. */
START_TEST(settles) {
  policies_trace traces[TRACES];
  size_t count = policies_traces(traces, TRACES);
  for (size_t i = 0; i < count; i++) {
    if (!traces[i].recording) continue;
    trace_events events;
    policies_trace_load(&traces[i], &events);
    policies_fixture fixture;
    policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "aliasheap", .capacity = 64 * GIB});
    policies_replay replay;
    policies_replay_open(&replay, &events);
    uint64_t settled = 0, reserved = 0;
    for (int lap = 1; lap <= LAPS; lap++) {
      policies_replay_lap(&replay, &fixture, 0);
      policies_replay_free_all(&replay, &fixture);
      reserved = policies_statistics(&fixture)->reserved_bytes.current;
      if (lap == SETTLED) settled = reserved;
    }
    policies_fixture_check(&fixture, traces[i].name);
    ck_assert_msg(reserved == settled, "%s: %" PRIu64 " MiB after lap 3, %" PRIu64 " at the end",
                  traces[i].name, settled / MIB, reserved / MIB);
    policies_replay_close(&replay);
    policies_fixture_close(&fixture);
    trace_events_free(&events);
  }
}
END_TEST

/* Two percent above the live peak are enough for all but multi_stream, whose 500 holes lie across handles
 * made long before, without a wait of the host. */
START_TEST(keeps_to_a_limit) {
  policies_trace traces[TRACES];
  size_t count = policies_traces(traces, TRACES);
  for (size_t i = 0; i < count; i++) {
    if (strncmp(traces[i].name, "multi_stream", 12) == 0) continue;
    trace_events events;
    policies_trace_load(&traces[i], &events);
    uint64_t peak = replay_once("null", &events, 0, 0).live_peak;
    measured limited = replay_once("aliasheap", &events, (peak + peak / 50) / (2 * MIB) * (2 * MIB), 0);
    trace_events_free(&events);
    ck_assert_msg(limited.failures == 0 && limited.host_waits == 0,
                  "%s: %" PRIu64 " requests failed, the host waited %" PRIu64 " times", traces[i].name,
                  limited.failures, limited.host_waits);
  }
}
END_TEST

static Suite *aliasheap_suite(void) {
  Suite *suite = suite_create("policies_aliasheap");
  TCase *by_hand = tcase_create("by hand");
  tcase_add_test(by_hand, stitches_free_handles);
  tcase_add_test(by_hand, does_with_few_windows);
  tcase_add_test(by_hand, leaves_long_holes);
  tcase_add_test(by_hand, leaves_what_a_stitch_was_short_of);
  tcase_add_test(by_hand, stitches_before_it_fails);
  tcase_add_test(by_hand, splits_near_the_limit);
  tcase_add_test(by_hand, splits_as_the_options_say);
  tcase_add_test(by_hand, splits_nothing_in_use);
  tcase_add_loop_test(by_hand, survives_a_split_that_fails, 0, 5);
  suite_add_tcase(suite, by_hand);
  TCase *recordings = tcase_create("recordings");
  tcase_set_timeout(recordings, 120);
  tcase_add_test(recordings, holds_the_least);
  tcase_add_test(recordings, does_not_depend_on_timing);
  tcase_add_test(recordings, settles);
  tcase_add_test(recordings, keeps_to_a_limit);
  suite_add_tcase(suite, recordings);
  return suite;
}

TEST_MAIN(aliasheap_suite)
