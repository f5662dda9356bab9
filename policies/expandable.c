/* PyTorch's caching allocator with expandable segments, to the byte: one long
 * reservation per stream and pool, pages mapped at its end as it grows, unmapped only
 * when the cache is emptied.
 *
 * Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11: ExpandableSegment,
 * try_allocate_expandable_block, find_expandable_block, map_block, unmap_block. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/policy.h"
#include "policies/pytorch_rounding.h"
#include "pools/caching.h"

enum { OPTION_MAX_SPLIT, OPTION_OVERSIZE_RULE, OPTION_ROUNDUP, OPTION_LARGE_SEGMENT, OPTION_MAX_NON_SPLIT };

static const policy_option options[] = {
    {"max_split_size_mb", POLICY_OPTION_INTEGER, "unlimited", 20, 1e9, NULL, "MiB",
     "PyTorch's bound on splitting; without effect on expandable segments unless oversize_rule=pytorch"},
    {"oversize_rule", POLICY_OPTION_CHOICE, "off", 0, 0, "off|pytorch", "",
     "pytorch: keep free blocks of max_split_size_mb and more for requests as large, which lets reserved "
     "memory "
     "grow without bound (pytorch#193400)"},
    {"roundup_power2_divisions", POLICY_OPTION_TEXT, "0", 0, 0, NULL, "",
     "round requests up to so many steps between powers of two: N, or [256:1,512:2,>:8] with keys in MiB"},
    {"large_segment_size_mb", POLICY_OPTION_INTEGER, "20", 11, 1e6, NULL, "MiB",
     "page of the large pool; an even number of MiB"},
    {"max_non_split_rounding_mb", POLICY_OPTION_INTEGER, "20", 1, 1e9, NULL, "MiB",
     "slack allowed when oversize_rule=pytorch reuses a block"},
    {0},
};

/* Addresses without memory, one list a stream in ascending order. */
typedef struct unmapped_lists {
  pool_block **first; /* linked by by_size.rbe_left, which a block in no free set does not use */
  uint32_t streams;
} unmapped_lists;

typedef struct segment_pool {
  pool_caching caching;
  unmapped_lists unmapped;
  uint64_t page;
} segment_pool;

typedef struct expandable {
  policy base;
  pool_block_store blocks;
  segment_pool small, large;
  pytorch_rounding rounding;
  uint64_t max_split;
  uint64_t max_non_split_slack;
  uint64_t device_bytes;
} expandable;

static vmm_status expandable_create(const policy_configuration *configuration, policy **created,
                                    char *message, size_t message_size) {
  expandable *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  const policy_value *values = configuration->values;
  pool_heap *heap = &self->base.heap;
  uint64_t max_split = values[OPTION_MAX_SPLIT].integer, free_bytes;
  self->max_split =
      values[OPTION_OVERSIZE_RULE].integer == 0 || max_split == UINT64_MAX ? UINT64_MAX : max_split << 20;
  self->max_non_split_slack = values[OPTION_MAX_NON_SPLIT].integer << 20;
  self->rounding.large_segment = values[OPTION_LARGE_SEGMENT].integer << 20;
  self->small.page = PYTORCH_SMALL_SEGMENT;
  self->large.page = self->rounding.large_segment;
  vmm_status status = pool_heap_init(heap, configuration->driver, true, configuration->limit);
  if (status == VMM_SUCCESS) status = vmm_memory_info(heap->driver, &free_bytes, &self->device_bytes);
  if (status == VMM_SUCCESS &&
      (self->small.page % heap->granularity != 0 || self->large.page % heap->granularity != 0)) {
    snprintf(message, message_size,
             "policy expandable: pages of %" PRIu64 " and %" PRIu64
             " bytes are no multiples of the device's granularity of %" PRIu64,
             self->small.page, self->large.page, heap->granularity);
    status = VMM_INVALID_VALUE;
  } else if (status == VMM_SUCCESS && max_split << 20 < self->rounding.large_segment &&
             max_split != UINT64_MAX) {
    snprintf(message, message_size,
             "policy expandable: max_split_size_mb=%" PRIu64
             " must not be below large_segment_size_mb=%" PRIu64,
             max_split, values[OPTION_LARGE_SEGMENT].integer);
    status = VMM_INVALID_VALUE;
  } else if (status == VMM_SUCCESS && !pytorch_rounding_parse(&self->rounding, values[OPTION_ROUNDUP].text)) {
    snprintf(message, message_size, "policy expandable: roundup_power2_divisions=%s: expected %s",
             values[OPTION_ROUNDUP].text, PYTORCH_ROUNDUP_EXPECTED);
    status = VMM_INVALID_VALUE;
  }
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  heap->limit_is_policys = true;
  pool_caching_init(&self->small.caching, heap, &self->blocks);
  pool_caching_init(&self->large.caching, heap, &self->blocks);
  self->small.caching.expandable = true;
  self->large.caching.expandable = true;
  *created = &self->base;
  return VMM_SUCCESS;
}

static void expandable_destroy(policy *base) {
  expandable *self = (expandable *)base;
  pool_heap_fini(&base->heap);
  pool_caching_fini(&self->small.caching);
  pool_caching_fini(&self->large.caching);
  free(self->small.unmapped.first);
  free(self->large.unmapped.first);
  pool_block_store_fini(&self->blocks);
  free(self);
}

/* ---- addresses without memory ---- */

static pool_block **unmapped_link(pool_block *block) { return &block->by_size.rbe_left; }

static vmm_status unmapped_prepare(unmapped_lists *lists, vmm_stream stream) {
  if (stream < lists->streams) return VMM_SUCCESS;
  uint32_t streams = stream + 4;
  pool_block **first = realloc(lists->first, streams * sizeof *first);
  if (!first) return VMM_OUT_OF_MEMORY;
  memset(first + lists->streams, 0, (streams - lists->streams) * sizeof *first);
  lists->first = first;
  lists->streams = streams;
  return VMM_SUCCESS;
}

static void unmapped_insert(unmapped_lists *lists, pool_block *block) {
  pool_block **link = &lists->first[block->stream];
  while (*link && (*link)->address < block->address) link = unmapped_link(*link);
  *unmapped_link(block) = *link;
  *link = block;
  block->state = POOL_BLOCK_UNMAPPED;
}

static void unmapped_remove(unmapped_lists *lists, pool_block *block) {
  pool_block **link = &lists->first[block->stream];
  while (*link != block) link = unmapped_link(*link);
  *link = *unmapped_link(block);
}

/* ---- growing ---- */

/* 9/8 of the device's memory, as one unmapped block. */
static vmm_status reserve_segment(expandable *self, segment_pool *pool, vmm_stream stream,
                                  pool_block **made) {
  uint64_t wanted = self->device_bytes + self->device_bytes / 8;
  uint64_t size = (wanted + pool->page - 1) / pool->page * pool->page;
  pool_block *block = pool_block_new(&self->blocks);
  if (!block) return VMM_OUT_OF_MEMORY;
  pool_range *range;
  vmm_status status = pool_range_reserve(&self->base.heap, size, pool->page, &range);
  if (status != VMM_SUCCESS) {
    pool_block_delete(&self->blocks, block);
    return status;
  }
  block->address = range->address;
  block->order = range->address;
  block->size = size;
  block->stream = stream;
  block->backing = range;
  block->pool = &pool->caching;
  unmapped_insert(&pool->unmapped, block);
  *made = block;
  return VMM_SUCCESS;
}

static bool is_available(const pool_block *block) { return block->state != POOL_BLOCK_LIVE; }

/* The block from which a run of free and unmapped neighbours reaches size; a new segment if there is none. */
static vmm_status find_run(expandable *self, segment_pool *pool, uint64_t size, vmm_stream stream,
                           pool_block **found) {
  for (pool_block *unmapped = pool->unmapped.first[stream]; unmapped; unmapped = *unmapped_link(unmapped)) {
    pool_block *start =
        unmapped->previous && is_available(unmapped->previous) ? unmapped->previous : unmapped;
    uint64_t run = 0;
    for (const pool_block *block = start; block && is_available(block) && run < size; block = block->next)
      run += block->size;
    if (run >= size) {
      *found = start;
      return VMM_SUCCESS;
    }
  }
  return reserve_segment(self, pool, stream, found);
}

/* Maps whole pages over the first wanted bytes of an unmapped block and merges it with its
 * free neighbours. *mapped is the free block that came of it. */
static vmm_status map_pages(expandable *self, segment_pool *pool, pool_block *block, uint64_t wanted,
                            pool_block **mapped) {
  pool_heap *heap = &self->base.heap;
  pool_range *range = block->backing;
  uint64_t count = (wanted + pool->page - 1) / pool->page, size = count * pool->page;
  pool_chunk **chunks = malloc(count * sizeof *chunks);
  pool_block *rest = size < block->size ? pool_block_new(&self->blocks) : NULL;
  vmm_status status = chunks && (rest || size == block->size) ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  pool_operation_begin(heap, POOL_OPERATION_GROW, size);
  if (status == VMM_SUCCESS) status = pool_chunks_create(heap, pool->page, count, range, chunks);
  if (status == VMM_SUCCESS) {
    status = pool_range_map(heap, range, block->address - range->address, chunks, count);
    for (uint64_t i = 0; status != VMM_SUCCESS && i < count; i++) pool_chunk_give_up(heap, chunks[i]);
  }
  pool_operation_end(heap);
  free(chunks);
  if (status != VMM_SUCCESS) {
    if (rest) pool_block_delete(&self->blocks, rest);
    return status;
  }
  unmapped_remove(&pool->unmapped, block);
  if (rest) {
    pool_block_split(block, size, rest);
    unmapped_insert(&pool->unmapped, rest);
  }
  pool_caching_take_back(&pool->caching, block);
  *mapped = block;
  return VMM_SUCCESS;
}

/* PyTorch's alloc_block: pages that were mapped before a failure stay, as free memory. */
static vmm_status grow(expandable *self, segment_pool *pool, uint64_t size, vmm_stream stream,
                       pool_block **block) {
  if (!pool_heap_within_limit(&self->base.heap, pytorch_segment_size(&self->rounding, size)))
    return VMM_OUT_OF_MEMORY;
  pool_block *run = NULL;
  vmm_status status = unmapped_prepare(&pool->unmapped, stream);
  if (status == VMM_SUCCESS) status = pool_free_set_prepare(&pool->caching.free, stream);
  if (status == VMM_SUCCESS) status = find_run(self, pool, size, stream, &run);
  if (status == VMM_SUCCESS && run->state == POOL_BLOCK_UNMAPPED) {
    status = map_pages(self, pool, run, run->size < size ? run->size : size, &run);
  }
  while (status == VMM_SUCCESS && run->size < size) {
    pool_block *next = run->next;
    uint64_t missing = size - run->size;
    status = map_pages(self, pool, next, next->size < missing ? next->size : missing, &run);
  }
  *block = run;
  return status;
}

/* ---- returning ---- */

/* Unmaps the whole pages inside a free block; what is left at its ends stays free. The
 * device is done with them. */
static vmm_status unmap_pages(expandable *self, segment_pool *pool, pool_block *block) {
  pool_heap *heap = &self->base.heap;
  pool_range *range = block->backing;
  uint64_t begin = block->address - range->address, end = begin + block->size;
  uint64_t first = (begin + pool->page - 1) / pool->page, last = end / pool->page;
  if (first >= last) return VMM_SUCCESS;
  uint64_t offset = first * pool->page, size = (last - first) * pool->page;
  pool_block *before = offset > begin ? pool_block_new(&self->blocks) : NULL;
  pool_block *after = offset + size < end ? pool_block_new(&self->blocks) : NULL;
  pool_chunk **chunks = malloc((last - first) * sizeof *chunks);
  vmm_status status = chunks && (before || offset == begin) && (after || offset + size == end)
                          ? VMM_SUCCESS
                          : VMM_OUT_OF_MEMORY;
  for (uint64_t i = first; status == VMM_SUCCESS && i < last; i++) chunks[i - first] = range->slots[i].chunk;
  if (status == VMM_SUCCESS) status = pool_range_unmap(heap, range, offset, size);
  if (status != VMM_SUCCESS) {
    if (before) pool_block_delete(&self->blocks, before);
    if (after) pool_block_delete(&self->blocks, after);
    free(chunks);
    return status;
  }
  for (uint64_t i = 0; i < last - first; i++) {
    vmm_status released = pool_chunk_give_up(heap, chunks[i]);
    if (status == VMM_SUCCESS) status = released;
  }
  free(chunks);
  heap->statistics.driver_frees++;
  pool_free_set_remove(&pool->caching.free, block);
  if (after) {
    pool_block_split(block, block->size - (end - offset - size), after);
    pool_free_set_insert(&pool->caching.free, after);
  }
  if (before) {
    pool_block_split(block, offset - begin, before);
    pool_block *whole_pages = before;
    before = block;
    block = whole_pages;
    pool_free_set_insert(&pool->caching.free, before);
  }
  pool_block *neighbours[2] = {block->previous, block->next};
  for (int i = 0; i < 2; i++) {
    if (!neighbours[i] || neighbours[i]->state != POOL_BLOCK_UNMAPPED) continue;
    unmapped_remove(&pool->unmapped, neighbours[i]);
    pool_block_absorb(&self->blocks, block, neighbours[i]);
  }
  if (pool_block_is_split(block) || pool_range_free(heap, range) != VMM_SUCCESS) {
    unmapped_insert(&pool->unmapped, block);
  } else {
    pool_block_delete(&self->blocks, block);
  }
  return status;
}

static vmm_status release_pool(expandable *self, segment_pool *pool) {
  vmm_status first = VMM_SUCCESS;
  uint64_t count = 0;
  pool_block **blocks = malloc((pool->caching.free.blocks + 1) * sizeof *blocks);
  if (!blocks) return VMM_OUT_OF_MEMORY;
  for (uint32_t stream = 0; stream < pool->caching.free.streams; stream++) {
    for (pool_block *block = pool_free_set_first(&pool->caching.free, stream); block;
         block = pool_free_set_next(block)) {
      blocks[count++] = block;
    }
  }
  for (uint64_t i = 0; i < count; i++) {
    vmm_status status = unmap_pages(self, pool, blocks[i]);
    if (first == VMM_SUCCESS) first = status;
  }
  free(blocks);
  return first;
}

static vmm_status release_cached(expandable *self) {
  pool_caching_take_back_complete(&self->base.heap, true);
  self->base.heap.statistics.host_waits++;
  vmm_status status = vmm_synchronize(self->base.heap.driver);
  if (status != VMM_SUCCESS) return status;
  vmm_status large = release_pool(self, &self->large), small = release_pool(self, &self->small);
  return large != VMM_SUCCESS ? large : small;
}

/* ---- alloc and free ---- */

/* The size a free block could grow to. */
static uint64_t potential(const pool_block *block) {
  return block->size + (block->next && block->next->state == POOL_BLOCK_UNMAPPED ? block->next->size : 0);
}

/* Best fit, but rather a hole than the tail that the unmapped rest follows: the first local
 * minimum of the potential size. */
static pool_block *find_free(expandable *self, segment_pool *pool, uint64_t size, vmm_stream stream) {
  pool_block *block = pool_free_set_best_fit(&pool->caching.free, stream, size);
  if (!block) return NULL;
  for (pool_block *next; (next = pool_free_set_next(block)) && potential(next) < potential(block);)
    block = next;
  if (size < self->max_split && block->size >= self->max_split) return NULL;
  if (size >= self->max_split && block->size >= size + self->max_non_split_slack) return NULL;
  return block;
}

static vmm_status expandable_alloc(policy *base, uint64_t requested, vmm_stream stream,
                                   vmm_address *address) {
  expandable *self = (expandable *)base;
  pool_caching_take_back_complete(&self->base.heap, false);
  uint64_t size = pytorch_round(&self->rounding, requested);
  segment_pool *pool = size <= PYTORCH_SMALL_MAXIMUM ? &self->small : &self->large;
  pool_block *block = find_free(self, pool, size, stream);
  if (!block) {
    vmm_status status = grow(self, pool, size, stream, &block);
    if (status == VMM_OUT_OF_MEMORY) {
      release_cached(self);
      base->heap.statistics.retries++;
      status = grow(self, pool, size, stream, &block);
    }
    if (status != VMM_SUCCESS) return status;
  }
  bool split = block->size - size >= PYTORCH_BLOCK_MINIMUM;
  return pool_caching_hand_out(&pool->caching, block, size, requested, split, address);
}

static vmm_status expandable_free(policy *base, vmm_address address) {
  return pool_caching_free(&base->heap, address);
}

static vmm_status expandable_record_stream(policy *base, vmm_address address, vmm_stream stream) {
  return pool_heap_record_stream(&base->heap, address, stream);
}

static vmm_status expandable_trim(policy *base) { return release_cached((expandable *)base); }

static size_t expandable_counters(const policy *base, policy_counter *counters, size_t capacity) {
  const expandable *self = (const expandable *)base;
  const policy_counter all[] = {
      {"free_blocks_small_count", self->small.caching.free.blocks},
      {"free_blocks_large_count", self->large.caching.free.blocks},
      {"reservations_count", base->heap.range_count},
      {"reserved_address_bytes", base->heap.reserved_address_bytes},
  };
  size_t count = sizeof all / sizeof *all;
  memcpy(counters, all, (count < capacity ? count : capacity) * sizeof *all);
  return count;
}

static uint64_t expandable_largest_free(const policy *base) {
  const expandable *self = (const expandable *)base;
  uint64_t small = pool_caching_largest_free(&self->small.caching),
           large = pool_caching_largest_free(&self->large.caching);
  return small > large ? small : large;
}

static void expandable_free_ranges(const policy *base, pool_range_visit *visit, void *context) {
  const expandable *self = (const expandable *)base;
  pool_free_set_visit(&self->small.caching.free, visit, context);
  pool_free_set_visit(&self->large.caching.free, visit, context);
}

static bool expandable_check(const policy *base, char *message, size_t message_size) {
  const expandable *self = (const expandable *)base;
  const pool_caching *pools[] = {&self->small.caching, &self->large.caching};
  const uint64_t mapped = base->heap.statistics.reserved_bytes.current - base->heap.stranded_bytes;
  if (!pool_caching_check(pools, 2, mapped, message, message_size)) return false;
  const segment_pool *both[] = {&self->small, &self->large};
  uint64_t unmapped = 0;
  for (int i = 0; i < 2; i++) {
    for (uint32_t stream = 0; stream < both[i]->unmapped.streams; stream++) {
      for (pool_block *block = both[i]->unmapped.first[stream]; block; block = *unmapped_link(block)) {
        unmapped += block->size;
        const pool_range *range = block->backing;
        const pool_slot *slot = &range->slots[(block->address - range->address) / range->unit];
        if (block->state == POOL_BLOCK_UNMAPPED && !slot->chunk &&
            (!block->next || block->next->state != POOL_BLOCK_UNMAPPED))
          continue;
        snprintf(message, message_size, "unmapped block 0x%" PRIx64 " is mapped or not merged",
                 block->address);
        return false;
      }
    }
  }
  if (unmapped + mapped == base->heap.reserved_address_bytes) return true;
  snprintf(message, message_size,
           "%" PRIu64 " unmapped and %" PRIu64 " mapped bytes do not make up reservations of %" PRIu64,
           unmapped, mapped, base->heap.reserved_address_bytes);
  return false;
}

const policy_class expandable_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "expandable",
    .summary = "PyTorch's caching allocator with expandable segments, to the byte",
    .capabilities = POLICY_NEEDS_VMM,
    .options = options,
    .create = expandable_create,
    .destroy = expandable_destroy,
    .alloc = expandable_alloc,
    .free = expandable_free,
    .record_stream = expandable_record_stream,
    .trim = expandable_trim,
    .counters = expandable_counters,
    .largest_free = expandable_largest_free,
    .free_ranges = expandable_free_ranges,
    .check = expandable_check,
};
