#include "pools/heap.h"

#include <stdlib.h>
#include <string.h>

#include "pools/heap_internal.h"

#define LIST_PUSH(head, item)            \
  do {                                   \
    (item)->previous = NULL;             \
    (item)->next = (head);               \
    if (head) (head)->previous = (item); \
    (head) = (item);                     \
  } while (0)

#define LIST_REMOVE(head, item)                                  \
  do {                                                           \
    if ((item)->previous)                                        \
      (item)->previous->next = (item)->next;                     \
    else                                                         \
      (head) = (item)->next;                                     \
    if ((item)->next) (item)->next->previous = (item)->previous; \
  } while (0)

vmm_status pool_heap_init(pool_heap *heap, vmm_driver *driver, bool uses_chunks, uint64_t limit) {
  memset(heap, 0, sizeof *heap);
  heap->driver = driver;
  heap->limit = limit;
  heap->device_bytes = UINT64_MAX;
  if (uses_chunks) {
    uint64_t free_bytes;
    vmm_status status = vmm_granularity(driver, &heap->granularity);
    if (status == VMM_SUCCESS) status = vmm_memory_info(driver, &free_bytes, &heap->device_bytes);
    if (status != VMM_SUCCESS) return status;
  }
  static const char *const names[POOL_OPERATION_FIRST_OWN] = {"alloc", "free", "record_stream", "trim",
                                                              "grow"};
  for (unsigned i = 0; i < POOL_OPERATION_FIRST_OWN; i++) heap->operations[i].name = names[i];
  heap->operation_count = POOL_OPERATION_FIRST_OWN;
  return VMM_SUCCESS;
}

static void keep_first(vmm_status *first, vmm_status status) {
  if (*first == VMM_SUCCESS) *first = status;
}

struct pool_reservation {
  vmm_address address;
  uint64_t size;
  uint64_t parts; /* ranges not freed yet */
};

/* Unmaps whatever is mapped, run by run. */
static vmm_status range_unmap_all(pool_heap *heap, pool_range *range) {
  vmm_status first = VMM_SUCCESS;
  uint64_t units = range->size / range->unit;
  for (uint64_t i = 0; i < units && range->mapped > 0;) {
    if (!range->slots[i].chunk) {
      i++;
      continue;
    }
    uint64_t end = i;
    while (end < units && range->slots[end].chunk) end++;
    keep_first(&first, pool_range_unmap(heap, range, i * range->unit, (end - i) * range->unit));
    i = end;
  }
  return first;
}

static vmm_status return_everything(pool_heap *heap) {
  vmm_status first = VMM_SUCCESS;
  for (pool_range *range = heap->ranges, *next; range; range = next) {
    next = range->next;
    keep_first(&first, range_unmap_all(heap, range));
    keep_first(&first, pool_range_free(heap, range));
  }
  for (pool_chunk *chunk = heap->chunks, *next; chunk; chunk = next) {
    next = chunk->next;
    keep_first(&first, pool_chunk_release(heap, chunk));
  }
  for (pool_segment *segment = heap->segments, *next; segment; segment = next) {
    next = segment->next;
    keep_first(&first, pool_segment_free(heap, segment));
  }
  return first;
}

/* The host's memory goes, whatever the device still holds. */
static void forget_everything(pool_heap *heap) {
  for (pool_range *range; (range = heap->ranges); free(range)) {
    heap->ranges = range->next;
    if (--range->reservation->parts == 0) free(range->reservation);
    free(range->slots);
  }
  for (pool_chunk *chunk; (chunk = heap->chunks); free(chunk)) heap->chunks = chunk->next;
  for (pool_segment *segment; (segment = heap->segments); free(segment)) heap->segments = segment->next;
  heap_forget_allocations(heap);
}

vmm_status pool_heap_fini(pool_heap *heap) {
  vmm_status first = VMM_SUCCESS;
  /* Memory goes back while kernels may still use it unless the host has waited: unmap does not wait. */
  if (heap->ranges || heap->pending_count > 0) keep_first(&first, vmm_synchronize(heap->driver));
  heap_forget_pending(heap);
  for (int attempt = 0; attempt < 2; attempt++) keep_first(&first, return_everything(heap));
  forget_everything(heap);
  return first;
}

void pool_heap_set_limit(pool_heap *heap, uint64_t limit) {
  const uint64_t reserved = heap->statistics.reserved_bytes.current;
  heap->limit = limit;
  heap->over_limit = reserved > limit ? reserved : 0;
}

void pool_heap_note_elsewhere(pool_heap *heap, uint64_t bytes) {
  if (bytes > heap->elsewhere_bytes) {
    pool_statistic_add(&heap->statistics.reserved_bytes, bytes - heap->elsewhere_bytes);
    heap->statistics.driver_allocations++;
  } else if (bytes < heap->elsewhere_bytes) {
    pool_statistic_take(&heap->statistics.reserved_bytes, heap->elsewhere_bytes - bytes);
    heap->statistics.driver_frees++;
  }
  heap->elsewhere_bytes = bytes;
}

vmm_status pool_segment_allocate(pool_heap *heap, uint64_t size, pool_segment **segment) {
  if (!pool_heap_within_limit(heap, size)) return VMM_OUT_OF_MEMORY;
  pool_segment *made = malloc(sizeof *made);
  if (!made) return VMM_OUT_OF_MEMORY;
  made->size = size;
  vmm_status status = vmm_malloc(heap->driver, size, &made->address);
  if (status != VMM_SUCCESS) {
    free(made);
    return status;
  }
  LIST_PUSH(heap->segments, made);
  pool_statistic_add(&heap->statistics.reserved_bytes, size);
  pool_statistic_add(&heap->statistics.segments, 1);
  heap->statistics.driver_allocations++;
  *segment = made;
  return VMM_SUCCESS;
}

vmm_status pool_segment_free(pool_heap *heap, pool_segment *segment) {
  vmm_status status = vmm_free(heap->driver, segment->address);
  if (status != VMM_SUCCESS) return status;
  pool_statistic_take(&heap->statistics.reserved_bytes, segment->size);
  pool_statistic_take(&heap->statistics.segments, 1);
  heap->statistics.driver_frees++;
  LIST_REMOVE(heap->segments, segment);
  free(segment);
  return VMM_SUCCESS;
}

vmm_status pool_chunk_create(pool_heap *heap, uint64_t size, void *owner, pool_chunk **chunk) {
  if (!heap->limit_is_policys && !pool_heap_within_limit(heap, size)) return VMM_OUT_OF_MEMORY;
  pool_chunk *made = malloc(sizeof *made);
  if (!made) return VMM_OUT_OF_MEMORY;
  vmm_status status = vmm_create(heap->driver, size, &made->handle);
  if (status != VMM_SUCCESS) {
    free(made);
    return status;
  }
  made->size = size;
  made->mappings = 0;
  made->claimed = 0;
  made->owner = owner;
  LIST_PUSH(heap->chunks, made);
  heap->chunk_count++;
  pool_statistic_add(&heap->statistics.reserved_bytes, size);
  *chunk = made;
  return VMM_SUCCESS;
}

/* All or none. sizes: one for each, or NULL for size. */
static vmm_status create_batch(pool_heap *heap, const uint64_t *sizes, uint64_t size, uint64_t count,
                               void *owner, pool_chunk **chunks) {
  pool_statistic reserved_before = heap->statistics.reserved_bytes;
  for (uint64_t i = 0; i < count; i++) {
    vmm_status status = pool_chunk_create(heap, sizes ? sizes[i] : size, owner, &chunks[i]);
    if (status == VMM_SUCCESS) continue;
    bool all_returned = true;
    while (i > 0) all_returned &= pool_chunk_give_up(heap, chunks[--i]) == VMM_SUCCESS;
    /* A batch that failed never was: it must not show in the peak. */
    if (all_returned) heap->statistics.reserved_bytes = reserved_before;
    return status;
  }
  heap->statistics.driver_allocations++;
  return VMM_SUCCESS;
}

vmm_status pool_chunks_create(pool_heap *heap, uint64_t size, uint64_t count, void *owner,
                              pool_chunk **chunks) {
  if (count == 0) return VMM_INVALID_VALUE;
  if (!heap->limit_is_policys && (size > UINT64_MAX / count || !pool_heap_within_limit(heap, size * count))) {
    return VMM_OUT_OF_MEMORY;
  }
  return create_batch(heap, NULL, size, count, owner, chunks);
}

vmm_status pool_chunks_create_sizes(pool_heap *heap, const uint64_t *sizes, uint64_t count, void *owner,
                                    pool_chunk **chunks) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (sizes[i] > UINT64_MAX - total) return VMM_OUT_OF_MEMORY;
    total += sizes[i];
  }
  if (count == 0) return VMM_INVALID_VALUE;
  if (!heap->limit_is_policys && !pool_heap_within_limit(heap, total)) return VMM_OUT_OF_MEMORY;
  return create_batch(heap, sizes, 0, count, owner, chunks);
}

vmm_status pool_chunk_release(pool_heap *heap, pool_chunk *chunk) {
  if (chunk->mappings != 0) return VMM_INVALID_VALUE;
  vmm_status status = vmm_release(heap->driver, chunk->handle);
  if (status != VMM_SUCCESS) return status;
  pool_statistic_take(&heap->statistics.reserved_bytes, chunk->size);
  heap->chunk_count--;
  LIST_REMOVE(heap->chunks, chunk);
  free(chunk);
  return VMM_SUCCESS;
}

vmm_status pool_chunk_give_up(pool_heap *heap, pool_chunk *chunk) {
  vmm_status status = pool_chunk_release(heap, chunk);
  if (status != VMM_SUCCESS) {
    chunk->owner = heap;
    heap->stranded_bytes += chunk->size;
  }
  return status;
}

static void drop_ranges(pool_range **ranges, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    if (ranges[i]) free(ranges[i]->slots);
    free(ranges[i]);
    ranges[i] = NULL;
  }
}

vmm_status pool_ranges_reserve(pool_heap *heap, const uint64_t *sizes, uint64_t count, uint64_t unit,
                               pool_range **ranges) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; i++) ranges[i] = NULL;
  for (uint64_t i = 0; i < count; i++) {
    if (sizes[i] == 0 || unit == 0 || sizes[i] % unit != 0 || sizes[i] > UINT64_MAX - total)
      return VMM_INVALID_VALUE;
    total += sizes[i];
  }
  if (count == 0) return VMM_INVALID_VALUE;
  pool_reservation *reservation = malloc(sizeof *reservation);
  bool enough = reservation != NULL;
  for (uint64_t i = 0; enough && i < count; i++) {
    ranges[i] = calloc(1, sizeof *ranges[i]);
    if (ranges[i]) ranges[i]->slots = calloc(sizes[i] / unit, sizeof *ranges[i]->slots);
    enough = ranges[i] && ranges[i]->slots;
  }
  vmm_status status = enough
                          ? vmm_address_reserve(heap->driver, total, heap->granularity, &reservation->address)
                          : VMM_OUT_OF_MEMORY;
  if (status != VMM_SUCCESS) {
    drop_ranges(ranges, count);
    free(reservation);
    return status;
  }
  reservation->size = total;
  reservation->parts = count;
  vmm_address address = reservation->address;
  for (uint64_t i = 0; i < count; address += sizes[i++]) {
    ranges[i]->reservation = reservation;
    ranges[i]->address = address;
    ranges[i]->size = sizes[i];
    ranges[i]->unit = unit;
    LIST_PUSH(heap->ranges, ranges[i]);
  }
  heap->range_count += count;
  heap->reserved_address_bytes += total;
  return VMM_SUCCESS;
}

vmm_status pool_range_reserve(pool_heap *heap, uint64_t size, uint64_t unit, pool_range **range) {
  return pool_ranges_reserve(heap, &size, 1, unit, range);
}

vmm_status pool_range_free(pool_heap *heap, pool_range *range) {
  if (range->mapped != 0) return VMM_INVALID_VALUE;
  pool_reservation *reservation = range->reservation;
  if (reservation->parts == 1) {
    vmm_status status = vmm_address_free(heap->driver, reservation->address, reservation->size);
    if (status != VMM_SUCCESS) return status;
    free(reservation);
  } else {
    reservation->parts--;
  }
  heap->range_count--;
  heap->reserved_address_bytes -= range->size;
  LIST_REMOVE(heap->ranges, range);
  free(range->slots);
  free(range);
  return VMM_SUCCESS;
}

static void slots_set(pool_range *range, uint64_t offset, pool_chunk *chunk) {
  pool_slot *slot = &range->slots[offset / range->unit];
  uint64_t units = chunk->size / range->unit;
  for (uint64_t i = 0; i < units; i++) slot[i] = (pool_slot){chunk, i};
  chunk->mappings++;
  range->mapped += chunk->size;
}

static bool slots_free(const pool_range *range, uint64_t offset, uint64_t size) {
  for (uint64_t i = offset / range->unit; i < (offset + size) / range->unit; i++) {
    if (range->slots[i].chunk) return false;
  }
  return true;
}

vmm_status pool_range_map(pool_heap *heap, pool_range *range, uint64_t offset, pool_chunk *const *chunks,
                          uint64_t count) {
  uint64_t size = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (chunks[i]->size % range->unit != 0) return VMM_INVALID_VALUE;
    size += chunks[i]->size;
  }
  if (count == 0 || offset % range->unit != 0 || offset > range->size || size > range->size - offset ||
      !slots_free(range, offset, size)) {
    return VMM_INVALID_VALUE;
  }
  uint64_t done = 0;
  vmm_status status = VMM_SUCCESS;
  for (uint64_t i = 0; i < count && status == VMM_SUCCESS; i++) {
    status = vmm_map(heap->driver, range->address + offset + done, chunks[i]->size, 0, chunks[i]->handle);
    if (status == VMM_SUCCESS) done += chunks[i]->size;
  }
  if (status == VMM_SUCCESS) status = vmm_set_access(heap->driver, range->address + offset, size);
  if (status == VMM_SUCCESS) {
    for (uint64_t i = 0; i < count; i++) {
      slots_set(range, offset, chunks[i]);
      offset += chunks[i]->size;
    }
    return VMM_SUCCESS;
  }
  bool undone = done == 0;
  for (int attempt = 0; !undone && attempt < 2; attempt++) {
    undone = vmm_unmap(heap->driver, range->address + offset, done) == VMM_SUCCESS;
  }
  if (!undone) {
    /* What could not be undone is recorded as it is, so that the end of the heap tries again. */
    for (uint64_t i = 0; done > 0; i++) {
      slots_set(range, offset, chunks[i]);
      offset += chunks[i]->size;
      done -= chunks[i]->size;
    }
  }
  return status;
}

vmm_status pool_range_unmap(pool_heap *heap, pool_range *range, uint64_t offset, uint64_t size) {
  if (size == 0 || offset % range->unit != 0 || size % range->unit != 0 || offset > range->size ||
      size > range->size - offset) {
    return VMM_INVALID_VALUE;
  }
  pool_slot *first = &range->slots[offset / range->unit];
  uint64_t units = size / range->unit;
  for (uint64_t i = 0; i < units;) {
    pool_chunk *chunk = first[i].chunk;
    if (!chunk || first[i].offset != 0 || chunk->size / range->unit > units - i) return VMM_INVALID_VALUE;
    i += chunk->size / range->unit;
  }
  vmm_status status = vmm_unmap(heap->driver, range->address + offset, size);
  if (status != VMM_SUCCESS) return status;
  for (uint64_t i = 0; i < units; i++) {
    if (first[i].offset == 0) first[i].chunk->mappings--;
  }
  memset(first, 0, units * sizeof *first);
  range->mapped -= size;
  return VMM_SUCCESS;
}

unsigned pool_operation_define(pool_heap *heap, const char *name) {
  unsigned number = heap->operation_count++;
  heap->operations[number].name = name;
  return number;
}
