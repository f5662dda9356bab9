#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/torch/plugin.h"
#include "vmm/cuda.h"
#include "vmm/meter.h"
#include "vmm/sim.h"

plugin_state plugin = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void end_recording(void *context, policy *subject) {
  (void)subject;
  char message[PLUGIN_MESSAGE];
  plugin_record_stop(context, message, sizeof message);
}

/* Recordings that nobody ended get their name, and frees that come later find nothing to do: the device may
 * be gone by then. */
__attribute__((destructor)) static void close_at_exit(void) {
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    plugin_device *device = plugin_device_opened(ordinal);
    if (!device) continue;
    plugin_with(device, end_recording, device);
    shared_policy_close(device->policy);
  }
}

/* Where policies are to lie. */
typedef struct device_words {
  bool simulated;
  char profile[sizeof plugin.profile];
  uint64_t capacity;
} device_words;

/* "sim[:PROFILE[:CAPACITY]]" or "cuda" */
static vmm_status parse_device(const char *text, device_words *parsed, char *message, size_t message_size) {
  *parsed = (device_words){0};
  if (strcmp(text, "cuda") == 0) return VMM_SUCCESS;
  if (strncmp(text, "sim", 3) != 0 || (text[3] && text[3] != ':')) {
    snprintf(message, message_size, "device '%s': expected cuda or sim[:PROFILE[:CAPACITY]]", text);
    return VMM_INVALID_VALUE;
  }
  parsed->simulated = true;
  const char *profile = text[3] ? text + 4 : "h200";
  size_t length = strcspn(profile, ":");
  if (length == 0 || length >= sizeof parsed->profile) {
    snprintf(message, message_size, "device '%s': expected the name of a profile after sim:", text);
    return VMM_INVALID_VALUE;
  }
  memcpy(parsed->profile, profile, length);
  if (profile[length] && !policy_parse_size(profile + length + 1, &parsed->capacity)) {
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

/* The state's lock is held. A failure leaves what was configured. */
static vmm_status configure(const char *policy_text, const char *device_text, char *message,
                            size_t message_size) {
  policy_spec spec;
  device_words device;
  policy_text = or_environment(policy_text, "LAKEBED_POLICY", "aliasheap");
  device_text = or_environment(device_text, "LAKEBED_TORCH_DEVICE", "cuda");
  vmm_status status = policy_spec_parse(policy_text, &spec, message, message_size);
  if (status == VMM_SUCCESS) status = parse_device(device_text, &device, message, message_size);
  if (status != VMM_SUCCESS) return status;
  const policy_class *class = spec.class;
  if (class->capabilities & POLICY_NEEDS_LIFETIMES) {
    snprintf(message, message_size, "policy %s must see the whole trace first: it cannot serve a live run",
             class->name);
    return VMM_NOT_SUPPORTED;
  }
  if ((class->capabilities & POLICY_NO_MEMORY) && !device.simulated) {
    snprintf(message, message_size,
             "policy %s has no memory behind its addresses: it cannot serve a live run", class->name);
    return VMM_NOT_SUPPORTED;
  }
  plugin.spec = spec;
  plugin.simulated = device.simulated;
  memcpy(plugin.profile, device.profile, sizeof plugin.profile);
  plugin.capacity = device.capacity;
  plugin.configured = true;
  return VMM_SUCCESS;
}

static bool any_opened(void) {
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    if (plugin_device_opened(ordinal)) return true;
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
static vmm_status open_real(plugin_device *device, char *message, size_t message_size) {
  const unsigned ordinal = (unsigned)device->ordinal;
  unsigned peers[PLUGIN_DEVICES];
  vmm_cuda_information information;
  vmm_status status = vmm_cuda_inspect(ordinal, &information, message, message_size);
  if (status != VMM_SUCCESS) return status;
  vmm_cuda_configuration configuration = {.ordinal = ordinal, .peers = peers};
  for (unsigned peer = 0; peer < information.device_count && peer < PLUGIN_DEVICES / 2; peer++) {
    if (peer != ordinal) peers[configuration.peer_count++] = peer;
  }
  status = vmm_cuda_create(&configuration, &device->raw, message, message_size);
  if (status != VMM_SUCCESS) return status;
  device->total_bytes = information.total_bytes;
  snprintf(device->name, sizeof device->name, "%.120s", information.device);
  return VMM_SUCCESS;
}

/* The state's lock is held. */
static void close_device(plugin_device *device) {
  shared_policy_destroy(atomic_exchange(&device->policy, NULL));
  vmm_driver_destroy(device->meter);
  vmm_driver_destroy(device->raw);
  trace_id_map_free(&device->streams);
  const double fraction = device->fraction;
  const bool limited = device->limited;
  memset(device, 0, sizeof *device);
  device->fraction = fraction;
  device->limited = limited;
}

static uint64_t limit_of(const plugin_device *device) {
  return device->limited ? (uint64_t)(device->fraction * (double)device->total_bytes) : UINT64_MAX;
}

static void announce(const plugin_device *device) {
  const char *quiet = getenv("LAKEBED_QUIET");
  if (quiet && *quiet && strcmp(quiet, "0") != 0) return;
  char options[1024];
  plugin_describe_options(&plugin.spec, options, sizeof options);
  fprintf(stderr, "lakebed: device %d (%s): policy %s%s%s\n", device->ordinal, device->name,
          plugin.spec.class->name, options[0] ? ", " : "", options);
}

/* The device that the policy lies on, and a meter around it. */
static vmm_status open_drivers(plugin_device *device, char *message, size_t message_size) {
  vmm_status status = plugin.simulated ? open_simulated(device, message, message_size)
                                       : open_real(device, message, message_size);
  if (status != VMM_SUCCESS) return status;
  status = vmm_meter_create(device->raw, &device->meter);
  if (status != VMM_SUCCESS) snprintf(message, message_size, "no memory for the device");
  return status;
}

/* The state's lock is held. */
static vmm_status open_device(plugin_device *device, char *message, size_t message_size) {
  vmm_status status = plugin.configured ? VMM_SUCCESS : configure(NULL, NULL, message, message_size);
  if (status != VMM_SUCCESS) return status;
  trace_id_map_init(&device->streams, 0);
  device->stream_count = 1;
  policy *subject = NULL;
  shared_policy *shared = NULL;
  status = open_drivers(device, message, message_size);
  if (status == VMM_SUCCESS) {
    status = policy_create(&plugin.spec, device->meter, limit_of(device), &subject, message, message_size);
  }
  if (status == VMM_SUCCESS) {
    status = shared_policy_create(subject, &shared);
    if (status != VMM_SUCCESS) {
      snprintf(message, message_size, "the policy cannot be shared: %s", vmm_status_text(status));
      policy_destroy(subject);
    }
  }
  if (status != VMM_SUCCESS) {
    close_device(device);
    return status;
  }
  announce(device);
  atomic_store_explicit(&device->policy, shared, memory_order_release);
  plugin_record_wanted(device);
  return VMM_SUCCESS;
}

plugin_device *plugin_device_opened(int ordinal) {
  if (ordinal < 0 || ordinal >= PLUGIN_DEVICES) return NULL;
  plugin_device *device = &plugin.devices[ordinal];
  return atomic_load_explicit(&device->policy, memory_order_acquire) ? device : NULL;
}

plugin_device *plugin_device_open(int ordinal, char *message, size_t message_size) {
  plugin_device *device = plugin_device_opened(ordinal);
  if (device) return device;
  if (ordinal < 0 || ordinal >= PLUGIN_DEVICES) {
    snprintf(message, message_size, "there is no such device: at most %d", PLUGIN_DEVICES);
    return NULL;
  }
  device = &plugin.devices[ordinal];
  pthread_mutex_lock(&plugin.lock);
  vmm_status status = VMM_SUCCESS;
  if (!plugin_device_opened(ordinal)) {
    device->ordinal = ordinal;
    status = open_device(device, message, message_size);
  }
  pthread_mutex_unlock(&plugin.lock);
  return status == VMM_SUCCESS ? device : NULL;
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
  char text[PLUGIN_MESSAGE] = "";
  if (!(fraction >= 0 && fraction <= 1) || ordinal < 0 || ordinal >= PLUGIN_DEVICES) {
    snprintf(text, sizeof text, "lakebed: a memory fraction of %g of device %d: expected 0 to 1", fraction,
             ordinal);
  } else {
    pthread_mutex_lock(&plugin.lock);
    plugin_device *device = &plugin.devices[ordinal];
    const double fraction_before = device->fraction;
    const bool limited_before = device->limited;
    device->fraction = fraction;
    device->limited = fraction < 1;
    vmm_status status = VMM_SUCCESS;
    if (plugin_device_opened(ordinal)) status = shared_policy_set_limit(device->policy, limit_of(device));
    if (status != VMM_SUCCESS) {
      device->fraction = fraction_before;
      device->limited = limited_before;
      snprintf(text, sizeof text, "lakebed: policy %s cannot change its limit while memory is allocated: %s",
               plugin.spec.class->name, vmm_status_text(status));
    }
    pthread_mutex_unlock(&plugin.lock);
  }
  if (text[0]) plugin_raise(PLUGIN_FAILED, text);
}

void lakebed_torch_close(void) {
  pthread_mutex_lock(&plugin.lock);
  for (int ordinal = 0; ordinal < PLUGIN_DEVICES; ordinal++) {
    plugin_device *device = plugin_device_opened(ordinal);
    if (device) {
      plugin_with(device, end_recording, device);
      close_device(device);
    }
    plugin.devices[ordinal].limited = false;
  }
  plugin.configured = false;
  free(plugin.wanted_path);
  plugin.wanted_path = NULL;
  pthread_mutex_unlock(&plugin.lock);
}
