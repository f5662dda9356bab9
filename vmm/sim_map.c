#include <stdlib.h>

#include "vmm/sim_internal.h"

enum { LEAF_BITS = 10, ROOT_BITS_LIMIT = 16 };

void sim_map_destroy(vmm_sim *sim) {
  sim_page_table *pages = &sim->pages;
  for (uint64_t i = 0; pages->leaves && i < pages->leaf_count; i++) free(pages->leaves[i]);
  free(pages->leaves);
  free(sim->handles);
  free(sim->mappings);
}

static uint64_t granule_of(const vmm_sim *sim, vmm_address address) {
  return (address - sim->va_start) >> sim->granule_bits;
}

/* The mapping index at a granule; 0: nothing mapped. */
static uint32_t page_get(const sim_page_table *pages, uint64_t granule) {
  const uint32_t *leaf = pages->leaves[granule >> pages->leaf_bits];
  return leaf ? leaf[granule & ((UINT64_C(1) << pages->leaf_bits) - 1)] : 0;
}

/* How many granules from this one on lie in the same leaf, at most limit. */
static uint64_t granules_in_leaf(const sim_page_table *pages, uint64_t granule, uint64_t limit) {
  uint64_t leaf_size = UINT64_C(1) << pages->leaf_bits;
  uint64_t left = leaf_size - (granule & (leaf_size - 1));
  return left < limit ? left : limit;
}

/* Makes all leaves of a range; false: no host memory. */
static bool pages_prepare(sim_page_table *pages, uint64_t granule, uint64_t count) {
  uint64_t last = (granule + count - 1) >> pages->leaf_bits;
  for (uint64_t i = granule >> pages->leaf_bits; i <= last; i++) {
    if (pages->leaves[i]) continue;
    pages->leaves[i] = calloc(UINT64_C(1) << pages->leaf_bits, sizeof **pages->leaves);
    if (!pages->leaves[i]) return false;
  }
  return true;
}

static bool pages_empty(const sim_page_table *pages, uint64_t granule, uint64_t count) {
  while (count > 0) {
    uint64_t step = granules_in_leaf(pages, granule, count);
    const uint32_t *leaf = pages->leaves[granule >> pages->leaf_bits];
    if (leaf) {
      const uint32_t *entry = leaf + (granule & ((UINT64_C(1) << pages->leaf_bits) - 1));
      for (uint64_t i = 0; i < step; i++) {
        if (entry[i]) return false;
      }
    }
    granule += step;
    count -= step;
  }
  return true;
}

static void pages_fill(sim_page_table *pages, uint64_t granule, uint64_t count, uint32_t mapping) {
  while (count > 0) {
    uint64_t step = granules_in_leaf(pages, granule, count);
    uint32_t *entry =
        pages->leaves[granule >> pages->leaf_bits] + (granule & ((UINT64_C(1) << pages->leaf_bits) - 1));
    for (uint64_t i = 0; i < step; i++) entry[i] = mapping;
    granule += step;
    count -= step;
  }
}

static bool is_granular(const vmm_sim *sim, uint64_t bytes) {
  return (bytes & ((UINT64_C(1) << sim->granule_bits) - 1)) == 0;
}

static vmm_handle handle_name(const vmm_sim *sim, uint32_t index) {
  return (uint64_t)sim->handles[index].generation << 32 | index;
}

/* The place that a name speaks of, dead or alive; 0: never given out. */
static uint32_t handle_place(const vmm_sim *sim, vmm_handle name) {
  uint64_t index = name & UINT32_MAX;
  if (index == 0 || index >= sim->handles_used) return 0;
  return name >> 32 <= sim->handles[index].generation ? (uint32_t)index : 0;
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
  sim_page_table *pages = &sim->pages;
  uint64_t granules = sim->va_size >> sim->granule_bits;
  pages->leaf_bits = LEAF_BITS;
  while (granules >> pages->leaf_bits >= UINT64_C(1) << ROOT_BITS_LIMIT) pages->leaf_bits++;
  pages->leaf_count = (granules >> pages->leaf_bits) + 1;
  pages->leaves = calloc(pages->leaf_count, sizeof *pages->leaves);
  if (!pages->leaves) return false;
  sim->mappings_used = sim->handles_used = 1; /* 0 is none */
  return handles_prepare(sim) && mappings_prepare(sim);
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
  uint32_t index = handle_place(sim, name);
  sim_handle *handle = &sim->handles[index];
  if (index == 0 || handle->generation != name >> 32 || !handle->referenced || handle->size == 0) {
    return sim_refuse(sim, VMM_INVALID_VALUE, call, name, 0, 0, 0);
  }
  sim_charge(sim, call, handle->size);
  handle->referenced = false;
  if (handle->mappings == 0) handle_drop(sim, index);
  return VMM_SUCCESS;
}

vmm_status sim_map(vmm_driver *driver, vmm_address address, uint64_t size, uint64_t offset, vmm_handle name) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_MAP;
  vmm_status status = VMM_SUCCESS;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, address, size, offset, name);

  uint32_t index = handle_place(sim, name);
  const sim_handle *handle = &sim->handles[index];
  if (index == 0 || size == 0 || !is_granular(sim, address | size | offset)) {
    status = VMM_INVALID_VALUE;
  } else if (offset != 0 || handle->generation != name >> 32 || !handle->referenced || handle->size != size) {
    status = VMM_NOT_SUPPORTED;
  }
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, address, size, offset, name);

  uint64_t granule = granule_of(sim, address), granules = size >> sim->granule_bits;
  sim_extent reservation = sim_reservation_of(sim, address, size);
  if (reservation == SIM_EXTENT_NONE || !pages_empty(&sim->pages, granule, granules)) {
    status = VMM_INVALID_VALUE;
  } else if (!mappings_prepare(sim) || !pages_prepare(&sim->pages, granule, granules)) {
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
  pages_fill(&sim->pages, granule, granules, mapping);
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
    if (!sim->pages.leaves[granule >> sim->pages.leaf_bits]) {
      uint64_t step = granules_in_leaf(&sim->pages, granule, end - granule);
      *holes += step;
      granule += step;
      continue;
    }
    uint32_t index = page_get(&sim->pages, granule);
    if (index == 0) {
      ++*holes;
      granule++;
      continue;
    }
    const sim_mapping *mapping = &sim->mappings[index];
    if (granule_of(sim, mapping->address) != granule || mapping->granules > end - granule) return false;
    ++*mappings;
    granule += mapping->granules;
  }
  return true;
}

vmm_status sim_unmap(vmm_driver *driver, vmm_address address, uint64_t size) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_UNMAP;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, address, size, 0, 0);
  uint64_t mappings, holes;
  if (size == 0 || !is_granular(sim, address | size) ||
      sim_reservation_of(sim, address, size) == SIM_EXTENT_NONE ||
      !walk_range(sim, address, size, &mappings, &holes) || (mappings > 0 && holes > 0)) {
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
    uint32_t index = page_get(&sim->pages, granule);
    sim_mapping *mapping = &sim->mappings[index];
    uint64_t granules = mapping->granules;
    sim_charge(sim, call, granules << sim->granule_bits);
    pages_fill(&sim->pages, granule, granules, 0);
    sim_extents_get(&sim->reservations, mapping->reservation)->value--;
    sim_handle *handle = &sim->handles[mapping->handle];
    if (--handle->mappings == 0 && !handle->referenced) handle_drop(sim, mapping->handle);
    mapping->reservation = sim->first_unused_mapping;
    sim->first_unused_mapping = index;
    sim->usage.mappings--;
    granule += granules;
  }
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
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, address, size, 0, 0);
  uint64_t granule = granule_of(sim, address), end = granule + (size >> sim->granule_bits);
  while (granule < end) {
    sim_mapping *mapping = &sim->mappings[page_get(&sim->pages, granule)];
    sim_charge(sim, call, (uint64_t)mapping->granules << sim->granule_bits);
    mapping->accessible = true;
    granule += mapping->granules;
  }
  return VMM_SUCCESS;
}

const sim_mapping *sim_mapping_at(const vmm_sim *sim, vmm_address address) {
  if (address - sim->va_start >= sim->va_size) return NULL;
  uint32_t index = page_get(&sim->pages, granule_of(sim, address));
  return index ? &sim->mappings[index] : NULL;
}
