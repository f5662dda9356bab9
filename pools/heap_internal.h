/* What the heap's own files share; not for policies. */
#ifndef LAKEBED_POOLS_HEAP_INTERNAL_H
#define LAKEBED_POOLS_HEAP_INTERNAL_H

#include "pools/heap.h"

/* A freed allocation waits for one event of one stream. */
typedef struct pool_pending_entry {
  vmm_event event;
  vmm_address address;
} pool_pending_entry;

/* The waiting frees of one stream, oldest first: a ring. */
struct pool_pending {
  pool_pending_entry *entries;
  uint64_t capacity; /* a power of two, or 0 */
  uint64_t begin, count;
};

/* One stream recorded for one live allocation. */
struct pool_stream_use {
  vmm_stream stream;
  pool_stream_use *next;
};

/* The live or pending allocation at an address. */
pool_allocation *heap_lookup(const pool_heap *heap, vmm_address address);
/* Frees the host's memory for live allocations. */
void heap_forget_allocations(pool_heap *heap);
/* Drops all pending frees and recorded streams, discarding their events. */
void heap_forget_pending(pool_heap *heap);

#endif
