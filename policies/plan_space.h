/* Blocks in the plane of time and address, and where the next one fits.
 *
 * A tree over time. A block's life is made up of O(log n) nodes; each node keeps, as sorted runs of
 * addresses, what is taken by blocks that live through all of it, and what is taken by any block at any time
 * in it. A place for a block is one that is free in the second kind of runs of the nodes of its life and in
 * the first kind of those above them. */
#ifndef LAKEBED_POLICIES_PLAN_SPACE_H
#define LAKEBED_POLICIES_PLAN_SPACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct plan_space plan_space;

/* Empty, for so many sections of time, at least 1. NULL when the host has no memory. */
plan_space *plan_space_create(uint32_t sections);
void plan_space_destroy(plan_space *space);
/* Takes all blocks out. O(nodes). */
void plan_space_clear(plan_space *space);
/* The lowest address at which size bytes are free from section begin to before section end. */
uint64_t plan_space_lowest(plan_space *space, uint32_t begin, uint32_t end, uint64_t size);
/* Adds a block. false when the host has no memory; the space must be cleared then. */
bool plan_space_add(plan_space *space, uint32_t begin, uint32_t end, uint64_t address, uint64_t size);
/* Runs looked at and moved since the beginning. */
uint64_t plan_space_steps(const plan_space *space);

#endif
