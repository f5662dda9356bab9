#include "tests/harness_broken_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { FREED_LIMIT = 1 << 16 };

typedef struct broken {
  policy base;
  broken_fault fault;
  uint64_t large, last_freed_count;
  vmm_address second;             /* large block */
  vmm_address freed[FREED_LIMIT]; /* for SECOND_FREE */
  bool refuses;
} broken;

static vmm_status broken_create(const policy_configuration *configuration, policy **created, char *message,
                                size_t message_size) {
  (void)message;
  (void)message_size;
  broken *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  self->fault = (broken_fault)configuration->values[0].integer;
  vmm_status status = pool_heap_init(&self->base.heap, configuration->driver, false, configuration->limit);
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  *created = &self->base;
  return VMM_SUCCESS;
}

static void broken_destroy(policy *base) {
  pool_heap_fini(&base->heap);
  free(base);
}

static vmm_status broken_alloc(policy *base, uint64_t size, vmm_stream stream, vmm_address *address) {
  broken *self = (broken *)base;
  pool_heap *heap = &base->heap;
  pool_segment *segment;
  if (self->refuses) return VMM_OUT_OF_MEMORY;
  if (self->fault == BROKEN_OVERLAP && size >= MIB && ++self->large == 3 &&
      pool_heap_find(heap, self->second) &&
      pool_heap_hand_out(heap, self->second + 512, size, size, stream, NULL) == VMM_SUCCESS) {
    *address = self->second + 512;
    return VMM_SUCCESS;
  }
  const uint64_t taken = self->fault == BROKEN_SHORT && size >= 3 * MIB ? size / 2 : size;
  vmm_status status = pool_segment_allocate(heap, taken, &segment);
  if (status != VMM_SUCCESS) {
    self->refuses = self->fault == BROKEN_REFUSAL;
    if (self->fault == BROKEN_LOSS) pool_statistic_add(&heap->statistics.allocated_bytes, size);
    return status;
  }
  if (self->large == 2) self->second = segment->address;
  *address = segment->address;
  return pool_heap_hand_out(heap, segment->address, taken, size, stream, segment);
}

static vmm_status broken_free(policy *base, vmm_address address) {
  broken *self = (broken *)base;
  pool_heap *heap = &base->heap;
  pool_allocation *allocation = pool_heap_find(heap, address), taken;
  vmm_status status = VMM_SUCCESS;
  if (!allocation) {
    for (uint64_t i = 0; self->fault == BROKEN_SECOND_FREE && i < self->last_freed_count; i++) {
      if (self->freed[i] == address) return VMM_SUCCESS;
    }
    return VMM_INVALID_VALUE;
  }
  const bool leaks = self->fault == BROKEN_LEAK && allocation->size >= 4 * MIB;
  if (allocation->owner && !leaks) status = pool_segment_free(heap, allocation->owner);
  if (status != VMM_SUCCESS) return status;
  if (self->last_freed_count < FREED_LIMIT) self->freed[self->last_freed_count++] = address;
  pool_heap_take_back(heap, allocation, &taken, &status);
  return status;
}

static vmm_status broken_record_stream(policy *base, vmm_address address, vmm_stream stream) {
  if (!pool_heap_find(&base->heap, address)) return VMM_INVALID_VALUE;
  return ((broken *)base)->fault == BROKEN_STREAM && stream == 2 ? VMM_INVALID_HANDLE : VMM_SUCCESS;
}

static vmm_status broken_trim(policy *base) {
  if (((broken *)base)->fault == BROKEN_COUNT) pool_statistic_add(&base->heap.statistics.allocations, 1);
  return VMM_SUCCESS;
}

static const policy_class broken_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "broken",
    .summary = "one driver allocation a request, and a fault",
    .create = broken_create,
    .destroy = broken_destroy,
    .alloc = broken_alloc,
    .free = broken_free,
    .record_stream = broken_record_stream,
    .trim = broken_trim,
};

policy_spec broken_policy_spec(broken_fault fault) {
  policy_spec spec = {.class = &broken_policy, .text = "broken"};
  spec.values[0].integer = (uint64_t)fault;
  return spec;
}
