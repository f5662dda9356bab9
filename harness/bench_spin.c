#include "harness/bench_spin.h"

#include <stdio.h>
#include <string.h>

#include "harness/progress.h"

enum { SPIN_STREAM = 15, SPIN_THREADS = 128 };

static const uint64_t start_limit_ns = UINT64_C(5000000000);

vmm_status bench_spin_open(bench_spin *spin, vmm_driver *driver, char *message, size_t message_size) {
  memset(spin, 0, sizeof *spin);
  spin->driver = driver;
  vmm_status status = vmm_cuda_module_load_built_in(driver, "spin", &spin->module, message, message_size);
  if (status != VMM_SUCCESS) return status;
  spin->flags = vmm_cuda_host_alloc(driver, 2 * sizeof *spin->flags, &spin->device_flags);
  if (!spin->flags) {
    snprintf(message, message_size, "no pinned memory for the kernel that runs meanwhile: %s",
             vmm_cuda_failure(driver));
    bench_spin_close(spin);
    return VMM_OUT_OF_MEMORY;
  }
  int multiprocessors = vmm_cuda_information_of(driver)->multiprocessors;
  spin->blocks = multiprocessors > 0 ? (uint32_t)multiprocessors : 1;
  return VMM_SUCCESS;
}

vmm_status bench_spin_start(bench_spin *spin, uint64_t bound_ns) {
  spin->flags[0] = spin->flags[1] = 0;
  const vmm_cuda_shape shape = {.grid = {spin->blocks}, .block = {SPIN_THREADS}};
  void *arguments[] = {&spin->device_flags, &bound_ns};
  vmm_status status = vmm_cuda_launch(spin->driver, spin->module, "spin", &shape, SPIN_STREAM, arguments);
  if (status == VMM_SUCCESS) status = vmm_event_record(spin->driver, SPIN_STREAM, &spin->end);
  const uint64_t begin = progress_clock_ns();
  while (status == VMM_SUCCESS && spin->flags[0] == 0) {
    if (progress_clock_ns() - begin > start_limit_ns) status = VMM_NOT_READY;
  }
  return status;
}

vmm_status bench_spin_stop(bench_spin *spin, bool *ended_before) {
  *ended_before = false;
  if (!spin->end) return VMM_SUCCESS;
  vmm_status status = vmm_event_query(spin->driver, spin->end);
  *ended_before = status == VMM_SUCCESS;
  spin->flags[1] = 1;
  if (status == VMM_NOT_READY) status = vmm_event_wait(spin->driver, spin->end);
  vmm_event_discard(spin->driver, spin->end);
  spin->end = 0;
  return status;
}

void bench_spin_close(bench_spin *spin) {
  bool ended_before;
  bench_spin_stop(spin, &ended_before);
  if (spin->flags) vmm_cuda_host_free(spin->driver, (void *)spin->flags);
  if (spin->module) vmm_cuda_module_unload(spin->driver, spin->module);
  memset(spin, 0, sizeof *spin);
}
