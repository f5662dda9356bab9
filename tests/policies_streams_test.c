/* Memory that several streams use, for every policy: it is never given to a stream before the work of
 * the others on it is over or ordered before that stream's, and always afterwards. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/policies_program.h"
#include "tests/policies_watch.h"
#include "tests/test_main.h"

enum { STREAMS = 5, STEPS = 1200, ROUNDS = 6 };

/* Second mappings of most blocks; large handles, which are split as the device fills up. */
static const char *const own[] = {
    "aliasheap:huge=4MiB,medium=1MiB,handle_start=4MiB,handle_edge=2MiB,handle_limit=4MiB,edge_minimum=4096",
    "aliasheap:huge=4MiB,medium=1MiB,start_share=1,handle_least=24MiB,handle_edge=24MiB"};
enum { OWN_COUNT = sizeof own / sizeof *own };

static int common_count(void) {
  int count = 0;
  while (policies_specs()[count]) count++;
  return count;
}

static int spec_count(void) { return common_count() + OWN_COUNT; }
static const char *spec_number(int i) {
  return i < common_count() ? policies_specs()[i] : own[i - common_count()];
}

typedef struct schedule {
  watch device;
  policy *subject;
  bool may_waste; /* by its rules: large free blocks are kept for requests as large, or memory that another
                     stream freed is not used before the host has waited */
  uint64_t random;
  uint64_t served, reused, shared; /* blocks handed out; found again after a free; used on several streams */
} schedule;

static uint64_t below(schedule *plan, uint64_t bound) { return policies_random_below(&plan->random, bound); }

static void open_schedule(schedule *plan, const char *text, uint64_t delay, watch_fault fault,
                          uint64_t seed) {
  char message[256] = "";
  policy_spec spec;
  memset(plan, 0, sizeof *plan);
  plan->random = seed;
  watch_open(&plan->device, 512 * MIB, delay);
  require(policy_spec_parse(text, &spec, message, sizeof message) == VMM_SUCCESS, "%s", message);
  require(policy_create(&spec, &plan->device.driver, UINT64_MAX, &plan->subject, message, sizeof message) ==
              VMM_SUCCESS,
          "%s", message);
  plan->device.driver_reuses = spec.class->capabilities & POLICY_NEEDS_ASYNC;
  plan->may_waste = strstr(text, "max_split_size_mb") || strstr(text, "reuse_opportunistic=false");
  plan->device.fault = fault;
}

static void close_schedule(schedule *plan) {
  plan->device.fault = WATCH_SOUND;
  policy_destroy(plan->subject);
  watch_close(&plan->device);
}

static uint64_t some_size(schedule *plan) {
  static const uint64_t sizes[] = {700, 40000, 1 * MIB, 3 * MIB, 2 * MIB, 9 * MIB, 17 * MIB, 24 * MIB};
  return below(plan, 3) ? sizes[below(plan, 8)] : 1 + below(plan, 20 * MIB);
}

static vmm_status hand_out(schedule *plan, uint64_t size, vmm_stream stream) {
  vmm_address address = 0;
  vmm_status status = policy_alloc(plan->subject, size, stream, &address);
  if (status != VMM_SUCCESS) return status;
  watch_handed_out(&plan->device, address, size, stream);
  watch_work(&plan->device, plan->device.live_count - 1, stream);
  plan->served++;
  return VMM_SUCCESS;
}

static void free_block(schedule *plan, uint32_t live) {
  const vmm_address address = plan->device.live[live].address;
  watch_freed(&plan->device, live);
  vmm_status status = policy_free(plan->subject, address);
  require(status == VMM_SUCCESS, "a free: %s", vmm_status_name(status));
}

/* Another stream is recorded for a block and works on it. */
static void share_block(schedule *plan, uint32_t live) {
  vmm_stream stream = (vmm_stream)below(plan, STREAMS);
  watch_block *block = &plan->device.live[live];
  vmm_status status = policy_record_stream(plan->subject, block->address, stream);
  require(status == VMM_SUCCESS, "record_stream: %s", vmm_status_name(status));
  block->recorded[stream] = true;
  watch_work(&plan->device, live, stream);
  plan->shared += stream != block->stream;
}

static void work_on_block(schedule *plan, uint32_t live) {
  vmm_stream stream = (vmm_stream)below(plan, STREAMS);
  if (plan->device.live[live].recorded[stream]) watch_work(&plan->device, live, stream);
}

static void let_all_end(schedule *plan) {
  for (uint64_t i = 0; i <= plan->device.delay; i++) watch_tick(&plan->device);
}

/* pytorch#175015: a block is freed, all streams come to their end, and its like is asked for again: no
 * more memory is held than before. */
static void ask_again(schedule *plan, uint32_t live) {
  const watch_block block = plan->device.live[live];
  const pool_statistic *reserved = &plan->subject->heap.statistics.reserved_bytes;
  let_all_end(plan);
  const uint64_t before = reserved->current;
  free_block(plan, live);
  let_all_end(plan);
  vmm_status status = hand_out(plan, block.size, block.stream);
  require(status == VMM_SUCCESS, "%" PRIu64 " bytes that are free again: %s", block.size,
          vmm_status_name(status));
  require(reserved->current <= before || plan->may_waste,
          "%" PRIu64 " bytes on stream %" PRIu32 " were not found again: %" PRIu64 " reserved, %" PRIu64
          " before",
          block.size, block.stream, reserved->current, before);
  plan->reused++;
}

static void step(schedule *plan) {
  watch *device = &plan->device;
  uint64_t kind = below(plan, 100);
  uint32_t live = device->live_count ? (uint32_t)below(plan, device->live_count) : 0;
  if (kind < 34) {
    if (device->live_count < 14) {
      vmm_status status = hand_out(plan, some_size(plan), (vmm_stream)below(plan, STREAMS));
      require(status == VMM_SUCCESS || status == VMM_OUT_OF_MEMORY, "a request: %s", vmm_status_name(status));
    }
  } else if (device->live_count == 0 || kind >= 85) {
    watch_tick(device);
  } else if (kind < 55) {
    share_block(plan, live);
  } else if (kind < 65) {
    work_on_block(plan, live);
  } else if (kind < 83) {
    free_block(plan, live);
  } else if (kind < 84) {
    ask_again(plan, live);
  } else if (below(plan, 8) == 0) {
    policy_trim(plan->subject);
  }
}

static void run(schedule *plan) {
  for (int i = 0; i < STEPS; i++) step(plan);
  while (plan->device.live_count > 0) free_block(plan, plan->device.live_count - 1);
}

static uint64_t counter(const policy *subject, const char *name) {
  policy_counter counters[64];
  size_t count = policy_counters(subject, counters, 64);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(counters[i].name, name) == 0) return counters[i].value;
  }
  return 0;
}

START_TEST(never_before_the_others_are_done_always_afterwards) {
  const char *spec = spec_number(_i);
  if (strncmp(spec, "null", 4) == 0 || strstr(spec, "streams=ignore")) return;
  /* When the driver makes a stream wait by itself nobody sees it. */
  if (strcmp(spec, "async") == 0) spec = "async:reuse_internal=false";
  uint64_t seed = policies_random_seed(_i == 0 ? "never_before_the_others_are_done_always_afterwards" : NULL);
  static const uint64_t delays[] = {1, 7, 40};
  for (uint64_t round = 0; round < ROUNDS; round++) {
    schedule plan;
    open_schedule(&plan, spec, delays[round % 3], WATCH_SOUND, seed + round);
    run(&plan);
    require(plan.device.violations == 0, "%s, round %" PRIu64 ": %s (and %" PRIu64 " more)", spec, round,
            plan.device.first_violation, plan.device.violations - 1);
    ck_assert_uint_gt(plan.served, 150);
    ck_assert_uint_gt(plan.shared, 50);
    ck_assert_uint_gt(plan.reused, 2);
    if (spec == own[0]) ck_assert_uint_gt(counter(plan.subject, "stitches_count"), 5);
    /* Everything is free and over: more than half of the device in one piece, on any stream, without help. */
    let_all_end(&plan);
    vmm_address whole;
    vmm_status status = policy_alloc(plan.subject, 300 * MIB, (vmm_stream)(round % STREAMS), &whole);
    require(status == VMM_SUCCESS, "%s, round %" PRIu64 ": all is free, but: %s", spec, round,
            vmm_status_name(status));
    char message[256] = "";
    require(policy_check(plan.subject, message, sizeof message), "%s: %s", spec, message);
    close_schedule(&plan);
  }
}
END_TEST

/* The watch sees what goes wrong: devices that do not do what they say, and TensorFlow's allocator, which
 * leaves the order between streams to its caller. */
static const struct {
  const char *spec;
  watch_fault fault;
} wrong[] = {
    {"tfbfc:streams=ignore", WATCH_SOUND},
    {"bfc", WATCH_LIES},
    {"expandable", WATCH_LIES},
    {"gmlake", WATCH_LIES},
    {"tfbfc", WATCH_LIES},
    {"tfbfc", WATCH_DEAF},
    {"aliasheap", WATCH_LIES},
    {"aliasheap", WATCH_DEAF},
    {"async:reuse_internal=false", WATCH_DEAF},
    {"rawvmm", WATCH_HASTY},
};

START_TEST(a_violation_is_seen) {
  schedule plan;
  open_schedule(&plan, wrong[_i].spec, 40, wrong[_i].fault, policies_random_seed(NULL));
  run(&plan);
  ck_assert_msg(plan.device.violations > 0, "%s with fault %d went through", wrong[_i].spec,
                (int)wrong[_i].fault);
  close_schedule(&plan);
}
END_TEST

/* pytorch#175015, #51075 by hand: which memory the next request gets, before and after. */
START_TEST(another_stream_keeps_the_block) {
  static const char *const specs[] = {"bfc", "expandable", "gmlake"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    policies_fixture fixture;
    policies_fixture_open(&fixture, &(policies_fixture_options){.spec = specs[i], .event_delay = 5});
    vmm_address first = policies_alloc(&fixture, 12 * MIB, 1);
    ck_assert_int_eq(policy_record_stream(fixture.policy, first, 2), VMM_SUCCESS);
    policies_free(&fixture, first);
    vmm_address second = policies_alloc(&fixture, 12 * MIB, 1);
    ck_assert_uint_ne(second, first);
    for (int tick = 0; tick < 5; tick++) vmm_sim_tick(fixture.sim);
    ck_assert_uint_eq(policies_alloc(&fixture, 12 * MIB, 1), first);
    ck_assert_uint_eq(policies_statistics(&fixture)->host_waits, 0);
    policies_fixture_close(&fixture);
  }
}
END_TEST

/* Without a pool a free waits for the device, so that no stream can be using the memory any more. */
START_TEST(frees_without_a_pool_wait) {
  static const char *const specs[] = {"native", "rawvmm"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    policies_fixture fixture;
    policies_fixture_open(&fixture, &(policies_fixture_options){.spec = specs[i], .event_delay = 1000});
    vmm_address block = policies_alloc(&fixture, 12 * MIB, 1);
    ck_assert_int_eq(policy_record_stream(fixture.policy, block, 2), VMM_SUCCESS);
    vmm_event event;
    ck_assert_int_eq(vmm_event_record(fixture.sim, 2, &event), VMM_SUCCESS);
    ck_assert_int_eq(vmm_event_query(fixture.sim, event), VMM_NOT_READY);
    policies_free(&fixture, block);
    ck_assert_int_eq(vmm_event_query(fixture.sim, event), VMM_SUCCESS);
    vmm_event_discard(fixture.sim, event);
    policies_fixture_close(&fixture);
  }
}
END_TEST

static Suite *streams_suite(void) {
  Suite *suite = suite_create("policies_streams");
  TCase *schedules = tcase_create("random schedules");
  tcase_set_timeout(schedules, 60);
  tcase_add_loop_test(schedules, never_before_the_others_are_done_always_afterwards, 0, spec_count());
  tcase_add_loop_test(schedules, a_violation_is_seen, 0, (int)(sizeof wrong / sizeof *wrong));
  suite_add_tcase(suite, schedules);
  TCase *cases = tcase_create("cases");
  tcase_add_test(cases, another_stream_keeps_the_block);
  tcase_add_test(cases, frees_without_a_pool_wait);
  suite_add_tcase(suite, cases);
  return suite;
}

TEST_MAIN(streams_suite)
