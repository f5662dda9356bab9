#include "harness/bench_samples.h"

#include <stdlib.h>

void bench_samples_add(bench_samples *samples, uint64_t nanoseconds) {
  if (samples->count == samples->capacity) {
    size_t capacity = samples->capacity ? samples->capacity * 2 : 64;
    uint64_t *grown = realloc(samples->values, capacity * sizeof *grown);
    if (!grown) {
      samples->lost = true;
      return;
    }
    samples->values = grown;
    samples->capacity = capacity;
  }
  samples->values[samples->count++] = nanoseconds;
}

static int compare_values(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return a < b ? -1 : a > b;
}

/* The smallest value that at least percent % of all do not exceed. */
static uint64_t nearest_rank(const bench_samples *samples, size_t percent) {
  size_t rank = (samples->count * percent + 99) / 100;
  return samples->values[rank > 0 ? rank - 1 : 0];
}

bench_summary bench_samples_summarize(bench_samples *samples) {
  bench_summary summary = {.count = samples->count};
  if (samples->count == 0) return summary;
  qsort(samples->values, samples->count, sizeof *samples->values, compare_values);
  double sum = 0;
  for (size_t i = 0; i < samples->count; i++) sum += (double)samples->values[i];
  size_t middle = samples->count / 2;
  summary.mean = sum / (double)samples->count;
  summary.p50 = samples->count % 2
                    ? (double)samples->values[middle]
                    : ((double)samples->values[middle - 1] + (double)samples->values[middle]) / 2;
  summary.minimum = samples->values[0];
  summary.p90 = nearest_rank(samples, 90);
  summary.p99 = nearest_rank(samples, 99);
  summary.maximum = samples->values[samples->count - 1];
  return summary;
}

void bench_samples_free(bench_samples *samples) {
  free(samples->values);
  *samples = (bench_samples){0};
}
