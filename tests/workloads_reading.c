#include "tests/workloads_reading.h"

#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct slot_state {
  bool live;
  bool requested;
  uint64_t size;
  uint64_t id;
} slot_state;

typedef struct watcher {
  slot_state *slots;
  uint32_t count;
} watcher;

/* As ck_assert, which writes a note of every success for the parent process: too slow for every event. */
#define must(condition)                                    \
  do {                                                     \
    if (!(condition)) ck_abort_msg("not so: " #condition); \
  } while (0)

static slot_state *slot_of(watcher *watch, uint32_t slot) {
  if (slot >= watch->count) {
    uint32_t count = 2 * slot + 64;
    watch->slots = realloc(watch->slots, count * sizeof *watch->slots);
    must(watch->slots != NULL);
    memset(watch->slots + watch->count, 0, (count - watch->count) * sizeof *watch->slots);
    watch->count = count;
  }
  return &watch->slots[slot];
}

static void watch_event(watcher *watch, const trace_event *event, const trace *opened) {
  must(event->size <= INT64_MAX);
  must(event->time_us <= INT64_MAX);
  if (event->kind == TRACE_OUT_OF_MEMORY) return;
  must(event->slot < trace_slots(opened));
  slot_state *slot = slot_of(watch, event->slot);
  if (event->kind == TRACE_ALLOC) {
    must(!slot->live);
    *slot = (slot_state){.live = true, .size = event->size, .id = event->id};
    return;
  }
  must(slot->live);
  must(slot->size == event->size);
  must(slot->id == event->id);
  if (event->kind == TRACE_FREE) {
    slot->live = false;
  } else {
    must(!slot->requested);
    slot->requested = true;
  }
}

static void check_summary(const reading *result, const watcher *watch) {
  const trace_summary *summary = &result->summary;
  uint64_t live = 0, bytes = 0;
  for (uint32_t i = 0; i < watch->count; i++) {
    if (!watch->slots[i].live) continue;
    live++;
    bytes += watch->slots[i].size;
  }
  ck_assert_uint_eq(summary->live_at_end, live);
  ck_assert_uint_eq(summary->live_bytes, bytes);
  ck_assert_uint_eq(summary->allocations, summary->frees + live);
  ck_assert_uint_ge(summary->live_peak_bytes, bytes);
  ck_assert_uint_ge(summary->rounded_live_peak_bytes, summary->live_peak_bytes);
}

static void read_on(trace *opened, reading *result) {
  watcher watch = {0};
  trace_event event;
  while ((result->status = trace_next(opened, &event, &result->error)) == TRACE_OK) {
    watch_event(&watch, &event, opened);
    if (result->count < sizeof result->events / sizeof result->events[0])
      result->events[result->count] = event;
    result->count++;
  }
  trace_error again;
  ck_assert_int_eq(trace_next(opened, &event, &again), result->status);
  if (result->status != TRACE_END) {
    ck_assert_int_eq(result->error.status, result->status);
    ck_assert_str_eq(again.message, result->error.message);
  }
  trace_summary_get(opened, &result->summary);
  result->slots = trace_slots(opened);
  for (uint32_t i = 0; i < 4; i++) result->recorded_streams[i] = trace_stream_recorded(opened, i);
  check_summary(result, &watch);
  free(watch.slots);
}

static void finish(trace_status status, trace *opened, reading *result) {
  result->opened = status == TRACE_OK;
  result->status = status;
  if (result->opened) {
    read_on(opened, result);
    trace_close(opened);
  } else {
    ck_assert_ptr_null(opened);
    ck_assert_int_eq(result->error.status, status);
  }
}

void read_memory(const void *bytes, size_t size, const trace_options *options, reading *result) {
  memset(result, 0, sizeof *result);
  trace *opened;
  trace_status status = trace_open_memory(bytes, size, "memory", options, &opened, &result->error);
  finish(status, opened, result);
}

void read_text(const char *text, reading *result) { read_memory(text, strlen(text), NULL, result); }

void read_file(const char *path, const trace_options *options, reading *result) {
  memset(result, 0, sizeof *result);
  trace *opened;
  trace_status status = trace_open(path, options, &opened, &result->error);
  finish(status, opened, result);
}

void assert_same_event(const trace_event *left, const trace_event *right) {
  must(left->kind == right->kind);
  must(left->slot == right->slot);
  must(left->stream == right->stream);
  must(left->size == right->size);
  /* Of the formats only snapshots say how much of the device was free. */
  must(left->id == right->id || left->kind == TRACE_OUT_OF_MEMORY);
  must(left->time_us == right->time_us);
}

void assert_same_events(const reading *left, const reading *right) {
  ck_assert_int_eq(left->status, right->status);
  ck_assert_uint_eq(left->count, right->count);
  uint64_t most = sizeof left->events / sizeof left->events[0];
  for (uint64_t i = 0; i < left->count && i < most; i++)
    assert_same_event(&left->events[i], &right->events[i]);
  ck_assert_uint_eq(left->summary.live_peak_bytes, right->summary.live_peak_bytes);
  ck_assert_uint_eq(left->summary.live_bytes, right->summary.live_bytes);
  ck_assert_uint_eq(left->summary.streams, right->summary.streams);
  for (uint32_t i = 0; i < 4; i++) ck_assert_uint_eq(left->recorded_streams[i], right->recorded_streams[i]);
}

void assert_failed(const reading *result, trace_status status, const char *part) {
  ck_assert_msg(result->status == status && strstr(result->error.message, part) != NULL,
                "expected status %d and a message with \"%s\", got %d: %s", status, part, result->status,
                result->status == TRACE_END ? "the end" : result->error.message);
}

unsigned char *read_bytes(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return NULL;
  size_t capacity = 1 << 16, used = 0;
  unsigned char *bytes = malloc(capacity);
  ck_assert_ptr_nonnull(bytes);
  size_t got;
  while ((got = fread(bytes + used, 1, capacity - used, file)) > 0) {
    used += got;
    if (used < capacity) continue;
    capacity *= 2;
    unsigned char *grown = realloc(bytes, capacity);
    must(grown != NULL);
    bytes = grown;
  }
  fclose(file);
  *size = used;
  return bytes;
}

const char *beside_the_project(const char *folder, char *buffer) {
  /* Tests run in a folder of links; the link of any file of the tree leads to the tree. */
  static const char known[] = "tests/data/snapshots/small.p4.pickle";
  char resolved[PATH_MAX];
  if (realpath(known, resolved) == NULL) return NULL;
  size_t length = strlen(resolved);
  if (length <= strlen(known)) return NULL;
  resolved[length - strlen(known)] = '\0';
  int used = snprintf(buffer, PATH_MAX, "%s../shared/%s", resolved, folder);
  if (used < 0 || used >= PATH_MAX) return NULL;
  return access(buffer, R_OK) == 0 ? buffer : NULL;
}
