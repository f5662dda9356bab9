/* The blocks of one size. A member has a number for as long as it belongs to the set, and a
 * mark that says that it may be free; the lowest marked number is found in O(1).
 *
 * Blocks of equal size are tried in the order in which they became members. That order depends
 * neither on addresses nor on what was freed when, so that the same requests meet the same
 * blocks in the next iteration. */
#ifndef LAKEBED_POLICIES_GMLAKE_SET_H
#define LAKEBED_POLICIES_GMLAKE_SET_H

#include <stdint.h>

#include "pools/blocks.h"

enum { GMLAKE_SET_LEVELS = 5 };

typedef struct gmlake_set {
  pool_block **members;                /* by number, which the block keeps in age_base; NULL: has left */
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
void gmlake_set_add(gmlake_set *set, pool_block *block);
void gmlake_set_remove(gmlake_set *set, pool_block *block);

void gmlake_set_mark(gmlake_set *set, const pool_block *block);
void gmlake_set_unmark(gmlake_set *set, const pool_block *block);
/* The marked member with the lowest number from this one on; NULL if none. O(levels). */
pool_block *gmlake_set_marked_from(const gmlake_set *set, uint32_t number);

static inline uint32_t gmlake_set_number(const pool_block *block) { return (uint32_t)block->age_base; }

static inline pool_block *gmlake_set_first_marked(const gmlake_set *set) {
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
