/* What the files of a memory map share; nothing of it is for others.
 *   memory_map.c         the line, what is live in it, and the regions it lies in
 *   memory_map_blocks.c  the policy's own blocks and what they share
 *   memory_map_print.c, memory_map_json.c, memory_map_draw.c  what is written about it */
#ifndef LAKEBED_HARNESS_MEMORY_MAP_INTERNAL_H
#define LAKEBED_HARNESS_MEMORY_MAP_INTERNAL_H

#include "harness/memory_map.h"
#include "pools/layout.h"

/* Room for one more item in a growing array; false: no memory. */
bool memory_map_grow(void **items, size_t count, size_t *capacity, size_t item_size);

/* What a policy says of its blocks; room to be freed. count: 0 where it has no such hook. */
typedef struct memory_block_list {
  policy_block *items;
  size_t count, capacity;
  bool no_memory;
} memory_block_list;

/* Fills blocks, parts and covers; runs and chunks are there. listed: those at home first, each by address. */
bool memory_map_add_blocks(memory_map *map, const pool_layout *layout, const pool_heap *heap,
                           const memory_block_list *listed);

#endif
