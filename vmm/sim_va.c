#include "vmm/sim_internal.h"

/* VA is 128 TiB. The first TiB belongs to the host's program, the last one to
 * cuMemAlloc: 126 TiB can be reserved, as on the H200. */
bool sim_va_create(vmm_sim *sim) {
  if (!sim_extents_reserve(&sim->va_free, 1) || !sim_extents_reserve(&sim->reservations, 1)) return false;
  sim_extents_insert(&sim->va_free, sim->va_start, sim->va_size, 0);
  return true;
}

void sim_va_destroy(vmm_sim *sim) {
  sim_extents_destroy(&sim->va_free);
  sim_extents_destroy(&sim->reservations);
}

vmm_status sim_address_reserve(vmm_driver *driver, uint64_t size, uint64_t alignment, vmm_address *address) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_ADDRESS_RESERVE;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, size, alignment, 0, 0);
  uint64_t granularity = UINT64_C(1) << sim->granule_bits;
  if (!address || size == 0 || size & (granularity - 1) || alignment & (alignment - 1)) {
    return sim_refuse(sim, VMM_INVALID_VALUE, call, size, alignment, 0, 0);
  }
  if (!sim_extents_reserve(&sim->va_free, 2) || !sim_extents_reserve(&sim->reservations, 1)) {
    return sim_refuse(sim, VMM_OUT_OF_MEMORY, call, size, alignment, 0, 0);
  }
  if (alignment < granularity) alignment = granularity;
  sim_extent hole = alignment == granularity ? sim_extents_first_fit(&sim->va_free, size)
                                             : sim_extents_first_fit_aligned(&sim->va_free, size, alignment);
  if (hole == SIM_EXTENT_NONE) return sim_refuse(sim, VMM_OUT_OF_MEMORY, call, size, alignment, 0, 0);
  uint64_t hole_start = sim_extents_get(&sim->va_free, hole)->start;
  uint64_t start = hole_start + (-hole_start & (alignment - 1));
  sim_extents_carve(&sim->va_free, hole, start, size);
  sim->recent_reservation = sim_extents_insert(&sim->reservations, start, size, 0);
  sim->usage.reservations++;
  sim->usage.reserved_address_bytes += size;
  *address = start;
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}

vmm_status sim_address_free(vmm_driver *driver, vmm_address address, uint64_t size) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_ADDRESS_FREE;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, address, size, 0, 0);
  sim_extent reservation = sim_extents_floor(&sim->reservations, address);
  const sim_extent_node *node = sim_extents_get(&sim->reservations, reservation);
  if (reservation == SIM_EXTENT_NONE || node->start != address || node->size != size || node->value != 0) {
    return sim_refuse(sim, VMM_INVALID_VALUE, call, address, size, 0, 0);
  }
  if (!sim_extents_reserve(&sim->va_free, 1)) {
    return sim_refuse(sim, VMM_OUT_OF_MEMORY, call, address, size, 0, 0);
  }
  sim_extents_remove(&sim->reservations, reservation);
  sim_extents_merge(&sim->va_free, address, size);
  sim->recent_reservation = SIM_EXTENT_NONE;
  sim->usage.reservations--;
  sim->usage.reserved_address_bytes -= size;
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}

vmm_status sim_va_take(vmm_sim *sim, uint64_t size, vmm_address *address) {
  if (!sim_extents_reserve(&sim->va_free, 1)) return VMM_OUT_OF_MEMORY;
  sim_extent hole = sim_extents_first_fit(&sim->va_free, size);
  if (hole == SIM_EXTENT_NONE) return VMM_OUT_OF_MEMORY;
  *address = sim_extents_get(&sim->va_free, hole)->start;
  sim_extents_carve(&sim->va_free, hole, *address, size);
  return VMM_SUCCESS;
}

sim_extent sim_reservation_of(vmm_sim *sim, vmm_address address, uint64_t size) {
  sim_extent reservation = sim->recent_reservation;
  const sim_extent_node *node = sim_extents_get(&sim->reservations, reservation);
  if (reservation == SIM_EXTENT_NONE || address - node->start >= node->size) {
    reservation = sim_extents_containing(&sim->reservations, address);
    if (reservation == SIM_EXTENT_NONE) return SIM_EXTENT_NONE;
    sim->recent_reservation = reservation;
    node = sim_extents_get(&sim->reservations, reservation);
  }
  return size <= node->size - (address - node->start) ? reservation : SIM_EXTENT_NONE;
}
