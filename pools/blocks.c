#include "pools/blocks.h"

#include <stdlib.h>
#include <string.h>

static inline int compare(const pool_block *a, const pool_block *b) {
  if (a->size != b->size) return a->size < b->size ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

RB_PROTOTYPE(pool_block_tree, pool_block, by_size, compare)
RB_GENERATE(pool_block_tree, pool_block, by_size, compare)

vmm_status pool_free_set_prepare(pool_free_set *set, vmm_stream stream) {
  if (stream < set->streams) return VMM_SUCCESS;
  uint32_t streams = stream + 4;
  struct pool_block_tree *larger = realloc(set->by_stream, streams * sizeof *larger);
  if (!larger) return VMM_OUT_OF_MEMORY;
  for (uint32_t i = set->streams; i < streams; i++) RB_INIT(&larger[i]);
  set->by_stream = larger;
  set->streams = streams;
  return VMM_SUCCESS;
}

void pool_free_set_fini(pool_free_set *set) {
  free(set->by_stream);
  *set = (pool_free_set){0};
}

void pool_free_set_insert(pool_free_set *set, pool_block *block) {
  block->state = POOL_BLOCK_FREE;
  RB_INSERT(pool_block_tree, &set->by_stream[block->stream], block);
  set->blocks++;
  set->bytes += block->size;
}

void pool_free_set_remove(pool_free_set *set, pool_block *block) {
  RB_REMOVE(pool_block_tree, &set->by_stream[block->stream], block);
  set->blocks--;
  set->bytes -= block->size;
}

pool_block *pool_free_set_best_fit(const pool_free_set *set, vmm_stream stream, uint64_t size) {
  if (stream >= set->streams) return NULL;
  pool_block *best = NULL;
  for (pool_block *at = RB_ROOT(&set->by_stream[stream]); at;) {
    if (at->size >= size) {
      best = at;
      at = RB_LEFT(at, by_size);
    } else {
      at = RB_RIGHT(at, by_size);
    }
  }
  return best;
}

pool_block *pool_free_set_largest(const pool_free_set *set, vmm_stream stream) {
  return stream < set->streams ? RB_MAX(pool_block_tree, &set->by_stream[stream]) : NULL;
}

pool_block *pool_free_set_first(const pool_free_set *set, vmm_stream stream) {
  return stream < set->streams ? RB_MIN(pool_block_tree, &set->by_stream[stream]) : NULL;
}

pool_block *pool_free_set_next(pool_block *block) { return RB_NEXT(pool_block_tree, NULL, block); }
pool_block *pool_free_set_previous(pool_block *block) { return RB_PREV(pool_block_tree, NULL, block); }

void pool_free_set_visit(const pool_free_set *set, pool_range_visit *visit, void *context) {
  for (uint32_t stream = 0; stream < set->streams; stream++) {
    for (pool_block *block = pool_free_set_first(set, stream); block; block = pool_free_set_next(block))
      visit(context, block->size);
  }
}

void pool_block_split(pool_block *block, uint64_t size, pool_block *rest) {
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->order = block->order + size;
  rest->stream = block->stream;
  rest->backing = block->backing;
  rest->pool = block->pool;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next) rest->next->previous = rest;
  block->next = rest;
  block->size = size;
}

void pool_block_absorb(pool_block_store *store, pool_block *block, pool_block *neighbour) {
  if (neighbour == block->previous) {
    block->address = neighbour->address;
    block->order = neighbour->order;
    block->previous = neighbour->previous;
    if (block->previous) block->previous->next = block;
  } else {
    block->next = neighbour->next;
    if (block->next) block->next->previous = block;
  }
  block->size += neighbour->size;
  pool_block_delete(store, neighbour);
}
