#include "harness/event_source.h"

#include <stdio.h>
#include <stdlib.h>

struct event_source {
  trace *reader;
  const char *rewind_advice; /* NULL: nobody said that the trace will be rewound */
  trace_event *kept;         /* the first events; all of them when complete and not streaming */
  size_t kept_count, kept_capacity;
  size_t cursor;      /* the next of the kept ones to deliver */
  trace_event *batch; /* when streaming */
  bool streaming;     /* the trace is too long to be kept */
  bool complete;
  bool at_end;
  trace_summary summary; /* once complete */
  uint64_t *marks;
  size_t mark_count;
};

static trace_status out_of_memory(trace_error *error) {
  error->status = TRACE_NO_MEMORY;
  snprintf(error->message, sizeof error->message, "no memory for the trace's events");
  return TRACE_NO_MEMORY;
}

trace_status event_source_open(const char *path, const trace_options *options, event_source **opened,
                               trace_error *error) {
  *opened = NULL;
  event_source *source = calloc(1, sizeof *source);
  if (!source) return out_of_memory(error);
  trace_status status = trace_open(path, options, &source->reader, error);
  if (status != TRACE_OK) {
    free(source);
    return status;
  }
  *opened = source;
  return TRACE_OK;
}

/* Room for another batch behind the kept events; goes over to streaming when there are too many. */
static bool make_room(event_source *source) {
  if (source->kept_count + EVENT_SOURCE_BATCH > EVENT_SOURCE_KEPT) {
    source->batch = malloc(EVENT_SOURCE_BATCH * sizeof *source->batch);
    if (!source->batch) return false;
    free(source->kept);
    source->kept = NULL;
    source->kept_count = source->kept_capacity = source->cursor = 0;
    source->streaming = true;
    return true;
  }
  if (source->kept_count + EVENT_SOURCE_BATCH > source->kept_capacity) {
    size_t capacity = source->kept_capacity ? source->kept_capacity * 2 : 4 * EVENT_SOURCE_BATCH;
    trace_event *kept = realloc(source->kept, capacity * sizeof *kept);
    if (!kept) return false;
    source->kept = kept;
    source->kept_capacity = capacity;
  }
  return true;
}

static trace_status read_batch(event_source *source, const trace_event **events, size_t *count,
                               trace_error *error) {
  if (!source->streaming && !make_room(source)) return out_of_memory(error);
  if (source->streaming && source->rewind_advice && !trace_can_rewind(source->reader)) {
    error->status = TRACE_UNREADABLE;
    snprintf(error->message, sizeof error->message,
             "%s can be read once, and the trace is too long to be kept in memory: %s",
             trace_name(source->reader), source->rewind_advice);
    return TRACE_UNREADABLE;
  }
  trace_event *batch = source->streaming ? source->batch : source->kept + source->kept_count;
  trace_status status = TRACE_OK;
  size_t read = 0;
  while (read < EVENT_SOURCE_BATCH && (status = trace_next(source->reader, &batch[read], error)) == TRACE_OK)
    read++;
  if (status != TRACE_OK && status != TRACE_END) return status;
  if (status == TRACE_END) {
    source->at_end = true;
    if (!source->complete) trace_summary_get(source->reader, &source->summary);
    source->complete = true;
  }
  if (!source->streaming) {
    source->kept_count += read;
    source->cursor = source->kept_count;
  }
  *events = batch;
  *count = read;
  return read > 0 ? TRACE_OK : TRACE_END;
}

trace_status event_source_next(event_source *source, const trace_event **events, size_t *count,
                               trace_error *error) {
  *count = 0;
  if (source->cursor < source->kept_count) {
    size_t left = source->kept_count - source->cursor;
    *events = source->kept + source->cursor;
    *count = left < EVENT_SOURCE_BATCH ? left : EVENT_SOURCE_BATCH;
    source->cursor += *count;
    return TRACE_OK;
  }
  if (source->at_end) return TRACE_END;
  return read_batch(source, events, count, error);
}

trace_status event_source_rewind(event_source *source, trace_error *error) {
  source->cursor = 0;
  if (!source->streaming) return TRACE_OK;
  source->at_end = false;
  return trace_rewind(source->reader, error);
}

trace_status event_source_find_marks(event_source *source, trace_error *error) {
  trace_status status;
  const trace_event *events;
  size_t count;
  while ((status = event_source_next(source, &events, &count, error)) == TRACE_OK) continue;
  if (status != TRACE_END) return status;
  const uint64_t *found;
  count = trace_marks(source->reader, &found);
  uint64_t *marks = malloc((count + 1) * sizeof *marks);
  if (!marks) return out_of_memory(error);
  for (size_t i = 0; i < count; i++) marks[i] = found[i];
  free(source->marks);
  source->marks = marks;
  source->mark_count = count;
  return event_source_rewind(source, error);
}

size_t event_source_marks(const event_source *source, const uint64_t **marks) {
  *marks = source->marks;
  return source->mark_count;
}

void event_source_expect_rewinds(event_source *source, const char *advice) { source->rewind_advice = advice; }

bool event_source_complete(const event_source *source) { return source->complete; }

void event_source_summary(const event_source *source, trace_summary *summary) {
  if (source->complete) {
    *summary = source->summary;
  } else {
    trace_summary_get(source->reader, summary);
  }
}

double event_source_progress(const event_source *source) {
  if (!source->streaming && source->complete) {
    return source->kept_count ? (double)source->cursor / (double)source->kept_count : 1;
  }
  return trace_progress(source->reader);
}

void event_source_close(event_source *source) {
  if (!source) return;
  trace_close(source->reader);
  free(source->kept);
  free(source->batch);
  free(source->marks);
  free(source);
}
