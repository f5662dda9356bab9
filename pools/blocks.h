/* Blocks: runs of bytes that a policy hands out, splits and merges, and the
 * ordered sets that free ones wait in.
 *
 * Blocks that are neighbours in the same backing memory are linked in address
 * order. A free set is ordered by (size, order) and kept for each stream: a
 * free block is reused on the stream that freed it, since only there is the
 * order of the work known. The order (stream, size, address) is that of
 * PyTorch's caching allocator. */
#ifndef LAKEBED_POOLS_BLOCKS_H
#define LAKEBED_POOLS_BLOCKS_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

#include "pools/statistics.h"
#include "pools/store.h"
#include "vmm/driver.h"

typedef enum pool_block_state {
  POOL_BLOCK_FREE,    /* in a free set */
  POOL_BLOCK_LIVE,    /* handed out, or waiting for events */
  POOL_BLOCK_UNMAPPED /* addresses without memory (expandable segments) */
} pool_block_state;

typedef struct pool_block pool_block;
struct pool_block {
  vmm_address address;
  uint64_t size;
  uint64_t order; /* what decides between equal sizes: the address, or a number that grows with it inside one
                     backing */
  vmm_stream stream;
  pool_block_state state;
  RB_ENTRY(pool_block) by_size;
  pool_block *previous, *next; /* neighbours in address order */
  void *backing;               /* the segment or range that it lies in */
  void *pool;                  /* the pool it belongs to */
  uint64_t age_base;           /* for policies that age free blocks */
};

/* The order of a block that begins backing memory number serial: its parts count on in bytes. */
static inline uint64_t pool_block_order(uint64_t serial) { return serial << 44; }

/* Has neighbours: is part of something larger. */
static inline bool pool_block_is_split(const pool_block *block) { return block->previous || block->next; }

typedef pool_store pool_block_store;

/* A zeroed block, NULL when the host has no memory. Amortised O(1). */
static inline pool_block *pool_block_new(pool_block_store *store) {
  return pool_store_new(store, sizeof(pool_block));
}
static inline void pool_block_delete(pool_block_store *store, pool_block *block) {
  pool_store_delete(store, block);
}
static inline void pool_block_store_fini(pool_block_store *store) { pool_store_fini(store); }

RB_HEAD(pool_block_tree, pool_block);

typedef struct pool_free_set {
  struct pool_block_tree *by_stream;
  uint32_t streams;
  uint64_t blocks;
  uint64_t bytes;
} pool_free_set;

/* Makes room for a stream, so that inserting its blocks cannot fail. Amortised O(1). */
vmm_status pool_free_set_prepare(pool_free_set *set, vmm_stream stream);
void pool_free_set_fini(pool_free_set *set);
/* The block's stream must have been prepared. Sets its state to free. O(log n). */
void pool_free_set_insert(pool_free_set *set, pool_block *block);
void pool_free_set_remove(pool_free_set *set, pool_block *block);
/* The smallest block of at least size bytes of the stream, the lowest order among equals; NULL if none.
 * O(log n). */
pool_block *pool_free_set_best_fit(const pool_free_set *set, vmm_stream stream, uint64_t size);
/* The largest block of the stream; the next larger and next smaller in order. NULL at the ends. */
pool_block *pool_free_set_largest(const pool_free_set *set, vmm_stream stream);
pool_block *pool_free_set_next(pool_block *block);
pool_block *pool_free_set_previous(pool_block *block);
/* The first block of the stream: the smallest. */
pool_block *pool_free_set_first(const pool_free_set *set, vmm_stream stream);

/* Visits all blocks, stream by stream, the smallest first. */
void pool_free_set_visit(const pool_free_set *set, pool_range_visit *visit, void *context);

/* Cuts size bytes off the low end of block; rest, a fresh block from the store, becomes the
 * remainder after it. No set is touched. O(1). */
void pool_block_split(pool_block *block, uint64_t size, pool_block *rest);
/* Takes neighbour, adjacent to block, into block and deletes it. No set is touched. O(1). */
void pool_block_absorb(pool_block_store *store, pool_block *block, pool_block *neighbour);

#endif
