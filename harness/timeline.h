/* Memory over the events of a run, thinned to a bounded number of points as it
 * grows. Whatever is left out, the first and last point stay, and so do the highest
 * live, allocated and reserved and the lowest live of each stretch of events. */
#ifndef LAKEBED_HARNESS_TIMELINE_H
#define LAKEBED_HARNESS_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

typedef struct timeline_point {
  uint64_t event; /* 0 is the first */
  uint64_t time_us;
  uint64_t live_bytes;
  uint64_t allocated_bytes;
  uint64_t reserved_bytes;
} timeline_point;

enum { TIMELINE_LEAST_POINTS = 16 };

typedef struct timeline timeline;

/* points: at most so many are kept, at least TIMELINE_LEAST_POINTS. NULL when the host has no memory. */
timeline *timeline_create(size_t points);
/* The memory after one more event. Amortised O(1), allocates nothing. */
void timeline_add(timeline *line, const timeline_point *point);
/* Writes the points in the order of their events; room for those asked for at creation.
 * Returns how many there are. */
size_t timeline_points(const timeline *line, timeline_point *points);
/* Accepts NULL. */
void timeline_destroy(timeline *line);

#endif
