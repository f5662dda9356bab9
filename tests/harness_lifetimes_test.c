/* What an oracle is told of a trace. */
#include <stdlib.h>

#include "harness/exit_status.h"
#include "harness/lifetimes.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

typedef struct told {
  uint64_t size, end;
  vmm_stream stream;
  bool optional;
} told;

static void expect(const trace_event *events, size_t count, bool requested, const told *expected,
                   size_t expected_count) {
  lifetimes known = {0};
  for (size_t i = 0; i < count; i++) ck_assert(lifetimes_add(&known, &events[i], requested));
  const policy_lifetimes found = lifetimes_end(&known);
  ck_assert_uint_eq(found.count, expected_count);
  for (size_t i = 0; i < expected_count; i++) {
    ck_assert_uint_eq(found.items[i].size, expected[i].size);
    ck_assert_uint_eq(found.items[i].end, expected[i].end);
    ck_assert_uint_eq(found.items[i].stream, expected[i].stream);
    ck_assert_int_eq(found.items[i].optional, expected[i].optional);
  }
  lifetimes_free(&known);
}

START_TEST(frees_end_lives) {
  const trace_event events[] = {
      {.kind = TRACE_ALLOC, .slot = 0, .size = 10, .stream = 1},
      {.kind = TRACE_ALLOC, .slot = 1, .size = 20},
      {.kind = TRACE_FREE, .slot = 0, .size = 10},
      {.kind = TRACE_ALLOC, .slot = 0, .size = 30, .stream = 2},
      {.kind = TRACE_FREE, .slot = 0, .size = 30},
      {.kind = TRACE_ALLOC, .slot = 5000, .size = 40},
  };
  const told expected[] = {{10, 2, 1, false}, {20, 4, 0, false}, {30, 3, 2, false}, {40, 4, 0, false}};
  expect(events, 6, false, expected, 4);
  expect(events, 6, true, expected, 4);
}
END_TEST

START_TEST(frees_where_the_replay_has_them) {
  const trace_event events[] = {
      {.kind = TRACE_ALLOC, .slot = 0, .size = 10}, {.kind = TRACE_FREE_REQUESTED, .slot = 0, .size = 10},
      {.kind = TRACE_ALLOC, .slot = 1, .size = 20}, {.kind = TRACE_FREE, .slot = 0, .size = 10},
      {.kind = TRACE_ALLOC, .slot = 0, .size = 30}, {.kind = TRACE_FREE, .slot = 1, .size = 20},
  };
  const told completed[] = {{10, 2, 0, false}, {20, 3, 0, false}, {30, 3, 0, false}};
  const told requested[] = {{10, 1, 0, false}, {20, 3, 0, false}, {30, 3, 0, false}};
  expect(events, 6, false, completed, 3);
  expect(events, 6, true, requested, 3);
}
END_TEST

/* Requests that are answered before the policy hears of them are not told; those that failed are. */
START_TEST(only_what_reaches_the_policy) {
  const trace_event events[] = {
      {.kind = TRACE_ALLOC, .slot = 0, .size = 0},
      {.kind = TRACE_ALLOC, .slot = 1, .size = POLICY_SIZE_LIMIT},
      {.kind = TRACE_ALLOC, .slot = 2, .size = 5},
      {.kind = TRACE_OUT_OF_MEMORY, .slot = 0, .size = 700, .stream = 3},
      {.kind = TRACE_FREE, .slot = 0},
      {.kind = TRACE_FREE, .slot = 1, .size = POLICY_SIZE_LIMIT},
      {.kind = TRACE_OUT_OF_MEMORY, .slot = 0, .size = 0},
  };
  const told expected[] = {{5, 2, 0, false}, {700, 2, 3, true}};
  expect(events, 7, false, expected, 2);
}
END_TEST

/* Zero bytes, an allocation for which the device is too small, and laps: the plan keeps step with the replay.
 */
START_TEST(the_plan_keeps_step) {
  char *path = write_test_file("steps.txt",
                               "a 1 0 0\na 2 62914560 0\na 3 1000 1\nf 1\na 4 104857600 0\na 5 2097152 0\n"
                               "f 4\nf 2\na 6 62914560 1\na 7 1153000000000000000 0\nf 7\nf 6\na 8 3000 0\n");
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "-q", "--check", "--laps", "3",
                                  "--capacity", "128MiB", "--policy", "planned", "--json", "-", path);
  json_t *array = parse_output(&run);
  const json_t *object = json_array_get(array, 0);
  /* In each lap: the largest lies lowest, three others above it where the device has ended; one is absurd. */
  ck_assert_double_eq(json_number(object, "failed_allocs"), 12);
  ck_assert_double_eq(json_number(object, "segments_peak"), 0);
  json_decref(array);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "bench", "alloc", "--policy", "planned", "--driver", "sim");
  ck_assert_has(run.errors, "policy 'planned' must see a trace before it begins");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "policies", "planned");
  ck_assert_has(run.output, "the whole trace in advance");
  program_run_free(&run);
  free(path);
}
END_TEST

static Suite *lifetimes_suite(void) {
  Suite *suite = suite_create("harness_lifetimes");
  TCase *test_case = tcase_create("lifetimes");
  tcase_add_test(test_case, frees_end_lives);
  tcase_add_test(test_case, frees_where_the_replay_has_them);
  tcase_add_test(test_case, only_what_reaches_the_policy);
  tcase_add_test(test_case, the_plan_keeps_step);
  suite_add_tcase(suite, test_case);
  return suite;
}

TEST_MAIN(lifetimes_suite)
