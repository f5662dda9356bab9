#include "workloads/ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/failure.h"

/* Freed ids beyond this many may be forgotten: a double free then reads as a free of an id never seen. */
enum { REMEMBERED_FREED_IDS = 32 * 1024, MOST_STREAMS = 1024 * 1024 };

#define NO_SLOT UINT32_MAX
#define MOST_SLOTS (UINT32_MAX - 2)
#define LARGEST_LIVE (UINT64_C(1) << 63)
#define ROUNDING UINT64_C(512)

struct trace_ledger_slot {
  uint64_t size;
  uint32_t stream;
  uint32_t link; /* free slots: the next free one; live ones: 1 once its free was requested */
};

bool trace_ledger_init(trace_ledger *ledger) {
  memset(ledger, 0, sizeof *ledger);
  trace_id_map_init(&ledger->ids, REMEMBERED_FREED_IDS);
  trace_id_map_init(&ledger->stream_indices, 0);
  ledger->first_free_slot = NO_SLOT;
  uint32_t index;
  return trace_ledger_stream(ledger, 0, &index) == TRACE_LEDGER_OK;
}

void trace_ledger_clear(trace_ledger *ledger) {
  trace_summary cleared = {.format = ledger->summary.format,
                           .compression = ledger->summary.compression,
                           .devices = ledger->summary.devices,
                           .streams = ledger->summary.streams};
  trace_id_map_clear(&ledger->ids);
  ledger->slots_before = trace_ledger_slots(ledger);
  ledger->slot_count = 0;
  ledger->first_free_slot = NO_SLOT;
  ledger->summary = cleared;
}

void trace_ledger_free(trace_ledger *ledger) {
  trace_id_map_free(&ledger->ids);
  trace_id_map_free(&ledger->stream_indices);
  free(ledger->slots);
  free(ledger->streams);
  ledger->slots = NULL;
  ledger->streams = NULL;
}

uint32_t trace_ledger_slots(const trace_ledger *ledger) {
  return ledger->slot_count > ledger->slots_before ? ledger->slot_count : ledger->slots_before;
}

trace_ledger_result trace_ledger_stream(trace_ledger *ledger, uint64_t recorded, uint32_t *index) {
  if (ledger->stream_count > 0 && ledger->streams[ledger->last_stream] == recorded) {
    *index = ledger->last_stream;
    return TRACE_LEDGER_OK;
  }
  uint32_t known = trace_id_map_find(&ledger->stream_indices, recorded);
  if (known == TRACE_ID_EMPTY) {
    if (ledger->stream_count >= MOST_STREAMS) return TRACE_LEDGER_TOO_MANY;
    if (ledger->stream_count == ledger->stream_capacity) {
      uint32_t capacity = ledger->stream_capacity == 0 ? 16 : 2 * ledger->stream_capacity;
      uint64_t *streams = realloc(ledger->streams, capacity * sizeof *streams);
      if (streams == NULL) return TRACE_LEDGER_NO_MEMORY;
      ledger->streams = streams;
      ledger->stream_capacity = capacity;
    }
    trace_id_entry *entry = trace_id_map_put(&ledger->stream_indices, recorded);
    if (entry == NULL) return TRACE_LEDGER_NO_MEMORY;
    known = entry->value = ledger->stream_count;
    ledger->streams[ledger->stream_count++] = recorded;
    ledger->summary.streams = ledger->stream_count;
  }
  ledger->last_stream = known;
  *index = known;
  return TRACE_LEDGER_OK;
}

static bool ensure_slot(trace_ledger *ledger) {
  if (ledger->first_free_slot != NO_SLOT || ledger->slot_count < ledger->slot_capacity) return true;
  uint32_t capacity = ledger->slot_capacity == 0 ? 1024 : ledger->slot_capacity;
  if (ledger->slot_capacity > 0) capacity = capacity > MOST_SLOTS / 2 ? MOST_SLOTS : 2 * capacity;
  trace_ledger_slot *slots = realloc(ledger->slots, (size_t)capacity * sizeof *slots);
  if (slots == NULL) return false;
  ledger->slots = slots;
  ledger->slot_capacity = capacity;
  return true;
}

static inline uint64_t rounded(uint64_t size) { return (size + ROUNDING - 1) & ~(ROUNDING - 1); }

trace_ledger_result trace_ledger_alloc(trace_ledger *ledger, uint64_t id, uint64_t size, uint64_t stream,
                                       trace_event *event) {
  trace_summary *summary = &ledger->summary;
  if (size >= LARGEST_LIVE || rounded(size) > LARGEST_LIVE - summary->rounded_live_bytes)
    return TRACE_LEDGER_TOO_LARGE;
  uint32_t stream_index;
  trace_ledger_result result = trace_ledger_stream(ledger, stream, &stream_index);
  if (result != TRACE_LEDGER_OK) return result;
  if (summary->live_at_end >= MOST_SLOTS) return TRACE_LEDGER_TOO_MANY;
  if (!ensure_slot(ledger)) return TRACE_LEDGER_NO_MEMORY;
  trace_id_entry *entry = trace_id_map_put(&ledger->ids, id);
  if (entry == NULL) return TRACE_LEDGER_NO_MEMORY;
  if (entry->value != TRACE_ID_EMPTY) return TRACE_LEDGER_ALREADY_LIVE;

  uint32_t slot = ledger->first_free_slot;
  if (slot != NO_SLOT) {
    ledger->first_free_slot = ledger->slots[slot].link;
  } else {
    slot = ledger->slot_count++;
  }
  ledger->slots[slot] = (trace_ledger_slot){.size = size, .stream = stream_index, .link = 0};
  entry->value = slot;
  summary->allocations++;
  summary->live_at_end++;
  summary->live_bytes += size;
  summary->rounded_live_bytes += rounded(size);
  if (summary->live_bytes > summary->live_peak_bytes) summary->live_peak_bytes = summary->live_bytes;
  if (summary->rounded_live_bytes > summary->rounded_live_peak_bytes) {
    summary->rounded_live_peak_bytes = summary->rounded_live_bytes;
  }
  if (size > summary->largest_bytes) summary->largest_bytes = size;
  event->kind = TRACE_ALLOC;
  event->slot = slot;
  event->stream = stream_index;
  event->size = size;
  event->id = id;
  return TRACE_LEDGER_OK;
}

trace_ledger_result trace_ledger_free_requested(trace_ledger *ledger, uint64_t id, trace_event *event) {
  uint32_t slot = trace_id_map_find(&ledger->ids, id);
  if (slot == TRACE_ID_EMPTY) return TRACE_LEDGER_NEVER_SEEN;
  if (slot == TRACE_ID_GONE) return TRACE_LEDGER_NOT_LIVE;
  trace_ledger_slot *freed = &ledger->slots[slot];
  if (freed->link != 0) return TRACE_LEDGER_REQUESTED;
  freed->link = 1;
  event->kind = TRACE_FREE_REQUESTED;
  event->slot = slot;
  event->stream = freed->stream;
  event->size = freed->size;
  event->id = id;
  return TRACE_LEDGER_OK;
}

trace_ledger_result trace_ledger_free_completed(trace_ledger *ledger, uint64_t id, trace_event *event) {
  uint32_t slot = trace_id_map_remove(&ledger->ids, id);
  if (slot == TRACE_ID_EMPTY) return TRACE_LEDGER_NEVER_SEEN;
  if (slot == TRACE_ID_GONE) return TRACE_LEDGER_NOT_LIVE;
  trace_ledger_slot *freed = &ledger->slots[slot];
  event->kind = TRACE_FREE;
  event->slot = slot;
  event->stream = freed->stream;
  event->size = freed->size;
  event->id = id;
  freed->link = ledger->first_free_slot;
  ledger->first_free_slot = slot;
  ledger->summary.frees++;
  ledger->summary.live_at_end--;
  ledger->summary.live_bytes -= freed->size;
  ledger->summary.rounded_live_bytes -= rounded(freed->size);
  return TRACE_LEDGER_OK;
}

bool trace_ledger_size(const trace_ledger *ledger, uint64_t id, uint64_t *size) {
  uint32_t slot = trace_id_map_find(&ledger->ids, id);
  if (slot == TRACE_ID_EMPTY || slot == TRACE_ID_GONE) return false;
  *size = ledger->slots[slot].size;
  return true;
}

trace_ledger_result trace_ledger_out_of_memory(trace_ledger *ledger, uint64_t size, uint64_t stream,
                                               trace_event *event) {
  uint32_t stream_index;
  trace_ledger_result result = trace_ledger_stream(ledger, stream, &stream_index);
  if (result != TRACE_LEDGER_OK) return result;
  ledger->summary.out_of_memory_events++;
  event->kind = TRACE_OUT_OF_MEMORY;
  event->slot = 0;
  event->stream = stream_index;
  event->size = size;
  event->id = 0;
  return TRACE_LEDGER_OK;
}

const char *trace_ledger_result_text(trace_ledger_result result) {
  switch (result) {
    case TRACE_LEDGER_ALREADY_LIVE:
      return "is allocated, but it is still live";
    case TRACE_LEDGER_NEVER_SEEN:
      return "is freed, but it was never allocated";
    case TRACE_LEDGER_NOT_LIVE:
      return "is freed twice";
    case TRACE_LEDGER_REQUESTED:
      return "has its free requested twice";
    case TRACE_LEDGER_TOO_LARGE:
      return "is too large: more than 2^63 bytes would be live";
    case TRACE_LEDGER_TOO_MANY:
      return "is one more allocation or stream than can be numbered";
    case TRACE_LEDGER_OK:
    case TRACE_LEDGER_NO_MEMORY:
      break;
  }
  return "";
}

trace_status trace_ledger_fail(const char *name, uint64_t line, uint64_t id, trace_ledger_result result,
                               trace_error *error) {
  if (result == TRACE_LEDGER_NO_MEMORY) return trace_fail_memory(error, name);
  return trace_fail_line(error, name, line, "id %" PRIu64 " %s", id, trace_ledger_result_text(result));
}
