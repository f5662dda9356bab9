/* Results as CSV: of replays and sweeps, timelines, iterations, and tables of any other command. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/quoted_csv.h"
#include "harness/report_internal.h"

typedef enum csv_kind {
  CSV_REPLAY,
  CSV_TIMELINE,
  CSV_ITERATIONS,
  CSV_ITERATION_ROWS,
  CSV_TABLE,
  CSV_UNKNOWN
} csv_kind;

typedef struct csv_columns {
  size_t count;
  char *names[QUOTED_CSV_COLUMNS]; /* owned */
} csv_columns;

#define NO_COLUMN SIZE_MAX

static size_t find(const csv_columns *columns, const char *name) {
  for (size_t i = 0; i < columns->count; i++) {
    if (strcmp(columns->names[i], name) == 0) return i;
  }
  return NO_COLUMN;
}

static bool has_all(const csv_columns *columns, const char *const *names) {
  while (*names && find(columns, *names) != NO_COLUMN) names++;
  return !*names;
}

static csv_kind kind_of(const csv_columns *columns, bool has_provenance) {
  static const char *const line_names[] = {"trace",      "policy",          "event",          "time_us",
                                           "live_bytes", "allocated_bytes", "reserved_bytes", NULL};
  static const char *const iteration_names[] = {"trace",   "policy", "lap", "iteration",
                                                "measure", "value",  NULL};
  static const char *const iteration_row_names[] = {"trace",  "policy",       "iteration",
                                                    "events", "memory_calls", NULL};
  static const char *const run_names[] = {
      "trace", "policy", "status", "live_peak_bytes", "reserved_peak_bytes", "driver_us", NULL};
  if (has_all(columns, line_names)) return CSV_TIMELINE;
  if (has_all(columns, iteration_names)) return CSV_ITERATIONS;
  if (has_all(columns, iteration_row_names)) return CSV_ITERATION_ROWS;
  if (find(columns, "smallest_capacity_bytes") != NO_COLUMN) return CSV_TABLE;
  if (has_all(columns, run_names)) return CSV_REPLAY;
  return has_provenance ? CSV_TABLE : CSV_UNKNOWN;
}

/* ---- reading ---- */

typedef struct csv_reading {
  report_place *place;
  quoted_csv csv;
  csv_columns columns;
  csv_kind kind;
  bool has_provenance;
  json_t *remarks; /* key: value */
  timeline *line;
  json_t *series;
  char *trace, *spec; /* of the last row of a series; owned */
  int64_t lap, iteration;
  bool series_full;
} csv_reading;

static exit_status stop(const csv_reading *reading, quoted_csv_status status) {
  if (status == QUOTED_CSV_NO_MEMORY) return report_no_memory();
  if (status == QUOTED_CSV_UNREADABLE)
    return report_refuse(reading->place, "cannot be read: %s", strerror(errno));
  return report_refuse(reading->place, "line %" PRIu64 ": %s", reading->csv.line, reading->csv.problem);
}

static const char *field(const csv_reading *reading, const char *name) {
  return reading->csv.fields[find(&reading->columns, name)];
}

static exit_status read_natural(const csv_reading *reading, const char *name, uint64_t *number) {
  const char *text = field(reading, name);
  char *end;
  errno = 0;
  *number = strtoull(text, &end, 10);
  if (*text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *number <= INT64_MAX)
    return EXIT_STATUS_DONE;
  return report_refuse(reading->place, "line %" PRIu64 ": %s: expected a whole number, found '%.40s'",
                       reading->csv.line, name, text);
}

/* Is this row of another run than the last one? */
static bool begins_series(csv_reading *reading) {
  const char *trace = field(reading, "trace"), *spec = field(reading, "policy");
  if (reading->trace && strcmp(reading->trace, trace) == 0 && strcmp(reading->spec, spec) == 0) return false;
  free(reading->trace);
  free(reading->spec);
  reading->trace = strdup(trace);
  reading->spec = strdup(spec);
  return true;
}

static exit_status read_point(csv_reading *reading) {
  timeline_point point;
  const struct {
    const char *name;
    uint64_t *value;
  } numbers[] = {{"event", &point.event},
                 {"time_us", &point.time_us},
                 {"live_bytes", &point.live_bytes},
                 {"allocated_bytes", &point.allocated_bytes},
                 {"reserved_bytes", &point.reserved_bytes}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    exit_status status = read_natural(reading, numbers[i].name, numbers[i].value);
    if (status != EXIT_STATUS_DONE) return status;
  }
  if (begins_series(reading)) {
    if (!reading->trace || !reading->spec) return report_no_memory();
    reading->line = report_line_begin(reading->place, reading->trace, reading->spec, REPORT_NO_RUN);
    report_count(reading->place, 1);
  }
  if (!reading->line) return report_no_memory();
  timeline_add(reading->line, &point);
  return EXIT_STATUS_DONE;
}

/* Another series where the row is of another run. */
static exit_status begin_iterations(csv_reading *reading) {
  if (!begins_series(reading)) return reading->series ? EXIT_STATUS_DONE : report_no_memory();
  const bool named = reading->trace && reading->spec;
  reading->series =
      named ? report_iterations_begin(reading->place, reading->trace, reading->spec, REPORT_NO_RUN) : NULL;
  reading->lap = reading->iteration = -1;
  reading->series_full = false;
  report_count(reading->place, 1);
  return reading->series ? EXIT_STATUS_DONE : report_no_memory();
}

static exit_status read_measure(csv_reading *reading) {
  uint64_t lap, iteration;
  exit_status status = read_natural(reading, "lap", &lap);
  if (status == EXIT_STATUS_DONE) status = read_natural(reading, "iteration", &iteration);
  if (status == EXIT_STATUS_DONE) status = begin_iterations(reading);
  if (status != EXIT_STATUS_DONE) return status;
  json_t *value = report_cell(field(reading, "value"));
  if (!json_is_number(value)) {
    json_decref(value);
    return report_refuse(reading->place, "line %" PRIu64 ": value: expected a number", reading->csv.line);
  }
  if (reading->lap != (int64_t)lap || reading->iteration != (int64_t)iteration) {
    reading->lap = (int64_t)lap;
    reading->iteration = (int64_t)iteration;
    reading->series_full = !report_iterations_step(reading->series, (json_int_t)lap, (json_int_t)iteration);
  }
  if (reading->series_full)
    json_decref(value);
  else
    report_iterations_set(reading->series, field(reading, "measure"), value);
  return EXIT_STATUS_DONE;
}

/* An iteration whose measures are columns. */
static exit_status read_iteration(csv_reading *reading) {
  uint64_t lap = 1, iteration;
  exit_status status = read_natural(reading, "iteration", &iteration);
  if (status == EXIT_STATUS_DONE && find(&reading->columns, "lap") != NO_COLUMN)
    status = read_natural(reading, "lap", &lap);
  if (status != EXIT_STATUS_DONE) return status;
  status = begin_iterations(reading);
  if (status != EXIT_STATUS_DONE) return status;
  if (!report_iterations_step(reading->series, (json_int_t)lap, (json_int_t)iteration))
    return EXIT_STATUS_DONE;
  for (size_t i = 0; i < reading->columns.count; i++) {
    const char *name = reading->columns.names[i];
    json_t *value = report_cell(reading->csv.fields[i]);
    if (json_is_number(value) && strcmp(name, "trace") != 0 && strcmp(name, "policy") != 0 &&
        strcmp(name, "lap") != 0 && strcmp(name, "iteration") != 0)
      report_iterations_set(reading->series, name, value);
    else
      json_decref(value);
  }
  return EXIT_STATUS_DONE;
}

static json_t *row_object(const csv_reading *reading) {
  json_t *row = json_object();
  for (size_t i = 0; i < reading->columns.count; i++)
    json_object_set_new(row, reading->columns.names[i], report_cell(reading->csv.fields[i]));
  return row;
}

static exit_status read_run(const csv_reading *reading) {
  char where[64];
  snprintf(where, sizeof where, "line %" PRIu64 ": ", reading->csv.line);
  json_t *row = row_object(reading), *run = json_object();
  json_object_set_new(run, "source", json_integer((json_int_t)reading->place->source));
  /* Names may look like numbers. */
  for (const report_key *key = report_run_keys; key->name; key++) {
    const size_t column = find(&reading->columns, key->name);
    if (key->type == REPORT_TEXT && column != NO_COLUMN && *reading->csv.fields[column])
      json_object_set_new(row, key->name, report_text(reading->csv.fields[column]));
  }
  exit_status status = report_pick(reading->place, where, row, report_run_keys, run);
  const json_t *calls = json_object_get(row, "driver_calls");
  if (json_is_number(calls)) json_object_set(run, "calls", json_object_get(row, "driver_calls"));
  const size_t options = find(&reading->columns, "options");
  if (options != NO_COLUMN) json_object_set_new(run, "options", report_text(reading->csv.fields[options]));
  if (!json_object_get(run, "trace") || !json_object_get(run, "policy"))
    status = report_refuse(reading->place, "%strace, policy: expected names", where);
  if (json_array_append_new(reading->place->page->runs, run) != 0) status = report_no_memory();
  report_note_all(reading->place, row);
  json_decref(row);
  report_count(reading->place, 1);
  return status;
}

static exit_status read_row(csv_reading *reading) {
  if (reading->csv.count != reading->columns.count)
    return report_refuse(reading->place, "line %" PRIu64 ": expected %zu fields, found %zu",
                         reading->csv.line, reading->columns.count, reading->csv.count);
  switch (reading->kind) {
    case CSV_REPLAY:
      return read_run(reading);
    case CSV_TIMELINE:
      return read_point(reading);
    case CSV_ITERATIONS:
      return read_measure(reading);
    case CSV_ITERATION_ROWS:
      return read_iteration(reading);
    case CSV_TABLE:
    case CSV_UNKNOWN:
      break;
  }
  json_t *row = row_object(reading);
  report_table_row(reading->place, row);
  report_count(reading->place, 1);
  json_decref(row);
  return EXIT_STATUS_DONE;
}

/* ---- what stands above the rows ---- */

static void read_remark(csv_reading *reading) {
  char *text = reading->csv.fields[0], *colon = strstr(text, ": ");
  if (!colon) return;
  *colon = '\0';
  reading->has_provenance |= strcmp(text, "command") == 0 || strncmp(colon + 2, "lakebed ", 8) == 0;
  json_object_set_new(reading->remarks, text, report_text(colon + 2));
}

static const char *kind_name(const csv_reading *reading) {
  switch (reading->kind) {
    case CSV_REPLAY:
      return "replay";
    case CSV_TIMELINE:
      return "timeline";
    case CSV_ITERATIONS:
    case CSV_ITERATION_ROWS:
      return "iterations";
    case CSV_TABLE:
    case CSV_UNKNOWN:
      break;
  }
  return find(&reading->columns, "smallest_capacity_bytes") != NO_COLUMN ? "oom" : "table";
}

static exit_status read_header(csv_reading *reading) {
  for (size_t i = 0; i < reading->csv.count; i++) {
    /* Names become keys, which must be UTF-8. */
    json_t *name = report_text(reading->csv.fields[i]);
    reading->columns.names[i] = name ? strdup(json_string_value(name)) : NULL;
    json_decref(name);
    if (!reading->columns.names[i]) return report_no_memory();
    reading->columns.count++;
  }
  reading->kind = kind_of(&reading->columns, reading->has_provenance);
  if (reading->kind == CSV_UNKNOWN)
    return report_refuse(
        reading->place,
        "these are no results: expected columns as 'lakebed' writes them to --csv, --timeline "
        "or --iterations");
  exit_status status = report_begin_source(reading->place, kind_name(reading));
  const char *key;
  json_t *value;
  json_object_foreach(reading->remarks, key, value) { report_note(reading->place, key, json_incref(value)); }
  return status;
}

static exit_status read_all(csv_reading *reading) {
  exit_status status = EXIT_STATUS_DONE;
  bool header = false, twin = false;
  while (status == EXIT_STATUS_DONE && !twin) {
    const quoted_csv_status row = quoted_csv_next(&reading->csv);
    if (row == QUOTED_CSV_END) break;
    if (row == QUOTED_CSV_REMARK) {
      read_remark(reading);
    } else if (row != QUOTED_CSV_ROW) {
      status = stop(reading, row);
    } else if (header) {
      status = read_row(reading);
    } else {
      status = read_header(reading);
      header = true;
      twin = status == EXIT_STATUS_DONE &&
             report_has_twin(reading->place->page, reading->place->path, kind_name(reading), ".json");
    }
  }
  if (twin)
    report_note(reading->place, "left out", json_string("the JSON file of this name has the same results"));
  if (status == EXIT_STATUS_DONE && !header)
    status = report_refuse(reading->place, "there is no line with the names of columns");
  return status;
}

exit_status report_read_csv(report_place *place, FILE *stream) {
  csv_reading reading = {.place = place, .csv = {.stream = stream}, .remarks = json_object()};
  exit_status status = reading.remarks ? read_all(&reading) : report_no_memory();
  quoted_csv_free(&reading.csv);
  for (size_t i = 0; i < reading.columns.count; i++) free(reading.columns.names[i]);
  free(reading.trace);
  free(reading.spec);
  json_decref(reading.remarks);
  return status;
}
