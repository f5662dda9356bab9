#include <stdlib.h>
#include <string.h>

#include "vmm/sim_internal.h"

bool sim_injected_slow(vmm_sim *sim, vmm_call call, vmm_status *status) {
  sim_failures *failures = &sim->failures[call];
  if (failures->count == 0 || failures->pending[0].number != failures->calls) return false;
  *status = failures->pending[0].status;
  failures->count--;
  sim->failures_pending--;
  memmove(failures->pending, failures->pending + 1, failures->count * sizeof *failures->pending);
  return true;
}

vmm_status vmm_sim_fail(vmm_driver *driver, vmm_call call, uint64_t k, vmm_status status) {
  vmm_sim *sim = sim_of(driver);
  if ((unsigned)call >= VMM_CALL_COUNT || k == 0 || status == VMM_SUCCESS) return VMM_INVALID_VALUE;
  sim_failures *failures = &sim->failures[call];
  uint64_t number = failures->calls + k;
  if (number < k) return VMM_INVALID_VALUE;
  uint32_t at = 0;
  while (at < failures->count && failures->pending[at].number < number) at++;
  if (at < failures->count && failures->pending[at].number == number) {
    failures->pending[at].status = status;
    return VMM_SUCCESS;
  }
  if (failures->count == failures->capacity) {
    uint32_t capacity = failures->capacity ? failures->capacity * 2 : 8;
    sim_failure *grown = realloc(failures->pending, capacity * sizeof *grown);
    if (!grown) return VMM_OUT_OF_MEMORY;
    failures->pending = grown;
    failures->capacity = capacity;
  }
  memmove(failures->pending + at + 1, failures->pending + at,
          (failures->count - at) * sizeof *failures->pending);
  failures->pending[at] = (sim_failure){.number = number, .status = status};
  failures->count++;
  sim->failures_pending++;
  return VMM_SUCCESS;
}

void vmm_sim_fail_none(vmm_driver *driver) {
  vmm_sim *sim = sim_of(driver);
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) sim->failures[call].count = 0;
  sim->failures_pending = 0;
}

void sim_failures_destroy(vmm_sim *sim) {
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) free(sim->failures[call].pending);
}

uint64_t sim_cost_slow(vmm_sim *sim, vmm_call call, uint64_t size) {
  const vmm_profile *profile = sim->configuration.profile;
  uint64_t live_handles = sim->usage.handles;
  uint64_t nanoseconds = profile ? vmm_profile_cost_ns(profile, call, size, live_handles) : 0;
  sim->costs[call] =
      (sim_cost){.size = size, .live_handles = live_handles, .nanoseconds = nanoseconds, .known = true};
  return nanoseconds;
}

vmm_status sim_refuse(vmm_sim *sim, vmm_status status, vmm_call call, uint64_t argument0, uint64_t argument1,
                      uint64_t argument2, uint64_t argument3) {
  if (sim->configuration.profile) {
    sim->driver.busy_ns += vmm_profile_cost_ns(sim->configuration.profile, call, 0, sim->usage.handles);
  }
  return vmm_error_set(&sim->driver, status, call, argument0, argument1, argument2, argument3);
}
