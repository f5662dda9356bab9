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
#include <time.h>

#include "vmm/sim.h"

#define CAPACITY (UINT64_C(2) << 30)
#define NANOSECONDS UINT64_C(1000000000)

static vmm_driver *sim;
static CUcontext current;
static uint64_t leaked;

/* ---- what was asked to go wrong ---- */

/* The text after a word such as "init=" of the environment's list. */
static const char *wish(const char *word) {
  const char *list = getenv("LAKEBED_FAKE_CUDA");
  const char *found = list ? strstr(list, word) : NULL;
  return found ? found + strlen(word) : NULL;
}

static long wish_number(const char *word, long otherwise) {
  const char *text = wish(word);
  return text ? strtol(text, NULL, 10) : otherwise;
}

/* Shall this call of a function fail? Counts its calls. */
static CUresult injected(const char *name) {
  static unsigned count;
  const char *text = wish("fail=");
  size_t length = strlen(name);
  if (!text || strncmp(text, name, length) != 0 || text[length] != ':') return CUDA_SUCCESS;
  char *end;
  unsigned long number = strtoul(text + length + 1, &end, 10);
  return ++count == number && *end == ':' ? (CUresult)strtol(end + 1, NULL, 10) : CUDA_SUCCESS;
}

#define BEGIN()                                    \
  do {                                             \
    CUresult failure_ = injected(__func__);        \
    if (failure_ != CUDA_SUCCESS) return failure_; \
  } while (0)

static CUresult result_of(vmm_status status) {
  if (sim) vmm_error_clear(sim);
  return (CUresult)status;
}

/* ---- start, devices ---- */

CUresult cuInit(unsigned flags) {
  (void)flags;
  long result = wish_number("init=", 0);
  if (result != 0) return (CUresult)result;
  if (sim) return CUDA_SUCCESS;
  return (CUresult)vmm_sim_create(&(vmm_sim_configuration){.capacity = CAPACITY, .backed = true}, &sim);
}

CUresult cuDriverGetVersion(int *version) {
  *version = (int)wish_number("version=", 13000);
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
  *count = (int)wish_number("devices=", 1);
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
  *value = wish_number("attribute=", -1) == (long)attribute ? 0 : 1;
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
  CUresult result = result_of(vmm_memory_info(sim, &free_bytes, &total_bytes));
  *unused = free_bytes - leaked;
  *total = total_bytes;
  return result;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option) {
  (void)properties;
  (void)option;
  uint64_t granularity;
  CUresult result = result_of(vmm_granularity(sim, &granularity));
  *bytes = granularity;
  return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
  BEGIN();
  (void)wanted;
  (void)flags;
  vmm_address reserved = 0;
  CUresult result = result_of(vmm_address_reserve(sim, size, alignment, &reserved));
  if (result == CUDA_SUCCESS) *address = reserved;
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  BEGIN();
  return result_of(vmm_address_free(sim, address, size));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
  BEGIN();
  (void)properties;
  (void)flags;
  vmm_handle created = 0;
  CUresult result = result_of(vmm_create(sim, size, &created));
  if (result == CUDA_SUCCESS) *handle = created;
  return result;
}

static void lose(void) { leaked += (uint64_t)wish_number("leak=", 0); }

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  BEGIN();
  lose();
  return result_of(vmm_release(sim, handle));
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  BEGIN();
  (void)flags;
  return result_of(vmm_map(sim, address, size, offset, handle));
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  BEGIN();
  return result_of(vmm_unmap(sim, address, size));
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count) {
  BEGIN();
  return access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && count > 0
             ? result_of(vmm_set_access(sim, address, size))
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  BEGIN();
  vmm_address allocated = 0;
  CUresult result = result_of(vmm_malloc(sim, size, &allocated));
  if (result == CUDA_SUCCESS) *address = allocated;
  return result;
}

/* ---- pools: freed blocks are kept and given out for the same size ---- */

enum { BLOCKS = 4096 };

typedef struct pool_block {
  CUdeviceptr address;
  size_t size;
  bool used;
} pool_block;

static pool_block blocks[BLOCKS];
static size_t block_count;
static cuuint64_t pool_reserved, pool_reserved_peak, pool_used, pool_used_peak, pool_bound;

static pool_block *find_block(CUdeviceptr address) {
  for (size_t i = 0; i < block_count; i++) {
    if (blocks[i].address == address && blocks[i].used) return &blocks[i];
  }
  return NULL;
}

static void use_block(pool_block *block, bool used) {
  block->used = used;
  pool_used += used ? block->size : -block->size;
  if (pool_used > pool_used_peak) pool_used_peak = pool_used;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  BEGIN();
  pool_block *block = find_block(address);
  if (block) {
    use_block(block, false);
    return CUDA_SUCCESS;
  }
  if (address) lose();
  return result_of(vmm_free(sim, address));
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
  BEGIN();
  pool_bound = properties->maxSize ? properties->maxSize : UINT64_MAX;
  *pool = (CUmemoryPool)(void *)blocks;
  pool_reserved_peak = pool_reserved;
  pool_used_peak = pool_used;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  (void)pool;
  for (size_t i = 0; i < block_count && pool_reserved > keep;) {
    if (blocks[i].used) {
      i++;
      continue;
    }
    CUresult result = result_of(vmm_free(sim, blocks[i].address));
    if (result != CUDA_SUCCESS) return result;
    pool_reserved -= blocks[i].size;
    blocks[i] = blocks[--block_count];
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) { return cuMemPoolTrimTo(pool, 0); }

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  (void)pool;
  (void)attribute;
  (void)value;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  (void)pool;
  cuuint64_t *bytes = value;
  *bytes = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool_reserved
           : attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH  ? pool_reserved_peak
           : attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT   ? pool_used
                                                             : pool_used_peak;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
  (void)pool;
  (void)access;
  (void)count;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
  BEGIN();
  (void)pool;
  (void)stream;
  *address = 0;
  if (size == 0) return CUDA_SUCCESS;
  for (size_t i = 0; i < block_count; i++) {
    if (blocks[i].used || blocks[i].size != size) continue;
    use_block(&blocks[i], true);
    *address = blocks[i].address;
    return CUDA_SUCCESS;
  }
  if (pool_reserved + size > pool_bound) return CUDA_ERROR_OUT_OF_MEMORY;
  vmm_address allocated = 0;
  CUresult result =
      block_count < BLOCKS ? result_of(vmm_malloc(sim, size, &allocated)) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) return result;
  blocks[block_count] = (pool_block){.address = allocated, .size = size};
  pool_reserved += size;
  if (pool_reserved > pool_reserved_peak) pool_reserved_peak = pool_reserved;
  use_block(&blocks[block_count++], true);
  *address = allocated;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  BEGIN();
  (void)stream;
  pool_block *block = find_block(address);
  if (!block) return address ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  use_block(block, false);
  return CUDA_SUCCESS;
}

/* ---- streams and events: work is done at once, except the kernel that holds its stream ---- */

/* What work on a stream waits for: a word of the host that is 0 until it ends, or the time. */
typedef struct condition {
  volatile const uint32_t *flag; /* NULL: nothing */
  uint64_t until_ns;
} condition;

typedef struct fake_stream {
  condition busy;
  struct fake_stream *next;
} fake_stream;

typedef struct fake_event {
  condition busy;
  uint64_t time_ns;
  bool timed;
  struct fake_event *next;
} fake_event;

static fake_stream *all_streams;
static fake_event *all_events;
static fake_stream default_stream;

static fake_stream *stream_of(CUstream stream) {
  return stream ? (fake_stream *)(void *)stream : &default_stream;
}
static fake_event *event_of(CUevent event) { return (fake_event *)(void *)event; }

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * NANOSECONDS + (uint64_t)now.tv_nsec;
}

static bool is_busy(const condition *busy) {
  return busy->flag && *busy->flag == 0 && clock_ns() < busy->until_ns;
}

static void await(condition *busy) {
  while (is_busy(busy)) continue;
  busy->flag = NULL;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  BEGIN();
  (void)flags;
  fake_stream *created = calloc(1, sizeof *created);
  if (!created) return CUDA_ERROR_OUT_OF_MEMORY;
  created->next = all_streams;
  all_streams = created;
  *stream = (CUstream)(void *)created;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  fake_stream **link = &all_streams;
  while (*link && *link != stream_of(stream)) link = &(*link)->next;
  if (!*link) return CUDA_ERROR_INVALID_HANDLE;
  *link = (*link)->next;
  free(stream_of(stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  await(&stream_of(stream)->busy);
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  BEGIN();
  await(&default_stream.busy);
  for (fake_stream *stream = all_streams; stream; stream = stream->next) await(&stream->busy);
  for (fake_event *event = all_events; event; event = event->next) await(&event->busy);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  (void)flags;
  if (event_of(event)->busy.flag) stream_of(stream)->busy = event_of(event)->busy;
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  BEGIN();
  fake_event *created = calloc(1, sizeof *created);
  if (!created) return CUDA_ERROR_OUT_OF_MEMORY;
  created->timed = !(flags & CU_EVENT_DISABLE_TIMING);
  created->next = all_events;
  all_events = created;
  *event = (CUevent)(void *)created;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  fake_event **link = &all_events;
  while (*link && *link != event_of(event)) link = &(*link)->next;
  if (!*link) return CUDA_ERROR_INVALID_HANDLE;
  *link = (*link)->next;
  free(event_of(event));
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  BEGIN();
  event_of(event)->time_ns = clock_ns();
  event_of(event)->busy = stream_of(stream)->busy;
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
  return is_busy(&event_of(event)->busy) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  await(&event_of(event)->busy);
  return CUDA_SUCCESS;
}

/* Newer headers have another name for it. */
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end);
CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
  *milliseconds = (float)(event_of(end)->time_ns - event_of(begin)->time_ns) / 1e6f;
  return CUDA_SUCCESS;
}

/* ---- kernels: those of vmm/kernels/pattern.cu, and hold.cu ---- */

static char module_mark;
static char kernel_names[][32] = {"pattern_fill", "pattern_verify", "pattern_read", "hold"};

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  BEGIN();
  static const unsigned char fatbin_mark[] = {0x50, 0xed, 0x55, 0xba};
  if (memcmp(image, fatbin_mark, sizeof fatbin_mark) != 0) return CUDA_ERROR_INVALID_IMAGE;
  *module = (CUmodule)(void *)&module_mark;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  (void)module;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  (void)module;
  for (size_t i = 0; i < sizeof kernel_names / sizeof *kernel_names; i++) {
    if (strcmp(kernel_names[i], name) != 0) continue;
    *function = (CUfunction)(void *)kernel_names[i];
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

static CUresult run_fill(void **arguments) {
  static long count;
  CUdeviceptr address = *(CUdeviceptr *)arguments[0];
  uint64_t size = *(uint64_t *)arguments[1], pattern = *(uint64_t *)arguments[2];
  CUresult result = result_of(vmm_fill(sim, address, size, 0, pattern));
  if (result == CUDA_SUCCESS && ++count == wish_number("corrupt=", 0)) {
    unsigned char *byte = (unsigned char *)(uintptr_t)(address + size / 2);
    *byte = (unsigned char)(*byte ^ 1);
  }
  return result;
}

static CUresult run_verify(void **arguments) {
  CUdeviceptr address = *(CUdeviceptr *)arguments[0];
  uint64_t size = *(uint64_t *)arguments[1], pattern = *(uint64_t *)arguments[2];
  uint64_t *findings = *(uint64_t **)arguments[3];
  vmm_mismatch mismatch;
  CUresult result = result_of(vmm_verify(sim, address, size, 0, pattern, &mismatch));
  if (result != CUDA_SUCCESS || mismatch.wrong_words == 0) return result;
  findings[0] += mismatch.wrong_words;
  findings[1] = mismatch.first_offset / 8;
  return CUDA_SUCCESS;
}

static CUresult run_read(void **arguments) {
  CUdeviceptr address = *(CUdeviceptr *)arguments[0];
  uint64_t size = *(uint64_t *)arguments[1], *findings = *(uint64_t **)arguments[2];
  uint64_t offset = 8 * findings[1];
  findings[2] = 0;
  memcpy(&findings[2], (const void *)(uintptr_t)(address + offset), size - offset < 8 ? size - offset : 8);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **arguments, void **extra) {
  BEGIN();
  (void)shared_bytes;
  (void)extra;
  if (!(grid_x && grid_y && grid_z && block_x && block_y && block_z)) return CUDA_ERROR_INVALID_VALUE;
  const char *name = (const char *)(void *)function;
  if (strcmp(name, "pattern_fill") == 0) return run_fill(arguments);
  if (strcmp(name, "pattern_verify") == 0) return run_verify(arguments);
  if (strcmp(name, "pattern_read") == 0) return run_read(arguments);
  uint32_t *flags = *(uint32_t **)arguments[0];
  flags[0] = 1;
  const uint64_t bound_ns = *(const uint64_t *)arguments[strcmp(name, "spin") == 0 ? 2 : 1];
  stream_of(stream)->busy = (condition){flags + 1, clock_ns() + bound_ns};
  return CUDA_SUCCESS;
}

/* ---- copies ---- */

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void *source, size_t size, CUstream stream) {
  BEGIN();
  (void)stream;
  memcpy((void *)(uintptr_t)destination, source, size);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *destination, CUdeviceptr source, size_t size, CUstream stream) {
  BEGIN();
  (void)stream;
  memcpy(destination, (const void *)(uintptr_t)source, size);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t size, CUstream stream) {
  BEGIN();
  (void)stream;
  memset((void *)(uintptr_t)address, value, size);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **memory, size_t size, unsigned flags) {
  BEGIN();
  (void)flags;
  *memory = calloc(1, size);
  return *memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeHost(void *memory) {
  free(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *memory, unsigned flags) {
  (void)flags;
  *address = (CUdeviceptr)(uintptr_t)memory;
  return CUDA_SUCCESS;
}
