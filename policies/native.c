/* One driver allocation a request: cuMemAlloc and cuMemFree. Nothing is kept. */
#include <stdlib.h>

#include "policies/policy.h"

static vmm_status native_create(const policy_configuration *configuration, policy **created, char *message,
                                size_t message_size) {
  (void)message;
  (void)message_size;
  policy *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  vmm_status status = pool_heap_init(&self->heap, configuration->driver, false, configuration->limit);
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  *created = self;
  return VMM_SUCCESS;
}

static void native_destroy(policy *self) {
  pool_heap_fini(&self->heap);
  free(self);
}

static vmm_status native_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  pool_segment *segment;
  vmm_status status = pool_segment_allocate(&self->heap, size, &segment);
  if (status != VMM_SUCCESS) return status;
  status = pool_heap_hand_out(&self->heap, segment->address, size, size, stream, segment);
  if (status != VMM_SUCCESS) {
    pool_segment_free(&self->heap, segment);
    return status;
  }
  *address = segment->address;
  return VMM_SUCCESS;
}

static vmm_status native_free(policy *self, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(&self->heap, address);
  if (!allocation) return VMM_INVALID_VALUE;
  /* cuMemFree waits for the device, so no other stream can still use the memory. */
  vmm_status status = pool_segment_free(&self->heap, allocation->owner);
  if (status != VMM_SUCCESS) return status;
  pool_allocation taken;
  pool_heap_take_back(&self->heap, allocation, &taken, &status);
  return status;
}

const policy_class native_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "native",
    .summary = "one driver allocation a request (cuMemAlloc, cuMemFree)",
    .create = native_create,
    .destroy = native_destroy,
    .alloc = native_alloc,
    .free = native_free,
};
