/* The reader of minimalloc's lifetimes over any bytes, two laps. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/trace_laps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  trace_laps(data, size, "minimalloc", &(trace_options){0});
  trace_laps(data, size, "minimalloc", &(trace_options){.free_requests = true});
  return 0;
}
