/* The parts of policy gmlake; only its own files include this. Sizes are bytes.
 *
 * gmlake.c           options, the policy's interface, the small pool
 * gmlake_strategy.c  BestFit and the states S1 to S5
 * gmlake_windows.c   S3 and S4 with as few mappings as possible (stitching=deferred)
 * gmlake_blocks.c    pBlocks: Alloc, Split, Update; gmlake_return.c: giving memory back
 * gmlake_stitched.c  sBlocks: Stitch, StitchFree
 * gmlake_classes.c   pPool and sPool by size; gmlake_set.c: the blocks of one size
 * gmlake_spaces.c    VA and what lies where; gmlake_runs.c: free pBlocks that lie side by side
 * gmlake_published.c the authors' code's rules (variant=published), apart from all of these */
#ifndef LAKEBED_POLICIES_GMLAKE_H
#define LAKEBED_POLICIES_GMLAKE_H

#include "policies/gmlake_classes.h"
#include "policies/gmlake_spaces.h"
#include "policies/policy.h"
#include "pools/caching.h"
#include "pools/stream_clock.h"

/* When the mappings of a Stitch are made. */
typedef enum gmlake_stitching {
  GMLAKE_EAGER,   /* every Stitch maps all its chunks into a VA of its own, after every Split too */
  GMLAKE_VIEWS,   /* the same, but the old size of a split pBlock lives on in the pBlock's own VA */
  GMLAKE_DEFERRED /* only what does not lie side by side anywhere yet is mapped again */
} gmlake_stitching;

typedef enum gmlake_order { GMLAKE_LARGEST_FIRST, GMLAKE_SMALLEST_FIRST, GMLAKE_OLDEST_FIRST } gmlake_order;

typedef enum gmlake_streams {
  GMLAKE_STREAMS_APART,
  GMLAKE_STREAMS_SEEN, /* another stream's free pBlocks may be taken once the host has seen its work done */
  GMLAKE_STREAMS_WAIT  /* or at once, by making the stream wait */
} gmlake_streams;

typedef struct gmlake_settings {
  uint64_t chunk;         /* granularity of pBlocks */
  uint64_t largest_chunk; /* a handle of what Alloc takes; chunk, as in the paper, or a multiple */
  uint64_t small_limit;   /* requests below it go to the small pool */
  uint64_t frag_limit;
  uint64_t tolerance; /* so many bytes too large is still an exact match */
  uint64_t stitch_bytes, stitch_count, stitch_mappings;
  double stitch_ratio; /* of what is mapped a second time to the memory of pBlocks */
  bool grow_first;     /* stitch only when the memory cannot grow */
  gmlake_stitching stitching;
  gmlake_order candidates;
  gmlake_streams streams;
} gmlake_settings;

/* A VA over several pBlocks. */
typedef struct gmlake_sblock gmlake_sblock;
struct gmlake_sblock {
  _Alignas(GMLAKE_CACHE_LINE) gmlake_block base;
  gmlake_place *first;          /* its window begins with this place */
  gmlake_sblock *older, *newer; /* those not held, by the time they were freed or made */
  uint64_t freed_at;            /* point of its stream */
  gmlake_pblock *watched;       /* an active pBlock of it, if it is not marked in its class */
  gmlake_sblock *watch_next, *watch_previous;
};

typedef struct gmlake_sblocks {
  gmlake_sblock *oldest, *newest;
  uint64_t count, view_count;
} gmlake_sblocks;

/* What a Split did, to be undone. */
typedef struct gmlake_cut {
  gmlake_pblock *front, *rest;
  gmlake_sblock *whole; /* NULL: none was made */
} gmlake_cut;

enum gmlake_state { GMLAKE_S1, GMLAKE_S2, GMLAKE_S3, GMLAKE_S4, GMLAKE_S5, GMLAKE_STATES };

/* What both variants begin with. */
typedef struct gmlake_policy_base {
  policy base;
  const policy_class *rules; /* the functions of the variant */
  pool_block_store small_blocks;
  pool_caching small; /* requests that are not stitched */
  pool_stream_clock clock;
  unsigned state_operation[GMLAKE_STATES];
  unsigned split_operation, stitch_operation, stitch_free_operation;
} gmlake_policy_base;

typedef struct gmlake {
  gmlake_policy_base base;
  gmlake_settings settings;
  gmlake_classes classes;
  gmlake_spaces spaces;
  gmlake_sblocks sblocks;
  pool_store pblock_store, sblock_store;

  uint64_t *stitchable; /* bytes of free pBlocks from the fragmentation limit on, by stream */
  uint32_t streams;
  uint64_t pblock_count, pblock_bytes; /* active and free */
  uint64_t free_count, free_bytes;
  uint64_t below_limit;              /* requests below the fragmentation limit */
  uint64_t frees_before_stitch_free; /* since it found too little the last time */
  uint64_t borrowed_bytes;
  bool indexes; /* the index of runs is used */
  gmlake_pblock *changed;
  uint64_t indexed_pblocks, indexed_places; /* brought up to date in it, ever */
  uint64_t stamp;

  /* Room for one request's work. */
  pool_chunk **chunks;
  uint64_t chunk_capacity;
  gmlake_pblock **members;
  uint64_t member_capacity;
  gmlake_cut *cuts;
  uint64_t cut_count, cut_capacity;
  struct gmlake_piece *pieces;
  uint64_t piece_count, piece_capacity;
} gmlake;

/* ---- gmlake_blocks.c ---- */

/* Makes room for a stream. INVALID_VALUE from POOL_STREAM_LIMIT on. */
vmm_status gmlake_prepare_stream(gmlake *self, vmm_stream stream);
/* Makes room in self->chunks, self->members. */
bool gmlake_reserve_chunks(gmlake *self, uint64_t count);
bool gmlake_reserve_members(gmlake *self, uint64_t count);
/* A space for size bytes; drops sBlocks if VA is exhausted. */
vmm_status gmlake_reserve_space(gmlake *self, uint64_t size, gmlake_space **space);

/* An active pBlock that has no memory yet, for which everything is prepared. */
vmm_status gmlake_pblock_new(gmlake *self, uint64_t size, vmm_stream stream, gmlake_pblock **made);
void gmlake_pblock_discard(gmlake *self, gmlake_pblock *pblock);
/* Alloc, the only source of memory: makes its chunks and maps them at an end of a space, where its home is
 * from then on. section: of its place. On failure nothing has changed. */
vmm_status gmlake_pblock_allocate(gmlake *self, gmlake_pblock *pblock, gmlake_space *space, bool in_front,
                                  uint32_t section);
/* All of that in a space of its own. */
vmm_status gmlake_grow(gmlake *self, uint64_t size, vmm_stream stream, gmlake_pblock **made);
/* Split a free pBlock: the front stays what it was, the rest becomes another one, in all places. The old size
 * lives on as an sBlock if keep_size says so. No driver call. Recorded in self->cuts. */
vmm_status gmlake_split(gmlake *self, gmlake_pblock *pblock, uint64_t size, bool keep_size);
/* Splits the pBlock at *place, if need be, so that one begins at the address; *place is then that one's. */
vmm_status gmlake_cut_at(gmlake *self, gmlake_place **place, vmm_address address, bool keep_size);
/* Undoes the splits recorded from number first on; forgets what is recorded. */
void gmlake_undo_cuts(gmlake *self, uint64_t first);
static inline void gmlake_keep_cuts(gmlake *self) { self->cut_count = 0; }

/* What a free pBlock of a size counts for in a stitch. */
static inline uint64_t gmlake_stitchable(const gmlake *self, uint64_t size) {
  return size >= self->settings.frag_limit ? size : 0;
}

/* Takes it out of the index, until its next change. */
void gmlake_pblock_unindex(gmlake *self, gmlake_pblock *pblock);
/* Brings the index of runs up to date. Amortised O(places of the pBlocks that changed * log n). */
void gmlake_index_changes(gmlake *self);
static inline void gmlake_pblock_changes(gmlake *self, gmlake_pblock *pblock) {
  if (pblock->base.changed || !self->indexes) return;
  pblock->base.changed = true;
  pblock->next_changed = self->changed;
  self->changed = pblock;
}

/* A free pBlock becomes active. Its mark may be left for the next search to find out. */
static inline void gmlake_activate(gmlake *self, gmlake_pblock *pblock) {
  gmlake_block *base = &pblock->base;
  base->free = false;
  self->free_count--;
  self->free_bytes -= base->size;
  if (base->size >= self->settings.frag_limit) self->stitchable[base->stream] -= base->size;
  gmlake_pblock_changes(self, pblock);
}

void gmlake_wake_watchers(gmlake_pblock *pblock);

/* Update: an active pBlock becomes free. */
static inline void gmlake_deactivate(gmlake *self, gmlake_pblock *pblock, uint64_t point) {
  gmlake_block *base = &pblock->base;
  base->free = true;
  pblock->freed_at = point;
  self->free_count++;
  self->free_bytes += base->size;
  if (base->size >= self->settings.frag_limit) self->stitchable[base->stream] += base->size;
  gmlake_set_mark(&base->class->pblocks, base);
  gmlake_class_has_free(&self->classes, base->class);
  if (pblock->watchers) gmlake_wake_watchers(pblock);
  gmlake_pblock_changes(self, pblock);
}

/* Makes free pBlocks of other streams this stream's, for a request of this size. Returns whether any were. */
bool gmlake_borrow(gmlake *self, uint64_t size, vmm_stream stream);
bool gmlake_blocks_check(const gmlake *self, char *message, size_t message_size);

/* ---- gmlake_return.c ---- */

/* Returns the pBlocks from a place at home up to an address to the driver: no chunk of theirs is mapped
 * elsewhere or belongs to others too, none is given out. May free the space. */
vmm_status gmlake_pblocks_return(gmlake *self, gmlake_place *first, vmm_address end);
/* Everything unused goes back to the driver, once the host has waited for the device, but for the pBlocks and
 * sBlocks of one stream. kept GMLAKE_NOT_INDEXED: of none. */
vmm_status gmlake_return_memory(gmlake *self, vmm_stream kept);

/* ---- gmlake_stitched.c ---- */

#define GMLAKE_FOR_EACH_PLACE(place, sblock) \
  for ((place) = (sblock)->first;            \
       (place) && (place)->address < (sblock)->base.address + (sblock)->base.size; (place) = (place)->next)

/* An sBlock that lies nowhere yet, for which everything is prepared. */
vmm_status gmlake_sblock_new(gmlake *self, uint64_t size, vmm_stream stream, gmlake_sblock **made);
void gmlake_sblock_discard(gmlake *self, gmlake_sblock *sblock);
/* It now lies over the places from this one on, and is in the sPool. */
void gmlake_sblock_enter(gmlake *self, gmlake_sblock *sblock, gmlake_place *first);
/* Takes one that is not held out of the sPool. Mappings stay. */
void gmlake_sblock_forget(gmlake *self, gmlake_sblock *sblock);
/* The same, and unmaps what no other sBlock lies over. The device is done with it. It is gone even if the
 * driver refuses. */
vmm_status gmlake_unstitch(gmlake *self, gmlake_sblock *sblock);
/* Unmaps all mappings besides those at home over which no sBlock lies. */
vmm_status gmlake_unmap_unused(gmlake *self);
/* Stitch: maps all chunks of self->members into a VA of its own; an inactive sBlock over them. */
vmm_status gmlake_stitch(gmlake *self, uint64_t member_count, uint64_t size, vmm_stream stream,
                         gmlake_sblock **made);

/* The inactive sBlock of a class that was made first; NULL if none. Amortised O(its pBlocks). */
gmlake_sblock *gmlake_class_inactive_sblock(gmlake_class *class);
void gmlake_sblock_hold(gmlake *self, gmlake_sblock *sblock);
void gmlake_sblock_let_go(gmlake *self, gmlake_sblock *sblock, uint64_t point);
/* StitchFree: if a limit is passed, drops the least recently used inactive sBlocks until all are kept with an
 * eighth to spare; past stitch_ratio those too that are active though not given out. What found too little is
 * tried again only after some frees. Amortised O(1) a free. */
void gmlake_stitch_free(gmlake *self);
/* The same to get VA back: drops an eighth of them. false: there was nothing to drop. */
bool gmlake_make_address_room(gmlake *self);
bool gmlake_stitched_check(const gmlake *self, char *message, size_t message_size);

/* ---- gmlake_strategy.c ---- */

/* BestFit and what follows from it, for a request of whole chunks. */
vmm_status gmlake_alloc_large(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                              vmm_address *address);
vmm_status gmlake_give_pblock(gmlake *self, gmlake_pblock *pblock, uint64_t requested, vmm_address *address);
vmm_status gmlake_give_sblock(gmlake *self, gmlake_sblock *sblock, uint64_t requested, vmm_address *address);
/* The caller's block is free for reuse. */
void gmlake_take_back_pblock(gmlake *self, gmlake_pblock *pblock);
void gmlake_take_back_sblock(gmlake *self, gmlake_sblock *sblock);

/* ---- gmlake.c ---- */

/* A policy of size bytes that begins with a gmlake_policy_base, all zero behind it. INVALID_VALUE, and
 * message says why, if chunk is no multiple of the device's granularity. */
vmm_status gmlake_base_create(const policy_configuration *configuration, const policy_class *rules,
                              size_t size, void **created, char *message, size_t message_size);
/* Returns everything to the driver and forgets what the base keeps; the policy itself is the caller's to
 * free. */
void gmlake_base_fini(gmlake_policy_base *base);
/* One block of either kind for policy_blocks. */
static inline void gmlake_visit_block(vmm_address address, uint64_t size, vmm_stream stream, bool stitched,
                                      bool held, policy_block_visit *visit, void *context) {
  visit(context, &(policy_block){.kind = stitched ? "sBlock" : "pBlock",
                                 .stitched = stitched,
                                 .held = held,
                                 .address = address,
                                 .size = size,
                                 .stream = stream});
}

/* ---- gmlake_published.c ---- */

typedef struct gmlake_published_settings {
  uint64_t chunk;
  uint64_t request_limit; /* smaller requests are not stitched */
  uint64_t stitch_bytes;  /* in all sBlocks; beyond it those that are idle are dropped */
  double reuse_factor;    /* an sBlock may be so many times larger than the request */
  bool stitch_after_growing;
} gmlake_published_settings;

vmm_status gmlake_published_create(const policy_configuration *configuration,
                                   const gmlake_published_settings *settings, policy **created, char *message,
                                   size_t message_size);

/* ---- gmlake_windows.c ---- */

/* S3 and S4 of stitching=deferred. */
vmm_status gmlake_alloc_window(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                               vmm_address *address);

#endif
