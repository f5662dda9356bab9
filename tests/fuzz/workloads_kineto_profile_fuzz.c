/* The reader of profiles, with and without seeds, over any bytes, two laps. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/trace_laps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  trace_laps(data, size, "kineto", &(trace_options){0});
  trace_laps(data, size, "kineto", &(trace_options){.device = 3, .seed_from_segments = true});
  return 0;
}
