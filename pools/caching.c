#include "pools/caching.h"

#include <inttypes.h>
#include <stdio.h>

void pool_caching_init(pool_caching *pool, pool_heap *heap, pool_block_store *store) {
  *pool = (pool_caching){.heap = heap, .store = store};
}

void pool_caching_fini(pool_caching *pool) { pool_free_set_fini(&pool->free); }

vmm_status pool_caching_grow(pool_caching *pool, uint64_t segment_size, vmm_stream stream,
                             pool_block **block) {
  if (pool_free_set_prepare(&pool->free, stream) != VMM_SUCCESS) return VMM_OUT_OF_MEMORY;
  pool_block *made = pool_block_new(pool->store);
  if (!made) return VMM_OUT_OF_MEMORY;
  pool_segment *segment;
  pool_operation_begin(pool->heap, POOL_OPERATION_GROW, segment_size);
  vmm_status status = pool_segment_allocate(pool->heap, segment_size, &segment);
  pool_operation_end(pool->heap);
  if (status != VMM_SUCCESS) {
    pool_block_delete(pool->store, made);
    return status;
  }
  made->address = segment->address;
  made->size = segment->size;
  made->order = pool->by_age ? pool_block_order(pool->segments_made++) : segment->address;
  made->stream = stream;
  made->state = POOL_BLOCK_LIVE;
  made->backing = segment;
  made->pool = pool;
  *block = made;
  return VMM_SUCCESS;
}

static void insert(pool_caching *pool, pool_block *block) {
  block->age_base = pool->lookups;
  pool_free_set_insert(&pool->free, block);
}

vmm_status pool_caching_hand_out(pool_caching *pool, pool_block *block, uint64_t size, uint64_t requested,
                                 bool split, vmm_address *address) {
  pool_statistics *statistics = &pool->heap->statistics;
  pool_block *rest = split ? pool_block_new(pool->store) : NULL;
  vmm_status status = split && !rest
                          ? VMM_OUT_OF_MEMORY
                          : pool_heap_hand_out(pool->heap, block->address, split ? size : block->size,
                                               requested, block->stream, block);
  if (status != VMM_SUCCESS) {
    if (rest) pool_block_delete(pool->store, rest);
    if (block->state != POOL_BLOCK_FREE) insert(pool, block);
    return status;
  }
  if (block->state == POOL_BLOCK_FREE) pool_free_set_remove(&pool->free, block);
  bool was_split = pool_block_is_split(block);
  if (split) {
    pool_block_split(block, size, rest);
    insert(pool, rest);
  }
  if (pool->expandable) {
    /* PyTorch leaves these counters alone. */
  } else if (split) {
    if (was_split) {
      pool_statistic_take(&statistics->inactive_split_bytes, block->size);
    } else {
      pool_statistic_add(&statistics->inactive_split_bytes, rest->size);
      pool_statistic_add(&statistics->inactive_split, 1);
    }
  } else if (was_split) {
    pool_statistic_take(&statistics->inactive_split_bytes, block->size);
    pool_statistic_take(&statistics->inactive_split, 1);
  }
  block->state = POOL_BLOCK_LIVE;
  *address = block->address;
  return VMM_SUCCESS;
}

void pool_caching_take_back(pool_caching *pool, pool_block *block) {
  pool_statistics *statistics = &pool->heap->statistics;
  pool_block *neighbours[2] = {block->previous, block->next};
  for (int i = 0; i < 2; i++) {
    pool_block *neighbour = neighbours[i];
    if (!neighbour || neighbour->state != POOL_BLOCK_FREE) continue;
    pool_free_set_remove(&pool->free, neighbour);
    if (!pool->expandable) {
      pool_statistic_take(&statistics->inactive_split, 1);
      pool_statistic_take(&statistics->inactive_split_bytes, neighbour->size);
    }
    pool_block_absorb(pool->store, block, neighbour);
  }
  if (pool_block_is_split(block) && !pool->expandable) {
    pool_statistic_add(&statistics->inactive_split, 1);
    pool_statistic_add(&statistics->inactive_split_bytes, block->size);
  }
  insert(pool, block);
}

vmm_status pool_caching_free(pool_heap *heap, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  vmm_status status;
  if (pool_heap_take_back(heap, allocation, &taken, &status)) {
    pool_block *block = taken.owner;
    pool_caching_take_back(block->pool, block);
  }
  return status;
}

void pool_caching_take_back_complete(pool_heap *heap, bool wait) {
  pool_allocation taken;
  while (pool_heap_next_complete(heap, wait, &taken)) {
    pool_block *block = taken.owner;
    pool_caching_take_back(block->pool, block);
  }
}

vmm_status pool_caching_release(pool_caching *pool, pool_block *block) {
  vmm_status status = pool_segment_free(pool->heap, block->backing);
  if (status != VMM_SUCCESS) return status;
  pool_free_set_remove(&pool->free, block);
  pool_block_delete(pool->store, block);
  return VMM_SUCCESS;
}

vmm_status pool_caching_release_all(pool_caching *pool) {
  vmm_status first = VMM_SUCCESS;
  for (uint32_t stream = 0; stream < pool->free.streams; stream++) {
    for (pool_block *block = pool_free_set_first(&pool->free, stream), *next; block; block = next) {
      next = pool_free_set_next(block);
      if (pool_block_is_split(block)) continue;
      vmm_status status = pool_caching_release(pool, block);
      if (first == VMM_SUCCESS) first = status;
    }
  }
  return first;
}

uint64_t pool_caching_largest_free(const pool_caching *pool) {
  uint64_t largest = 0;
  for (uint32_t stream = 0; stream < pool->free.streams; stream++) {
    const pool_block *block = pool_free_set_largest(&pool->free, stream);
    if (block && block->size > largest) largest = block->size;
  }
  return largest;
}

bool pool_caching_check(const pool_caching *const *pools, size_t count, uint64_t segment_bytes, char *message,
                        size_t message_size) {
  uint64_t free_bytes = 0, split_blocks = 0, split_bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const pool_free_set *set = &pools[i]->free;
    uint64_t blocks = 0, bytes = 0;
    for (uint32_t stream = 0; stream < set->streams; stream++) {
      for (pool_block *block = pool_free_set_first(set, stream); block; block = pool_free_set_next(block)) {
        blocks++;
        bytes += block->size;
        if (pool_block_is_split(block) && !pools[i]->expandable) {
          split_blocks++;
          split_bytes += block->size;
        }
        const pool_block *next = block->next;
        if (block->state != POOL_BLOCK_FREE || block->stream != stream || block->pool != pools[i] ||
            (next && (next->address != block->address + block->size || next->previous != block ||
                      next->backing != block->backing || next->state == POOL_BLOCK_FREE)) ||
            (block->previous && block->previous->state == POOL_BLOCK_FREE)) {
          snprintf(message, message_size,
                   "free block 0x%" PRIx64 " of %" PRIu64 " bytes does not fit its neighbours",
                   block->address, block->size);
          return false;
        }
      }
    }
    if (blocks != set->blocks || bytes != set->bytes) {
      snprintf(message, message_size,
               "a free set counts %" PRIu64 " blocks, %" PRIu64 " bytes and holds %" PRIu64 ", %" PRIu64,
               set->blocks, set->bytes, blocks, bytes);
      return false;
    }
    free_bytes += bytes;
  }
  const pool_statistics *statistics = &pools[0]->heap->statistics;
  if (split_blocks != statistics->inactive_split.current ||
      split_bytes != statistics->inactive_split_bytes.current) {
    snprintf(message, message_size,
             "inactive split says %" PRIu64 " blocks, %" PRIu64 " bytes; there are %" PRIu64 ", %" PRIu64,
             statistics->inactive_split.current, statistics->inactive_split_bytes.current, split_blocks,
             split_bytes);
    return false;
  }
  uint64_t handed_out = 0;
  const pool_allocation_map *map = &pools[0]->heap->allocations;
  for (uint64_t i = 0; i < map->capacity; i++) {
    if (map->entries[i].address == 0) continue;
    const pool_block *block = map->entries[i].owner;
    for (size_t k = 0; k < count; k++) {
      if (block->pool == pools[k]) handed_out += map->entries[i].size;
    }
  }
  if (free_bytes + handed_out != segment_bytes) {
    snprintf(message, message_size,
             "%" PRIu64 " free and %" PRIu64 " handed-out bytes do not make up segments of %" PRIu64,
             free_bytes, handed_out, segment_bytes);
    return false;
  }
  return true;
}
