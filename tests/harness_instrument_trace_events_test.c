/* --trace-events: what is written can be read, is balanced, nests, and agrees with the results. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/instrument_trace_events.h"
#include "tests/harness_instrument_fixture.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define MIB (UINT64_C(1) << 20)

START_TEST(agrees_with_results) {
  char *events = write_events("agrees.txt", 600), *path = test_path("agrees.json");
  program_run run = run_expecting(0, "replay", "-q", "-p", "gmlake,bfc,null", "--json", "-", "--trace-events",
                                  path, events);
  json_t *results = parse_output(&run);
  checked_trace found = check_trace(path);
  ck_assert_uint_eq(found.runs, 3);
  ck_assert_uint_eq(found.deepest, 5);
  ck_assert_uint_gt(found.counters, 600);
  double alloc_us, free_us;
  ck_assert_uint_eq(count_ranges(path, "policy", "alloc", &alloc_us), 3 * 600);
  ck_assert_uint_eq(count_ranges(path, "policy", "free", &free_us), 3 * 400);
  /* Driver calls that only ever happen within operations, count and modelled time alike. */
  double create_us;
  uint64_t created = count_ranges(path, "driver", "cuMemCreate", &create_us);
  json_t *calls = json_object_get(json_array_get(results, 0), "driver_calls");
  const json_t *create = json_object_get(calls, "cuMemCreate");
  ck_assert_uint_eq(created, (uint64_t)json_number(create, "count"));
  ck_assert_double_eq_tol(create_us, json_number(create, "us"), 0.002 * (double)created);
  json_decref(results);
  program_run_free(&run);
  free(events);
  free(path);
}
END_TEST

START_TEST(counters_end_with_the_run) {
  char *events = write_events("counters.txt", 90), *path = test_path("counters.json");
  program_run run =
      run_expecting(0, "replay", "-q", "-p", "bfc", "--json", "-", "--trace-events", path, events);
  json_t *results = parse_output(&run);
  checked_trace found = check_trace(path);
  ck_assert_uint_eq(found.reserved_bytes,
                    (uint64_t)json_number(json_array_get(results, 0), "final_reserved_bytes"));
  ck_assert_uint_gt(found.live_bytes, 0);
  json_decref(results);
  program_run_free(&run);
  free(events);
  free(path);
}
END_TEST

START_TEST(verification_has_ranges) {
  char *events = write_events("verify.txt", 30), *path = test_path("verify.json");
  program_run run = run_expecting(0, "replay", "-q", "-p", "gmlake", "--verify", "--capacity", "1GiB",
                                  "--trace-events", path, events);
  check_trace(path);
  double us;
  ck_assert_uint_eq(count_ranges(path, "harness", "fill", &us), 30);
  ck_assert_uint_eq(count_ranges(path, "harness", "verify", &us), 30);
  ck_assert_uint_eq(count_ranges(path, "harness", "destroy", &us), 1);
  program_run_free(&run);
  free(events);
  free(path);
}
END_TEST

/* A trace that breaks off in the middle. */
START_TEST(failed_run_is_whole) {
  char *path = test_path("failed.json");
  char *text = malloc(64 * 2000);
  ck_assert_ptr_nonnull(text);
  size_t used = 0;
  for (int i = 0; i < 1500; i++) used += (size_t)sprintf(text + used, "a %d %d 0\n", i, 3000000 + i);
  strcpy(text + used, "what is this\n");
  char *events = write_test_file("failed.txt", text);
  program_run run = run_expecting(2, "replay", "-q", "-p", "bfc", "--trace-events", path, events);
  checked_trace found = check_trace(path);
  ck_assert_uint_ge(found.runs, 1);
  program_run_free(&run);
  free(text);
  free(events);
  free(path);
}
END_TEST

START_TEST(out_of_memory_is_whole) {
  char *events = write_events("oom.txt", 300), *path = test_path("oom.json");
  program_run run = run_expecting(3, "replay", "-q", "-p", "gmlake,native", "--capacity", "64MiB",
                                  "--trace-events", path, events);
  ck_assert_uint_eq(check_trace(path).runs, 2);
  char *written = read_test_file(path);
  ck_assert_has(written, "\"status\":\"CUDA_ERROR_OUT_OF_MEMORY\"");
  free(written);
  program_run_free(&run);
  free(events);
  free(path);
}
END_TEST

/* The program is killed in the middle of an operation. */
START_TEST(killed_run_is_whole) {
  char *path = test_path("killed.json");
  pid_t child = fork();
  if (child == 0) {
    char message[256];
    instrument *events = instrument_trace_events_create(path, message, sizeof message);
    instruments *set = events ? instruments_of(&events, 1) : NULL;
    instrumented_run run;
    instrumented_run_open(&run, "gmlake", NULL);
    const instrument_run subject = {"gmlake", "made up", true, run.traced};
    if (!set) _exit(1);
    instruments_attach(set, &subject, run.subject, run.meter);
    for (int i = 0; i < 200; i++) instrumented_run_exercise(&run);
    pool_operation_begin(&run.subject->heap, POOL_OPERATION_TRIM, 0);
    instruments_begin(set, "fill", 1);
    raise(SIGKILL);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "ended with %#x", (unsigned)status);
  ck_assert_int_ne(access(path, F_OK), 0);
  char partial[1200];
  snprintf(partial, sizeof partial, "%s.partial-%ld", path, (long)child);
  checked_trace found = check_trace(partial);
  ck_assert_uint_eq(found.runs, 1);
  ck_assert_uint_gt(found.begins, 1000);
  free(path);
}
END_TEST

START_TEST(into_a_pipe) {
  char *events = write_events("pipe.txt", 200), *path = test_path("pipe.json"),
       *pipe_path = test_path("pipe");
  ck_assert_int_eq(mkfifo(pipe_path, 0600), 0);
  pid_t child = fork();
  if (child == 0) {
    char command[1200];
    snprintf(command, sizeof command, "cat '%s' > '%s'", pipe_path, path);
    _exit(system(command) == 0 ? 0 : 1);
  }
  program_run run = run_expecting(0, "replay", "-q", "-p", "bfc,native", "--trace-events", pipe_path, events);
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  ck_assert_uint_eq(check_trace(path).runs, 2);
  program_run_free(&run);
  free(events);
  free(path);
  free(pipe_path);
}
END_TEST

START_TEST(odd_names) {
  char *path = test_path("odd.json"), message[256];
  instrument *events = instrument_trace_events_create(path, message, sizeof message);
  ck_assert_ptr_nonnull(events);
  instruments *set = instruments_of(&events, 1);
  instrumented_run run;
  instrumented_run_open(&run, "native", NULL);
  char longest[3000];
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  const instrument_run subject = {"a \"policy\"\\\n\xff", "\xc3\xa9t\xc3\xa9", false, run.traced};
  instruments_attach(set, &subject, run.subject, run.meter);
  instruments_begin(set, "quote \" back \\ line \n \x01", 7);
  instruments_begin(set, "\xff\xfe", 7);
  instruments_begin(set, longest, 7);
  for (int i = 0; i < 3; i++) instruments_end(set);
  instruments_end(set); /* one too many */
  instruments_detach(set);
  ck_assert(instruments_destroy(set, message, sizeof message));
  instrumented_run_close(&run);
  ck_assert_uint_eq(check_trace(path).begins, 4);
  double us;
  ck_assert_uint_eq(count_ranges(path, "harness", "quote \" back \\ line \n \x01", &us), 1);
  free(path);
}
END_TEST

/* More ranges within each other than there is room for. */
START_TEST(too_deep) {
  char *path = test_path("deep.json"), message[256];
  instrument *events = instrument_trace_events_create(path, message, sizeof message);
  instruments *set = instruments_of(&events, 1);
  instrumented_run run;
  instrumented_run_open(&run, "native", NULL);
  const instrument_run subject = {"native", "", true, run.traced};
  instruments_attach(set, &subject, run.subject, run.meter);
  for (int i = 0; i < 100; i++) instruments_begin(set, "deeper", 1);
  for (int i = 0; i < 90; i++) instruments_end(set);
  instruments_detach(set);
  ck_assert(instruments_destroy(set, message, sizeof message));
  instrumented_run_close(&run);
  ck_assert_uint_gt(check_trace(path).deepest, 16);
  free(path);
}
END_TEST

START_TEST(cannot_be_written) {
  program_run run = run_expecting(2, "replay", "-q", "-p", "null", "--trace-events", "/nowhere/trace.json");
  ck_assert_has(run.errors, "/nowhere/trace.json cannot be written: No such file or directory");
  program_run_free(&run);
  run = run_expecting(2, "replay", "-q", "-p", "null", "--trace-events", "/dev/full");
  ck_assert_has(run.errors, "/dev/full could not be written: No space left on device");
  program_run_free(&run);
}
END_TEST

/* No instrument: nothing is observed. */
START_TEST(none_asked_for) {
  char message[256];
  instruments *set;
  ck_assert_int_eq(instruments_create(&(instrument_options){0}, &set, message, sizeof message),
                   EXIT_STATUS_DONE);
  ck_assert_ptr_null(set);
  instrumented_run run;
  instrumented_run_open(&run, "gmlake", NULL);
  instruments_attach(set, &(instrument_run){"gmlake", "", true, run.traced}, run.subject, run.meter);
  ck_assert_ptr_null(run.subject->heap.observer);
  instruments_begin(set, "x", 1);
  instruments_end(set);
  ck_assert_ptr_null(instruments_report(set));
  instruments_detach(set);
  ck_assert(instruments_destroy(set, message, sizeof message));
  instrumented_run_close(&run);
}
END_TEST

static Suite *trace_events_suite(void) {
  Suite *suite = suite_create("trace events");
  TCase *program = tcase_create("program");
  tcase_add_test(program, agrees_with_results);
  tcase_add_test(program, counters_end_with_the_run);
  tcase_add_test(program, verification_has_ranges);
  tcase_add_test(program, failed_run_is_whole);
  tcase_add_test(program, out_of_memory_is_whole);
  tcase_add_test(program, into_a_pipe);
  tcase_add_test(program, cannot_be_written);
  suite_add_tcase(suite, program);
  TCase *alone = tcase_create("alone");
  tcase_add_test(alone, killed_run_is_whole);
  tcase_add_test(alone, odd_names);
  tcase_add_test(alone, too_deep);
  tcase_add_test(alone, none_asked_for);
  suite_add_tcase(suite, alone);
  return suite;
}

TEST_MAIN(trace_events_suite)
