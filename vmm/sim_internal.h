/* What the files of the simulated device share. One file a subject:
 *   sim.c          the object, its table of functions, memory_info, usage
 *   sim_charge.c   injected failures, latencies, the end of a refused call
 *   sim_va.c       reservations
 *   sim_map.c      handles, mappings and the page table
 *   sim_malloc.c   cuMemAlloc: where its addresses lie and what it takes
 *   sim_slab.c     cuMemAlloc below 2 MiB
 *   sim_async.c    the stream-ordered pool: its calls, and who may have what
 *   sim_pool.c     its range of VA
 *   sim_events.c   events and synchronisation
 *   sim_backing.c  real pages behind the addresses, fill and verify
 *   sim_extents.c  ordered sets of address ranges
 *   sim_pages.c    page tables */
#ifndef LAKEBED_VMM_SIM_INTERNAL_H
#define LAKEBED_VMM_SIM_INTERNAL_H

#include "vmm/sim.h"
#include "vmm/sim_extents.h"
#include "vmm/sim_pages.h"
#include "vmm/sim_slab.h"

#define SIM_MIB (UINT64_C(1) << 20)
#define SIM_TIB (UINT64_C(1) << 40)

/* A failure that waits for the call with this number of its kind. */
typedef struct sim_failure {
  uint64_t number;
  vmm_status status;
} sim_failure;

typedef struct sim_failures {
  sim_failure *pending; /* ascending in number */
  uint32_t count, capacity;
  uint64_t calls; /* of this kind so far */
} sim_failures;

/* The last cost that was looked up. */
typedef struct sim_cost {
  uint64_t size, live_handles, nanoseconds;
  bool known;
} sim_cost;

/* A physical allocation made by create. Its place stays in the table when the memory is
 * gone; the generation tells an old vmm_handle from the place's next one. */
typedef struct sim_handle {
  uint64_t size; /* 0: the place is unused */
  uint64_t physical;
  uint32_t mappings;
  uint32_t generation;
  uint32_t next_unused;
  bool referenced;
} sim_handle;

typedef struct sim_mapping {
  vmm_address address;
  uint32_t granules;
  uint32_t handle;
  sim_extent reservation; /* when unused: the next unused one */
  bool accessible;
} sim_mapping;

typedef enum sim_chunk_use {
  SIM_CHUNK_FREE,
  SIM_CHUNK_LARGE,  /* one allocation */
  SIM_CHUNK_SLAB,   /* shared by small ones */
  SIM_CHUNK_FOREIGN /* taken before the first allocation */
} sim_chunk_use;

/* Pages of a block of cuMemAlloc's VA: a hole or something live. A block's chunks are
 * linked in address order. */
typedef struct sim_chunk {
  uint64_t start, size, physical;
  uint32_t block;
  uint32_t previous, next; /* unused: next is the next unused one */
  uint32_t slab;           /* SIM_CHUNK_SLAB */
  sim_chunk_use use;
} sim_chunk;

typedef struct sim_block {
  uint32_t first_chunk;
  sim_extent by_age;
  uint32_t next_unused;
} sim_block;

typedef struct sim_malloc_space {
  uint64_t start, size;
  sim_chunk *chunks; /* chunks[0] and blocks[0] stand for none */
  sim_block *blocks;
  uint32_t chunks_used, chunks_capacity, first_unused_chunk;
  uint32_t blocks_used, blocks_capacity, first_unused_block;
  uint64_t next_age;
  sim_extents blocks_by_age; /* start: age; size: largest hole; value: block */
  sim_extents gaps;          /* VA in no block */
  sim_pages pages;           /* live chunk of each 2 MiB */
  sim_slabs slabs;
} sim_malloc_space;

/* A live allocation of cuMemAlloc or of the pool, as large as its memory. */
typedef struct sim_allocation {
  vmm_address start;
  uint64_t size;
  uint64_t physical; /* behind the address that was looked for */
} sim_allocation;

typedef struct sim_event {
  uint64_t complete_at;
  uint64_t pool_frees; /* of the stream, before it */
  vmm_stream stream;
  uint32_t generation;
  uint32_t next_unused;
  bool live;
} sim_event;

typedef struct vmm_sim {
  vmm_driver driver; /* first: a vmm_driver * is a vmm_sim * */
  vmm_sim_configuration configuration;
  unsigned granule_bits;
  uint64_t capacity, total;
  vmm_sim_usage usage;
  uint64_t next_physical; /* physical addresses are never used twice */
  uint32_t failures_pending;
  sim_failures failures[VMM_CALL_COUNT];
  sim_cost costs[VMM_CALL_COUNT];

  /* sim_va.c */
  uint64_t va_start, va_size;
  sim_extents va_free, reservations; /* value of a reservation: its mappings */
  sim_extent recent_reservation;     /* hint; SIM_EXTENT_NONE: none */

  /* sim_map.c */
  sim_pages pages; /* a mapping's index per granule of reservable VA */
  sim_handle *handles;
  uint32_t handles_used, handles_capacity, first_unused_handle;
  sim_mapping *mappings; /* mappings[0] stands for none */
  uint32_t mappings_used, mappings_capacity, first_unused_mapping;

  /* sim_malloc.c */
  sim_malloc_space malloc_space;

  /* sim_async.c */
  struct sim_pool *pool;

  /* sim_events.c */
  uint64_t now, work_until; /* ticks; all recorded work is done at work_until */
  sim_event *events;
  uint32_t events_used, events_capacity, first_unused_event;

  /* sim_backing.c */
  int memory_file; /* -1: not backed */
  uint64_t memory_file_size;
  unsigned char *va_arena, *malloc_arena;
} vmm_sim;

static inline vmm_sim *sim_of(vmm_driver *driver) { return (vmm_sim *)driver; }
static inline const vmm_sim *sim_of_const(const vmm_driver *driver) { return (const vmm_sim *)driver; }

/* sim_charge.c */

/* Counts the call; true when this one shall fail, with status set. */
bool sim_injected_slow(vmm_sim *sim, vmm_call call, vmm_status *status);
static inline bool sim_injected(vmm_sim *sim, vmm_call call, vmm_status *status) {
  sim->failures[call].calls++;
  return sim->failures_pending != 0 && sim_injected_slow(sim, call, status);
}
uint64_t sim_cost_slow(vmm_sim *sim, vmm_call call, uint64_t size);
static inline uint64_t sim_cost_of(vmm_sim *sim, vmm_call call, uint64_t size) {
  const sim_cost *cost = &sim->costs[call];
  if (cost->known && cost->size == size && cost->live_handles == sim->usage.handles) return cost->nanoseconds;
  return sim_cost_slow(sim, call, size);
}
static inline void sim_charge(vmm_sim *sim, vmm_call call, uint64_t size) {
  sim->driver.busy_ns += sim_cost_of(sim, call, size);
}
/* Ends a refused call: charges it as the smallest measured one and stores the error. */
vmm_status sim_refuse(vmm_sim *sim, vmm_status status, vmm_call call, uint64_t argument0, uint64_t argument1,
                      uint64_t argument2, uint64_t argument3);
void sim_failures_destroy(vmm_sim *sim);

/* sim_va.c */
bool sim_va_create(vmm_sim *sim);
void sim_va_destroy(vmm_sim *sim);
vmm_status sim_address_reserve(vmm_driver *driver, uint64_t size, uint64_t alignment, vmm_address *address);
vmm_status sim_address_free(vmm_driver *driver, vmm_address address, uint64_t size);
/* Takes VA that is no reservation of the caller's: for the pool. */
vmm_status sim_va_take(vmm_sim *sim, uint64_t size, vmm_address *address);
/* The reservation that holds all of [address, address + size). */
sim_extent sim_reservation_of(vmm_sim *sim, vmm_address address, uint64_t size);

/* sim_map.c */
bool sim_map_create(vmm_sim *sim);
void sim_map_destroy(vmm_sim *sim);
vmm_status sim_create(vmm_driver *driver, uint64_t size, vmm_handle *handle);
vmm_status sim_release(vmm_driver *driver, vmm_handle handle);
vmm_status sim_map(vmm_driver *driver, vmm_address address, uint64_t size, uint64_t offset,
                   vmm_handle handle);
vmm_status sim_unmap(vmm_driver *driver, vmm_address address, uint64_t size);
vmm_status sim_set_access(vmm_driver *driver, vmm_address address, uint64_t size);
/* The mapping at an address; NULL: none. */
const sim_mapping *sim_mapping_at(const vmm_sim *sim, vmm_address address);
static inline bool sim_physical_fits(const vmm_sim *sim, uint64_t size) {
  return size <= sim->capacity - sim->usage.physical_bytes;
}

/* sim_malloc.c */
bool sim_malloc_create(vmm_sim *sim);
void sim_malloc_destroy(vmm_sim *sim);
vmm_status sim_malloc(vmm_driver *driver, uint64_t size, vmm_address *address);
vmm_status sim_free(vmm_driver *driver, vmm_address address);
/* The live allocation of cuMemAlloc that an address lies in. false: none. */
bool sim_malloc_find(const vmm_sim *sim, vmm_address address, sim_allocation *found);

/* sim_async.c */
bool sim_async_create(vmm_sim *sim);
void sim_async_destroy(vmm_sim *sim);
vmm_status sim_malloc_async(vmm_driver *driver, uint64_t size, vmm_stream stream, vmm_address *address);
vmm_status sim_free_async(vmm_driver *driver, vmm_address address, vmm_stream stream);
vmm_status sim_pool_configure(vmm_driver *driver, const vmm_pool_configuration *configuration);
vmm_status sim_pool_usage(vmm_driver *driver, vmm_pool_usage *usage);
vmm_status sim_pool_trim(vmm_driver *driver, uint64_t keep_bytes);

/* The live allocation of the pool that an address lies in. false: none. */
bool sim_pool_find(const vmm_sim *sim, vmm_address address, sim_allocation *found);
/* Frees an allocation of the pool in a stream's order; stream NULL: it is free at once. */
vmm_status sim_pool_give_back(vmm_sim *sim, vmm_address address, const vmm_stream *stream, uint64_t *size);
/* The host has waited for the device: what has completed is free, what is beyond the threshold goes back. */
void sim_pool_synchronized(vmm_sim *sim);
/* How many frees were made on a stream so far; the waiter's work comes after so many of them. */
uint64_t sim_pool_frees(const vmm_sim *sim, vmm_stream stream);
void sim_pool_stream_waits(vmm_sim *sim, vmm_stream waiter, vmm_stream stream, uint64_t frees);

/* sim_events.c */
void sim_events_destroy(vmm_sim *sim);
vmm_status sim_event_record(vmm_driver *driver, vmm_stream stream, vmm_event *event);
vmm_status sim_event_query(vmm_driver *driver, vmm_event event);
vmm_status sim_event_wait(vmm_driver *driver, vmm_event event);
vmm_status sim_stream_wait_event(vmm_driver *driver, vmm_stream stream, vmm_event event);
void sim_event_discard(vmm_driver *driver, vmm_event event);
vmm_status sim_synchronize(vmm_driver *driver);
/* All work recorded so far is done. */
static inline void sim_finish_work(vmm_sim *sim) {
  if (sim->now < sim->work_until) sim->now = sim->work_until;
}

/* sim_backing.c. Without backing they do nothing and succeed. */
vmm_status sim_backing_create(vmm_sim *sim);
void sim_backing_destroy(vmm_sim *sim);
vmm_status sim_backing_grow(vmm_sim *sim, uint64_t physical_end);
vmm_status sim_backing_map(vmm_sim *sim, vmm_address address, uint64_t size, uint64_t physical,
                           bool accessible);
vmm_status sim_backing_unmap(vmm_sim *sim, vmm_address address, uint64_t size);
vmm_status sim_backing_allow(vmm_sim *sim, vmm_address address, uint64_t size, bool accessible);
void sim_backing_discard(vmm_sim *sim, uint64_t physical, uint64_t size);
vmm_status sim_fill(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                    uint64_t pattern);
vmm_status sim_verify(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                      uint64_t pattern, vmm_mismatch *mismatch);

#endif
