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
static bool record_live(plugin_device *device) {
  const pool_allocation_map *map = &device->policy->heap.allocations;
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

int lakebed_torch_record_begin(const char *path, int ordinal, char *message, size_t message_size) {
  if (message_size > 0) message[0] = '\0';
  plugin_device *device = plugin_device_enter(ordinal, message, message_size);
  if (!device) return (int)VMM_UNKNOWN;
  vmm_status status = VMM_SUCCESS;
  trace_error error;
  if (device->recording) {
    snprintf(message, message_size, "device %d is being recorded already", ordinal);
    status = VMM_NOT_PERMITTED;
  } else if (trace_writer_open(path, TRACE_FILE_LAKEBED, &device->recording, &error) != TRACE_OK) {
    snprintf(message, message_size, "%s", error.message);
    device->recording = NULL;
    status = VMM_OPERATING_SYSTEM;
  } else {
    device->recording_failure[0] = '\0';
    if (!record_live(device)) {
      trace_writer_abandon(device->recording);
      device->recording = NULL;
      snprintf(message, message_size, "no memory for the list of live allocations");
      status = VMM_OUT_OF_MEMORY;
    }
  }
  plugin_device_leave(device);
  return (int)status;
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

int lakebed_torch_record_end(int ordinal, char *message, size_t message_size) {
  if (message_size > 0) message[0] = '\0';
  plugin_device *device = plugin_device_enter_opened(ordinal);
  if (!device) {
    snprintf(message, message_size, "device %d is not open", ordinal);
    return (int)VMM_NOT_FOUND;
  }
  vmm_status status = plugin_record_stop(device, message, message_size);
  plugin_device_leave(device);
  return (int)status;
}
