/* A hash map from a recorded id (address, handle) to a small number. Internal to workloads.
 *
 * Open addressing with linear probing. Removal leaves the id behind marked as
 * gone; those marks are kept, up to a limit, so that "never seen" and "seen, but
 * gone" can be told apart, and swept out together when the table fills up. All
 * operations are amortised O(1). */
#ifndef LAKEBED_WORKLOADS_ID_MAP_H
#define LAKEBED_WORKLOADS_ID_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  TRACE_ID_EMPTY = UINT32_MAX,   /* not in the map */
  TRACE_ID_GONE = UINT32_MAX - 1 /* was there, and was removed */
};

typedef struct trace_id_entry {
  uint64_t id;
  uint32_t value; /* or TRACE_ID_EMPTY, TRACE_ID_GONE */
} trace_id_entry;

typedef struct trace_id_map {
  trace_id_entry *entries;
  size_t capacity; /* power of two, 0 at first */
  size_t used;     /* entries not empty */
  size_t gone;     /* of them, marked as gone */
  size_t gone_limit;
  uint64_t seed;
  int shift;
} trace_id_map;

/* gone_limit: how many removed ids to remember when the table is full; SIZE_MAX for all. */
void trace_id_map_init(trace_id_map *map, size_t gone_limit);

/* The value of id, TRACE_ID_EMPTY or TRACE_ID_GONE. */
uint32_t trace_id_map_find(const trace_id_map *map, uint64_t id);

/* The entry of id, made (with value TRACE_ID_EMPTY) where there is none: the caller must
 * set its value at once. NULL when memory runs out. Valid until the next call. */
trace_id_entry *trace_id_map_put(trace_id_map *map, uint64_t id);

/* Marks id as gone; returns the value it had, TRACE_ID_EMPTY or TRACE_ID_GONE. */
uint32_t trace_id_map_remove(trace_id_map *map, uint64_t id);

/* Forgets everything, keeps the memory. */
void trace_id_map_clear(trace_id_map *map);
void trace_id_map_free(trace_id_map *map);

#endif
