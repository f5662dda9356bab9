/* Table 1 and Figure 6 are measured, by 'lakebed bench vmm table1 figure6': here their rows are taken out of
 * its results. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/output_file.h"
#include "harness/paper.h"
#include "harness/program.h"
#include "harness/text_line.h"

/* A row's fields, none of which is quoted, as an object. NULL: no memory. */
static json_t *row_object(const char *header, const char *line) {
  json_t *row = json_object();
  while (row && *header) { /* an empty last field has no bytes */
    size_t name = strcspn(header, ","), length = strcspn(line, ",");
    char *value = strndup(line, length), *end;
    if (!value) break;
    double number = strtod(value, &end);
    json_t *field = length == 0 ? json_null() : *end ? json_string(value) : json_real(number);
    char *key = strndup(header, name);
    if (key) json_object_set_new(row, key, field);
    free(key);
    free(value);
    header += name + (header[name] == ',');
    line += length + (line[length] == ',');
  }
  return row;
}

/* "# device: NVIDIA H200": what was measured and how. */
static void keep_provenance(json_t *object, const char *line) {
  const char *colon = strstr(line, ": ");
  if (!colon || colon < line + 2) return;
  char *key = strndup(line + 2, (size_t)(colon - line - 2)), *value = strdup(colon + 2);
  if (key && value) json_object_set_new(object, key, json_string(value));
  free(key);
  free(value);
}

/* Copies the provenance, the columns and the rows of one benchmark. Returns how many rows there are; none of
 * a file that is no text. */
static size_t copy_rows(FILE *in, const char *benchmark, FILE *csv, json_t *object) {
  char line[1 << 14], *header = NULL;
  size_t rows = 0, length = strlen(benchmark);
  json_t *array = json_array();
  text_line_status found;
  while ((found = text_line_read(in, line, sizeof line)) == TEXT_LINE_READ) {
    bool mine = strncmp(line, benchmark, length) == 0 && line[length] == ',';
    if (line[0] == '#') {
      keep_provenance(object, line);
    } else if (!header) {
      header = strdup(line);
    } else if (mine) {
      json_array_append_new(array, row_object(header, line));
      rows++;
    }
    if (line[0] == '#' || mine || (header && strcmp(header, line) == 0)) fprintf(csv, "%s\n", line);
  }
  json_object_set_new(object, "rows", array);
  free(header);
  return found == TEXT_LINE_END ? rows : 0;
}

static bool write_benchmark(const paper_settings *settings, paper_item item, const char *benchmark) {
  const char *name = paper_item_name(item);
  char *csv_path = NULL, *json_path = NULL;
  if (asprintf(&csv_path, "%s/%s.csv", settings->folder, name) < 0) csv_path = NULL;
  if (asprintf(&json_path, "%s/%s.json", settings->folder, name) < 0) json_path = NULL;
  FILE *in = fopen(settings->bench, "r");
  bool spared = !csv_path || !output_same_file(csv_path, settings->bench);
  FILE *csv = in && csv_path && spared ? output_open(csv_path) : NULL;
  FILE *json = csv && json_path ? output_open(json_path) : NULL;
  json_t *object = json_object();
  bool written = json && object;
  if (!in) {
    program_complain("%s: %s cannot be read: %s; 'lakebed bench vmm table1 figure6 --csv FILE' measures it",
                     name, settings->bench, strerror(errno));
  } else if (!spared) {
    program_complain("%s cannot be written: it is what is measured, --bench", csv_path);
  } else if (written && copy_rows(in, benchmark, csv, object) == 0) {
    program_complain("%s: %s has no results of it", name, settings->bench);
    written = false;
  }
  if (in) fclose(in);
  if (written) {
    const bool complete = output_json(object, JSON_INDENT(1) | JSON_REAL_PRECISION(10), json);
    written = output_close(csv, csv_path, true);
    written &= output_close(json, json_path, complete);
  } else {
    output_abandon(csv, csv_path);
    output_abandon(json, json_path);
  }
  json_decref(object);
  free(csv_path);
  free(json_path);
  return written;
}

bool paper_write_bench(const paper_settings *settings) {
  bool written = true;
  if (settings->wanted[PAPER_TABLE1]) written &= write_benchmark(settings, PAPER_TABLE1, "table1");
  if (settings->wanted[PAPER_FIGURE6]) written &= write_benchmark(settings, PAPER_FIGURE6, "figure6");
  return written;
}
