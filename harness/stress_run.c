#include "harness/stress_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/stress_worker.h"
#include "vmm/meter.h"
#include "vmm/sim.h"

/* Something is wrong that is no finding. */
static bool give_up(stress_result *result, const char *what, const char *why) {
  snprintf(result->message, sizeof result->message, "%s%s", what, why);
  return false;
}

static void note_call(void *context, vmm_call call, vmm_status status, uint64_t duration_ns) {
  (void)duration_ns;
  stress_session *self = context;
  if (call == self->failing && self->until_failure > 0 && --self->until_failure == 0) {
    const pool_heap *heap = &self->subject->heap;
    for (unsigned i = 0; i < heap->operation_depth; i++)
      self->failed_inside |= UINT32_C(1) << heap->operation_stack[i].operation;
  }
  if (status == VMM_SUCCESS || status == VMM_NOT_READY) return;
  self->driver_failures++;
  if (self->fails_next &&
      vmm_sim_fail(self->gpu.raw, self->next_failing, 1, self->next_status) == VMM_SUCCESS)
    self->fails_next = false;
}

/* One slow kernel runs now, so that what the driver sets up for it does not look like a leak of the run's. */
static bool prepare_slow(stress_session *self, char *message, size_t message_size) {
  device *gpu = &self->gpu;
  uint64_t total;
  vmm_status status = stress_memory_prepare_slow(&self->memory, message, message_size);
  if (status != VMM_SUCCESS) return false;
  status = stress_memory_slow(&self->memory, 0, 1000);
  if (status == VMM_SUCCESS) status = vmm_synchronize(gpu->raw);
  if (status == VMM_SUCCESS) status = vmm_memory_info(gpu->raw, &gpu->free_before, &total);
  self->memory.counts.slow_kernels = 0;
  if (status != VMM_SUCCESS)
    snprintf(message, message_size, "no slow kernel can be run: %s", vmm_status_text(status));
  return status == VMM_SUCCESS;
}

static bool open_session(stress_session *self, const stress_settings *settings, uint32_t threads,
                         stress_result *result) {
  char message[512] = "";
  memset(self, 0, sizeof *self);
  self->settings = settings;
  self->alone = threads == 1;
  self->has_memory = !(settings->spec->class->capabilities & POLICY_NO_MEMORY);
  if (device_open(settings->model, &self->gpu, message, sizeof message) != EXIT_STATUS_DONE)
    return give_up(result, message, "");
  self->memory.gpu = &self->gpu;
  if (settings->slow_kernels && settings->model->real && !prepare_slow(self, message, sizeof message)) {
    stress_memory_close(&self->memory);
    device_close(&self->gpu);
    return give_up(result, message, "");
  }
  vmm_status status = policy_create(settings->spec, self->gpu.meter, settings->limit, &self->subject, message,
                                    sizeof message);
  if (status == VMM_SUCCESS) status = shared_policy_create(self->subject, &self->shared);
  if (status == VMM_SUCCESS && pthread_mutex_init(&self->exchange_lock, NULL) == 0) return true;
  if (self->shared) {
    shared_policy_destroy(self->shared);
  } else {
    policy_destroy(self->subject);
  }
  stress_memory_close(&self->memory);
  device_close(&self->gpu);
  return give_up(result, message[0] ? message : "the policy cannot be shared by threads", "");
}

static void *run_thread(void *context) {
  stress_worker *self = context;
  stress_worker_run(self);
  atomic_fetch_sub(&self->session->running, 1);
  return NULL;
}

/* Shows how far it is, until all threads have ended. */
static void watch(const stress_session *session, progress *shown) {
  const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
  while (shown && atomic_load(&session->running) > 0) {
    const uint64_t done = atomic_load_explicit(&session->steps, memory_order_relaxed);
    progress_update(shown, -1, session->settings->steps_before + done, UINT64_MAX);
    nanosleep(&pause, NULL);
  }
}

static bool run_threads(stress_session *session, stress_worker *workers, uint32_t threads, progress *shown) {
  if (threads == 1) {
    stress_worker_run(&workers[0]);
    return true;
  }
  uint32_t begun = 0;
  for (; begun < threads; begun++) {
    atomic_fetch_add(&session->running, 1);
    if (pthread_create(&workers[begun].thread, NULL, run_thread, &workers[begun]) == 0) continue;
    atomic_fetch_sub(&session->running, 1);
    break;
  }
  if (begun < threads) atomic_store(&session->stop, true);
  watch(session, shown);
  for (uint32_t i = 0; i < begun; i++) pthread_join(workers[i].thread, NULL);
  return begun == threads;
}

/* Everything is freed and given back: the policy holds nothing, and serves a large request. Returns what it
 * held for that. */
static uint64_t end(stress_session *session, stress_worker *worker) {
  const stress_settings *settings = session->settings;
  policy *subject = session->subject;
  if (!stress_worker_check(worker)) return 0;
  vmm_status status = shared_policy_set_limit(session->shared, settings->limit);
  if (status == VMM_SUCCESS) status = shared_policy_trim(session->shared);
  if (status != VMM_SUCCESS) {
    stress_worker_fail(worker, "the last trim failed: %s", vmm_status_name(status));
    return 0;
  }
  const pool_heap *heap = &subject->heap;
  if (heap->statistics.allocations.current != 0 || heap->statistics.requested_bytes.current != 0) {
    stress_worker_fail(
        worker, "everything was freed, but the policy counts %" PRIu64 " live blocks of %" PRIu64 " bytes",
        heap->statistics.allocations.current, heap->statistics.requested_bytes.current);
    return 0;
  }
  if (subject->class->trim && heap->statistics.reserved_bytes.current > heap->stranded_bytes) {
    stress_worker_fail(worker, "everything was freed and trimmed, but %" PRIu64 " bytes are still held",
                       heap->statistics.reserved_bytes.current - heap->stranded_bytes);
    return 0;
  }
  /* What the driver did not take back may be what this needs. */
  if (stress_room(session) < settings->last_held) return 0;
  vmm_address address = 0;
  status = shared_policy_alloc(session->shared, settings->last_request, 0, &address);
  const uint64_t held = heap->statistics.reserved_bytes.current - heap->stranded_bytes;
  if (status == VMM_SUCCESS) status = shared_policy_free(session->shared, address);
  if (status != VMM_SUCCESS)
    stress_worker_fail(worker, "everything is free, but %" PRIu64 " bytes are not served: %s",
                       settings->last_request, vmm_status_name(status));
  return held;
}

static void add_counts(stress_counts *sum, const stress_counts *more) {
  const uint64_t *from = (const uint64_t *)more;
  uint64_t *to = (uint64_t *)sum;
  for (size_t i = 0; i < sizeof *sum / sizeof *to; i++) to[i] += from[i];
}

static void record(const stress_session *session, stress_result *result) {
  result->memory = session->memory.counts;
  result->statistics = session->subject->heap.statistics;
  result->counts.failed_calls = session->driver_failures;
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts;
    vmm_meter_get(session->gpu.meter, (vmm_call)call, &counts);
    result->driver_calls += counts.count;
    result->driver_ns += counts.total_ns;
  }
}

/* Calls and operations of the programs' steps. */
static void record_steps(const stress_session *session, stress_result *result) {
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts;
    vmm_meter_get(session->gpu.meter, (vmm_call)call, &counts);
    result->calls[call] = counts.count;
  }
  const pool_heap *heap = &session->subject->heap;
  result->operation_count = heap->operation_count;
  for (unsigned i = 0; i < heap->operation_count; i++)
    result->operations[i] = (stress_operation){heap->operations[i].name, heap->operations[i].count};
  result->failed_inside = session->failed_inside;
}

/* The first finding of any thread. */
static void gather(const stress_worker *workers, uint32_t threads, stress_result *result) {
  for (uint32_t i = 0; i < threads; i++) {
    add_counts(&result->counts, &workers[i].counts);
    if (!workers[i].failed || result->failed) continue;
    result->failed = true;
    result->thread = i;
    result->step = workers[i].number;
    snprintf(result->message, sizeof result->message, "%s", workers[i].message);
  }
}

static uint64_t finish(stress_session *session, stress_worker *workers, uint32_t threads) {
  for (uint32_t i = 0; i < threads && !atomic_load(&session->stop); i++) stress_worker_free_all(&workers[i]);
  for (uint32_t i = 0; i < session->exchange_count && !atomic_load(&session->stop); i++)
    stress_worker_free_foreign(&workers[0], &session->exchange[i]);
  return atomic_load(&session->stop) ? 0 : end(session, &workers[0]);
}

bool stress_run(const stress_settings *settings, const stress_program *programs, uint32_t threads,
                progress *shown, stress_result *result) {
  *result = (stress_result){0};
  stress_session session;
  stress_worker *workers = calloc(threads, sizeof *workers);
  if (!workers || !open_session(&session, settings, threads, result)) {
    free(workers);
    return result->message[0] ? false : give_up(result, "no memory for the run", "");
  }
  const vmm_meter_observer observer = {.context = &session, .call_end = note_call};
  vmm_meter_observe(session.gpu.meter, &observer);
  bool ready = true;
  for (uint32_t i = 0; i < threads; i++) ready &= stress_worker_open(&workers[i], &session, &programs[i]);
  const uint64_t begin_ns = progress_clock_ns();
  if (ready) ready = run_threads(&session, workers, threads, shown);
  if (!settings->model->real) vmm_sim_fail_none(session.gpu.raw);
  record_steps(&session, result);
  if (ready) result->last_held = finish(&session, workers, threads);
  result->host_ns = progress_clock_ns() - begin_ns;
  gather(workers, threads, result);
  record(&session, result);
  shared_policy_destroy(session.shared);
  stress_memory_close(&session.memory);
  char message[512];
  if (ready && !result->failed && !device_is_empty(&session.gpu, message, sizeof message)) {
    result->failed = true;
    snprintf(result->message, sizeof result->message, "%s", message);
  }
  vmm_meter_observe(session.gpu.meter, NULL);
  device_close(&session.gpu);
  pthread_mutex_destroy(&session.exchange_lock);
  for (uint32_t i = 0; i < threads; i++) stress_worker_close(&workers[i]);
  free(workers);
  return ready || give_up(result, "no memory or no threads for the run", "");
}
