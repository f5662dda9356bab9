/* The oracle carries its plan out: with streams, failures, limits, laps, and on recordings without waste. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/policies_fixture.h"
#include "tests/policies_watch.h"
#include "tests/test_main.h"

static uint64_t below(uint64_t *random, uint64_t bound) { return policies_random_below(random, bound); }

/* ---- the policy ---- */

START_TEST(it_serves_nobody_who_does_not_say_what_comes) {
  policy_spec spec;
  char message[512];
  policy *created;
  vmm_sim_configuration configuration = {.capacity = 256 * MIB};
  vmm_driver *sim;
  ck_assert_int_eq(vmm_sim_create(&configuration, &sim), VMM_SUCCESS);
  ck_assert_int_eq(policy_spec_parse("planned", &spec, message, sizeof message), VMM_SUCCESS);
  ck_assert_int_eq(policy_create(&spec, sim, UINT64_MAX, &created, message, sizeof message),
                   VMM_INVALID_VALUE);
  ck_assert_ptr_null(created);
  ck_assert_ptr_nonnull(strstr(message, "policy planned is an oracle: it has to know the whole trace"));
  ck_assert_int_eq(policy_spec_parse("planned:handle=3MiB", &spec, message, sizeof message), VMM_SUCCESS);
  const policy_lifetimes nothing = {NULL, 0};
  ck_assert_int_eq(
      policy_create_with_lifetimes(&spec, sim, UINT64_MAX, &nothing, &created, message, sizeof message),
      VMM_INVALID_VALUE);
  ck_assert_ptr_nonnull(strstr(message, "handle=3MiB is no multiple"));
  /* Told that nothing comes it can be made, and serves nothing. */
  ck_assert_int_eq(policy_spec_parse("planned", &spec, message, sizeof message), VMM_SUCCESS);
  ck_assert_int_eq(
      policy_create_with_lifetimes(&spec, sim, UINT64_MAX, &nothing, &created, message, sizeof message),
      VMM_SUCCESS);
  vmm_address address;
  ck_assert_int_eq(policy_alloc(created, 512, 0, &address), VMM_INVALID_VALUE);
  ck_assert_int_eq(policy_alloc(created, 0, 0, &address), VMM_SUCCESS);
  policy_destroy(created);
  vmm_driver_destroy(sim);
}
END_TEST

static const policy_lifetime three[] = {
    {20 * MIB, 2, 0, false}, {30 * MIB, 3, 1, false}, {20 * MIB, 3, 0, false}};
static const policy_lifetimes told_three = {three, 3};

START_TEST(what_was_not_told_is_refused) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "planned", .lifetimes = &told_three});
  vmm_address address;
  ck_assert_int_eq(policy_alloc(fixture.policy, 30 * MIB, 1, &address), VMM_INVALID_VALUE);
  policies_alloc(&fixture, 20 * MIB, 0);
  vmm_address second = policies_alloc(&fixture, 30 * MIB, 1);
  /* The first one is still there, in the third one's place. */
  ck_assert_int_eq(policy_alloc(fixture.policy, 20 * MIB, 0, &address), VMM_INVALID_VALUE);
  ck_assert_int_eq(policy_free(fixture.policy, second + 512), VMM_INVALID_VALUE);
  policies_fixture_check(&fixture, "after refusals");
  policies_free(&fixture, second);
  policies_fixture_check(&fixture, "after a free");
  policies_fixture_close(&fixture);
}
END_TEST

/* The peak of the plan, and no more, in handles; later laps ask the driver for nothing. */
START_TEST(laps_repeat_the_plan) {
  policies_fixture fixture;
  policies_fixture_open(
      &fixture, &(policies_fixture_options){.spec = "planned:handle=32MiB", .lifetimes = &told_three});
  vmm_address before[3] = {0};
  for (int lap = 0; lap < 3; lap++) {
    const uint64_t calls = policies_memory_calls(&fixture);
    vmm_address now[3] = {0};
    now[0] = policies_alloc(&fixture, 20 * MIB, 0);
    now[1] = policies_alloc(&fixture, 30 * MIB, 1);
    policies_free(&fixture, now[0]);
    now[2] = policies_alloc(&fixture, 20 * MIB, 0);
    ck_assert_uint_eq(now[2], now[0]);
    ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 50 * MIB);
    policies_fixture_check(&fixture, "in a lap");
    policies_free(&fixture, now[1]);
    policies_free(&fixture, now[2]);
    if (lap > 0) {
      ck_assert_uint_eq(policies_memory_calls(&fixture), calls);
      ck_assert_mem_eq(now, before, sizeof now);
    }
    memcpy(before, now, sizeof now);
  }
  ck_assert_uint_eq(policies_counter(&fixture, "planned_peak_bytes"), 50 * MIB);
  ck_assert_uint_eq(policies_counter(&fixture, "lower_bound_bytes"), 50 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->segments.peak, 0);
  ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 0);
  policies_fixture_check(&fixture, "after all was given back");
  policies_alloc(&fixture, 20 * MIB, 0);
  policies_fixture_check(&fixture, "after a new beginning");
  policies_fixture_close(&fixture);
}
END_TEST

/* What lies above the limit fails; what lies below is served, and the limit is kept. */
START_TEST(a_limit_is_kept) {
  policies_fixture fixture;
  policies_fixture_open(
      &fixture, &(policies_fixture_options){.spec = "planned", .lifetimes = &told_three, .limit = 31 * MIB});
  vmm_address address;
  uint64_t failed = 0;
  for (int i = 0; i < 3; i++) {
    vmm_status status = policy_alloc(fixture.policy, three[i].size, three[i].stream, &address);
    ck_assert(status == VMM_SUCCESS || status == VMM_OUT_OF_MEMORY);
    failed += status == VMM_OUT_OF_MEMORY;
    if (status == VMM_SUCCESS) policies_free(&fixture, address);
    ck_assert_uint_le(policies_statistics(&fixture)->reserved_bytes.current, 31 * MIB);
    policies_fixture_check(&fixture, "below a limit");
  }
  ck_assert_uint_eq(failed, 2); /* the largest lies lowest */
  policies_fixture_close(&fixture);
}
END_TEST

/* A request that failed when recorded displaces nothing: it may lie above the plan's peak. What it needs
 * there is mapped, and no whole handle more, for which there would be no addresses. */
START_TEST(what_failed_when_recorded_may_lie_above) {
  static const policy_lifetime items[] = {{300 * MIB, 1, 0, false},
                                          {100 * MIB, 2, 0, false},
                                          {100 * MIB, 5, 0, false},
                                          {100 * MIB, 4, 0, false},
                                          {300 * MIB, 5, 0, true}};
  static const policy_lifetimes told = {items, 5};
  policies_fixture fixture;
  policies_fixture_open(&fixture,
                        &(policies_fixture_options){.spec = "planned:handle=256MiB", .lifetimes = &told});
  for (int lap = 0; lap < 2; lap++) {
    policies_free(&fixture, policies_alloc(&fixture, items[0].size, 0));
    policies_free(&fixture, policies_alloc(&fixture, items[1].size, 0));
    const vmm_address stays = policies_alloc(&fixture, items[2].size, 0);
    policies_free(&fixture, policies_alloc(&fixture, items[3].size, 0));
    policies_free(&fixture, policies_alloc(&fixture, items[4].size, 0));
    policies_free(&fixture, stays);
    policies_fixture_check(&fixture, "after a request that failed when recorded");
  }
  ck_assert_uint_eq(policies_counter(&fixture, "planned_peak_bytes"), 300 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- random programs, known in advance ---- */

typedef enum step_kind { STEP_ALLOC, STEP_FREE, STEP_SHARE, STEP_TICK, STEP_TRIM } step_kind;

typedef struct step {
  step_kind kind;
  uint32_t block; /* number of the request */
  uint64_t size;
  vmm_stream stream;
} step;

enum { STEPS = 900, LIVE = 14, STREAMS = 5 };

typedef struct program {
  step steps[STEPS + LIVE];
  int count;
  policy_lifetime requests[STEPS];
  policy_lifetimes told;
  vmm_address addresses[STEPS]; /* 0: not live */
} program;

static void write_program(program *self, uint64_t seed, uint64_t largest) {
  uint32_t live[LIVE], live_count = 0;
  memset(self, 0, sizeof *self);
  self->told.items = self->requests;
  while (self->count < STEPS || live_count > 0) {
    const uint64_t kind = self->count < STEPS ? below(&seed, 100) : 90;
    step *now = &self->steps[self->count++];
    *now = (step){.kind = STEP_TICK, .stream = (vmm_stream)below(&seed, STREAMS)};
    if (kind < 45 && live_count < LIVE) {
      now->kind = STEP_ALLOC;
      now->block = (uint32_t)self->told.count;
      now->size = 1 + below(&seed, below(&seed, 3) ? largest : 5000);
      self->requests[self->told.count++] = (policy_lifetime){.size = now->size, .stream = now->stream};
      live[live_count++] = now->block;
    } else if (kind >= 60 && live_count > 0) {
      const uint32_t which = (uint32_t)below(&seed, live_count);
      now->kind = kind < 75 ? STEP_SHARE : STEP_FREE;
      now->block = live[which];
      if (now->kind == STEP_SHARE) continue;
      self->requests[now->block].end = self->told.count;
      live[which] = live[--live_count];
    } else if (kind == 59) {
      now->kind = STEP_TRIM;
    }
  }
}

/* Never given to a stream before the work of others is over or ordered before its own. */
static uint64_t watch_program(const program *known, uint64_t delay, watch_fault fault, uint64_t *waits) {
  watch device;
  policy_spec spec;
  policy *subject;
  char message[512];
  watch_open(&device, 512 * MIB, delay);
  ck_assert_int_eq(policy_spec_parse("planned:handle=8MiB", &spec, message, sizeof message), VMM_SUCCESS);
  require(policy_create_with_lifetimes(&spec, &device.driver, UINT64_MAX, &known->told, &subject, message,
                                       sizeof message) == VMM_SUCCESS,
          "%s", message);
  device.fault = fault;
  vmm_address addresses[STEPS] = {0};
  for (int i = 0; i < known->count; i++) {
    const step *now = &known->steps[i];
    uint32_t live = 0;
    while (live < device.live_count && device.live[live].address != addresses[now->block]) live++;
    if (now->kind == STEP_ALLOC) {
      ck_assert_int_eq(policy_alloc(subject, now->size, now->stream, &addresses[now->block]), VMM_SUCCESS);
      watch_handed_out(&device, addresses[now->block], now->size, now->stream);
      watch_work(&device, device.live_count - 1, now->stream);
    } else if (now->kind == STEP_SHARE) {
      ck_assert_int_eq(policy_record_stream(subject, addresses[now->block], now->stream), VMM_SUCCESS);
      device.live[live].recorded[now->stream] = true;
      watch_work(&device, live, now->stream);
    } else if (now->kind == STEP_FREE) {
      watch_freed(&device, live);
      ck_assert_int_eq(policy_free(subject, addresses[now->block]), VMM_SUCCESS);
    } else if (now->kind == STEP_TRIM) {
      ck_assert_int_eq(policy_trim(subject), VMM_SUCCESS);
    } else {
      watch_tick(&device);
    }
    require(policy_check(subject, message, sizeof message), "step %d: %s", i, message);
  }
  policy_counter counters[16];
  const size_t count = policy_counters(subject, counters, 16);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(counters[i].name, "stream_waits_count") == 0) *waits += counters[i].value;
  }
  const uint64_t violations = device.violations;
  if (fault == WATCH_SOUND) ck_assert_msg(violations == 0, "%s", device.first_violation);
  device.fault = WATCH_SOUND;
  policy_destroy(subject);
  watch_close(&device);
  return violations;
}

START_TEST(streams_are_waited_for) {
  static const uint64_t delays[] = {1, 7, 40};
  uint64_t seed = policies_random_seed("streams_are_waited_for"), waits = 0;
  static program known;
  for (uint64_t round = 0; round < 6; round++) {
    write_program(&known, seed + round, 20 * MIB);
    watch_program(&known, delays[round % 3], WATCH_SOUND, &waits);
  }
  ck_assert_uint_gt(waits, 50);
  ck_assert_uint_gt(watch_program(&known, 40, WATCH_LIES, &waits), 0);
  ck_assert_uint_gt(watch_program(&known, 40, WATCH_DEAF, &waits), 0);
}
END_TEST

/* One call fails: a request or a free is refused or served, and nothing is lost. */
static bool run_failing(program *known, vmm_call call, uint64_t k, vmm_status failure) {
  policies_fixture fixture;
  policies_fixture_open(
      &fixture,
      &(policies_fixture_options){
          .spec = "planned:handle=4MiB", .capacity = 512 * MIB, .event_delay = 3, .lifetimes = &known->told});
  memset(known->addresses, 0, sizeof known->addresses);
  ck_assert_int_eq(vmm_sim_fail(fixture.sim, call, k, failure), VMM_SUCCESS);
  for (int i = 0; i < known->count; i++) {
    const step *now = &known->steps[i];
    vmm_address *address = &known->addresses[now->block];
    vmm_status status = VMM_SUCCESS;
    if (now->kind == STEP_ALLOC) {
      status = policy_alloc(fixture.policy, now->size, now->stream, address);
      /* What failed otherwise may be asked for again. */
      if (status != VMM_SUCCESS && status != VMM_OUT_OF_MEMORY)
        status = policy_alloc(fixture.policy, now->size, now->stream, address);
      if (status != VMM_SUCCESS) *address = 0;
    } else if (now->kind == STEP_FREE && *address != 0) {
      policies_free(&fixture, *address);
    } else if (now->kind == STEP_SHARE && *address != 0) {
      policy_record_stream(fixture.policy, *address, now->stream);
    } else if (now->kind == STEP_TRIM) {
      policy_trim(fixture.policy);
    } else {
      vmm_sim_tick(fixture.sim);
    }
    require(status == VMM_SUCCESS || status == VMM_OUT_OF_MEMORY, "step %d: %s", i, vmm_status_name(status));
    if (status != VMM_SUCCESS || i % 16 == 0) policies_fixture_check(&fixture, "beside a failure");
  }
  vmm_meter_call counts;
  vmm_meter_get(fixture.meter, call, &counts);
  policies_fixture_check(&fixture, "after a failure");
  ck_assert_uint_eq(policies_statistics(&fixture)->allocated_bytes.current, 0);
  policies_fixture_close(&fixture);
  return counts.failures > 0;
}

START_TEST(survives_the_failure_of_any_call) {
  static const vmm_call calls[] = {VMM_CALL_CREATE,      VMM_CALL_RELEASE,     VMM_CALL_MAP,
                                   VMM_CALL_UNMAP,       VMM_CALL_SET_ACCESS,  VMM_CALL_EVENT_RECORD,
                                   VMM_CALL_EVENT_QUERY, VMM_CALL_SYNCHRONIZE, VMM_CALL_STREAM_WAIT_EVENT};
  static program known;
  uint64_t runs = 0;
  write_program(&known, 4711, 6 * MIB);
  for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
    for (uint64_t k = 1; k < 200; k = k < 12 ? k + 1 : k + 9) {
      if (!run_failing(&known, calls[c], k, k % 2 ? VMM_OUT_OF_MEMORY : VMM_UNKNOWN)) break;
      runs++;
    }
  }
  printf("%" PRIu64 " runs with a failure\n", runs);
  ck_assert_uint_gt(runs, 60);
}
END_TEST

/* ---- recordings ---- */

START_TEST(recordings_are_placed_without_waste) {
  policies_trace traces[64];
  const size_t count = policies_traces(traces, 64);
  size_t recordings = 0;
  for (size_t i = 0; i < count; i++) {
    if (!traces[i].recording) continue;
    trace_events events;
    lifetimes known;
    policies_trace_load(&traces[i], &events);
    const policy_lifetimes told = policies_lifetimes(&events, &known);
    policies_fixture fixture;
    policies_fixture_open(
        &fixture, &(policies_fixture_options){.spec = "planned", .profile = "h200", .lifetimes = &told});
    policies_replay replay;
    policies_replay_open(&replay, &events);
    policies_replay_lap(&replay, &fixture, events.count / 3 + 1);
    const double utilization =
        (double)replay.live_peak / (double)policies_statistics(&fixture)->reserved_bytes.peak;
    printf("%-44s %.5f of %.2f GiB\n", traces[i].name, utilization,
           (double)policies_statistics(&fixture)->reserved_bytes.peak / (double)GIB);
    ck_assert_msg(utilization > 0.999, "%s: %.4f", traces[i].name, utilization);
    ck_assert_uint_eq(replay.out_of_memory, 0);
    ck_assert_uint_eq(policies_counter(&fixture, "lower_bound_bytes"), replay.live_peak);
    policies_replay_free_all(&replay, &fixture);
    policies_replay_close(&replay);
    policies_fixture_close(&fixture);
    lifetimes_free(&known);
    trace_events_free(&events);
    recordings++;
  }
  ck_assert_uint_ge(recordings, 3);
}
END_TEST

static Suite *planned_suite(void) {
  Suite *suite = suite_create("policies_planned");
  TCase *policies = tcase_create("the policy");
  tcase_add_test(policies, it_serves_nobody_who_does_not_say_what_comes);
  tcase_add_test(policies, what_was_not_told_is_refused);
  tcase_add_test(policies, laps_repeat_the_plan);
  tcase_add_test(policies, a_limit_is_kept);
  tcase_add_test(policies, what_failed_when_recorded_may_lie_above);
  suite_add_tcase(suite, policies);
  TCase *programs = tcase_create("random programs");
  tcase_add_test(programs, streams_are_waited_for);
  tcase_add_test(programs, survives_the_failure_of_any_call);
  suite_add_tcase(suite, programs);
  TCase *recordings = tcase_create("recordings");
  tcase_add_test(recordings, recordings_are_placed_without_waste);
  suite_add_tcase(suite, recordings);
  return suite;
}

TEST_MAIN(planned_suite)
