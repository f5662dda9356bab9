#include "vmm/cuda_internal.h"

vmm_status cuda_malloc(vmm_driver *driver, uint64_t size, vmm_address *address) {
  vmm_cuda *cuda = cuda_of(driver);
  const vmm_call call = VMM_CALL_MALLOC;
  if (!address) return cuda_refuse(cuda, VMM_INVALID_VALUE, call, size, 0, 0, 0);
  if (!cuda_ledger_prepare(&cuda->ledger)) return cuda_refuse(cuda, VMM_OUT_OF_MEMORY, call, size, 0, 0, 0);
  CUdeviceptr allocated = 0;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemAlloc(&allocated, size);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) return cuda_refuse(cuda, (vmm_status)result, call, size, 0, 0, 0);
  cuda_ledger_allocate(&cuda->ledger, allocated, size, false);
  *address = allocated;
  return VMM_SUCCESS;
}

vmm_status cuda_free(vmm_driver *driver, vmm_address address) {
  vmm_cuda *cuda = cuda_of(driver);
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemFree(address);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) return cuda_refuse(cuda, (vmm_status)result, VMM_CALL_FREE, address, 0, 0, 0);
  cuda_ledger_deallocate(&cuda->ledger, address);
  return VMM_SUCCESS;
}

/* The driver rounds a pool's bound up to steps of this size (seen on an H200, driver 580.159.04). */
#define POOL_STEP_BYTES (UINT64_C(32) << 20)

/* Can a pool hold anything at all? To the driver a bound of 0 is none. */
static bool pool_can_hold(const vmm_cuda *cuda) {
  return cuda->pool_configuration.maximum_bytes >= POOL_STEP_BYTES;
}

/* Threshold and reuse of a pool. */
static CUresult apply_configuration(const vmm_cuda *cuda, CUmemoryPool pool) {
  const vmm_pool_configuration *wanted = &cuda->pool_configuration;
  cuuint64_t threshold = wanted->release_threshold;
  int flags[] = {wanted->reuse_event, wanted->reuse_opportunistic, wanted->reuse_internal};
  static const CUmemPool_attribute attributes[] = {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                                   CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                                   CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
  CUresult result = cuda->api->MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
  for (size_t i = 0; i < 3 && result == CUDA_SUCCESS; i++)
    result = cuda->api->MemPoolSetAttribute(pool, attributes[i], &flags[i]);
  return result;
}

/* A pool of this object's own, which nothing else of the process allocates from. */
static CUresult make_pool(vmm_cuda *cuda) {
  CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .handleTypes = CU_MEM_HANDLE_TYPE_NONE,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device}};
  if (cuda->pool_configuration.maximum_bytes != UINT64_MAX) {
#if CUDA_VERSION >= 12020
    if (cuda->api->version < 12020) return CUDA_ERROR_NOT_SUPPORTED;
    properties.maxSize = pool_can_hold(cuda) ? cuda->pool_configuration.maximum_bytes & ~(POOL_STEP_BYTES - 1)
                                             : POOL_STEP_BYTES;
#else
    return CUDA_ERROR_NOT_SUPPORTED;
#endif
  }
  CUmemoryPool pool;
  CUresult result = cuda->api->MemPoolCreate(&pool, &properties);
  if (result != CUDA_SUCCESS) return result;
  result = apply_configuration(cuda, pool);
  /* The device that the pool lies on has access anyway. */
  if (result == CUDA_SUCCESS && cuda->access_count > 1) {
    result = cuda->api->MemPoolSetAccess(pool, cuda->access + 1, cuda->access_count - 1);
  }
  if (result != CUDA_SUCCESS) {
    cuda->api->MemPoolDestroy(pool);
    return result;
  }
  cuda->pool = pool;
  return CUDA_SUCCESS;
}

void cuda_pool_destroy(vmm_cuda *cuda) {
  if (cuda->pool) cuda->api->MemPoolDestroy(cuda->pool);
  cuda->pool = NULL;
}

static vmm_status need_pool(vmm_cuda *cuda) {
  if (cuda->pool) return VMM_SUCCESS;
  if (!cuda_attribute(cuda->api, cuda->device, CUDA_ATTRIBUTE_POOLS)) return VMM_NOT_SUPPORTED;
  return (vmm_status)make_pool(cuda);
}

/* The pool and the stream of a call, which are no part of its time. */
static vmm_status pool_and_stream(vmm_cuda *cuda, vmm_stream index, CUstream *stream) {
  vmm_status status = need_pool(cuda);
  return status == VMM_SUCCESS ? cuda_stream_of(cuda, index, stream) : status;
}

vmm_status cuda_malloc_async(vmm_driver *driver, uint64_t size, vmm_stream index, vmm_address *address) {
  vmm_cuda *cuda = cuda_of(driver);
  const vmm_call call = VMM_CALL_MALLOC_ASYNC;
  if (!address) return cuda_refuse(cuda, VMM_INVALID_VALUE, call, size, index, 0, 0);
  if (!cuda_ledger_prepare(&cuda->ledger))
    return cuda_refuse(cuda, VMM_OUT_OF_MEMORY, call, size, index, 0, 0);
  CUdeviceptr allocated = 0;
  CUstream stream;
  cuda_span span;
  vmm_status status = (vmm_status)cuda_enter(cuda, &span);
  if (status == VMM_SUCCESS) status = pool_and_stream(cuda, index, &stream);
  if (status == VMM_SUCCESS && size > 0 && !pool_can_hold(cuda)) status = VMM_OUT_OF_MEMORY;
  span.begin_ns = cuda_clock_ns();
  if (status == VMM_SUCCESS) {
    status = (vmm_status)cuda->api->MemAllocFromPoolAsync(&allocated, size, cuda->pool, stream);
  }
  cuda_leave(cuda, &span);
  if (status != VMM_SUCCESS) return cuda_refuse(cuda, status, call, size, index, 0, 0);
  cuda_ledger_allocate(&cuda->ledger, allocated, size, true);
  *address = allocated;
  return VMM_SUCCESS;
}

vmm_status cuda_free_async(vmm_driver *driver, vmm_address address, vmm_stream index) {
  vmm_cuda *cuda = cuda_of(driver);
  CUstream stream;
  cuda_span span;
  vmm_status status = (vmm_status)cuda_enter(cuda, &span);
  if (status == VMM_SUCCESS) status = cuda_stream_of(cuda, index, &stream);
  span.begin_ns = cuda_clock_ns();
  if (status == VMM_SUCCESS) status = (vmm_status)cuda->api->MemFreeAsync(address, stream);
  cuda_leave(cuda, &span);
  if (status != VMM_SUCCESS) return cuda_refuse(cuda, status, VMM_CALL_FREE_ASYNC, address, index, 0, 0);
  cuda_ledger_deallocate(&cuda->ledger, address);
  return VMM_SUCCESS;
}

/* Makes the pool as configured, or gives the one there is the new configuration. Its bound is
 * settled when it is made. */
static vmm_status configure(vmm_cuda *cuda, const vmm_pool_configuration *wanted) {
  const bool new_bound = wanted->maximum_bytes != cuda->pool_configuration.maximum_bytes;
  const vmm_pool_configuration former = cuda->pool_configuration;
  if (new_bound && cuda->ledger.usage.async > 0) return VMM_NOT_PERMITTED;
  if (new_bound) cuda_pool_destroy(cuda);
  cuda->pool_configuration = *wanted;
  vmm_status status = cuda->pool ? (vmm_status)apply_configuration(cuda, cuda->pool) : need_pool(cuda);
  if (status != VMM_SUCCESS) {
    cuda->pool_configuration = former;
    if (cuda->pool) apply_configuration(cuda, cuda->pool);
  }
  return status;
}

vmm_status cuda_pool_configure(vmm_driver *driver, const vmm_pool_configuration *configuration) {
  vmm_cuda *cuda = cuda_of(driver);
  const vmm_call call = VMM_CALL_POOL_CONFIGURE;
  if (!configuration) return cuda_refuse(cuda, VMM_INVALID_VALUE, call, 0, 0, 0, 0);
  cuda_span span;
  vmm_status status = (vmm_status)cuda_enter(cuda, &span);
  if (status == VMM_SUCCESS) status = configure(cuda, configuration);
  cuda_leave(cuda, &span);
  if (status == VMM_SUCCESS) return VMM_SUCCESS;
  return cuda_refuse(cuda, status, call, configuration->release_threshold, configuration->maximum_bytes, 0,
                     0);
}

static CUresult pool_attribute(const vmm_cuda *cuda, CUmemPool_attribute attribute, uint64_t *bytes) {
  cuuint64_t value = 0;
  CUresult result = cuda->api->MemPoolGetAttribute(cuda->pool, attribute, &value);
  *bytes = value;
  return result;
}

/* Time that no statistic of an allocator should show: busy_ns does not grow. */
vmm_status cuda_pool_usage(vmm_driver *driver, vmm_pool_usage *usage) {
  vmm_cuda *cuda = cuda_of(driver);
  const vmm_call call = VMM_CALL_POOL_USAGE;
  if (!usage) return cuda_refuse(cuda, VMM_INVALID_VALUE, call, 0, 0, 0, 0);
  *usage = (vmm_pool_usage){0};
  if (!cuda->pool) return VMM_SUCCESS;
  CUresult result = pool_attribute(cuda, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &usage->reserved_bytes);
  if (result == CUDA_SUCCESS) {
    result = pool_attribute(cuda, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &usage->reserved_peak_bytes);
  }
  if (result == CUDA_SUCCESS)
    result = pool_attribute(cuda, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &usage->used_bytes);
  if (result == CUDA_SUCCESS) {
    result = pool_attribute(cuda, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &usage->used_peak_bytes);
  }
  return result == CUDA_SUCCESS ? VMM_SUCCESS : cuda_refuse(cuda, (vmm_status)result, call, 0, 0, 0, 0);
}

vmm_status cuda_pool_trim(vmm_driver *driver, uint64_t keep_bytes) {
  vmm_cuda *cuda = cuda_of(driver);
  if (!cuda->pool) return VMM_SUCCESS;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemPoolTrimTo(cuda->pool, keep_bytes);
  cuda_leave(cuda, &span);
  if (result == CUDA_SUCCESS) return VMM_SUCCESS;
  return cuda_refuse(cuda, (vmm_status)result, VMM_CALL_POOL_TRIM, keep_bytes, 0, 0, 0);
}
