/* Our own policy: one address-ordered first-fit heap of 512-byte quanta for all sizes and
 * streams, over handles of 16 to 64 MiB. The few huge requests that find no hole get a second
 * mapping of free pieces of handles, in a window that is kept. Freeing never unmaps.
 *
 * This file: the ladder of a request, growth of the main range, freeing. Windows are in
 * alias_heap_windows.c, stitching in alias_heap_stitch.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/alias_heap.h"

enum {
  OPTION_HUGE,
  OPTION_MEDIUM,
  OPTION_HANDLE_START,
  OPTION_HANDLE_EDGE,
  OPTION_HANDLE_LIMIT,
  OPTION_EDGE_MINIMUM,
  OPTION_EXTENSION_MINIMUM,
  OPTION_WINDOWS,
  OPTION_WASTE_HIGH,
  OPTION_WASTE_LIVE,
  OPTION_WASTE_LOW,
  OPTION_EDGES,
  OPTION_REUSE,
};

static const policy_option options[] = {
    {"huge", POLICY_OPTION_SIZE, "320MiB", 0, 0, NULL, "bytes",
     "requests from here on that find no hole are stitched"},
    {"medium", POLICY_OPTION_SIZE, "16MiB", 0, 0, NULL, "bytes",
     "requests from here on are stitched too where growing would waste too much"},
    {"handle_start", POLICY_OPTION_SIZE, "64MiB", POLICY_GRANULARITY, 1e12, NULL, "bytes",
     "handles while nothing has been freed yet"},
    {"handle_edge", POLICY_OPTION_SIZE, "16MiB", POLICY_GRANULARITY, 1e12, NULL, "bytes",
     "later handles at the ends of a growth"},
    {"handle_limit", POLICY_OPTION_SIZE, "32MiB", POLICY_GRANULARITY, 1e12, NULL, "bytes",
     "later handles in the middle of a growth"},
    {"edge_minimum", POLICY_OPTION_SIZE, "2MiB", 512, 1e12, NULL, "bytes",
     "shortest piece of a handle worth stitching"},
    {"extension_minimum", POLICY_OPTION_REAL, "0.1", 0, 1, NULL, "share of the request",
     "a window is extended when its free end covers this much"},
    {"windows", POLICY_OPTION_INTEGER, "128", 1, 512, NULL, "windows",
     "most windows to keep mapped; each takes a device's size of VA"},
    {"waste_high", POLICY_OPTION_REAL, "1.15", 1, 1e6, NULL, "reserved to live peak",
     "medium requests are stitched rather than let reserved memory grow beyond this"},
    {"waste_live", POLICY_OPTION_REAL, "0.95", 0, 1, NULL, "share of the live peak",
     "below this much live memory waste_low takes the place of waste_high"},
    {"waste_low", POLICY_OPTION_REAL, "1.02", 1, 1e6, NULL, "reserved to live peak", "see waste_live"},
    {"edges", POLICY_OPTION_BOOLEAN, "true", 0, 0, NULL, "",
     "false: a handle serves blocks through one address at a time, which costs about 1 % of utilisation"},
    {"reuse", POLICY_OPTION_CHOICE, "lowest", 0, 0, "lowest|clean", "",
     "lowest: the lowest hole that fits, so that placement never depends on timing; clean: rather one that "
     "needs "
     "no wait for another stream"},
    {0},
};

static const uint64_t quantum = 512;
static const uint64_t main_share = 16; /* VA of the main range, in device sizes */

/* The main range and the windows in one reservation, so that their order is the same everywhere. */
static vmm_status reserve_addresses(alias_heap *self, uint64_t device_bytes) {
  pool_heap *heap = &self->base.heap;
  uint64_t windows = self->settings.windows_limit;
  uint64_t *sizes = malloc((windows + 1) * sizeof *sizes);
  pool_range **ranges = malloc((windows + 1) * sizeof *ranges);
  self->windows = malloc(windows * sizeof *self->windows);
  self->unused_ranges = malloc(windows * sizeof *self->unused_ranges);
  vmm_status status =
      sizes && ranges && self->windows && self->unused_ranges ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  /* The last unit of each stays empty: no hole may touch the next range. */
  uint64_t one = alias_round_up(device_bytes, heap->granularity) + heap->granularity;
  for (uint64_t i = 0; status == VMM_SUCCESS && i <= windows; i++) sizes[i] = i == 0 ? main_share * one : one;
  if (status == VMM_SUCCESS)
    status = pool_ranges_reserve(heap, sizes, windows + 1, heap->granularity, ranges);
  if (status == VMM_SUCCESS) {
    self->main = ranges[0];
    for (uint64_t i = windows; i > 0; i--) self->unused_ranges[self->unused_count++] = ranges[i];
  } else {
    free(self->windows);
    free(self->unused_ranges);
  }
  free(sizes);
  free(ranges);
  return status;
}

static vmm_status aliasheap_create(const policy_configuration *configuration, policy **created, char *message,
                                   size_t message_size) {
  alias_heap *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  const policy_value *values = configuration->values;
  pool_heap *heap = &self->base.heap;
  self->settings = (alias_settings){
      .huge = values[OPTION_HUGE].integer,
      .medium = values[OPTION_MEDIUM].integer,
      .handle_start = values[OPTION_HANDLE_START].integer,
      .handle_edge = values[OPTION_HANDLE_EDGE].integer,
      .handle_limit = values[OPTION_HANDLE_LIMIT].integer,
      .edge_minimum = values[OPTION_EDGE_MINIMUM].integer,
      .extension_minimum = values[OPTION_EXTENSION_MINIMUM].real,
      .windows_limit = values[OPTION_WINDOWS].integer,
      .waste_high = values[OPTION_WASTE_HIGH].real,
      .waste_live = values[OPTION_WASTE_LIVE].real,
      .waste_low = values[OPTION_WASTE_LOW].real,
      .edges = values[OPTION_EDGES].integer,
      .prefer_clean = values[OPTION_REUSE].integer == 1,
  };
  uint64_t free_bytes, total_bytes;
  vmm_status status = pool_heap_init(heap, configuration->driver, true, configuration->limit);
  if (status == VMM_SUCCESS) status = vmm_memory_info(heap->driver, &free_bytes, &total_bytes);
  for (int i = OPTION_HANDLE_START; status == VMM_SUCCESS && i <= OPTION_HANDLE_LIMIT; i++) {
    if (values[i].integer % heap->granularity == 0) continue;
    snprintf(message, message_size,
             "policy aliasheap: %s=%s is no multiple of the device's granularity of %" PRIu64 " bytes",
             options[i].name, values[i].text, heap->granularity);
    status = VMM_INVALID_VALUE;
  }
  if (status == VMM_SUCCESS) status = reserve_addresses(self, total_bytes);
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  pool_holes_init(&self->holes);
  pool_stream_clock_init(&self->clock, heap->driver);
  self->hit_operation = pool_operation_define(heap, "window_hit");
  self->stitch_operation = pool_operation_define(heap, "stitch");
  self->evict_operation = pool_operation_define(heap, "evict");
  *created = &self->base;
  return VMM_SUCCESS;
}

static void aliasheap_destroy(policy *base) {
  alias_heap *self = (alias_heap *)base;
  pool_stream_clock_fini(&self->clock);
  for (pool_chunk *chunk = base->heap.chunks; chunk; chunk = chunk->next) {
    if (chunk->owner != &base->heap) free(chunk->owner);
  }
  for (uint64_t i = 0; i < base->heap.allocations.capacity; i++) {
    if (base->heap.allocations.entries[i].address != 0) free(base->heap.allocations.entries[i].owner);
  }
  pool_heap_fini(&base->heap);
  for (uint32_t i = 0; i < self->window_count; i++) {
    free(self->windows[i]->segments);
    free(self->windows[i]);
  }
  free(self->windows);
  free(self->unused_ranges);
  pool_holes_fini(&self->holes);
  free(self);
}

/* ---- handing out ---- */

static void count_alloc(alias_heap *self, uint64_t size) {
  self->live += size;
  self->total_allocated += size;
  if (self->live > self->live_peak) self->live_peak = self->live;
}

static bool is_clean(alias_heap *self, const pool_hole *hole, vmm_stream stream) {
  for (vmm_stream other = 0; other < self->holes.streams && other < self->clock.count; other++) {
    if (other != stream && hole->last[other] != 0 &&
        !pool_stream_clock_passed(&self->clock, other, hole->last[other]))
      return false;
  }
  return true;
}

/* A block at home: size bytes from begin, inside a hole. */
static vmm_status give_home(alias_heap *self, vmm_address begin, uint64_t size, uint64_t requested,
                            vmm_stream stream, vmm_address *address) {
  alias_interval interval = {begin, begin + size};
  vmm_status status = pool_holes_prepare(&self->holes, 1);
  if (status == VMM_SUCCESS) status = alias_wait_for(self, &interval, 1, stream);
  if (status == VMM_SUCCESS)
    status = pool_heap_hand_out(&self->base.heap, begin, size, requested, stream, NULL);
  if (status != VMM_SUCCESS) return status;
  alias_carve(self, &interval, 1);
  count_alloc(self, size);
  *address = begin;
  return VMM_SUCCESS;
}

/* A block in a window. The place's memory is out of the holes already. */
static vmm_status give_window(alias_heap *self, alias_place *place, uint64_t requested, vmm_stream stream,
                              vmm_address *address) {
  alias_block *block = malloc(sizeof *block + place->interval_count * sizeof *block->intervals);
  vmm_address begin = place->window->range->address + place->offset;
  vmm_status status = block
                          ? pool_heap_hand_out(&self->base.heap, begin, place->size, requested, stream, block)
                          : VMM_OUT_OF_MEMORY;
  if (status != VMM_SUCCESS) {
    for (uint32_t i = 0; i < place->interval_count; i++) {
      pool_holes_insert(&self->holes, place->intervals[i].begin, place->intervals[i].end, NULL);
    }
    free(block);
  } else {
    block->window = place->window;
    block->interval_count = place->interval_count;
    memcpy(block->intervals, place->intervals, place->interval_count * sizeof *block->intervals);
    place->window->live++;
    place->window->last_use = ++self->uses;
    count_alloc(self, place->size);
    *address = begin;
  }
  free(place->intervals);
  return status;
}

/* The lowest hole that fits; if so wished rather one that needs no wait. */
static pool_hole *first_fit(alias_heap *self, uint64_t size, vmm_stream stream) {
  pool_hole *lowest = pool_holes_first(&self->holes, size);
  if (!self->settings.prefer_clean) return lowest;
  for (pool_hole *hole = lowest; hole; hole = pool_holes_next(hole, size)) {
    if (is_clean(self, hole, stream)) return hole;
  }
  return lowest;
}

static vmm_status window_hit(alias_heap *self, uint64_t size, uint64_t requested, vmm_stream stream,
                             vmm_address *address) {
  alias_place place;
  if (!alias_window_find(self, size, &place)) return VMM_NOT_FOUND;
  pool_operation_begin(&self->base.heap, self->hit_operation, size);
  if (!self->settings.edges) {
    /* The last handle is taken whole, so that nothing else serves from it meanwhile. */
    alias_interval *last = &place.intervals[place.interval_count - 1];
    const alias_handle *handle = alias_handle_at(self, last->end - 1);
    vmm_address border = handle->home + handle->chunk->size;
    place.size += border - last->end;
    last->end = border;
  }
  vmm_status status = pool_holes_prepare(&self->holes, 2 * place.interval_count);
  if (status == VMM_SUCCESS) status = alias_wait_for(self, place.intervals, place.interval_count, stream);
  if (status == VMM_SUCCESS) {
    alias_carve(self, place.intervals, place.interval_count);
    status = give_window(self, &place, requested, stream, address);
    if (status == VMM_SUCCESS) self->window_hits++;
  } else {
    free(place.intervals);
  }
  pool_operation_end(&self->base.heap);
  return status;
}

static vmm_status stitch(alias_heap *self, uint64_t size, uint64_t grow_bytes, uint64_t requested,
                         vmm_stream stream, bool start_up, vmm_address *address, bool *declined) {
  alias_place place;
  vmm_status status = alias_stitch(self, size, grow_bytes, stream, start_up, &place, declined);
  if (status == VMM_SUCCESS) status = give_window(self, &place, requested, stream, address);
  return status;
}

/* ---- growing ---- */

/* Free bytes at the end of the main range. */
static uint64_t main_tail(const alias_heap *self) {
  vmm_address end = self->main->address + self->main_length;
  const pool_hole *hole = self->main_length > 0 ? pool_holes_at_or_above(&self->holes, end - 1) : NULL;
  return hole && hole->begin < end ? end - hole->begin : 0;
}

static vmm_status grow_main(alias_heap *self, uint64_t bytes, bool start_up) {
  enum { SIZES_LIMIT = 4096 };
  pool_heap *heap = &self->base.heap;
  /* The last unit stays empty: no hole may touch the next range. */
  if (bytes > self->main->size - heap->granularity - self->main_length) return VMM_OUT_OF_MEMORY;
  if (!pool_heap_within_limit(heap, bytes)) return VMM_OUT_OF_MEMORY;
  uint64_t *sizes = malloc(SIZES_LIMIT * sizeof *sizes);
  uint64_t count = sizes ? alias_cut(self, bytes, start_up, sizes, SIZES_LIMIT) : 0;
  pool_chunk **chunks = calloc(count + 1, sizeof *chunks);
  alias_handle **handles = calloc(count + 1, sizeof *handles);
  vmm_status status = sizes && chunks && handles ? pool_holes_prepare(&self->holes, 1) : VMM_OUT_OF_MEMORY;
  for (uint64_t i = 0; status == VMM_SUCCESS && i < count; i++) {
    handles[i] = malloc(sizeof *handles[i]);
    if (!handles[i]) status = VMM_OUT_OF_MEMORY;
  }
  pool_operation_begin(heap, POOL_OPERATION_GROW, bytes);
  if (status == VMM_SUCCESS) {
    status = pool_chunks_create_sizes(heap, sizes, count, self, chunks);
    if (status == VMM_SUCCESS) {
      status = pool_range_map(heap, self->main, self->main_length, chunks, count);
      for (uint64_t i = 0; status != VMM_SUCCESS && i < count; i++) pool_chunk_give_up(heap, chunks[i]);
    }
  }
  pool_operation_end(heap);
  if (status == VMM_SUCCESS) {
    vmm_address begin = self->main->address + self->main_length, at = begin;
    for (uint64_t i = 0; i < count; at += sizes[i++]) {
      *handles[i] = (alias_handle){chunks[i], at};
      chunks[i]->owner = handles[i];
    }
    self->main_length += bytes;
    pool_holes_insert(&self->holes, begin, begin + bytes, NULL);
  } else {
    for (uint64_t i = 0; handles && i < count; i++) free(handles[i]);
  }
  free(sizes);
  free(chunks);
  free(handles);
  return status;
}

/* Does growing by so much waste too much for a medium request? */
static bool wasteful(const alias_heap *self, uint64_t size, uint64_t need) {
  double total = (double)(self->base.heap.statistics.reserved_bytes.current + need);
  double live = (double)(self->live + size),
         peak = live > (double)self->live_peak ? live : (double)self->live_peak;
  return total > self->settings.waste_high * peak ||
         (live < self->settings.waste_live * peak && total > self->settings.waste_low * peak);
}

static uint64_t growth_quantum(const alias_heap *self, bool start_up) {
  const uint64_t unit = self->base.heap.granularity,
                 total = self->base.heap.statistics.reserved_bytes.current;
  uint64_t amount = total / (start_up ? 16 : 64);
  uint64_t most = start_up ? self->settings.handle_start : self->settings.handle_edge;
  if (amount > most) amount = most;
  if (amount < unit) amount = unit;
  return amount / unit * unit;
}

/* The tail of the main range and what was just added to it serve the request. */
static vmm_status grow_and_give(alias_heap *self, uint64_t bytes, uint64_t size, uint64_t requested,
                                vmm_stream stream, bool start_up, vmm_address *address) {
  vmm_address begin = self->main->address + self->main_length - main_tail(self);
  vmm_status status = grow_main(self, bytes, start_up);
  return status == VMM_SUCCESS ? give_home(self, begin, size, requested, stream, address) : status;
}

/* Once through the ladder, without touching what others hold. */
static vmm_status serve(alias_heap *self, uint64_t size, uint64_t requested, vmm_stream stream,
                        vmm_address *address) {
  pool_hole *hole = first_fit(self, size, stream);
  if (hole) return give_home(self, hole->begin, size, requested, stream, address);
  const uint64_t unit = self->base.heap.granularity;
  bool start_up = self->total_freed < self->total_allocated / 100, declined = false;
  uint64_t need = alias_round_up(size - main_tail(self), unit), amount = growth_quantum(self, start_up);
  bool big = size >= self->settings.huge || (size >= self->settings.medium && wasteful(self, size, need));
  vmm_status status;
  if (big) {
    status = window_hit(self, size, requested, stream, address);
    if (status != VMM_NOT_FOUND) return status;
    status = stitch(self, size, need, requested, stream, start_up, address, &declined);
    if (status == VMM_SUCCESS || (status != VMM_OUT_OF_MEMORY && !declined)) return status;
  }
  status = grow_and_give(self, need > amount ? need : amount, size, requested, stream, start_up, address);
  if (status != VMM_OUT_OF_MEMORY) return status;
  if (amount > need) {
    status = grow_and_give(self, need, size, requested, stream, start_up, address);
    if (status != VMM_OUT_OF_MEMORY) return status;
  }
  if (big && !declined) return status;
  if (!big) {
    status = window_hit(self, size, requested, stream, address);
    if (status != VMM_NOT_FOUND) return status;
  }
  return stitch(self, size, UINT64_MAX, requested, stream, start_up, address, &declined);
}

/* The device is idle: everything unused goes back. */
static vmm_status release_all(alias_heap *self) {
  self->base.heap.statistics.host_waits++;
  vmm_status status = vmm_synchronize(self->base.heap.driver);
  if (status != VMM_SUCCESS) return status;
  pool_stream_clock_all_passed(&self->clock);
  return alias_release_all(self);
}

static vmm_status aliasheap_alloc(policy *base, uint64_t requested, vmm_stream stream, vmm_address *address) {
  alias_heap *self = (alias_heap *)base;
  uint64_t size = alias_round_up(requested, quantum);
  vmm_status status = pool_stream_clock_prepare(&self->clock, stream);
  if (status == VMM_SUCCESS) status = pool_holes_prepare_stream(&self->holes, stream);
  if (status == VMM_SUCCESS) status = serve(self, size, requested, stream, address);
  if (status != VMM_OUT_OF_MEMORY) return status;
  release_all(self);
  base->heap.statistics.retries++;
  return serve(self, size, requested, stream, address);
}

/* ---- freeing ---- */

static vmm_status aliasheap_free(policy *base, vmm_address address) {
  alias_heap *self = (alias_heap *)base;
  pool_allocation *allocation = pool_heap_find(&base->heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  alias_block *block = allocation->owner;
  const vmm_stream own = allocation->stream;
  uint32_t used = pool_heap_recorded_streams(allocation);
  uint64_t points_here[16] = {0},
           *points = self->holes.streams <= 16 ? points_here : calloc(self->holes.streams, sizeof *points);
  vmm_stream streams_here[16], *streams = used <= 16 ? streams_here : malloc(used * sizeof *streams);
  vmm_status status = points && streams ? pool_holes_prepare(&self->holes, block ? block->interval_count : 1)
                                        : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) {
    pool_heap_take_back_with_streams(&base->heap, allocation, &taken, streams, used);
    points[own] = pool_stream_clock_point(&self->clock, own);
    for (uint32_t i = 0; i < used; i++)
      points[streams[i]] = pool_stream_clock_point(&self->clock, streams[i]);
    if (block) {
      for (uint32_t i = 0; i < block->interval_count; i++) {
        pool_holes_insert(&self->holes, block->intervals[i].begin, block->intervals[i].end, points);
      }
      block->window->live--;
      block->window->last_use = ++self->uses;
      free(block);
    } else {
      pool_holes_insert(&self->holes, taken.address, taken.address + taken.size, points);
    }
    self->live -= taken.size;
    self->total_freed += taken.size;
  }
  if (points != points_here) free(points);
  if (streams != streams_here) free(streams);
  return status;
}

static vmm_status aliasheap_record_stream(policy *base, vmm_address address, vmm_stream stream) {
  alias_heap *self = (alias_heap *)base;
  vmm_status status = pool_stream_clock_prepare(&self->clock, stream);
  if (status == VMM_SUCCESS) status = pool_holes_prepare_stream(&self->holes, stream);
  return status == VMM_SUCCESS ? pool_heap_record_stream(&base->heap, address, stream) : status;
}

static vmm_status aliasheap_trim(policy *base) { return release_all((alias_heap *)base); }

/* ---- looking at it ---- */

static size_t aliasheap_counters(const policy *base, policy_counter *counters, size_t capacity) {
  const alias_heap *self = (const alias_heap *)base;
  uint64_t window_bytes = 0, segments = 0;
  for (uint32_t i = 0; i < self->window_count; i++) {
    window_bytes += self->windows[i]->length;
    segments += self->windows[i]->segment_count;
  }
  const policy_counter all[] = {
      {"handles_count", base->heap.chunk_count}, {"holes_count", self->holes.count},
      {"windows_count", self->window_count},     {"window_segments_count", segments},
      {"window_mapped_bytes", window_bytes},     {"stitches_count", self->stitches},
      {"window_hits_count", self->window_hits},  {"evictions_count", self->evictions},
      {"stream_waits_count", self->clock.waits}, {"unclean_uses_count", self->unclean_uses},
  };
  size_t count = sizeof all / sizeof *all;
  memcpy(counters, all, (count < capacity ? count : capacity) * sizeof *all);
  return count;
}

/* Whole handles and edges can be stitched; what lies between two used parts of a handle cannot. */
static uint64_t aliasheap_largest_free(const policy *base) {
  const alias_heap *self = (const alias_heap *)base;
  uint64_t together = 0;
  for (pool_hole *hole = pool_holes_first(&self->holes, 1); hole; hole = pool_holes_next(hole, 1)) {
    vmm_address first = alias_border_above(self, hole->begin), last = alias_border_below(self, hole->end);
    if (last > first) together += last - first;
  }
  uint64_t longest = pool_holes_longest(&self->holes);
  return together > longest ? together : longest;
}

static void aliasheap_free_ranges(const policy *base, pool_range_visit *visit, void *context) {
  pool_holes_visit(&((const alias_heap *)base)->holes, visit, context);
}

/* The window's range is given out piece by piece. */
static void aliasheap_blocks(const policy *base, policy_block_visit *visit, void *context) {
  const alias_heap *self = (const alias_heap *)base;
  for (const pool_chunk *chunk = base->heap.chunks; chunk; chunk = chunk->next) {
    if (chunk->owner == &base->heap) continue;
    const alias_handle *handle = chunk->owner;
    visit(context, &(policy_block){.kind = "handle", .address = handle->home, .size = chunk->size});
  }
  for (uint32_t i = 0; i < self->window_count; i++) {
    const alias_window *window = self->windows[i];
    visit(context, &(policy_block){.kind = "window",
                                   .stitched = true,
                                   .held = window->live > 0,
                                   .address = window->range->address,
                                   .size = window->length});
  }
}

static bool check_window(const alias_heap *self, const alias_window *window, char *message,
                         size_t message_size) {
  uint64_t offset = window->begin, retired = 0;
  for (uint64_t i = 0; i < window->begin / window->range->unit; i++) {
    if (window->range->slots[i].chunk) retired += window->range->unit;
  }
  for (uint32_t k = 0; k < window->segment_count; k++) {
    const alias_segment *segment = &window->segments[k];
    if (segment->offset != offset) break;
    for (vmm_address at = segment->home_begin; at < segment->home_end;) {
      const alias_handle *handle = alias_handle_at(self, at);
      if (!handle || handle->home != at ||
          window->range->slots[offset / window->range->unit].chunk != handle->chunk)
        break;
      at += handle->chunk->size;
      offset += handle->chunk->size;
    }
    if (offset != segment->offset + (segment->home_end - segment->home_begin)) break;
  }
  if (offset == window->length && window->range->mapped == window->length - window->begin + retired)
    return true;
  snprintf(message, message_size,
           "window 0x%" PRIx64 " of %" PRIu64
           " bytes does not map what its segments say from offset %" PRIu64,
           window->range->address, window->length, offset);
  return false;
}

static bool aliasheap_check(const policy *base, char *message, size_t message_size) {
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

const policy_class aliasheap_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "aliasheap",
    .summary = "ours: a first-fit heap whose huge blocks may be second mappings of free handles",
    .capabilities = POLICY_NEEDS_VMM,
    .options = options,
    .create = aliasheap_create,
    .destroy = aliasheap_destroy,
    .alloc = aliasheap_alloc,
    .free = aliasheap_free,
    .record_stream = aliasheap_record_stream,
    .trim = aliasheap_trim,
    .counters = aliasheap_counters,
    .largest_free = aliasheap_largest_free,
    .free_ranges = aliasheap_free_ranges,
    .check = aliasheap_check,
    .blocks = aliasheap_blocks,
};
