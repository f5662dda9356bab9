/* Table 2 and the figures whose data are results of workloads. */
#include <string.h>

#include "harness/paper.h"
#include "harness/replay_output.h"

static const char *const columns[] = {"figure",
                                      "panel",
                                      "position",
                                      "x",
                                      "model",
                                      "strategy",
                                      "platform",
                                      "gpus",
                                      "batch",
                                      "policy",
                                      "utilization",
                                      "fragmentation",
                                      "reserved_gib",
                                      "live_gib",
                                      "driver_ms",
                                      "failed_allocs",
                                      "paper_reserved_gb",
                                      "paper_utilization",
                                      NULL};

static const char *const grid_columns[] = {"workload",   "figure",       "model", "strategy",
                                           "platform",   "gpus",         "batch", "sequence",
                                           "iterations", "generated_by", NULL};

static const char *const oom_columns[] = {
    "model", "policy", "largest_served_batch", "smallest_failing_batch", "paper_failing_batch", NULL};

static void set_text(json_t *row, const char *key, const char *text) {
  json_object_set_new(row, key, replay_json_words(text));
}

static void set_integer(json_t *row, const char *key, size_t value) {
  json_object_set_new(row, key, json_integer((json_int_t)value));
}

/* Nothing where there is no number. */
static void set_known(json_t *row, const char *key, double value) {
  if (value > 0) json_object_set_new(row, key, json_real(value));
}

static paper_item figure_of(const paper_workload *workload) {
  static const paper_item items[] = {[PAPER_STRATEGIES] = PAPER_FIGURE10,
                                     [PAPER_GPUS] = PAPER_FIGURE11,
                                     [PAPER_PLATFORMS] = PAPER_FIGURE12,
                                     [PAPER_BATCHES] = PAPER_FIGURE13};
  return items[workload->part];
}

/* What the figure varies. */
static void set_place(json_t *row, const paper_workload *workload) {
  switch (workload->part) {
    case PAPER_STRATEGIES:
      set_text(row, "panel", paper_model_name(workload->model));
      set_text(row, "x", workload->strategy);
      break;
    case PAPER_GPUS:
      set_text(row, "panel", paper_model_name(workload->model));
      set_integer(row, "x", workload->gpus);
      break;
    case PAPER_PLATFORMS:
      set_text(row, "panel", paper_platform_name(workload->platform));
      set_text(row, "x", paper_model_name(workload->model));
      break;
    case PAPER_BATCHES:
      set_text(row, "panel", paper_model_name(workload->model));
      set_integer(row, "x", workload->batch);
      break;
  }
}

static void set_workload(json_t *row, const paper_workload *workload) {
  set_text(row, "model", paper_model_name(workload->model));
  set_text(row, "strategy", workload->strategy);
  set_text(row, "platform", paper_platform_name(workload->platform));
  set_integer(row, "gpus", workload->gpus);
  set_integer(row, "batch", workload->batch);
}

/* Is this the paper's PyTorch, or its GMLake? */
static void set_paper(json_t *row, const paper_workload *workload, const char *spec) {
  if (strcmp(spec, "bfc") == 0) {
    set_known(row, "paper_reserved_gb", workload->pytorch_gb);
    set_known(row, "paper_utilization", workload->pytorch_utilization);
  } else if (strcmp(spec, "gmlake") == 0) {
    set_known(row, "paper_reserved_gb", workload->gmlake_gb);
  }
}

static void set_numbers(json_t *row, const json_t *object) {
  double utilization = paper_number(object, "utilization");
  json_object_set_new(row, "utilization", json_real(utilization));
  json_object_set_new(row, "fragmentation", json_real(1 - utilization));
  json_object_set_new(row, "reserved_gib", json_real(paper_gib(object, "reserved_peak_bytes")));
  json_object_set_new(row, "live_gib", json_real(paper_gib(object, "live_peak_bytes")));
  json_object_set_new(row, "driver_ms", json_real(paper_number(object, "driver_us") / 1000));
  json_object_set(row, "failed_allocs", json_object_get(object, "failed_allocs"));
}

static void add_workload(const paper_results *results, size_t workload, const char *figure, size_t position,
                         json_t *rows) {
  const policy_specs *specs = &results->settings->specs;
  for (size_t spec = 0; spec < specs->count; spec++) {
    const json_t *object = paper_result(results, workload, spec);
    if (!object) continue;
    json_t *row = json_object();
    set_text(row, "figure", figure);
    set_place(row, &paper_workloads[workload]);
    set_integer(row, "position", position);
    set_workload(row, &paper_workloads[workload]);
    set_text(row, "policy", specs->items[spec].text);
    set_numbers(row, object);
    set_paper(row, &paper_workloads[workload], specs->items[spec].text);
    json_array_append_new(rows, row);
  }
}

/* The workloads of an item in the order in which they are drawn; positions count within a panel. */
static bool write_figure(const paper_results *results, const char *name, const char *title,
                         bool (*belongs)(const paper_workload *workload)) {
  const paper_table table = {.name = name, .title = title, .columns = columns, .rows = json_array()};
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    const paper_workload *workload = &paper_workloads[i];
    if (!belongs(workload)) continue;
    size_t position = 0;
    for (size_t k = 0; k < i; k++) {
      const paper_workload *before = &paper_workloads[k];
      const bool by_platform = workload->part == PAPER_PLATFORMS;
      position += belongs(before) && before->part == workload->part &&
                  strcmp(by_platform ? before->platform : before->model,
                         by_platform ? workload->platform : workload->model) == 0;
    }
    add_workload(results, i, paper_item_name(figure_of(workload)), position, table.rows);
  }
  bool written = paper_table_write(&table, results->settings);
  json_decref(table.rows);
  return written;
}

static bool in_all(const paper_workload *workload) { return workload; }
static bool in_figure3(const paper_workload *workload) {
  return workload->part == PAPER_STRATEGIES && strcmp(workload->model, "opt-1.3b") == 0;
}
static bool in_figure4(const paper_workload *workload) {
  return workload->part == PAPER_GPUS && strcmp(workload->model, "opt-13b") == 0;
}
static bool in_figure10(const paper_workload *workload) { return workload->part == PAPER_STRATEGIES; }
static bool in_figure11(const paper_workload *workload) { return workload->part == PAPER_GPUS; }
static bool in_figure12(const paper_workload *workload) { return workload->part == PAPER_PLATFORMS; }
static bool in_figure13(const paper_workload *workload) { return workload->part == PAPER_BATCHES; }

/* ---- batch sizes that run out of memory ---- */

static void add_failing_batches(const paper_results *results, const char *model, size_t spec, json_t *rows) {
  size_t served = 0, failing = 0;
  unsigned paper = 0;
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    const paper_workload *workload = &paper_workloads[i];
    const json_t *object = paper_result(results, i, spec);
    if (workload->part != PAPER_BATCHES || strcmp(workload->model, model) != 0) continue;
    /* Where the paper gives GMLake's memory alone, PyTorch ran out. */
    if (paper == 0 && workload->gmlake_gb > 0 && workload->pytorch_gb == 0) paper = workload->batch;
    if (paper_served(object)) served = workload->batch;
    if (object && !paper_served(object) && failing == 0) failing = workload->batch;
  }
  const char *name = results->settings->specs.items[spec].text;
  json_t *row = json_object();
  set_text(row, "model", paper_model_name(model));
  set_text(row, "policy", name);
  if (served) set_integer(row, "largest_served_batch", served);
  if (failing) set_integer(row, "smallest_failing_batch", failing);
  if (paper && strcmp(name, "bfc") == 0) set_integer(row, "paper_failing_batch", paper);
  json_array_append_new(rows, row);
}

static bool write_failing_batches(const paper_results *results) {
  static const char *const models[] = {"opt-1.3b", "opt-13b", "gpt-neox-20b"};
  const paper_table table = {
      .name = "fig13_oom",
      .title = "batch sizes tried: the largest that a policy serves, the smallest that it does not",
      .columns = oom_columns,
      .rows = json_array()};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    for (size_t spec = 0; spec < results->settings->specs.count; spec++)
      add_failing_batches(results, models[i], spec, table.rows);
  }
  bool written = paper_table_write(&table, results->settings);
  json_decref(table.rows);
  return written;
}

static bool write_grid_table(const paper_settings *settings) {
  const paper_table table = {
      .name = "table2", .title = "the workloads", .columns = grid_columns, .rows = json_array()};
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    const paper_workload *workload = &paper_workloads[i];
    char line[PAPER_LINE];
    paper_workload_line(workload, line);
    json_t *row = json_object();
    set_integer(row, "workload", i + 1);
    set_text(row, "figure", paper_item_name(figure_of(workload)));
    set_workload(row, workload);
    set_integer(row, "sequence", PAPER_SEQUENCE);
    set_integer(row, "iterations", PAPER_ITERATIONS);
    set_text(row, "generated_by", line);
    json_array_append_new(table.rows, row);
  }
  bool written = paper_table_write(&table, settings);
  json_decref(table.rows);
  return written;
}

bool paper_write_figures(const paper_results *results) {
  static const struct {
    paper_item item;
    const char *title;
    bool (*belongs)(const paper_workload *workload);
  } figures[] = {
      {PAPER_FIGURE3, "utilisation of OPT-1.3B over strategies, 4 GPUs", in_figure3},
      {PAPER_FIGURE4, "utilisation of OPT-13B over GPUs, LR", in_figure4},
      {PAPER_FIGURE10, "reserved memory and utilisation over strategies, 4 GPUs", in_figure10},
      {PAPER_FIGURE11, "reserved memory and utilisation over GPUs, LR", in_figure11},
      {PAPER_FIGURE12, "reserved memory and utilisation over platforms, LR, 4 GPUs", in_figure12},
      {PAPER_FIGURE13, "reserved memory and utilisation over batch sizes, LR, 4 GPUs", in_figure13},
  };
  const paper_settings *settings = results->settings;
  bool written = !settings->wanted[PAPER_TABLE2] || write_grid_table(settings);
  for (size_t i = 0; i < sizeof figures / sizeof *figures && written; i++) {
    if (!settings->wanted[figures[i].item]) continue;
    written = write_figure(results, paper_item_name(figures[i].item), figures[i].title, figures[i].belongs);
  }
  if (written && settings->wanted[PAPER_FIGURE13]) written = write_failing_batches(results);
  if (written && settings->all)
    written = write_figure(results, "cells", "every workload through every policy", in_all);
  return written;
}
