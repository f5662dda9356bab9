#include <stdlib.h>

#include "workloads/failure.h"
#include "workloads/reader.h"
#include "workloads/text.h"

typedef struct events_reader {
  trace_text text;
  uint64_t events;
} events_reader;

static trace_status next(trace *opened, trace_event *event, trace_error *error) {
  events_reader *reader = opened->reader;
  trace_text *text = &reader->text;
  trace_status status = trace_text_next(text, &opened->input, error);
  if (status == TRACE_END && reader->events == 0) {
    return trace_fail(error, TRACE_NO_EVENTS, opened->input.name, "holds no events");
  }
  if (status != TRACE_OK) return status;

  char letter = trace_text_letter(text);
  uint64_t id, size, stream = 0;
  if (letter != 'a' && letter != 'f') {
    if (letter != 0) text->at--;
    return trace_text_expected(text, opened->input.name, "'a ID SIZE [STREAM]' or 'f ID'", error);
  }
  if (!trace_text_unsigned(text, &id))
    return trace_text_expected(text, opened->input.name, "an ID (a number from 0 on)", error);
  trace_ledger_result result;
  if (letter == 'a') {
    const uint8_t *field = text->at;
    if (!trace_text_unsigned(text, &size) || size > INT64_MAX) {
      text->at = field;
      return trace_text_expected(text, opened->input.name, "a SIZE (bytes, 0 to 2^63-1)", error);
    }
    if (!trace_text_at_end(text) && !trace_text_unsigned(text, &stream)) {
      return trace_text_expected(text, opened->input.name, "a STREAM (a number from 0 on)", error);
    }
    if (!trace_text_at_end(text))
      return trace_text_expected(text, opened->input.name, "the end of the line after STREAM", error);
    result = trace_ledger_alloc(&opened->ledger, id, size, stream, event);
  } else {
    if (!trace_text_at_end(text))
      return trace_text_expected(text, opened->input.name, "the end of the line after ID", error);
    result = trace_ledger_free_completed(&opened->ledger, id, event);
  }
  if (result != TRACE_LEDGER_OK) return trace_ledger_fail(opened->input.name, text->line, id, result, error);
  event->time_us = 0;
  reader->events++;
  return TRACE_OK;
}

static trace_status create(trace *opened, trace_error *error) {
  opened->reader = calloc(1, sizeof(events_reader));
  return opened->reader != NULL ? TRACE_OK : trace_fail_memory(error, opened->input.name);
}

static void rewound(trace *opened) {
  events_reader *reader = opened->reader;
  *reader = (events_reader){0};
}

static void destroy(trace *opened) { free(opened->reader); }

const trace_format trace_format_events = {
    .name = "events", .create = create, .next = next, .rewound = rewound, .destroy = destroy};
