/* Our own policy: one address-ordered heap of 512-byte quanta for all sizes and streams,
 * over handles of 8 to 128 MiB. The few huge requests that find no hole get a second
 * mapping of free pieces of handles, in a window that is kept. Freeing never unmaps.
 *
 * This file: the ladder of a request, freeing. The others are alias_heap_growth.c, _stitch.c,
 * _split.c, _windows.c and _check.c. docs/aliasheap.md tells it all. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/alias_heap.h"

enum {
  OPTION_HUGE,
  OPTION_SMALL_JOB,
  OPTION_MEDIUM,
  OPTION_HANDLE_START,
  OPTION_START_SHARE,
  OPTION_HANDLE_LEAST,
  OPTION_HANDLE_EDGE,
  OPTION_HANDLE_PARTS,
  OPTION_HANDLE_LIMIT,
  OPTION_MIDDLE_SHARE,
  OPTION_KEEP,
  OPTION_NEAR,
  OPTION_NEAR_LEAST,
  OPTION_NEAR_LIMIT,
  OPTION_SETTLED,
  OPTION_PIECES,
  OPTION_EDGE_MINIMUM,
  OPTION_EXTENSION_MINIMUM,
  OPTION_WINDOWS,
  OPTION_WASTE_HIGH,
  OPTION_WASTE_LIVE,
  OPTION_WASTE_LOW,
  OPTION_SPLIT_BELOW,
  OPTION_SPLIT_TIGHT,
  OPTION_SPLIT_LEAST,
  OPTION_EDGES,
  OPTION_REUSE,
};

static const policy_option options[] = {
    {"huge", POLICY_OPTION_SIZE, "512MiB", 0, 0, NULL, "bytes",
     "requests from here on that find no hole are stitched"},
    {"small_job", POLICY_OPTION_SIZE, "2.5GiB", 0, 0, NULL, "bytes",
     "below this live peak huge is less in proportion, and waste_live is 1"},
    {"medium", POLICY_OPTION_SIZE, "16MiB", 0, 0, NULL, "bytes",
     "requests from here on are stitched too where growing would waste too much"},
    {"handle_start", POLICY_OPTION_SIZE, "64MiB", POLICY_GRANULARITY, 1e12, NULL, "bytes",
     "largest handles while nothing has been freed yet"},
    {"start_share", POLICY_OPTION_REAL, "0.0625", 0, 1, NULL, "share of reserved memory",
     "such handles are no larger than this"},
    {"handle_least", POLICY_OPTION_SIZE, "8MiB", POLICY_GRANULARITY, 1e12, NULL, "bytes",
     "smallest later handles at the ends of a growth"},
    {"handle_edge", POLICY_OPTION_SIZE, "12MiB", POLICY_GRANULARITY, 1e12, NULL, "bytes",
     "largest later handles at the ends of a growth"},
    {"handle_parts", POLICY_OPTION_INTEGER, "700", 1, 1e9, NULL, "handles",
     "in between they are the live peak divided by this"},
    {"handle_limit", POLICY_OPTION_SIZE, "128MiB", POLICY_GRANULARITY, 1e12, NULL, "bytes",
     "largest later handles in the middle of a growth"},
    {"middle_share", POLICY_OPTION_REAL, "0.09", 0, 1, NULL, "share of the growth",
     "such handles are no larger than this"},
    {"keep", POLICY_OPTION_SIZE, "160MiB", 0, 0, NULL, "bytes",
     "holes from here on are left to requests from here on while another fits; 0: none are"},
    {"near", POLICY_OPTION_REAL, "4", 0, 1e6, NULL, "times the request",
     "the lowest hole shorter than this comes first; 0: the lowest that fits"},
    {"near_least", POLICY_OPTION_SIZE, "4MiB", 0, 0, NULL, "bytes", "or shorter than this"},
    {"near_limit", POLICY_OPTION_SIZE, "16MiB", 0, 0, NULL, "bytes", "the largest request near is for"},
    {"settled", POLICY_OPTION_REAL, "8", 0, 1e9, NULL, "live peaks",
     "after so many bytes without a new live peak everything is stitched rather than grown for, and keep and "
     "near look at the main range alone; 0: never"},
    {"pieces", POLICY_OPTION_CHOICE, "coarsest", 0, 0, "coarsest|longest", "",
     "which free handles are stitched first: coarsest: large ones, which cost fewer mappings; longest: those "
     "in "
     "the longest hole"},
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
    {"waste_low", POLICY_OPTION_REAL, "1.03", 1, 1e6, NULL, "reserved to live peak", "see waste_live"},
    {"split_below", POLICY_OPTION_REAL, "0.3", 0, 1, NULL, "share of the limit",
     "with less than this left free handles are split where blocks end; 0: never"},
    {"split_tight", POLICY_OPTION_REAL, "0.1", 0, 1, NULL, "share of the limit",
     "with less than this left half of split_least is enough"},
    {"split_least", POLICY_OPTION_INTEGER, "4", 2, 1e6, NULL, "granules", "what a split has to set free"},
    {"edges", POLICY_OPTION_BOOLEAN, "true", 0, 0, NULL, "",
     "false: a handle serves blocks through one address at a time, which costs about 1 % of utilisation"},
    {"reuse", POLICY_OPTION_CHOICE, "lowest", 0, 0, "lowest|clean", "",
     "lowest: placement never depends on timing; clean: the lowest hole that needs no wait for another "
     "stream"},
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
      .small_job = values[OPTION_SMALL_JOB].integer,
      .medium = values[OPTION_MEDIUM].integer,
      .handle_start = values[OPTION_HANDLE_START].integer,
      .start_share = values[OPTION_START_SHARE].real,
      .handle_least = values[OPTION_HANDLE_LEAST].integer,
      .handle_edge = values[OPTION_HANDLE_EDGE].integer,
      .handle_parts = values[OPTION_HANDLE_PARTS].integer,
      .handle_limit = values[OPTION_HANDLE_LIMIT].integer,
      .middle_share = values[OPTION_MIDDLE_SHARE].real,
      .keep = values[OPTION_KEEP].integer,
      .near = values[OPTION_NEAR].real,
      .near_least = values[OPTION_NEAR_LEAST].integer,
      .near_limit = values[OPTION_NEAR_LIMIT].integer,
      .settled = values[OPTION_SETTLED].real,
      .coarsest = values[OPTION_PIECES].integer == 0,
      .edge_minimum = values[OPTION_EDGE_MINIMUM].integer,
      .extension_minimum = values[OPTION_EXTENSION_MINIMUM].real,
      .windows_limit = values[OPTION_WINDOWS].integer,
      .waste_high = values[OPTION_WASTE_HIGH].real,
      .waste_live = values[OPTION_WASTE_LIVE].real,
      .waste_low = values[OPTION_WASTE_LOW].real,
      .split_below = values[OPTION_SPLIT_BELOW].real,
      .split_tight = values[OPTION_SPLIT_TIGHT].real,
      .split_least = values[OPTION_SPLIT_LEAST].integer,
      .edges = values[OPTION_EDGES].integer,
      .prefer_clean = values[OPTION_REUSE].integer == 1,
  };
  uint64_t free_bytes, total_bytes;
  vmm_status status = pool_heap_init(heap, configuration->driver, true, configuration->limit);
  if (status == VMM_SUCCESS) status = vmm_memory_info(heap->driver, &free_bytes, &total_bytes);
  for (int i = OPTION_HANDLE_START; status == VMM_SUCCESS && i <= OPTION_HANDLE_LIMIT; i++) {
    if (options[i].minimum != POLICY_GRANULARITY || options[i].type != POLICY_OPTION_SIZE ||
        values[i].integer % heap->granularity == 0)
      continue;
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
  self->split_operation = pool_operation_define(heap, "split");
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
  if (self->live <= self->live_peak) return;
  self->live_peak = self->live;
  self->allocated_at_peak = self->total_allocated;
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

/* The lowest hole that fits and is shorter than a bound, but once the job is known none at home in a window:
 * what a stitch was short of last time is free there, and has to be when the iteration comes to it again. */
static pool_hole *lowest_below(const alias_heap *self, uint64_t size, uint64_t bound) {
  enum { TRIES = 64 };
  pool_hole *hole = pool_holes_first_below(&self->holes, size, bound, TRIES);
  bool in_window = hole && hole->begin - self->main->address >= self->main->size;
  return in_window && alias_settled(self) ? NULL : hole;
}

/* The lowest hole that fits, but small requests rather take holes not much longer than they are, and
 * long holes are left to large ones: a hole that is cut cannot serve them without a stitch. */
static pool_hole *lowest_fit(const alias_heap *self, uint64_t size) {
  const alias_settings *settings = &self->settings;
  pool_hole *hole = NULL;
  if (settings->near > 0 && size <= settings->near_limit) {
    uint64_t bound = (uint64_t)(settings->near * (double)size);
    hole = lowest_below(self, size, bound > settings->near_least ? bound : settings->near_least);
  }
  if (!hole && size < settings->keep) hole = lowest_below(self, size, settings->keep);
  return hole ? hole : pool_holes_first(&self->holes, size);
}

static pool_hole *fit(alias_heap *self, uint64_t size, vmm_stream stream) {
  if (!self->settings.prefer_clean) return lowest_fit(self, size);
  for (pool_hole *hole = pool_holes_first(&self->holes, size); hole; hole = pool_holes_next(hole, size)) {
    if (is_clean(self, hole, stream)) return hole;
  }
  return lowest_fit(self, size);
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

/* ---- the ladder ---- */

/* The tail of the main range and what was just added to it serve the request. */
static vmm_status grow_and_give(alias_heap *self, uint64_t bytes, uint64_t size, uint64_t requested,
                                vmm_stream stream, bool start_up, vmm_address *address) {
  vmm_address begin = self->main->address + self->main_length - alias_main_tail(self);
  vmm_status status = alias_grow(self, bytes, start_up);
  return status == VMM_SUCCESS ? give_home(self, begin, size, requested, stream, address) : status;
}

/* Once through the ladder, without touching what others hold. */
static vmm_status serve(alias_heap *self, uint64_t size, uint64_t requested, vmm_stream stream,
                        vmm_address *address) {
  pool_hole *hole = fit(self, size, stream);
  if (hole && alias_pressed(self) && alias_split(self, hole->begin + size)) hole = fit(self, size, stream);
  if (hole) return give_home(self, hole->begin, size, requested, stream, address);
  bool start_up = alias_starting_up(self), declined = false;
  uint64_t need = alias_round_up(size - alias_main_tail(self), self->base.heap.granularity);
  uint64_t amount = alias_growth_quantum(self, start_up);
  bool big = alias_stitches(self, size, need);
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
    .check = alias_heap_check,
    .blocks = aliasheap_blocks,
};
