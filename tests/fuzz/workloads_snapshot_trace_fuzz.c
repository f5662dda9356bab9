/* The snapshot reader over any bytes, with and without seeds, two laps. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "workloads/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_laps(const uint8_t *data, size_t size, const trace_options *options) {
  trace *opened;
  trace_error error;
  if (trace_open_memory(data, size, "input", options, &opened, &error) != TRACE_OK) return;
  uint64_t first_lap = 0;
  for (int lap = 0; lap < 2; lap++) {
    trace_event event;
    uint64_t events = 0;
    trace_status status;
    while ((status = trace_next(opened, &event, &error)) == TRACE_OK) {
      if (event.kind != TRACE_OUT_OF_MEMORY && event.slot >= trace_slots(opened)) abort();
      if (event.size > INT64_MAX) abort();
      events++;
    }
    trace_summary summary;
    trace_summary_get(opened, &summary);
    if (summary.allocations != summary.frees + summary.live_at_end) abort();
    if (summary.live_bytes > summary.rounded_live_bytes || summary.live_peak_bytes < summary.live_bytes)
      abort();
    if (status != TRACE_END && error.message[0] == '\0') abort();
    if (lap == 0) first_lap = events;
    if (events != first_lap) abort();
    if (trace_rewind(opened, &error) != TRACE_OK) abort();
  }
  trace_close(opened);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0 || data[0] != 0x80) return 0; /* not a pickle: the other readers have targets of their own */
  read_laps(data, size, &(trace_options){0});
  read_laps(data, size, &(trace_options){.device = 1, .free_requests = true, .seed_from_segments = true});
  return 0;
}
