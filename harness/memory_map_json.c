/* A memory map as JSON. docs/forensics.md defines the keys. */
#include "harness/memory_map.h"

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

static void set(json_t *object, const char *key, uint64_t value) {
  json_object_set_new(object, key, number(value));
}

static json_t *runs_array(const memory_map *map) {
  json_t *array = json_array();
  for (size_t i = 0; i < map->run_count; i++) {
    const memory_run *run = &map->runs[i];
    json_t *entry = json_object();
    set(entry, "position", run->position);
    set(entry, "bytes", run->bytes);
    set(entry, "home", run->home);
    json_object_set_new(entry, "state", json_string(memory_state_name(run->state)));
    if (run->state != MEMORY_FREE) {
      set(entry, "address", run->address);
      set(entry, "requested_bytes", run->requested);
      set(entry, "stream", run->stream);
    }
    json_array_append_new(array, entry);
  }
  return array;
}

static json_t *chunks_array(const memory_map *map) {
  json_t *array = json_array();
  for (size_t i = 0; i < map->chunks_count; i++) {
    const memory_chunks *chunks = &map->chunks[i];
    json_t *entry = json_object();
    set(entry, "first", chunks->first);
    set(entry, "count", chunks->count);
    set(entry, "chunk_bytes", chunks->size);
    set(entry, "position", chunks->position);
    set(entry, "home", chunks->home);
    set(entry, "mappings", chunks->mappings);
    json_array_append_new(array, entry);
  }
  return array;
}

static json_t *regions_array(const memory_map *map) {
  json_t *array = json_array();
  for (size_t i = 0; i < map->region_count; i++) {
    const memory_region *region = &map->regions[i];
    json_t *entry = json_object();
    json_object_set_new(entry, "kind", json_string(memory_region_kind_name(region->kind)));
    set(entry, "address", region->address);
    set(entry, "address_bytes", region->size);
    set(entry, "held_bytes", region->held);
    set(entry, "live_bytes", region->live_bytes);
    set(entry, "waiting_bytes", region->waiting_bytes);
    set(entry, "free_bytes", region->free_bytes);
    set(entry, "free_runs", region->free_runs);
    set(entry, "largest_free_bytes", region->largest_free_bytes);
    set(entry, "mapped_again_bytes", region->again);
    set(entry, "chunks", region->chunks);
    json_array_append_new(array, entry);
  }
  return array;
}

static json_t *parts_array(const memory_map *map, const memory_block *block) {
  json_t *array = json_array();
  for (size_t k = 0; k < block->parts; k++) {
    const memory_part *part = &map->parts[block->first_part + k];
    json_t *entry = json_object();
    set(entry, "offset", part->offset);
    set(entry, "bytes", part->bytes);
    set(entry, "position", part->position);
    json_object_set_new(entry, "block", part->block == MEMORY_NO_BLOCK ? json_null() : number(part->block));
    set(entry, "offset_in_block", part->in_block);
    set(entry, "first_chunk", part->first_chunk);
    set(entry, "last_chunk", part->last_chunk);
    json_array_append_new(array, entry);
  }
  return array;
}

static json_t *block_object(const memory_map *map, const memory_block *block) {
  json_t *entry = json_object();
  json_object_set_new(entry, "kind", json_string(block->kind));
  set(entry, "address", block->address);
  set(entry, "bytes", block->size);
  set(entry, "stream", block->stream);
  json_object_set_new(entry, "given_out", json_boolean(block->held));
  set(entry, "used_bytes", block->used_bytes);
  set(entry, "shared_bytes", block->shared_bytes);
  if (block->stitched) {
    json_object_set_new(entry, "parts", parts_array(map, block));
    return entry;
  }
  set(entry, "position", block->position);
  set(entry, "first_chunk", block->first_chunk);
  set(entry, "last_chunk", block->last_chunk);
  set(entry, "sharers", block->sharers);
  return entry;
}

static json_t *blocks_array(const memory_map *map, size_t from, size_t to) {
  json_t *array = json_array();
  for (size_t i = from; i < to; i++) json_array_append_new(array, block_object(map, &map->blocks[i]));
  return array;
}

static json_t *covers_array(const memory_map *map) {
  json_t *array = json_array();
  for (size_t i = 0; i < map->cover_count; i++) {
    json_t *entry = json_object();
    set(entry, "position", map->covers[i].position);
    set(entry, "bytes", map->covers[i].bytes);
    set(entry, "count", map->covers[i].count);
    json_array_append_new(array, entry);
  }
  return array;
}

json_t *memory_map_json(const memory_map *map) {
  json_t *object = json_object();
  if (!object) return NULL;
  set(object, "lap", map->lap);
  set(object, "event", map->event);
  json_object_set_new(object, "wanted_bytes", map->wanted_bytes ? number(map->wanted_bytes) : json_null());
  set(object, "line_bytes", map->bytes);
  set(object, "live_bytes", map->live_bytes);
  set(object, "allocated_bytes", map->allocated_bytes);
  set(object, "active_bytes", map->active_bytes);
  set(object, "reserved_bytes", map->reserved_bytes);
  set(object, "reserved_address_bytes", map->address_bytes);
  set(object, "elsewhere_bytes", map->elsewhere_bytes);
  json_object_set_new(object, "largest_free_bytes",
                      map->knows_largest_free ? number(map->largest_free_bytes) : json_null());
  set(object, "free_bytes", map->state_bytes[MEMORY_FREE]);
  set(object, "free_runs", map->free_runs);
  set(object, "live_blocks", map->live_blocks);
  set(object, "chunks_count", map->chunk_count);
  set(object, "chunk_bytes", map->chunk_bytes);
  set(object, "shared_bytes", map->shared_bytes);
  set(object, "extra_mappings", map->extra_mappings);
  set(object, "unmapped_bytes", map->unmapped_bytes);
  json_object_set_new(object, "regions", regions_array(map));
  json_object_set_new(object, "runs", runs_array(map));
  json_object_set_new(object, "chunks", chunks_array(map));
  json_object_set_new(object, "blocks", blocks_array(map, 0, map->home_blocks));
  json_object_set_new(object, "stitched", blocks_array(map, map->home_blocks, map->block_count));
  json_object_set_new(object, "covers", covers_array(map));
  return object;
}
