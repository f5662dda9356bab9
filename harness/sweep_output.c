/* What a sweep has found, for programs: the logs' objects in the order of the grid. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/output_file.h"
#include "harness/program.h"
#include "harness/replay_output.h"
#include "harness/sweep.h"
#include "harness/sweep_runner.h"

/* ---- JSON ---- */

/* New reference. */
static json_t *result_of(const sweep_grid *grid, const sweep_results *results, size_t cell) {
  if (results->objects[cell]) return json_incref(results->objects[cell]);
  return sweep_runner_absence(sweep_grid_cell(grid, cell), NULL);
}

static bool write_json(const sweep_grid *grid, const char *path, const sweep_results *results) {
  json_t *array = json_array();
  bool written = array;
  for (size_t i = 0; written && i < results->count; i++)
    written = json_array_append_new(array, result_of(grid, results, i)) == 0;
  if (!written) program_complain("no memory for the results");
  FILE *stream = written ? output_open(path) : NULL;
  written = stream && output_json(array, JSON_INDENT(2) | JSON_REAL_PRECISION(15), stream);
  json_decref(array);
  return stream && output_close(stream, path, written);
}

/* ---- CSV ---- */

static const char *const columns[] = {"trace",
                                      "policy",
                                      "spec",
                                      "profile",
                                      "device",
                                      "capacity_bytes",
                                      "limit_bytes",
                                      "lap_count",
                                      "frees",
                                      "event_delay_events",
                                      "check",
                                      "status",
                                      "error",
                                      "events",
                                      "live_peak_bytes",
                                      "requested_peak_bytes",
                                      "allocated_peak_bytes",
                                      "active_peak_bytes",
                                      "reserved_peak_bytes",
                                      "final_allocated_bytes",
                                      "final_reserved_bytes",
                                      "failed_allocs",
                                      "recorded_ooms",
                                      "recorded_ooms_served",
                                      "segments_peak",
                                      "alloc_retries",
                                      "driver_calls",
                                      "driver_us",
                                      "utilization"};

/* Calls of all kinds. A log may have been tampered with. */
static json_int_t sum_calls(const json_t *calls) {
  json_int_t sum = 0;
  const char *name;
  json_t *call;
  json_object_foreach((json_t *)(uintptr_t)calls, name, call) {
    if (__builtin_add_overflow(sum, json_integer_value(json_object_get(call, "count")), &sum))
      return INT64_MAX;
  }
  return sum;
}

static void write_value(FILE *stream, const char *column, const json_t *value) {
  if (json_is_string(value)) {
    replay_csv_field(stream, json_string_value(value));
  } else if (json_is_integer(value)) {
    fprintf(stream, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
  } else if (json_is_real(value)) {
    fprintf(stream, strcmp(column, "driver_us") == 0 ? "%.3f" : "%.6f", json_real_value(value));
  } else if (json_is_boolean(value)) {
    fputs(json_is_true(value) ? "yes" : "no", stream);
  } else if (json_is_object(value)) {
    fprintf(stream, "%" JSON_INTEGER_FORMAT, sum_calls(value));
  }
}

static bool write_csv(const sweep_grid *grid, const char *path, const sweep_results *results) {
  FILE *stream = output_open(path);
  if (!stream) return false;
  fputs("# program: lakebed " PROGRAM_VERSION ", sweep\nkey", stream);
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) fprintf(stream, ",%s", columns[i]);
  fputc('\n', stream);
  for (size_t i = 0; i < results->count; i++) {
    json_t *object = result_of(grid, results, i);
    fprintf(stream, "%s", sweep_grid_cell(grid, i)->key);
    for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) {
      fputc(',', stream);
      write_value(stream, columns[k], json_object_get(object, columns[k]));
    }
    json_decref(object);
    fputc('\n', stream);
  }
  return output_close(stream, path, true);
}

/* ---- both ---- */

static void say_what_is_known(const char *folder, const sweep_results *results) {
  size_t missing = results->count - results->done - results->failed;
  if (results->damaged)
    program_complain("%s: %zu lines of the logs are damaged and do not count", folder, results->damaged);
  if (results->repeated) program_complain("%s: %zu cells were run again", folder, results->repeated);
  if (results->failed)
    program_complain("%s: %zu of %zu cells failed; --status lists them, --retry-failed runs them again",
                     folder, results->failed, results->count);
  if (missing) program_complain("%s: %zu of %zu cells have not been run", folder, missing, results->count);
  if (missing && results->strangers)
    program_complain(
        "%s: %zu results are of other cells: of another grid, another build of the program, or "
        "traces that have changed since",
        folder, results->strangers);
}

exit_status sweep_write_results(const sweep_grid *grid, const char *folder, const sweep_results *results) {
  char *json = sweep_path(folder, "results.json"), *csv = sweep_path(folder, "results.csv");
  bool written = json && csv && write_json(grid, json, results) && write_csv(grid, csv, results);
  free(json);
  free(csv);
  if (!written) return EXIT_STATUS_USAGE;
  say_what_is_known(folder, results);
  return results->done == results->count ? EXIT_STATUS_DONE : EXIT_STATUS_CHECK_FAILED;
}

exit_status sweep_merge(const sweep_grid *grid, const char *folder) {
  sweep_results results;
  exit_status status = sweep_results_read(folder, grid, &results);
  if (status == EXIT_STATUS_DONE) status = sweep_write_results(grid, folder, &results);
  sweep_results_free(&results);
  return status;
}

exit_status sweep_print_cells(const sweep_grid *grid, const char *folder, FILE *stream) {
  sweep_results results;
  exit_status status = sweep_results_read(folder, grid, &results);
  for (size_t i = 0; status == EXIT_STATUS_DONE && i < results.count; i++) {
    const json_t *object = results.objects[i];
    const char *error = json_string_value(json_object_get(object, "error"));
    char text[1024];
    sweep_cell_text(sweep_grid_cell(grid, i), text, sizeof text);
    fprintf(stream, "%-6s  %s%s%s\n",
            !object                       ? "-"
            : sweep_result_failed(object) ? "failed"
                                          : "done",
            text, error ? ": " : "", error ? error : "");
  }
  if (status == EXIT_STATUS_DONE)
    fprintf(stream, "%zu cells: %zu done, %zu failed, %zu not run\n", results.count, results.done,
            results.failed, results.count - results.done - results.failed);
  sweep_results_free(&results);
  return status;
}
