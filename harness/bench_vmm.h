/* bench vmm: what the driver's virtual memory calls cost. Shared by its files:
 *   bench_vmm.c          options and the order of things
 *   bench_vmm_measure.c  one chunk size, or the driver's own allocators, measured
 *   bench_vmm_tables.c   Table 1 and Figure 6
 *   bench_vmm_profile.c  the latency profile of the simulated device, measured
 *   bench_vmm_profile_output.c  and written */
#ifndef LAKEBED_HARNESS_BENCH_VMM_H
#define LAKEBED_HARNESS_BENCH_VMM_H

#include "harness/bench_build.h"
#include "harness/bench_points.h"
#include "harness/bench_session.h"
#include "harness/bench_spin.h"

enum { BENCH_TOTALS = 7, BENCH_KEPT = 1024 };

/* Which memory a build gets. */
typedef enum bench_memory {
  BENCH_MEMORY_SETTLED, /* the driver has had time to clear what was given back */
  BENCH_MEMORY_WARM,    /* what was given back just before */
  BENCH_MEMORY_COLD     /* other memory: what was given back is kept away */
} bench_memory;

/* What the device does meanwhile. */
typedef enum bench_during {
  BENCH_DURING_IDLE,
  BENCH_DURING_KERNEL, /* a kernel runs that only waits */
  BENCH_DURING_TRAFFIC /* one that reads memory all the time */
} bench_during;

typedef struct bench_vmm {
  bench_options options;
  bench_session session;

  uint64_t totals[BENCH_TOTALS]; /* as asked for; none: each benchmark's own */
  size_t total_count;
  bool whole_range;
  bench_memory memory;
  bool memory_chosen; /* by the user */
  uint64_t live_handles;
  bool live_handles_full; /* as many as fit beside what is measured */
  uint64_t aliases;
  unsigned threads;
  bench_during during;
  const char *profile_path;

  vmm_driver *drivers[BENCH_THREADS]; /* one a thread, the session's first */
  bench_filler filler;
  bench_spin spin;
  vmm_handle kept[BENCH_KEPT]; /* memory of former builds, so that the next gets other memory */
  size_t kept_count;
  uint64_t settled_ns; /* clock time from which on what was given back is clear */
} bench_vmm;

/* One way to build one size. */
typedef struct bench_vmm_point {
  bench_build_plan plan;
  uint64_t stage_calls[BENCH_STAGE_COUNT];
  bench_summary stages[BENCH_STAGE_COUNT]; /* of whole stages */
  bench_summary calls[BENCH_STAGE_COUNT];  /* of single calls */
  bench_summary build, teardown;
  uint64_t kernel_ended; /* builds that outlived the kernel that should run meanwhile */
  struct {
    bench_samples stages[BENCH_STAGE_COUNT], calls[BENCH_STAGE_COUNT], build, teardown;
  } samples; /* until it is finished */
} bench_vmm_point;

/* The driver's own ways to one size. */
typedef struct bench_vmm_native {
  uint64_t total;
  bench_summary malloc, free;
  bool has_warm, has_cold;
  bench_summary async_warm, async_warm_free; /* the pool holds memory */
  bench_summary async_cold, async_cold_free; /* it had to ask the device */
} bench_vmm_native;

/* Begins a point; nothing is measured yet. */
void bench_vmm_point_open(const bench_vmm *bench, uint64_t total, uint64_t chunk, bench_vmm_point *point);
/* Builds once and adds what it took, if it counts. Says why when it fails. */
exit_status bench_vmm_point_build(bench_vmm *bench, bench_vmm_point *point, bool counts);
/* Sums up what was added and forgets the samples. */
void bench_vmm_point_close(bench_vmm *bench, bench_vmm_point *point);

/* One build under the benchmark's conditions. calls, kernel_ended: see bench_build_run, bench_vmm_point. */
exit_status bench_vmm_build_once(bench_vmm *bench, const bench_build_plan *plan, bench_build_times *times,
                                 bench_samples *calls, bool *kernel_ended);
/* So many builds do not count. */
uint64_t bench_vmm_warmup(const bench_vmm *bench);
/* The device has given back so many bytes; waits until it has had time to clear them. Nothing on a simulated
 * one. */
void bench_vmm_released(bench_vmm *bench, uint64_t bytes);
void bench_vmm_settle(const bench_vmm *bench);

/* Each says why when it fails. */
exit_status bench_vmm_measure_native(bench_vmm *bench, uint64_t total, bench_vmm_native *native);
/* Gives back the memory that cold builds kept. */
exit_status bench_vmm_forget_kept(bench_vmm *bench);
/* Says what failed and why. */
exit_status bench_vmm_failure(bench_vmm *bench, vmm_driver *driver, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

exit_status bench_vmm_table1(bench_vmm *bench);
exit_status bench_vmm_figure6(bench_vmm *bench);
exit_status bench_vmm_profile(bench_vmm *bench);
/* Prints, records and saves settled points. */
exit_status bench_vmm_profile_report(bench_vmm *bench, const bench_points *points);

/* Every result says under which conditions it was measured. */
void bench_vmm_record_conditions(bench_vmm *bench, json_t *record);

#endif
