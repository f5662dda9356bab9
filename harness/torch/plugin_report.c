#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/torch/plugin.h"
#include "harness/units.h"
#include "vmm/meter.h"

enum { COUNTERS = 64 };

void plugin_describe_options(const policy_spec *spec, char *text, size_t text_size) {
  size_t used = 0;
  if (text_size > 0) text[0] = '\0';
  const policy_option *options = spec->class->options;
  for (size_t i = 0; options && options[i].name && used < text_size; i++) {
    used += (size_t)snprintf(text + used, text_size - used, "%s%s=%s", i ? ", " : "", options[i].name,
                             spec->values[i].text);
  }
}

typedef struct output {
  char *text;
  size_t size, used;
  bool first;
} output;

__attribute__((format(printf, 2, 3))) static void put(output *out, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t room = out->used < out->size ? out->size - out->used : 0;
  int length = vsnprintf(room ? out->text + out->used : NULL, room, format, arguments);
  va_end(arguments);
  if (length > 0) out->used += (size_t)length;
}

static void put_bytes(output *out, const char *before, uint64_t bytes, const char *after) {
  char text[UNITS_TEXT];
  units_bytes(bytes, text);
  put(out, "%s%s%s", before, text, after);
}

/* Begins like PyTorch's message, which programs look for. */
static void explain_out_of_memory(output *out, const plugin_device *device, const policy *subject,
                                  uint64_t size) {
  const pool_heap *heap = &subject->heap;
  const pool_statistics *statistics = &heap->statistics;
  put_bytes(out, "CUDA out of memory. Tried to allocate ", size, ". ");
  put(out, "Lakebed's policy %s on GPU %d", plugin.spec.class->name, device->ordinal);
  put_bytes(out, " holds ", statistics->reserved_bytes.current, "");
  put_bytes(out, ", of which ", statistics->allocated_bytes.current, " are allocated");
  put_bytes(out, " (at most ", statistics->allocated_bytes.peak, " so far)");
  put_bytes(out, "; its largest free run is ", policy_largest_free(subject), ".");
  if (heap->limit != UINT64_MAX) put_bytes(out, " It may hold ", heap->limit, ".");
  uint64_t free_bytes, total_bytes;
  if (vmm_memory_info(device->raw, &free_bytes, &total_bytes) == VMM_SUCCESS) {
    put_bytes(out, " ", free_bytes, " of the device's ");
    put_bytes(out, "", total_bytes, " are free.");
  }
}

void plugin_explain(const plugin_device *device, const policy *subject, uint64_t size, vmm_status status,
                    char text[PLUGIN_FAILURE_TEXT]) {
  char driver_error[256], options[1024];
  output out = {.text = text, .size = PLUGIN_FAILURE_TEXT};
  vmm_error_format(&device->meter->error, driver_error, sizeof driver_error);
  plugin_describe_options(&plugin.spec, options, sizeof options);
  if (status == VMM_OUT_OF_MEMORY) {
    explain_out_of_memory(&out, device, subject, size);
  } else {
    put_bytes(&out, "lakebed: ", size, " could not be had");
    put(&out, " on GPU %d under policy %s: %s.", device->ordinal, plugin.spec.class->name,
        vmm_status_text(status));
  }
  if (driver_error[0]) put(&out, " %s.", driver_error);
  if (options[0]) put(&out, " Options: %s.", options);
  vmm_error_clear(device->meter);
  vmm_error_clear(device->raw);
}

static void put_name(output *out, const char *name) {
  put(out, "%s\"%s\": ", out->first ? "" : ", ", name);
  out->first = false;
}

static void put_number(output *out, const char *name, uint64_t value) {
  put_name(out, name);
  put(out, "%" PRIu64, value);
}

static void put_string(output *out, const char *name, const char *value) {
  put_name(out, name);
  put(out, "\"");
  for (const char *at = value; *at; at++) {
    if (*at == '"' || *at == '\\') put(out, "\\");
    put(out, "%c", (unsigned char)*at < ' ' ? ' ' : *at);
  }
  put(out, "\"");
}

static void open_object(output *out, const char *name) {
  if (name) put_name(out, name);
  put(out, "{");
  out->first = true;
}

static void close_object(output *out) {
  put(out, "}");
  out->first = false;
}

static void put_statistic(output *out, const char *name, const pool_statistic *statistic) {
  open_object(out, name);
  put_number(out, "current", statistic->current);
  put_number(out, "peak", statistic->peak);
  put_number(out, "allocated", statistic->added);
  put_number(out, "freed", statistic->taken);
  close_object(out);
}

static void put_policy(output *out, const plugin_device *device, const policy *subject) {
  put_number(out, "device", (uint64_t)device->ordinal);
  put_string(out, "device_name", device->name);
  put_string(out, "policy", plugin.spec.class->name);
  put_string(out, "spec", plugin.spec.text);
  open_object(out, "options");
  const policy_option *options = plugin.spec.class->options;
  for (size_t i = 0; options && options[i].name; i++) {
    put_string(out, options[i].name, plugin.spec.values[i].text);
  }
  close_object(out);
  put_name(out, "limit_bytes");
  if (subject->heap.limit == UINT64_MAX) {
    put(out, "null");
  } else {
    put(out, "%" PRIu64, subject->heap.limit);
  }
}

static void put_statistics(output *out, const policy *subject) {
  const pool_statistics *statistics = &subject->heap.statistics;
  put_statistic(out, "requested_bytes", &statistics->requested_bytes);
  put_statistic(out, "allocated_bytes", &statistics->allocated_bytes);
  put_statistic(out, "active_bytes", &statistics->active_bytes);
  put_statistic(out, "reserved_bytes", &statistics->reserved_bytes);
  put_statistic(out, "allocation", &statistics->allocations);
  put_statistic(out, "segment", &statistics->segments);
  put_statistic(out, "inactive_split", &statistics->inactive_split);
  put_statistic(out, "inactive_split_bytes", &statistics->inactive_split_bytes);
  put_number(out, "driver_allocations", statistics->driver_allocations);
  put_number(out, "driver_frees", statistics->driver_frees);
  put_number(out, "retries", statistics->retries);
  put_number(out, "host_waits", statistics->host_waits);
  put_number(out, "largest_free_bytes", policy_largest_free(subject));
  put_number(out, "reserved_address_bytes", subject->heap.reserved_address_bytes);
}

static void put_counts(output *out, const plugin_device *device) {
  const plugin_counts *counts = &device->counts;
  put_number(out, "served_allocations", counts->served_allocations);
  put_number(out, "served_frees", counts->served_frees);
  put_number(out, "bypassed_allocations", counts->bypassed_allocations);
  put_number(out, "bypassed_frees", counts->bypassed_frees);
  put_number(out, "failed_frees", counts->failed_frees);
  put_number(out, "out_of_memory", counts->out_of_memory);
  put_number(out, "trimmed_retries", counts->trimmed_retries);
  put_number(out, "alloc_ns", counts->alloc_ns);
  put_number(out, "free_ns", counts->free_ns);
  put_number(out, "longest_ns", counts->longest_ns);
  put_number(out, "driver_ns", device->meter->busy_ns);
  put_number(out, "streams", device->stream_count);
}

static void put_driver_calls(output *out, const plugin_device *device) {
  open_object(out, "driver_calls");
  for (vmm_call call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts;
    vmm_meter_get(device->meter, call, &counts);
    if (counts.count == 0) continue;
    open_object(out, vmm_call_name(call));
    put_number(out, "count", counts.count);
    put_number(out, "failures", counts.failures);
    put_number(out, "total_ns", counts.total_ns);
    put_number(out, "maximum_ns", counts.maximum_ns);
    close_object(out);
  }
  close_object(out);
}

typedef struct report_call {
  plugin_device *device;
  output out;
} report_call;

static void report(void *context, policy *subject) {
  report_call *call = context;
  output *out = &call->out;
  open_object(out, NULL);
  put_policy(out, call->device, subject);
  put_statistics(out, subject);
  put_counts(out, call->device);
  policy_counter counters[COUNTERS];
  size_t count = policy_counters(subject, counters, COUNTERS);
  open_object(out, "counters");
  for (size_t i = 0; i < count && i < COUNTERS; i++) put_number(out, counters[i].name, counters[i].value);
  close_object(out);
  put_driver_calls(out, call->device);
  close_object(out);
}

size_t lakebed_torch_statistics(int ordinal, char *text, size_t text_size) {
  plugin_device *device = plugin_device_opened(ordinal);
  if (!device) return 0;
  report_call call = {.device = device, .out = {.text = text, .size = text_size, .first = true}};
  return plugin_with(device, report, &call) == VMM_SUCCESS ? call.out.used : 0;
}

static void reset_longest(void *context, policy *subject) {
  (void)subject;
  plugin_device *device = context;
  device->counts.longest_ns = 0;
}

void lakebed_torch_reset_peaks(int ordinal) {
  plugin_device *device = plugin_device_opened(ordinal);
  if (!device) return;
  shared_policy_reset_peaks(device->policy);
  plugin_with(device, reset_longest, device);
}

int lakebed_torch_check(int ordinal, char *message, size_t message_size) {
  if (message_size > 0) message[0] = '\0';
  plugin_device *device = plugin_device_opened(ordinal);
  return device ? (int)shared_policy_check(device->policy, message, message_size) : (int)VMM_SUCCESS;
}
