/* Where GMLake's pBlocks lie in VA: spaces and places.
 *
 * A space is one reservation. Chunks are mapped into it side by side, and it may be larger than
 * what is mapped, so that it can grow at both ends. A place is a pBlock's appearance in a space:
 * one at home, where its chunks were mapped when they were made, and one wherever they were mapped again.
 * The places of a space follow one another by address; an sBlock is a window over some of them.
 *
 * Where free pBlocks lie side by side they can be given out as one block without a driver call. The index
 * of runs knows such places: maximal rows of free pBlocks, each of them once, of one stream. */
#ifndef LAKEBED_POLICIES_GMLAKE_SPACES_H
#define LAKEBED_POLICIES_GMLAKE_SPACES_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

#include "policies/gmlake_set.h"
#include "pools/heap.h"
#include "pools/store.h"

#define GMLAKE_NOT_INDEXED UINT32_MAX

/* What the index knows of: rows of free pBlocks that lie side by side anywhere, and those of them that do so
 * at home. */
typedef enum gmlake_row_kind { GMLAKE_RUN, GMLAKE_ROW_AT_HOME, GMLAKE_ROW_KINDS } gmlake_row_kind;

typedef struct gmlake_space gmlake_space;
typedef struct gmlake_place gmlake_place;

/* What an allocation or a free touches fills one line of the processor's cache, and so do parts of a place.
 */
enum { GMLAKE_CACHE_LINE = 64 };

/* A run of chunks and the VA at which they are at home. */
typedef struct gmlake_pblock gmlake_pblock;
struct gmlake_pblock {
  _Alignas(GMLAKE_CACHE_LINE) gmlake_block base;
  uint64_t freed_at;              /* point of the stream that freed it last */
  struct gmlake_sblock *watchers; /* sBlocks known to be active because this one is */
  gmlake_pblock *next_changed;
  gmlake_place *places;           /* linked by other; the first one is home */
  gmlake_pblock *previous, *next; /* the other pieces of what was allocated at once, by address */
  uint64_t stamp;                 /* of the last search that took it */
};

/* What a walk along a space or along a pBlock's places reads comes first, then what the index keeps. */
struct gmlake_place {
  _Alignas(GMLAKE_CACHE_LINE) gmlake_place *next; /* in the space, by address; not always adjacent */
  gmlake_place *previous;
  vmm_address address;
  uint64_t size; /* of its pBlock */
  gmlake_pblock *block;
  gmlake_place *other; /* the next place of the same pBlock */
  vmm_stream indexed;  /* counted as free of this stream; GMLAKE_NOT_INDEXED */
  vmm_stream free_on;  /* what the index is to say next */
  uint32_t section; /* runs end where it changes: a pBlock may lie in a space twice, but not in one section */
  bool home;
  bool has_several;               /* places: the run that begins here */
  bool at_edge;                   /* it can be extended in place */
  bool has_whole_chunk;           /* the row at home that begins here */
  uint64_t row[GMLAKE_ROW_KINDS]; /* bytes of the row that begins here; 0: none does */
  gmlake_space *space;
  uint32_t users; /* sBlocks that lie over it; not counted at home */
  RB_ENTRY(gmlake_place) by_place;
  RB_ENTRY(gmlake_place) by_size;
  RB_ENTRY(gmlake_place) by_edge;
  RB_ENTRY(gmlake_place) by_home;
  RB_ENTRY(gmlake_place) by_age;
};

struct gmlake_space {
  pool_range *range;
  vmm_address begin, end; /* what is mapped lies in between */
  gmlake_place *first, *last;
  uint64_t birth;
  uint32_t sections;
  bool begin_closed, end_closed; /* does not grow at that end */
  gmlake_space *older, *newer;
};

RB_HEAD(gmlake_run_tree, gmlake_place);
RB_HEAD(gmlake_size_tree, gmlake_place);
RB_HEAD(gmlake_edge_tree, gmlake_place);
RB_HEAD(gmlake_home_tree, gmlake_place);
RB_HEAD(gmlake_age_tree, gmlake_place);

typedef struct gmlake_spaces {
  pool_heap *heap;
  pool_store places;
  gmlake_space *oldest, *newest;
  uint64_t births;
  uint64_t certain_row;  /* a row of so many bytes has a whole chunk, wherever its chunks begin */
  uint64_t room;         /* VA to leave on either side of a new space; 0: none */
  uint64_t room_budget;  /* what all spaces may take for it */
  bool room_known;       /* the budget has been found out */
  pool_range *set_aside; /* VA kept so that rooms cannot use up all; NULL: none */
  struct gmlake_run_tree runs;
  struct gmlake_size_tree runs_by_size; /* those of several places */
  struct gmlake_edge_tree edges;
  struct gmlake_home_tree home_runs;
  struct gmlake_age_tree home_runs_by_age; /* those that have a whole chunk */
  uint64_t alias_bytes, alias_mappings;    /* mapped besides at home */
  uint64_t lost_bytes;                     /* mapped where a failure could not be undone */
} gmlake_spaces;

/* Chunks have at most largest_chunk bytes and are multiples of unit. */
void gmlake_spaces_init(gmlake_spaces *spaces, pool_heap *heap, uint64_t room, uint64_t largest_chunk,
                        uint64_t unit);
/* Forgets all spaces and places; ranges stay with the heap. */
void gmlake_spaces_fini(gmlake_spaces *spaces);

/* Reserves VA for size bytes, and room on both sides if there is to be some. OUT_OF_MEMORY when VA is
 * exhausted. */
vmm_status gmlake_space_reserve(gmlake_spaces *spaces, uint64_t size, uint64_t unit, bool with_room,
                                gmlake_space **made);
/* Gives back a space in which nothing is mapped. One whose VA the driver does not take back stays with the
 * heap. */
vmm_status gmlake_space_free(gmlake_spaces *spaces, gmlake_space *space);
/* Bytes that still fit in front of what is mapped, and behind it. */
static inline uint64_t gmlake_space_front_room(const gmlake_space *space) {
  return space->begin_closed ? 0 : space->begin - space->range->address;
}
static inline uint64_t gmlake_space_end_room(const gmlake_space *space) {
  return space->end_closed ? 0 : space->range->address + space->range->size - space->end;
}
/* Maps chunks at an end of a space: behind what is mapped, or in front of it. Its places are the caller's to
 * enter. *address: where the first chunk lies. */
vmm_status gmlake_space_map(gmlake_spaces *spaces, gmlake_space *space, bool in_front,
                            pool_chunk *const *chunks, uint64_t count, uint64_t size, vmm_address *address);
/* Unmaps [begin, end): whole chunks that lie there without a gap. The device is done with them. Once their
 * places are gone too, the space is tidied. */
vmm_status gmlake_space_unmap(gmlake_spaces *spaces, gmlake_space *space, vmm_address begin, vmm_address end);
/* Finds the ends of what is mapped; frees the space if nothing is. */
vmm_status gmlake_space_tidy(gmlake_spaces *spaces, gmlake_space *space);

static inline gmlake_place *gmlake_place_new(gmlake_spaces *spaces) {
  return pool_store_new(&spaces->places, sizeof(gmlake_place));
}
/* Deletes places that are in no space yet, linked by next. */
void gmlake_places_discard(gmlake_spaces *spaces, gmlake_place *list);
/* Enters a new place, which the caller has filled in (block, address, space, section, home; size is its
 * pBlock's),
 * after another one of its space; NULL: as the first. */
void gmlake_place_enter(gmlake_place *place, gmlake_place *after);
/* Takes it out of its space, its pBlock and the index, and deletes it. */
void gmlake_place_delete(gmlake_spaces *spaces, gmlake_place *place);

static inline pool_slot *gmlake_slot(const pool_range *range, vmm_address address) {
  return &range->slots[(address - range->address) / range->unit];
}
/* The border between chunks that is nearest, at or above an address where a chunk is mapped; at or below the
 * end of one. O(1). */
vmm_address gmlake_border_above(const pool_range *range, vmm_address address);
vmm_address gmlake_border_below(const pool_range *range, vmm_address end);

/* ---- the index of runs ---- */

/* Makes the index say what the place says in free_on: that its pBlock is free and may be given out on that
 * stream together with others, or that it may not; of the places beside it too that change alike. O(log n)
 * for all of them and O(1) for each. */
void gmlake_index_renew(gmlake_spaces *spaces, gmlake_place *place);
/* Takes out this one. O(log n). */
void gmlake_index_remove(gmlake_spaces *spaces, gmlake_place *place);
/* What can be extended has changed at the ends of a space. O(log n). */
void gmlake_index_edges(gmlake_spaces *spaces, gmlake_space *space);

/* The first place of the shortest run of several pBlocks of at least size bytes. NULL if none. O(log n). */
gmlake_place *gmlake_run_best_fit(gmlake_spaces *spaces, vmm_stream stream, uint64_t size);
/* The longest run that can be extended by so many bytes where it lies, at *in_front or behind, among the 64
 * longest that can be at all. NULL if none. O(log n). */
gmlake_place *gmlake_run_longest_edge(gmlake_spaces *spaces, vmm_stream stream, uint64_t extension,
                                      bool *in_front);
/* The oldest row of free pBlocks at home that has a whole chunk; the next younger one. NULL at the end.
 * O(log n). */
gmlake_place *gmlake_home_run_first(gmlake_spaces *spaces, vmm_stream stream);
gmlake_place *gmlake_home_run_next(gmlake_place *run);

/* Spaces, places and runs fit together. */
bool gmlake_spaces_check(const gmlake_spaces *spaces, char *message, size_t message_size);

#endif
