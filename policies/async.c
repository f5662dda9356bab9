/* The driver's stream-ordered pool: cuMemAllocAsync and cuMemFreeAsync on a pool of its own, the way
 * PyTorch's backend:cudaMallocAsync uses it. No memory is kept here: what is reserved is what the driver
 * says its pool holds. On the simulated device the pool is a model (vmm/sim_async.c), for its placement is
 * not public.
 *
 * Memory that other streams use is freed on a stream that has no other work and waits for all of
 * them, so that the streams themselves go on.
 *
 * Source: CUDAMallocAsyncAllocator.cpp of PyTorch 2.1, the CUDA driver's documentation. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/policy.h"

enum { OPTION_THRESHOLD, OPTION_EVENT, OPTION_OPPORTUNISTIC, OPTION_INTERNAL, OPTION_RETRY, OPTION_LIMIT };

static const policy_option options[] = {
    {"release_threshold", POLICY_OPTION_SIZE, "unlimited", 0, 0, NULL, "bytes",
     "memory beyond this goes back whenever the host synchronises (the driver's own default is 0)"},
    {"reuse_event", POLICY_OPTION_BOOLEAN, "true", 0, 0, NULL, "",
     "reuse memory on a stream that waits for an event after its free"},
    {"reuse_opportunistic", POLICY_OPTION_BOOLEAN, "true", 0, 0, NULL, "",
     "reuse memory on any stream once its free has completed, which depends on timing"},
    {"reuse_internal", POLICY_OPTION_BOOLEAN, "true", 0, 0, NULL, "",
     "let the driver make a stream wait for another to reuse its memory"},
    {"retry", POLICY_OPTION_BOOLEAN, "true", 0, 0, NULL, "",
     "when memory runs out: wait for the device, give unused memory back, ask once more"},
    {"limit_counts", POLICY_OPTION_CHOICE, "reserved", 0, 0, "reserved|requested", "",
     "what --limit bounds. reserved: what the pool holds; requested: what callers hold, as in PyTorch"},
    {0},
};

/* No trace's stream: see above. */
static const vmm_stream freeing_stream = POOL_STREAM_LIMIT - 1;
static const uint64_t quantum = 512;

typedef struct async {
  policy base;
  vmm_pool_configuration pool;
  bool retries;
  uint64_t stream_waits;
} async;

static vmm_status async_create(const policy_configuration *configuration, policy **created, char *message,
                               size_t message_size) {
  async *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  const policy_value *values = configuration->values;
  pool_heap *heap = &self->base.heap;
  const bool limits_requests = values[OPTION_LIMIT].integer == 1;
  const vmm_pool_configuration pool = {
      .release_threshold = values[OPTION_THRESHOLD].integer,
      .maximum_bytes = limits_requests ? UINT64_MAX : configuration->limit,
      .reuse_event = values[OPTION_EVENT].integer,
      .reuse_opportunistic = values[OPTION_OPPORTUNISTIC].integer,
      .reuse_internal = values[OPTION_INTERNAL].integer,
  };
  vmm_status status = pool_heap_init(heap, configuration->driver, false, configuration->limit);
  if (status == VMM_SUCCESS) status = vmm_pool_configure(heap->driver, &pool);
  if (status != VMM_SUCCESS) {
    if (status == VMM_NOT_SUPPORTED) {
      snprintf(message, message_size,
               "policy async: the device has no stream-ordered pools, or its driver cannot bound one (CUDA "
               "12.2 and later can; limit_counts=requested needs no bound)");
    }
    free(self);
    return status;
  }
  self->pool = pool;
  heap->memory_elsewhere = true;
  heap->limit_is_policys = limits_requests;
  self->retries = values[OPTION_RETRY].integer;
  *created = &self->base;
  return VMM_SUCCESS;
}

/* What the pool holds now. A look that fails leaves the number as it was: the next one sets it right. */
static void look(async *self) {
  vmm_pool_usage usage;
  pool_heap *heap = &self->base.heap;
  if (vmm_pool_usage_get(heap->driver, &usage) == VMM_SUCCESS)
    pool_heap_note_elsewhere(heap, usage.reserved_bytes);
}

/* The host waits, then what is unused goes back. */
static vmm_status give_back(async *self) {
  pool_heap *heap = &self->base.heap;
  heap->statistics.host_waits++;
  vmm_status status = vmm_synchronize(heap->driver);
  if (status == VMM_SUCCESS) status = vmm_pool_trim(heap->driver, 0);
  look(self);
  return status;
}

static void async_destroy(policy *base) {
  async *self = (async *)base;
  pool_heap *heap = &base->heap;
  static const vmm_pool_configuration unconfigured = {.release_threshold = UINT64_MAX,
                                                      .maximum_bytes = UINT64_MAX,
                                                      .reuse_event = true,
                                                      .reuse_opportunistic = true,
                                                      .reuse_internal = true};
  /* Streams that were recorded are done with the memory then. */
  vmm_synchronize(heap->driver);
  for (uint64_t i = 0; i < heap->allocations.capacity; i++) {
    const pool_allocation *allocation = &heap->allocations.entries[i];
    if (allocation->address == 0) continue;
    vmm_status status = vmm_free_async(heap->driver, allocation->address, allocation->stream);
    if (status != VMM_SUCCESS) vmm_free_async(heap->driver, allocation->address, allocation->stream);
  }
  if (give_back(self) != VMM_SUCCESS) give_back(self);
  vmm_pool_configure(heap->driver, &unconfigured);
  pool_heap_fini(heap);
  free(self);
}

static vmm_status async_alloc(policy *base, uint64_t requested, vmm_stream stream, vmm_address *address) {
  async *self = (async *)base;
  pool_heap *heap = &base->heap;
  const uint64_t size = (requested + quantum - 1) / quantum * quantum;
  if (heap->limit_is_policys &&
      (size > heap->limit || heap->statistics.allocated_bytes.current > heap->limit - size))
    return VMM_OUT_OF_MEMORY;
  vmm_address given = 0;
  vmm_status status = vmm_malloc_async(heap->driver, requested, stream, &given);
  if (status == VMM_OUT_OF_MEMORY && self->retries) {
    heap->statistics.retries++;
    if (give_back(self) == VMM_SUCCESS) status = vmm_malloc_async(heap->driver, requested, stream, &given);
  }
  if (status == VMM_SUCCESS) {
    status = pool_heap_hand_out(heap, given, size, requested, stream, self);
    if (status != VMM_SUCCESS) vmm_free_async(heap->driver, given, stream);
  }
  look(self);
  if (status == VMM_SUCCESS) *address = given;
  return status;
}

/* The freeing stream comes after all work of a stream so far. */
static vmm_status await(async *self, vmm_stream stream) {
  vmm_driver *driver = self->base.heap.driver;
  vmm_event event;
  vmm_status status = vmm_event_record(driver, stream, &event);
  if (status != VMM_SUCCESS) return status;
  status = vmm_stream_wait_event(driver, freeing_stream, event);
  vmm_event_discard(driver, event);
  if (status == VMM_SUCCESS) self->stream_waits++;
  return status;
}

static vmm_status async_free(policy *base, vmm_address address) {
  async *self = (async *)base;
  pool_heap *heap = &base->heap;
  pool_allocation *allocation = pool_heap_find(heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  const uint32_t used = pool_heap_recorded_streams(allocation);
  vmm_stream streams_here[16], *streams = used <= 16 ? streams_here : malloc(used * sizeof *streams);
  vmm_status status = streams ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) {
    pool_heap_list_streams(allocation, streams, used);
    if (used > 0) status = await(self, allocation->stream);
    for (uint32_t i = 0; i < used && status == VMM_SUCCESS; i++) status = await(self, streams[i]);
    if (status == VMM_SUCCESS)
      status = vmm_free_async(heap->driver, address, used > 0 ? freeing_stream : allocation->stream);
    if (status == VMM_SUCCESS) pool_heap_take_back_with_streams(heap, allocation, &taken, NULL, 0);
  }
  if (streams != streams_here) free(streams);
  look(self);
  return status;
}

static vmm_status async_record_stream(policy *base, vmm_address address, vmm_stream stream) {
  return pool_heap_record_stream(&base->heap, address, stream);
}

static vmm_status async_trim(policy *base) { return give_back((async *)base); }

static vmm_status async_set_limit(policy *base, uint64_t limit) {
  async *self = (async *)base;
  pool_heap *heap = &base->heap;
  vmm_pool_configuration pool = self->pool;
  if (!heap->limit_is_policys) pool.maximum_bytes = limit;
  vmm_status status = heap->limit_is_policys ? VMM_SUCCESS : vmm_pool_configure(heap->driver, &pool);
  if (status != VMM_SUCCESS) return status;
  self->pool = pool;
  pool_heap_set_limit(heap, limit);
  look(self);
  return VMM_SUCCESS;
}

static size_t async_counters(const policy *base, policy_counter *counters, size_t capacity) {
  vmm_pool_usage usage = {0};
  vmm_pool_usage_get(base->heap.driver, &usage);
  const policy_counter all[] = {
      {"pool_reserved_bytes", usage.reserved_bytes},
      {"pool_reserved_peak_bytes", usage.reserved_peak_bytes},
      {"pool_used_bytes", usage.used_bytes},
      {"pool_used_peak_bytes", usage.used_peak_bytes},
      {"stream_waits_count", ((const async *)base)->stream_waits},
  };
  size_t count = sizeof all / sizeof *all;
  memcpy(counters, all, (count < capacity ? count : capacity) * sizeof *all);
  return count;
}

static bool async_check(const policy *base, char *message, size_t message_size) {
  vmm_pool_usage usage;
  const uint64_t requested = base->heap.statistics.requested_bytes.current;
  if (vmm_pool_usage_get(base->heap.driver, &usage) != VMM_SUCCESS) return true;
  if (requested <= usage.used_bytes && usage.used_bytes <= usage.reserved_bytes) return true;
  snprintf(message, message_size,
           "callers hold %" PRIu64 " bytes, the pool has given out %" PRIu64 " of %" PRIu64, requested,
           usage.used_bytes, usage.reserved_bytes);
  return false;
}

const policy_class async_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "async",
    .summary = "the driver's stream-ordered pool (cuMemAllocAsync); simulated by a model of it",
    .capabilities = POLICY_NEEDS_ASYNC,
    .options = options,
    .create = async_create,
    .destroy = async_destroy,
    .alloc = async_alloc,
    .free = async_free,
    .record_stream = async_record_stream,
    .trim = async_trim,
    .set_limit = async_set_limit,
    .counters = async_counters,
    .check = async_check,
};
