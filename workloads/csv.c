#include "workloads/csv.h"

#include <string.h>

#include "workloads/failure.h"

static inline bool blank(uint8_t byte) { return byte == ' ' || byte == '\t'; }

static void trim(trace_text *field) {
  while (field->at < field->end && blank(*field->at)) field->at++;
  while (field->end > field->at && blank(field->end[-1])) field->end--;
}

void trace_csv_split(const trace_text *line, size_t most, trace_csv_row *row) {
  const uint8_t *at = line->at;
  row->count = 0;
  for (;;) {
    size_t left = (size_t)(line->end - at);
    const uint8_t *comma = left > 0 && row->count + 1 < most ? memchr(at, ',', left) : NULL;
    trace_text *field = &row->fields[row->count++];
    *field = (trace_text){.line = line->line, .at = at, .end = comma != NULL ? comma : line->end};
    trim(field);
    if (comma == NULL) return;
    at = comma + 1;
  }
}

void trace_csv_first_line(const uint8_t *bytes, size_t size, trace_text *line) {
  const uint8_t *at = bytes, *end = bytes + size;
  while (at < end && (blank(*at) || *at == '\r' || *at == '\n')) at++;
  const uint8_t *feed = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
  if (feed != NULL) end = feed;
  if (end > at && end[-1] == '\r') end--;
  *line = (trace_text){.line = 1, .at = at, .end = end};
}

bool trace_csv_is(const trace_text *field, const char *text) {
  size_t size = (size_t)(field->end - field->at);
  return size == strlen(text) && memcmp(field->at, text, size) == 0;
}

size_t trace_csv_find(const trace_csv_row *row, const char *name) {
  for (size_t i = 0; i < row->count; i++) {
    if (trace_csv_is(&row->fields[i], name)) return i;
  }
  return TRACE_CSV_NO_COLUMN;
}

trace_status trace_csv_check_header(trace_csv_row *row, const char *name, trace_error *error) {
  for (size_t i = 0; i < row->count; i++) {
    for (size_t j = 0; j < i; j++) {
      const trace_text *one = &row->fields[i], *other = &row->fields[j];
      size_t size = (size_t)(one->end - one->at);
      if (size != (size_t)(other->end - other->at) || memcmp(one->at, other->at, size) != 0) continue;
      return trace_text_expected(&row->fields[i], name, "each column once", error);
    }
  }
  return TRACE_OK;
}

trace_status trace_csv_unsigned(const trace_csv_row *row, size_t column, const char *name, const char *what,
                                uint64_t *value, trace_error *error) {
  trace_text field = row->fields[column];
  if (trace_text_unsigned(&field, value) && trace_text_at_end(&field)) return TRACE_OK;
  field = row->fields[column];
  return trace_text_expected(&field, name, what, error);
}

trace_status trace_csv_pointer(const trace_csv_row *row, size_t column, const char *name, const char *what,
                               uint64_t *value, trace_error *error) {
  trace_text field = row->fields[column];
  if (trace_text_pointer(&field, value) && trace_text_at_end(&field)) return TRACE_OK;
  field = row->fields[column];
  return trace_text_expected(&field, name, what, error);
}
