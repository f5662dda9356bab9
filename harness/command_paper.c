/* lakebed paper: the GMLake paper's evaluation, with every policy. */
#define _GNU_SOURCE
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/device.h"
#include "harness/option_values.h"
#include "harness/paper.h"
#include "harness/program.h"
#include "harness/sweep_workers.h"

#define DEFAULT_FOLDER "paper"
#define DEFAULT_CAPACITY "80GiB"

enum option_key {
  OPTION_FOLDER = 'o',
  OPTION_JOBS = 'j',
  OPTION_POLICY = 'p',
  OPTION_QUIET = 'q',
  OPTION_DEVICE = 0x100,
  OPTION_CAPACITY,
  OPTION_BENCH,
  OPTION_NO_FIGURES,
  OPTION_RETRY_FAILED,
};

static const struct argp_option option_table[] = {
    {"output", OPTION_FOLDER, "FOLDER", 0, "where everything goes; default: " DEFAULT_FOLDER, 1},
    {"policy", OPTION_POLICY, "P[,P...]", 0,
     "policies, each NAME[:KEY=VALUE,...]; may be repeated; default: all that hold memory", 1},
    {"device", OPTION_DEVICE, "NAME|FILE", 0, "profile of the simulated device; default: a100", 1},
    {"capacity", OPTION_CAPACITY, "SIZE", 0, "its memory; default: " DEFAULT_CAPACITY, 1},
    {"bench", OPTION_BENCH, "FILE", 0,
     "CSV of 'lakebed bench vmm table1 figure6', for table1 and fig6; default: what was measured on an H200",
     1},
    {"jobs", OPTION_JOBS, "N", 0, "processes at a time; default: one for each processor", 1},
    {"retry-failed", OPTION_RETRY_FAILED, NULL, 0, "run workloads again that have failed", 1},
    {"no-figures", OPTION_NO_FIGURES, NULL, 0, "CSV and JSON alone", 1},
    {"quiet", OPTION_QUIET, NULL, 0, "no progress", 1},
    {0},
};

static const char documentation[] =
    "Runs the GMLake paper's evaluation: 76 fine-tuning workloads, generated, through every policy on a "
    "simulated "
    "A100 with 80 GiB. ITEMs are table1, table2, fig3 to fig6, fig10 to fig14, or all (the default), which "
    "adds a "
    "summary beside the paper's numbers.\v"
    "Each item is written as CSV and JSON, and drawn as SVG and PNG where gnuplot is installed. What has "
    "been run is "
    "kept in FOLDER, so that a call that was killed goes on where it was. FOLDER/cells.grid is the grid for "
    "'lakebed "
    "sweep', which can run it on Slurm: 'lakebed sweep FOLDER/cells.grid -o FOLDER/cells --slurm'. "
    "docs/paper.md says "
    "what is the paper's and what is ours.\n"
    "Exit status: 0 done; 1 a workload failed; 2 bad usage or input.";

static bool choose_item(paper_settings *settings, const char *word) {
  for (int i = 0; i < PAPER_ITEMS; i++) {
    bool same = strcmp(word, paper_item_name((paper_item)i)) == 0;
    if (same) settings->wanted[i] = true;
    if (same) return true;
  }
  settings->all |= strcmp(word, "all") == 0;
  return settings->all;
}

static void refuse_item(struct argp_state *state, const char *word) {
  const char *names[PAPER_ITEMS + 2] = {"all"};
  char valid[256] = "all";
  for (int i = 0; i < PAPER_ITEMS; i++) {
    size_t used = strlen(valid);
    names[i + 1] = paper_item_name((paper_item)i);
    snprintf(valid + used, sizeof valid - used, ", %s", names[i + 1]);
  }
  const char *nearest = policy_nearest_word(word, names);
  argp_error(state, "the paper has no '%s' here%s%s%s; there are: %s", word, nearest ? " (did you mean " : "",
             nearest ? nearest : "", nearest ? "?)" : "", valid);
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  paper_settings *settings = state->input;
  switch (key) {
    case OPTION_FOLDER:
      settings->folder = argument;
      return 0;
    case OPTION_POLICY:
      policy_specs_parse(state, &settings->specs, argument);
      return 0;
    case OPTION_DEVICE:
      settings->device = argument;
      return 0;
    case OPTION_CAPACITY:
      option_parse_size(state, "capacity", argument);
      settings->capacity = argument;
      return 0;
    case OPTION_BENCH:
      settings->bench = argument;
      return 0;
    case OPTION_JOBS:
      settings->jobs = (unsigned)option_parse_count(state, "jobs", argument, 1, SWEEP_JOBS_LIMIT);
      return 0;
    case OPTION_RETRY_FAILED:
      settings->retry_failed = true;
      return 0;
    case OPTION_NO_FIGURES:
      settings->no_figures = true;
      return 0;
    case OPTION_QUIET:
      settings->quiet = true;
      return 0;
    case ARGP_KEY_ARG:
      if (!choose_item(settings, argument)) refuse_item(state, argument);
      return 0;
    case ARGP_KEY_NO_ARGS:
      settings->all = true;
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static bool chooses_any(const bool *chosen) {
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    if (chosen[i]) return true;
  }
  return false;
}

/* Workloads, then what is made of them. */
static exit_status run_workloads(const paper_settings *settings) {
  bool chosen[PAPER_WORKLOADS];
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) chosen[i] = paper_wants(settings, &paper_workloads[i]);
  const bool any = chooses_any(chosen) || settings->wanted[PAPER_TABLE2];
  paper_results *results = any ? calloc(1, sizeof *results) : NULL;
  if (!results) {
    if (any) program_complain("no memory for the results");
    return any ? EXIT_STATUS_CHECK_FAILED : EXIT_STATUS_DONE;
  }
  results->settings = settings;
  exit_status status = EXIT_STATUS_DONE;
  if (chooses_any(chosen)) status = paper_run(settings, chosen, 0, "cells", results);
  /* Of workloads that failed there is nothing to show, of the others there is. */
  if (status == EXIT_STATUS_DONE || status == EXIT_STATUS_CHECK_FAILED) {
    if (!paper_write_figures(results) || (settings->all && !paper_write_summary(results)))
      status = exit_status_worse(status, EXIT_STATUS_USAGE);
    if (settings->wanted[PAPER_FIGURE14]) status = exit_status_worse(status, paper_write_memory(results));
  }
  paper_results_free(results);
  free(results);
  return status;
}

static exit_status run(const paper_settings *settings) {
  if (mkdir(settings->folder, 0777) != 0 && errno != EEXIST) {
    program_complain("%s: %s", settings->folder, strerror(errno));
    return EXIT_STATUS_USAGE;
  }
  exit_status status = run_workloads(settings);
  if (settings->wanted[PAPER_FIGURE5]) status = exit_status_worse(status, paper_write_footprints(settings));
  if (!paper_write_bench(settings)) status = exit_status_worse(status, EXIT_STATUS_USAGE);
  if (!settings->no_figures) status = exit_status_worse(status, paper_draw(settings));
  return status;
}

/* What the device is called, and where its latencies come from. */
static exit_status run_on_device(paper_settings *settings) {
  device_choice choice = {.driver = "sim", .profile = settings->device};
  device_model model;
  if (!policy_parse_size(settings->capacity, &choice.capacity)) return EXIT_STATUS_USAGE;
  exit_status status = device_model_open(&choice, &model);
  if (status != EXIT_STATUS_DONE) return status;
  settings->device_name = model.name;
  settings->latency_source = model.source;
  status = run(settings);
  device_model_unload(&model);
  return status;
}

static exit_status prepare(int argc, char **argv, paper_settings *settings, char **command, char **bench) {
  const struct argp parser = {option_table, parse_option, "[ITEM...]", documentation, NULL, NULL, NULL};
  char message[1024];
  const char *root = getenv("LAKEBED_ROOT");
  if (asprintf(bench, "%s/results/h200/vmm.csv", root && *root ? root : ".") < 0) *bench = NULL;
  if (!*bench) {
    program_complain("no memory for the command line");
    return EXIT_STATUS_CHECK_FAILED;
  }
  settings->bench = *bench;
  exit_status status = option_read_command(&parser, argc, argv, settings, command);
  if (status != EXIT_STATUS_DONE) return status;
  settings->command = *command;
  for (int i = 0; i < PAPER_ITEMS; i++) settings->wanted[i] |= settings->all;
  if (settings->specs.count == 0 &&
      !policy_specs_add_all(&settings->specs, POLICY_NO_MEMORY, message, sizeof message)) {
    program_complain("%s", message);
    return EXIT_STATUS_USAGE;
  }
  if (settings->specs.count <= PAPER_POLICIES) return EXIT_STATUS_DONE;
  program_complain("at most %d policies", PAPER_POLICIES);
  return EXIT_STATUS_USAGE;
}

exit_status command_paper(int argc, char **argv) {
  paper_settings settings = {.folder = DEFAULT_FOLDER, .device = "a100", .capacity = DEFAULT_CAPACITY};
  char *command = NULL, *bench = NULL;
  exit_status status = prepare(argc, argv, &settings, &command, &bench);
  if (status == EXIT_STATUS_DONE) status = run_on_device(&settings);
  policy_specs_free(&settings.specs);
  free(command);
  free(bench);
  return status;
}
