#include "harness/stress_worker.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/sim.h"

bool stress_worker_fail(stress_worker *self, const char *format, ...) {
  va_list arguments;
  if (self->failed) return false;
  self->failed = true;
  va_start(arguments, format);
  vsnprintf(self->message, sizeof self->message, format, arguments);
  va_end(arguments);
  atomic_store(&self->session->stop, true);
  return false;
}

bool stress_worker_open(stress_worker *self, stress_session *session, const stress_program *program) {
  *self = (stress_worker){.session = session, .program = program};
  self->blocks = calloc((size_t)program->ids + 1, sizeof *self->blocks);
  if (session->alone) self->live = calloc((size_t)program->ids + 1, sizeof *self->live);
  return self->blocks && (self->live || !session->alone);
}

void stress_worker_close(stress_worker *self) {
  free(self->blocks);
  free(self->live);
  self->blocks = NULL;
  self->live = NULL;
}

/* ---- the model of a thread alone ---- */

/* What the policy holds, in numbers that a request which fails must leave as they were. */
typedef struct holdings {
  uint64_t allocations, allocated, requested;
  uint64_t reserved; /* but chunks that the driver would not take back */
  uint64_t driver_failures;
} holdings;

static holdings holdings_of(const stress_session *session) {
  const pool_heap *heap = &session->subject->heap;
  return (holdings){.allocations = heap->statistics.allocations.current,
                    .allocated = heap->statistics.allocated_bytes.current,
                    .requested = heap->statistics.requested_bytes.current,
                    .reserved = heap->statistics.reserved_bytes.current - heap->stranded_bytes,
                    .driver_failures = session->driver_failures};
}

/* The place of an address among the live blocks. O(log n). */
static uint32_t place_of(const stress_worker *self, vmm_address address) {
  uint32_t low = 0, high = self->live_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (self->live[middle].address < address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static bool remember(stress_worker *self, const stress_block *block) {
  self->live_bytes += block->size;
  if (!self->session->alone) return true;
  const uint32_t place = place_of(self, block->address);
  const stress_live *next = &self->live[place], *before = next - 1;
  if ((place < self->live_count && next->address < block->address + block->size) ||
      (place > 0 && before->address + before->size > block->address)) {
    const stress_live *other =
        place < self->live_count && next->address < block->address + block->size ? next : before;
    return stress_worker_fail(
        self, "%" PRIu64 " bytes at 0x%" PRIx64 " were handed out, and %" PRIu64 " at 0x%" PRIx64 " are live",
        block->size, block->address, other->size, other->address);
  }
  memmove(&self->live[place + 1], next, (self->live_count - place) * sizeof *next);
  self->live[place] = (stress_live){block->address, block->size};
  self->live_count++;
  return true;
}

static void forget(stress_worker *self, const stress_block *block) {
  self->live_bytes -= block->size;
  if (!self->session->alone) return;
  const uint32_t place = place_of(self, block->address);
  self->live_count--;
  memmove(&self->live[place], &self->live[place + 1], (self->live_count - place) * sizeof *self->live);
}

/* The statistics count what is live. */
static bool check_counts(stress_worker *self) {
  const pool_heap *heap = &self->session->subject->heap;
  const pool_statistics *statistics = &heap->statistics;
  if (statistics->allocations.current != self->live_count)
    return stress_worker_fail(self, "the policy counts %" PRIu64 " live blocks, and %" PRIu32 " are",
                              statistics->allocations.current, self->live_count);
  if (statistics->requested_bytes.current < self->live_bytes ||
      (heap->pending_count == 0 && statistics->requested_bytes.current != self->live_bytes))
    return stress_worker_fail(self, "the policy counts %" PRIu64 " requested bytes, and %" PRIu64 " are live",
                              statistics->requested_bytes.current, self->live_bytes);
  if (statistics->allocated_bytes.current < self->live_bytes)
    return stress_worker_fail(self, "the policy counts %" PRIu64 " allocated bytes, and %" PRIu64 " are live",
                              statistics->allocated_bytes.current, self->live_bytes);
  return true;
}

static void add_range(void *context, uint64_t bytes) { *(uint64_t *)context += bytes; }

/* What is free and what is in use are all that the policy holds. */
static bool check_free_ranges(stress_worker *self) {
  const policy *subject = self->session->subject;
  const pool_heap *heap = &subject->heap;
  uint64_t free_bytes = 0;
  if (!self->session->alone || !subject->class->free_ranges) return true;
  policy_free_ranges(subject, add_range, &free_bytes);
  const uint64_t active = heap->statistics.active_bytes.current;
  const uint64_t held = heap->statistics.reserved_bytes.current - heap->stranded_bytes;
  if (free_bytes + active == held) return true;
  return stress_worker_fail(
      self, "%" PRIu64 " free and %" PRIu64 " active bytes do not make up the %" PRIu64 " that are held",
      free_bytes, active, held);
}

bool stress_worker_check(stress_worker *self) {
  char message[512];
  self->counts.checks++;
  if (shared_policy_check(self->session->shared, message, sizeof message) != VMM_SUCCESS)
    return stress_worker_fail(self, "the policy's invariants do not hold: %s", message);
  return check_free_ranges(self);
}

/* A step that did not succeed: may it, and has it left everything as it was? */
static bool check_refused(stress_worker *self, const char *what, const holdings *before, vmm_status status) {
  const stress_session *session = self->session;
  const bool request = strcmp(what, "a request") == 0;
  if (!(request && status == VMM_OUT_OF_MEMORY) && !self->armed)
    return stress_worker_fail(self, "%s failed though no driver call was to: %s (%s)", what,
                              vmm_status_text(status), vmm_status_name(status));
  if (!session->alone) return true;
  const holdings after = holdings_of(session);
  if (status != VMM_OUT_OF_MEMORY && after.driver_failures == before->driver_failures)
    return stress_worker_fail(self, "%s failed though no driver call did: %s", what, vmm_status_name(status));
  if (after.allocations != before->allocations || after.allocated != before->allocated ||
      after.requested > before->requested)
    return stress_worker_fail(self, "%s failed (%s) and changed what is allocated", what,
                              vmm_status_name(status));
  self->counts.rolled_back += request && after.reserved == before->reserved;
  self->counts.emptied += request && after.reserved < before->reserved;
  self->counts.kept += request && after.reserved > before->reserved;
  return !self->armed || stress_worker_check(self);
}

uint64_t stress_room(const stress_session *session) {
  const pool_heap *heap = &session->subject->heap;
  const uint64_t total = session->gpu.model->total, held = heap->statistics.reserved_bytes.current;
  const uint64_t most = heap->limit < total ? heap->limit : total;
  return held < most ? most - held : 0;
}

/* Is there so little room, when everything unused has gone back, that it depends on where blocks lie whether
 * a request can be served? */
static bool has_little_room(stress_worker *self, uint64_t size) {
  const uint64_t last_held = self->session->settings->last_held;
  if (last_held == 0 || shared_policy_trim(self->session->shared) != VMM_SUCCESS) return false;
  const uint64_t room = stress_room(self->session);
  return room < last_held || room - last_held < size;
}

/* What is tried again after a failure: number is of the attempt, from 0. */
static bool tries_again(stress_worker *self, const char *what, unsigned number, bool *sound) {
  const unsigned retries = self->session->settings->retries;
  if (retries == 0) return false;
  if (number < retries) return true;
  *sound = stress_worker_fail(self, "%s failed once more after the calls that were to fail", what);
  return false;
}

/* ---- memory, under the policy's lock ---- */

typedef struct memory_job {
  stress_worker *worker;
  stress_block *block;
  const stress_step *step;
  enum { JOB_FILL, JOB_FILL_AFTER, JOB_VERIFY, JOB_ALIASES, JOB_SLOW, JOB_TICK, JOB_FAIL, JOB_FORGIVE } kind;
  vmm_status status;
  bool sound;
} memory_job;

static vmm_status arrange_failure(stress_session *session, const stress_step *step) {
  const vmm_call call = (vmm_call)step->id;
  const vmm_status status = (vmm_status)step->stream;
  if (session->gpu.model->real) return VMM_NOT_SUPPORTED;
  if (step->kind == STRESS_FAIL) {
    session->failing = call;
    session->until_failure = step->size;
    return vmm_sim_fail(session->gpu.raw, call, step->size, status);
  }
  session->fails_next = true;
  session->next_failing = call;
  session->next_status = status;
  return VMM_SUCCESS;
}

static void do_job(void *context, policy *subject) {
  memory_job *job = context;
  stress_worker *worker = job->worker;
  stress_memory *memory = &worker->session->memory;
  device *gpu = &worker->session->gpu;
  switch (job->kind) {
    case JOB_FILL:
      job->status = stress_memory_fill(memory, job->block);
      break;
    case JOB_FILL_AFTER:
      job->status = stress_memory_fill_after(memory, job->block, job->step->stream);
      break;
    case JOB_VERIFY:
      job->sound = stress_memory_verify(memory, job->block, worker->message, sizeof worker->message);
      break;
    case JOB_ALIASES:
      job->sound =
          stress_memory_verify_aliases(memory, subject, job->block, worker->message, sizeof worker->message);
      break;
    case JOB_SLOW:
      /* A fifth of a millisecond to two. */
      job->status = stress_memory_slow(memory, job->step->stream, 200000 * (1 + worker->number % 10));
      break;
    case JOB_TICK:
      if (!gpu->model->real) vmm_sim_tick(gpu->raw);
      break;
    case JOB_FAIL:
      job->status = arrange_failure(worker->session, job->step);
      break;
    case JOB_FORGIVE:
      device_error_clear(gpu);
      break;
  }
}

static memory_job run_job(stress_worker *self, int kind, stress_block *block, const stress_step *step) {
  memory_job job = {.worker = self, .block = block, .step = step, .sound = true};
  job.kind = kind;
  vmm_status status = shared_policy_with(self->session->shared, do_job, &job);
  if (status != VMM_SUCCESS) job.status = status;
  return job;
}

/* The message is there already. */
static bool fail_job(stress_worker *self) {
  self->failed = true;
  atomic_store(&self->session->stop, true);
  return false;
}

/* Writing is the run's own work: a call that the program makes fail leaves the block as it was. */
static bool write_block(stress_worker *self, int kind, stress_block *block, const stress_step *step) {
  if (!self->session->settings->verify || !self->session->has_memory) return true;
  const memory_job job = run_job(self, kind, block, step);
  if (job.status == VMM_SUCCESS || self->armed) return true;
  return stress_worker_fail(self, "%" PRIu64 " bytes at 0x%" PRIx64 " cannot be written: %s (%s)",
                            block->size, block->address, vmm_status_text(job.status),
                            vmm_status_name(job.status));
}

enum { ALIASES_EVERY = 4 };

static bool verify_block(stress_worker *self, stress_block *block) {
  if (!block->written) return true;
  if (!run_job(self, JOB_VERIFY, block, NULL).sound) return fail_job(self);
  if (block->number % ALIASES_EVERY != 0) return true;
  return run_job(self, JOB_ALIASES, block, NULL).sound || fail_job(self);
}

/* ---- steps ---- */

static bool step_alloc(stress_worker *self, const stress_step *step) {
  stress_session *session = self->session;
  stress_block *block = &self->blocks[step->id];
  if (block->address) return true;
  const holdings before = session->alone ? holdings_of(session) : (holdings){0};
  vmm_address address;
  vmm_status status;
  for (unsigned attempt = 0;
       (status = shared_policy_alloc(session->shared, step->size, step->stream, &address)) != VMM_SUCCESS;
       attempt++) {
    bool sound = true;
    self->counts.out_of_memory += status == VMM_OUT_OF_MEMORY;
    self->counts.failed_requests += status != VMM_OUT_OF_MEMORY;
    if (address != 0) return stress_worker_fail(self, "a request failed and gave an address");
    run_job(self, JOB_FORGIVE, NULL, NULL);
    if (!check_refused(self, "a request", &before, status)) return false;
    if (attempt > 0 && status == VMM_OUT_OF_MEMORY && has_little_room(self, step->size)) return true;
    if (!tries_again(self, "a request", attempt, &sound)) return sound;
  }
  if (step->size == 0) return address == 0 || stress_worker_fail(self, "no bytes have an address");
  if (address == 0) return stress_worker_fail(self, "address 0 for %" PRIu64 " bytes", step->size);
  *block = (stress_block){.address = address, .size = step->size, .stream = step->stream};
  self->counts.served++;
  if (!remember(self, block)) return false;
  if (session->alone && !session->gpu.model->real && session->has_memory &&
      !vmm_sim_accessible(session->gpu.raw, address, step->size)) {
    return stress_worker_fail(self, "%" PRIu64 " bytes at 0x%" PRIx64 " are not all memory", step->size,
                              address);
  }
  return write_block(self, JOB_FILL, block, step);
}

bool stress_worker_free_foreign(stress_worker *self, stress_block *block) {
  if (!verify_block(self, block)) return false;
  vmm_status status = shared_policy_free(self->session->shared, block->address);
  if (status == VMM_SUCCESS) return true;
  return stress_worker_fail(self, "a free failed: %s (%s)", vmm_status_text(status), vmm_status_name(status));
}

/* Leaves the block to another thread, and takes one that was left. */
static bool hand_over(stress_worker *self, stress_block *block) {
  stress_session *session = self->session;
  stress_block taken = {0};
  pthread_mutex_lock(&session->exchange_lock);
  const uint32_t place = (uint32_t)(self->number % STRESS_EXCHANGE);
  if (place < session->exchange_count) {
    taken = session->exchange[place];
    session->exchange[place] = *block;
  } else if (session->exchange_count < STRESS_EXCHANGE) {
    session->exchange[session->exchange_count++] = *block;
  } else {
    taken = *block;
  }
  pthread_mutex_unlock(&session->exchange_lock);
  self->counts.handed_over++;
  block->address = 0;
  return taken.address == 0 || stress_worker_free_foreign(self, &taken);
}

static bool step_free(stress_worker *self, const stress_step *step) {
  stress_session *session = self->session;
  stress_block *block = &self->blocks[step->id];
  if (!block->address) return true;
  if (!session->alone && self->number % 4 == 0) return hand_over(self, block);
  if (!verify_block(self, block)) return false;
  const holdings before = session->alone ? holdings_of(session) : (holdings){0};
  vmm_status status;
  for (unsigned attempt = 0; (status = shared_policy_free(session->shared, block->address)) != VMM_SUCCESS;
       attempt++) {
    bool sound = true;
    self->counts.refused_frees++;
    block->written = false;
    if (!check_refused(self, "a free", &before, status)) return false;
    if (!tries_again(self, "a free", attempt, &sound)) return sound;
  }
  if (session->alone && shared_policy_free(session->shared, block->address) != VMM_INVALID_VALUE)
    return stress_worker_fail(self, "a second free of 0x%" PRIx64 " was not refused", block->address);
  self->counts.frees++;
  forget(self, block);
  block->address = 0;
  return true;
}

static bool step_record(stress_worker *self, const stress_step *step) {
  stress_session *session = self->session;
  stress_block *block = &self->blocks[step->id];
  if (!block->address) return true;
  const holdings before = session->alone ? holdings_of(session) : (holdings){0};
  vmm_status status = shared_policy_record_stream(session->shared, block->address, step->stream);
  self->counts.records++;
  if (status == VMM_SUCCESS) return write_block(self, JOB_FILL_AFTER, block, step);
  self->counts.refused_others++;
  return check_refused(self, "record_stream", &before, status);
}

/* The last write before a free: nobody reads it, and it must hit nobody else. */
static bool step_write(stress_worker *self, const stress_step *step) {
  stress_block *block = &self->blocks[step->id];
  if (!block->address) return true;
  if (block->written && block->number % 2 == 0 && !verify_block(self, block)) return false;
  if (!write_block(self, JOB_FILL, block, step)) return false;
  block->written = false;
  return true;
}

static bool step_trim(stress_worker *self) {
  stress_session *session = self->session;
  const holdings before = session->alone ? holdings_of(session) : (holdings){0};
  vmm_status status = shared_policy_trim(session->shared);
  self->counts.trims++;
  if (status == VMM_SUCCESS) return true;
  self->counts.refused_others++;
  return check_refused(self, "a trim", &before, status);
}

static bool step_limit(stress_worker *self, const stress_step *step) {
  vmm_status status = shared_policy_set_limit(self->session->shared, step->size);
  self->counts.limits++;
  /* The driver's own pool cannot be bounded anew while anything is allocated in it. */
  if (status == VMM_SUCCESS || status == VMM_NOT_PERMITTED) return true;
  return self->armed || stress_worker_fail(self, "the limit cannot be set: %s", vmm_status_name(status));
}

static bool step_fail(stress_worker *self, const stress_step *step) {
  const memory_job job = run_job(self, JOB_FAIL, NULL, step);
  self->armed = true;
  if (job.status == VMM_SUCCESS) return true;
  return stress_worker_fail(self, "no driver call can be made to fail here: %s", vmm_status_text(job.status));
}

static bool step_slow(stress_worker *self, const stress_step *step) {
  const memory_job job = run_job(self, JOB_SLOW, NULL, step);
  if (job.status == VMM_SUCCESS) return true;
  return stress_worker_fail(self, "a slow kernel cannot be started: %s (%s)", vmm_status_text(job.status),
                            vmm_status_name(job.status));
}

static bool take_step(stress_worker *self, const stress_step *step) {
  switch (step->kind) {
    case STRESS_ALLOC:
      return step_alloc(self, step);
    case STRESS_FREE:
      return step_free(self, step);
    case STRESS_RECORD:
      return step_record(self, step);
    case STRESS_WRITE:
      return step_write(self, step);
    case STRESS_SLOW:
      return step_slow(self, step);
    case STRESS_TRIM:
      return step_trim(self);
    case STRESS_LIMIT:
      return step_limit(self, step);
    case STRESS_TICK:
      run_job(self, JOB_TICK, NULL, step);
      return true;
    case STRESS_FAIL:
    case STRESS_FAIL_NEXT:
      return step_fail(self, step);
    case STRESS_KINDS:
      break;
  }
  return true;
}

void stress_worker_run(stress_worker *self) {
  const uint64_t check_every = self->session->settings->check_every;
  const uint64_t end_ns = self->session->settings->end_ns;
  for (size_t i = 0; i < self->program->count && !atomic_load(&self->session->stop); i++) {
    self->number = i + 1;
    self->counts.steps++;
    atomic_fetch_add_explicit(&self->session->steps, 1, memory_order_relaxed);
    if (end_ns && progress_clock_ns() >= end_ns) return;
    if (!take_step(self, &self->program->steps[i])) return;
    if (self->session->alone && !check_counts(self)) return;
    if (check_every && self->number % check_every == 0 && !stress_worker_check(self)) return;
  }
}

void stress_worker_free_all(stress_worker *self) {
  self->armed = false;
  self->number = 0;
  for (uint32_t id = 0; id < self->program->ids; id++) {
    stress_block *block = &self->blocks[id];
    if (!block->address) continue;
    if (!stress_worker_free_foreign(self, block)) return;
    self->counts.frees++;
    forget(self, block);
    block->address = 0;
  }
}
