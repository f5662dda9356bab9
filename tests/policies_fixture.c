#include "tests/policies_fixture.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void policies_fixture_open(policies_fixture *fixture, const policies_fixture_options *options) {
  char message[512] = "";
  *fixture = (policies_fixture){0};
  if (options->profile) {
    require(vmm_profile_load(options->profile, &fixture->profile, message, sizeof message) == VMM_SUCCESS,
            "%s", message);
  }
  vmm_sim_configuration configuration = {.profile = fixture->profile,
                                         .capacity = options->capacity,
                                         .address_limit = options->address_limit,
                                         .event_delay = options->event_delay,
                                         .backed = options->backed};
  if (!fixture->profile && configuration.capacity == 0) configuration.capacity = 4 * GIB;
  vmm_status status = vmm_sim_create(&configuration, &fixture->sim);
  require(status == VMM_SUCCESS, "no simulated device: %s", vmm_status_name(status));
  require(vmm_meter_create(fixture->sim, &fixture->meter) == VMM_SUCCESS, "no meter");
  policy_spec spec;
  status = policy_spec_parse(options->spec, &spec, message, sizeof message);
  require(status == VMM_SUCCESS, "%s", message);
  status = policy_create_with_lifetimes(&spec, fixture->meter, options->limit ? options->limit : UINT64_MAX,
                                        options->lifetimes, &fixture->policy, message, sizeof message);
  require(status == VMM_SUCCESS, "%s: %s", options->spec, message);
}

void policies_fixture_close(policies_fixture *fixture) {
  vmm_sim_fail_none(fixture->sim);
  policy_destroy(fixture->policy);
  vmm_sim_usage usage, none = {0};
  vmm_sim_usage_get(fixture->sim, &usage);
  require(memcmp(&usage, &none, sizeof usage) == 0,
          "left on the device: %" PRIu64 " bytes, %" PRIu64 " handles, %" PRIu64 " mappings, %" PRIu64
          " reservations, %" PRIu64 " mallocs, %" PRIu64 " events",
          usage.physical_bytes, usage.handles, usage.mappings, usage.reservations, usage.mallocs,
          usage.events);
  vmm_driver_destroy(fixture->meter);
  vmm_driver_destroy(fixture->sim);
  vmm_profile_destroy(fixture->profile);
}

void policies_fixture_check(const policies_fixture *fixture, const char *where) {
  char message[512] = "";
  require(policy_check(fixture->policy, message, sizeof message), "%s: %s", where, message);
  const pool_heap *heap = &fixture->policy->heap;
  vmm_sim_usage usage; /* ranges may share a reservation, which goes with the last of them */
  vmm_sim_usage_get(fixture->sim, &usage);
  if (heap->memory_elsewhere) {
    require(usage.physical_bytes == heap->statistics.reserved_bytes.current &&
                usage.pool_bytes == usage.physical_bytes,
            "%s: %" PRIu64 " bytes are reserved and the device's pool has %" PRIu64, where,
            heap->statistics.reserved_bytes.current, usage.pool_bytes);
    return;
  }
  uint64_t mappings = 0, least = 0, most = 0;
  for (const pool_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) {
    mappings += chunk->mappings;
    least += chunk->size;
  }
  most = least;
  /* The device takes whole pages of 2 MiB, which allocations of less may share. */
  for (const pool_segment *segment = heap->segments; segment; segment = segment->next) {
    uint64_t pages = (segment->size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    least += segment->size < 2 * MIB ? segment->size : pages;
    most += pages;
  }
  require(usage.physical_bytes >= least && usage.physical_bytes <= most &&
              usage.handles == heap->chunk_count && usage.reservations <= heap->range_count &&
              usage.reserved_address_bytes >= heap->reserved_address_bytes && usage.mappings == mappings &&
              usage.mallocs == heap->statistics.segments.current,
          "%s: the heap does not hold what the device says", where);
}

vmm_address policies_alloc(policies_fixture *fixture, uint64_t size, vmm_stream stream) {
  vmm_address address = 0;
  vmm_status status = policy_alloc(fixture->policy, size, stream, &address);
  require(status == VMM_SUCCESS && address != 0, "an allocation of %" PRIu64 " bytes: %s", size,
          vmm_status_name(status));
  return address;
}

void policies_free(policies_fixture *fixture, vmm_address address) {
  vmm_status status = policy_free(fixture->policy, address);
  require(status == VMM_SUCCESS, "a free: %s", vmm_status_name(status));
}

uint64_t policies_calls(const policies_fixture *fixture, vmm_call call) {
  vmm_meter_call counts;
  vmm_meter_get(fixture->meter, call, &counts);
  return counts.count;
}

uint64_t policies_memory_calls(const policies_fixture *fixture) {
  uint64_t count = 0;
  for (vmm_call call = VMM_CALL_ADDRESS_RESERVE; call <= VMM_CALL_FREE_ASYNC; call++) {
    count += policies_calls(fixture, call);
  }
  return count;
}

uint64_t policies_counter(const policies_fixture *fixture, const char *name) {
  policy_counter counters[64];
  size_t count = policy_counters(fixture->policy, counters, 64);
  for (size_t i = 0; i < count && i < 64; i++) {
    if (strcmp(counters[i].name, name) == 0) return counters[i].value;
  }
  ck_abort_msg("there is no counter %s", name);
}

const pool_operation *policies_operation(const policies_fixture *fixture, const char *name) {
  const pool_heap *heap = &fixture->policy->heap;
  for (unsigned i = 0; i < heap->operation_count; i++) {
    if (strcmp(heap->operations[i].name, name) == 0) return &heap->operations[i];
  }
  ck_abort_msg("there is no operation %s", name);
}

/* ---- traces ---- */

void policies_replay_open(policies_replay *replay, const trace_events *events) {
  *replay = (policies_replay){.events = events};
  replay->addresses = calloc(events->slots + 1, sizeof *replay->addresses);
  replay->sizes = calloc(events->slots + 1, sizeof *replay->sizes);
  require(replay->addresses && replay->sizes, "the host has no memory");
}

static void replay_alloc(policies_replay *replay, policies_fixture *fixture, const trace_event *event) {
  vmm_address address = 0;
  vmm_status status = policy_alloc(fixture->policy, event->size, event->stream, &address);
  require(status == VMM_SUCCESS || status == VMM_OUT_OF_MEMORY, "an allocation of %" PRIu64 " bytes: %s",
          event->size, vmm_status_name(status));
  replay->addresses[event->slot] = address;
  replay->sizes[event->slot] = 0;
  if (status != VMM_SUCCESS) {
    replay->out_of_memory++;
    return;
  }
  replay->sizes[event->slot] = (event->size + 511) / 512 * 512;
  replay->live += replay->sizes[event->slot];
  if (replay->live > replay->live_peak) replay->live_peak = replay->live;
}

static void replay_free(policies_replay *replay, policies_fixture *fixture, uint32_t slot) {
  policies_free(fixture, replay->addresses[slot]);
  replay->live -= replay->sizes[slot];
  replay->addresses[slot] = 0;
  replay->sizes[slot] = 0;
}

void policies_replay_lap(policies_replay *replay, policies_fixture *fixture, uint64_t check_every) {
  uint64_t calls_before = 0, count = replay->events->count;
  for (uint64_t i = 0; i < count; i++) {
    const trace_event *event = &replay->events->events[i];
    if (i == count * 2 / 3) calls_before = policies_memory_calls(fixture);
    if (event->kind == TRACE_ALLOC) replay_alloc(replay, fixture, event);
    if (event->kind == TRACE_FREE) replay_free(replay, fixture, event->slot);
    if (check_every && i % check_every == 0) {
      char where[64];
      snprintf(where, sizeof where, "event %" PRIu64, i);
      policies_fixture_check(fixture, where);
    }
  }
  replay->last_third_calls = policies_memory_calls(fixture) - calls_before;
}

void policies_replay_free_all(policies_replay *replay, policies_fixture *fixture) {
  for (uint32_t slot = 0; slot < replay->events->slots; slot++) {
    if (replay->addresses[slot]) replay_free(replay, fixture, slot);
  }
}

void policies_replay_close(policies_replay *replay) {
  free(replay->addresses);
  free(replay->sizes);
}

policy_lifetimes policies_lifetimes(const trace_events *events, lifetimes *known) {
  *known = (lifetimes){0};
  for (uint64_t i = 0; i < events->count; i++)
    require(lifetimes_add(known, &events->events[i], false), "the host has no memory");
  return lifetimes_end(known);
}

static int compare_traces(const void *left, const void *right) {
  return strcmp(((const policies_trace *)left)->name, ((const policies_trace *)right)->name);
}

static size_t add_folder(policies_trace *traces, size_t count, size_t capacity, const char *folder,
                         bool bundled) {
  DIR *opened = opendir(folder);
  if (!opened) return count;
  for (struct dirent *entry; count < capacity && (entry = readdir(opened));) {
    policies_trace found = {.bundled = bundled};
    size_t length = strlen(entry->d_name);
    const char *ending = strstr(entry->d_name, ".pickle.xz");
    found.recording = ending != NULL;
    if (!ending) ending = strstr(entry->d_name, ".txt.xz");
    if (!ending || length >= sizeof found.name) continue;
    snprintf(found.name, sizeof found.name, "%.*s", (int)(ending - entry->d_name), entry->d_name);
    snprintf(found.path, sizeof found.path, "%s/%s", folder, entry->d_name);
    bool known = false;
    for (size_t i = 0; i < count; i++) known |= strcmp(traces[i].name, found.name) == 0;
    if (!known) traces[count++] = found;
  }
  closedir(opened);
  return count;
}

const char *policies_shared(const char *folder, char *buffer) {
  /* Tests may run in a folder of links: the tree is where this one leads to. */
  char tree[PATH_MAX];
  if (!realpath("tests/golden/pytorch_2.11_h200.jsonl", tree)) return NULL;
  for (int levels = 0; levels < 3; levels++) {
    char *slash = strrchr(tree, '/');
    if (slash) *slash = '\0';
  }
  int used = snprintf(buffer, PATH_MAX, "%s/../shared/%s", tree, folder);
  return used > 0 && used < PATH_MAX && access(buffer, R_OK) == 0 ? buffer : NULL;
}

size_t policies_traces(policies_trace *traces, size_t capacity) {
  size_t count = add_folder(traces, 0, capacity, "workloads/bundled", true);
  char buffer[PATH_MAX];
  const char *shared = policies_shared("traces", buffer);
  if (shared) count = add_folder(traces, count, capacity, shared, false);
  qsort(traces, count, sizeof *traces, compare_traces);
  return count;
}

void policies_trace_load(const policies_trace *found, trace_events *events) {
  trace_error error;
  require(trace_load(found->path, NULL, events, &error) == TRACE_OK, "%s", error.message);
}

/* ---- random numbers ---- */

uint64_t policies_random_seed(const char *test) {
  const char *text = getenv("LAKEBED_SEED");
  uint64_t seed = text ? strtoull(text, NULL, 0) : UINT64_C(20260111);
  if (test) printf("%s: LAKEBED_SEED=%" PRIu64 "\n", test, seed);
  return seed;
}

/* SplitMix64, as published by Steele, Lea and Flood (2014). */
uint64_t policies_random(uint64_t *state) {
  uint64_t value = *state += UINT64_C(0x9E3779B97F4A7C15);
  value = (value ^ value >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  value = (value ^ value >> 27) * UINT64_C(0x94D049BB133111EB);
  return value ^ value >> 31;
}
