/* Live allocations by address: an open-addressing table, so that a free costs one probe or two. */
#include <stdlib.h>
#include <string.h>

#include "pools/heap_internal.h"

static inline uint64_t home(const pool_allocation_map *map, vmm_address address) {
  return (address * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (map->capacity - 1);
}

/* Where the address is, or the empty place where it would be. */
static inline uint64_t find_place(const pool_allocation_map *map, vmm_address address) {
  uint64_t i = home(map, address);
  while (map->addresses[i] != address && map->addresses[i] != 0) i = (i + 1) & (map->capacity - 1);
  return i;
}

pool_allocation *heap_lookup(const pool_heap *heap, vmm_address address) {
  const pool_allocation_map *map = &heap->allocations;
  if (map->count == 0 || address == 0) return NULL;
  const uint64_t i = find_place(map, address);
  return map->addresses[i] == address ? &map->entries[i] : NULL;
}

static void put(pool_allocation_map *map, uint64_t place, const pool_allocation *allocation) {
  map->addresses[place] = allocation->address;
  map->entries[place] = *allocation;
}

void heap_forget_allocations(pool_heap *heap) {
  free(heap->allocations.addresses);
  free(heap->allocations.entries);
  heap->allocations = (pool_allocation_map){0};
}

static bool is_full(const pool_allocation_map *map) { return map->count * 2 >= map->capacity; }

static vmm_status grow(pool_heap *heap) {
  const pool_allocation_map *map = &heap->allocations;
  pool_allocation_map larger = {.capacity = map->capacity ? map->capacity * 2 : 1024, .count = map->count};
  larger.addresses = calloc(larger.capacity, sizeof *larger.addresses);
  larger.entries = calloc(larger.capacity, sizeof *larger.entries);
  if (!larger.addresses || !larger.entries) {
    free(larger.addresses);
    free(larger.entries);
    return VMM_OUT_OF_MEMORY;
  }
  for (uint64_t i = 0; i < map->capacity; i++) {
    if (map->addresses[i] != 0) put(&larger, find_place(&larger, map->addresses[i]), &map->entries[i]);
  }
  heap_forget_allocations(heap);
  heap->allocations = larger;
  return VMM_SUCCESS;
}

/* Closes the gap that a removed entry leaves in its probe run. */
static void remove_entry(pool_allocation_map *map, const pool_allocation *entry) {
  const uint64_t mask = map->capacity - 1;
  uint64_t gap = (uint64_t)(entry - map->entries);
  for (uint64_t i = (gap + 1) & mask; map->addresses[i] != 0; i = (i + 1) & mask) {
    if (((i - home(map, map->addresses[i])) & mask) >= ((i - gap) & mask)) {
      put(map, gap, &map->entries[i]);
      gap = i;
    }
  }
  map->addresses[gap] = map->entries[gap].address = 0;
  map->count--;
}

vmm_status pool_heap_hand_out(pool_heap *heap, vmm_address address, uint64_t size, uint64_t requested,
                              vmm_stream stream, void *owner) {
  pool_allocation_map *map = &heap->allocations;
  if (address == 0) return VMM_INVALID_VALUE;
  if (is_full(map) && grow(heap) != VMM_SUCCESS) return VMM_OUT_OF_MEMORY;
  const uint64_t place = find_place(map, address);
  if (map->addresses[place] == address) return VMM_INVALID_VALUE;
  pool_allocation allocation = {
      .address = address, .size = size, .requested = requested, .owner = owner, .stream = stream};
  put(map, place, &allocation);
  map->count++;
  pool_statistics *statistics = &heap->statistics;
  pool_statistic_add(&statistics->allocations, 1);
  pool_statistic_add(&statistics->allocated_bytes, size);
  pool_statistic_add(&statistics->active_bytes, size);
  pool_statistic_add(&statistics->requested_bytes, requested);
  return VMM_SUCCESS;
}

pool_allocation *pool_heap_find(pool_heap *heap, vmm_address address) {
  pool_allocation *allocation = heap_lookup(heap, address);
  return allocation && allocation->pending_events == 0 ? allocation : NULL;
}

/* The caller's side of a free. */
static void count_freed(pool_heap *heap, const pool_allocation *allocation) {
  pool_statistic_take(&heap->statistics.allocations, 1);
  pool_statistic_take(&heap->statistics.allocated_bytes, allocation->size);
}

/* The memory is free for reuse. */
static void forget(pool_heap *heap, pool_allocation *allocation, pool_allocation *taken) {
  pool_statistic_take(&heap->statistics.active_bytes, allocation->size);
  pool_statistic_take(&heap->statistics.requested_bytes, allocation->requested);
  *taken = *allocation;
  remove_entry(&heap->allocations, allocation);
}

/* ---- frees that wait for other streams ---- */

vmm_status pool_heap_record_stream(pool_heap *heap, vmm_address address, vmm_stream stream) {
  pool_allocation *allocation = pool_heap_find(heap, address);
  if (!allocation || stream >= POOL_STREAM_LIMIT) return VMM_INVALID_VALUE;
  if (allocation->stream == stream) return VMM_SUCCESS;
  for (pool_stream_use *use = allocation->uses; use; use = use->next) {
    if (use->stream == stream) return VMM_SUCCESS;
  }
  pool_stream_use *use = malloc(sizeof *use);
  if (!use) return VMM_OUT_OF_MEMORY;
  *use = (pool_stream_use){stream, allocation->uses};
  allocation->uses = use;
  return VMM_SUCCESS;
}

/* Room for one more entry in the queue of a stream. */
static vmm_status pending_reserve(pool_heap *heap, vmm_stream stream) {
  if (stream >= heap->pending_streams) {
    uint32_t streams = stream + 8;
    pool_pending *larger = realloc(heap->pending, streams * sizeof *larger);
    if (!larger) return VMM_OUT_OF_MEMORY;
    memset(larger + heap->pending_streams, 0, (streams - heap->pending_streams) * sizeof *larger);
    heap->pending = larger;
    heap->pending_streams = streams;
  }
  pool_pending *queue = &heap->pending[stream];
  if (queue->count < queue->capacity) return VMM_SUCCESS;
  uint64_t capacity = queue->capacity ? queue->capacity * 2 : 16;
  pool_pending_entry *entries = malloc(capacity * sizeof *entries);
  if (!entries) return VMM_OUT_OF_MEMORY;
  for (uint64_t i = 0; i < queue->count; i++) {
    entries[i] = queue->entries[(queue->begin + i) & (queue->capacity - 1)];
  }
  free(queue->entries);
  *queue = (pool_pending){entries, capacity, 0, queue->count};
  return VMM_SUCCESS;
}

/* Drops the streams recorded for an allocation, the first capacity of them to streams, which may be NULL. */
static uint32_t forget_uses(pool_allocation *allocation, vmm_stream *streams, uint32_t capacity) {
  uint32_t count = 0;
  for (pool_stream_use *use = allocation->uses, *next; use; use = next) {
    next = use->next;
    if (streams && count < capacity) streams[count] = use->stream;
    count++;
    free(use);
  }
  allocation->uses = NULL;
  return count;
}

/* Records one event for each stream that uses the allocation; all or none. */
static vmm_status defer(pool_heap *heap, pool_allocation *allocation) {
  for (pool_stream_use *use = allocation->uses; use; use = use->next) {
    vmm_event event = 0;
    vmm_status status = pending_reserve(heap, use->stream);
    if (status == VMM_SUCCESS) status = vmm_event_record(heap->driver, use->stream, &event);
    if (status != VMM_SUCCESS) {
      /* The entries just queued are the newest of their streams: take them back. */
      for (pool_stream_use *done = allocation->uses; done != use; done = done->next) {
        pool_pending *queue = &heap->pending[done->stream];
        queue->count--;
        vmm_event_discard(heap->driver,
                          queue->entries[(queue->begin + queue->count) & (queue->capacity - 1)].event);
      }
      allocation->pending_events = 0;
      return status;
    }
    pool_pending *queue = &heap->pending[use->stream];
    queue->entries[(queue->begin + queue->count) & (queue->capacity - 1)] =
        (pool_pending_entry){event, allocation->address};
    queue->count++;
    allocation->pending_events++;
  }
  forget_uses(allocation, NULL, 0);
  heap->pending_count++;
  return VMM_SUCCESS;
}

bool pool_heap_take_back(pool_heap *heap, pool_allocation *allocation, pool_allocation *taken,
                         vmm_status *status) {
  *status = VMM_SUCCESS;
  if (allocation->uses) {
    *status = defer(heap, allocation);
    if (*status == VMM_SUCCESS) count_freed(heap, allocation);
    return false;
  }
  count_freed(heap, allocation);
  forget(heap, allocation, taken);
  return true;
}

uint32_t pool_heap_recorded_streams(const pool_allocation *allocation) {
  uint32_t count = 0;
  for (const pool_stream_use *use = allocation->uses; use; use = use->next) count++;
  return count;
}

void pool_heap_list_streams(const pool_allocation *allocation, vmm_stream *streams, uint32_t capacity) {
  uint32_t count = 0;
  for (const pool_stream_use *use = allocation->uses; use && count < capacity; use = use->next)
    streams[count++] = use->stream;
}

uint32_t pool_heap_take_back_with_streams(pool_heap *heap, pool_allocation *allocation,
                                          pool_allocation *taken, vmm_stream *streams, uint32_t capacity) {
  uint32_t count = forget_uses(allocation, streams, capacity);
  count_freed(heap, allocation);
  forget(heap, allocation, taken);
  return count;
}

bool pool_heap_next_complete(pool_heap *heap, bool wait, pool_allocation *taken) {
  if (heap->pending_count == 0) return false;
  for (uint32_t stream = 0; stream < heap->pending_streams; stream++) {
    pool_pending *queue = &heap->pending[stream];
    while (queue->count > 0) {
      pool_pending_entry *entry = &queue->entries[queue->begin];
      vmm_status status = vmm_event_query(heap->driver, entry->event);
      if (status == VMM_NOT_READY && wait) {
        heap->statistics.host_waits++;
        status = vmm_event_wait(heap->driver, entry->event);
      }
      /* Not reached, or the device cannot tell: the memory stays out of use. */
      if (status != VMM_SUCCESS) break;
      vmm_event_discard(heap->driver, entry->event);
      pool_allocation *allocation = heap_lookup(heap, entry->address);
      queue->begin = (queue->begin + 1) & (queue->capacity - 1);
      queue->count--;
      if (--allocation->pending_events > 0) continue;
      heap->pending_count--;
      forget(heap, allocation, taken);
      return true;
    }
  }
  return false;
}

void heap_forget_pending(pool_heap *heap) {
  for (uint32_t stream = 0; stream < heap->pending_streams; stream++) {
    pool_pending *queue = &heap->pending[stream];
    for (uint64_t i = 0; i < queue->count; i++) {
      vmm_event_discard(heap->driver, queue->entries[(queue->begin + i) & (queue->capacity - 1)].event);
    }
    free(queue->entries);
  }
  free(heap->pending);
  heap->pending = NULL;
  heap->pending_streams = 0;
  heap->pending_count = 0;
  for (uint64_t i = 0; i < heap->allocations.capacity; i++) {
    if (heap->allocations.entries[i].address != 0) forget_uses(&heap->allocations.entries[i], NULL, 0);
  }
}
