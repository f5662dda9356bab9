#include <inttypes.h>
#include <stdlib.h>

#include "workloads/csv.h"
#include "workloads/failure.h"
#include "workloads/reader.h"

enum { MOST_DEVICES = 64 };

#define MICROSECONDS_PER_DAY (INT64_C(86400) * 1000 * 1000)
/* Threads note the time before they come to write: so much may rows be out of order. */
#define MOST_OUT_OF_ORDER (INT64_C(60) * 1000 * 1000)

typedef enum rmm_action { RMM_ALLOCATE, RMM_ALLOCATE_FAILURE, RMM_FREE, RMM_UNKNOWN } rmm_action;

/* Where the columns are, TRACE_CSV_NO_COLUMN for those that the log does not have. */
typedef struct rmm_columns {
  size_t count;
  bool old; /* rmm.csv_log() of RMM 0.x, not logging_resource_adaptor */
  size_t action, pointer, size;
  size_t stream, time, thread, device;
} rmm_columns;

typedef struct rmm_row {
  rmm_action action;
  uint64_t pointer, size, stream;
  uint64_t device;
  uint64_t time_us;
} rmm_row;

typedef struct rmm_reader {
  trace_text text;
  rmm_columns columns;
  bool begun; /* the header has been read */
  uint64_t events;
  uint64_t devices; /* a bit for each device that has rows */
  int64_t day_us;   /* start of the day, on a clock that starts with the log's first day */
  int64_t last_us;
  bool timed; /* last_us is known */
} rmm_reader;

static bool find_columns(const trace_csv_row *header, rmm_columns *columns) {
  *columns = (rmm_columns){.count = header->count,
                           .action = trace_csv_find(header, "Action"),
                           .pointer = trace_csv_find(header, "Pointer"),
                           .size = trace_csv_find(header, "Size"),
                           .stream = trace_csv_find(header, "Stream"),
                           .time = trace_csv_find(header, "Time"),
                           .thread = trace_csv_find(header, "Thread"),
                           .device = TRACE_CSV_NO_COLUMN};
  if (columns->action == TRACE_CSV_NO_COLUMN) {
    columns->old = true;
    columns->action = trace_csv_find(header, "Event Type");
    columns->pointer = trace_csv_find(header, "Address");
    columns->size = trace_csv_find(header, "Size (bytes)");
    columns->time = trace_csv_find(header, "End");
    columns->thread = TRACE_CSV_NO_COLUMN;
    columns->device = trace_csv_find(header, "Device ID");
  }
  return columns->action != TRACE_CSV_NO_COLUMN && columns->pointer != TRACE_CSV_NO_COLUMN &&
         columns->size != TRACE_CSV_NO_COLUMN;
}

static bool recognise(const uint8_t *bytes, size_t size) {
  trace_text line;
  trace_csv_row header;
  rmm_columns columns;
  trace_csv_first_line(bytes, size, &line);
  trace_csv_split(&line, TRACE_CSV_MOST_COLUMNS, &header);
  return find_columns(&header, &columns);
}

static rmm_action action_of(const trace_text *field, bool old) {
  if (old) {
    if (trace_csv_is(field, "Alloc")) return RMM_ALLOCATE;
    return trace_csv_is(field, "Free") ? RMM_FREE : RMM_UNKNOWN;
  }
  if (trace_csv_is(field, "allocate")) return RMM_ALLOCATE;
  if (trace_csv_is(field, "allocate failure")) return RMM_ALLOCATE_FAILURE;
  return trace_csv_is(field, "free") || trace_csv_is(field, "deallocate") ? RMM_FREE : RMM_UNKNOWN;
}

static bool two_digits(const uint8_t *at, unsigned most, unsigned *value) {
  if (at[0] < '0' || at[0] > '9' || at[1] < '0' || at[1] > '9') return false;
  *value = (unsigned)(at[0] - '0') * 10 + (unsigned)(at[1] - '0');
  return *value <= most;
}

/* HH:MM:SS.FRACTION, or with a colon before the fraction, as older versions write it. */
static bool time_of_day(const trace_text *field, int64_t *us) {
  const uint8_t *at = field->at;
  unsigned hours, minutes, seconds;
  if (field->end - at < 10 || at[2] != ':' || at[5] != ':' || (at[8] != '.' && at[8] != ':')) return false;
  if (!two_digits(at, 23, &hours) || !two_digits(at + 3, 59, &minutes) || !two_digits(at + 6, 60, &seconds))
    return false;
  int64_t fraction = 0, unit = 100 * 1000;
  for (at += 9; at < field->end; at++) {
    if (*at < '0' || *at > '9') return false;
    fraction += (*at - '0') * unit;
    unit /= 10;
  }
  *us = ((int64_t)(hours * 60 + minutes) * 60 + seconds) * 1000 * 1000 + fraction;
  return true;
}

/* The clock starts anew at midnight: a row that is much earlier than the one before is of the next
 * day, and one that is nearly a day later is a late one of the day before. */
static int64_t on_its_day(rmm_reader *reader, int64_t us) {
  int64_t time = reader->day_us + us;
  if (reader->timed && time < reader->last_us - MOST_OUT_OF_ORDER) {
    reader->day_us += MICROSECONDS_PER_DAY;
    time += MICROSECONDS_PER_DAY;
  } else if (reader->day_us > 0 && time > reader->last_us + MICROSECONDS_PER_DAY - MOST_OUT_OF_ORDER) {
    reader->day_us -= MICROSECONDS_PER_DAY;
    time -= MICROSECONDS_PER_DAY;
  }
  reader->last_us = time;
  reader->timed = true;
  return time;
}

static trace_status read_time(const trace *opened, const trace_csv_row *fields, rmm_row *row,
                              trace_error *error) {
  rmm_reader *reader = opened->reader;
  trace_text field = fields->fields[reader->columns.time];
  int64_t us;
  if (time_of_day(&field, &us)) {
    row->time_us = (uint64_t)on_its_day(reader, us);
    return TRACE_OK;
  }
  if (trace_text_decimal(&field, 6, &row->time_us) && trace_text_at_end(&field)) return TRACE_OK;
  field = fields->fields[reader->columns.time];
  return trace_text_expected(&field, opened->input.name, "a time (HH:MM:SS.FRACTION, or seconds)", error);
}

static trace_status read_header(trace *opened, trace_error *error) {
  rmm_reader *reader = opened->reader;
  trace_csv_row header;
  trace_csv_split(&reader->text, TRACE_CSV_MOST_COLUMNS, &header);
  reader->begun = true;
  if (!find_columns(&header, &reader->columns)) {
    return trace_text_expected(&reader->text, opened->input.name, "the columns of an RMM log", error);
  }
  if (reader->columns.device == TRACE_CSV_NO_COLUMN && opened->options.device != 0) {
    return trace_fail(error, TRACE_NO_EVENTS, opened->input.name,
                      "device %" PRIu32 " was asked for, but this log is of one device, 0",
                      opened->options.device);
  }
  return trace_csv_check_header(&header, opened->input.name, error);
}

static trace_status read_action(const trace *opened, const trace_csv_row *fields, rmm_row *row,
                                trace_error *error) {
  const rmm_reader *reader = opened->reader;
  trace_text field = fields->fields[reader->columns.action];
  row->action = action_of(&field, reader->columns.old);
  if (row->action != RMM_UNKNOWN) return TRACE_OK;
  if (reader->columns.old && trace_csv_is(&field, "Realloc")) {
    return trace_fail_line(error, opened->input.name, field.line,
                           "a Realloc row does not say which allocation it gave back: such a log cannot "
                           "be replayed");
  }
  return trace_text_expected(&field, opened->input.name,
                             reader->columns.old ? "'Alloc', 'Realloc' or 'Free'"
                                                 : "'allocate', 'allocate failure', 'free' or 'deallocate'",
                             error);
}

static trace_status read_row(trace *opened, rmm_row *row, trace_error *error) {
  rmm_reader *reader = opened->reader;
  const rmm_columns *columns = &reader->columns;
  const char *name = opened->input.name;
  trace_csv_row fields;
  /* The last column of the old log is a path, which may have commas. */
  trace_csv_split(&reader->text, columns->old ? columns->count : TRACE_CSV_MOST_COLUMNS, &fields);
  if (fields.count != columns->count) {
    return trace_fail_line(error, name, reader->text.line,
                           "expected %zu fields, as the header has, found %zu", columns->count, fields.count);
  }
  *row = (rmm_row){0};
  uint64_t thread;
  trace_status status = read_action(opened, &fields, row, error);
  if (status == TRACE_OK)
    status = trace_csv_pointer(&fields, columns->pointer, name, "an address (0x...)", &row->pointer, error);
  if (status == TRACE_OK)
    status = trace_csv_unsigned(&fields, columns->size, name, "a size in bytes", &row->size, error);
  if (status == TRACE_OK && columns->stream != TRACE_CSV_NO_COLUMN)
    status = trace_csv_pointer(&fields, columns->stream, name, "a stream (0x... or 0)", &row->stream, error);
  if (status == TRACE_OK && columns->thread != TRACE_CSV_NO_COLUMN)
    status = trace_csv_unsigned(&fields, columns->thread, name, "the number of a thread", &thread, error);
  if (status == TRACE_OK && columns->device != TRACE_CSV_NO_COLUMN)
    status =
        trace_csv_unsigned(&fields, columns->device, name, "the number of a device", &row->device, error);
  if (status == TRACE_OK && columns->time != TRACE_CSV_NO_COLUMN)
    status = read_time(opened, &fields, row, error);
  if (status == TRACE_OK && row->device >= MOST_DEVICES) {
    return trace_text_expected(&fields.fields[columns->device], name, "a device from 0 to 63", error);
  }
  return status;
}

static trace_status ledger_failed(const trace *opened, uint64_t pointer, trace_ledger_result result,
                                  trace_error *error) {
  const rmm_reader *reader = opened->reader;
  if (result == TRACE_LEDGER_NO_MEMORY) return trace_fail_memory(error, opened->input.name);
  return trace_fail_line(error, opened->input.name, reader->text.line, "0x%" PRIx64 " %s", pointer,
                         trace_ledger_result_text(result));
}

/* *delivered: event is filled. */
static trace_status deliver(trace *opened, rmm_row *row, trace_event *event, bool *delivered,
                            trace_error *error) {
  rmm_reader *reader = opened->reader;
  trace_summary *summary = &opened->ledger.summary;
  if (row->pointer == 0 && row->action == RMM_ALLOCATE && row->size > 0) {
    if (!reader->columns.old) {
      return trace_fail_line(error, opened->input.name, reader->text.line,
                             "expected the address of the %" PRIu64 " bytes that were allocated, found null",
                             row->size);
    }
    row->action = RMM_ALLOCATE_FAILURE;
  }
  if (row->pointer == 0 && row->action != RMM_ALLOCATE_FAILURE) { /* of 0 bytes */
    summary->other_events++;
    return TRACE_OK;
  }
  trace_ledger_result result;
  switch (row->action) {
    case RMM_ALLOCATE:
      result = trace_ledger_alloc(&opened->ledger, row->pointer, row->size, row->stream, event);
      break;
    case RMM_FREE:
      result = trace_ledger_free_completed(&opened->ledger, row->pointer, event);
      /* The old log writes 0 in all frees. */
      if (result == TRACE_LEDGER_OK && !reader->columns.old && row->size != event->size)
        summary->free_size_mismatches++;
      break;
    default:
      /* A request near 2^64 is a program's mistake that the log may well hold; no device serves this either.
       */
      if (row->size > INT64_MAX) row->size = INT64_MAX;
      result = trace_ledger_out_of_memory(&opened->ledger, row->size, row->stream, event);
  }
  if (result != TRACE_LEDGER_OK) return ledger_failed(opened, row->pointer, result, error);
  event->time_us = row->time_us;
  reader->events++;
  *delivered = true;
  return TRACE_OK;
}

static trace_status end_of_file(const trace *opened, trace_error *error) {
  const rmm_reader *reader = opened->reader;
  if (reader->events > 0) return TRACE_END;
  if (reader->devices != 0) {
    return trace_fail(error, TRACE_NO_EVENTS, opened->input.name,
                      "holds no events of device %" PRIu32 ", but of device %d: choose that device",
                      opened->options.device, __builtin_ctzll(reader->devices));
  }
  return trace_fail(error, TRACE_NO_EVENTS, opened->input.name, "holds no events");
}

static trace_status next(trace *opened, trace_event *event, trace_error *error) {
  rmm_reader *reader = opened->reader;
  bool delivered = false;
  while (!delivered) {
    bool complete;
    trace_status status = trace_text_line(&reader->text, &opened->input, &complete, error);
    if (status == TRACE_END) return end_of_file(opened, error);
    if (status != TRACE_OK) return status;
    if (!complete) {
      return trace_fail_line(error, opened->input.name, reader->text.line,
                             "the last line has no end: the log is truncated (was it flushed?)");
    }
    if (!reader->begun) {
      status = read_header(opened, error);
      if (status != TRACE_OK) return status;
      continue;
    }
    rmm_row row;
    status = read_row(opened, &row, error);
    if (status != TRACE_OK) return status;
    uint64_t devices = reader->devices | UINT64_C(1) << row.device;
    opened->ledger.summary.devices = (uint32_t)__builtin_popcountll(devices);
    reader->devices = devices;
    if (reader->columns.device != TRACE_CSV_NO_COLUMN && row.device != opened->options.device) {
      opened->ledger.summary.other_events++;
      continue;
    }
    status = deliver(opened, &row, event, &delivered, error);
    if (status != TRACE_OK) return status;
  }
  return TRACE_OK;
}

static trace_status create(trace *opened, trace_error *error) {
  opened->reader = calloc(1, sizeof(rmm_reader));
  return opened->reader != NULL ? TRACE_OK : trace_fail_memory(error, opened->input.name);
}

static void rewound(trace *opened) {
  rmm_reader *reader = opened->reader;
  *reader = (rmm_reader){0};
}

static void destroy(trace *opened) { free(opened->reader); }

const trace_format trace_format_rmm = {.name = "rmm",
                                       .has_devices = true,
                                       .recognise = recognise,
                                       .create = create,
                                       .next = next,
                                       .rewound = rewound,
                                       .destroy = destroy};
