/* libcuda, loaded at run time: its functions and what its errors mean. The files vmm/cuda*.c
 * are the only ones that include CUDA's header. */
#ifndef LAKEBED_VMM_CUDA_LIBRARY_H
#define LAKEBED_VMM_CUDA_LIBRARY_H

#include <cuda.h>

#include "vmm/driver.h"

/* XX(name without cu, exported name, CUDA version in which this signature appeared) */
#define CUDA_FUNCTION_MAP(XX)                                             \
  XX(Init, "cuInit", 2000)                                                \
  XX(DriverGetVersion, "cuDriverGetVersion", 2020)                        \
  XX(GetErrorName, "cuGetErrorName", 6000)                                \
  XX(GetErrorString, "cuGetErrorString", 6000)                            \
  XX(DeviceGetCount, "cuDeviceGetCount", 2000)                            \
  XX(DeviceGet, "cuDeviceGet", 2000)                                      \
  XX(DeviceGetName, "cuDeviceGetName", 2000)                              \
  XX(DeviceGetAttribute, "cuDeviceGetAttribute", 2000)                    \
  XX(DeviceTotalMem, "cuDeviceTotalMem_v2", 3020)                         \
  XX(DeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010)                      \
  XX(DeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000)                  \
  XX(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000)            \
  XX(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", 11000)      \
  XX(CtxGetCurrent, "cuCtxGetCurrent", 4000)                              \
  XX(CtxSetCurrent, "cuCtxSetCurrent", 4000)                              \
  XX(CtxSynchronize, "cuCtxSynchronize", 2000)                            \
  XX(MemGetInfo, "cuMemGetInfo_v2", 3020)                                 \
  XX(MemGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020) \
  XX(MemAddressReserve, "cuMemAddressReserve", 10020)                     \
  XX(MemAddressFree, "cuMemAddressFree", 10020)                           \
  XX(MemCreate, "cuMemCreate", 10020)                                     \
  XX(MemRelease, "cuMemRelease", 10020)                                   \
  XX(MemMap, "cuMemMap", 10020)                                           \
  XX(MemUnmap, "cuMemUnmap", 10020)                                       \
  XX(MemSetAccess, "cuMemSetAccess", 10020)                               \
  XX(MemAlloc, "cuMemAlloc_v2", 3020)                                     \
  XX(MemFree, "cuMemFree_v2", 3020)                                       \
  XX(MemPoolCreate, "cuMemPoolCreate", 11020)                             \
  XX(MemPoolDestroy, "cuMemPoolDestroy", 11020)                           \
  XX(MemPoolSetAttribute, "cuMemPoolSetAttribute", 11020)                 \
  XX(MemPoolGetAttribute, "cuMemPoolGetAttribute", 11020)                 \
  XX(MemPoolSetAccess, "cuMemPoolSetAccess", 11020)                       \
  XX(MemPoolTrimTo, "cuMemPoolTrimTo", 11020)                             \
  XX(MemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020)             \
  XX(MemFreeAsync, "cuMemFreeAsync", 11020)                               \
  XX(StreamCreate, "cuStreamCreate", 2000)                                \
  XX(StreamDestroy, "cuStreamDestroy_v2", 4000)                           \
  XX(StreamSynchronize, "cuStreamSynchronize", 2000)                      \
  XX(StreamWaitEvent, "cuStreamWaitEvent", 3020)                          \
  XX(EventCreate, "cuEventCreate", 2000)                                  \
  XX(EventDestroy, "cuEventDestroy_v2", 4000)                             \
  XX(EventRecord, "cuEventRecord", 2000)                                  \
  XX(EventQuery, "cuEventQuery", 2000)                                    \
  XX(EventSynchronize, "cuEventSynchronize", 2000)                        \
  XX(EventElapsedTime, "cuEventElapsedTime", 2000)                        \
  XX(ModuleLoadData, "cuModuleLoadData", 2000)                            \
  XX(ModuleUnload, "cuModuleUnload", 2000)                                \
  XX(ModuleGetFunction, "cuModuleGetFunction", 2000)                      \
  XX(LaunchKernel, "cuLaunchKernel", 4000)                                \
  XX(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", 3020)                       \
  XX(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", 3020)                       \
  XX(MemsetD8Async, "cuMemsetD8Async", 3020)                              \
  XX(MemHostAlloc, "cuMemHostAlloc", 2020)                                \
  XX(MemFreeHost, "cuMemFreeHost", 2000)                                  \
  XX(MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", 3020)

/* api->MemCreate(...) is cuMemCreate(...). */
typedef struct cuda_library {
#define XX(name, exported, version) __typeof__(cu##name) *name;
  CUDA_FUNCTION_MAP(XX)
#undef XX
  int version;    /* highest that the driver supports */
  char path[256]; /* of the file that was loaded; empty: not known */
} cuda_library;

/* The oldest driver that has everything: stream-ordered pools came with it. */
#define CUDA_OLDEST_VERSION 11020

/* Loads and initialises the library, once for the process; a failure is tried anew. Thread-safe. On
 * failure message says what is wrong and what to do. */
vmm_status cuda_library_get(const cuda_library **library, char *message, size_t message_size);

/* "cuInit returned CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected". */
void cuda_describe(const cuda_library *library, CUresult result, const char *call, char *text,
                   size_t text_size);

#endif
