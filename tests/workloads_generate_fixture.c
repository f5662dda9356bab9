#include "tests/workloads_generate_fixture.h"

#include <check.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A ck_assert is a system call each: one for what is true of each event. */
static void expect(bool holds, const char *what, const trace_event *event) {
  if (!holds)
    ck_abort_msg("%s: kind %d, slot %u, stream %u, size %" PRIu64 ", id %" PRIu64, what, (int)event->kind,
                 event->slot, event->stream, event->size, event->id);
}

static void *grow(void *array, size_t count, size_t size) {
  void *grown = reallocarray(array, count, size);
  if (!grown) ck_abort_msg("no memory");
  return grown;
}

static void follow(generated *kept, const trace_event *event) {
  if (event->kind == TRACE_ALLOC) {
    expect(event->id == ++kept->allocations, "an id out of its turn", event);
    expect(event->slot <= kept->slots, "a slot is left out", event);
    if (event->slot == kept->slots)
      kept->live = grow(kept->live, ++kept->slots, sizeof *kept->live);
    else
      expect(kept->live[event->slot] == UINT64_MAX, "a slot in use", event);
    kept->live[event->slot] = event->size;
    kept->live_bytes += event->size;
    if (kept->live_bytes > kept->peak_bytes) kept->peak_bytes = kept->live_bytes;
    return;
  }
  expect(event->kind == TRACE_FREE, "neither allocation nor free", event);
  expect(event->slot < kept->slots && kept->live[event->slot] == event->size, "a free of what does not live",
         event);
  kept->live[event->slot] = UINT64_MAX;
  kept->live_bytes -= event->size;
}

static trace_status keep(void *context, const trace_event *event, uint64_t recorded_stream,
                         trace_error *error) {
  generated *kept = context;
  expect(recorded_stream == event->stream, "two streams", event);
  if (kept->count == kept->capacity) {
    kept->capacity = kept->capacity ? kept->capacity * 2 : 1024;
    kept->events = grow(kept->events, kept->capacity, sizeof *kept->events);
  }
  kept->events[kept->count++] = *event;
  if (kept->count == kept->refuse_at) {
    error->status = TRACE_UNWRITABLE;
    strcpy(error->message, "refused");
    return TRACE_UNWRITABLE;
  }
  follow(kept, event);
  return TRACE_OK;
}

generate_sink generated_sink(generated *kept) { return (generate_sink){keep, kept}; }

void generated_free(generated *kept) {
  free(kept->events);
  free(kept->live);
  *kept = (generated){0};
}

uint64_t generated_of_size(const generated *kept, uint64_t bytes) {
  uint64_t count = 0;
  for (size_t i = 0; i < kept->count; i++)
    count += kept->events[i].kind == TRACE_ALLOC && kept->events[i].size == bytes;
  return count;
}

uint64_t generated_lasting(const generated *kept, uint64_t bytes) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < kept->slots; i++) count += kept->live[i] == bytes;
  return count;
}

bool generated_equal(const generated *left, const generated *right) {
  if (left->count != right->count) return false;
  for (size_t i = 0; i < left->count; i++) {
    const trace_event *a = &left->events[i], *b = &right->events[i];
    if (a->kind != b->kind || a->slot != b->slot || a->stream != b->stream || a->size != b->size ||
        a->id != b->id)
      return false;
  }
  return true;
}
