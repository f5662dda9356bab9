#include "workloads/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/failure.h"
#include "workloads/lakebed_format.h"
#include "workloads/pickle_opcodes.h"
#include "workloads/reader.h"

enum { DETECTION_BYTES = 4096 };

static bool looks_like_text(const uint8_t *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] < ' ' && bytes[i] != '\n' && bytes[i] != '\r' && bytes[i] != '\t') return false;
  }
  return true;
}

/* A line of plain events begins with one of these; comments and empty lines may come first. */
static bool looks_like_events(const uint8_t *bytes, size_t size) {
  bool line_start = true;
  for (size_t i = 0; i < size; i++) {
    uint8_t byte = bytes[i];
    if (byte == '\n') {
      line_start = true;
    } else if (line_start && byte != ' ' && byte != '\t' && byte != '\r') {
      if (byte != '#') return byte == 'a' || byte == 'f';
      line_start = false;
    }
  }
  return true;
}

/* Formats that know their own beginnings. */
static const trace_format *recognise(const uint8_t *bytes, size_t size) {
  static const trace_format *const formats[] = {&trace_format_rmm, &trace_format_minimalloc,
                                                &trace_format_stalloc, &trace_format_kineto};
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    if (formats[i]->recognise(bytes, size)) return formats[i];
  }
  return NULL;
}

static trace_status detect(trace *opened, trace_error *error) {
  trace_input *input = &opened->input;
  trace_status status = trace_input_fill(input, DETECTION_BYTES, error);
  if (status != TRACE_OK) return status;
  const uint8_t *bytes = input->at;
  size_t size = (size_t)(input->end - input->at);
  if (size > DETECTION_BYTES) size = DETECTION_BYTES;
  static const char lakebed[] = TRACE_LAKEBED_MAGIC;
  if (size > 0 && bytes[0] == PICKLE_PROTO) {
    opened->format = &trace_format_snapshot;
  } else if (size >= sizeof lakebed - 1 && memcmp(bytes, lakebed, sizeof lakebed - 1) == 0) {
    opened->format = &trace_format_lakebed;
  } else if (looks_like_text(bytes, size)) {
    opened->format = recognise(bytes, size);
    if (opened->format == NULL && looks_like_events(bytes, size)) opened->format = &trace_format_events;
  }
  if (opened->format == NULL) {
    const char *hint = "";
    if (size >= 2 && bytes[0] == 'P' && bytes[1] == 'K') {
      hint = " (it is a zip archive, as torch.save writes it; a snapshot is written with pickle.dump)";
    } else if (trace_compression_detect(bytes, size) != TRACE_COMPRESSION_NONE) {
      hint = " (it is compressed twice)";
    }
    return trace_fail(
        error, TRACE_UNREADABLE, input->name,
        "is in no format that is known%s: expected a PyTorch memory snapshot (pickle, protocol 2 to "
        "5), a PyTorch profiler trace (JSON), an RMM or STAlloc log, minimalloc lifetimes, plain events "
        "('a ID SIZE [STREAM]', 'f ID'), or a lakebed trace; plain or compressed with xz, gzip or zstd",
        hint);
  }
  if (!opened->format->has_devices && opened->options.device != 0) {
    return trace_fail(error, TRACE_NO_EVENTS, input->name,
                      "device %" PRIu32 " was asked for, but a trace in format %s is of one device, 0",
                      opened->options.device, opened->format->name);
  }
  return TRACE_OK;
}

/* The input of opened is open. */
static trace_status open_reader(trace *opened, const trace_options *options, trace **result,
                                trace_error *error) {
  if (options != NULL) opened->options = *options;
  trace_status status = TRACE_OK;
  if (!trace_ledger_init(&opened->ledger)) status = trace_fail_memory(error, opened->input.name);
  if (status == TRACE_OK) status = detect(opened, error);
  if (status == TRACE_OK) {
    opened->ledger.summary.format = opened->format->name;
    opened->ledger.summary.compression = trace_compression_name(opened->input.compression);
    opened->ledger.summary.devices = 1;
    status = opened->format->create(opened, error);
  }
  if (status != TRACE_OK) {
    trace_close(opened);
    return status;
  }
  *result = opened;
  return TRACE_OK;
}

trace_status trace_open(const char *path, const trace_options *options, trace **opened, trace_error *error) {
  *opened = NULL;
  trace *made = calloc(1, sizeof *made);
  if (made == NULL) return trace_fail_memory(error, path);
  trace_status status = trace_input_open(&made->input, path, error);
  if (status != TRACE_OK) {
    free(made);
    return status;
  }
  return open_reader(made, options, opened, error);
}

trace_status trace_open_memory(const void *bytes, size_t size, const char *name, const trace_options *options,
                               trace **opened, trace_error *error) {
  *opened = NULL;
  trace *made = calloc(1, sizeof *made);
  if (made == NULL) return trace_fail_memory(error, name);
  trace_status status = trace_input_open_memory(&made->input, bytes, size, name, error);
  if (status != TRACE_OK) {
    free(made);
    return status;
  }
  return open_reader(made, options, opened, error);
}

trace_status trace_next(trace *opened, trace_event *event, trace_error *error) {
  if (opened->ended == TRACE_OK) {
    trace_status status = opened->format->next(opened, event, &opened->failure);
    if (status == TRACE_OK) return TRACE_OK;
    opened->ended = status;
    opened->failure.status = status;
  }
  if (error != NULL && opened->ended != TRACE_END) *error = opened->failure;
  return opened->ended;
}

trace_status trace_rewind(trace *opened, trace_error *error) {
  trace_status status = trace_input_rewind(&opened->input, error);
  if (status != TRACE_OK) return status;
  trace_ledger_clear(&opened->ledger);
  opened->mark_count = 0;
  opened->format->rewound(opened);
  opened->ended = TRACE_OK;
  return TRACE_OK;
}

bool trace_can_rewind(const trace *opened) { return opened->input.rewindable; }

const char *trace_name(const trace *opened) { return opened->input.name; }

uint32_t trace_slots(const trace *opened) { return trace_ledger_slots(&opened->ledger); }

uint64_t trace_stream_recorded(const trace *opened, uint32_t stream) {
  return stream < opened->ledger.stream_count ? opened->ledger.streams[stream] : 0;
}

void trace_summary_get(const trace *opened, trace_summary *summary) {
  *summary = opened->ledger.summary;
  summary->input_bytes = trace_input_offset(&opened->input);
}

bool trace_add_mark(trace *opened, uint64_t time_us) {
  if (opened->mark_count == opened->mark_capacity) {
    size_t capacity = opened->mark_capacity ? opened->mark_capacity * 2 : 64;
    uint64_t *marks = realloc(opened->marks, capacity * sizeof *marks);
    if (!marks) return false;
    opened->marks = marks;
    opened->mark_capacity = capacity;
  }
  opened->marks[opened->mark_count++] = time_us;
  return true;
}

static int compare_marks(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

size_t trace_marks(trace *opened, const uint64_t **marks) {
  if (opened->mark_count > 1) qsort(opened->marks, opened->mark_count, sizeof *opened->marks, compare_marks);
  *marks = opened->marks;
  return opened->mark_count;
}

double trace_progress(const trace *opened) {
  return opened->ended == TRACE_END ? 1.0 : trace_input_progress(&opened->input);
}

void trace_close(trace *opened) {
  if (opened == NULL) return;
  if (opened->format != NULL) opened->format->destroy(opened);
  trace_ledger_free(&opened->ledger);
  free(opened->marks);
  trace_input_close(&opened->input);
  free(opened);
}

static bool append_event(trace_events *loaded, uint64_t *capacity, const trace_event *event) {
  if (loaded->count == *capacity) {
    uint64_t wanted = *capacity == 0 ? 4096 : 2 * *capacity;
    if (wanted > SIZE_MAX / sizeof *event) return false;
    trace_event *events = realloc(loaded->events, (size_t)wanted * sizeof *events);
    if (events == NULL) return false;
    loaded->events = events;
    *capacity = wanted;
  }
  loaded->events[loaded->count++] = *event;
  return true;
}

trace_status trace_load(const char *path, const trace_options *options, trace_events *loaded,
                        trace_error *error) {
  memset(loaded, 0, sizeof *loaded);
  trace *opened;
  trace_status status = trace_open(path, options, &opened, error);
  if (status != TRACE_OK) return status;
  uint64_t capacity = 0;
  trace_event event;
  while ((status = trace_next(opened, &event, error)) == TRACE_OK) {
    if (append_event(loaded, &capacity, &event)) continue;
    status = trace_fail_memory(error, path);
    break;
  }
  loaded->slots = trace_slots(opened);
  trace_summary_get(opened, &loaded->summary);
  trace_close(opened);
  if (status == TRACE_END) return TRACE_OK;
  trace_events_free(loaded);
  return status;
}

void trace_events_free(trace_events *loaded) {
  free(loaded->events);
  memset(loaded, 0, sizeof *loaded);
}
