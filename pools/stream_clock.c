#include "pools/stream_clock.h"

#include <stdlib.h>
#include <string.h>

enum { EVENTS_LIMIT = 64, POINTS_AN_EVENT = 64 };

/* Recorded events of one stream, oldest first: a ring. */
struct pool_stream_events {
  uint64_t last_point; /* given out */
  uint64_t covered;    /* by an event, reached or not */
  uint64_t passed;     /* seen */
  uint64_t *waited;    /* of each stream, the latest point that this one was made to wait for */
  uint32_t waited_count;
  struct {
    vmm_event event;
    uint64_t point;
  } recorded[EVENTS_LIMIT];
  uint32_t begin, count;
};

void pool_stream_clock_init(pool_stream_clock *clock, vmm_driver *driver) {
  *clock = (pool_stream_clock){.driver = driver};
}

static void drop_oldest(pool_stream_clock *clock, pool_stream_events *events) {
  vmm_event_discard(clock->driver, events->recorded[events->begin].event);
  events->begin = (events->begin + 1) % EVENTS_LIMIT;
  events->count--;
}

void pool_stream_clock_fini(pool_stream_clock *clock) {
  for (uint32_t stream = 0; stream < clock->count; stream++) {
    while (clock->streams[stream].count > 0) drop_oldest(clock, &clock->streams[stream]);
    free(clock->streams[stream].waited);
  }
  free(clock->streams);
  *clock = (pool_stream_clock){0};
}

vmm_status pool_stream_clock_prepare(pool_stream_clock *clock, vmm_stream stream) {
  if (stream < clock->count) return VMM_SUCCESS;
  uint32_t count = stream + 4;
  pool_stream_events *streams = realloc(clock->streams, count * sizeof *streams);
  if (!streams) return VMM_OUT_OF_MEMORY;
  memset(streams + clock->count, 0, (count - clock->count) * sizeof *streams);
  clock->streams = streams;
  clock->count = count;
  return VMM_SUCCESS;
}

uint64_t pool_stream_clock_point(pool_stream_clock *clock, vmm_stream stream) {
  return ++clock->streams[stream].last_point;
}

/* Sees how far the stream has got. */
static void observe(pool_stream_clock *clock, pool_stream_events *events) {
  while (events->count > 0 &&
         vmm_event_query(clock->driver, events->recorded[events->begin].event) == VMM_SUCCESS) {
    events->passed = events->recorded[events->begin].point;
    drop_oldest(clock, events);
  }
}

/* An event that covers the point; false when none can be recorded. */
static bool cover(pool_stream_clock *clock, vmm_stream stream, uint64_t point) {
  pool_stream_events *events = &clock->streams[stream];
  if (events->covered >= point) return true;
  if (events->count == EVENTS_LIMIT) return false;
  vmm_event event;
  if (vmm_event_record(clock->driver, stream, &event) != VMM_SUCCESS) return false;
  uint32_t place = (events->begin + events->count++) % EVENTS_LIMIT;
  events->recorded[place].event = event;
  events->recorded[place].point = events->last_point;
  events->covered = events->last_point;
  return true;
}

bool pool_stream_clock_passed(pool_stream_clock *clock, vmm_stream stream, uint64_t point) {
  pool_stream_events *events = &clock->streams[stream];
  if (point <= events->passed) return true;
  if (events->last_point - events->covered >= POINTS_AN_EVENT) cover(clock, stream, events->last_point);
  observe(clock, events);
  return point <= events->passed;
}

bool pool_stream_clock_reached(pool_stream_clock *clock, vmm_stream stream, uint64_t point) {
  pool_stream_events *events = &clock->streams[stream];
  if (point <= events->passed) return true;
  observe(clock, events);
  /* The other half is left to waits, which else fall to the host. */
  if (events->count < EVENTS_LIMIT / 2) cover(clock, stream, point);
  observe(clock, events);
  return point <= events->passed;
}

bool pool_stream_clock_ordered(const pool_stream_clock *clock, vmm_stream waiter, vmm_stream stream,
                               uint64_t point) {
  const pool_stream_events *waiting = &clock->streams[waiter];
  return point <= clock->streams[stream].passed ||
         (stream < waiting->waited_count && point <= waiting->waited[stream]);
}

/* Remembers a wait; forgetting one only means to wait again. */
static void remember_wait(pool_stream_clock *clock, vmm_stream waiter, vmm_stream stream, uint64_t point) {
  pool_stream_events *waiting = &clock->streams[waiter];
  if (stream >= waiting->waited_count) {
    uint64_t *waited = realloc(waiting->waited, clock->count * sizeof *waited);
    if (!waited) return;
    memset(waited + waiting->waited_count, 0, (clock->count - waiting->waited_count) * sizeof *waited);
    waiting->waited = waited;
    waiting->waited_count = clock->count;
  }
  waiting->waited[stream] = point;
}

vmm_status pool_stream_clock_wait(pool_stream_clock *clock, vmm_stream waiter, vmm_stream stream,
                                  uint64_t point) {
  pool_stream_events *events = &clock->streams[stream];
  if (pool_stream_clock_ordered(clock, waiter, stream, point)) return VMM_SUCCESS;
  if (!cover(clock, stream, point)) {
    /* Too many events are under way, or none can be had: the host waits instead. */
    vmm_status status = vmm_synchronize(clock->driver);
    if (status == VMM_SUCCESS) pool_stream_clock_all_passed(clock);
    return status;
  }
  for (uint32_t i = 0; i < events->count; i++) {
    uint32_t place = (events->begin + i) % EVENTS_LIMIT;
    if (events->recorded[place].point < point) continue;
    vmm_status status = vmm_stream_wait_event(clock->driver, waiter, events->recorded[place].event);
    if (status != VMM_SUCCESS) return status;
    clock->waits++;
    remember_wait(clock, waiter, stream, events->recorded[place].point);
    return VMM_SUCCESS;
  }
  return VMM_INVALID_VALUE;
}

void pool_stream_clock_all_passed(pool_stream_clock *clock) {
  for (uint32_t stream = 0; stream < clock->count; stream++) {
    pool_stream_events *events = &clock->streams[stream];
    while (events->count > 0) drop_oldest(clock, events);
    events->passed = events->covered = events->last_point;
  }
}
