/* Tells by its content what a file holds. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "harness/program.h"
#include "harness/report_internal.h"

#define EXPECTED                                                                               \
  "these are no results: expected what 'lakebed replay' writes to --json, --csv, --timeline, " \
  "--iterations or --dump (JSON), or results of 'lakebed sweep', 'oom', 'bench' or 'paper'"

static bool has(const json_t *object, const char *key) { return json_object_get(object, key) != NULL; }

/* ---- arrays: an object a run ---- */

static const char *kind_of(const json_t *object) {
  if (!has(object, "trace") || !has(object, "policy")) return NULL;
  if (has(object, "dump_at")) return "map";
  if (has(object, "smallest_capacity_bytes")) return "oom";
  return has(object, "status") || has(object, "driver_us") ? "replay" : NULL;
}

static exit_status read_array(report_place *place, const json_t *array) {
  const char *kind = kind_of(json_array_get(array, 0));
  if (!kind) return report_refuse(place, json_array_size(array) ? EXPECTED : "an empty list of results");
  exit_status status = report_begin_source(place, kind);
  for (size_t i = 0; status == EXIT_STATUS_DONE && i < json_array_size(array); i++) {
    const json_t *object = json_array_get(array, i);
    const char *other = kind_of(object);
    if (!other || strcmp(other, kind) != 0)
      return report_refuse(place, "[%zu]: expected a result of the kind of those before it", i);
    if (strcmp(kind, "replay") == 0) {
      status = report_read_run(place, i, object);
      continue;
    }
    report_note_all(place, object);
    if (strcmp(kind, "map") == 0)
      status = report_read_map(place, i, object);
    else
      report_table_row(place, object);
    report_count(place, 1);
  }
  return status;
}

/* ---- an object with provenance and the rows of a table ---- */

static exit_status read_table(report_place *place, const json_t *object) {
  const json_t *results = json_object_get(object, has(object, "rows") ? "rows" : "results");
  if (!json_is_string(json_object_get(object, "program")) || !json_is_array(results))
    return report_refuse(place, EXPECTED);
  exit_status status = report_begin_source(place, "table");
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    if (value != results && !json_is_object(value) && !json_is_array(value))
      report_note(place, key, json_incref(value));
  }
  for (size_t i = 0; status == EXIT_STATUS_DONE && i < json_array_size(results); i++) {
    if (!json_is_object(json_array_get(results, i)))
      return report_refuse(place, "row %zu: expected an object", i);
    report_table_row(place, json_array_get(results, i));
    report_count(place, 1);
  }
  return status;
}

/* ---- tables ---- */

static json_t *find_table(const report_place *place, const char *title) {
  size_t i;
  json_t *table;
  json_array_foreach(place->page->tables, i, table) {
    if (json_integer_value(json_object_get(table, "source")) == (json_int_t)place->source &&
        strcmp(json_string_value(json_object_get(table, "title")), title) == 0)
      return table;
  }
  table = json_object();
  json_object_set_new(table, "source", json_integer((json_int_t)place->source));
  json_object_set_new(table, "title", json_string(title));
  json_object_set_new(table, "columns", json_object());
  json_object_set_new(table, "rows", json_array());
  json_array_append_new(place->page->tables, table);
  return table;
}

/* The number of a column, which is new or known. */
static size_t column_of(json_t *columns, const char *name) {
  json_t *number = json_object_get(columns, name);
  if (!number) {
    number = json_integer((json_int_t)json_object_size(columns));
    json_object_set_new(columns, name, number);
  }
  return (size_t)json_integer_value(number);
}

void report_table_row(const report_place *place, const json_t *row) {
  const char *title = json_string_value(json_object_get(row, "benchmark"));
  json_t *table = find_table(place, title ? title : ""), *cells = json_array();
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)row, name, value) {
    if (json_is_object(value) || json_is_array(value) || (title && strcmp(name, "benchmark") == 0)) continue;
    const size_t column = column_of(json_object_get(table, "columns"), name);
    while (json_array_size(cells) <= column) json_array_append_new(cells, json_null());
    json_array_set(cells, column, value);
  }
  json_array_append_new(json_object_get(table, "rows"), cells);
}

/* ---- files ---- */

exit_status report_add_json(report_page *page, const char *name, const json_t *root) {
  report_place place = {.page = page, .path = name};
  return json_is_array(root) ? read_array(&place, root) : read_table(&place, root);
}

static exit_status read_json(report_page *page, const char *path, FILE *stream) {
  json_error_t error;
  json_t *root = json_loadf(stream, 0, &error);
  if (!root) {
    program_complain("%s:%d: %s", path, error.line, error.text);
    return json_error_code(&error) == json_error_out_of_memory ? EXIT_STATUS_CHECK_FAILED : EXIT_STATUS_USAGE;
  }
  exit_status status = report_add_json(page, path, root);
  json_decref(root);
  return status;
}

/* The first byte that is no blank; EOF. It is read again. */
static int first_byte(FILE *stream) {
  int byte = getc(stream);
  while (byte != EOF && isspace(byte)) byte = getc(stream);
  return byte == EOF ? byte : ungetc(byte, stream);
}

exit_status report_add_file(report_page *page, const char *path) {
  report_place place = {.page = page, .path = path};
  FILE *stream = fopen(path, "r");
  if (!stream) return report_refuse(&place, "cannot be read: %s", strerror(errno));
  errno = 0;
  const int first = first_byte(stream);
  exit_status status;
  if (first == EOF && ferror(stream))
    status = report_refuse(&place, "cannot be read: %s", strerror(errno));
  else if (first == '{' || first == '[')
    status = read_json(page, path, stream);
  else if (first == '#' || first == '"' || (first != EOF && isalpha(first)))
    status = report_read_csv(&place, stream);
  else
    status = report_refuse(&place, first == EOF ? "the file is empty" : EXPECTED);
  fclose(stream);
  return status;
}
