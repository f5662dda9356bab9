#include "vmm/cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "vmm/cuda_internal.h"

vmm_status cuda_fail(vmm_cuda *cuda, CUresult result, const char *call) {
  if (result != CUDA_SUCCESS) cuda_describe(cuda->api, result, call, cuda->failure, sizeof cuda->failure);
  return (vmm_status)result;
}

static vmm_status cuda_granularity(vmm_driver *driver, uint64_t *bytes) {
  vmm_cuda *cuda = cuda_of(driver);
  const vmm_call call = VMM_CALL_GRANULARITY;
  if (!bytes) return cuda_refuse(cuda, VMM_INVALID_VALUE, call, 0, 0, 0, 0);
  size_t granularity = 0;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) {
    result = cuda->api->MemGetAllocationGranularity(&granularity, &cuda->properties,
                                                    CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  }
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) return cuda_refuse(cuda, (vmm_status)result, call, 0, 0, 0, 0);
  *bytes = granularity;
  return VMM_SUCCESS;
}

static vmm_status cuda_memory_info(vmm_driver *driver, uint64_t *free_bytes, uint64_t *total_bytes) {
  vmm_cuda *cuda = cuda_of(driver);
  const vmm_call call = VMM_CALL_MEMORY_INFO;
  if (!free_bytes || !total_bytes) return cuda_refuse(cuda, VMM_INVALID_VALUE, call, 0, 0, 0, 0);
  size_t unused = 0, total = 0;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemGetInfo(&unused, &total);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) return cuda_refuse(cuda, (vmm_status)result, call, 0, 0, 0, 0);
  *free_bytes = unused;
  *total_bytes = total;
  return VMM_SUCCESS;
}

/* Gives back what is still allocated. A device in a bad state refuses; then the process's end frees it. */
static void give_back(vmm_cuda *cuda) {
  const cuda_library *api = cuda->api;
  cuda_ledger *ledger = &cuda->ledger;
  vmm_address address;
  vmm_handle handle;
  uint64_t size;
  bool pooled;
  api->CtxSynchronize();
  while (cuda_ledger_any_mapping(ledger, &address, &size)) {
    api->MemUnmap(address, size);
    cuda_ledger_unmap(ledger, address, size);
  }
  while (cuda_ledger_any_handle(ledger, &handle)) {
    api->MemRelease(handle);
    cuda_ledger_release(ledger, handle);
  }
  while (cuda_ledger_any_reservation(ledger, &address, &size)) {
    api->MemAddressFree(address, size);
    cuda_ledger_address_free(ledger, address);
  }
  while (cuda_ledger_any_allocation(ledger, &address, &pooled)) {
    if (pooled) {
      api->MemFreeAsync(address, NULL);
    } else {
      api->MemFree(address);
    }
    cuda_ledger_deallocate(ledger, address);
  }
  api->CtxSynchronize();
}

static void cuda_destroy(vmm_driver *driver) {
  vmm_cuda *cuda = cuda_of(driver);
  if (cuda->context_retained) {
    cuda_span span;
    cuda_enter(cuda, &span);
    give_back(cuda);
    cuda_pool_destroy(cuda);
    cuda_streams_destroy(cuda);
    cuda_patterns_destroy(cuda);
    cuda_leave(cuda, &span);
    cuda->api->DevicePrimaryCtxRelease(cuda->device);
  }
  cuda_ledger_destroy(&cuda->ledger);
  free(cuda);
}

static const vmm_driver_operations cuda_operations = {
    .name = "cuda",
    .granularity = cuda_granularity,
    .memory_info = cuda_memory_info,
    .address_reserve = cuda_address_reserve,
    .address_free = cuda_address_free,
    .create = cuda_create,
    .release = cuda_release,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .set_access = cuda_set_access,
    .malloc = cuda_malloc,
    .free = cuda_free,
    .malloc_async = cuda_malloc_async,
    .free_async = cuda_free_async,
    .pool_configure = cuda_pool_configure,
    .pool_usage = cuda_pool_usage,
    .pool_trim = cuda_pool_trim,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_wait = cuda_event_wait,
    .stream_wait_event = cuda_stream_wait_event,
    .event_discard = cuda_event_discard,
    .synchronize = cuda_synchronize,
    .fill = cuda_fill,
    .verify = cuda_verify,
    .destroy = cuda_destroy,
};

/* Says that a call of the opening failed. */
static vmm_status fail_open(const vmm_cuda *cuda, CUresult result, const char *call, const char *advice,
                            char *message, size_t message_size) {
  char cause[384];
  cuda_describe(cuda->api, result, call, cause, sizeof cause);
  snprintf(message, message_size, "%s (device %u): %s%s%s", cuda->information.device,
           cuda->information.ordinal, cause, advice ? "; " : "", advice ? advice : "");
  return (vmm_status)result;
}

static vmm_status refuse_attribute(const vmm_cuda *cuda, const char *what, int number, char *message,
                                   size_t message_size) {
  snprintf(message, message_size, "%s (device %u) does not support %s (attribute %d is 0)%s",
           cuda->information.device, cuda->information.ordinal, what, number,
           number == CUDA_ATTRIBUTE_VMM ? ": virtual GPUs and some drivers leave it out" : "");
  return VMM_NOT_SUPPORTED;
}

/* What is created, and the attributes that it needs. */
static vmm_status choose_properties(vmm_cuda *cuda, char *message, size_t message_size) {
  const struct {
    bool wanted;
    const char *what;
    int number;
  } needs[] = {
      {true, "virtual memory management", CUDA_ATTRIBUTE_VMM},
      {cuda->configuration.handle_type == VMM_CUDA_HANDLE_POSIX_FD, "handles as file descriptors",
       CUDA_ATTRIBUTE_POSIX_FD},
      {cuda->configuration.gpu_direct, "GPUDirect RDMA with virtual memory management",
       CUDA_ATTRIBUTE_GPU_DIRECT_VMM},
  };
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
    if (needs[i].wanted && cuda_attribute(cuda->api, cuda->device, needs[i].number) == 0) {
      return refuse_attribute(cuda, needs[i].what, needs[i].number, message, message_size);
    }
  }
  cuda->properties = (CUmemAllocationProp){
      .type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = cuda->configuration.handle_type == VMM_CUDA_HANDLE_POSIX_FD
                                  ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                  : CU_MEM_HANDLE_TYPE_NONE,
      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device},
      .allocFlags = {.gpuDirectRDMACapable = cuda->configuration.gpu_direct},
  };
  return VMM_SUCCESS;
}

/* The device itself, and those of the peers that can reach it. */
static vmm_status choose_access(vmm_cuda *cuda, char *message, size_t message_size) {
  cuda->access[cuda->access_count++] =
      (CUmemAccessDesc){.location = cuda->properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (size_t i = 0; i < cuda->configuration.peer_count; i++) {
    unsigned ordinal = cuda->configuration.peers[i];
    if (ordinal == cuda->information.ordinal) continue;
    if (ordinal >= cuda->information.device_count || cuda->access_count > CUDA_PEERS_LIMIT) {
      snprintf(message, message_size,
               "there is no device %u to be a peer: this machine has %u, numbered from 0", ordinal,
               cuda->information.device_count);
      return VMM_INVALID_DEVICE;
    }
    CUdevice peer;
    int capable = 0;
    CUresult result = cuda->api->DeviceGet(&peer, (int)ordinal);
    if (result == CUDA_SUCCESS) result = cuda->api->DeviceCanAccessPeer(&capable, peer, cuda->device);
    if (result != CUDA_SUCCESS) {
      return fail_open(cuda, result, "cuDeviceCanAccessPeer", NULL, message, message_size);
    }
    if (!capable) continue;
    cuda->access[cuda->access_count++] =
        (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer},
                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  cuda->information.peers = (unsigned)cuda->access_count - 1;
  return VMM_SUCCESS;
}

/* Virtual GPUs have been seen to announce virtual memory management and refuse it. */
static vmm_status try_reserve(vmm_cuda *cuda, char *message, size_t message_size) {
  static const char advice[] =
      "the device announces virtual memory management but refuses it, as some virtual GPUs do: use a whole "
      "GPU "
      "or another driver";
  char call[96];
  size_t granularity = 0;
  CUdeviceptr address = 0;
  CUresult result = cuda->api->MemGetAllocationGranularity(&granularity, &cuda->properties,
                                                           CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) {
    return fail_open(cuda, result, "cuMemGetAllocationGranularity", advice, message, message_size);
  }
  cuda->granularity = granularity;
  snprintf(call, sizeof call, "cuMemAddressReserve(size=%zu)", granularity);
  result = cuda->api->MemAddressReserve(&address, granularity, 0, 0, 0);
  if (result != CUDA_SUCCESS) return fail_open(cuda, result, call, advice, message, message_size);
  snprintf(call, sizeof call, "cuMemAddressFree(address=0x%" PRIx64 ", size=%zu)", (uint64_t)address,
           granularity);
  result = cuda->api->MemAddressFree(address, granularity);
  if (result != CUDA_SUCCESS) return fail_open(cuda, result, call, advice, message, message_size);
  return VMM_SUCCESS;
}

static vmm_status open_context(vmm_cuda *cuda, char *message, size_t message_size) {
  CUresult result = cuda->api->DevicePrimaryCtxRetain(&cuda->context, cuda->device);
  if (result != CUDA_SUCCESS) {
    return fail_open(cuda, result, "cuDevicePrimaryCtxRetain",
                     "no context could be made: is the device's memory full, or another process alone on it?",
                     message, message_size);
  }
  cuda->context_retained = true;
  cuda_span span;
  result = cuda_enter(cuda, &span);
  vmm_status status = result == CUDA_SUCCESS
                          ? try_reserve(cuda, message, message_size)
                          : fail_open(cuda, result, "cuCtxSetCurrent", NULL, message, message_size);
  cuda_leave(cuda, &span);
  cuda->driver.busy_ns = 0;
  return status;
}

vmm_status vmm_cuda_create(const vmm_cuda_configuration *configuration, vmm_driver **driver, char *message,
                           size_t message_size) {
  *driver = NULL;
  if (message_size > 0) message[0] = '\0';
  const cuda_library *library;
  vmm_status status = cuda_library_get(&library, message, message_size);
  if (status != VMM_SUCCESS) return status;
  vmm_cuda *cuda = calloc(1, sizeof *cuda);
  if (!cuda) {
    snprintf(message, message_size, "no memory for the driver object");
    return VMM_OUT_OF_MEMORY;
  }
  cuda->driver.operations = &cuda_operations;
  cuda->api = library;
  cuda->configuration = *configuration;
  cuda->pool_configuration = (vmm_pool_configuration){
      .release_threshold = configuration->pool_releases ? configuration->pool_release_threshold : UINT64_MAX,
      .maximum_bytes = UINT64_MAX,
      .reuse_event = true,
      .reuse_opportunistic = true,
      .reuse_internal = true};
  cuda->information.cuda_build_version = CUDA_VERSION;
  status =
      cuda_inspect(library, configuration->ordinal, &cuda->device, &cuda->information, message, message_size);
  if (status == VMM_SUCCESS) status = choose_properties(cuda, message, message_size);
  if (status == VMM_SUCCESS) status = choose_access(cuda, message, message_size);
  if (status == VMM_SUCCESS) status = open_context(cuda, message, message_size);
  cuda->configuration.peers = NULL;
  if (status != VMM_SUCCESS) {
    cuda_destroy(&cuda->driver);
    return status;
  }
  *driver = &cuda->driver;
  return VMM_SUCCESS;
}

const vmm_cuda_information *vmm_cuda_information_of(const vmm_driver *driver) {
  return &cuda_of_const(driver)->information;
}

vmm_status vmm_cuda_granularities(vmm_driver *driver, uint64_t *minimum, uint64_t *recommended) {
  vmm_cuda *cuda = cuda_of(driver);
  size_t least = 0, best = 0;
  CUresult result =
      cuda->api->MemGetAllocationGranularity(&least, &cuda->properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result == CUDA_SUCCESS) {
    result = cuda->api->MemGetAllocationGranularity(&best, &cuda->properties,
                                                    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  }
  *minimum = least;
  *recommended = best;
  return cuda_fail(cuda, result, "cuMemGetAllocationGranularity");
}

void vmm_cuda_usage_get(const vmm_driver *driver, vmm_cuda_usage *usage) {
  *usage = cuda_of_const(driver)->ledger.usage;
}

const char *vmm_cuda_failure(const vmm_driver *driver) { return cuda_of_const(driver)->failure; }
