/* lakebed oom: the smallest device that serves a trace, and who survives where a recording ran out of memory.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/exit_status.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define EDGE "workloads/bundled/edge.txt.xz"
#define REAL "workloads/bundled/opt-1.3b-N-b8-s512-w4-v1.pickle.xz"
#define RAN_OUT "tests/data/snapshots/oom.pickle.xz"
#define MIB UINT64_C(1048576)

static uint64_t bytes_of(const json_t *object, const char *key) { return (uint64_t)json_number(object, key); }

/* The object of a policy in an array of results. */
static const json_t *result_of(const json_t *array, const char *policy) {
  for (size_t i = 0; i < json_array_size(array); i++) {
    const json_t *object = json_array_get(array, i);
    if (strcmp(json_text(object, "spec"), policy) == 0) return object;
  }
  ck_abort_msg("there is no result for %s", policy);
  return NULL;
}

/* A device of the size found serves everything, one 2 MiB smaller does not. */
static void check_trace(const char *trace) {
  program_run found = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--json", "-", trace);
  json_t *array = parse_output(&found);
  size_t count = json_array_size(array);
  ck_assert_uint_ge(count, 8);
  for (size_t i = 0; i < count; i++) {
    const json_t *object = json_array_get(array, i);
    uint64_t capacity = bytes_of(object, "smallest_capacity_bytes"), step = bytes_of(object, "step_bytes");
    char exactly[32], less[32];
    snprintf(exactly, sizeof exactly, "%llu", (unsigned long long)capacity);
    snprintf(less, sizeof less, "%llu", (unsigned long long)(capacity - step));
    const char *spec = json_text(object, "spec");
    ck_assert_uint_ge(capacity, bytes_of(object, "requested_peak_bytes"));
    ck_assert_uint_le(bytes_of(object, "reserved_peak_bytes"), capacity);
    ck_assert_uint_eq(step, 2 * MIB);
    program_run run =
        run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--policy", spec, "--capacity", exactly, trace);
    program_run_free(&run);
    run = run_program("replay", "-q", "--policy", spec, "--capacity", less, trace, (const char *)NULL);
    ck_assert_msg(run.status == EXIT_STATUS_OUT_OF_MEMORY, "%s serves %s with %s bytes: status %d", spec,
                  trace, less, run.status);
    program_run_free(&run);
  }
  json_decref(array);
  program_run_free(&found);
}

START_TEST(the_answer_serves_and_the_step_below_does_not) {
  static const char *const traces[] = {EDGE, REAL};
  check_trace(traces[_i]);
}
END_TEST

START_TEST(the_table_has_a_row_a_policy) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "oom");
  static const char *const pieces[] = {"opt-1.3b-LR-b16-s512-w4-v0-i8",
                                       "live peak GiB",
                                       "smallest device GiB",
                                       "peak live 6.41 GiB",
                                       "native",
                                       "async",
                                       "gmlake",
                                       "aliasheap",
                                       "a model: placement of the driver's pool is not public"};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) ck_assert_has(run.output, pieces[i]);
  ck_assert_has(run.errors, "replays in");
  ck_assert_ptr_null(strstr(run.output, "When recorded"));
  ck_assert_ptr_null(strstr(run.output, "survive"));
  program_run_free(&run);
}
END_TEST

/* pytorch#35901 as a snapshot: half of the device is free, and the request fails. */
START_TEST(a_recording_that_ran_out_of_memory_is_judged) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "oom", "-q", RAN_OUT);
  static const char *const pieces[] = {
      "1 from before the recording",
      "out of memory 1 time when recorded",
      "event 69: 11.3 GiB wanted (12163481600 bytes) on stream 0, 1.22 GiB live, 9.16 GiB of the device free",
      "On a device of 21.5 GiB (what the recorded run's segments and the device's free memory add up to)",
      "survive        native, async, expandable, tfbfc, rawvmm, gmlake, aliasheap",
      "bfc runs out at event 69, where the recorded run did",
      "largest free   10.7 GiB",
      "free ranges    1 from 8.00 GiB up, 10.7 GiB together",
      "13 from 32.0 MiB up, 416 MiB together",
      "cuMemAlloc(size=12163481600) returned CUDA_ERROR_OUT_OF_MEMORY"};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) ck_assert_has(run.output, pieces[i]);
  program_run_free(&run);

  run =
      run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--json", "-", "--policy", "bfc,gmlake,planned", RAN_OUT);
  json_t *array = parse_output(&run);
  /* The oracle places the request that failed beside what is live then. */
  const json_t *planned = result_of(array, "planned");
  ck_assert_uint_eq(bytes_of(planned, "smallest_capacity_bytes"), (1024 + 14 * 16 + 11600) * MIB);
  ck_assert(json_is_true(json_object_get(json_object_get(planned, "verdict"), "survives")));
  const json_t *bfc = result_of(array, "bfc"), *gmlake = result_of(array, "gmlake");
  /* The weights, the huge block and all of it once more; stitched, what lives is enough. */
  ck_assert_uint_eq(bytes_of(bfc, "smallest_capacity_bytes"), (1024 + 2 * 11600) * MIB);
  ck_assert_uint_eq(bytes_of(gmlake, "smallest_capacity_bytes"), (1024 + 14 * 16 + 11600) * MIB);
  ck_assert_uint_eq(bytes_of(gmlake, "live_peak_bytes"), (1024 + 14 * 16 + 11600) * MIB);
  ck_assert_uint_eq(bytes_of(bfc, "seeded"), 1);
  const json_t *recorded = json_object_get(bfc, "recorded_ooms");
  ck_assert_uint_eq(json_array_size(recorded), 1);
  ck_assert_uint_eq(bytes_of(json_array_get(recorded, 0), "device_free_bytes"), (22000 - 1024 - 11600) * MIB);
  const json_t *verdict = json_object_get(bfc, "verdict");
  ck_assert_uint_eq(bytes_of(verdict, "capacity_bytes"), 22000 * MIB);
  ck_assert_str_eq(json_text(verdict, "capacity_source"), "recorded");
  ck_assert(json_is_false(json_object_get(verdict, "survives")));
  const json_t *failure = json_object_get(verdict, "first_failure");
  ck_assert(json_is_true(json_object_get(failure, "failed_when_recorded")));
  ck_assert_str_eq(json_text(failure, "refused_by"), "device");
  ck_assert_uint_eq(bytes_of(failure, "device_free_bytes"), (22000 - 1024 - 11600) * MIB);
  uint64_t free_bytes = 0;
  const json_t *ranges = json_object_get(failure, "free_ranges");
  for (size_t i = 0; i < json_array_size(ranges); i++)
    free_bytes += bytes_of(json_array_get(ranges, i), "bytes");
  ck_assert_uint_eq(free_bytes, bytes_of(failure, "reserved_bytes") - bytes_of(failure, "allocated_bytes"));
  ck_assert(json_is_true(json_object_get(json_object_get(gmlake, "verdict"), "survives")));
  json_decref(array);
  program_run_free(&run);
}
END_TEST

/* The size of the device can be given, and what was live before the recording left out. */
START_TEST(the_device_can_be_given) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--json", "-", "--policy", "bfc,gmlake",
                                  "--capacity", "24GiB", RAN_OUT);
  json_t *array = parse_output(&run);
  const json_t *verdict = json_object_get(result_of(array, "bfc"), "verdict");
  ck_assert_str_eq(json_text(verdict, "capacity_source"), "option");
  ck_assert(json_is_true(json_object_get(verdict, "survives")));
  json_decref(array);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--json", "-", "--policy", "bfc", "--no-seeds", RAN_OUT);
  array = parse_output(&run);
  const json_t *bfc = result_of(array, "bfc");
  ck_assert_uint_eq(bytes_of(bfc, "seeded"), 0);
  ck_assert_uint_eq(bytes_of(bfc, "smallest_capacity_bytes"), 2 * 11600 * MIB);
  ck_assert_str_eq(json_text(json_object_get(bfc, "verdict"), "capacity_source"), "device");
  json_decref(array);
  program_run_free(&run);
  /* Without a failure in the recording nobody asks, unless a size is given. */
  run = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--policy", "bfc,native", "--capacity", "706MiB", EDGE);
  ck_assert_has(run.output, "On a device of 706 MiB (as given)");
  ck_assert_has(run.output, "survive        native");
  ck_assert_has(run.output, "bfc runs out at event");
  program_run_free(&run);
}
END_TEST

START_TEST(no_device_is_large_enough) {
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "oom", "-q", "--policy", "bfc,native",
                                  "tests/data/snapshots/small.p4.pickle");
  ck_assert_has(run.output, "none up to 512 GiB");
  ck_assert_has(run.output, "survive        none of these policies");
  program_run_free(&run);
}
END_TEST

START_TEST(csv_has_a_row_a_policy) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--csv", "-", "--policy",
                                  "bfc:max_split_size_mb=64,native", EDGE, RAN_OUT);
  size_t lines = 0, cells = 0;
  for (const char *line = run.output; *line; line = strchr(line, '\n') + 1, lines++) {
    size_t here = 1;
    bool quoted = false;
    for (const char *at = line; *at != '\n'; at++) {
      if (*at == '"') quoted = !quoted;
      here += *at == ',' && !quoted;
    }
    if (lines == 0) cells = here;
    ck_assert_uint_eq(here, cells);
  }
  ck_assert_uint_eq(lines, 5);
  ck_assert_has(run.output, "oom.pickle.xz,native,,NVIDIA H200,done,,69,13472104448,");
  program_run_free(&run);
}
END_TEST

/* The same answer whichever way the trace comes: by its name, or through a pipe as plain events. */
START_TEST(a_pipe_is_read_once) {
  char *path = write_test_file("plain.txt", "a 1 40000000\na 2 40000000\nf 1\na 3 20000000\nf 2\nf 3\n");
  program_run named = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--csv", "-", "--policy", "bfc", path);
  ck_assert_ptr_nonnull(freopen(path, "r", stdin));
  program_run piped = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--csv", "-", "--policy", "bfc", "-");
  ck_assert_str_eq(strstr(named.output, ",bfc,"), strstr(piped.output, ",bfc,"));
  program_run_free(&named);
  program_run_free(&piped);
  free(path);
}
END_TEST

/* Two runs give the same bytes. */
START_TEST(the_same_search_gives_the_same_bytes) {
  program_run first = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--json", "-", EDGE, RAN_OUT);
  program_run second = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "--json", "-", EDGE, RAN_OUT);
  ck_assert_str_eq(first.output, second.output);
  program_run_free(&first);
  program_run_free(&second);
}
END_TEST

static const struct {
  const char *arguments[3];
  const char *pieces[2];
} refused[] = {
    {{"--policy", "gmlak", EDGE}, {"'gmlak'", "did you mean gmlake?"}},
    {{"--policy", "null", EDGE}, {"null", "holds no memory"}},
    {{"--capacity", "3MB", EDGE}, {"--capacity=3MB", "2 MiB"}},
    {{"--capacity", "600GiB", EDGE}, {"--capacity=600GiB", "512 GiB"}},
    {{"--frees", "sometimes", EDGE}, {"--frees=sometimes", "requested"}},
    {{"--device", "h20", EDGE}, {"'h20'", "did you mean h200?"}},
    {{"--json", "/nowhere/at/all.json", EDGE}, {"/nowhere/at/all.json", NULL}},
    {{"--limit", "1GiB", EDGE}, {"--limit", NULL}},
    {{"no/such/trace", NULL, NULL}, {"no/such/trace", NULL}},
    {{"tests/data/snapshots/unrecorded.pickle", "--no-seeds", NULL}, {"was history recording on?", NULL}},
};

START_TEST(bad_usage_is_refused) {
  const char *const *arguments = refused[_i].arguments;
  program_run run = run_expecting(EXIT_STATUS_USAGE, "oom", arguments[0], arguments[1], arguments[2]);
  for (size_t i = 0; i < 2 && refused[_i].pieces[i]; i++) ck_assert_has(run.errors, refused[_i].pieces[i]);
  ck_assert_str_eq(run.output, "");
  program_run_free(&run);
}
END_TEST

static Suite *oom_suite(void) {
  Suite *suite = suite_create("oom");
  TCase *search = tcase_create("search");
  tcase_set_timeout(search, 60);
  tcase_add_loop_test(search, the_answer_serves_and_the_step_below_does_not, 0, 2);
  tcase_add_test(search, the_table_has_a_row_a_policy);
  tcase_add_test(search, no_device_is_large_enough);
  tcase_add_test(search, the_same_search_gives_the_same_bytes);
  suite_add_tcase(suite, search);
  TCase *recordings = tcase_create("recordings");
  tcase_add_test(recordings, a_recording_that_ran_out_of_memory_is_judged);
  tcase_add_test(recordings, the_device_can_be_given);
  suite_add_tcase(suite, recordings);
  TCase *usage = tcase_create("usage");
  tcase_add_test(usage, csv_has_a_row_a_policy);
  tcase_add_test(usage, a_pipe_is_read_once);
  tcase_add_loop_test(usage, bad_usage_is_refused, 0, (int)(sizeof refused / sizeof *refused));
  suite_add_tcase(suite, usage);
  return suite;
}

TEST_MAIN(oom_suite)
