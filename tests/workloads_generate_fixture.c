#include "tests/workloads_generate_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static trace_status keep(void *context, const trace_event *event, uint64_t recorded_stream,
                         trace_error *error) {
  generated *kept = context;
  ck_assert_uint_eq(recorded_stream, event->stream);
  if (kept->count == kept->capacity) {
    kept->capacity = kept->capacity ? kept->capacity * 2 : 1024;
    kept->events = reallocarray(kept->events, kept->capacity, sizeof *kept->events);
    ck_assert_ptr_nonnull(kept->events);
  }
  kept->events[kept->count++] = *event;
  if (kept->count == kept->refuse_at) {
    error->status = TRACE_UNWRITABLE;
    strcpy(error->message, "refused");
    return TRACE_UNWRITABLE;
  }
  if (event->kind == TRACE_ALLOC) {
    ck_assert_uint_eq(event->id, ++kept->allocations);
    ck_assert_uint_le(event->slot, kept->slots);
    if (event->slot == kept->slots) {
      kept->live = reallocarray(kept->live, ++kept->slots, sizeof *kept->live);
      ck_assert_ptr_nonnull(kept->live);
    } else {
      ck_assert(kept->live[event->slot] == UINT64_MAX);
    }
    kept->live[event->slot] = event->size;
    kept->live_bytes += event->size;
    if (kept->live_bytes > kept->peak_bytes) kept->peak_bytes = kept->live_bytes;
  } else {
    ck_assert_int_eq(event->kind, TRACE_FREE);
    ck_assert_uint_lt(event->slot, kept->slots);
    ck_assert_uint_eq(kept->live[event->slot], event->size);
    kept->live[event->slot] = UINT64_MAX;
    kept->live_bytes -= event->size;
  }
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
