/* Programs run through a policy, each by a thread of its own, and everything that can be known of the
 * outcome is checked.
 *
 * A thread alone is compared with a model after every step: what is handed out overlaps nothing that is
 * live, the statistics count what is live, a request that failed has changed nothing. Whatever the
 * number of threads: blocks hold what was written to them, the policy's invariants hold, at the end
 * everything can be freed, a trimmed policy holds nothing and serves a large request, and the device is left
 * empty. A driver call may fail only where the program says so. */
#ifndef LAKEBED_HARNESS_STRESS_RUN_H
#define LAKEBED_HARNESS_STRESS_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/device.h"
#include "harness/progress.h"
#include "harness/stress_memory.h"
#include "harness/stress_program.h"
#include "pools/heap.h"
#include "vmm/driver.h"

enum { STRESS_THREADS_LIMIT = 64 };

typedef struct stress_settings {
  const device_model *model;
  const policy_spec *spec;
  uint64_t limit;       /* UINT64_MAX: none */
  uint64_t check_every; /* steps between two walks of all invariants; 0: at the end only */
  bool verify;          /* write and compare memory; a simulated device must be backed */
  bool slow_kernels;
  unsigned retries; /* so often what failed is tried again, and must then succeed; 0: it may stay undone */
  uint64_t last_request; /* bytes that must be served when all is free again */
  /* What a run without failures held to serve it; 0: none was made. A failure may cost memory: the driver
   * does not take it back, or blocks lie in other places. Where the device or the limit has no room for a
   * request and this much, it may be told so. */
  uint64_t last_held;
  uint64_t end_ns; /* of progress_clock_ns: programs stop there, and all is freed and checked; 0: never */
  uint64_t steps_before; /* of earlier runs, for progress */
} stress_settings;

typedef struct stress_counts {
  uint64_t steps, served, out_of_memory, failed_requests;
  uint64_t frees, refused_frees, handed_over; /* to another thread, which freed them */
  uint64_t records, trims, limits, refused_others;
  uint64_t checks;
  uint64_t failed_calls; /* driver calls that failed: for want of memory, or as the program wanted */
  /* What a request that failed left behind, besides the same allocations: the same memory; less, because
   * caches were emptied; more, kept as free memory. */
  uint64_t rolled_back, emptied, kept;
} stress_counts;

/* What a policy does, such as "S3" or "stitch": the names of its heap. */
typedef struct stress_operation {
  const char *name; /* static */
  uint64_t count;
} stress_operation;

typedef struct stress_result {
  bool failed;
  uint32_t thread; /* that noticed */
  uint64_t step;   /* of its program, from 1; 0: at the end */
  char message[768];
  stress_counts counts;
  stress_memory_counts memory;
  pool_statistics statistics; /* before everything was given back */
  uint64_t last_held;         /* to serve the last request */
  uint64_t driver_calls, driver_ns, host_ns;
  uint64_t calls[VMM_CALL_COUNT];                    /* of the programs' steps, by kind */
  stress_operation operations[POOL_OPERATION_LIMIT]; /* of the programs' steps */
  unsigned operation_count;
  uint32_t failed_inside; /* bit N: the call that the program made fail lay inside operation N */
} stress_result;

/* Runs programs, one for each of so many threads (at most STRESS_THREADS_LIMIT), on a fresh device. false
 * when something is wrong that is no finding: the device cannot be opened, the policy not made, the host has
 * no memory; message says what. shown: NULL for no progress. */
bool stress_run(const stress_settings *settings, const stress_program *programs, uint32_t threads,
                progress *shown, stress_result *result);

#endif
