/* lakebed sweep: many replays at once, on this machine's cores or on Slurm. */
#define _GNU_SOURCE
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/option_values.h"
#include "harness/program.h"
#include "harness/sweep.h"
#include "harness/sweep_workers.h"

enum { SHARDS_LIMIT = 100000, SHARDS_DEFAULT = 32, SBATCH_OPTIONS_LIMIT = 32 };

typedef enum sweep_action { ACTION_RUN, ACTION_MERGE, ACTION_STATUS, ACTION_SLURM } sweep_action;

typedef struct sweep_options {
  const char *grid, *folder;
  sweep_action action;
  sweep_settings settings;
  unsigned shards; /* 0: as is */
  const char *sbatch[SBATCH_OPTIONS_LIMIT + 1];
  size_t sbatch_count;
} sweep_options;

enum option_key {
  OPTION_FOLDER = 'o',
  OPTION_JOBS = 'j',
  OPTION_QUIET = 'q',
  OPTION_RETRY_FAILED = 0x100,
  OPTION_MERGE,
  OPTION_STATUS,
  OPTION_SLURM,
  OPTION_SHARDS,
  OPTION_SBATCH,
  OPTION_SHARD,
  OPTION_WAIT,
};

static const struct argp_option option_table[] = {
    {"output", OPTION_FOLDER, "FOLDER", 0,
     "where logs and results go; default: GRID's name with the ending .sweep", 1},
    {"jobs", OPTION_JOBS, "N", 0, "processes at a time; default: one for each processor", 1},
    {"retry-failed", OPTION_RETRY_FAILED, NULL, 0, "run cells again that have failed", 1},
    {"status", OPTION_STATUS, NULL, 0, "list the cells and what is known of each; run nothing", 1},
    {"merge", OPTION_MERGE, NULL, 0, "write the results of what has been run; run nothing", 1},
    {"quiet", OPTION_QUIET, NULL, 0, "no progress", 1},

    {"slurm", OPTION_SLURM, NULL, 0, "submit the grid to Slurm as a job array, a task a shard", 2},
    {"shards", OPTION_SHARDS, "N", 0, "in how many shards; default: 32, or the number of cells", 2},
    {"sbatch", OPTION_SBATCH, "OPTION", 0, "an option for sbatch, such as --partition=long; may be repeated",
     2},
    {"shard", OPTION_SHARD, "K/N", 0,
     "run every N-th cell, beginning with the K-th: what a task does; not with --status, --merge or --slurm, "
     "which are of all cells",
     2},
    {"wait", OPTION_WAIT, NULL, 0,
     "wait for whoever runs this shard already, and go on from there; only for a run", 2},
    {0},
};

static const char documentation[] =
    "Replays all that a GRID names: traces x policies x devices x capacities x limits and more, on all "
    "processors. What has been run is kept: after a kill the same command goes on where it was, and a GRID "
    "that has grown runs what is new. A cell that fails stops no other.\v"
    "A GRID is a text file of lines 'SETTING VALUE...', every combination of which is a cell "
    "(docs/sweep.md):\n\n"
    "  trace     edge recordings/*.xz\n"
    "  generate  finetune --model opt-13b --strategy {N,R,LR}\n"
    "  policy    bfc gmlake:frag_limit={2MiB,128MiB} aliasheap\n"
    "  device    a100\n"
    "  capacity  40GiB 80GiB\n\n"
    "Settings: trace, generate (as 'lakebed trace generate'), policy (default: all), device (h200), capacity "
    "(the device's), limit (none), laps (1), "
    "frees (completed), seed-from-segments (no), event-delay (0), check (no), timeline (0 points); 'also' on "
    "a line of its own begins another product. FOLDER/results.json and results.csv have a cell each, in the "
    "order of the grid; they do not depend on how the cells were run.\n"
    "Exit status: 0 done; 1 cells failed or are missing; 2 bad usage or input; 4 Slurm cannot be used.";

static sweep_shard parse_shard(struct argp_state *state, const char *text) {
  uint64_t number;
  const uint64_t count = option_parse_part(state, "shard", text, SHARDS_LIMIT, &number);
  return (sweep_shard){.number = (unsigned)number, .count = (unsigned)count};
}

static void set_action(struct argp_state *state, sweep_options *options, sweep_action action) {
  if (options->action != ACTION_RUN && options->action != action)
    argp_error(state, "only one of --status, --merge and --slurm");
  options->action = action;
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  sweep_options *options = state->input;
  switch (key) {
    case OPTION_FOLDER:
      options->folder = argument;
      return 0;
    case OPTION_JOBS:
      options->settings.jobs = (unsigned)option_parse_count(state, "jobs", argument, 1, SWEEP_JOBS_LIMIT);
      return 0;
    case OPTION_QUIET:
      options->settings.quiet = true;
      return 0;
    case OPTION_RETRY_FAILED:
      options->settings.retry_failed = true;
      return 0;
    case OPTION_MERGE:
      set_action(state, options, ACTION_MERGE);
      return 0;
    case OPTION_STATUS:
      set_action(state, options, ACTION_STATUS);
      return 0;
    case OPTION_SLURM:
      set_action(state, options, ACTION_SLURM);
      return 0;
    case OPTION_SHARDS:
      options->shards = (unsigned)option_parse_count(state, "shards", argument, 1, SHARDS_LIMIT);
      return 0;
    case OPTION_SBATCH:
      if (options->sbatch_count == SBATCH_OPTIONS_LIMIT)
        argp_error(state, "at most %d options for sbatch", SBATCH_OPTIONS_LIMIT);
      options->sbatch[options->sbatch_count++] = argument;
      return 0;
    case OPTION_SHARD:
      options->settings.shard = parse_shard(state, argument);
      return 0;
    case OPTION_WAIT:
      options->settings.wait = true;
      return 0;
    case ARGP_KEY_ARG:
      if (options->grid) argp_error(state, "one GRID is expected, not also '%s'", argument);
      options->grid = argument;
      return 0;
    case ARGP_KEY_END:
      if (!options->grid) argp_error(state, "a GRID is expected");
      if (options->action != ACTION_SLURM && (options->shards || options->sbatch_count))
        argp_error(state, "--shards and --sbatch go with --slurm");
      if (options->action != ACTION_RUN && options->settings.shard.count)
        argp_error(state, "--shard is for a run: --status, --merge and --slurm are of all cells");
      if (options->action != ACTION_RUN && options->settings.wait)
        argp_error(state, "--wait is for a run, and --status, --merge and --slurm run nothing");
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

/* "runs/oom.grid" is run in "runs/oom.sweep". To be freed; NULL: no memory. */
static char *default_folder(const char *grid) {
  const char *slash = strrchr(grid, '/'), *name = slash ? slash + 1 : grid, *dot = strrchr(name, '.');
  size_t length = dot && dot > name ? (size_t)(dot - grid) : strlen(grid);
  char *folder;
  return asprintf(&folder, "%.*s.sweep", (int)length, grid) < 0 ? NULL : folder;
}

static exit_status act(const sweep_options *options, const char *folder) {
  sweep_grid *grid;
  exit_status status = sweep_grid_read(options->grid, &grid);
  if (status != EXIT_STATUS_DONE) return status;
  sweep_settings settings = options->settings;
  settings.folder = folder;
  const sweep_submission submission = {.grid_path = options->grid,
                                       .folder = folder,
                                       .shards = options->shards ? options->shards : SHARDS_DEFAULT,
                                       .retry_failed = settings.retry_failed,
                                       .options = options->sbatch};
  switch (options->action) {
    case ACTION_RUN:
      status = sweep_run(grid, &settings);
      break;
    case ACTION_MERGE:
      status = sweep_merge(grid, folder);
      break;
    case ACTION_STATUS:
      status = sweep_print_cells(grid, folder, stdout);
      break;
    case ACTION_SLURM:
      status = sweep_submit(grid, &submission);
      break;
  }
  sweep_grid_free(grid);
  return status;
}

exit_status command_sweep(int argc, char **argv) {
  sweep_options options = {0};
  const struct argp parser = {option_table, parse_option, "GRID", documentation, NULL, NULL, NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status != EXIT_STATUS_DONE) return status;
  char *folder = options.folder ? strdup(options.folder) : default_folder(options.grid);
  if (!folder) {
    program_complain("no memory for the sweep");
    return EXIT_STATUS_CHECK_FAILED;
  }
  status = act(&options, folder);
  free(folder);
  return status;
}
