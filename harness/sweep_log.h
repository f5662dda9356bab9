/* The folder of a sweep: what has been run is in logs, to which a line is appended for each cell that ends.
 *
 *   lock                   held while a sweep runs: shared by shards, alone by all others
 *   shards                 in how many shards it is split
 *   cells.jsonl            the log of sweeps that are not split
 *   cells-K-of-N.jsonl     the log of a shard; it is locked too
 *
 * A line is one JSON object, written by one call; lines are brought to the disk some times a second. What a
 * kill or a full disk leaves of a line does not count, and is cut off before the next is written. The locks
 * are the kernel's (flock), so that they end with the process; a network file system must support them. */
#ifndef LAKEBED_HARNESS_SWEEP_LOG_H
#define LAKEBED_HARNESS_SWEEP_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "harness/exit_status.h"
#include "harness/sweep_grid.h"

/* Shard number of count; count 0: the whole grid. */
typedef struct sweep_shard {
  unsigned number, count;
} sweep_shard;

typedef struct sweep_log sweep_log;

/* Makes the folder if need be, and locks it for a sweep. Waits for a shard that runs already if wait says so;
 * otherwise refuses after two seconds. Says what is wrong. The caller closes *log. */
exit_status sweep_log_open(const char *folder, sweep_shard shard, bool wait, sweep_log **log);
/* Appends an object as a line. On failure says why, and the log is as before. */
bool sweep_log_append(sweep_log *log, const json_t *object);
/* Accepts NULL. */
void sweep_log_close(sweep_log *log);

/* What is known of each cell of a grid. */
typedef struct sweep_results {
  json_t **objects; /* one a cell; NULL: it has not been run */
  size_t count;     /* of cells */
  size_t done, failed;
  size_t strangers; /* lines of cells that the grid does not have */
  size_t repeated;  /* cells that were run again though they were done */
  size_t damaged;   /* lines that are no objects */
} sweep_results;

/* Reads all logs of a folder; needs no lock. A line of a cell takes the place of earlier ones, except that a
 * failure does not replace what is done. A folder without logs is empty. Says what is wrong; the caller frees
 * the results in any case. */
exit_status sweep_results_read(const char *folder, const sweep_grid *grid, sweep_results *results);
/* A new result of a cell; takes the object over. */
void sweep_results_set(sweep_results *results, size_t cell, json_t *object);
bool sweep_result_failed(const json_t *object);
void sweep_results_free(sweep_results *results);

/* FOLDER/NAME, to be freed. NULL: no memory. */
char *sweep_path(const char *folder, const char *name);

#endif
