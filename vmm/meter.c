#include "vmm/meter.h"

#include <stdlib.h>
#include <string.h>

/* Durations below 64 ns have a bin each; above, every power of two has 64 bins of equal
 * width, so that a bin is at most 1/64 of its lower bound wide. */
enum { BIN_BITS = 6, BINS_PER_OCTAVE = 1 << BIN_BITS, BIN_COUNT = (64 - BIN_BITS + 1) << BIN_BITS };

typedef struct call_meter {
  vmm_meter_call counts;
  uint64_t *bins; /* BIN_COUNT of them, made at the first call */
} call_meter;

typedef struct meter {
  vmm_driver driver; /* first: a vmm_driver * is a meter * */
  vmm_driver *wrapped;
  const vmm_meter_observer *observer;
  call_meter calls[VMM_CALL_COUNT];
} meter;

static meter *meter_of(vmm_driver *driver) { return (meter *)driver; }
static const meter *meter_of_const(const vmm_driver *driver) { return (const meter *)driver; }

static unsigned bin_of(uint64_t duration_ns) {
  if (duration_ns < BINS_PER_OCTAVE) return (unsigned)duration_ns;
  unsigned shift = 63u - (unsigned)__builtin_clzll(duration_ns) - BIN_BITS;
  return (shift << BIN_BITS) + (unsigned)(duration_ns >> shift);
}

static uint64_t lower_bound_of(unsigned bin) {
  if (bin < 2 * BINS_PER_OCTAVE) return bin;
  unsigned shift = (bin >> BIN_BITS) - 1;
  return (uint64_t)(bin - (shift << BIN_BITS)) << shift;
}

static uint64_t begin(meter *self, vmm_call call, const uint64_t argument[4]) {
  if (self->observer && self->observer->call_begin) {
    self->observer->call_begin(self->observer->context, call, argument);
  }
  return self->wrapped->busy_ns;
}

static vmm_status end(meter *self, vmm_call call, const uint64_t argument[4], uint64_t busy_before_ns,
                      vmm_status status) {
  uint64_t duration_ns = self->wrapped->busy_ns - busy_before_ns;
  self->driver.busy_ns += duration_ns;
  call_meter *metered = &self->calls[call];
  vmm_meter_call *counts = &metered->counts;
  if (counts->count++ == 0 || duration_ns < counts->minimum_ns) counts->minimum_ns = duration_ns;
  if (duration_ns > counts->maximum_ns) counts->maximum_ns = duration_ns;
  counts->total_ns += duration_ns;
  metered->bins[bin_of(duration_ns)]++;
  if (status != VMM_SUCCESS && status != VMM_NOT_READY) {
    counts->failures++;
    vmm_error_set(&self->driver, status, call, argument[0], argument[1], argument[2], argument[3]);
  }
  if (self->observer && self->observer->call_end) {
    self->observer->call_end(self->observer->context, call, status, duration_ns);
  }
  return status;
}

/* One wrapper: what to count it as, the operation, its parameters, the wrapped call's
 * arguments, the arguments to report. */
#define METERED(CALL, OPERATION, PARAMETERS, ARGUMENTS, ...)                                              \
  static vmm_status metered_##OPERATION PARAMETERS {                                                      \
    meter *self = meter_of(driver);                                                                       \
    const uint64_t argument[4] = {__VA_ARGS__};                                                           \
    uint64_t busy_before_ns = begin(self, VMM_CALL_##CALL, argument);                                     \
    driver = self->wrapped;                                                                               \
    return end(self, VMM_CALL_##CALL, argument, busy_before_ns, driver->operations->OPERATION ARGUMENTS); \
  }

METERED(GRANULARITY, granularity, (vmm_driver * driver, uint64_t *bytes), (driver, bytes), 0)
METERED(MEMORY_INFO, memory_info, (vmm_driver * driver, uint64_t *free_bytes, uint64_t *total_bytes),
        (driver, free_bytes, total_bytes), 0)
METERED(ADDRESS_RESERVE, address_reserve,
        (vmm_driver * driver, uint64_t size, uint64_t alignment, vmm_address *address),
        (driver, size, alignment, address), size, alignment)
METERED(ADDRESS_FREE, address_free, (vmm_driver * driver, vmm_address address, uint64_t size),
        (driver, address, size), address, size)
METERED(CREATE, create, (vmm_driver * driver, uint64_t size, vmm_handle *handle), (driver, size, handle),
        size)
METERED(RELEASE, release, (vmm_driver * driver, vmm_handle handle), (driver, handle), handle)
METERED(MAP, map,
        (vmm_driver * driver, vmm_address address, uint64_t size, uint64_t offset, vmm_handle handle),
        (driver, address, size, offset, handle), address, size, offset, handle)
METERED(UNMAP, unmap, (vmm_driver * driver, vmm_address address, uint64_t size), (driver, address, size),
        address, size)
METERED(SET_ACCESS, set_access, (vmm_driver * driver, vmm_address address, uint64_t size),
        (driver, address, size), address, size)
METERED(MALLOC, malloc, (vmm_driver * driver, uint64_t size, vmm_address *address), (driver, size, address),
        size)
METERED(FREE, free, (vmm_driver * driver, vmm_address address), (driver, address), address)
METERED(MALLOC_ASYNC, malloc_async,
        (vmm_driver * driver, uint64_t size, vmm_stream stream, vmm_address *address),
        (driver, size, stream, address), size, stream)
METERED(FREE_ASYNC, free_async, (vmm_driver * driver, vmm_address address, vmm_stream stream),
        (driver, address, stream), address, stream)
METERED(POOL_CONFIGURE, pool_configure, (vmm_driver * driver, const vmm_pool_configuration *configuration),
        (driver, configuration), configuration ? configuration->release_threshold : 0,
        configuration ? configuration->maximum_bytes : 0)
METERED(POOL_TRIM, pool_trim, (vmm_driver * driver, uint64_t keep_bytes), (driver, keep_bytes), keep_bytes)
METERED(EVENT_RECORD, event_record, (vmm_driver * driver, vmm_stream stream, vmm_event *event),
        (driver, stream, event), stream)
METERED(EVENT_QUERY, event_query, (vmm_driver * driver, vmm_event event), (driver, event), event)
METERED(EVENT_WAIT, event_wait, (vmm_driver * driver, vmm_event event), (driver, event), event)
METERED(STREAM_WAIT_EVENT, stream_wait_event, (vmm_driver * driver, vmm_stream stream, vmm_event event),
        (driver, stream, event), stream, event)
METERED(SYNCHRONIZE, synchronize, (vmm_driver * driver), (driver), 0)
METERED(FILL, fill,
        (vmm_driver * driver, vmm_address address, uint64_t size, vmm_stream stream, uint64_t pattern),
        (driver, address, size, stream, pattern), address, size, stream, pattern)
METERED(VERIFY, verify,
        (vmm_driver * driver, vmm_address address, uint64_t size, vmm_stream stream, uint64_t pattern,
         vmm_mismatch *mismatch),
        (driver, address, size, stream, pattern, mismatch), address, size, stream, pattern)

/* Not metered: a look for statistics, which no allocator takes at every request. */
static vmm_status look_at_pool(vmm_driver *driver, vmm_pool_usage *usage) {
  meter *self = meter_of(driver);
  vmm_status status = vmm_pool_usage_get(self->wrapped, usage);
  return vmm_error_set(driver, status, VMM_CALL_POOL_USAGE, 0, 0, 0, 0);
}

/* Not metered: it is no call of the device. */
static void discard_event(vmm_driver *driver, vmm_event event) {
  vmm_event_discard(meter_of(driver)->wrapped, event);
}

static void destroy(vmm_driver *driver) {
  meter *self = meter_of(driver);
  free(self->calls[0].bins);
  free(self);
}

static const vmm_driver_operations meter_operations = {
    .name = "meter",
    .granularity = metered_granularity,
    .memory_info = metered_memory_info,
    .address_reserve = metered_address_reserve,
    .address_free = metered_address_free,
    .create = metered_create,
    .release = metered_release,
    .map = metered_map,
    .unmap = metered_unmap,
    .set_access = metered_set_access,
    .malloc = metered_malloc,
    .free = metered_free,
    .malloc_async = metered_malloc_async,
    .free_async = metered_free_async,
    .pool_configure = metered_pool_configure,
    .pool_usage = look_at_pool,
    .pool_trim = metered_pool_trim,
    .event_record = metered_event_record,
    .event_query = metered_event_query,
    .event_wait = metered_event_wait,
    .stream_wait_event = metered_stream_wait_event,
    .event_discard = discard_event,
    .synchronize = metered_synchronize,
    .fill = metered_fill,
    .verify = metered_verify,
    .destroy = destroy,
};

vmm_status vmm_meter_create(vmm_driver *wrapped, vmm_driver **created) {
  if (!created) return VMM_INVALID_VALUE;
  *created = NULL;
  if (!wrapped) return VMM_INVALID_VALUE;
  meter *self = calloc(1, sizeof *self);
  uint64_t *bins = calloc((size_t)VMM_CALL_COUNT * BIN_COUNT, sizeof *bins);
  if (!self || !bins) {
    free(self);
    free(bins);
    return VMM_OUT_OF_MEMORY;
  }
  self->driver.operations = &meter_operations;
  self->driver.busy_ns = wrapped->busy_ns;
  self->wrapped = wrapped;
  for (size_t call = 0; call < VMM_CALL_COUNT; call++) self->calls[call].bins = bins + call * BIN_COUNT;
  *created = &self->driver;
  return VMM_SUCCESS;
}

void vmm_meter_get(const vmm_driver *driver, vmm_call call, vmm_meter_call *counts) {
  *counts = meter_of_const(driver)->calls[call].counts;
}

uint64_t vmm_meter_percentile(const vmm_driver *driver, vmm_call call, double share) {
  const call_meter *metered = &meter_of_const(driver)->calls[call];
  const vmm_meter_call *counts = &metered->counts;
  if (counts->count == 0) return 0;
  if (!(share > 0)) return counts->minimum_ns;
  if (share >= 1) return counts->maximum_ns;
  /* Nearest rank: the smallest duration that at least this share of the calls does not exceed. */
  double exact_rank = share * (double)counts->count;
  uint64_t rank = (uint64_t)exact_rank;
  if ((double)rank < exact_rank) rank++;
  uint64_t seen = 0;
  for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
    seen += metered->bins[bin];
    if (seen < rank) continue;
    uint64_t lower = lower_bound_of(bin);
    uint64_t middle = bin + 1 < BIN_COUNT ? lower + (lower_bound_of(bin + 1) - lower) / 2 : lower;
    if (middle < counts->minimum_ns) return counts->minimum_ns;
    return middle > counts->maximum_ns ? counts->maximum_ns : middle;
  }
  return counts->maximum_ns;
}

size_t vmm_meter_histogram(const vmm_driver *driver, vmm_call call, uint64_t *lower_ns, uint64_t *count,
                           size_t capacity) {
  const call_meter *metered = &meter_of_const(driver)->calls[call];
  size_t written = 0;
  for (unsigned bin = 0; bin < BIN_COUNT && written < capacity; bin++) {
    if (metered->bins[bin] == 0) continue;
    lower_ns[written] = lower_bound_of(bin);
    count[written++] = metered->bins[bin];
  }
  return written;
}

void vmm_meter_reset(vmm_driver *driver) {
  meter *self = meter_of(driver);
  memset(self->calls[0].bins, 0, (size_t)VMM_CALL_COUNT * BIN_COUNT * sizeof(uint64_t));
  for (size_t call = 0; call < VMM_CALL_COUNT; call++) self->calls[call].counts = (vmm_meter_call){0};
}

void vmm_meter_observe(vmm_driver *driver, const vmm_meter_observer *observer) {
  meter_of(driver)->observer = observer;
}
