/* bench vmm: what the driver's virtual memory calls cost. Shared by its files:
 *   bench_vmm.c          options and the order of things
 *   bench_vmm_measure.c  one chunk size, or the driver's own allocators, measured
 *   bench_vmm_tables.c   Table 1 and Figure 6
 *   bench_vmm_profile.c  the latency profile of the simulated device */
#ifndef LAKEBED_HARNESS_BENCH_VMM_H
#define LAKEBED_HARNESS_BENCH_VMM_H

#include "harness/bench_build.h"
#include "harness/bench_session.h"
#include "harness/bench_spin.h"

enum { BENCH_TOTALS = 7, BENCH_KEPT = 1024 };

typedef struct bench_vmm {
  bench_options options;
  bench_session session;

  uint64_t totals[BENCH_TOTALS]; /* as asked for; none: each benchmark's own */
  size_t total_count;
  bool whole_range;
  bool cold;
  uint64_t live_handles;
  bool live_handles_full; /* as many as fit beside what is measured */
  uint64_t aliases;
  unsigned threads;
  bool during_kernel;
  const char *profile_path;

  vmm_driver *drivers[BENCH_THREADS]; /* one a thread, the session's first */
  bench_filler filler;
  bench_spin spin;
  vmm_handle kept[BENCH_KEPT]; /* memory of former builds, so that the next gets other memory */
  size_t kept_count;
} bench_vmm;

/* One way to build one size. */
typedef struct bench_vmm_point {
  bench_build_plan plan;
  uint64_t stage_calls[BENCH_STAGE_COUNT];
  bench_summary stages[BENCH_STAGE_COUNT]; /* of whole stages */
  bench_summary calls[BENCH_STAGE_COUNT];  /* of single calls */
  bench_summary build, teardown;
  uint64_t kernel_ended; /* builds that outlived the kernel that should run meanwhile */
} bench_vmm_point;

/* The driver's own ways to one size. */
typedef struct bench_vmm_native {
  uint64_t total;
  bench_summary malloc, free;
  bool has_warm, has_cold;
  bench_summary async_warm, async_warm_free; /* the pool holds memory */
  bench_summary async_cold, async_cold_free; /* it had to ask the device */
} bench_vmm_native;

/* Each says why when it fails. */
exit_status bench_vmm_measure(bench_vmm *bench, uint64_t total, uint64_t chunk, bench_vmm_point *point);
exit_status bench_vmm_measure_native(bench_vmm *bench, uint64_t total, bench_vmm_native *native);
/* Gives back the memory that cold builds kept. */
exit_status bench_vmm_forget_kept(bench_vmm *bench);
/* "building 2 GiB from 2 MiB chunks", for complaints. */
exit_status bench_vmm_failure(bench_vmm *bench, vmm_driver *driver, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

exit_status bench_vmm_table1(bench_vmm *bench);
exit_status bench_vmm_figure6(bench_vmm *bench);
exit_status bench_vmm_profile(bench_vmm *bench);

/* Every result says under which conditions it was measured. */
void bench_vmm_record_conditions(bench_vmm *bench, json_t *record);

#endif
