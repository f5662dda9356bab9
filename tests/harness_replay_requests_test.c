/* lakebed replay: when memory counts as freed, work that takes its time, requests that failed when
 * recorded, and what is said of requests that fail here. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/exit_status.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define MIB UINT64_C(1048576)

static uint64_t bytes_of(const json_t *object, const char *key) { return (uint64_t)json_number(object, key); }

/* The first object of a run's JSON; *array is to be released. */
static const json_t *first_of(program_run *run, json_t **array) {
  *array = parse_output(run);
  program_run_free(run);
  return json_array_get(*array, 0);
}

#define REPLAY(expected, ...) \
  run_expecting(expected, "replay", "-q", "--no-host-timing", "--json", "-", __VA_ARGS__)

/* ---- requested and completed frees ---- */

static const char deferred_free[] =
    "lakebed-trace 1\n"
    "a 1 41943040 0\n"
    "r 1\n"
    "a 2 41943040 0\n"
    "f 1\n"
    "r 2\n"
    "f 2\n"
    "a 3 41943040 0\n"
    "f 3\n"
    "e 8\n";

START_TEST(frees_count_when_completed_or_requested) {
  char *path = write_test_file("deferred.trace", deferred_free);
  static const struct {
    const char *frees;
    uint64_t peak;
  } cases[] = {{"completed", 80 * MIB}, {"requested", 40 * MIB}};
  for (size_t i = 0; i < 2; i++) {
    program_run run = REPLAY(EXIT_STATUS_DONE, "--check", "--frees", cases[i].frees, "--policy", "bfc",
                             "--laps", "3", path);
    json_t *array;
    const json_t *bfc = first_of(&run, &array);
    ck_assert_str_eq(json_text(bfc, "frees"), cases[i].frees);
    ck_assert_uint_eq(bytes_of(bfc, "reserved_peak_bytes"), cases[i].peak);
    ck_assert_uint_eq(bytes_of(bfc, "live_peak_bytes"), cases[i].peak);
    ck_assert_uint_eq(bytes_of(bfc, "events"), 3 * 6); /* allocations and frees, however they are counted */
    ck_assert_uint_eq(bytes_of(bfc, "final_allocated_bytes"), 0);
    json_decref(array);
  }
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--frees", "requested", path);
  ck_assert_has(run.output, "freed when the caller asked for it");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--frees", "maybe", path);
  ck_assert_has(run.errors, "--frees=maybe: expected completed or requested");
  program_run_free(&run);
  free(path);
}
END_TEST

/* Data stays whole when memory is given away at the request. */
START_TEST(requested_frees_pass_verification) {
  char *path = write_test_file("deferred.trace", deferred_free);
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--frees", "requested", "--verify",
                                  "--check", "--capacity", "1GiB", path);
  program_run_free(&run);
  free(path);
}
END_TEST

/* A recording without requests is the same either way. */
START_TEST(frees_without_requests_are_completed) {
  static const char trace[] = "workloads/bundled/multi_stream.txt.xz";
  program_run completed = REPLAY(EXIT_STATUS_DONE, "--policy", "bfc", trace);
  program_run requested = REPLAY(EXIT_STATUS_DONE, "--policy", "bfc", "--frees", "requested", trace);
  char *word = strstr(requested.output, "\"frees\": \"requested\"");
  ck_assert_ptr_nonnull(word);
  memcpy(word, "\"frees\": \"completed\"", strlen("\"frees\": \"completed\""));
  ck_assert_str_eq(completed.output, requested.output);
  program_run_free(&completed);
  program_run_free(&requested);
}
END_TEST

/* ---- work that takes its time ---- */

START_TEST(work_is_done_after_a_delay) {
  char *path =
      write_test_file("streams.txt", "a 1 33554432 1\nf 1\na 2 33554432 2\nf 2\na 3 33554432 1\nf 3\n");
  static const struct {
    const char *delay, *policy;
    uint64_t peak;
  } cases[] = {
      {"0", "async", 32 * MIB}, {"1", "async", 32 * MIB},  {"4", "async", 64 * MIB},
      {"0", "bfc", 64 * MIB},   {"4", "bfc", 64 * MIB},    {"0", "tfbfc", 32 * MIB},
      {"4", "tfbfc", 32 * MIB}, {"4", "gmlake", 64 * MIB}, {"4", "aliasheap", 32 * MIB},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    program_run run = REPLAY(EXIT_STATUS_DONE, "--check", "--event-delay", cases[i].delay, "--policy",
                             cases[i].policy, path);
    json_t *array;
    const json_t *object = first_of(&run, &array);
    ck_assert_uint_eq(bytes_of(object, "event_delay_events"), (uint64_t)atoi(cases[i].delay));
    ck_assert_msg(bytes_of(object, "reserved_peak_bytes") == cases[i].peak, "%s after %s: %llu",
                  cases[i].policy, cases[i].delay,
                  (unsigned long long)bytes_of(object, "reserved_peak_bytes"));
    json_decref(array);
  }
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--event-delay", "3", "--laps", "3", path);
  ck_assert_has(run.output, "work done after 3 events");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "--driver", "cuda", "--event-delay", "3", path);
  ck_assert_has(run.errors, "--event-delay");
  program_run_free(&run);
  free(path);
}
END_TEST

/* rmm#2510: with a threshold the pool gives memory back whenever the host waits, and takes it again. */
START_TEST(a_threshold_costs_driver_time) {
  char *path =
      write_test_file("again.txt", "a 1 838860800 0\nf 1\na 2 838860800 0\nf 2\na 3 838860800 0\nf 3\n");
  static const char *const specs[] = {"async:release_threshold=0", "async:release_threshold=512MiB", "async"};
  double us[3];
  for (size_t i = 0; i < 3; i++) {
    program_run run = REPLAY(EXIT_STATUS_DONE, "--policy", specs[i], path);
    json_t *array;
    const json_t *object = first_of(&run, &array);
    us[i] = json_number(object, "driver_us");
    ck_assert_uint_eq(bytes_of(object, "reserved_peak_bytes"), 800 * MIB);
    ck_assert_str_eq(json_text(object, "model_note"),
                     "a model: placement of the driver's pool is not public");
    json_decref(array);
  }
  ck_assert(us[0] > us[1] && us[1] > us[2]);
  free(path);
}
END_TEST

/* ---- requests that fail ---- */

static const char ran_out[] =
    "lakebed-trace 1\n"
    "a 1 41943040 0\n"
    "a 2 41943040 0\n"
    "f 1\n"
    "a 3 20971520 0\n"
    "o 62914560 0\n"
    "f 2\n"
    "f 3\n"
    "e 7\n";

/* rmm#2553: failures in a recording become questions, not failures of the replay. */
START_TEST(recorded_failures_are_tried_again) {
  char *path = write_test_file("ran_out.trace", ran_out);
  program_run run =
      REPLAY(EXIT_STATUS_DONE, "--check", "--capacity", "122MiB", "--policy", "bfc,native,gmlake", path);
  json_t *array = parse_output(&run);
  program_run_free(&run);
  for (size_t i = 0; i < 3; i++) {
    const json_t *object = json_array_get(array, i);
    ck_assert_uint_eq(bytes_of(object, "recorded_ooms"), 1);
    ck_assert_uint_eq(bytes_of(object, "recorded_ooms_served"), i > 0);
    ck_assert_uint_eq(bytes_of(object, "failed_allocs"), 0);
    ck_assert_uint_eq(bytes_of(object, "events"), 6);
    ck_assert_uint_eq(bytes_of(object, "live_peak_bytes"), i > 0 ? 120 * MIB : 80 * MIB);
    ck_assert_uint_eq(bytes_of(object, "final_allocated_bytes"), 0);
    ck_assert(json_is_null(json_object_get(object, "first_failure")));
  }
  json_decref(array);
  run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--capacity", "122MiB", "--policy", "bfc,native", path);
  ck_assert_has(run.output, "Requests that found no memory when recorded, made again here:");
  ck_assert_has(run.output, "bfc: 0 of 1 served");
  ck_assert_has(run.output, "native: 1 of 1 served");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--csv", "-", "--policy", "bfc", path);
  ck_assert_has(run.output, ",recorded_ooms,recorded_ooms_served,");
  program_run_free(&run);
  free(path);
}
END_TEST

/* cudf-spark#4045: was it the pool's limit or the device? */
START_TEST(a_failure_says_who_refused) {
  char *path = write_test_file("much.txt", "a 1 41943040\na 2 41943040\nf 1\na 3 83886080\n");
  static const struct {
    const char *option, *value, *refused_by, *text;
  } cases[] = {{"--capacity", "100MiB", "device", "cuMemAlloc(size=83886080) returned"},
               {"--limit", "100MiB", "limit", "was not asked: more would be past the limit"}};
  for (size_t i = 0; i < 2; i++) {
    program_run run =
        REPLAY(EXIT_STATUS_OUT_OF_MEMORY, cases[i].option, cases[i].value, "--policy", "bfc,native", path);
    json_t *array;
    const json_t *failure = json_object_get(first_of(&run, &array), "first_failure");
    ck_assert_str_eq(json_text(failure, "refused_by"), cases[i].refused_by);
    ck_assert_uint_eq(bytes_of(failure, "size_bytes"), 80 * MIB);
    /* The cache was emptied before the second attempt. */
    ck_assert_uint_eq(json_array_size(json_object_get(failure, "free_ranges")), 0);
    const json_t *native = json_object_get(json_array_get(array, 1), "first_failure");
    ck_assert(json_is_null(json_object_get(native, "free_ranges")));
    json_decref(array);
    run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "-q", cases[i].option, cases[i].value,
                        "--policy", "bfc", path);
    ck_assert_has(run.output, cases[i].text);
    ck_assert_has(run.output, "free ranges    none");
    program_run_free(&run);
  }
  free(path);
}
END_TEST

static Suite *requests_suite(void) {
  Suite *suite = suite_create("replay requests");
  TCase *frees = tcase_create("frees");
  tcase_add_test(frees, frees_count_when_completed_or_requested);
  tcase_add_test(frees, requested_frees_pass_verification);
  tcase_add_test(frees, frees_without_requests_are_completed);
  suite_add_tcase(suite, frees);
  TCase *delays = tcase_create("delays");
  tcase_add_test(delays, work_is_done_after_a_delay);
  tcase_add_test(delays, a_threshold_costs_driver_time);
  suite_add_tcase(suite, delays);
  TCase *failures = tcase_create("failures");
  tcase_add_test(failures, recorded_failures_are_tried_again);
  tcase_add_test(failures, a_failure_says_who_refused);
  suite_add_tcase(suite, failures);
  return suite;
}

TEST_MAIN(requests_suite)
