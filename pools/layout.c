#include "pools/layout.h"

#include <stdlib.h>

void pool_heap_visit_allocations(const pool_heap *heap, pool_allocation_visit *visit, void *context) {
  for (uint64_t i = 0; i < heap->allocations.capacity; i++) {
    if (heap->allocations.entries[i].address != 0) visit(context, &heap->allocations.entries[i]);
  }
}

/* ---- places ---- */

/* While the layout is made: one place, and whose. */
typedef struct found_place {
  pool_place place;
  pool_extent_kind kind;
  const pool_chunk *chunk; /* of a chunk */
} found_place;

typedef struct found_places {
  found_place *items;
  size_t count, capacity;
  bool no_memory;
} found_places;

static void add_place(found_places *all, const found_place *found) {
  if (all->count == all->capacity) {
    size_t capacity = all->capacity ? all->capacity * 2 : 256;
    found_place *items = realloc(all->items, capacity * sizeof *items);
    if (!items) {
      all->no_memory = true;
      return;
    }
    all->items = items;
    all->capacity = capacity;
  }
  all->items[all->count++] = *found;
}

/* Of each range only as far as something is mapped. */
static void find_mappings(const pool_heap *heap, found_places *all) {
  for (const pool_range *range = heap->ranges; range; range = range->next) {
    uint64_t mapped = 0;
    for (uint64_t i = 0; mapped < range->mapped && i < range->size / range->unit; i++) {
      const pool_slot *slot = &range->slots[i];
      if (!slot->chunk) continue;
      mapped += range->unit;
      if (slot->offset != 0) continue;
      add_place(all, &(found_place){.place = {.address = range->address + i * range->unit,
                                              .size = slot->chunk->size,
                                              .range = range},
                                    .kind = POOL_EXTENT_CHUNK,
                                    .chunk = slot->chunk});
    }
  }
}

/* Those that lie in nothing that the heap holds. */
typedef struct elsewhere {
  found_places *all;
  size_t held; /* so many places, by address, are the heap's own */
} elsewhere;

static void add_elsewhere(void *context, const pool_allocation *allocation) {
  elsewhere *search = context;
  size_t low = 0, high = search->held;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (search->all->items[middle].place.address <= allocation->address)
      low = middle + 1;
    else
      high = middle;
  }
  const pool_place *below = low > 0 ? &search->all->items[low - 1].place : NULL;
  if (below && allocation->address < below->address + below->size) return;
  add_place(search->all,
            &(found_place){.place = {.address = allocation->address, .size = allocation->size, .home = true},
                           .kind = POOL_EXTENT_ELSEWHERE});
}

static int compare_chunks(const void *left, const void *right) {
  const found_place *a = left, *b = right;
  uintptr_t first = (uintptr_t)a->chunk, second = (uintptr_t)b->chunk;
  if (first != second) return first < second ? -1 : 1;
  return a->place.address < b->place.address ? -1 : a->place.address > b->place.address;
}

static int compare_addresses(const void *left, const void *right) {
  const found_place *a = left, *b = right;
  return a->place.address < b->place.address ? -1 : a->place.address > b->place.address;
}

static bool is_home(const pool_span *homes, size_t count, vmm_address address) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (homes[middle].end <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low < count && homes[low].begin <= address;
}

/* The places of one chunk follow one another, ascending: one of them is its home. */
static void choose_homes(found_places *all, const pool_span *homes, size_t count) {
  if (all->count > 1) qsort(all->items, all->count, sizeof *all->items, compare_chunks);
  for (size_t i = 0, next; i < all->count; i = next) {
    size_t home = i;
    bool found = false;
    for (next = i; next < all->count && all->items[next].chunk == all->items[i].chunk; next++) {
      if (found || !is_home(homes, count, all->items[next].place.address)) continue;
      home = next;
      found = true;
    }
    all->items[home].place.home = true;
  }
}

/* ---- the line ---- */

/* A chunk's places learn their extent by the chunk. */
typedef struct chunk_extent {
  const pool_chunk *chunk;
  size_t extent;
} chunk_extent;

static int compare_chunk_extents(const void *left, const void *right) {
  uintptr_t a = (uintptr_t)((const chunk_extent *)left)->chunk;
  uintptr_t b = (uintptr_t)((const chunk_extent *)right)->chunk;
  return (a > b) - (a < b);
}

static void add_extent(pool_layout *layout, pool_extent_kind kind, const pool_place *home, uint32_t mappings,
                       uint64_t size) {
  layout->extents[layout->extent_count++] = (pool_extent){.kind = kind,
                                                          .home = home ? home->address : 0,
                                                          .size = size,
                                                          .position = layout->bytes,
                                                          .mappings = mappings,
                                                          .range = home ? home->range : NULL};
  layout->bytes += size;
}

/* all: by address. */
static bool line_up(const pool_heap *heap, const found_places *all, pool_layout *layout) {
  chunk_extent *chunks = malloc((heap->chunk_count + 1) * sizeof *chunks);
  layout->extents = malloc((all->count + heap->chunk_count + 1) * sizeof *layout->extents);
  layout->places = malloc((all->count + 1) * sizeof *layout->places);
  if (!chunks || !layout->extents || !layout->places) {
    free(chunks);
    return false;
  }
  size_t chunk_count = 0;
  for (size_t i = 0; i < all->count; i++) {
    const found_place *found = &all->items[i];
    layout->places[i] = found->place;
    if (!found->place.home) continue;
    layout->places[i].extent = layout->extent_count;
    if (found->chunk) chunks[chunk_count++] = (chunk_extent){found->chunk, layout->extent_count};
    add_extent(layout, found->kind, &found->place, found->chunk ? found->chunk->mappings : 1,
               found->place.size);
  }
  if (chunk_count > 1) qsort(chunks, chunk_count, sizeof *chunks, compare_chunk_extents);
  for (size_t i = 0; i < all->count; i++) {
    if (all->items[i].place.home) continue;
    const chunk_extent wanted = {all->items[i].chunk, 0};
    const chunk_extent *known = bsearch(&wanted, chunks, chunk_count, sizeof *chunks, compare_chunk_extents);
    layout->places[i].extent = known->extent;
  }
  layout->place_count = all->count;
  for (const pool_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) {
    if (chunk->mappings == 0) add_extent(layout, POOL_EXTENT_CHUNK, NULL, 0, chunk->size);
  }
  free(chunks);
  return true;
}

vmm_status pool_layout_make(const pool_heap *heap, const pool_span *homes, size_t count,
                            pool_layout *layout) {
  *layout = (pool_layout){0};
  found_places all = {0};
  find_mappings(heap, &all);
  choose_homes(&all, homes, count);
  for (const pool_segment *segment = heap->segments; segment; segment = segment->next) {
    add_place(&all,
              &(found_place){.place = {.address = segment->address, .size = segment->size, .home = true},
                             .kind = POOL_EXTENT_SEGMENT});
  }
  if (all.count > 1) qsort(all.items, all.count, sizeof *all.items, compare_addresses);
  if (heap->memory_elsewhere) {
    elsewhere search = {&all, all.count};
    pool_heap_visit_allocations(heap, add_elsewhere, &search);
    if (all.count > 1) qsort(all.items, all.count, sizeof *all.items, compare_addresses);
  }
  bool made = !all.no_memory && line_up(heap, &all, layout);
  free(all.items);
  if (made) return VMM_SUCCESS;
  pool_layout_free(layout);
  return VMM_OUT_OF_MEMORY;
}

void pool_layout_free(pool_layout *layout) {
  free(layout->extents);
  free(layout->places);
  *layout = (pool_layout){0};
}

size_t pool_layout_find(const pool_layout *layout, vmm_address address) {
  size_t low = 0, high = layout->place_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (layout->places[middle].address + layout->places[middle].size <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void pool_layout_visit(const pool_layout *layout, vmm_address address, uint64_t bytes,
                       pool_piece_visit *visit, void *context) {
  const vmm_address end = address + bytes;
  for (size_t i = pool_layout_find(layout, address); i < layout->place_count; i++) {
    const pool_place *place = &layout->places[i];
    if (place->address >= end) return;
    const vmm_address from = place->address > address ? place->address : address;
    const vmm_address to = place->address + place->size < end ? place->address + place->size : end;
    visit(context, layout->extents[place->extent].position + (from - place->address), to - from, from);
  }
}
