#include "harness/stress_faults.h"

#include <stdio.h>
#include <string.h>

/* Calls that policies make and that can fail. */
static const vmm_call failing[] = {
    VMM_CALL_ADDRESS_RESERVE,   VMM_CALL_ADDRESS_FREE, VMM_CALL_CREATE,
    VMM_CALL_RELEASE,           VMM_CALL_MAP,          VMM_CALL_UNMAP,
    VMM_CALL_SET_ACCESS,        VMM_CALL_MALLOC,       VMM_CALL_FREE,
    VMM_CALL_MALLOC_ASYNC,      VMM_CALL_FREE_ASYNC,   VMM_CALL_POOL_TRIM,
    VMM_CALL_EVENT_RECORD,      VMM_CALL_EVENT_QUERY,  VMM_CALL_EVENT_WAIT,
    VMM_CALL_STREAM_WAIT_EVENT, VMM_CALL_SYNCHRONIZE,
};
/* Around stitching: what makes a mapping and what takes it back. */
static const vmm_call around_stitching[] = {VMM_CALL_ADDRESS_RESERVE, VMM_CALL_ADDRESS_FREE, VMM_CALL_CREATE,
                                            VMM_CALL_RELEASE,         VMM_CALL_MAP,          VMM_CALL_UNMAP,
                                            VMM_CALL_SET_ACCESS};

enum {
  FAILING = sizeof failing / sizeof *failing,
  AROUND = sizeof around_stitching / sizeof *around_stitching,
  PREFIX = 2, /* steps that arrange the failures */
};

typedef struct faults {
  const fault_settings *settings;
  fault_report *report;
  stress_settings run;
  stress_program trial;
  progress *shown;
  uint64_t number; /* of the run */
} faults;

static void count(fault_counts *counts, const stress_result *result) {
  const stress_counts *seen = &result->counts;
  if (seen->failed_calls == 0) return;
  counts->runs++;
  counts->rolled_back += seen->rolled_back;
  counts->emptied += seen->emptied;
  counts->kept += seen->kept;
  if (seen->failed_requests > 0) {
    counts->errors++;
  } else if (seen->out_of_memory > 0) {
    counts->out_of_memory++;
  } else if (seen->refused_frees + seen->refused_others > 0) {
    counts->refused++;
  } else {
    counts->served++;
  }
}

/* The program after the two steps that arrange the failures. Returns whether to go on. */
static bool run(faults *self, vmm_call first, const stress_step *steps) {
  const fault_settings *settings = self->settings;
  if (self->number++ % settings->parts != settings->part) return true;
  memcpy(self->trial.steps, steps, PREFIX * sizeof *steps);
  stress_result *result = &self->report->result;
  if (!stress_run(&self->run, &self->trial, 1, NULL, result)) {
    snprintf(self->report->message, sizeof self->report->message, "%.255s", result->message);
    return false;
  }
  count(&self->report->calls[first], result);
  for (unsigned i = 0; result->counts.failed_calls > 0 && i < self->report->stage_count; i++) {
    self->report->stages[i].runs += result->failed_inside >> i & 1;
    self->report->stages[i].times_with_failures += result->operations[i].count;
  }
  self->report->failed = result->failed;
  if (result->failed && !stress_program_copy(&self->report->found, &self->trial))
    snprintf(self->report->message, sizeof self->report->message, "no memory for the program");
  if (self->shown) progress_update(self->shown, -1, self->number, UINT64_MAX);
  return !result->failed;
}

/* Each call of a kind, with each status that tells a policy something else. */
static bool fail_each(faults *self, vmm_call call, uint64_t calls) {
  static const vmm_status statuses[] = {VMM_OUT_OF_MEMORY, VMM_UNKNOWN};
  for (uint64_t k = 1; k <= calls; k++) {
    for (int s = 0; s < 2; s++) {
      const stress_step steps[PREFIX] = {
          {.kind = STRESS_TICK},
          {.kind = STRESS_FAIL, .id = (uint32_t)call, .size = k, .stream = statuses[s]}};
      if (!run(self, call, steps)) return false;
    }
  }
  return true;
}

static bool fail_pairs(faults *self, vmm_call call, uint64_t calls) {
  for (uint64_t k = 1; k <= calls; k++) {
    for (int second = 0; second < AROUND; second++) {
      const stress_step steps[PREFIX] = {
          {.kind = STRESS_FAIL_NEXT, .id = (uint32_t)around_stitching[second], .stream = VMM_UNKNOWN},
          {.kind = STRESS_FAIL, .id = (uint32_t)call, .size = k, .stream = VMM_OUT_OF_MEMORY}};
      if (!run(self, call, steps)) return false;
    }
  }
  return true;
}

/* The trial is the program after room for two steps. */
static bool prepare(faults *self, const stress_program *program) {
  const stress_step nothing = {.kind = STRESS_TICK};
  for (int i = 0; i < PREFIX; i++) {
    if (!stress_program_add(&self->trial, &nothing)) return false;
  }
  for (size_t i = 0; i < program->count; i++) {
    if (!stress_program_add(&self->trial, &program->steps[i])) return false;
  }
  return stress_program_finish(&self->trial);
}

static bool run_all(faults *self) {
  fault_report *report = self->report;
  const unsigned retries = self->run.retries;
  self->run.retries = 0; /* what finds no memory here is not the policy's fault */
  if (!stress_run(&self->run, &self->trial, 1, NULL, &report->result)) {
    snprintf(report->message, sizeof report->message, "%.255s", report->result.message);
    return false;
  }
  const stress_result clean = report->result;
  self->run.retries = retries;
  self->run.last_held = clean.last_held;
  report->steps = self->trial.count - PREFIX;
  report->stage_count = clean.operation_count;
  for (unsigned i = 0; i < clean.operation_count; i++)
    report->stages[i] = (fault_stage){.name = clean.operations[i].name, .times = clean.operations[i].count};
  for (int call = 0; call < VMM_CALL_COUNT; call++) report->clean_calls += clean.calls[call];
  if (clean.failed || clean.counts.out_of_memory > 0) {
    report->failed = true;
    if (!clean.failed)
      snprintf(report->result.message, sizeof report->result.message,
               "without any failure %llu requests find no memory: give the device or the limit more",
               (unsigned long long)clean.counts.out_of_memory);
    return stress_program_copy(&report->found, &self->trial);
  }
  const int kinds = self->settings->pairs ? AROUND : FAILING;
  for (int i = 0; i < kinds; i++) {
    const vmm_call call = self->settings->pairs ? around_stitching[i] : failing[i];
    const uint64_t calls = clean.calls[call];
    if (self->settings->pairs ? !fail_pairs(self, call, calls) : !fail_each(self, call, calls)) break;
  }
  return report->message[0] == '\0';
}

/* What must be served in the end: 64 MiB, but of a small device half. */
static uint64_t last_request(const fault_settings *settings) {
  const uint64_t usual = UINT64_C(64) << 20, total = settings->model->total;
  const uint64_t most = settings->limit < total ? settings->limit : total;
  return usual < most / 2 ? usual : most / 2;
}

bool stress_faults(const fault_settings *settings, const stress_program *program, progress *shown,
                   fault_report *report) {
  *report = (fault_report){0};
  faults self = {.settings = settings,
                 .report = report,
                 .shown = shown,
                 .run = {.model = settings->model,
                         .spec = settings->spec,
                         .limit = settings->limit,
                         .last_request = last_request(settings),
                         .retries = settings->pairs ? 3 : 2}};
  bool done = prepare(&self, program);
  if (!done) snprintf(report->message, sizeof report->message, "no memory for the program");
  if (done) done = run_all(&self);
  stress_program_free(&self.trial);
  return done;
}
