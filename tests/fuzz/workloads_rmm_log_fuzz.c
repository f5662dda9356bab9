/* The reader of RMM's logs, of two devices, over any bytes, two laps. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/trace_laps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  trace_laps(data, size, "rmm", &(trace_options){0});
  trace_laps(data, size, "rmm", &(trace_options){.device = 1});
  return 0;
}
