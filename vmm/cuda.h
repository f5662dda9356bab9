/* The device contract on a real NVIDIA GPU, and what benchmarks and 'lakebed doctor' need of
 * it beyond the contract. The CUDA driver is loaded when the first device is created (libcuda.so.1,
 * CUDA 11.2 and later): a program that includes this header runs without one, and needs no
 * header of CUDA. In a program that was built without the CUDA toolkit, every function
 * that can fail returns NO_DEVICE and says so.
 *
 * The driver object that vmm_cuda_create makes:
 *  - a vmm_handle is a CUmemGenericAllocationHandle, a vmm_address a CUdeviceptr;
 *  - busy_ns is the measured time of the driver calls themselves;
 *  - stream 0 is the legacy default stream, the others do not synchronise with it;
 *  - destroy gives back whatever is still allocated through the object;
 *  - an error that destroys the CUDA context (ILLEGAL_ADDRESS) comes back from every later call.
 *
 * A driver object is not thread-safe. Several objects of one device share its primary
 * context and may be used by one thread each. Memory of one is accessible to kernels of all,
 * but a handle or address is given back, and a handle mapped, through the object that made it: the
 * driver follows a handle that is none as a pointer. */
#ifndef LAKEBED_VMM_CUDA_H
#define LAKEBED_VMM_CUDA_H

#include "vmm/driver.h"

typedef enum vmm_cuda_handle_type {
  VMM_CUDA_HANDLE_NONE,
  VMM_CUDA_HANDLE_POSIX_FD /* can be exported as a file descriptor */
} vmm_cuda_handle_type;

/* All zero: the first device, plain memory. */
typedef struct vmm_cuda_configuration {
  unsigned ordinal;
  vmm_cuda_handle_type handle_type;
  bool gpu_direct; /* memory that other PCIe devices can reach (GPUDirect RDMA) */
  const unsigned
      *peers; /* devices that are granted access too where they are capable of it; borrowed for the call */
  size_t peer_count;
  bool pool_releases; /* the pool of malloc_async gives memory beyond pool_release_threshold back when
                       * the host synchronises; false: it keeps all */
  uint64_t pool_release_threshold;
} vmm_cuda_configuration;

/* Opens a device. The caller destroys it with vmm_driver_destroy. NO_DEVICE without
 * libcuda or a device, INVALID_DEVICE for an ordinal that does not exist, NOT_SUPPORTED when
 * the device has no virtual memory management or not what the configuration asks for, else the failing call's
 * status. message: one sentence, always terminated. */
vmm_status vmm_cuda_create(const vmm_cuda_configuration *configuration, vmm_driver **driver, char *message,
                           size_t message_size);

typedef struct vmm_cuda_attribute {
  const char *name; /* "virtual memory management"; static */
  int number;       /* CUdevice_attribute */
  int value;        /* -1: this driver does not know it */
} vmm_cuda_attribute;

enum { VMM_CUDA_ATTRIBUTES = 32 };

typedef struct vmm_cuda_information {
  char device[256];        /* "NVIDIA H200" */
  char driver_version[64]; /* "580.159.04"; empty when the system does not tell */
  int cuda_version;        /* highest that the driver supports, 13000 is 13.0 */
  int cuda_build_version;  /* of the headers that this program was built with; 0: none */
  char library[256];       /* the file that was loaded for libcuda.so.1; empty: not known */
  char bus[32];            /* "0000:0b:00.0" */
  unsigned ordinal, device_count;
  unsigned peers; /* of an open device: how many others are granted access to its memory */
  int compute_major, compute_minor;
  int multiprocessors;
  uint64_t total_bytes; /* of the device */
  /* Attributes that decide what the memory calls can do. */
  vmm_cuda_attribute attributes[VMM_CUDA_ATTRIBUTES];
  size_t attribute_count;
} vmm_cuda_information;

/* What can be known of a device without opening it. Whatever was found out before a failure
 * is filled in, the rest is zero. Same errors as vmm_cuda_create. */
vmm_status vmm_cuda_inspect(unsigned ordinal, vmm_cuda_information *information, char *message,
                            size_t message_size);
/* The same of an open device; cannot fail. */
const vmm_cuda_information *vmm_cuda_information_of(const vmm_driver *driver);
/* Granularities for exactly the memory that the driver object creates. */
vmm_status vmm_cuda_granularities(vmm_driver *driver, uint64_t *minimum, uint64_t *recommended);

/* What is allocated through a driver object now. O(1). */
typedef struct vmm_cuda_usage {
  uint64_t physical_bytes; /* handles with a reference or a mapping, cuMemAlloc and pool allocations as asked
                              for */
  uint64_t reserved_address_bytes;
  uint64_t handles;
  uint64_t mappings;
  uint64_t reservations;
  uint64_t mallocs;      /* live cuMemAlloc allocations */
  uint64_t async;        /* live pool allocations */
  uint64_t events;       /* recorded and not discarded */
  uint64_t stream_bytes; /* free memory that went with the creation of streams: the driver keeps it for later
                          * ones as long as the context lives */
} vmm_cuda_usage;
void vmm_cuda_usage_get(const vmm_driver *driver, vmm_cuda_usage *usage);

/* From now on index stands for a CUstream of the caller's, who keeps it alive as long as the driver object
 * and destroys it. INVALID_VALUE for index 0, for NULL, and for an index that stands for a stream already. */
vmm_status vmm_cuda_stream_adopt(vmm_driver *driver, vmm_stream index, void *stream);

/* ---- kernels ---- */

typedef struct vmm_cuda_module vmm_cuda_module;

/* Loads a PTX text (ending in '\0'), cubin or fatbin. The caller unloads it before the driver
 * object is destroyed. */
vmm_status vmm_cuda_module_load(vmm_driver *driver, const void *image, size_t size, vmm_cuda_module **module,
                                char *message, size_t message_size);
/* Loads what was built from vmm/kernels/NAME.cu. NOT_FOUND when there is none. */
vmm_status vmm_cuda_module_load_built_in(vmm_driver *driver, const char *name, vmm_cuda_module **module,
                                         char *message, size_t message_size);
void vmm_cuda_module_unload(vmm_driver *driver, vmm_cuda_module *module);

typedef struct vmm_cuda_shape {
  uint32_t grid[3], block[3]; /* 0 counts as 1 */
  uint32_t shared_bytes;      /* dynamic shared memory of a block */
} vmm_cuda_shape;

/* Launches an extern "C" kernel. arguments: a pointer to each parameter's value, in order. Returns as soon as
 * it is queued. NOT_FOUND when the module has no such kernel. */
vmm_status vmm_cuda_launch(vmm_driver *driver, vmm_cuda_module *module, const char *kernel,
                           const vmm_cuda_shape *shape, vmm_stream stream, void **arguments);

/* As event_record, but the event knows its time. For event_query, event_wait, event_discard too. */
vmm_status vmm_cuda_time_record(vmm_driver *driver, vmm_stream stream, vmm_event *event);
/* Device time between two such events that have been reached (NOT_READY before). */
vmm_status vmm_cuda_time_between(vmm_driver *driver, vmm_event begin, vmm_event end, double *milliseconds);

/* In stream order, to and from the host; waits until done. */
vmm_status vmm_cuda_copy_to(vmm_driver *driver, vmm_address destination, const void *source, uint64_t size,
                            vmm_stream stream);
vmm_status vmm_cuda_copy_from(vmm_driver *driver, void *destination, vmm_address source, uint64_t size,
                              vmm_stream stream);
/* Sets bytes; returns as soon as it is queued. */
vmm_status vmm_cuda_set_bytes(vmm_driver *driver, vmm_address address, uint8_t value, uint64_t size,
                              vmm_stream stream);

/* Pinned host memory that kernels reach at *device_address. NULL on failure. */
void *vmm_cuda_host_alloc(vmm_driver *driver, uint64_t size, vmm_address *device_address);
void vmm_cuda_host_free(vmm_driver *driver, void *memory);

/* The last failure of a function of this header that is no call of the contract: "cuLaunchKernel returned
 * CUDA_ERROR_...". Empty: none. */
const char *vmm_cuda_failure(const vmm_driver *driver);

#endif
