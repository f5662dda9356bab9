#include "harness/instrument_histogram.h"

/* Below 16 ns a bin is a nanosecond wide; above, every power of two has 16 bins of equal width. */
enum { PER_OCTAVE = 1 << INSTRUMENT_BIN_BITS };

static unsigned bin_of(uint64_t duration_ns) {
  if (duration_ns < PER_OCTAVE) return (unsigned)duration_ns;
  unsigned shift = 63u - (unsigned)__builtin_clzll(duration_ns) - INSTRUMENT_BIN_BITS;
  return (shift << INSTRUMENT_BIN_BITS) + (unsigned)(duration_ns >> shift);
}

uint64_t instrument_histogram_lower_ns(unsigned bin) {
  if (bin < 2 * PER_OCTAVE) return bin;
  unsigned shift = (bin >> INSTRUMENT_BIN_BITS) - 1;
  return (uint64_t)(bin - (shift << INSTRUMENT_BIN_BITS)) << shift;
}

void instrument_histogram_add(instrument_histogram *histogram, uint64_t duration_ns) {
  if (histogram->count++ == 0 || duration_ns < histogram->minimum_ns) histogram->minimum_ns = duration_ns;
  if (duration_ns > histogram->maximum_ns) histogram->maximum_ns = duration_ns;
  histogram->total_ns += duration_ns;
  histogram->bins[bin_of(duration_ns)]++;
}

uint64_t instrument_histogram_percentile(const instrument_histogram *histogram, double share) {
  if (histogram->count == 0) return 0;
  double exact = share * (double)histogram->count;
  uint64_t rank = exact > 1 ? (uint64_t)exact : 1;
  if ((double)rank < exact) rank++;
  uint64_t seen = 0;
  for (unsigned bin = 0; bin < INSTRUMENT_BINS; bin++) {
    seen += histogram->bins[bin];
    if (seen < rank) continue;
    uint64_t lower = instrument_histogram_lower_ns(bin);
    uint64_t middle =
        bin + 1 < INSTRUMENT_BINS ? lower + (instrument_histogram_lower_ns(bin + 1) - lower) / 2 : lower;
    if (middle < histogram->minimum_ns) return histogram->minimum_ns;
    return middle > histogram->maximum_ns ? histogram->maximum_ns : middle;
  }
  return histogram->maximum_ns;
}
