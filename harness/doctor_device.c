/* The part of doctor that tries a real device. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/doctor.h"
#include "harness/units.h"
#include "vmm/cuda.h"

#define TIB (UINT64_C(1) << 40)
#define PATTERN UINT64_C(0x4c616b65626564) /* "Lakebed" */

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

/* ---- what the device is ---- */

static void find_out(doctor *self, const vmm_cuda_information *information) {
  char version[32], total[UNITS_TEXT];
  snprintf(version, sizeof version, "%d.%d", information->cuda_version / 1000,
           information->cuda_version % 1000 / 10);
  units_bytes(information->total_bytes, total);
  doctor_find(self, DOCTOR_OK, "driver", "%s, for CUDA %s; built with CUDA %d.%d; %s",
              information->driver_version[0] ? information->driver_version : "version not known", version,
              information->cuda_build_version / 1000, information->cuda_build_version % 1000 / 10,
              information->library);
  doctor_find(self, DOCTOR_OK, "device",
              "%u of %u: %s, compute capability %d.%d, %d multiprocessors, %s, bus %s", information->ordinal,
              information->device_count, information->device, information->compute_major,
              information->compute_minor, information->multiprocessors, total, information->bus);
  json_object_set_new(
      self->json, "device",
      json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:i, s:s, s:i, s:i, s:i, s:o}", "name", information->device,
                "ordinal", (int)information->ordinal, "devices", (int)information->device_count, "bus",
                information->bus, "driver_version", information->driver_version, "cuda_version", version,
                "cuda_build_version", information->cuda_build_version, "library", information->library,
                "compute_major", information->compute_major, "compute_minor", information->compute_minor,
                "multiprocessors", information->multiprocessors, "total_bytes",
                number(information->total_bytes)));
  json_t *list = json_array();
  char text[1024] = "";
  size_t used = 0;
  for (size_t i = 0; i < information->attribute_count; i++) {
    const vmm_cuda_attribute *attribute = &information->attributes[i];
    json_array_append_new(
        list, json_pack("{s:s, s:i, s:o}", "name", attribute->name, "number", attribute->number, "value",
                        attribute->value < 0 ? json_null() : json_integer(attribute->value)));
    if (used < sizeof text) {
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %d", i ? ", " : "", attribute->name,
                               attribute->value);
    }
  }
  json_object_set_new(self->json, "attributes", list);
  doctor_find(self, DOCTOR_NOTE, "attributes", "%s", text);
}

static int attribute_of(const vmm_cuda_information *information, int attribute) {
  for (size_t i = 0; i < information->attribute_count; i++) {
    if (information->attributes[i].number == attribute) return information->attributes[i].value;
  }
  return -1;
}

/* Granularity may depend on what kind of memory is asked for. */
static void find_granularities(doctor *self, unsigned ordinal, const vmm_cuda_information *information) {
  const struct {
    const char *name;
    vmm_cuda_configuration configuration;
    int needs; /* attribute */
  } kinds[] = {
      {"plain", {.ordinal = ordinal}, 102},
      {"posix-fd", {.ordinal = ordinal, .handle_type = VMM_CUDA_HANDLE_POSIX_FD}, 103},
      {"gpu-direct", {.ordinal = ordinal, .gpu_direct = true}, 110},
  };
  json_t *list = json_array();
  char text[512] = "", message[512];
  size_t used = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    vmm_driver *driver;
    uint64_t minimum, recommended;
    if (attribute_of(information, kinds[i].needs) < 1) continue;
    vmm_status status = vmm_cuda_create(&kinds[i].configuration, &driver, message, sizeof message);
    if (status != VMM_SUCCESS) {
      doctor_find(self, DOCTOR_MISSING, "granularity", "%s memory: %s", kinds[i].name, message);
      continue;
    }
    status = vmm_cuda_granularities(driver, &minimum, &recommended);
    if (status == VMM_SUCCESS) {
      json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "memory", kinds[i].name, "minimum_bytes",
                                            number(minimum), "recommended_bytes", number(recommended)));
      if (used < sizeof text) {
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s%s %" PRIu64 " (recommended %" PRIu64 ") bytes", used ? ", " : "",
                                 kinds[i].name, minimum, recommended);
      }
    } else {
      doctor_find(self, DOCTOR_MISSING, "granularity", "%s memory: %s", kinds[i].name,
                  vmm_cuda_failure(driver));
    }
    vmm_driver_destroy(driver);
  }
  json_object_set_new(self->json, "granularities", list);
  doctor_find(self, DOCTOR_OK, "granularity", "%s", text);
}

/* ---- the round trip ---- */

/* What a failed call tells the user to do. */
static const char *advice_for(vmm_status status) {
  switch (status) {
    case VMM_OUT_OF_MEMORY:
      return "the device (or its address space) is full: close other programs on it and look at nvidia-smi";
    case VMM_NOT_SUPPORTED:
      return "the device announces this but refuses it, as virtual GPUs and some drivers do: use a whole GPU "
             "or another "
             "driver";
    case VMM_NOT_PERMITTED:
      return "this process may not do that: look at the container's or the scheduler's restrictions";
    case VMM_NO_BINARY_FOR_GPU:
    case VMM_UNSUPPORTED_PTX_VERSION:
    case VMM_INVALID_PTX:
      return "the kernels that are built in do not fit this device: build with a CUDA toolkit no newer than "
             "the driver "
             "and new enough for the device";
    case VMM_ILLEGAL_ADDRESS:
    case VMM_LAUNCH_FAILED:
      return "the device's context is lost: look for Xid messages in the kernel's log";
    default:
      return "look for messages of NVRM in the kernel's log, and whether the driver and its libraries are of "
             "one "
             "version";
  }
}

/* What the steps work on; 0: not there. */
typedef struct trip {
  vmm_driver *driver;
  uint64_t size;
  vmm_address places[2];
  bool mapped[2];
  vmm_handle handle;
  vmm_address allocation, pooled;
  vmm_mismatch mismatch;
} trip;

static vmm_status step_reserve(trip *self) {
  vmm_status status = vmm_address_reserve(self->driver, self->size, 0, &self->places[0]);
  return status == VMM_SUCCESS ? vmm_address_reserve(self->driver, self->size, 0, &self->places[1]) : status;
}
static vmm_status step_create(trip *self) { return vmm_create(self->driver, self->size, &self->handle); }
static vmm_status step_map(trip *self) {
  for (int i = 0; i < 2; i++) {
    vmm_status status = vmm_map(self->driver, self->places[i], self->size, 0, self->handle);
    if (status != VMM_SUCCESS) return status;
    self->mapped[i] = true;
  }
  return VMM_SUCCESS;
}
static vmm_status step_access(trip *self) {
  vmm_status status = vmm_set_access(self->driver, self->places[0], self->size);
  return status == VMM_SUCCESS ? vmm_set_access(self->driver, self->places[1], self->size) : status;
}
static vmm_status step_fill(trip *self) {
  return vmm_fill(self->driver, self->places[0], self->size, 0, PATTERN);
}
static vmm_status step_verify(trip *self) {
  return vmm_verify(self->driver, self->places[1], self->size, 0, PATTERN, &self->mismatch);
}
static vmm_status step_unmap(trip *self) {
  for (int i = 0; i < 2; i++) {
    if (!self->mapped[i]) continue;
    vmm_status status = vmm_unmap(self->driver, self->places[i], self->size);
    if (status != VMM_SUCCESS) return status;
    self->mapped[i] = false;
  }
  return VMM_SUCCESS;
}
static vmm_status step_release(trip *self) {
  vmm_status status = vmm_release(self->driver, self->handle);
  if (status == VMM_SUCCESS) self->handle = 0;
  return status;
}
static vmm_status step_address_free(trip *self) {
  for (int i = 0; i < 2; i++) {
    vmm_status status = vmm_address_free(self->driver, self->places[i], self->size);
    if (status != VMM_SUCCESS) return status;
    self->places[i] = 0;
  }
  return VMM_SUCCESS;
}
static vmm_status step_malloc(trip *self) { return vmm_malloc(self->driver, self->size, &self->allocation); }
static vmm_status step_free(trip *self) { return vmm_free(self->driver, self->allocation); }
static vmm_status step_synchronize(trip *self) { return vmm_synchronize(self->driver); }

static vmm_status step_malloc_async(trip *self) {
  return vmm_malloc_async(self->driver, self->size, 1, &self->pooled);
}
static vmm_status step_fill_async(trip *self) {
  return vmm_fill(self->driver, self->pooled, self->size, 1, PATTERN);
}
static vmm_status step_verify_async(trip *self) {
  return vmm_verify(self->driver, self->pooled, self->size, 1, PATTERN, &self->mismatch);
}
static vmm_status step_free_async(trip *self) { return vmm_free_async(self->driver, self->pooled, 1); }

typedef struct trip_step {
  const char *name;
  vmm_status (*run)(trip *self);
} trip_step;

static const trip_step vmm_steps[] = {
    {"reserve", step_reserve},
    {"create", step_create},
    {"map", step_map},
    {"set access", step_access},
    {"fill", step_fill},
    {"verify", step_verify},
    {"unmap", step_unmap},
    {"release", step_release},
    {"free addresses", step_address_free},
    {NULL, NULL},
};
static const trip_step malloc_steps[] = {
    {"cuMemAlloc", step_malloc}, {"cuMemFree", step_free}, {"synchronize", step_synchronize}, {NULL, NULL}};
static const trip_step async_steps[] = {
    {"cuMemAllocAsync", step_malloc_async}, {"fill", step_fill_async},         {"verify", step_verify_async},
    {"cuMemFreeAsync", step_free_async},    {"synchronize", step_synchronize}, {NULL, NULL}};

/* Runs the steps; destroying the driver object gives back what a failed one leaves. */
static bool run_steps(doctor *self, vmm_driver *driver, const char *name, const char *key,
                      const trip_step *steps, uint64_t size) {
  trip state = {.driver = driver, .size = size};
  json_t *list = json_array();
  json_object_set_new(self->json, key, list);
  char text[512] = "", cause[512], duration[UNITS_TEXT];
  size_t used = 0;
  for (; steps->name; steps++) {
    vmm_error_clear(driver);
    uint64_t begin_ns = driver->busy_ns;
    vmm_status status = steps->run(&state);
    uint64_t ns = driver->busy_ns - begin_ns;
    json_array_append_new(list, json_pack("{s:s, s:f, s:i}", "step", steps->name, "us", (double)ns / 1000,
                                          "status", (int)status));
    if (status != VMM_SUCCESS) {
      vmm_error_format(&driver->error, cause, sizeof cause);
      doctor_fail(self, EXIT_STATUS_NO_DEVICE, name, "%s; %s", cause, advice_for(status));
      return false;
    }
    if (state.mismatch.wrong_words > 0) {
      doctor_fail(self, EXIT_STATUS_CHECK_FAILED, name,
                  "memory does not hold what was written to it: %" PRIu64 " wrong words of %" PRIu64
                  ", the first at offset %" PRIu64 ", expected 0x%016" PRIx64 ", found 0x%016" PRIx64,
                  state.mismatch.wrong_words, size / 8, state.mismatch.first_offset, state.mismatch.expected,
                  state.mismatch.found);
      return false;
    }
    units_time(ns, duration);
    if (used < sizeof text) {
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used ? ", " : "", steps->name,
                               duration);
    }
  }
  doctor_find(self, DOCTOR_OK, name, "%s", text);
  return true;
}

/* ---- how much there is ---- */

/* Reserves the largest sizes that can be had, one after the other, and frees them again. */
static void probe_addresses(doctor *self, vmm_driver *driver) {
  enum { RESERVATIONS = 256 };
  vmm_address places[RESERVATIONS];
  uint64_t granularity, size = TIB, count = 0;
  if (vmm_granularity(driver, &granularity) != VMM_SUCCESS) return;
  while (count < RESERVATIONS && size >= granularity) {
    if (vmm_address_reserve(driver, size, 0, &places[count]) == VMM_SUCCESS) {
      count++;
    } else if (count == 0) {
      size /= 2;
    } else {
      break;
    }
  }
  for (uint64_t i = 0; i < count; i++) vmm_address_free(driver, places[i], size);
  vmm_error_clear(driver);
  char bytes[UNITS_TEXT], each[UNITS_TEXT];
  units_bytes(count * size, bytes);
  units_bytes(size, each);
  json_object_set_new(
      self->json, "address_space",
      json_pack("{s:o, s:o}", "reservation_bytes", number(size), "reservations", number(count)));
  doctor_find(self, size == TIB ? DOCTOR_OK : DOCTOR_NOTE, "address space",
              "%s%s can be reserved, %s at a time%s", count == RESERVATIONS ? "at least " : "", bytes, each,
              size == TIB ? "" : " (usual is 1 TiB: WSL, virtual GPUs and small boards have less)");
}

/* What the device says is free need not all be to be had. */
static void take_all_memory(doctor *self, vmm_driver *driver, uint64_t granularity, uint64_t free_bytes) {
  uint64_t taken = 0, size = UINT64_C(1) << 30;
  /* Everything is given back by destroying an object of its own. */
  vmm_driver *own = NULL;
  char message[512];
  const vmm_cuda_configuration configuration = {.ordinal = vmm_cuda_information_of(driver)->ordinal};
  if (vmm_cuda_create(&configuration, &own, message, sizeof message) != VMM_SUCCESS) {
    doctor_find(self, DOCTOR_MISSING, "memory", "%s", message);
    return;
  }
  for (; size >= granularity; size /= 2) {
    vmm_handle handle;
    while (vmm_create(own, size, &handle) == VMM_SUCCESS) taken += size;
  }
  vmm_driver_destroy(own);
  char had[UNITS_TEXT];
  units_bytes(taken, had);
  json_object_set_new(self->json, "obtainable_bytes", number(taken));
  doctor_find(self, DOCTOR_OK, "memory", "%s can be had: %" PRIu64 " of the %" PRIu64 " free bytes", had,
              taken, free_bytes);
}

static void check_leak(doctor *self, vmm_driver *driver, uint64_t free_before) {
  uint64_t free_after, total;
  if (vmm_memory_info(driver, &free_after, &total) != VMM_SUCCESS) return;
  json_object_set_new(self->json, "free_before_bytes", number(free_before));
  json_object_set_new(self->json, "free_after_bytes", number(free_after));
  if (free_after >= free_before) {
    doctor_find(self, DOCTOR_OK, "free memory", "as much after the trials as before: %" PRIu64 " bytes",
                free_after);
  } else {
    doctor_fail(self, EXIT_STATUS_CHECK_FAILED, "free memory",
                "%" PRIu64 " bytes before the trials, %" PRIu64
                " after: the driver kept something, or another program took it",
                free_before, free_after);
  }
}

/* ---- all of it ---- */

static void try_device(doctor *self, vmm_driver *driver, bool probe_memory) {
  uint64_t granularity, free_bytes = 0, total;
  vmm_status status = vmm_granularity(driver, &granularity);
  /* Warms up what the driver sets up at first use, so that it is not taken for a leak. */
  bool works =
      status == VMM_SUCCESS && run_steps(self, driver, "round trip", "round_trip", vmm_steps, granularity);
  if (status == VMM_SUCCESS && works) {
    works = run_steps(self, driver, "cuMemAlloc", "malloc", malloc_steps, granularity);
  }
  if (!works) return;
  if (attribute_of(vmm_cuda_information_of(driver), 115) > 0) {
    run_steps(self, driver, "stream pool", "stream_pool", async_steps, granularity);
    vmm_pool_trim(driver, 0);
  } else {
    doctor_find(self, DOCTOR_MISSING, "stream pool",
                "the device has no stream-ordered pools: policy async cannot run");
  }
  status = vmm_memory_info(driver, &free_bytes, &total);
  if (status != VMM_SUCCESS) return;
  char text[UNITS_TEXT], all[UNITS_TEXT];
  units_bytes(free_bytes, text);
  units_bytes(total, all);
  doctor_find(self, DOCTOR_OK, "memory", "%s of %s are free; other programs and the driver hold the rest",
              text, all);
  if (probe_memory) take_all_memory(self, driver, granularity, free_bytes);
  probe_addresses(self, driver);
  trip again = {.driver = driver, .size = granularity};
  for (const trip_step *step = vmm_steps; step->name && status == VMM_SUCCESS; step++)
    status = step->run(&again);
  check_leak(self, driver, free_bytes);
}

void doctor_device(doctor *self, unsigned ordinal, bool probe_memory) {
  char message[512];
  vmm_cuda_information information;
  vmm_status status = vmm_cuda_inspect(ordinal, &information, message, sizeof message);
  if (status != VMM_SUCCESS) {
    doctor_fail(self, status == VMM_INVALID_DEVICE ? EXIT_STATUS_USAGE : EXIT_STATUS_NO_DEVICE, "device",
                "%s", message);
    return;
  }
  find_out(self, &information);
  vmm_driver *driver;
  const vmm_cuda_configuration configuration = {.ordinal = ordinal};
  if (vmm_cuda_create(&configuration, &driver, message, sizeof message) != VMM_SUCCESS) {
    doctor_fail(self, EXIT_STATUS_NO_DEVICE, "device", "%s", message);
    return;
  }
  find_granularities(self, ordinal, &information);
  try_device(self, driver, probe_memory);
  vmm_driver_destroy(driver);
}
