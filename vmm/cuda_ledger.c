#include "vmm/cuda_ledger.h"

#include <stdlib.h>

#define ACCESS_BIT (UINT64_C(1) << 63)

void cuda_ledger_destroy(cuda_ledger *ledger) {
  sim_extents_destroy(&ledger->reservations);
  sim_extents_destroy(&ledger->mappings);
  sim_extents_destroy(&ledger->allocations);
  sim_extents_destroy(&ledger->names);
  sim_extents_destroy(&ledger->released);
  free(ledger->handles);
  *ledger = (cuda_ledger){0};
}

static bool handles_prepare(cuda_ledger *ledger) {
  if (ledger->first_unused_handle || ledger->handles_used < ledger->handles_capacity) return true;
  if (ledger->handles_capacity > UINT32_MAX / 2) return false;
  uint32_t capacity = ledger->handles_capacity ? ledger->handles_capacity * 2 : 64;
  cuda_ledger_handle *grown = realloc(ledger->handles, capacity * sizeof *grown);
  if (!grown) return false;
  if (!ledger->handles) ledger->handles_used = 1; /* 0 is none */
  ledger->handles = grown;
  ledger->handles_capacity = capacity;
  return true;
}

bool cuda_ledger_prepare(cuda_ledger *ledger) {
  return sim_extents_reserve(&ledger->reservations, 1) && sim_extents_reserve(&ledger->mappings, 1) &&
         sim_extents_reserve(&ledger->allocations, 1) && sim_extents_reserve(&ledger->names, 1) &&
         sim_extents_reserve(&ledger->released, 1) && handles_prepare(ledger);
}

/* The extent that starts at an address. */
static sim_extent starting_at(const sim_extents *set, uint64_t start) {
  sim_extent extent = sim_extents_floor(set, start);
  return extent != SIM_EXTENT_NONE && sim_extents_get(set, extent)->start == start ? extent : SIM_EXTENT_NONE;
}

/* The last extent that lies at least partly in a range. */
static sim_extent last_within(const sim_extents *set, uint64_t start, uint64_t size) {
  sim_extent extent = sim_extents_floor(set, start + size - 1);
  if (extent == SIM_EXTENT_NONE) return SIM_EXTENT_NONE;
  const sim_extent_node *node = sim_extents_get(set, extent);
  return node->start + node->size > start ? extent : SIM_EXTENT_NONE;
}

static sim_extent last_of_all(const sim_extents *set) {
  return set->nodes ? sim_extents_floor(set, UINT64_MAX) : SIM_EXTENT_NONE;
}

void cuda_ledger_reserve(cuda_ledger *ledger, vmm_address address, uint64_t size) {
  sim_extents_insert(&ledger->reservations, address, size, 0);
  ledger->usage.reservations++;
  ledger->usage.reserved_address_bytes += size;
}

void cuda_ledger_address_free(cuda_ledger *ledger, vmm_address address) {
  sim_extent extent = starting_at(&ledger->reservations, address);
  if (extent == SIM_EXTENT_NONE) return;
  ledger->usage.reservations--;
  ledger->usage.reserved_address_bytes -= sim_extents_get(&ledger->reservations, extent)->size;
  sim_extents_remove(&ledger->reservations, extent);
}

void cuda_ledger_create(cuda_ledger *ledger, vmm_handle handle, uint64_t size) {
  uint32_t record = ledger->first_unused_handle;
  if (record) {
    ledger->first_unused_handle = ledger->handles[record].next_unused;
  } else {
    record = ledger->handles_used++;
  }
  ledger->handles[record] = (cuda_ledger_handle){.name = handle, .size = size, .referenced = true};
  /* The driver may give a released handle's number to a new one. */
  sim_extent former = starting_at(&ledger->released, handle);
  if (former != SIM_EXTENT_NONE) sim_extents_remove(&ledger->released, former);
  sim_extents_insert(&ledger->names, handle, 1, record);
  ledger->usage.handles++;
  ledger->usage.physical_bytes += size;
}

/* Forgets a handle that has neither reference nor mapping. */
static void drop_unused(cuda_ledger *ledger, uint32_t record) {
  cuda_ledger_handle *handle = &ledger->handles[record];
  if (handle->referenced || handle->mappings > 0) return;
  ledger->usage.handles--;
  ledger->usage.physical_bytes -= handle->size;
  sim_extent former = starting_at(&ledger->released, handle->name);
  if (former != SIM_EXTENT_NONE && sim_extents_get(&ledger->released, former)->value == record) {
    sim_extents_remove(&ledger->released, former);
  }
  *handle = (cuda_ledger_handle){.next_unused = ledger->first_unused_handle};
  ledger->first_unused_handle = record;
}

void cuda_ledger_release(cuda_ledger *ledger, vmm_handle handle) {
  sim_extent name = starting_at(&ledger->names, handle);
  if (name == SIM_EXTENT_NONE) return;
  uint32_t record = (uint32_t)sim_extents_get(&ledger->names, name)->value;
  sim_extents_remove(&ledger->names, name);
  ledger->handles[record].referenced = false;
  if (ledger->handles[record].mappings > 0) sim_extents_insert(&ledger->released, handle, 1, record);
  drop_unused(ledger, record);
}

bool cuda_ledger_is_referenced(const cuda_ledger *ledger, vmm_handle handle) {
  return starting_at(&ledger->names, handle) != SIM_EXTENT_NONE;
}

bool cuda_ledger_is_released(const cuda_ledger *ledger, vmm_handle handle) {
  return starting_at(&ledger->released, handle) != SIM_EXTENT_NONE;
}

void cuda_ledger_map(cuda_ledger *ledger, vmm_address address, uint64_t size, vmm_handle handle) {
  sim_extent name = starting_at(&ledger->names, handle);
  if (name == SIM_EXTENT_NONE) return;
  uint32_t record = (uint32_t)sim_extents_get(&ledger->names, name)->value;
  sim_extents_insert(&ledger->mappings, address, size, record);
  ledger->handles[record].mappings++;
  ledger->usage.mappings++;
}

void cuda_ledger_unmap(cuda_ledger *ledger, vmm_address address, uint64_t size) {
  sim_extent mapping;
  while ((mapping = last_within(&ledger->mappings, address, size)) != SIM_EXTENT_NONE) {
    uint32_t record = (uint32_t)(sim_extents_get(&ledger->mappings, mapping)->value & ~ACCESS_BIT);
    sim_extents_remove(&ledger->mappings, mapping);
    ledger->usage.mappings--;
    ledger->handles[record].mappings--;
    drop_unused(ledger, record);
  }
}

void cuda_ledger_allow(cuda_ledger *ledger, vmm_address address, uint64_t size) {
  sim_extent mapping;
  while (size > 0 && (mapping = last_within(&ledger->mappings, address, size)) != SIM_EXTENT_NONE) {
    sim_extent_node *node = sim_extents_get(&ledger->mappings, mapping);
    node->value |= ACCESS_BIT;
    size = node->start > address ? node->start - address : 0;
  }
}

void cuda_ledger_allocate(cuda_ledger *ledger, vmm_address address, uint64_t size, bool pooled) {
  if (address == 0 || size == 0) return; /* the pool answers 0 bytes with 0 */
  sim_extents_insert(&ledger->allocations, address, size, pooled);
  ledger->usage.physical_bytes += size;
  ++*(pooled ? &ledger->usage.async : &ledger->usage.mallocs);
}

void cuda_ledger_deallocate(cuda_ledger *ledger, vmm_address address) {
  sim_extent allocation = starting_at(&ledger->allocations, address);
  if (allocation == SIM_EXTENT_NONE) return;
  const sim_extent_node *node = sim_extents_get(&ledger->allocations, allocation);
  ledger->usage.physical_bytes -= node->size;
  --*(node->value ? &ledger->usage.async : &ledger->usage.mallocs);
  sim_extents_remove(&ledger->allocations, allocation);
}

bool cuda_ledger_accessible(const cuda_ledger *ledger, vmm_address address, uint64_t size) {
  if (size == 0) return false;
  sim_extent allocation = sim_extents_containing(&ledger->allocations, address);
  if (allocation != SIM_EXTENT_NONE) {
    const sim_extent_node *node = sim_extents_get(&ledger->allocations, allocation);
    return size <= node->size - (address - node->start);
  }
  while (true) {
    sim_extent mapping = sim_extents_containing(&ledger->mappings, address);
    if (mapping == SIM_EXTENT_NONE) return false;
    const sim_extent_node *node = sim_extents_get(&ledger->mappings, mapping);
    if (!(node->value & ACCESS_BIT)) return false;
    uint64_t left = node->size - (address - node->start);
    if (size <= left) return true;
    address += left;
    size -= left;
  }
}

bool cuda_ledger_any_mapping(const cuda_ledger *ledger, vmm_address *address, uint64_t *size) {
  sim_extent extent = last_of_all(&ledger->mappings);
  if (extent == SIM_EXTENT_NONE) return false;
  *address = sim_extents_get(&ledger->mappings, extent)->start;
  *size = sim_extents_get(&ledger->mappings, extent)->size;
  return true;
}

bool cuda_ledger_any_handle(const cuda_ledger *ledger, vmm_handle *handle) {
  sim_extent extent = last_of_all(&ledger->names);
  if (extent == SIM_EXTENT_NONE) return false;
  *handle = sim_extents_get(&ledger->names, extent)->start;
  return true;
}

bool cuda_ledger_any_reservation(const cuda_ledger *ledger, vmm_address *address, uint64_t *size) {
  sim_extent extent = last_of_all(&ledger->reservations);
  if (extent == SIM_EXTENT_NONE) return false;
  *address = sim_extents_get(&ledger->reservations, extent)->start;
  *size = sim_extents_get(&ledger->reservations, extent)->size;
  return true;
}

bool cuda_ledger_any_allocation(const cuda_ledger *ledger, vmm_address *address, bool *pooled) {
  sim_extent extent = last_of_all(&ledger->allocations);
  if (extent == SIM_EXTENT_NONE) return false;
  *address = sim_extents_get(&ledger->allocations, extent)->start;
  *pooled = sim_extents_get(&ledger->allocations, extent)->value != 0;
  return true;
}
