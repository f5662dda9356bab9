/* The headline of the paper's evaluation, with every policy. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/output_file.h"
#include "harness/paper.h"
#include "harness/program.h"
#include "harness/replay_output.h"
#include "harness/table.h"

/* Of one policy. */
typedef struct standing {
  size_t run, served;
  size_t common;              /* workloads that all policies serve */
  double utilization, worst;  /* sum and least, over those */
  double reserved_gib;        /* sum over those */
  double driver_s;            /* sum over all that were run */
  size_t compared;            /* workloads that both this and bfc serve */
  double points, most_points; /* of fragmentation less than bfc's: sum, most */
  double less_gib, most_gib;  /* of reserved memory less than bfc's: sum, most */
} standing;

/* How two policies compare over the workloads that both serve. */
typedef struct duel {
  size_t workloads, no_more;
  double driver_s[2];
} duel;

static bool all_serve(const paper_results *results, size_t workload) {
  for (size_t spec = 0; spec < results->settings->specs.count; spec++) {
    if (!paper_served(paper_result(results, workload, spec))) return false;
  }
  return true;
}

static void compare(const json_t *object, const json_t *bfc, standing *sums) {
  if (!paper_served(object) || !paper_served(bfc)) return;
  double points = 100 * (paper_number(object, "utilization") - paper_number(bfc, "utilization"));
  double less = paper_gib(bfc, "reserved_peak_bytes") - paper_gib(object, "reserved_peak_bytes");
  sums->compared++;
  sums->points += points;
  sums->most_points = fmax(sums->most_points, points);
  sums->less_gib += less;
  sums->most_gib = fmax(sums->most_gib, less);
}

static standing stand(const paper_results *results, size_t spec) {
  standing sums = {.worst = 1};
  size_t bfc = paper_policy(results->settings, "bfc");
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    const json_t *object = paper_result(results, i, spec);
    if (!object) continue;
    sums.run++;
    sums.served += paper_served(object);
    sums.driver_s += paper_number(object, "driver_us") * 1e-6;
    compare(object, paper_result(results, i, bfc), &sums);
    if (!all_serve(results, i)) continue;
    double utilization = paper_number(object, "utilization");
    sums.common++;
    sums.utilization += utilization;
    sums.worst = fmin(sums.worst, utilization);
    sums.reserved_gib += paper_gib(object, "reserved_peak_bytes");
  }
  return sums;
}

static double mean(double sum, size_t count) { return count ? sum / (double)count : 0; }

static duel fight(const paper_results *results, size_t first, size_t second) {
  duel outcome = {0};
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    const json_t *left = paper_result(results, i, first), *right = paper_result(results, i, second);
    if (!left || !right) continue;
    outcome.driver_s[0] += paper_number(left, "driver_us") * 1e-6;
    outcome.driver_s[1] += paper_number(right, "driver_us") * 1e-6;
    if (!paper_served(left) || !paper_served(right)) continue;
    outcome.workloads++;
    outcome.no_more +=
        paper_number(left, "reserved_peak_bytes") <= paper_number(right, "reserved_peak_bytes");
  }
  return outcome;
}

static bool print_table(const paper_results *results, FILE *stream) {
  static const char *const titles[] = {"<policy",  "serves",      "utilisation", "worst",    "reserved GiB",
                                       "driver s", "points less", "at most",     "GiB less", "at most"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t spec = 0; spec < results->settings->specs.count; spec++) {
    const standing sums = stand(results, spec);
    if (sums.run == 0) continue;
    table_row(rows);
    table_cell(rows, "%s", results->settings->specs.items[spec].text);
    table_cell(rows, "%zu of %zu", sums.served, sums.run);
    table_cell(rows, "%.3f", mean(sums.utilization, sums.common));
    table_cell(rows, "%.3f", sums.common ? sums.worst : 0);
    table_cell(rows, "%.1f", mean(sums.reserved_gib, sums.common));
    table_number(rows, sums.driver_s);
    table_cell(rows, "%.1f", mean(sums.points, sums.compared));
    table_cell(rows, "%.1f", sums.most_points);
    table_cell(rows, "%.1f", mean(sums.less_gib, sums.compared));
    table_cell(rows, "%.1f", sums.most_gib);
  }
  bool printed = table_print(rows, stream);
  table_destroy(rows);
  return printed;
}

static void print_headline(const paper_results *results, FILE *stream) {
  const paper_settings *settings = results->settings;
  size_t gmlake = paper_policy(settings, "gmlake"), aliasheap = paper_policy(settings, "aliasheap");
  size_t common = 0;
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) common += all_serve(results, i);
  fprintf(stream,
          "Utilisation and reserved memory: means over the %zu workloads that all policies serve; driver "
          "time: sums "
          "over all.\nPoints of fragmentation and GiB of reserved memory less than bfc's: over the workloads "
          "that "
          "both serve.\n\n",
          common);
  if (gmlake != SIZE_MAX && paper_policy(settings, "bfc") != SIZE_MAX) {
    const standing sums = stand(results, gmlake);
    fprintf(stream,
            "gmlake against bfc (PyTorch): fragmentation %.1f points less on average, %.1f at most; %.1f GiB "
            "less "
            "reserved on average, %.1f at most (%zu workloads that both serve).\n"
            "The paper, on its own 76 workloads: 15 %% on average, 33 %% at most; 9.2 GB on average, 25 GB "
            "at most.\n",
            mean(sums.points, sums.compared), sums.most_points, mean(sums.less_gib, sums.compared),
            sums.most_gib, sums.compared);
  }
  if (gmlake != SIZE_MAX && aliasheap != SIZE_MAX) {
    const duel outcome = fight(results, aliasheap, gmlake);
    fprintf(
        stream,
        "aliasheap reserves no more than gmlake in %zu of %zu workloads that both serve; driver time in all: "
        "%.1f s against %.1f s.\n",
        outcome.no_more, outcome.workloads, outcome.driver_s[0], outcome.driver_s[1]);
  }
}

static bool write_table(const paper_results *results) {
  static const char *const columns[] = {"policy",
                                        "workloads",
                                        "served",
                                        "common_workloads",
                                        "utilization_mean",
                                        "utilization_worst",
                                        "reserved_mean_gib",
                                        "driver_s",
                                        "compared_with_bfc",
                                        "fragmentation_points_less_mean",
                                        "fragmentation_points_less_most",
                                        "reserved_gib_less_mean",
                                        "reserved_gib_less_most",
                                        NULL};
  const paper_table summary = {.name = "summary",
                               .title = "every policy over the workloads",
                               .columns = columns,
                               .rows = json_array()};
  for (size_t spec = 0; spec < results->settings->specs.count; spec++) {
    const standing sums = stand(results, spec);
    json_t *row = json_object();
    const struct {
      const char *key;
      size_t value;
    } counts[] = {{"workloads", sums.run},
                  {"served", sums.served},
                  {"common_workloads", sums.common},
                  {"compared_with_bfc", sums.compared}};
    const struct {
      const char *key;
      double value;
    } numbers[] = {{"utilization_mean", mean(sums.utilization, sums.common)},
                   {"utilization_worst", sums.worst},
                   {"reserved_mean_gib", mean(sums.reserved_gib, sums.common)},
                   {"driver_s", sums.driver_s},
                   {"fragmentation_points_less_mean", mean(sums.points, sums.compared)},
                   {"fragmentation_points_less_most", sums.most_points},
                   {"reserved_gib_less_mean", mean(sums.less_gib, sums.compared)},
                   {"reserved_gib_less_most", sums.most_gib}};
    json_object_set_new(row, "policy", replay_json_words(results->settings->specs.items[spec].text));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
      json_object_set_new(row, counts[i].key, json_integer((json_int_t)counts[i].value));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
      json_object_set_new(row, numbers[i].key, json_real(numbers[i].value));
    json_array_append_new(summary.rows, row);
  }
  bool written = paper_table_write(&summary, results->settings);
  json_decref(summary.rows);
  return written;
}

static bool print(const paper_results *results, FILE *stream) {
  const paper_settings *settings = results->settings;
  fprintf(stream, "%d workloads on %s, %s, simulated\n\n", PAPER_WORKLOADS, settings->device_name,
          settings->capacity);
  bool printed = print_table(results, stream);
  fputc('\n', stream);
  print_headline(results, stream);
  return printed && !ferror(stream);
}

bool paper_write_summary(const paper_results *results) {
  char *path = sweep_path(results->settings->folder, "summary.txt");
  FILE *stream = path ? output_open(path) : NULL;
  if (stream) paper_text_begin("every policy over the workloads", results->settings, stream);
  bool written = stream && print(results, stream);
  written = stream && output_close(stream, path, written) && write_table(results);
  free(path);
  return print(results, stdout) && written;
}
