#include "harness/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "harness/units.h"

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
  size_t wrap; /* the longest line; 0: any */
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

void table_wrap(table *rows, size_t width) {
  if (rows) rows->wrap = width;
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

void table_count(table *rows, uint64_t count) {
  char text[UNITS_TEXT];
  units_count(count, text);
  table_cell(rows, "%s", text);
}

void table_number(table *rows, double value) {
  char text[UNITS_TEXT];
  units_significant(value, text);
  table_cell(rows, "%s", text);
}

static void print_cell(FILE *stream, const char *text, size_t width, bool left, bool last) {
  if (left) {
    fprintf(stream, "%-*s", last ? 0 : (int)width, text);
  } else {
    fprintf(stream, "%*s", (int)width, text);
  }
  fputs(last ? "\n" : "  ", stream);
}

/* So many bytes of the text go into a line of this width. */
static size_t line_length(const char *text, size_t width) {
  size_t length = strlen(text);
  if (length <= width) return length;
  length = width;
  while (length > 0 && text[length] != ' ') length--;
  return length ? length : width;
}

/* The last cell of a row in as many lines as it needs, below one another. */
static void print_wrapped(FILE *stream, const char *text, size_t indent, size_t width) {
  for (;;) {
    size_t length = line_length(text, width);
    fprintf(stream, "%.*s\n", (int)length, text);
    text += length;
    while (*text == ' ') text++;
    if (!*text) return;
    fprintf(stream, "%*s", (int)indent, "");
  }
}

bool table_print(const table *rows, FILE *stream) {
  if (!rows || rows->columns == 0) return false;
  size_t widths[TABLE_COLUMNS] = {0};
  for (size_t i = 0; i < rows->columns; i++) {
    widths[i] = strlen(rows->titles[i]);
    for (size_t j = 0; j < rows->count; j++) {
      size_t width = strlen(rows->lines[j].cells[i]);
      if (width > widths[i]) widths[i] = width;
    }
  }
  size_t last = rows->columns - 1, indent = 0;
  for (size_t i = 0; i < last; i++) indent += widths[i] + 2;
  if (rows->wrap && rows->left[last] && indent + widths[last] > rows->wrap) {
    widths[last] = rows->wrap > indent + TABLE_WRAPPED ? rows->wrap - indent : TABLE_WRAPPED;
  }
  for (size_t i = 0; i < rows->columns; i++) {
    print_cell(stream, rows->titles[i], widths[i], rows->left[i], i + 1 == rows->columns);
  }
  for (size_t i = 0; i < rows->columns; i++) {
    for (size_t j = 0; j < widths[i]; j++) fputc('-', stream);
    fputs(i + 1 == rows->columns ? "\n" : "  ", stream);
  }
  for (size_t j = 0; j < rows->count; j++) {
    const table_line *line = &rows->lines[j];
    for (size_t i = 0; i < last; i++) print_cell(stream, line->cells[i], widths[i], rows->left[i], false);
    if (rows->left[last]) {
      print_wrapped(stream, line->cells[last], indent, widths[last]);
    } else {
      print_cell(stream, line->cells[last], widths[last], false, true);
    }
  }
  return !rows->lost;
}

void table_destroy(table *rows) {
  if (!rows) return;
  free(rows->lines);
  free(rows);
}
