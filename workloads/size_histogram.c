#include "workloads/size_histogram.h"

#include <math.h>

void size_histogram_add(size_histogram *histogram, uint64_t bytes) {
  double doublings = bytes > 1 ? log2((double)bytes) : 0;
  int bin = (int)(doublings * SIZE_HISTOGRAM_STEPS);
  if (bin >= SIZE_HISTOGRAM_BINS) bin = SIZE_HISTOGRAM_BINS - 1;
  histogram->bins[bin]++;
  histogram->total++;
}

double size_histogram_distance(const size_histogram *left, const size_histogram *right) {
  if (left->total == 0 || right->total == 0) return -1;
  double difference = 0, distance = 0;
  for (unsigned i = 0; i < SIZE_HISTOGRAM_BINS; i++) {
    difference += (double)left->bins[i] / (double)left->total - (double)right->bins[i] / (double)right->total;
    distance += fabs(difference) / SIZE_HISTOGRAM_STEPS;
  }
  return distance;
}
