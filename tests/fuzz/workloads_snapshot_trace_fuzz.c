/* The snapshot reader over any bytes, with and without seeds and marks, two laps. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/trace_laps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0 || data[0] != 0x80) return 0; /* not a pickle: the other readers have targets of their own */
  trace_laps(data, size, NULL, &(trace_options){0});
  trace_laps(data, size, NULL,
             &(trace_options){.device = 1, .free_requests = true, .seed_from_segments = true});
  trace_laps(data, size, NULL, &(trace_options){.marks = true});
  return 0;
}
