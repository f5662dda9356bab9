/* The range of VA behind the stream-ordered pool: pieces in address order that are live, pending
 * (freed, not completed), free or holes without memory. Not for callers of the device. */
#ifndef LAKEBED_VMM_SIM_POOL_H
#define LAKEBED_VMM_SIM_POOL_H

#include "vmm/sim_internal.h"

#define SIM_POOL_CHUNK_BYTES (32 * SIM_MIB)
#define SIM_POOL_UNIT_BYTES UINT64_C(512)

typedef enum sim_piece_state {
  SIM_PIECE_LIVE,
  SIM_PIECE_PENDING,
  SIM_PIECE_FREE,
  SIM_PIECE_HOLE /* whole chunks without memory */
} sim_piece_state;

/* A part of the range, linked with its neighbours in address order. */
typedef struct sim_pool_piece {
  uint64_t offset, size;
  uint32_t before, after;
  sim_extent entry;        /* in the set of its state */
  uint64_t complete_at;    /* PENDING */
  uint64_t number;         /* PENDING: of the free among those of its stream, from 1 */
  uint32_t earlier, later; /* PENDING: in the order of completion */
  uint32_t stream;         /* PENDING: index into streams */
  sim_piece_state state;
} sim_pool_piece;

typedef struct sim_pool_stream {
  vmm_stream stream;
  uint64_t frees;    /* made on it */
  uint64_t *ordered; /* of each stream index, the last free that this one's work comes after */
  uint32_t ordered_count;
  sim_extents pending; /* keyed by size and place */
} sim_pool_stream;

typedef struct sim_pool {
  vmm_pool_configuration configuration;
  vmm_address start;
  uint64_t limit; /* bytes of VA */
  uint64_t *chunk_physical;
  uint64_t *spare; /* chunks taken out of free pieces, to be mapped elsewhere */
  uint32_t spare_count;
  sim_pool_piece *pieces; /* pieces[0] stands for none */
  uint32_t used, capacity, unused_count, first_unused;
  uint32_t last; /* piece at the end of the range */
  uint32_t first_pending, last_pending;
  sim_extents free;  /* keyed by size and place */
  sim_extents live;  /* by address */
  sim_extents holes; /* by offset */
  sim_pool_stream *streams;
  uint32_t stream_count, stream_capacity;
  vmm_pool_usage usage; /* reserved_bytes is that of the device's usage */
} sim_pool;

/* The index of a stream, made when new, with room for two more pending pieces. false: no host memory. */
bool sim_pool_stream_index(sim_pool *pool, vmm_stream stream, uint32_t *index);
/* The index of a stream that the pool knows. */
bool sim_pool_stream_known(const sim_pool *pool, vmm_stream stream, uint32_t *index);
/* Makes sure that the next call cannot run out of host memory half way. */
bool sim_pool_prepare(sim_pool *pool);

/* The smallest free piece that holds size bytes, of equal ones the lowest; among those that a stream
 * freed and that are pending. newest: only frees up to that number. 0: none. */
uint32_t sim_pool_best_free(const sim_pool *pool, uint64_t size);
uint32_t sim_pool_best_pending(const sim_pool *pool, uint32_t stream, uint64_t size, uint64_t newest);
/* Puts memory into holes, the lowest ones that do, until a free piece holds size bytes: first chunks that
 * are wholly free elsewhere, then new ones. OUT_OF_MEMORY past the device, the pool's bound or the range. A
 * failure changes nothing, but for a host without memory. */
vmm_status sim_pool_grow(vmm_sim *sim, uint64_t size, uint32_t *grown);
/* Cuts a pending or free piece down to size and makes it live; the rest stays what it was. */
void sim_pool_take(sim_pool *pool, uint32_t index, uint64_t size);
/* The live piece that begins at an address; 0: none. */
uint32_t sim_pool_piece_at(const sim_pool *pool, vmm_address address);
/* A live piece is free for all; it is pending until complete_at. Room must be prepared. */
void sim_pool_free(sim_pool *pool, uint32_t index);
void sim_pool_free_later(sim_pool *pool, uint32_t index, uint32_t stream, uint64_t complete_at);
/* Pending pieces whose time has come are free. */
void sim_pool_complete(vmm_sim *sim);
/* Gives chunks that are wholly free back, from the end of the range down, until no more than keep bytes
 * are held. OUT_OF_MEMORY when the host has none. */
vmm_status sim_pool_release(vmm_sim *sim, uint64_t keep);

#endif
