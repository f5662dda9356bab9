/* Every driver call of every policy fails once, and then another while the first failure is
 * cleaned up after. Whatever happens: the request is served or fails with that status, nothing
 * is lost or given out twice, later requests are served, and nothing is left at the end. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/policies_program.h"
#include "tests/test_main.h"

enum { STEPS = 110 };

#define NO_CALL VMM_CALL_COUNT

/* What became of the calls that were made to fail. */
typedef struct outcomes {
  uint64_t runs, served, out_of_memory, errors, refused;
} outcomes;

/* When a call of one kind has failed, the next one of another kind fails too. */
typedef struct second_failure {
  vmm_driver *sim;
  vmm_call call;
  bool armed;
} second_failure;

static void arm_second(void *context, vmm_call call, vmm_status status, uint64_t duration_ns) {
  (void)call;
  (void)duration_ns;
  second_failure *second = context;
  if (status == VMM_SUCCESS || status == VMM_NOT_READY || second->armed || second->call == NO_CALL) return;
  second->armed = true;
  require(vmm_sim_fail(second->sim, second->call, 1, VMM_UNKNOWN) == VMM_SUCCESS, "no room for a failure");
}

static void set_up(policies_fixture *fixture, policies_program *program, const char *spec) {
  policies_fixture_open(fixture,
                        &(policies_fixture_options){.spec = spec, .capacity = 512 * MIB, .event_delay = 3});
  *program = (policies_program){.fixture = fixture,
                                .random = 4711,
                                .streams = 2,
                                .largest = 12 * MIB,
                                .room = 64 * MIB,
                                .failing = true};
}

static void finish(policies_fixture *fixture, policies_program *program) {
  policies_program_free_all(program);
  vmm_sim_fail_none(fixture->sim);
  static const uint64_t sizes[] = {700, 5 * MIB, 24 * MIB};
  for (size_t i = 0; i < 3; i++) {
    vmm_address address = policies_alloc(fixture, sizes[i], 0);
    policies_fixture_check(fixture, "after a failure");
    policies_free(fixture, address);
  }
  policies_fixture_close(fixture);
}

/* The program with the k-th call of a kind failing. Returns false when there are not so many. */
static bool run(const char *spec, vmm_call call, uint64_t k, vmm_status failure, vmm_call second_call,
                outcomes *sum) {
  policies_fixture fixture;
  policies_program program;
  set_up(&fixture, &program, spec);
  program.failing_twice = second_call != NO_CALL;
  second_failure second = {.sim = fixture.sim, .call = second_call};
  const vmm_meter_observer observer = {.context = &second, .call_end = arm_second};
  vmm_meter_observe(fixture.meter, &observer);
  require(vmm_sim_fail(fixture.sim, call, k, failure) == VMM_SUCCESS, "no room for a failure");
  for (uint64_t i = 0; i < STEPS; i++) policies_program_step(&program);
  vmm_meter_call counts;
  vmm_meter_get(fixture.meter, call, &counts);
  vmm_meter_observe(fixture.meter, NULL);
  vmm_sim_fail_none(fixture.sim);
  bool met = counts.failures > 0;
  if (met) {
    sum->runs++;
    sum->out_of_memory += program.out_of_memory > 0;
    sum->errors += program.errors > 0;
    sum->refused += program.refused_frees > 0;
    sum->served += program.out_of_memory + program.errors + program.refused_frees == 0;
  }
  finish(&fixture, &program);
  return met;
}

static const vmm_call failing_calls[] = {
    VMM_CALL_ADDRESS_RESERVE, VMM_CALL_ADDRESS_FREE, VMM_CALL_CREATE,
    VMM_CALL_RELEASE,         VMM_CALL_MAP,          VMM_CALL_UNMAP,
    VMM_CALL_SET_ACCESS,      VMM_CALL_MALLOC,       VMM_CALL_FREE,
    VMM_CALL_MALLOC_ASYNC,    VMM_CALL_FREE_ASYNC,   VMM_CALL_EVENT_RECORD,
    VMM_CALL_EVENT_QUERY,     VMM_CALL_EVENT_WAIT,   VMM_CALL_STREAM_WAIT_EVENT,
    VMM_CALL_SYNCHRONIZE,
};

enum { FAILING_CALLS = sizeof failing_calls / sizeof *failing_calls };

static void report(const char *spec, const char *what, const outcomes *sum) {
  printf("%-70s %-9s %5" PRIu64 " runs: all served %5" PRIu64 ", out of memory %5" PRIu64
         ", request failed %5" PRIu64 ", free or trim refused %4" PRIu64 "\n",
         spec, what, sum->runs, sum->served, sum->out_of_memory, sum->errors, sum->refused);
}

START_TEST(survives_the_failure_of_any_call) {
  const char *spec = policies_specs()[_i];
  outcomes sum = {0};
  for (int c = 0; c < FAILING_CALLS; c++) {
    static const vmm_status failures[] = {VMM_OUT_OF_MEMORY, VMM_UNKNOWN};
    for (int f = 0; f < 2; f++) {
      for (uint64_t k = 1; run(spec, failing_calls[c], k, failures[f], NO_CALL, &sum); k++) {
      }
    }
  }
  report(spec, "one call", &sum);
  ck_assert(sum.runs > 0 || strcmp(spec, "null") == 0);
}
END_TEST

/* A call of each kind that serves to clean up fails too, the first one after the first failure. */
START_TEST(survives_two_failures) {
  const char *spec = policies_specs()[_i];
  static const vmm_call seconds[] = {VMM_CALL_UNMAP, VMM_CALL_RELEASE, VMM_CALL_ADDRESS_FREE, VMM_CALL_MAP};
  outcomes sum = {0};
  for (int c = 0; c < FAILING_CALLS; c++) {
    for (size_t s = 0; s < sizeof seconds / sizeof *seconds; s++) {
      for (uint64_t k = 1; run(spec, failing_calls[c], k, VMM_OUT_OF_MEMORY, seconds[s], &sum); k++) {
      }
    }
  }
  report(spec, "two calls", &sum);
}
END_TEST

/* Destroyed at any moment, with blocks live and frees pending, nothing is left on the device. */
START_TEST(leaves_nothing_when_destroyed_at_any_moment) {
  const char *spec = policies_specs()[_i];
  for (uint64_t steps = 0; steps <= STEPS; steps += 7) {
    policies_fixture fixture;
    policies_program program;
    set_up(&fixture, &program, spec);
    for (uint64_t i = 0; i < steps; i++) policies_program_step(&program);
    policies_fixture_close(&fixture);
  }
}
END_TEST

/* Each call that destroys a policy in the middle of its work fails once. */
START_TEST(leaves_nothing_when_a_call_fails_at_the_end) {
  const char *spec = policies_specs()[_i];
  for (int c = 0; c < FAILING_CALLS; c++) {
    bool met = true;
    for (uint64_t k = 1; met; k++) {
      policies_fixture fixture;
      policies_program program;
      set_up(&fixture, &program, spec);
      for (uint64_t i = 0; i < STEPS * 2 / 3; i++) policies_program_step(&program);
      vmm_meter_call before, after;
      vmm_meter_get(fixture.meter, failing_calls[c], &before);
      require(vmm_sim_fail(fixture.sim, failing_calls[c], k, VMM_UNKNOWN) == VMM_SUCCESS,
              "no room for a failure");
      policy_destroy(fixture.policy);
      vmm_meter_get(fixture.meter, failing_calls[c], &after);
      met = after.failures > before.failures;
      vmm_sim_usage usage, none = {0};
      vmm_sim_usage_get(fixture.sim, &usage);
      require(memcmp(&usage, &none, sizeof usage) == 0, "%s: %s number %" PRIu64 " failed, something is left",
              spec, vmm_call_name(failing_calls[c]), k);
      vmm_driver_destroy(fixture.meter);
      vmm_driver_destroy(fixture.sim);
    }
  }
}
END_TEST

/* The calls that make a policy fail: no policy, and a message that says which. */
START_TEST(is_not_made_over_a_device_that_fails) {
  const char *spec_text = policies_specs()[_i];
  for (vmm_call call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_sim_configuration configuration = {.capacity = 256 * MIB};
    vmm_driver *sim;
    policy_spec spec;
    policy *created = NULL;
    char message[512] = "";
    require(vmm_sim_create(&configuration, &sim) == VMM_SUCCESS, "no device");
    require(policy_spec_parse(spec_text, &spec, message, sizeof message) == VMM_SUCCESS, "%s", message);
    require(vmm_sim_fail(sim, call, 1, VMM_NOT_PERMITTED) == VMM_SUCCESS, "no room for a failure");
    vmm_status status = policy_create(&spec, sim, UINT64_MAX, &created, message, sizeof message);
    if (status == VMM_SUCCESS) {
      policy_destroy(created);
    } else {
      require(status == VMM_NOT_PERMITTED && !created, "%s: %s", spec_text, vmm_status_name(status));
      require(strstr(message, vmm_call_name(call)) && strstr(message, spec.class->name), "%s: \"%s\"",
              spec_text, message);
    }
    vmm_sim_usage usage, none = {0};
    vmm_sim_usage_get(sim, &usage);
    require(memcmp(&usage, &none, sizeof usage) == 0, "%s: something is left", spec_text);
    vmm_driver_destroy(sim);
  }
}
END_TEST

static Suite *failures_suite(void) {
  int specs = 0;
  while (policies_specs()[specs]) specs++;
  Suite *suite = suite_create("policies_failures");
  TCase *calls = tcase_create("calls");
  tcase_add_loop_test(calls, survives_the_failure_of_any_call, 0, specs);
  tcase_add_loop_test(calls, survives_two_failures, 0, specs);
  suite_add_tcase(suite, calls);
  TCase *ends = tcase_create("ends");
  tcase_add_loop_test(ends, leaves_nothing_when_destroyed_at_any_moment, 0, specs);
  tcase_add_loop_test(ends, leaves_nothing_when_a_call_fails_at_the_end, 0, specs);
  tcase_add_loop_test(ends, is_not_made_over_a_device_that_fails, 0, specs);
  suite_add_tcase(suite, ends);
  return suite;
}

TEST_MAIN(failures_suite)
