#include <stdlib.h>

#include "vmm/sim_internal.h"

/* A model of the driver's stream-ordered pool, whose placement is not public. Seen on an H200
 * (driver 580.159.04) and kept: one range of VA that grows at its end by whole chunks of
 * 32 MiB, requests rounded up to 512 B, size 0 giving address 0, release threshold infinite.
 * Assumed: the smallest free piece that fits, of equal ones the lowest; a piece is free for
 * the stream that freed it at once, and for others, merged with its neighbours, when the
 * free has completed; pieces are not reused by way of a stream's wait for an event. A chunk
 * costs a cuMemCreate, cuMemMap and cuMemSetAccess of 32 MiB.
 *
 * Differs from the device: that one also moves free chunks to the end of the range and merges
 * later. A program of 1,500 calls on one stream, 512 B to 80 MiB, reserved 2,592 MiB there and
 * 2,368 MiB here; 600 calls in, 1,632 and 1,504 MiB. */

#define CHUNK_BYTES (32 * SIM_MIB)
#define UNIT_BYTES UINT64_C(512)

typedef enum piece_state { PIECE_LIVE, PIECE_PENDING, PIECE_FREE } piece_state;

/* A part of the range, linked with its neighbours in address order. */
typedef struct pool_piece {
  uint64_t offset, size;
  uint32_t before, after;
  sim_extent by_size;      /* PENDING, FREE: in the set of its stream or of the free ones */
  sim_extent by_address;   /* LIVE */
  uint64_t complete_at;    /* PENDING */
  uint32_t earlier, later; /* PENDING: in the order of completion */
  uint32_t stream;         /* PENDING: index into streams */
  piece_state state;
} pool_piece;

typedef struct pool_stream {
  vmm_stream stream;
  sim_extents pending;
} pool_stream;

struct sim_pool {
  vmm_address start;
  uint64_t limit; /* bytes of VA */
  uint64_t end;   /* bytes with memory */
  uint64_t *chunk_physical;
  pool_piece *pieces; /* pieces[0] stands for none */
  uint32_t used, capacity, unused_count, first_unused;
  uint32_t last; /* piece at the end of the range */
  uint32_t first_pending, last_pending;
  sim_extents free, live; /* keys: see size_key; start addresses */
  pool_stream *streams;
  uint32_t stream_count, stream_capacity;
};

static uint64_t round_up(uint64_t size, uint64_t step) { return (size + step - 1) & ~(step - 1); }

/* Orders by size, then by place. */
static uint64_t size_key(uint64_t size, uint64_t offset) {
  return size / UNIT_BYTES << 32 | offset / UNIT_BYTES;
}

bool sim_async_create(vmm_sim *sim) {
  struct sim_pool *pool = calloc(1, sizeof *pool);
  sim->pool = pool;
  if (!pool) return false;
  pool->limit = round_up(sim->capacity, CHUNK_BYTES);
  pool->used = 1;
  pool->chunk_physical = calloc(pool->limit / CHUNK_BYTES, sizeof *pool->chunk_physical);
  return pool->chunk_physical && sim_extents_reserve(&pool->free, 1) && sim_extents_reserve(&pool->live, 1);
}

void sim_async_destroy(vmm_sim *sim) {
  struct sim_pool *pool = sim->pool;
  if (!pool) return;
  for (uint32_t i = 0; i < pool->stream_count; i++) sim_extents_destroy(&pool->streams[i].pending);
  free(pool->streams);
  free(pool->pieces);
  free(pool->chunk_physical);
  sim_extents_destroy(&pool->free);
  sim_extents_destroy(&pool->live);
  free(pool);
}

/* The index of a stream, made when new, with room for two more pending pieces. false: no host memory. */
static bool stream_index(struct sim_pool *pool, vmm_stream stream, uint32_t *index) {
  for (uint32_t i = 0; i < pool->stream_count; i++) {
    if (pool->streams[i].stream == stream) {
      *index = i;
      return sim_extents_reserve(&pool->streams[i].pending, 2);
    }
  }
  if (pool->stream_count == pool->stream_capacity) {
    uint32_t capacity = pool->stream_capacity ? pool->stream_capacity * 2 : 4;
    pool_stream *grown = realloc(pool->streams, capacity * sizeof *grown);
    if (!grown) return false;
    pool->streams = grown;
    pool->stream_capacity = capacity;
  }
  *index = pool->stream_count;
  pool->streams[*index] = (pool_stream){.stream = stream};
  if (!sim_extents_reserve(&pool->streams[*index].pending, 2)) return false;
  pool->stream_count++;
  return true;
}

/* Makes sure that the next call cannot run out of host memory half way: every piece may
 * become free, and there may be two more of them. */
static bool pool_prepare(struct sim_pool *pool) {
  if (!sim_extents_reserve(&pool->free, pool->used + 2) || !sim_extents_reserve(&pool->live, 1)) return false;
  if (pool->unused_count >= 2 || pool->used + 2 <= pool->capacity) return true;
  if (pool->capacity > UINT32_MAX / 2) return false;
  uint32_t capacity = pool->capacity ? pool->capacity * 2 : 64;
  pool_piece *grown = realloc(pool->pieces, capacity * sizeof *grown);
  if (!grown) return false;
  pool->pieces = grown;
  pool->capacity = capacity;
  return true;
}

static uint32_t piece_new(struct sim_pool *pool, pool_piece piece) {
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
static void piece_delete(struct sim_pool *pool, uint32_t index) {
  pool_piece *piece = &pool->pieces[index];
  if (piece->before) pool->pieces[piece->before].after = piece->after;
  if (piece->after) pool->pieces[piece->after].before = piece->before;
  if (pool->last == index) pool->last = piece->before;
  piece->after = pool->first_unused;
  pool->first_unused = index;
  pool->unused_count++;
}

static void free_insert(struct sim_pool *pool, uint32_t index) {
  pool_piece *piece = &pool->pieces[index];
  piece->state = PIECE_FREE;
  piece->by_size = sim_extents_insert(&pool->free, size_key(piece->size, piece->offset), 1, index);
}

/* A piece has become free for all: joins it with its free neighbours. */
static void free_add(struct sim_pool *pool, uint32_t index) {
  pool_piece *pieces = pool->pieces;
  uint32_t before = pieces[index].before, after = pieces[index].after;
  if (after && pieces[after].state == PIECE_FREE) {
    sim_extents_remove(&pool->free, pieces[after].by_size);
    pieces[index].size += pieces[after].size;
    piece_delete(pool, after);
  }
  if (before && pieces[before].state == PIECE_FREE) {
    sim_extents_remove(&pool->free, pieces[before].by_size);
    pieces[before].size += pieces[index].size;
    piece_delete(pool, index);
    index = before;
  }
  free_insert(pool, index);
}

/* Makes a piece pending. later: the pending piece that completes next; 0: none. */
static void pending_insert(struct sim_pool *pool, uint32_t index, uint32_t stream, uint64_t complete_at,
                           uint32_t later) {
  pool_piece *piece = &pool->pieces[index];
  uint32_t earlier = later ? pool->pieces[later].earlier : pool->last_pending;
  piece->state = PIECE_PENDING;
  piece->stream = stream;
  piece->complete_at = complete_at;
  piece->by_size =
      sim_extents_insert(&pool->streams[stream].pending, size_key(piece->size, piece->offset), 1, index);
  piece->earlier = earlier;
  piece->later = later;
  *(earlier ? &pool->pieces[earlier].later : &pool->first_pending) = index;
  *(later ? &pool->pieces[later].earlier : &pool->last_pending) = index;
}

static void pending_remove(struct sim_pool *pool, uint32_t index) {
  pool_piece *piece = &pool->pieces[index];
  sim_extents_remove(&pool->streams[piece->stream].pending, piece->by_size);
  *(piece->earlier ? &pool->pieces[piece->earlier].later : &pool->first_pending) = piece->later;
  *(piece->later ? &pool->pieces[piece->later].earlier : &pool->last_pending) = piece->earlier;
}

static void complete_pending(vmm_sim *sim) {
  struct sim_pool *pool = sim->pool;
  while (pool->first_pending && pool->pieces[pool->first_pending].complete_at <= sim->now) {
    uint32_t index = pool->first_pending;
    pending_remove(pool, index);
    free_add(pool, index);
  }
}

/* The smallest piece of a set that holds size bytes; 0: none. */
static uint32_t best_fit(const sim_extents *set, uint64_t size) {
  sim_extent found = sim_extents_ceiling(set, size_key(size, 0));
  return found == SIM_EXTENT_NONE ? 0 : (uint32_t)sim_extents_get(set, found)->value;
}

/* Adds chunks at the end until size bytes are free there. A failure changes nothing. */
static vmm_status pool_grow(vmm_sim *sim, uint64_t size, uint32_t *grown) {
  struct sim_pool *pool = sim->pool;
  uint64_t free_at_end =
      pool->last && pool->pieces[pool->last].state == PIECE_FREE ? pool->pieces[pool->last].size : 0;
  uint64_t added = round_up(size - free_at_end, CHUNK_BYTES);
  if (!sim_physical_fits(sim, added) || added > pool->limit - pool->end) return VMM_OUT_OF_MEMORY;
  if (!pool->start) {
    vmm_status status = sim_va_take(sim, pool->limit, &pool->start);
    if (status != VMM_SUCCESS) return status;
  }
  vmm_status status = sim_backing_grow(sim, sim->next_physical + added);
  if (status == VMM_SUCCESS) {
    status = sim_backing_map(sim, pool->start + pool->end, added, sim->next_physical, true);
  }
  if (status != VMM_SUCCESS) return status;
  for (uint64_t offset = 0; offset < added; offset += CHUNK_BYTES) {
    pool->chunk_physical[(pool->end + offset) / CHUNK_BYTES] = sim->next_physical + offset;
    sim_charge(sim, VMM_CALL_CREATE, CHUNK_BYTES);
    sim_charge(sim, VMM_CALL_MAP, CHUNK_BYTES);
    sim_charge(sim, VMM_CALL_SET_ACCESS, CHUNK_BYTES);
  }
  sim->next_physical += added;
  sim->usage.physical_bytes += added;
  sim->usage.pool_bytes += added;
  uint32_t index = piece_new(
      pool, (pool_piece){.offset = pool->end, .size = added, .before = pool->last, .state = PIECE_LIVE});
  if (pool->last) pool->pieces[pool->last].after = index;
  pool->last = index;
  pool->end += added;
  free_add(pool, index);
  *grown = pool->last;
  return VMM_SUCCESS;
}

/* Cuts a pending or free piece down to size and makes it live; the rest stays what it was. */
static void take_piece(struct sim_pool *pool, uint32_t index, uint64_t size) {
  const pool_piece old = pool->pieces[index];
  if (old.state == PIECE_PENDING) {
    pending_remove(pool, index);
  } else {
    sim_extents_remove(&pool->free, old.by_size);
  }
  if (old.size > size) {
    uint32_t rest = piece_new(
        pool, (pool_piece){
                  .offset = old.offset + size, .size = old.size - size, .before = index, .after = old.after});
    if (old.after) pool->pieces[old.after].before = rest;
    if (pool->last == index) pool->last = rest;
    pool->pieces[index].after = rest;
    pool->pieces[index].size = size;
    if (old.state == PIECE_PENDING) {
      pending_insert(pool, rest, old.stream, old.complete_at, old.later);
    } else {
      free_insert(pool, rest);
    }
  }
  pool_piece *piece = &pool->pieces[index];
  piece->state = PIECE_LIVE;
  piece->by_address = sim_extents_insert(&pool->live, pool->start + piece->offset, size, index);
}

static vmm_status pool_take(vmm_sim *sim, uint64_t size, vmm_stream stream, vmm_address *address) {
  struct sim_pool *pool = sim->pool;
  uint32_t stream_number;
  if (size > sim->capacity) return VMM_OUT_OF_MEMORY;
  if (!stream_index(pool, stream, &stream_number) || !pool_prepare(pool)) return VMM_OUT_OF_MEMORY;
  size = round_up(size, UNIT_BYTES);
  complete_pending(sim);
  uint32_t index = best_fit(&pool->free, size);
  uint32_t own = best_fit(&pool->streams[stream_number].pending, size);
  if (own && (!index || pool->pieces[own].size <= pool->pieces[index].size)) index = own;
  if (!index) {
    vmm_status status = pool_grow(sim, size, &index);
    if (status != VMM_SUCCESS) return status;
  }
  take_piece(pool, index, size);
  *address = pool->start + pool->pieces[index].offset;
  sim->usage.pool_allocations++;
  return VMM_SUCCESS;
}

vmm_status sim_malloc_async(vmm_driver *driver, uint64_t size, vmm_stream stream, vmm_address *address) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_MALLOC_ASYNC;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, size, stream, 0, 0);
  if (!address) return sim_refuse(sim, VMM_INVALID_VALUE, call, size, stream, 0, 0);
  if (size == 0) {
    *address = 0;
  } else {
    status = pool_take(sim, size, stream, address);
    if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, size, stream, 0, 0);
  }
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}

/* The live piece that begins at an address; 0: none. */
static uint32_t piece_at(const struct sim_pool *pool, vmm_address address) {
  sim_extent found = sim_extents_floor(&pool->live, address);
  if (found == SIM_EXTENT_NONE || sim_extents_get(&pool->live, found)->start != address) return 0;
  return (uint32_t)sim_extents_get(&pool->live, found)->value;
}

vmm_status sim_pool_give_back(vmm_sim *sim, vmm_address address, const vmm_stream *stream, uint64_t *size) {
  struct sim_pool *pool = sim->pool;
  uint32_t stream_number = 0;
  uint32_t index = piece_at(pool, address);
  if (!index) return VMM_INVALID_VALUE;
  if (!pool_prepare(pool) || (stream && !stream_index(pool, *stream, &stream_number)))
    return VMM_OUT_OF_MEMORY;
  pool_piece *piece = &pool->pieces[index];
  *size = piece->size;
  sim_extents_remove(&pool->live, piece->by_address);
  sim->usage.pool_allocations--;
  if (!stream || sim->configuration.event_delay == 0) {
    free_add(pool, index);
    return VMM_SUCCESS;
  }
  uint64_t complete_at = sim->now + sim->configuration.event_delay;
  if (sim->work_until < complete_at) sim->work_until = complete_at;
  pending_insert(pool, index, stream_number, complete_at, 0);
  return VMM_SUCCESS;
}

vmm_status sim_free_async(vmm_driver *driver, vmm_address address, vmm_stream stream) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_FREE_ASYNC;
  vmm_status status;
  uint64_t size = 0;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, address, stream, 0, 0);
  if (address != 0) {
    status = sim_pool_give_back(sim, address, &stream, &size);
    if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, address, stream, 0, 0);
  }
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}

bool sim_pool_find(const vmm_sim *sim, vmm_address address, sim_allocation *found) {
  const struct sim_pool *pool = sim->pool;
  sim_extent extent = sim_extents_containing(&pool->live, address);
  if (extent == SIM_EXTENT_NONE) return false;
  const sim_extent_node *node = sim_extents_get(&pool->live, extent);
  uint64_t offset = address - pool->start;
  *found = (sim_allocation){.start = node->start,
                            .size = node->size,
                            .physical = pool->chunk_physical[offset / CHUNK_BYTES] + offset % CHUNK_BYTES};
  return true;
}
