#include <stdlib.h>

#include "vmm/sim_internal.h"

void sim_map_destroy(vmm_sim *sim) {
  sim_pages_destroy(&sim->pages);
  free(sim->handles);
  free(sim->mappings);
}

static uint64_t granule_of(const vmm_sim *sim, vmm_address address) {
  return (address - sim->va_start) >> sim->granule_bits;
}

static bool is_granular(const vmm_sim *sim, uint64_t bytes) {
  return (bytes & ((UINT64_C(1) << sim->granule_bits) - 1)) == 0;
}

static vmm_handle handle_name(const vmm_sim *sim, uint32_t index) {
  return (uint64_t)sim->handles[index].generation << 32 | index;
}

/* The place of a handle whose memory exists; 0: none such. */
static uint32_t handle_find(const vmm_sim *sim, vmm_handle name) {
  uint64_t index = name & UINT32_MAX;
  if (index == 0 || index >= sim->handles_used) return 0;
  const sim_handle *handle = &sim->handles[index];
  return handle->size != 0 && handle->generation == name >> 32 ? (uint32_t)index : 0;
}

/* Makes sure that a place is free to take; false: no host memory. */
static bool handles_prepare(vmm_sim *sim) {
  if (sim->first_unused_handle || sim->handles_used < sim->handles_capacity) return true;
  if (sim->handles_capacity > UINT32_MAX / 2) return false;
  uint32_t capacity = sim->handles_capacity ? sim->handles_capacity * 2 : 64;
  sim_handle *grown = realloc(sim->handles, capacity * sizeof *grown);
  if (!grown) return false;
  sim->handles = grown;
  sim->handles_capacity = capacity;
  return true;
}

static bool mappings_prepare(vmm_sim *sim) {
  if (sim->first_unused_mapping || sim->mappings_used < sim->mappings_capacity) return true;
  if (sim->mappings_capacity > UINT32_MAX / 2) return false;
  uint32_t capacity = sim->mappings_capacity ? sim->mappings_capacity * 2 : 64;
  sim_mapping *grown = realloc(sim->mappings, capacity * sizeof *grown);
  if (!grown) return false;
  sim->mappings = grown;
  sim->mappings_capacity = capacity;
  return true;
}

bool sim_map_create(vmm_sim *sim) {
  sim->mappings_used = sim->handles_used = 1; /* 0 is none */
  return sim_pages_create(&sim->pages, sim->va_size >> sim->granule_bits) && handles_prepare(sim) &&
         mappings_prepare(sim);
}

vmm_status sim_create(vmm_driver *driver, uint64_t size, vmm_handle *handle) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_CREATE;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, size, 0, 0, 0);
  if (!handle || size == 0 || !is_granular(sim, size)) {
    return sim_refuse(sim, VMM_INVALID_VALUE, call, size, 0, 0, 0);
  }
  if (!sim_physical_fits(sim, size) || !handles_prepare(sim) ||
      sim_backing_grow(sim, sim->next_physical + size) != VMM_SUCCESS) {
    return sim_refuse(sim, VMM_OUT_OF_MEMORY, call, size, 0, 0, 0);
  }
  sim_charge(sim, call, size);
  uint32_t index = sim->first_unused_handle;
  uint32_t generation = 1;
  if (index) {
    sim->first_unused_handle = sim->handles[index].next_unused;
    generation = sim->handles[index].generation;
  } else {
    index = sim->handles_used++;
  }
  sim->handles[index] = (sim_handle){
      .size = size, .physical = sim->next_physical, .generation = generation, .referenced = true};
  sim->next_physical += size;
  sim->usage.physical_bytes += size;
  sim->usage.handles++;
  *handle = handle_name(sim, index);
  return VMM_SUCCESS;
}

/* Frees the memory of a handle that has neither reference nor mapping. */
static void handle_drop(vmm_sim *sim, uint32_t index) {
  sim_handle *handle = &sim->handles[index];
  sim_backing_discard(sim, handle->physical, handle->size);
  sim->usage.physical_bytes -= handle->size;
  sim->usage.handles--;
  handle->size = 0;
  handle->generation++;
  handle->next_unused = sim->first_unused_handle;
  sim->first_unused_handle = index;
}

vmm_status sim_release(vmm_driver *driver, vmm_handle name) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_RELEASE;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, name, 0, 0, 0);
  uint32_t index = handle_find(sim, name);
  sim_handle *handle = &sim->handles[index];
  if (index == 0 || !handle->referenced) {
    return sim_refuse(sim, VMM_INVALID_VALUE, call, name, 0, 0, 0);
  }
  sim_charge(sim, call, handle->mappings == 0 ? handle->size : 0);
  handle->referenced = false;
  if (handle->mappings == 0) handle_drop(sim, index);
  return VMM_SUCCESS;
}

vmm_status sim_map(vmm_driver *driver, vmm_address address, uint64_t size, uint64_t offset, vmm_handle name) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_MAP;
  vmm_status status = VMM_SUCCESS;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, address, size, offset, name);

  /* The order in which the H200 looks: handle and size, offset and size against the handle, range. */
  uint32_t index = handle_find(sim, name);
  const sim_handle *handle = &sim->handles[index];
  uint64_t granule = granule_of(sim, address), granules = size >> sim->granule_bits;
  sim_extent reservation = SIM_EXTENT_NONE;
  if (index == 0 || size == 0) {
    status = VMM_INVALID_VALUE;
  } else if (offset != 0 || size != handle->size || !handle->referenced) {
    status = VMM_NOT_SUPPORTED;
  } else if (!is_granular(sim, address) ||
             (reservation = sim_reservation_of(sim, address, size)) == SIM_EXTENT_NONE ||
             !sim_pages_empty(&sim->pages, granule, granules)) {
    status = VMM_INVALID_VALUE;
  } else if (!mappings_prepare(sim) || !sim_pages_prepare(&sim->pages, granule, granules)) {
    status = VMM_OUT_OF_MEMORY;
  } else {
    status = sim_backing_map(sim, address, size, handle->physical, false);
  }
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, address, size, offset, name);

  sim_charge(sim, call, size);
  uint32_t mapping = sim->first_unused_mapping;
  if (mapping) {
    sim->first_unused_mapping = sim->mappings[mapping].reservation;
  } else {
    mapping = sim->mappings_used++;
  }
  sim->mappings[mapping] = (sim_mapping){
      .address = address, .granules = (uint32_t)granules, .handle = index, .reservation = reservation};
  sim_pages_fill(&sim->pages, granule, granules, mapping);
  sim->handles[index].mappings++;
  sim_extents_get(&sim->reservations, reservation)->value++;
  sim->usage.mappings++;
  return VMM_SUCCESS;
}

/* Walks the whole mappings of a range. Returns false when the range begins or ends inside
 * a mapping; counts mappings and granules without one. */
static bool walk_range(const vmm_sim *sim, vmm_address address, uint64_t size, uint64_t *mappings,
                       uint64_t *holes) {
  uint64_t granule = granule_of(sim, address), end = granule + (size >> sim->granule_bits);
  *mappings = *holes = 0;
  while (granule < end) {
    uint64_t skipped = sim_pages_skip(&sim->pages, granule, end - granule);
    uint32_t index = skipped ? 0 : sim_pages_get(&sim->pages, granule);
    if (index == 0) {
      if (skipped == 0) skipped = 1;
      *holes += skipped;
      granule += skipped;
      continue;
    }
    const sim_mapping *mapping = &sim->mappings[index];
    if (granule_of(sim, mapping->address) != granule || mapping->granules > end - granule) return false;
    ++*mappings;
    granule += mapping->granules;
  }
  return true;
}

/* Undoes a mapping and charges for it. Memory whose handle is released goes with its last
 * mapping, and so does the time that its release takes. */
static void mapping_drop(vmm_sim *sim, uint32_t index) {
  sim_mapping *mapping = &sim->mappings[index];
  sim_handle *handle = &sim->handles[mapping->handle];
  uint64_t granules = mapping->granules;
  sim_charge(sim, VMM_CALL_UNMAP, granules << sim->granule_bits);
  sim_pages_fill(&sim->pages, granule_of(sim, mapping->address), granules, 0);
  sim_extents_get(&sim->reservations, mapping->reservation)->value--;
  if (--handle->mappings == 0 && !handle->referenced) {
    sim_charge(sim, VMM_CALL_RELEASE, handle->size);
    handle_drop(sim, mapping->handle);
  }
  mapping->reservation = sim->first_unused_mapping;
  sim->first_unused_mapping = index;
  sim->usage.mappings--;
}

vmm_status sim_unmap(vmm_driver *driver, vmm_address address, uint64_t size) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_UNMAP;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, address, size, 0, 0);
  uint64_t mappings, holes;
  if (size == 0 || !is_granular(sim, address | size) ||
      sim_reservation_of(sim, address, size) == SIM_EXTENT_NONE ||
      !walk_range(sim, address, size, &mappings, &holes)) {
    return sim_refuse(sim, VMM_INVALID_VALUE, call, address, size, 0, 0);
  }
  if (mappings == 0) {
    sim_charge(sim, call, 0);
    return VMM_SUCCESS;
  }
  status = sim_backing_unmap(sim, address, size);
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, address, size, 0, 0);

  uint64_t granule = granule_of(sim, address), end = granule + (size >> sim->granule_bits);
  while (granule < end) {
    uint64_t skipped = sim_pages_skip(&sim->pages, granule, end - granule);
    uint32_t index = skipped ? 0 : sim_pages_get(&sim->pages, granule);
    if (index) {
      skipped = sim->mappings[index].granules;
      mapping_drop(sim, index);
    } else if (skipped == 0) {
      skipped = 1;
    }
    granule += skipped;
  }
  if (mappings == 0) sim_charge(sim, call, 0);
  return VMM_SUCCESS;
}

vmm_status sim_set_access(vmm_driver *driver, vmm_address address, uint64_t size) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_SET_ACCESS;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, address, size, 0, 0);
  uint64_t mappings, holes;
  if (size == 0 || !is_granular(sim, address | size) ||
      sim_reservation_of(sim, address, size) == SIM_EXTENT_NONE ||
      !walk_range(sim, address, size, &mappings, &holes) || holes > 0) {
    return sim_refuse(sim, VMM_INVALID_VALUE, call, address, size, 0, 0);
  }
  status = sim_backing_allow(sim, address, size, true);
  uint64_t granule = granule_of(sim, address), end = granule + (size >> sim->granule_bits);
  if (status != VMM_SUCCESS) { /* perhaps half way */
    while (granule < end) {
      const sim_mapping *mapping = &sim->mappings[sim_pages_get(&sim->pages, granule)];
      if (!mapping->accessible) {
        sim_backing_allow(sim, mapping->address, (uint64_t)mapping->granules << sim->granule_bits, false);
      }
      granule += mapping->granules;
    }
    return sim_refuse(sim, status, call, address, size, 0, 0);
  }
  while (granule < end) {
    sim_mapping *mapping = &sim->mappings[sim_pages_get(&sim->pages, granule)];
    sim_charge(sim, call, (uint64_t)mapping->granules << sim->granule_bits);
    mapping->accessible = true;
    granule += mapping->granules;
  }
  return VMM_SUCCESS;
}

const sim_mapping *sim_mapping_at(const vmm_sim *sim, vmm_address address) {
  if (address - sim->va_start >= sim->va_size) return NULL;
  uint32_t index = sim_pages_get(&sim->pages, granule_of(sim, address));
  return index ? &sim->mappings[index] : NULL;
}
