#include "harness/quoted_csv.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static quoted_csv_status malformed(quoted_csv *csv, const char *problem) {
  csv->problem = problem;
  return QUOTED_CSV_MALFORMED;
}

static quoted_csv_status stopped(const quoted_csv *csv) {
  if (feof(csv->stream)) return QUOTED_CSV_END;
  return errno == ENOMEM ? QUOTED_CSV_NO_MEMORY : QUOTED_CSV_UNREADABLE;
}

static bool odd_quotes(const char *text, size_t length, bool odd) {
  for (const char *at = text; (at = memchr(at, '"', length - (size_t)(at - text))); at++) odd = !odd;
  return odd;
}

/* Reads lines until no quotes are open. */
static quoted_csv_status read_row(quoted_csv *csv, size_t *length) {
  ssize_t got = getline(&csv->text, &csv->text_room, csv->stream);
  if (got < 0) return stopped(csv);
  csv->line = ++csv->lines;
  size_t used = (size_t)got;
  bool open = csv->text[0] != '#' && odd_quotes(csv->text, used, false);
  while (open) {
    got = getline(&csv->piece, &csv->piece_room, csv->stream);
    if (got < 0 && feof(csv->stream)) return malformed(csv, "quotes that do not end");
    if (got < 0) return stopped(csv);
    csv->lines++;
    const size_t more = (size_t)got;
    if (used + more > QUOTED_CSV_ROW_BYTES) return malformed(csv, "a row of more than 1 MiB: quotes open?");
    if (used + more >= csv->text_room) {
      char *text = realloc(csv->text, 2 * (used + more));
      if (!text) return QUOTED_CSV_NO_MEMORY;
      csv->text = text;
      csv->text_room = 2 * (used + more);
    }
    memcpy(csv->text + used, csv->piece, more + 1);
    used += more;
    open = odd_quotes(csv->piece, more, open);
  }
  if (memchr(csv->text, '\0', used)) return malformed(csv, "a zero byte");
  if (used > 0 && csv->text[used - 1] == '\n') used--;
  if (used > 0 && csv->text[used - 1] == '\r') used--;
  csv->text[used] = '\0';
  *length = used;
  return QUOTED_CSV_ROW;
}

/* Takes the quotes off a field that begins with one. Returns what stands behind it; NULL: no comma and no
 * end. */
static char *unquote(char *field) {
  char *to = field, *from = field + 1;
  bool open = true;
  for (; *from != '\0'; from++) {
    open = *from != '"' || *++from == '"';
    if (!open) break;
    *to++ = *from;
  }
  const bool closed = !open && (*from == ',' || *from == '\0');
  *to = '\0';
  return closed ? from : NULL;
}

static quoted_csv_status split(quoted_csv *csv) {
  csv->count = 0;
  for (char *at = csv->text;;) {
    if (csv->count == QUOTED_CSV_COLUMNS) return malformed(csv, "more than 256 fields");
    csv->fields[csv->count++] = at;
    char *after = *at == '"' ? unquote(at) : at + strcspn(at, ",");
    if (!after) return malformed(csv, "text behind closing quotes");
    const bool last = *after == '\0';
    *after = '\0';
    if (last) return QUOTED_CSV_ROW;
    at = after + 1;
  }
}

quoted_csv_status quoted_csv_next(quoted_csv *csv) {
  size_t length = 0;
  quoted_csv_status status;
  do status = read_row(csv, &length);
  while (status == QUOTED_CSV_ROW && length == 0);
  if (status != QUOTED_CSV_ROW) return status;
  if (csv->rows == 0 && csv->text[0] == '#') {
    csv->fields[0] = csv->text + 1 + strspn(csv->text + 1, " ");
    csv->count = 1;
    return QUOTED_CSV_REMARK;
  }
  csv->rows++;
  return split(csv);
}

void quoted_csv_free(quoted_csv *csv) {
  free(csv->text);
  free(csv->piece);
  csv->text = csv->piece = NULL;
}
