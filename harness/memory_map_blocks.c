/* The policy's own blocks: which lie at home, what the stitched ones are made of, and what they share. */
#include <stdlib.h>

#include "harness/memory_map_internal.h"

/* ---- look-ups by position ---- */

static size_t chunks_at(const memory_map *map, uint64_t position) {
  size_t low = 0, high = map->chunks_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (map->chunks[middle].position + map->chunks[middle].count * map->chunks[middle].size <= position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The number of the chunk at a position. */
static uint64_t chunk_at(const memory_map *map, uint64_t position) {
  size_t i = chunks_at(map, position);
  if (i == map->chunks_count || map->chunks[i].position > position) return 0;
  return map->chunks[i].first + (position - map->chunks[i].position) / map->chunks[i].size;
}

/* Bytes up to the ends of sorted stretches of the line, so that those between two positions are a
 * difference. */
typedef struct sums {
  uint64_t *begins, *lengths, *before; /* before: bytes of all earlier ones */
  size_t count;
} sums;

static bool sums_make(sums *made, size_t room) {
  made->count = 0;
  made->begins = malloc((room + 1) * sizeof *made->begins);
  made->lengths = malloc((room + 1) * sizeof *made->lengths);
  made->before = malloc((room + 1) * sizeof *made->before);
  return made->begins && made->lengths && made->before;
}

static void sums_add(sums *made, uint64_t begin, uint64_t bytes) {
  const size_t i = made->count++;
  made->before[i] = i > 0 ? made->before[i - 1] + made->lengths[i - 1] : 0;
  made->begins[i] = begin;
  made->lengths[i] = bytes;
}

/* Bytes of the stretches below a position. */
static uint64_t sums_below(const sums *made, uint64_t position) {
  size_t low = 0, high = made->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (made->begins[middle] < position)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return 0;
  const uint64_t within = position - made->begins[low - 1];
  return made->before[low - 1] + (within < made->lengths[low - 1] ? within : made->lengths[low - 1]);
}

static uint64_t sums_within(const sums *made, uint64_t position, uint64_t bytes) {
  return sums_below(made, position + bytes) - sums_below(made, position);
}

static void sums_free(sums *made) {
  free(made->begins);
  free(made->lengths);
  free(made->before);
}

/* ---- parts ---- */

typedef struct part_builder {
  memory_map *map;
  memory_block *block;
  size_t capacity;
  bool no_memory;
} part_builder;

/* The first block at home that ends above a position. */
static size_t home_at(const memory_map *map, uint64_t position) {
  size_t low = 0, high = map->home_blocks;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (map->blocks[middle].position + map->blocks[middle].size <= position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void add_part(part_builder *builder, size_t home, uint64_t position, uint64_t bytes, uint64_t offset) {
  memory_map *map = builder->map;
  memory_part *last = builder->block->parts > 0 ? &map->parts[map->part_count - 1] : NULL;
  if (last && last->block == home && last->position + last->bytes == position &&
      last->offset + last->bytes == offset) {
    last->bytes += bytes;
    return;
  }
  if (!memory_map_grow((void **)&map->parts, map->part_count, &builder->capacity, sizeof *map->parts)) {
    builder->no_memory = true;
    return;
  }
  map->parts[map->part_count++] =
      (memory_part){.block = home,
                    .in_block = home == MEMORY_NO_BLOCK ? 0 : position - map->blocks[home].position,
                    .offset = offset,
                    .bytes = bytes,
                    .position = position};
  builder->block->parts++;
}

/* A stretch of a stitched block, cut where the blocks at home end. */
static void cut_into_parts(void *context, uint64_t position, uint64_t bytes, vmm_address address) {
  part_builder *builder = context;
  const memory_map *map = builder->map;
  uint64_t offset = address - builder->block->address;
  while (bytes > 0 && !builder->no_memory) {
    size_t home = home_at(map, position);
    uint64_t end = UINT64_MAX;
    if (home == map->home_blocks) {
      home = MEMORY_NO_BLOCK;
    } else if (map->blocks[home].position > position) {
      end = map->blocks[home].position;
      home = MEMORY_NO_BLOCK;
    } else {
      end = map->blocks[home].position + map->blocks[home].size;
    }
    const uint64_t length = end - position < bytes ? end - position : bytes;
    add_part(builder, home, position, length, offset);
    position += length;
    offset += length;
    bytes -= length;
  }
}

/* ---- blocks ---- */

static void take_position(void *context, uint64_t position, uint64_t bytes, vmm_address address) {
  (void)bytes;
  (void)address;
  uint64_t *first = context;
  if (*first == UINT64_MAX) *first = position;
}

static memory_block *add_block(memory_map *map, const policy_block *listed) {
  memory_block *block = &map->blocks[map->block_count++];
  *block = (memory_block){.kind = listed->kind,
                          .stitched = listed->stitched,
                          .held = listed->held,
                          .address = listed->address,
                          .size = listed->size,
                          .stream = listed->stream,
                          .first_part = map->part_count};
  return block;
}

/* Of a policy that does not say: ranges in which something is mapped that is at home elsewhere. */
static size_t guess_stitched(const pool_heap *heap, const memory_map *map, policy_block *guesses) {
  size_t count = 0;
  for (size_t i = 0; i < map->region_count; i++) {
    const memory_region *region = &map->regions[i];
    if (region->kind != MEMORY_RANGE || region->again == 0) continue;
    const pool_allocation *held = NULL;
    for (uint64_t k = 0; !held && k < heap->allocations.capacity; k++) {
      const pool_allocation *allocation = &heap->allocations.entries[k];
      if (allocation->address >= region->address && allocation->address - region->address < region->size)
        held = allocation;
    }
    guesses[count++] = (policy_block){.kind = "range",
                                      .stitched = true,
                                      .held = held != NULL,
                                      .address = region->address,
                                      .size = region->size,
                                      .stream = held ? held->stream : 0};
  }
  return count;
}

static bool make_blocks(memory_map *map, const pool_layout *layout, const memory_block_list *listed) {
  map->blocks = calloc(listed->count + 1, sizeof *map->blocks);
  if (!map->blocks) return false;
  part_builder builder = {.map = map};
  for (size_t i = 0; i < listed->count && !builder.no_memory; i++) {
    memory_block *block = add_block(map, &listed->items[i]);
    if (!block->stitched) {
      block->position = UINT64_MAX;
      pool_layout_visit(layout, block->address, block->size, take_position, &block->position);
      block->first_chunk = chunk_at(map, block->position);
      block->last_chunk = chunk_at(map, block->position + block->size - 1);
      map->home_blocks++;
      continue;
    }
    builder.block = block;
    pool_layout_visit(layout, block->address, block->size, cut_into_parts, &builder);
  }
  for (size_t i = 0; i < map->part_count; i++) {
    memory_part *part = &map->parts[i];
    part->first_chunk = chunk_at(map, part->position);
    part->last_chunk = chunk_at(map, part->position + part->bytes - 1);
  }
  return !builder.no_memory;
}

/* ---- what is shared ---- */

/* The count of stitched blocks changes here. */
typedef struct edge {
  uint64_t position;
  int64_t change;
} edge;

static int compare_edges(const void *left, const void *right) {
  const edge *a = left, *b = right;
  return a->position < b->position ? -1 : a->position > b->position;
}

static bool make_covers(memory_map *map) {
  const size_t edge_count = 2 * map->part_count;
  edge *edges = malloc((edge_count + 1) * sizeof *edges);
  map->covers = malloc((edge_count + 1) * sizeof *map->covers);
  if (!edges || !map->covers) {
    free(edges);
    return false;
  }
  for (size_t i = 0; i < map->part_count; i++) {
    edges[2 * i] = (edge){map->parts[i].position, 1};
    edges[2 * i + 1] = (edge){map->parts[i].position + map->parts[i].bytes, -1};
  }
  if (edge_count > 1) qsort(edges, edge_count, sizeof *edges, compare_edges);
  int64_t count = 0;
  for (size_t i = 0; i < edge_count; i++) {
    count += edges[i].change;
    const uint64_t end = i + 1 < edge_count ? edges[i + 1].position : edges[i].position;
    if (count <= 0 || end == edges[i].position) continue;
    memory_cover *last = map->cover_count > 0 ? &map->covers[map->cover_count - 1] : NULL;
    if (last && last->count == (uint64_t)count && last->position + last->bytes == edges[i].position) {
      last->bytes += end - edges[i].position;
    } else {
      map->covers[map->cover_count++] =
          (memory_cover){edges[i].position, end - edges[i].position, (uint64_t)count};
    }
  }
  free(edges);
  return true;
}

typedef struct sharer {
  size_t home, stitched;
} sharer;

static int compare_sharers(const void *left, const void *right) {
  const sharer *a = left, *b = right;
  if (a->home != b->home) return a->home < b->home ? -1 : 1;
  return a->stitched < b->stitched ? -1 : a->stitched > b->stitched;
}

static bool count_sharers(memory_map *map) {
  sharer *sharers = malloc((map->part_count + 1) * sizeof *sharers);
  if (!sharers) return false;
  size_t count = 0;
  for (size_t i = map->home_blocks; i < map->block_count; i++) {
    const memory_block *block = &map->blocks[i];
    for (size_t k = 0; k < block->parts; k++) {
      const size_t home = map->parts[block->first_part + k].block;
      if (home != MEMORY_NO_BLOCK) sharers[count++] = (sharer){home, i};
    }
  }
  if (count > 1) qsort(sharers, count, sizeof *sharers, compare_sharers);
  for (size_t i = 0; i < count; i++) {
    if (i == 0 || compare_sharers(&sharers[i - 1], &sharers[i]) != 0) map->blocks[sharers[i].home].sharers++;
  }
  free(sharers);
  return true;
}

static void sum_blocks(memory_map *map, const sums *used, const sums *once, const sums *twice) {
  for (size_t i = 0; i < map->block_count; i++) {
    memory_block *block = &map->blocks[i];
    if (!block->stitched) {
      block->used_bytes = sums_within(used, block->position, block->size);
      block->shared_bytes = sums_within(once, block->position, block->size);
    }
    for (size_t k = 0; k < block->parts; k++) {
      const memory_part *part = &map->parts[block->first_part + k];
      block->used_bytes += sums_within(used, part->position, part->bytes);
      block->shared_bytes += sums_within(twice, part->position, part->bytes);
    }
  }
}

static bool measure_blocks(memory_map *map) {
  sums used = {0}, once = {0}, twice = {0};
  const bool made = sums_make(&used, map->run_count) && sums_make(&once, map->cover_count) &&
                    sums_make(&twice, map->cover_count);
  if (made) {
    for (size_t i = 0; i < map->run_count; i++) {
      if (map->runs[i].state != MEMORY_FREE) sums_add(&used, map->runs[i].position, map->runs[i].bytes);
    }
    for (size_t i = 0; i < map->cover_count; i++) {
      sums_add(&once, map->covers[i].position, map->covers[i].bytes);
      if (map->covers[i].count > 1) sums_add(&twice, map->covers[i].position, map->covers[i].bytes);
    }
    sum_blocks(map, &used, &once, &twice);
  }
  sums_free(&used);
  sums_free(&once);
  sums_free(&twice);
  return made;
}

bool memory_map_add_blocks(memory_map *map, const pool_layout *layout, const pool_heap *heap,
                           const memory_block_list *listed) {
  policy_block *guesses = NULL;
  memory_block_list guessed = {0};
  if (listed->count == 0) {
    guesses = malloc((map->region_count + 1) * sizeof *guesses);
    if (!guesses) return false;
    guessed.items = guesses;
    guessed.count = guess_stitched(heap, map, guesses);
    listed = &guessed;
  }
  const bool made =
      make_blocks(map, layout, listed) && make_covers(map) && count_sharers(map) && measure_blocks(map);
  free(guesses);
  return made;
}
