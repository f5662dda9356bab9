/* variant=published: the decision rules of the authors' code, without its defects.
 *
 * It differs from the paper: any free pBlock that is large enough wins, best fit; only if none is, the
 * smallest sBlock that is at most reuse_factor times too large serves, and its tail stays free; only then,
 * and from request_limit on, free pBlocks are stitched, the largest first; what is missing is never added to
 * what is free. pBlocks below 10 MiB come in 20 MiB, are split down to a chunk, and merge back. Requests up
 * to 1 MiB go to PyTorch's small pool. */
#include <stdlib.h>
#include <string.h>

#include "policies/gmlake_published.h"
#include "policies/pytorch_rounding.h"

#define SMALL_LIMIT (UINT64_C(1) << 20)   /* requests up to it are small */
#define SMALL_SEGMENT (UINT64_C(2) << 20) /* a driver allocation of the small pool */
#define MEDIUM_LIMIT (UINT64_C(10) << 20) /* requests below it get a block of ... */
#define MEDIUM_BLOCK (UINT64_C(20) << 20)

static uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/* ---- allocation ---- */

/* Gives out the front of a free pBlock. */
static vmm_status give_block(published *self, published_block *block, uint64_t size, uint64_t requested,
                             vmm_address *address) {
  vmm_status status = VMM_SUCCESS;
  if (block->base.size > size) status = published_split(self, block, size);
  if (status != VMM_SUCCESS) return status;
  pool_free_set_remove(&self->free, &block->base);
  block->base.state = POOL_BLOCK_LIVE;
  status = pool_heap_hand_out(&self->base.base.heap, block->base.address, size, requested, block->base.stream,
                              block);
  if (status != VMM_SUCCESS) {
    published_release(self, block);
    return status;
  }
  *address = block->base.address;
  return VMM_SUCCESS;
}

/* A free pBlock that is large enough, else an idle sBlock. OUT_OF_MEMORY if there is neither. */
static vmm_status reuse(published *self, uint64_t size, uint64_t requested, vmm_stream stream,
                        vmm_address *address) {
  pool_block *fit = pool_free_set_best_fit(&self->free, stream, size);
  published_stitched *stitched = NULL;
  if (!fit) {
    double limit = (double)size * self->settings.reuse_factor;
    stitched = published_find_stitched(self, stream, size, limit < 9e18 ? (uint64_t)limit : UINT64_MAX);
    if (!stitched) return VMM_OUT_OF_MEMORY;
  }
  const bool exact = (fit ? fit->size : stitched->base.size) == size;
  pool_operation_begin(&self->base.base.heap, self->base.state_operation[exact ? GMLAKE_S1 : GMLAKE_S2],
                       size);
  vmm_status status = fit ? give_block(self, (published_block *)fit, size, requested, address)
                          : published_give_stitched(self, stitched, size, requested, address);
  pool_operation_end(&self->base.base.heap);
  return status;
}

static vmm_status stitch(published *self, uint64_t size, uint64_t requested, vmm_stream stream,
                         vmm_address *address) {
  if (size < self->settings.request_limit) return VMM_OUT_OF_MEMORY;
  published_stitched *stitched;
  pool_operation_begin(&self->base.base.heap, self->base.state_operation[GMLAKE_S3], size);
  vmm_status status = published_stitch(self, size, stream, &stitched);
  if (status == VMM_SUCCESS) status = published_give_stitched(self, stitched, size, requested, address);
  if (status == VMM_SUCCESS && self->stitched_bytes > self->settings.stitch_bytes) published_drop_idle(self);
  pool_operation_end(&self->base.base.heap);
  return status;
}

static vmm_status grow(published *self, uint64_t size, uint64_t requested, vmm_stream stream,
                       vmm_address *address) {
  published_block *block;
  uint64_t block_size = size < MEDIUM_LIMIT ? round_up(MEDIUM_BLOCK, self->settings.chunk) : size;
  if (block_size < size) block_size = size;
  pool_operation_begin(&self->base.base.heap, self->base.state_operation[GMLAKE_S4], size);
  vmm_status status = published_grow(self, block_size, stream, &block);
  if (status == VMM_SUCCESS) {
    published_release(self, block);
    status = give_block(self, block, size, requested, address);
  }
  pool_operation_end(&self->base.base.heap);
  return status;
}

/* Everything unused goes back to the driver. */
static vmm_status flush(published *self) {
  pool_heap *heap = &self->base.base.heap;
  heap->statistics.host_waits++;
  vmm_status first = vmm_synchronize(heap->driver);
  if (first != VMM_SUCCESS) return first;
  pool_stream_clock_all_passed(&self->base.clock);
  published_drop_idle(self);
  for (uint32_t stream = 0; stream < self->free.streams; stream++) {
    for (pool_block *block = pool_free_set_first(&self->free, stream), *next; block; block = next) {
      next = pool_free_set_next(block);
      /* What an sBlock in use maps beyond its used part stays. */
      bool mapped_twice = false;
      const pool_slot *slot = gmlake_slot(block->backing, block->address);
      for (uint64_t i = 0; i < block->size / self->settings.chunk; i++)
        mapped_twice |= slot[i].chunk->mappings > 1;
      if (pool_block_is_split(block) || mapped_twice) continue;
      pool_free_set_remove(&self->free, block);
      vmm_status status = published_give_back(self, (published_block *)block);
      if (first == VMM_SUCCESS) first = status;
    }
  }
  vmm_status small = pool_caching_release_all(&self->base.small);
  return first == VMM_SUCCESS ? small : first;
}

static vmm_status alloc_large(published *self, uint64_t size, uint64_t requested, vmm_stream stream,
                              vmm_address *address) {
  vmm_status status = pool_free_set_prepare(&self->free, stream);
  if (status == VMM_SUCCESS) status = pool_stream_clock_prepare(&self->base.clock, stream);
  if (status == VMM_SUCCESS) status = reuse(self, size, requested, stream, address);
  if (status == VMM_OUT_OF_MEMORY && !self->settings.stitch_after_growing) {
    status = stitch(self, size, requested, stream, address);
  }
  if (status == VMM_OUT_OF_MEMORY) status = grow(self, size, requested, stream, address);
  if (status == VMM_OUT_OF_MEMORY) status = stitch(self, size, requested, stream, address);
  return status;
}

static vmm_status alloc_small(published *self, uint64_t requested, vmm_stream stream, vmm_address *address) {
  uint64_t size = round_up(requested, PYTORCH_BLOCK_MINIMUM);
  pool_block *block = pool_free_set_best_fit(&self->base.small.free, stream, size);
  if (!block) {
    vmm_status status = pool_caching_grow(&self->base.small, SMALL_SEGMENT, stream, &block);
    if (status != VMM_SUCCESS) return status;
  }
  return pool_caching_hand_out(&self->base.small, block, size, requested,
                               block->size - size >= PYTORCH_BLOCK_MINIMUM, address);
}

static vmm_status alloc_once(published *self, uint64_t requested, vmm_stream stream, vmm_address *address) {
  if (round_up(requested, PYTORCH_BLOCK_MINIMUM) <= SMALL_LIMIT) {
    return alloc_small(self, requested, stream, address);
  }
  return alloc_large(self, round_up(requested, self->settings.chunk), requested, stream, address);
}

/* ---- the policy's functions ---- */

static void take_back(published *self, const pool_allocation *taken) {
  pool_block *block = taken->owner;
  if (block->pool == &self->free) {
    published_release(self, (published_block *)block);
  } else if (block->pool == &self->stitched) {
    published_take_back_stitched(self, (published_stitched *)block, taken->size);
  } else {
    pool_caching_take_back(&self->base.small, block);
  }
}

static void take_back_complete(published *self, bool wait) {
  pool_allocation taken;
  while (pool_heap_next_complete(&self->base.base.heap, wait, &taken)) take_back(self, &taken);
}

static vmm_status published_alloc(policy *base, uint64_t requested, vmm_stream stream, vmm_address *address) {
  published *self = (published *)base;
  take_back_complete(self, false);
  vmm_status status = alloc_once(self, requested, stream, address);
  if (status != VMM_OUT_OF_MEMORY) return status;
  take_back_complete(self, true);
  if (pool_heap_within_limit_after(&base->heap, self->free.bytes + self->base.small.free.bytes, requested)) {
    flush(self);
    base->heap.statistics.retries++;
    status = alloc_once(self, requested, stream, address);
  }
  if (status == VMM_OUT_OF_MEMORY) {
    pool_operation_begin(&base->heap, self->base.state_operation[GMLAKE_S5], requested);
    pool_operation_end(&base->heap);
  }
  return status;
}

static vmm_status published_free(policy *base, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(&base->heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  vmm_status status;
  if (pool_heap_take_back(&base->heap, allocation, &taken, &status)) take_back((published *)base, &taken);
  return status;
}

static vmm_status published_trim(policy *base) {
  published *self = (published *)base;
  take_back_complete(self, true);
  return flush(self);
}

static size_t published_counters(const policy *base, policy_counter *counters, size_t capacity) {
  const published *self = (const published *)base;
  const policy_counter all[] = {
      {"pblock_bytes", self->pblock_bytes},
      {"inactive_pblocks_count", self->free.blocks},
      {"inactive_pblocks_bytes", self->free.bytes},
      {"sblocks_count", self->stitched_count},
      {"stitched_sblocks_count", self->stitched_count},
      {"stitched_bytes", self->stitched_bytes},
  };
  size_t count = sizeof all / sizeof *all;
  memcpy(counters, all, (count < capacity ? count : capacity) * sizeof *all);
  return count;
}

static uint64_t published_largest_free(const policy *base) {
  const published *self = (const published *)base;
  uint64_t largest = pool_caching_largest_free(&self->base.small);
  for (uint32_t stream = 0; stream < self->free.streams; stream++) {
    const pool_block *block = pool_free_set_largest(&self->free, stream);
    if (block && block->size > largest) largest = block->size;
  }
  return largest;
}

static void published_free_ranges(const policy *base, pool_range_visit *visit, void *context) {
  const published *self = (const published *)base;
  pool_free_set_visit(&self->base.small.free, visit, context);
  pool_free_set_visit(&self->free, visit, context);
}

static void published_blocks(const policy *base, policy_block_visit *visit, void *context) {
  published *self = (published *)(uintptr_t)base;
  for (published_block *block = published_first_block(self); block; block = published_next_block(block))
    gmlake_visit_block(block->base.address, block->base.size, block->base.stream, false,
                       block->base.state != POOL_BLOCK_FREE, visit, context);
  published_visit_stitched(self, visit, context);
}

static void published_destroy(policy *base) {
  published *self = (published *)base;
  gmlake_base_fini(&self->base);
  published_forget_blocks(self);
  published_forget_stitched(self);
  pool_free_set_fini(&self->free);
  free(self->chunks);
  free(self);
}

static const policy_class published_rules = {.destroy = published_destroy,
                                             .alloc = published_alloc,
                                             .free = published_free,
                                             .trim = published_trim,
                                             .counters = published_counters,
                                             .largest_free = published_largest_free,
                                             .free_ranges = published_free_ranges,
                                             .blocks = published_blocks,
                                             .check = published_check};

vmm_status gmlake_published_create(const policy_configuration *configuration,
                                   const gmlake_published_settings *settings, policy **created, char *message,
                                   size_t message_size) {
  void *made;
  vmm_status status =
      gmlake_base_create(configuration, &published_rules, sizeof(published), &made, message, message_size);
  if (status != VMM_SUCCESS) return status;
  published *self = made;
  self->settings = *settings;
  RB_INIT(&self->blocks);
  RB_INIT(&self->stitched);
  RB_INIT(&self->may_be_free);
  *created = &self->base.base;
  return VMM_SUCCESS;
}
