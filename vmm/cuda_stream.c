#include <stdlib.h>
#include <string.h>

#include "vmm/cuda_internal.h"

/* Streams are made at their first use, events are used again; neither is part of a call's time. */

/* Makes a stream, and notes what the driver takes for it: it has no other way to tell. */
static CUresult make_stream(vmm_cuda *cuda, CUstream *stream) {
  size_t before = 0, after = 0, total;
  bool known = cuda->api->MemGetInfo(&before, &total) == CUDA_SUCCESS;
  CUresult result = cuda->api->StreamCreate(stream, CU_STREAM_NON_BLOCKING);
  known = known && cuda->api->MemGetInfo(&after, &total) == CUDA_SUCCESS;
  if (known && after < before) cuda->ledger.usage.stream_bytes += before - after;
  return result;
}

/* Makes the table reach to an index. */
static vmm_status reach(vmm_cuda *cuda, vmm_stream index) {
  if (index >= CUDA_STREAMS_LIMIT) return VMM_INVALID_VALUE;
  if (index < cuda->stream_count) return VMM_SUCCESS;
  uint32_t count = cuda->stream_count ? cuda->stream_count : 8;
  while (count <= index) count *= 2;
  cuda_stream *grown = realloc(cuda->streams, count * sizeof *grown);
  if (!grown) return VMM_OUT_OF_MEMORY;
  memset(grown + cuda->stream_count, 0, (count - cuda->stream_count) * sizeof *grown);
  cuda->streams = grown;
  cuda->stream_count = count;
  return VMM_SUCCESS;
}

vmm_status cuda_stream_of(vmm_cuda *cuda, vmm_stream index, CUstream *stream) {
  *stream = NULL;
  if (index == 0) return VMM_SUCCESS;
  vmm_status status = reach(cuda, index);
  if (status != VMM_SUCCESS) return status;
  cuda_stream *known = &cuda->streams[index];
  if (!known->stream) {
    CUresult result = make_stream(cuda, &known->stream);
    if (result != CUDA_SUCCESS) {
      known->stream = NULL;
      return (vmm_status)result;
    }
  }
  *stream = known->stream;
  return VMM_SUCCESS;
}

vmm_status vmm_cuda_stream_adopt(vmm_driver *driver, vmm_stream index, void *stream) {
  vmm_cuda *cuda = cuda_of(driver);
  if (index == 0 || !stream) return VMM_INVALID_VALUE;
  vmm_status status = reach(cuda, index);
  if (status != VMM_SUCCESS) return status;
  if (cuda->streams[index].stream) return VMM_INVALID_VALUE;
  cuda->streams[index] = (cuda_stream){.stream = stream, .adopted = true};
  return VMM_SUCCESS;
}

void cuda_streams_destroy(vmm_cuda *cuda) {
  for (uint32_t i = 1; i < cuda->events_used; i++) cuda->api->EventDestroy(cuda->events[i].event);
  for (uint32_t i = 0; i < cuda->stream_count; i++) {
    const cuda_stream *known = &cuda->streams[i];
    if (known->stream && !known->adopted) cuda->api->StreamDestroy(known->stream);
  }
  free(cuda->events);
  free(cuda->streams);
  cuda->events = NULL;
  cuda->streams = NULL;
  cuda->events_used = cuda->stream_count = 0;
}

static cuda_event *find_event(const vmm_cuda *cuda, vmm_event name) {
  uint64_t index = name & UINT32_MAX;
  if (index == 0 || index >= cuda->events_used) return NULL;
  cuda_event *event = &cuda->events[index];
  return event->live && event->generation == name >> 32 ? event : NULL;
}

/* Takes an unused event. The context must be current. */
static vmm_status take_event(vmm_cuda *cuda, bool timed, uint32_t *taken) {
  uint32_t index = cuda->first_unused_event[timed];
  if (index) {
    cuda->first_unused_event[timed] = cuda->events[index].next_unused;
    *taken = index;
    return VMM_SUCCESS;
  }
  if (cuda->events_used == cuda->events_capacity) {
    if (cuda->events_capacity > UINT32_MAX / 2) return VMM_OUT_OF_MEMORY;
    uint32_t capacity = cuda->events_capacity ? cuda->events_capacity * 2 : 64;
    cuda_event *grown = realloc(cuda->events, capacity * sizeof *grown);
    if (!grown) return VMM_OUT_OF_MEMORY;
    if (!cuda->events) cuda->events_used = 1; /* 0 is none */
    cuda->events = grown;
    cuda->events_capacity = capacity;
  }
  CUevent event;
  CUresult result = cuda->api->EventCreate(&event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return (vmm_status)result;
  cuda->events[cuda->events_used] = (cuda_event){.event = event, .timed = timed};
  *taken = cuda->events_used++;
  return VMM_SUCCESS;
}

static void put_back(vmm_cuda *cuda, uint32_t index) {
  cuda_event *event = &cuda->events[index];
  event->live = false;
  event->generation++;
  event->next_unused = cuda->first_unused_event[event->timed];
  cuda->first_unused_event[event->timed] = index;
}

static vmm_status record(vmm_cuda *cuda, vmm_stream index, bool timed, vmm_event *name) {
  uint32_t taken = 0;
  CUstream stream;
  cuda_span span;
  vmm_status status = (vmm_status)cuda_enter(cuda, &span);
  if (status == VMM_SUCCESS) status = cuda_stream_of(cuda, index, &stream);
  if (status == VMM_SUCCESS) status = take_event(cuda, timed, &taken);
  span.begin_ns = cuda_clock_ns();
  if (status == VMM_SUCCESS) status = (vmm_status)cuda->api->EventRecord(cuda->events[taken].event, stream);
  cuda_leave(cuda, &span);
  if (status != VMM_SUCCESS) {
    if (taken) put_back(cuda, taken);
    return status;
  }
  cuda->events[taken].live = true;
  cuda->ledger.usage.events++;
  *name = (uint64_t)cuda->events[taken].generation << 32 | taken;
  return VMM_SUCCESS;
}

vmm_status cuda_event_record(vmm_driver *driver, vmm_stream stream, vmm_event *event) {
  vmm_cuda *cuda = cuda_of(driver);
  vmm_status status = event ? record(cuda, stream, false, event) : VMM_INVALID_VALUE;
  return status == VMM_SUCCESS ? status : cuda_refuse(cuda, status, VMM_CALL_EVENT_RECORD, stream, 0, 0, 0);
}

vmm_status cuda_event_query(vmm_driver *driver, vmm_event name) {
  vmm_cuda *cuda = cuda_of(driver);
  const cuda_event *event = find_event(cuda, name);
  if (!event) return cuda_refuse(cuda, VMM_INVALID_HANDLE, VMM_CALL_EVENT_QUERY, name, 0, 0, 0);
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->EventQuery(event->event);
  cuda_leave(cuda, &span);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return (vmm_status)result;
  return cuda_refuse(cuda, (vmm_status)result, VMM_CALL_EVENT_QUERY, name, 0, 0, 0);
}

vmm_status cuda_event_wait(vmm_driver *driver, vmm_event name) {
  vmm_cuda *cuda = cuda_of(driver);
  const cuda_event *event = find_event(cuda, name);
  if (!event) return cuda_refuse(cuda, VMM_INVALID_HANDLE, VMM_CALL_EVENT_WAIT, name, 0, 0, 0);
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->EventSynchronize(event->event);
  cuda_leave(cuda, &span);
  if (result == CUDA_SUCCESS) return VMM_SUCCESS;
  return cuda_refuse(cuda, (vmm_status)result, VMM_CALL_EVENT_WAIT, name, 0, 0, 0);
}

vmm_status cuda_stream_wait_event(vmm_driver *driver, vmm_stream index, vmm_event name) {
  vmm_cuda *cuda = cuda_of(driver);
  const cuda_event *event = find_event(cuda, name);
  if (!event) return cuda_refuse(cuda, VMM_INVALID_HANDLE, VMM_CALL_STREAM_WAIT_EVENT, index, name, 0, 0);
  CUstream stream;
  cuda_span span;
  vmm_status status = (vmm_status)cuda_enter(cuda, &span);
  if (status == VMM_SUCCESS) status = cuda_stream_of(cuda, index, &stream);
  span.begin_ns = cuda_clock_ns();
  if (status == VMM_SUCCESS) status = (vmm_status)cuda->api->StreamWaitEvent(stream, event->event, 0);
  cuda_leave(cuda, &span);
  if (status == VMM_SUCCESS) return VMM_SUCCESS;
  return cuda_refuse(cuda, status, VMM_CALL_STREAM_WAIT_EVENT, index, name, 0, 0);
}

void cuda_event_discard(vmm_driver *driver, vmm_event name) {
  vmm_cuda *cuda = cuda_of(driver);
  const cuda_event *event = find_event(cuda, name);
  if (!event) return;
  put_back(cuda, (uint32_t)(event - cuda->events));
  cuda->ledger.usage.events--;
}

vmm_status cuda_synchronize(vmm_driver *driver) {
  vmm_cuda *cuda = cuda_of(driver);
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->CtxSynchronize();
  cuda_leave(cuda, &span);
  if (result == CUDA_SUCCESS) return VMM_SUCCESS;
  return cuda_refuse(cuda, (vmm_status)result, VMM_CALL_SYNCHRONIZE, 0, 0, 0, 0);
}

vmm_status vmm_cuda_time_record(vmm_driver *driver, vmm_stream stream, vmm_event *event) {
  vmm_cuda *cuda = cuda_of(driver);
  return cuda_fail(cuda, (CUresult)record(cuda, stream, true, event), "cuEventRecord");
}

vmm_status vmm_cuda_time_between(vmm_driver *driver, vmm_event begin, vmm_event end, double *milliseconds) {
  vmm_cuda *cuda = cuda_of(driver);
  const cuda_event *from = find_event(cuda, begin), *to = find_event(cuda, end);
  if (!from || !to || !from->timed || !to->timed) {
    return cuda_fail(cuda, CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime");
  }
  float elapsed = 0;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->EventElapsedTime(&elapsed, from->event, to->event);
  cuda_leave(cuda, &span);
  if (result == CUDA_ERROR_NOT_READY) return VMM_NOT_READY;
  if (result == CUDA_SUCCESS) *milliseconds = (double)elapsed;
  return cuda_fail(cuda, result, "cuEventElapsedTime");
}
