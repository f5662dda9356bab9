#include "policies/policy.h"

#include <stdio.h>
#include <string.h>

#include "policies/list.h"

#define XX(name) extern const policy_class name##_policy;
POLICY_LIST(XX)
#undef XX

static const policy_class *const registered[] = {
#define XX(name) &name##_policy,
    POLICY_LIST(XX)
#undef XX
        NULL};

const policy_class *const *policy_list(void) { return registered; }

const policy_class *policy_find(const char *name) {
  for (const policy_class *const *class = registered; *class; class ++) {
    if (strcmp((*class)->name, name) == 0) return *class;
  }
  return NULL;
}

vmm_status policy_create(const policy_spec *spec, vmm_driver *driver, uint64_t limit, policy **created,
                         char *message, size_t message_size) {
  return policy_create_with_lifetimes(spec, driver, limit, NULL, created, message, message_size);
}

vmm_status policy_create_with_lifetimes(const policy_spec *spec, vmm_driver *driver, uint64_t limit,
                                        const policy_lifetimes *lifetimes, policy **created, char *message,
                                        size_t message_size) {
  const policy_class *class = spec->class;
  *created = NULL;
  if (message_size > 0) message[0] = '\0';
  if (class->magic != POLICY_MAGIC || class->abi != POLICY_ABI || class->size != sizeof *class ||
      !class->create || !class->destroy || !class->alloc || !class->free) {
    snprintf(message, message_size,
             "policy %s is built for interface %u of %zu bytes, this program has %u of %zu, or lacks a "
             "mandatory function",
             class->name, class->abi, class->size, POLICY_ABI, sizeof *class);
    return VMM_INVALID_VALUE;
  }
  if ((class->capabilities & POLICY_NEEDS_LIFETIMES) && !lifetimes) {
    snprintf(message, message_size,
             "policy %s is an oracle: it has to know the whole trace in advance, as in a replay, and cannot "
             "serve requests as they come",
             class->name);
    return VMM_INVALID_VALUE;
  }
  policy_configuration configuration = {
      .driver = driver, .values = spec->values, .limit = limit, .lifetimes = lifetimes};
  vmm_status status = class->create(&configuration, created, message, message_size);
  if (status == VMM_SUCCESS) (*created)->class = class;
  if (status != VMM_SUCCESS && message_size > 0 && message[0] == '\0') {
    char cause[256];
    vmm_error_format(&driver->error, cause, sizeof cause);
    snprintf(message, message_size, "policy %s cannot be created: %s", class->name,
             cause[0] ? cause : vmm_status_text(status));
  }
  return status;
}

void policy_destroy(policy *self) {
  if (self) self->class->destroy(self);
}

vmm_status policy_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  *address = 0;
  if (stream >= POOL_STREAM_LIMIT) return VMM_INVALID_VALUE;
  if (size == 0) return VMM_SUCCESS;
  if (size >= POLICY_SIZE_LIMIT) {
    self->heap.statistics.failures++;
    return VMM_OUT_OF_MEMORY;
  }
  vmm_driver *driver = self->heap.driver;
  const bool clean = driver->error.status == VMM_SUCCESS;
  pool_operation_begin(&self->heap, POOL_OPERATION_ALLOC, size);
  vmm_status status = self->class->alloc(self, size, stream, address);
  pool_operation_end(&self->heap);
  /* Refused, helped itself, served: such an error must not be taken for that of a later call. */
  if (clean && status == VMM_SUCCESS) vmm_error_clear(driver);
  if (status == VMM_OUT_OF_MEMORY) self->heap.statistics.failures++;
  return status;
}

vmm_status policy_free(policy *self, vmm_address address) {
  if (address == 0) return VMM_SUCCESS;
  pool_operation_begin(&self->heap, POOL_OPERATION_FREE, 0);
  vmm_status status = self->class->free(self, address);
  pool_operation_end(&self->heap);
  return status;
}

vmm_status policy_record_stream(policy *self, vmm_address address, vmm_stream stream) {
  if (stream >= POOL_STREAM_LIMIT) return VMM_INVALID_VALUE;
  if (!self->class->record_stream) return VMM_SUCCESS;
  pool_operation_begin(&self->heap, POOL_OPERATION_RECORD_STREAM, 0);
  vmm_status status = self->class->record_stream(self, address, stream);
  pool_operation_end(&self->heap);
  return status;
}

vmm_status policy_trim(policy *self) {
  if (!self->class->trim) return VMM_SUCCESS;
  pool_operation_begin(&self->heap, POOL_OPERATION_TRIM, 0);
  vmm_status status = self->class->trim(self);
  pool_operation_end(&self->heap);
  return status;
}

vmm_status policy_set_limit(policy *self, uint64_t limit) {
  if (self->class->set_limit) return self->class->set_limit(self, limit);
  pool_heap_set_limit(&self->heap, limit);
  return VMM_SUCCESS;
}

size_t policy_counters(const policy *self, policy_counter *counters, size_t capacity) {
  return self->class->counters ? self->class->counters(self, counters, capacity) : 0;
}

uint64_t policy_largest_free(const policy *self) {
  return self->class->largest_free ? self->class->largest_free(self) : 0;
}

void policy_free_ranges(const policy *self, pool_range_visit *visit, void *context) {
  if (self->class->free_ranges) self->class->free_ranges(self, visit, context);
}

void policy_blocks(const policy *self, policy_block_visit *visit, void *context) {
  if (self->class->blocks) self->class->blocks(self, visit, context);
}

bool policy_check(const policy *self, char *message, size_t message_size) {
  /* The walker marks chunks as it counts them; nothing a caller can see changes. */
  pool_heap *heap = (pool_heap *)(uintptr_t)&self->heap;
  if (!pool_heap_check(heap, message, message_size)) return false;
  return !self->class->check || self->class->check(self, message, message_size);
}
