/* An ordered set of disjoint address ranges, each with a value: a treap over the
 * start addresses that knows the largest range below each node. Priorities come
 * from a counter, so that the same operations build the same tree. All O(log n). */
#ifndef LAKEBED_VMM_SIM_EXTENTS_H
#define LAKEBED_VMM_SIM_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Index of an extent; stays valid until the extent is removed. */
typedef uint32_t sim_extent;
#define SIM_EXTENT_NONE UINT32_C(0)

typedef struct sim_extent_node {
  uint64_t start, size;
  uint64_t left_largest, right_largest; /* sizes of the largest extents of the subtrees */
  uint64_t value;
  sim_extent left, right;
  uint32_t priority;
} sim_extent_node;

typedef struct sim_extents {
  sim_extent_node *nodes; /* nodes[0] stands for none */
  uint32_t used, capacity;
  sim_extent first_unused; /* linked by left */
  sim_extent root;
  uint32_t count;
  uint64_t random;
} sim_extents;

/* An all-zero struct is an empty set. */
void sim_extents_destroy(sim_extents *set);
/* Makes room, so that the next `more` insertions cannot fail. false: no host memory. */
bool sim_extents_reserve(sim_extents *set, uint32_t more);
/* Adds a range that overlaps none of the set; there must be room. */
sim_extent sim_extents_insert(sim_extents *set, uint64_t start, uint64_t size, uint64_t value);
void sim_extents_remove(sim_extents *set, sim_extent extent);
/* Changes start or size without changing the order. */
void sim_extents_resize(sim_extents *set, sim_extent extent, uint64_t start, uint64_t size);

static inline sim_extent_node *sim_extents_get(const sim_extents *set, sim_extent extent) {
  return &set->nodes[extent];
}
/* The extent with the greatest start at or below address. */
sim_extent sim_extents_floor(const sim_extents *set, uint64_t address);
/* The extent with the lowest start at or above address. */
sim_extent sim_extents_ceiling(const sim_extents *set, uint64_t address);
/* The extent that contains address. */
sim_extent sim_extents_containing(const sim_extents *set, uint64_t address);
/* The extent of at least this size with the lowest (highest) start. */
sim_extent sim_extents_first_fit(const sim_extents *set, uint64_t size);
sim_extent sim_extents_last_fit(const sim_extents *set, uint64_t size);
/* The lowest extent that holds size bytes from a multiple of alignment (a power of
 * two) on. O(log n) if most extents that are large enough hold it. */
sim_extent sim_extents_first_fit_aligned(const sim_extents *set, uint64_t size, uint64_t alignment);
/* Takes [start, start + size) out of the extent that contains it; the rest stays.
 * There must be room for one insertion. */
void sim_extents_carve(sim_extents *set, sim_extent extent, uint64_t start, uint64_t size);
/* Adds a range and merges it with those it touches. There must be room for one insertion. */
void sim_extents_merge(sim_extents *set, uint64_t start, uint64_t size);

#endif
