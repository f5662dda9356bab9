#include "workloads/trace_writer.h"

#include <stdlib.h>
#include <string.h>

#include "workloads/failure.h"
#include "workloads/id_map.h"
#include "workloads/lakebed_format.h"
#include "workloads/output.h"

enum {
  BUFFER_BYTES = 64 * 1024,
  LONGEST_RECORD = 256 /* the lines of one event, with those that must come before it */
};

/* A step in time that is longer is written as a time of its own. */
#define LONGEST_STEP_US INT64_C(1000000000)

struct trace_writer {
  trace_output *output;
  char *path;
  trace_file_format format;
  trace_id_map stream_indices;
  uint32_t stream_count;
  uint64_t events;
  uint64_t left_out;
  int64_t time_us;
  size_t used;
  char buffer[BUFFER_BYTES];
};

static void put_letter(trace_writer *writer, char letter) { writer->buffer[writer->used++] = letter; }

static void put_digits(trace_writer *writer, uint64_t value) {
  char digits[20];
  size_t at = sizeof digits;
  do {
    digits[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  memcpy(writer->buffer + writer->used, digits + at, sizeof digits - at);
  writer->used += sizeof digits - at;
}

static void put_number(trace_writer *writer, uint64_t value) {
  put_letter(writer, ' ');
  put_digits(writer, value);
}

static void put_text(trace_writer *writer, const char *text) {
  size_t size = strlen(text);
  memcpy(writer->buffer + writer->used, text, size);
  writer->used += size;
}

static trace_status make_room(trace_writer *writer, trace_error *error) {
  if (BUFFER_BYTES - writer->used >= LONGEST_RECORD) return TRACE_OK;
  size_t size = writer->used;
  writer->used = 0;
  return trace_output_write(writer->output, writer->buffer, size, error);
}

trace_status trace_writer_open(const char *path, trace_file_format format, trace_writer **opened,
                               trace_error *error) {
  *opened = NULL;
  trace_writer *writer = calloc(1, sizeof *writer);
  if (writer == NULL) return trace_fail_memory(error, path);
  trace_id_map_init(&writer->stream_indices, 0);
  writer->format = format;
  writer->stream_count = 1;
  writer->path = strdup(path);
  trace_status status = writer->path != NULL ? TRACE_OK : trace_fail_memory(error, path);
  if (status == TRACE_OK) status = trace_output_open(path, &writer->output, error);
  if (status != TRACE_OK) {
    trace_writer_abandon(writer);
    return status;
  }
  if (format == TRACE_FILE_LAKEBED) {
    put_text(writer, TRACE_LAKEBED_MAGIC);
    put_digits(writer, TRACE_LAKEBED_VERSION);
    put_letter(writer, '\n');
  }
  *opened = writer;
  return TRACE_OK;
}

/* The index of a recorded stream, declared in the file where it is new. */
static trace_status stream_index(trace_writer *writer, uint64_t recorded, uint32_t *index,
                                 trace_error *error) {
  *index = 0;
  if (recorded == 0) return TRACE_OK;
  trace_id_entry *entry = trace_id_map_put(&writer->stream_indices, recorded);
  if (entry == NULL) return trace_fail_memory(error, writer->path);
  if (entry->value == TRACE_ID_EMPTY) {
    entry->value = writer->stream_count++;
    if (writer->format == TRACE_FILE_LAKEBED) {
      put_letter(writer, 's');
      put_number(writer, entry->value);
      put_number(writer, recorded);
      put_letter(writer, '\n');
    }
  }
  *index = entry->value;
  return TRACE_OK;
}

/* Where the step from the event before is long, a line of its own; else *step goes at the event's end. */
static void advance_time(trace_writer *writer, uint64_t time_us, int64_t *step) {
  int64_t now = time_us <= INT64_MAX ? (int64_t)time_us : INT64_MAX;
  *step = now - writer->time_us;
  if (*step > LONGEST_STEP_US || *step < -LONGEST_STEP_US) {
    put_letter(writer, 't');
    put_number(writer, (uint64_t)now);
    put_letter(writer, '\n');
    *step = 0;
  }
  writer->time_us = now;
}

static void add_lakebed(trace_writer *writer, const trace_event *event, uint32_t stream, int64_t step) {
  static const char letters[] = {
      [TRACE_ALLOC] = 'a', [TRACE_FREE] = 'f', [TRACE_FREE_REQUESTED] = 'r', [TRACE_OUT_OF_MEMORY] = 'o'};
  put_letter(writer, letters[event->kind]);
  if (event->kind != TRACE_OUT_OF_MEMORY) put_number(writer, event->id);
  if (event->kind == TRACE_ALLOC || event->kind == TRACE_OUT_OF_MEMORY) {
    put_number(writer, event->size);
    put_number(writer, stream);
  }
  if (step != 0) {
    put_letter(writer, ' ');
    if (step < 0) put_letter(writer, '-');
    put_digits(writer, (uint64_t)(step < 0 ? -step : step));
  }
  put_letter(writer, '\n');
}

static void add_plain(trace_writer *writer, const trace_event *event, uint32_t stream) {
  put_letter(writer, event->kind == TRACE_ALLOC ? 'a' : 'f');
  put_number(writer, event->id);
  if (event->kind == TRACE_ALLOC) {
    put_number(writer, event->size);
    put_number(writer, stream);
  }
  put_letter(writer, '\n');
}

trace_status trace_writer_add(trace_writer *writer, const trace_event *event, uint64_t stream,
                              trace_error *error) {
  if (writer->format == TRACE_FILE_EVENTS && event->kind != TRACE_ALLOC && event->kind != TRACE_FREE) {
    writer->left_out++;
    return TRACE_OK;
  }
  trace_status status = make_room(writer, error);
  uint32_t index = 0;
  bool has_stream = event->kind == TRACE_ALLOC || event->kind == TRACE_OUT_OF_MEMORY;
  if (status == TRACE_OK && has_stream) status = stream_index(writer, stream, &index, error);
  if (status != TRACE_OK) return status;
  writer->events++;
  if (writer->format == TRACE_FILE_EVENTS) {
    add_plain(writer, event, index);
    return TRACE_OK;
  }
  int64_t step;
  advance_time(writer, event->time_us, &step);
  add_lakebed(writer, event, index, step);
  return TRACE_OK;
}

uint64_t trace_writer_left_out(const trace_writer *writer) { return writer->left_out; }

trace_status trace_writer_finish(trace_writer *writer, trace_error *error) {
  trace_status status = make_room(writer, error);
  if (status == TRACE_OK && writer->format == TRACE_FILE_LAKEBED) {
    put_letter(writer, 'e');
    put_number(writer, writer->events);
    put_letter(writer, '\n');
  }
  if (status == TRACE_OK) status = trace_output_write(writer->output, writer->buffer, writer->used, error);
  if (status == TRACE_OK) {
    status = trace_output_finish(writer->output, error);
    writer->output = NULL;
  }
  trace_writer_abandon(writer);
  return status;
}

void trace_writer_abandon(trace_writer *writer) {
  if (writer == NULL) return;
  trace_output_abandon(writer->output);
  trace_id_map_free(&writer->stream_indices);
  free(writer->path);
  free(writer);
}
