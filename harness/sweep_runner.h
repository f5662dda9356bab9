/* Runs the cells of a sweep, one after another, in this process. */
#ifndef LAKEBED_HARNESS_SWEEP_RUNNER_H
#define LAKEBED_HARNESS_SWEEP_RUNNER_H

#include <jansson.h>

#include "harness/event_source.h"
#include "harness/sweep_grid.h"

/* Begins as {0}. Keeps the last source open, so that cells that share it do not read it again. */
typedef struct sweep_runner {
  event_source *events;
  const sweep_source *source;
  bool seeded, frees_requested;
} sweep_runner;

/* The result as of 'lakebed replay --json' without host times, with "key" first and, where the cell wants
 * one, "timeline": rows of event, time_us, live, allocated and reserved bytes. What fails is in it: status
 * and error. NULL: no memory. */
json_t *sweep_runner_run(sweep_runner *runner, const sweep_cell *cell);
/* What stands for the result of a cell that could not be run, or with message NULL has not been ("status" is
 * "failed" or "missing"). NULL: no memory. */
json_t *sweep_runner_absence(const sweep_cell *cell, const char *message);
void sweep_runner_close(sweep_runner *runner);

#endif
