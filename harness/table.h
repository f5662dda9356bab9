/* A table of text for people: columns as wide as their widest cell. */
#ifndef LAKEBED_HARNESS_TABLE_H
#define LAKEBED_HARNESS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TABLE_COLUMNS = 16, TABLE_CELL = 256, TABLE_WRAPPED = 24 };

typedef struct table table;

/* columns: at most TABLE_COLUMNS titles; one that begins with '<' (not printed) has its
 * cells on the left, the others on the right. NULL when the host has no memory. */
table *table_create(const char *const *titles, size_t columns);
/* Breaks the cells of the last column, which must be on the left, so that no line is longer than width; at
 * least TABLE_WRAPPED columns stay for it. */
void table_wrap(table *rows, size_t width);
/* Adds a row; its cells are empty until table_cell fills them. */
void table_row(table *rows);
/* Fills the next cell of the last row, cut at TABLE_CELL bytes. */
void table_cell(table *rows, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with a whole number, "1,234", or three significant digits, "12.3". */
void table_count(table *rows, uint64_t count);
void table_number(table *rows, double value);
/* Prints titles, a rule and the rows. Returns false when a row was lost for want of memory. */
bool table_print(const table *rows, FILE *stream);
/* Accepts NULL, as do all of the above. */
void table_destroy(table *rows);

#endif
