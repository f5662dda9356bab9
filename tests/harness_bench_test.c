/* The benchmarks as their users meet them, on the simulated device and, where there is one, on a real one. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "harness/bench_points.h"
#include "harness/exit_status.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"
#include "vmm/profile.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static const char *text_of(const json_t *record, const char *key) {
  const char *text = json_string_value(json_object_get(record, key));
  return text ? text : "";
}

/* The record of one call of one way to one size. */
static const json_t *find_record(const json_t *document, const char *benchmark, const char *method,
                                 uint64_t total, uint64_t chunk, const char *call) {
  const json_t *results = json_object_get(document, "results");
  for (size_t i = 0; i < json_array_size(results); i++) {
    const json_t *record = json_array_get(results, i);
    if (strcmp(text_of(record, "benchmark"), benchmark) == 0 &&
        strcmp(text_of(record, "method"), method) == 0 && strcmp(text_of(record, "call"), call) == 0 &&
        json_integer_value(json_object_get(record, "total_bytes")) == (json_int_t)total &&
        json_integer_value(json_object_get(record, "chunk_bytes")) == (json_int_t)chunk) {
      return record;
    }
  }
  ck_abort_msg("no record of %s %s %s", benchmark, method, call);
  return NULL;
}

static vmm_profile *load_profile(const char *name) {
  char message[512];
  vmm_profile *profile;
  ck_assert_msg(vmm_profile_load(name, &profile, message, sizeof message) == VMM_SUCCESS, "%s", message);
  return profile;
}

/* What the profile says of n calls, microseconds. */
static double charged(const vmm_profile *profile, vmm_call call, uint64_t size, uint64_t first_live, int step,
                      uint64_t calls) {
  double sum = 0;
  uint64_t live = first_live;
  for (uint64_t i = 0; i < calls; i++) {
    sum += (double)vmm_profile_cost_ns(profile, call, size, live) / 1000;
    live = step < 0 ? live - 1 : live + (uint64_t)step;
  }
  return sum;
}

START_TEST(simulated_builds_cost_what_the_profile_says) {
  static const uint64_t chunks[] = {2 * MIB, 128 * MIB, GIB};
  vmm_profile *profile = load_profile("h200");
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "bench", "vmm", "--driver", "sim", "--iterations", "3", "--json", "-");
  json_t *document = parse_output(&run);
  ck_assert_str_eq(text_of(document, "device"), vmm_profile_device(profile));
  ck_assert_str_ne(text_of(document, "date"), "");
  ck_assert_str_eq(text_of(document, "command"), "lakebed bench vmm --driver sim --iterations 3 --json -");
  for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
    const uint64_t chunk = chunks[i], n = 2 * GIB / chunk;
    const struct {
      const char *call;
      double expected;
    } stages[] = {
        {"reserve", charged(profile, VMM_CALL_ADDRESS_RESERVE, 2 * GIB, n, 0, 1)},
        {"create", charged(profile, VMM_CALL_CREATE, chunk, 0, 1, n)},
        {"map", charged(profile, VMM_CALL_MAP, chunk, n, 0, n)},
        {"set_access", charged(profile, VMM_CALL_SET_ACCESS, chunk, n, 0, n)},
        {"unmap", charged(profile, VMM_CALL_UNMAP, chunk, n, 0, n)},
        {"release", charged(profile, VMM_CALL_RELEASE, chunk, n, -1, n)},
        {"address_free", charged(profile, VMM_CALL_ADDRESS_FREE, 2 * GIB, n, 0, 1)},
    };
    const json_t *build = find_record(document, "table1", "chunks", 2 * GIB, chunk, "build");
    double sum = 0;
    for (size_t j = 0; j < sizeof stages / sizeof *stages; j++) {
      const json_t *record = find_record(document, "table1", "chunks", 2 * GIB, chunk, stages[j].call);
      ck_assert_msg(
          fabs(json_number(record, "p50_us") - stages[j].expected) <= 0.002 + stages[j].expected * 1e-9,
          "%s of %llu: %f, the profile says %f", stages[j].call, (unsigned long long)chunk,
          json_number(record, "p50_us"), stages[j].expected);
      if (j < 4) sum += stages[j].expected;
    }
    ck_assert_double_eq_tol(json_number(build, "p50_us"), sum, 0.01);
    const json_t *native = find_record(document, "table1", "cuMemAlloc", 2 * GIB, 2 * GIB, "malloc");
    ck_assert_double_eq_tol(json_number(build, "normalized"), sum / json_number(native, "p50_us"), 1e-3);
  }
  /* The paper's column stands beside. */
  const json_t *paper = find_record(document, "table1", "chunks", 2 * GIB, 2 * MIB, "set_access");
  ck_assert_double_eq(json_number(paper, "paper_normalized"), 96.8);
  const json_t *none = find_record(document, "table1", "chunks", 2 * GIB, 4 * MIB, "set_access");
  ck_assert(json_is_null(json_object_get(none, "paper_normalized")));
  for (uint64_t total = 512 * MIB; total <= 2 * GIB; total *= 2) {
    find_record(document, "figure6", "chunks", total, 2 * MIB, "build");
    find_record(document, "figure6", "cuMemAlloc", total, total, "malloc");
    find_record(document, "figure6", "cuMemAllocAsync warm", total, total, "malloc");
  }
  json_decref(document);
  program_run_free(&run);
  vmm_profile_destroy(profile);
}
END_TEST

/* The points of a profile file, one a line. */
typedef struct line_point {
  char call[32];
  unsigned long long size, live;
  double microseconds;
} line_point;

static size_t read_points(const char *path, line_point *points, size_t capacity) {
  char *text = read_test_file(path), *rest = text;
  size_t count = 0;
  for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
    line_point point;
    if (sscanf(line, "cost %31s %llu %llu %lf", point.call, &point.size, &point.live, &point.microseconds) !=
        4) {
      continue;
    }
    ck_assert_uint_lt(count, capacity);
    points[count++] = point;
  }
  free(text);
  return count;
}

/* "create" is VMM_CALL_CREATE. */
static vmm_call call_of(const char *word) {
  static const char *const names[VMM_CALL_COUNT] = {
#define XX(name, text) [VMM_CALL_##name] = #name,
      VMM_CALL_MAP(XX)
#undef XX
  };
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    if (strcasecmp(names[call], word) == 0) return (vmm_call)call;
  }
  ck_abort_msg("no call '%s'", word);
  return VMM_CALL_COUNT;
}

/* Measuring a simulated device gives the profile that it charges. */
START_TEST(saved_profiles_reproduce_themselves) {
  enum { POINTS = 2000 };
  static line_point first[POINTS], second[POINTS];
  char *path = test_path("first.profile"), *again = test_path("second.profile");
  program_run run = run_expecting(EXIT_STATUS_DONE, "bench", "vmm", "--driver", "sim", "--quiet",
                                  "--iterations", "2", "--save-profile", path);
  ck_assert_has(run.output, "# Profile");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "bench", "vmm", "--driver", "sim", "--quiet", "--iterations", "2",
                      "--device", path, "--save-profile", again);
  program_run_free(&run);
  const size_t count = read_points(path, first, POINTS);
  ck_assert_uint_eq(read_points(again, second, POINTS), count);
  ck_assert_uint_gt(count, 400);
  bool seen[VMM_CALL_COUNT] = {false};
  for (size_t i = 0; i < count; i++) {
    ck_assert_str_eq(first[i].call, second[i].call);
    ck_assert_uint_eq(first[i].size, second[i].size);
    ck_assert_uint_eq(first[i].live, second[i].live);
    ck_assert_msg(
        fabs(first[i].microseconds - second[i].microseconds) <= 0.001 + first[i].microseconds * 0.01,
        "%s %llu %llu: %f, then %f", first[i].call, first[i].size, first[i].live, first[i].microseconds,
        second[i].microseconds);
  }
  vmm_profile *original = load_profile("h200"), *saved = load_profile(path);
  ck_assert_str_eq(vmm_profile_device(saved), vmm_profile_device(original));
  ck_assert_ptr_nonnull(strstr(vmm_profile_source(saved), "--save-profile"));
  /* A saved point is what the original says there, or the mean over the numbers of handles that its build ran
   * through. */
  for (size_t i = 0; i < count; i++) {
    const vmm_call call = call_of(first[i].call);
    const uint64_t size = first[i].size, n = size ? 2 * GIB / size : 1, live = first[i].live;
    seen[call] = true;
    double expected = (double)vmm_profile_cost_ns(original, call, size, live) / 1000;
    if (call == VMM_CALL_CREATE && size) {
      expected = charged(original, call, size, live - (n - 1) / 2, 1, n) / (double)n;
    } else if (call == VMM_CALL_RELEASE && size) {
      expected = charged(original, call, size, live - (n + 1) / 2 + n, -1, n) / (double)n;
    }
    ck_assert_msg(fabs(first[i].microseconds - expected) <= 0.001 + expected * 0.001,
                  "%s %llu %llu: %f, not %f", first[i].call, first[i].size, first[i].live,
                  first[i].microseconds, expected);
  }
  static const vmm_call measured[] = {
      VMM_CALL_GRANULARITY,  VMM_CALL_MEMORY_INFO,  VMM_CALL_ADDRESS_RESERVE,
      VMM_CALL_ADDRESS_FREE, VMM_CALL_CREATE,       VMM_CALL_RELEASE,
      VMM_CALL_MAP,          VMM_CALL_UNMAP,        VMM_CALL_SET_ACCESS,
      VMM_CALL_MALLOC,       VMM_CALL_FREE,         VMM_CALL_MALLOC_ASYNC,
      VMM_CALL_FREE_ASYNC,   VMM_CALL_EVENT_RECORD, VMM_CALL_EVENT_QUERY,
      VMM_CALL_EVENT_WAIT,   VMM_CALL_SYNCHRONIZE,  VMM_CALL_STREAM_WAIT_EVENT};
  for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
    ck_assert_msg(seen[measured[i]], "%s is missing", vmm_call_name(measured[i]));
  }
  vmm_profile_destroy(original);
  vmm_profile_destroy(saved);
  free(path);
  free(again);
}
END_TEST

START_TEST(points_come_from_steady_samples) {
  bench_points points = {0};
  const size_t quiet = bench_points_add(&points, VMM_CALL_MAP, 4096, 0);
  const size_t disturbed = bench_points_add(&points, VMM_CALL_CREATE, 4096, 0);
  bench_points_add(&points, VMM_CALL_UNMAP, 4096, 0);
  for (int i = 0; i < 9; i++) bench_points_sample(&points, quiet, 100 + i, 1000);
  /* Half of these were taken on a slower processor. */
  for (int i = 0; i < 4; i++) bench_points_sample(&points, disturbed, 200, 1010);
  for (int i = 0; i < 4; i++) bench_points_sample(&points, disturbed, 400, 2000);
  bench_points_settle(&points);
  ck_assert_uint_eq(points.count, 2); /* the one without samples is gone */
  ck_assert_int_eq(points.points[0].call, VMM_CALL_CREATE);
  ck_assert_double_eq(points.points[0].nanoseconds, 200);
  ck_assert_double_eq(points.points[1].nanoseconds, 104);
  ck_assert_uint_eq(points.samples, 17);
  ck_assert_uint_eq(points.steady_samples, 13);
  bench_points_free(&points);
  bench_points_settle(&points);
  ck_assert_uint_eq(points.count, 0);
}
END_TEST

START_TEST(live_handles_and_ranges_are_conditions) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "bench", "vmm", "table1", "--driver", "sim",
                                  "--iterations", "1", "--total", "64MiB", "--live-handles", "20000",
                                  "--access", "range", "--aliases", "3", "--json", "-");
  json_t *document = parse_output(&run);
  const json_t *create = find_record(document, "table1", "chunks", 64 * MIB, 2 * MIB, "create");
  vmm_profile *profile = load_profile("h200");
  ck_assert_double_eq_tol(json_number(create, "p50_us"),
                          charged(profile, VMM_CALL_CREATE, 2 * MIB, 20000, 1, 32), 0.01);
  ck_assert_double_eq(json_number(create, "live_handles"), 20000);
  ck_assert_double_eq(json_number(create, "aliases"), 3);
  ck_assert_str_eq(text_of(create, "access"), "range");
  const json_t *access = find_record(document, "table1", "chunks", 64 * MIB, 2 * MIB, "set_access");
  ck_assert_double_eq(json_number(access, "calls"), 1);
  const json_t *unmap = find_record(document, "table1", "chunks", 64 * MIB, 2 * MIB, "unmap");
  ck_assert_double_eq(json_number(unmap, "calls"), 1);
  vmm_profile_destroy(profile);
  json_decref(document);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "bench", "vmm", "table1", "--driver", "sim", "--iterations", "1",
                      "--live-handles", "full", "--max", "2MiB");
  ck_assert_has(run.output, "# live_handles: 69010 others");
  program_run_free(&run);
}
END_TEST

START_TEST(csv_has_provenance_and_a_row_a_result) {
  char *csv = test_path("vmm.csv"), *json = test_path("vmm.json");
  program_run run = run_expecting(EXIT_STATUS_DONE, "bench", "vmm", "table1", "--driver", "sim",
                                  "--iterations", "1", "--min", "128MiB", "--csv", csv, "--json", json);
  ck_assert_has(run.output, "# Table 1");
  ck_assert_has(run.output, "# device: NVIDIA H200");
  char *text = read_test_file(csv), *rest = text;
  size_t notes = 0, rows = 0, commas = 0;
  bool has_command = false;
  for (char *line; (line = strsep(&rest, "\n")) != NULL && *line;) {
    if (*line == '#') {
      ck_assert_uint_eq(rows, 0);
      notes++;
      has_command |= strncmp(line, "# command: lakebed bench vmm table1", 35) == 0;
      continue;
    }
    size_t count = 0;
    for (const char *at = line; *at; at++) count += *at == ',';
    if (rows++ == 0) {
      ck_assert_int_eq(
          strncmp(line, "benchmark,method,total_bytes,chunk_bytes,chunks,call,calls,p50_us,", 60), 0);
      commas = count;
    }
    ck_assert_uint_eq(count, commas);
  }
  ck_assert_uint_gt(notes, 5);
  ck_assert(has_command);
  /* Five sizes of chunks with nine lines each, two ways of the driver with two. */
  ck_assert_uint_eq(rows, 1 + 5 * 9 + 2 * 2);
  free(text);
  json_error_t error;
  json_t *document = json_load_file(json, 0, &error);
  ck_assert_ptr_nonnull(document);
  ck_assert_uint_eq(json_array_size(json_object_get(document, "results")), rows - 1);
  json_decref(document);
  free(csv);
  free(json);
  program_run_free(&run);
}
END_TEST

START_TEST(policies_pay_what_their_driver_calls_cost) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "bench", "alloc", "--driver", "sim", "--policy",
                                  "native,bfc,null", "--min", "2MiB", "--max", "4MiB", "--factor", "2",
                                  "--live", "8,64", "--iterations", "50", "--warmup", "10", "--json", "-");
  json_t *document = parse_output(&run);
  const json_t *results = json_object_get(document, "results");
  ck_assert_uint_eq(json_array_size(results), 3 * 2 * 2);
  vmm_profile *profile = load_profile("h200");
  for (size_t i = 0; i < json_array_size(results); i++) {
    const json_t *record = json_array_get(results, i);
    const uint64_t size = (uint64_t)json_number(record, "size_bytes");
    ck_assert_double_eq(json_number(record, "pairs"), 50);
    const bool native = strcmp(text_of(record, "policy"), "native") == 0;
    const double taking = native ? (double)vmm_profile_cost_ns(profile, VMM_CALL_MALLOC, size, 0) : 0;
    const double giving = native ? (double)vmm_profile_cost_ns(profile, VMM_CALL_FREE, size, 0) : 0;
    ck_assert_double_eq(json_number(record, "malloc_driver_p50_ns"), taking);
    ck_assert_double_eq(json_number(record, "malloc_driver_mean_ns"), taking);
    ck_assert_double_eq(json_number(record, "free_driver_p99_ns"), giving);
    ck_assert_double_gt(json_number(record, "malloc_host_p99_ns"), 0);
    ck_assert_double_ge(json_number(record, "malloc_host_p99_ns"), json_number(record, "malloc_host_p50_ns"));
  }
  vmm_profile_destroy(profile);
  json_decref(document);
  program_run_free(&run);
}
END_TEST

START_TEST(every_policy_has_a_steady_state) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "bench", "alloc", "--driver", "sim", "--quiet", "--sizes",
                                  "mixed", "--live", "32", "--iterations", "200", "--warmup", "50");
  static const char *const policies[] = {"native", "bfc", "expandable", "tfbfc", "rawvmm", "gmlake", "null"};
  for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) ck_assert_has(run.output, policies[i]);
  ck_assert_str_eq(run.errors, "");
  program_run_free(&run);
}
END_TEST

/* Command lines that are refused, with which status and words. */
static const struct {
  const char *arguments[5];
  int status;
  const char *pieces[2];
} refused[] = {
    {{"vmm", "--driver", "sim", "tabel1", NULL}, EXIT_STATUS_USAGE, {"'tabel1'", "did you mean table1?"}},
    {{"vmm", "--driver", "simm", NULL, NULL}, EXIT_STATUS_USAGE, {"--driver=simm", "did you mean sim?"}},
    {{"vmm", "--driver", "sim", "--access=chnk", NULL}, EXIT_STATUS_USAGE, {"chnk", "did you mean chunk?"}},
    {{"vmm", "--driver", "sim", "--min=3MiB", NULL}, EXIT_STATUS_USAGE, {"--min", "granularity"}},
    {{"vmm", "--driver", "sim", "--min=4GiB", NULL}, EXIT_STATUS_USAGE, {"--min", "2 GiB"}},
    {{"vmm", "--driver", "sim", "--factor=1", NULL}, EXIT_STATUS_USAGE, {"--factor=1", "from 2"}},
    {{"vmm", "--driver", "sim", "--total=1GiB,x", NULL}, EXIT_STATUS_USAGE, {"--total=x", "size"}},
    {{"vmm", "--driver", "sim", "--total=5000", NULL}, EXIT_STATUS_USAGE, {"--total", "granularity"}},
    {{"vmm", "--driver", "sim", "--iterations=0", NULL}, EXIT_STATUS_USAGE, {"--iterations=0", "from 1"}},
    {{"vmm", "--driver", "sim", "--threads=2", NULL}, EXIT_STATUS_USAGE, {"one thread", "--driver cuda"}},
    {{"vmm", "--driver", "sim", "--during=kernel", NULL}, EXIT_STATUS_USAGE, {"no kernels", NULL}},
    {{"vmm", "--driver", "sim", "--memory=cold", NULL}, EXIT_STATUS_USAGE, {"--memory", NULL}},
    {{"vmm", "--driver", "sim", "--gpu-direct=on", NULL}, EXIT_STATUS_USAGE, {"--gpu-direct", NULL}},
    {{"vmm", "--driver", "sim", "profile", "--aliases=2"}, EXIT_STATUS_USAGE, {"profile", "aliases"}},
    {{"vmm", "--driver", "sim", "--device=h20", NULL}, EXIT_STATUS_USAGE, {"h20", NULL}},
    {{"vmm", "--driver", "sim", "--csv=/nowhere/a.csv", NULL}, EXIT_STATUS_USAGE, {"/nowhere/a.csv", NULL}},
    {{"vmm", "--driver", "sim", "--csv=-", "--json=-"},
     EXIT_STATUS_USAGE,
     {"only one of the files", "standard output"}},
    {{"vmm", "--driver", "sim", "--save-profile=/nowhere/p", "--iterations=1"},
     EXIT_STATUS_USAGE,
     {"/nowhere/p", NULL}},
    {{"vmm", "--driver", "sim", "--capacity=1GiB", NULL}, EXIT_STATUS_OUT_OF_MEMORY, {"OUT_OF_MEMORY", NULL}},
    {{"access", "--driver", "sim", NULL, NULL}, EXIT_STATUS_NO_DEVICE, {"runs no kernels", NULL}},
    {{"alloc", "--driver", "sim", "--policy=bcf", NULL}, EXIT_STATUS_USAGE, {"'bcf'", "did you mean bfc?"}},
    {{"alloc", "--driver", "sim", "--live=0", NULL}, EXIT_STATUS_USAGE, {"--live=0", NULL}},
    {{"vm", NULL, NULL, NULL, NULL}, EXIT_STATUS_USAGE, {"'vm'", "did you mean vmm?"}},
};

START_TEST(bad_usage_is_refused) {
  const char *const *words = refused[_i].arguments;
  program_run run =
      run_expecting(refused[_i].status, "bench", words[0], words[1], words[2], words[3], words[4]);
  for (size_t i = 0; i < 2 && refused[_i].pieces[i]; i++) ck_assert_has(run.errors, refused[_i].pieces[i]);
  program_run_free(&run);
}
END_TEST

START_TEST(lists_and_help_are_there) {
  static const struct {
    const char *command, *listed;
  } commands[] = {{"vmm", "figure6"}, {"access", "handover"}, {"alloc", "steady"}};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    program_run run = run_expecting(EXIT_STATUS_DONE, "bench", commands[i].command, "-l");
    ck_assert_has(run.output, commands[i].listed);
    program_run_free(&run);
    run = run_expecting(EXIT_STATUS_DONE, "bench", commands[i].command, "--help");
    ck_assert_has(run.output, "--iterations");
    ck_assert_has(run.output, "Exit status");
    program_run_free(&run);
  }
}
END_TEST

/* Asked of the program: CUDA must not be used in a process that forks. */
static bool has_device(void) {
  program_run run = run_program("bench", "vmm", "table1", "--driver", "cuda", "--total", "2MiB", "--max",
                                "2MiB", "--iterations", "1", (const char *)NULL);
  const bool has = run.status != EXIT_STATUS_NO_DEVICE;
  program_run_free(&run);
  return has;
}

START_TEST(without_a_device_vmm_is_simulated_and_says_so) {
  if (has_device()) test_skip("there is a device");
  program_run run = run_expecting(EXIT_STATUS_DONE, "bench", "vmm", "table1", "--iterations", "1");
  ck_assert_has(run.output, "# no_device: simulated instead of measured: ");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_NO_DEVICE, "bench", "vmm", "--driver", "cuda");
  ck_assert_str_eq(run.output, "");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_NO_DEVICE, "bench", "access");
  program_run_free(&run);
}
END_TEST

START_TEST(real_memory_is_measured_and_right) {
  if (!has_device()) test_skip("no CUDA device");
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "bench", "access", "--total", "256MiB", "--alias-total", "64MiB",
                    "--max", "32MiB", "--iterations", "3", "--launches", "20", "--json", "-");
  json_t *document = parse_output(&run);
  const json_t *results = json_object_get(document, "results");
  ck_assert_uint_gt(json_array_size(results), 30);
  for (size_t i = 0; i < json_array_size(results); i++) {
    ck_assert_double_eq(json_number(json_array_get(results, i), "wrong_words"), 0);
  }
  json_decref(document);
  program_run_free(&run);
  static const char *const conditions[][4] = {
      {"--memory", "cold", "--access", "range"},   {"--memory", "warm", "--aliases", "3"},
      {"--threads", "3", "--live-handles", "100"}, {"--during", "kernel", "--max", "32MiB"},
      {"--during", "traffic", "--max", "32MiB"},   {"--handle-type", "posix_fd", "--max", "32MiB"},
  };
  for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
    run = run_expecting(EXIT_STATUS_DONE, "bench", "vmm", "--driver", "cuda", "--total", "64MiB",
                        "--iterations", "2", "--warmup", "1", conditions[i][0], conditions[i][1],
                        conditions[i][2], conditions[i][3]);
    program_run_free(&run);
  }
  run = run_expecting(EXIT_STATUS_DONE, "bench", "alloc", "--driver", "cuda", "--live", "16", "--iterations",
                      "20", "--warmup", "2");
  program_run_free(&run);
}
END_TEST

static Suite *bench_suite(void) {
  Suite *suite = suite_create("bench");
  TCase *cases = tcase_create("program");
  tcase_set_timeout(cases, 300);
  tcase_add_test(cases, simulated_builds_cost_what_the_profile_says);
  tcase_add_test(cases, saved_profiles_reproduce_themselves);
  tcase_add_test(cases, points_come_from_steady_samples);
  tcase_add_test(cases, live_handles_and_ranges_are_conditions);
  tcase_add_test(cases, csv_has_provenance_and_a_row_a_result);
  tcase_add_test(cases, policies_pay_what_their_driver_calls_cost);
  tcase_add_test(cases, every_policy_has_a_steady_state);
  tcase_add_loop_test(cases, bad_usage_is_refused, 0, sizeof refused / sizeof *refused);
  tcase_add_test(cases, lists_and_help_are_there);
  tcase_add_test(cases, without_a_device_vmm_is_simulated_and_says_so);
  tcase_add_test(cases, real_memory_is_measured_and_right);
  suite_add_tcase(suite, cases);
  return suite;
}

TEST_MAIN(bench_suite)
