/* How often a trace asks for each size, and how far two traces are apart in that. */
#ifndef LAKEBED_WORKLOADS_SIZE_HISTOGRAM_H
#define LAKEBED_WORKLOADS_SIZE_HISTOGRAM_H

#include <stdint.h>

enum { SIZE_HISTOGRAM_STEPS = 256 /* a doubling */, SIZE_HISTOGRAM_BINS = 63 * SIZE_HISTOGRAM_STEPS };

typedef struct size_histogram {
  uint64_t total;
  uint64_t bins[SIZE_HISTOGRAM_BINS]; /* by log2 of the size; 0 bytes count as 1 */
} size_histogram;

/* bytes: 0 to 2^63-1. O(1). */
void size_histogram_add(size_histogram *histogram, uint64_t bytes);
/* Earth mover's distance of the two distributions over log2 of the size: how many doublings a request has to
 * be changed by, on average, to turn one into the other. Right to 1/256. Negative: one is empty. */
double size_histogram_distance(const size_histogram *left, const size_histogram *right);

#endif
