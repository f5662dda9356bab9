/* Results of replays, as JSON: of 'replay' and of 'sweep'. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/report_internal.h"

const report_key report_run_keys[] = {
    {"trace", REPORT_TEXT},
    {"policy", REPORT_TEXT},
    {"spec", REPORT_TEXT},
    {"model_note", REPORT_TEXT},
    {"driver", REPORT_TEXT},
    {"device", REPORT_TEXT},
    {"profile", REPORT_TEXT},
    {"frees", REPORT_TEXT},
    {"status", REPORT_TEXT},
    {"error", REPORT_TEXT},
    {"drift", REPORT_TEXT},
    {"capacity_bytes", REPORT_NUMBER},
    {"limit_bytes", REPORT_NUMBER},
    {"lap_count", REPORT_NUMBER},
    {"event_delay_events", REPORT_NUMBER},
    {"events", REPORT_NUMBER},
    {"live_peak_bytes", REPORT_NUMBER},
    {"requested_peak_bytes", REPORT_NUMBER},
    {"allocated_peak_bytes", REPORT_NUMBER},
    {"active_peak_bytes", REPORT_NUMBER},
    {"reserved_peak_bytes", REPORT_NUMBER},
    {"device_peak_bytes", REPORT_NUMBER},
    {"utilization", REPORT_NUMBER},
    {"final_reserved_bytes", REPORT_NUMBER},
    {"failed_allocs", REPORT_NUMBER},
    {"recorded_ooms", REPORT_NUMBER},
    {"recorded_ooms_served", REPORT_NUMBER},
    {"segments_peak", REPORT_NUMBER},
    {"alloc_retries", REPORT_NUMBER},
    {"host_waits", REPORT_NUMBER},
    {"driver_us", REPORT_NUMBER},
    {"settled_lap", REPORT_NUMBER},
    {"ns_per_event", REPORT_NUMBER},
    {NULL, REPORT_TEXT},
};

static const report_key failure_keys[] = {
    {"lap", REPORT_NUMBER},        {"event", REPORT_NUMBER},          {"size_bytes", REPORT_NUMBER},
    {"live_bytes", REPORT_NUMBER}, {"reserved_bytes", REPORT_NUMBER}, {"largest_free_bytes", REPORT_NUMBER},
    {"refused_by", REPORT_TEXT},   {"driver_error", REPORT_TEXT},     {NULL, REPORT_TEXT},
};

/* ---- costs by name ---- */

/* {name: {key: number, ...}} becomes {name: [number, ...]}, in the order of the keys; null where one is
 * missing. */
static exit_status read_costs(const report_place *place, const char *where, const char *part,
                              const json_t *object, const char *const *keys, json_t *into) {
  json_t *costs = json_object_get(object, part), *entry;
  const char *name;
  if (!costs || json_is_null(costs)) return EXIT_STATUS_DONE;
  json_t *kept = json_object();
  if (json_object_set_new(into, part, kept) != 0) return report_no_memory();
  json_object_foreach(costs, name, entry) {
    json_t *numbers = json_array();
    for (size_t i = 0; keys[i]; i++) {
      json_t *number = json_object_get(entry, keys[i]);
      if (number && !json_is_number(number)) {
        json_decref(numbers);
        return report_refuse(place, "%s%s.%s.%s: expected a number", where, part, name, keys[i]);
      }
      json_array_append_new(numbers, number ? json_incref(number) : json_null());
    }
    if (json_object_set_new(kept, name, numbers) != 0) return report_no_memory();
  }
  return EXIT_STATUS_DONE;
}

static exit_status read_counters(const report_place *place, const char *where, const json_t *object,
                                 json_t *into) {
  json_t *counters = json_object_get(object, "counters"), *value;
  const char *name;
  json_object_foreach(counters, name, value) {
    if (!json_is_number(value)) return report_refuse(place, "%scounters.%s: expected a number", where, name);
  }
  if (counters && json_object_set(into, "counters", counters) != 0) return report_no_memory();
  return EXIT_STATUS_DONE;
}

static exit_status read_failure(const report_place *place, const char *where, const json_t *object,
                                json_t *into) {
  const json_t *failure = json_object_get(object, "first_failure");
  if (!failure || json_is_null(failure)) return EXIT_STATUS_DONE;
  json_t *kept = json_object();
  if (json_object_set_new(into, "first_failure", kept) != 0) return report_no_memory();
  return report_pick(place, where, failure, failure_keys, kept);
}

/* ---- over events and iterations ---- */

static exit_status read_timeline(const report_place *place, const char *where, const json_t *object,
                                 const char *trace, const char *spec) {
  const json_t *rows = json_object_get(object, "timeline");
  const size_t count = json_array_size(rows);
  if (count == 0) return EXIT_STATUS_DONE;
  timeline *line = report_line_begin(place, trace, spec, json_array_size(place->page->runs) - 1);
  if (!line) return report_no_memory();
  for (size_t i = 0; i < count; i++) {
    const json_t *row = json_array_get(rows, i);
    timeline_point point;
    if (!report_natural(json_array_get(row, 0), &point.event) ||
        !report_natural(json_array_get(row, 1), &point.time_us) ||
        !report_natural(json_array_get(row, 2), &point.live_bytes) ||
        !report_natural(json_array_get(row, 3), &point.allocated_bytes) ||
        !report_natural(json_array_get(row, 4), &point.reserved_bytes))
      return report_refuse(place, "%stimeline[%zu]: expected five numbers that are not negative", where, i);
    timeline_add(line, &point);
  }
  return EXIT_STATUS_DONE;
}

static void set_operation(json_t *series, const char *name, const json_t *operation, const char *key,
                          const char *ending) {
  char measure[256];
  json_t *value = json_object_get(operation, key);
  snprintf(measure, sizeof measure, "%s_%s", name, ending);
  if (json_is_number(value)) report_iterations_set(series, measure, json_incref(value));
}

static void set_measures(json_t *series, const json_t *iteration) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)iteration, name, value) {
    if (json_is_number(value) && strcmp(name, "lap") != 0 && strcmp(name, "iteration") != 0)
      report_iterations_set(series, name, json_incref(value));
  }
  json_object_foreach(json_object_get(iteration, "operations"), name, value) {
    set_operation(series, name, value, "count", "count");
    set_operation(series, name, value, "driver_us", "driver_us");
  }
  json_object_foreach(json_object_get(iteration, "counters"), name, value) {
    if (json_is_number(value)) report_iterations_set(series, name, json_incref(value));
  }
}

/* Keeps from which iteration on something holds; null: it never does. */
static void set_since(json_t *series, const json_t *object, const char *key) {
  json_t *since = json_object_get(object, key);
  uint64_t number;
  if (since && (json_is_null(since) || (report_natural(json_object_get(since, "lap"), &number) &&
                                        report_natural(json_object_get(since, "iteration"), &number))))
    json_object_set(series, key, since);
}

static exit_status read_iterations(const report_place *place, const char *where, const json_t *object,
                                   const char *trace, const char *spec) {
  const json_t *iterations = json_object_get(object, "iterations");
  if (json_array_size(iterations) == 0) return EXIT_STATUS_DONE;
  json_t *series = report_iterations_begin(place, trace, spec, json_array_size(place->page->runs) - 1);
  if (!series) return report_no_memory();
  for (size_t i = 0; i < json_array_size(iterations); i++) {
    const json_t *iteration = json_array_get(iterations, i);
    uint64_t lap, number;
    if (!report_natural(json_object_get(iteration, "lap"), &lap) ||
        !report_natural(json_object_get(iteration, "iteration"), &number))
      return report_refuse(place, "%siterations[%zu]: expected a lap and an iteration", where, i);
    if (!report_iterations_step(series, (json_int_t)lap, (json_int_t)number)) break;
    set_measures(series, iteration);
  }
  set_since(series, object, "exact_from");
  set_since(series, object, "quiet_from");
  return EXIT_STATUS_DONE;
}

/* ---- a run ---- */

static exit_status fill_run(const report_place *place, const char *where, const json_t *object, json_t *run) {
  static const char *const call_keys[] = {"count", "failures", "us", "p50_us", "p99_us", NULL};
  static const char *const operation_keys[] = {"count", "driver_us", NULL};
  exit_status status = report_pick(place, where, object, report_run_keys, run);
  if (status == EXIT_STATUS_DONE) status = read_costs(place, where, "driver_calls", object, call_keys, run);
  if (status == EXIT_STATUS_DONE)
    status = read_costs(place, where, "operations", object, operation_keys, run);
  if (status == EXIT_STATUS_DONE) status = read_counters(place, where, object, run);
  if (status == EXIT_STATUS_DONE) status = read_failure(place, where, object, run);
  if (status == EXIT_STATUS_DONE && json_is_object(json_object_get(object, "options")) &&
      json_object_set(run, "options", json_object_get(object, "options")) != 0)
    status = report_no_memory();
  return status;
}

exit_status report_read_run(const report_place *place, size_t index, const json_t *object) {
  char where[64];
  snprintf(where, sizeof where, "[%zu].", index);
  json_t *run = json_object();
  if (json_object_set_new(run, "source", json_integer((json_int_t)place->source)) != 0 ||
      json_array_append_new(place->page->runs, run) != 0)
    return report_no_memory();
  exit_status status = fill_run(place, where, object, run);
  if (status != EXIT_STATUS_DONE) return status;
  report_note_all(place, object);
  const char *trace = json_string_value(json_object_get(run, "trace"));
  const char *spec = json_string_value(json_object_get(run, "spec"));
  if (!spec) spec = json_string_value(json_object_get(run, "policy"));
  if (!trace || !spec) return report_refuse(place, "%strace, policy: expected texts", where);
  report_count(place, 1);
  status = read_timeline(place, where, object, trace, spec);
  return status == EXIT_STATUS_DONE ? read_iterations(place, where, object, trace, spec) : status;
}
