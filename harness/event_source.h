/* A trace's events in batches, as often as wanted. A trace of up to
 * EVENT_SOURCE_KEPT events is read once and kept, so that many policies can replay
 * it without reading it again; a longer one is read anew each time, in bounded
 * memory. */
#ifndef LAKEBED_HARNESS_EVENT_SOURCE_H
#define LAKEBED_HARNESS_EVENT_SOURCE_H

#include <stddef.h>

#include "workloads/trace.h"

enum { EVENT_SOURCE_KEPT = 1 << 20, EVENT_SOURCE_BATCH = 4096 };

typedef struct event_source event_source;

/* Opens a trace as trace_open does. The caller closes *opened. */
trace_status event_source_open(const char *path, const trace_options *options, event_source **opened,
                               trace_error *error);
/* The next events, 1 to EVENT_SOURCE_BATCH of them, valid until the next call. TRACE_OK,
 * TRACE_END, or a failure as of trace_next. */
trace_status event_source_next(event_source *source, const trace_event **events, size_t *count,
                               trace_error *error);
/* Back to the first event. Standard input can be rewound as long as all of it is kept. */
trace_status event_source_rewind(event_source *source, trace_error *error);
/* Reads the trace to its end and back to its first event, and keeps the ends of its iterations (trace_marks);
 * it must have been opened with options.marks. Fails as event_source_next and event_source_rewind do. */
trace_status event_source_find_marks(event_source *source, trace_error *error);
/* How many were found, and when they are. Valid until the source is closed. */
size_t event_source_marks(const event_source *source, const uint64_t **marks);
/* The trace will be rewound: if it can be read only once, event_source_next fails as soon as it is too long
 * to be kept, not the rewind (TRACE_UNREADABLE). advice: what to do then, for the message; borrowed. */
void event_source_expect_rewinds(event_source *source, const char *advice);
/* Has the whole trace been read once? */
bool event_source_complete(const event_source *source);
/* Of the first reading; complete when event_source_complete says so. */
void event_source_summary(const event_source *source, trace_summary *summary);
/* Share of the events delivered since the last rewind, 0 to 1; negative when unknown. */
double event_source_progress(const event_source *source);
/* Accepts NULL. */
void event_source_close(event_source *source);

#endif
