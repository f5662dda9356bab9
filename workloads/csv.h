/* Rows of comma-separated values, without quoting, under a line of column names. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_CSV_H
#define LAKEBED_WORKLOADS_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/text.h"

enum { TRACE_CSV_MOST_COLUMNS = 32 };

#define TRACE_CSV_NO_COLUMN SIZE_MAX

typedef struct trace_csv_row {
  size_t count;
  trace_text fields[TRACE_CSV_MOST_COLUMNS]; /* without the blanks around them, all of the line's number */
} trace_csv_row;

/* Splits a line at its commas into at most most (up to TRACE_CSV_MOST_COLUMNS) fields, the last of which
 * has the commas that are left. */
void trace_csv_split(const trace_text *line, size_t most, trace_csv_row *row);

/* The first line of bytes that is not blank. */
void trace_csv_first_line(const uint8_t *bytes, size_t size, trace_text *line);

bool trace_csv_is(const trace_text *field, const char *text);

/* The index of the first field that is name, or TRACE_CSV_NO_COLUMN. */
size_t trace_csv_find(const trace_csv_row *row, const char *name);

/* TRACE_MALFORMED with a message when a column's name stands there twice. name: of the file. */
trace_status trace_csv_check_header(trace_csv_row *row, const char *name, trace_error *error);

/* The field of a column as a number, all of it; otherwise TRACE_MALFORMED, and the message has what was
 * expected. name: of the file. */
trace_status trace_csv_unsigned(const trace_csv_row *row, size_t column, const char *name, const char *what,
                                uint64_t *value, trace_error *error);
trace_status trace_csv_pointer(const trace_csv_row *row, size_t column, const char *name, const char *what,
                               uint64_t *value, trace_error *error);

#endif
