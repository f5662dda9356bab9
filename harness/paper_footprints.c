/* Memory over events: Figures 5 and 14. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/paper.h"
#include "harness/program.h"
#include "harness/replay_output.h"
#include "workloads/generate.h"

enum { TIMELINE_POINTS = 1500 };

/* A row: event, time_us, live, allocated and reserved bytes. */
static double point(const json_t *row, size_t column) {
  return json_number_value(json_array_get(row, column));
}

static double point_gib(const json_t *row, size_t column) { return point(row, column) / 1073741824.0; }

/* Rows of one run, named by value in the column key, up to the event at which it first failed. */
static void add_timeline(const json_t *object, const char *key, const char *value, json_t *rows) {
  const json_t *failure = json_object_get(object, "first_failure");
  const json_t *line = json_object_get(object, "timeline"), *row;
  double end = json_is_object(failure) ? paper_number(failure, "event") : -1;
  size_t i;
  json_array_foreach(line, i, row) {
    if (end >= 0 && point(row, 0) > end) break;
    json_t *copy = json_object();
    json_object_set_new(copy, key, replay_json_words(value));
    json_object_set_new(copy, "event", json_integer((json_int_t)point(row, 0)));
    json_object_set_new(copy, "live_gib", json_real(point_gib(row, 2)));
    json_object_set_new(copy, "reserved_gib", json_real(point_gib(row, 4)));
    json_array_append_new(rows, copy);
  }
}

/* Runs workloads through the policies of a list, with timelines, and writes what comes of it. */
static exit_status run_timelines(const paper_settings *settings, const char *policies, const bool *workloads,
                                 const char *name, bool (*write)(const paper_results *results)) {
  paper_settings chosen = *settings;
  char message[512];
  chosen.specs = (policy_specs){0};
  paper_results *results = malloc(sizeof *results);
  exit_status status = EXIT_STATUS_CHECK_FAILED;
  if (!results) {
    program_complain("no memory for the results");
  } else if (!policy_specs_add_list(&chosen.specs, policies, message, sizeof message)) {
    program_complain("%s", message);
  } else {
    status = paper_run(&chosen, workloads, TIMELINE_POINTS, name, results);
    if (status == EXIT_STATUS_DONE && !write(results)) status = EXIT_STATUS_USAGE;
    paper_results_free(results);
  }
  policy_specs_free(&chosen.specs);
  free(results);
  return status;
}

/* ---- Figure 5 ---- */

typedef struct request_sums {
  uint64_t count, bytes, large_count, large_bytes;
} request_sums;

static trace_status count_request(void *context, const trace_event *event, uint64_t recorded_stream,
                                  trace_error *error) {
  (void)recorded_stream;
  (void)error;
  request_sums *sums = context;
  if (event->kind != TRACE_ALLOC) return TRACE_OK;
  sums->count++;
  sums->bytes += event->size;
  if (event->size >= UINT64_C(2) << 20) {
    sums->large_count++;
    sums->large_bytes += event->size;
  }
  return TRACE_OK;
}

static bool count_requests(const paper_workload *workload, request_sums *sums) {
  generate_finetune_options options;
  trace_error error;
  *sums = (request_sums){0};
  generate_finetune_defaults(&options);
  const generate_model *model = generate_model_find(workload->model);
  char length[16];
  snprintf(length, sizeof length, "%d", PAPER_SEQUENCE);
  if (!model || !generate_strategy_parse(workload->strategy, &options) ||
      !generate_sequence_parse(length, &options.sequence))
    return false;
  options.model = *model;
  options.batch = workload->batch;
  options.world = workload->gpus;
  options.platform = GENERATE_FSDP;
  options.iterations = PAPER_ITERATIONS;
  const generate_sink sink = {.add = count_request, .context = sums};
  if (generate_finetune(&options, sink, &error) == TRACE_OK) return true;
  program_complain("%s", error.message);
  return false;
}

static double mean_mib(uint64_t bytes, uint64_t count) {
  return count ? (double)bytes / (double)count / 1048576 : 0;
}

static bool add_statistics(const paper_workload *workload, json_t *rows) {
  request_sums sums;
  if (!count_requests(workload, &sums)) return false;
  bool plain = strcmp(workload->strategy, "N") == 0;
  json_t *row = json_object();
  json_object_set_new(row, "strategy", json_string(workload->strategy));
  json_object_set_new(row, "iterations", json_integer(PAPER_ITERATIONS));
  json_object_set_new(row, "allocations", json_integer((json_int_t)sums.count));
  json_object_set_new(row, "mean_mib", json_real(mean_mib(sums.bytes, sums.count)));
  json_object_set_new(row, "allocations_from_2mib", json_integer((json_int_t)sums.large_count));
  json_object_set_new(row, "mean_from_2mib_mib", json_real(mean_mib(sums.large_bytes, sums.large_count)));
  json_object_set_new(row, "paper_allocations", json_integer(plain ? 46000 : 76000));
  json_object_set_new(row, "paper_mean_mb", json_integer(plain ? 93 : 85));
  return json_array_append_new(rows, row) == 0;
}

static bool in_figure5(const paper_workload *workload) {
  return workload->part == PAPER_STRATEGIES && strcmp(workload->model, "gpt-neox-20b") == 0 &&
         (strcmp(workload->strategy, "N") == 0 || strcmp(workload->strategy, "LR") == 0);
}

static bool write_footprints(const paper_results *results) {
  static const char *const columns[] = {"strategy", "event", "live_gib", NULL};
  static const char *const statistic_columns[] = {
      "strategy",           "iterations",        "allocations",   "mean_mib", "allocations_from_2mib",
      "mean_from_2mib_mib", "paper_allocations", "paper_mean_mb", NULL};
  const paper_table table = {.name = "fig5",
                             .title = "live memory of GPT-NeoX-20B over events, 4 GPUs",
                             .columns = columns,
                             .rows = json_array()};
  const paper_table statistics = {.name = "fig5_statistics",
                                  .title = "what GPT-NeoX-20B asks for, 4 GPUs",
                                  .columns = statistic_columns,
                                  .rows = json_array()};
  bool counted = true;
  for (size_t i = 0; i < PAPER_WORKLOADS && counted; i++) {
    const paper_workload *workload = &paper_workloads[i];
    if (!in_figure5(workload)) continue;
    add_timeline(paper_result(results, i, 0), "strategy", workload->strategy, table.rows);
    counted = add_statistics(workload, statistics.rows);
  }
  bool written = counted && paper_table_write(&table, results->settings) &&
                 paper_table_write(&statistics, results->settings);
  json_decref(table.rows);
  json_decref(statistics.rows);
  return written;
}

exit_status paper_write_footprints(const paper_settings *settings) {
  bool workloads[PAPER_WORKLOADS];
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) workloads[i] = in_figure5(&paper_workloads[i]);
  return run_timelines(settings, "native", workloads, "footprints", write_footprints);
}

/* ---- Figure 14 ---- */

/* The smallest batch of GPT-NeoX-20B that gmlake serves and bfc does not. */
static size_t find_workload(const paper_results *results) {
  size_t bfc = paper_policy(results->settings, "bfc"), gmlake = paper_policy(results->settings, "gmlake");
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    const paper_workload *workload = &paper_workloads[i];
    const json_t *failing = paper_result(results, i, bfc);
    if (workload->part == PAPER_BATCHES && strcmp(workload->model, "gpt-neox-20b") == 0 && failing &&
        !paper_served(failing) && paper_served(paper_result(results, i, gmlake)))
      return i;
  }
  return PAPER_WORKLOADS;
}

/* Of the one workload that was run. */
static bool write_memory(const paper_results *results) {
  static const char *const columns[] = {"policy", "event", "live_gib", "reserved_gib", NULL};
  const policy_specs *specs = &results->settings->specs;
  size_t workload = 0;
  while (workload < PAPER_WORKLOADS - 1 && !paper_result(results, workload, 0)) workload++;
  char title[160];
  snprintf(title, sizeof title,
           "memory of GPT-NeoX-20B over events at batch %u, LR, 4 GPUs, up to the first request that fails",
           paper_workloads[workload].batch);
  const paper_table table = {.name = "fig14", .title = title, .columns = columns, .rows = json_array()};
  for (size_t i = 0; i < specs->count; i++) {
    const json_t *object = paper_result(results, workload, i);
    if (object) add_timeline(object, "policy", specs->items[i].text, table.rows);
  }
  bool written = paper_table_write(&table, results->settings);
  json_decref(table.rows);
  return written;
}

exit_status paper_write_memory(const paper_results *results) {
  size_t workload = find_workload(results);
  if (workload == PAPER_WORKLOADS) {
    program_complain("fig14: no batch size was found that gmlake serves and bfc does not");
    return EXIT_STATUS_DONE;
  }
  bool workloads[PAPER_WORKLOADS] = {false};
  workloads[workload] = true;
  return run_timelines(results->settings, "bfc,expandable,gmlake,aliasheap", workloads, "memory",
                       write_memory);
}
