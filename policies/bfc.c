/* PyTorch's caching allocator with cudaMalloc'd segments, to the byte: best fit
 * with coalescing in a small and a large pool, per stream.
 *
 * Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11: malloc, get_free_block,
 * alloc_block, should_split, garbage_collect_cached_blocks, release_available_cached_blocks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/policy.h"
#include "policies/pytorch_rounding.h"
#include "pools/caching.h"

enum { OPTION_MAX_SPLIT, OPTION_ROUNDUP, OPTION_GC, OPTION_LARGE_SEGMENT, OPTION_MAX_NON_SPLIT };

static const policy_option options[] = {
    {"max_split_size_mb", POLICY_OPTION_INTEGER, "unlimited", 20, 1e9, NULL, "MiB",
     "blocks of this size and more are not split, and serve only requests as large"},
    {"roundup_power2_divisions", POLICY_OPTION_TEXT, "0", 0, 0, NULL, "",
     "round requests up to so many steps between powers of two: N, or [256:1,512:2,>:8] with keys in MiB"},
    {"garbage_collection_threshold", POLICY_OPTION_REAL, "0", 0, 0.999999, NULL, POLICY_SHARE_OF_LIMIT,
     "above this share old unsplit blocks are freed before new memory is taken; 0 is off, needs --limit"},
    {"large_segment_size_mb", POLICY_OPTION_INTEGER, "20", 11, 1e6, NULL, "MiB",
     "segment for requests above 1 MiB and below 10 MiB"},
    {"max_non_split_rounding_mb", POLICY_OPTION_INTEGER, "20", 1, 1e9, NULL, "MiB",
     "slack allowed when a block of max_split_size_mb or more is reused whole"},
    {0},
};

typedef struct bfc {
  policy base;
  pool_block_store blocks;
  pool_caching small, large;
  pytorch_rounding rounding;
  uint64_t max_split;
  uint64_t max_non_split_slack;
  double gc_threshold;
} bfc;

static vmm_status bfc_create(const policy_configuration *configuration, policy **created, char *message,
                             size_t message_size) {
  bfc *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  const policy_value *values = configuration->values;
  uint64_t max_split = values[OPTION_MAX_SPLIT].integer;
  self->max_split = max_split == UINT64_MAX ? UINT64_MAX : max_split << 20;
  self->gc_threshold = values[OPTION_GC].real;
  self->rounding.large_segment = values[OPTION_LARGE_SEGMENT].integer << 20;
  self->max_non_split_slack = values[OPTION_MAX_NON_SPLIT].integer << 20;
  vmm_status status = VMM_SUCCESS;
  if (self->max_split < self->rounding.large_segment) {
    snprintf(message, message_size,
             "policy bfc: max_split_size_mb=%" PRIu64 " must not be below large_segment_size_mb=%" PRIu64,
             max_split, values[OPTION_LARGE_SEGMENT].integer);
    status = VMM_INVALID_VALUE;
  } else if (!pytorch_rounding_parse(&self->rounding, values[OPTION_ROUNDUP].text)) {
    snprintf(message, message_size, "policy bfc: roundup_power2_divisions=%s: expected %s",
             values[OPTION_ROUNDUP].text, PYTORCH_ROUNDUP_EXPECTED);
    status = VMM_INVALID_VALUE;
  } else {
    status = pool_heap_init(&self->base.heap, configuration->driver, false, configuration->limit);
  }
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  pool_caching_init(&self->small, &self->base.heap, &self->blocks);
  pool_caching_init(&self->large, &self->base.heap, &self->blocks);
  *created = &self->base;
  return VMM_SUCCESS;
}

static void bfc_destroy(policy *base) {
  bfc *self = (bfc *)base;
  pool_heap_fini(&base->heap);
  pool_caching_fini(&self->small);
  pool_caching_fini(&self->large);
  pool_block_store_fini(&self->blocks);
  free(self);
}

static bool collects_garbage(const bfc *self) {
  return self->gc_threshold > 0 && self->base.heap.limit != UINT64_MAX;
}

static pool_block *find_free(bfc *self, pool_caching *pool, uint64_t size, vmm_stream stream) {
  if (collects_garbage(self)) pool->lookups++;
  pool_block *block = pool_free_set_best_fit(&pool->free, stream, size);
  if (!block) return NULL;
  /* Oversize blocks are kept for oversize requests, and not wasted on much smaller ones. */
  if (size < self->max_split && block->size >= self->max_split) return NULL;
  if (size >= self->max_split && block->size >= size + self->max_non_split_slack) return NULL;
  return block;
}

/* Frees old unsplit blocks of the large pool until the total is below the threshold. */
static void collect_garbage(bfc *self) {
  pool_heap *heap = &self->base.heap;
  pool_caching *pool = &self->large;
  uint64_t threshold = (uint64_t)(self->gc_threshold * (double)heap->limit);
  uint64_t total = heap->statistics.reserved_bytes.current;
  if (total <= threshold) return;
  uint64_t target = total - threshold, reclaimed = 0, ages = 0, count = 0;
  for (uint32_t stream = 0; stream < pool->free.streams; stream++) {
    for (pool_block *block = pool_free_set_first(&pool->free, stream); block;
         block = pool_free_set_next(block)) {
      if (pool_block_is_split(block)) continue;
      ages += pool->lookups - block->age_base;
      count++;
    }
  }
  bool freed = true;
  while (reclaimed < target && freed && count > 0) {
    double oldest = (double)ages / (double)count;
    freed = false;
    for (uint32_t stream = 0; stream < pool->free.streams; stream++) {
      for (pool_block *block = pool_free_set_first(&pool->free, stream), *next; block; block = next) {
        next = pool_free_set_next(block);
        uint64_t age = pool->lookups - block->age_base, size = block->size;
        if (pool_block_is_split(block) || (double)age < oldest) continue;
        if (pool_caching_release(pool, block) != VMM_SUCCESS) continue;
        reclaimed += size;
        ages -= age;
        count--;
        freed = true;
      }
    }
  }
}

/* Frees just enough oversize blocks of the stream to make room. */
static bool release_oversize(bfc *self, pool_caching *pool, uint64_t size, vmm_stream stream) {
  if (self->max_split == UINT64_MAX) return false;
  uint64_t wanted = size > self->max_split ? size : self->max_split;
  pool_block *block = pool_free_set_best_fit(&pool->free, stream, wanted);
  if (block) return pool_caching_release(pool, block) == VMM_SUCCESS;
  uint64_t released = 0;
  for (block = pool_free_set_largest(&pool->free, stream);
       block && block->size >= self->max_split && released < wanted;) {
    pool_block *smaller = pool_free_set_previous(block);
    uint64_t block_size = block->size;
    if (pool_caching_release(pool, block) != VMM_SUCCESS) return false;
    released += block_size;
    block = smaller;
  }
  return released >= wanted;
}

static vmm_status release_cached(bfc *self) {
  pool_caching_take_back_complete(&self->base.heap, true);
  vmm_status large = pool_caching_release_all(&self->large);
  vmm_status small = pool_caching_release_all(&self->small);
  return large != VMM_SUCCESS ? large : small;
}

/* PyTorch's ladder when no cached block fits. */
static vmm_status take_from_driver(bfc *self, pool_caching *pool, uint64_t size, vmm_stream stream,
                                   pool_block **block) {
  uint64_t segment = pytorch_segment_size(&self->rounding, size);
  if (collects_garbage(self)) collect_garbage(self);
  vmm_status status = pool_caching_grow(pool, segment, stream, block);
  if (status != VMM_OUT_OF_MEMORY) return status;
  if (release_oversize(self, pool, size, stream)) {
    status = pool_caching_grow(pool, segment, stream, block);
    if (status != VMM_OUT_OF_MEMORY) return status;
  }
  release_cached(self);
  self->base.heap.statistics.retries++;
  return pool_caching_grow(pool, segment, stream, block);
}

static vmm_status bfc_alloc(policy *base, uint64_t requested, vmm_stream stream, vmm_address *address) {
  bfc *self = (bfc *)base;
  pool_caching_take_back_complete(&self->base.heap, false);
  uint64_t size = pytorch_round(&self->rounding, requested);
  bool is_small = size <= PYTORCH_SMALL_MAXIMUM;
  pool_caching *pool = is_small ? &self->small : &self->large;
  pool_block *block = find_free(self, pool, size, stream);
  if (!block) {
    vmm_status status = take_from_driver(self, pool, size, stream, &block);
    if (status != VMM_SUCCESS) return status;
  }
  uint64_t remaining = block->size - size;
  bool split = is_small ? remaining >= PYTORCH_BLOCK_MINIMUM
                        : size < self->max_split && remaining > PYTORCH_SMALL_MAXIMUM;
  return pool_caching_hand_out(pool, block, size, requested, split, address);
}

static vmm_status bfc_free(policy *base, vmm_address address) {
  return pool_caching_free(&base->heap, address);
}

static vmm_status bfc_record_stream(policy *base, vmm_address address, vmm_stream stream) {
  return pool_heap_record_stream(&base->heap, address, stream);
}

static vmm_status bfc_trim(policy *base) { return release_cached((bfc *)base); }

static size_t bfc_counters(const policy *base, policy_counter *counters, size_t capacity) {
  const bfc *self = (const bfc *)base;
  const policy_counter all[] = {
      {"free_blocks_small_count", self->small.free.blocks},
      {"free_blocks_large_count", self->large.free.blocks},
      {"inactive_split_bytes", base->heap.statistics.inactive_split_bytes.current},
  };
  size_t count = sizeof all / sizeof *all;
  memcpy(counters, all, (count < capacity ? count : capacity) * sizeof *all);
  return count;
}

static uint64_t bfc_largest_free(const policy *base) {
  const bfc *self = (const bfc *)base;
  uint64_t small = pool_caching_largest_free(&self->small), large = pool_caching_largest_free(&self->large);
  return small > large ? small : large;
}

static void bfc_free_ranges(const policy *base, pool_range_visit *visit, void *context) {
  const bfc *self = (const bfc *)base;
  pool_free_set_visit(&self->small.free, visit, context);
  pool_free_set_visit(&self->large.free, visit, context);
}

static bool bfc_check(const policy *base, char *message, size_t message_size) {
  const bfc *self = (const bfc *)base;
  const pool_caching *pools[] = {&self->small, &self->large};
  return pool_caching_check(pools, 2, base->heap.statistics.reserved_bytes.current, message, message_size);
}

const policy_class bfc_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "bfc",
    .summary = "PyTorch's caching allocator: best fit with coalescing and splitting, to the byte",
    .options = options,
    .create = bfc_create,
    .destroy = bfc_destroy,
    .alloc = bfc_alloc,
    .free = bfc_free,
    .record_stream = bfc_record_stream,
    .trim = bfc_trim,
    .counters = bfc_counters,
    .largest_free = bfc_largest_free,
    .free_ranges = bfc_free_ranges,
    .check = bfc_check,
};
