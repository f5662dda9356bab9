#include "harness/torch/plugin.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char last_failure[PLUGIN_FAILURE_TEXT];

const char *lakebed_torch_failure(void) { return last_failure; }

/* A call on its way to the policy. */
typedef struct request {
  plugin_device *device;
  size_t size;
  void *stream;
  vmm_address address;
  vmm_status status;
  bool found;
} request;

static void count_time(plugin_counts *counts, uint64_t *total_ns, uint64_t begin_ns) {
  uint64_t duration = plugin_clock_ns() - begin_ns;
  *total_ns += duration;
  if (duration > counts->longest_ns) counts->longest_ns = duration;
}

/* A policy that finds no memory has helped itself as far as its own rules go. Returning everything unused is
 * the last thing to try, as PyTorch does. */
static vmm_status allocate_or_trim(plugin_device *device, policy *subject, uint64_t size, vmm_stream stream,
                                   vmm_address *address) {
  vmm_status status = policy_alloc(subject, size, stream, address);
  if (status != VMM_OUT_OF_MEMORY || policy_trim(subject) != VMM_SUCCESS) return status;
  device->counts.trimmed_retries++;
  return policy_alloc(subject, size, stream, address);
}

static void serve_alloc(void *context, policy *subject) {
  request *asked = context;
  plugin_device *device = asked->device;
  plugin_counts *counts = &device->counts;
  asked->status = VMM_SUCCESS;
  if (asked->size == 0) {
    counts->bypassed_allocations++;
    return;
  }
  uint64_t begin_ns = plugin_clock_ns();
  vmm_stream index;
  asked->status = plugin_stream_of(device, asked->stream, &index);
  if (asked->status == VMM_SUCCESS) {
    asked->status = allocate_or_trim(device, subject, asked->size, index, &asked->address);
  }
  count_time(counts, &counts->alloc_ns, begin_ns);
  if (asked->status == VMM_SUCCESS) {
    counts->served_allocations++;
    plugin_record(device, TRACE_ALLOC, asked->address, asked->size, asked->stream);
    return;
  }
  if (asked->status == VMM_OUT_OF_MEMORY) {
    counts->out_of_memory++;
    plugin_record(device, TRACE_OUT_OF_MEMORY, 0, asked->size, asked->stream);
  }
  plugin_explain(device, subject, asked->size, asked->status, last_failure);
}

/* NULL and SUCCESS for size 0; else last_failure tells what went wrong. */
static vmm_status allocate(size_t size, int ordinal, void *stream, void **pointer) {
  *pointer = NULL;
  char reason[PLUGIN_MESSAGE];
  plugin_device *device = plugin_device_open(ordinal, reason, sizeof reason);
  if (!device) {
    snprintf(last_failure, sizeof last_failure, "lakebed: device %d: %s", ordinal, reason);
    return VMM_UNKNOWN;
  }
  request asked = {.device = device, .size = size, .stream = stream};
  vmm_status status = plugin_with(device, serve_alloc, &asked);
  if (status == VMM_NOT_INITIALIZED) {
    snprintf(last_failure, sizeof last_failure,
             "lakebed: this process was forked from one that uses CUDA: start it with the method spawn");
  } else if (status != VMM_SUCCESS) {
    snprintf(last_failure, sizeof last_failure, "lakebed: the process is ending");
  }
  if (status != VMM_SUCCESS) return status;
  *pointer = (void *)(uintptr_t)asked.address;
  return asked.status;
}

void *lakebed_torch_malloc(size_t size, int device, void *stream) {
  void *pointer;
  vmm_status status = allocate(size, device, stream, &pointer);
  if (status != VMM_SUCCESS) {
    plugin_raise(status == VMM_OUT_OF_MEMORY ? PLUGIN_OUT_OF_MEMORY : PLUGIN_FAILED, last_failure);
  }
  return pointer;
}

void *lakebed_torch_segment_malloc(size_t size, int device, void *stream) {
  void *pointer;
  allocate(size, device, stream, &pointer);
  return pointer;
}

static void serve_free(void *context, policy *subject) {
  request *asked = context;
  plugin_counts *counts = &asked->device->counts;
  if (!asked->address || !pool_heap_find(&subject->heap, asked->address)) {
    counts->bypassed_frees++;
    return;
  }
  uint64_t begin_ns = plugin_clock_ns();
  vmm_status status = policy_free(subject, asked->address);
  count_time(counts, &counts->free_ns, begin_ns);
  if (status == VMM_SUCCESS) {
    counts->served_frees++;
    plugin_record(asked->device, TRACE_FREE, asked->address, 0, NULL);
  } else {
    counts->failed_frees++;
    vmm_error_clear(asked->device->meter);
    vmm_error_clear(asked->device->raw);
  }
}

void lakebed_torch_free(void *pointer, size_t size, int ordinal, void *stream) {
  (void)size;
  (void)stream;
  plugin_device *device = plugin_device_opened(ordinal);
  if (!device) return;
  request asked = {.device = device, .address = (uintptr_t)pointer};
  plugin_with(device, serve_free, &asked);
}

void lakebed_torch_init(int device_count) { (void)device_count; }

void lakebed_torch_empty_cache(void) {
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    plugin_device *device = plugin_device_opened(ordinal);
    if (device) shared_policy_trim(device->policy);
  }
}

static void serve_record_stream(void *context, policy *subject) {
  request *asked = context;
  vmm_stream index;
  asked->status = VMM_SUCCESS;
  asked->found = pool_heap_find(&subject->heap, asked->address);
  if (!asked->found) return;
  asked->status = plugin_stream_of(asked->device, asked->stream, &index);
  if (asked->status == VMM_SUCCESS) asked->status = policy_record_stream(subject, asked->address, index);
}

void lakebed_torch_record_stream(void *pointer, void *stream) {
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    plugin_device *device = plugin_device_opened(ordinal);
    if (!device) continue;
    request asked = {.device = device, .address = (uintptr_t)pointer, .stream = stream};
    plugin_with(device, serve_record_stream, &asked);
    if (asked.status != VMM_SUCCESS) {
      char text[PLUGIN_MESSAGE];
      snprintf(text, sizeof text, "lakebed: record_stream on device %d: %s", ordinal,
               vmm_status_text(asked.status));
      plugin_raise(PLUGIN_FAILED, text);
    }
    if (asked.found) return;
  }
}

void lakebed_torch_begin_pool(int device, lakebed_torch_pool pool, void *filter) {
  (void)device;
  (void)pool;
  (void)filter;
  plugin_raise(
      PLUGIN_FAILED,
      "lakebed: under a policy there are no private pools, so neither CUDA graphs nor MemPools: "
      "memory that a graph uses would be given out again. Capture under PyTorch's own allocator, and "
      "use a policy for part of the memory with lakebed.mempool() (docs/pytorch.md)");
}
