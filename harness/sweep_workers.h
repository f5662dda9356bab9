/* Processes that run the cells of a sweep. */
#ifndef LAKEBED_HARNESS_SWEEP_WORKERS_H
#define LAKEBED_HARNESS_SWEEP_WORKERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "harness/sweep_grid.h"

enum { SWEEP_JOBS_LIMIT = 1024 };

/* A cell has ended. object: its result, or its failure; taken over. false: no more cells, please. */
typedef bool sweep_ended(void *context, size_t cell, json_t *object);

/* Runs cells (count indices) in at most jobs processes at a time, those that share a source by preference in
 * one. Results come in the order in which they end. A process that dies fails its cell, and another takes its
 * place. The processes end with this one, however it ends. false: not all cells have ended; says why unless
 * ended asked for it. */
bool sweep_workers_run(const sweep_grid *grid, const size_t *cells, size_t count, unsigned jobs,
                       sweep_ended *ended, void *context);

#endif
