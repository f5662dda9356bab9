/* What each stream's work has reached, for allocators that reuse memory across
 * streams in stream order.
 *
 * Every release of memory on a stream is a point of that stream, numbered from 1.
 * Points are observed with few events: one is recorded when a point has to be waited
 * for, or asked about with many points behind it, and covers all earlier ones.
 * Not thread-safe. */
#ifndef LAKEBED_POOLS_STREAM_CLOCK_H
#define LAKEBED_POOLS_STREAM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/driver.h"

typedef struct pool_stream_events pool_stream_events;

typedef struct pool_stream_clock {
  vmm_driver *driver;
  pool_stream_events *streams;
  uint32_t count; /* streams known */
  uint64_t waits; /* stream waits asked of the driver */
} pool_stream_clock;

void pool_stream_clock_init(pool_stream_clock *clock, vmm_driver *driver);
/* Discards the events that are still recorded. */
void pool_stream_clock_fini(pool_stream_clock *clock);
/* Makes room for a stream. OUT_OF_MEMORY when the host has none. */
vmm_status pool_stream_clock_prepare(pool_stream_clock *clock, vmm_stream stream);

/* A new point of the stream, now. The stream must be prepared. O(1). */
uint64_t pool_stream_clock_point(pool_stream_clock *clock, vmm_stream stream);
/* Has the device been seen to have passed the point? False too while no event covers it. */
bool pool_stream_clock_passed(pool_stream_clock *clock, vmm_stream stream, uint64_t point);
/* The same, but if no event covers the point yet one is recorded now, unless many are under way. */
bool pool_stream_clock_reached(pool_stream_clock *clock, vmm_stream stream, uint64_t point);
/* Does work given to waiter from now on run after the point anyway, because it is passed or because
 * the stream was made to wait for it before? Asks the driver nothing. O(1). */
bool pool_stream_clock_ordered(const pool_stream_clock *clock, vmm_stream waiter, vmm_stream stream,
                               uint64_t point);
/* Work given to waiter from now on runs after the point. Both streams must be prepared. */
vmm_status pool_stream_clock_wait(pool_stream_clock *clock, vmm_stream waiter, vmm_stream stream,
                                  uint64_t point);
/* The host has waited for the device: every point is passed. */
void pool_stream_clock_all_passed(pool_stream_clock *clock);

#endif
