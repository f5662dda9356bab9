/* Tables of 'lakebed paper' as CSV and JSON. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/option_values.h"
#include "harness/output_file.h"
#include "harness/paper.h"
#include "harness/program.h"
#include "harness/replay_output.h"

typedef struct provenance {
  const char *key, *value;
} provenance;

enum { PROVENANCE_LINES = 8 };

static void describe(const paper_table *table, const paper_settings *settings, const char *date,
                     provenance lines[PROVENANCE_LINES]) {
  const provenance known[PROVENANCE_LINES] = {
      {"program", "lakebed " PROGRAM_VERSION ", paper"},
      {"title", table->title},
      {"device", settings->device_name},
      {"driver", "sim"},
      {"capacity", settings->capacity},
      {"latencies", settings->latency_source},
      {"date", date},
      {"command", settings->command},
  };
  memcpy(lines, known, sizeof known);
}

static void write_value(FILE *stream, const json_t *value) {
  if (json_is_string(value)) replay_csv_field(stream, json_string_value(value));
  if (json_is_integer(value)) fprintf(stream, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
  if (json_is_real(value)) fprintf(stream, "%.4f", json_real_value(value));
}

static void print_provenance(const provenance *lines, FILE *stream) {
  for (size_t i = 0; i < PROVENANCE_LINES; i++) fprintf(stream, "# %s: %s\n", lines[i].key, lines[i].value);
}

static bool write_csv(const paper_table *table, const provenance *lines, const char *path) {
  FILE *stream = output_open(path);
  if (!stream) return false;
  print_provenance(lines, stream);
  for (size_t i = 0; table->columns[i]; i++) fprintf(stream, "%s%s", i ? "," : "", table->columns[i]);
  fputc('\n', stream);
  size_t row;
  const json_t *object;
  json_array_foreach(table->rows, row, object) {
    for (size_t i = 0; table->columns[i]; i++) {
      if (i) fputc(',', stream);
      write_value(stream, json_object_get(object, table->columns[i]));
    }
    fputc('\n', stream);
  }
  return output_close(stream, path, true);
}

static bool write_json(const paper_table *table, const provenance *lines, const char *path) {
  FILE *stream = output_open(path);
  if (!stream) return false;
  json_t *object = json_object();
  for (size_t i = 0; i < PROVENANCE_LINES; i++)
    json_object_set_new(object, lines[i].key, replay_json_words(lines[i].value));
  json_object_set(object, "rows", table->rows);
  const bool complete = output_json(object, JSON_COMPACT | JSON_REAL_PRECISION(8), stream);
  json_decref(object);
  return output_close(stream, path, complete);
}

bool paper_table_write(const paper_table *table, const paper_settings *settings) {
  char date[OPTION_DATE_TEXT];
  option_date(date);
  provenance lines[PROVENANCE_LINES];
  describe(table, settings, date, lines);
  char *csv, *json = NULL;
  bool written = asprintf(&csv, "%s/%s.csv", settings->folder, table->name) >= 0;
  if (!written) csv = NULL;
  written = written && asprintf(&json, "%s/%s.json", settings->folder, table->name) >= 0;
  if (!written) {
    program_complain("no memory for the table %s", table->name);
    json = NULL;
  }
  written = written && write_csv(table, lines, csv) && write_json(table, lines, json);
  free(csv);
  free(json);
  return written;
}

void paper_text_begin(const char *title, const paper_settings *settings, FILE *stream) {
  char date[OPTION_DATE_TEXT];
  option_date(date);
  provenance lines[PROVENANCE_LINES];
  describe(&(paper_table){.title = title}, settings, date, lines);
  print_provenance(lines, stream);
  fputc('\n', stream);
}
