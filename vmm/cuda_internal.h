/* What the files of the real device share. One file a subject:
 *   cuda_library.c  libcuda and its functions
 *   cuda_inspect.c  what a device is, without opening it
 *   cuda.c          the object, its table of functions, errors
 *   cuda_map.c      reservations, handles, mappings, access
 *   cuda_malloc.c   cuMemAlloc and the stream-ordered pool
 *   cuda_stream.c   streams, events, synchronisation
 *   cuda_kernel.c   modules, launches, copies, fill and verify
 *   cuda_ledger.c   what is allocated
 *   cuda_absent.c   all of it in a program that is built without the CUDA toolkit */
#ifndef LAKEBED_VMM_CUDA_INTERNAL_H
#define LAKEBED_VMM_CUDA_INTERNAL_H

#include <time.h>

#include "vmm/cuda.h"
#include "vmm/cuda_ledger.h"
#include "vmm/cuda_library.h"

enum { CUDA_PEERS_LIMIT = 32, CUDA_STREAMS_LIMIT = 1 << 16 };

/* The device's attributes that the driver asks by number; the names are newer than the oldest header. */
enum {
  CUDA_ATTRIBUTE_MULTIPROCESSORS = 16,
  CUDA_ATTRIBUTE_COMPUTE_MAJOR = 75,
  CUDA_ATTRIBUTE_COMPUTE_MINOR = 76,
  CUDA_ATTRIBUTE_VMM = 102,
  CUDA_ATTRIBUTE_POSIX_FD = 103,
  CUDA_ATTRIBUTE_GPU_DIRECT_VMM = 110,
  CUDA_ATTRIBUTE_POOLS = 115
};

typedef struct cuda_stream {
  CUstream stream; /* NULL: not created yet */
  bool adopted;    /* not ours to destroy */
} cuda_stream;

typedef struct cuda_event {
  CUevent event;
  uint32_t generation;
  uint32_t next_unused;
  bool live, timed;
} cuda_event;

typedef struct vmm_cuda {
  vmm_driver driver; /* first: a vmm_driver * is a vmm_cuda * */
  const cuda_library *api;
  vmm_cuda_information information;
  vmm_cuda_configuration configuration;
  CUdevice device;
  CUcontext context;
  bool context_retained;
  CUmemAllocationProp properties;
  CUmemAccessDesc access[1 + CUDA_PEERS_LIMIT]; /* the device, then its peers */
  size_t access_count;
  uint64_t granularity;
  cuda_ledger ledger;
  char failure[512];

  /* cuda_stream.c */
  cuda_stream *streams;
  uint32_t stream_count;
  cuda_event *events;
  uint32_t events_used, events_capacity;
  uint32_t first_unused_event[2]; /* plain, timed */

  /* cuda_malloc.c */
  CUmemoryPool pool;
  vmm_pool_configuration pool_configuration;

  /* cuda_kernel.c */
  vmm_cuda_module *patterns; /* the kernels of fill and verify */
  uint64_t *findings;        /* what verify writes, in host memory */
  vmm_address findings_address;
} vmm_cuda;

static inline vmm_cuda *cuda_of(vmm_driver *driver) { return (vmm_cuda *)driver; }
static inline const vmm_cuda *cuda_of_const(const vmm_driver *driver) { return (const vmm_cuda *)driver; }

/* The context that a call found current, and when the call began. */
typedef struct cuda_span {
  CUcontext before;
  uint64_t begin_ns;
} cuda_span;

static inline uint64_t cuda_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Makes the object's context current for the calls up to cuda_leave, and starts the clock. On failure
 * cuda_leave is called all the same. */
static inline CUresult cuda_enter(vmm_cuda *cuda, cuda_span *span) {
  CUresult result = cuda->api->CtxGetCurrent(&span->before);
  if (result == CUDA_SUCCESS && span->before != cuda->context)
    result = cuda->api->CtxSetCurrent(cuda->context);
  span->begin_ns = cuda_clock_ns();
  return result;
}
/* Adds the time since cuda_enter to busy_ns. A thread that had another context current gets it back; one that
 * had none keeps the object's. */
static inline void cuda_leave(vmm_cuda *cuda, const cuda_span *span) {
  cuda->driver.busy_ns += cuda_clock_ns() - span->begin_ns;
  if (span->before != cuda->context && span->before) cuda->api->CtxSetCurrent(span->before);
}

/* Ends a refused call of the contract: stores the error. */
static inline vmm_status cuda_refuse(vmm_cuda *cuda, vmm_status status, vmm_call call, uint64_t argument0,
                                     uint64_t argument1, uint64_t argument2, uint64_t argument3) {
  return vmm_error_set(&cuda->driver, status, call, argument0, argument1, argument2, argument3);
}
/* Ends a failed call that is not of the contract: notes what failed for vmm_cuda_failure. */
vmm_status cuda_fail(vmm_cuda *cuda, CUresult result, const char *call);

/* cuda_inspect.c */
vmm_status cuda_inspect(const cuda_library *library, unsigned ordinal, CUdevice *device,
                        vmm_cuda_information *information, char *message, size_t message_size);
/* The value of an attribute; 0 when the driver does not know it. */
int cuda_attribute(const cuda_library *library, CUdevice device, int number);

/* cuda_map.c */
vmm_status cuda_address_reserve(vmm_driver *driver, uint64_t size, uint64_t alignment, vmm_address *address);
vmm_status cuda_address_free(vmm_driver *driver, vmm_address address, uint64_t size);
vmm_status cuda_create(vmm_driver *driver, uint64_t size, vmm_handle *handle);
vmm_status cuda_release(vmm_driver *driver, vmm_handle handle);
vmm_status cuda_map(vmm_driver *driver, vmm_address address, uint64_t size, uint64_t offset,
                    vmm_handle handle);
vmm_status cuda_unmap(vmm_driver *driver, vmm_address address, uint64_t size);
vmm_status cuda_set_access(vmm_driver *driver, vmm_address address, uint64_t size);

/* cuda_malloc.c */
void cuda_pool_destroy(vmm_cuda *cuda);
vmm_status cuda_malloc(vmm_driver *driver, uint64_t size, vmm_address *address);
vmm_status cuda_free(vmm_driver *driver, vmm_address address);
vmm_status cuda_malloc_async(vmm_driver *driver, uint64_t size, vmm_stream stream, vmm_address *address);
vmm_status cuda_free_async(vmm_driver *driver, vmm_address address, vmm_stream stream);
vmm_status cuda_pool_configure(vmm_driver *driver, const vmm_pool_configuration *configuration);
vmm_status cuda_pool_usage(vmm_driver *driver, vmm_pool_usage *usage);
vmm_status cuda_pool_trim(vmm_driver *driver, uint64_t keep_bytes);

/* cuda_stream.c */
void cuda_streams_destroy(vmm_cuda *cuda);
/* The stream behind an index, made at its first use. The context must be current. */
vmm_status cuda_stream_of(vmm_cuda *cuda, vmm_stream index, CUstream *stream);
vmm_status cuda_event_record(vmm_driver *driver, vmm_stream stream, vmm_event *event);
vmm_status cuda_event_query(vmm_driver *driver, vmm_event event);
vmm_status cuda_event_wait(vmm_driver *driver, vmm_event event);
vmm_status cuda_stream_wait_event(vmm_driver *driver, vmm_stream stream, vmm_event event);
void cuda_event_discard(vmm_driver *driver, vmm_event event);
vmm_status cuda_synchronize(vmm_driver *driver);

/* cuda_kernel.c */
void cuda_patterns_destroy(vmm_cuda *cuda);
vmm_status cuda_fill(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                     uint64_t pattern);
vmm_status cuda_verify(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                       uint64_t pattern, vmm_mismatch *mismatch);

#endif
