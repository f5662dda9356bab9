#include "harness/report.h"

#include <stdlib.h>
#include <string.h>

#include "harness/program.h"
#include "harness/report_internal.h"
#include "harness/report_page.h"

#define DATA_MARK "@LAKEBED_RESULTS@"

report_page *report_create(const char *title) {
  report_page *page = calloc(1, sizeof *page);
  if (!page) return NULL;
  page->title = strdup(title);
  page->sources = json_array();
  page->paths = json_array();
  page->runs = json_array();
  page->iterations = json_array();
  page->maps = json_array();
  page->tables = json_array();
  if (page->title && page->sources && page->paths && page->runs && page->iterations && page->maps &&
      page->tables)
    return page;
  report_destroy(page);
  return NULL;
}

void report_destroy(report_page *page) {
  if (!page) return;
  for (size_t i = 0; i < page->line_count; i++) {
    free(page->lines[i].trace);
    free(page->lines[i].spec);
    timeline_destroy(page->lines[i].points);
  }
  free(page->lines);
  json_decref(page->sources);
  json_decref(page->paths);
  json_decref(page->runs);
  json_decref(page->iterations);
  json_decref(page->maps);
  json_decref(page->tables);
  free(page->title);
  free(page);
}

/* ---- writing ---- */

typedef struct page_writer {
  FILE *stream;
  bool failed;
} page_writer;

/* JSON inside of a script element: a '<', which stands in strings only, must not look like markup. */
static int write_data(const char *text, size_t size, void *context) {
  page_writer *writer = context;
  for (const char *end = text + size; text < end && !writer->failed;) {
    const char *mark = memchr(text, '<', (size_t)(end - text));
    const size_t plain = (size_t)((mark ? mark : end) - text);
    writer->failed |= fwrite(text, 1, plain, writer->stream) != plain;
    if (mark) writer->failed |= fputs("\\u003c", writer->stream) == EOF;
    text += plain + (mark ? 1 : 0);
  }
  return writer->failed ? -1 : 0;
}

static json_t *data_of(report_page *page) {
  json_t *data = json_object();
  bool made = json_object_set_new(data, "title", report_text(page->title)) == 0;
  made &= json_object_set_new(data, "program", json_string("lakebed " PROGRAM_VERSION)) == 0;
  made &= json_object_set(data, "sources", page->sources) == 0;
  made &= json_object_set(data, "runs", page->runs) == 0;
  made &= json_object_set_new(data, "lines", report_lines_json(page)) == 0;
  made &= json_object_set(data, "iterations", page->iterations) == 0;
  made &= json_object_set(data, "maps", page->maps) == 0;
  made &= json_object_set(data, "tables", page->tables) == 0;
  if (made) return data;
  json_decref(data);
  return NULL;
}

bool report_write(report_page *page, FILE *stream) {
  const char *text = (const char *)report_page_text;
  const char *mark = strstr(text, DATA_MARK);
  json_t *data = data_of(page);
  if (!data || !mark) {
    json_decref(data);
    return false;
  }
  page_writer writer = {.stream = stream};
  const size_t before = (size_t)(mark - text);
  writer.failed |= fwrite(text, 1, before, stream) != before;
  writer.failed |= json_dump_callback(data, write_data, &writer, JSON_COMPACT | JSON_REAL_PRECISION(12)) != 0;
  writer.failed |= fputs(mark + strlen(DATA_MARK), stream) == EOF;
  json_decref(data);
  return !writer.failed;
}
