/* Rows of comma-separated values as Lakebed writes them: RFC 4180, under lines of provenance, "# key: value".
 */
#ifndef LAKEBED_HARNESS_QUOTED_CSV_H
#define LAKEBED_HARNESS_QUOTED_CSV_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { QUOTED_CSV_COLUMNS = 256, QUOTED_CSV_ROW_BYTES = 1 << 20 };

typedef enum quoted_csv_status {
  QUOTED_CSV_ROW,
  QUOTED_CSV_REMARK, /* a line that began with '#', before the first row: its one field is what follows */
  QUOTED_CSV_END,
  QUOTED_CSV_MALFORMED,  /* problem says what is wrong with the row */
  QUOTED_CSV_UNREADABLE, /* errno says why */
  QUOTED_CSV_NO_MEMORY
} quoted_csv_status;

/* Begins as {.stream = ...}, which is borrowed. */
typedef struct quoted_csv {
  FILE *stream;
  uint64_t line; /* the first of the last row's, from 1 */
  const char *problem;
  size_t count;                     /* of the last row's fields, which stay until the next call */
  char *fields[QUOTED_CSV_COLUMNS]; /* without their quotes */

  uint64_t lines; /* that have been read */
  size_t rows;
  char *text, *piece;
  size_t text_room, piece_room;
} quoted_csv;

/* The next row that is not empty. Amortised O(its length). */
quoted_csv_status quoted_csv_next(quoted_csv *csv);
void quoted_csv_free(quoted_csv *csv);

#endif
