/* Lines of text files that people write, such as grids and programs, in bounded memory. */
#ifndef LAKEBED_HARNESS_TEXT_LINE_H
#define LAKEBED_HARNESS_TEXT_LINE_H

#include <stddef.h>
#include <stdio.h>

typedef enum text_line_status {
  TEXT_LINE_READ,
  TEXT_LINE_END,        /* there is no further line */
  TEXT_LINE_LONG,       /* longer than what there is room for */
  TEXT_LINE_ZERO,       /* has a NUL byte */
  TEXT_LINE_UNREADABLE, /* errno says why */
} text_line_status;

/* Reads the next line, without its end, into size bytes. The last one need not have an end. O(its length). */
text_line_status text_line_read(FILE *stream, char *line, size_t size);

/* What a malformed line should have been. */
const char *text_line_expected(text_line_status status);

#endif
