/* The plugin for PyTorch through its C functions, on the simulated device. */
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/torch/lakebed_torch.h"
#include "policies/policy.h"
#include "tests/test_main.h"
#include "vmm/driver.h"
#include "workloads/trace.h"

#define MIB ((size_t)1 << 20)

static char message[512];

static void quiet(void) { setenv("LAKEBED_QUIET", "1", 1); }
static void close_all(void) { lakebed_torch_close(); }

static void configure(const char *spec, const char *device) {
  int status = lakebed_torch_configure(spec, device, message, sizeof message);
  ck_assert_msg(status == 0, "%s: %s", spec, message);
}

static json_t *statistics(int device) {
  size_t size = lakebed_torch_statistics(device, NULL, 0);
  char *text = malloc(size + 1);
  ck_assert_ptr_nonnull(text);
  ck_assert_uint_eq(lakebed_torch_statistics(device, text, size + 1), size);
  json_error_t error;
  json_t *told = json_loads(text, 0, &error);
  ck_assert_msg(told != NULL, "%s in %s", error.text, text);
  free(text);
  return told;
}

/* A number of a device's statistics; field may be NULL. */
static uint64_t number(int device, const char *name, const char *field) {
  json_t *told = statistics(device);
  const json_t *value = json_object_get(told, name);
  if (field) value = json_object_get(value, field);
  ck_assert_msg(json_is_integer(value), "no number %s", name);
  uint64_t found = (uint64_t)json_integer_value(value);
  json_decref(told);
  return found;
}

static bool has_limit(int device) {
  json_t *told = statistics(device);
  const bool limited = !json_is_null(json_object_get(told, "limit_bytes"));
  json_decref(told);
  return limited;
}

static void *stream(uintptr_t handle) { return (void *)(handle << 12); }

START_TEST(bad_configurations_are_refused_with_a_reason) {
  ck_assert_int_eq(lakebed_torch_configure("gmlaek", "sim", message, sizeof message), VMM_INVALID_VALUE);
  ck_assert_ptr_nonnull(strstr(message, "gmlake"));
  ck_assert_int_eq(lakebed_torch_configure("bfc:nothing=1", "sim", message, sizeof message),
                   VMM_INVALID_VALUE);
  ck_assert_int_eq(lakebed_torch_configure("bfc", "tpu", message, sizeof message), VMM_INVALID_VALUE);
  ck_assert_ptr_nonnull(strstr(message, "tpu"));
  ck_assert_int_eq(lakebed_torch_configure("bfc", "sim:h200:lots", message, sizeof message),
                   VMM_INVALID_VALUE);
  ck_assert_int_eq(lakebed_torch_configure("null", "cuda", message, sizeof message), VMM_NOT_SUPPORTED);
  configure("bfc", "sim:h200:1GiB");
  /* What fails leaves what was configured. */
  ck_assert_int_eq(lakebed_torch_configure("gmlaek", "sim", message, sizeof message), VMM_INVALID_VALUE);
  ck_assert_int_eq(lakebed_torch_configure("gmlake", "sim:h200:lots", message, sizeof message),
                   VMM_INVALID_VALUE);
  ck_assert_int_eq(lakebed_torch_configure("planned", "cuda", message, sizeof message), VMM_NOT_SUPPORTED);
  ck_assert_ptr_nonnull(lakebed_torch_malloc(1, 0, NULL));
  ck_assert_ptr_null(lakebed_torch_malloc(1024 * MIB + 1, 0, NULL));
  ck_assert_ptr_nonnull(strstr(lakebed_torch_failure(), "policy bfc"));
  ck_assert_int_eq(lakebed_torch_configure("gmlake", "sim", message, sizeof message), VMM_NOT_PERMITTED);
  ck_assert_ptr_nonnull(strstr(message, "bfc"));
}
END_TEST

START_TEST(the_environment_chooses_where_nobody_configures) {
  setenv("LAKEBED_POLICY", "bfc:max_split_size_mb=64", 1);
  setenv("LAKEBED_TORCH_DEVICE", "sim:h200:1GiB", 1);
  char text[512];
  ck_assert_int_eq(lakebed_torch_describe(text, sizeof text), 0);
  ck_assert_ptr_nonnull(strstr(text, "bfc: max_split_size_mb=64,"));
  ck_assert_uint_eq(lakebed_torch_statistics(0, NULL, 0), 0);
  ck_assert_ptr_nonnull(lakebed_torch_malloc(1, 0, NULL));
  ck_assert_uint_eq(number(0, "reserved_bytes", "current"), 2 * MIB);
}
END_TEST

START_TEST(what_is_served_and_what_passes_by_is_counted) {
  configure("bfc", "sim:h200:1GiB");
  void *pointer = lakebed_torch_malloc(1000, 0, NULL);
  ck_assert_ptr_nonnull(pointer);
  ck_assert_ptr_null(lakebed_torch_malloc(0, 0, NULL));
  lakebed_torch_free(NULL, 0, 0, NULL);
  lakebed_torch_free((char *)pointer + 512, 1000, 0, NULL);
  lakebed_torch_free(pointer, 1000, 7, NULL);
  ck_assert_uint_eq(number(0, "served_allocations", NULL), 1);
  ck_assert_uint_eq(number(0, "bypassed_allocations", NULL), 1);
  ck_assert_uint_eq(number(0, "served_frees", NULL), 0);
  ck_assert_uint_eq(number(0, "bypassed_frees", NULL), 2);
  lakebed_torch_free(pointer, 1000, 0, NULL);
  lakebed_torch_free(pointer, 1000, 0, NULL);
  ck_assert_uint_eq(number(0, "served_frees", NULL), 1);
  ck_assert_uint_eq(number(0, "bypassed_frees", NULL), 3);
  ck_assert_uint_eq(number(0, "allocated_bytes", "peak"), 1024);
  lakebed_torch_reset_peaks(0);
  ck_assert_uint_eq(number(0, "allocated_bytes", "peak"), 0);
  lakebed_torch_empty_cache();
  ck_assert_uint_eq(number(0, "reserved_bytes", "current"), 0);
}
END_TEST

START_TEST(out_of_memory_is_told_and_smaller_requests_go_on) {
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    if ((*class)->capabilities & (POLICY_NO_MEMORY | POLICY_NEEDS_LIFETIMES)) continue;
    configure((*class)->name, "sim:h200:256MiB");
    void *kept[4];
    for (int i = 0; i < 4; i++) {
      kept[i] = lakebed_torch_malloc(50 * MIB, 0, NULL);
      ck_assert_msg(kept[i] != NULL, "%s: %s", (*class)->name, lakebed_torch_failure());
    }
    lakebed_torch_free(kept[1], 0, 0, NULL);
    /* No libtorch is loaded here, so nothing is thrown. */
    ck_assert_ptr_null(lakebed_torch_malloc(200 * MIB, 0, NULL));
    const char *failure = lakebed_torch_failure();
    ck_assert_ptr_nonnull(strstr(failure, "CUDA out of memory. Tried to allocate 200 MiB."));
    ck_assert_msg(strstr(failure, (*class)->name) != NULL, "%s", failure);
    ck_assert_ptr_null(lakebed_torch_segment_malloc(200 * MIB, 0, NULL));
    ck_assert_uint_eq(number(0, "out_of_memory", NULL), 2);
    kept[1] = lakebed_torch_malloc(40 * MIB, 0, NULL);
    ck_assert_msg(kept[1] != NULL, "%s: %s", (*class)->name, lakebed_torch_failure());
    ck_assert_msg(lakebed_torch_check(0, message, sizeof message) == 0, "%s: %s", (*class)->name, message);
    for (int i = 0; i < 4; i++) lakebed_torch_free(kept[i], 0, 0, NULL);
    lakebed_torch_close();
  }
}
END_TEST

enum { THREADS = 4, LIVE = 24, ROUNDS = 600 };

typedef struct worker {
  pthread_t thread;
  unsigned number;
} worker;

/* Allocates and frees on a stream of its own; some blocks are used on the next thread's stream. */
static void *work(void *context) {
  const worker *self = context;
  void *live[LIVE] = {NULL};
  uint64_t random = self->number + 1;
  for (unsigned round = 0; round < ROUNDS; round++) {
    random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
    unsigned slot = (unsigned)(random >> 33) % LIVE;
    if (live[slot]) {
      if (random >> 60 == 0)
        lakebed_torch_record_stream(live[slot], stream((self->number + 1) % THREADS + 1));
      lakebed_torch_free(live[slot], 0, 0, NULL);
    }
    live[slot] = lakebed_torch_malloc((size_t)1 << (random >> 40) % 24, 0, stream(self->number + 1));
    if (!live[slot]) return (void *)lakebed_torch_failure();
  }
  for (unsigned slot = 0; slot < LIVE; slot++) lakebed_torch_free(live[slot], 0, 0, NULL);
  return NULL;
}

START_TEST(threads_share_a_policy) {
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    if ((*class)->capabilities & (POLICY_NO_MEMORY | POLICY_NEEDS_LIFETIMES)) continue;
    configure((*class)->name, "sim:h200:8GiB");
    worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
      workers[i].number = i;
      ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
      void *failure;
      pthread_join(workers[i].thread, &failure);
      ck_assert_msg(failure == NULL, "%s: a request was not served", (*class)->name);
    }
    ck_assert_msg(lakebed_torch_check(0, message, sizeof message) == 0, "%s: %s", (*class)->name, message);
    ck_assert_uint_eq(number(0, "served_allocations", NULL), THREADS * ROUNDS);
    ck_assert_uint_eq(number(0, "served_frees", NULL), THREADS * ROUNDS);
    ck_assert_uint_eq(number(0, "streams", NULL), THREADS + 1);
    lakebed_torch_empty_cache();
    ck_assert_uint_eq(number(0, "reserved_bytes", "current"), 0);
    lakebed_torch_close();
  }
}
END_TEST

START_TEST(devices_have_policies_of_their_own) {
  configure("gmlake", "sim:h200:1GiB");
  void *first = lakebed_torch_malloc(10 * MIB, 0, NULL), *second = lakebed_torch_malloc(30 * MIB, 3, NULL);
  ck_assert(first && second);
  ck_assert_uint_eq(number(0, "requested_bytes", "current"), 10 * MIB);
  ck_assert_uint_eq(number(3, "requested_bytes", "current"), 30 * MIB);
  ck_assert_uint_eq(lakebed_torch_statistics(1, NULL, 0), 0);
  lakebed_torch_free(first, 0, 0, NULL);
  lakebed_torch_free(second, 0, 3, NULL);
  lakebed_torch_empty_cache();
  ck_assert_uint_eq(number(3, "reserved_bytes", "current"), 0);
}
END_TEST

START_TEST(a_fraction_bounds_what_is_held) {
  configure("aliasheap", "sim:h200:1GiB");
  lakebed_torch_memory_fraction(0.25, 0);
  ck_assert_ptr_null(lakebed_torch_malloc(300 * MIB, 0, NULL));
  ck_assert_ptr_nonnull(strstr(lakebed_torch_failure(), "It may hold 256 MiB"));
  ck_assert_uint_eq(number(0, "limit_bytes", NULL), 256 * MIB);
  lakebed_torch_memory_fraction(0.5, 0);
  void *pointer = lakebed_torch_malloc(300 * MIB, 0, NULL);
  ck_assert_ptr_nonnull(pointer);
  lakebed_torch_memory_fraction(2, 0);
  lakebed_torch_memory_fraction(0.5, -1);
  ck_assert_uint_eq(number(0, "limit_bytes", NULL), 512 * MIB);
  lakebed_torch_free(pointer, 0, 0, NULL);
}
END_TEST

/* As PyTorch's set_per_process_memory_fraction: at 0 nothing, at 1 no limit. */
START_TEST(all_or_nothing_may_be_held) {
  static const char *const specs[] = {"aliasheap", "gmlake", "bfc",    "expandable",
                                      "async",     "native", "rawvmm", "tfbfc"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    lakebed_torch_close();
    configure(specs[i], "sim:h200:1GiB");
    lakebed_torch_memory_fraction(0, 0);
    ck_assert_msg(!lakebed_torch_malloc(MIB, 0, NULL), "%s", specs[i]);
    ck_assert_uint_eq(number(0, "limit_bytes", NULL), 0);
    lakebed_torch_memory_fraction(1, 0);
    ck_assert_msg(!has_limit(0), "%s", specs[i]);
    void *pointer = lakebed_torch_malloc(900 * MIB, 0, NULL);
    ck_assert_msg(pointer != NULL, "%s: %s", specs[i], lakebed_torch_failure());
    lakebed_torch_free(pointer, 0, 0, NULL);
    lakebed_torch_empty_cache();
    lakebed_torch_memory_fraction(0, 0);
    ck_assert_msg(!lakebed_torch_malloc(MIB, 0, NULL), "%s", specs[i]);
    ck_assert_int_eq(lakebed_torch_check(0, message, sizeof message), 0);
  }
}
END_TEST

static char folder[PATH_MAX];
static char path[PATH_MAX + 16];

static void make_folder(void) {
  snprintf(folder, sizeof folder, "%s/lakebed_torch.XXXXXX", test_scratch());
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/run.lbt", folder);
}

/* The events of the recording, and their number. */
static trace_events recorded(void) {
  trace_events loaded;
  trace_error error;
  ck_assert_msg(trace_load(path, NULL, &loaded, &error) == TRACE_OK, "%s", error.message);
  return loaded;
}

START_TEST(a_recording_holds_the_run) {
  make_folder();
  configure("bfc", "sim:h200:256MiB");
  ck_assert_int_eq(lakebed_torch_record_begin(path, -1, message, sizeof message), 0);
  ck_assert_int_eq(lakebed_torch_record_begin(path, -1, message, sizeof message), VMM_NOT_PERMITTED);
  void *first = lakebed_torch_malloc(1000, 0, NULL), *second = lakebed_torch_malloc(5 * MIB, 0, stream(9));
  ck_assert_int_eq(lakebed_torch_record_begin(path, 0, message, sizeof message), VMM_NOT_PERMITTED);
  lakebed_torch_free(first, 0, 0, NULL);
  ck_assert_ptr_null(lakebed_torch_malloc(512 * MIB, 0, NULL));
  ck_assert_int_ne(access(path, F_OK), 0);
  ck_assert_msg(lakebed_torch_record_end(-1, message, sizeof message) == 0, "%s", message);
  ck_assert_int_eq(lakebed_torch_record_end(0, message, sizeof message), VMM_NOT_FOUND);
  lakebed_torch_free(second, 0, 0, NULL);
  trace_events events = recorded();
  ck_assert_uint_eq(events.count, 4);
  ck_assert_uint_eq(events.events[0].size, 1000);
  ck_assert_uint_eq(events.events[1].size, 5 * MIB);
  ck_assert_uint_eq(events.events[1].stream, 1);
  ck_assert_int_eq(events.events[2].kind, TRACE_FREE);
  ck_assert_int_eq(events.events[3].kind, TRACE_OUT_OF_MEMORY);
  ck_assert_uint_eq(events.events[3].size, 512 * MIB);
  trace_events_free(&events);
}
END_TEST

START_TEST(a_recording_that_begins_late_begins_with_what_is_live) {
  make_folder();
  configure("aliasheap", "sim:h200:256MiB");
  void *gone = lakebed_torch_malloc(3000, 0, NULL), *kept = lakebed_torch_malloc(7 * MIB, 0, stream(3));
  lakebed_torch_free(gone, 0, 0, NULL);
  ck_assert_msg(lakebed_torch_record_begin(path, 0, message, sizeof message) == 0, "%s", message);
  lakebed_torch_free(kept, 0, 0, NULL);
  ck_assert_int_eq(lakebed_torch_record_end(0, message, sizeof message), 0);
  trace_events events = recorded();
  ck_assert_uint_eq(events.count, 2);
  ck_assert_uint_eq(events.events[0].size, 7 * MIB);
  ck_assert_uint_eq(events.events[0].stream, 1);
  trace_events_free(&events);
}
END_TEST

START_TEST(a_recording_that_cannot_be_written_is_told) {
  configure("bfc", "sim:h200:256MiB");
  ck_assert_int_eq(lakebed_torch_record_end(0, message, sizeof message), VMM_NOT_FOUND);
  ck_assert_int_eq(lakebed_torch_record_begin("/nowhere/run.lbt", -1, message, sizeof message), 0);
  ck_assert_ptr_nonnull(lakebed_torch_malloc(1, 0, NULL));
  ck_assert_int_eq(lakebed_torch_record_end(-1, message, sizeof message), VMM_OPERATING_SYSTEM);
  ck_assert_ptr_nonnull(strstr(message, "/nowhere/run.lbt"));
  ck_assert_int_eq(lakebed_torch_record_begin("/nowhere/run.lbt", 0, message, sizeof message),
                   VMM_OPERATING_SYSTEM);
}
END_TEST

static void *freed_at_exit;
static void free_late(void) { lakebed_torch_free(freed_at_exit, 0, 0, NULL); }

START_TEST(at_exit_a_recording_is_completed) {
  make_folder();
  pid_t child = fork();
  if (child == 0) {
    configure("aliasheap", "sim:h200:256MiB");
    lakebed_torch_record_begin(path, -1, message, sizeof message);
    freed_at_exit = lakebed_torch_malloc(MIB, 0, NULL);
    lakebed_torch_malloc(2 * MIB, 0, NULL);
    atexit(free_late);
    exit(5);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 5);
  trace_events events = recorded();
  ck_assert_uint_eq(events.count, 3);
  trace_events_free(&events);
}
END_TEST

START_TEST(a_forked_child_is_refused_and_changes_nothing) {
  make_folder();
  configure("gmlake", "sim:h200:256MiB");
  ck_assert_int_eq(lakebed_torch_record_begin(path, -1, message, sizeof message), 0);
  void *pointer = lakebed_torch_malloc(MIB, 0, NULL);
  pid_t child = fork();
  if (child == 0) {
    lakebed_torch_free(pointer, 0, 0, NULL);
    bool refused = !lakebed_torch_malloc(MIB, 0, NULL) && strstr(lakebed_torch_failure(), "forked");
    lakebed_torch_record_stream(pointer, stream(1));
    lakebed_torch_empty_cache();
    bool silent = lakebed_torch_statistics(0, NULL, 0) == 0;
    exit(refused && silent ? 0 : 1);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ck_assert_int_ne(access(path, F_OK), 0);
  lakebed_torch_free(pointer, 0, 0, NULL);
  ck_assert_uint_eq(number(0, "served_frees", NULL), 1);
  ck_assert_int_eq(lakebed_torch_record_end(0, message, sizeof message), 0);
  trace_events events = recorded();
  ck_assert_uint_eq(events.count, 2);
  trace_events_free(&events);
}
END_TEST

static Suite *plugin_suite(void) {
  Suite *suite = suite_create("torch_plugin");
  TCase *all = tcase_create("all");
  tcase_add_checked_fixture(all, quiet, close_all);
  tcase_add_test(all, bad_configurations_are_refused_with_a_reason);
  tcase_add_test(all, the_environment_chooses_where_nobody_configures);
  tcase_add_test(all, what_is_served_and_what_passes_by_is_counted);
  tcase_add_test(all, out_of_memory_is_told_and_smaller_requests_go_on);
  tcase_add_test(all, threads_share_a_policy);
  tcase_add_test(all, devices_have_policies_of_their_own);
  tcase_add_test(all, a_fraction_bounds_what_is_held);
  tcase_add_test(all, all_or_nothing_may_be_held);
  tcase_add_test(all, a_recording_holds_the_run);
  tcase_add_test(all, a_recording_that_begins_late_begins_with_what_is_live);
  tcase_add_test(all, a_recording_that_cannot_be_written_is_told);
  tcase_add_test(all, at_exit_a_recording_is_completed);
  tcase_add_test(all, a_forked_child_is_refused_and_changes_nothing);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(plugin_suite)
