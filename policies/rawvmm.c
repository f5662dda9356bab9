/* The virtual memory calls for every request: reserve, create chunk by chunk, map,
 * set access; all undone at its free. What a policy without any pool would cost
 * (the baseline of the GMLake paper's Table 1). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "policies/policy.h"

enum { OPTION_CHUNK };

static const policy_option options[] = {
    {"chunk", POLICY_OPTION_SIZE, "2MiB", POLICY_GRANULARITY, 1e15, NULL, "bytes",
     "size of one physical handle; a multiple of the device's granularity"},
    {0},
};

typedef struct rawvmm {
  policy base;
  uint64_t chunk;
} rawvmm;

static vmm_status rawvmm_create(const policy_configuration *configuration, policy **created, char *message,
                                size_t message_size) {
  rawvmm *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  pool_heap *heap = &self->base.heap;
  vmm_status status = pool_heap_init(heap, configuration->driver, true, configuration->limit);
  self->chunk = configuration->values[OPTION_CHUNK].integer;
  if (status == VMM_SUCCESS && self->chunk % heap->granularity != 0) {
    snprintf(message, message_size,
             "policy rawvmm: chunk=%s is no multiple of the device's granularity of %" PRIu64 " bytes",
             configuration->values[OPTION_CHUNK].text, heap->granularity);
    status = VMM_INVALID_VALUE;
  }
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  *created = &self->base;
  return VMM_SUCCESS;
}

static void rawvmm_destroy(policy *self) {
  pool_heap_fini(&self->heap);
  free(self);
}

/* Chunks of the wanted size and a smaller last one, so that nothing but the granularity is wasted. */
static vmm_status create_chunks(rawvmm *self, uint64_t size, pool_chunk **chunks, uint64_t count,
                                pool_range *owner) {
  pool_heap *heap = &self->base.heap;
  uint64_t *sizes = malloc(count * sizeof *sizes);
  if (!sizes) return VMM_OUT_OF_MEMORY;
  for (uint64_t i = 0; i < count; i++) sizes[i] = self->chunk;
  if (size % self->chunk != 0) sizes[count - 1] = size % self->chunk;
  vmm_status status = pool_chunks_create_sizes(heap, sizes, count, owner, chunks);
  free(sizes);
  return status;
}

static vmm_status rawvmm_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address) {
  rawvmm *state = (rawvmm *)self;
  pool_heap *heap = &self->heap;
  uint64_t rounded = (size + heap->granularity - 1) / heap->granularity * heap->granularity;
  uint64_t count = (rounded + state->chunk - 1) / state->chunk;
  if (!pool_heap_within_limit(heap, rounded)) return VMM_OUT_OF_MEMORY;
  pool_chunk **chunks = malloc(count * sizeof *chunks);
  if (!chunks) return VMM_OUT_OF_MEMORY;
  pool_range *range;
  vmm_status status = pool_range_reserve(heap, rounded, heap->granularity, &range);
  if (status == VMM_SUCCESS) {
    status = create_chunks(state, rounded, chunks, count, range);
    if (status == VMM_SUCCESS) {
      status = pool_range_map(heap, range, 0, chunks, count);
      if (status == VMM_SUCCESS) {
        status = pool_heap_hand_out(heap, range->address, rounded, size, stream, range);
        if (status != VMM_SUCCESS) pool_range_unmap(heap, range, 0, rounded);
      }
      for (uint64_t i = 0; status != VMM_SUCCESS && i < count; i++) pool_chunk_give_up(heap, chunks[i]);
    }
    if (status != VMM_SUCCESS) pool_range_free(heap, range);
  }
  free(chunks);
  if (status == VMM_SUCCESS) *address = range->address;
  return status;
}

static vmm_status rawvmm_free(policy *self, vmm_address address) {
  pool_heap *heap = &self->heap;
  pool_allocation *allocation = pool_heap_find(heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  pool_range *range = allocation->owner;
  /* Unmapping does not wait for the device; cuMemFree would have. */
  vmm_status status = vmm_synchronize(heap->driver);
  pool_chunk **chunks = malloc(range->size / range->unit * sizeof *chunks);
  if (!chunks) status = VMM_OUT_OF_MEMORY;
  uint64_t count = 0;
  for (uint64_t i = 0; status == VMM_SUCCESS && i < range->size / range->unit; i++) {
    if (range->slots[i].offset == 0) chunks[count++] = range->slots[i].chunk;
  }
  if (status == VMM_SUCCESS) status = pool_range_unmap(heap, range, 0, range->size);
  if (status == VMM_SUCCESS) {
    /* From here on the allocation is gone, and the caller's free has succeeded: what the
     * driver refuses stays with the heap and is tried again at its end. */
    pool_heap_take_back(heap, allocation, &taken, &status);
    for (uint64_t i = 0; i < count; i++) pool_chunk_give_up(heap, chunks[i]);
    pool_range_free(heap, range);
    heap->statistics.driver_frees++;
  }
  free(chunks);
  return status;
}

const policy_class rawvmm_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "rawvmm",
    .summary = "reserve, create, map and set access for every request, undone at its free",
    .capabilities = POLICY_NEEDS_VMM,
    .options = options,
    .create = rawvmm_create,
    .destroy = rawvmm_destroy,
    .alloc = rawvmm_alloc,
    .free = rawvmm_free,
};
