/* A sweep: runs what has not been run of a grid, and gathers what has. docs/sweep.md */
#ifndef LAKEBED_HARNESS_SWEEP_H
#define LAKEBED_HARNESS_SWEEP_H

#include <stdbool.h>
#include <stdio.h>

#include "harness/exit_status.h"
#include "harness/sweep_grid.h"
#include "harness/sweep_log.h"

typedef struct sweep_settings {
  const char *folder; /* of logs and results; made if need be */
  sweep_shard shard;
  unsigned jobs; /* processes; 0: one for each processor that this process may use */
  bool retry_failed;
  bool wait;       /* for whoever runs the same shard */
  bool no_results; /* no results.json and results.csv: the caller reads the logs */
  bool quiet;
} sweep_settings;

/* Runs the cells of the grid, or of the shard, that have no result. A cell that fails does not stop it. After
 * a kill the same call goes on where it was. Unless it is a shard, writes FOLDER/results.json and
 * results.csv. CHECK_FAILED: cells have failed, now or before. */
exit_status sweep_run(const sweep_grid *grid, const sweep_settings *settings);
/* Writes FOLDER/results.json and results.csv, a cell each in the order of the grid, and says what is missing
 * and what has failed; then CHECK_FAILED. */
exit_status sweep_merge(const sweep_grid *grid, const char *folder);
/* The same for a list of results that the caller has read. */
exit_status sweep_write_results(const sweep_grid *grid, const char *folder, const sweep_results *results);
/* Lists the cells, and what is known of each. */
exit_status sweep_print_cells(const sweep_grid *grid, const char *folder, FILE *stream);

typedef struct sweep_submission {
  const char *grid_path;
  const char *folder;
  unsigned shards;
  bool retry_failed;
  const char *const *options; /* for sbatch; ends with NULL */
} sweep_submission;

/* Submits a job array to Slurm, a task a shard. Says the job's number, and how to gather the results. */
exit_status sweep_submit(const sweep_grid *grid, const sweep_submission *submission);

#endif
