/* An oracle: it is told of every request of the trace before the first one is made, plans an offset for
 * each (plan.h), and hands these out. No allocator can do as much in earnest; it is what others are measured
 * by. One range of addresses backed by handles that are created when the plan first needs them and kept. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/plan.h"
#include "policies/policy.h"
#include "pools/holes.h"
#include "pools/stream_clock.h"

enum { OPTION_HANDLE, OPTION_EFFORT, OPTION_PRECISION };

static const policy_option options[] = {
    {"handle", POLICY_OPTION_SIZE, "1GiB", POLICY_GRANULARITY, 1e13, NULL, "bytes",
     "memory is taken from the driver in handles of this size; the last one is smaller"},
    {"effort", POLICY_OPTION_INTEGER, "300", 0, 1e9, NULL, "million steps",
     "work after which no other plan is tried, which takes about a second; 0: first fit only"},
    {"precision", POLICY_OPTION_SIZE, "2MiB", 512, 1e15, NULL, "bytes",
     "plans that need as many of these are as good, and one that needs no more than the peak of live memory "
     "ends the search"},
    {0},
};

static const uint64_t quantum = 512;

typedef struct planned {
  policy base;
  plan plan;
  pool_range *range; /* NULL: there is nothing to place */
  uint64_t handle;
  uint64_t mapped;  /* bytes of the range, from its beginning */
  uint64_t next;    /* the request of the plan that comes next */
  pool_holes holes; /* what is mapped and not handed out */
  pool_stream_clock clock;
} planned;

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

/* ---- making it ---- */

static vmm_status make_plan(planned *self, const policy_configuration *configuration, char *message,
                            size_t message_size) {
  const policy_value *values = configuration->values;
  const pool_heap *heap = &self->base.heap;
  const plan_settings settings = {
      .quantum = quantum,
      .precision = values[OPTION_PRECISION].integer,
      .effort = values[OPTION_EFFORT].integer * 1000000,
      .room = heap->limit < heap->device_bytes ? heap->limit : heap->device_bytes};
  vmm_status status = plan_make(configuration->lifetimes, &settings, &self->plan);
  if (status == VMM_INVALID_VALUE) {
    snprintf(
        message, message_size,
        "policy planned: the trace has more requests, or more bytes in all of them, than can be planned");
  } else if (status == VMM_OUT_OF_MEMORY) {
    snprintf(message, message_size,
             "policy planned: this machine has no memory for a plan of %" PRIu64 " requests",
             configuration->lifetimes->count);
  }
  return status;
}

/* Addresses for the whole plan, or for as much of it as the device has memory for. */
static vmm_status reserve_addresses(planned *self) {
  pool_heap *heap = &self->base.heap;
  uint64_t top = 0;
  for (uint64_t i = 0; i < self->plan.count; i++) {
    const uint64_t end = self->plan.blocks[i].offset + self->plan.blocks[i].size;
    if (end > top) top = end;
  }
  if (top > heap->device_bytes) top = heap->device_bytes;
  if (top == 0) return VMM_SUCCESS;
  return pool_range_reserve(heap, round_up(top, heap->granularity), heap->granularity, &self->range);
}

static vmm_status planned_create(const policy_configuration *configuration, policy **created, char *message,
                                 size_t message_size) {
  planned *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  pool_heap *heap = &self->base.heap;
  self->handle = configuration->values[OPTION_HANDLE].integer;
  vmm_status status = pool_heap_init(heap, configuration->driver, true, configuration->limit);
  if (status == VMM_SUCCESS && self->handle % heap->granularity != 0) {
    snprintf(message, message_size,
             "policy planned: handle=%s is no multiple of the device's granularity of %" PRIu64 " bytes",
             configuration->values[OPTION_HANDLE].text, heap->granularity);
    status = VMM_INVALID_VALUE;
  }
  if (status == VMM_SUCCESS) status = make_plan(self, configuration, message, message_size);
  if (status == VMM_SUCCESS) {
    status = reserve_addresses(self);
    if (status != VMM_SUCCESS) plan_free(&self->plan);
  }
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  pool_holes_init(&self->holes);
  pool_stream_clock_init(&self->clock, heap->driver);
  *created = &self->base;
  return VMM_SUCCESS;
}

static void planned_destroy(policy *base) {
  planned *self = (planned *)base;
  pool_stream_clock_fini(&self->clock);
  pool_heap_fini(&base->heap);
  pool_holes_fini(&self->holes);
  plan_free(&self->plan);
  free(self);
}

/* ---- growing ---- */

/* Maps so many bytes more, in handles. */
static vmm_status map_more(planned *self, uint64_t bytes) {
  pool_heap *heap = &self->base.heap;
  if (!pool_heap_within_limit(heap, bytes)) return VMM_OUT_OF_MEMORY;
  const uint64_t count = (bytes + self->handle - 1) / self->handle;
  uint64_t *sizes = malloc(count * sizeof *sizes);
  pool_chunk **chunks = malloc(count * sizeof *chunks);
  vmm_status status = sizes && chunks ? pool_holes_prepare(&self->holes, 1) : VMM_OUT_OF_MEMORY;
  for (uint64_t i = 0; status == VMM_SUCCESS && i < count; i++)
    sizes[i] = i + 1 < count ? self->handle : bytes - (count - 1) * self->handle;
  pool_operation_begin(heap, POOL_OPERATION_GROW, bytes);
  if (status == VMM_SUCCESS) status = pool_chunks_create_sizes(heap, sizes, count, self, chunks);
  if (status == VMM_SUCCESS) {
    status = pool_range_map(heap, self->range, self->mapped, chunks, count);
    for (uint64_t i = 0; status != VMM_SUCCESS && i < count; i++) pool_chunk_give_up(heap, chunks[i]);
  }
  pool_operation_end(heap);
  if (status == VMM_SUCCESS) {
    const vmm_address begin = self->range->address + self->mapped;
    pool_holes_insert(&self->holes, begin, begin + bytes, NULL);
    self->mapped += bytes;
  }
  free(sizes);
  free(chunks);
  return status;
}

/* Maps the range at least up to an offset: by whole handles, but no further than the plan's peak, above which
 * lie only requests that failed when recorded; by less where there is not as much. */
static vmm_status map_up_to(planned *self, uint64_t end) {
  const uint64_t needed = round_up(end, self->base.heap.granularity) - self->mapped;
  uint64_t peak = round_up(self->plan.peak, self->base.heap.granularity);
  if (peak > self->range->size) peak = self->range->size;
  const uint64_t left = peak > self->mapped ? peak - self->mapped : 0;
  uint64_t wished = round_up(needed, self->handle);
  if (wished > left) wished = left;
  if (wished <= needed) return map_more(self, needed);
  vmm_status status = map_more(self, wished);
  return status == VMM_OUT_OF_MEMORY ? map_more(self, needed) : status;
}

/* ---- serving ---- */

/* What was done in this memory on other streams comes before what the stream does in it. */
static vmm_status wait_for_others(planned *self, const pool_hole *hole, vmm_stream stream) {
  for (vmm_stream other = 0; other < self->holes.streams && other < self->clock.count; other++) {
    const uint64_t point = hole->last[other];
    if (other == stream || point == 0 || pool_stream_clock_ordered(&self->clock, stream, other, point) ||
        pool_stream_clock_passed(&self->clock, other, point))
      continue;
    vmm_status status = pool_stream_clock_wait(&self->clock, stream, other, point);
    if (status != VMM_SUCCESS) return status;
  }
  return VMM_SUCCESS;
}

static vmm_status give(planned *self, const plan_block *block, uint64_t requested, vmm_stream stream,
                       vmm_address *address) {
  const uint64_t end = block->offset + block->size;
  if (!self->range || end > self->range->size) return VMM_OUT_OF_MEMORY;
  const vmm_address begin = self->range->address + block->offset;
  vmm_status status = pool_stream_clock_prepare(&self->clock, stream);
  if (status == VMM_SUCCESS) status = pool_holes_prepare_stream(&self->holes, stream);
  if (status == VMM_SUCCESS && end > self->mapped) status = map_up_to(self, end);
  if (status == VMM_SUCCESS) status = pool_holes_prepare(&self->holes, 1);
  if (status != VMM_SUCCESS) return status;
  pool_hole *hole = pool_holes_at_or_above(&self->holes, begin);
  /* The place is taken: allocations live longer than was said. */
  if (!hole || hole->begin > begin || hole->end < begin + block->size) return VMM_INVALID_VALUE;
  status = wait_for_others(self, hole, stream);
  if (status == VMM_SUCCESS)
    status = pool_heap_hand_out(&self->base.heap, begin, block->size, requested, stream, NULL);
  if (status != VMM_SUCCESS) return status;
  pool_holes_carve(&self->holes, hole, begin, begin + block->size);
  *address = begin;
  return VMM_SUCCESS;
}

/* A request that finds no memory is over all the same: the plan goes on with the next one. */
static vmm_status planned_alloc(policy *base, uint64_t requested, vmm_stream stream, vmm_address *address) {
  planned *self = (planned *)base;
  const plan_block *block = self->plan.count > 0 ? &self->plan.blocks[self->next] : NULL;
  if (!block || block->size != round_up(requested, quantum)) return VMM_INVALID_VALUE;
  vmm_status status = give(self, block, requested, stream, address);
  if (status == VMM_SUCCESS || status == VMM_OUT_OF_MEMORY) self->next = (self->next + 1) % self->plan.count;
  return status;
}

static vmm_status planned_free(policy *base, vmm_address address) {
  planned *self = (planned *)base;
  pool_heap *heap = &base->heap;
  pool_allocation *allocation = pool_heap_find(heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  const vmm_stream own = allocation->stream;
  const uint32_t used = pool_heap_recorded_streams(allocation);
  uint64_t *points = calloc(self->holes.streams, sizeof *points);
  vmm_stream *streams = malloc((used + 1) * sizeof *streams);
  vmm_status status = points && streams ? pool_holes_prepare(&self->holes, 1) : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) {
    pool_heap_take_back_with_streams(heap, allocation, &taken, streams, used);
    points[own] = pool_stream_clock_point(&self->clock, own);
    for (uint32_t i = 0; i < used; i++)
      points[streams[i]] = pool_stream_clock_point(&self->clock, streams[i]);
    pool_holes_insert(&self->holes, taken.address, taken.address + taken.size, points);
  }
  free(points);
  free(streams);
  return status;
}

static vmm_status planned_record_stream(policy *base, vmm_address address, vmm_stream stream) {
  planned *self = (planned *)base;
  vmm_status status = pool_stream_clock_prepare(&self->clock, stream);
  if (status == VMM_SUCCESS) status = pool_holes_prepare_stream(&self->holes, stream);
  return status == VMM_SUCCESS ? pool_heap_record_stream(&base->heap, address, stream) : status;
}

/* Handles at the end of what is mapped, as long as nothing lives there. */
static vmm_status planned_trim(policy *base) {
  planned *self = (planned *)base;
  pool_heap *heap = &base->heap;
  heap->statistics.host_waits++;
  vmm_status status = vmm_synchronize(heap->driver);
  if (status != VMM_SUCCESS) return status;
  pool_stream_clock_all_passed(&self->clock);
  const uint64_t before = self->mapped;
  while (self->mapped > 0) {
    const pool_range *range = self->range;
    pool_chunk *chunk = range->slots[self->mapped / range->unit - 1].chunk;
    const vmm_address end = range->address + self->mapped, begin = end - chunk->size;
    pool_hole *hole = pool_holes_at_or_above(&self->holes, begin);
    if (!hole || hole->begin > begin || hole->end < end) break;
    status = pool_holes_prepare(&self->holes, 1);
    if (status == VMM_SUCCESS)
      status = pool_range_unmap(heap, self->range, self->mapped - chunk->size, chunk->size);
    if (status != VMM_SUCCESS) break;
    pool_holes_carve(&self->holes, hole, begin, end);
    self->mapped -= chunk->size;
    status = pool_chunk_give_up(heap, chunk);
    if (status != VMM_SUCCESS) break;
  }
  heap->statistics.driver_frees += self->mapped < before;
  return status;
}

/* ---- looking at it ---- */

static size_t planned_counters(const policy *base, policy_counter *counters, size_t capacity) {
  const planned *self = (const planned *)base;
  const plan *made = &self->plan;
  const policy_counter all[] = {
      {"lower_bound_bytes", made->lower_bound},
      {"planned_peak_bytes", made->peak},
      {"by_size_peak_bytes", made->order_peaks[PLAN_BY_SIZE]},
      {"by_area_peak_bytes", made->order_peaks[PLAN_BY_AREA]},
      {"by_lifetime_peak_bytes", made->order_peaks[PLAN_BY_LIFETIME]},
      {"by_start_peak_bytes", made->order_peaks[PLAN_BY_START]},
      {"improvement_rounds_count", made->rounds},
      {"search_nodes_count", made->nodes},
      {"planning_steps_count", made->steps},
      {"stream_waits_count", self->clock.waits},
  };
  const size_t count = sizeof all / sizeof *all;
  memcpy(counters, all, (count < capacity ? count : capacity) * sizeof *all);
  return count;
}

static uint64_t planned_largest_free(const policy *base) {
  return pool_holes_longest(&((const planned *)base)->holes);
}

static void planned_free_ranges(const policy *base, pool_range_visit *visit, void *context) {
  pool_holes_visit(&((const planned *)base)->holes, visit, context);
}

static bool planned_check(const policy *base, char *message, size_t message_size) {
  const planned *self = (const planned *)base;
  if (!pool_holes_check(&self->holes, message, message_size)) return false;
  const uint64_t live = base->heap.statistics.active_bytes.current;
  if (live + self->holes.bytes == self->mapped &&
      self->mapped == base->heap.statistics.reserved_bytes.current - base->heap.stranded_bytes)
    return true;
  snprintf(message, message_size,
           "%" PRIu64 " live and %" PRIu64 " free bytes do not make up %" PRIu64 " mapped", live,
           self->holes.bytes, self->mapped);
  return false;
}

const policy_class planned_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "planned",
    .summary = "an oracle, the yardstick: knows the whole trace in advance and places it by a static plan",
    .capabilities = POLICY_NEEDS_VMM | POLICY_NEEDS_LIFETIMES,
    .options = options,
    .create = planned_create,
    .destroy = planned_destroy,
    .alloc = planned_alloc,
    .free = planned_free,
    .record_stream = planned_record_stream,
    .trim = planned_trim,
    .counters = planned_counters,
    .largest_free = planned_largest_free,
    .free_ranges = planned_free_ranges,
    .check = planned_check,
};
