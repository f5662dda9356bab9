#include "workloads/id_map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

enum { SMALLEST_CAPACITY = 1024 };

/* Ids come from files that may have been made to collide. */
static uint64_t random_seed(void) {
  uint64_t seed = UINT64_C(0x9E3779B97F4A7C15);
  const void *random = (const void *)getauxval(AT_RANDOM);
  if (random != NULL) memcpy(&seed, random, sizeof seed);
  return seed | 1;
}

static inline size_t place_of(const trace_id_map *map, uint64_t id) {
  id ^= id >> 32;
  id *= map->seed;
  id ^= id >> 29;
  id *= UINT64_C(0xBF58476D1CE4E5B9);
  return (size_t)(id >> map->shift);
}

void trace_id_map_init(trace_id_map *map, size_t gone_limit) {
  memset(map, 0, sizeof *map);
  map->gone_limit = gone_limit;
  map->seed = random_seed();
  map->shift = 63;
}

static inline trace_id_entry *entry_of(const trace_id_map *map, uint64_t id) {
  size_t mask = map->capacity - 1;
  size_t place = place_of(map, id);
  while (map->entries[place].value != TRACE_ID_EMPTY && map->entries[place].id != id) {
    place = (place + 1) & mask;
  }
  return &map->entries[place];
}

uint32_t trace_id_map_find(const trace_id_map *map, uint64_t id) {
  return map->capacity == 0 ? (uint32_t)TRACE_ID_EMPTY : entry_of(map, id)->value;
}

static bool rebuild(trace_id_map *map) {
  bool sweep = map->gone > map->gone_limit;
  size_t kept = map->used - (sweep ? map->gone : 0);
  size_t capacity = SMALLEST_CAPACITY;
  int bits = 10;
  while (capacity < 3 * kept) {
    if (capacity > SIZE_MAX / sizeof(trace_id_entry) / 2) return false;
    capacity *= 2;
    bits++;
  }
  trace_id_entry *entries = malloc(capacity * sizeof *entries);
  if (entries == NULL) return false;
  memset(entries, 0xFF, capacity * sizeof *entries); /* every value TRACE_ID_EMPTY */
  trace_id_map old = *map;
  map->entries = entries;
  map->capacity = capacity;
  map->shift = 64 - bits;
  map->used = kept;
  if (sweep) map->gone = 0;
  for (size_t i = 0; i < old.capacity; i++) {
    const trace_id_entry *entry = &old.entries[i];
    if (entry->value == TRACE_ID_EMPTY || (sweep && entry->value == TRACE_ID_GONE)) continue;
    *entry_of(map, entry->id) = *entry;
  }
  free(old.entries);
  return true;
}

trace_id_entry *trace_id_map_put(trace_id_map *map, uint64_t id) {
  if (map->used >= map->capacity / 2 && !rebuild(map)) return NULL;
  trace_id_entry *entry = entry_of(map, id);
  if (entry->value == TRACE_ID_EMPTY) {
    entry->id = id;
    map->used++;
  } else if (entry->value == TRACE_ID_GONE) {
    map->gone--;
    entry->value = TRACE_ID_EMPTY;
  }
  return entry;
}

uint32_t trace_id_map_remove(trace_id_map *map, uint64_t id) {
  if (map->capacity == 0) return TRACE_ID_EMPTY;
  trace_id_entry *entry = entry_of(map, id);
  uint32_t value = entry->value;
  if (value != TRACE_ID_EMPTY && value != TRACE_ID_GONE) {
    entry->value = TRACE_ID_GONE;
    map->gone++;
  }
  return value;
}

void trace_id_map_clear(trace_id_map *map) {
  if (map->capacity > 0) memset(map->entries, 0xFF, map->capacity * sizeof *map->entries);
  map->used = 0;
  map->gone = 0;
}

void trace_id_map_free(trace_id_map *map) {
  free(map->entries);
  map->entries = NULL;
  map->capacity = map->used = map->gone = 0;
}
