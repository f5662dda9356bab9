/* A libcuda that needs no GPU: the calls that Lakebed makes, answered by the simulated device with real pages
 * behind its addresses. For tests of what lies above the driver, and of how its failures are told.
 *
 * LAKEBED_FAKE_CUDA holds words that change what it does:
 *   init=N           cuInit returns N
 *   devices=N        so many devices (1)
 *   version=N        for so new a CUDA (13000)
 *   attribute=N      attribute N is 0
 *   fail=CALL:K:N    the K-th call of this name returns N
 *   corrupt=K        the K-th fill leaves one wrong byte
 *   leak=BYTES       so much memory is lost with each cuMemRelease or cuMemFree */
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake_cuda/fake_cuda.h"
#include "vmm/sim.h"

#define CAPACITY (UINT64_C(2) << 30)

vmm_driver *fake_sim;
static CUcontext current;
static uint64_t leaked;

/* ---- what was asked to go wrong ---- */

/* The text after a word such as "init=" of the environment's list. */
static const char *wish(const char *word) {
  const char *list = getenv("LAKEBED_FAKE_CUDA");
  const char *found = list ? strstr(list, word) : NULL;
  return found ? found + strlen(word) : NULL;
}

long fake_wish_number(const char *word, long otherwise) {
  const char *text = wish(word);
  return text ? strtol(text, NULL, 10) : otherwise;
}

CUresult fake_injected(const char *name) {
  static unsigned count;
  const char *text = wish("fail=");
  size_t length = strlen(name);
  if (!text || strncmp(text, name, length) != 0 || text[length] != ':') return CUDA_SUCCESS;
  char *end;
  unsigned long number = strtoul(text + length + 1, &end, 10);
  return ++count == number && *end == ':' ? (CUresult)strtol(end + 1, NULL, 10) : CUDA_SUCCESS;
}

CUresult fake_result_of(vmm_status status) {
  if (fake_sim) vmm_error_clear(fake_sim);
  return (CUresult)status;
}

/* ---- start, devices ---- */

CUresult cuInit(unsigned flags) {
  (void)flags;
  long result = fake_wish_number("init=", 0);
  if (result != 0) return (CUresult)result;
  if (fake_sim) return CUDA_SUCCESS;
  return (CUresult)vmm_sim_create(&(vmm_sim_configuration){.capacity = CAPACITY, .backed = true}, &fake_sim);
}

CUresult cuDriverGetVersion(int *version) {
  *version = (int)fake_wish_number("version=", 13000);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
  *name = vmm_status_name((vmm_status)error);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = vmm_status_text((vmm_status)error);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  *count = (int)fake_wish_number("devices=", 1);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  (void)device;
  snprintf(name, (size_t)size, "Fake GPU");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  (void)device;
  *value = fake_wish_number("attribute=", -1) == (long)attribute ? 0 : 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  (void)device;
  *bytes = CAPACITY;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *bus, int size, CUdevice device) {
  snprintf(bus, (size_t)size, "0000:%02x:00.0", (unsigned)device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *capable, CUdevice device, CUdevice peer) {
  *capable = device != peer;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  BEGIN();
  static char contexts[64];
  *context = (CUcontext)(void *)&contexts[device];
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  (void)device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = current;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}

/* ---- memory ---- */

CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
  uint64_t free_bytes, total_bytes;
  CUresult result = fake_result_of(vmm_memory_info(fake_sim, &free_bytes, &total_bytes));
  *unused = free_bytes - leaked;
  *total = total_bytes;
  return result;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option) {
  (void)properties;
  (void)option;
  uint64_t granularity;
  CUresult result = fake_result_of(vmm_granularity(fake_sim, &granularity));
  *bytes = granularity;
  return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
  BEGIN();
  (void)wanted;
  (void)flags;
  vmm_address reserved = 0;
  CUresult result = fake_result_of(vmm_address_reserve(fake_sim, size, alignment, &reserved));
  if (result == CUDA_SUCCESS) *address = reserved;
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  BEGIN();
  return fake_result_of(vmm_address_free(fake_sim, address, size));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
  BEGIN();
  (void)properties;
  (void)flags;
  vmm_handle created = 0;
  CUresult result = fake_result_of(vmm_create(fake_sim, size, &created));
  if (result == CUDA_SUCCESS) *handle = created;
  return result;
}

void fake_lose(void) { leaked += (uint64_t)fake_wish_number("leak=", 0); }

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  BEGIN();
  fake_lose();
  return fake_result_of(vmm_release(fake_sim, handle));
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  BEGIN();
  (void)flags;
  return fake_result_of(vmm_map(fake_sim, address, size, offset, handle));
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  BEGIN();
  return fake_result_of(vmm_unmap(fake_sim, address, size));
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count) {
  BEGIN();
  return access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && count > 0
             ? fake_result_of(vmm_set_access(fake_sim, address, size))
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  BEGIN();
  vmm_address allocated = 0;
  CUresult result = fake_result_of(vmm_malloc(fake_sim, size, &allocated));
  if (result == CUDA_SUCCESS) *address = allocated;
  return result;
}
