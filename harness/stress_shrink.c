#include "harness/stress_shrink.h"

#include <string.h>

typedef struct shrinking {
  const stress_settings *settings;
  stress_program *best;
  stress_result *result; /* of it */
  stress_program trial;
  uint64_t runs, most_runs, end_ns;
} shrinking;

static const uint64_t longest_ns = UINT64_C(30) * 1000000000;

static bool is_over(const shrinking *self) {
  return self->runs >= self->most_runs || progress_clock_ns() >= self->end_ns;
}

/* Keeps the trial if it has a finding too, and what follows that is cut away. */
static bool keep_if_found(shrinking *self) {
  stress_result result;
  if (is_over(self) || self->trial.count == 0) return false;
  self->runs++;
  if (!stress_run(self->settings, &self->trial, 1, NULL, &result) || !result.failed) return false;
  if (result.step > 0 && result.step < self->trial.count) self->trial.count = (size_t)result.step;
  if (!stress_program_copy(self->best, &self->trial)) return false;
  *self->result = result;
  return true;
}

/* One round over all runs of so many steps. Returns whether any could go. */
static bool drop_runs(shrinking *self, size_t length) {
  bool any = false;
  for (size_t begin = 0; begin < self->best->count && !is_over(self);) {
    const size_t left = self->best->count - begin, cut = length < left ? length : left;
    if (!stress_program_copy(&self->trial, self->best)) return any;
    memmove(&self->trial.steps[begin], &self->trial.steps[begin + cut],
            (left - cut) * sizeof *self->trial.steps);
    self->trial.count -= cut;
    if (keep_if_found(self)) {
      any = true;
    } else {
      begin += cut;
    }
  }
  return any;
}

static bool try_step(shrinking *self, size_t place, const stress_step *simpler) {
  if (!stress_program_copy(&self->trial, self->best)) return false;
  self->trial.steps[place] = *simpler;
  return keep_if_found(self);
}

static bool simplify_step(shrinking *self, size_t place) {
  bool any = false;
  stress_step step = self->best->steps[place];
  const bool has_stream = step.kind == STRESS_ALLOC || step.kind == STRESS_RECORD || step.kind == STRESS_SLOW;
  if (has_stream && step.stream > 0) {
    step.stream = 0;
    any |= try_step(self, place, &step);
  }
  while (place < self->best->count && self->best->steps[place].kind == STRESS_ALLOC &&
         self->best->steps[place].size > 1) {
    step = self->best->steps[place];
    step.size /= 2;
    if (!try_step(self, place, &step)) break;
    any = true;
  }
  return any;
}

uint64_t stress_shrink(const stress_settings *settings, stress_program *program, stress_result *result,
                       uint64_t most_runs) {
  shrinking self = {.settings = settings,
                    .best = program,
                    .result = result,
                    .most_runs = most_runs,
                    .end_ns = progress_clock_ns() + longest_ns};
  if (result->step > 0 && result->step < program->count) program->count = (size_t)result->step;
  for (bool any = true; any && !is_over(&self);) {
    any = false;
    for (size_t length = program->count / 2; length > 1; length /= 2) any |= drop_runs(&self, length);
    any |= drop_runs(&self, 1);
    for (size_t i = 0; i < program->count; i++) any |= simplify_step(&self, i);
  }
  stress_program_free(&self.trial);
  return self.runs;
}
