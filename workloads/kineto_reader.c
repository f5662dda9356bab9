#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/failure.h"
#include "workloads/kineto.h"

/* Events of the same time among which the next one is looked for. */
enum { MOST_AT_A_TIME = 64 };

typedef struct seed {
  uint64_t address;
  uint64_t size;
} seed;

typedef struct kineto_reader {
  kineto_profile profile;
  bool loaded;
  size_t delivered;
  int64_t live_before; /* bytes, when the recording began; 0 where the profile does not say */
  seed *seeds;
  size_t seed_count, seed_capacity, seeds_delivered;
} kineto_reader;

static bool recognise(const uint8_t *bytes, size_t size) {
  size_t i = 0;
  while (i < size && (bytes[i] == ' ' || bytes[i] == '\t' || bytes[i] == '\r' || bytes[i] == '\n')) i++;
  return i < size && (bytes[i] == '{' || bytes[i] == '[');
}

/* The device to read: the one that was asked for, or the only one where none was. */
static trace_status choose_device(const trace *opened, const kineto_profile *profile, uint32_t *device,
                                  trace_error *error) {
  uint32_t wanted = opened->options.device;
  const char *name = opened->input.name;
  if (profile->device_count == 0) {
    return trace_fail(error, TRACE_NO_EVENTS, name,
                      "holds no memory events of a GPU among its %" PRIu64
                      " events: was it recorded with profile_memory=True?",
                      profile->trace_events);
  }
  *device = wanted;
  for (uint32_t i = 0; i < profile->device_count; i++) {
    if (profile->devices[i] == wanted) return TRACE_OK;
  }
  *device = profile->devices[0];
  if (wanted == 0 && profile->device_count == 1) return TRACE_OK;
  char list[128] = "";
  size_t used = 0;
  for (uint32_t i = 0; i < profile->device_count && used < sizeof list; i++)
    used += (size_t)snprintf(list + used, sizeof list - used, " %" PRIu32, profile->devices[i]);
  return trace_fail(error, TRACE_NO_EVENTS, name,
                    "holds no memory events of device %" PRIu32 ", but of%s: choose one of them", wanted,
                    list);
}

static void keep_device(kineto_profile *profile, uint32_t device) {
  size_t kept = 0;
  for (size_t i = 0; i < profile->count; i++) {
    if (profile->events[i].device == device) profile->events[kept++] = profile->events[i];
  }
  profile->skipped += profile->count - kept;
  profile->count = kept;
}

static int by_time(const void *left, const void *right) {
  const kineto_event *one = left, *other = right;
  if (one->time_ns != other->time_ns) return one->time_ns < other->time_ns ? -1 : 1;
  return one->offset < other->offset ? -1 : one->offset > other->offset;
}

/* Threads may have allocated in the same microsecond: of the events of that time, the one that total
 * leads to comes first. */
static void bring_next_forward(kineto_profile *profile, size_t first, int64_t total) {
  kineto_event *events = profile->events;
  for (size_t i = first; i < profile->count && i < first + MOST_AT_A_TIME; i++) {
    if (events[i].time_ns != events[first].time_ns) return;
    if (events[i].total == KINETO_NO_TOTAL || events[i].total - events[i].bytes != total) continue;
    kineto_event moved = events[i];
    memmove(&events[first + 1], &events[first], (i - first) * sizeof *events);
    events[first] = moved;
    return;
  }
}

static trace_status contradiction(const trace *opened, const kineto_event *event, trace_error *error) {
  return trace_fail_offset(error, opened->input.name, event->offset,
                           "\"Total Allocated\" is %" PRId64
                           " after this [memory] event, which the events before it do not lead to: events "
                           "are missing",
                           event->total);
}

/* Puts the events in their order and finds out what was live before the first. Every
 * total must be the one before it and the event's bytes. */
static trace_status check_totals(const trace *opened, kineto_reader *reader, trace_error *error) {
  kineto_profile *profile = &reader->profile;
  int64_t total = 0; /* on top of live_before while that is not known */
  bool known = false;
  reader->live_before = 0;
  for (size_t i = 0; i < profile->count; i++) {
    if (known) bring_next_forward(profile, i, total);
    const kineto_event *event = &profile->events[i];
    if (__builtin_add_overflow(total, event->bytes, &total)) return contradiction(opened, event, error);
    if (event->total == KINETO_NO_TOTAL) continue;
    if (!known) {
      known = true;
      if (__builtin_sub_overflow(event->total, total, &reader->live_before) || reader->live_before < 0)
        return contradiction(opened, event, error);
      total = event->total;
    }
    if (event->total != total) return contradiction(opened, event, error);
  }
  return TRACE_OK;
}

static bool add_seed(kineto_reader *reader, uint64_t address, uint64_t size) {
  if (reader->seed_count == reader->seed_capacity) {
    size_t capacity = reader->seed_capacity == 0 ? 64 : 2 * reader->seed_capacity;
    seed *seeds = realloc(reader->seeds, capacity * sizeof *seeds);
    if (seeds == NULL) return false;
    reader->seeds = seeds;
    reader->seed_capacity = capacity;
  }
  reader->seeds[reader->seed_count++] = (seed){.address = address, .size = size};
  return true;
}

/* A seed for each free of what was not allocated before. */
static bool add_orphans(kineto_reader *reader) {
  trace_id_map live;
  trace_id_map_init(&live, SIZE_MAX);
  bool done = true;
  for (size_t i = 0; i < reader->profile.count && done; i++) {
    const kineto_event *event = &reader->profile.events[i];
    if (event->bytes < 0 && trace_id_map_find(&live, event->address) == TRACE_ID_EMPTY)
      done = add_seed(reader, event->address, (uint64_t)-event->bytes);
    trace_id_entry *entry = done ? trace_id_map_put(&live, event->address) : NULL;
    if (entry == NULL) {
      done = false;
    } else {
      entry->value = 1;
      if (event->bytes < 0) trace_id_map_remove(&live, event->address);
    }
  }
  trace_id_map_free(&live);
  return done;
}

static int by_address(const void *left, const void *right) {
  const seed *one = left, *other = right;
  return one->address < other->address ? -1 : one->address > other->address;
}

/* What was live when the recording began: the orphans, and all the rest as one allocation, whose
 * parts are not known, under the address 0. */
static trace_status find_seeds(const trace *opened, kineto_reader *reader, trace_error *error) {
  reader->seed_count = 0;
  if (!add_orphans(reader)) return trace_fail_memory(error, opened->input.name);
  if (reader->live_before > 0) {
    uint64_t left = (uint64_t)reader->live_before;
    for (size_t i = 0; i < reader->seed_count; i++) {
      if (reader->seeds[i].size > left) {
        return trace_fail(error, TRACE_MALFORMED, opened->input.name,
                          "more is freed than the %" PRId64 " bytes that were live when the recording began",
                          reader->live_before);
      }
      left -= reader->seeds[i].size;
    }
    if (left > 0 && !add_seed(reader, 0, left)) return trace_fail_memory(error, opened->input.name);
  }
  if (reader->seed_count > 0) qsort(reader->seeds, reader->seed_count, sizeof *reader->seeds, by_address);
  return TRACE_OK;
}

static trace_status load(trace *opened, trace_error *error) {
  kineto_reader *reader = opened->reader;
  kineto_profile *profile = &reader->profile;
  trace_summary *summary = &opened->ledger.summary;
  uint32_t device = 0;
  trace_status status = kineto_read(opened, profile, error);
  if (status == TRACE_OK) status = choose_device(opened, profile, &device, error);
  if (status != TRACE_OK) return status;
  summary->devices = profile->device_count;
  keep_device(profile, device);
  qsort(profile->events, profile->count, sizeof *profile->events, by_time);
  status = check_totals(opened, reader, error);
  if (status == TRACE_OK && opened->options.seed_from_segments) status = find_seeds(opened, reader, error);
  if (status != TRACE_OK) return status;
  summary->other_events = profile->skipped;
  if (!opened->options.seed_from_segments) summary->live_before_bytes = (uint64_t)reader->live_before;
  reader->loaded = true;
  return TRACE_OK;
}

static trace_status ledger_failed(const trace *opened, uint64_t offset, uint64_t address,
                                  trace_ledger_result result, trace_error *error) {
  if (result == TRACE_LEDGER_NO_MEMORY) return trace_fail_memory(error, opened->input.name);
  return trace_fail_offset(error, opened->input.name, offset, "0x%" PRIx64 " %s", address,
                           trace_ledger_result_text(result));
}

static trace_status next_seed(trace *opened, trace_event *event, trace_error *error) {
  kineto_reader *reader = opened->reader;
  const seed *first = &reader->seeds[reader->seeds_delivered];
  trace_ledger_result result = trace_ledger_alloc(&opened->ledger, first->address, first->size, 0, event);
  if (result != TRACE_LEDGER_OK) return ledger_failed(opened, 0, first->address, result, error);
  event->time_us = 0;
  reader->seeds_delivered++;
  opened->ledger.summary.seeded++;
  return TRACE_OK;
}

/* The free of what was not allocated since the recording began. */
static trace_status count_orphan(trace *opened, const kineto_event *recorded, uint64_t size,
                                 trace_error *error) {
  trace_summary *summary = &opened->ledger.summary;
  summary->orphan_frees++;
  summary->orphan_bytes += size;
  if (recorded->total == KINETO_NO_TOTAL || summary->orphan_bytes <= summary->live_before_bytes)
    return TRACE_OK;
  return trace_fail_offset(error, opened->input.name, recorded->offset,
                           "more is freed than the %" PRIu64 " bytes that were live when the recording began",
                           summary->live_before_bytes);
}

/* *delivered: event is filled. */
static trace_status next_event(trace *opened, const kineto_event *recorded, trace_event *event,
                               bool *delivered, trace_error *error) {
  trace_ledger *ledger = &opened->ledger;
  trace_ledger_result result;
  uint64_t size = recorded->bytes < 0 ? (uint64_t)-recorded->bytes : (uint64_t)recorded->bytes;
  uint64_t allocated;
  if (recorded->bytes > 0) {
    result = trace_ledger_alloc(ledger, recorded->address, size, 0, event);
  } else if (trace_ledger_size(ledger, recorded->address, &allocated) && allocated != size) {
    return trace_fail_offset(error, opened->input.name, recorded->offset,
                             "0x%" PRIx64 " is freed with %" PRIu64 " bytes, but was allocated with %" PRIu64,
                             recorded->address, size, allocated);
  } else {
    result = trace_ledger_free_completed(ledger, recorded->address, event);
    if (result == TRACE_LEDGER_NEVER_SEEN) return count_orphan(opened, recorded, size, error);
  }
  if (result != TRACE_LEDGER_OK)
    return ledger_failed(opened, recorded->offset, recorded->address, result, error);
  event->time_us = recorded->time_ns / 1000;
  *delivered = true;
  return TRACE_OK;
}

static trace_status end_of_events(const trace *opened, trace_error *error) {
  if (opened->ledger.summary.allocations > 0) return TRACE_END;
  return trace_fail(error, TRACE_NO_EVENTS, opened->input.name,
                    "holds no allocation, only frees of what was live before");
}

static trace_status next(trace *opened, trace_event *event, trace_error *error) {
  kineto_reader *reader = opened->reader;
  if (!reader->loaded) {
    trace_status status = load(opened, error);
    if (status != TRACE_OK) return status;
  }
  if (reader->seeds_delivered < reader->seed_count) return next_seed(opened, event, error);
  bool delivered = false;
  while (!delivered) {
    if (reader->delivered == reader->profile.count) return end_of_events(opened, error);
    trace_status status =
        next_event(opened, &reader->profile.events[reader->delivered++], event, &delivered, error);
    if (status != TRACE_OK) return status;
  }
  return TRACE_OK;
}

static trace_status create(trace *opened, trace_error *error) {
  opened->reader = calloc(1, sizeof(kineto_reader));
  return opened->reader != NULL ? TRACE_OK : trace_fail_memory(error, opened->input.name);
}

static void rewound(trace *opened) {
  kineto_reader *reader = opened->reader;
  reader->loaded = false;
  reader->delivered = 0;
  reader->seed_count = 0;
  reader->seeds_delivered = 0;
}

static void destroy(trace *opened) {
  kineto_reader *reader = opened->reader;
  if (reader == NULL) return;
  free(reader->profile.events);
  free(reader->seeds);
  free(reader);
}

const trace_format trace_format_kineto = {.name = "kineto",
                                          .has_devices = true,
                                          .recognise = recognise,
                                          .create = create,
                                          .next = next,
                                          .rewound = rewound,
                                          .destroy = destroy};
