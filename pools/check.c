/* The invariant walker: everything that must hold whatever the policy. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pools/heap_internal.h"

/* A run of addresses got from the driver. */
typedef struct span {
  vmm_address begin, end;
  pool_range *range; /* NULL: a segment */
} span;

/* A run of physical bytes that a live allocation covers. */
typedef struct claim {
  uint64_t place; /* the chunk, or the address itself in a segment */
  uint64_t begin, end;
  vmm_address allocation;
} claim;

typedef struct claims {
  claim *items;
  size_t count, capacity;
} claims;

static bool broken(char *message, size_t message_size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool broken(char *message, size_t message_size, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, message_size, format, arguments);
  va_end(arguments);
  return false;
}

static int compare_spans(const void *left, const void *right) {
  const span *a = left, *b = right;
  return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static int compare_claims(const void *left, const void *right) {
  const claim *a = left, *b = right;
  if (a->place != b->place) return a->place < b->place ? -1 : 1;
  return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static bool add_claim(claims *all, uint64_t place, uint64_t begin, uint64_t end, vmm_address allocation) {
  if (all->count == all->capacity) {
    size_t capacity = all->capacity ? all->capacity * 2 : 256;
    claim *items = realloc(all->items, capacity * sizeof *items);
    if (!items) return false;
    all->items = items;
    all->capacity = capacity;
  }
  all->items[all->count++] = (claim){place, begin, end, allocation};
  return true;
}

static const span *span_of(const span *spans, size_t count, vmm_address address) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (spans[middle].end <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low < count && spans[low].begin <= address ? &spans[low] : NULL;
}

/* The physical bytes behind one allocation. */
static bool claim_allocation(const pool_heap *heap, const pool_allocation *allocation, const span *spans,
                             size_t span_count, claims *all, char *message, size_t message_size) {
  const vmm_address begin = allocation->address, end = begin + allocation->size;
  const span *home = span_of(spans, span_count, begin);
  if (heap->memory_elsewhere && !home) {
    if (add_claim(all, 0, begin, end, begin)) return true;
    return broken(message, message_size, "the host has no memory for the check");
  }
  if (!home || end > home->end) {
    return broken(message, message_size,
                  "allocation 0x%" PRIx64 " of %" PRIu64 " bytes lies outside what the heap holds", begin,
                  allocation->size);
  }
  if (!home->range) {
    if (add_claim(all, 0, begin, end, begin)) return true;
    return broken(message, message_size, "the host has no memory for the check");
  }
  const pool_range *range = home->range;
  for (vmm_address at = begin; at < end;) {
    const pool_slot *slot = &range->slots[(at - range->address) / range->unit];
    if (!slot->chunk) {
      return broken(message, message_size, "allocation 0x%" PRIx64 ": nothing is mapped at 0x%" PRIx64, begin,
                    at);
    }
    uint64_t in_chunk = slot->offset * range->unit + (at - range->address) % range->unit;
    uint64_t length = slot->chunk->size - in_chunk;
    if (length > end - at) length = end - at;
    if (!add_claim(all, (uint64_t)(uintptr_t)slot->chunk, in_chunk, in_chunk + length, begin)) {
      return broken(message, message_size, "the host has no memory for the check");
    }
    at += length;
  }
  return true;
}

static bool check_sum(const char *what, uint64_t counted, uint64_t found, char *message,
                      size_t message_size) {
  if (counted == found) return true;
  return broken(message, message_size, "%s says %" PRIu64 ", the sum is %" PRIu64, what, counted, found);
}

/* There is a mapping of a chunk that the heap does not hold; those that it holds are marked. */
static bool name_chunk_not_held(const pool_heap *heap, char *message, size_t message_size) {
  for (const pool_range *range = heap->ranges; range; range = range->next) {
    for (uint64_t i = 0; i < range->size / range->unit; i++) {
      const pool_chunk *chunk = range->slots[i].chunk;
      if (!chunk || chunk->claimed == UINT32_MAX) continue;
      return broken(message, message_size,
                    "range 0x%" PRIx64 " maps chunk %" PRIu64 ", which the heap does not hold, at 0x%" PRIx64,
                    range->address, chunk->handle, range->address + i * range->unit);
    }
  }
  return broken(message, message_size, "a chunk is mapped that the heap does not hold");
}

/* A slot that begins a chunk begins a whole one; one inside a chunk follows the slot before it. */
static bool slot_in_order(const pool_range *range, uint64_t i) {
  const pool_slot *slot = &range->slots[i];
  if (slot->offset == 0) return slot->chunk->size <= range->size - i * range->unit;
  return i > 0 && slot[-1].chunk == slot->chunk && slot[-1].offset + 1 == slot->offset &&
         slot->offset < slot->chunk->size / range->unit;
}

/* Mapping counts of every chunk equal what the ranges show; nothing mapped that is not held. */
static bool check_mappings(pool_heap *heap, char *message, size_t message_size) {
  uint64_t chunks = 0, held = 0, found = 0;
  for (pool_chunk *chunk = heap->chunks; chunk; chunk = chunk->next, chunks++) chunk->claimed = 0;
  if (chunks != heap->chunk_count)
    return broken(message, message_size, "the heap counts %" PRIu64 " chunks and holds %" PRIu64,
                  heap->chunk_count, chunks);
  uint64_t ranges = 0;
  for (pool_range *range = heap->ranges; range; range = range->next, ranges++) {
    uint64_t mapped = 0;
    for (uint64_t i = 0; mapped < range->mapped && i < range->size / range->unit; i++) {
      const pool_slot *slot = &range->slots[i];
      if (!slot->chunk) continue;
      mapped += range->unit;
      if (!slot_in_order(range, i)) {
        return broken(message, message_size,
                      "range 0x%" PRIx64 " maps part of chunk %" PRIu64 " out of order at 0x%" PRIx64,
                      range->address, slot->chunk->handle, range->address + i * range->unit);
      }
      if (slot->offset == 0) {
        slot->chunk->claimed++;
        found++;
      }
    }
    if (mapped != range->mapped) {
      return broken(message, message_size,
                    "range 0x%" PRIx64 " counts %" PRIu64 " mapped bytes and maps %" PRIu64, range->address,
                    range->mapped, mapped);
    }
  }
  if (ranges != heap->range_count)
    return broken(message, message_size, "the heap counts %" PRIu64 " ranges and holds %" PRIu64,
                  heap->range_count, ranges);
  uint64_t stranded = 0;
  for (pool_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) {
    if (chunk->claimed != chunk->mappings) {
      return broken(message, message_size, "chunk %" PRIu64 " counts %" PRIu32 " mappings and has %" PRIu32,
                    chunk->handle, chunk->mappings, chunk->claimed);
    }
    if (!chunk->owner) return broken(message, message_size, "chunk %" PRIu64 " has no owner", chunk->handle);
    if (chunk->owner == heap) stranded += chunk->size;
    held += chunk->claimed;
  }
  if (held != found) {
    for (pool_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) chunk->claimed = UINT32_MAX;
    return name_chunk_not_held(heap, message, message_size);
  }
  return check_sum("stranded bytes", heap->stranded_bytes, stranded, message, message_size);
}

static bool check_allocations(pool_heap *heap, const span *spans, size_t span_count, claims *all,
                              char *message, size_t message_size) {
  uint64_t allocated = 0, active = 0, requested = 0, live = 0, pending = 0;
  const pool_allocation_map *map = &heap->allocations;
  for (uint64_t i = 0; i < map->capacity; i++) {
    const pool_allocation *allocation = &map->entries[i];
    if (allocation->address == 0) continue;
    if (allocation->requested > allocation->size) {
      return broken(message, message_size,
                    "allocation 0x%" PRIx64 " has %" PRIu64 " bytes where %" PRIu64 " were asked for",
                    allocation->address, allocation->size, allocation->requested);
    }
    active += allocation->size;
    requested += allocation->requested;
    if (allocation->pending_events > 0) {
      pending++;
    } else {
      allocated += allocation->size;
      live++;
    }
    if (!claim_allocation(heap, allocation, spans, span_count, all, message, message_size)) return false;
  }
  const pool_statistics *statistics = &heap->statistics;
  if (!check_sum("allocations", statistics->allocations.current, live, message, message_size) ||
      !check_sum("allocated bytes", statistics->allocated_bytes.current, allocated, message, message_size) ||
      !check_sum("active bytes", statistics->active_bytes.current, active, message, message_size) ||
      !check_sum("requested bytes", statistics->requested_bytes.current, requested, message, message_size) ||
      !check_sum("pending frees", heap->pending_count, pending, message, message_size)) {
    return false;
  }
  if (all->count > 1) qsort(all->items, all->count, sizeof *all->items, compare_claims);
  for (size_t i = 1; i < all->count; i++) {
    const claim *before = &all->items[i - 1], *here = &all->items[i];
    if (before->place == here->place && before->end > here->begin) {
      return broken(message, message_size,
                    "allocations 0x%" PRIx64 " and 0x%" PRIx64 " share physical memory", before->allocation,
                    here->allocation);
    }
  }
  return true;
}

bool pool_heap_check(pool_heap *heap, char *message, size_t message_size) {
  uint64_t segments = 0, reserved = heap->elsewhere_bytes, addresses = 0;
  for (pool_segment *segment = heap->segments; segment; segment = segment->next, segments++)
    reserved += segment->size;
  for (pool_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) reserved += chunk->size;
  for (pool_range *range = heap->ranges; range; range = range->next) addresses += range->size;
  const pool_statistics *statistics = &heap->statistics;
  if (!check_sum("segments", statistics->segments.current, segments, message, message_size) ||
      !check_sum("reserved bytes", statistics->reserved_bytes.current, reserved, message, message_size) ||
      !check_sum("reserved addresses", heap->reserved_address_bytes, addresses, message, message_size)) {
    return false;
  }
  if (!heap->limit_is_policys && reserved > heap->limit && reserved > heap->over_limit) {
    return broken(message, message_size, "%" PRIu64 " bytes are reserved, past the limit of %" PRIu64,
                  reserved, heap->limit);
  }
  if (!check_mappings(heap, message, message_size)) return false;

  span *spans = malloc((segments + heap->range_count + 1) * sizeof *spans);
  if (!spans) return broken(message, message_size, "the host has no memory for the check");
  size_t count = 0;
  for (pool_segment *segment = heap->segments; segment; segment = segment->next) {
    spans[count++] = (span){segment->address, segment->address + segment->size, NULL};
  }
  for (pool_range *range = heap->ranges; range; range = range->next) {
    spans[count++] = (span){range->address, range->address + range->size, range};
  }
  if (count > 1) qsort(spans, count, sizeof *spans, compare_spans);
  claims all = {0};
  bool sound = check_allocations(heap, spans, count, &all, message, message_size);
  for (size_t i = 1; sound && i < count; i++) {
    if (spans[i - 1].end > spans[i].begin) {
      sound = broken(message, message_size, "two runs of addresses overlap at 0x%" PRIx64, spans[i].begin);
    }
  }
  free(all.items);
  free(spans);
  return sound;
}
