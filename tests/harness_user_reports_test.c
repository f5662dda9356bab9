/* What users of other allocators ran into, for the program. docs/user-problems.md says where each report is
 * tested; these have no better place. */
#define _GNU_SOURCE
#include <jansson.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/exit_status.h"
#include "harness/replay.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define MIB (UINT64_C(1) << 20)

/* ---- rmm#2553: what a replay of a log did not say ---- */

/* Two streams, a request that failed when recorded, and one that fails here. */
static const char log_of_two_streams[] =
    "Thread,Time,Action,Pointer,Size,Stream\n"
    "1,00:00:00.000001,allocate,0x7f0000000000,41943040,0\n"
    "1,00:00:00.000002,allocate,0x7f0010000000,41943040,0x2\n"
    "1,00:00:00.000003,free,0x7f0000000000,41943040,0\n"
    "1,00:00:00.000004,allocate,0x7f0020000000,20971520,0x2\n"
    "1,00:00:00.000005,allocate failure,(nil),62914560,0\n"
    "1,00:00:00.000006,allocate,0x7f0030000000,83886080,0x2\n";

START_TEST(a_log_that_does_not_fit) {
  char *path = write_test_file("streams.csv", log_of_two_streams);
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "-q", "--capacity", "122MiB",
                                  "--policy", "bfc", path);
  static const char *const pieces[] = {"streams.csv",
                                       "4 allocations, 2 streams",
                                       "out of memory 1 time when recorded",
                                       "bfc: 1 request found no memory",
                                       "event          4, id 139638782033920, stream 1",
                                       "wanted         80.0 MiB (83886080 bytes)",
                                       "live           60.0 MiB",
                                       "reserved       60.0 MiB",
                                       "largest free   0 B",
                                       "device         62.0 MiB free of 122 MiB",
                                       "cuMemAlloc(size=83886080) returned CUDA_ERROR_OUT_OF_MEMORY (2)",
                                       "bfc: 1 of 1 served"};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) ck_assert_has(run.output, pieces[i]);
  program_run_free(&run);
  free(path);
  path = write_test_file("broken.csv",
                         "Thread,Time,Action,Pointer,Size,Stream\n"
                         "1,00:00:00.000001,allocate,0x7f0000000000,41943040,0\n"
                         "1,00:00:00.000002,allocate,0x7f0010000000,forty,0\n");
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "--policy", "bfc", path);
  ck_assert_has(run.errors, "broken.csv:3:");
  program_run_free(&run);
  free(path);
}
END_TEST

/* ---- pytorch#192269: addresses run out before memory does ---- */

START_TEST(exhausted_addresses_are_told) {
  enum { STREAMS = 230 };
  static char events[STREAMS * 32];
  size_t used = 0;
  for (int stream = 0; stream < STREAMS; stream++)
    used += (size_t)snprintf(events + used, sizeof events - used, "a %d 20971520 %d\n", stream, stream);
  char *path = write_test_file("streams.txt", events);
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "-q", "--capacity", "512GiB",
                                  "--policy", "expandable,bfc", path);
  static const char *const pieces[] = {
      "expandable: 7 requests found no memory", "device         508 GiB free of 512 GiB",
      "cuMemAddressReserve(size=618492067840, alignment=2097152) returned CUDA_ERROR_OUT_OF_MEMORY (2): "
      "no address space left for that",
      "served by      bfc", "best           bfc, which served all with at most"};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) ck_assert_has(run.output, pieces[i]);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "-q", "--capacity", "512GiB", "--policy",
                      "expandable", "--json", "-", path);
  json_t *array = parse_output(&run);
  /* 126 TiB in pieces of 9/8 of the device, in pages of 20 MiB. */
  const json_t *counters = json_object_get(json_array_get(array, 0), "counters");
  ck_assert_double_eq(json_number(counters, "reservations_count"), 126 * 1024 * 1024 / 589840);
  ck_assert_double_eq(json_number(counters, "reserved_address_bytes"), 223.0 * 618492067840.0);
  json_decref(array);
  program_run_free(&run);
  free(path);
}
END_TEST

/* ---- pytorch#142127: the same address twice ---- */

typedef struct doubling {
  policy base;
  vmm_address first;
  bool secretly; /* the heap is not told */
} doubling;

static bool secretly;

static vmm_status doubling_create(const policy_configuration *configuration, policy **created, char *message,
                                  size_t message_size) {
  (void)message;
  (void)message_size;
  doubling *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  vmm_status status = pool_heap_init(&self->base.heap, configuration->driver, false, configuration->limit);
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  self->secretly = secretly;
  *created = &self->base;
  return VMM_SUCCESS;
}

static void doubling_destroy(policy *self) {
  pool_heap_fini(&self->heap);
  free(self);
}

static vmm_status doubling_alloc(policy *base, uint64_t size, vmm_stream stream, vmm_address *address) {
  doubling *self = (doubling *)base;
  if (self->first) {
    *address = self->first;
    return self->secretly ? VMM_SUCCESS
                          : pool_heap_hand_out(&base->heap, self->first, size, size, stream, NULL);
  }
  pool_segment *segment;
  vmm_status status = pool_segment_allocate(&base->heap, size, &segment);
  if (status != VMM_SUCCESS) return status;
  self->first = *address = segment->address;
  return pool_heap_hand_out(&base->heap, self->first, size, size, stream, segment);
}

static vmm_status doubling_free(policy *self, vmm_address address) {
  (void)self;
  (void)address;
  return VMM_SUCCESS;
}

static const policy_class doubling_policy = {.magic = POLICY_MAGIC,
                                             .abi = POLICY_ABI,
                                             .size = sizeof(policy_class),
                                             .name = "doubling",
                                             .summary = "gives out its first address for ever",
                                             .create = doubling_create,
                                             .destroy = doubling_destroy,
                                             .alloc = doubling_alloc,
                                             .free = doubling_free};

START_TEST(an_address_given_out_twice_is_found) {
  static const char *const messages[] = {
      "event 1: to allocate 4194304 bytes (id 8) failed: invalid value",
      "event 2: the 4194304 bytes that event 0 allocated",
  };
  device_model model;
  progress silent;
  char message[512];
  const device_choice choice = {.driver = "sim", .profile = "h200", .capacity = 64 * MIB, .backed = true};
  ck_assert_int_eq(device_model_load(&choice, &model, message, sizeof message), EXIT_STATUS_DONE);
  progress_init(&silent, true);
  replay_settings settings = {.model = &model, .limit = UINT64_MAX, .laps = 1, .verify = true};
  policy_spec spec = {.class = &doubling_policy};
  char *path = write_test_file("twice.txt", "a 7 4194304 0\na 8 4194304 0\nf 7\nf 8\n");
  event_source *source;
  trace_error error;
  secretly = _i == 1;
  ck_assert_int_eq(event_source_open(path, NULL, &source, &error), TRACE_OK);
  replay_result result;
  replay_run(source, &spec, &settings, &silent, &result);
  event_source_close(source);
  ck_assert(!result.complete);
  ck_assert_int_eq(result.status, EXIT_STATUS_CHECK_FAILED);
  ck_assert_has(result.message, messages[_i]);
  if (secretly) ck_assert_has(result.message, "that is what event 1 has at offset 0");
  replay_result_free(&result);
  device_model_unload(&model);
  free(path);
}
END_TEST

/* ---- tensorflow#38120: what was asked for is not what runs ---- */

START_TEST(every_effective_option_is_told) {
  char *path = write_test_file("few.txt", "a 1 4194304 0\nf 1\n");
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--details", path);
  program_run data = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--json", "-", path);
  json_t *array = parse_output(&data);
  size_t count = 0;
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    const json_t *object = json_array_get(array, count++);
    ck_assert_str_eq(json_string_value(json_object_get(object, "policy")), (*class)->name);
    const json_t *options = json_object_get(object, "options");
    size_t known = 0;
    for (const policy_option *option = (*class)->options; option && option->name; option++, known++) {
      char text[192];
      snprintf(text, sizeof text, "%s=%s", option->name, option->default_value);
      ck_assert_has(run.output, text);
      ck_assert_msg(json_object_get(options, option->name) != NULL, "%s is missing", option->name);
    }
    ck_assert_uint_eq(json_object_size(options), known);
  }
  ck_assert_uint_eq(json_array_size(array), count);
  json_decref(array);
  program_run_free(&data);
  program_run_free(&run);
  free(path);
}
END_TEST

/* ---- Megatron-Bridge#3487: a snapshot without a recording ---- */

START_TEST(a_snapshot_without_events_is_explained) {
  static const char unrecorded[] = "tests/data/snapshots/unrecorded.pickle";
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "--policy", "bfc", unrecorded);
  ck_assert_has(run.errors,
                "the snapshot holds no events (device_traces is empty): was history recording on?");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "info", unrecorded);
  ck_assert_has(run.errors, "_record_memory_history");
  program_run_free(&run);
  run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--policy", "bfc", "--seed-from-segments", unrecorded);
  ck_assert_has(run.output, "from before the recording");
  program_run_free(&run);
}
END_TEST

/* ---- glake#22: does it do anything? ---- */

START_TEST(what_is_below_the_limit_is_counted) {
  char events[1024];
  size_t used = 0;
  for (int i = 1; i <= 16; i++)
    used += (size_t)snprintf(events + used, sizeof events - used, "a %d %d 0\n", i, i << 24);
  char *path = write_test_file("below.txt", events);
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--policy", "gmlake:frag_limit=512MiB",
                                  "--json", "-", path);
  json_t *array = parse_output(&run);
  const json_t *object = json_array_get(array, 0);
  ck_assert_double_eq(json_number(json_object_get(object, "counters"), "requests_below_frag_limit_count"),
                      16);
  const json_t *operations = json_object_get(object, "operations");
  static const char *const states[] = {"S1", "S2", "S3", "S4", "S5"};
  for (int i = 0; i < 5; i++)
    ck_assert_double_eq(json_number(json_object_get(operations, states[i]), "count"), i == 3 ? 16 : 0);
  ck_assert_double_gt(json_number(json_object_get(operations, "S4"), "driver_us"), 0);
  json_decref(array);
  program_run_free(&run);
  free(path);
}
END_TEST

/* ---- rmm#529: all pools at once do not fit ---- */

START_TEST(policies_have_the_device_to_themselves) {
  char *path = write_test_file("most.txt", "a 1 62914560 0\na 2 33554432 0\nf 1\nf 2\n");
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--check", "--capacity", "128MiB", "--policy",
                    "native,async,bfc,expandable,rawvmm,gmlake,aliasheap", "--json", "-", path);
  json_t *array = parse_output(&run);
  ck_assert_uint_eq(json_array_size(array), 7);
  for (size_t i = 0; i < 7; i++)
    ck_assert_double_ge(json_number(json_array_get(array, i), "reserved_peak_bytes"), 92.0 * (double)MIB);
  json_decref(array);
  program_run_free(&run);
  free(path);
}
END_TEST

/* ---- sglang#36643: libraries that are not there ---- */

static int is_optional(struct dl_phdr_info *loaded, size_t size, void *context) {
  static const char *const optional[] = {"libcuda", "libcudart", "libcupti", "libnv"};
  (void)size;
  for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
    if (loaded->dlpi_name && strstr(loaded->dlpi_name, optional[i])) *(const char **)context = optional[i];
  }
  return 0;
}

/* The tests are linked as the program is. Where the machine has a GPU nothing is loaded before it is asked
 * for. */
START_TEST(starts_without_any_library_of_the_vendor) {
  const char *found = NULL;
  dl_iterate_phdr(is_optional, &found);
  ck_assert_msg(found == NULL, "%s is loaded", found);
}
END_TEST

static Suite *user_reports_suite(void) {
  Suite *suite = suite_create("harness_user_reports");
  TCase *reports = tcase_create("reports of users");
  tcase_add_test(reports, a_log_that_does_not_fit);
  tcase_add_test(reports, exhausted_addresses_are_told);
  tcase_add_loop_test(reports, an_address_given_out_twice_is_found, 0, 2);
  tcase_add_test(reports, every_effective_option_is_told);
  tcase_add_test(reports, a_snapshot_without_events_is_explained);
  tcase_add_test(reports, what_is_below_the_limit_is_counted);
  tcase_add_test(reports, policies_have_the_device_to_themselves);
  tcase_add_test(reports, starts_without_any_library_of_the_vendor);
  suite_add_tcase(suite, reports);
  return suite;
}

TEST_MAIN(user_reports_suite)
