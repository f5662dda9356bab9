#include "harness/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct table_line {
  char cells[TABLE_COLUMNS][TABLE_CELL];
} table_line;

struct table {
  const char *titles[TABLE_COLUMNS];
  bool left[TABLE_COLUMNS];
  size_t columns;
  table_line *lines;
  size_t count, capacity;
  size_t next_cell;
  bool lost;
};

table *table_create(const char *const *titles, size_t columns) {
  table *rows = calloc(1, sizeof *rows);
  if (!rows) return NULL;
  rows->columns = columns < TABLE_COLUMNS ? columns : TABLE_COLUMNS;
  for (size_t i = 0; i < rows->columns; i++) {
    rows->left[i] = titles[i][0] == '<';
    rows->titles[i] = titles[i] + rows->left[i];
  }
  return rows;
}

void table_row(table *rows) {
  if (!rows || rows->lost) return;
  if (rows->count == rows->capacity) {
    size_t capacity = rows->capacity ? rows->capacity * 2 : 16;
    table_line *lines = realloc(rows->lines, capacity * sizeof *lines);
    if (!lines) {
      rows->lost = true;
      return;
    }
    rows->lines = lines;
    rows->capacity = capacity;
  }
  memset(&rows->lines[rows->count++], 0, sizeof *rows->lines);
  rows->next_cell = 0;
}

void table_cell(table *rows, const char *format, ...) {
  if (!rows || rows->lost || rows->count == 0 || rows->next_cell == rows->columns) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(rows->lines[rows->count - 1].cells[rows->next_cell++], TABLE_CELL, format, arguments);
  va_end(arguments);
}

static void print_cell(FILE *stream, const char *text, size_t width, bool left, bool last) {
  if (left) {
    fprintf(stream, "%-*s", last ? 0 : (int)width, text);
  } else {
    fprintf(stream, "%*s", (int)width, text);
  }
  fputs(last ? "\n" : "  ", stream);
}

bool table_print(const table *rows, FILE *stream) {
  if (!rows) return false;
  size_t widths[TABLE_COLUMNS] = {0};
  for (size_t i = 0; i < rows->columns; i++) {
    widths[i] = strlen(rows->titles[i]);
    for (size_t j = 0; j < rows->count; j++) {
      size_t width = strlen(rows->lines[j].cells[i]);
      if (width > widths[i]) widths[i] = width;
    }
  }
  for (size_t i = 0; i < rows->columns; i++) {
    print_cell(stream, rows->titles[i], widths[i], rows->left[i], i + 1 == rows->columns);
  }
  for (size_t i = 0; i < rows->columns; i++) {
    for (size_t j = 0; j < widths[i]; j++) fputc('-', stream);
    fputs(i + 1 == rows->columns ? "\n" : "  ", stream);
  }
  for (size_t j = 0; j < rows->count; j++) {
    for (size_t i = 0; i < rows->columns; i++) {
      print_cell(stream, rows->lines[j].cells[i], widths[i], rows->left[i], i + 1 == rows->columns);
    }
  }
  return !rows->lost;
}

void table_destroy(table *rows) {
  if (!rows) return;
  free(rows->lines);
  free(rows);
}
