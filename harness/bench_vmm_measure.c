#include <inttypes.h>
#include <stdarg.h>

#include "harness/bench_host.h"
#include "harness/bench_vmm.h"

enum { ASYNC_STREAM = 1 };

/* cuMemFree waits for the kernel: this is then its time, and it must not be long. */
static const uint64_t build_bound_ns = UINT64_C(2000000000), malloc_bound_ns = UINT64_C(50000000);

exit_status bench_vmm_failure(bench_vmm *bench, vmm_driver *driver, const char *format, ...) {
  char doing[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(doing, sizeof doing, format, arguments);
  va_end(arguments);
  return bench_session_driver_failure(&bench->session, driver, doing);
}

exit_status bench_vmm_forget_kept(bench_vmm *bench) {
  exit_status status = EXIT_STATUS_DONE;
  while (bench->kept_count > 0) {
    if (vmm_release(bench->session.driver, bench->kept[--bench->kept_count]) != VMM_SUCCESS) {
      status = bench_vmm_failure(bench, bench->session.driver, "giving kept memory back");
    }
  }
  return status;
}

/* Before a build of cold memory: takes what the last one gave back. When the device has no more than the
 * build needs, all that was kept goes back first. */
static exit_status keep_last(bench_vmm *bench, uint64_t total) {
  vmm_driver *driver = bench->session.driver;
  uint64_t free_bytes, total_bytes;
  if (vmm_memory_info(driver, &free_bytes, &total_bytes) != VMM_SUCCESS) {
    return bench_vmm_failure(bench, driver, "asking for the free memory");
  }
  if (bench->kept_count == BENCH_KEPT || free_bytes / 3 < total) {
    exit_status status = bench_vmm_forget_kept(bench);
    if (status != EXIT_STATUS_DONE) return status;
  }
  if (vmm_create(driver, total, &bench->kept[bench->kept_count]) != VMM_SUCCESS) {
    return bench_vmm_failure(bench, driver, "keeping the last build's memory");
  }
  bench->kept_count++;
  return EXIT_STATUS_DONE;
}

/* An H200 clears memory in the background after it was given back, at some 270 GB/s, and whoever is given it
 * before waits. Twice to three times as long is enough. */
void bench_vmm_released(bench_vmm *bench, uint64_t bytes) {
  enum { CLEARED_BYTES_A_NANOSECOND = 100, LEAST_NS = 1000000 };
  bench->settled_ns = progress_clock_ns() + bytes / CLEARED_BYTES_A_NANOSECOND + LEAST_NS;
}

void bench_vmm_settle(const bench_vmm *bench) {
  if (!bench->session.simulated) bench_host_wait_until(bench->settled_ns);
}

/* What happens before and after each measurement, as the conditions want it. */
static exit_status begin_measurement(bench_vmm *bench, uint64_t total, uint64_t bound_ns) {
  if (bench->memory == BENCH_MEMORY_SETTLED) bench_vmm_settle(bench);
  exit_status status = bench->memory == BENCH_MEMORY_COLD ? keep_last(bench, total) : EXIT_STATUS_DONE;
  if (status != EXIT_STATUS_DONE || bench->during == BENCH_DURING_IDLE) return status;
  if (bench_spin_start(&bench->spin, bound_ns) == VMM_SUCCESS) return EXIT_STATUS_DONE;
  return bench_vmm_failure(bench, bench->session.driver, "starting the kernel that runs meanwhile");
}

static exit_status end_measurement(bench_vmm *bench, uint64_t total, bool *kernel_ended) {
  bench_vmm_released(bench, total);
  *kernel_ended = false;
  if (bench->during == BENCH_DURING_IDLE) return EXIT_STATUS_DONE;
  if (bench_spin_stop(&bench->spin, kernel_ended) == VMM_SUCCESS) return EXIT_STATUS_DONE;
  return bench_vmm_failure(bench, bench->session.driver, "stopping the kernel that runs meanwhile");
}

/* Warm memory is what a build just gave back: one must have been before. */
uint64_t bench_vmm_warmup(const bench_vmm *bench) {
  return bench->memory == BENCH_MEMORY_WARM && bench->options.warmup == 0 ? 1 : bench->options.warmup;
}

exit_status bench_vmm_build_once(bench_vmm *bench, const bench_build_plan *plan, bench_build_times *times,
                                 bench_samples *calls, bool *kernel_ended) {
  exit_status status = begin_measurement(bench, plan->total, build_bound_ns);
  if (status != EXIT_STATUS_DONE) return status;
  bench_session_probe_host(&bench->session);
  vmm_driver *failed;
  const vmm_status built = bench_build_run(bench->drivers, plan, times, calls, &failed);
  status = end_measurement(bench, plan->total, kernel_ended);
  if (built == VMM_SUCCESS) return status;
  char total[BENCH_SIZE_TEXT], chunk[BENCH_SIZE_TEXT];
  bench_size_text(plan->total, total);
  bench_size_text(plan->chunk, chunk);
  return bench_vmm_failure(bench, failed, "building %s from chunks of %s", total, chunk);
}

void bench_vmm_point_open(const bench_vmm *bench, uint64_t total, uint64_t chunk, bench_vmm_point *point) {
  *point = (bench_vmm_point){.plan = {.total = total,
                                      .chunk = chunk,
                                      .whole_range = bench->whole_range,
                                      .aliases = bench->aliases,
                                      .threads = bench->threads}};
  const uint64_t chunks = bench_build_chunks(&point->plan);
  if (point->plan.threads > chunks) point->plan.threads = (unsigned)chunks;
}

exit_status bench_vmm_point_build(bench_vmm *bench, bench_vmm_point *point, bool counts) {
  bench_build_times times;
  bool kernel_ended;
  exit_status status =
      bench_vmm_build_once(bench, &point->plan, &times, counts ? point->samples.calls : NULL, &kernel_ended);
  if (!counts || status != EXIT_STATUS_DONE) return status;
  point->kernel_ended += kernel_ended;
  for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) {
    bench_samples_add(&point->samples.stages[stage], times.ns[stage]);
    point->stage_calls[stage] = times.calls[stage];
  }
  bench_samples_add(&point->samples.build, bench_build_ns(&times));
  bench_samples_add(&point->samples.teardown, bench_teardown_ns(&times));
  return EXIT_STATUS_DONE;
}

static bench_summary sum_up(bench_vmm *bench, bench_samples *samples) {
  const bench_summary summary = bench_samples_summarize(samples);
  bench->session.lost |= samples->lost;
  bench_samples_free(samples);
  return summary;
}

void bench_vmm_point_close(bench_vmm *bench, bench_vmm_point *point) {
  for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) {
    point->stages[stage] = sum_up(bench, &point->samples.stages[stage]);
    point->calls[stage] = sum_up(bench, &point->samples.calls[stage]);
  }
  point->build = sum_up(bench, &point->samples.build);
  point->teardown = sum_up(bench, &point->samples.teardown);
}

typedef enum native_way { NATIVE_MALLOC, NATIVE_ASYNC_WARM, NATIVE_ASYNC_COLD } native_way;

static vmm_status take(vmm_driver *driver, native_way way, uint64_t total, vmm_address *address) {
  return way == NATIVE_MALLOC ? vmm_malloc(driver, total, address)
                              : vmm_malloc_async(driver, total, ASYNC_STREAM, address);
}

static vmm_status give_back(vmm_driver *driver, native_way way, vmm_address address) {
  return way == NATIVE_MALLOC ? vmm_free(driver, address) : vmm_free_async(driver, address, ASYNC_STREAM);
}

/* The pool holds nothing afterwards. */
static vmm_status empty_pool(bench_vmm *bench) {
  vmm_status status = vmm_synchronize(bench->session.driver);
  return status == VMM_SUCCESS ? vmm_pool_trim(bench->session.driver, 0) : status;
}

/* *supported: false when the device has no such allocator. */
static exit_status measure_way(bench_vmm *bench, native_way way, uint64_t total, bool *supported,
                               bench_summary *taking, bench_summary *giving) {
  vmm_driver *driver = bench->session.driver;
  bench_samples take_samples = {0}, give_samples = {0};
  exit_status status = EXIT_STATUS_DONE;
  const uint64_t warmup =
      way == NATIVE_ASYNC_WARM && bench->options.warmup == 0 ? 1 : bench_vmm_warmup(bench);
  *supported = true;
  for (uint64_t i = 0; i < warmup + bench->options.iterations && status == EXIT_STATUS_DONE; i++) {
    if (way == NATIVE_ASYNC_COLD && empty_pool(bench) != VMM_SUCCESS) {
      status = bench_vmm_failure(bench, driver, "emptying the driver's pool");
      break;
    }
    status = begin_measurement(bench, total, malloc_bound_ns);
    if (status != EXIT_STATUS_DONE) break;
    bench_session_probe_host(&bench->session);
    vmm_address address = 0;
    const uint64_t begin = driver->busy_ns;
    vmm_status result = take(driver, way, total, &address);
    const uint64_t taken = driver->busy_ns;
    if (result == VMM_SUCCESS) result = give_back(driver, way, address);
    const uint64_t given = driver->busy_ns;
    bool kernel_ended;
    status = end_measurement(bench, total, &kernel_ended);
    if (way != NATIVE_MALLOC && result == VMM_NOT_SUPPORTED) {
      *supported = false;
      vmm_error_clear(driver);
      break;
    }
    if (result != VMM_SUCCESS) {
      status =
          bench_vmm_failure(bench, driver, "taking %" PRIu64 " bytes from the driver's allocator", total);
    } else if (i >= warmup) {
      bench_samples_add(&take_samples, taken - begin);
      bench_samples_add(&give_samples, given - taken);
    }
  }
  *taking = sum_up(bench, &take_samples);
  *giving = sum_up(bench, &give_samples);
  return status;
}

exit_status bench_vmm_measure_native(bench_vmm *bench, uint64_t total, bench_vmm_native *native) {
  *native = (bench_vmm_native){.total = total};
  bool supported;
  exit_status status = measure_way(bench, NATIVE_MALLOC, total, &supported, &native->malloc, &native->free);
  if (status != EXIT_STATUS_DONE) return status;
  status = measure_way(bench, NATIVE_ASYNC_WARM, total, &native->has_warm, &native->async_warm,
                       &native->async_warm_free);
  /* What a cold pool costs is the real driver's business. */
  if (status != EXIT_STATUS_DONE || !native->has_warm || bench->session.simulated) return status;
  status = measure_way(bench, NATIVE_ASYNC_COLD, total, &native->has_cold, &native->async_cold,
                       &native->async_cold_free);
  if (status == EXIT_STATUS_DONE && empty_pool(bench) != VMM_SUCCESS) {
    status = bench_vmm_failure(bench, bench->session.driver, "emptying the driver's pool");
  }
  return status;
}
