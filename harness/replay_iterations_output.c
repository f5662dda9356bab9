/* What is written about the iterations of a replay. */
#include <inttypes.h>

#include "harness/replay_output.h"
#include "harness/table.h"
#include "harness/units.h"

enum { OPERATION_COLUMNS = 10 };

/* Those that happened at all, without what every request is. */
static unsigned choose_operations(const replay_iterations *iterations, unsigned *chosen, unsigned limit) {
  unsigned count = 0;
  for (unsigned i = POOL_OPERATION_TRIM; i < POOL_OPERATION_LIMIT && count < limit; i++) {
    if (!iterations->items[0].operations[i].name) continue;
    uint64_t happened = 0;
    for (size_t k = 0; k < iterations->count; k++) happened += iterations->items[k].operations[i].count;
    if (happened > 0) chosen[count++] = i;
  }
  return count;
}

/* Do several laps have several iterations each? */
static bool in_laps(const replay_iterations *iterations) {
  return iterations->marked && iterations->items[iterations->count - 1].lap > 1;
}

static const char *name_title(const replay_iterations *iterations) {
  return in_laps(iterations) ? "lap.iteration" : iterations->marked ? "iteration" : "lap";
}

static void print_name(table *rows, const replay_iterations *iterations, const replay_iteration *iteration) {
  if (in_laps(iterations)) {
    table_cell(rows, "%" PRIu64 ".%" PRIu64, iteration->lap, iteration->number);
  } else {
    table_cell(rows, "%" PRIu64, iterations->marked ? iteration->number : iteration->lap);
  }
}

static void print_counts(const replay_iterations *iterations, FILE *stream) {
  unsigned chosen[OPERATION_COLUMNS];
  const unsigned operations = choose_operations(iterations, chosen, OPERATION_COLUMNS);
  const char *titles[TABLE_COLUMNS] = {name_title(iterations), "events", "failed"};
  size_t columns = 3;
  for (unsigned i = 0; i < operations; i++)
    titles[columns++] = iterations->items[0].operations[chosen[i]].name;
  titles[columns++] = "memory calls";
  titles[columns++] = "live MiB";
  titles[columns++] = "reserved MiB";
  table *rows = table_create(titles, columns);
  for (size_t k = 0; k < iterations->count; k++) {
    const replay_iteration *iteration = &iterations->items[k];
    table_row(rows);
    print_name(rows, iterations, iteration);
    table_count(rows, iteration->events);
    table_count(rows, iteration->failed_allocs);
    for (unsigned i = 0; i < operations; i++) table_count(rows, iteration->operations[chosen[i]].count);
    table_count(rows, iteration->memory_calls);
    table_number(rows, (double)iteration->live_peak_bytes / (1 << 20));
    table_number(rows, (double)iteration->reserved_peak_bytes / (1 << 20));
  }
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
}

static void print_times(const replay_iterations *iterations, FILE *stream) {
  unsigned chosen[OPERATION_COLUMNS + 2] = {POOL_OPERATION_ALLOC, POOL_OPERATION_FREE};
  const unsigned operations = 2 + choose_operations(iterations, chosen + 2, OPERATION_COLUMNS);
  const char *titles[TABLE_COLUMNS] = {name_title(iterations), "driver ms"};
  size_t columns = 2;
  for (unsigned i = 0; i < operations; i++)
    titles[columns++] = iterations->items[0].operations[chosen[i]].name;
  table *rows = table_create(titles, columns);
  for (size_t k = 0; k < iterations->count; k++) {
    const replay_iteration *iteration = &iterations->items[k];
    table_row(rows);
    print_name(rows, iterations, iteration);
    table_number(rows, (double)iteration->driver_ns * 1e-6);
    for (unsigned i = 0; i < operations; i++)
      table_number(rows, (double)iteration->operations[chosen[i]].driver_ns * 1e-6);
  }
  fputs("\nDriver time in ms, of operations with what is nested in them:\n", stream);
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
}

static void print_since(const replay_iterations *iterations, size_t from, const char *what, const char *never,
                        FILE *stream) {
  if (from == iterations->count) {
    fprintf(stream, "%s\n", never);
    return;
  }
  const replay_iteration *iteration = &iterations->items[from];
  fprintf(stream, "%s from ", what);
  if (iterations->marked) fprintf(stream, "iteration %" PRIu64, iteration->number);
  if (in_laps(iterations)) fputs(" of ", stream);
  if (in_laps(iterations) || !iterations->marked) fprintf(stream, "lap %" PRIu64, iteration->lap);
  fputs(" on\n", stream);
}

void replay_report_iterations(const replay_group *group, FILE *stream) {
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    const replay_iterations *iterations = &result->iterations;
    if (!result->complete || iterations->count == 0) continue;
    fprintf(stream, "\n%s: iterations%s\n", result->spec->text,
            iterations->marked ? "" : " (the trace has no marks of them: each lap is one)");
    print_counts(iterations, stream);
    print_times(iterations, stream);
    fputc('\n', stream);
    if (iterations->states)
      print_since(iterations, iterations->exact_from,
                  "S1 only:", "S1 only: never, S2 to S5 in the last one too", stream);
    print_since(iterations, iterations->quiet_from,
                "No driver calls for memory:", "No driver calls for memory: never, some in the last one too",
                stream);
  }
}

/* ---- JSON ---- */

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

static json_t *iteration_object(const replay_result *result, const replay_iteration *iteration) {
  json_t *object = json_object(), *operations = json_object(), *counters = json_object();
  json_object_set_new(object, "lap", number(iteration->lap));
  json_object_set_new(object, "iteration", number(iteration->number));
  json_object_set_new(object, "events", number(iteration->events));
  json_object_set_new(object, "failed_allocs", number(iteration->failed_allocs));
  json_object_set_new(object, "driver_calls", number(iteration->driver_calls));
  json_object_set_new(object, "memory_calls", number(iteration->memory_calls));
  json_object_set_new(object, "driver_us", json_real((double)iteration->driver_ns / 1000));
  json_object_set_new(object, "live_peak_bytes", number(iteration->live_peak_bytes));
  json_object_set_new(object, "reserved_peak_bytes", number(iteration->reserved_peak_bytes));
  json_object_set_new(object, "reserved_bytes", number(iteration->reserved_bytes));
  for (unsigned i = 0; i < result->operation_count; i++) {
    json_t *entry = json_object();
    json_object_set_new(entry, "count", number(iteration->operations[i].count));
    json_object_set_new(entry, "driver_us", json_real((double)iteration->operations[i].driver_ns / 1000));
    json_object_set_new(operations, result->operations[i].name, entry);
  }
  for (size_t i = 0; i < result->counter_count; i++)
    json_object_set_new(counters, result->counters[i].name, number(iteration->counters[i]));
  json_object_set_new(object, "operations", operations);
  json_object_set_new(object, "counters", counters);
  return object;
}

static json_t *since_object(const replay_iterations *iterations, size_t from) {
  if (from == iterations->count) return json_null();
  json_t *object = json_object();
  json_object_set_new(object, "lap", number(iterations->items[from].lap));
  json_object_set_new(object, "iteration", number(iterations->items[from].number));
  return object;
}

void replay_json_iterations(json_t *object, const replay_result *result) {
  const replay_iterations *iterations = &result->iterations;
  json_t *array = json_array();
  for (size_t i = 0; i < iterations->count; i++)
    json_array_append_new(array, iteration_object(result, &iterations->items[i]));
  json_object_set_new(object, "iterations", array);
  json_object_set_new(object, "iteration_marks", json_string(iterations->marked ? "trace" : "laps"));
  json_object_set_new(object, "exact_from",
                      iterations->states ? since_object(iterations, iterations->exact_from) : json_null());
  json_object_set_new(object, "quiet_from", since_object(iterations, iterations->quiet_from));
}

/* ---- CSV ---- */

void replay_iterations_header(FILE *stream) { fputs("trace,policy,lap,iteration,measure,value\n", stream); }

static void begin_row(FILE *stream, const replay_group *group, const replay_result *result,
                      const replay_iteration *iteration) {
  replay_csv_field(stream, replay_trace_name(group->path));
  fputc(',', stream);
  replay_csv_field(stream, result->spec->text);
  fprintf(stream, ",%" PRIu64 ",%" PRIu64 ",", iteration->lap, iteration->number);
}

static void write_rows(FILE *stream, const replay_group *group, const replay_result *result,
                       const replay_iteration *iteration) {
  const struct {
    const char *name;
    uint64_t value;
  } measures[] = {{"events", iteration->events},
                  {"failed_allocs", iteration->failed_allocs},
                  {"driver_calls", iteration->driver_calls},
                  {"memory_calls", iteration->memory_calls},
                  {"live_peak_bytes", iteration->live_peak_bytes},
                  {"reserved_peak_bytes", iteration->reserved_peak_bytes},
                  {"reserved_bytes", iteration->reserved_bytes}};
  for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
    begin_row(stream, group, result, iteration);
    fprintf(stream, "%s,%" PRIu64 "\n", measures[i].name, measures[i].value);
  }
  begin_row(stream, group, result, iteration);
  fprintf(stream, "driver_us,%.3f\n", (double)iteration->driver_ns / 1000);
  for (unsigned i = 0; i < result->operation_count; i++) {
    begin_row(stream, group, result, iteration);
    fprintf(stream, "%s_count,%" PRIu64 "\n", result->operations[i].name, iteration->operations[i].count);
    begin_row(stream, group, result, iteration);
    fprintf(stream, "%s_driver_us,%.3f\n", result->operations[i].name,
            (double)iteration->operations[i].driver_ns / 1000);
  }
  for (size_t i = 0; i < result->counter_count; i++) {
    begin_row(stream, group, result, iteration);
    fprintf(stream, "%s,%" PRIu64 "\n", result->counters[i].name, iteration->counters[i]);
  }
}

void replay_iterations_rows(const replay_group *group, FILE *stream) {
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    for (size_t k = 0; result->complete && k < result->iterations.count; k++)
      write_rows(stream, group, result, &result->iterations.items[k]);
  }
}
