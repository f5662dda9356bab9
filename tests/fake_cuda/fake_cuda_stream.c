/* Streams, events, kernels and copies: work is done at once, except the kernel that holds its stream. */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fake_cuda/fake_cuda.h"

#define NANOSECONDS UINT64_C(1000000000)

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
  CUresult result = fake_result_of(vmm_fill(fake_sim, address, size, 0, pattern));
  if (result == CUDA_SUCCESS && ++count == fake_wish_number("corrupt=", 0)) {
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
  CUresult result = fake_result_of(vmm_verify(fake_sim, address, size, 0, pattern, &mismatch));
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
