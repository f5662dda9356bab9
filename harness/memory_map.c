#include "harness/memory_map.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory_map_internal.h"

bool memory_map_grow(void **items, size_t count, size_t *capacity, size_t item_size) {
  if (count < *capacity) return true;
  size_t larger = *capacity ? *capacity * 2 : 256;
  void *moved = realloc(*items, larger * item_size);
  if (!moved) return false;
  *items = moved;
  *capacity = larger;
  return true;
}

const char *memory_state_name(memory_state state) {
  static const char *const names[MEMORY_STATES] = {"free", "live", "waiting"};
  return names[state];
}

const char *memory_region_kind_name(memory_region_kind kind) {
  static const char *const names[] = {"segment", "range", "elsewhere"};
  return names[kind];
}

/* ---- what is given out, on the line ---- */

/* A run of physical bytes of one allocation. */
typedef struct used_piece {
  uint64_t position, bytes;
  const pool_allocation *allocation;
} used_piece;

typedef struct used_pieces {
  const pool_layout *layout;
  const pool_allocation *allocation; /* the one being visited */
  used_piece *items;
  size_t count, capacity;
  bool no_memory;
} used_pieces;

static void add_piece(void *context, uint64_t position, uint64_t bytes, vmm_address address) {
  (void)address;
  used_pieces *all = context;
  used_piece *last = all->count > 0 ? &all->items[all->count - 1] : NULL;
  if (last && last->allocation == all->allocation && last->position + last->bytes == position) {
    last->bytes += bytes;
    return;
  }
  if (!memory_map_grow((void **)&all->items, all->count, &all->capacity, sizeof *all->items)) {
    all->no_memory = true;
    return;
  }
  all->items[all->count++] = (used_piece){position, bytes, all->allocation};
}

static void add_allocation(void *context, const pool_allocation *allocation) {
  used_pieces *all = context;
  all->allocation = allocation;
  pool_layout_visit(all->layout, allocation->address, allocation->size, add_piece, all);
}

static int compare_pieces(const void *left, const void *right) {
  const used_piece *a = left, *b = right;
  return a->position < b->position ? -1 : a->position > b->position;
}

/* ---- runs ---- */

typedef struct run_builder {
  memory_map *map;
  size_t capacity;
  const pool_extent *last; /* the extent of the last run */
  bool no_memory;
} run_builder;

/* Do two extents, one after the other in the line, belong to one block of memory? */
static bool continues(const pool_extent *before, const pool_extent *after) {
  return before == after ||
         (before->range && before->range == after->range && before->home + before->size == after->home);
}

static void add_run(run_builder *builder, const pool_extent *extent, uint64_t position, uint64_t bytes,
                    const pool_allocation *allocation) {
  memory_map *map = builder->map;
  const vmm_address address = allocation ? allocation->address : 0;
  memory_run *last = map->run_count > 0 ? &map->runs[map->run_count - 1] : NULL;
  if (last && last->address == address && continues(builder->last, extent)) {
    last->bytes += bytes;
    builder->last = extent;
    return;
  }
  if (!memory_map_grow((void **)&map->runs, map->run_count, &builder->capacity, sizeof *map->runs)) {
    builder->no_memory = true;
    return;
  }
  const memory_state state = !allocation                      ? MEMORY_FREE
                             : allocation->pending_events > 0 ? MEMORY_WAITING
                                                              : MEMORY_LIVE;
  map->runs[map->run_count++] =
      (memory_run){.position = position,
                   .bytes = bytes,
                   .home = extent->home + (extent->home ? position - extent->position : 0),
                   .state = state,
                   .address = address,
                   .requested = allocation ? allocation->requested : 0,
                   .stream = allocation ? allocation->stream : 0};
  builder->last = extent;
}

/* Cuts the line at the ends of pieces and of memory that belongs together; what is in no piece is free. */
static bool make_runs(memory_map *map, const pool_heap *heap, const pool_layout *layout) {
  used_pieces used = {.layout = layout};
  pool_heap_visit_allocations(heap, add_allocation, &used);
  if (used.count > 1) qsort(used.items, used.count, sizeof *used.items, compare_pieces);
  run_builder builder = {.map = map, .no_memory = used.no_memory};
  size_t next = 0;
  for (size_t i = 0; i < layout->extent_count && !builder.no_memory; i++) {
    const pool_extent *extent = &layout->extents[i];
    const uint64_t end = extent->position + extent->size;
    for (uint64_t at = extent->position; at < end && !builder.no_memory;) {
      while (next < used.count && used.items[next].position + used.items[next].bytes <= at) next++;
      const used_piece *piece =
          next < used.count && used.items[next].position < end ? &used.items[next] : NULL;
      const bool inside = piece && piece->position <= at;
      uint64_t to = !piece ? end : inside ? piece->position + piece->bytes : piece->position;
      if (to > end) to = end;
      add_run(&builder, extent, at, to - at, inside ? piece->allocation : NULL);
      at = to;
    }
  }
  free(used.items);
  return !builder.no_memory;
}

static void count_runs(memory_map *map, const pool_heap *heap) {
  for (size_t i = 0; i < map->run_count; i++) {
    map->state_bytes[map->runs[i].state] += map->runs[i].bytes;
    map->free_runs += map->runs[i].state == MEMORY_FREE;
  }
  map->live_blocks = heap->statistics.allocations.current;
}

/* ---- chunks ---- */

static bool make_chunks(memory_map *map, const pool_layout *layout) {
  size_t capacity = 0;
  for (size_t i = 0; i < layout->extent_count; i++) {
    const pool_extent *extent = &layout->extents[i];
    if (extent->kind != POOL_EXTENT_CHUNK) continue;
    const uint64_t number = map->chunk_count++;
    map->chunk_bytes += extent->size;
    if (extent->mappings > 1) map->shared_bytes += extent->size;
    if (extent->mappings > 1) map->extra_mappings += extent->mappings - 1;
    if (extent->mappings == 0) map->unmapped_bytes += extent->size;
    memory_chunks *last = map->chunks_count > 0 ? &map->chunks[map->chunks_count - 1] : NULL;
    const bool adjacent =
        last && last->position + last->count * last->size == extent->position &&
        (extent->home == 0 ? last->home == 0 : last->home + last->count * last->size == extent->home);
    if (adjacent && last->size == extent->size && last->mappings == extent->mappings) {
      last->count++;
      continue;
    }
    if (!memory_map_grow((void **)&map->chunks, map->chunks_count, &capacity, sizeof *map->chunks))
      return false;
    map->chunks[map->chunks_count++] = (memory_chunks){.position = extent->position,
                                                       .home = extent->home,
                                                       .size = extent->size,
                                                       .count = 1,
                                                       .first = number,
                                                       .mappings = extent->mappings};
  }
  return true;
}

/* ---- regions ---- */

static int compare_regions(const void *left, const void *right) {
  const memory_region *a = left, *b = right;
  return a->address < b->address ? -1 : a->address > b->address;
}

/* The segment or range that contains an address; else where all that lies elsewhere is counted. NULL:
 * nowhere. */
static memory_region *region_of(memory_map *map, vmm_address address) {
  size_t low = 0, high = map->region_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (map->regions[middle].address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  if (low > 0 && map->regions[low - 1].kind != MEMORY_ELSEWHERE &&
      address - map->regions[low - 1].address < map->regions[low - 1].size)
    return &map->regions[low - 1];
  return map->region_count > 0 && map->regions[0].kind == MEMORY_ELSEWHERE ? &map->regions[0] : NULL;
}

static void fill_regions(memory_map *map, const pool_layout *layout) {
  for (size_t i = 0; i < layout->place_count; i++) {
    const pool_place *place = &layout->places[i];
    memory_region *region = region_of(map, place->address);
    if (!region) continue;
    *(place->home ? &region->held : &region->again) += place->size;
    region->chunks += place->home && region->kind == MEMORY_RANGE;
  }
  for (size_t i = 0; i < map->run_count; i++) {
    const memory_run *run = &map->runs[i];
    memory_region *region = run->home ? region_of(map, run->home) : NULL;
    if (!region) continue;
    if (run->state == MEMORY_LIVE) region->live_bytes += run->bytes;
    if (run->state == MEMORY_WAITING) region->waiting_bytes += run->bytes;
    if (run->state != MEMORY_FREE) continue;
    region->free_bytes += run->bytes;
    region->free_runs++;
    if (run->bytes > region->largest_free_bytes) region->largest_free_bytes = run->bytes;
  }
}

static bool make_regions(memory_map *map, const pool_heap *heap, const pool_layout *layout) {
  const uint64_t segments = heap->statistics.segments.current;
  map->regions = calloc(segments + heap->range_count + 1, sizeof *map->regions);
  if (!map->regions) return false;
  for (size_t i = 0; i < layout->extent_count; i++) {
    if (layout->extents[i].kind != POOL_EXTENT_ELSEWHERE) continue;
    if (map->region_count == 0) map->regions[map->region_count++] = (memory_region){.kind = MEMORY_ELSEWHERE};
    map->regions[0].size += layout->extents[i].size;
  }
  for (const pool_segment *segment = heap->segments; segment; segment = segment->next)
    map->regions[map->region_count++] =
        (memory_region){.kind = MEMORY_SEGMENT, .address = segment->address, .size = segment->size};
  for (const pool_range *range = heap->ranges; range; range = range->next)
    map->regions[map->region_count++] =
        (memory_region){.kind = MEMORY_RANGE, .address = range->address, .size = range->size};
  if (map->region_count > 1) qsort(map->regions, map->region_count, sizeof *map->regions, compare_regions);
  fill_regions(map, layout);
  return true;
}

/* ---- the map ---- */

static void list_block(void *context, const policy_block *block) {
  memory_block_list *list = context;
  if (block->size == 0) return;
  if (!memory_map_grow((void **)&list->items, list->count, &list->capacity, sizeof *list->items)) {
    list->no_memory = true;
    return;
  }
  list->items[list->count++] = *block;
}

static int compare_blocks(const void *left, const void *right) {
  const policy_block *a = left, *b = right;
  if (a->stitched != b->stitched) return a->stitched - b->stitched;
  if (a->address != b->address) return a->address < b->address ? -1 : 1;
  return a->size < b->size ? -1 : a->size > b->size;
}

/* Lays the heap out with the policy's own blocks at home. */
static bool lay_out(const policy *subject, memory_block_list *blocks, pool_layout *layout) {
  policy_blocks(subject, list_block, blocks);
  if (blocks->no_memory) return false;
  if (blocks->count > 1) qsort(blocks->items, blocks->count, sizeof *blocks->items, compare_blocks);
  pool_span *homes = malloc((blocks->count + 1) * sizeof *homes);
  if (!homes) return false;
  size_t count = 0;
  for (; count < blocks->count && !blocks->items[count].stitched; count++) {
    const policy_block *block = &blocks->items[count];
    homes[count] = (pool_span){block->address, block->address + block->size};
  }
  vmm_status status = pool_layout_make(&subject->heap, homes, count, layout);
  free(homes);
  return status == VMM_SUCCESS;
}

static void take_statistics(memory_map *map, const policy *subject) {
  const pool_heap *heap = &subject->heap;
  map->allocated_bytes = heap->statistics.allocated_bytes.current;
  map->active_bytes = heap->statistics.active_bytes.current;
  map->reserved_bytes = heap->statistics.reserved_bytes.current;
  map->address_bytes = heap->reserved_address_bytes;
  map->knows_largest_free = subject->class->largest_free != NULL;
  map->largest_free_bytes = policy_largest_free(subject);
  map->elsewhere_bytes = heap->elsewhere_bytes;
}

memory_map *memory_map_make(const policy *subject, const memory_map *moment) {
  memory_map *map = calloc(1, sizeof *map);
  if (!map) return NULL;
  map->lap = moment->lap;
  map->event = moment->event;
  map->number = moment->number;
  map->wanted_bytes = moment->wanted_bytes;
  map->live_bytes = moment->live_bytes;
  take_statistics(map, subject);
  memory_block_list blocks = {0};
  pool_layout layout = {0};
  const pool_heap *heap = &subject->heap;
  bool made = lay_out(subject, &blocks, &layout);
  if (made) map->bytes = layout.bytes;
  made = made && make_runs(map, heap, &layout) && make_chunks(map, &layout) &&
         make_regions(map, heap, &layout) && memory_map_add_blocks(map, &layout, heap, &blocks);
  pool_layout_free(&layout);
  free(blocks.items);
  if (!made) {
    memory_map_free(map);
    return NULL;
  }
  count_runs(map, heap);
  return map;
}

void memory_map_free(memory_map *map) {
  if (!map) return;
  free(map->runs);
  free(map->chunks);
  free(map->regions);
  free(map->blocks);
  free(map->parts);
  free(map->covers);
  free(map);
}
