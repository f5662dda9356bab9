/* What each registered policy does with the synthetic traces today: tests/golden/replay/NAME.json,
 * written by ./lakebed golden NAME. A policy without such a file fails. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tests/policies_fixture.h"
#include "tests/test_main.h"

enum { TRACES = 64 };

static uint64_t number(const json_t *run, const char *key) {
  const json_t *value = json_object_get(run, key);
  require(json_is_integer(value), "a golden run has no number %s", key);
  return (uint64_t)json_integer_value(value);
}

static const policies_trace *trace_of(const policies_trace *traces, size_t count, const char *file_name) {
  for (size_t i = 0; i < count; i++) {
    size_t length = strlen(traces[i].name);
    if (traces[i].bundled && strncmp(file_name, traces[i].name, length) == 0 && file_name[length] == '.')
      return &traces[i];
  }
  ck_abort_msg("golden trace %s is not bundled", file_name);
  return NULL;
}

static void compare_run(const char *policy_name, const json_t *run) {
  policies_trace traces[TRACES];
  size_t count = policies_traces(traces, TRACES);
  const char *trace_name = json_string_value(json_object_get(run, "trace"));
  require(trace_name, "%s: a golden run names no trace", policy_name);
  trace_events events;
  policies_trace_load(trace_of(traces, count, trace_name), &events);
  policies_fixture fixture;
  lifetimes known;
  const policy_lifetimes told = policies_lifetimes(&events, &known);
  policies_fixture_open(
      &fixture, &(policies_fixture_options){.spec = policy_name, .profile = "h200", .lifetimes = &told});
  policies_replay replay;
  policies_replay_open(&replay, &events);
  policies_replay_lap(&replay, &fixture, 0);
  const pool_statistics *statistics = policies_statistics(&fixture);
  const struct {
    const char *key;
    uint64_t now;
  } numbers[] = {
      {"live_peak_bytes", replay.live_peak},
      {"reserved_peak_bytes", statistics->reserved_bytes.peak},
      {"allocated_peak_bytes", statistics->allocated_bytes.peak},
      {"failed_allocs", replay.out_of_memory},
      {"alloc_retries", statistics->retries},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    uint64_t golden = number(run, numbers[i].key);
    require(golden == numbers[i].now,
            "%s on %s: %s was %" PRIu64 ", is %" PRIu64 " (on purpose? ./lakebed golden %s)", policy_name,
            trace_name, numbers[i].key, golden, numbers[i].now, policy_name);
  }
  const char *call_name;
  json_t *call_value;
  json_object_foreach(json_object_get(run, "driver_calls"), call_name, call_value) {
    vmm_call call = 0;
    while (call < VMM_CALL_COUNT && strcmp(vmm_call_name(call), call_name) != 0) call++;
    require(call < VMM_CALL_COUNT, "%s: no driver call %s", policy_name, call_name);
    /* The end of a replay frees what is left; these happen at any time. */
    if (call != VMM_CALL_MALLOC && call != VMM_CALL_CREATE && call != VMM_CALL_MAP &&
        call != VMM_CALL_SET_ACCESS)
      continue;
    uint64_t golden = number(call_value, "count"), now = policies_calls(&fixture, call);
    require(golden == now,
            "%s on %s: %" PRIu64 " calls of %s, now %" PRIu64 " (on purpose? ./lakebed golden %s)",
            policy_name, trace_name, golden, call_name, now, policy_name);
  }
  policies_replay_free_all(&replay, &fixture);
  policies_replay_close(&replay);
  policies_fixture_close(&fixture);
  lifetimes_free(&known);
  trace_events_free(&events);
}

START_TEST(golden_numbers) {
  const policy_class *class = policy_list()[_i];
  char path[256];
  snprintf(path, sizeof path, "tests/golden/replay/%s.json", class->name);
  json_error_t error;
  json_t *runs = json_load_file(path, 0, &error);
  require(json_is_array(runs) && json_array_size(runs) > 0, "%s: %s; write it with ./lakebed golden %s", path,
          error.text, class->name);
  for (size_t i = 0; i < json_array_size(runs); i++) compare_run(class->name, json_array_get(runs, i));
  json_decref(runs);
}
END_TEST

static Suite *policies_replay_golden_suite(void) {
  int count = 0;
  while (policy_list()[count]) count++;
  Suite *suite = suite_create("policies_replay_golden");
  TCase *test_case = tcase_create("golden");
  tcase_add_loop_test(test_case, golden_numbers, 0, count);
  suite_add_tcase(suite, test_case);
  return suite;
}

TEST_MAIN(policies_replay_golden_suite)
