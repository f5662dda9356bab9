#include "harness/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/units.h"
#include "policies/policy.h"
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
  model->name = vmm_profile_device(model->profile);
  model->source = vmm_profile_source(model->profile);
  model->capacity =
      choice->capacity ? choice->capacity : vmm_profile_usable_bytes(model->profile) & ~(granularity - 1);
  model->total = choice->capacity ? choice->capacity : vmm_profile_total_bytes(model->profile);
  model->backed = choice->backed;
  exit_status status = check_backing(model, message, message_size);
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

exit_status device_model_load(const device_choice *choice, device_model *model, char *message,
                              size_t message_size) {
  memset(model, 0, sizeof *model);
  model->driver = choice->driver;
  if (strcmp(choice->driver, "sim") == 0) return load_simulated(choice, model, message, message_size);
  if (strcmp(choice->driver, "cuda") == 0) {
    snprintf(message, message_size,
             "this program has no driver for real devices built in; 'lakebed doctor' says what is missing");
    return EXIT_STATUS_NO_DEVICE;
  }
  return refuse_driver(choice->driver, message, message_size);
}

void device_model_unload(device_model *model) {
  vmm_profile_destroy(model->profile);
  model->profile = NULL;
}

exit_status device_open(const device_model *model, device *opened, char *message, size_t message_size) {
  memset(opened, 0, sizeof *opened);
  opened->model = model;
  vmm_sim_configuration configuration = {
      .profile = model->profile, .capacity = model->capacity, .backed = model->backed};
  vmm_status status = vmm_sim_create(&configuration, &opened->raw);
  if (status == VMM_SUCCESS) status = vmm_meter_create(opened->raw, &opened->meter);
  if (status == VMM_SUCCESS) return EXIT_STATUS_DONE;
  device_close(opened);
  char capacity[UNITS_TEXT];
  units_bytes(model->capacity, capacity);
  snprintf(message, message_size, "a simulated device of %s cannot be made: %s", capacity,
           vmm_status_text(status));
  return status == VMM_INVALID_VALUE ? EXIT_STATUS_USAGE : EXIT_STATUS_NO_DEVICE;
}

bool device_is_empty(const device *opened, char *message, size_t message_size) {
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

bool device_held_bytes(const device *opened, uint64_t *bytes) {
  vmm_sim_usage usage;
  vmm_sim_usage_get(opened->raw, &usage);
  *bytes = usage.physical_bytes;
  return true;
}

void device_error_format(const device *opened, char *text, size_t text_size) {
  const vmm_error *error = &opened->meter->error;
  if (error->status == VMM_SUCCESS) error = &opened->raw->error;
  vmm_error_format(error, text, text_size);
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
