/* Counters with the meaning of PyTorch's memory_stats: each has its current
 * value, its peak, and what was added and taken in all. Kept by the pool layer,
 * so that policies cannot get them wrong. All O(1). */
#ifndef LAKEBED_POOLS_STATISTICS_H
#define LAKEBED_POOLS_STATISTICS_H

#include <stdint.h>

typedef struct pool_statistic {
  uint64_t current;
  uint64_t peak;
  uint64_t added;
  uint64_t taken;
} pool_statistic;

static inline void pool_statistic_add(pool_statistic *statistic, uint64_t amount) {
  statistic->current += amount;
  statistic->added += amount;
  if (statistic->current > statistic->peak) statistic->peak = statistic->current;
}

static inline void pool_statistic_take(pool_statistic *statistic, uint64_t amount) {
  statistic->current -= amount;
  statistic->taken += amount;
}

/* Told of each of many runs of free bytes. */
typedef void pool_range_visit(void *context, uint64_t bytes);

typedef struct pool_statistics {
  pool_statistic requested_bytes; /* what callers asked for, until the memory is free for reuse */
  pool_statistic allocated_bytes; /* blocks handed out and not freed by the caller */
  pool_statistic active_bytes;    /* the same and blocks that wait for other streams */
  pool_statistic reserved_bytes;  /* physical memory held from the driver */
  pool_statistic allocations;     /* blocks handed out */
  pool_statistic segments;        /* driver allocations held (cuMemAlloc) */
  pool_statistic inactive_split;  /* free blocks with a neighbour in their segment */
  pool_statistic inactive_split_bytes;
  uint64_t driver_allocations; /* times memory was taken from the driver: a cuMemAlloc, or a batch of mapped
                                  chunks */
  uint64_t driver_frees;
  uint64_t retries;    /* times everything unused was returned and the driver asked again */
  uint64_t failures;   /* requests that ended in out of memory */
  uint64_t host_waits; /* times the host waited for the device */
} pool_statistics;

#endif
