/* lakebed replay as its users meet it: tables, JSON, CSV, timelines, messages and exit statuses. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/exit_status.h"
#include "harness/program.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define EDGE "workloads/bundled/edge.txt.xz"
#define REAL "workloads/bundled/opt-1.3b-N-b8-s512-w4-v1.pickle.xz"

START_TEST(bundled_trace_through_all_policies) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay");
  static const char *const pieces[] = {"opt-1.3b-LR-b16-s512-w4-v0-i8",
                                       "NVIDIA H200",
                                       "native",
                                       "bfc",
                                       "rawvmm",
                                       "gmlake",
                                       "null",
                                       "default options",
                                       "reserved peak GiB"};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) ck_assert_has(run.output, pieces[i]);
  ck_assert_has(run.errors, "bfc");
  for (const char *line = run.output; *line; line += strcspn(line, "\n") + 1)
    ck_assert_msg(strcspn(line, "\n") <= 120, "longer than 120 columns: %s", line);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "replay", "--quiet", "--policy", "bfc", EDGE);
  ck_assert_str_eq(run.errors, "");
  program_run_free(&run);
  setenv("LAKEBED_ROOT", "/nowhere", 1);
  run = run_expecting(EXIT_STATUS_USAGE, "replay");
  ck_assert_has(run.errors, "LAKEBED_ROOT");
  unsetenv("LAKEBED_ROOT");
  program_run_free(&run);
}
END_TEST

/* "edge" is the bundled trace; a name that several bundled traces begin with is none. */
START_TEST(bundled_traces_need_no_folder) {
  static const char *const names[] = {"edge", "edge.txt", "edge.txt.xz"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--policy", "null", names[i]);
    ck_assert_has(run.output, "trace     edge.txt.xz\n");
    program_run_free(&run);
    run = run_expecting(EXIT_STATUS_DONE, "trace", "info", names[i]);
    ck_assert_has(run.output, "edge.txt.xz");
    program_run_free(&run);
  }
  program_run run = run_expecting(EXIT_STATUS_USAGE, "trace", "info", "opt-1");
  ck_assert_has(run.errors, "opt-1.3b-N-b8-s512-w4-v1.pickle");
  program_run_free(&run);
}
END_TEST

START_TEST(options_are_printed_where_they_differ) {
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--policy", "bfc,gmlake:frag_limit=4MiB", EDGE);
  ck_assert_has(run.output, "policies  bfc, gmlake:frag_limit=4MiB; other options by default (--details)\n");
  ck_assert_ptr_null(strstr(run.output, "stitch_count"));
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--details", "--policy", "gmlake,null", EDGE);
  ck_assert_has(run.output, "policies  gmlake: chunk=2MiB, largest_chunk=4MiB");
  ck_assert_has(run.output, "no driver calls");
  /* What did not happen is left out. */
  ck_assert_ptr_null(strstr(run.output, "record_stream"));
  program_run_free(&run);
}
END_TEST

START_TEST(notes_say_what_has_no_effect) {
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--limit", "100%", "--policy", "bfc", EDGE);
  ck_assert_has(run.output, "policies limited to 140 GiB (1 of 140 GiB)");
  ck_assert_has(run.output, "note      the limit is more than the device has");
  program_run_free(&run);
  static const char policy[] = "bfc:garbage_collection_threshold=0.5";
  run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--policy", policy, EDGE);
  ck_assert_has(run.output, "without --limit, garbage_collection_threshold does nothing");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--limit", "10GiB", "--policy", policy, EDGE);
  ck_assert_ptr_null(strstr(run.output, "note "));
  program_run_free(&run);
}
END_TEST

/* One that failed other requests is not the best, however little it held; its row is marked. */
START_TEST(the_best_has_served_everything) {
  char *path =
      write_test_file("best.txt",
                      "a 1 536870912 0\na 2 104857600 0\na 3 104857600 0\nf 2\na 4 209715200 0\nf 1\n"
                      "f 3\nf 4\n");
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "-q", "--limit", "840MiB", "--policy",
                                  "native,bfc,tfbfc,gmlake,null", path);
  ck_assert_has(run.output, "* Requests found no memory");
  ck_assert_has(run.output, "tfbfc*");
  ck_assert_has(run.output, "which served all");
  ck_assert_ptr_null(strstr(run.output, "served by      null"));
  ck_assert_ptr_null(strstr(run.output, ", null\n"));
  program_run_free(&run);
  free(path);
}
END_TEST

START_TEST(json_has_the_documented_keys) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "--json", "-", "--policy",
                                  "bfc,gmlake:frag_limit=2MiB,chunk=4MiB,null", EDGE);
  json_t *array = parse_output(&run);
  ck_assert_uint_eq(json_array_size(array), 3);
  static const char *const keys[] = {"trace",
                                     "policy",
                                     "options",
                                     "program",
                                     "driver",
                                     "device",
                                     "profile",
                                     "source",
                                     "lap_count",
                                     "check",
                                     "verify",
                                     "frees",
                                     "date",
                                     "command",
                                     "events",
                                     "live_peak_bytes",
                                     "requested_peak_bytes",
                                     "allocated_peak_bytes",
                                     "active_peak_bytes",
                                     "reserved_peak_bytes",
                                     "utilization",
                                     "failed_allocs",
                                     "segments_peak",
                                     "alloc_retries",
                                     "driver_us",
                                     "driver_calls",
                                     "operations",
                                     "counters",
                                     "final_reserved_bytes",
                                     "final_allocated_bytes",
                                     "ns_per_event",
                                     "events_per_second",
                                     "laps"};
  for (size_t i = 0; i < json_array_size(array); i++) {
    for (size_t j = 0; j < sizeof keys / sizeof *keys; j++) {
      ck_assert_msg(json_object_get(json_array_get(array, i), keys[j]) != NULL, "%s is missing", keys[j]);
    }
  }
  const json_t *bfc = json_array_get(array, 0), *gmlake = json_array_get(array, 1);
  ck_assert_str_eq(json_string_value(json_object_get(bfc, "trace")), "edge.txt.xz");
  ck_assert_str_eq(json_string_value(json_object_get(bfc, "driver")), "sim");
  /* The recorded outcome of PyTorch on this trace. */
  ck_assert_double_eq(json_number(bfc, "reserved_peak_bytes"), 746586112);
  ck_assert_double_eq(json_number(bfc, "segments_peak"), 12);
  const json_t *call = json_object_get(json_object_get(bfc, "driver_calls"), "cuMemAlloc");
  ck_assert_double_eq(json_number(call, "count"), 12);
  ck_assert_double_eq(json_number(call, "us"), json_number(bfc, "driver_us"));
  ck_assert_double_eq(json_number(json_object_get(gmlake, "options"), "chunk"), 4 << 20);
  ck_assert(json_is_null(json_object_get(json_array_get(array, 2), "utilization")));
  json_decref(array);
  program_run_free(&run);
}
END_TEST

START_TEST(same_replay_gives_the_same_bytes) {
  program_run first = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--no-host-timing", "--json", "-",
                                    "--laps", "2", EDGE, REAL);
  program_run second = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--no-host-timing", "--json", "-",
                                     "--laps", "2", EDGE, REAL);
  ck_assert_str_eq(first.output, second.output);
  static const char *const timings[] = {"ns_per_event", "\"date\"", "\"command\""};
  for (size_t i = 0; i < sizeof timings / sizeof *timings; i++)
    ck_assert_ptr_null(strstr(first.output, timings[i]));
  program_run_free(&first);
  program_run_free(&second);
  first = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--no-host-timing", "--csv", "-", EDGE);
  second = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--no-host-timing", "--csv", "-", EDGE);
  ck_assert_str_eq(first.output, second.output);
  ck_assert_ptr_null(strstr(first.output, "# date"));
  program_run_free(&first);
  program_run_free(&second);
}
END_TEST

/* Cells of a line, quoted commas not counted. */
static size_t count_cells(const char *line) {
  size_t cells = 1;
  bool quoted = false;
  for (; *line && *line != '\n'; line++) {
    if (*line == '"') quoted = !quoted;
    cells += *line == ',' && !quoted;
  }
  return cells;
}

START_TEST(csv_has_a_row_a_run) {
  char *path = test_path("results.csv");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "--csv", path, "--policy",
                                  "bfc,gmlake:chunk=3MiB,native", EDGE, REAL);
  char *csv = read_test_file(path);
  ck_assert_int_eq(strncmp(csv, "# program: lakebed " PROGRAM_VERSION, 24), 0);
  ck_assert_has(csv, "\n# laps: 1\n");
  ck_assert_has(csv, "\n# command: lakebed replay --csv ");
  const char *table = csv;
  while (*table == '#') table = strchr(table, '\n') + 1;
  ck_assert_int_eq(strncmp(table, "trace,policy,", 13), 0);
  ck_assert_uint_eq(count_lines(table), 7);
  size_t columns = count_cells(table);
  for (const char *line = table; *line; line = strchr(line, '\n') + 1)
    ck_assert_uint_eq(count_cells(line), columns);
  ck_assert_has(csv, ",failed,");
  ck_assert_has(run.output, "FAILED");
  free(csv);
  free(path);
  program_run_free(&run);
}
END_TEST

START_TEST(one_failing_policy_does_not_stop_the_others) {
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "--json", "-", "--policy",
                                  "native,gmlake:chunk=3MiB,bfc", EDGE);
  json_t *array = parse_output(&run);
  ck_assert_uint_eq(json_array_size(array), 3);
  const json_t *failed = json_array_get(array, 1);
  ck_assert_str_eq(json_string_value(json_object_get(failed, "status")), "failed");
  ck_assert_has(json_string_value(json_object_get(failed, "error")), "chunk");
  ck_assert_ptr_null(json_object_get(failed, "reserved_peak_bytes"));
  ck_assert_double_eq(json_number(json_array_get(array, 2), "reserved_peak_bytes"), 746586112);
  json_decref(array);
  program_run_free(&run);
}
END_TEST

START_TEST(malformed_trace_gives_no_results) {
  char *path = write_test_file("malformed.txt", "a 1 512 0\na 2 1024 0\nf 7\n");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "--policy", "bfc,native", path, EDGE);
  ck_assert_has(run.errors, "malformed.txt:3:");
  /* Only the good trace has a table. */
  ck_assert_ptr_null(strstr(run.output, "malformed.txt"));
  ck_assert_has(run.output, "edge.txt.xz");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--policy", "bfc,native", "--json", "-", path);
  json_t *array = parse_output(&run);
  ck_assert_uint_eq(json_array_size(array), 2);
  for (size_t i = 0; i < 2; i++) {
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(array, i), "status")), "failed");
    ck_assert_ptr_null(json_object_get(json_array_get(array, i), "live_peak_bytes"));
  }
  json_decref(array);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "--policy", "bfc,native", "--json", "-", "no/trace",
                      EDGE);
  array = parse_output(&run);
  ck_assert_uint_eq(json_array_size(array), 4);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(array, 1), "status")), "failed");
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(array, 2), "status")), "done");
  json_decref(array);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "info", path);
  ck_assert_has(run.errors, "malformed.txt:3:");
  program_run_free(&run);
  free(path);
}
END_TEST

START_TEST(empty_trace_says_so) {
  char *path = write_test_file("empty.txt", "");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "--policy", "bfc", path);
  ck_assert_has(run.errors, "empty.txt");
  ck_assert_has(run.errors, "no events");
  program_run_free(&run);
  free(path);
  path = write_test_file("comment.txt", "# nothing but a comment\n");
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "info", path);
  ck_assert_has(run.errors, "no events");
  program_run_free(&run);
  free(path);
}
END_TEST

START_TEST(trace_bigger_than_the_device) {
  char *path =
      write_test_file("big.txt", "a 1 1073741824 0\na 2 1073741824 0\nf 1\na 3 1073741824 0\nf 2\nf 3\n");
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "--capacity", "1GiB", "--policy",
                                  "native,null", path);
  static const char *const pieces[] = {"native: 1 request found no memory",
                                       "event          1",
                                       "id 2",
                                       "wanted         1.00 GiB (1073741824 bytes)",
                                       "live           1.00 GiB",
                                       "device         0 B free of 1.00 GiB",
                                       "cuMemAlloc(size=1073741824)",
                                       "CUDA_ERROR_OUT_OF_MEMORY",
                                       "served by      none of the other policies of this run"};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) ck_assert_has(run.output, pieces[i]);
  program_run_free(&run);
  free(path);
}
END_TEST

START_TEST(absurd_requests_fail_cleanly) {
  char *path =
      write_test_file("absurd.txt",
                      "a 1 0 0\na 2 9223372036854775807 0\nf 2\na 3 1152921504606846976 0\na 4 512 0\n"
                      "f 1\nf 3\nf 4\n");
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "--check", "--json", "-", path);
  json_t *array = parse_output(&run);
  ck_assert_uint_ge(json_array_size(array), 5);
  for (size_t i = 0; i < json_array_size(array); i++) {
    const json_t *object = json_array_get(array, i);
    ck_assert_double_eq(json_number(object, "failed_allocs"), 2);
    ck_assert_double_eq(json_number(object, "live_peak_bytes"), 512);
    ck_assert_double_eq(json_number(json_object_get(object, "first_failure"), "event"), 1);
  }
  json_decref(array);
  program_run_free(&run);
  free(path);
}
END_TEST

START_TEST(limit_by_size_and_fraction) {
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "--limit", "8GiB", "--policy",
                                  "native", "--json", "-", REAL);
  json_t *array = parse_output(&run);
  const json_t *object = json_array_get(array, 0);
  ck_assert_double_eq(json_number(object, "limit_bytes"), 8589934592.0);
  ck_assert_double_le(json_number(object, "reserved_peak_bytes"), 8589934592.0);
  ck_assert_double_gt(json_number(object, "failed_allocs"), 0);
  json_decref(array);
  program_run_free(&run);
  run =
      run_expecting(EXIT_STATUS_DONE, "replay", "--limit", "0.25", "--policy", "native", "--json", "-", EDGE);
  array = parse_output(&run);
  /* A quarter of all that the H200 has, as PyTorch takes fractions. */
  ck_assert_double_eq(json_number(json_array_get(array, 0), "limit_bytes"), 150109880320.0 / 4);
  json_decref(array);
  program_run_free(&run);
}
END_TEST

START_TEST(laps_settle) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "--laps", "4", "--json", "-", "--policy",
                                  "native,bfc,expandable,rawvmm", REAL);
  json_t *array = parse_output(&run);
  for (size_t i = 0; i < json_array_size(array); i++) {
    const json_t *object = json_array_get(array, i), *laps = json_object_get(object, "laps");
    ck_assert_uint_eq(json_array_size(laps), 4);
    ck_assert_double_eq(json_number(object, "events"), 4 * json_number(json_array_get(laps, 0), "events"));
    for (size_t j = 0; j < 4; j++) {
      ck_assert_double_eq(json_number(json_array_get(laps, j), "allocated_bytes"), 0);
      ck_assert_double_eq(json_number(json_array_get(laps, j), "failed_allocs"), 0);
    }
    ck_assert_double_le(json_number(object, "settled_lap"), 3);
    ck_assert(json_is_null(json_object_get(object, "drift")));
  }
  json_decref(array);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "replay", "--laps", "5", "--policy", "bfc", EDGE);
  ck_assert_has(run.output, "bfc: the same from lap 3 on");
  ck_assert_has(run.output, "bfc     3-5");
  program_run_free(&run);
}
END_TEST

START_TEST(timeline_is_thinned_and_keeps_extremes) {
  char *path = test_path("timeline.csv");
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "--timeline", path, "--timeline-points", "100",
                                  "--json", "-", "--policy", "bfc,native", REAL);
  json_t *array = parse_output(&run);
  char *csv = read_test_file(path);
  ck_assert_int_eq(strncmp(csv, "trace,policy,event,time_us,live_bytes,allocated_bytes,reserved_bytes\n", 68),
                   0);
  uint64_t live = 0, reserved = 0, last = 0;
  size_t points = 0;
  char *rest = NULL;
  strtok_r(csv, "\n", &rest);
  for (char *line = strtok_r(NULL, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    unsigned long long event, time, live_bytes, allocated_bytes, reserved_bytes;
    char *numbers = strstr(line, ",bfc,");
    if (!numbers) continue;
    ck_assert_int_eq(sscanf(numbers, ",bfc,%llu,%llu,%llu,%llu,%llu", &event, &time, &live_bytes,
                            &allocated_bytes, &reserved_bytes),
                     5);
    if (points++ == 0) {
      ck_assert_uint_eq(event, 0);
    } else {
      ck_assert_uint_gt(event, last);
    }
    last = event;
    if (live_bytes > live) live = live_bytes;
    if (reserved_bytes > reserved) reserved = reserved_bytes;
  }
  const json_t *bfc = json_array_get(array, 0);
  ck_assert_uint_le(points, 100);
  ck_assert_uint_gt(points, 50);
  ck_assert_double_eq((double)last + 1, json_number(bfc, "events"));
  ck_assert_double_eq((double)live, json_number(bfc, "live_peak_bytes"));
  ck_assert_double_eq((double)reserved, json_number(bfc, "reserved_peak_bytes"));
  json_decref(array);
  free(csv);
  free(path);
  program_run_free(&run);
}
END_TEST

START_TEST(verification_passes_on_every_policy) {
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "replay", "--verify", "--check", "--capacity", "1GiB", EDGE);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--verify", "--capacity", "500GiB", EDGE);
  ck_assert_has(run.errors, "--capacity");
  program_run_free(&run);
}
END_TEST

static Suite *command_replay_suite(void) {
  Suite *suite = suite_create("command_replay");
  TCase *replay = tcase_create("replay");
  tcase_add_test(replay, bundled_trace_through_all_policies);
  tcase_add_test(replay, bundled_traces_need_no_folder);
  tcase_add_test(replay, options_are_printed_where_they_differ);
  tcase_add_test(replay, notes_say_what_has_no_effect);
  tcase_add_test(replay, the_best_has_served_everything);
  tcase_add_test(replay, json_has_the_documented_keys);
  tcase_add_test(replay, same_replay_gives_the_same_bytes);
  tcase_add_test(replay, csv_has_a_row_a_run);
  tcase_add_test(replay, one_failing_policy_does_not_stop_the_others);
  tcase_add_test(replay, malformed_trace_gives_no_results);
  tcase_add_test(replay, empty_trace_says_so);
  tcase_add_test(replay, trace_bigger_than_the_device);
  tcase_add_test(replay, absurd_requests_fail_cleanly);
  tcase_add_test(replay, limit_by_size_and_fraction);
  tcase_add_test(replay, laps_settle);
  tcase_add_test(replay, timeline_is_thinned_and_keeps_extremes);
  tcase_add_test(replay, verification_passes_on_every_policy);
  suite_add_tcase(suite, replay);
  return suite;
}

TEST_MAIN(command_replay_suite)
