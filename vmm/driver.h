/* The device contract: the calls every driver (simulated, real, metered) answers.
 *
 * A driver is an object with a table of functions. Every call returns a status
 * whose values are those of the CUDA driver API (CUresult); no call exits,
 * aborts or prints. A call that fails leaves the device as it was. The rules
 * follow the CUDA Driver API's virtual memory management section and the error
 * codes that an H200 was measured to return.
 *
 * Reading order: vmm_status, vmm_call, vmm_driver_operations, vmm_driver.
 * All sizes are bytes, all times nanoseconds.
 */
#ifndef LAKEBED_VMM_DRIVER_H
#define LAKEBED_VMM_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* XX(name, CUresult value, text) */
#define VMM_STATUS_MAP(XX)                                                       \
  XX(SUCCESS, 0, "success")                                                      \
  XX(INVALID_VALUE, 1, "invalid value")                                          \
  XX(OUT_OF_MEMORY, 2, "out of memory")                                          \
  XX(NOT_INITIALIZED, 3, "driver not initialized")                               \
  XX(DEINITIALIZED, 4, "driver deinitialized")                                   \
  XX(STUB_LIBRARY, 34, "libcuda is a stub")                                      \
  XX(DEVICE_UNAVAILABLE, 46, "device in use or unavailable")                     \
  XX(NO_DEVICE, 100, "no device")                                                \
  XX(INVALID_DEVICE, 101, "invalid device")                                      \
  XX(INVALID_IMAGE, 200, "invalid kernel image")                                 \
  XX(INVALID_CONTEXT, 201, "invalid context")                                    \
  XX(NO_BINARY_FOR_GPU, 209, "no kernel image for this device")                  \
  XX(ECC_UNCORRECTABLE, 214, "uncorrectable memory error")                       \
  XX(INVALID_PTX, 218, "invalid PTX")                                            \
  XX(UNSUPPORTED_PTX_VERSION, 222, "PTX newer than the driver")                  \
  XX(OPERATING_SYSTEM, 304, "operating system call failed")                      \
  XX(INVALID_HANDLE, 400, "invalid handle")                                      \
  XX(ILLEGAL_STATE, 401, "illegal state")                                        \
  XX(NOT_FOUND, 500, "not found")                                                \
  XX(NOT_READY, 600, "not ready")                                                \
  XX(ILLEGAL_ADDRESS, 700, "illegal address")                                    \
  XX(LAUNCH_OUT_OF_RESOURCES, 701, "too few resources for the launch")           \
  XX(LAUNCH_TIMEOUT, 702, "kernel ran too long")                                 \
  XX(CONTEXT_IS_DESTROYED, 709, "context is destroyed")                          \
  XX(MISALIGNED_ADDRESS, 716, "misaligned address")                              \
  XX(LAUNCH_FAILED, 719, "kernel failed")                                        \
  XX(NOT_PERMITTED, 800, "operation not permitted")                              \
  XX(NOT_SUPPORTED, 801, "operation not supported")                              \
  XX(SYSTEM_NOT_READY, 802, "system not ready")                                  \
  XX(SYSTEM_DRIVER_MISMATCH, 803, "kernel driver and libcuda differ")            \
  XX(COMPAT_NOT_SUPPORTED_ON_DEVICE, 804, "forward compatibility not supported") \
  XX(UNKNOWN, 999, "unknown error")

typedef enum vmm_status {
#define XX(name, value, text) VMM_##name = value,
  VMM_STATUS_MAP(XX)
#undef XX
} vmm_status;

/* XX(name, name of the CUDA call that it stands for) */
#define VMM_CALL_MAP(XX)                           \
  XX(GRANULARITY, "cuMemGetAllocationGranularity") \
  XX(MEMORY_INFO, "cuMemGetInfo")                  \
  XX(ADDRESS_RESERVE, "cuMemAddressReserve")       \
  XX(ADDRESS_FREE, "cuMemAddressFree")             \
  XX(CREATE, "cuMemCreate")                        \
  XX(RELEASE, "cuMemRelease")                      \
  XX(MAP, "cuMemMap")                              \
  XX(UNMAP, "cuMemUnmap")                          \
  XX(SET_ACCESS, "cuMemSetAccess")                 \
  XX(MALLOC, "cuMemAlloc")                         \
  XX(FREE, "cuMemFree")                            \
  XX(MALLOC_ASYNC, "cuMemAllocAsync")              \
  XX(FREE_ASYNC, "cuMemFreeAsync")                 \
  XX(POOL_CONFIGURE, "cuMemPoolSetAttribute")      \
  XX(POOL_USAGE, "cuMemPoolGetAttribute")          \
  XX(POOL_TRIM, "cuMemPoolTrimTo")                 \
  XX(EVENT_RECORD, "cuEventRecord")                \
  XX(EVENT_QUERY, "cuEventQuery")                  \
  XX(EVENT_WAIT, "cuEventSynchronize")             \
  XX(STREAM_WAIT_EVENT, "cuStreamWaitEvent")       \
  XX(SYNCHRONIZE, "cuCtxSynchronize")              \
  XX(FILL, "fill")                                 \
  XX(VERIFY, "verify")

typedef enum vmm_call {
#define XX(name, text) VMM_CALL_##name,
  VMM_CALL_MAP(XX)
#undef XX
      VMM_CALL_COUNT
} vmm_call;

/* A stream is a small index that the caller chooses; 0 is the default stream.
 * The driver creates the real stream behind an index at its first use. */
typedef uint32_t vmm_stream;

/* A physical allocation, an address in device VA space, a recorded event. 0 is none. */
typedef uint64_t vmm_handle;
typedef uint64_t vmm_address;
typedef uint64_t vmm_event;

/* The first failing call since the last vmm_error_clear: what, with which
 * arguments, and what came back. Arguments are stored raw and formatted on demand. */
typedef struct vmm_error {
  vmm_status status;
  vmm_call call;
  uint64_t argument[4]; /* in the order of the call's parameters */
} vmm_error;

typedef struct vmm_driver vmm_driver;

/* What a filled region was found to hold where it differs from its pattern. */
typedef struct vmm_mismatch {
  uint64_t wrong_words;  /* 8-byte words that differ */
  uint64_t first_offset; /* byte offset of the first one */
  uint64_t expected;
  uint64_t found;
} vmm_mismatch;

/* How the stream-ordered pool behaves. One that nobody configured keeps all it has, has no bound, and
 * all reuse on. */
typedef struct vmm_pool_configuration {
  uint64_t release_threshold; /* what it holds beyond goes back when the host synchronises; UINT64_MAX:
                                 nothing does */
  uint64_t maximum_bytes; /* most that it may hold, rounded down to steps of the driver's own; UINT64_MAX: no
                             bound */
  bool reuse_event;       /* memory freed on a stream, for one that waits for an event after the free */
  bool reuse_opportunistic; /* memory whose free has completed, for any stream */
  bool reuse_internal;      /* memory of another stream, for which the driver makes the new one wait */
} vmm_pool_configuration;

/* What the pool holds of the device, and of that what is given out; at most since the pool was made. */
typedef struct vmm_pool_usage {
  uint64_t reserved_bytes, reserved_peak_bytes;
  uint64_t used_bytes, used_peak_bytes;
} vmm_pool_usage;

typedef struct vmm_driver_operations {
  const char *name; /* "sim", "cuda", "meter" */

  /* Multiple that sizes, alignments and mapping addresses must keep. */
  vmm_status (*granularity)(vmm_driver *driver, uint64_t *bytes);
  /* Physical memory free and in all. Reservations do not count. */
  vmm_status (*memory_info)(vmm_driver *driver, uint64_t *free_bytes, uint64_t *total_bytes);

  /* Reserves VA. size: a non-zero multiple of the granularity, else INVALID_VALUE.
   * alignment: 0 or a power of two. OUT_OF_MEMORY when VA is exhausted. */
  vmm_status (*address_reserve)(vmm_driver *driver, uint64_t size, uint64_t alignment, vmm_address *address);
  /* Exactly a reservation without mappings, else INVALID_VALUE. */
  vmm_status (*address_free)(vmm_driver *driver, vmm_address address, uint64_t size);

  /* Takes physical memory. size: a non-zero multiple of the granularity, else
   * INVALID_VALUE. OUT_OF_MEMORY beyond the device. One reference. */
  vmm_status (*create)(vmm_driver *driver, uint64_t size, vmm_handle *handle);
  /* Drops the reference. Legal while mapped: the memory goes with the last
   * mapping. INVALID_VALUE without a reference left. */
  vmm_status (*release)(vmm_driver *driver, vmm_handle handle);

  /* Maps a whole handle at a free, reserved, aligned place. No access yet.
   * INVALID_VALUE for size 0, for a handle whose memory is gone or that never
   * was; else NOT_SUPPORTED for offset != 0, for a size other than the handle's,
   * for a handle that is released but still mapped; else INVALID_VALUE onto a
   * mapped, unreserved or unaligned range. */
  vmm_status (*map)(vmm_driver *driver, vmm_address address, uint64_t size, uint64_t offset,
                    vmm_handle handle);
  /* Whole mappings only, else INVALID_VALUE and nothing is unmapped. Several in
   * one call are fine, as are places in between without a mapping, as long as
   * the range lies in one reservation. Does not wait for the GPU: the caller
   * has seen the work on the range complete. */
  vmm_status (*unmap)(vmm_driver *driver, vmm_address address, uint64_t size);
  /* Grants the device read and write access to one or more whole adjacent
   * mappings of one reservation; INVALID_VALUE on part of a mapping or where
   * the range begins or ends without one. Do not rely on what a hole between
   * two mappings does: an H200 lets it pass, the simulated device refuses. */
  vmm_status (*set_access)(vmm_driver *driver, vmm_address address, uint64_t size);

  /* One driver allocation, at a multiple of 512. INVALID_VALUE for size 0. */
  vmm_status (*malloc)(vmm_driver *driver, uint64_t size, vmm_address *address);
  /* Waits for the device's running work. INVALID_VALUE for an address that
   * malloc or malloc_async did not give or that is free already. 0: nothing is done. */
  vmm_status (*free)(vmm_driver *driver, vmm_address address);

  /* The driver's stream-ordered pool. Size 0 gives address 0, which may be freed. */
  vmm_status (*malloc_async)(vmm_driver *driver, uint64_t size, vmm_stream stream, vmm_address *address);
  vmm_status (*free_async)(vmm_driver *driver, vmm_address address, vmm_stream stream);
  /* maximum_bytes can be changed only while nothing is allocated in the pool, else NOT_PERMITTED.
   * NOT_SUPPORTED by a device without such pools, and for a bound that the driver is too old for. */
  vmm_status (*pool_configure)(vmm_driver *driver, const vmm_pool_configuration *configuration);
  /* A look at the pool, for statistics: no meter counts it. All zero before the pool's first use. */
  vmm_status (*pool_usage)(vmm_driver *driver, vmm_pool_usage *usage);
  /* Gives unused memory back until the pool holds no more than keep_bytes or nothing is left to give. What
   * was freed counts as used until the host has seen the free complete: synchronise first. */
  vmm_status (*pool_trim)(vmm_driver *driver, uint64_t keep_bytes);

  /* A point in a stream's work. event_query: SUCCESS when reached, NOT_READY
   * before. event_wait: the host waits. stream_wait_event: the stream waits.
   * event_discard returns the event to the driver's pool, reached or not. */
  vmm_status (*event_record)(vmm_driver *driver, vmm_stream stream, vmm_event *event);
  vmm_status (*event_query)(vmm_driver *driver, vmm_event event);
  vmm_status (*event_wait)(vmm_driver *driver, vmm_event event);
  vmm_status (*stream_wait_event)(vmm_driver *driver, vmm_stream stream, vmm_event event);
  void (*event_discard)(vmm_driver *driver, vmm_event event);
  /* The host waits for all work of the device. */
  vmm_status (*synchronize)(vmm_driver *driver);

  /* Verification, in stream order. fill writes vmm_pattern_word(pattern, i) to
   * each 8-byte word i and the low bytes of the next to the tail; verify
   * compares and waits. NOT_SUPPORTED by a simulated device that is not backed. */
  vmm_status (*fill)(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                     uint64_t pattern);
  vmm_status (*verify)(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                       uint64_t pattern, vmm_mismatch *mismatch);

  /* Frees the driver object and what it holds of the device. */
  void (*destroy)(vmm_driver *driver);
} vmm_driver_operations;

struct vmm_driver {
  const vmm_driver_operations *operations;
  vmm_error error;  /* first failure since the last clear */
  uint64_t busy_ns; /* time spent in this driver's calls so far: modelled by sim, measured by cuda */
};

/* "CUDA_ERROR_OUT_OF_MEMORY" and "out of memory"; "CUDA_ERROR_UNKNOWN" for values not in the map. Static. */
const char *vmm_status_name(vmm_status status);
const char *vmm_status_text(vmm_status status);
/* "cuMemCreate" and so on. Static. */
const char *vmm_call_name(vmm_call call);

/* Stores the failure if none is stored. Returns status, so that a driver can
 * end a call with it. O(1). */
vmm_status vmm_error_set(vmm_driver *driver, vmm_status status, vmm_call call, uint64_t argument0,
                         uint64_t argument1, uint64_t argument2, uint64_t argument3);
/* Forgets the stored failure: the caller has handled it. */
void vmm_error_clear(vmm_driver *driver);
/* Writes "cuMemCreate(size=2097152) returned CUDA_ERROR_OUT_OF_MEMORY (2): out of
 * memory" to text, always terminated. Empty when nothing is stored. Where addresses ran
 * out and not memory, it says so. */
void vmm_error_format(const vmm_error *error, char *text, size_t text_size);

/* The word that fill puts at word index i of a region with this pattern. */
static inline uint64_t vmm_pattern_word(uint64_t pattern, uint64_t index) {
  return (pattern ^ (index * UINT64_C(0x9E3779B97F4A7C15))) + index;
}

/* Short forms, so that callers read vmm_create(driver, ...). */
static inline vmm_status vmm_granularity(vmm_driver *driver, uint64_t *bytes) {
  return driver->operations->granularity(driver, bytes);
}
static inline vmm_status vmm_memory_info(vmm_driver *driver, uint64_t *free_bytes, uint64_t *total_bytes) {
  return driver->operations->memory_info(driver, free_bytes, total_bytes);
}
static inline vmm_status vmm_address_reserve(vmm_driver *driver, uint64_t size, uint64_t alignment,
                                             vmm_address *address) {
  return driver->operations->address_reserve(driver, size, alignment, address);
}
static inline vmm_status vmm_address_free(vmm_driver *driver, vmm_address address, uint64_t size) {
  return driver->operations->address_free(driver, address, size);
}
static inline vmm_status vmm_create(vmm_driver *driver, uint64_t size, vmm_handle *handle) {
  return driver->operations->create(driver, size, handle);
}
static inline vmm_status vmm_release(vmm_driver *driver, vmm_handle handle) {
  return driver->operations->release(driver, handle);
}
static inline vmm_status vmm_map(vmm_driver *driver, vmm_address address, uint64_t size, uint64_t offset,
                                 vmm_handle handle) {
  return driver->operations->map(driver, address, size, offset, handle);
}
static inline vmm_status vmm_unmap(vmm_driver *driver, vmm_address address, uint64_t size) {
  return driver->operations->unmap(driver, address, size);
}
static inline vmm_status vmm_set_access(vmm_driver *driver, vmm_address address, uint64_t size) {
  return driver->operations->set_access(driver, address, size);
}
static inline vmm_status vmm_malloc(vmm_driver *driver, uint64_t size, vmm_address *address) {
  return driver->operations->malloc(driver, size, address);
}
static inline vmm_status vmm_free(vmm_driver *driver, vmm_address address) {
  return driver->operations->free(driver, address);
}
static inline vmm_status vmm_malloc_async(vmm_driver *driver, uint64_t size, vmm_stream stream,
                                          vmm_address *address) {
  return driver->operations->malloc_async(driver, size, stream, address);
}
static inline vmm_status vmm_free_async(vmm_driver *driver, vmm_address address, vmm_stream stream) {
  return driver->operations->free_async(driver, address, stream);
}
static inline vmm_status vmm_pool_configure(vmm_driver *driver, const vmm_pool_configuration *configuration) {
  return driver->operations->pool_configure(driver, configuration);
}
static inline vmm_status vmm_pool_usage_get(vmm_driver *driver, vmm_pool_usage *usage) {
  return driver->operations->pool_usage(driver, usage);
}
static inline vmm_status vmm_pool_trim(vmm_driver *driver, uint64_t keep_bytes) {
  return driver->operations->pool_trim(driver, keep_bytes);
}
static inline vmm_status vmm_event_record(vmm_driver *driver, vmm_stream stream, vmm_event *event) {
  return driver->operations->event_record(driver, stream, event);
}
static inline vmm_status vmm_event_query(vmm_driver *driver, vmm_event event) {
  return driver->operations->event_query(driver, event);
}
static inline vmm_status vmm_event_wait(vmm_driver *driver, vmm_event event) {
  return driver->operations->event_wait(driver, event);
}
static inline vmm_status vmm_stream_wait_event(vmm_driver *driver, vmm_stream stream, vmm_event event) {
  return driver->operations->stream_wait_event(driver, stream, event);
}
static inline void vmm_event_discard(vmm_driver *driver, vmm_event event) {
  driver->operations->event_discard(driver, event);
}
static inline vmm_status vmm_synchronize(vmm_driver *driver) {
  return driver->operations->synchronize(driver);
}
static inline vmm_status vmm_fill(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                                  uint64_t pattern) {
  return driver->operations->fill(driver, address, size, stream, pattern);
}
static inline vmm_status vmm_verify(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                                    uint64_t pattern, vmm_mismatch *mismatch) {
  return driver->operations->verify(driver, address, size, stream, pattern, mismatch);
}
/* Accepts NULL. */
static inline void vmm_driver_destroy(vmm_driver *driver) {
  if (driver) driver->operations->destroy(driver);
}

#endif
