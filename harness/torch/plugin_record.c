#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/torch/plugin.h"

static uint64_t wall_clock_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000) + (uint64_t)now.tv_nsec / 1000;
}

/* A recording that fails ends, and the run goes on. */
static void give_up(plugin_device *device, const trace_error *error) {
  snprintf(device->recording_failure, sizeof device->recording_failure, "%s", error->message);
  trace_writer_abandon(device->recording);
  device->recording = NULL;
}

void plugin_record(plugin_device *device, trace_event_kind kind, uint64_t address, uint64_t size,
                   void *stream) {
  if (!device->recording) return;
  trace_error error;
  trace_event event = {.kind = kind, .id = address, .size = size, .time_us = wall_clock_us()};
  if (trace_writer_add(device->recording, &event, (uintptr_t)stream, &error) != TRACE_OK) {
    give_up(device, &error);
  }
}

static int by_address(const void *left, const void *right) {
  const pool_allocation *a = left, *b = right;
  return a->address < b->address ? -1 : a->address > b->address;
}

/* The handle of a stream that the policy knows by its number. */
static void *handle_of(const plugin_device *device, vmm_stream index) {
  for (size_t i = 0; i < device->streams.capacity; i++) {
    const trace_id_entry *entry = &device->streams.entries[i];
    if (entry->value == index) return (void *)(uintptr_t)entry->id;
  }
  return NULL;
}

/* What is live comes first, in the order of addresses: when it came is not known any more. */
static bool record_live(plugin_device *device, const policy *subject) {
  const pool_allocation_map *map = &subject->heap.allocations;
  pool_allocation *live = malloc((map->count + 1) * sizeof *live);
  if (!live) return false;
  uint64_t count = 0;
  for (uint64_t i = 0; i < map->capacity; i++) {
    const pool_allocation *entry = &map->entries[i];
    if (entry->address && !entry->pending_events) live[count++] = *entry;
  }
  qsort(live, count, sizeof *live, by_address);
  for (uint64_t i = 0; i < count; i++) {
    plugin_record(device, TRACE_ALLOC, live[i].address, live[i].requested, handle_of(device, live[i].stream));
  }
  free(live);
  return true;
}

/* A call about a recording on its way to the lock. */
typedef struct recording_call {
  plugin_device *device;
  const char *path;
  char *message;
  size_t message_size;
  vmm_status status;
} recording_call;

static void begin_recording(void *context, policy *subject) {
  recording_call *call = context;
  plugin_device *device = call->device;
  trace_error error;
  call->status = VMM_SUCCESS;
  if (device->recording) {
    snprintf(call->message, call->message_size, "device %d is being recorded already", device->ordinal);
    call->status = VMM_NOT_PERMITTED;
    return;
  }
  if (trace_writer_open(call->path, TRACE_FILE_LAKEBED, &device->recording, &error) != TRACE_OK) {
    snprintf(call->message, call->message_size, "%s", error.message);
    device->recording = NULL;
    call->status = VMM_OPERATING_SYSTEM;
    return;
  }
  device->recording_failure[0] = '\0';
  if (!record_live(device, subject)) {
    trace_writer_abandon(device->recording);
    device->recording = NULL;
    snprintf(call->message, call->message_size, "no memory for the list of live allocations");
    call->status = VMM_OUT_OF_MEMORY;
  }
}

static int call_with_lock(recording_call *call, shared_policy_use *use) {
  vmm_status status = plugin_with(call->device, use, call);
  if (status == VMM_SUCCESS) return (int)call->status;
  snprintf(call->message, call->message_size, "this process was forked, or is ending");
  return (int)status;
}

void plugin_record_wanted(plugin_device *device) {
  if (!plugin.wanted_path || (plugin.wanted_ordinal >= 0 && plugin.wanted_ordinal != device->ordinal)) return;
  recording_call call = {device, plugin.wanted_path, device->recording_failure,
                         sizeof device->recording_failure, VMM_SUCCESS};
  call_with_lock(&call, begin_recording);
  free(plugin.wanted_path);
  plugin.wanted_path = NULL;
}

/* The device of a number, or for -1 the first that is open. */
static plugin_device *opened_device(int ordinal) {
  if (ordinal >= 0) return plugin_device_opened(ordinal);
  plugin_device *device = NULL;
  for (int i = 0; i < PLUGIN_DEVICES && !device; i++) device = plugin_device_opened(i);
  return device;
}

/* The state's lock is held. */
static vmm_status want_recording(const char *path, int ordinal, char *message, size_t message_size) {
  if (plugin.wanted_path) {
    snprintf(message, message_size, "a recording is to begin already: %s", plugin.wanted_path);
    return VMM_NOT_PERMITTED;
  }
  plugin.wanted_path = strdup(path);
  plugin.wanted_ordinal = ordinal;
  if (plugin.wanted_path) return VMM_SUCCESS;
  snprintf(message, message_size, "no memory for the path");
  return VMM_OUT_OF_MEMORY;
}

int lakebed_torch_record_begin(const char *path, int ordinal, char *message, size_t message_size) {
  if (message_size > 0) message[0] = '\0';
  if (ordinal < -1 || ordinal >= PLUGIN_DEVICES) {
    snprintf(message, message_size, "there is no device %d", ordinal);
    return (int)VMM_INVALID_DEVICE;
  }
  pthread_mutex_lock(&plugin.lock);
  plugin_device *device = opened_device(ordinal);
  int status = device ? 0 : (int)want_recording(path, ordinal, message, message_size);
  pthread_mutex_unlock(&plugin.lock);
  if (!device) return status;
  recording_call call = {device, path, message, message_size, VMM_SUCCESS};
  return call_with_lock(&call, begin_recording);
}

vmm_status plugin_record_stop(plugin_device *device, char *message, size_t message_size) {
  if (device->recording) {
    trace_error error;
    trace_writer *recording = device->recording;
    device->recording = NULL;
    if (trace_writer_finish(recording, &error) == TRACE_OK) return VMM_SUCCESS;
    snprintf(message, message_size, "%s", error.message);
    return VMM_OPERATING_SYSTEM;
  }
  if (device->recording_failure[0]) {
    snprintf(message, message_size, "%s", device->recording_failure);
    return VMM_OPERATING_SYSTEM;
  }
  snprintf(message, message_size, "nothing is being recorded");
  return VMM_NOT_FOUND;
}

static void stop_recording(void *context, policy *subject) {
  (void)subject;
  recording_call *call = context;
  call->status = plugin_record_stop(call->device, call->message, call->message_size);
}

int lakebed_torch_record_end(int ordinal, char *message, size_t message_size) {
  if (message_size > 0) message[0] = '\0';
  recording_call call = {opened_device(ordinal), NULL, message, message_size, VMM_SUCCESS};
  if (call.device) return call_with_lock(&call, stop_recording);
  snprintf(message, message_size, "no device is open: nothing was allocated");
  return (int)VMM_NOT_FOUND;
}
