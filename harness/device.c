#include "harness/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/units.h"
#include "policies/policy.h"
#include "vmm/cuda.h"
#include "vmm/meter.h"
#include "vmm/sim.h"

static exit_status refuse_driver(const char *name, char *message, size_t message_size) {
  static const char *const drivers[] = {"sim", "cuda", NULL};
  const char *nearest = policy_nearest_word(name, drivers);
  snprintf(message, message_size, "no driver '%s'%s%s%s; there are: sim, cuda", name,
           nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
  return EXIT_STATUS_USAGE;
}

static exit_status refuse_profile(const char *name, char *message, size_t message_size) {
  const char *const *names = vmm_profile_names();
  char valid[256] = "";
  size_t used = 0;
  for (size_t i = 0; names[i] && used < sizeof valid; i++) {
    used += (size_t)snprintf(valid + used, sizeof valid - used, "%s%s", i ? ", " : "", names[i]);
  }
  const char *nearest = policy_nearest_word(name, names);
  snprintf(message, message_size, "no device '%s'%s%s%s; there are: %s, or the path of a profile file", name,
           nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "", valid);
  return EXIT_STATUS_USAGE;
}

static bool is_profile_name(const char *name) {
  for (const char *const *known = vmm_profile_names(); *known; known++) {
    if (strcmp(*known, name) == 0) return true;
  }
  return false;
}

/* Filling the device would fill the host: refuse what does not fit. */
static exit_status check_backing(const device_model *model, char *message, size_t message_size) {
  long pages = sysconf(_SC_AVPHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  if (!model->backed || pages < 0 || page_bytes < 0) return EXIT_STATUS_DONE;
  uint64_t available = (uint64_t)pages * (uint64_t)page_bytes;
  if (model->capacity <= available) return EXIT_STATUS_DONE;
  char wanted[UNITS_TEXT], have[UNITS_TEXT];
  units_bytes(model->capacity, wanted);
  units_bytes(available, have);
  snprintf(message, message_size,
           "to verify, the simulated device lies in this machine's memory: its %s are more than the %s that "
           "are free; "
           "give a smaller --capacity",
           wanted, have);
  return EXIT_STATUS_USAGE;
}

bool device_capacity_allowed(uint64_t capacity, char *message, size_t message_size) {
  if (capacity <= VMM_SIM_LARGEST_CAPACITY) return true;
  char wanted[UNITS_TEXT], most[UNITS_TEXT];
  units_bytes(capacity, wanted);
  units_bytes(VMM_SIM_LARGEST_CAPACITY, most);
  snprintf(message, message_size, "the capacity of %s is more than a simulated device can have: at most %s",
           wanted, most);
  return false;
}

static exit_status load_simulated(const device_choice *choice, device_model *model, char *message,
                                  size_t message_size) {
  if (!is_profile_name(choice->profile) && access(choice->profile, F_OK) != 0) {
    return refuse_profile(choice->profile, message, message_size);
  }
  if (vmm_profile_load(choice->profile, &model->profile, message, message_size) != VMM_SUCCESS) {
    return EXIT_STATUS_USAGE;
  }
  uint64_t granularity = vmm_profile_granularity(model->profile);
  if (choice->capacity % granularity != 0) {
    snprintf(message, message_size,
             "the capacity of %" PRIu64 " bytes is no multiple of the device's granularity of %" PRIu64,
             choice->capacity, granularity);
    device_model_unload(model);
    return EXIT_STATUS_USAGE;
  }
  model->choice = choice->profile;
  model->granularity = granularity;
  model->name = vmm_profile_device(model->profile);
  model->source = vmm_profile_source(model->profile);
  model->capacity =
      choice->capacity ? choice->capacity : vmm_profile_usable_bytes(model->profile) & ~(granularity - 1);
  model->total = choice->capacity ? choice->capacity : vmm_profile_total_bytes(model->profile);
  model->backed = choice->backed;
  model->event_delay = choice->event_delay;
  exit_status status = device_capacity_allowed(model->capacity, message, message_size)
                           ? check_backing(model, message, message_size)
                           : EXIT_STATUS_USAGE;
  /* What the driver refuses about the choice shows now, not after an hour. */
  device trial;
  if (status == EXIT_STATUS_DONE) status = device_open(model, &trial, message, message_size);
  if (status == EXIT_STATUS_DONE) {
    device_close(&trial);
  } else {
    device_model_unload(model);
  }
  return status;
}

static exit_status load_real(const device_choice *choice, device_model *model, char *message,
                             size_t message_size) {
  if (choice->capacity) {
    snprintf(message, message_size,
             "a real device has the capacity that it has; --limit bounds what a policy may hold");
    return EXIT_STATUS_USAGE;
  }
  if (choice->event_delay) {
    snprintf(message, message_size,
             "a real device takes the time that it takes; --event-delay is for the simulated one");
    return EXIT_STATUS_USAGE;
  }
  const vmm_cuda_configuration configuration = {.ordinal = choice->ordinal};
  vmm_status status = vmm_cuda_create(&configuration, &model->real, message, message_size);
  if (status == VMM_INVALID_DEVICE) return EXIT_STATUS_USAGE;
  if (status != VMM_SUCCESS) return EXIT_STATUS_NO_DEVICE;
  model->ordinal = choice->ordinal;
  const vmm_cuda_information *information = vmm_cuda_information_of(model->real);
  model->name = information->device;
  snprintf(model->version, sizeof model->version, "driver %.31s, CUDA %d.%d",
           information->driver_version[0] ? information->driver_version : "(version unknown)",
           information->cuda_version / 1000, information->cuda_version % 1000 / 10);
  status = vmm_memory_info(model->real, &model->capacity, &model->total);
  if (status == VMM_SUCCESS) status = vmm_granularity(model->real, &model->granularity);
  if (status == VMM_SUCCESS) return EXIT_STATUS_DONE;
  vmm_error_format(&model->real->error, message, message_size);
  device_model_unload(model);
  return EXIT_STATUS_NO_DEVICE;
}

exit_status device_model_load(const device_choice *choice, device_model *model, char *message,
                              size_t message_size) {
  memset(model, 0, sizeof *model);
  model->driver = choice->driver;
  if (strcmp(choice->driver, "sim") == 0) return load_simulated(choice, model, message, message_size);
  if (strcmp(choice->driver, "cuda") == 0) return load_real(choice, model, message, message_size);
  return refuse_driver(choice->driver, message, message_size);
}

void device_model_unload(device_model *model) {
  vmm_profile_destroy(model->profile);
  vmm_driver_destroy(model->real);
  model->profile = NULL;
  model->real = NULL;
}

static vmm_status open_simulated(const device_model *model, device *opened, char *message,
                                 size_t message_size) {
  vmm_sim_configuration configuration = {.profile = model->profile,
                                         .capacity = model->capacity,
                                         .event_delay = model->event_delay,
                                         .backed = model->backed};
  vmm_status status = vmm_sim_create(&configuration, &opened->raw);
  if (status == VMM_SUCCESS) return VMM_SUCCESS;
  char capacity[UNITS_TEXT];
  units_bytes(model->capacity, capacity);
  snprintf(message, message_size, "a simulated device of %s cannot be made: %s", capacity,
           vmm_status_text(status));
  return status;
}

/* A first fill and verification, so that what the driver sets up for them counts as there before the run. */
static vmm_status warm_up(vmm_driver *driver) {
  enum { BYTES = 1 << 21, PATTERN = 1 };
  vmm_address address;
  vmm_mismatch mismatch;
  vmm_status status = vmm_malloc(driver, BYTES, &address);
  if (status != VMM_SUCCESS) return status;
  status = vmm_fill(driver, address, BYTES, 0, PATTERN);
  if (status == VMM_SUCCESS) status = vmm_verify(driver, address, BYTES, 0, PATTERN, &mismatch);
  vmm_status freed = vmm_free(driver, address);
  if (status == VMM_SUCCESS) status = freed;
  return status == VMM_SUCCESS ? vmm_synchronize(driver) : status;
}

static vmm_status open_real(const device_model *model, device *opened, char *message, size_t message_size) {
  const vmm_cuda_configuration configuration = {.ordinal = model->ordinal};
  vmm_status status = vmm_cuda_create(&configuration, &opened->raw, message, message_size);
  if (status != VMM_SUCCESS) return status;
  uint64_t total;
  status = warm_up(opened->raw);
  if (status == VMM_SUCCESS) status = vmm_memory_info(opened->raw, &opened->free_before, &total);
  if (status == VMM_SUCCESS) return VMM_SUCCESS;
  device_error_format(opened, message, message_size);
  return status;
}

exit_status device_open(const device_model *model, device *opened, char *message, size_t message_size) {
  memset(opened, 0, sizeof *opened);
  opened->model = model;
  vmm_status status = model->real ? open_real(model, opened, message, message_size)
                                  : open_simulated(model, opened, message, message_size);
  if (status == VMM_SUCCESS) {
    status = vmm_meter_create(opened->raw, &opened->meter);
    if (status != VMM_SUCCESS) {
      snprintf(message, message_size, "no meter could be put around the device: %s", vmm_status_text(status));
    }
  }
  if (status == VMM_SUCCESS) return EXIT_STATUS_DONE;
  device_close(opened);
  return status == VMM_INVALID_VALUE && !model->real ? EXIT_STATUS_USAGE : EXIT_STATUS_NO_DEVICE;
}

vmm_status device_advance(device *opened, bool uses_pool) {
  const device_model *model = opened->model;
  if (model->real || (uses_pool && model->event_delay == 0)) return vmm_synchronize(opened->raw);
  if (model->event_delay) vmm_sim_tick(opened->raw);
  return VMM_SUCCESS;
}

static bool simulated_is_empty(const device *opened, char *message, size_t message_size) {
  vmm_sim_usage usage;
  vmm_sim_usage_get(opened->raw, &usage);
  if (usage.physical_bytes == 0 && usage.reserved_address_bytes == 0 && usage.handles == 0 &&
      usage.mappings == 0 && usage.reservations == 0 && usage.mallocs == 0 && usage.events == 0) {
    return true;
  }
  snprintf(message, message_size,
           "the device still holds %" PRIu64 " bytes in %" PRIu64 " allocations and %" PRIu64
           " handles, %" PRIu64 " mappings, %" PRIu64 " bytes of addresses in %" PRIu64
           " reservations, %" PRIu64 " events",
           usage.physical_bytes, usage.mallocs, usage.handles, usage.mappings, usage.reserved_address_bytes,
           usage.reservations, usage.events);
  return false;
}

/* Memory that was freed may come back a moment later. What the driver keeps for streams is not missing. */
static bool free_memory_returned(const device *opened, uint64_t stream_bytes, uint64_t *missing) {
  enum { TRIES = 20, PAUSE_US = 10000 };
  for (int i = 0; i < TRIES; i++) {
    uint64_t free_bytes, total;
    if (i > 0) usleep(PAUSE_US);
    if (vmm_memory_info(opened->raw, &free_bytes, &total) != VMM_SUCCESS) return true;
    if (free_bytes + stream_bytes >= opened->free_before) return true;
    *missing = opened->free_before - stream_bytes - free_bytes;
  }
  return false;
}

static bool real_is_empty(device *opened, char *message, size_t message_size) {
  vmm_cuda_usage usage;
  vmm_cuda_usage_get(opened->raw, &usage);
  if (usage.physical_bytes != 0 || usage.reserved_address_bytes != 0 || usage.handles != 0 ||
      usage.mappings != 0 || usage.reservations != 0 || usage.mallocs != 0 || usage.async != 0 ||
      usage.events != 0) {
    snprintf(message, message_size,
             "the device still holds %" PRIu64 " bytes in %" PRIu64 " allocations, %" PRIu64
             " of its pool and %" PRIu64 " handles, %" PRIu64 " mappings, %" PRIu64
             " bytes of addresses in %" PRIu64 " reservations, %" PRIu64 " events",
             usage.physical_bytes, usage.mallocs, usage.async, usage.handles, usage.mappings,
             usage.reserved_address_bytes, usage.reservations, usage.events);
    return false;
  }
  /* The pool keeps what was freed into it. Where that or the waiting fails, the run has already said so. */
  uint64_t missing = 0;
  if (vmm_synchronize(opened->raw) == VMM_SUCCESS) vmm_pool_trim(opened->raw, 0);
  if (free_memory_returned(opened, usage.stream_bytes, &missing)) return true;
  snprintf(message, message_size,
           "everything was given back, but the device has %" PRIu64
           " bytes less free than before (or another process has taken them)",
           missing);
  return false;
}

bool device_is_empty(device *opened, char *message, size_t message_size) {
  return opened->model->real ? real_is_empty(opened, message, message_size)
                             : simulated_is_empty(opened, message, message_size);
}

bool device_held_bytes(const device *opened, uint64_t *bytes) {
  if (opened->model->real) {
    vmm_cuda_usage usage;
    vmm_cuda_usage_get(opened->raw, &usage);
    *bytes = usage.physical_bytes;
  } else {
    vmm_sim_usage usage;
    vmm_sim_usage_get(opened->raw, &usage);
    *bytes = usage.physical_bytes;
  }
  return true;
}

/* Errors after which the device's context refuses every call. */
static bool is_lasting(vmm_status status) {
  return status == VMM_ILLEGAL_ADDRESS || status == VMM_LAUNCH_TIMEOUT || status == VMM_MISALIGNED_ADDRESS ||
         status == VMM_LAUNCH_FAILED || status == VMM_ECC_UNCORRECTABLE;
}

void device_error_format(const device *opened, char *text, size_t text_size) {
  const vmm_error *error = opened->meter ? &opened->meter->error : &opened->raw->error;
  if (error->status == VMM_SUCCESS) error = &opened->raw->error;
  vmm_error_format(error, text, text_size);
  /* Of fill and verify themselves it is a refusal. */
  bool refused = error->call == VMM_CALL_FILL && error->status == VMM_ILLEGAL_ADDRESS;
  if (!opened->model->real || !is_lasting(error->status) || refused) return;
  size_t used = strlen(text);
  snprintf(text + used, text_size - used,
           "; work on the device went wrong earlier, and it answers nothing else until the program ends");
}

void device_error_clear(device *opened) {
  vmm_error_clear(opened->meter);
  vmm_error_clear(opened->raw);
}

void device_close(device *opened) {
  vmm_driver_destroy(opened->meter);
  vmm_driver_destroy(opened->raw);
  opened->meter = opened->raw = NULL;
}
