#include "vmm/sim.h"

#include <stdlib.h>

#include "vmm/sim_internal.h"

#define DEFAULT_GRANULARITY (2 * SIM_MIB)
#define MINIMUM_GRANULARITY (4 * UINT64_C(1024))
#define MAXIMUM_GRANULARITY (UINT64_C(1) << 30)
#define VA_START SIM_TIB
#define VA_BYTES (126 * SIM_TIB)
#define MALLOC_START (127 * SIM_TIB)

static vmm_status sim_granularity(vmm_driver *driver, uint64_t *bytes) {
  vmm_sim *sim = sim_of(driver);
  vmm_status status = VMM_SUCCESS;
  if (!sim_injected(sim, VMM_CALL_GRANULARITY, &status) && !bytes) status = VMM_INVALID_VALUE;
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, VMM_CALL_GRANULARITY, 0, 0, 0, 0);
  *bytes = UINT64_C(1) << sim->granule_bits;
  sim_charge(sim, VMM_CALL_GRANULARITY, 0);
  return VMM_SUCCESS;
}

static vmm_status sim_memory_info(vmm_driver *driver, uint64_t *free_bytes, uint64_t *total_bytes) {
  vmm_sim *sim = sim_of(driver);
  vmm_status status = VMM_SUCCESS;
  if (!sim_injected(sim, VMM_CALL_MEMORY_INFO, &status) && (!free_bytes || !total_bytes)) {
    status = VMM_INVALID_VALUE;
  }
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, VMM_CALL_MEMORY_INFO, 0, 0, 0, 0);
  *free_bytes = sim->capacity - sim->usage.physical_bytes;
  *total_bytes = sim->total;
  sim_charge(sim, VMM_CALL_MEMORY_INFO, 0);
  return VMM_SUCCESS;
}

static void sim_destroy(vmm_driver *driver) {
  vmm_sim *sim = sim_of(driver);
  sim_async_destroy(sim);
  sim_events_destroy(sim);
  sim_malloc_destroy(sim);
  sim_map_destroy(sim);
  sim_va_destroy(sim);
  sim_failures_destroy(sim);
  sim_backing_destroy(sim);
  free(sim);
}

static const vmm_driver_operations sim_operations = {
    .name = "sim",
    .granularity = sim_granularity,
    .memory_info = sim_memory_info,
    .address_reserve = sim_address_reserve,
    .address_free = sim_address_free,
    .create = sim_create,
    .release = sim_release,
    .map = sim_map,
    .unmap = sim_unmap,
    .set_access = sim_set_access,
    .malloc = sim_malloc,
    .free = sim_free,
    .malloc_async = sim_malloc_async,
    .free_async = sim_free_async,
    .pool_configure = sim_pool_configure,
    .pool_usage = sim_pool_usage,
    .pool_trim = sim_pool_trim,
    .event_record = sim_event_record,
    .event_query = sim_event_query,
    .event_wait = sim_event_wait,
    .stream_wait_event = sim_stream_wait_event,
    .event_discard = sim_event_discard,
    .synchronize = sim_synchronize,
    .fill = sim_fill,
    .verify = sim_verify,
    .destroy = sim_destroy,
};

/* Fills in what follows from the configuration. */
static vmm_status derive_sizes(vmm_sim *sim) {
  const vmm_sim_configuration *configuration = &sim->configuration;
  const vmm_profile *profile = configuration->profile;
  uint64_t granularity = configuration->granularity;
  if (granularity == 0) granularity = profile ? vmm_profile_granularity(profile) : DEFAULT_GRANULARITY;
  if (granularity & (granularity - 1) || granularity < MINIMUM_GRANULARITY ||
      granularity > MAXIMUM_GRANULARITY) {
    return VMM_INVALID_VALUE;
  }
  sim->granule_bits = (unsigned)__builtin_ctzll(granularity);
  if (configuration->capacity) {
    if (configuration->capacity & (granularity - 1)) return VMM_INVALID_VALUE;
    sim->capacity = sim->total = configuration->capacity;
  } else {
    if (!profile) return VMM_INVALID_VALUE;
    sim->capacity = vmm_profile_usable_bytes(profile) & ~(granularity - 1);
    sim->total = vmm_profile_total_bytes(profile);
  }
  if (sim->capacity > VMM_SIM_LARGEST_CAPACITY) return VMM_INVALID_VALUE;
  sim->va_start = VA_START;
  sim->va_size = VA_BYTES;
  if (configuration->address_limit) {
    uint64_t limit = configuration->address_limit & ~(granularity - 1);
    if (limit == 0) return VMM_INVALID_VALUE;
    if (limit < sim->va_size) sim->va_size = limit;
  }
  sim->malloc_space.start = MALLOC_START;
  sim->malloc_space.size = SIM_TIB;
  return VMM_SUCCESS;
}

vmm_status vmm_sim_create(const vmm_sim_configuration *configuration, vmm_driver **driver) {
  if (!driver) return VMM_INVALID_VALUE;
  *driver = NULL;
  if (!configuration) return VMM_INVALID_VALUE;
  vmm_sim *sim = calloc(1, sizeof *sim);
  if (!sim) return VMM_OUT_OF_MEMORY;
  sim->driver.operations = &sim_operations;
  sim->configuration = *configuration;
  sim->memory_file = -1;
  vmm_status status = derive_sizes(sim);
  if (status == VMM_SUCCESS) status = sim_backing_create(sim);
  if (status == VMM_SUCCESS &&
      !(sim_va_create(sim) && sim_map_create(sim) && sim_malloc_create(sim) && sim_async_create(sim))) {
    status = VMM_OUT_OF_MEMORY;
  }
  if (status != VMM_SUCCESS) {
    sim_destroy(&sim->driver);
    return status;
  }
  *driver = &sim->driver;
  return VMM_SUCCESS;
}

void vmm_sim_usage_get(const vmm_driver *driver, vmm_sim_usage *usage) {
  *usage = sim_of_const(driver)->usage;
}

bool vmm_sim_accessible(const vmm_driver *driver, vmm_address address, uint64_t size) {
  const vmm_sim *sim = sim_of_const(driver);
  if (size == 0) return false;
  sim_allocation allocation;
  if (sim_malloc_find(sim, address, &allocation) || sim_pool_find(sim, address, &allocation)) {
    return size <= allocation.size - (address - allocation.start);
  }
  while (true) {
    const sim_mapping *mapping = sim_mapping_at(sim, address);
    if (!mapping || !mapping->accessible) return false;
    uint64_t left = ((uint64_t)mapping->granules << sim->granule_bits) - (address - mapping->address);
    if (size <= left) return true;
    address += left;
    size -= left;
  }
}

uint64_t vmm_sim_physical(const vmm_driver *driver, vmm_address address) {
  const vmm_sim *sim = sim_of_const(driver);
  const sim_mapping *mapping = sim_mapping_at(sim, address);
  if (mapping) return sim->handles[mapping->handle].physical + (address - mapping->address);
  sim_allocation allocation;
  if (sim_malloc_find(sim, address, &allocation) || sim_pool_find(sim, address, &allocation)) {
    return allocation.physical;
  }
  return UINT64_MAX;
}
