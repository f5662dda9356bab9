#include "vmm/cuda_internal.h"

/* What the hardware refuses, the hardware refuses: these calls pass their arguments on as they are. The
 * exception are handles. To the driver (580.159) a handle is a pointer that it follows: a number that is none
 * ends the program, and a released handle that is still mapped was mapped again on one occasion and refused
 * on another. */

vmm_status cuda_address_reserve(vmm_driver *driver, uint64_t size, uint64_t alignment, vmm_address *address) {
  vmm_cuda *cuda = cuda_of(driver);
  const vmm_call call = VMM_CALL_ADDRESS_RESERVE;
  if (!address) return cuda_refuse(cuda, VMM_INVALID_VALUE, call, size, alignment, 0, 0);
  if (!cuda_ledger_prepare(&cuda->ledger)) {
    return cuda_refuse(cuda, VMM_OUT_OF_MEMORY, call, size, alignment, 0, 0);
  }
  /* Handles are mapped at multiples of the granularity. */
  bool power_of_two = (alignment & (alignment - 1)) == 0;
  uint64_t wanted = power_of_two && alignment < cuda->granularity ? cuda->granularity : alignment;
  CUdeviceptr reserved = 0;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemAddressReserve(&reserved, size, wanted, 0, 0);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) return cuda_refuse(cuda, (vmm_status)result, call, size, alignment, 0, 0);
  cuda_ledger_reserve(&cuda->ledger, reserved, size);
  *address = reserved;
  return VMM_SUCCESS;
}

vmm_status cuda_address_free(vmm_driver *driver, vmm_address address, uint64_t size) {
  vmm_cuda *cuda = cuda_of(driver);
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemAddressFree(address, size);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) {
    return cuda_refuse(cuda, (vmm_status)result, VMM_CALL_ADDRESS_FREE, address, size, 0, 0);
  }
  cuda_ledger_address_free(&cuda->ledger, address);
  return VMM_SUCCESS;
}

vmm_status cuda_create(vmm_driver *driver, uint64_t size, vmm_handle *handle) {
  vmm_cuda *cuda = cuda_of(driver);
  const vmm_call call = VMM_CALL_CREATE;
  if (!handle) return cuda_refuse(cuda, VMM_INVALID_VALUE, call, size, 0, 0, 0);
  if (!cuda_ledger_prepare(&cuda->ledger)) return cuda_refuse(cuda, VMM_OUT_OF_MEMORY, call, size, 0, 0, 0);
  CUmemGenericAllocationHandle created = 0;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemCreate(&created, size, &cuda->properties, 0);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) return cuda_refuse(cuda, (vmm_status)result, call, size, 0, 0, 0);
  cuda_ledger_create(&cuda->ledger, created, size);
  *handle = created;
  return VMM_SUCCESS;
}

vmm_status cuda_release(vmm_driver *driver, vmm_handle handle) {
  vmm_cuda *cuda = cuda_of(driver);
  if (!cuda_ledger_prepare(&cuda->ledger)) {
    return cuda_refuse(cuda, VMM_OUT_OF_MEMORY, VMM_CALL_RELEASE, handle, 0, 0, 0);
  }
  if (!cuda_ledger_is_referenced(&cuda->ledger, handle)) {
    return cuda_refuse(cuda, VMM_INVALID_VALUE, VMM_CALL_RELEASE, handle, 0, 0, 0);
  }
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemRelease(handle);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) return cuda_refuse(cuda, (vmm_status)result, VMM_CALL_RELEASE, handle, 0, 0, 0);
  cuda_ledger_release(&cuda->ledger, handle);
  return VMM_SUCCESS;
}

vmm_status cuda_map(vmm_driver *driver, vmm_address address, uint64_t size, uint64_t offset,
                    vmm_handle handle) {
  vmm_cuda *cuda = cuda_of(driver);
  const vmm_call call = VMM_CALL_MAP;
  if (!cuda_ledger_prepare(&cuda->ledger)) {
    return cuda_refuse(cuda, VMM_OUT_OF_MEMORY, call, address, size, offset, handle);
  }
  if (!cuda_ledger_is_referenced(&cuda->ledger, handle)) {
    bool mapped = size != 0 && cuda_ledger_is_released(&cuda->ledger, handle);
    return cuda_refuse(cuda, mapped ? VMM_NOT_SUPPORTED : VMM_INVALID_VALUE, call, address, size, offset,
                       handle);
  }
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemMap(address, size, offset, handle, 0);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS)
    return cuda_refuse(cuda, (vmm_status)result, call, address, size, offset, handle);
  cuda_ledger_map(&cuda->ledger, address, size, handle);
  return VMM_SUCCESS;
}

vmm_status cuda_unmap(vmm_driver *driver, vmm_address address, uint64_t size) {
  vmm_cuda *cuda = cuda_of(driver);
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemUnmap(address, size);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS)
    return cuda_refuse(cuda, (vmm_status)result, VMM_CALL_UNMAP, address, size, 0, 0);
  cuda_ledger_unmap(&cuda->ledger, address, size);
  return VMM_SUCCESS;
}

vmm_status cuda_set_access(vmm_driver *driver, vmm_address address, uint64_t size) {
  vmm_cuda *cuda = cuda_of(driver);
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) {
    result = cuda->api->MemSetAccess(address, size, cuda->access, cuda->access_count);
  }
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) {
    return cuda_refuse(cuda, (vmm_status)result, VMM_CALL_SET_ACCESS, address, size, 0, 0);
  }
  cuda_ledger_allow(&cuda->ledger, address, size);
  return VMM_SUCCESS;
}
