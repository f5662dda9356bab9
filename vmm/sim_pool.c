#include "vmm/sim_pool.h"

#include <stdlib.h>
#include <string.h>

/* Seen on an H200 (driver 580.159.04) and kept: one range of VA that grows by whole chunks of 32 MiB, which
 * is also the step of its bound; chunks that are wholly free are moved where a request needs them before
 * new ones are taken. Assumed: they come from the end of the range and go to the lowest run of free pieces
 * and holes that is long enough. A chunk costs a cuMemCreate, cuMemMap and cuMemSetAccess of 32 MiB when it
 * is taken, a cuMemUnmap and cuMemRelease when it goes, a cuMemUnmap, cuMemMap and cuMemSetAccess when it
 * moves. */

enum { VA_SHARE = 4 }; /* of the range, in device sizes */

static uint64_t round_up(uint64_t size, uint64_t step) { return (size + step - 1) & ~(step - 1); }

/* Orders by size, then by place. */
static uint64_t size_key(uint64_t size, uint64_t offset) {
  return size / SIM_POOL_UNIT_BYTES << 32 | offset / SIM_POOL_UNIT_BYTES;
}

/* ---- pieces ---- */

bool sim_pool_prepare(sim_pool *pool) {
  if (!sim_extents_reserve(&pool->free, pool->used + 2) || !sim_extents_reserve(&pool->live, 1) ||
      !sim_extents_reserve(&pool->holes, 2))
    return false;
  if (pool->unused_count >= 2 || pool->used + 2 <= pool->capacity) return true;
  if (pool->capacity > UINT32_MAX / 2) return false;
  uint32_t capacity = pool->capacity ? pool->capacity * 2 : 64;
  sim_pool_piece *grown = realloc(pool->pieces, capacity * sizeof *grown);
  if (!grown) return false;
  pool->pieces = grown;
  pool->capacity = capacity;
  return true;
}

static uint32_t piece_new(sim_pool *pool, sim_pool_piece piece) {
  uint32_t index = pool->first_unused;
  if (index) {
    pool->first_unused = pool->pieces[index].after;
    pool->unused_count--;
  } else {
    index = pool->used++;
  }
  pool->pieces[index] = piece;
  return index;
}

/* Takes a piece out of the address order and forgets it. */
static void piece_delete(sim_pool *pool, uint32_t index) {
  sim_pool_piece *piece = &pool->pieces[index];
  if (piece->before) pool->pieces[piece->before].after = piece->after;
  if (piece->after) pool->pieces[piece->after].before = piece->before;
  if (pool->last == index) pool->last = piece->before;
  piece->after = pool->first_unused;
  pool->first_unused = index;
  pool->unused_count++;
}

/* Cuts a piece in no set after size bytes; the rest is a piece in no set with the same state. */
static uint32_t piece_cut(sim_pool *pool, uint32_t index, uint64_t size) {
  const sim_pool_piece whole = pool->pieces[index];
  sim_pool_piece part = whole;
  part.offset += size;
  part.size -= size;
  part.before = index;
  uint32_t rest = piece_new(pool, part);
  if (whole.after) pool->pieces[whole.after].before = rest;
  if (pool->last == index) pool->last = rest;
  pool->pieces[index].after = rest;
  pool->pieces[index].size = size;
  return rest;
}

static void free_insert(sim_pool *pool, uint32_t index) {
  sim_pool_piece *piece = &pool->pieces[index];
  piece->state = SIM_PIECE_FREE;
  piece->entry = sim_extents_insert(&pool->free, size_key(piece->size, piece->offset), 1, index);
}

static void hole_insert(sim_pool *pool, uint32_t index) {
  sim_pool_piece *piece = &pool->pieces[index];
  piece->state = SIM_PIECE_HOLE;
  piece->entry = sim_extents_insert(&pool->holes, piece->offset, piece->size, index);
}

/* Takes a piece out of a set and joins it with neighbours of the same state, which leave that set too.
 * Returns the piece that has all of it, in no set. */
static uint32_t join(sim_pool *pool, sim_extents *set, uint32_t index, sim_piece_state state) {
  sim_pool_piece *pieces = pool->pieces;
  uint32_t before = pieces[index].before, after = pieces[index].after;
  if (after && pieces[after].state == state) {
    sim_extents_remove(set, pieces[after].entry);
    pieces[index].size += pieces[after].size;
    piece_delete(pool, after);
  }
  if (before && pieces[before].state == state) {
    sim_extents_remove(set, pieces[before].entry);
    pieces[before].size += pieces[index].size;
    piece_delete(pool, index);
    index = before;
  }
  return index;
}

/* A piece in no set has become free for all. Returns the free piece that it is part of. */
static uint32_t free_add(sim_pool *pool, uint32_t index) {
  index = join(pool, &pool->free, index, SIM_PIECE_FREE);
  free_insert(pool, index);
  return index;
}

void sim_pool_free(sim_pool *pool, uint32_t index) {
  sim_extents_remove(&pool->live, pool->pieces[index].entry);
  free_add(pool, index);
}

uint32_t sim_pool_piece_at(const sim_pool *pool, vmm_address address) {
  sim_extent found = sim_extents_floor(&pool->live, address);
  if (found == SIM_EXTENT_NONE || sim_extents_get(&pool->live, found)->start != address) return 0;
  return (uint32_t)sim_extents_get(&pool->live, found)->value;
}

/* ---- streams and pending pieces ---- */

bool sim_pool_stream_known(const sim_pool *pool, vmm_stream stream, uint32_t *index) {
  for (uint32_t i = 0; i < pool->stream_count; i++) {
    if (pool->streams[i].stream != stream) continue;
    *index = i;
    return true;
  }
  return false;
}

bool sim_pool_stream_index(sim_pool *pool, vmm_stream stream, uint32_t *index) {
  if (sim_pool_stream_known(pool, stream, index))
    return sim_extents_reserve(&pool->streams[*index].pending, 2);
  if (pool->stream_count == pool->stream_capacity) {
    uint32_t capacity = pool->stream_capacity ? pool->stream_capacity * 2 : 4;
    sim_pool_stream *grown = realloc(pool->streams, capacity * sizeof *grown);
    if (!grown) return false;
    pool->streams = grown;
    pool->stream_capacity = capacity;
  }
  *index = pool->stream_count;
  pool->streams[*index] = (sim_pool_stream){.stream = stream};
  if (!sim_extents_reserve(&pool->streams[*index].pending, 2)) return false;
  pool->stream_count++;
  return true;
}

/* Makes a piece in no set pending. later: the pending piece that completes next; 0: none. */
static void pending_insert(sim_pool *pool, uint32_t index, uint32_t later) {
  sim_pool_piece *piece = &pool->pieces[index];
  uint32_t earlier = later ? pool->pieces[later].earlier : pool->last_pending;
  piece->state = SIM_PIECE_PENDING;
  piece->entry = sim_extents_insert(&pool->streams[piece->stream].pending,
                                    size_key(piece->size, piece->offset), 1, index);
  piece->earlier = earlier;
  piece->later = later;
  *(earlier ? &pool->pieces[earlier].later : &pool->first_pending) = index;
  *(later ? &pool->pieces[later].earlier : &pool->last_pending) = index;
}

static void pending_remove(sim_pool *pool, uint32_t index) {
  sim_pool_piece *piece = &pool->pieces[index];
  sim_extents_remove(&pool->streams[piece->stream].pending, piece->entry);
  *(piece->earlier ? &pool->pieces[piece->earlier].later : &pool->first_pending) = piece->later;
  *(piece->later ? &pool->pieces[piece->later].earlier : &pool->last_pending) = piece->earlier;
}

void sim_pool_free_later(sim_pool *pool, uint32_t index, uint32_t stream, uint64_t complete_at) {
  sim_pool_piece *piece = &pool->pieces[index];
  sim_extents_remove(&pool->live, piece->entry);
  piece->stream = stream;
  piece->complete_at = complete_at;
  piece->number = ++pool->streams[stream].frees;
  pending_insert(pool, index, 0);
}

void sim_pool_complete(vmm_sim *sim) {
  sim_pool *pool = sim->pool;
  while (pool->first_pending && pool->pieces[pool->first_pending].complete_at <= sim->now) {
    uint32_t index = pool->first_pending;
    pending_remove(pool, index);
    free_add(pool, index);
  }
}

/* ---- finding and taking ---- */

uint32_t sim_pool_best_free(const sim_pool *pool, uint64_t size) {
  sim_extent found = sim_extents_ceiling(&pool->free, size_key(size, 0));
  return found == SIM_EXTENT_NONE ? 0 : (uint32_t)sim_extents_get(&pool->free, found)->value;
}

uint32_t sim_pool_best_pending(const sim_pool *pool, uint32_t stream, uint64_t size, uint64_t newest) {
  const sim_extents *set = &pool->streams[stream].pending;
  sim_extent found = sim_extents_ceiling(set, size_key(size, 0));
  while (found != SIM_EXTENT_NONE) {
    const sim_extent_node *node = sim_extents_get(set, found);
    if (pool->pieces[node->value].number <= newest) return (uint32_t)node->value;
    found = sim_extents_ceiling(set, node->start + 1);
  }
  return 0;
}

void sim_pool_take(sim_pool *pool, uint32_t index, uint64_t size) {
  const bool pending = pool->pieces[index].state == SIM_PIECE_PENDING;
  const uint32_t later = pool->pieces[index].later;
  if (pending) {
    pending_remove(pool, index);
  } else {
    sim_extents_remove(&pool->free, pool->pieces[index].entry);
  }
  if (pool->pieces[index].size > size) {
    uint32_t rest = piece_cut(pool, index, size);
    if (pending) {
      pending_insert(pool, rest, later);
    } else {
      free_insert(pool, rest);
    }
  }
  sim_pool_piece *piece = &pool->pieces[index];
  piece->state = SIM_PIECE_LIVE;
  piece->entry = sim_extents_insert(&pool->live, pool->start + piece->offset, size, index);
}

/* ---- memory ---- */

static bool is_open(const sim_pool_piece *piece) {
  return piece->state == SIM_PIECE_FREE || piece->state == SIM_PIECE_HOLE;
}

/* The lowest run of free pieces and holes that is long enough: its first piece; 0: none. */
static uint32_t find_run(const sim_pool *pool, uint64_t size) {
  const sim_pool_piece *pieces = pool->pieces;
  for (sim_extent hole = sim_extents_ceiling(&pool->holes, 0); hole != SIM_EXTENT_NONE;) {
    const sim_extent_node *node = sim_extents_get(&pool->holes, hole);
    uint32_t first = (uint32_t)node->value, end;
    uint64_t length = 0;
    if (pieces[first].before && pieces[pieces[first].before].state == SIM_PIECE_FREE)
      first = pieces[first].before;
    for (end = first; end && is_open(&pieces[end]) && length < size; end = pieces[end].after)
      length += pieces[end].size;
    if (length >= size) return first;
    hole = sim_extents_ceiling(&pool->holes, node->start + 1);
  }
  return 0;
}

/* How much of a hole the run up to an offset needs. */
static uint64_t share_of(const sim_pool_piece *hole, uint64_t end) {
  uint64_t wanted = round_up(end - hole->offset, SIM_POOL_CHUNK_BYTES);
  return wanted < hole->size ? wanted : hole->size;
}

/* The whole chunks inside a piece. */
static uint64_t whole_begin(const sim_pool_piece *piece) {
  return round_up(piece->offset, SIM_POOL_CHUNK_BYTES);
}
static uint64_t whole_end(const sim_pool_piece *piece) {
  return (piece->offset + piece->size) & ~(SIM_POOL_CHUNK_BYTES - 1);
}
static uint64_t whole_bytes(const sim_pool_piece *piece) {
  return whole_begin(piece) < whole_end(piece) ? whole_end(piece) - whole_begin(piece) : 0;
}

/* Maps spare chunks while there are any, returns how many bytes of them. */
static vmm_status map_spare(vmm_sim *sim, uint64_t offset, uint64_t bytes, uint64_t *mapped) {
  sim_pool *pool = sim->pool;
  for (*mapped = 0; *mapped < bytes && pool->spare_count > 0; *mapped += SIM_POOL_CHUNK_BYTES) {
    const uint64_t physical = pool->spare[pool->spare_count - 1];
    const uint64_t at = offset + *mapped;
    vmm_status status = sim_backing_map(sim, pool->start + at, SIM_POOL_CHUNK_BYTES, physical, true);
    if (status != VMM_SUCCESS) return status;
    pool->spare_count--;
    pool->chunk_physical[at / SIM_POOL_CHUNK_BYTES] = physical;
    sim_charge(sim, VMM_CALL_MAP, SIM_POOL_CHUNK_BYTES);
    sim_charge(sim, VMM_CALL_SET_ACCESS, SIM_POOL_CHUNK_BYTES);
  }
  return VMM_SUCCESS;
}

static vmm_status map_chunks(vmm_sim *sim, uint64_t offset, uint64_t bytes) {
  sim_pool *pool = sim->pool;
  uint64_t moved;
  vmm_status spare = map_spare(sim, offset, bytes, &moved);
  if (spare != VMM_SUCCESS || moved == bytes) return spare;
  offset += moved;
  bytes -= moved;
  vmm_status status = sim_backing_grow(sim, sim->next_physical + bytes);
  if (status == VMM_SUCCESS)
    status = sim_backing_map(sim, pool->start + offset, bytes, sim->next_physical, true);
  if (status != VMM_SUCCESS) return status;
  for (uint64_t done = 0; done < bytes; done += SIM_POOL_CHUNK_BYTES) {
    pool->chunk_physical[(offset + done) / SIM_POOL_CHUNK_BYTES] = sim->next_physical + done;
    sim_charge(sim, VMM_CALL_CREATE, SIM_POOL_CHUNK_BYTES);
    sim_charge(sim, VMM_CALL_MAP, SIM_POOL_CHUNK_BYTES);
    sim_charge(sim, VMM_CALL_SET_ACCESS, SIM_POOL_CHUNK_BYTES);
  }
  sim->next_physical += bytes;
  return VMM_SUCCESS;
}

static vmm_status map_run(vmm_sim *sim, uint32_t first, uint64_t end) {
  const sim_pool_piece *pieces = sim->pool->pieces;
  vmm_status status = VMM_SUCCESS;
  uint32_t at = first;
  for (; at && pieces[at].offset < end && status == VMM_SUCCESS; at = pieces[at].after) {
    if (pieces[at].state == SIM_PIECE_HOLE)
      status = map_chunks(sim, pieces[at].offset, share_of(&pieces[at], end));
  }
  if (status == VMM_SUCCESS) return VMM_SUCCESS;
  /* The last one visited is the one that failed. */
  uint64_t failed = pieces[at ? pieces[at].before : sim->pool->last].offset;
  for (at = first; at && pieces[at].offset < failed; at = pieces[at].after) {
    if (pieces[at].state == SIM_PIECE_HOLE)
      sim_backing_unmap(sim, sim->pool->start + pieces[at].offset, share_of(&pieces[at], end));
  }
  return status;
}

/* The whole range is one hole until memory is needed. */
static vmm_status open_range(vmm_sim *sim) {
  sim_pool *pool = sim->pool;
  if (pool->last) return VMM_SUCCESS;
  vmm_status status = sim_va_take(sim, pool->limit, &pool->start);
  if (status != VMM_SUCCESS) return status;
  pool->last = piece_new(pool, (sim_pool_piece){.size = pool->limit});
  hole_insert(pool, pool->last);
  return VMM_SUCCESS;
}

static void count_reserved(vmm_sim *sim, uint64_t reserved) {
  vmm_pool_usage *usage = &sim->pool->usage;
  sim->usage.physical_bytes += reserved - sim->usage.pool_bytes;
  sim->usage.pool_bytes = usage->reserved_bytes = reserved;
  if (reserved > usage->reserved_peak_bytes) usage->reserved_peak_bytes = reserved;
}

/* Takes the memory of whole chunks inside a free piece, at most so many bytes of its end: to be mapped
 * elsewhere, or back to the device. Returns how many. */
static uint64_t take_chunks(vmm_sim *sim, uint32_t index, uint64_t most, bool move) {
  sim_pool *pool = sim->pool;
  const sim_pool_piece whole = pool->pieces[index];
  const uint64_t end = whole_end(&whole);
  uint64_t bytes = round_up(most, SIM_POOL_CHUNK_BYTES);
  if (bytes > whole_bytes(&whole)) bytes = whole_bytes(&whole);
  const uint64_t begin = end - bytes;
  if (bytes == 0 || sim_backing_unmap(sim, pool->start + begin, bytes) != VMM_SUCCESS) return 0;
  for (uint64_t offset = begin; offset < end; offset += SIM_POOL_CHUNK_BYTES) {
    const uint64_t physical = pool->chunk_physical[offset / SIM_POOL_CHUNK_BYTES];
    sim_charge(sim, VMM_CALL_UNMAP, SIM_POOL_CHUNK_BYTES);
    if (move) {
      pool->spare[pool->spare_count++] = physical;
    } else {
      sim_backing_discard(sim, physical, SIM_POOL_CHUNK_BYTES);
      sim_charge(sim, VMM_CALL_RELEASE, SIM_POOL_CHUNK_BYTES);
    }
  }
  sim_extents_remove(&pool->free, whole.entry);
  if (end < whole.offset + whole.size) free_insert(pool, piece_cut(pool, index, end - whole.offset));
  if (begin > whole.offset) {
    uint32_t hole = piece_cut(pool, index, begin - whole.offset);
    free_insert(pool, index);
    index = hole;
  }
  pool->pieces[index].state = SIM_PIECE_LIVE; /* in no set */
  hole_insert(pool, join(pool, &pool->holes, index, SIM_PIECE_HOLE));
  return bytes;
}

/* Free pieces outside of [begin, end), from the one before index down; 0: none. */
static uint32_t next_donor(const sim_pool *pool, uint32_t index, uint64_t begin, uint64_t end) {
  const sim_pool_piece *pieces = pool->pieces;
  for (; index; index = pieces[index].before) {
    const sim_pool_piece *piece = &pieces[index];
    const bool outside = piece->offset >= end || piece->offset + piece->size <= begin;
    if (piece->state == SIM_PIECE_FREE && outside && whole_bytes(piece) > 0) return index;
  }
  return 0;
}

/* Takes wholly free chunks out of the pieces outside of [begin, end). */
static vmm_status gather_spare(vmm_sim *sim, uint64_t begin, uint64_t end, uint64_t bytes) {
  sim_pool *pool = sim->pool;
  for (uint32_t index = next_donor(pool, pool->last, begin, end); index && bytes > 0;) {
    if (!sim_pool_prepare(pool)) return VMM_OUT_OF_MEMORY;
    uint32_t below = pool->pieces[index].before;
    /* A hole there may be joined with what becomes one here. */
    while (below && pool->pieces[below].state == SIM_PIECE_HOLE) below = pool->pieces[below].before;
    bytes -= take_chunks(sim, index, bytes, true);
    index = next_donor(pool, below, begin, end);
  }
  return sim_pool_prepare(pool) ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
}

/* Spare chunks that were not needed after all go back to the device. */
static void drop_spare(vmm_sim *sim) {
  sim_pool *pool = sim->pool;
  if (pool->spare_count == 0) return;
  count_reserved(sim, sim->usage.pool_bytes - pool->spare_count * SIM_POOL_CHUNK_BYTES);
  while (pool->spare_count > 0)
    sim_backing_discard(sim, pool->spare[--pool->spare_count], SIM_POOL_CHUNK_BYTES);
}

vmm_status sim_pool_grow(vmm_sim *sim, uint64_t size, uint32_t *grown) {
  sim_pool *pool = sim->pool;
  vmm_status status = open_range(sim);
  if (status != VMM_SUCCESS) return status;
  uint32_t first = find_run(pool, size);
  if (!first) return VMM_OUT_OF_MEMORY;
  const uint64_t begin = pool->pieces[first].offset, end = begin + size;
  uint64_t needed = 0, moved = 0;
  for (uint32_t at = first; at && pool->pieces[at].offset < end; at = pool->pieces[at].after) {
    if (pool->pieces[at].state == SIM_PIECE_HOLE) needed += share_of(&pool->pieces[at], end);
  }
  for (uint32_t at = next_donor(pool, pool->last, begin, end); at && moved < needed;
       at = next_donor(pool, pool->pieces[at].before, begin, end))
    moved += whole_bytes(&pool->pieces[at]);
  if (moved > needed) moved = needed;
  const uint64_t added = needed - moved, reserved = sim->usage.pool_bytes;
  if (!sim_physical_fits(sim, added) || reserved > pool->configuration.maximum_bytes ||
      added > pool->configuration.maximum_bytes - reserved)
    return VMM_OUT_OF_MEMORY;
  status = gather_spare(sim, begin, end, moved);
  if (status == VMM_SUCCESS) status = map_run(sim, first, end);
  if (status != VMM_SUCCESS) {
    drop_spare(sim);
    return status;
  }
  for (uint32_t at = first; at && pool->pieces[at].offset < end; at = pool->pieces[at].after) {
    if (pool->pieces[at].state != SIM_PIECE_HOLE) continue;
    uint64_t share = share_of(&pool->pieces[at], end);
    sim_extents_remove(&pool->holes, pool->pieces[at].entry);
    if (share < pool->pieces[at].size) hole_insert(pool, piece_cut(pool, at, share));
    at = free_add(pool, at);
    *grown = at;
  }
  count_reserved(sim, reserved + added);
  return VMM_SUCCESS;
}

vmm_status sim_pool_release(vmm_sim *sim, uint64_t keep) {
  sim_pool *pool = sim->pool;
  for (uint32_t index = pool->last, before; index && sim->usage.pool_bytes > keep; index = before) {
    if (!sim_pool_prepare(pool)) return VMM_OUT_OF_MEMORY;
    before = pool->pieces[index].before;
    /* A hole before it may be joined with what becomes one here. */
    while (before && pool->pieces[before].state == SIM_PIECE_HOLE) before = pool->pieces[before].before;
    if (pool->pieces[index].state != SIM_PIECE_FREE) continue;
    uint64_t released = take_chunks(sim, index, sim->usage.pool_bytes - keep, false);
    count_reserved(sim, sim->usage.pool_bytes - released);
  }
  return VMM_SUCCESS;
}

/* ---- the object ---- */

bool sim_async_create(vmm_sim *sim) {
  sim_pool *pool = calloc(1, sizeof *pool);
  sim->pool = pool;
  if (!pool) return false;
  pool->configuration = (vmm_pool_configuration){.release_threshold = UINT64_MAX,
                                                 .maximum_bytes = UINT64_MAX,
                                                 .reuse_event = true,
                                                 .reuse_opportunistic = true,
                                                 .reuse_internal = true};
  pool->limit = round_up(sim->capacity, SIM_POOL_CHUNK_BYTES) * VA_SHARE;
  pool->used = 1;
  pool->chunk_physical = calloc(pool->limit / SIM_POOL_CHUNK_BYTES, sizeof *pool->chunk_physical);
  pool->spare = calloc(pool->limit / SIM_POOL_CHUNK_BYTES, sizeof *pool->spare);
  return pool->spare && pool->chunk_physical && sim_extents_reserve(&pool->free, 1) &&
         sim_extents_reserve(&pool->live, 1);
}

void sim_async_destroy(vmm_sim *sim) {
  sim_pool *pool = sim->pool;
  if (!pool) return;
  for (uint32_t i = 0; i < pool->stream_count; i++) {
    sim_extents_destroy(&pool->streams[i].pending);
    free(pool->streams[i].ordered);
  }
  free(pool->streams);
  free(pool->pieces);
  free(pool->chunk_physical);
  free(pool->spare);
  sim_extents_destroy(&pool->free);
  sim_extents_destroy(&pool->live);
  sim_extents_destroy(&pool->holes);
  free(pool);
}
