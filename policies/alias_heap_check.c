/* The invariants of policy aliasheap. */
#include <inttypes.h>
#include <stdio.h>

#include "policies/alias_heap.h"

/* Every segment is mapped where it says; before, between and behind them lies what was retired or cut out. */
static bool check_window(const alias_heap *self, const alias_window *window, char *message,
                         size_t message_size) {
  const pool_slot *slots = window->range->slots;
  const uint64_t unit = window->range->unit;
  uint64_t offset = window->begin, mapped = 0;
  uint32_t k = 0;
  for (uint64_t i = 0; i < window->length / unit; i++) mapped += slots[i].chunk ? unit : 0;
  for (; k < window->segment_count && window->segments[k].offset >= offset; k++) {
    const alias_segment *segment = &window->segments[k];
    offset = segment->offset;
    for (vmm_address at = segment->home_begin; at < segment->home_end;) {
      const alias_handle *handle = alias_handle_at(self, at);
      if (!handle || handle->home != at || slots[offset / unit].chunk != handle->chunk) break;
      at += handle->chunk->size;
      offset += handle->chunk->size;
    }
    if (offset != segment->offset + (segment->home_end - segment->home_begin)) break;
  }
  if (k == window->segment_count && offset <= window->length && window->range->mapped == mapped) return true;
  snprintf(message, message_size,
           "window 0x%" PRIx64 " of %" PRIu64
           " bytes does not map what its segments say from offset %" PRIu64,
           window->range->address, window->length, offset);
  return false;
}

bool alias_heap_check(const policy *base, char *message, size_t message_size) {
  const alias_heap *self = (const alias_heap *)base;
  if (!pool_holes_check(&self->holes, message, message_size)) return false;
  uint64_t live = base->heap.statistics.allocated_bytes.current,
           reserved = base->heap.statistics.reserved_bytes.current - base->heap.stranded_bytes;
  if (live != self->live || live + self->holes.bytes != reserved) {
    snprintf(message, message_size,
             "%" PRIu64 " live and %" PRIu64 " free bytes do not make up %" PRIu64 " reserved", live,
             self->holes.bytes, reserved);
    return false;
  }
  for (uint32_t i = 0; i < self->window_count; i++) {
    if (!check_window(self, self->windows[i], message, message_size)) return false;
  }
  /* Every stitched block is contiguous in its window. */
  const pool_allocation_map *map = &base->heap.allocations;
  for (uint64_t i = 0; i < map->capacity; i++) {
    const alias_block *block = map->entries[i].address ? map->entries[i].owner : NULL;
    vmm_address at = map->entries[i].address;
    for (uint32_t k = 0; block && k < block->interval_count; k++) {
      const alias_interval *interval = &block->intervals[k];
      const pool_range *range = block->window->range;
      for (vmm_address home = interval->begin; home < interval->end;) {
        const alias_handle *handle = alias_handle_at(self, home);
        const pool_slot *slot = &range->slots[(at - range->address) / range->unit];
        uint64_t inside = home - handle->home;
        uint64_t step = range->unit - inside % range->unit;
        if (slot->chunk != handle->chunk ||
            slot->offset * range->unit + (at - range->address) % range->unit != inside) {
          snprintf(message, message_size, "block 0x%" PRIx64 " is not contiguous at 0x%" PRIx64,
                   map->entries[i].address, at);
          return false;
        }
        if (step > interval->end - home) step = interval->end - home;
        home += step;
        at += step;
      }
    }
  }
  return true;
}
