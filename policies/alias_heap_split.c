/* Near the limit: policy aliasheap cuts free handles in two where blocks end, so that what is left of them
 * can still be stitched. */
#include <stdlib.h>

#include "policies/alias_heap.h"

/* Is less than this share of the limit left? */
static bool room_below(const alias_heap *heap, double share) {
  if (share <= 0) return false;
  const pool_heap *pool = &heap->base.heap;
  const uint64_t most = pool->limit < pool->device_bytes ? pool->limit : pool->device_bytes;
  const uint64_t held = pool->statistics.reserved_bytes.current;
  return held >= most || (double)(most - held) < share * (double)most;
}

bool alias_pressed(const alias_heap *heap) { return room_below(heap, heap->settings.split_below); }

/* A split is a handle of its own for the rest of its life: what it sets free has to be worth that. */
static uint64_t least_worth(const alias_heap *heap) {
  const uint64_t least = heap->settings.split_least;
  return (room_below(heap, heap->settings.split_tight) ? least / 2 : least) * heap->base.heap.granularity;
}

/* Is all of the handle free, and has the host seen the end of all work on it? */
static bool at_rest(alias_heap *heap, const alias_handle *handle) {
  const pool_hole *hole = pool_holes_at_or_above(&heap->holes, handle->home);
  if (!hole || hole->begin > handle->home || hole->end < handle->home + handle->chunk->size) return false;
  for (vmm_stream stream = 0; stream < heap->clock.count && stream < heap->holes.streams; stream++) {
    if (hole->last[stream] && !pool_stream_clock_reached(&heap->clock, stream, hole->last[stream]))
      return false;
  }
  return true;
}

/* Takes a free handle out of a window: unmapped there, but where it is at home. What lies before and behind
 * it still serves. */
static vmm_status cut_out(alias_heap *heap, alias_window *window, const alias_handle *handle) {
  const alias_interval home = {handle->home, handle->home + handle->chunk->size};
  for (uint32_t k = 0; k < window->segment_count;) {
    const alias_segment *segment = &window->segments[k];
    if (home.begin < segment->home_begin || home.begin >= segment->home_end) {
      k++;
      continue;
    }
    const uint64_t offset = segment->offset + (home.begin - segment->home_begin);
    vmm_status status = alias_window_reserve_segments(window, 1);
    if (status == VMM_SUCCESS && window->range->address + offset != home.begin)
      status = pool_range_unmap(&heap->base.heap, window->range, offset, handle->chunk->size);
    if (status != VMM_SUCCESS) return status;
    alias_window_cut_segment(window, k, &home);
  }
  return VMM_SUCCESS;
}

/* Two handles at the home of one that was there. */
static vmm_status create_both(alias_heap *heap, pool_range *range, vmm_address home, const uint64_t *sizes,
                              alias_handle **handles) {
  pool_heap *pool = &heap->base.heap;
  pool_chunk *chunks[2];
  vmm_status status = pool_chunks_create_sizes(pool, sizes, 2, heap, chunks);
  if (status != VMM_SUCCESS) return status;
  status = pool_range_map(pool, range, home - range->address, chunks, 2);
  for (int i = 0; i < 2; i++) {
    if (status != VMM_SUCCESS) {
      pool_chunk_give_up(pool, chunks[i]);
    } else {
      *handles[i] = (alias_handle){chunks[i], home + (i == 0 ? 0 : sizes[0])};
      chunks[i]->owner = handles[i];
    }
  }
  if (status == VMM_SUCCESS) pool_holes_insert(&heap->holes, home, home + sizes[0] + sizes[1], NULL);
  return status;
}

bool alias_split(alias_heap *heap, vmm_address end) {
  pool_heap *pool = &heap->base.heap;
  const alias_handle *handle = alias_handle_at(heap, end - 1);
  const vmm_address home = handle->home;
  const uint64_t size = handle->chunk->size, first = alias_round_up(end - home, pool->granularity);
  if (first + least_worth(heap) > size || !at_rest(heap, handle)) return false;
  const uint64_t sizes[2] = {first, size - first};
  pool_range *range = alias_range_at(heap, home);
  alias_handle *handles[2] = {malloc(sizeof **handles), malloc(sizeof **handles)};
  vmm_status status = handles[0] && handles[1] ? pool_holes_prepare(&heap->holes, 2) : VMM_OUT_OF_MEMORY;
  pool_operation_begin(pool, heap->split_operation, size);
  for (uint32_t i = 0; status == VMM_SUCCESS && i < heap->window_count; i++)
    status = cut_out(heap, heap->windows[i], handle);
  /* A mapping that could not be undone before may be left. */
  if (status == VMM_SUCCESS && handle->chunk->mappings > 1) status = VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) status = alias_release_handle(heap, range, handle->chunk);
  if (status == VMM_SUCCESS) status = create_both(heap, range, home, sizes, handles);
  pool_operation_end(pool);
  if (status != VMM_SUCCESS) {
    free(handles[0]);
    free(handles[1]);
  }
  handle = alias_handle_at(heap, home);
  return !handle || handle->chunk->size != size;
}
