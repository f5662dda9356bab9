#include "harness/bench_points.h"

#include <math.h>
#include <stdlib.h>

size_t bench_points_add(bench_points *self, vmm_call call, uint64_t size, uint64_t live_handles) {
  if (self->count == self->capacity) {
    size_t capacity = self->capacity ? self->capacity * 2 : 256;
    bench_cost_point *grown = realloc(self->points, capacity * sizeof *grown);
    if (!grown) {
      self->lost = true;
      return SIZE_MAX;
    }
    self->points = grown;
    self->capacity = capacity;
  }
  self->points[self->count] = (bench_cost_point){.call = call, .size = size, .live_handles = live_handles};
  return self->count++;
}

void bench_points_sample(bench_points *self, size_t number, double nanoseconds, uint64_t host_ns) {
  if (number >= self->count) return;
  bench_cost_point *point = &self->points[number];
  if (point->count == point->capacity) {
    size_t capacity = point->capacity ? point->capacity * 2 : 16;
    bench_point_sample *grown = realloc(point->samples, capacity * sizeof *grown);
    if (!grown) {
      self->lost = true;
      return;
    }
    point->samples = grown;
    point->capacity = capacity;
  }
  point->samples[point->count++] = (bench_point_sample){nanoseconds, host_ns};
}

static int compare_numbers(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

/* Sorts the numbers. */
static double median(double *numbers, size_t count) {
  if (count == 0) return 0;
  qsort(numbers, count, sizeof *numbers, compare_numbers);
  return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

static double distance(const bench_point_sample *sample, double host_ns) {
  return fabs((double)sample->host_ns - host_ns);
}

/* room: for all of its samples. */
static double settle_point(bench_points *self, bench_cost_point *point, double host_ns, double *room) {
  const double near = host_ns * 0.08;
  for (size_t i = 1; i < point->count; i++) { /* by distance; there are few */
    const bench_point_sample moved = point->samples[i];
    size_t at = i;
    for (; at > 0 && distance(&point->samples[at - 1], host_ns) > distance(&moved, host_ns); at--) {
      point->samples[at] = point->samples[at - 1];
    }
    point->samples[at] = moved;
  }
  size_t used = 0;
  while (used < point->count && (used < 3 || distance(&point->samples[used], host_ns) <= near)) {
    room[used] = point->samples[used].nanoseconds;
    used++;
  }
  self->samples += point->count;
  self->steady_samples += used;
  return median(room, used);
}

/* Points that could not be measured here (no such allocator) have no samples. */
static void drop_empty_points(bench_points *self) {
  size_t kept = 0;
  for (size_t i = 0; i < self->count; i++) {
    if (self->points[i].count > 0) {
      self->points[kept++] = self->points[i];
    } else {
      free(self->points[i].samples);
    }
  }
  self->count = kept;
}

static int compare_points(const void *left, const void *right) {
  const bench_cost_point *a = left, *b = right;
  if (a->call != b->call) return a->call < b->call ? -1 : 1;
  if (a->size != b->size) return a->size < b->size ? -1 : 1;
  return a->live_handles < b->live_handles ? -1 : a->live_handles > b->live_handles;
}

void bench_points_settle(bench_points *self) {
  drop_empty_points(self);
  size_t most = 0, total = 0;
  for (size_t i = 0; i < self->count; i++) {
    total += self->points[i].count;
    if (self->points[i].count > most) most = self->points[i].count;
  }
  double *hosts = calloc(total + 1, sizeof *hosts), *room = calloc(most + 1, sizeof *room);
  if (hosts && room) {
    size_t filled = 0;
    for (size_t i = 0; i < self->count; i++) {
      for (size_t j = 0; j < self->points[i].count; j++)
        hosts[filled++] = (double)self->points[i].samples[j].host_ns;
    }
    const double host_ns = median(hosts, filled);
    for (size_t i = 0; i < self->count; i++) {
      self->points[i].nanoseconds = settle_point(self, &self->points[i], host_ns, room);
    }
  } else {
    self->lost = true;
  }
  free(hosts);
  free(room);
  if (self->count > 0) qsort(self->points, self->count, sizeof *self->points, compare_points);
}

void bench_points_free(bench_points *self) {
  for (size_t i = 0; i < self->count; i++) free(self->points[i].samples);
  free(self->points);
  *self = (bench_points){0};
}
