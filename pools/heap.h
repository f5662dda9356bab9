/* The memory a policy holds, and whom it gave it to.
 *
 * A heap owns three kinds of things got from the driver: segments (one
 * cuMemAlloc each), chunks (one physical handle each) and ranges (reserved VA
 * into which chunks are mapped). It knows every live allocation by address, keeps
 * the statistics, measures operations, and can check that it all fits together
 * (pool_heap_check). Policies take memory through it only, so reserved memory,
 * limits and leaks are right for all of them alike.
 *
 * Every function that calls the driver is all or nothing: on failure the driver
 * and the heap are as before. Sizes are bytes. Not thread-safe. */
#ifndef LAKEBED_POOLS_HEAP_H
#define LAKEBED_POOLS_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pools/statistics.h"
#include "vmm/driver.h"

/* Streams are indices into tables: from here on they are taken for nonsense. */
#define POOL_STREAM_LIMIT UINT32_C(65536)

typedef struct pool_segment pool_segment;
typedef struct pool_chunk pool_chunk;
typedef struct pool_range pool_range;
typedef struct pool_reservation pool_reservation;
typedef struct pool_heap pool_heap;

/* One driver allocation. */
struct pool_segment {
  vmm_address address;
  uint64_t size;
  pool_segment *previous, *next; /* the heap's list */
};

/* One physical handle. A chunk has one owner: whatever the policy says holds it. */
struct pool_chunk {
  vmm_handle handle;
  uint64_t size;
  uint32_t mappings; /* places it is mapped at */
  uint32_t claimed;  /* used by pool_heap_check */
  void *owner;
  pool_chunk *previous, *next;
};

/* A slot of a range: the chunk mapped there and how far into the chunk, in units. */
typedef struct pool_slot {
  pool_chunk *chunk;
  uint64_t offset;
} pool_slot;

/* Reserved VA, or a part of a reservation. Its table has one slot per unit. */
struct pool_range {
  pool_reservation *reservation;
  vmm_address address;
  uint64_t size;
  uint64_t unit;   /* chunks mapped here are multiples of it, at multiples of it */
  uint64_t mapped; /* bytes */
  pool_slot *slots;
  pool_range *previous, *next;
};

typedef struct pool_stream_use pool_stream_use;

/* A block handed to a caller. */
typedef struct pool_allocation {
  vmm_address address;
  uint64_t size;         /* bytes of the block */
  uint64_t requested;    /* bytes asked for */
  void *owner;           /* the policy's block behind it */
  pool_stream_use *uses; /* the other streams recorded for it */
  vmm_stream stream;
  uint16_t pending_events; /* freed by the caller, still in use on that many streams */
} pool_allocation;

/* A kind of work whose count and driver time are measured: alloc, free, stitch... */
typedef struct pool_operation {
  const char *name;
  uint64_t count;
  uint64_t driver_ns; /* time in driver calls, nested operations included */
} pool_operation;

enum {
  POOL_OPERATION_ALLOC,
  POOL_OPERATION_FREE,
  POOL_OPERATION_RECORD_STREAM,
  POOL_OPERATION_TRIM,
  POOL_OPERATION_GROW,      /* taking memory from the driver */
  POOL_OPERATION_FIRST_OWN, /* policies define theirs from here on */
  POOL_OPERATION_LIMIT = 32
};

/* Hears operations as they begin and end, nested. For NVTX ranges and traces. */
typedef struct pool_observer {
  void *context;
  void (*begin)(void *context, unsigned operation, const char *name, uint64_t bytes);
  void (*end)(void *context, unsigned operation);
} pool_observer;

typedef struct pool_allocation_map {
  pool_allocation *entries; /* address 0: empty */
  vmm_address *addresses;   /* of the entries, once more: what a search reads lies close together */
  uint64_t capacity;        /* a power of two */
  uint64_t count;
} pool_allocation_map;

typedef struct pool_pending pool_pending;

struct pool_heap {
  vmm_driver *driver;
  uint64_t granularity;     /* the driver's */
  uint64_t limit;           /* most bytes to hold; UINT64_MAX: none */
  uint64_t over_limit;      /* bytes held when the limit was set below them: none had to go; else 0 */
  uint64_t device_bytes;    /* all that the device has, asked for if chunks are used; else UINT64_MAX */
  bool limit_is_policys;    /* chunks are created past the limit: the policy checks it by its own rule */
  bool memory_elsewhere;    /* allocations lie in memory that the heap does not hold (null, the driver's own
                               pool) */
  uint64_t elsewhere_bytes; /* of reserved memory, what lies there: see pool_heap_note_elsewhere */
  pool_statistics statistics;

  pool_segment *segments;
  pool_chunk *chunks;
  pool_range *ranges;
  uint64_t chunk_count;
  uint64_t range_count;
  uint64_t stranded_bytes; /* of chunks given up that the driver did not take back; their owner is the heap */
  uint64_t reserved_address_bytes;

  pool_allocation_map allocations;

  pool_pending *pending; /* frees that wait for events, one queue a stream */
  uint32_t pending_streams;
  uint64_t pending_count;

  pool_operation operations[POOL_OPERATION_LIMIT];
  unsigned operation_count;
  struct {
    unsigned operation;
    uint64_t begin_ns;
  } operation_stack[16];
  unsigned operation_depth;
  const pool_observer *observer;
};

/* Prepares a heap over a driver (borrowed). Asks the driver for its granularity and
 * its memory if it is to use chunks. limit: UINT64_MAX for none. */
vmm_status pool_heap_init(pool_heap *heap, vmm_driver *driver, bool uses_chunks, uint64_t limit);
/* Returns everything to the driver: waits for the device if frees are pending, then
 * unmaps, releases and frees. What the driver refuses is tried once more, then forgotten;
 * returns the first failure. */
vmm_status pool_heap_fini(pool_heap *heap);

/* Another limit from now on. One below what is held makes nothing go: growth is refused until it is kept.
 * O(1). */
void pool_heap_set_limit(pool_heap *heap, uint64_t limit);

/* Would taking size more bytes keep to the limit? Never where the whole device has not as much. */
static inline bool pool_heap_within_limit(const pool_heap *heap, uint64_t size) {
  return size <= heap->limit && size <= heap->device_bytes &&
         heap->statistics.reserved_bytes.current <= heap->limit - size;
}

/* Would it if so many bytes of what is held were given back? */
static inline bool pool_heap_within_limit_after(const pool_heap *heap, uint64_t unused, uint64_t size) {
  const uint64_t most = heap->limit < heap->device_bytes ? heap->limit : heap->device_bytes;
  const uint64_t used = heap->statistics.reserved_bytes.current - unused;
  return used <= most && size <= most - used;
}

/* For memory_elsewhere: so many bytes are held there now, by the account of who holds them. Counts as
 * reserved memory; more than before is memory taken from the driver, less is memory given back. */
void pool_heap_note_elsewhere(pool_heap *heap, uint64_t bytes);

/* One cuMemAlloc. OUT_OF_MEMORY past the limit, without asking the driver. */
vmm_status pool_segment_allocate(pool_heap *heap, uint64_t size, pool_segment **segment);
vmm_status pool_segment_free(pool_heap *heap, pool_segment *segment);

/* One cuMemCreate. OUT_OF_MEMORY past the limit, without asking the driver. */
vmm_status pool_chunk_create(pool_heap *heap, uint64_t size, void *owner, pool_chunk **chunk);
/* The same, count times, all or none; chunks has room for count. */
vmm_status pool_chunks_create(pool_heap *heap, uint64_t size, uint64_t count, void *owner,
                              pool_chunk **chunks);
/* The same with a size for each. */
vmm_status pool_chunks_create_sizes(pool_heap *heap, const uint64_t *sizes, uint64_t count, void *owner,
                                    pool_chunk **chunks);
/* The chunk must be mapped nowhere, else INVALID_VALUE. */
vmm_status pool_chunk_release(pool_heap *heap, pool_chunk *chunk);
/* The same for a chunk that nobody will ask for again: if it cannot be released, because the
 * driver refuses or a mapping could not be undone, the heap is its owner until the end. */
vmm_status pool_chunk_give_up(pool_heap *heap, pool_chunk *chunk);

/* One cuMemAddressReserve. unit: every chunk mapped here is a multiple of it. */
vmm_status pool_range_reserve(pool_heap *heap, uint64_t size, uint64_t unit, pool_range **range);
/* One cuMemAddressReserve cut into count ranges of ascending addresses: their order is the same on
 * every device. The driver gets the VA back when the last of them is freed. ranges has room for count;
 * on failure all of them are NULL, as the one of pool_range_reserve is. */
vmm_status pool_ranges_reserve(pool_heap *heap, const uint64_t *sizes, uint64_t count, uint64_t unit,
                               pool_range **ranges);
/* The range must have nothing mapped, else INVALID_VALUE. */
vmm_status pool_range_free(pool_heap *heap, pool_range *range);
/* Maps count chunks one after the other from offset on, then grants access to all of
 * them in one call. O(count). */
vmm_status pool_range_map(pool_heap *heap, pool_range *range, uint64_t offset, pool_chunk *const *chunks,
                          uint64_t count);
/* Unmaps size bytes from offset on in one call: whole chunks, no holes. The caller knows
 * that the device is done with them. */
vmm_status pool_range_unmap(pool_heap *heap, pool_range *range, uint64_t offset, uint64_t size);

/* Records that a block was handed to a caller. INVALID_VALUE when the address is
 * live already, OUT_OF_MEMORY when the host has no memory. */
vmm_status pool_heap_hand_out(pool_heap *heap, vmm_address address, uint64_t size, uint64_t requested,
                              vmm_stream stream, void *owner);
/* The live allocation at an address, NULL if none or freed by the caller. Valid until
 * the next hand-out or take-back. */
pool_allocation *pool_heap_find(pool_heap *heap, vmm_address address);
/* The caller has freed the allocation. Returns true when its memory is free for reuse
 * now: *taken is what it was, and it is forgotten. Returns false when other streams still
 * use it: it stays active until pool_heap_next_complete returns it. *status is a
 * failure, and nothing has changed, when an event could not be recorded. */
bool pool_heap_take_back(pool_heap *heap, pool_allocation *allocation, pool_allocation *taken,
                         vmm_status *status);
/* For policies that reuse memory in stream order and wait on no events of their own: forgets
 * the live allocation at once. The streams recorded for it go to streams, at most capacity; returns how many.
 */
uint32_t pool_heap_take_back_with_streams(pool_heap *heap, pool_allocation *allocation,
                                          pool_allocation *taken, vmm_stream *streams, uint32_t capacity);
/* How many streams were recorded for a live allocation. */
uint32_t pool_heap_recorded_streams(const pool_allocation *allocation);
/* Which ones: writes at most capacity of them. */
void pool_heap_list_streams(const pool_allocation *allocation, vmm_stream *streams, uint32_t capacity);
/* A stream other than the allocation's own uses it. INVALID_VALUE from POOL_STREAM_LIMIT on. */
vmm_status pool_heap_record_stream(pool_heap *heap, vmm_address address, vmm_stream stream);
/* The next freed allocation whose events have all completed, if any. wait: the host
 * waits for them. Per stream in order, stops at the first event that is not reached. */
bool pool_heap_next_complete(pool_heap *heap, bool wait, pool_allocation *taken);

/* A policy's own operation; name is static. Returns its number. */
unsigned pool_operation_define(pool_heap *heap, const char *name);

static inline void pool_operation_begin(pool_heap *heap, unsigned operation, uint64_t bytes) {
  heap->operation_stack[heap->operation_depth].operation = operation;
  heap->operation_stack[heap->operation_depth].begin_ns = heap->driver->busy_ns;
  heap->operation_depth++;
  if (heap->observer)
    heap->observer->begin(heap->observer->context, operation, heap->operations[operation].name, bytes);
}

static inline void pool_operation_end(pool_heap *heap) {
  heap->operation_depth--;
  unsigned number = heap->operation_stack[heap->operation_depth].operation;
  pool_operation *operation = &heap->operations[number];
  operation->count++;
  operation->driver_ns += heap->driver->busy_ns - heap->operation_stack[heap->operation_depth].begin_ns;
  if (heap->observer) heap->observer->end(heap->observer->context, number);
}

/* The invariants that hold for every policy: no two live allocations share a physical
 * byte; every live byte is mapped; every mapped chunk is held; mapping counts and
 * statistics equal sums; limits are kept. On failure says what is broken. O(n log n). */
bool pool_heap_check(pool_heap *heap, char *message, size_t message_size);

#endif
