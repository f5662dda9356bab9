/* Results as JSON. docs/numbers.md defines the keys. */
#include <string.h>

#include "harness/program.h"
#include "harness/replay_output.h"

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }
static json_t *microseconds(uint64_t nanoseconds) { return json_real((double)nanoseconds / 1000); }

json_t *replay_json_words(const char *text) {
  json_t *string = json_string(text);
  return string ? string : json_string("?");
}
/* null stands for what is not known. */
static json_t *known_number(uint64_t value) { return value == UINT64_MAX ? json_null() : number(value); }

static json_t *option_value(const policy_option *option, const policy_value *value) {
  switch (option->type) {
    case POLICY_OPTION_SIZE:
    case POLICY_OPTION_INTEGER:
      return value->integer == UINT64_MAX ? json_string("unlimited") : number(value->integer);
    case POLICY_OPTION_REAL:
      return json_real(value->real);
    case POLICY_OPTION_BOOLEAN:
      return json_boolean(value->integer);
    case POLICY_OPTION_CHOICE:
    case POLICY_OPTION_TEXT:
      break;
  }
  return replay_json_words(value->text);
}

json_t *replay_json_options(const policy_spec *spec) {
  json_t *object = json_object();
  const policy_option *option = spec->class->options;
  for (size_t i = 0; option && option[i].name; i++) {
    json_object_set_new(object, option[i].name, option_value(&option[i], &spec->values[i]));
  }
  return object;
}

static json_t *calls_object(const replay_result *result) {
  json_t *object = json_object();
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    const replay_call *cost = &result->calls[call];
    if (cost->count == 0) continue;
    json_t *entry = json_object();
    json_object_set_new(entry, "count", number(cost->count));
    json_object_set_new(entry, "failures", number(cost->failures));
    json_object_set_new(entry, "us", microseconds(cost->total_ns));
    json_object_set_new(entry, "p50_us", microseconds(cost->p50_ns));
    json_object_set_new(entry, "p99_us", microseconds(cost->p99_ns));
    json_object_set_new(object, vmm_call_name((vmm_call)call), entry);
  }
  return object;
}

static json_t *operations_object(const replay_result *result) {
  json_t *object = json_object();
  for (unsigned i = 0; i < result->operation_count; i++) {
    json_t *entry = json_object();
    json_object_set_new(entry, "count", number(result->operations[i].count));
    json_object_set_new(entry, "driver_us", microseconds(result->operations[i].driver_ns));
    json_object_set_new(object, result->operations[i].name, entry);
  }
  return object;
}

static json_t *counters_object(const replay_result *result) {
  json_t *object = json_object();
  for (size_t i = 0; i < result->counter_count; i++) {
    json_object_set_new(object, result->counters[i].name, number(result->counters[i].value));
  }
  return object;
}

static json_t *laps_array(const replay_result *result) {
  json_t *array = json_array();
  for (uint64_t i = 0; i < result->lap_count; i++) {
    const replay_lap *lap = &result->laps[i];
    json_t *entry = json_object();
    json_object_set_new(entry, "events", number(lap->events));
    json_object_set_new(entry, "failed_allocs", number(lap->failed_allocs));
    json_object_set_new(entry, "driver_calls", number(lap->driver_calls));
    json_object_set_new(entry, "driver_us", microseconds(lap->driver_ns));
    json_object_set_new(entry, "allocated_bytes", number(lap->allocated_bytes));
    json_object_set_new(entry, "reserved_bytes", number(lap->reserved_bytes));
    json_object_set_new(entry, "reserved_address_bytes", number(lap->address_bytes));
    json_object_set_new(entry, "segments", number(lap->segments));
    json_object_set_new(entry, "chunks", number(lap->chunks));
    json_object_set_new(entry, "address_ranges", number(lap->ranges));
    json_object_set_new(entry, "split_blocks", number(lap->split_blocks));
    json_object_set_new(entry, "largest_free_bytes", number(lap->largest_free_bytes));
    json_array_append_new(array, entry);
  }
  return array;
}

static json_t *free_ranges_array(const replay_failure *failure) {
  if (!failure->knows_free_ranges) return json_null();
  json_t *array = json_array();
  for (unsigned bin = 0; bin < 64; bin++) {
    if (failure->free_ranges.count[bin] == 0) continue;
    json_t *entry = json_object();
    json_object_set_new(entry, "from_bytes", number(UINT64_C(1) << bin));
    json_object_set_new(entry, "count", number(failure->free_ranges.count[bin]));
    json_object_set_new(entry, "bytes", number(failure->free_ranges.bytes[bin]));
    json_array_append_new(array, entry);
  }
  return array;
}

void replay_json_situation(json_t *object, const replay_failure *failure) {
  json_object_set_new(object, "size_bytes", number(failure->size));
  json_object_set_new(object, "stream", number(failure->stream));
  json_object_set_new(object, "live_bytes", number(failure->live_bytes));
  json_object_set_new(object, "allocated_bytes", number(failure->allocated_bytes));
  json_object_set_new(object, "reserved_bytes", number(failure->reserved_bytes));
  json_object_set_new(object, "largest_free_bytes",
                      failure->knows_largest_free ? number(failure->largest_free_bytes) : json_null());
  json_object_set_new(object, "free_ranges", free_ranges_array(failure));
  json_object_set_new(object, "device_free_bytes", known_number(failure->device_free_bytes));
  json_object_set_new(object, "refused_by", json_string(replay_refusal_name(failure->refused_by)));
  json_object_set_new(object, "driver_error",
                      failure->driver_error[0] ? json_string(failure->driver_error) : json_null());
}

static json_t *failure_object(const replay_group *group, const replay_result *result) {
  const replay_failure *failure = &result->first_failure;
  json_t *object = json_object();
  json_object_set_new(object, "lap", number(failure->lap));
  json_object_set_new(object, "event", number(failure->event));
  json_object_set_new(object, "id", number(failure->id));
  replay_json_situation(object, failure);
  json_t *served = json_array();
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *other = &group->results[i];
    if (replay_served_by(other, result)) json_array_append_new(served, replay_json_words(other->spec->text));
  }
  json_object_set_new(object, "served_by", served);
  return object;
}

static void set_numbers(json_t *object, const replay_group *group, const replay_result *result) {
  const pool_statistics *statistics = &result->statistics;
  double utilization = replay_utilization(result);
  json_object_set_new(object, "events", number(result->events));
  json_object_set_new(object, "live_peak_bytes", number(result->live_peak_bytes));
  json_object_set_new(object, "requested_peak_bytes", number(statistics->requested_bytes.peak));
  json_object_set_new(object, "allocated_peak_bytes", number(statistics->allocated_bytes.peak));
  json_object_set_new(object, "active_peak_bytes", number(statistics->active_bytes.peak));
  json_object_set_new(object, "reserved_peak_bytes", number(statistics->reserved_bytes.peak));
  json_object_set_new(object, "device_peak_bytes", known_number(result->device_peak_bytes));
  json_object_set_new(object, "utilization", utilization >= 0 ? json_real(utilization) : json_null());
  json_object_set_new(object, "final_requested_bytes", number(statistics->requested_bytes.current));
  json_object_set_new(object, "final_allocated_bytes", number(statistics->allocated_bytes.current));
  json_object_set_new(object, "final_active_bytes", number(statistics->active_bytes.current));
  json_object_set_new(object, "final_reserved_bytes", number(statistics->reserved_bytes.current));
  json_object_set_new(object, "final_inactive_split_bytes", number(statistics->inactive_split_bytes.current));
  json_object_set_new(object, "final_device_bytes", known_number(result->device_held_bytes));
  json_object_set_new(object, "failed_allocs", number(result->failed_allocs));
  json_object_set_new(object, "first_failure",
                      result->failed_allocs ? failure_object(group, result) : json_null());
  json_object_set_new(object, "recorded_ooms", number(result->recorded_ooms));
  json_object_set_new(object, "recorded_ooms_served", number(result->recorded_ooms_served));
  json_object_set_new(object, "segments_peak", number(statistics->segments.peak));
  json_object_set_new(object, "alloc_retries", number(statistics->retries));
  json_object_set_new(object, "driver_allocations", number(statistics->driver_allocations));
  json_object_set_new(object, "driver_frees", number(statistics->driver_frees));
  json_object_set_new(object, "host_waits", number(statistics->host_waits));
  json_object_set_new(object, "driver_us", microseconds(result->driver_ns));
  json_object_set_new(object, "driver_calls", calls_object(result));
  json_object_set_new(object, "operations", operations_object(result));
  json_object_set_new(object, "counters", counters_object(result));
  json_object_set_new(object, "laps", laps_array(result));
  json_object_set_new(object, "settled_lap", result->settled_lap ? number(result->settled_lap) : json_null());
  json_object_set_new(object, "drift", result->drift[0] ? json_string(result->drift) : json_null());
}

static json_t *words_or_null(const char *text) { return text ? replay_json_words(text) : json_null(); }

void replay_json_provenance(json_t *object, const replay_group *group) {
  const replay_settings *settings = group->settings;
  const device_model *model = settings->model;
  json_object_set_new(object, "program", json_string("lakebed " PROGRAM_VERSION));
  json_object_set_new(object, "driver", json_string(model->driver));
  json_object_set_new(object, "device", replay_json_words(model->name));
  json_object_set_new(object, "profile", words_or_null(model->choice));
  json_object_set_new(object, "source", replay_json_words(model->source ? model->source : model->version));
  json_object_set_new(object, "capacity_bytes", number(model->capacity));
  json_object_set_new(object, "limit_bytes", known_number(settings->limit));
  json_object_set_new(object, "lap_count", number(settings->laps));
  json_object_set_new(object, "check", json_boolean(settings->check));
  json_object_set_new(object, "verify", json_boolean(settings->verify));
  json_object_set_new(object, "frees", json_string(settings->frees_requested ? "requested" : "completed"));
  json_object_set_new(object, "event_delay_events", model->real ? json_null() : number(model->event_delay));
}

/* All that differs from call to call. */
static void set_host(json_t *object, const replay_group *group, const replay_result *result) {
  json_object_set_new(object, "date", words_or_null(group->date));
  json_object_set_new(object, "command", words_or_null(group->command));
  if (!result->complete) return;
  bool timed = result->events > 0 && result->host_ns > 0;
  double events = (double)result->events, nanoseconds = (double)result->host_ns;
  json_object_set_new(object, "ns_per_event", timed ? json_real(nanoseconds / events) : json_null());
  json_object_set_new(object, "events_per_second",
                      timed ? json_real(events * 1e9 / nanoseconds) : json_null());
}

json_t *replay_json_begin(const replay_group *group, const replay_result *result) {
  json_t *object = json_object();
  json_object_set_new(object, "trace", replay_json_words(replay_trace_name(group->path)));
  json_object_set_new(object, "policy", json_string(result->spec->class->name));
  json_object_set_new(object, "spec", replay_json_words(result->spec->text));
  json_object_set_new(object, "options", replay_json_options(result->spec));
  return object;
}

bool replay_json_append(json_t *array, const replay_group *group) {
  const device_model *model = group->settings->model;
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    json_t *object = replay_json_begin(group, result);
    const char *note = replay_model_note(result->spec, model);
    json_object_set_new(object, "model_note", note ? json_string(note) : json_null());
    replay_json_provenance(object, group);
    json_object_set_new(object, "status", json_string(result->complete ? "done" : "failed"));
    json_object_set_new(object, "error", result->complete ? json_null() : replay_json_words(result->message));
    if (result->complete) set_numbers(object, group, result);
    if (result->complete && group->settings->iterations) replay_json_iterations(object, result);
    if (group->host_timing) set_host(object, group, result);
    if (result->latency && !instrument_report_json(result->latency, object, group->host_timing)) return false;
    if (json_array_append_new(array, object) != 0) return false;
  }
  return true;
}
