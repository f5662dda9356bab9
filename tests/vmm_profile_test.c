/* Latency profiles: the built-in ones against what was measured, interpolation, bad files. */
#include "vmm/profile.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tests/test_main.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

#define HEADER             \
  "lakebed-profile 1\n"    \
  "device a device\n"      \
  "source nowhere\n"       \
  "total_bytes 4194304\n"  \
  "usable_bytes 4194304\n" \
  "granularity_bytes 65536\n"

static char message[300];

/* Loads a profile with this text from a file that is named in path. */
static vmm_status load_bytes(const char *text, size_t size, vmm_profile **profile, char path[PATH_MAX]) {
  snprintf(path, PATH_MAX, "%s/lakebed-profile-XXXXXX", test_scratch());
  int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  ck_assert_int_eq(write(file, text, size), (ssize_t)size);
  close(file);
  vmm_status status = vmm_profile_load(path, profile, message, sizeof message);
  unlink(path);
  return status;
}

static vmm_profile *load_text(const char *text) {
  char path[PATH_MAX];
  vmm_profile *profile = NULL;
  vmm_status status = load_bytes(text, strlen(text), &profile, path);
  ck_assert_msg(status == VMM_SUCCESS, "%s", message);
  ck_assert_str_eq(message, "");
  return profile;
}

static vmm_profile *load_named(const char *name) {
  vmm_profile *profile = NULL;
  vmm_status status = vmm_profile_load(name, &profile, message, sizeof message);
  ck_assert_msg(status == VMM_SUCCESS, "%s", message);
  return profile;
}

START_TEST(built_in_profiles_load) {
  int count = 0;
  for (const char *const *name = vmm_profile_names(); *name; name++, count++) {
    vmm_profile *profile = load_named(*name);
    ck_assert_uint_gt(strlen(vmm_profile_device(profile)), 0);
    ck_assert_uint_gt(strlen(vmm_profile_source(profile)), 0);
    ck_assert_uint_eq(vmm_profile_granularity(profile), 2 * MIB);
    ck_assert_uint_le(vmm_profile_usable_bytes(profile), vmm_profile_total_bytes(profile));
    vmm_profile_destroy(profile);
  }
  ck_assert_int_ge(count, 2);
  vmm_profile *h200 = load_named("h200");
  ck_assert_str_eq(vmm_profile_device(h200), "NVIDIA H200");
  ck_assert_uint_eq(vmm_profile_total_bytes(h200), 150109880320);
  ck_assert_uint_eq(vmm_profile_usable_bytes(h200), 149557477376);
  vmm_profile_destroy(h200);
  vmm_profile_destroy(NULL);
}
END_TEST

/* Every cost line of a profile's file is what the profile answers there. */
START_TEST(measured_points_are_exact) {
  const char *const files[] = {"vmm/profiles/h200.profile", "vmm/profiles/a100.profile"};
  const char *const names[] = {"h200", "a100"};
  static const char *const words[VMM_CALL_COUNT] = {
#define XX(name, text) [VMM_CALL_##name] = #name,
      VMM_CALL_MAP(XX)
#undef XX
  };
  FILE *file = fopen(files[_i], "r");
  ck_assert_ptr_nonnull(file);
  vmm_profile *profile = load_named(names[_i]);
  char line[2000], word[64];
  unsigned long long size, live;
  double microseconds;
  int points = 0;
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "cost %63s %llu %llu %lf", word, &size, &live, &microseconds) != 4) continue;
    int call = 0;
    while (call < VMM_CALL_COUNT && strcasecmp(words[call], word) != 0) call++;
    ck_assert_int_lt(call, VMM_CALL_COUNT);
    uint64_t cost = vmm_profile_cost_ns(profile, (vmm_call)call, size, live);
    ck_assert_msg(cost == (uint64_t)(microseconds * 1000 + 0.5), "%s: %llu ns", line,
                  (unsigned long long)cost);
    points++;
  }
  ck_assert_int_ge(points, 10);
  fclose(file);
  vmm_profile_destroy(profile);
}
END_TEST

/* Modelled time of 2 GiB from chunks, over that of one cuMemAlloc. */
static double relative_build(const vmm_profile *profile, uint64_t chunk) {
  uint64_t count = 2 * GIB / chunk;
  uint64_t total = vmm_profile_cost_ns(profile, VMM_CALL_ADDRESS_RESERVE, 2 * GIB, 0);
  for (uint64_t i = 0; i < count; i++) {
    total += vmm_profile_cost_ns(profile, VMM_CALL_CREATE, chunk, i);
    total += vmm_profile_cost_ns(profile, VMM_CALL_MAP, chunk, count);
    total += vmm_profile_cost_ns(profile, VMM_CALL_SET_ACCESS, chunk, count);
  }
  return (double)total / (double)vmm_profile_cost_ns(profile, VMM_CALL_MALLOC, 2 * GIB, 0);
}

START_TEST(builds_cost_what_was_measured) {
  /* the sweep's table, and the paper's Table 1 */
  static const struct {
    const char *name;
    uint64_t chunk;
    double measured;
  } builds[] = {
      {"h200", 2 * MIB, 125.4}, {"h200", 16 * MIB, 15.7}, {"h200", 128 * MIB, 2.38}, {"h200", GIB, 0.97},
      {"a100", 2 * MIB, 115.4}, {"a100", 128 * MIB, 9.1}, {"a100", GIB, 1.5},
  };
  for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
    vmm_profile *profile = load_named(builds[i].name);
    double relative = relative_build(profile, builds[i].chunk);
    ck_assert_msg(relative > builds[i].measured * 0.93 && relative < builds[i].measured * 1.07,
                  "%s with %llu MiB: %.2f, measured %.2f", builds[i].name,
                  (unsigned long long)(builds[i].chunk / MIB), relative, builds[i].measured);
    vmm_profile_destroy(profile);
  }
}
END_TEST

START_TEST(between_points_it_interpolates) {
  vmm_profile *profile = load_text(HEADER
                                   "cost create 1024 0 10\n"
                                   "cost create 4096 0 40 # a comment\n"
                                   "cost create 4096 100 60\n"
                                   "cost create 4096 300 100\n"
                                   "cost create 0 0 0.25\n"
                                   "cost map 1024 0 0\n"
                                   "cost map 4096 0 8\n"
                                   "cost event_query 0 0 0.147\n");
  const vmm_call create = VMM_CALL_CREATE;
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, 1024, 0), 10000);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, 2048, 0), 20000); /* the geometric mean */
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, 4096, 50), 50000);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, 4096, 200), 80000);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, 4096, 1000000), 100000);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, 512, 0), 10000);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, 16384, 0), 160000);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, 16384, 300), 400000);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, 0, 300), 250);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, create, UINT64_MAX, 300) > UINT64_C(1) << 60, 1);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, VMM_CALL_MAP, 2048, 0), 4000); /* 0 has no logarithm */
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, VMM_CALL_EVENT_QUERY, 0, 7), 147);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, VMM_CALL_EVENT_QUERY, 4096, 7), 147);
  ck_assert_uint_eq(vmm_profile_cost_ns(profile, VMM_CALL_FREE, 4096, 7), 0);
  vmm_profile_destroy(profile);
}
END_TEST

START_TEST(costs_grow_with_size) {
  vmm_profile *profile = load_named("h200");
  const vmm_call calls[] = {VMM_CALL_MALLOC, VMM_CALL_FREE, VMM_CALL_RELEASE};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    ck_assert_uint_gt(vmm_profile_cost_ns(profile, calls[i], 64 * GIB, 0),
                      vmm_profile_cost_ns(profile, calls[i], 2 * GIB, 0));
    ck_assert_uint_gt(vmm_profile_cost_ns(profile, calls[i], 2 * GIB, 0),
                      vmm_profile_cost_ns(profile, calls[i], 64 * MIB, 0));
  }
  vmm_profile_destroy(profile);
}
END_TEST

START_TEST(bad_files_are_refused_with_their_line) {
  static const struct {
    const char *text, *complaint;
  } cases[] = {
      {"", ":1: expected 'lakebed-profile 1'"},
      {"# nothing\n\n", ":2: expected 'lakebed-profile 1'"},
      {"profile 1\n", ":1: expected 'lakebed-profile 1'"},
      {"lakebed-profile 2\n", ":1: expected version 1, found '2'"},
      {"lakebed-profile\n", ":1: expected version 1, found ''"},
      {"lakebed-profile 1 1\n", ":1: expected nothing after the version"},
      {"lakebed-profile 1\ndevice x\n", ":2: expected 'source' before the end"},
      {"lakebed-profile 1\ndevice\n", ":2: expected a text after 'device'"},
      {"lakebed-profile 1\ndevice x\ndevice y\n", ":3: expected 'device' once, found it again"},
      {"lakebed-profile 1\ntotal_bytes -1\n",
       ":2: expected a number of bytes after 'total_bytes', found '-1'"},
      {"lakebed-profile 1\ntotal_bytes 1x\n",
       ":2: expected a number of bytes after 'total_bytes', found '1x'"},
      {"lakebed-profile 1\ntotal_bytes 99999999999999999999\n", ":2: expected a number of bytes after"},
      {"lakebed-profile 1\ntotal_bytes 5 6\n", ":2: expected nothing after the number of 'total_bytes'"},
      {"lakebed-profile 1\ngranularity_bytes 0\n", ":2: expected a number of bytes"},
      {"lakebed-profile 1\nspeed 5\n", ":2: expected device, source"},
      {HEADER "cost\n", ":7: expected a call such as 'create' after 'cost', found ''"},
      {HEADER "cost creat 1 1 1\n", ":7: expected a call such as 'create' after 'cost', found 'creat'"},
      {HEADER "cost create x 1 1\n", ":7: expected a size in bytes, found 'x'"},
      {HEADER "cost create 1 -1 1\n", ":7: expected a number of live handles, found '-1'"},
      {HEADER "cost create 1 1 fast\n", ":7: expected microseconds, found 'fast'"},
      {HEADER "cost create 1 1 -3\n", ":7: expected microseconds, found '-3'"},
      {HEADER "cost create 1 1 nan\n", ":7: expected microseconds, found 'nan'"},
      {HEADER "cost create 1 1 1e300\n", ":7: expected microseconds, found '1e300'"},
      {HEADER "cost create 1 1 0x10\n", ":7: expected microseconds, found '0x10'"},
      {HEADER "cost create 1 1\n", ":7: expected microseconds, found ''"},
      {HEADER "cost create 1 1 1 us\n", ":7: expected nothing after the microseconds, found 'us'"},
      {HEADER "cost create 1 1 1\ncost map 1 1 1\ncost create 1 1 2\n", ":9: expected one cost of 'create'"},
      {"lakebed-profile 1\ndevice x\nsource y\ntotal_bytes 4096\nusable_bytes 8192\ngranularity_bytes 4096\n",
       ":6: expected usable_bytes to be at most total_bytes 4096"},
      {"lakebed-profile 1\ndevice x\nsource y\ntotal_bytes 4096\nusable_bytes 4096\ngranularity_bytes 3000\n",
       ":6: expected granularity_bytes to be a power of two, found 3000"},
      {"lakebed-profile 1\ndevice x\nsource y\ntotal_bytes 4096\nusable_bytes 4096\ngranularity_bytes 8192\n",
       ":6: expected usable_bytes to hold one granule of 8192"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[PATH_MAX], expected[PATH_MAX + 200];
    vmm_profile *profile;
    vmm_status status = load_bytes(cases[i].text, strlen(cases[i].text), &profile, path);
    ck_assert_int_eq(status, VMM_INVALID_VALUE);
    ck_assert_ptr_null(profile);
    snprintf(expected, sizeof expected, "%s%s", path, cases[i].complaint);
    ck_assert_msg(strncmp(message, expected, strlen(expected)) == 0, "case %zu: \"%s\"", i, message);
  }
}
END_TEST

START_TEST(odd_files_are_refused) {
  char path[PATH_MAX];
  vmm_profile *profile;
  static const char with_zero[] = "lakebed-profile 1\ndevice a\0b\n";
  ck_assert_int_eq(load_bytes(with_zero, sizeof with_zero - 1, &profile, path), VMM_INVALID_VALUE);
  ck_assert_ptr_nonnull(strstr(message, ":2: expected text, found a zero byte"));

  size_t size = (1 << 20) + 1;
  char *large = malloc(size);
  ck_assert_ptr_nonnull(large);
  memset(large, '\n', size);
  ck_assert_int_eq(load_bytes(large, size, &profile, path), VMM_INVALID_VALUE);
  free(large);

  static char long_text[4000];
  memset(long_text, 'x', sizeof long_text - 1);
  memcpy(long_text, "lakebed-profile 1\ndevice ", 25);
  ck_assert_int_eq(load_bytes(long_text, strlen(long_text), &profile, path), VMM_INVALID_VALUE);
  ck_assert_ptr_nonnull(strstr(message, ":2: expected at most"));

  ck_assert_int_eq(vmm_profile_load("h201", &profile, message, sizeof message), VMM_INVALID_VALUE);
  ck_assert_ptr_nonnull(strstr(message, "h201"));
  ck_assert_ptr_nonnull(strstr(message, "h200"));
  ck_assert_int_eq(vmm_profile_load("/tmp", &profile, message, sizeof message), VMM_INVALID_VALUE);
}
END_TEST

/* Any file and any room for the message: an answer, never a crash. */
START_TEST(damaged_files_are_answered) {
  static const char good[] = HEADER "cost create 1024 0 10\ncost map 4096 300 100.5\n";
  char path[PATH_MAX], text[sizeof good];
  vmm_profile *profile;
  for (size_t cut = 0; cut < sizeof good - 1; cut++) {
    if (load_bytes(good, cut, &profile, path) == VMM_SUCCESS) vmm_profile_destroy(profile);
    memcpy(text, good, sizeof good);
    text[cut] ^= (char)(1 << cut % 7);
    if (load_bytes(text, sizeof good - 1, &profile, path) == VMM_SUCCESS) vmm_profile_destroy(profile);
  }
  for (size_t room = 0; room < 40; room++) {
    char small[41];
    memset(small, 'x', sizeof small);
    ck_assert_int_eq(vmm_profile_load("/nowhere/at/all", &profile, small, room), VMM_INVALID_VALUE);
    ck_assert(room == 0 || strlen(small) < room);
    ck_assert_int_eq(small[room], 'x');
  }
}
END_TEST

static Suite *profile_suite(void) {
  Suite *suite = suite_create("vmm profile");
  TCase *costs = tcase_create("costs");
  tcase_add_test(costs, built_in_profiles_load);
  tcase_add_loop_test(costs, measured_points_are_exact, 0, 2);
  tcase_add_test(costs, builds_cost_what_was_measured);
  tcase_add_test(costs, between_points_it_interpolates);
  tcase_add_test(costs, costs_grow_with_size);
  suite_add_tcase(suite, costs);
  TCase *files = tcase_create("files");
  tcase_add_test(files, bad_files_are_refused_with_their_line);
  tcase_add_test(files, odd_files_are_refused);
  tcase_add_test(files, damaged_files_are_answered);
  suite_add_tcase(suite, files);
  return suite;
}

TEST_MAIN(profile_suite)
