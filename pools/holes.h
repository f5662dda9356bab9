/* Free memory by address: maximal runs of free bytes, for first-fit heaps.
 *
 * A treap ordered by address whose nodes know the longest hole below them, so that the
 * lowest hole that fits is found in O(log n). Each hole remembers for every stream the
 * latest point (pools/stream_clock.h) at which a part of it was freed there. */
#ifndef LAKEBED_POOLS_HOLES_H
#define LAKEBED_POOLS_HOLES_H

#include <stdbool.h>
#include <stdint.h>

#include "pools/statistics.h"
#include "vmm/driver.h"

typedef struct pool_hole pool_hole;
struct pool_hole {
  vmm_address begin, end;
  uint64_t longest; /* of this node and those below it */
  uint64_t priority;
  pool_hole *left, *right, *parent;
  uint64_t *last; /* latest point of each stream, streams entries */
};

typedef struct pool_holes {
  pool_hole *root;
  pool_hole *unused;
  uint32_t streams; /* entries of every last */
  uint64_t count;
  uint64_t bytes;
  uint64_t spare; /* nodes in unused */
} pool_holes;

void pool_holes_init(pool_holes *holes);
void pool_holes_fini(pool_holes *holes);
/* Makes room for a stream in every hole. */
vmm_status pool_holes_prepare_stream(pool_holes *holes, vmm_stream stream);
/* Makes sure that the next count insertions or carvings cannot fail. */
vmm_status pool_holes_prepare(pool_holes *holes, uint64_t count);

/* Adds free bytes, merging with holes that touch them. last: one point for each of the
 * streams prepared, NULL for memory that nothing has used. Needs one prepared node. O(log n). */
void pool_holes_insert(pool_holes *holes, vmm_address begin, vmm_address end, const uint64_t *last);
/* Takes [begin, end) out of the hole that contains it. Needs one prepared node. O(log n). */
void pool_holes_carve(pool_holes *holes, pool_hole *hole, vmm_address begin, vmm_address end);

/* The lowest hole of at least size bytes; the next such above a hole. NULL if none. O(log n). */
pool_hole *pool_holes_first(const pool_holes *holes, uint64_t size);
pool_hole *pool_holes_next(pool_hole *hole, uint64_t size);
/* The lowest hole of at least size and less than bound bytes; looks at no more than tries holes of at least
 * size, from the lowest. NULL if none. O(tries * log n). */
pool_hole *pool_holes_first_below(const pool_holes *holes, uint64_t size, uint64_t bound, uint32_t tries);
/* The hole that contains an address; else the first above it; NULL if none. O(log n). */
pool_hole *pool_holes_at_or_above(const pool_holes *holes, vmm_address address);
/* The longest hole. O(1). */
static inline uint64_t pool_holes_longest(const pool_holes *holes) {
  return holes->root ? holes->root->longest : 0;
}

/* Visits all holes in address order. */
void pool_holes_visit(const pool_holes *holes, pool_range_visit *visit, void *context);

/* Order, heap order, longest, count and bytes. */
bool pool_holes_check(const pool_holes *holes, char *message, size_t message_size);

#endif
