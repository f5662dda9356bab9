#include "tests/harness_instrument_fixture.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/progress.h"
#include "tests/harness_support.h"
#include "vmm/meter.h"
#include "vmm/profile.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)

bool test_library_is_built(const char *path) { return instrument_nvtx_is_built() && access(path, R_OK) == 0; }

char *test_library_path(const char *path) {
  char *whole = realpath(path, NULL);
  ck_assert_msg(whole != NULL, "%s is not there", path);
  return whole;
}

/* ---- a device that is watched ---- */

typedef struct traced {
  vmm_driver driver;
  vmm_driver *wrapped;
  call_hook *hook;
} traced;

static vmm_driver *enter(vmm_driver *driver, vmm_call call, uint64_t *begin_ns, uint64_t *correlation) {
  traced *self = (traced *)driver;
  *begin_ns = progress_clock_ns();
  *correlation = 0;
  if (self->hook) self->hook(vmm_call_name(call), 0, correlation);
  return self->wrapped;
}

static vmm_status leave(traced *self, vmm_call call, uint64_t begin_ns, uint64_t *correlation,
                        vmm_status status) {
  if (self->hook) self->hook(vmm_call_name(call), 1, correlation);
  self->driver.busy_ns += progress_clock_ns() - begin_ns;
  return status;
}

#define TRACED(CALL, OPERATION, PARAMETERS, ARGUMENTS)                                                    \
  static vmm_status traced_##OPERATION PARAMETERS {                                                       \
    traced *self = (traced *)driver;                                                                      \
    uint64_t begin_ns, correlation;                                                                       \
    driver = enter(driver, VMM_CALL_##CALL, &begin_ns, &correlation);                                     \
    return leave(self, VMM_CALL_##CALL, begin_ns, &correlation, driver->operations->OPERATION ARGUMENTS); \
  }

TRACED(GRANULARITY, granularity, (vmm_driver * driver, uint64_t *bytes), (driver, bytes))
TRACED(MEMORY_INFO, memory_info, (vmm_driver * driver, uint64_t *available, uint64_t *total),
       (driver, available, total))
TRACED(ADDRESS_RESERVE, address_reserve,
       (vmm_driver * driver, uint64_t size, uint64_t alignment, vmm_address *address),
       (driver, size, alignment, address))
TRACED(ADDRESS_FREE, address_free, (vmm_driver * driver, vmm_address address, uint64_t size),
       (driver, address, size))
TRACED(CREATE, create, (vmm_driver * driver, uint64_t size, vmm_handle *handle), (driver, size, handle))
TRACED(RELEASE, release, (vmm_driver * driver, vmm_handle handle), (driver, handle))
TRACED(MAP, map,
       (vmm_driver * driver, vmm_address address, uint64_t size, uint64_t offset, vmm_handle handle),
       (driver, address, size, offset, handle))
TRACED(UNMAP, unmap, (vmm_driver * driver, vmm_address address, uint64_t size), (driver, address, size))
TRACED(SET_ACCESS, set_access, (vmm_driver * driver, vmm_address address, uint64_t size),
       (driver, address, size))
TRACED(MALLOC, malloc, (vmm_driver * driver, uint64_t size, vmm_address *address), (driver, size, address))
TRACED(FREE, free, (vmm_driver * driver, vmm_address address), (driver, address))
TRACED(SYNCHRONIZE, synchronize, (vmm_driver * driver), (driver))

static void traced_destroy(vmm_driver *driver) { free(driver); }

static const vmm_driver_operations traced_operations = {.name = "traced",
                                                        .granularity = traced_granularity,
                                                        .memory_info = traced_memory_info,
                                                        .address_reserve = traced_address_reserve,
                                                        .address_free = traced_address_free,
                                                        .create = traced_create,
                                                        .release = traced_release,
                                                        .map = traced_map,
                                                        .unmap = traced_unmap,
                                                        .set_access = traced_set_access,
                                                        .malloc = traced_malloc,
                                                        .free = traced_free,
                                                        .synchronize = traced_synchronize,
                                                        .destroy = traced_destroy};

/* ---- a run ---- */

void instrumented_run_open(instrumented_run *run, const char *spec, call_hook *hook) {
  char message[512];
  policy_spec parsed;
  ck_assert_int_eq(vmm_profile_load("h200", &run->profile, message, sizeof message), VMM_SUCCESS);
  const vmm_sim_configuration configuration = {.profile = run->profile, .capacity = 4096 * MIB};
  ck_assert_int_eq(vmm_sim_create(&configuration, &run->sim), VMM_SUCCESS);
  traced *watched = calloc(1, sizeof *watched);
  ck_assert_ptr_nonnull(watched);
  *watched = (traced){.driver.operations = &traced_operations, .wrapped = run->sim, .hook = hook};
  run->traced = &watched->driver;
  ck_assert_int_eq(vmm_meter_create(run->traced, &run->meter), VMM_SUCCESS);
  ck_assert_int_eq(policy_spec_parse(spec, &parsed, message, sizeof message), VMM_SUCCESS);
  ck_assert_int_eq(policy_create(&parsed, run->meter, UINT64_MAX, &run->subject, message, sizeof message),
                   VMM_SUCCESS);
}

void instrumented_run_close(instrumented_run *run) {
  policy_destroy(run->subject);
  vmm_driver_destroy(run->meter);
  vmm_driver_destroy(run->traced);
  vmm_driver_destroy(run->sim);
  vmm_profile_destroy(run->profile);
}

static vmm_address allocate(instrumented_run *run, uint64_t size) {
  vmm_address address;
  ck_assert_int_eq(policy_alloc(run->subject, size, 0, &address), VMM_SUCCESS);
  return address;
}

void instrumented_run_exercise(instrumented_run *run) {
  vmm_address left = allocate(run, 20 * MIB), wall = allocate(run, 4 * MIB), right = allocate(run, 20 * MIB);
  ck_assert_int_eq(policy_free(run->subject, left), VMM_SUCCESS);
  ck_assert_int_eq(policy_free(run->subject, right), VMM_SUCCESS);
  vmm_address stitched = allocate(run, 40 * MIB);
  ck_assert_int_eq(policy_free(run->subject, stitched), VMM_SUCCESS);
  vmm_address again = allocate(run, 40 * MIB);
  ck_assert_int_eq(policy_free(run->subject, again), VMM_SUCCESS);
  vmm_address part = allocate(run, 8 * MIB);
  vmm_address small = allocate(run, 1000);
  ck_assert_int_eq(policy_free(run->subject, small), VMM_SUCCESS);
  ck_assert_int_eq(policy_free(run->subject, part), VMM_SUCCESS);
  ck_assert_int_eq(policy_free(run->subject, wall), VMM_SUCCESS);
}

char *write_events(const char *name, unsigned count) {
  size_t size = (size_t)count * 64 + 1, used = 0;
  char *text = malloc(size);
  ck_assert_ptr_nonnull(text);
  text[0] = '\0';
  for (unsigned i = 0; i < count; i++) {
    unsigned long bytes = (unsigned long)(i * 2654435761u % 60) * 700000 + 1000;
    used += (size_t)snprintf(text + used, size - used, "a %u %lu 0\n", i, bytes);
    /* Of three the middle one stays. */
    if (i % 3 != 0) used += (size_t)snprintf(text + used, size - used, "f %u\n", i % 3 == 1 ? i - 1 : i);
  }
  char *path = write_test_file(name, text);
  free(text);
  return path;
}

/* ---- the trace of a run ---- */

enum { PROCESSES = 16, OPEN = 64 };

static int layer_of(const char *category) {
  for (int layer = 0; layer < INSTRUMENT_LAYER_COUNT; layer++) {
    if (strcmp(category, instrument_layer_name((instrument_layer)layer)) == 0) return layer;
  }
  ck_abort_msg("no layer %s", category);
  return -1;
}

/* One process of the trace. */
typedef struct track {
  const json_t *open[OPEN];
  size_t depth;
  double latest_us;
  bool named;
} track;

/* Calls each for every range that ends, and at the end checks that none is open. */
static json_t *load(const char *path) {
  json_error_t error;
  json_t *trace = json_load_file(path, 0, &error);
  ck_assert_msg(trace != NULL, "%s is no JSON: %s (line %d)", path, error.text, error.line);
  ck_assert(json_is_array(json_object_get(trace, "traceEvents")));
  return trace;
}

static void check_begin(track *process, const json_t *event) {
  int layer = layer_of(json_text(event, "cat"));
  ck_assert_str_ne(json_text(event, "name"), "");
  ck_assert_uint_lt(process->depth, OPEN);
  if (process->depth == 0) {
    ck_assert_int_eq(layer, INSTRUMENT_HARNESS);
  } else {
    ck_assert_int_ge(layer, layer_of(json_text(process->open[process->depth - 1], "cat")));
  }
  process->open[process->depth++] = event;
}

static void check_event(track *processes, const json_t *event, checked_trace *found) {
  const char *phase = json_text(event, "ph");
  size_t number = (size_t)json_number(event, "pid");
  ck_assert_uint_lt(number, PROCESSES);
  track *process = &processes[number];
  if (*phase == 'M') {
    process->named = true;
    return;
  }
  ck_assert_msg(process->named, "process %zu has no name", number);
  double now_us = json_number(event, "ts");
  ck_assert_msg(now_us >= process->latest_us, "%g comes after %g", now_us, process->latest_us);
  process->latest_us = now_us;
  if (*phase == 'B') {
    check_begin(process, event);
    found->begins++;
    if (process->depth > found->deepest) found->deepest = process->depth;
    if (process->depth == 1) found->runs++;
  } else if (*phase == 'E') {
    ck_assert_uint_gt(process->depth, 0);
    process->depth--;
    found->ends++;
  } else {
    ck_assert_str_eq(phase, "C");
    uint64_t bytes = (uint64_t)json_number(json_object_get(event, "args"), "bytes");
    *(strcmp(json_text(event, "name"), "live") == 0 ? &found->live_bytes : &found->reserved_bytes) = bytes;
    found->counters++;
  }
}

checked_trace check_trace(const char *path) {
  checked_trace found = {0};
  track processes[PROCESSES] = {0};
  json_t *trace = load(path);
  size_t index;
  json_t *event;
  json_array_foreach(json_object_get(trace, "traceEvents"), index, event) {
    check_event(processes, event, &found);
  }
  for (size_t i = 0; i < PROCESSES; i++) ck_assert_uint_eq(processes[i].depth, 0);
  json_decref(trace);
  ck_assert_uint_eq(found.begins, found.ends);
  return found;
}

uint64_t count_ranges(const char *path, const char *category, const char *name, double *total_us) {
  track processes[PROCESSES] = {0};
  json_t *trace = load(path);
  size_t index;
  json_t *event;
  uint64_t count = 0;
  *total_us = 0;
  json_array_foreach(json_object_get(trace, "traceEvents"), index, event) {
    track *process = &processes[(size_t)json_number(event, "pid")];
    const char *phase = json_text(event, "ph");
    if (*phase == 'B') process->open[process->depth++] = event;
    if (*phase != 'E') continue;
    const json_t *opened = process->open[--process->depth];
    if (strcmp(json_text(opened, "cat"), category) != 0) continue;
    if (name && strcmp(json_text(opened, "name"), name) != 0) continue;
    count++;
    *total_us += json_number(event, "ts") - json_number(opened, "ts");
  }
  json_decref(trace);
  return count;
}
