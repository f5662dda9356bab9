#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/torch/plugin.h"
#include "vmm/cuda.h"
#include "vmm/meter.h"
#include "vmm/sim.h"

plugin_state plugin = {.lock = PTHREAD_MUTEX_INITIALIZER,
                       .devices = {[0 ... PLUGIN_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}}};

/* CUDA does not survive a fork, and a lock may have been held by a thread that is no more: a child touches
 * neither. */
static void in_child(void) { atomic_store(&plugin.child, true); }

/* Recordings that nobody ended. */
static void at_exit(void) {
  if (atomic_load(&plugin.child)) return;
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    plugin_device *device = &plugin.devices[ordinal];
    /* A thread that was ended inside a call keeps its lock. */
    if (pthread_mutex_trylock(&device->lock) != 0) continue;
    char message[512];
    if (device->opened) plugin_record_stop(device, message, sizeof message);
    pthread_mutex_unlock(&device->lock);
  }
}

__attribute__((constructor)) static void loaded(void) { pthread_atfork(NULL, NULL, in_child); }
__attribute__((destructor)) static void unloaded(void) { at_exit(); }

/* "sim[:PROFILE[:CAPACITY]]" or "cuda" */
static vmm_status parse_device(const char *text, char *message, size_t message_size) {
  plugin.simulated = false;
  plugin.capacity = 0;
  if (strcmp(text, "cuda") == 0) return VMM_SUCCESS;
  if (strncmp(text, "sim", 3) != 0 || (text[3] && text[3] != ':')) {
    snprintf(message, message_size, "device '%s': expected cuda or sim[:PROFILE[:CAPACITY]]", text);
    return VMM_INVALID_VALUE;
  }
  plugin.simulated = true;
  const char *profile = text[3] ? text + 4 : "h200";
  size_t length = strcspn(profile, ":");
  if (length == 0 || length >= sizeof plugin.profile) {
    snprintf(message, message_size, "device '%s': expected the name of a profile after sim:", text);
    return VMM_INVALID_VALUE;
  }
  memcpy(plugin.profile, profile, length);
  plugin.profile[length] = '\0';
  if (profile[length] && !policy_parse_size(profile + length + 1, &plugin.capacity)) {
    snprintf(message, message_size, "device '%s': '%s' is no size", text, profile + length + 1);
    return VMM_INVALID_VALUE;
  }
  return VMM_SUCCESS;
}

static const char *or_environment(const char *given, const char *name, const char *otherwise) {
  if (given) return given;
  const char *set = getenv(name);
  return set && *set ? set : otherwise;
}

/* The state's lock is held. */
static vmm_status configure(const char *policy_text, const char *device_text, char *message,
                            size_t message_size) {
  plugin.configured = false;
  policy_text = or_environment(policy_text, "LAKEBED_POLICY", "aliasheap");
  device_text = or_environment(device_text, "LAKEBED_TORCH_DEVICE", "cuda");
  vmm_status status = policy_spec_parse(policy_text, &plugin.spec, message, message_size);
  if (status == VMM_SUCCESS) status = parse_device(device_text, message, message_size);
  if (status != VMM_SUCCESS) return status;
  const policy_class *class = plugin.spec.class;
  if (class->capabilities & POLICY_NEEDS_LIFETIMES) {
    snprintf(message, message_size, "policy %s must see the whole trace first: it cannot serve a live run",
             class->name);
    return VMM_NOT_SUPPORTED;
  }
  if ((class->capabilities & POLICY_NO_MEMORY) && !plugin.simulated) {
    snprintf(message, message_size,
             "policy %s has no memory behind its addresses: it cannot serve a live run", class->name);
    return VMM_NOT_SUPPORTED;
  }
  plugin.configured = true;
  return VMM_SUCCESS;
}

static bool any_opened(void) {
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    if (plugin.devices[ordinal].opened) return true;
  }
  return false;
}

int lakebed_torch_configure(const char *policy_text, const char *device_text, char *message,
                            size_t message_size) {
  if (message_size > 0) message[0] = '\0';
  pthread_mutex_lock(&plugin.lock);
  vmm_status status = VMM_NOT_PERMITTED;
  if (any_opened()) {
    snprintf(message, message_size, "the policy cannot change: memory was allocated with %s already",
             plugin.spec.text);
  } else {
    status = configure(policy_text, device_text, message, message_size);
  }
  pthread_mutex_unlock(&plugin.lock);
  return (int)status;
}

int lakebed_torch_describe(char *text, size_t text_size) {
  char message[512];
  pthread_mutex_lock(&plugin.lock);
  vmm_status status = plugin.configured ? VMM_SUCCESS : configure(NULL, NULL, message, sizeof message);
  if (status == VMM_SUCCESS) {
    char options[1024];
    plugin_describe_options(&plugin.spec, options, sizeof options);
    snprintf(text, text_size, "%s%s%s", plugin.spec.class->name, options[0] ? ": " : "", options);
  } else {
    snprintf(text, text_size, "%s", message);
  }
  pthread_mutex_unlock(&plugin.lock);
  return (int)status;
}

static vmm_status open_simulated(plugin_device *device, char *message, size_t message_size) {
  vmm_profile *profile = NULL;
  vmm_status status = vmm_profile_load(plugin.profile, &profile, message, message_size);
  if (status != VMM_SUCCESS) return status;
  uint64_t granularity = vmm_profile_granularity(profile);
  uint64_t usable = plugin.capacity ? plugin.capacity : vmm_profile_usable_bytes(profile);
  device->total_bytes = plugin.capacity ? plugin.capacity : vmm_profile_total_bytes(profile);
  snprintf(device->name, sizeof device->name, "simulated %s", vmm_profile_device(profile));
  /* Latencies would be charged to nobody: the profile gives the device's shape only. */
  vmm_sim_configuration configuration = {.capacity = usable & ~(granularity - 1), .granularity = granularity};
  status = vmm_sim_create(&configuration, &device->raw);
  if (status != VMM_SUCCESS) {
    snprintf(message, message_size, "a simulated device of %" PRIu64 " bytes cannot be made: %s",
             configuration.capacity, vmm_status_text(status));
  }
  vmm_profile_destroy(profile);
  return status;
}

/* All other devices may reach the memory, as copies between devices need it. */
static vmm_status open_real(plugin_device *device, int ordinal, char *message, size_t message_size) {
  unsigned peers[PLUGIN_DEVICES];
  vmm_cuda_information information;
  vmm_status status = vmm_cuda_inspect((unsigned)ordinal, &information, message, message_size);
  if (status != VMM_SUCCESS) return status;
  vmm_cuda_configuration configuration = {.ordinal = (unsigned)ordinal, .peers = peers};
  for (unsigned peer = 0; peer < information.device_count && peer < PLUGIN_DEVICES / 2; peer++) {
    if (peer != (unsigned)ordinal) peers[configuration.peer_count++] = peer;
  }
  status = vmm_cuda_create(&configuration, &device->raw, message, message_size);
  if (status != VMM_SUCCESS) return status;
  device->total_bytes = information.total_bytes;
  snprintf(device->name, sizeof device->name, "%.120s", information.device);
  return VMM_SUCCESS;
}

static void close_device(plugin_device *device) {
  policy_destroy(device->policy);
  vmm_driver_destroy(device->meter);
  vmm_driver_destroy(device->raw);
  trace_id_map_free(&device->streams);
  device->policy = NULL;
  device->raw = device->meter = NULL;
  device->stream_count = 0;
  device->counts = (plugin_counts){0};
  device->recording_failure[0] = '\0';
  device->opened = false;
}

static uint64_t limit_of(const plugin_device *device) {
  if (device->fraction <= 0) return UINT64_MAX;
  return (uint64_t)(device->fraction * (double)device->total_bytes);
}

static void announce(const plugin_device *device, int ordinal) {
  const char *quiet = getenv("LAKEBED_QUIET");
  if (quiet && *quiet && strcmp(quiet, "0") != 0) return;
  char options[1024];
  plugin_describe_options(&plugin.spec, options, sizeof options);
  fprintf(stderr, "lakebed: device %d (%s): policy %s%s%s\n", ordinal, device->name, plugin.spec.class->name,
          options[0] ? ", " : "", options);
}

/* The state's and the device's locks are held. */
static vmm_status open_device(plugin_device *device, int ordinal, char *message, size_t message_size) {
  vmm_status status = plugin.configured ? VMM_SUCCESS : configure(NULL, NULL, message, message_size);
  if (status != VMM_SUCCESS) return status;
  trace_id_map_init(&device->streams, 0);
  device->stream_count = 1;
  status = plugin.simulated ? open_simulated(device, message, message_size)
                            : open_real(device, ordinal, message, message_size);
  if (status == VMM_SUCCESS) {
    status = vmm_meter_create(device->raw, &device->meter);
    if (status != VMM_SUCCESS) snprintf(message, message_size, "no memory for the device");
  }
  if (status == VMM_SUCCESS) {
    status =
        policy_create(&plugin.spec, device->meter, limit_of(device), &device->policy, message, message_size);
  }
  if (status != VMM_SUCCESS) {
    close_device(device);
    return status;
  }
  device->opened = true;
  announce(device, ordinal);
  return VMM_SUCCESS;
}

plugin_device *plugin_device_enter(int ordinal, char *message, size_t message_size) {
  if (atomic_load(&plugin.child)) {
    snprintf(message, message_size,
             "this process was forked from one that uses CUDA: start workers with the method spawn");
    return NULL;
  }
  if (ordinal < 0 || ordinal >= PLUGIN_DEVICES) {
    snprintf(message, message_size, "there is no such device: at most %d", PLUGIN_DEVICES);
    return NULL;
  }
  plugin_device *device = &plugin.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  if (device->opened) return device;
  /* In the order in which all take the locks. */
  pthread_mutex_unlock(&device->lock);
  pthread_mutex_lock(&plugin.lock);
  pthread_mutex_lock(&device->lock);
  vmm_status status = device->opened ? VMM_SUCCESS : open_device(device, ordinal, message, message_size);
  pthread_mutex_unlock(&plugin.lock);
  if (status == VMM_SUCCESS) return device;
  pthread_mutex_unlock(&device->lock);
  return NULL;
}

plugin_device *plugin_device_enter_opened(int ordinal) {
  if (atomic_load(&plugin.child) || ordinal < 0 || ordinal >= PLUGIN_DEVICES) return NULL;
  plugin_device *device = &plugin.devices[ordinal];
  pthread_mutex_lock(&device->lock);
  if (device->opened) return device;
  pthread_mutex_unlock(&device->lock);
  return NULL;
}

vmm_status plugin_stream_of(plugin_device *device, void *stream, vmm_stream *index) {
  /* cudaStreamLegacy is 1: the default stream by another name. */
  const uintptr_t handle = (uintptr_t)stream;
  *index = 0;
  if (handle <= 1) return VMM_SUCCESS;
  uint32_t known = trace_id_map_find(&device->streams, handle);
  if (known != TRACE_ID_EMPTY) {
    *index = known;
    return VMM_SUCCESS;
  }
  if (device->stream_count >= POOL_STREAM_LIMIT) return VMM_INVALID_VALUE;
  if (!plugin.simulated) {
    vmm_status status = vmm_cuda_stream_adopt(device->raw, device->stream_count, stream);
    if (status != VMM_SUCCESS) return status;
  }
  trace_id_entry *entry = trace_id_map_put(&device->streams, handle);
  /* The number is not used again: the driver knows it by now. */
  *index = device->stream_count++;
  if (!entry) return VMM_OUT_OF_MEMORY;
  entry->value = *index;
  return VMM_SUCCESS;
}

void lakebed_torch_memory_fraction(double fraction, int ordinal) {
  char text[512] = "";
  if (!(fraction >= 0 && fraction <= 1) || ordinal < 0 || ordinal >= PLUGIN_DEVICES) {
    snprintf(text, sizeof text, "lakebed: a memory fraction of %g of device %d: expected 0 to 1", fraction,
             ordinal);
  } else if (!atomic_load(&plugin.child)) {
    plugin_device *device = &plugin.devices[ordinal];
    pthread_mutex_lock(&device->lock);
    /* The driver's own pool has its bound from the beginning. */
    if (device->opened && (device->policy->class->capabilities & POLICY_NEEDS_ASYNC)) {
      snprintf(text, sizeof text, "lakebed: policy %s cannot change its limit after its first allocation",
               device->policy->class->name);
    } else {
      device->fraction = fraction;
      if (device->opened) device->policy->heap.limit = limit_of(device);
    }
    pthread_mutex_unlock(&device->lock);
  }
  if (text[0]) plugin_raise(PLUGIN_FAILED, text);
}

void lakebed_torch_close(void) {
  pthread_mutex_lock(&plugin.lock);
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    plugin_device *device = &plugin.devices[ordinal];
    char message[512];
    pthread_mutex_lock(&device->lock);
    if (device->opened) {
      plugin_record_stop(device, message, sizeof message);
      close_device(device);
    }
    device->fraction = 0;
    pthread_mutex_unlock(&device->lock);
  }
  plugin.configured = false;
  pthread_mutex_unlock(&plugin.lock);
}
