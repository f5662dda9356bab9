#include "vmm/sim_internal.h"

/* Where cuMemAlloc puts its allocations, read off the addresses that PyTorch recorded on an
 * H200: an allocation takes whole slots of 32 MiB of VA, from the top down; what it leaves of
 * its last slot serves later ones, the lowest address first; slots that hold nothing go back.
 * The driver itself has 14 MiB of the first slot. Physical memory is taken in steps of 2 MiB. */

#define SLOT_BYTES (32 * SIM_MIB)
#define FIRST_SLOT_TAKEN_BYTES (14 * SIM_MIB)
#define PAGE_BYTES (2 * SIM_MIB)

bool sim_malloc_create(vmm_sim *sim) {
  if (!sim_extents_reserve(&sim->malloc_slots, 1) || !sim_extents_reserve(&sim->malloc_tails, 1) ||
      !sim_extents_reserve(&sim->mallocs, 1)) {
    return false;
  }
  uint64_t end = sim->malloc_start + sim->malloc_size;
  sim_extents_insert(&sim->malloc_slots, sim->malloc_start, sim->malloc_size - SLOT_BYTES, 0);
  sim_extents_insert(&sim->malloc_tails, end - SLOT_BYTES + FIRST_SLOT_TAKEN_BYTES,
                     SLOT_BYTES - FIRST_SLOT_TAKEN_BYTES, 0);
  return true;
}

void sim_malloc_destroy(vmm_sim *sim) {
  sim_extents_destroy(&sim->malloc_slots);
  sim_extents_destroy(&sim->malloc_tails);
  sim_extents_destroy(&sim->mallocs);
}

static uint64_t round_up(uint64_t size, uint64_t step) { return (size + step - 1) & ~(step - 1); }

vmm_status sim_malloc_take(vmm_sim *sim, uint64_t size, vmm_address *address) {
  if (size > sim->capacity) return VMM_OUT_OF_MEMORY;
  size = round_up(size, PAGE_BYTES);
  if (!sim_physical_fits(sim, size)) return VMM_OUT_OF_MEMORY;
  if (!sim_extents_reserve(&sim->malloc_slots, 1) || !sim_extents_reserve(&sim->malloc_tails, 1) ||
      !sim_extents_reserve(&sim->mallocs, 1)) {
    return VMM_OUT_OF_MEMORY;
  }
  uint64_t slots_size = round_up(size, SLOT_BYTES);
  sim_extent tail = sim_extents_first_fit(&sim->malloc_tails, size);
  sim_extent slots = SIM_EXTENT_NONE;
  uint64_t start;
  if (tail != SIM_EXTENT_NONE) {
    start = sim_extents_get(&sim->malloc_tails, tail)->start;
  } else {
    slots = sim_extents_last_fit(&sim->malloc_slots, slots_size);
    if (slots == SIM_EXTENT_NONE) return VMM_OUT_OF_MEMORY;
    const sim_extent_node *node = sim_extents_get(&sim->malloc_slots, slots);
    start = node->start + node->size - slots_size;
  }
  vmm_status status = sim_backing_grow(sim, sim->next_physical + size);
  if (status == VMM_SUCCESS) status = sim_backing_map(sim, start, size, sim->next_physical, true);
  if (status != VMM_SUCCESS) return status;
  if (tail != SIM_EXTENT_NONE) {
    sim_extents_carve(&sim->malloc_tails, tail, start, size);
  } else {
    sim_extents_carve(&sim->malloc_slots, slots, start, slots_size);
    if (slots_size > size) sim_extents_merge(&sim->malloc_tails, start + size, slots_size - size);
  }
  sim_extents_insert(&sim->mallocs, start, size, sim->next_physical);
  sim->next_physical += size;
  sim->usage.physical_bytes += size;
  *address = start;
  return VMM_SUCCESS;
}

vmm_status sim_malloc(vmm_driver *driver, uint64_t size, vmm_address *address) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_MALLOC;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, size, 0, 0, 0);
  if (!address || size == 0) return sim_refuse(sim, VMM_INVALID_VALUE, call, size, 0, 0, 0);
  status = sim_malloc_take(sim, size, address);
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, size, 0, 0, 0);
  sim->usage.mallocs++;
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}

/* Gives the slots that lie wholly in a free tail back to the free VA. */
static void return_empty_slots(vmm_sim *sim, vmm_address address) {
  sim_extent tail = sim_extents_containing(&sim->malloc_tails, address);
  const sim_extent_node *node = sim_extents_get(&sim->malloc_tails, tail);
  uint64_t first = round_up(node->start, SLOT_BYTES);
  uint64_t end = (node->start + node->size) & ~(SLOT_BYTES - 1);
  if (first >= end) return;
  sim_extents_carve(&sim->malloc_tails, tail, first, end - first);
  sim_extents_merge(&sim->malloc_slots, first, end - first);
}

void sim_malloc_give_back(vmm_sim *sim, sim_extent allocation) {
  const sim_extent_node node = *sim_extents_get(&sim->mallocs, allocation);
  sim_backing_discard(sim, node.value, node.size);
  sim_extents_remove(&sim->mallocs, allocation);
  sim_extents_merge(&sim->malloc_tails, node.start, node.size);
  return_empty_slots(sim, node.start);
  sim->usage.physical_bytes -= node.size;
}

vmm_status sim_free(vmm_driver *driver, vmm_address address) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_FREE;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, address, 0, 0, 0);
  sim_extent allocation = sim_extents_floor(&sim->mallocs, address);
  const sim_extent_node *node = sim_extents_get(&sim->mallocs, allocation);
  if (allocation == SIM_EXTENT_NONE || node->start != address) {
    return sim_refuse(sim, VMM_INVALID_VALUE, call, address, 0, 0, 0);
  }
  uint64_t size = node->size;
  if (!sim_extents_reserve(&sim->malloc_tails, 2) || !sim_extents_reserve(&sim->malloc_slots, 1)) {
    return sim_refuse(sim, VMM_OUT_OF_MEMORY, call, address, 0, 0, 0);
  }
  status = sim_backing_unmap(sim, address, size);
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, address, 0, 0, 0);
  sim_malloc_give_back(sim, allocation);
  sim->usage.mallocs--;
  sim_finish_work(sim);
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}
