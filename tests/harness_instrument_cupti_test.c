/* --cupti: the breakdown against a CUPTI of ours, and every way in which it can be unavailable. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "harness/instrument_cupti.h"
#include "tests/harness_instrument_fixture.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"
#include "vmm/meter.h"

#define MIB (UINT64_C(1) << 20)

/* ---- the fake library ---- */

static struct {
  call_hook *call;
  void (*record)(int released, uint64_t bytes, uint64_t pool_bytes, uint64_t pool_used_bytes);
  uint8_t *(*withhold)(void);
} fake;

static void *function_of(void *library, const char *name) {
  void *function = dlsym(library, name);
  ck_assert_msg(function != NULL, "the fake library has no %s", name);
  return function;
}

/* Makes it the library that is loaded. */
static void use_fake(void) {
  char *path = test_library_path(FAKE_CUPTI);
  setenv("LAKEBED_CUPTI", path, 1);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_ptr_nonnull(library);
  void *function = function_of(library, "fake_cupti_call");
  memcpy(&fake.call, &function, sizeof function);
  function = function_of(library, "fake_cupti_record");
  memcpy(&fake.record, &function, sizeof function);
  function = function_of(library, "fake_cupti_withhold");
  memcpy(&fake.withhold, &function, sizeof function);
  free(path);
}

/* ---- a run under it ---- */

typedef struct watched_run {
  instruments *set;
  instrumented_run run;
} watched_run;

static void watch(watched_run *watched, const char *spec) {
  char message[512];
  use_fake();
  ck_assert_int_eq(
      instruments_create(&(instrument_options){.cupti = true}, &watched->set, message, sizeof message),
      EXIT_STATUS_DONE);
  ck_assert_ptr_nonnull(watched->set);
  instrumented_run_open(&watched->run, spec, fake.call);
  const instrument_run subject = {spec, "made up", false, watched->run.traced};
  instruments_attach(watched->set, &subject, watched->run.subject, watched->run.meter);
}

static void unwatch(watched_run *watched) {
  char message[512];
  instruments_detach(watched->set);
  ck_assert(instruments_destroy(watched->set, message, sizeof message));
  instrumented_run_close(&watched->run);
}

static const instrument_latency *row_of(const instrument_report *report, const char *path, vmm_call call) {
  for (size_t i = 0; i < report->count; i++) {
    if (report->rows[i].call == call && strcmp(report->rows[i].path, path) == 0) return &report->rows[i];
  }
  ck_abort_msg("no row %s %s", path, vmm_call_name(call));
  return NULL;
}

START_TEST(breakdown) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  watched_run watched;
  watch(&watched, "gmlake:largest_chunk=2MiB");
  vmm_meter_call before[VMM_CALL_COUNT], counts;
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_get(watched.run.meter, (vmm_call)call, &before[call]);
  }
  for (int i = 0; i < 3; i++) instrumented_run_exercise(&watched.run);
  instrument_report *report = instruments_report(watched.set);
  ck_assert_ptr_nonnull(report);
  ck_assert_str_eq(report->cupti_unavailable, "");
  ck_assert_uint_eq(report->lost, 0);
  /* Both clocks heard the same calls, for the same operations, and ours sees CUPTI's work. */
  uint64_t own[VMM_CALL_COUNT] = {0}, total = 0;
  for (size_t i = 0; i < report->count; i++) {
    const instrument_latency *row = &report->rows[i];
    ck_assert_uint_eq(row->own.count, row->cupti.count);
    ck_assert_uint_ge(row->own.total_ns, row->cupti.total_ns);
    own[row->call] += row->own.count;
    total += row->cupti.count;
  }
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_get(watched.run.meter, (vmm_call)call, &counts);
    ck_assert_uint_eq(own[call], counts.count - before[call].count);
  }
  ck_assert_uint_eq(report->cupti.callbacks, total);
  ck_assert_uint_eq(report->cupti.elsewhere, 0);
  /* 20 and 20 MiB are grown, then one is mapped again beside the other. */
  const instrument_latency *create = row_of(report, "alloc/S4/grow", VMM_CALL_CREATE);
  ck_assert_uint_ge(create->cupti.count, 22);
  ck_assert_uint_eq(row_of(report, "alloc/S3/stitch", VMM_CALL_MAP)->own.count, 10);
  ck_assert_uint_eq(row_of(report, "alloc/S3/stitch", VMM_CALL_SET_ACCESS)->cupti.count, 1);
  /* What listening costs was measured with a call that changes nothing. */
  ck_assert_double_ge(report->cupti.overhead_ns, 0);
  ck_assert_double_lt(report->cupti.overhead_ns, 1e6);
  ck_assert_str_eq(report->cupti.overhead_call, "cuMemGetAllocationGranularity");
  ck_assert_double_gt(report->own_overhead_ns, 0);
  ck_assert_double_lt(report->own_overhead_ns, 1e5);
  instrument_report_free(report);
  unwatch(&watched);
}
END_TEST

START_TEST(report_as_json_and_table) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  watched_run watched;
  watch(&watched, "gmlake:largest_chunk=2MiB");
  instrumented_run_exercise(&watched.run);
  instrument_report *report = instruments_report(watched.set);
  json_t *object = json_object();
  ck_assert(instrument_report_json(report, object, true));
  const json_t *cupti = json_object_get(object, "cupti");
  ck_assert_uint_eq((uint64_t)json_number(cupti, "api_version"), 123456);
  ck_assert_double_gt(json_number(cupti, "calls"), 40);
  ck_assert_double_ge(json_number(cupti, "overhead_ns_per_call"), 0);
  ck_assert_double_gt(json_number(json_object_get(object, "own_clock"), "overhead_ns_per_call"), 0);
  size_t index, bin;
  json_t *row, *pair;
  json_array_foreach(json_object_get(object, "call_latency"), index, row) {
    const json_t *own = json_object_get(row, "own");
    double count = 0;
    json_array_foreach(json_object_get(own, "histogram_ns"), bin, pair) {
      count += json_number_value(json_array_get(pair, 1));
    }
    ck_assert_double_eq(count, json_number(own, "count"));
    ck_assert_double_le(json_number(own, "min_us"), json_number(own, "p50_us"));
    ck_assert_double_le(json_number(own, "p50_us"), json_number(own, "p99_us"));
    ck_assert_double_le(json_number(own, "p99_us"), json_number(own, "max_us"));
    ck_assert_double_ge(json_number(row, "own_minus_cupti_ns"), 0);
  }
  json_decref(object);
  object = json_object();
  ck_assert(instrument_report_json(report, object, false));
  ck_assert_ptr_null(json_object_get(json_object_get(object, "cupti"), "overhead_ns_per_call"));
  json_decref(object);
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  instrument_report_print(report, stream);
  fclose(stream);
  ck_assert_has(text, "alloc/S4/grow");
  ck_assert_has(text, "own - CUPTI ns");
  ck_assert_has(text, "Being heard by CUPTI costs a call");
  free(text);
  instrument_report_free(report);
  unwatch(&watched);
}
END_TEST

/* Calls of other threads, of functions that we have no name for, of no run. */
static void *call_elsewhere(void *unused) {
  uint64_t correlation = 0;
  fake.call("cuMemCreate", 0, &correlation);
  fake.call("cuMemCreate", 1, &correlation);
  return unused;
}

START_TEST(calls_that_are_not_ours) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  watched_run watched;
  watch(&watched, "native");
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, call_elsewhere, NULL), 0);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  uint64_t correlation = 0;
  fake.call("cuMemcpy", 0, &correlation); /* not asked for */
  fake.call("cuMemcpy", 1, &correlation);
  correlation = 0;
  fake.call("cuMemMap", 1, &correlation); /* was never entered */
  call_elsewhere(NULL);                   /* on this thread, outside of all operations */
  instrument_report *report = instruments_report(watched.set);
  ck_assert_uint_eq(report->cupti.elsewhere, 1);
  ck_assert_uint_eq(report->cupti.callbacks, 1);
  ck_assert_uint_eq(report->count, 1);
  ck_assert_uint_eq(row_of(report, "none", VMM_CALL_CREATE)->cupti.count, 1);
  ck_assert_uint_eq(report->rows[0].own.count, 0);
  /* Nothing is counted after the report. */
  instrumented_run_exercise(&watched.run);
  ck_assert_ptr_null(instruments_report(watched.set));
  instrument_report_free(report);
  unwatch(&watched);
}
END_TEST

/* Every run begins with nothing. */
START_TEST(several_runs) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  watched_run watched;
  watch(&watched, "gmlake");
  uint64_t calls[2];
  for (int i = 0; i < 2; i++) {
    instrumented_run fresh;
    instrumented_run_open(&fresh, "gmlake", fake.call);
    const instrument_run subject = {"gmlake", "made up", false, fresh.traced};
    instruments_attach(watched.set, &subject, fresh.subject, fresh.meter);
    instrumented_run_exercise(&fresh);
    instrument_report *report = instruments_report(watched.set);
    calls[i] = report->cupti.callbacks;
    instrument_report_free(report);
    instruments_detach(watched.set);
    instrumented_run_close(&fresh);
  }
  ck_assert_uint_gt(calls[0], 0);
  ck_assert_uint_eq(calls[0], calls[1]);
  unwatch(&watched);
}
END_TEST

START_TEST(memory_records) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  watched_run watched;
  watch(&watched, "native");
  instrumented_run_exercise(&watched.run);
  for (uint64_t i = 0; i < 5000; i++)
    fake.record(i % 5 == 4, 2 * MIB, i < 4000 ? 64 * MIB : 32 * MIB, i * 1000);
  instrument_report *report = instruments_report(watched.set);
  const instrument_cupti_activity *activity = &report->cupti.activity;
  ck_assert_str_eq(activity->unavailable, "");
  ck_assert_uint_eq(activity->records, 5000);
  ck_assert_uint_eq(activity->allocations, 4000);
  ck_assert_uint_eq(activity->releases, 1000);
  ck_assert_uint_eq(activity->allocated_bytes, 4000 * 2 * MIB);
  ck_assert_uint_eq(activity->pool_peak_bytes, 64 * MIB);
  ck_assert_uint_eq(activity->pool_used_peak_bytes, 4999 * 1000);
  ck_assert_uint_eq(activity->dropped, 0);
  instrument_report_free(report);
  unwatch(&watched);
}
END_TEST

/* Eight buffers do not come back: there are no more, and what is lost is counted. */
START_TEST(records_are_dropped) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  watched_run watched;
  watch(&watched, "native");
  instrumented_run_exercise(&watched.run);
  int withheld = 0;
  do {
    fake.record(0, 1, 0, 0);
    withheld++;
  } while (fake.withhold());
  for (int i = 0; i < 9; i++) fake.record(0, 1, 0, 0);
  instrument_report *report = instruments_report(watched.set);
  ck_assert_int_eq(withheld, 8 + 1);
  ck_assert_uint_eq(report->cupti.activity.dropped, 1 + 9);
  ck_assert_uint_eq(report->cupti.activity.records, 0);
  instrument_report_free(report);
  unwatch(&watched);
}
END_TEST

/* ---- unavailable ---- */

/* A run of the program on the simulated device: it ends well, warns once, and says why. */
static void expect_unavailable(const char *why) {
  char *events = write_events("events.txt", 60);
  program_run run = run_expecting(0, "replay", "-q", "-p", "gmlake,native", "--json", "-", "--cupti", events);
  const char *warning = strstr(run.errors, "--cupti is unavailable: ");
  ck_assert_msg(warning != NULL, "no warning: %s", run.errors);
  ck_assert_ptr_null(strstr(warning + 1, "--cupti is unavailable: "));
  ck_assert_has(run.errors, why);
  json_t *results = parse_output(&run);
  for (size_t i = 0; i < 2; i++) {
    const json_t *result = json_array_get(results, i), *cupti = json_object_get(result, "cupti");
    ck_assert_msg(json_is_string(cupti), "cupti is no text");
    ck_assert_int_eq(strncmp(json_string_value(cupti), "unavailable: ", 13), 0);
    ck_assert_has(json_string_value(cupti), why);
    /* Our own clock went on. */
    const json_t *rows = json_object_get(result, "call_latency");
    ck_assert_uint_gt(json_array_size(rows), 1);
    ck_assert_double_gt(json_number(json_object_get(json_array_get(rows, 0), "own"), "us"), 0);
    ck_assert_ptr_null(json_object_get(json_array_get(rows, 0), "cupti"));
  }
  json_decref(results);
  program_run_free(&run);
  free(events);
}

START_TEST(another_subscriber) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  use_fake();
  setenv("FAKE_CUPTI_SUBSCRIBE", "39", 1);
  expect_unavailable("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39): another tool");
}
END_TEST

START_TEST(no_permission) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  use_fake();
  setenv("FAKE_CUPTI_SUBSCRIBE", "35", 1);
  expect_unavailable("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35): the driver lets only administrators profile");
}
END_TEST

START_TEST(no_permission_for_callbacks) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  use_fake();
  setenv("FAKE_CUPTI_CALLBACKS", "35", 1);
  expect_unavailable("cuptiEnableCallback returned CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)");
}
END_TEST

START_TEST(no_library) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  setenv("LAKEBED_CUPTI", "/nowhere/libcupti.so", 1);
  expect_unavailable("/nowhere/libcupti.so");
}
END_TEST

START_TEST(no_cupti_library) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  setenv("LAKEBED_CUPTI", "libm.so.6", 1);
  expect_unavailable("libm.so.6 has no function cuptiGetVersion");
}
END_TEST

START_TEST(nothing_to_hear) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  use_fake();
  expect_unavailable("it heard no driver call: the simulated device makes none");
}
END_TEST

START_TEST(not_built) {
  if (instrument_nvtx_is_built()) test_skip("CUPTI is built in");
  expect_unavailable("this program was built without CUPTI's headers");
}
END_TEST

/* Whatever library there is: it must do no harm. */
START_TEST(usual_library) {
  unsetenv("LAKEBED_CUPTI");
  char *events = write_events("events.txt", 60);
  program_run run = run_expecting(0, "replay", "-q", "-p", "gmlake", "--cupti", events);
  ck_assert_has(run.output, "latency of driver calls");
  program_run_free(&run);
  free(events);
}
END_TEST

/* Callbacks work, records do not. */
START_TEST(no_records) {
  if (!test_library_is_built(FAKE_CUPTI)) test_skip("no CUPTI headers");
  setenv("FAKE_CUPTI_ACTIVITY", "35", 1);
  watched_run watched;
  watch(&watched, "native");
  instrumented_run_exercise(&watched.run);
  instrument_report *report = instruments_report(watched.set);
  ck_assert_str_eq(report->cupti_unavailable, "");
  ck_assert_has(report->cupti.activity.unavailable, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)");
  ck_assert_uint_gt(report->cupti.callbacks, 0);
  instrument_report_free(report);
  unwatch(&watched);
}
END_TEST

/* ---- histograms ---- */

START_TEST(percentiles) {
  instrument_histogram *histogram = calloc(1, sizeof *histogram);
  ck_assert_ptr_nonnull(histogram);
  ck_assert_uint_eq(instrument_histogram_percentile(histogram, 0.5), 0);
  for (uint64_t i = 1; i <= 100000; i++) instrument_histogram_add(histogram, i);
  ck_assert_uint_eq(histogram->count, 100000);
  ck_assert_uint_eq(histogram->minimum_ns, 1);
  ck_assert_uint_eq(histogram->maximum_ns, 100000);
  for (int share = 1; share < 100; share++) {
    double exact = share * 1000.0;
    ck_assert_double_eq_tol((double)instrument_histogram_percentile(histogram, share / 100.0), exact,
                            exact / 30);
  }
  ck_assert_uint_eq(instrument_histogram_percentile(histogram, 1), 100000);
  instrument_histogram_add(histogram, UINT64_MAX);
  instrument_histogram_add(histogram, 0);
  ck_assert_uint_eq(histogram->bins[INSTRUMENT_BINS - 1], 1);
  for (unsigned bin = 1; bin < INSTRUMENT_BINS; bin++) {
    uint64_t lower = instrument_histogram_lower_ns(bin), before = instrument_histogram_lower_ns(bin - 1);
    ck_assert_uint_gt(lower, before);
    ck_assert(bin <= 16 || lower - before <= before / 16);
  }
  free(histogram);
}
END_TEST

static Suite *cupti_suite(void) {
  Suite *suite = suite_create("cupti");
  TCase *heard = tcase_create("heard");
  tcase_add_test(heard, breakdown);
  tcase_add_test(heard, report_as_json_and_table);
  tcase_add_test(heard, calls_that_are_not_ours);
  tcase_add_test(heard, several_runs);
  tcase_add_test(heard, memory_records);
  tcase_add_test(heard, records_are_dropped);
  tcase_add_test(heard, no_records);
  suite_add_tcase(suite, heard);
  TCase *unavailable = tcase_create("unavailable");
  tcase_add_test(unavailable, another_subscriber);
  tcase_add_test(unavailable, no_permission);
  tcase_add_test(unavailable, no_permission_for_callbacks);
  tcase_add_test(unavailable, no_library);
  tcase_add_test(unavailable, no_cupti_library);
  tcase_add_test(unavailable, nothing_to_hear);
  tcase_add_test(unavailable, not_built);
  tcase_add_test(unavailable, usual_library);
  suite_add_tcase(suite, unavailable);
  TCase *numbers = tcase_create("numbers");
  tcase_add_test(numbers, percentiles);
  suite_add_tcase(suite, numbers);
  return suite;
}

TEST_MAIN(cupti_suite)
