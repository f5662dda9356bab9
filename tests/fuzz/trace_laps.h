/* Reads a trace from memory in two laps, which have to be the same, and checks what holds for every
 * trace. For the fuzz targets of readers. */
#ifndef LAKEBED_TESTS_FUZZ_TRACE_LAPS_H
#define LAKEBED_TESTS_FUZZ_TRACE_LAPS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/trace.h"

/* format: all others are let be, for they have targets of their own; NULL for any. */
static inline void trace_laps(const uint8_t *data, size_t size, const char *format,
                              const trace_options *options) {
  trace *opened;
  trace_error error;
  if (trace_open_memory(data, size, "input", options, &opened, &error) != TRACE_OK) return;
  trace_summary summary;
  trace_summary_get(opened, &summary);
  uint64_t first_lap = 0;
  for (int lap = 0; lap < 2 && (format == NULL || strcmp(summary.format, format) == 0); lap++) {
    trace_event event;
    uint64_t events = 0;
    trace_status status;
    while ((status = trace_next(opened, &event, &error)) == TRACE_OK) {
      if (event.kind != TRACE_OUT_OF_MEMORY && event.slot >= trace_slots(opened)) abort();
      if (event.size > INT64_MAX || event.time_us > INT64_MAX) abort();
      events++;
    }
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

#endif
