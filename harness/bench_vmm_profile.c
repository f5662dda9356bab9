/* The sweep behind --save-profile: what every call of the contract costs, by size and live handles, in the
 * format of vmm/profile.h. */
#include <inttypes.h>
#include <stdlib.h>

#include "harness/bench_vmm.h"

enum {
  WORK_STREAM = 1,
  OTHER_STREAM = 2,
  SMALL_BLOCKS = 50,
  CALLS_IN_A_BLOCK = 10,
  RUNGS = 16,
  REFUSAL_BLOCKS = 5,
  BATCH_LIMIT = 8192
};

static const uint64_t build_total = UINT64_C(2) << 30;

typedef struct sweep {
  bench_vmm *bench;
  vmm_driver *driver;
  bench_points points;
} sweep;

static size_t add_point(sweep *self, vmm_call call, uint64_t size, uint64_t live_handles) {
  return bench_points_add(&self->points, call, size, live_handles);
}

static void add_sample(sweep *self, size_t number, double nanoseconds, uint64_t host_ns) {
  bench_points_sample(&self->points, number, nanoseconds, host_ns);
}

static uint64_t probe(sweep *self) { return bench_session_probe_host(&self->bench->session); }

static exit_status fail(sweep *self, const char *doing) {
  return bench_vmm_failure(self->bench, self->driver, "measuring %s", doing);
}

/* ---- handles and mappings ---- */

/* Handles live while a stage runs: creating counts up to all of the build's, releasing down from them. */
static uint64_t live_during(bench_stage stage, uint64_t others, uint64_t chunks) {
  if (stage == BENCH_CREATE) return others + (chunks - 1) / 2;
  if (stage == BENCH_RELEASE) return others + (chunks + 1) / 2;
  return others + chunks;
}

/* The stages that become points. */
static const bench_stage handle_stages[] = {BENCH_CREATE, BENCH_MAP, BENCH_SET_ACCESS, BENCH_UNMAP,
                                            BENCH_RELEASE};
enum { HANDLE_STAGES = sizeof handle_stages / sizeof *handle_stages };

static exit_status measure_builds(sweep *self, uint64_t others) {
  bench_vmm *bench = self->bench;
  uint64_t sizes[BENCH_SIZES];
  size_t numbers[BENCH_SIZES][HANDLE_STAGES];
  bench_build_plan plans[BENCH_SIZES];
  const size_t count = bench_sizes(&bench->options, sizes);
  for (size_t i = 0; i < count; i++) {
    plans[i] = (bench_build_plan){.total = sizes[i] > build_total ? sizes[i] : build_total,
                                  .chunk = sizes[i],
                                  .whole_range = bench->whole_range,
                                  .aliases = 1,
                                  .threads = 1};
    for (int j = 0; j < HANDLE_STAGES; j++) {
      numbers[i][j] = add_point(self, bench_stage_calls[handle_stages[j]], sizes[i],
                                live_during(handle_stages[j], others, bench_build_chunks(&plans[i])));
    }
  }
  const uint64_t warmup = bench->options.warmup;
  for (uint64_t round = 0; round < warmup + bench->options.iterations; round++) {
    for (size_t i = 0; i < count; i++) {
      bench_build_times times;
      bool kernel_ended;
      exit_status status = bench_vmm_build_once(bench, &plans[i], &times, NULL, &kernel_ended);
      if (status != EXIT_STATUS_DONE) return status;
      if (round < warmup) continue;
      const uint64_t host_ns = probe(self);
      for (int j = 0; j < HANDLE_STAGES; j++) {
        const double chunks = (double)bench_build_chunks(&plans[i]);
        add_sample(self, numbers[i][j], (double)times.ns[handle_stages[j]] / chunks, host_ns);
      }
    }
  }
  return EXIT_STATUS_DONE;
}

/* How many other handles live: few, then in equal steps up to a device that has room for the builds only. */
static size_t choose_rungs(const sweep *self, uint64_t rungs[RUNGS]) {
  const bench_session *session = &self->bench->session;
  const uint64_t largest =
      self->bench->options.maximum > build_total ? self->bench->options.maximum : build_total;
  const uint64_t spare = 2 * largest + (UINT64_C(512) << 20);
  const uint64_t most =
      session->usable_bytes > spare ? (session->usable_bytes - spare) / session->granularity : 0;
  static const uint64_t steps[] = {0, 2048, 8192, 16384, 32768, 49152};
  size_t count = 0;
  for (size_t i = 0; i < sizeof steps / sizeof *steps && (i == 0 || steps[i] < most); i++) {
    rungs[count++] = steps[i];
  }
  /* A last one that is too near tells nothing. */
  if (most > rungs[count - 1] + 2048) rungs[count++] = most;
  return count;
}

static exit_status measure_handles(sweep *self) {
  bench_vmm *bench = self->bench;
  uint64_t rungs[RUNGS];
  const size_t count = choose_rungs(self, rungs);
  if (bench_filler_open(&bench->filler, self->driver, rungs[count - 1], bench->session.granularity) !=
      VMM_SUCCESS) {
    return fail(self, "with other handles");
  }
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < count && status == EXIT_STATUS_DONE; i++) {
    progress_begin(&bench->session.shown, "beside %" PRIu64 " handles", rungs[i]);
    progress_update(&bench->session.shown, -1, 0, UINT64_MAX);
    if (bench_filler_grow(&bench->filler, self->driver, rungs[i]) != VMM_SUCCESS) {
      status = fail(self, "with other handles");
    } else {
      status = measure_builds(self, rungs[i]);
    }
    progress_end(&bench->session.shown, status == EXIT_STATUS_DONE ? "measured" : "failed");
  }
  if (bench_filler_close(&bench->filler, self->driver) != VMM_SUCCESS) {
    status = exit_status_worse(status, fail(self, "with other handles"));
  }
  return status;
}

/* One reservation, made and freed; larger ones than a build stay empty. *reserve, *release: nanoseconds. */
static vmm_status reserve_once(sweep *self, uint64_t size, uint64_t chunk, uint64_t *reserve,
                               uint64_t *release) {
  if (size <= build_total) {
    const bench_build_plan plan = {.total = size, .chunk = chunk, .aliases = 1, .threads = 1};
    bench_build_times times;
    vmm_driver *failed;
    vmm_status status = bench_build_run(&self->driver, &plan, &times, NULL, &failed);
    *reserve = times.ns[BENCH_RESERVE];
    *release = times.ns[BENCH_ADDRESS_FREE];
    return status;
  }
  vmm_address address;
  const uint64_t begin = self->driver->busy_ns;
  vmm_status status = vmm_address_reserve(self->driver, size, 0, &address);
  const uint64_t middle = self->driver->busy_ns;
  if (status == VMM_SUCCESS) status = vmm_address_free(self->driver, address, size);
  *reserve = middle - begin;
  *release = self->driver->busy_ns - middle;
  return status;
}

/* Reservations that were in use, by small chunks and by a single one in turn. */
static exit_status measure_reservations(sweep *self) {
  const uint64_t granularity = self->bench->session.granularity;
  const uint64_t warmup = self->bench->options.warmup, iterations = self->bench->options.iterations;
  for (uint64_t size = granularity; size <= UINT64_C(1) << 40; size *= 4) {
    const size_t reserves = add_point(self, VMM_CALL_ADDRESS_RESERVE, size, 0);
    const size_t frees = add_point(self, VMM_CALL_ADDRESS_FREE, size, 0);
    const uint64_t chunks[] = {size / granularity > 256 ? size / 256 : granularity, size};
    for (uint64_t i = 0; i < 2 * (warmup + iterations); i++) {
      uint64_t reserve, release;
      if (reserve_once(self, size, chunks[i % 2], &reserve, &release) != VMM_SUCCESS) {
        return fail(self, "reservations");
      }
      if (i < 2 * warmup) continue;
      const uint64_t host_ns = probe(self);
      add_sample(self, reserves, (double)reserve, host_ns);
      add_sample(self, frees, (double)release, host_ns);
    }
  }
  return EXIT_STATUS_DONE;
}

/* ---- what moves no memory: points of size 0 ---- */

/* Repeats something whose calls take the time that it returns in *nanoseconds. */
typedef vmm_status (*short_work)(sweep *self, uint64_t *nanoseconds);

/* blocks of CALLS_IN_A_BLOCK: each call alone is too short for the clock. */
static exit_status measure_short(sweep *self, vmm_call call, short_work work, int blocks, const char *doing) {
  const size_t number = add_point(self, call, 0, 0);
  for (int i = 0; i < blocks; i++) {
    uint64_t sum = 0;
    for (int j = 0; j < CALLS_IN_A_BLOCK; j++) {
      uint64_t nanoseconds;
      if (work(self, &nanoseconds) != VMM_SUCCESS) return fail(self, doing);
      sum += nanoseconds;
    }
    add_sample(self, number, (double)sum / CALLS_IN_A_BLOCK, probe(self));
  }
  return EXIT_STATUS_DONE;
}

/* The handle's memory stays with its mapping. */
static vmm_status release_mapped(sweep *self, uint64_t *nanoseconds) {
  const uint64_t size = self->bench->session.granularity;
  vmm_address address;
  vmm_handle handle;
  vmm_status status = vmm_address_reserve(self->driver, size, 0, &address);
  if (status != VMM_SUCCESS) return status;
  status = vmm_create(self->driver, size, &handle);
  if (status == VMM_SUCCESS) {
    const vmm_status mapped = status = vmm_map(self->driver, address, size, 0, handle);
    const uint64_t begin = self->driver->busy_ns;
    vmm_status released = vmm_release(self->driver, handle);
    *nanoseconds = self->driver->busy_ns - begin;
    if (status == VMM_SUCCESS) status = released;
    if (mapped == VMM_SUCCESS) {
      vmm_status unmapped = vmm_unmap(self->driver, address, size);
      if (status == VMM_SUCCESS) status = unmapped;
    }
  }
  vmm_status freed = vmm_address_free(self->driver, address, size);
  return status == VMM_SUCCESS ? freed : status;
}

static vmm_status unmap_nothing(sweep *self, uint64_t *nanoseconds) {
  const uint64_t size = self->bench->session.granularity;
  vmm_address address;
  vmm_status status = vmm_address_reserve(self->driver, size, 0, &address);
  if (status != VMM_SUCCESS) return status;
  const uint64_t begin = self->driver->busy_ns;
  status = vmm_unmap(self->driver, address, size);
  *nanoseconds = self->driver->busy_ns - begin;
  vmm_status freed = vmm_address_free(self->driver, address, size);
  return status == VMM_SUCCESS ? freed : status;
}

/* A refusal is what is wanted here; anything else is a failure. */
static vmm_status refused(sweep *self, vmm_status status, uint64_t begin, uint64_t *nanoseconds) {
  *nanoseconds = self->driver->busy_ns - begin;
  if (status != VMM_OUT_OF_MEMORY) return status == VMM_SUCCESS ? VMM_UNKNOWN : status;
  vmm_error_clear(self->driver);
  return VMM_SUCCESS;
}

static vmm_status create_refused(sweep *self, uint64_t *nanoseconds) {
  vmm_handle handle;
  const uint64_t begin = self->driver->busy_ns;
  vmm_status status = vmm_create(self->driver, self->bench->session.granularity, &handle);
  if (status == VMM_SUCCESS) vmm_release(self->driver, handle);
  return refused(self, status, begin, nanoseconds);
}

static vmm_status malloc_refused(sweep *self, uint64_t *nanoseconds) {
  vmm_address address;
  const uint64_t begin = self->driver->busy_ns;
  vmm_status status = vmm_malloc(self->driver, self->bench->session.granularity, &address);
  if (status == VMM_SUCCESS) vmm_free(self->driver, address);
  return refused(self, status, begin, nanoseconds);
}

/* All of the device: no pool can hold that beside what is taken. */
static vmm_status async_refused(sweep *self, uint64_t *nanoseconds) {
  vmm_address address;
  const uint64_t size = self->bench->session.usable_bytes;
  const uint64_t begin = self->driver->busy_ns;
  vmm_status status = vmm_malloc_async(self->driver, size, WORK_STREAM, &address);
  if (status == VMM_SUCCESS) vmm_free_async(self->driver, address, WORK_STREAM);
  return refused(self, status, begin, nanoseconds);
}

enum { FULL_HANDLES = 1024 };

/* Takes all memory of the device, in ever smaller handles. */
static vmm_status fill_device(sweep *self, vmm_handle *handles, size_t *count) {
  for (uint64_t size = UINT64_C(1) << 36; size >= self->bench->session.granularity; size /= 2) {
    vmm_status status = VMM_SUCCESS;
    while (*count < FULL_HANDLES && status == VMM_SUCCESS) {
      status = vmm_create(self->driver, size, &handles[*count]);
      if (status == VMM_SUCCESS) ++*count;
    }
    if (status != VMM_OUT_OF_MEMORY) return status == VMM_SUCCESS ? VMM_UNKNOWN : status;
    vmm_error_clear(self->driver);
  }
  return VMM_SUCCESS;
}

static exit_status measure_refusals(sweep *self, bool has_pool) {
  vmm_handle handles[FULL_HANDLES];
  size_t count = 0;
  exit_status status = EXIT_STATUS_DONE;
  if (fill_device(self, handles, &count) != VMM_SUCCESS) status = fail(self, "a full device");
  if (status == EXIT_STATUS_DONE) {
    status = measure_short(self, VMM_CALL_CREATE, create_refused, REFUSAL_BLOCKS, "refusals of cuMemCreate");
  }
  if (status == EXIT_STATUS_DONE) {
    status = measure_short(self, VMM_CALL_MALLOC, malloc_refused, REFUSAL_BLOCKS, "refusals of cuMemAlloc");
  }
  if (status == EXIT_STATUS_DONE && has_pool) {
    status = measure_short(self, VMM_CALL_MALLOC_ASYNC, async_refused, REFUSAL_BLOCKS,
                           "refusals of cuMemAllocAsync");
  }
  while (count > 0) {
    if (vmm_release(self->driver, handles[--count]) != VMM_SUCCESS) {
      status = exit_status_worse(status, fail(self, "a full device"));
    }
  }
  return status;
}

/* ---- the driver's own allocators ---- */

/* Takes a batch and gives it back; both times are those of all. */
static vmm_status run_batch(sweep *self, bool async, uint64_t size, vmm_address *addresses, uint64_t count,
                            uint64_t *taking, uint64_t *giving) {
  vmm_driver *driver = self->driver;
  vmm_status status = VMM_SUCCESS;
  uint64_t taken = 0;
  const uint64_t begin = driver->busy_ns;
  while (taken < count && status == VMM_SUCCESS) {
    status = async ? vmm_malloc_async(driver, size, WORK_STREAM, &addresses[taken])
                   : vmm_malloc(driver, size, &addresses[taken]);
    if (status == VMM_SUCCESS) taken++;
  }
  const uint64_t middle = driver->busy_ns;
  for (uint64_t i = 0; i < taken; i++) {
    vmm_status freed =
        async ? vmm_free_async(driver, addresses[i], WORK_STREAM) : vmm_free(driver, addresses[i]);
    if (status == VMM_SUCCESS) status = freed;
  }
  *taking = middle - begin;
  *giving = driver->busy_ns - middle;
  return status;
}

/* Small sizes share what the driver takes from the device: enough of them that its cost is spread as in use.
 * Not much memory in all: it is cleared after each batch. */
static uint64_t batch_count(const sweep *self, uint64_t size) {
  const uint64_t most = self->bench->session.usable_bytes / 4;
  uint64_t count = size < UINT64_C(1) << 16 ? (UINT64_C(4) << 20) / size : 64;
  if (count * size > UINT64_C(1) << 30) count = (UINT64_C(1) << 30) / size;
  if (count > BATCH_LIMIT) count = BATCH_LIMIT;
  return size > most ? 0 : count ? count : 1;
}

/* *supported: false when the device has no such allocator. */
static exit_status measure_allocator(sweep *self, bool async, uint64_t factor, bool *supported) {
  vmm_address *addresses = calloc(BATCH_LIMIT, sizeof *addresses);
  if (!addresses) return fail(self, "allocations");
  const uint64_t warmup = self->bench->options.warmup ? self->bench->options.warmup : 1;
  exit_status status = EXIT_STATUS_DONE;
  *supported = true;
  for (uint64_t size = 512; size <= UINT64_C(64) << 30 && status == EXIT_STATUS_DONE; size *= factor) {
    const uint64_t count = batch_count(self, size);
    if (count == 0) break;
    const size_t takes = add_point(self, async ? VMM_CALL_MALLOC_ASYNC : VMM_CALL_MALLOC, size, 0);
    const size_t gives = add_point(self, async ? VMM_CALL_FREE_ASYNC : VMM_CALL_FREE, size, 0);
    for (uint64_t i = 0; i < warmup + self->bench->options.iterations; i++) {
      uint64_t taking, giving;
      if (!async) bench_vmm_settle(self->bench);
      vmm_status result = run_batch(self, async, size, addresses, count, &taking, &giving);
      if (!async) bench_vmm_released(self->bench, count * size);
      if (async && result == VMM_NOT_SUPPORTED) {
        *supported = false;
        vmm_error_clear(self->driver);
        break;
      }
      if (result != VMM_SUCCESS) {
        status = fail(self, async ? "the driver's pool" : "cuMemAlloc");
        break;
      }
      if (i < warmup) continue;
      const uint64_t host_ns = probe(self);
      add_sample(self, takes, (double)taking / (double)count, host_ns);
      add_sample(self, gives, (double)giving / (double)count, host_ns);
    }
    if (!*supported) break;
  }
  free(addresses);
  return status;
}

static exit_status measure_allocators(sweep *self) {
  progress_begin(&self->bench->session.shown, "cuMemAlloc and the driver's pool");
  bool supported;
  exit_status status = measure_allocator(self, false, 2, &supported);
  if (status == EXIT_STATUS_DONE) status = measure_allocator(self, true, 4, &supported);
  if (status == EXIT_STATUS_DONE && supported && !self->bench->session.simulated) {
    vmm_status emptied = vmm_synchronize(self->driver);
    if (emptied == VMM_SUCCESS) emptied = vmm_pool_trim(self->driver, 0);
    if (emptied != VMM_SUCCESS) status = fail(self, "the driver's pool");
  }
  if (status == EXIT_STATUS_DONE) status = measure_refusals(self, supported);
  progress_end(&self->bench->session.shown, status == EXIT_STATUS_DONE ? "measured" : "failed");
  return status;
}

/* ---- calls without a size ---- */

/* One call of a kind on an event that is reached (where it takes one). */
static vmm_status call_small(sweep *self, vmm_call call, vmm_event *event) {
  uint64_t bytes, total;
  switch (call) {
    case VMM_CALL_GRANULARITY:
      return vmm_granularity(self->driver, &bytes);
    case VMM_CALL_MEMORY_INFO:
      return vmm_memory_info(self->driver, &bytes, &total);
    case VMM_CALL_EVENT_RECORD:
      if (*event) vmm_event_discard(self->driver, *event);
      *event = 0;
      return vmm_event_record(self->driver, WORK_STREAM, event);
    case VMM_CALL_EVENT_QUERY:
      return vmm_event_query(self->driver, *event);
    case VMM_CALL_EVENT_WAIT:
      return vmm_event_wait(self->driver, *event);
    case VMM_CALL_STREAM_WAIT_EVENT:
      return vmm_stream_wait_event(self->driver, OTHER_STREAM, *event);
    case VMM_CALL_SYNCHRONIZE:
      return vmm_synchronize(self->driver);
    default:
      return VMM_INVALID_VALUE;
  }
}

static exit_status measure_small(sweep *self) {
  /* The event is recorded first and reached before it is asked about. */
  static const vmm_call calls[] = {VMM_CALL_GRANULARITY,      VMM_CALL_MEMORY_INFO, VMM_CALL_EVENT_RECORD,
                                   VMM_CALL_SYNCHRONIZE,      VMM_CALL_EVENT_QUERY, VMM_CALL_EVENT_WAIT,
                                   VMM_CALL_STREAM_WAIT_EVENT};
  vmm_event event = 0;
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < sizeof calls / sizeof *calls && status == EXIT_STATUS_DONE; i++) {
    const size_t number = add_point(self, calls[i], 0, 0);
    for (int j = 0; j < SMALL_BLOCKS && status == EXIT_STATUS_DONE; j++) {
      const uint64_t begin = self->driver->busy_ns;
      for (int k = 0; k < CALLS_IN_A_BLOCK && status == EXIT_STATUS_DONE; k++) {
        if (call_small(self, calls[i], &event) != VMM_SUCCESS) status = fail(self, vmm_call_name(calls[i]));
      }
      add_sample(self, number, (double)(self->driver->busy_ns - begin) / CALLS_IN_A_BLOCK, probe(self));
    }
  }
  if (event) vmm_event_discard(self->driver, event);
  if (status == EXIT_STATUS_DONE) {
    status =
        measure_short(self, VMM_CALL_RELEASE, release_mapped, SMALL_BLOCKS, "releases of mapped handles");
  }
  if (status == EXIT_STATUS_DONE) {
    status = measure_short(self, VMM_CALL_UNMAP, unmap_nothing, SMALL_BLOCKS, "cuMemUnmap of nothing");
  }
  return status;
}

exit_status bench_vmm_profile(bench_vmm *bench) {
  sweep self = {.bench = bench, .driver = bench->session.driver};
  exit_status status = measure_small(&self);
  if (status == EXIT_STATUS_DONE) status = measure_reservations(&self);
  if (status == EXIT_STATUS_DONE) status = measure_handles(&self);
  /* Last: a simulated pool keeps what it took. */
  if (status == EXIT_STATUS_DONE) status = measure_allocators(&self);
  if (status == EXIT_STATUS_DONE) {
    bench_points_settle(&self.points);
    bench->session.lost |= self.points.lost;
    status = bench_vmm_profile_report(bench, &self.points);
  }
  bench_points_free(&self.points);
  return status;
}
