#include "harness/lifetimes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool grow_slots(lifetimes *known, uint32_t slot) {
  uint64_t count = known->slot_count ? known->slot_count : 1024;
  while (count <= slot) count *= 2;
  if (count > UINT32_MAX) return false;
  uint64_t *slots = realloc(known->slots, count * sizeof *slots);
  if (!slots) return false;
  memset(slots + known->slot_count, 0, (count - known->slot_count) * sizeof *slots);
  known->slots = slots;
  known->slot_count = (uint32_t)count;
  return true;
}

static bool append(lifetimes *known, const policy_lifetime *request) {
  if (known->count == known->capacity) {
    uint64_t capacity = known->capacity ? known->capacity * 2 : 1024;
    policy_lifetime *items = realloc(known->items, capacity * sizeof *items);
    if (!items) return false;
    known->items = items;
    known->capacity = capacity;
  }
  known->items[known->count++] = *request;
  return true;
}

/* Requests for nothing, and for more than there can be, are answered before a policy hears of them. */
static bool reaches_policy(const trace_event *event) {
  return event->size > 0 && event->size < POLICY_SIZE_LIMIT;
}

bool lifetimes_add(lifetimes *known, const trace_event *event, bool frees_requested) {
  if (event->kind == TRACE_OUT_OF_MEMORY) {
    return !reaches_policy(event) ||
           append(known, &(policy_lifetime){event->size, known->count + 1, event->stream, true});
  }
  if (event->slot >= known->slot_count && !grow_slots(known, event->slot)) return false;
  uint64_t *slot = &known->slots[event->slot];
  if (event->kind == TRACE_ALLOC) {
    *slot = 0;
    if (!reaches_policy(event)) return true;
    if (!append(known, &(policy_lifetime){event->size, UINT64_MAX, event->stream, false})) return false;
    *slot = known->count;
  } else if (*slot > 0 && (event->kind == TRACE_FREE || frees_requested)) {
    known->items[*slot - 1].end = known->count;
    *slot = 0;
  }
  return true;
}

policy_lifetimes lifetimes_end(lifetimes *known) {
  for (uint32_t i = 0; i < known->slot_count; i++) {
    if (known->slots[i] > 0) known->items[known->slots[i] - 1].end = known->count;
    known->slots[i] = 0;
  }
  return (policy_lifetimes){known->items, known->count};
}

trace_status lifetimes_read(event_source *source, bool frees_requested, lifetimes *known,
                            trace_error *error) {
  *known = (lifetimes){0};
  trace_status status = event_source_rewind(source, error);
  while (status == TRACE_OK) {
    const trace_event *events;
    size_t count;
    status = event_source_next(source, &events, &count, error);
    for (size_t i = 0; status == TRACE_OK && i < count; i++) {
      if (lifetimes_add(known, &events[i], frees_requested)) continue;
      status = error->status = TRACE_NO_MEMORY;
      snprintf(error->message, sizeof error->message, "no memory for the lifetimes of the allocations");
    }
  }
  return status == TRACE_END ? TRACE_OK : status;
}

void lifetimes_free(lifetimes *known) {
  free(known->items);
  free(known->slots);
  *known = (lifetimes){0};
}
