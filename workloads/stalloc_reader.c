#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/csv.h"
#include "workloads/failure.h"
#include "workloads/reader.h"

typedef struct stalloc_reader {
  trace_text text;
  uint64_t events;
} stalloc_reader;

static bool begins_with(const trace_text *text, const char *start) {
  size_t size = strlen(start);
  return (size_t)(text->end - text->at) >= size && memcmp(text->at, start, size) == 0;
}

static bool is_pass(uint8_t byte) { return byte == 'F' || byte == 'B' || byte == 'W'; }

/* The lines between the events say where in the training they are:
 *   Iteration Index : NUMBER|end        micro-batch : F|B|W        NAME : F|B|W-start|end */
static bool is_marker(const trace_text *line) {
  trace_text name = *line, value = *line;
  const uint8_t *colon = NULL;
  for (const uint8_t *at = line->at; at < line->end; at++) {
    if (*at == ':') colon = at;
  }
  if (colon == NULL || colon == line->at) return false;
  name.end = colon;
  value.at = colon + 1;
  if (trace_text_at_end(&value)) return false;
  if (begins_with(&name, "Iteration Index")) {
    uint64_t number;
    return trace_csv_is(&value, "end") || (trace_text_unsigned(&value, &number) && trace_text_at_end(&value));
  }
  if (!is_pass(*value.at)) return false;
  value.at++;
  if (begins_with(&name, "micro-batch")) return trace_text_at_end(&value);
  return trace_csv_is(&value, "-start") || trace_csv_is(&value, "-end");
}

/* KIND ADDRESS SIZE STREAM; what: what was expected where it is not. */
static bool read_line(trace_text *text, uint64_t *kind, uint64_t *address, uint64_t *size, uint64_t *stream,
                      const char **what) {
  *what =
      "'1 ADDRESS SIZE STREAM' (allocation), '0 ADDRESS SIZE STREAM' (free) or a line that says where "
      "the training is";
  if (!trace_text_unsigned(text, kind) || *kind > 1) return false;
  *what = "an ADDRESS (0x...)";
  if (!trace_text_pointer(text, address)) return false;
  *what = "a SIZE (bytes, 0 to 2^63-1)";
  if (!trace_text_unsigned(text, size) || *size > INT64_MAX) return false;
  *what = "a STREAM (0x... or 0)";
  if (!trace_text_pointer(text, stream)) return false;
  *what = "the end of the line after STREAM";
  return trace_text_at_end(text);
}

static bool recognise(const uint8_t *bytes, size_t size) {
  trace_text line;
  trace_csv_first_line(bytes, size, &line);
  if (is_marker(&line)) return true;
  uint64_t kind, address, allocated, stream;
  const char *what;
  return read_line(&line, &kind, &address, &allocated, &stream, &what);
}

static trace_status ledger_failed(const trace *opened, uint64_t address, trace_ledger_result result,
                                  trace_error *error) {
  const stalloc_reader *reader = opened->reader;
  if (result == TRACE_LEDGER_NO_MEMORY) return trace_fail_memory(error, opened->input.name);
  return trace_fail_line(error, opened->input.name, reader->text.line, "0x%" PRIx64 " %s", address,
                         trace_ledger_result_text(result));
}

/* The line that text holds. *delivered: event is filled. */
static trace_status read_event(trace *opened, trace_event *event, bool *delivered, trace_error *error) {
  stalloc_reader *reader = opened->reader;
  trace_text *text = &reader->text;
  trace_summary *summary = &opened->ledger.summary;
  if (is_marker(text)) {
    summary->other_events++;
    return TRACE_OK;
  }
  uint64_t kind, address, size, stream;
  const char *what;
  if (!read_line(text, &kind, &address, &size, &stream, &what))
    return trace_text_expected(text, opened->input.name, what, error);
  if (address == 0) { /* of 0 bytes */
    if (kind == 1 && size > 0) {
      return trace_fail_line(error, opened->input.name, text->line,
                             "expected the address of the %" PRIu64 " bytes that were allocated, found null",
                             size);
    }
    summary->other_events++;
    return TRACE_OK;
  }
  trace_ledger_result result = kind == 1 ? trace_ledger_alloc(&opened->ledger, address, size, stream, event)
                                         : trace_ledger_free_completed(&opened->ledger, address, event);
  if (result != TRACE_LEDGER_OK) return ledger_failed(opened, address, result, error);
  if (kind == 0 && event->size != size) summary->free_size_mismatches++;
  event->time_us = 0;
  reader->events++;
  *delivered = true;
  return TRACE_OK;
}

static trace_status next(trace *opened, trace_event *event, trace_error *error) {
  stalloc_reader *reader = opened->reader;
  bool delivered = false;
  while (!delivered) {
    bool complete;
    trace_status status = trace_text_line(&reader->text, &opened->input, &complete, error);
    if (status == TRACE_END && reader->events == 0)
      return trace_fail(error, TRACE_NO_EVENTS, opened->input.name, "holds no events");
    if (status != TRACE_OK) return status;
    if (!complete) {
      return trace_fail_line(error, opened->input.name, reader->text.line,
                             "the last line has no end: the log is truncated");
    }
    status = read_event(opened, event, &delivered, error);
    if (status != TRACE_OK) return status;
  }
  return TRACE_OK;
}

static trace_status create(trace *opened, trace_error *error) {
  opened->reader = calloc(1, sizeof(stalloc_reader));
  return opened->reader != NULL ? TRACE_OK : trace_fail_memory(error, opened->input.name);
}

static void rewound(trace *opened) {
  stalloc_reader *reader = opened->reader;
  *reader = (stalloc_reader){0};
}

static void destroy(trace *opened) { free(opened->reader); }

const trace_format trace_format_stalloc = {.name = "stalloc",
                                           .recognise = recognise,
                                           .create = create,
                                           .next = next,
                                           .rewound = rewound,
                                           .destroy = destroy};
