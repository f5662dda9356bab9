/* Gives out addresses and keeps nothing: the floor of the harness's own cost. */
#include <stdlib.h>

#include "policies/policy.h"

typedef struct null_state {
  policy base;
  vmm_address next;
} null_state;

static vmm_status null_create(const policy_configuration *configuration, policy **created, char *message,
                              size_t message_size) {
  (void)message;
  (void)message_size;
  null_state *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  vmm_status status = pool_heap_init(&self->base.heap, configuration->driver, false, configuration->limit);
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  self->base.heap.memory_elsewhere = true;
  self->next = 512;
  *created = &self->base;
  return VMM_SUCCESS;
}

static void null_destroy(policy *self) {
  pool_heap_fini(&self->heap);
  free(self);
}

static vmm_status null_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  null_state *state = (null_state *)self;
  uint64_t rounded = (size + 511) / 512 * 512;
  if (state->next > UINT64_MAX - rounded) state->next = 512;
  vmm_status status = pool_heap_hand_out(&self->heap, state->next, rounded, size, stream, state);
  if (status != VMM_SUCCESS) return status;
  *address = state->next;
  state->next += rounded;
  return VMM_SUCCESS;
}

static vmm_status null_free(policy *self, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(&self->heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  vmm_status status;
  pool_heap_take_back(&self->heap, allocation, &taken, &status);
  return status;
}

const policy_class null_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "null",
    .summary = "addresses without memory: the floor of the harness's own cost",
    .capabilities = POLICY_NO_MEMORY,
    .create = null_create,
    .destroy = null_destroy,
    .alloc = null_alloc,
    .free = null_free,
};
