#include "harness/oom_output.h"

#include <inttypes.h>

#include "harness/replay_output.h"
#include "harness/table.h"
#include "harness/units.h"

/* ---- for people ---- */

static void print_header(const oom_group *group, FILE *stream) {
  const trace_summary *summary = &group->summary;
  char text[UNITS_TEXT], allocations[UNITS_COUNTED], more[UNITS_COUNTED];
  fprintf(stream, "trace     %s\n", replay_trace_name(group->path));
  units_count(group->need.events, text);
  units_counted(summary->allocations, "allocation", allocations);
  units_counted(summary->streams, "stream", more);
  fprintf(stream, "events    %s: %s, %s", text, allocations, more);
  replay_report_recorded(summary, group->recorded_count, stream);
  if (group->frees_requested) fputs(", freed when the caller asked for it", stream);
  fprintf(stream, "\ndevice    %s, simulated, as small as it may be\n", group->model->name);
  units_bytes(group->need.live_peak_bytes, text);
  fprintf(stream, "peak live %s\n", text);
  replay_report_policies(group->specs, group->model, stream);
  fputc('\n', stream);
}

static const char *outcome_text(const capacity_result *result) {
  return result->status == EXIT_STATUS_OUT_OF_MEMORY ? "none up to 512 GiB" : "FAILED";
}

static void print_table(const oom_group *group, FILE *stream) {
  uint64_t largest = group->need.live_peak_bytes;
  for (size_t i = 0; i < group->count; i++) {
    const capacity_result *result = &group->results[i];
    if (result->found && result->roomy_reserved_peak_bytes > largest)
      largest = result->roomy_reserved_peak_bytes;
  }
  units_scale scale = units_bytes_scale(largest);
  char live[40], smallest[40], roomy[40];
  snprintf(live, sizeof live, "live peak %s", scale.name);
  snprintf(smallest, sizeof smallest, "smallest device %s", scale.name);
  snprintf(roomy, sizeof roomy, "reserved with room %s", scale.name);
  const char *titles[] = {"<policy", live, smallest, "of live", roomy, "retries", "driver ms", "replays"};
  const size_t columns = sizeof titles / sizeof *titles;
  table *rows = table_create(titles, columns);
  for (size_t i = 0; i < group->count; i++) {
    const capacity_result *result = &group->results[i];
    char text[UNITS_TEXT];
    table_row(rows);
    table_cell(rows, "%s", result->spec->text);
    table_cell(rows, "%.3f", (double)group->need.live_peak_bytes / scale.factor);
    if (!result->found) {
      table_cell(rows, "%s", outcome_text(result));
      continue;
    }
    table_cell(rows, "%.3f", (double)result->capacity_bytes / scale.factor);
    table_cell(rows, "%.3f", (double)result->capacity_bytes / (double)group->need.live_peak_bytes);
    table_cell(rows, "%.3f", (double)result->roomy_reserved_peak_bytes / scale.factor);
    table_count(rows, result->statistics.retries);
    units_significant((double)result->driver_ns * 1e-6, text);
    table_cell(rows, "%s", text);
    table_count(rows, result->replays);
  }
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
}

static const char *judge_text(oom_judge judge) {
  switch (judge) {
    case OOM_JUDGE_OPTION:
      return "as given";
    case OOM_JUDGE_RECORDED:
      return "what the recorded run's segments and the device's free memory add up to";
    case OOM_JUDGE_DEVICE:
      break;
  }
  return "the simulated device's; --capacity gives that of the one it was recorded on";
}

static void print_recorded(const oom_group *group, FILE *stream) {
  char size[UNITS_TEXT], bytes[UNITS_TEXT];
  const uint64_t shown = group->recorded_count < 4 ? group->recorded_count : 4;
  fputs("\nWhen recorded, memory ran out:\n", stream);
  for (uint64_t i = 0; i < shown; i++) {
    const replay_probe *probe = &group->recorded[i];
    units_bytes(probe->state.size, size);
    units_bytes(probe->state.live_bytes, bytes);
    fprintf(stream, "  event %" PRIu64 ": %s wanted (%" PRIu64 " bytes) on stream %" PRIu32 ", %s live",
            probe->state.event, size, probe->state.size, probe->state.stream, bytes);
    if (probe->recorded_free_bytes) {
      units_bytes(probe->recorded_free_bytes, bytes);
      fprintf(stream, ", %s of the device free", bytes);
    }
    fputc('\n', stream);
  }
  if (group->recorded_count > shown)
    fprintf(stream, "  and %" PRIu64 " more\n", group->recorded_count - shown);
}

static void print_verdicts(const oom_group *group, FILE *stream) {
  char bytes[UNITS_TEXT];
  size_t survivors = 0;
  units_bytes(group->judge_capacity, bytes);
  fprintf(stream, "\nOn a device of %s (%s):\n  survive        ", bytes, judge_text(group->judge));
  for (size_t i = 0; i < group->count; i++) {
    if (!group->verdicts[i].survives) continue;
    fprintf(stream, "%s%s", survivors++ ? ", " : "", group->results[i].spec->text);
  }
  fputs(survivors ? "\n" : "none of these policies\n", stream);
  for (size_t i = 0; i < group->count; i++) {
    const oom_verdict *verdict = &group->verdicts[i];
    if (!verdict->known || verdict->survives) continue;
    fprintf(stream, "\n  %s runs out at event %" PRIu64 "%s\n", group->results[i].spec->text,
            verdict->failure.event, verdict->is_probe ? ", where the recorded run did" : "");
    device_model judged = *group->model;
    judged.capacity = group->judge_capacity;
    replay_report_situation(&verdict->failure, &judged, UINT64_MAX, stream);
  }
}

void oom_report_print(const oom_group *group, FILE *stream) {
  print_header(group, stream);
  print_table(group, stream);
  for (size_t i = 0; i < group->count; i++) {
    const capacity_result *result = &group->results[i];
    if (!result->found && result->status != EXIT_STATUS_OUT_OF_MEMORY)
      fprintf(stream, "\n%s failed: %s\n", result->spec->text, result->message);
  }
  if (group->recorded_count) print_recorded(group, stream);
  if (group->judge_capacity) print_verdicts(group, stream);
  fputc('\n', stream);
}

/* ---- for programs ---- */

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

static json_t *recorded_array(const oom_group *group) {
  json_t *array = json_array();
  for (uint64_t i = 0; i < group->recorded_count && i < REPLAY_PROBES; i++) {
    const replay_probe *probe = &group->recorded[i];
    json_t *object = json_object();
    json_object_set_new(object, "event", number(probe->state.event));
    json_object_set_new(object, "size_bytes", number(probe->state.size));
    json_object_set_new(object, "stream", number(probe->state.stream));
    json_object_set_new(object, "live_bytes", number(probe->state.live_bytes));
    json_object_set_new(object, "device_free_bytes",
                        probe->recorded_free_bytes ? number(probe->recorded_free_bytes) : json_null());
    json_array_append_new(array, object);
  }
  return array;
}

static json_t *failure_object(const replay_failure *failure, bool is_probe) {
  json_t *object = json_object();
  json_object_set_new(object, "event", number(failure->event));
  json_object_set_new(object, "failed_when_recorded", json_boolean(is_probe));
  replay_json_situation(object, failure);
  return object;
}

static json_t *verdict_object(const oom_group *group, const oom_verdict *verdict) {
  static const char *const sources[] = {
      [OOM_JUDGE_OPTION] = "option", [OOM_JUDGE_RECORDED] = "recorded", [OOM_JUDGE_DEVICE] = "device"};
  if (!group->judge_capacity) return json_null();
  json_t *object = json_object();
  json_object_set_new(object, "capacity_bytes", number(group->judge_capacity));
  json_object_set_new(object, "capacity_source", json_string(sources[group->judge]));
  json_object_set_new(object, "survives", verdict->known ? json_boolean(verdict->survives) : json_null());
  json_object_set_new(object, "first_failure",
                      verdict->known && !verdict->survives
                          ? failure_object(&verdict->failure, verdict->is_probe)
                          : json_null());
  return object;
}

static void set_numbers(json_t *object, const oom_group *group, const capacity_result *result) {
  json_object_set_new(object, "live_peak_bytes", number(group->need.live_peak_bytes));
  json_object_set_new(object, "requested_peak_bytes", number(group->need.requested_peak_bytes));
  json_object_set_new(object, "smallest_capacity_bytes",
                      result->found ? number(result->capacity_bytes) : json_null());
  json_object_set_new(object, "step_bytes", number(CAPACITY_STEP_BYTES));
  json_object_set_new(object, "reserved_peak_bytes",
                      result->found ? number(result->statistics.reserved_bytes.peak) : json_null());
  json_object_set_new(object, "alloc_retries",
                      result->found ? number(result->statistics.retries) : json_null());
  json_object_set_new(object, "driver_us",
                      result->found ? json_real((double)result->driver_ns / 1000) : json_null());
  json_object_set_new(object, "roomy_reserved_peak_bytes",
                      result->found ? number(result->roomy_reserved_peak_bytes) : json_null());
  json_object_set_new(
      object, "below",
      result->knows_below ? failure_object(&result->below, result->below_is_probe) : json_null());
  json_object_set_new(object, "replays", number(result->replays));
}

bool oom_json_append(json_t *array, const oom_group *group) {
  for (size_t i = 0; i < group->count; i++) {
    const capacity_result *result = &group->results[i];
    const bool failed = !result->found && result->status != EXIT_STATUS_OUT_OF_MEMORY;
    const char *note = replay_model_note(result->spec, group->model);
    json_t *object = json_object();
    json_object_set_new(object, "trace", replay_json_words(replay_trace_name(group->path)));
    json_object_set_new(object, "policy", json_string(result->spec->class->name));
    json_object_set_new(object, "spec", replay_json_words(result->spec->text));
    json_object_set_new(object, "options", replay_json_options(result->spec));
    json_object_set_new(object, "model_note", note ? json_string(note) : json_null());
    json_object_set_new(object, "driver", json_string(group->model->driver));
    json_object_set_new(object, "device", replay_json_words(group->model->name));
    json_object_set_new(object, "frees", json_string(group->frees_requested ? "requested" : "completed"));
    json_object_set_new(object, "events", number(group->need.events));
    json_object_set_new(object, "seeded", number(group->summary.seeded));
    json_object_set_new(object, "orphan_frees", number(group->summary.orphan_frees));
    json_object_set_new(object, "status", json_string(failed ? "failed" : "done"));
    json_object_set_new(object, "error", failed ? replay_json_words(result->message) : json_null());
    if (!failed) set_numbers(object, group, result);
    json_object_set_new(object, "recorded_ooms", recorded_array(group));
    json_object_set_new(object, "verdict", verdict_object(group, &group->verdicts[i]));
    if (json_array_append_new(array, object) != 0) return false;
  }
  return true;
}

void oom_csv_header(FILE *stream) {
  fputs(
      "trace,policy,options,device,status,error,events,live_peak_bytes,requested_peak_bytes,"
      "smallest_capacity_bytes,reserved_peak_bytes,roomy_reserved_peak_bytes,alloc_retries,driver_us,replays,"
      "recorded_ooms,verdict_capacity_bytes,survives\n",
      stream);
}

void oom_csv_rows(const oom_group *group, FILE *stream) {
  for (size_t i = 0; i < group->count; i++) {
    const capacity_result *result = &group->results[i];
    const bool failed = !result->found && result->status != EXIT_STATUS_OUT_OF_MEMORY;
    char options[2048];
    replay_options_text(result->spec, options, sizeof options);
    const char *const words[] = {replay_trace_name(group->path),
                                 result->spec->class->name,
                                 options,
                                 group->model->name,
                                 failed ? "failed" : "done",
                                 result->message};
    for (size_t j = 0; j < sizeof words / sizeof *words; j++) {
      replay_csv_field(stream, words[j]);
      fputc(',', stream);
    }
    fprintf(stream, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", group->need.events, group->need.live_peak_bytes,
            group->need.requested_peak_bytes);
    if (result->found) {
      fprintf(stream, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.3f", result->capacity_bytes,
              result->statistics.reserved_bytes.peak, result->roomy_reserved_peak_bytes,
              result->statistics.retries, (double)result->driver_ns / 1000);
    } else {
      fputs(",,,,", stream);
    }
    fprintf(stream, ",%u,%" PRIu64 ",", result->replays, group->recorded_count);
    if (group->judge_capacity) {
      const oom_verdict *verdict = &group->verdicts[i];
      const char *survives = verdict->survives ? "true" : "false";
      fprintf(stream, "%" PRIu64 ",%s\n", group->judge_capacity, verdict->known ? survives : "");
    } else {
      fputs(",\n", stream);
    }
  }
}
