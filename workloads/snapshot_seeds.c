#include "workloads/snapshot_seeds.h"

#include <stdlib.h>
#include <string.h>

/* Blocks of old snapshots carry no address; until their segment's is known they carry their offset in it. */
#define ADDRESS_IS_OFFSET (UINT64_C(1) << 63)

void snapshot_seeds_init(snapshot_seeds *seeds) {
  memset(seeds, 0, sizeof *seeds);
  trace_id_map_init(&seeds->touched, SIZE_MAX);
}

static bool append(snapshot_seed_list *list, snapshot_seed seed) {
  if (list->count == list->capacity) {
    size_t capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
    snapshot_seed *grown = realloc(list->seeds, capacity * sizeof *grown);
    if (grown == NULL) return false;
    list->seeds = grown;
    list->capacity = capacity;
  }
  list->seeds[list->count++] = seed;
  return true;
}

static void drop(snapshot_seed_list *list) {
  free(list->seeds);
  memset(list, 0, sizeof *list);
}

bool snapshot_seeds_alloc(snapshot_seeds *seeds, uint64_t address) {
  trace_id_entry *entry = trace_id_map_put(&seeds->touched, address);
  if (entry == NULL) return false;
  entry->value = 0;
  return true;
}

bool snapshot_seeds_free(snapshot_seeds *seeds, uint64_t address, uint64_t size, uint64_t stream) {
  if (trace_id_map_remove(&seeds->touched, address) != TRACE_ID_EMPTY) return true;
  if (!append(&seeds->freed, (snapshot_seed){address, size, stream})) return false;
  if (!snapshot_seeds_alloc(seeds, address)) return false;
  trace_id_map_remove(&seeds->touched, address);
  return true;
}

void snapshot_seeds_segment_begin(snapshot_seeds *seeds) {
  seeds->segment_first = seeds->active.count;
  seeds->segment_bytes = 0;
}

bool snapshot_seeds_block(snapshot_seeds *seeds, bool has_address, uint64_t address, uint64_t size,
                          bool active, uint64_t requested) {
  if (!has_address) address = seeds->segment_bytes | ADDRESS_IS_OFFSET;
  seeds->segment_bytes = (seeds->segment_bytes + size) & ~ADDRESS_IS_OFFSET;
  return !active || append(&seeds->active, (snapshot_seed){address, requested, 0});
}

void snapshot_seeds_segment_end(snapshot_seeds *seeds, bool wanted, uint64_t address, uint64_t stream) {
  if (!wanted) seeds->active.count = seeds->segment_first;
  if (wanted) seeds->segments_bytes += seeds->segment_bytes;
  for (size_t i = seeds->segment_first; i < seeds->active.count; i++) {
    snapshot_seed *seed = &seeds->active.seeds[i];
    if (seed->address & ADDRESS_IS_OFFSET) seed->address = address + (seed->address & ~ADDRESS_IS_OFFSET);
    seed->stream = stream;
  }
  seeds->segment_first = seeds->active.count;
}

static int by_address(const void *left, const void *right) {
  const snapshot_seed *a = left, *b = right;
  return (a->address > b->address) - (a->address < b->address);
}

bool snapshot_seeds_finish(snapshot_seeds *seeds) {
  snapshot_seed_list *result = &seeds->result;
  *result = seeds->freed;
  memset(&seeds->freed, 0, sizeof seeds->freed);
  bool done = true;
  for (size_t i = 0; i < seeds->active.count && done; i++) {
    if (trace_id_map_find(&seeds->touched, seeds->active.seeds[i].address) != TRACE_ID_EMPTY) continue;
    done = append(result, seeds->active.seeds[i]);
  }
  if (result->count > 1) qsort(result->seeds, result->count, sizeof *result->seeds, by_address);
  drop(&seeds->active);
  trace_id_map_free(&seeds->touched);
  return done;
}

void snapshot_seeds_free_all(snapshot_seeds *seeds) {
  drop(&seeds->freed);
  drop(&seeds->active);
  drop(&seeds->result);
  trace_id_map_free(&seeds->touched);
}
