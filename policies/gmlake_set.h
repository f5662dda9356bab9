/* The blocks of one size. A member has a number for as long as it belongs to the set, and a
 * mark that says that it may be free; the lowest marked number is found in O(1).
 *
 * Blocks of equal size are tried in the order in which they became members. That order depends
 * neither on addresses nor on what was freed when, so that the same requests meet the same
 * blocks in the next iteration. */
#ifndef LAKEBED_POLICIES_GMLAKE_SET_H
#define LAKEBED_POLICIES_GMLAKE_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/driver.h"

/* What pBlocks and sBlocks have in common. */
typedef struct gmlake_block {
  vmm_address address;
  uint64_t size;
  struct gmlake_class *class; /* whose set it belongs to */
  vmm_stream stream;
  uint32_t number; /* in that set */
  bool stitched;   /* an sBlock */
  bool free;       /* of pBlocks: not active */
  bool changed;    /* of pBlocks: the index may not know its state */
  bool held;       /* of sBlocks: given out */
  bool view;       /* of sBlocks: lies over homes alone: to drop it frees no mapping */
} gmlake_block;

enum { GMLAKE_SET_LEVELS = 5 };

typedef struct gmlake_set {
  gmlake_block **members;              /* by number; NULL: has left */
  uint64_t *levels[GMLAKE_SET_LEVELS]; /* marks; then for each word of the level below whether it has any */
  uint32_t level_count;
  uint32_t count;    /* members */
  uint32_t used;     /* numbers given out */
  uint32_t capacity; /* numbers that there is room for */
} gmlake_set;

/* An all-zero struct is an empty set. */
void gmlake_set_fini(gmlake_set *set);
/* Makes sure that so many additions cannot fail. false: no host memory. Amortised O(1). */
bool gmlake_set_prepare(gmlake_set *set, uint32_t additions);
/* The block becomes the last member, without a mark. */
void gmlake_set_add(gmlake_set *set, gmlake_block *block);
void gmlake_set_remove(gmlake_set *set, gmlake_block *block);

void gmlake_set_mark(gmlake_set *set, const gmlake_block *block);
void gmlake_set_unmark(gmlake_set *set, const gmlake_block *block);
/* The marked member with the lowest number from this one on; NULL if none. O(levels). */
gmlake_block *gmlake_set_marked_from(const gmlake_set *set, uint32_t number);

static inline gmlake_block *gmlake_set_first_marked(const gmlake_set *set) {
  if (set->level_count == 0) return NULL;
  uint32_t number = 0;
  for (uint32_t level = set->level_count; level-- > 0;) {
    uint64_t word = set->levels[level][number];
    if (word == 0) return NULL;
    number = number * 64 + (uint32_t)__builtin_ctzll(word);
  }
  return set->members[number];
}

#endif
