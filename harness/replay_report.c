/* Results for people. */
#include <inttypes.h>
#include <string.h>

#include "harness/replay_output.h"
#include "harness/table.h"
#include "harness/units.h"

const char *replay_trace_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

void replay_options_text(const policy_spec *spec, char *text, size_t text_size) {
  const policy_option *option = spec->class->options;
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; option && option[i].name && used < text_size; i++) {
    used += (size_t)snprintf(text + used, text_size - used, "%s%s=%s", i ? "," : "", option[i].name,
                             spec->values[i].text);
  }
}

const char *replay_model_note(const policy_spec *spec, const device_model *model) {
  const bool modelled = model->source && spec->class->capabilities & POLICY_NEEDS_ASYNC;
  return modelled ? "a model: placement of the driver's pool is not public" : NULL;
}

enum { TEXT_WIDTH = 100 };

/* Prints words in lines of about TEXT_WIDTH characters, indented as the header's values are. */
static void print_wrapped(const char *text, FILE *stream) {
  size_t column = 10;
  while (*text) {
    size_t length = strcspn(text, " ");
    if (column > 10 && column + 1 + length > TEXT_WIDTH) {
      fprintf(stream, "\n%10s", "");
      column = 10;
    } else if (column > 10) {
      fputc(' ', stream);
      column++;
    }
    fprintf(stream, "%.*s", (int)length, text);
    column += length;
    text += length;
    text += *text == ' ';
  }
  fputc('\n', stream);
}

static void print_header(const replay_group *group, FILE *stream) {
  const replay_settings *settings = group->settings;
  const device_model *model = settings->model;
  char text[UNITS_TEXT], more[UNITS_TEXT];
  fprintf(stream, "trace     %s\n", replay_trace_name(group->path));
  if (group->has_summary) {
    const trace_summary *summary = &group->summary;
    units_count(summary->allocations + summary->frees, text);
    units_count(summary->allocations, more);
    fprintf(stream, "events    %s: %s allocations, %" PRIu32 " stream%s", text, more, summary->streams,
            summary->streams == 1 ? "" : "s");
    units_count(summary->live_at_end, more);
    fprintf(stream, ", %s live at the end", more);
    if (summary->seeded) fprintf(stream, ", %" PRIu64 " from before the recording", summary->seeded);
    if (summary->orphan_frees) {
      fprintf(stream, ", %" PRIu64 " frees of older allocations left out", summary->orphan_frees);
    }
    if (summary->out_of_memory_events) {
      fprintf(stream, ", out of memory %" PRIu64 " times when recorded", summary->out_of_memory_events);
    }
    if (settings->laps > 1) fprintf(stream, ", replayed %" PRIu64 " times", settings->laps);
    if (settings->frees_requested) fputs(", freed when the caller asked for it", stream);
    fputc('\n', stream);
  }
  units_bytes(model->capacity, text);
  fprintf(stream, "device    %s, %s%s", model->name, text, model->source ? ", simulated" : "");
  if (settings->limit != UINT64_MAX) {
    units_bytes(settings->limit, text);
    fprintf(stream, ", policies limited to %s", text);
  }
  if (model->event_delay) fprintf(stream, ", work done after %" PRIu64 " events", model->event_delay);
  fputc('\n', stream);
  if (model->source) {
    fprintf(stream, "%-10s", "latencies");
    print_wrapped(model->source, stream);
  }
  for (size_t i = 0; i < group->count; i++) {
    const policy_spec *spec = group->results[i].spec;
    char options[2048];
    replay_options_text(spec, options, sizeof options);
    const char *note = replay_model_note(spec, model);
    fprintf(stream, "%s %s%s%s%s%s%s\n", i ? "         " : "policies ", spec->class->name,
            options[0] ? ":" : "", options, note ? " (" : "", note ? note : "", note ? ")" : "");
  }
  fputc('\n', stream);
}

static void print_numbers_row(table *rows, const replay_result *result, units_scale scale, bool host_timing) {
  char text[UNITS_TEXT];
  double utilization = replay_utilization(result);
  units_scaled(result->live_peak_bytes, scale, text);
  table_cell(rows, "%s", text);
  units_scaled(result->statistics.reserved_bytes.peak, scale, text);
  table_cell(rows, "%s", text);
  if (utilization >= 0) {
    table_cell(rows, "%.3f", utilization);
    /* Requests are not rounded by every policy, live is: native's quotient can be a little over 1. */
    table_cell(rows, "%.3f", utilization < 0.9995 || utilization > 1.0005 ? 1 - utilization : 0.0);
  } else {
    table_cell(rows, "-");
    table_cell(rows, "-");
  }
  units_count(result->driver_calls, text);
  table_cell(rows, "%s", text);
  units_significant((double)result->driver_ns * 1e-6, text);
  table_cell(rows, "%s", text);
  units_count(result->failed_allocs, text);
  table_cell(rows, "%s", text);
  if (!host_timing) return;
  units_significant(result->events ? (double)result->host_ns / (double)result->events : 0, text);
  table_cell(rows, "%s", text);
}

static void print_table(const replay_group *group, FILE *stream) {
  uint64_t largest = 0;
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (!result->complete) continue;
    if (result->live_peak_bytes > largest) largest = result->live_peak_bytes;
    if (result->statistics.reserved_bytes.peak > largest) largest = result->statistics.reserved_bytes.peak;
  }
  units_scale scale = units_bytes_scale(largest);
  char live[32], reserved[32];
  snprintf(live, sizeof live, "live peak %s", scale.name);
  snprintf(reserved, sizeof reserved, "reserved peak %s", scale.name);
  const char *titles[] = {"<policy",      live,        reserved, "utilisation",  "fragmentation",
                          "driver calls", "driver ms", "failed", "host ns/event"};
  size_t columns = sizeof titles / sizeof *titles - !group->host_timing;
  table *rows = table_create(titles, columns);
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    table_row(rows);
    table_cell(rows, "%s", result->spec->text);
    if (result->complete) {
      print_numbers_row(rows, result, scale, group->host_timing);
    } else {
      for (size_t j = 1; j < columns; j++) table_cell(rows, "%s", j == 1 ? "FAILED" : "-");
    }
  }
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
}

static void print_laps(const replay_group *group, FILE *stream) {
  const char *titles[] = {"<policy",      "lap",      "events", "failed", "driver calls", "driver ms",
                          "reserved MiB", "segments", "chunks", "ranges", "split blocks", "largest free MiB"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (!result->complete) continue;
    for (uint64_t j = 0; j < result->lap_count; j++) {
      const replay_lap *lap = &result->laps[j];
      char milliseconds[UNITS_TEXT];
      units_significant((double)lap->driver_ns * 1e-6, milliseconds);
      table_row(rows);
      table_cell(rows, "%s", result->spec->text);
      table_cell(rows, "%" PRIu64, j + 1);
      table_cell(rows, "%" PRIu64, lap->events);
      table_cell(rows, "%" PRIu64, lap->failed_allocs);
      table_cell(rows, "%" PRIu64, lap->driver_calls);
      table_cell(rows, "%s", milliseconds);
      table_cell(rows, "%.1f", (double)lap->reserved_bytes / (1 << 20));
      table_cell(rows, "%" PRIu64, lap->segments);
      table_cell(rows, "%" PRIu64, lap->chunks);
      table_cell(rows, "%" PRIu64, lap->ranges);
      table_cell(rows, "%" PRIu64, lap->split_blocks);
      table_cell(rows, "%.1f", (double)lap->largest_free_bytes / (1 << 20));
    }
  }
  fputs("\nAfter each lap, with everything freed:\n", stream);
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (!result->complete) continue;
    fprintf(stream, "%s: ", result->spec->text);
    if (result->settled_lap) {
      fprintf(stream, "the same from lap %" PRIu64 " on\n", result->settled_lap);
    } else {
      fprintf(stream, "the last lap differs from the one before%s%s\n", result->drift[0] ? ": " : "",
              result->drift);
    }
  }
}

static void print_calls(const replay_result *result, FILE *stream) {
  const char *titles[] = {"<driver call", "count", "failed", "total ms", "p50 us", "p99 us"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    const replay_call *cost = &result->calls[call];
    char text[UNITS_TEXT];
    if (cost->count == 0) continue;
    table_row(rows);
    table_cell(rows, "%s", vmm_call_name((vmm_call)call));
    table_cell(rows, "%" PRIu64, cost->count);
    table_cell(rows, "%" PRIu64, cost->failures);
    units_significant((double)cost->total_ns * 1e-6, text);
    table_cell(rows, "%s", text);
    units_significant((double)cost->p50_ns * 1e-3, text);
    table_cell(rows, "%s", text);
    units_significant((double)cost->p99_ns * 1e-3, text);
    table_cell(rows, "%s", text);
  }
  table_print(rows, stream);
  table_destroy(rows);
}

static void print_operations(const replay_result *result, FILE *stream) {
  const char *titles[] = {"<operation", "count", "driver ms"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (unsigned i = 0; i < result->operation_count; i++) {
    char text[UNITS_TEXT];
    units_significant((double)result->operations[i].driver_ns * 1e-6, text);
    table_row(rows);
    table_cell(rows, "%s", result->operations[i].name);
    table_cell(rows, "%" PRIu64, result->operations[i].count);
    table_cell(rows, "%s", text);
  }
  table_print(rows, stream);
  table_destroy(rows);
}

static void print_counters(const replay_result *result, FILE *stream) {
  const char *titles[] = {"<counter", "value"};
  if (result->counter_count == 0) return;
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < result->counter_count; i++) {
    table_row(rows);
    table_cell(rows, "%s", result->counters[i].name);
    table_cell(rows, "%" PRIu64, result->counters[i].value);
  }
  fputc('\n', stream);
  table_print(rows, stream);
  table_destroy(rows);
}

static void print_details(const replay_group *group, FILE *stream) {
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (!result->complete) continue;
    fprintf(stream, "\n%s\n", result->spec->text);
    print_calls(result, stream);
    fputc('\n', stream);
    print_operations(result, stream);
    print_counters(result, stream);
  }
}

void replay_report_print(const replay_group *group, bool details, FILE *stream) {
  print_header(group, stream);
  print_table(group, stream);
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (!result->complete) fprintf(stream, "\n%s failed: %s\n", result->spec->text, result->message);
  }
  replay_report_failures(group, stream);
  if (group->settings->laps > 1) print_laps(group, stream);
  if (details) print_details(group, stream);
  for (size_t i = 0; i < group->count; i++) {
    if (!group->results[i].latency) continue;
    fprintf(stream, "\n%s: latency of driver calls, by the operation that made them\n",
            group->results[i].spec->text);
    instrument_report_print(group->results[i].latency, stream);
  }
  fputc('\n', stream);
}
