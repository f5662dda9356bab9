/* TensorFlow's BFC allocator (tsl/framework/bfc_allocator.cc): one heap of 256-byte
 * quanta for all streams, regions that double, best fit through 21 bins, split when half
 * or more would be wasted.
 *
 * The bins only speed up the search: the chunk found is the smallest that suffices, the
 * lowest address among equals, which is what one ordered set gives. Regions count as lying in
 * the order in which they were taken, whatever their addresses. TensorFlow leaves the
 * order between streams to its caller; here a chunk that other streams freed makes the new
 * stream wait for them, unless streams=ignore. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/policy.h"
#include "pools/caching.h"

enum { OPTION_ALLOW_GROWTH, OPTION_FRAGMENTATION, OPTION_GARBAGE_COLLECTION, OPTION_STREAMS };

static const policy_option options[] = {
    {"allow_growth", POLICY_OPTION_BOOLEAN, "true", 0, 0, NULL, "",
     "take regions of 2 MiB, 4 MiB, 8 MiB ... as needed; false: the whole limit at the first request "
     "(TensorFlow's default)"},
    {"fragmentation_fraction", POLICY_OPTION_REAL, "0", 0, 1, NULL, "share of the limit",
     "split a chunk when more than this share of the limit would be wasted; 0: 128 MiB"},
    {"garbage_collection", POLICY_OPTION_BOOLEAN, "true", 0, 0, NULL, "",
     "return free regions to the driver when a request cannot be served"},
    {"streams", POLICY_OPTION_CHOICE, "wait", 0, 0, "wait|ignore", "",
     "wait: a stream that gets a chunk freed on another waits for that one (from the 64th stream on the host "
     "waits for the device); ignore: as TensorFlow"},
    {0},
};

enum { QUANTUM = 256, STREAM_BITS = 64, SHARED_BIT = STREAM_BITS - 1 };
static const uint64_t first_region = UINT64_C(2) << 20;
static const uint64_t default_waste = UINT64_C(128) << 20;

typedef struct tfbfc {
  policy base;
  pool_block_store blocks;
  pool_caching chunks; /* a free block's age_base is the set of streams that used it */
  uint64_t limit;
  double fragmentation; /* share of the limit; 0: default_waste */
  uint64_t next_region;
  uint64_t waste; /* slack from which on a chunk is split */
  uint64_t allocations;
  uint64_t largest_allocation;
  uint64_t stream_waits;
  bool allow_growth, collects, waits;
} tfbfc;

static uint64_t round_up(uint64_t size) { return (size + QUANTUM - 1) / QUANTUM * QUANTUM; }

/* limit UINT64_MAX: available, what the device could give in all. */
static void use_limit(tfbfc *self, uint64_t limit, uint64_t available) {
  self->limit = limit == UINT64_MAX ? available : limit;
  self->waste =
      self->fragmentation > 0 ? (uint64_t)(self->fragmentation * (double)self->limit) : default_waste;
}

static vmm_status tfbfc_create(const policy_configuration *configuration, policy **created, char *message,
                               size_t message_size) {
  (void)message;
  (void)message_size;
  tfbfc *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  const policy_value *values = configuration->values;
  pool_heap *heap = &self->base.heap;
  uint64_t free_bytes, total_bytes;
  vmm_status status = pool_heap_init(heap, configuration->driver, false, configuration->limit);
  if (status == VMM_SUCCESS) status = vmm_memory_info(heap->driver, &free_bytes, &total_bytes);
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  self->fragmentation = values[OPTION_FRAGMENTATION].real;
  use_limit(self, configuration->limit, free_bytes);
  self->allow_growth = values[OPTION_ALLOW_GROWTH].integer;
  self->collects = values[OPTION_GARBAGE_COLLECTION].integer;
  self->waits = values[OPTION_STREAMS].integer == 0;
  /* Never 0, which could not be doubled when the limit grows. */
  const uint64_t first = self->allow_growth && self->limit > first_region ? first_region : self->limit;
  self->next_region = round_up(first > 0 ? first : 1);
  pool_caching_init(&self->chunks, heap, &self->blocks);
  self->chunks.by_age = true;
  *created = &self->base;
  return VMM_SUCCESS;
}

static void tfbfc_destroy(policy *base) {
  tfbfc *self = (tfbfc *)base;
  pool_heap_fini(&base->heap);
  pool_caching_fini(&self->chunks);
  pool_block_store_fini(&self->blocks);
  free(self);
}

static uint64_t twice(uint64_t bytes) { return bytes > UINT64_MAX / 2 ? UINT64_MAX : 2 * bytes; }

/* Extend: a region of the next size, or nine tenths of it again and again if the driver refuses. */
static vmm_status extend(tfbfc *self, uint64_t size, pool_block **block) {
  const uint64_t reserved = self->base.heap.statistics.reserved_bytes.current;
  uint64_t available = self->limit > reserved ? (self->limit - reserved) / QUANTUM * QUANTUM : 0;
  if (size > available) return VMM_OUT_OF_MEMORY;
  bool doubled = false;
  while (size > self->next_region) {
    self->next_region = twice(self->next_region);
    doubled = true;
  }
  uint64_t bytes = self->next_region < available ? self->next_region : available;
  vmm_status status;
  while ((status = pool_caching_grow(&self->chunks, bytes, 0, block)) == VMM_OUT_OF_MEMORY) {
    /* TensorFlow multiplies in single precision. */
    uint64_t smaller = round_up((uint64_t)((float)bytes * 0.9f));
    bytes = smaller < bytes ? smaller : bytes - QUANTUM;
    if (bytes < size) return VMM_OUT_OF_MEMORY;
  }
  if (status == VMM_SUCCESS && !doubled) self->next_region = twice(self->next_region);
  return status;
}

/* Returns every region that has no chunk in use, if that could make room. */
static bool free_regions(tfbfc *self, uint64_t size) {
  uint64_t whole = 0;
  for (pool_block *block = pool_free_set_first(&self->chunks.free, 0); block;
       block = pool_free_set_next(block)) {
    if (!pool_block_is_split(block)) whole += block->size;
  }
  const uint64_t kept = self->base.heap.statistics.reserved_bytes.current - whole;
  if (whole == 0 || kept > self->limit || size > self->limit - kept) return false;
  return pool_caching_release_all(&self->chunks) == VMM_SUCCESS;
}

/* The streams from SHARED_BIT on have one bit together. */
static uint64_t stream_bit(vmm_stream stream) {
  return UINT64_C(1) << (stream < SHARED_BIT ? stream : SHARED_BIT);
}

/* The new stream waits for what the streams that freed the chunk had been given until now. streams: becomes
 * those that others have to wait for still. */
static vmm_status wait_for_streams(tfbfc *self, uint64_t *streams, vmm_stream stream) {
  vmm_driver *driver = self->base.heap.driver;
  if (*streams >> SHARED_BIT & 1) {
    /* Which of them it was is not known: all work is waited for. */
    self->base.heap.statistics.host_waits++;
    vmm_status status = vmm_synchronize(driver);
    if (status == VMM_SUCCESS) *streams = 0;
    return status;
  }
  for (vmm_stream other = 0; other < SHARED_BIT; other++) {
    if (!(*streams >> other & 1) || other == stream) continue;
    vmm_event event;
    vmm_status status = vmm_event_record(driver, other, &event);
    if (status != VMM_SUCCESS) return status;
    status = vmm_stream_wait_event(driver, stream, event);
    vmm_event_discard(driver, event);
    if (status != VMM_SUCCESS) return status;
    self->stream_waits++;
  }
  return VMM_SUCCESS;
}

static void take_back(tfbfc *self, const pool_allocation *taken) {
  pool_block *block = taken->owner;
  uint64_t streams = block->age_base;
  if (block->previous && block->previous->state == POOL_BLOCK_FREE) streams |= block->previous->age_base;
  if (block->next && block->next->state == POOL_BLOCK_FREE) streams |= block->next->age_base;
  pool_caching_take_back(&self->chunks, block);
  block->age_base = streams;
}

static void take_back_complete(tfbfc *self, bool wait) {
  pool_allocation taken;
  while (pool_heap_next_complete(&self->base.heap, wait, &taken)) take_back(self, &taken);
}

static vmm_status tfbfc_alloc(policy *base, uint64_t requested, vmm_stream stream, vmm_address *address) {
  tfbfc *self = (tfbfc *)base;
  take_back_complete(self, false);
  uint64_t size = round_up(requested);
  pool_block *block = pool_free_set_best_fit(&self->chunks.free, 0, size);
  if (!block) {
    vmm_status status = extend(self, size, &block);
    if (status == VMM_OUT_OF_MEMORY && self->collects) {
      take_back_complete(self, true);
      if (free_regions(self, size)) {
        base->heap.statistics.retries++;
        status = extend(self, size, &block);
      }
    }
    if (status != VMM_SUCCESS) return status;
  }
  uint64_t streams = block->age_base;
  vmm_status status = self->waits ? wait_for_streams(self, &streams, stream) : VMM_SUCCESS;
  bool split = block->size >= 2 * size || block->size - size >= self->waste;
  if (status == VMM_SUCCESS) {
    status = pool_caching_hand_out(&self->chunks, block, size, requested, split, address);
  } else if (block->state != POOL_BLOCK_FREE) {
    pool_caching_take_back(&self->chunks, block);
    block->age_base = 0;
  }
  if (status != VMM_SUCCESS) return status;
  if (split) block->next->age_base = streams;
  block->age_base = stream_bit(stream);
  pool_heap_find(&base->heap, *address)->stream = stream;
  self->allocations++;
  if (block->size > self->largest_allocation) self->largest_allocation = block->size;
  return VMM_SUCCESS;
}

static vmm_status tfbfc_free(policy *base, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(&base->heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  vmm_status status;
  if (pool_heap_take_back(&base->heap, allocation, &taken, &status)) take_back((tfbfc *)base, &taken);
  return status;
}

static vmm_status tfbfc_record_stream(policy *base, vmm_address address, vmm_stream stream) {
  return pool_heap_record_stream(&base->heap, address, stream);
}

static vmm_status tfbfc_trim(policy *base) {
  tfbfc *self = (tfbfc *)base;
  take_back_complete(self, true);
  return pool_caching_release_all(&self->chunks);
}

static vmm_status tfbfc_set_limit(policy *base, uint64_t limit) {
  tfbfc *self = (tfbfc *)base;
  uint64_t free_bytes = 0, total_bytes;
  vmm_status status = VMM_SUCCESS;
  if (limit == UINT64_MAX) status = vmm_memory_info(base->heap.driver, &free_bytes, &total_bytes);
  if (status != VMM_SUCCESS) return status;
  pool_heap_set_limit(&base->heap, limit);
  use_limit(self, limit, free_bytes + base->heap.statistics.reserved_bytes.current);
  if (!self->allow_growth) self->next_region = round_up(self->limit > 0 ? self->limit : 1);
  return VMM_SUCCESS;
}

static uint64_t tfbfc_largest_free(const policy *base) {
  return pool_caching_largest_free(&((const tfbfc *)base)->chunks);
}

static void tfbfc_free_ranges(const policy *base, pool_range_visit *visit, void *context) {
  pool_free_set_visit(&((const tfbfc *)base)->chunks.free, visit, context);
}

static size_t tfbfc_counters(const policy *base, policy_counter *counters, size_t capacity) {
  const tfbfc *self = (const tfbfc *)base;
  uint64_t unused =
      base->heap.statistics.reserved_bytes.current - base->heap.statistics.allocated_bytes.current;
  uint64_t largest = tfbfc_largest_free(base);
  const policy_counter all[] = {
      {"num_allocs_count", self->allocations},
      {"bytes_limit_bytes", self->limit},
      {"largest_alloc_bytes", self->largest_allocation},
      {"largest_free_block_bytes", largest},
      {"fragmentation_permille", unused ? (unused - largest) * 1000 / unused : 0},
      {"free_chunks_count", self->chunks.free.blocks},
      {"stream_waits_count", self->stream_waits},
  };
  size_t count = sizeof all / sizeof *all;
  memcpy(counters, all, (count < capacity ? count : capacity) * sizeof *all);
  return count;
}

static bool tfbfc_check(const policy *base, char *message, size_t message_size) {
  const pool_caching *pools[] = {&((const tfbfc *)base)->chunks};
  return pool_caching_check(pools, 1, base->heap.statistics.reserved_bytes.current, message, message_size);
}

const policy_class tfbfc_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "tfbfc",
    .summary = "TensorFlow's BFC allocator: one heap for all streams, regions that double",
    .options = options,
    .create = tfbfc_create,
    .destroy = tfbfc_destroy,
    .alloc = tfbfc_alloc,
    .free = tfbfc_free,
    .record_stream = tfbfc_record_stream,
    .trim = tfbfc_trim,
    .set_limit = tfbfc_set_limit,
    .counters = tfbfc_counters,
    .largest_free = tfbfc_largest_free,
    .free_ranges = tfbfc_free_ranges,
    .check = tfbfc_check,
};
