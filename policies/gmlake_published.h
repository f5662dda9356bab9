/* The parts of variant=published; only its own files include this.
 *
 * pBlocks are split and merge back, as in PyTorch's caching allocator; an sBlock remembers where the memory
 * that it maps is at home, and looks up there which pBlocks that is now. */
#ifndef LAKEBED_POLICIES_GMLAKE_PUBLISHED_H
#define LAKEBED_POLICIES_GMLAKE_PUBLISHED_H

#include <bsd/sys/tree.h>

#include "policies/gmlake.h"

typedef struct published_stitched published_stitched;

typedef struct published_block published_block;
struct published_block {
  pool_block base; /* backing is the range */
  RB_ENTRY(published_block) by_address;
  published_stitched *watchers; /* sBlocks that cannot serve before this active pBlock is free */
};

/* Addresses at home, whole chunks. */
typedef struct published_extent {
  vmm_address begin, end;
} published_extent;

struct published_stitched {
  pool_block base; /* backing is the range */
  RB_ENTRY(published_stitched) by_size;
  RB_ENTRY(published_stitched) by_size_free; /* while it watches none */
  published_stitched *older, *newer;         /* by the time they were freed or made */
  published_block *watched;                  /* found active the last time; NULL: all may be free */
  published_stitched *watch_next, *watch_previous;
  uint64_t freed_at; /* point of its stream */
  bool held;
  uint32_t extent_count;
  published_extent extents[]; /* in the order of its addresses */
};

RB_HEAD(published_address_tree, published_block);
RB_HEAD(published_size_tree, published_stitched);
RB_HEAD(published_free_tree, published_stitched);

typedef struct published {
  gmlake_policy_base base;
  gmlake_published_settings settings;
  pool_free_set free;
  struct published_address_tree blocks; /* all pBlocks */
  struct published_size_tree stitched;
  struct published_free_tree may_be_free; /* of these, those that watch no pBlock */
  published_stitched *oldest, *newest;
  uint64_t stitched_count, stitched_bytes;
  uint64_t pblock_bytes;
  uint64_t blocks_made; /* of equal pBlocks the oldest serves, whatever the addresses */
  pool_chunk **chunks;
  uint64_t chunk_capacity;
} published;

/* ---- gmlake_published_blocks.c ---- */

bool published_reserve_chunks(published *self, uint64_t count);
/* The pBlock at home at an address. O(log n). */
published_block *published_block_at(published *self, vmm_address address);
/* All pBlocks by address. */
published_block *published_first_block(published *self);
published_block *published_next_block(published_block *block);
/* New memory of size bytes: one active pBlock in no set. */
vmm_status published_grow(published *self, uint64_t size, vmm_stream stream, published_block **made);
/* Returns a pBlock that is all that was allocated at once, and in no set, to the driver; nothing maps it a
 * second time. One that cannot be unmapped is free afterwards. */
vmm_status published_give_back(published *self, published_block *block);
/* A pBlock in no set or the free set ends after size bytes; the rest is a pBlock of its own, in the free set
 * if the first was free. */
vmm_status published_split(published *self, published_block *block, uint64_t size);
/* An active pBlock is free, and merges with free neighbours. */
void published_release(published *self, published_block *block);
/* The free memory between two addresses at home becomes active, as pBlocks that end where it ends. On failure
 * nothing has. */
vmm_status published_activate(published *self, vmm_address begin, vmm_address end);
/* And free again. */
void published_deactivate(published *self, vmm_address begin, vmm_address end);
/* Only on the host. */
void published_forget_blocks(published *self);

/* ---- gmlake_published_stitched.c ---- */

/* Maps the free pBlocks from the largest down, together size bytes: one idle sBlock. OUT_OF_MEMORY if there
 * are fewer than two, or not enough. */
vmm_status published_stitch(published *self, uint64_t size, vmm_stream stream, published_stitched **made);
/* The smallest idle sBlock from size up to limit bytes of which all memory is free. NULL if there is none.
 * O(log n) and, for each that is found in use, O(its pBlocks); such a one is not looked at again before the
 * pBlock that was in use is free. */
published_stitched *published_find_stitched(published *self, vmm_stream stream, uint64_t size,
                                            uint64_t limit);
/* Gives out its first size bytes. */
vmm_status published_give_stitched(published *self, published_stitched *stitched, uint64_t size,
                                   uint64_t requested, vmm_address *address);
/* Those that watch a pBlock may be free. O(log n) for each. */
void published_wake_watchers(published *self, published_block *block);
/* The caller's size bytes of it are free for reuse. */
void published_take_back_stitched(published *self, published_stitched *stitched, uint64_t size);
/* Drops idle sBlocks, least recently freed first, as long as the host has seen their work done; waits if
 * none of it is. Returns whether any went. */
bool published_drop_idle(published *self);
/* All of them, for policy_blocks. */
void published_visit_stitched(published *self, policy_block_visit *visit, void *context);
/* Only on the host. */
void published_forget_stitched(published *self);
bool published_check(const policy *base, char *message, size_t message_size);

#endif
