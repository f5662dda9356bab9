/* What changes over the events or the iterations of a run. */
#include <stdlib.h>
#include <string.h>

#include "harness/report_internal.h"

enum { LINE_POINTS_TOGETHER = 250000, ITERATIONS_KEPT = 2048 };

/* ---- memory over events ---- */

timeline *report_line_begin(const report_place *place, const char *trace, const char *spec, size_t run) {
  report_page *page = place->page;
  if (page->line_count == page->line_room) {
    const size_t room = page->line_room ? 2 * page->line_room : 16;
    report_line *lines = realloc(page->lines, room * sizeof *lines);
    if (!lines) return NULL;
    page->lines = lines;
    page->line_room = room;
  }
  report_line *line = &page->lines[page->line_count];
  *line = (report_line){.source = place->source,
                        .run = run,
                        .trace = strdup(trace),
                        .spec = strdup(spec),
                        .points = timeline_create(REPORT_LINE_POINTS)};
  if (!line->trace || !line->spec || !line->points) {
    free(line->trace);
    free(line->spec);
    timeline_destroy(line->points);
    return NULL;
  }
  page->line_count++;
  return line->points;
}

/* No more points than asked for, as timeline_add chooses them. Returns how many are left. */
static size_t thin(timeline_point *points, size_t count, size_t most) {
  timeline *line = count > most ? timeline_create(most) : NULL;
  if (!line) return count;
  for (size_t i = 0; i < count; i++) timeline_add(line, &points[i]);
  count = timeline_points(line, points);
  timeline_destroy(line);
  return count;
}

static void add_points(json_t *object, const timeline_point *points, size_t count) {
  json_t *events = json_array(), *times = json_array(), *live = json_array(), *reserved = json_array();
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(events, json_integer((json_int_t)points[i].event));
    json_array_append_new(times, json_integer((json_int_t)(points[i].time_us - points[0].time_us)));
    json_array_append_new(live, json_integer((json_int_t)points[i].live_bytes));
    json_array_append_new(reserved, json_integer((json_int_t)points[i].reserved_bytes));
  }
  bool in_time = count > 0 && points[count - 1].time_us > points[0].time_us;
  for (size_t i = 1; i < count; i++) in_time &= points[i].time_us >= points[i - 1].time_us;
  json_object_set_new(object, "events", events);
  json_object_set_new(object, "live", live);
  json_object_set_new(object, "reserved", reserved);
  if (in_time) json_object_set(object, "times", times);
  json_decref(times);
}

static void set_run(json_t *object, size_t run) {
  if (run != REPORT_NO_RUN) json_object_set_new(object, "run", json_integer((json_int_t)run));
}

json_t *report_lines_json(const report_page *page) {
  json_t *array = json_array();
  timeline_point *points = malloc(REPORT_LINE_POINTS * sizeof *points);
  size_t most = page->line_count ? LINE_POINTS_TOGETHER / page->line_count : 0;
  if (most < TIMELINE_LEAST_POINTS) most = TIMELINE_LEAST_POINTS;
  for (size_t i = 0; array && points && i < page->line_count; i++) {
    const report_line *line = &page->lines[i];
    json_t *object = json_object();
    json_object_set_new(object, "source", json_integer((json_int_t)line->source));
    set_run(object, line->run);
    json_object_set_new(object, "trace", report_text(line->trace));
    json_object_set_new(object, "spec", report_text(line->spec));
    add_points(object, points, thin(points, timeline_points(line->points, points), most));
    json_array_append_new(array, object);
  }
  if (!points) {
    json_decref(array);
    array = NULL;
  }
  free(points);
  return array;
}

exit_status report_add_timeline(report_page *page, const char *name, const char *trace, const char *spec,
                                const timeline_point *points, size_t count) {
  report_place place = {.page = page, .path = name};
  exit_status status = report_begin_source(&place, "timeline");
  if (status != EXIT_STATUS_DONE) return status;
  timeline *line = report_line_begin(&place, trace, spec, REPORT_NO_RUN);
  if (!line) return report_no_memory();
  for (size_t i = 0; i < count; i++) timeline_add(line, &points[i]);
  report_count(&place, 1);
  return EXIT_STATUS_DONE;
}

/* ---- iterations ---- */

json_t *report_iterations_begin(const report_place *place, const char *trace, const char *spec, size_t run) {
  json_t *series = json_object();
  bool made = json_object_set_new(series, "source", json_integer((json_int_t)place->source)) == 0;
  set_run(series, run);
  made &= json_object_set_new(series, "trace", report_text(trace)) == 0;
  made &= json_object_set_new(series, "spec", report_text(spec)) == 0;
  made &= json_object_set_new(series, "laps", json_array()) == 0;
  made &= json_object_set_new(series, "iterations", json_array()) == 0;
  made &= json_object_set_new(series, "measures", json_object()) == 0;
  made &= json_array_append_new(place->page->iterations, series) == 0;
  return made ? series : NULL;
}

bool report_iterations_step(json_t *series, json_int_t lap, json_int_t iteration) {
  json_t *laps = json_object_get(series, "laps"), *iterations = json_object_get(series, "iterations");
  if (json_array_size(laps) == ITERATIONS_KEPT) {
    json_object_set_new(series, "cut", json_true());
    return false;
  }
  json_array_append_new(laps, json_integer(lap));
  json_array_append_new(iterations, json_integer(iteration));
  return true;
}

/* The array of a measure, which is new or known; NULL: no memory. */
static json_t *values_of(json_t *measures, const char *measure) {
  json_t *name = report_text(measure), *values = json_object_get(measures, json_string_value(name));
  if (name && !values) {
    values = json_array();
    if (json_object_set_new(measures, json_string_value(name), values) != 0) values = NULL;
  }
  json_decref(name);
  return values;
}

void report_iterations_set(json_t *series, const char *measure, json_t *value) {
  json_t *values = values_of(json_object_get(series, "measures"), measure);
  const size_t count = json_array_size(json_object_get(series, "laps"));
  if (!values) {
    json_decref(value);
    return;
  }
  while (json_array_size(values) + 1 < count) json_array_append_new(values, json_null());
  if (json_array_size(values) < count)
    json_array_append_new(values, value);
  else
    json_array_set_new(values, count - 1, value);
}
