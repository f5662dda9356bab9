#include "vmm/sim_internal.h"

vmm_status sim_malloc_async(vmm_driver *driver, uint64_t size, vmm_stream stream, vmm_address *address) {
  (void)address;
  return sim_refuse(sim_of(driver), VMM_NOT_SUPPORTED, VMM_CALL_MALLOC_ASYNC, size, stream, 0, 0);
}

vmm_status sim_free_async(vmm_driver *driver, vmm_address address, vmm_stream stream) {
  return sim_refuse(sim_of(driver), VMM_NOT_SUPPORTED, VMM_CALL_FREE_ASYNC, address, stream, 0, 0);
}

bool sim_async_create(vmm_sim *sim) {
  sim->pool = NULL;
  return true;
}

void sim_async_destroy(vmm_sim *sim) { (void)sim; }
