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

/* A pool of this object's own, which nothing else of the process allocates from. */
static CUresult make_pool(vmm_cuda *cuda) {
  CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .handleTypes = CU_MEM_HANDLE_TYPE_NONE,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device}};
  CUmemoryPool pool;
  CUresult result = cuda->api->MemPoolCreate(&pool, &properties);
  if (result != CUDA_SUCCESS) return result;
  cuuint64_t threshold =
      cuda->configuration.pool_releases ? cuda->configuration.pool_release_threshold : UINT64_MAX;
  result = cuda->api->MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
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

/* The pool and the stream of a call, which are no part of its time. */
static vmm_status pool_and_stream(vmm_cuda *cuda, vmm_stream index, CUstream *stream) {
  if (!cuda->pool) {
    if (!cuda_attribute(cuda->api, cuda->device, CUDA_ATTRIBUTE_POOLS)) return VMM_NOT_SUPPORTED;
    CUresult result = make_pool(cuda);
    if (result != CUDA_SUCCESS) return (vmm_status)result;
  }
  return cuda_stream_of(cuda, index, stream);
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

static CUresult pool_attribute(const vmm_cuda *cuda, CUmemPool_attribute attribute, uint64_t *bytes) {
  cuuint64_t value = 0;
  CUresult result = cuda->api->MemPoolGetAttribute(cuda->pool, attribute, &value);
  *bytes = value;
  return result;
}

vmm_status vmm_cuda_pool_usage_get(vmm_driver *driver, vmm_cuda_pool_usage *usage) {
  vmm_cuda *cuda = cuda_of(driver);
  *usage = (vmm_cuda_pool_usage){0};
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
  return cuda_fail(cuda, result, "cuMemPoolGetAttribute");
}

vmm_status vmm_cuda_pool_trim(vmm_driver *driver, uint64_t keep_bytes) {
  vmm_cuda *cuda = cuda_of(driver);
  if (!cuda->pool) return VMM_SUCCESS;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemPoolTrimTo(cuda->pool, keep_bytes);
  cuda_leave(cuda, &span);
  return cuda_fail(cuda, result, "cuMemPoolTrimTo");
}
