/* The ranges of all runs as a Chrome trace, for Perfetto or chrome://tracing, with counters of live
 * and reserved memory. A run is a process of the trace and begins at 0.
 *
 * Time is the run's own: on a real device the wall clock; on a simulated one the wall clock with each driver
 * call taking as long as the model says. It stands still while the trace is written
 * and while events are read. */
#ifndef LAKEBED_HARNESS_INSTRUMENT_TRACE_EVENTS_H
#define LAKEBED_HARNESS_INSTRUMENT_TRACE_EVENTS_H

#include <stddef.h>

#include "harness/instrument.h"

/* Opens the file. NULL when it cannot be written or the host has no memory, with the reason. Memory does not
 * grow with the trace. A regular file has its name when the instrument ends after a run; until then it
 * is called as partial_file_name says, holds valid JSON with all ranges closed at any time, and stays if the
 * program is killed. */
instrument *instrument_trace_events_create(const char *path, char *message, size_t message_size);

#endif
