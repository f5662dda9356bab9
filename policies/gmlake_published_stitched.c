/* sBlocks of variant=published. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "policies/gmlake_published.h"

static inline int compare(const published_stitched *a, const published_stitched *b) {
  if (a->base.stream != b->base.stream) return a->base.stream < b->base.stream ? -1 : 1;
  if (a->base.size != b->base.size) return a->base.size < b->base.size ? -1 : 1;
  return a->base.address < b->base.address ? -1 : a->base.address > b->base.address;
}

RB_PROTOTYPE(published_size_tree, published_stitched, by_size, compare)
RB_GENERATE(published_size_tree, published_stitched, by_size, compare)
RB_PROTOTYPE(published_free_tree, published_stitched, by_size_free, compare)
RB_GENERATE(published_free_tree, published_stitched, by_size_free, compare)

/* ---- the list by age ---- */

static void list_append(published *self, published_stitched *stitched) {
  stitched->older = self->newest;
  stitched->newer = NULL;
  if (self->newest)
    self->newest->newer = stitched;
  else
    self->oldest = stitched;
  self->newest = stitched;
}

static void list_remove(published *self, published_stitched *stitched) {
  if (stitched->older)
    stitched->older->newer = stitched->newer;
  else
    self->oldest = stitched->newer;
  if (stitched->newer)
    stitched->newer->older = stitched->older;
  else
    self->newest = stitched->older;
}

/* ---- Stitch ---- */

/* How many of the largest free pBlocks make up size bytes; 0 if all together do not. *last: of the last one,
 * what is needed. */
static uint32_t count_candidates(const published *self, uint64_t size, vmm_stream stream, uint64_t *last) {
  uint32_t count = 0;
  if (stream >= self->free.streams) return 0;
  for (pool_block *block = pool_free_set_largest(&self->free, stream); block;
       block = pool_free_set_previous(block)) {
    count++;
    *last = block->size < size ? block->size : size;
    size -= *last;
    if (size == 0) return count;
  }
  return 0;
}

static vmm_status map_extents(published *self, published_stitched *stitched) {
  pool_heap *heap = &self->base.base.heap;
  const uint64_t chunk = self->settings.chunk, size = stitched->base.size;
  if (!published_reserve_chunks(self, size / chunk)) return VMM_OUT_OF_MEMORY;
  uint64_t count = 0;
  for (uint32_t i = 0; i < stitched->extent_count; i++) {
    const published_extent *extent = &stitched->extents[i];
    const pool_range *home = published_block_at(self, extent->begin)->base.backing;
    const pool_slot *slot = gmlake_slot(home, extent->begin);
    for (uint64_t k = 0; k < (extent->end - extent->begin) / chunk; k++)
      self->chunks[count++] = slot[k].chunk;
  }
  pool_range *range;
  vmm_status status = pool_range_reserve(heap, size, chunk, &range);
  if (status != VMM_SUCCESS) return status;
  status = pool_range_map(heap, range, 0, self->chunks, count);
  if (status != VMM_SUCCESS) {
    pool_range_free(heap, range);
    return status;
  }
  stitched->base.address = range->address;
  stitched->base.backing = range;
  return VMM_SUCCESS;
}

vmm_status published_stitch(published *self, uint64_t size, vmm_stream stream, published_stitched **made) {
  uint64_t last = 0;
  const uint32_t count = count_candidates(self, size, stream, &last);
  if (count < 2) return VMM_OUT_OF_MEMORY;
  published_stitched *stitched = calloc(1, sizeof *stitched + count * sizeof *stitched->extents);
  if (!stitched) return VMM_OUT_OF_MEMORY;
  stitched->base = (pool_block){.size = size, .stream = stream, .pool = &self->stitched};
  pool_block *block = pool_free_set_largest(&self->free, stream);
  for (; stitched->extent_count < count; block = pool_free_set_previous(block)) {
    const bool is_last = stitched->extent_count + 1 == count;
    stitched->extents[stitched->extent_count++] =
        (published_extent){block->address, block->address + (is_last ? last : block->size)};
  }
  pool_operation_begin(&self->base.base.heap, self->base.stitch_operation, size);
  vmm_status status;
  do {
    status = map_extents(self, stitched);
  } while (status == VMM_OUT_OF_MEMORY && published_drop_idle(self));
  pool_operation_end(&self->base.base.heap);
  if (status != VMM_SUCCESS) {
    free(stitched);
    return status;
  }
  RB_INSERT(published_size_tree, &self->stitched, stitched);
  RB_INSERT(published_free_tree, &self->may_be_free, stitched);
  list_append(self, stitched);
  self->stitched_count++;
  self->stitched_bytes += size;
  *made = stitched;
  return VMM_SUCCESS;
}

/* ---- giving out ---- */

/* A pBlock of it that is active; NULL: all of its memory is free. */
static published_block *active_block(published *self, const published_stitched *stitched) {
  for (uint32_t i = 0; i < stitched->extent_count; i++) {
    const published_extent *extent = &stitched->extents[i];
    pool_block *block = &published_block_at(self, extent->begin)->base;
    for (; block && block->address < extent->end; block = block->next) {
      if (block->state != POOL_BLOCK_FREE) return (published_block *)block;
    }
  }
  return NULL;
}

static void watch(published *self, published_stitched *stitched, published_block *block) {
  RB_REMOVE(published_free_tree, &self->may_be_free, stitched);
  stitched->watched = block;
  stitched->watch_previous = NULL;
  stitched->watch_next = block->watchers;
  if (block->watchers) block->watchers->watch_previous = stitched;
  block->watchers = stitched;
}

static void watch_no_more(published *self, published_stitched *stitched) {
  if (stitched->watch_previous)
    stitched->watch_previous->watch_next = stitched->watch_next;
  else
    stitched->watched->watchers = stitched->watch_next;
  if (stitched->watch_next) stitched->watch_next->watch_previous = stitched->watch_previous;
  stitched->watched = NULL;
  RB_INSERT(published_free_tree, &self->may_be_free, stitched);
}

void published_wake_watchers(published *self, published_block *block) {
  while (block->watchers) watch_no_more(self, block->watchers);
}

published_stitched *published_find_stitched(published *self, vmm_stream stream, uint64_t size,
                                            uint64_t limit) {
  published_stitched key = {.base = {.stream = stream, .size = size}}, *next;
  for (published_stitched *stitched = RB_NFIND(published_free_tree, &self->may_be_free, &key);
       stitched && stitched->base.stream == stream && stitched->base.size <= limit; stitched = next) {
    /* One that is given out has an active pBlock. */
    published_block *active = active_block(self, stitched);
    if (!active) return stitched;
    next = RB_NEXT(published_free_tree, &self->may_be_free, stitched);
    watch(self, stitched, active);
  }
  return NULL;
}

/* The part of an extent that the first *left bytes of its sBlock reach into. */
static published_extent used_part(const published_extent *extent, uint64_t *left) {
  uint64_t size = extent->end - extent->begin;
  if (size > *left) size = *left;
  *left -= size;
  return (published_extent){extent->begin, extent->begin + size};
}

/* Makes the first size bytes free again, of so many extents. */
static void deactivate(published *self, const published_stitched *stitched, uint64_t size, uint32_t count) {
  for (uint32_t i = 0; i < count && size > 0; i++) {
    published_extent part = used_part(&stitched->extents[i], &size);
    published_deactivate(self, part.begin, part.end);
  }
}

vmm_status published_give_stitched(published *self, published_stitched *stitched, uint64_t size,
                                   uint64_t requested, vmm_address *address) {
  uint64_t left = size;
  for (uint32_t i = 0; i < stitched->extent_count && left > 0; i++) {
    published_extent part = used_part(&stitched->extents[i], &left);
    vmm_status status = published_activate(self, part.begin, part.end);
    if (status == VMM_SUCCESS) continue;
    deactivate(self, stitched, size, i);
    return status;
  }
  vmm_status status = pool_heap_hand_out(&self->base.base.heap, stitched->base.address, size, requested,
                                         stitched->base.stream, stitched);
  if (status != VMM_SUCCESS) {
    deactivate(self, stitched, size, stitched->extent_count);
    return status;
  }
  list_remove(self, stitched);
  stitched->held = true;
  *address = stitched->base.address;
  return VMM_SUCCESS;
}

void published_take_back_stitched(published *self, published_stitched *stitched, uint64_t size) {
  deactivate(self, stitched, size, stitched->extent_count);
  stitched->held = false;
  stitched->freed_at = pool_stream_clock_point(&self->base.clock, stitched->base.stream);
  list_append(self, stitched);
}

/* ---- dropping ---- */

static vmm_status drop(published *self, published_stitched *stitched) {
  pool_heap *heap = &self->base.base.heap;
  pool_range *range = stitched->base.backing;
  vmm_status status = pool_range_unmap(heap, range, 0, range->size);
  if (status != VMM_SUCCESS) return status;
  /* A VA that cannot be freed stays with the heap. */
  pool_range_free(heap, range);
  if (stitched->watched) watch_no_more(self, stitched);
  RB_REMOVE(published_free_tree, &self->may_be_free, stitched);
  RB_REMOVE(published_size_tree, &self->stitched, stitched);
  list_remove(self, stitched);
  self->stitched_count--;
  self->stitched_bytes -= stitched->base.size;
  free(stitched);
  return VMM_SUCCESS;
}

bool published_drop_idle(published *self) {
  pool_heap *heap = &self->base.base.heap;
  bool waited = false, any = false;
  pool_operation_begin(heap, self->base.stitch_free_operation, 0);
  for (published_stitched *stitched = self->oldest, *newer; stitched; stitched = newer) {
    newer = stitched->newer;
    if (!waited && !pool_stream_clock_passed(&self->base.clock, stitched->base.stream, stitched->freed_at)) {
      heap->statistics.host_waits++;
      if (vmm_synchronize(heap->driver) != VMM_SUCCESS) break;
      pool_stream_clock_all_passed(&self->base.clock);
      waited = true;
    }
    any |= drop(self, stitched) == VMM_SUCCESS;
  }
  pool_operation_end(heap);
  return any;
}

void published_visit_stitched(published *self, policy_block_visit *visit, void *context) {
  published_stitched *stitched;
  RB_FOREACH(stitched, published_size_tree, &self->stitched)
  gmlake_visit_block(stitched->base.address, stitched->base.size, stitched->base.stream, true, stitched->held,
                     visit, context);
}

void published_forget_stitched(published *self) {
  for (published_stitched *stitched; (stitched = RB_ROOT(&self->stitched));) {
    RB_REMOVE(published_size_tree, &self->stitched, stitched);
    free(stitched);
  }
}

/* ---- check ---- */

static bool stitched_is_sound(published *self, published_stitched *stitched) {
  if (stitched->watched ? stitched->watched->base.state == POOL_BLOCK_FREE
                        : RB_FIND(published_free_tree, &self->may_be_free, stitched) != stitched)
    return false;
  const pool_range *range = stitched->base.backing;
  vmm_address at = stitched->base.address;
  for (uint32_t i = 0; i < stitched->extent_count; i++) {
    const published_extent *extent = &stitched->extents[i];
    for (vmm_address home = extent->begin; home < extent->end; home += range->unit, at += range->unit) {
      const published_block *block = published_block_at(self, home);
      if (!block || block->base.address + block->base.size <= home ||
          block->base.stream != stitched->base.stream ||
          gmlake_slot(block->base.backing, home)->chunk != gmlake_slot(range, at)->chunk) {
        return false;
      }
    }
  }
  return at == stitched->base.address + stitched->base.size;
}

bool published_check(const policy *base, char *message, size_t message_size) {
  published *self = (published *)(uintptr_t)base;
  const pool_caching *pools[] = {&self->base.small};
  const uint64_t others = self->pblock_bytes + base->heap.stranded_bytes;
  if (!pool_caching_check(pools, 1, base->heap.statistics.reserved_bytes.current - others, message,
                          message_size)) {
    return false;
  }
  uint64_t bytes = 0, free_bytes = 0, count = 0, stitched_bytes = 0;
  published_block *block;
  for (block = published_first_block(self); block; block = published_next_block(block)) {
    bytes += block->base.size;
    const pool_block *next = block->base.next;
    const bool free = block->base.state == POOL_BLOCK_FREE;
    free_bytes += free ? block->base.size : 0;
    if (!next || (next->address == block->base.address + block->base.size && next->previous == &block->base &&
                  !(free && next->state == POOL_BLOCK_FREE))) {
      continue;
    }
    snprintf(message, message_size, "pBlock 0x%" PRIx64 " does not fit its neighbours", block->base.address);
    return false;
  }
  published_stitched *stitched;
  RB_FOREACH(stitched, published_size_tree, &self->stitched) {
    count++;
    stitched_bytes += stitched->base.size;
    if (stitched_is_sound(self, stitched)) continue;
    snprintf(message, message_size, "sBlock 0x%" PRIx64 " does not map what it says", stitched->base.address);
    return false;
  }
  if (bytes == self->pblock_bytes && free_bytes == self->free.bytes && count == self->stitched_count &&
      stitched_bytes == self->stitched_bytes) {
    return true;
  }
  snprintf(message, message_size,
           "pBlocks of %" PRIu64 " bytes, %" PRIu64 " free, and sBlocks of %" PRIu64 " count %" PRIu64
           ", %" PRIu64 ", %" PRIu64,
           bytes, free_bytes, stitched_bytes, self->pblock_bytes, self->free.bytes, self->stitched_bytes);
  return false;
}
