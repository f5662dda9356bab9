#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/csv.h"
#include "workloads/failure.h"
#include "workloads/reader.h"

/* Rows are numbered in 32 bits. */
#define MOST_ROWS (UINT32_MAX / 4)

/* Where the columns are; alignment, gaps and offset may be TRACE_CSV_NO_COLUMN. */
typedef struct lifetime_columns {
  size_t count;
  size_t id, lower, upper, size;
  size_t alignment, gaps, offset;
  bool inclusive; /* upper is the last moment of the life, not the first after it */
} lifetime_columns;

typedef struct lifetime {
  uint64_t size;
  uint64_t line;
} lifetime;

typedef struct moment {
  int64_t time;
  uint32_t row;
  bool begins;
} moment;

typedef struct minimalloc_reader {
  trace_text text;
  lifetime_columns columns;
  lifetime *lifetimes;
  size_t count, capacity;
  moment *moments; /* two for each lifetime, sorted once all are known */
  size_t delivered;
  bool loaded;
} minimalloc_reader;

/* The first of names (NULL at their end) that the header has. */
static size_t find_any(const trace_csv_row *header, const char *const names[]) {
  for (; *names != NULL; names++) {
    size_t column = trace_csv_find(header, *names);
    if (column != TRACE_CSV_NO_COLUMN) return column;
  }
  return TRACE_CSV_NO_COLUMN;
}

static bool find_columns(const trace_csv_row *header, lifetime_columns *columns) {
  static const char *const ids[] = {"id", "buffer", "buffer_id", NULL};
  static const char *const lowers[] = {"lower", "begin", "start", NULL};
  *columns = (lifetime_columns){.count = header->count,
                                .id = find_any(header, ids),
                                .lower = find_any(header, lowers),
                                .upper = trace_csv_find(header, "upper"),
                                .size = trace_csv_find(header, "size"),
                                .alignment = trace_csv_find(header, "alignment"),
                                .gaps = trace_csv_find(header, "gaps"),
                                .offset = trace_csv_find(header, "offset")};
  if (columns->upper == TRACE_CSV_NO_COLUMN) {
    columns->upper = trace_csv_find(header, "end");
    columns->inclusive = true;
  }
  return columns->id != TRACE_CSV_NO_COLUMN && columns->lower != TRACE_CSV_NO_COLUMN &&
         columns->upper != TRACE_CSV_NO_COLUMN && columns->size != TRACE_CSV_NO_COLUMN;
}

static bool recognise(const uint8_t *bytes, size_t size) {
  trace_text line;
  trace_csv_row header;
  lifetime_columns columns;
  trace_csv_first_line(bytes, size, &line);
  trace_csv_split(&line, TRACE_CSV_MOST_COLUMNS, &header);
  return find_columns(&header, &columns);
}

static trace_status expected(const trace *opened, const trace_csv_row *fields, size_t column,
                             const char *what, trace_error *error) {
  trace_text field = fields->fields[column];
  return trace_text_expected(&field, opened->input.name, what, error);
}

static bool read_moment(const trace_csv_row *fields, size_t column, int64_t *time) {
  trace_text field = fields->fields[column];
  return trace_text_signed(&field, time) && trace_text_at_end(&field);
}

/* The columns that change nothing for us, or that we cannot serve. */
static trace_status check_constraints(const trace *opened, const trace_csv_row *fields, trace_error *error) {
  const minimalloc_reader *reader = opened->reader;
  const lifetime_columns *columns = &reader->columns;
  const char *name = opened->input.name;
  uint64_t number = 1;
  trace_status status = TRACE_OK;
  if (columns->alignment != TRACE_CSV_NO_COLUMN)
    status = trace_csv_unsigned(fields, columns->alignment, name, "an alignment from 1 on", &number, error);
  if (status == TRACE_OK && number == 0)
    status = expected(opened, fields, columns->alignment, "an alignment from 1 on", error);
  if (status == TRACE_OK && columns->offset != TRACE_CSV_NO_COLUMN)
    status = trace_csv_unsigned(fields, columns->offset, name, "an offset", &number, error);
  if (status != TRACE_OK || columns->gaps == TRACE_CSV_NO_COLUMN) return status;
  const trace_text *gaps = &fields->fields[columns->gaps];
  if (gaps->at == gaps->end) return TRACE_OK;
  return expected(opened, fields, columns->gaps,
                  "no gaps (an allocation cannot be given back for a while and keep its place)", error);
}

static bool grow(minimalloc_reader *reader) {
  if (reader->count < reader->capacity) return true;
  size_t capacity = reader->capacity == 0 ? 256 : 2 * reader->capacity;
  lifetime *lifetimes = realloc(reader->lifetimes, capacity * sizeof *lifetimes);
  if (lifetimes == NULL) return false;
  reader->lifetimes = lifetimes;
  moment *moments = realloc(reader->moments, 2 * capacity * sizeof *moments);
  if (moments == NULL) return false;
  reader->moments = moments;
  reader->capacity = capacity;
  return true;
}

static trace_status read_row(trace *opened, trace_error *error) {
  minimalloc_reader *reader = opened->reader;
  const lifetime_columns *columns = &reader->columns;
  trace_csv_row fields;
  trace_csv_split(&reader->text, TRACE_CSV_MOST_COLUMNS, &fields);
  if (fields.count != columns->count) {
    return trace_fail_line(error, opened->input.name, reader->text.line,
                           "expected %zu fields, as the header has, found %zu", columns->count, fields.count);
  }
  const trace_text *id = &fields.fields[columns->id];
  if (id->at == id->end) return expected(opened, &fields, columns->id, "an id", error);
  int64_t lower, upper;
  if (!read_moment(&fields, columns->lower, &lower))
    return expected(opened, &fields, columns->lower, "the time at which the life begins", error);
  if (!read_moment(&fields, columns->upper, &upper) || (columns->inclusive && upper == INT64_MAX))
    return expected(opened, &fields, columns->upper, "the time at which the life ends", error);
  if (columns->inclusive) upper++;
  if (upper <= lower)
    return expected(opened, &fields, columns->upper, "a life that ends after it began", error);
  uint64_t size;
  trace_status status = trace_csv_unsigned(&fields, columns->size, opened->input.name,
                                           "a size (bytes, 0 to 2^63-1)", &size, error);
  if (status == TRACE_OK && size > INT64_MAX)
    status = expected(opened, &fields, columns->size, "a size (bytes, 0 to 2^63-1)", error);
  if (status == TRACE_OK) status = check_constraints(opened, &fields, error);
  if (status != TRACE_OK) return status;
  if (reader->count >= MOST_ROWS) {
    return trace_fail_line(error, opened->input.name, reader->text.line,
                           "more lifetimes than can be numbered");
  }
  if (!grow(reader)) return trace_fail_memory(error, opened->input.name);
  uint32_t row = (uint32_t)reader->count++;
  reader->lifetimes[row] = (lifetime){.size = size, .line = reader->text.line};
  reader->moments[2 * (size_t)row] = (moment){.time = lower, .row = row, .begins = true};
  reader->moments[2 * (size_t)row + 1] = (moment){.time = upper, .row = row};
  return TRACE_OK;
}

/* Lives are half-open: what ends at a time has ended before anything begins at it. */
static int by_time(const void *left, const void *right) {
  const moment *one = left, *other = right;
  if (one->time != other->time) return one->time < other->time ? -1 : 1;
  if (one->begins != other->begins) return one->begins ? 1 : -1;
  return one->row < other->row ? -1 : one->row > other->row;
}

static trace_status load(trace *opened, trace_error *error) {
  minimalloc_reader *reader = opened->reader;
  bool complete, begun = false;
  trace_status status;
  while ((status = trace_text_line(&reader->text, &opened->input, &complete, error)) == TRACE_OK) {
    if (begun) {
      status = read_row(opened, error);
    } else {
      trace_csv_row header;
      trace_csv_split(&reader->text, TRACE_CSV_MOST_COLUMNS, &header);
      begun = true;
      status =
          find_columns(&header, &reader->columns)
              ? trace_csv_check_header(&header, opened->input.name, error)
              : trace_text_expected(&reader->text, opened->input.name, "the columns of lifetimes", error);
    }
    if (status != TRACE_OK) return status;
  }
  if (status != TRACE_END) return status;
  if (reader->count == 0) return trace_fail(error, TRACE_NO_EVENTS, opened->input.name, "holds no events");
  qsort(reader->moments, 2 * reader->count, sizeof *reader->moments, by_time);
  reader->loaded = true;
  return TRACE_OK;
}

static trace_status next(trace *opened, trace_event *event, trace_error *error) {
  minimalloc_reader *reader = opened->reader;
  if (!reader->loaded) {
    trace_status status = load(opened, error);
    if (status != TRACE_OK) return status;
  }
  if (reader->delivered == 2 * reader->count) return TRACE_END;
  const moment *now = &reader->moments[reader->delivered];
  const lifetime *life = &reader->lifetimes[now->row];
  trace_ledger_result result = now->begins
                                   ? trace_ledger_alloc(&opened->ledger, now->row, life->size, 0, event)
                                   : trace_ledger_free_completed(&opened->ledger, now->row, event);
  if (result == TRACE_LEDGER_NO_MEMORY) return trace_fail_memory(error, opened->input.name);
  if (result != TRACE_LEDGER_OK) {
    return trace_fail_line(error, opened->input.name, life->line, "the buffer of this row %s",
                           trace_ledger_result_text(result));
  }
  event->time_us = 0;
  reader->delivered++;
  return TRACE_OK;
}

static trace_status create(trace *opened, trace_error *error) {
  opened->reader = calloc(1, sizeof(minimalloc_reader));
  return opened->reader != NULL ? TRACE_OK : trace_fail_memory(error, opened->input.name);
}

static void rewound(trace *opened) {
  minimalloc_reader *reader = opened->reader;
  reader->text = (trace_text){0};
  reader->count = 0;
  reader->delivered = 0;
  reader->loaded = false;
}

static void destroy(trace *opened) {
  minimalloc_reader *reader = opened->reader;
  if (reader == NULL) return;
  free(reader->lifetimes);
  free(reader->moments);
  free(reader);
}

const trace_format trace_format_minimalloc = {.name = "minimalloc",
                                              .recognise = recognise,
                                              .create = create,
                                              .next = next,
                                              .rewound = rewound,
                                              .destroy = destroy};
