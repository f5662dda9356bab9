#include "harness/bench_spin.h"

#include <stdio.h>
#include <string.h>

#include "harness/progress.h"

enum { SPIN_STREAM = 15, SPIN_THREADS = 256, STOP_BYTES = 256 };

/* Far more than the L2 cache holds. */
static const uint64_t traffic_bytes = UINT64_C(1) << 30;
static const uint64_t start_limit_ns = UINT64_C(5000000000);

vmm_status bench_spin_open(bench_spin *spin, vmm_driver *driver, bool traffic, char *message,
                           size_t message_size) {
  memset(spin, 0, sizeof *spin);
  spin->driver = driver;
  vmm_status status = vmm_cuda_module_load_built_in(driver, "spin", &spin->module, message, message_size);
  if (status != VMM_SUCCESS) return status;
  const int multiprocessors = vmm_cuda_information_of(driver)->multiprocessors;
  spin->blocks = 1 + (multiprocessors > 0 ? (uint32_t)multiprocessors : 1);
  spin->read_bytes = traffic ? traffic_bytes : 0;
  spin->flags = vmm_cuda_host_alloc(driver, 2 * sizeof *spin->flags, &spin->device_flags);
  status = spin->flags ? vmm_malloc(driver, STOP_BYTES + spin->read_bytes, &spin->data) : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) {
    status = vmm_cuda_set_bytes(driver, spin->data, 0, STOP_BYTES + spin->read_bytes, SPIN_STREAM);
  }
  if (status == VMM_SUCCESS) return VMM_SUCCESS;
  snprintf(message, message_size, "no memory for the kernel that runs meanwhile: %s %s",
           vmm_status_text(status), vmm_cuda_failure(driver));
  vmm_error_clear(driver);
  bench_spin_close(spin);
  return status;
}

vmm_status bench_spin_start(bench_spin *spin, uint64_t bound_ns) {
  spin->flags[0] = spin->flags[1] = 0;
  const vmm_cuda_shape shape = {.grid = {spin->blocks}, .block = {SPIN_THREADS}};
  vmm_address words = spin->data + STOP_BYTES;
  uint64_t count = spin->read_bytes / sizeof(uint64_t);
  void *arguments[] = {&spin->device_flags, &spin->data, &bound_ns, &words, &count, &words};
  vmm_status status = vmm_cuda_set_bytes(spin->driver, spin->data, 0, STOP_BYTES, SPIN_STREAM);
  if (status == VMM_SUCCESS) {
    status = vmm_cuda_launch(spin->driver, spin->module, "spin", &shape, SPIN_STREAM, arguments);
  }
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

vmm_status bench_spin_close(bench_spin *spin) {
  bool ended_before;
  vmm_status first = bench_spin_stop(spin, &ended_before);
  if (spin->data) {
    vmm_status freed = vmm_free(spin->driver, spin->data);
    if (first == VMM_SUCCESS) first = freed;
  }
  if (spin->flags) vmm_cuda_host_free(spin->driver, (void *)spin->flags);
  if (spin->module) vmm_cuda_module_unload(spin->driver, spin->module);
  memset(spin, 0, sizeof *spin);
  return first;
}
