/* Running the paper's workloads, and what all parts ask of the results. */
#define _GNU_SOURCE
#include "harness/paper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/output_file.h"
#include "harness/program.h"
#include "harness/sweep.h"

const char *paper_item_name(paper_item item) {
  static const char *const names[PAPER_ITEMS] = {
      [PAPER_TABLE1] = "table1",  [PAPER_TABLE2] = "table2",  [PAPER_FIGURE3] = "fig3",
      [PAPER_FIGURE4] = "fig4",   [PAPER_FIGURE5] = "fig5",   [PAPER_FIGURE6] = "fig6",
      [PAPER_FIGURE10] = "fig10", [PAPER_FIGURE11] = "fig11", [PAPER_FIGURE12] = "fig12",
      [PAPER_FIGURE13] = "fig13", [PAPER_FIGURE14] = "fig14",
  };
  return names[item];
}

bool paper_wants(const paper_settings *settings, const paper_workload *workload) {
  const bool *wanted = settings->wanted;
  if (settings->all) return true;
  switch (workload->part) {
    case PAPER_STRATEGIES:
      return wanted[PAPER_FIGURE10] || (wanted[PAPER_FIGURE3] && workload->pytorch_utilization > 0);
    case PAPER_GPUS:
      return wanted[PAPER_FIGURE11] || (wanted[PAPER_FIGURE4] && workload->pytorch_utilization > 0);
    case PAPER_PLATFORMS:
      return wanted[PAPER_FIGURE12];
    case PAPER_BATCHES:
      break;
  }
  return wanted[PAPER_FIGURE13] || (wanted[PAPER_FIGURE14] && strcmp(workload->model, "gpt-neox-20b") == 0);
}

double paper_number(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

double paper_gib(const json_t *object, const char *key) { return paper_number(object, key) / 1073741824.0; }

bool paper_served(const json_t *object) {
  return object && json_integer_value(json_object_get(object, "failed_allocs")) == 0;
}

size_t paper_policy(const paper_settings *settings, const char *name) {
  for (size_t i = 0; i < settings->specs.count; i++) {
    if (strcmp(settings->specs.items[i].text, name) == 0) return i;
  }
  return SIZE_MAX;
}

const json_t *paper_result(const paper_results *results, size_t workload, size_t spec) {
  return spec < PAPER_POLICIES ? results->objects[workload][spec] : NULL;
}

/* ---- running ---- */

static bool write_grid(const paper_settings *settings, const bool *chosen, unsigned timeline_points,
                       FILE *stream) {
  fputs("# Workloads of the GMLake paper: written by 'lakebed paper'\n", stream);
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    char line[PAPER_LINE];
    paper_workload_line(&paper_workloads[i], line);
    if (chosen[i]) fprintf(stream, "generate %s\n", line);
  }
  for (size_t i = 0; i < settings->specs.count; i++)
    fprintf(stream, "policy \"%s\"\n", settings->specs.items[i].text);
  return fprintf(stream, "device \"%s\"\ncapacity %s\ntimeline %u\n", settings->device, settings->capacity,
                 timeline_points) > 0;
}

static exit_status no_memory(void) {
  program_complain("no memory for the paper's grid");
  return EXIT_STATUS_CHECK_FAILED;
}

/* The grid is kept beside its logs, so that 'lakebed sweep' can run it elsewhere. */
static exit_status make_grid(const paper_settings *settings, const bool *chosen, unsigned timeline_points,
                             const char *folder, sweep_grid **grid) {
  char *path;
  if (asprintf(&path, "%s.grid", folder) < 0) return no_memory();
  FILE *stream = output_open(path);
  bool written = stream && write_grid(settings, chosen, timeline_points, stream);
  written = stream && output_close(stream, path, written);
  exit_status status = written ? sweep_grid_read(path, grid) : EXIT_STATUS_USAGE;
  free(path);
  return status;
}

static size_t find_workload(const sweep_cell *cell) {
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    char line[PAPER_LINE];
    paper_workload_line(&paper_workloads[i], line);
    if (strcmp(cell->source->text, line) == 0) return i;
  }
  return PAPER_WORKLOADS;
}

static void sort_results(const sweep_grid *grid, paper_results *results) {
  for (size_t i = 0; i < results->cells.count; i++) {
    const sweep_cell *cell = sweep_grid_cell(grid, i);
    const json_t *object = results->cells.objects[i];
    size_t workload = find_workload(cell), spec = paper_policy(results->settings, cell->policy);
    bool known =
        workload < PAPER_WORKLOADS && spec < PAPER_POLICIES && object && !sweep_result_failed(object);
    if (known) results->objects[workload][spec] = object;
    if (object && sweep_result_failed(object)) {
      char text[512];
      sweep_cell_text(cell, text, sizeof text);
      program_complain("%s: %s", text, json_string_value(json_object_get(object, "error")));
    }
  }
}

exit_status paper_run(const paper_settings *settings, const bool *chosen, unsigned timeline_points,
                      const char *name, paper_results *results) {
  memset(results, 0, sizeof *results);
  results->settings = settings;
  char *folder = sweep_path(settings->folder, name);
  sweep_grid *grid = NULL;
  exit_status status = folder ? make_grid(settings, chosen, timeline_points, folder, &grid) : no_memory();
  if (status == EXIT_STATUS_DONE) {
    const sweep_settings sweep = {.folder = folder,
                                  .jobs = settings->jobs,
                                  .retry_failed = settings->retry_failed,
                                  .no_results = true,
                                  .quiet = settings->quiet};
    status = sweep_run(grid, &sweep);
    exit_status read = sweep_results_read(folder, grid, &results->cells);
    if (read == EXIT_STATUS_DONE) sort_results(grid, results);
    status = exit_status_worse(status, read);
  }
  sweep_grid_free(grid);
  free(folder);
  return status;
}

void paper_results_free(paper_results *results) {
  sweep_results_free(&results->cells);
  memset(results, 0, sizeof *results);
}
