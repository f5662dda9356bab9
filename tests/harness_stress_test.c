/* lakebed stress and lakebed faults: random programs and failing calls through every policy; and that faults
 * of a policy are found, and cut down to few steps. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/exit_status.h"
#include "harness/stress_faults.h"
#include "harness/stress_run.h"
#include "harness/stress_shrink.h"
#include "tests/harness_broken_policy.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define MIB (UINT64_C(1) << 20)

/* Each registered policy, and options that matter: many second mappings, few of them, none. */
static const char all_policies[] =
    "native,async,bfc,expandable,tfbfc,rawvmm,gmlake,aliasheap,null,"
    "async:release_threshold=64MiB,reuse_opportunistic=false,reuse_event=false,"
    "bfc:max_split_size_mb=20,garbage_collection_threshold=0.5,"
    "gmlake:largest_chunk=2MiB,stitch_mappings=20,cross_stream=wait,"
    "gmlake:stitching=eager,stitch_count=12,gmlake:stitching=views,stitch_bytes=48MiB,"
    "gmlake:variant=published,request_limit=4MiB,tfbfc:allow_growth=false,"
    "aliasheap:huge=4MiB,medium=1MiB,handle_start=4MiB,handle_edge=2MiB,handle_limit=4MiB,edge_minimum=4096";

enum { POLICIES = 17 };

/* Those whose blocks share memory with other addresses. */
static const char stitching_policies[] =
    "gmlake,gmlake:stitching=eager,gmlake:stitching=views,stitch_count=8,"
    "gmlake:variant=published,request_limit=4MiB,"
    "aliasheap:huge=4MiB,medium=1MiB,handle_start=4MiB,handle_edge=2MiB,handle_limit=4MiB,edge_minimum=4096";

/* Every object of the results is sound. Returns the least of a number over them. */
static double least_of(const program_run *run, size_t count, const char *key) {
  json_t *array = parse_output(run);
  double least = -1;
  ck_assert_uint_eq(json_array_size(array), count);
  for (size_t i = 0; i < count; i++) {
    const json_t *object = json_array_get(array, i);
    ck_assert_msg(json_is_true(json_object_get(object, "sound")), "%s",
                  json_string_value(json_object_get(object, "spec")));
    const double number = json_number(object, key);
    if (least < 0 || number < least) least = number;
  }
  json_decref(array);
  return least;
}

/* ---- sound policies ---- */

START_TEST(random_programs_find_nothing) {
  char seed[24];
  const char *wanted = getenv("LAKEBED_SEED");
  snprintf(seed, sizeof seed, "%s", wanted ? wanted : "20261130");
  printf("random_programs_find_nothing: LAKEBED_SEED=%s\n", seed);
  program_run run = run_expecting(EXIT_STATUS_DONE, "stress", "-q", "-p", all_policies, "--seed", seed,
                                  "--operations", "20000", "--round", "5000", "--json", "-");
  ck_assert(least_of(&run, POLICIES, "steps") >= 20000);
  ck_assert(least_of(&run, POLICIES, "served") > 5000);
  program_run_free(&run);
}
END_TEST

START_TEST(data_stays_whole_through_every_address) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "stress", "-q", "-p", all_policies, "--seed", "5",
                                  "--verify", "--operations", "500", "--capacity", "32MiB", "--json", "-");
  json_t *array = parse_output(&run);
  for (size_t i = 0; i < json_array_size(array); i++) {
    const json_t *object = json_array_get(array, i);
    const bool has_memory = strcmp(json_string_value(json_object_get(object, "policy")), "null") != 0;
    ck_assert((json_number(object, "verified_blocks") > 50) == has_memory);
  }
  json_decref(array);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "stress", "-q", "-p", stitching_policies, "--seed", "5", "--verify",
                      "--operations", "600", "--streams", "1", "--capacity", "64MiB", "--largest", "8MiB",
                      "--no-limits", "--json", "-");
  ck_assert(least_of(&run, 5, "aliased_pieces") > 0);
  program_run_free(&run);
}
END_TEST

START_TEST(eight_threads_share_a_policy) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "stress", "-q", "-p", all_policies, "--seed", "3",
                                  "--threads", "8", "--verify", "--operations", "2000", "--capacity",
                                  "256MiB", "--room", "64MiB", "--largest", "4MiB", "--json", "-");
  ck_assert(least_of(&run, POLICIES, "handed_over") > 30);
  program_run_free(&run);
}
END_TEST

/* A part of all failures here; results/sim/faults.txt has all of them over more traces. */
START_TEST(failing_calls_undo_nothing_else) {
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "faults", "-q", "--pairs", "--part", "3/29", "--events", "150",
                    "--json", "-", "workloads/bundled/edge.txt.xz", "workloads/bundled/multi_stream.txt.xz",
                    "workloads/bundled/opt-1.3b-N-b8-s512-w4-v1.pickle.xz");
  json_t *array = parse_output(&run);
  uint64_t runs = 0;
  for (size_t i = 0; i < json_array_size(array); i++) {
    const json_t *object = json_array_get(array, i);
    const char *call;
    json_t *counts;
    ck_assert(json_is_true(json_object_get(object, "sound")));
    json_object_foreach(json_object_get(object, "calls"), call, counts) {
      const double all = json_number(counts, "served") + json_number(counts, "out_of_memory") +
                         json_number(counts, "errors") + json_number(counts, "refused");
      ck_assert_msg(json_number(counts, "runs") == all, "%s", call);
      runs += (uint64_t)all;
    }
  }
  ck_assert_uint_gt(runs, 200);
  json_decref(array);
  program_run_free(&run);
}
END_TEST

enum { SMALLEST = 3 };

/* Handles that the driver does not take back are then a great part of the device, and where blocks lie after
 * a failure decides what fits. */
START_TEST(failing_calls_on_the_smallest_device) {
  static const struct {
    const char *capacity, *policies;
  } cases[SMALLEST] = {
      {"64MiB", "aliasheap"},
      {"80MiB", "gmlake,aliasheap"},
      {"96MiB", "native,async,bfc,expandable,tfbfc,gmlake"},
  };
  program_run run = run_expecting(EXIT_STATUS_DONE, "faults", "-q", "--pairs", "--random", "3", "--capacity",
                                  cases[_i].capacity, "-p", cases[_i].policies, "--json", "-");
  json_t *array = parse_output(&run);
  uint64_t stranded = 0;
  for (size_t i = 0; i < json_array_size(array); i++) {
    const json_t *object = json_array_get(array, i);
    ck_assert(json_is_true(json_object_get(object, "sound")));
    const json_t *releases = json_object_get(json_object_get(object, "calls"), "cuMemRelease");
    if (releases) stranded += (uint64_t)json_number(releases, "runs");
  }
  ck_assert_uint_gt(stranded, 20);
  json_decref(array);
  program_run_free(&run);
}
END_TEST

/* ---- broken ones ---- */

static device_model small_device(void) {
  device_model model;
  char message[512] = "";
  const device_choice choice = {
      .driver = "sim", .profile = "h200", .capacity = 256 * MIB, .event_delay = 2, .backed = false};
  ck_assert_msg(device_model_load(&choice, &model, message, sizeof message) == EXIT_STATUS_DONE, "%s",
                message);
  return model;
}

/* What is said of each fault, and how few steps show it. */
static const struct {
  const char *message;
  size_t steps;
} findings[BROKEN_FAULTS] = {
    [BROKEN_OVERLAP] = {"were handed out, and", 3},
    [BROKEN_LEAK] = {"everything was freed and trimmed, but", 1},
    [BROKEN_COUNT] = {"the policy counts 1 live blocks, and 0 are", 1},
    [BROKEN_LOSS] = {"a request failed (", 30},
    [BROKEN_REFUSAL] = {"bytes are not served", 20},
    [BROKEN_SECOND_FREE] = {"a second free of", 2},
    [BROKEN_STREAM] = {"record_stream failed though no driver call was to", 2},
    [BROKEN_SHORT] = {"", 1},
};

START_TEST(a_fault_is_found_and_cut_down) {
  device_model model = small_device();
  const policy_spec spec = broken_policy_spec((broken_fault)_i);
  const stress_settings settings = {
      .model = &model, .spec = &spec, .limit = UINT64_MAX, .check_every = 1, .last_request = 100 * MIB};
  const stress_mix mix = {.steps = 2000,
                          .streams = 4,
                          .room = 256 * MIB,
                          .held = 256 * MIB,
                          .largest = 20 * MIB,
                          .limit = UINT64_MAX,
                          .live = 64};
  stress_program program = {0};
  stress_result result;
  ck_assert(stress_program_generate(&program, 11, &mix));
  ck_assert_msg(stress_run(&settings, &program, 1, NULL, &result), "%s", result.message);
  if (_i == BROKEN_NOTHING) {
    ck_assert_msg(!result.failed, "%s", result.message);
  } else {
    ck_assert(result.failed);
    const uint64_t runs = stress_shrink(&settings, &program, &result, 2000);
    ck_assert_uint_lt(runs, 2000);
    ck_assert_msg(strstr(result.message, findings[_i].message) != NULL, "'%s' is not in: %s",
                  findings[_i].message, result.message);
    ck_assert_msg(program.count <= findings[_i].steps, "%zu steps are left: %s", program.count,
                  result.message);
    /* What is left is found again. */
    ck_assert(stress_run(&settings, &program, 1, NULL, &result) && result.failed);
  }
  stress_program_free(&program);
  device_model_unload(&model);
}
END_TEST

START_TEST(a_failed_call_finds_what_is_not_undone) {
  static const broken_fault faults[] = {BROKEN_NOTHING, BROKEN_LOSS, BROKEN_REFUSAL};
  device_model model = small_device();
  const stress_mix mix = {.steps = 60,
                          .streams = 2,
                          .room = 100 * MIB,
                          .held = 100 * MIB,
                          .largest = 8 * MIB,
                          .limit = UINT64_MAX,
                          .live = 16};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    const policy_spec spec = broken_policy_spec(faults[i]);
    const fault_settings settings = {.model = &model, .spec = &spec, .limit = UINT64_MAX, .parts = 1};
    stress_program program = {0};
    fault_report report;
    ck_assert(stress_program_generate(&program, 4, &mix));
    ck_assert_msg(stress_faults(&settings, &program, NULL, &report), "%s", report.message);
    ck_assert_msg(report.failed == (faults[i] != BROKEN_NOTHING), "%s", report.result.message);
    if (faults[i] == BROKEN_NOTHING) {
      ck_assert_uint_eq(report.calls[VMM_CALL_MALLOC].runs, report.calls[VMM_CALL_MALLOC].rolled_back);
    } else {
      ck_assert_uint_gt(report.found.count, 0);
    }
    stress_program_free(&report.found);
    stress_program_free(&program);
  }
  device_model_unload(&model);
}
END_TEST

/* ---- programs as text ---- */

START_TEST(programs_are_written_and_read) {
  const stress_mix mix = {.steps = 3000,
                          .streams = 3,
                          .room = 64 * MIB,
                          .held = 64 * MIB,
                          .largest = 8 * MIB,
                          .limit = UINT64_MAX,
                          .live = 32,
                          .limits = true,
                          .slow = true};
  stress_program program = {0}, again = {0};
  char *text = NULL, message[256];
  size_t size;
  ck_assert(stress_program_generate(&program, 9, &mix));
  ck_assert(stress_program_add(&program, &(stress_step){STRESS_FAIL, VMM_CALL_MAP, 3, VMM_UNKNOWN}));
  ck_assert(stress_program_add(&program, &(stress_step){STRESS_FAIL_NEXT, VMM_CALL_UNMAP, 0, VMM_UNKNOWN}));
  FILE *stream = open_memstream(&text, &size);
  ck_assert_ptr_nonnull(stream);
  stress_program_write(&program, stream);
  fclose(stream);
  stream = fmemopen(text, size, "r");
  ck_assert_msg(stress_program_read(&again, stream, "text", message, sizeof message), "%s", message);
  fclose(stream);
  ck_assert_uint_eq(again.count, program.count);
  ck_assert_uint_eq(again.ids, program.ids);
  uint64_t kinds = 0;
  for (size_t i = 0; i < program.count; i++) {
    const stress_step *one = &program.steps[i], *other = &again.steps[i];
    ck_assert(one->kind == other->kind && one->id == other->id && one->size == other->size &&
              one->stream == other->stream);
    kinds |= UINT64_C(1) << one->kind;
  }
  ck_assert_uint_eq(kinds, (UINT64_C(1) << STRESS_KINDS) - 1);
  free(text);
  stress_program_free(&program);
  stress_program_free(&again);
}
END_TEST

static const struct {
  const char *program, *expected;
} malformed[] = {
    {"a 0 4096\n", ":1: expected a ID SIZE STREAM"},
    {"# a comment\n\na 0 4096 0\nq 1\n", ":4: expected a step that begins with one of"},
    {"f\n", ":1: expected the number of a block"},
    {"f -1\n", ":1: expected the number of a block"},
    {"a 99999999 1 0\n", ":1: expected the number of a block"},
    {"r 0 70000\n", ":1: expected r ID STREAM"},
    {"s x\n", ":1: expected s STREAM"},
    {"l much\n", ":1: expected l BYTES or l unlimited"},
    {"x cuMemFly 1 2\n", ":1: expected x CALL K STATUS"},
    {"x cuMemMap 0 2\n", ":1: expected x CALL K STATUS"},
    {"y cuMemMap 0\n", ":1: expected y CALL STATUS"},
    {"l 99999999999999999999\n", ":1: expected l BYTES or l unlimited"},
    {"t t\n", ":1: expected the end of the line behind the step"},
    {"a 0 4096 0\na 1 4096 0 0\n", ":2: expected the end of the line behind the step"},
    {"# nothing\n", "holds no step"},
};

START_TEST(malformed_programs_are_refused) {
  char *path = write_test_file("program.txt", malformed[_i].program);
  program_run run = run_expecting(EXIT_STATUS_USAGE, "stress", "-q", "-p", "bfc", "--program", path);
  ck_assert_has(run.errors, malformed[_i].expected);
  program_run_free(&run);
  free(path);
}
END_TEST

/* The program itself writes them: what was found, with a spec of any length. */
START_TEST(long_comments_are_comments) {
  char text[1200];
  snprintf(text, sizeof text, "# %1000s q 1\na 0 4096 0\nf 0\n", "");
  char *path = write_test_file("program.txt", text);
  program_run run = run_expecting(EXIT_STATUS_DONE, "stress", "-q", "-p", "bfc", "--program", path);
  program_run_free(&run);
  free(path);
}
END_TEST

START_TEST(a_program_is_run_step_by_step) {
  char *path =
      write_test_file("program.txt",
                      "a 0 5242880 1\nr 0 2\nw 0\nx cuMemAlloc 1 2\na 1 20971520 0\nl 10000000\nt\nf 0\nk\n"
                      "f 7 # never asked for\ny cuMemFree 999\nl unlimited\ns 1\n");
  program_run run = run_expecting(EXIT_STATUS_DONE, "stress", "-q", "-p", "bfc", "--program", path,
                                  "--verify", "--check-every", "1", "--json", "-");
  json_t *array = parse_output(&run);
  const json_t *object = json_array_get(array, 0);
  ck_assert_int_eq((int)json_number(object, "steps"), 13);
  ck_assert_int_eq((int)json_number(object, "served"), 2);
  ck_assert_int_eq((int)json_number(object, "checks"), 14);
  json_decref(array);
  program_run_free(&run);
  free(path);
}
END_TEST

/* ---- a real device, and bad usage ---- */

/* Loads the library, which the program's children then find loaded. */
static bool load_fake_cuda(const char *wishes) {
  static const char path[] = "tests/fake_cuda/libcuda.so.1";
  void *library = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
  ck_assert_int_eq(setenv("LAKEBED_FAKE_CUDA", wishes, 1), 0);
  return library && dlsym(library, "cuInit");
}

START_TEST(runs_on_a_real_device) {
  if (!load_fake_cuda("")) test_skip("built without a CUDA toolkit");
  program_run run = run_program("stress", "-q", "--driver", "cuda", "--limit", "64MiB", "--verify",
                                "--slow-kernels", "-p", "bfc,expandable,gmlake,aliasheap,async",
                                "--operations", "500", "--seed", "2", "--json", "-", (const char *)NULL);
  ck_assert_msg(run.status == EXIT_STATUS_DONE, "%s", run.errors);
  ck_assert(least_of(&run, 5, "slow_kernels") > 0);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "stress", "-q", "--driver", "cuda", "--limit", "64MiB", "--verify",
                      "-p", "gmlake", "--threads", "4", "--operations", "600", "--seed", "2", "--json", "-");
  ck_assert(least_of(&run, 1, "verified_blocks") > 20);
  program_run_free(&run);
}
END_TEST

START_TEST(a_wrong_byte_is_found) {
  if (!load_fake_cuda("corrupt=40")) test_skip("built without a CUDA toolkit");
  program_run run = run_program("stress", "-q", "--driver", "cuda", "--limit", "64MiB", "--verify", "-p",
                                "bfc", "--operations", "300", "--seed", "2", (const char *)NULL);
  ck_assert_int_eq(run.status, EXIT_STATUS_CHECK_FAILED);
  ck_assert_has(run.errors, "have changed");
  ck_assert_has(run.errors, "seed 2");
  ck_assert_has(run.errors, "# run it: lakebed stress --policy 'bfc' --driver cuda --verify");
  program_run_free(&run);
}
END_TEST

START_TEST(says_what_does_not_go_together) {
  static const struct {
    const char *arguments[6], *expected;
  } cases[] = {
      {{"stress", "--slow-kernels"}, "--slow-kernels needs --driver cuda"},
      {{"stress", "--threads", "0"}, "expected a whole number from 1 to 64"},
      {{"stress", "--threads", "2", "--program", "x"}, "--program is for one thread"},
      {{"stress", "--limit", "4MiB"}, "less than 16 times the device's granularity"},
      {{"stress", "trace"}, "'trace' is not expected here"},
      {{"stress", "-p", "bcf"}, "did you mean bfc?"},
      {{"stress", "--program", "no/such/file"}, "no/such/file cannot be read"},
      {{"stress", "--program", "/dev/zero"}, "/dev/zero:1: expected a line without NUL bytes"},
      {{"stress", "--json", "-", "--csv", "-"}, "only one of the files can go to standard output"},
      {{"faults", "--random", "0"}, "there is nothing to run"},
      {{"faults", "--capacity", "2MiB"}, "at least 64MiB are needed"},
      {{"faults", "--part", "3/2"}, "--part=3/2: expected K/N with K from 1 to N"},
      {{"faults", "no/such/trace"}, "no/such/trace"},
      {{"faults", "edge", "--skip", "1000000"}, "has no events from --skip on"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *const *words = cases[i].arguments;
    program_run run =
        run_program(words[0], words[1], words[2], words[3], words[4], words[5], (const char *)NULL);
    ck_assert_msg(run.status == EXIT_STATUS_USAGE, "%s %s: %d", words[0], words[1], run.status);
    ck_assert_has(run.errors, cases[i].expected);
    program_run_free(&run);
  }
}
END_TEST

START_TEST(results_are_written) {
  char *csv = test_path("results.csv");
  program_run run = run_expecting(EXIT_STATUS_DONE, "stress", "-q", "-p", "bfc,native", "--operations", "500",
                                  "--csv", csv);
  char *content = read_test_file(csv);
  ck_assert_has(content, "# program: lakebed ");
  ck_assert_has(content, "policy,spec,threads,streams,verify,programs,steps,");
  ck_assert_has(content, "\nbfc,bfc,1,4,no,1,50");
  ck_assert_has(run.output, "policy");
  ck_assert_has(run.output, "sound");
  free(content);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "faults", "-q", "-p", "bfc", "--csv", csv);
  content = read_test_file(csv);
  ck_assert_has(content, "policy,spec,trace,failures,call,runs,served,out_of_memory,errors,refused,");
  ck_assert_has(content, "\nbfc,bfc,random-1,one,cuMemAlloc,");
  ck_assert_has(run.output, "random-1");
  free(content);
  program_run_free(&run);
  free(csv);
}
END_TEST

static Suite *stress_suite(void) {
  Suite *suite = suite_create("harness_stress");
  TCase *sound = tcase_create("sound policies");
  tcase_set_timeout(sound, 240);
  tcase_add_test(sound, random_programs_find_nothing);
  tcase_add_test(sound, data_stays_whole_through_every_address);
  tcase_add_test(sound, eight_threads_share_a_policy);
  tcase_add_test(sound, failing_calls_undo_nothing_else);
  tcase_add_loop_test(sound, failing_calls_on_the_smallest_device, 0, SMALLEST);
  suite_add_tcase(suite, sound);
  TCase *broken = tcase_create("broken policies");
  tcase_set_timeout(broken, 60);
  tcase_add_loop_test(broken, a_fault_is_found_and_cut_down, 0, BROKEN_FAULTS);
  tcase_add_test(broken, a_failed_call_finds_what_is_not_undone);
  suite_add_tcase(suite, broken);
  TCase *programs = tcase_create("programs");
  tcase_add_test(programs, programs_are_written_and_read);
  tcase_add_loop_test(programs, malformed_programs_are_refused, 0,
                      (int)(sizeof malformed / sizeof *malformed));
  tcase_add_test(programs, long_comments_are_comments);
  tcase_add_test(programs, a_program_is_run_step_by_step);
  suite_add_tcase(suite, programs);
  TCase *usage = tcase_create("usage");
  tcase_set_timeout(usage, 120);
  tcase_add_test(usage, runs_on_a_real_device);
  tcase_add_test(usage, a_wrong_byte_is_found);
  tcase_add_test(usage, says_what_does_not_go_together);
  tcase_add_test(usage, results_are_written);
  suite_add_tcase(suite, usage);
  return suite;
}

TEST_MAIN(stress_suite)
