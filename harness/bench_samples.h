/* Durations that were measured, and how they spread. Nanoseconds. */
#ifndef LAKEBED_HARNESS_BENCH_SAMPLES_H
#define LAKEBED_HARNESS_BENCH_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begins as {0}. */
typedef struct bench_samples {
  uint64_t *values;
  size_t count, capacity;
  bool lost; /* the host had no memory for some */
} bench_samples;

typedef struct bench_summary {
  size_t count;
  double mean;
  double p50;                          /* the mean of the two in the middle when the count is even */
  uint64_t minimum, p90, p99, maximum; /* p90, p99: nearest rank */
} bench_summary;

void bench_samples_add(bench_samples *samples, uint64_t nanoseconds);
/* Sorts the samples. All zero without samples. O(n log n). */
bench_summary bench_samples_summarize(bench_samples *samples);
void bench_samples_free(bench_samples *samples);

#endif
