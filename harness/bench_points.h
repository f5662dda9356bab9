/* The points of a latency profile, each from many samples. */
#ifndef LAKEBED_HARNESS_BENCH_POINTS_H
#define LAKEBED_HARNESS_BENCH_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/driver.h"

/* What one measurement of a point took, and how fast the processor was then (bench_host.h). */
typedef struct bench_point_sample {
  double nanoseconds;
  uint64_t host_ns;
} bench_point_sample;

typedef struct bench_cost_point {
  vmm_call call;
  uint64_t size, live_handles; /* see vmm/profile.h */
  bench_point_sample *samples;
  size_t count, capacity;
  double nanoseconds; /* when they are settled */
} bench_cost_point;

/* Begins as {0}. */
typedef struct bench_points {
  bench_cost_point *points;
  size_t count, capacity;
  uint64_t samples, steady_samples; /* in all, and those that the points were made from */
  bool lost;                        /* the host had no memory for some */
} bench_points;

/* The number of a new point, without samples. */
size_t bench_points_add(bench_points *self, vmm_call call, uint64_t size, uint64_t live_handles);
void bench_points_sample(bench_points *self, size_t number, double nanoseconds, uint64_t host_ns);
/* Makes each point the median of those of its samples that were taken while the processor had the speed that
 * it had most of the time; of the three nearest to that when there are fewer. Drops points without samples
 * and sorts the rest by call, size and live handles: their numbers no longer hold. */
void bench_points_settle(bench_points *self);
void bench_points_free(bench_points *self);

#endif
