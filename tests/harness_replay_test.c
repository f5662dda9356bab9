/* The replay loop against policies that break their promises, and its accounts. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "harness/replay.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define MIB (UINT64_C(1) << 20)

/* ---- policies that misbehave ---- */

/* A heap, and whatever a bad policy remembers. */
typedef struct bad_policy {
  policy base;
  vmm_address kept;
  uint64_t calls;
} bad_policy;

static vmm_status bad_create(const policy_configuration *configuration, policy **created, char *message,
                             size_t message_size) {
  (void)message;
  (void)message_size;
  bad_policy *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  vmm_status status = pool_heap_init(&self->base.heap, configuration->driver, false, configuration->limit);
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  *created = &self->base;
  return VMM_SUCCESS;
}

static void bad_destroy(policy *self) {
  pool_heap_fini(&self->heap);
  free(self);
}

static vmm_status segment_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  pool_segment *segment;
  vmm_status status = pool_segment_allocate(&self->heap, size, &segment);
  if (status != VMM_SUCCESS) return status;
  *address = segment->address;
  return pool_heap_hand_out(&self->heap, segment->address, size, size, stream, segment);
}

static vmm_status segment_free(policy *self, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(&self->heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  vmm_status status = pool_segment_free(&self->heap, allocation->owner);
  if (status == VMM_SUCCESS) pool_heap_take_back(&self->heap, allocation, &taken, &status);
  return status;
}

/* Frees the caller's block and keeps the memory behind it for ever. */
static vmm_status hoarding_free(policy *self, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(&self->heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  vmm_status status;
  pool_heap_take_back(&self->heap, allocation, &taken, &status);
  return status;
}

/* Takes memory behind the heap's back and never returns it. */
static vmm_status leaking_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  vmm_address leaked;
  vmm_status status = vmm_malloc(self->heap.driver, 4 * MIB, &leaked);
  return status == VMM_SUCCESS ? segment_alloc(self, size, stream, address) : status;
}

/* Gives out the second half of the block before: two live allocations share memory. */
static vmm_status sharing_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  bad_policy *bad = (bad_policy *)self;
  if (bad->kept) {
    *address = bad->kept + size / 2;
    return pool_heap_hand_out(&self->heap, *address, size / 2, size / 2, stream, NULL);
  }
  vmm_status status = segment_alloc(self, size, stream, address);
  bad->kept = *address;
  return status;
}

static vmm_status sharing_free(policy *self, vmm_address address) {
  return address == ((bad_policy *)self)->kept ? segment_free(self, address) : hoarding_free(self, address);
}

/* The third request breaks. */
static vmm_status breaking_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  if (++((bad_policy *)self)->calls == 3) return VMM_ILLEGAL_ADDRESS;
  return segment_alloc(self, size, stream, address);
}

/* Says that it holds more than it has. */
static vmm_status boasting_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  pool_statistic_add(&self->heap.statistics.reserved_bytes, 1024 * MIB);
  return segment_alloc(self, size, stream, address);
}

static void boasting_destroy(policy *self) {
  pool_statistic_take(&self->heap.statistics.reserved_bytes, self->heap.statistics.reserved_bytes.current);
  bad_destroy(self);
}

#define BAD_POLICY(NAME, ALLOC, FREE, DESTROY) \
  static const policy_class NAME##_policy = {  \
      .magic = POLICY_MAGIC,                   \
      .abi = POLICY_ABI,                       \
      .size = sizeof(policy_class),            \
      .name = #NAME,                           \
      .summary = "misbehaves",                 \
      .create = bad_create,                    \
      .destroy = DESTROY,                      \
      .alloc = ALLOC,                          \
      .free = FREE,                            \
  }

BAD_POLICY(plain, segment_alloc, segment_free, bad_destroy);
BAD_POLICY(hoarding, segment_alloc, hoarding_free, bad_destroy);
BAD_POLICY(leaking, leaking_alloc, segment_free, bad_destroy);
BAD_POLICY(sharing, sharing_alloc, sharing_free, bad_destroy);
BAD_POLICY(breaking, breaking_alloc, segment_free, bad_destroy);
BAD_POLICY(boasting, boasting_alloc, segment_free, boasting_destroy);

/* ---- a replay of a few events ---- */

static device_model model;
static replay_settings settings;
static progress silent;

static void open_model(uint64_t capacity, bool backed) {
  char message[512];
  const device_choice choice = {.driver = "sim", .profile = "h200", .capacity = capacity, .backed = backed};
  exit_status status = device_model_load(&choice, &model, message, sizeof message);
  ck_assert_msg(status == EXIT_STATUS_DONE, "%s", message);
  settings = (replay_settings){.model = &model, .limit = UINT64_MAX, .laps = 1};
}

static void setup(void) {
  open_model(1024 * MIB, false);
  progress_init(&silent, true);
}

static void teardown(void) { device_model_unload(&model); }

static replay_result replay_events(const policy_class *class, const char *events) {
  static policy_spec spec; /* the result borrows it */
  spec = (policy_spec){.class = class};
  char *path = write_test_file("events.txt", events);
  event_source *source;
  trace_error error;
  ck_assert_int_eq(event_source_open(path, NULL, &source, &error), TRACE_OK);
  replay_result result;
  replay_run(source, &spec, &settings, &silent, &result);
  event_source_close(source);
  free(path);
  return result;
}

#define FOUR_EVENTS "a 1 2097152 0\na 2 100 0\nf 1\nf 2\n"

START_TEST(accounts_of_a_small_trace) {
  replay_result result = replay_events(&plain_policy, "a 1 2097152 0\na 2 100 1\nf 1\na 3 513 0\n");
  ck_assert_msg(result.complete, "%s", result.message);
  ck_assert_int_eq(result.status, EXIT_STATUS_DONE);
  ck_assert_uint_eq(result.events, 4);
  ck_assert_uint_eq(result.live_peak_bytes, 2097152 + 512);
  ck_assert_uint_eq(result.statistics.reserved_bytes.peak, 2097152 + 100);
  ck_assert_uint_eq(result.statistics.reserved_bytes.current, 100 + 513);
  ck_assert_uint_eq(result.driver_calls, 4);
  ck_assert_uint_eq(result.calls[VMM_CALL_MALLOC].count, 3);
  ck_assert_uint_eq(result.calls[VMM_CALL_FREE].count, 1);
  uint64_t sum = result.calls[VMM_CALL_MALLOC].total_ns + result.calls[VMM_CALL_FREE].total_ns;
  ck_assert_uint_eq(result.driver_ns, sum);
  ck_assert_uint_gt(sum, 0);
  /* The device gives memory in steps of 2 MiB. */
  ck_assert_uint_eq(result.device_peak_bytes, 4 * MIB);
  ck_assert_uint_eq(result.lap_count, 1);
  ck_assert_uint_eq(result.laps[0].events, 4);
  ck_assert_uint_eq(result.laps[0].segments, 2);
  replay_result_free(&result);
}
END_TEST

START_TEST(laps_free_everything_between) {
  settings.laps = 3;
  replay_result result = replay_events(&plain_policy, "a 1 2097152 0\na 2 100 1\nf 1\n");
  ck_assert_msg(result.complete, "%s", result.message);
  ck_assert_uint_eq(result.events, 9);
  ck_assert_uint_eq(result.lap_count, 3);
  for (size_t i = 0; i < 3; i++) {
    ck_assert_uint_eq(result.laps[i].events, 3);
    ck_assert_uint_eq(result.laps[i].reserved_bytes, 0);
    ck_assert_uint_eq(result.laps[i].driver_calls, 4);
  }
  ck_assert_uint_eq(result.settled_lap, 1);
  ck_assert_str_eq(result.drift, "");
  /* What the trace left alive counts as the end. */
  ck_assert_uint_eq(result.statistics.reserved_bytes.current, 100);
  replay_result_free(&result);
}
END_TEST

START_TEST(growing_laps_are_found) {
  settings.laps = 3;
  replay_result result = replay_events(&hoarding_policy, FOUR_EVENTS);
  ck_assert(result.complete);
  ck_assert_uint_eq(result.settled_lap, 0);
  ck_assert_has(result.drift, "reserved bytes grew");
  replay_result_free(&result);
  settings.laps = 6;
  result = replay_events(&hoarding_policy, FOUR_EVENTS);
  ck_assert(!result.complete);
  ck_assert_int_eq(result.status, EXIT_STATUS_CHECK_FAILED);
  ck_assert_has(result.message, "grew in every lap");
  replay_result_free(&result);
}
END_TEST

START_TEST(leaks_are_found) {
  replay_result result = replay_events(&leaking_policy, FOUR_EVENTS);
  ck_assert(!result.complete);
  ck_assert_int_eq(result.status, EXIT_STATUS_CHECK_FAILED);
  ck_assert_has(result.message, "leaks");
  ck_assert_has(result.message, "8388608 bytes in 2 allocations");
  replay_result_free(&result);
}
END_TEST

START_TEST(shared_memory_is_found) {
  settings.check = true;
  replay_result result = replay_events(&sharing_policy, "a 1 4194304 0\na 2 4194304 0\nf 1\nf 2\n");
  ck_assert(!result.complete);
  ck_assert_int_eq(result.status, EXIT_STATUS_CHECK_FAILED);
  ck_assert_has(result.message, "event 1: the policy's invariants do not hold");
  replay_result_free(&result);
}
END_TEST

START_TEST(overwritten_memory_is_found) {
  teardown();
  open_model(64 * MIB, true);
  settings.verify = true;
  replay_result result = replay_events(&plain_policy, "a 1 4194304 0\na 2 1000 1\nf 1\na 3 9 0\nf 3\nf 2\n");
  ck_assert_msg(result.complete, "%s", result.message);
  replay_result_free(&result);
  result = replay_events(&sharing_policy, "a 1 4194304 0\na 2 2097152 0\nf 1\nf 2\n");
  ck_assert(!result.complete);
  ck_assert_int_eq(result.status, EXIT_STATUS_CHECK_FAILED);
  ck_assert_has(result.message, "event 2: the 4194304 bytes that event 0 allocated");
  ck_assert_has(result.message, "that is what event 1 has at offset 0 of its 2097152 bytes");
  replay_result_free(&result);
  /* What the trace leaves alive is compared too. */
  result = replay_events(&sharing_policy, "a 1 4194304 0\na 2 2097152 0\n");
  ck_assert_int_eq(result.status, EXIT_STATUS_CHECK_FAILED);
  replay_result_free(&result);
}
END_TEST

START_TEST(failing_calls_stop_the_run) {
  replay_result result = replay_events(&breaking_policy, "a 1 512 0\na 2 512 0\na 77 1024 0\nf 1\n");
  ck_assert(!result.complete);
  ck_assert_int_eq(result.status, EXIT_STATUS_CHECK_FAILED);
  ck_assert_has(result.message, "event 2: to allocate 1024 bytes");
  ck_assert_has(result.message, "ILLEGAL_ADDRESS");
  ck_assert(replay_served(&result, 1));
  ck_assert(!replay_served(&result, 2));
  ck_assert(!replay_served(&result, 3));
  replay_result_free(&result);
}
END_TEST

START_TEST(impossible_numbers_are_found) {
  replay_result result = replay_events(&boasting_policy, "a 1 512 0\n");
  ck_assert(!result.complete);
  ck_assert_int_eq(result.status, EXIT_STATUS_CHECK_FAILED);
  ck_assert_has(result.message, "cannot be true");
  replay_result_free(&result);
}
END_TEST

START_TEST(failed_requests_are_remembered) {
  replay_result result = replay_events(
      &plain_policy, "a 1 1073741824 0\na 2 512 3\nf 1\na 3 512 0\na 4 2147483648 0\nf 2\nf 4\n");
  ck_assert(result.complete);
  ck_assert_int_eq(result.status, EXIT_STATUS_OUT_OF_MEMORY);
  ck_assert_uint_eq(result.failed_allocs, 2);
  ck_assert_uint_eq(result.live_peak_bytes, 1024 * MIB);
  const replay_failure *first = &result.first_failure;
  ck_assert_uint_eq(first->event, 1);
  ck_assert_uint_eq(first->id, 2);
  ck_assert_uint_eq(first->size, 512);
  ck_assert_uint_eq(first->live_bytes, 1024 * MIB);
  ck_assert_uint_eq(first->device_free_bytes, 0);
  ck_assert_has(first->driver_error, "cuMemAlloc(size=512)");
  const bool served[] = {true, false, true, true, false, true, true};
  for (uint64_t i = 0; i < sizeof served / sizeof *served; i++)
    ck_assert_int_eq(replay_served(&result, i), served[i]);
  ck_assert(!replay_served(&result, 7));
  replay_result_free(&result);
}
END_TEST

START_TEST(timeline_follows_the_events) {
  settings.timeline_points = 100;
  replay_result result = replay_events(&plain_policy, "a 1 2097152 0\na 2 100 0\nf 1\nf 2\n");
  ck_assert_uint_eq(result.timeline_count, 4);
  const uint64_t live[] = {2097152, 2097664, 512, 0}, reserved[] = {2097152, 2097252, 100, 0};
  for (size_t i = 0; i < 4; i++) {
    ck_assert_uint_eq(result.timeline[i].event, i);
    ck_assert_uint_eq(result.timeline[i].live_bytes, live[i]);
    ck_assert_uint_eq(result.timeline[i].reserved_bytes, reserved[i]);
  }
  replay_result_free(&result);
}
END_TEST

static const uint64_t pairs = EVENT_SOURCE_KEPT / 2 + 3 * EVENT_SOURCE_BATCH;

/* The path of a trace of more events than are kept, to be freed. */
static char *write_long_trace(void) {
  char *path = test_path("long.txt");
  FILE *stream = fopen(path, "w");
  ck_assert_ptr_nonnull(stream);
  for (uint64_t i = 0; i < pairs; i++)
    fprintf(stream, "a %" PRIu64 " %" PRIu64 " 0\nf %" PRIu64 "\n", i, i % 4096 + 1, i);
  ck_assert_int_eq(fclose(stream), 0);
  return path;
}

/* It is read again for every pass. */
START_TEST(long_traces_are_streamed) {
  char *path = write_long_trace();
  event_source *source;
  trace_error error;
  ck_assert_int_eq(event_source_open(path, NULL, &source, &error), TRACE_OK);
  for (int pass = 0; pass < 2; pass++) {
    uint64_t events = 0, bytes = 0;
    ck_assert_int_eq(event_source_rewind(source, &error), TRACE_OK);
    const trace_event *batch;
    size_t count;
    trace_status status;
    while ((status = event_source_next(source, &batch, &count, &error)) == TRACE_OK) {
      ck_assert_uint_ge(count, 1);
      ck_assert_uint_le(count, EVENT_SOURCE_BATCH);
      for (size_t i = 0; i < count; i++, events++) {
        ck_assert_int_eq(batch[i].kind, events % 2 ? TRACE_FREE : TRACE_ALLOC);
        if (batch[i].kind == TRACE_ALLOC) bytes += batch[i].size;
      }
    }
    ck_assert_int_eq(status, TRACE_END);
    ck_assert_uint_eq(events, 2 * pairs);
    ck_assert(event_source_complete(source));
    trace_summary summary;
    event_source_summary(source, &summary);
    ck_assert_uint_eq(summary.allocations + summary.frees, 2 * pairs);
    uint64_t expected = 0;
    for (uint64_t i = 0; i < pairs; i++) expected += i % 4096 + 1;
    ck_assert_uint_eq(bytes, expected);
  }
  /* Two passes over two contents cannot be compared. */
  FILE *changed = fopen(path, "a");
  ck_assert_ptr_nonnull(changed);
  fputs("# more\n", changed);
  ck_assert_int_eq(fclose(changed), 0);
  ck_assert_int_eq(event_source_rewind(source, &error), TRACE_UNREADABLE);
  ck_assert_has(error.message, "long.txt: changed while it was read");
  event_source_close(source);
  remove(path);
  free(path);
}
END_TEST

static program_run replay_standard_input(const char *path, const char *policies, const char *laps) {
  ck_assert_ptr_nonnull(freopen(path, "r", stdin));
  return run_program("replay", "-q", "--policy", policies, "--laps", laps, "-", (const char *)NULL);
}

START_TEST(standard_input_is_read_once) {
  static const char *const again[][2] = {{"null,null", "1"}, {"null", "2"}};
  char *path = write_long_trace(), *kept = write_test_file("kept.txt", FOUR_EVENTS);
  for (size_t i = 0; i < 2; i++) {
    program_run run = replay_standard_input(path, again[i][0], again[i][1]);
    ck_assert_int_eq(run.status, EXIT_STATUS_USAGE);
    ck_assert_has(run.errors,
                  "standard input can be read once, and the trace is too long to be kept in memory: "
                  "name one policy and one lap, or store it in a file");
    program_run_free(&run);
    run = replay_standard_input(kept, again[i][0], again[i][1]);
    ck_assert_int_eq(run.status, EXIT_STATUS_DONE);
    program_run_free(&run);
  }
  program_run run = replay_standard_input(path, "null", "1");
  ck_assert_int_eq(run.status, EXIT_STATUS_DONE);
  program_run_free(&run);
  run = replay_standard_input(path, "planned", "1");
  ck_assert_int_eq(run.status, EXIT_STATUS_USAGE);
  ck_assert_has(run.errors, "too long to be kept in memory: an oracle reads it twice; store it in a file");
  program_run_free(&run);
  run = replay_standard_input(kept, "planned", "2");
  ck_assert_int_eq(run.status, EXIT_STATUS_DONE);
  ck_assert_has(run.output, "planned is an oracle: it knows the whole trace in advance");
  program_run_free(&run);
  remove(path);
  free(path);
  free(kept);
}
END_TEST

/* A run that stops early leaves a source that the next can use. */
START_TEST(interrupted_passes_start_again) {
  char *path = write_test_file("short.txt", "a 1 512 0\na 2 512 0\na 3 512 0\nf 1\n");
  event_source *source;
  trace_error error;
  ck_assert_int_eq(event_source_open(path, NULL, &source, &error), TRACE_OK);
  static const policy_spec broken = {.class = &breaking_policy}, good = {.class = &plain_policy};
  replay_result result;
  replay_run(source, &broken, &settings, &silent, &result);
  ck_assert(!result.complete);
  replay_result_free(&result);
  replay_run(source, &good, &settings, &silent, &result);
  ck_assert(result.complete);
  ck_assert_uint_eq(result.events, 4);
  replay_result_free(&result);
  event_source_close(source);
  free(path);
}
END_TEST

static Suite *replay_suite(void) {
  Suite *suite = suite_create("replay");
  TCase *accounts = tcase_create("accounts");
  tcase_add_checked_fixture(accounts, setup, teardown);
  tcase_add_test(accounts, accounts_of_a_small_trace);
  tcase_add_test(accounts, laps_free_everything_between);
  tcase_add_test(accounts, failed_requests_are_remembered);
  tcase_add_test(accounts, timeline_follows_the_events);
  suite_add_tcase(suite, accounts);
  TCase *misbehaviour = tcase_create("misbehaviour");
  tcase_add_checked_fixture(misbehaviour, setup, teardown);
  tcase_add_test(misbehaviour, growing_laps_are_found);
  tcase_add_test(misbehaviour, leaks_are_found);
  tcase_add_test(misbehaviour, shared_memory_is_found);
  tcase_add_test(misbehaviour, overwritten_memory_is_found);
  tcase_add_test(misbehaviour, failing_calls_stop_the_run);
  tcase_add_test(misbehaviour, impossible_numbers_are_found);
  suite_add_tcase(suite, misbehaviour);
  TCase *sources = tcase_create("sources");
  tcase_add_checked_fixture(sources, setup, teardown);
  tcase_add_test(sources, long_traces_are_streamed);
  tcase_add_test(sources, standard_input_is_read_once);
  tcase_add_test(sources, interrupted_passes_start_again);
  suite_add_tcase(suite, sources);
  return suite;
}

TEST_MAIN(replay_suite)
