#include "tests/policies_watch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE (2 * MIB) /* physical memory is contiguous within one */

static watch *watch_of(vmm_driver *driver) { return (watch *)driver; }

static uint32_t index_of(vmm_stream stream) { return stream < WATCH_OWN_STREAM ? stream : WATCH_OWN_STREAM; }

static void violate(watch *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void violate(watch *self, const char *format, ...) {
  va_list arguments;
  if (self->violations++ > 0) return;
  va_start(arguments, format);
  vsnprintf(self->first_violation, sizeof self->first_violation, format, arguments);
  va_end(arguments);
}

static void learn(watch_clock *clock, const watch_clock *more) {
  for (int i = 0; i < WATCH_STREAMS; i++) {
    if (more->seen[i] > clock->seen[i]) clock->seen[i] = more->seen[i];
  }
}

/* ---- uses ---- */

static bool seen_by_host(const watch *self, const watch_block *block) {
  for (int i = 0; i < WATCH_STREAMS; i++) {
    if (block->last[i] > self->host.seen[i]) return false;
  }
  return true;
}

/* The host has seen more: what it knows to be over concerns nobody any more. */
static void drop_seen(watch *self) {
  for (uint32_t i = 0; i < self->use_count;) {
    if (seen_by_host(self, &self->uses[i])) {
      self->uses[i] = self->uses[--self->use_count];
    } else {
      i++;
    }
  }
}

static void host_sees_all(watch *self) {
  for (int i = 0; i < WATCH_STREAMS; i++) self->host.seen[i] = self->work[i];
  drop_seen(self);
}

static bool shares_memory(const watch_block *left, const watch_block *right) {
  for (uint32_t i = 0; i < left->part_count; i++) {
    const watch_part *a = &left->parts[i];
    for (uint32_t k = 0; k < right->part_count; k++) {
      const watch_part *b = &right->parts[k];
      if (a->physical < b->physical + b->size && b->physical < a->physical + a->size) return true;
    }
  }
  return false;
}

/* The stream whose work on a freed block may still go on when a stream's next work begins; -1: none. */
static int still_working(const watch *self, const watch_block *use, uint32_t stream) {
  for (int i = 0; i < WATCH_STREAMS; i++) {
    if (use->last[i] == 0 || i == (int)stream) continue;
    if (use->last[i] <= self->order[stream].seen[i] || use->last[i] <= self->host.seen[i]) continue;
    return i;
  }
  return -1;
}

/* ---- the caller's side ---- */

static void find_parts(const watch *self, watch_block *block) {
  block->part_count = 0;
  for (uint64_t done = 0; done < block->size;) {
    vmm_address address = block->address + done;
    uint64_t step = PAGE - address % PAGE;
    if (step > block->size - done) step = block->size - done;
    require(block->part_count < WATCH_PARTS, "a block of %" PRIu64 " bytes", block->size);
    block->parts[block->part_count++] = (watch_part){vmm_sim_physical(self->sim, address), step};
    done += step;
  }
}

void watch_handed_out(watch *self, vmm_address address, uint64_t size, vmm_stream stream) {
  require(self->live_count < WATCH_LIVE, "too many live blocks");
  watch_block *block = &self->live[self->live_count++];
  *block = (watch_block){.address = address, .size = size, .stream = stream};
  block->recorded[stream] = true;
  find_parts(self, block);
  for (uint32_t i = 0; i < self->use_count; i++) {
    const watch_block *use = &self->uses[i];
    if (!shares_memory(block, use)) continue;
    int other = still_working(self, use, stream);
    if (other < 0 || (self->driver_reuses && self->now >= use->done_at[other])) continue;
    violate(self, "0x%" PRIx64 " was given to stream %" PRIu32 " while stream %d uses it through 0x%" PRIx64,
            address, stream, other, use->address);
  }
  for (uint32_t i = 0; i + 1 < self->live_count; i++) {
    if (shares_memory(block, &self->live[i]))
      violate(self, "0x%" PRIx64 " was given away while 0x%" PRIx64 " is live", address,
              self->live[i].address);
  }
}

void watch_work(watch *self, uint32_t live, vmm_stream stream) {
  watch_block *block = &self->live[live];
  require(block->recorded[stream], "stream %" PRIu32 " must not use this block", stream);
  block->last[stream] = ++self->work[stream];
  block->done_at[stream] = self->now + self->delay;
}

void watch_freed(watch *self, uint32_t live) {
  require(self->use_count < WATCH_USES, "too many freed blocks to remember");
  self->uses[self->use_count++] = self->live[live];
  self->live[live] = self->live[--self->live_count];
}

void watch_tick(watch *self) {
  self->now++;
  vmm_sim_tick(self->sim);
}

/* ---- the driver's side ---- */

static watch_event *find_event(watch *self, vmm_event event) {
  for (uint32_t i = 0; i < self->event_count; i++) {
    if (self->events[i].event == event) return &self->events[i];
  }
  return NULL;
}

static void host_sees(watch *self, vmm_event event) {
  const watch_event *known = find_event(self, event);
  if (!known) return;
  learn(&self->host, &known->clock);
  drop_seen(self);
}

static vmm_status event_record(vmm_driver *driver, vmm_stream stream, vmm_event *event) {
  watch *self = watch_of(driver);
  vmm_status status = vmm_event_record(self->sim, stream, event);
  if (status != VMM_SUCCESS) return status;
  watch_event *place = find_event(self, 0);
  if (!place) {
    require(self->event_count < sizeof self->events / sizeof *self->events, "too many events");
    place = &self->events[self->event_count++];
  }
  *place = (watch_event){*event, self->order[index_of(stream)]};
  place->clock.seen[index_of(stream)] = self->work[index_of(stream)];
  return VMM_SUCCESS;
}

static vmm_status event_query(vmm_driver *driver, vmm_event event) {
  watch *self = watch_of(driver);
  vmm_status status = vmm_event_query(self->sim, event);
  if (status == VMM_SUCCESS) host_sees(self, event);
  return status == VMM_NOT_READY && self->fault == WATCH_LIES ? VMM_SUCCESS : status;
}

static vmm_status event_wait(vmm_driver *driver, vmm_event event) {
  watch *self = watch_of(driver);
  vmm_status status = vmm_event_wait(self->sim, event);
  if (status == VMM_SUCCESS) host_sees(self, event);
  return status;
}

static vmm_status stream_wait_event(vmm_driver *driver, vmm_stream stream, vmm_event event) {
  watch *self = watch_of(driver);
  if (self->fault == WATCH_DEAF) return VMM_SUCCESS;
  const watch_event *known = find_event(self, event);
  if (known) learn(&self->order[index_of(stream)], &known->clock);
  return vmm_stream_wait_event(self->sim, stream, event);
}

static void event_discard(vmm_driver *driver, vmm_event event) {
  watch *self = watch_of(driver);
  watch_event *known = find_event(self, event);
  if (known) known->event = 0;
  vmm_event_discard(self->sim, event);
}

static vmm_status synchronize(vmm_driver *driver) {
  watch *self = watch_of(driver);
  if (self->fault == WATCH_HASTY) return VMM_SUCCESS;
  vmm_status status = vmm_synchronize(self->sim);
  if (status == VMM_SUCCESS) host_sees_all(self);
  return status;
}

static vmm_status free_memory(vmm_driver *driver, vmm_address address) {
  watch *self = watch_of(driver);
  vmm_status status = vmm_free(self->sim, address);
  if (status == VMM_SUCCESS) host_sees_all(self);
  return status;
}

/* Unmapping waits for nothing: work through these addresses must have been seen to be over. */
static vmm_status unmap(vmm_driver *driver, vmm_address address, uint64_t size) {
  watch *self = watch_of(driver);
  for (uint32_t i = 0; i < self->use_count; i++) {
    const watch_block *use = &self->uses[i];
    if (use->address < address + size && address < use->address + use->size)
      violate(self, "0x%" PRIx64 " is unmapped while work on 0x%" PRIx64 " may go on", address, use->address);
  }
  return vmm_unmap(self->sim, address, size);
}

/* The free takes its place among a stream's work: that must come after all work on the block. */
static vmm_status free_async(vmm_driver *driver, vmm_address address, vmm_stream stream) {
  watch *self = watch_of(driver);
  for (uint32_t i = 0; i < self->use_count; i++) {
    const watch_block *use = &self->uses[i];
    int other = use->address == address ? still_working(self, use, index_of(stream)) : -1;
    if (other < 0 || self->now >= use->done_at[other]) continue;
    violate(self, "0x%" PRIx64 " is freed on stream %" PRIu32 " while stream %d uses it", address, stream,
            other);
  }
  return vmm_free_async(self->sim, address, stream);
}

#define PASS(OPERATION, PARAMETERS, ARGUMENTS)      \
  static vmm_status pass_##OPERATION PARAMETERS {   \
    driver = watch_of(driver)->sim;                 \
    return driver->operations->OPERATION ARGUMENTS; \
  }

PASS(granularity, (vmm_driver * driver, uint64_t *bytes), (driver, bytes))
PASS(memory_info, (vmm_driver * driver, uint64_t *free_bytes, uint64_t *total), (driver, free_bytes, total))
PASS(address_reserve, (vmm_driver * driver, uint64_t size, uint64_t alignment, vmm_address *address),
     (driver, size, alignment, address))
PASS(address_free, (vmm_driver * driver, vmm_address address, uint64_t size), (driver, address, size))
PASS(create, (vmm_driver * driver, uint64_t size, vmm_handle *handle), (driver, size, handle))
PASS(release, (vmm_driver * driver, vmm_handle handle), (driver, handle))
PASS(map, (vmm_driver * driver, vmm_address address, uint64_t size, uint64_t offset, vmm_handle handle),
     (driver, address, size, offset, handle))
PASS(set_access, (vmm_driver * driver, vmm_address address, uint64_t size), (driver, address, size))
PASS(malloc, (vmm_driver * driver, uint64_t size, vmm_address *address), (driver, size, address))
PASS(malloc_async, (vmm_driver * driver, uint64_t size, vmm_stream stream, vmm_address *address),
     (driver, size, stream, address))
PASS(pool_configure, (vmm_driver * driver, const vmm_pool_configuration *wanted), (driver, wanted))
PASS(pool_usage, (vmm_driver * driver, vmm_pool_usage *usage), (driver, usage))
PASS(pool_trim, (vmm_driver * driver, uint64_t keep_bytes), (driver, keep_bytes))

static const vmm_driver_operations operations = {
    .name = "watch",
    .granularity = pass_granularity,
    .memory_info = pass_memory_info,
    .address_reserve = pass_address_reserve,
    .address_free = pass_address_free,
    .create = pass_create,
    .release = pass_release,
    .map = pass_map,
    .unmap = unmap,
    .set_access = pass_set_access,
    .malloc = pass_malloc,
    .free = free_memory,
    .malloc_async = pass_malloc_async,
    .free_async = free_async,
    .pool_configure = pass_pool_configure,
    .pool_usage = pass_pool_usage,
    .pool_trim = pass_pool_trim,
    .event_record = event_record,
    .event_query = event_query,
    .event_wait = event_wait,
    .stream_wait_event = stream_wait_event,
    .event_discard = event_discard,
    .synchronize = synchronize,
};

void watch_open(watch *self, uint64_t capacity, uint64_t delay) {
  memset(self, 0, sizeof *self);
  self->driver.operations = &operations;
  self->delay = delay;
  self->uses = malloc(WATCH_USES * sizeof *self->uses);
  require(self->uses, "the host has no memory");
  require(vmm_sim_create(&(vmm_sim_configuration){.capacity = capacity, .event_delay = delay}, &self->sim) ==
              VMM_SUCCESS,
          "no simulated device");
}

void watch_close(watch *self) {
  vmm_sim_usage usage, none = {0};
  vmm_sim_usage_get(self->sim, &usage);
  require(memcmp(&usage, &none, sizeof usage) == 0, "something is left on the device");
  vmm_driver_destroy(self->sim);
  free(self->uses);
}
