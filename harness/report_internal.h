/* What the parts of the report share: a part reads one kind of result and appends to what the page holds, as
 * the page's scripts read it (harness/report/). */
#ifndef LAKEBED_HARNESS_REPORT_INTERNAL_H
#define LAKEBED_HARNESS_REPORT_INTERNAL_H

#include "harness/report.h"

#define REPORT_NO_RUN SIZE_MAX

/* Memory over the events of one run, thinned. */
typedef struct report_line {
  size_t source;
  size_t run;         /* its index among the page's runs; REPORT_NO_RUN */
  char *trace, *spec; /* owned */
  timeline *points;   /* owned */
} report_line;

struct report_page {
  char *title;
  json_t *sources; /* objects: file, kind, count, provenance (a key's distinct values, null: and more) */
  json_t *paths;   /* theirs, as given; not on the page */
  json_t *runs;    /* objects: source, and the keys of docs/numbers.md; driver_calls, operations as arrays */
  json_t *iterations; /* objects: source, trace, spec, laps, iterations, measures (a value each) */
  json_t *maps;
  json_t *tables; /* objects: source, title, columns, rows */
  report_line *lines;
  size_t line_count, line_room;
};

/* Where something is read from. */
typedef struct report_place {
  report_page *page;
  const char *path;
  size_t source; /* its index */
} report_place;

/* "PATH: " and the message. Returns EXIT_STATUS_USAGE. */
exit_status report_refuse(const report_place *place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
exit_status report_no_memory(void);

/* Appends a source, unless there is one of this path and kind, which is one of: "replay", "timeline",
 * "iterations", "map", "oom", "table". */
exit_status report_begin_source(report_place *place, const char *kind);
/* There is one more result from it. */
void report_count(const report_place *place, size_t more);
/* A key of the source's provenance. Takes the reference; ignores NULL and null. */
void report_note(const report_place *place, const char *key, json_t *value);
/* Does another source of this kind have the file's name with this other ending? */
bool report_has_twin(const report_page *page, const char *path, const char *kind, const char *ending);

/* A text of a file as JSON: bytes that are no UTF-8 become '?'. */
json_t *report_text(const char *text);
/* A cell of a CSV file: a number, a text, or null where it is empty. */
json_t *report_cell(const char *text);

exit_status report_read_csv(report_place *place, FILE *stream);
/* Of an array of runs the one with this index. */
exit_status report_read_run(const report_place *place, size_t index, const json_t *object);
exit_status report_read_map(const report_place *place, size_t index, const json_t *object);

/* What a run's object and one row of iterations have in common. */
typedef enum report_type { REPORT_TEXT, REPORT_NUMBER } report_type;
typedef struct report_key {
  const char *name;
  report_type type;
} report_key;

/* Notes what a result says about how it was made. */
void report_note_all(const report_place *place, const json_t *result);

/* Of results of replays, keys that are the same in JSON and CSV; ends with a NULL name. */
extern const report_key report_run_keys[];

/* Copies those keys that an object has and that are not null. where: what it is, for messages. */
exit_status report_pick(const report_place *place, const char *where, const json_t *object,
                        const report_key *keys, json_t *into);
/* The value as a number that is not negative; false: it is none. */
bool report_natural(const json_t *value, uint64_t *number);

/* The line of a run, to which points are added; NULL: no memory. run: see report_line. */
timeline *report_line_begin(const report_place *place, const char *trace, const char *spec, size_t run);
json_t *report_lines_json(const report_page *page);

/* The series of a run's iterations. New reference is the page's. NULL: no memory. */
json_t *report_iterations_begin(const report_place *place, const char *trace, const char *spec, size_t run);
/* Appends an iteration; false when there are as many as a page has room for. */
bool report_iterations_step(json_t *series, json_int_t lap, json_int_t iteration);
/* A measure of the last iteration. Takes the reference. */
void report_iterations_set(json_t *series, const char *measure, json_t *value);

/* Adds a row of a table; a source has one for each value of the column "benchmark". */
void report_table_row(const report_place *place, const json_t *row);

#endif
