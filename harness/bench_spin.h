/* A kernel that keeps the device busy until it is told to stop, or until its time is up. */
#ifndef LAKEBED_HARNESS_BENCH_SPIN_H
#define LAKEBED_HARNESS_BENCH_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/cuda.h"

typedef struct bench_spin {
  vmm_driver *driver;
  vmm_cuda_module *module;
  volatile uint32_t *flags; /* [0]: the kernel runs; [1]: it shall stop */
  vmm_address device_flags;
  vmm_address data;    /* what it reads; its first word says that it shall stop */
  uint64_t read_bytes; /* of data; 0: it only waits */
  uint32_t blocks;
  vmm_event end; /* of the kernel that runs; 0: none */
} bench_spin;

/* Only on a real device. traffic: the kernel reads memory all the time. On failure message says
 * why and nothing is left. */
vmm_status bench_spin_open(bench_spin *spin, vmm_driver *driver, bool traffic, char *message,
                           size_t message_size);
/* Starts the kernel and returns when it runs. It ends by itself after bound_ns. */
vmm_status bench_spin_start(bench_spin *spin, uint64_t bound_ns);
/* Stops it and waits for its end. *ended_before: it was over already. Nothing to do when none runs. */
vmm_status bench_spin_stop(bench_spin *spin, bool *ended_before);
/* Stops the kernel, if one runs. Accepts what was never opened ({0}). The first failure. */
vmm_status bench_spin_close(bench_spin *spin);

#endif
