/* pBlocks of variant=published. */
#include <stdlib.h>

#include "policies/gmlake_published.h"

static inline int compare(const published_block *a, const published_block *b) {
  return a->base.address < b->base.address ? -1 : a->base.address > b->base.address;
}

RB_PROTOTYPE(published_address_tree, published_block, by_address, compare)
RB_GENERATE(published_address_tree, published_block, by_address, compare)

bool published_reserve_chunks(published *self, uint64_t count) {
  if (count <= self->chunk_capacity) return true;
  uint64_t capacity = count + count / 2;
  pool_chunk **larger = realloc(self->chunks, capacity * sizeof(pool_chunk *));
  if (!larger) return false;
  self->chunks = larger;
  self->chunk_capacity = capacity;
  return true;
}

published_block *published_block_at(published *self, vmm_address address) {
  published_block key = {.base = {.address = address}};
  published_block *block = RB_NFIND(published_address_tree, &self->blocks, &key);
  if (block && block->base.address == address) return block;
  return block ? RB_PREV(published_address_tree, &self->blocks, block)
               : RB_MAX(published_address_tree, &self->blocks);
}

published_block *published_first_block(published *self) {
  return RB_MIN(published_address_tree, &self->blocks);
}

published_block *published_next_block(published_block *block) {
  return RB_NEXT(published_address_tree, NULL, block);
}

vmm_status published_grow(published *self, uint64_t size, vmm_stream stream, published_block **made) {
  pool_heap *heap = &self->base.base.heap;
  const uint64_t chunk = self->settings.chunk, count = size / chunk;
  if (!pool_heap_within_limit(heap, size)) return VMM_OUT_OF_MEMORY;
  published_block *block = calloc(1, sizeof *block);
  if (!block || !published_reserve_chunks(self, count)) {
    free(block);
    return VMM_OUT_OF_MEMORY;
  }
  pool_range *range;
  pool_operation_begin(heap, POOL_OPERATION_GROW, size);
  vmm_status status = pool_range_reserve(heap, size, chunk, &range);
  if (status == VMM_SUCCESS) {
    status = pool_chunks_create(heap, chunk, count, block, self->chunks);
    if (status == VMM_SUCCESS) {
      status = pool_range_map(heap, range, 0, self->chunks, count);
      for (uint64_t i = 0; status != VMM_SUCCESS && i < count; i++) pool_chunk_give_up(heap, self->chunks[i]);
    }
    if (status != VMM_SUCCESS) pool_range_free(heap, range);
  }
  pool_operation_end(heap);
  if (status != VMM_SUCCESS) {
    free(block);
    return status;
  }
  for (uint64_t i = 0; i < count; i++) self->chunks[i]->owner = range;
  block->base = (pool_block){.address = range->address,
                             .size = size,
                             .order = pool_block_order(self->blocks_made++),
                             .stream = stream,
                             .state = POOL_BLOCK_LIVE,
                             .backing = range,
                             .pool = &self->free};
  RB_INSERT(published_address_tree, &self->blocks, block);
  self->pblock_bytes += size;
  *made = block;
  return VMM_SUCCESS;
}

vmm_status published_give_back(published *self, published_block *block) {
  pool_heap *heap = &self->base.base.heap;
  pool_range *range = block->base.backing;
  const uint64_t count = block->base.size / range->unit;
  vmm_status status = published_reserve_chunks(self, count) ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) {
    for (uint64_t i = 0; i < count; i++) self->chunks[i] = range->slots[i].chunk;
    status = pool_range_unmap(heap, range, 0, range->size);
  }
  if (status != VMM_SUCCESS) {
    pool_free_set_insert(&self->free, &block->base);
    return status;
  }
  for (uint64_t i = 0; i < count; i++) {
    vmm_status released = pool_chunk_give_up(heap, self->chunks[i]);
    if (status == VMM_SUCCESS) status = released;
  }
  vmm_status freed = pool_range_free(heap, range);
  heap->statistics.driver_frees++;
  self->pblock_bytes -= block->base.size;
  RB_REMOVE(published_address_tree, &self->blocks, block);
  free(block);
  return status == VMM_SUCCESS ? freed : status;
}

vmm_status published_split(published *self, published_block *block, uint64_t size) {
  published_block *rest = calloc(1, sizeof *rest);
  if (!rest) return VMM_OUT_OF_MEMORY;
  pool_operation_begin(&self->base.base.heap, self->base.split_operation, size);
  const bool free = block->base.state == POOL_BLOCK_FREE;
  if (free) pool_free_set_remove(&self->free, &block->base);
  rest->base.stream = block->base.stream;
  rest->base.state = block->base.state;
  rest->base.backing = block->base.backing;
  rest->base.pool = block->base.pool;
  pool_block_split(&block->base, size, &rest->base);
  RB_INSERT(published_address_tree, &self->blocks, rest);
  if (free) {
    pool_free_set_insert(&self->free, &block->base);
    pool_free_set_insert(&self->free, &rest->base);
  }
  pool_operation_end(&self->base.base.heap);
  return VMM_SUCCESS;
}

/* Takes the block after this one into it. */
static void absorb_next(published *self, published_block *block) {
  published_block *next = (published_block *)block->base.next;
  block->base.size += next->base.size;
  block->base.next = next->base.next;
  if (next->base.next) next->base.next->previous = &block->base;
  RB_REMOVE(published_address_tree, &self->blocks, next);
  free(next);
}

static bool is_free(const pool_block *block) { return block && block->state == POOL_BLOCK_FREE; }

void published_release(published *self, published_block *block) {
  published_wake_watchers(self, block);
  if (is_free(block->base.next)) {
    pool_free_set_remove(&self->free, block->base.next);
    absorb_next(self, block);
  }
  if (is_free(block->base.previous)) {
    block = (published_block *)block->base.previous;
    pool_free_set_remove(&self->free, &block->base);
    absorb_next(self, block);
  }
  pool_free_set_insert(&self->free, &block->base);
}

vmm_status published_activate(published *self, vmm_address begin, vmm_address end) {
  for (vmm_address at = begin; at < end;) {
    published_block *block = published_block_at(self, at);
    vmm_status status = VMM_SUCCESS;
    if (block->base.address < at) {
      status = published_split(self, block, at - block->base.address);
      block = (published_block *)block->base.next;
    }
    if (status == VMM_SUCCESS && block->base.address + block->base.size > end) {
      status = published_split(self, block, end - at);
    }
    if (status != VMM_SUCCESS) {
      published_deactivate(self, begin, at);
      return status;
    }
    pool_free_set_remove(&self->free, &block->base);
    block->base.state = POOL_BLOCK_LIVE;
    at += block->base.size;
  }
  return VMM_SUCCESS;
}

void published_deactivate(published *self, vmm_address begin, vmm_address end) {
  for (vmm_address at = begin; at < end;) {
    published_block *block = published_block_at(self, at);
    at = block->base.address + block->base.size;
    if (block->base.state != POOL_BLOCK_FREE) published_release(self, block);
  }
}

void published_forget_blocks(published *self) {
  for (published_block *block; (block = RB_ROOT(&self->blocks));) {
    RB_REMOVE(published_address_tree, &self->blocks, block);
    free(block);
  }
}
