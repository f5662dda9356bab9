#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/failure.h"
#include "workloads/lakebed_format.h"
#include "workloads/reader.h"
#include "workloads/text.h"

typedef struct lakebed_reader {
  trace_text text;
  uint64_t events; /* lines that are events, those left out included */
  uint64_t time_us;
  uint32_t streams; /* indices declared */
  bool begun;       /* the first line has been read */
  bool ended;       /* the end line has been read */
} lakebed_reader;

static trace_status read_version(trace *opened, trace_text *text, trace_error *error) {
  text->at += strlen(TRACE_LAKEBED_MAGIC); /* detection has seen it */
  uint64_t version;
  if (!trace_text_unsigned(text, &version) || !trace_text_at_end(text)) {
    return trace_text_expected(text, opened->input.name, "the version of the lakebed trace format", error);
  }
  if (version != TRACE_LAKEBED_VERSION) {
    return trace_fail_line(error, opened->input.name, text->line,
                           "version %" PRIu64 " of the lakebed trace format: this program reads version %d",
                           version, TRACE_LAKEBED_VERSION);
  }
  return TRACE_OK;
}

static trace_status declare_stream(trace *opened, trace_text *text, trace_error *error) {
  lakebed_reader *reader = opened->reader;
  uint64_t index, recorded;
  if (!trace_text_unsigned(text, &index) || index != reader->streams) {
    return trace_fail_line(error, opened->input.name, text->line, "expected the stream INDEX %" PRIu32,
                           reader->streams);
  }
  if (!trace_text_unsigned(text, &recorded) || !trace_text_at_end(text)) {
    return trace_text_expected(text, opened->input.name, "'s INDEX HANDLE'", error);
  }
  uint32_t dense;
  trace_ledger_result result = trace_ledger_stream(&opened->ledger, recorded, &dense);
  if (result != TRACE_LEDGER_OK)
    return trace_ledger_fail(opened->input.name, text->line, recorded, result, error);
  if (dense != index) {
    return trace_fail_line(error, opened->input.name, text->line, "the stream %" PRIu64 " is declared twice",
                           recorded);
  }
  reader->streams++;
  return TRACE_OK;
}

static trace_status set_time(trace *opened, trace_text *text, trace_error *error) {
  lakebed_reader *reader = opened->reader;
  uint64_t time_us;
  if (!trace_text_unsigned(text, &time_us) || time_us > INT64_MAX || !trace_text_at_end(text)) {
    return trace_text_expected(text, opened->input.name, "'t MICROSECONDS' (0 to 2^63-1)", error);
  }
  reader->time_us = time_us;
  return TRACE_OK;
}

/* The optional last field of an event: microseconds since the one before. */
static trace_status advance_time(trace *opened, trace_text *text, trace_error *error) {
  lakebed_reader *reader = opened->reader;
  if (trace_text_at_end(text)) return TRACE_OK;
  int64_t delta;
  if (!trace_text_signed(text, &delta) || !trace_text_at_end(text)) {
    return trace_text_expected(text, opened->input.name,
                               "the microseconds since the event before, then the end of the line", error);
  }
  int64_t time_us;
  if (__builtin_add_overflow((int64_t)reader->time_us, delta, &time_us) || time_us < 0) {
    return trace_fail_line(error, opened->input.name, text->line, "the time leaves 0 to 2^63-1 microseconds");
  }
  reader->time_us = (uint64_t)time_us;
  return TRACE_OK;
}

static trace_status read_size_and_stream(trace *opened, trace_text *text, uint64_t *size, uint64_t *stream,
                                         trace_error *error) {
  const lakebed_reader *reader = opened->reader;
  uint64_t index;
  const uint8_t *field = text->at;
  if (!trace_text_unsigned(text, size) || *size > INT64_MAX) {
    text->at = field;
    return trace_text_expected(text, opened->input.name, "a SIZE (bytes, 0 to 2^63-1)", error);
  }
  if (!trace_text_unsigned(text, &index) || index >= reader->streams) {
    return trace_fail_line(error, opened->input.name, text->line,
                           "expected a stream INDEX that an 's' line has declared (or 0)");
  }
  *stream = opened->ledger.streams[index];
  return TRACE_OK;
}

/* One a, r, f or o line. *delivered: event is filled. */
static trace_status read_event(trace *opened, trace_text *text, char letter, trace_event *event,
                               bool *delivered, trace_error *error) {
  lakebed_reader *reader = opened->reader;
  uint64_t id = 0, size = 0, stream = 0;
  if (letter != 'o' && !trace_text_unsigned(text, &id)) {
    return trace_text_expected(text, opened->input.name, "an ID (a number from 0 on)", error);
  }
  trace_status status = TRACE_OK;
  if (letter == 'a' || letter == 'o') status = read_size_and_stream(opened, text, &size, &stream, error);
  if (status == TRACE_OK) status = advance_time(opened, text, error);
  if (status != TRACE_OK) return status;
  reader->events++;
  trace_ledger_result result;
  *delivered = true;
  switch (letter) {
    case 'a':
      result = trace_ledger_alloc(&opened->ledger, id, size, stream, event);
      break;
    case 'f':
      result = trace_ledger_free_completed(&opened->ledger, id, event);
      break;
    case 'o':
      result = trace_ledger_out_of_memory(&opened->ledger, size, stream, event);
      break;
    default:
      *delivered = opened->options.free_requests;
      if (!*delivered) return TRACE_OK;
      result = trace_ledger_free_requested(&opened->ledger, id, event);
      break;
  }
  if (result != TRACE_LEDGER_OK) return trace_ledger_fail(opened->input.name, text->line, id, result, error);
  event->time_us = reader->time_us;
  return TRACE_OK;
}

static trace_status read_end(trace *opened, trace_text *text, trace_error *error) {
  lakebed_reader *reader = opened->reader;
  uint64_t events;
  if (!trace_text_unsigned(text, &events) || !trace_text_at_end(text)) {
    return trace_text_expected(text, opened->input.name, "'e EVENTS'", error);
  }
  if (events != reader->events) {
    return trace_fail_line(error, opened->input.name, text->line,
                           "the trace says it has %" PRIu64 " events, %" PRIu64 " were read", events,
                           reader->events);
  }
  reader->ended = true;
  return TRACE_OK;
}

static trace_status end_of_file(const trace *opened, trace_error *error) {
  const lakebed_reader *reader = opened->reader;
  if (!reader->ended) {
    return trace_fail_line(error, opened->input.name, reader->text.line,
                           "the trace ends without its 'e EVENTS' line: the file is truncated");
  }
  if (reader->events == 0) return trace_fail(error, TRACE_NO_EVENTS, opened->input.name, "holds no events");
  return TRACE_END;
}

static trace_status next(trace *opened, trace_event *event, trace_error *error) {
  lakebed_reader *reader = opened->reader;
  trace_text *text = &reader->text;
  bool delivered = false;
  while (!delivered) {
    trace_status status = trace_text_next(text, &opened->input, error);
    if (status == TRACE_END) return end_of_file(opened, error);
    if (status != TRACE_OK) return status;
    if (!reader->begun) {
      status = read_version(opened, text, error);
      reader->begun = true;
    } else if (reader->ended) {
      status = trace_text_expected(text, opened->input.name, "nothing after the 'e EVENTS' line", error);
    } else {
      char letter = trace_text_letter(text);
      switch (letter) {
        case 'a':
        case 'f':
        case 'r':
        case 'o':
          status = read_event(opened, text, letter, event, &delivered, error);
          break;
        case 's':
          status = declare_stream(opened, text, error);
          break;
        case 't':
          status = set_time(opened, text, error);
          break;
        case 'e':
          status = read_end(opened, text, error);
          break;
        default:
          if (letter != 0) text->at--;
          status = trace_text_expected(text, opened->input.name,
                                       "a line that begins with a, f, r, o, s, t or e", error);
      }
    }
    if (status != TRACE_OK) return status;
  }
  return TRACE_OK;
}

static void restart(lakebed_reader *reader) { *reader = (lakebed_reader){.streams = 1}; }

static trace_status create(trace *opened, trace_error *error) {
  lakebed_reader *reader = malloc(sizeof *reader);
  if (reader == NULL) return trace_fail_memory(error, opened->input.name);
  restart(reader);
  opened->reader = reader;
  return TRACE_OK;
}

static void rewound(trace *opened) { restart(opened->reader); }

static void destroy(trace *opened) { free(opened->reader); }

const trace_format trace_format_lakebed = {
    .name = "lakebed", .create = create, .next = next, .rewound = rewound, .destroy = destroy};
