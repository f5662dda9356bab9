/* Results for people. */
#include <inttypes.h>
#include <string.h>

#include "harness/replay_laps.h"
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

void replay_changed_options_text(const policy_spec *spec, char *text, size_t text_size) {
  const policy_option *option = spec->class->options;
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; option && option[i].name && used < text_size; i++) {
    if (strcmp(spec->values[i].text, option[i].default_value) == 0) continue;
    used += (size_t)snprintf(text + used, text_size - used, "%s%s=%s", used ? "," : "", option[i].name,
                             spec->values[i].text);
  }
}

const char *replay_model_note(const policy_spec *spec, const device_model *model) {
  if (spec->class->capabilities & POLICY_NEEDS_LIFETIMES)
    return "an oracle: it knows the whole trace in advance";
  const bool modelled = model->source && spec->class->capabilities & POLICY_NEEDS_ASYNC;
  return modelled ? "a model: placement of the driver's pool is not public" : NULL;
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
  table_count(rows, result->driver_calls);
  table_number(rows, (double)result->driver_ns * 1e-6);
  table_count(rows, result->failed_allocs);
  if (host_timing) table_number(rows, result->events ? (double)result->host_ns / (double)result->events : 0);
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
  const char *titles[] = {"<policy",      live,        reserved, "utilisation", "fragmentation",
                          "driver calls", "driver ms", "failed", "ns/event"};
  size_t columns = sizeof titles / sizeof *titles - !group->host_timing;
  table *rows = table_create(titles, columns);
  bool marked = false;
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    table_row(rows);
    table_cell(rows, "%s%s", result->spec->text, result->failed_allocs ? "*" : "");
    marked |= result->failed_allocs > 0;
    if (result->complete) {
      print_numbers_row(rows, result, scale, group->host_timing);
    } else {
      for (size_t j = 1; j < columns; j++) table_cell(rows, "%s", j == 1 ? "FAILED" : "-");
    }
  }
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
  if (marked) fputs("* Requests found no memory: these numbers are of what was served.\n", stream);
}

static void mebibytes_cell(table *rows, uint64_t bytes) { table_number(rows, (double)bytes / (1 << 20)); }

static void print_laps(const replay_group *group, FILE *stream) {
  const char *titles[] = {"<policy",      "lap",      "events", "failed", "calls", "driver ms",
                          "reserved MiB", "segments", "chunks", "ranges", "split", "largest MiB"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  bool folded = false;
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (!result->complete) continue;
    for (uint64_t first = 0, next; first < result->lap_count; first = next) {
      const replay_lap *lap = &result->laps[first];
      for (next = first + 1; next < result->lap_count && replay_laps_same(lap, &result->laps[next]);) next++;
      table_row(rows);
      table_cell(rows, "%s", result->spec->text);
      if (next == first + 1) {
        table_cell(rows, "%" PRIu64, next);
      } else {
        table_cell(rows, "%" PRIu64 "-%" PRIu64, first + 1, next);
        folded = true;
      }
      table_count(rows, lap->events);
      table_count(rows, lap->failed_allocs);
      table_count(rows, lap->driver_calls);
      table_number(rows, (double)lap->driver_ns * 1e-6);
      mebibytes_cell(rows, lap->reserved_bytes);
      table_count(rows, lap->segments);
      table_count(rows, lap->chunks);
      table_count(rows, lap->ranges);
      table_count(rows, lap->split_blocks);
      mebibytes_cell(rows, lap->largest_free_bytes);
    }
  }
  fprintf(stream, "\nAfter each lap, with everything freed%s:\n",
          folded ? " (several laps in a row: each of them)" : "");
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
  if (result->driver_calls == 0) {
    fputs("no driver calls\n", stream);
    return;
  }
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    const replay_call *cost = &result->calls[call];
    if (cost->count == 0) continue;
    table_row(rows);
    table_cell(rows, "%s", vmm_call_name((vmm_call)call));
    table_count(rows, cost->count);
    table_count(rows, cost->failures);
    table_number(rows, (double)cost->total_ns * 1e-6);
    table_number(rows, (double)cost->p50_ns * 1e-3);
    table_number(rows, (double)cost->p99_ns * 1e-3);
  }
  table_print(rows, stream);
  table_destroy(rows);
}

/* Kinds of work that did not happen are left out. */
static void print_operations(const replay_result *result, FILE *stream) {
  const char *titles[] = {"<operation", "count", "driver ms"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (unsigned i = 0; i < result->operation_count; i++) {
    if (result->operations[i].count == 0) continue;
    table_row(rows);
    table_cell(rows, "%s", result->operations[i].name);
    table_count(rows, result->operations[i].count);
    table_number(rows, (double)result->operations[i].driver_ns * 1e-6);
  }
  table_print(rows, stream);
  table_destroy(rows);
}

static void print_counters(const replay_result *result, FILE *stream) {
  const char *titles[] = {"<counter", "value"};
  size_t shown = 0;
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < result->counter_count; i++) {
    if (result->counters[i].value == 0) continue;
    table_row(rows);
    table_cell(rows, "%s", result->counters[i].name);
    table_count(rows, result->counters[i].value);
    shown++;
  }
  if (shown > 0) {
    fputc('\n', stream);
    table_print(rows, stream);
  }
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
  replay_report_header(group, details, stream);
  print_table(group, stream);
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (!result->complete) fprintf(stream, "\n%s failed: %s\n", result->spec->text, result->message);
  }
  replay_report_failures(group, stream);
  if (group->settings->laps > 1) print_laps(group, stream);
  replay_report_iterations(group, stream);
  if (!group->settings->dump.unprinted) replay_report_maps(group, details, stream);
  if (details) print_details(group, stream);
  for (size_t i = 0; i < group->count; i++) {
    if (!group->results[i].latency) continue;
    fprintf(stream, "\n%s: latency of driver calls, by the operation that made them\n",
            group->results[i].spec->text);
    instrument_report_print(group->results[i].latency, stream);
  }
  fputc('\n', stream);
}
