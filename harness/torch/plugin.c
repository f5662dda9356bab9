#include "harness/torch/plugin.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char last_failure[PLUGIN_FAILURE_TEXT];

const char *lakebed_torch_failure(void) { return last_failure; }

/* A policy that finds no memory has helped itself as far as its own rules go. Returning everything unused is
 * the last thing to try, as PyTorch does. */
static vmm_status allocate_or_trim(plugin_device *device, uint64_t size, vmm_stream stream,
                                   vmm_address *address) {
  vmm_status status = policy_alloc(device->policy, size, stream, address);
  if (status != VMM_OUT_OF_MEMORY) return status;
  if (policy_trim(device->policy) != VMM_SUCCESS) return status;
  device->counts.trimmed_retries++;
  return policy_alloc(device->policy, size, stream, address);
}

static vmm_status allocate_locked(plugin_device *device, int ordinal, size_t size, void *stream,
                                  vmm_address *address) {
  uint64_t begin = plugin_clock_ns();
  vmm_stream index;
  vmm_status status = plugin_stream_of(device, stream, &index);
  if (status == VMM_SUCCESS) status = allocate_or_trim(device, size, index, address);
  uint64_t duration = plugin_clock_ns() - begin;
  device->counts.alloc_ns += duration;
  if (duration > device->counts.longest_ns) device->counts.longest_ns = duration;
  if (status == VMM_SUCCESS) {
    device->counts.served_allocations++;
    plugin_record(device, TRACE_ALLOC, *address, size, stream);
    return status;
  }
  if (status == VMM_OUT_OF_MEMORY) {
    device->counts.out_of_memory++;
    plugin_record(device, TRACE_OUT_OF_MEMORY, 0, size, stream);
  }
  plugin_explain(device, ordinal, size, status, last_failure);
  return status;
}

/* NULL and SUCCESS for size 0; else last_failure tells what went wrong. */
static vmm_status allocate(size_t size, int ordinal, void *stream, void **pointer) {
  *pointer = NULL;
  char reason[512];
  plugin_device *device = plugin_device_enter(ordinal, reason, sizeof reason);
  if (!device) {
    snprintf(last_failure, sizeof last_failure, "lakebed: device %d: %s", ordinal, reason);
    return VMM_UNKNOWN;
  }
  vmm_status status = VMM_SUCCESS;
  if (size == 0) {
    device->counts.bypassed_allocations++;
  } else {
    vmm_address address = 0;
    status = allocate_locked(device, ordinal, size, stream, &address);
    if (status == VMM_SUCCESS) *pointer = (void *)(uintptr_t)address;
  }
  plugin_device_leave(device);
  return status;
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

void lakebed_torch_free(void *pointer, size_t size, int ordinal, void *stream) {
  (void)size;
  (void)stream;
  plugin_device *device = plugin_device_enter_opened(ordinal);
  if (!device) return;
  vmm_address address = (uintptr_t)pointer;
  if (!address || !pool_heap_find(&device->policy->heap, address)) {
    device->counts.bypassed_frees++;
  } else {
    uint64_t begin = plugin_clock_ns();
    vmm_status status = policy_free(device->policy, address);
    uint64_t duration = plugin_clock_ns() - begin;
    device->counts.free_ns += duration;
    if (duration > device->counts.longest_ns) device->counts.longest_ns = duration;
    if (status == VMM_SUCCESS) {
      device->counts.served_frees++;
      plugin_record(device, TRACE_FREE, address, 0, NULL);
    } else {
      device->counts.failed_frees++;
    }
  }
  plugin_device_leave(device);
}

void lakebed_torch_init(int device_count) { (void)device_count; }

void lakebed_torch_empty_cache(void) {
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    plugin_device *device = plugin_device_enter_opened(ordinal);
    if (!device) continue;
    policy_trim(device->policy);
    plugin_device_leave(device);
  }
}

void lakebed_torch_record_stream(void *pointer, void *stream) {
  char text[PLUGIN_FAILURE_TEXT] = "";
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    plugin_device *device = plugin_device_enter_opened(ordinal);
    if (!device) continue;
    bool here = pool_heap_find(&device->policy->heap, (uintptr_t)pointer);
    vmm_stream index;
    vmm_status status = here ? plugin_stream_of(device, stream, &index) : VMM_SUCCESS;
    if (here && status == VMM_SUCCESS) {
      status = policy_record_stream(device->policy, (uintptr_t)pointer, index);
    }
    plugin_device_leave(device);
    if (status != VMM_SUCCESS) {
      snprintf(text, sizeof text, "lakebed: record_stream on device %d: %s", ordinal,
               vmm_status_text(status));
    }
    if (here) break;
  }
  if (text[0]) plugin_raise(PLUGIN_FAILED, text);
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
