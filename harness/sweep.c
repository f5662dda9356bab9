#define _GNU_SOURCE
#include "harness/sweep.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>

#include "harness/program.h"
#include "harness/progress.h"
#include "harness/sweep_workers.h"
#include "harness/units.h"

/* A sweep that runs. */
typedef struct run {
  const sweep_settings *settings;
  sweep_log *log;
  sweep_results results;
  size_t *cells; /* to run */
  size_t count, ended, failed;
  bool unwritten; /* a result could not be kept */
  progress shown;
} run;

static unsigned processors(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  return count < 1 ? 1 : count > SWEEP_JOBS_LIMIT ? SWEEP_JOBS_LIMIT : (unsigned)count;
}

static bool is_mine(const sweep_settings *settings, size_t cell) {
  const sweep_shard *shard = &settings->shard;
  return shard->count == 0 || cell % shard->count == shard->number - 1;
}

/* Which cells have no result. */
static exit_status choose(run *self) {
  const sweep_results *results = &self->results;
  self->cells = malloc((results->count + 1) * sizeof *self->cells);
  if (!self->cells) {
    program_complain("no memory for the sweep");
    return EXIT_STATUS_CHECK_FAILED;
  }
  for (size_t i = 0; i < results->count; i++) {
    const json_t *object = results->objects[i];
    bool wanted = !object || (self->settings->retry_failed && sweep_result_failed(object));
    if (wanted && is_mine(self->settings, i)) self->cells[self->count++] = i;
  }
  return EXIT_STATUS_DONE;
}

static void show(run *self) {
  char left[UNITS_TEXT] = "", failed[UNITS_COUNTED + 8] = "";
  uint64_t spent = progress_clock_ns() - self->shown.begin_ns;
  bool guess = self->ended > 0 && self->ended < self->count;
  if (guess) units_time(spent / self->ended * (self->count - self->ended), left);
  if (self->failed > 0) snprintf(failed, sizeof failed, ", %zu failed", self->failed);
  progress_say(&self->shown, (double)self->ended / (double)self->count, "%zu of %zu cells%s%s%s", self->ended,
               self->count, failed, guess ? ", left: about " : "", left);
}

static bool ended(void *context, size_t cell, json_t *object) {
  run *self = context;
  if (!sweep_log_append(self->log, object)) {
    self->unwritten = true;
    json_decref(object);
    return false;
  }
  self->ended++;
  self->failed += sweep_result_failed(object);
  sweep_results_set(&self->results, cell, object);
  show(self);
  return true;
}

static exit_status run_cells(run *self, const sweep_grid *grid) {
  const sweep_settings *settings = self->settings;
  if (self->count == 0) return EXIT_STATUS_DONE;
  progress_init(&self->shown, settings->quiet);
  progress_begin(&self->shown, "%s", settings->folder);
  show(self);
  unsigned jobs = settings->jobs ? settings->jobs : processors();
  bool all = sweep_workers_run(grid, self->cells, self->count, jobs, ended, self);
  char outcome[80];
  snprintf(outcome, sizeof outcome, "%zu of %zu cells run, %zu failed,", self->ended, self->count,
           self->failed);
  progress_end(&self->shown, outcome);
  if (all) return EXIT_STATUS_DONE;
  program_complain("stopped after %zu of %zu cells; the same command goes on from there", self->ended,
                   self->count);
  return self->unwritten ? EXIT_STATUS_USAGE : EXIT_STATUS_CHECK_FAILED;
}

/* Have cells of this run's part failed? */
static exit_status judge(const run *self) {
  size_t failed = 0;
  for (size_t i = 0; i < self->results.count; i++) {
    const json_t *object = self->results.objects[i];
    failed += object && is_mine(self->settings, i) && sweep_result_failed(object);
  }
  return failed ? EXIT_STATUS_CHECK_FAILED : EXIT_STATUS_DONE;
}

exit_status sweep_run(const sweep_grid *grid, const sweep_settings *settings) {
  run self = {.settings = settings};
  exit_status status = sweep_log_open(settings->folder, settings->shard, settings->wait, &self.log);
  if (status == EXIT_STATUS_DONE) status = sweep_results_read(settings->folder, grid, &self.results);
  if (status == EXIT_STATUS_DONE) status = choose(&self);
  if (status == EXIT_STATUS_DONE) status = run_cells(&self, grid);
  if (status == EXIT_STATUS_DONE)
    status = settings->shard.count || settings->no_results
                 ? judge(&self)
                 : sweep_write_results(grid, settings->folder, &self.results);
  free(self.cells);
  sweep_results_free(&self.results);
  sweep_log_close(self.log);
  return status;
}
