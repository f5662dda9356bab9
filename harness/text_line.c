#include "harness/text_line.h"

text_line_status text_line_read(FILE *stream, char *line, size_t size) {
  size_t length = 0;
  int byte;
  while ((byte = getc(stream)) != EOF && byte != '\n') {
    if (byte == '\0') return TEXT_LINE_ZERO;
    if (length + 1 == size) return TEXT_LINE_LONG;
    line[length++] = (char)byte;
  }
  line[length] = '\0';
  if (ferror(stream)) return TEXT_LINE_UNREADABLE;
  return byte == EOF && length == 0 ? TEXT_LINE_END : TEXT_LINE_READ;
}

const char *text_line_expected(text_line_status status) {
  return status == TEXT_LINE_ZERO ? "a line without NUL bytes" : "a shorter line";
}
