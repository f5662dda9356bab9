/* Durations, counted in bins that are at most a sixteenth of their lower bound wide. */
#ifndef LAKEBED_HARNESS_INSTRUMENT_HISTOGRAM_H
#define LAKEBED_HARNESS_INSTRUMENT_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { INSTRUMENT_BIN_BITS = 4, INSTRUMENT_BINS = (64 - INSTRUMENT_BIN_BITS + 1) << INSTRUMENT_BIN_BITS };

typedef struct instrument_histogram {
  uint64_t count;
  uint64_t total_ns, minimum_ns, maximum_ns;
  uint64_t bins[INSTRUMENT_BINS];
} instrument_histogram;

/* O(1). */
void instrument_histogram_add(instrument_histogram *histogram, uint64_t duration_ns);
/* The duration that a share (0 to 1) of them does not exceed: the middle of its bin, within minimum and
 * maximum; 0 when there are none. */
uint64_t instrument_histogram_percentile(const instrument_histogram *histogram, double share);
/* The least duration that bin counts. */
uint64_t instrument_histogram_lower_ns(unsigned bin);

#endif
