/* Growth of policy aliasheap: when memory is taken from the driver rather than stitched, how much,
 * and in handles of which sizes. */
#include <stdlib.h>

#include "policies/alias_heap.h"

static uint64_t reserved(const alias_heap *self) { return self->base.heap.statistics.reserved_bytes.current; }

bool alias_starting_up(const alias_heap *self) { return self->total_freed < self->total_allocated / 100; }

bool alias_settled(const alias_heap *self) {
  return self->settings.settled > 0 && (double)(self->total_allocated - self->allocated_at_peak) >
                                           self->settings.settled * (double)self->live_peak;
}

/* ---- when ---- */

/* How much of a full-sized job this one has been so far, at most 1. */
static double job_share(const alias_heap *self) {
  if (self->live_peak >= self->settings.small_job) return 1;
  double share = (double)self->live_peak / (double)self->settings.small_job;
  return share > 0.05 ? share : 0.05;
}

/* Does growing by so much waste too much for a medium request? */
static bool wasteful(const alias_heap *self, uint64_t size, uint64_t need, double share) {
  const alias_settings *settings = &self->settings;
  double total = (double)(reserved(self) + need), live = (double)(self->live + size);
  double peak = live > (double)self->live_peak ? live : (double)self->live_peak;
  /* Stitching costs a small job little: it grows past its peak for its peak only. */
  double live_least = share < 1 ? 1 : settings->waste_live;
  return total > settings->waste_high * peak ||
         (live < live_least * peak && total > settings->waste_low * peak);
}

bool alias_stitches(const alias_heap *self, uint64_t size, uint64_t need) {
  double share = job_share(self);
  return (double)size >= share * (double)self->settings.huge ||
         (size >= self->settings.medium && wasteful(self, size, need, share)) ||
         (size >= self->base.heap.granularity && alias_settled(self));
}

/* ---- how much ---- */

/* The handles at the ends of a growth. */
static uint64_t edge_handle(const alias_heap *self) {
  const alias_settings *settings = &self->settings;
  uint64_t size = self->live_peak / settings->handle_parts;
  if (size < settings->handle_least) size = settings->handle_least;
  if (size > settings->handle_edge) size = settings->handle_edge;
  return size / self->base.heap.granularity * self->base.heap.granularity;
}

uint64_t alias_growth_quantum(const alias_heap *self, bool start_up) {
  const uint64_t unit = self->base.heap.granularity;
  uint64_t amount = reserved(self) / (start_up ? 16 : 64);
  uint64_t most = start_up ? self->settings.handle_start : edge_handle(self);
  if (amount > most) amount = most;
  if (amount < unit || alias_settled(self)) amount = unit;
  return amount / unit * unit;
}

/* ---- in which pieces ---- */

static uint64_t start_handle(const alias_heap *self, uint64_t edge) {
  uint64_t size = (uint64_t)((double)reserved(self) * self->settings.start_share);
  if (size < edge) size = edge;
  return size < self->settings.handle_start ? size : self->settings.handle_start;
}

static uint64_t middle_handle(const alias_heap *self, uint64_t bytes, uint64_t edge) {
  uint64_t size = (uint64_t)((double)bytes * self->settings.middle_share);
  if (size > self->settings.handle_limit) size = self->settings.handle_limit;
  return size > edge ? size : edge;
}

uint64_t alias_cut(const alias_heap *self, uint64_t bytes, bool start_up, uint64_t *sizes,
                   uint64_t capacity) {
  const uint64_t unit = self->base.heap.granularity, edge = edge_handle(self);
  const uint64_t most = start_up ? start_handle(self, edge) : middle_handle(self, bytes, edge);
  uint64_t count = 0;
  for (uint64_t done = 0; done < bytes && count < capacity;) {
    uint64_t left = bytes - done, piece = most;
    if (!start_up) {
      /* Small handles at both ends, where holes will have their borders. */
      uint64_t from_begin = done > edge ? done : edge, from_end = left / 2 > edge ? left / 2 : edge;
      if (piece > from_begin) piece = from_begin;
      if (piece > from_end) piece = from_end;
    }
    piece = piece / unit * unit;
    if (piece > left || count == capacity - 1) piece = left;
    if (piece == 0) piece = unit;
    sizes[count++] = piece;
    done += piece;
  }
  return count;
}

uint64_t alias_main_tail(const alias_heap *self) {
  vmm_address end = self->main->address + self->main_length;
  const pool_hole *hole = self->main_length > 0 ? pool_holes_at_or_above(&self->holes, end - 1) : NULL;
  return hole && hole->begin < end ? end - hole->begin : 0;
}

vmm_status alias_grow(alias_heap *self, uint64_t bytes, bool start_up) {
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
