#include "policies/shared_policy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct shared_policy {
  pthread_mutex_t lock;
  policy *subject;
  unsigned generation; /* of the process that made it */
  bool suspended, closed;
};

/* How often this process and those it comes from were forked since the first policy was shared. */
static atomic_uint generation;

static void count_fork(void) { atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed); }

static int watch_failure;
static void watch_forks(void) { watch_failure = pthread_atfork(NULL, NULL, count_fork); }

static bool is_forked(const shared_policy *self) {
  return self->generation != atomic_load_explicit(&generation, memory_order_relaxed);
}

vmm_status shared_policy_create(policy *subject, shared_policy **created) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  *created = NULL;
  if (pthread_once(&once, watch_forks) != 0 || watch_failure != 0) return VMM_OPERATING_SYSTEM;
  shared_policy *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  if (pthread_mutex_init(&self->lock, NULL) != 0) {
    free(self);
    return VMM_OUT_OF_MEMORY;
  }
  self->subject = subject;
  self->generation = atomic_load_explicit(&generation, memory_order_relaxed);
  *created = self;
  return VMM_SUCCESS;
}

void shared_policy_destroy(shared_policy *self) {
  if (!self || is_forked(self)) return;
  policy_destroy(self->subject);
  pthread_mutex_destroy(&self->lock);
  free(self);
}

/* A call that may begin holds the lock. closed: what the call returns after close. */
static bool enter(shared_policy *self, vmm_status closed, vmm_status *status) {
  if (is_forked(self)) {
    *status = VMM_NOT_INITIALIZED;
    return false;
  }
  pthread_mutex_lock(&self->lock);
  if (!self->closed) return true;
  pthread_mutex_unlock(&self->lock);
  *status = closed;
  return false;
}

static vmm_status leave(shared_policy *self, vmm_status status) {
  pthread_mutex_unlock(&self->lock);
  return status;
}

vmm_status shared_policy_alloc(shared_policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  vmm_status status;
  *address = 0;
  if (!enter(self, size == 0 ? VMM_SUCCESS : VMM_DEINITIALIZED, &status)) return status;
  if (self->suspended && size > 0) return leave(self, VMM_NOT_PERMITTED);
  return leave(self, policy_alloc(self->subject, size, stream, address));
}

vmm_status shared_policy_free(shared_policy *self, vmm_address address) {
  vmm_status status;
  if (!enter(self, VMM_SUCCESS, &status)) return status;
  return leave(self, policy_free(self->subject, address));
}

vmm_status shared_policy_record_stream(shared_policy *self, vmm_address address, vmm_stream stream) {
  vmm_status status;
  if (!enter(self, VMM_SUCCESS, &status)) return status;
  return leave(self, policy_record_stream(self->subject, address, stream));
}

vmm_status shared_policy_trim(shared_policy *self) {
  vmm_status status;
  if (!enter(self, VMM_DEINITIALIZED, &status)) return status;
  return leave(self, policy_trim(self->subject));
}

vmm_status shared_policy_set_limit(shared_policy *self, uint64_t limit) {
  vmm_status status;
  if (!enter(self, VMM_SUCCESS, &status)) return status;
  return leave(self, policy_set_limit(self->subject, limit));
}

vmm_status shared_policy_suspend(shared_policy *self) {
  vmm_status status;
  if (!enter(self, VMM_SUCCESS, &status)) return status;
  status = policy_trim(self->subject);
  if (status == VMM_SUCCESS) self->suspended = true;
  return leave(self, status);
}

vmm_status shared_policy_resume(shared_policy *self) {
  vmm_status status;
  if (!enter(self, VMM_SUCCESS, &status)) return status;
  self->suspended = false;
  return leave(self, VMM_SUCCESS);
}

void shared_policy_close(shared_policy *self) {
  vmm_status status;
  if (!enter(self, VMM_SUCCESS, &status)) return;
  self->closed = true;
  leave(self, VMM_SUCCESS);
}

vmm_status shared_policy_statistics(shared_policy *self, pool_statistics *statistics) {
  vmm_status status;
  *statistics = (pool_statistics){0};
  /* Of a closed policy too: they are host memory. */
  if (is_forked(self)) return VMM_NOT_INITIALIZED;
  pthread_mutex_lock(&self->lock);
  *statistics = self->subject->heap.statistics;
  status = VMM_SUCCESS;
  return leave(self, status);
}

vmm_status shared_policy_reset_peaks(shared_policy *self) {
  vmm_status status;
  if (!enter(self, VMM_SUCCESS, &status)) return status;
  pool_statistics *statistics = &self->subject->heap.statistics;
  pool_statistic *const all[] = {&statistics->requested_bytes, &statistics->allocated_bytes,
                                 &statistics->active_bytes,    &statistics->reserved_bytes,
                                 &statistics->allocations,     &statistics->segments,
                                 &statistics->inactive_split,  &statistics->inactive_split_bytes};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i]->peak = all[i]->current;
  return leave(self, VMM_SUCCESS);
}

vmm_status shared_policy_check(shared_policy *self, char *message, size_t message_size) {
  vmm_status status;
  if (message_size > 0) message[0] = '\0';
  if (!enter(self, VMM_SUCCESS, &status)) return status;
  return leave(self, policy_check(self->subject, message, message_size) ? VMM_SUCCESS : VMM_INVALID_VALUE);
}

vmm_status shared_policy_with(shared_policy *self, shared_policy_use *use, void *context) {
  vmm_status status;
  if (!enter(self, VMM_DEINITIALIZED, &status)) return status;
  use(context, self->subject);
  return leave(self, VMM_SUCCESS);
}
