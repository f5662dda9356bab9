/* lakebed replay --iterations: what each iteration did, and from which one on a policy has settled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/exit_status.h"
#include "harness/replay_iterations.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define FIXED "workloads/bundled/opt-1.3b-LR-b16-s512-w4-v0-i8.pickle.xz"
#define VARYING "workloads/bundled/opt-1.3b-N-b8-s512-w4-v1.pickle.xz"

static const json_t *member(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  ck_assert_msg(value != NULL, "there is no %s", key);
  return value;
}

static double sum(const json_t *array, const char *key) {
  double all = 0;
  size_t i;
  const json_t *entry;
  json_array_foreach(array, i, entry) { all += json_number(entry, key); }
  return all;
}

static double sum_operation(const json_t *array, const char *name, const char *key) {
  double all = 0;
  size_t i;
  const json_t *entry;
  json_array_foreach(array, i, entry) { all += json_number(member(member(entry, "operations"), name), key); }
  return all;
}

/* Iterations add up to the run. */
static void check_sums(const json_t *run) {
  const json_t *iterations = member(run, "iterations");
  ck_assert_double_eq(sum(iterations, "events"), json_number(run, "events"));
  ck_assert_double_eq(sum(iterations, "failed_allocs"), json_number(run, "failed_allocs"));
  ck_assert_double_eq_tol(sum(iterations, "driver_us"), json_number(run, "driver_us"), 1);
  const char *name;
  json_t *operation;
  json_object_foreach((json_t *)(uintptr_t)member(run, "operations"), name, operation) {
    ck_assert_double_eq(sum_operation(iterations, name, "count"), json_number(operation, "count"));
    ck_assert_double_eq_tol(sum_operation(iterations, name, "driver_us"), json_number(operation, "driver_us"),
                            1);
  }
  double live = 0, reserved = 0;
  size_t i;
  const json_t *entry;
  json_array_foreach(iterations, i, entry) {
    if (json_number(entry, "live_peak_bytes") > live) live = json_number(entry, "live_peak_bytes");
    if (json_number(entry, "reserved_peak_bytes") > reserved)
      reserved = json_number(entry, "reserved_peak_bytes");
    ck_assert_double_le(json_number(entry, "memory_calls"), json_number(entry, "driver_calls"));
  }
  ck_assert_double_eq(live, json_number(run, "live_peak_bytes"));
  ck_assert_double_eq(reserved, json_number(run, "reserved_peak_bytes"));
  json_array_foreach(iterations, i, entry) { ck_assert(json_is_object(member(entry, "counters"))); }
}

START_TEST(a_recording_is_cut_at_its_optimizer_steps) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "gmlake,gmlake:stitching=eager,bfc",
                                  "--iterations", "--json", "-", "--no-host-timing", FIXED);
  json_t *results = parse_output(&run);
  for (size_t i = 0; i < 3; i++) {
    const json_t *result = json_array_get(results, i), *iterations = member(result, "iterations");
    ck_assert_uint_eq(json_array_size(iterations), 8);
    ck_assert_str_eq(json_string_value(member(result, "iteration_marks")), "trace");
    check_sums(result);
    /* Fixed shapes: from the second on all have the same events, but for what the end of the run frees. */
    for (size_t k = 2; k < 7; k++) {
      ck_assert_double_eq(json_number(json_array_get(iterations, k), "events"),
                          json_number(json_array_get(iterations, 1), "events"));
    }
    /* The paper: settled after four iterations. */
    const json_t *quiet = member(result, "quiet_from");
    ck_assert_double_le(json_number(quiet, "iteration"), 5);
    for (size_t k = 4; k < 8; k++) {
      ck_assert_double_eq(json_number(json_array_get(iterations, k), "memory_calls"), 0);
    }
    const json_t *exact = member(result, "exact_from");
    if (i == 2) {
      ck_assert(json_is_null(exact));
      continue;
    }
    ck_assert_double_le(json_number(exact, "iteration"), 5);
    const size_t from = (size_t)json_number(exact, "iteration");
    const json_t *operations = member(json_array_get(iterations, from - 2), "operations");
    ck_assert_double_gt(json_number(member(operations, "S2"), "count") +
                            json_number(member(operations, "S3"), "count") +
                            json_number(member(operations, "S4"), "count"),
                        0);
  }
  json_decref(results);
  program_run_free(&run);
}
END_TEST

START_TEST(the_report_says_when_it_settled) {
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "gmlake,native", "--iterations", FIXED);
  ck_assert_has(run.output, "gmlake: iterations\niteration  events  failed  grow     S1");
  ck_assert_has(run.output, "Driver time in ms, of operations with what is nested in them:");
  ck_assert_has(run.output, "S1 only: from iteration 3 on\nNo driver calls for memory: from iteration 3 on");
  ck_assert_has(run.output, "No driver calls for memory: never, some in the last one too");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "gmlake", "--iterations", VARYING);
  ck_assert_has(run.output, "S1 only: never, S2 to S5 in the last one too");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "bfc", "--iterations", "--laps", "2", FIXED);
  ck_assert_has(run.output, "lap.iteration");
  ck_assert_has(run.output, "\n          2.8  ");
  ck_assert_has(run.output, "No driver calls for memory: from iteration 2 of lap 1 on");
  program_run_free(&run);
}
END_TEST

START_TEST(laps_are_iterations_where_there_are_no_marks) {
  char *trace = write_test_file("laps.txt", "a 1 3000000\na 2 5000000\nf 1\n");
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "bfc,gmlake", "--iterations",
                                  "--laps", "3", "--json", "-", trace);
  json_t *results = parse_output(&run);
  for (size_t i = 0; i < 2; i++) {
    const json_t *result = json_array_get(results, i), *iterations = member(result, "iterations");
    ck_assert_str_eq(json_string_value(member(result, "iteration_marks")), "laps");
    ck_assert_uint_eq(json_array_size(iterations), 3);
    ck_assert_double_eq(json_number(json_array_get(iterations, 2), "lap"), 3);
    ck_assert_double_eq(json_number(json_array_get(iterations, 2), "iteration"), 1);
    ck_assert_double_eq(json_number(member(result, "quiet_from"), "lap"), 2);
    ck_assert_double_eq(sum(iterations, "events"), 9);
    /* The frees at the end of a lap are its own. */
    ck_assert_double_eq(
        json_number(member(member(json_array_get(iterations, 0), "operations"), "free"), "count"), 2);
  }
  json_decref(results);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "bfc", "--iterations", trace);
  ck_assert_has(run.output, "bfc: iterations (the trace has no marks of them: each lap is one)");
  ck_assert_has(run.output, "No driver calls for memory: never, some in the last one too");
  program_run_free(&run);
  free(trace);
}
END_TEST

START_TEST(the_table_for_programs_is_the_same_every_time) {
  char *path = test_path("iterations.csv"), *again = test_path("again.csv");
  for (int i = 0; i < 2; i++) {
    char option[600];
    snprintf(option, sizeof option, "--iterations=%s", i ? again : path);
    program_run run =
        run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "gmlake,aliasheap", option, VARYING);
    program_run_free(&run);
  }
  char *text = read_test_file(path), *same = read_test_file(again);
  ck_assert_str_eq(text, same);
  ck_assert_int_eq(strncmp(text, "trace,policy,lap,iteration,measure,value\n", 41), 0);
  ck_assert_has(text, "\nopt-1.3b-N-b8-s512-w4-v1.pickle.xz,gmlake,1,6,S1_count,");
  ck_assert_has(text, "\nopt-1.3b-N-b8-s512-w4-v1.pickle.xz,gmlake,1,1,stitch_driver_us,");
  ck_assert_has(text, "\nopt-1.3b-N-b8-s512-w4-v1.pickle.xz,aliasheap,1,2,handles_count,");
  free(text);
  free(same);
  free(path);
  free(again);
}
END_TEST

START_TEST(settling_is_found_from_the_end) {
  replay_iteration items[4] = {
      {.memory_calls = 3}, {.memory_calls = 0}, {.memory_calls = 1}, {.memory_calls = 0}};
  replay_iterations all = {.items = items, .count = 4};
  for (size_t i = 0; i < 4; i++) {
    items[i].operations[6].name = "S1";
    items[i].operations[7].name = "S2";
    items[i].operations[7].count = i == 0;
  }
  replay_iterations_settle(&all);
  ck_assert(all.states);
  ck_assert_uint_eq(all.quiet_from, 3);
  ck_assert_uint_eq(all.exact_from, 1);
  ck_assert(!replay_iteration_is_exact(&items[0]) && replay_iteration_is_exact(&items[1]));
  items[3].memory_calls = 1;
  replay_iterations_settle(&all);
  ck_assert_uint_eq(all.quiet_from, 4);
  replay_iterations none = {0};
  replay_iterations_settle(&none);
  ck_assert(!none.states && none.quiet_from == 0 && none.exact_from == 0);
}
END_TEST

START_TEST(what_cannot_be_is_refused) {
  char *trace = write_test_file("bad.txt", "a 1 100\nx\n"), *path = test_path("long.txt");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "-p", "bfc", "--iterations", trace);
  ck_assert_has(run.errors, "bad.txt:2:");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "-p", "bfc", "--iterations=-", "--csv", "-", trace);
  ck_assert_has(run.errors, "only one of the files can go to standard output");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "-p", "bfc", "--iterations=/nowhere/at/all", trace);
  ck_assert_has(run.errors, "/nowhere/at/all cannot be written");
  program_run_free(&run);
  FILE *stream = fopen(path, "w");
  ck_assert_ptr_nonnull(stream);
  for (int i = 0; i < (1 << 19) + 1; i++) fputs("a 1 100\nf 1\n", stream);
  fclose(stream);
  ck_assert_ptr_nonnull(freopen(path, "r", stdin));
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "-p", "null", "--iterations", "-");
  ck_assert_has(run.errors, "store it in a file, or do not ask for --iterations");
  program_run_free(&run);
  /* A long file is read again, for it can be. */
  run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "null", "--iterations", path);
  program_run_free(&run);
  remove(path);
  free(path);
  free(trace);
}
END_TEST

static Suite *iterations_suite(void) {
  Suite *suite = suite_create("harness_iterations");
  TCase *cases = tcase_create("iterations");
  tcase_add_test(cases, a_recording_is_cut_at_its_optimizer_steps);
  tcase_add_test(cases, the_report_says_when_it_settled);
  tcase_add_test(cases, laps_are_iterations_where_there_are_no_marks);
  tcase_add_test(cases, the_table_for_programs_is_the_same_every_time);
  tcase_add_test(cases, settling_is_found_from_the_end);
  tcase_add_test(cases, what_cannot_be_is_refused);
  suite_add_tcase(suite, cases);
  return suite;
}

TEST_MAIN(iterations_suite)
