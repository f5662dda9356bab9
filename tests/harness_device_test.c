/* The program on a real device and how it tells what is wrong with one, tried on a libcuda of our own. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/exit_status.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define FAKE_LIBRARY "tests/fake_cuda/libcuda.so.1"

/* Loads the library, which the program's children then find loaded. */
static bool load_fake(void) {
  /* NVIDIA's CUPTI knows NVIDIA's libcuda only: over ours it leaves threads on which LeakSanitizer fails. */
  setenv("LAKEBED_CUPTI", "no CUPTI", 1);
  void *library = access(FAKE_LIBRARY, R_OK) == 0 ? dlopen(FAKE_LIBRARY, RTLD_NOW | RTLD_GLOBAL) : NULL;
  return library && dlsym(library, "cuInit");
}

#define NEEDS_FAKE() \
  if (!load_fake()) test_skip("built without a CUDA toolkit")

static void ask_for(const char *wishes) { ck_assert_int_eq(setenv("LAKEBED_FAKE_CUDA", wishes, 1), 0); }

static const char two_allocations[] = "a 1 4194304 0\na 2 1000 1\nf 1\na 3 70000000 0\nf 2\nf 3\n";

START_TEST(doctor_tries_the_device) {
  NEEDS_FAKE();
  program_run run = run_expecting(EXIT_STATUS_DONE, "doctor");
  ck_assert_has(run.output, "Fake GPU");
  ck_assert_has(run.output, "--driver cuda");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "doctor", "--json", "--probe-memory");
  json_t *report = parse_output(&run);
  ck_assert(json_is_true(json_object_get(report, "usable")));
  ck_assert_double_eq(json_number(report, "exit_status"), 0);
  const json_t *device = json_object_get(report, "device");
  ck_assert_str_eq(json_string_value(json_object_get(device, "name")), "Fake GPU");
  ck_assert_str_eq(json_string_value(json_object_get(device, "cuda_version")), "13.0");
  ck_assert_uint_eq(json_array_size(json_object_get(report, "granularities")), 3);
  ck_assert_uint_eq(json_array_size(json_object_get(report, "round_trip")), 9);
  ck_assert_uint_ge(json_array_size(json_object_get(report, "attributes")), 10);
  ck_assert_double_eq(json_number(report, "free_before_bytes"), json_number(report, "free_after_bytes"));
  ck_assert_double_eq(json_number(report, "obtainable_bytes"), json_number(report, "free_before_bytes"));
  json_decref(report);
  program_run_free(&run);
}
END_TEST

START_TEST(doctor_names_the_failing_call) {
  NEEDS_FAKE();
  static const struct {
    const char *wishes, *call, *advice;
  } cases[] = {
      {"fail=cuMemAddressReserve:5:2",
       "cuMemAddressReserve(size=2097152, alignment=0) returned CUDA_ERROR_OUT_OF_MEMORY (2)", "is full"},
      {"fail=cuMemCreate:1:800", "cuMemCreate(size=2097152) returned CUDA_ERROR_NOT_PERMITTED (800)",
       "may not do that"},
      {"fail=cuMemMap:2:801", "cuMemMap(address=0x", "virtual GPUs"},
      {"fail=cuMemSetAccess:1:1", "cuMemSetAccess(address=0x", "NVRM"},
      {"fail=cuModuleLoadData:1:209", "fill(address=0x", "do not fit this device"},
      {"fail=cuLaunchKernel:1:719", "fill(address=0x", "Xid"},
      {"fail=cuLaunchKernel:2:700", "verify(address=0x", "Xid"},
      {"fail=cuMemUnmap:2:1", "cuMemUnmap(address=0x", "NVRM"},
      {"fail=cuMemRelease:1:1", "cuMemRelease(handle=", "NVRM"},
      {"fail=cuMemAddressFree:6:1", "cuMemAddressFree(address=0x", "NVRM"},
      {"fail=cuMemAlloc_v2:1:2", "cuMemAlloc(size=2097152) returned CUDA_ERROR_OUT_OF_MEMORY (2)", "is full"},
      {"fail=cuMemPoolCreate:1:801", "cuMemAllocAsync(size=2097152, stream=1)", "virtual GPUs"},
      {"fail=cuMemAllocFromPoolAsync:1:2", "cuMemAllocAsync(size=2097152, stream=1)", "is full"},
      {"fail=cuStreamCreate:1:2", "cuMemAllocAsync(size=2097152, stream=1)", "is full"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ask_for(cases[i].wishes);
    program_run run = run_expecting(EXIT_STATUS_NO_DEVICE, "doctor");
    ck_assert_has(run.output, "FAILED");
    ck_assert_has(run.output, cases[i].call);
    ck_assert_has(run.output, cases[i].advice);
    program_run_free(&run);
  }
}
END_TEST

START_TEST(an_unusable_device_is_explained) {
  NEEDS_FAKE();
  static const struct {
    const char *wishes, *text;
  } cases[] = {
      {"init=100", "cuInit(flags=0) returned CUDA_ERROR_NO_DEVICE (100)"},
      {"init=34", "stub"},
      {"init=803", "different versions"},
      {"init=999", "CUDA_ERROR_UNKNOWN (999)"},
      {"devices=0", "sees no device"},
      {"version=11010", "supports CUDA 11.1; CUDA 11.2 or later is needed"},
      {"attribute=102", "does not support virtual memory management (attribute 102 is 0)"},
      {"fail=cuDevicePrimaryCtxRetain:1:46",
       "cuDevicePrimaryCtxRetain returned CUDA_ERROR_DEVICE_UNAVAILABLE"},
      {"fail=cuMemAddressReserve:1:801",
       "cuMemAddressReserve(size=2097152) returned CUDA_ERROR_NOT_SUPPORTED"},
      {"fail=cuMemAddressFree:1:1", "cuMemAddressFree(address=0x"},
  };
  char *trace = write_test_file("trace.txt", two_allocations);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ask_for(cases[i].wishes);
    program_run run = run_expecting(EXIT_STATUS_NO_DEVICE, "doctor");
    ck_assert_has(run.output, cases[i].text);
    ck_assert_has(run.output, "No real device can be used");
    program_run_free(&run);
    run = run_expecting(EXIT_STATUS_NO_DEVICE, "replay", "--driver", "cuda", trace, "-q", "-p", "native");
    ck_assert_has(run.errors, cases[i].text);
    program_run_free(&run);
  }
  free(trace);
}
END_TEST

START_TEST(wrong_options_are_refused) {
  NEEDS_FAKE();
  program_run run = run_expecting(EXIT_STATUS_USAGE, "doctor", "--device-ordinal", "7");
  ck_assert_has(run.output, "there is no device 7");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "doctor", "--device-ordinal", "seven");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "doctor", "now");
  program_run_free(&run);
  char *trace = write_test_file("trace.txt", two_allocations);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--driver", "cuda", "--device-ordinal", "3", trace);
  ck_assert_has(run.errors, "there is no device 3: this machine has 1");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--driver", "cuda", "--capacity", "1GiB", trace);
  ck_assert_has(run.errors, "--limit");
  program_run_free(&run);
  free(trace);
}
END_TEST

START_TEST(doctor_finds_wrong_memory_and_leaks) {
  NEEDS_FAKE();
  ask_for("corrupt=1");
  program_run run = run_expecting(EXIT_STATUS_CHECK_FAILED, "doctor");
  ck_assert_has(run.output, "memory does not hold what was written to it: 1 wrong words");
  program_run_free(&run);
  ask_for("leak=2097152");
  run = run_expecting(EXIT_STATUS_CHECK_FAILED, "doctor");
  ck_assert_has(run.output, "the driver kept something");
  program_run_free(&run);
  ask_for("attribute=115");
  run = run_expecting(EXIT_STATUS_DONE, "doctor");
  ck_assert_has(run.output, "no stream-ordered pools");
  program_run_free(&run);
}
END_TEST

START_TEST(every_policy_replays_and_verifies) {
  NEEDS_FAKE();
  char *trace = write_test_file("trace.txt", two_allocations);
  program_run real = run_expecting(EXIT_STATUS_DONE, "replay", "--driver", "cuda", "--verify", "--check",
                                   trace, "-q", "--json", "-");
  program_run simulated =
      run_expecting(EXIT_STATUS_DONE, "replay", "--capacity", "2GiB", trace, "-q", "--json", "-");
  json_t *on_device = parse_output(&real), *on_simulator = parse_output(&simulated);
  ck_assert_uint_eq(json_array_size(on_device), json_array_size(on_simulator));
  for (size_t i = 0; i < json_array_size(on_device); i++) {
    const json_t *left = json_array_get(on_device, i), *right = json_array_get(on_simulator, i);
    ck_assert_str_eq(json_string_value(json_object_get(left, "driver")), "cuda");
    ck_assert_str_eq(json_string_value(json_object_get(left, "device")), "Fake GPU");
    /* The library's stream-ordered pool has no model of how a driver grows one. */
    if (strcmp(json_string_value(json_object_get(left, "policy")), "async") == 0) continue;
    ck_assert_double_eq(json_number(left, "reserved_peak_bytes"), json_number(right, "reserved_peak_bytes"));
  }
  json_decref(on_device);
  json_decref(on_simulator);
  program_run_free(&real);
  program_run_free(&simulated);
  free(trace);
}
END_TEST

START_TEST(replay_finds_what_is_wrong) {
  NEEDS_FAKE();
  /* The first fill and verification, before the run, warm the device up. */
  static const struct {
    const char *wishes, *text;
  } cases[] = {
      {"corrupt=2", "the 4194304 bytes that event 0 allocated"},
      {"corrupt=4", "no allocation's pattern"},
      {"leak=65536", "bytes less free than before"},
      {"fail=cuLaunchKernel:4:719", "it answers nothing else until the program ends"},
      {"fail=cuMemFree_v2:2:1", "cuMemFree(address=0x"},
      {"fail=cuCtxSynchronize:3:700", "CUDA_ERROR_ILLEGAL_ADDRESS"},
  };
  char *trace = write_test_file("trace.txt", two_allocations);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ask_for(cases[i].wishes);
    program_run run = run_expecting(EXIT_STATUS_CHECK_FAILED, "replay", "--driver", "cuda", "--verify", trace,
                                    "-q", "-p", "native");
    ck_assert_has(run.errors, cases[i].text);
    program_run_free(&run);
  }
  free(trace);
}
END_TEST

START_TEST(no_memory_is_told_as_such) {
  NEEDS_FAKE();
  ask_for("fail=cuMemAlloc_v2:3:2");
  char *trace = write_test_file("trace.txt", two_allocations);
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "--driver", "cuda", "--verify", trace,
                                  "-q", "-p", "native");
  ck_assert_has(run.output, "cuMemAlloc(size=1000) returned CUDA_ERROR_OUT_OF_MEMORY (2)");
  program_run_free(&run);
  ask_for("");
  run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "--driver", "cuda", "--limit", "20MiB", trace,
                      "-q", "-p", "bfc");
  program_run_free(&run);
  free(trace);
}
END_TEST

static void setup(void) { ask_for(""); }

static Suite *device_suite(void) {
  Suite *suite = suite_create("real device");
  TCase *tests = tcase_create("real device");
  tcase_add_checked_fixture(tests, setup, NULL);
  tcase_add_test(tests, doctor_tries_the_device);
  tcase_add_test(tests, doctor_names_the_failing_call);
  tcase_add_test(tests, an_unusable_device_is_explained);
  tcase_add_test(tests, wrong_options_are_refused);
  tcase_add_test(tests, doctor_finds_wrong_memory_and_leaks);
  tcase_add_test(tests, every_policy_replays_and_verifies);
  tcase_add_test(tests, replay_finds_what_is_wrong);
  tcase_add_test(tests, no_memory_is_told_as_such);
  suite_add_tcase(suite, tests);
  return suite;
}

TEST_MAIN(device_suite)
