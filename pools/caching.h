/* A caching pool of split-and-coalesce blocks, as PyTorch's allocator keeps two of:
 * best fit within a stream, a remainder goes back, a freed block merges with free
 * neighbours of its segment. The policy decides where segments come from and when
 * to split; this does the rest with PyTorch's statistics
 * (CUDACachingAllocator: alloc_found_block, free_block, release_blocks). */
#ifndef LAKEBED_POOLS_CACHING_H
#define LAKEBED_POOLS_CACHING_H

#include "pools/blocks.h"
#include "pools/heap.h"

typedef struct pool_caching {
  pool_heap *heap;
  pool_block_store *store; /* shared by the pools of one policy */
  pool_free_set free;
  uint64_t lookups; /* the clock that ages free blocks: raised by the policy */
  bool by_age; /* of equal blocks the one in the oldest segment serves, not the one at the lowest address,
                  so that nothing depends on the addresses that a device gives */
  uint64_t segments_made;
  bool expandable; /* blocks lie in ranges that grow: they do not count as inactive split */
} pool_caching;

void pool_caching_init(pool_caching *pool, pool_heap *heap, pool_block_store *store);
void pool_caching_fini(pool_caching *pool);

/* One segment from the driver as one block in no set: to be handed out next. OUT_OF_MEMORY
 * when the driver or the limit refuses. */
vmm_status pool_caching_grow(pool_caching *pool, uint64_t segment_size, vmm_stream stream,
                             pool_block **block);

/* Hands out the low size bytes of a free or just grown block, the rest going back to the
 * free set if split, else all of it. On failure (host memory) the block is free. O(log n). */
vmm_status pool_caching_hand_out(pool_caching *pool, pool_block *block, uint64_t size, uint64_t requested,
                                 bool split, vmm_address *address);

/* A block whose memory is free for reuse: merges it with free neighbours. O(log n). */
void pool_caching_take_back(pool_caching *pool, pool_block *block);

/* The free of a policy whose allocations are owned by blocks of such pools: memory that another
 * stream may still use is taken back when it no longer does. INVALID_VALUE for an address that is not live.
 */
vmm_status pool_caching_free(pool_heap *heap, vmm_address address);

/* Takes back what no stream uses any more; wait: after waiting for all of them. */
void pool_caching_take_back_complete(pool_heap *heap, bool wait);

/* Returns a free block that is a whole segment to the driver. */
vmm_status pool_caching_release(pool_caching *pool, pool_block *block);
/* Returns every one. Goes on past failures and returns the first. */
vmm_status pool_caching_release_all(pool_caching *pool);

/* The largest free block on any stream, 0 if none. */
uint64_t pool_caching_largest_free(const pool_caching *pool);

/* Blocks that tile their segments, sets that hold what they say. To be called with all
 * pools of the store: together they cover the given number of segment bytes. */
bool pool_caching_check(const pool_caching *const *pools, size_t count, uint64_t segment_bytes, char *message,
                        size_t message_size);

#endif
