/* What a heap holds, laid out in a line: every physical byte has one position, wherever and however
 * often it is mapped. For maps of memory.
 *
 * The line consists of extents: segments and chunks in the order of their home addresses. A chunk's home is
 * the one of its mappings that lies in a range of home addresses which the caller names, else the lowest;
 * chunks that are mapped nowhere come last. Of memory that the heap does not hold (memory_elsewhere) only
 * what is handed out is known: that too is an extent. */
#ifndef LAKEBED_POOLS_LAYOUT_H
#define LAKEBED_POOLS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pools/heap.h"

typedef struct pool_span {
  vmm_address begin, end;
} pool_span;

typedef enum pool_extent_kind {
  POOL_EXTENT_SEGMENT,
  POOL_EXTENT_CHUNK,
  POOL_EXTENT_ELSEWHERE /* a block handed out in memory that the heap does not hold */
} pool_extent_kind;

typedef struct pool_extent {
  pool_extent_kind kind;
  vmm_address home; /* 0: a chunk that is mapped nowhere */
  uint64_t size;
  uint64_t position;       /* of its first byte in the line */
  uint32_t mappings;       /* of a chunk; else 1 */
  const pool_range *range; /* where its home is; NULL for segments, elsewhere and chunks without home */
} pool_extent;

/* A place where an extent can be reached. */
typedef struct pool_place {
  vmm_address address;
  uint64_t size;
  size_t extent;
  const pool_range *range;
  bool home;
} pool_place;

typedef struct pool_layout {
  pool_extent *extents; /* by position */
  size_t extent_count;
  pool_place *places; /* by address */
  size_t place_count;
  uint64_t bytes; /* of the line */
} pool_layout;

/* Lays out a heap. homes: count disjoint ranges of home addresses, ascending. The heap must not change while
 * the ranges of the layout are used. OUT_OF_MEMORY when the host has none. O(n log n) in what is mapped and
 * handed out. */
vmm_status pool_layout_make(const pool_heap *heap, const pool_span *homes, size_t count, pool_layout *layout);
/* Accepts one that is all zero. */
void pool_layout_free(pool_layout *layout);

/* The first place that ends above an address: it contains the address or lies above; place_count if
 * there is none. O(log n). */
size_t pool_layout_find(const pool_layout *layout, vmm_address address);

/* Told of a run of physical bytes, and where it is seen. */
typedef void pool_piece_visit(void *context, uint64_t position, uint64_t bytes, vmm_address address);
/* Visits what lies behind a run of addresses in the order of the addresses; where nothing is mapped, nothing.
 * O(log n + pieces). */
void pool_layout_visit(const pool_layout *layout, vmm_address address, uint64_t bytes,
                       pool_piece_visit *visit, void *context);

/* Visits all that is handed out, and what was freed and waits for other streams, in no order. */
typedef void pool_allocation_visit(void *context, const pool_allocation *allocation);
void pool_heap_visit_allocations(const pool_heap *heap, pool_allocation_visit *visit, void *context);

#endif
