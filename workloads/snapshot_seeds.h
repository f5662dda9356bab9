/* The allocations that were live when a snapshot's recording began. Internal to workloads.
 *
 * Going backwards from the end: a block that is active in `segments` and was not
 * allocated within the trace was there from the beginning, and so was one that the trace
 * frees without having allocated it. */
#ifndef LAKEBED_WORKLOADS_SNAPSHOT_SEEDS_H
#define LAKEBED_WORKLOADS_SNAPSHOT_SEEDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/id_map.h"

typedef struct snapshot_seed {
  uint64_t address;
  uint64_t size; /* requested */
  uint64_t stream;
} snapshot_seed;

typedef struct snapshot_seed_list {
  snapshot_seed *seeds;
  size_t count;
  size_t capacity;
} snapshot_seed_list;

typedef struct snapshot_seeds {
  trace_id_map touched;      /* addresses of the trace: value 0 is live, gone is freed */
  snapshot_seed_list freed;  /* freed without an allocation */
  snapshot_seed_list active; /* active blocks of all segments of the device */
  size_t segment_first;      /* those from here on belong to the segment being read */
  uint64_t segment_bytes;    /* sizes of its blocks so far: where the next one lies */
  uint64_t segments_bytes;   /* of all segments of the device */
  snapshot_seed_list result; /* by address */
} snapshot_seeds;

void snapshot_seeds_init(snapshot_seeds *seeds);

/* All return false when memory runs out. */
bool snapshot_seeds_alloc(snapshot_seeds *seeds, uint64_t address);
bool snapshot_seeds_free(snapshot_seeds *seeds, uint64_t address, uint64_t size, uint64_t stream);
void snapshot_seeds_segment_begin(snapshot_seeds *seeds);
/* A block of size bytes ends here; active: it is in use. has_address: else it follows the block before. */
bool snapshot_seeds_block(snapshot_seeds *seeds, bool has_address, uint64_t address, uint64_t size,
                          bool active, uint64_t requested);
/* wanted: the segment is on the device asked for, else its blocks are dropped. */
void snapshot_seeds_segment_end(snapshot_seeds *seeds, bool wanted, uint64_t address, uint64_t stream);
/* Fills result and drops everything else. */
bool snapshot_seeds_finish(snapshot_seeds *seeds);

void snapshot_seeds_free_all(snapshot_seeds *seeds);

#endif
