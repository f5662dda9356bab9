#include "harness/sweep_runner.h"

#include <string.h>

#include "harness/replay_output.h"
#include "harness/sweep_source.h"

/* What is not in a result that never came to be. */
static json_t *describe(const sweep_cell *cell) {
  json_t *object = json_object();
  const char *text = cell->source->text;
  json_object_set_new(object, "key", json_string(cell->key));
  json_object_set_new(object, "trace",
                      replay_json_words(cell->source->generated ? text : replay_trace_name(text)));
  return object;
}

json_t *sweep_runner_absence(const sweep_cell *cell, const char *message) {
  json_t *object = describe(cell);
  policy_spec spec;
  char refusal[256];
  bool parsed = policy_spec_parse(cell->policy, &spec, refusal, sizeof refusal) == VMM_SUCCESS;
  json_object_set_new(object, "policy", parsed ? json_string(spec.class->name) : json_null());
  json_object_set_new(object, "spec", replay_json_words(cell->policy));
  json_object_set_new(object, "profile", replay_json_words(cell->device));
  if (cell->capacity) json_object_set_new(object, "capacity_bytes", json_integer((json_int_t)cell->capacity));
  json_object_set_new(object, "status", json_string(message ? "failed" : "missing"));
  json_object_set_new(object, "error", message ? replay_json_words(message) : json_null());
  return object;
}

static void set_timeline(json_t *object, const replay_result *result) {
  json_t *rows = json_array();
  for (size_t i = 0; i < result->timeline_count; i++) {
    const timeline_point *point = &result->timeline[i];
    const uint64_t values[] = {point->event, point->time_us, point->live_bytes, point->allocated_bytes,
                               point->reserved_bytes};
    json_t *row = json_array();
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
      json_array_append_new(row, json_integer((json_int_t)values[k]));
    json_array_append_new(rows, row);
  }
  json_object_set_new(object, "timeline", rows);
}

/* The replay's own object, with what only a sweep knows. */
static json_t *make_result(const sweep_cell *cell, const replay_group *group) {
  json_t *array = json_array(), *object = describe(cell);
  if (!array || !object || !replay_json_append(array, group)) {
    json_decref(array);
    json_decref(object);
    return NULL;
  }
  json_t *replayed = json_array_get(array, 0);
  json_object_update_missing(object, replayed);
  json_decref(array);
  /* A cell knows of no other policy. */
  json_t *failure = json_object_get(object, "first_failure");
  if (json_is_object(failure)) json_object_del(failure, "served_by");
  if (cell->timeline_points > 0) set_timeline(object, group->results);
  return object;
}

void sweep_runner_close(sweep_runner *runner) {
  event_source_close(runner->events);
  *runner = (sweep_runner){0};
}

/* Leaves the cell's source open at its beginning or anywhere else: a replay rewinds. */
static trace_status open_source(sweep_runner *runner, const sweep_cell *cell, trace_error *error) {
  if (runner->events && runner->source == cell->source && runner->seeded == cell->seed_from_segments &&
      runner->frees_requested == cell->frees_requested)
    return TRACE_OK;
  sweep_runner_close(runner);
  const trace_options options = {.seed_from_segments = cell->seed_from_segments,
                                 .free_requests = cell->frees_requested};
  trace_status status = sweep_source_open(cell->source, &options, &runner->events, error);
  if (status != TRACE_OK) return status;
  runner->source = cell->source;
  runner->seeded = cell->seed_from_segments;
  runner->frees_requested = cell->frees_requested;
  return TRACE_OK;
}

static json_t *replay_cell(sweep_runner *runner, const sweep_cell *cell, const policy_specs *specs,
                           const device_model *model) {
  const replay_settings settings = {
      .model = model,
      .limit =
          cell->limit_fraction > 0 ? (uint64_t)(cell->limit_fraction * (double)model->total) : cell->limit,
      .limit_fraction = cell->limit_fraction,
      .laps = cell->laps,
      .frees_requested = cell->frees_requested,
      .check = cell->check,
      .timeline_points = cell->timeline_points,
  };
  progress silent;
  progress_init(&silent, true);
  replay_result result;
  replay_run(runner->events, specs->items, &settings, &silent, &result);
  const replay_group group = {
      .path = cell->source->text, .settings = &settings, .specs = specs, .results = &result, .count = 1};
  json_t *object =
      result.trace_failed ? sweep_runner_absence(cell, result.message) : make_result(cell, &group);
  /* Not kept: its next reading would begin with the same failure. */
  if (result.trace_failed) sweep_runner_close(runner);
  replay_result_free(&result);
  return object;
}

json_t *sweep_runner_run(sweep_runner *runner, const sweep_cell *cell) {
  char message[1024];
  policy_spec spec;
  if (policy_spec_parse(cell->policy, &spec, message, sizeof message) != VMM_SUCCESS)
    return sweep_runner_absence(cell, message);
  const policy_specs specs = {.items = &spec, .count = 1};
  const device_choice choice = {
      .driver = "sim", .profile = cell->device, .capacity = cell->capacity, .event_delay = cell->event_delay};
  device_model model;
  if (device_model_load(&choice, &model, message, sizeof message) != EXIT_STATUS_DONE)
    return sweep_runner_absence(cell, message);
  trace_error error;
  json_t *object = open_source(runner, cell, &error) == TRACE_OK ? replay_cell(runner, cell, &specs, &model)
                                                                 : sweep_runner_absence(cell, error.message);
  device_model_unload(&model);
  return object;
}
