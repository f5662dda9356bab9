/* What the files of 'lakebed paper' share. */
#ifndef LAKEBED_HARNESS_PAPER_H
#define LAKEBED_HARNESS_PAPER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/exit_status.h"
#include "harness/paper_grid.h"
#include "harness/policy_specs.h"
#include "harness/sweep_log.h"

/* Tables and figures of the paper that can be asked for. */
typedef enum paper_item {
  PAPER_TABLE1,
  PAPER_TABLE2,
  PAPER_FIGURE3,
  PAPER_FIGURE4,
  PAPER_FIGURE5,
  PAPER_FIGURE6,
  PAPER_FIGURE10,
  PAPER_FIGURE11,
  PAPER_FIGURE12,
  PAPER_FIGURE13,
  PAPER_FIGURE14,
  PAPER_ITEMS
} paper_item;

typedef struct paper_settings {
  bool wanted[PAPER_ITEMS];
  bool all;                                 /* then there is a summary too */
  const char *folder;                       /* of everything that is written */
  const char *bench;                        /* results of 'lakebed bench vmm table1 figure6' */
  const char *device, *capacity;            /* as they were given */
  const char *device_name, *latency_source; /* of the simulated device */
  policy_specs specs;
  unsigned jobs;
  bool no_figures, retry_failed, quiet;
  const char *command;
} paper_settings;

enum { PAPER_POLICIES = 64 };

/* Results of workloads through policies. */
typedef struct paper_results {
  const paper_settings *settings;
  sweep_results cells;
  const json_t *objects[PAPER_WORKLOADS][PAPER_POLICIES]; /* borrowed from cells; NULL: not run, or failed */
} paper_results;

/* The file that names the paper's tables and figures, "fig10". */
const char *paper_item_name(paper_item item);
/* Is the workload one of what was asked for? */
bool paper_wants(const paper_settings *settings, const paper_workload *workload);

/* A number of a result; 0 where there is none. */
double paper_number(const json_t *object, const char *key);
/* GiB of a result's key. */
double paper_gib(const json_t *object, const char *key);
/* Did all requests find memory? */
bool paper_served(const json_t *object);
/* The policy with this name as it is without options, as an index of the settings' specs; SIZE_MAX: none. */
size_t paper_policy(const paper_settings *settings, const char *name);
/* The result of a workload; NULL for policy SIZE_MAX too. */
const json_t *paper_result(const paper_results *results, size_t workload, size_t spec);

/* ---- tables: rows of numbers and words that are written as CSV and as JSON ---- */

typedef struct paper_table {
  const char *name;           /* of the files */
  const char *title;          /* for people */
  const char *const *columns; /* ends with NULL */
  json_t *rows;               /* an array of objects */
} paper_table;

/* Writes FOLDER/NAME.csv and FOLDER/NAME.json, each with what made it. A row lacks what it does not know. */
bool paper_table_write(const paper_table *table, const paper_settings *settings);
/* The same lines about what made it, before a text. */
void paper_text_begin(const char *title, const paper_settings *settings, FILE *stream);

/* Table 2 and Figures 3, 4 and 10 to 13, as far as they were asked for, and with all of them every workload
 * (cells.csv). */
bool paper_write_figures(const paper_results *results);
/* Figure 5: what GPT-NeoX-20B asks for, without and with adapters and recomputation. */
exit_status paper_write_footprints(const paper_settings *settings);
/* Figure 14: memory over events where gmlake serves GPT-NeoX-20B and bfc does not. */
exit_status paper_write_memory(const paper_results *results);
/* Table 1 and Figure 6 from results of bench. */
bool paper_write_bench(const paper_settings *settings);
/* The headline: what each policy holds and costs over all workloads, beside the paper's. */
bool paper_write_summary(const paper_results *results);

/* Draws what has been asked for and written. Without gnuplot says so. */
exit_status paper_draw(const paper_settings *settings);

/* Runs workloads (a bit each of PAPER_WORKLOADS) with so many points of memory over events, and keeps the
 * logs in FOLDER/NAME. The caller frees results' cells. */
exit_status paper_run(const paper_settings *settings, const bool *chosen, unsigned timeline_points,
                      const char *name, paper_results *results);
void paper_results_free(paper_results *results);

#endif
