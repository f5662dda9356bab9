/* GMLake's sPool: blocks of VA that map the chunks of several pBlocks in order
 * (GMLake, ASPLOS'24, section 3: Stitch, sPool, StitchFree).
 *
 * An sBlock owns no memory. It is inactive when all pBlocks behind its chunks are,
 * whoever holds them; that is looked up when asked, with the pBlock found active
 * last time as the first guess, so that giving out and freeing pBlocks costs
 * nothing per sBlock. An sBlock over the pieces of one split pBlock needs no
 * mapping of its own: the addresses of the whole still map all pieces (a view). */
#ifndef LAKEBED_POLICIES_GMLAKE_STITCHED_H
#define LAKEBED_POLICIES_GMLAKE_STITCHED_H

#include <bsd/sys/tree.h>

#include "pools/blocks.h"
#include "pools/heap.h"

typedef struct gmlake_sblock gmlake_sblock;
struct gmlake_sblock {
  pool_block base; /* address, size, stream; backing is the range; pool is the gmlake_stitched */
  bool view;       /* borrows a pBlock's range instead of having one */
  bool held;       /* handed out */
  uint64_t guess;  /* slot of the pBlock that was found active last */
  uint64_t number; /* order of creation: the order among equal sizes */
  RB_ENTRY(gmlake_sblock) by_size; /* all */
  gmlake_sblock *older, *newer;    /* those not held, by the time they were freed */
};

RB_HEAD(gmlake_sblock_tree, gmlake_sblock);

typedef struct gmlake_stitched {
  pool_heap *heap;
  struct gmlake_sblock_tree by_size;
  gmlake_sblock *oldest, *newest;
  uint64_t count;          /* sBlocks, views included */
  uint64_t stitched_count; /* sBlocks with a VA of their own */
  uint64_t stitched_bytes; /* of VA */
  uint64_t next_number;
} gmlake_stitched;

void gmlake_stitched_init(gmlake_stitched *stitched, pool_heap *heap);
/* Forgets all sBlocks; ranges stay with the heap. */
void gmlake_stitched_fini(gmlake_stitched *stitched);

/* Reserves a VA of count chunks' size and maps them in order: one sBlock, not held. O(count). */
vmm_status gmlake_stitch(gmlake_stitched *stitched, pool_chunk *const *chunks, uint64_t count, uint64_t size,
                         vmm_stream stream, gmlake_sblock **made);
/* An sBlock over [address, address + size) of a range that pBlocks' pieces tile. No driver call. */
vmm_status gmlake_stitch_view(gmlake_stitched *stitched, pool_range *range, vmm_address address,
                              uint64_t size, vmm_stream stream, gmlake_sblock **made);
/* Unmaps and frees the VA of an sBlock that is not held. The device is done with it. */
vmm_status gmlake_unstitch(gmlake_stitched *stitched, gmlake_sblock *sblock);

/* An inactive sBlock of exactly this size, NULL if none. O(log n + sBlocks of the size). */
gmlake_sblock *gmlake_stitched_find(gmlake_stitched *stitched, vmm_stream stream, uint64_t size);
/* Are all its pBlocks free? O(1) while the last guess holds, else O(pBlocks). */
bool gmlake_sblock_inactive(gmlake_sblock *sblock);
/* Marks as handed out, and as freed just now. O(1). */
void gmlake_sblock_hold(gmlake_stitched *stitched, gmlake_sblock *sblock);
void gmlake_sblock_let_go(gmlake_stitched *stitched, gmlake_sblock *sblock);

/* The pBlock behind slot number index of an sBlock, counted from its start. */
static inline pool_block *gmlake_sblock_member(const gmlake_sblock *sblock, uint64_t index) {
  const pool_range *range = sblock->base.backing;
  return range->slots[(sblock->base.address - range->address) / range->unit + index].chunk->owner;
}

/* The pBlock after member, whose first slot is *index; NULL at the end. Moves *index on. */
static inline pool_block *gmlake_sblock_next_member(const gmlake_sblock *sblock, const pool_block *member,
                                                    uint64_t *index) {
  const uint64_t unit = ((const pool_range *)sblock->base.backing)->unit;
  *index += member->size / unit;
  return *index < sblock->base.size / unit ? gmlake_sblock_member(sblock, *index) : NULL;
}

/* For each pBlock of an sBlock in order; the current one may change sets meanwhile, not size. */
#define GMLAKE_FOR_EACH_MEMBER(member, index, sblock)                   \
  for (index = 0, (member) = gmlake_sblock_member(sblock, 0); (member); \
       (member) = gmlake_sblock_next_member(sblock, member, &index))

bool gmlake_stitched_check(const gmlake_stitched *stitched, char *message, size_t message_size);

#endif
