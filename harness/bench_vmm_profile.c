/* The sweep behind --save-profile: what every call of the contract costs, by size and live handles, in the
 * format of vmm/profile.h. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench_vmm.h"
#include "harness/program.h"
#include "harness/table.h"
#include "harness/units.h"
#include "vmm/meter.h"

enum { WORK_STREAM = 1, OTHER_STREAM = 2, SMALL_CALLS = 1000, RUNGS = 16, REFUSALS = 20, BATCH_LIMIT = 8192 };

static const uint64_t build_total = UINT64_C(2) << 30;

typedef struct cost_point {
  vmm_call call;
  uint64_t size, live_handles;
  double nanoseconds;
} cost_point;

typedef struct sweep {
  bench_vmm *bench;
  vmm_driver *driver;
  cost_point *points;
  size_t count, capacity;
  bool lost;
} sweep;

static void add_point(sweep *self, vmm_call call, uint64_t size, uint64_t live_handles, double nanoseconds) {
  if (self->count == self->capacity) {
    size_t capacity = self->capacity ? self->capacity * 2 : 256;
    cost_point *grown = realloc(self->points, capacity * sizeof *grown);
    if (!grown) {
      self->lost = true;
      return;
    }
    self->points = grown;
    self->capacity = capacity;
  }
  self->points[self->count++] = (cost_point){call, size, live_handles, nanoseconds};
}

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

static exit_status measure_builds(sweep *self, uint64_t others) {
  uint64_t sizes[BENCH_SIZES];
  const size_t count = bench_sizes(&self->bench->options, sizes);
  static const bench_stage stages[] = {BENCH_CREATE, BENCH_MAP, BENCH_SET_ACCESS, BENCH_UNMAP, BENCH_RELEASE};
  for (size_t i = 0; i < count; i++) {
    bench_vmm_point point;
    exit_status status =
        bench_vmm_measure(self->bench, sizes[i] > build_total ? sizes[i] : build_total, sizes[i], &point);
    if (status != EXIT_STATUS_DONE) return status;
    const uint64_t chunks = bench_build_chunks(&point.plan);
    for (size_t j = 0; j < sizeof stages / sizeof *stages; j++) {
      add_point(self, bench_stage_calls[stages[j]], sizes[i], live_during(stages[j], others, chunks),
                point.stages[stages[j]].p50 / (double)chunks);
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

/* Reservations that were in use: the median over a build from small chunks and one from a single chunk.
 * Larger ones than a build are only reserved and freed. */
static exit_status measure_reservations(sweep *self) {
  const uint64_t granularity = self->bench->session.granularity;
  for (uint64_t size = granularity; size <= UINT64_C(1) << 40; size *= 4) {
    bench_samples reserve = {0}, release = {0};
    exit_status status = EXIT_STATUS_DONE;
    const uint64_t warmup = self->bench->options.warmup, iterations = self->bench->options.iterations;
    for (uint64_t i = 0; i < warmup + iterations && status == EXIT_STATUS_DONE; i++) {
      if (size > build_total) {
        vmm_address address;
        uint64_t begin = self->driver->busy_ns;
        if (vmm_address_reserve(self->driver, size, 0, &address) != VMM_SUCCESS)
          status = fail(self, "reservations");
        uint64_t middle = self->driver->busy_ns;
        if (status == EXIT_STATUS_DONE && vmm_address_free(self->driver, address, size) != VMM_SUCCESS) {
          status = fail(self, "reservations");
        }
        if (i < warmup) continue;
        bench_samples_add(&reserve, middle - begin);
        bench_samples_add(&release, self->driver->busy_ns - middle);
        continue;
      }
      const uint64_t chunks[] = {size / granularity > 256 ? size / 256 : granularity, size};
      for (int j = 0; j < 2 && status == EXIT_STATUS_DONE; j++) {
        const bench_build_plan plan = {.total = size, .chunk = chunks[j], .aliases = 1, .threads = 1};
        bench_build_times times;
        vmm_driver *failed;
        if (bench_build_run(&self->driver, &plan, &times, NULL, &failed) != VMM_SUCCESS) {
          status = fail(self, "reservations");
        } else if (i >= warmup) {
          bench_samples_add(&reserve, times.ns[BENCH_RESERVE]);
          bench_samples_add(&release, times.ns[BENCH_ADDRESS_FREE]);
        }
      }
    }
    if (status == EXIT_STATUS_DONE) {
      add_point(self, VMM_CALL_ADDRESS_RESERVE, size, 0, bench_samples_summarize(&reserve).p50);
      add_point(self, VMM_CALL_ADDRESS_FREE, size, 0, bench_samples_summarize(&release).p50);
    }
    self->lost |= reserve.lost || release.lost;
    bench_samples_free(&reserve);
    bench_samples_free(&release);
    if (status != EXIT_STATUS_DONE) return status;
  }
  return EXIT_STATUS_DONE;
}

/* ---- what moves no memory: points of size 0 ---- */

/* Repeats something whose calls take the time that it returns in *nanoseconds. */
typedef vmm_status (*short_work)(sweep *self, uint64_t *nanoseconds);

static exit_status measure_short(sweep *self, vmm_call call, short_work work, int times, const char *doing) {
  bench_samples samples = {0};
  exit_status status = EXIT_STATUS_DONE;
  for (int i = 0; i < times && status == EXIT_STATUS_DONE; i++) {
    uint64_t nanoseconds;
    if (work(self, &nanoseconds) != VMM_SUCCESS) {
      status = fail(self, doing);
    } else {
      bench_samples_add(&samples, nanoseconds);
    }
  }
  if (status == EXIT_STATUS_DONE) add_point(self, call, 0, 0, bench_samples_summarize(&samples).p50);
  self->lost |= samples.lost;
  bench_samples_free(&samples);
  return status;
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

/* More than a pool can hold beside what is taken. */
static vmm_status async_refused(sweep *self, uint64_t *nanoseconds) {
  vmm_address address;
  const uint64_t size = self->bench->session.usable_bytes / 2;
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
    status = measure_short(self, VMM_CALL_CREATE, create_refused, REFUSALS, "refusals of cuMemCreate");
  }
  if (status == EXIT_STATUS_DONE) {
    status = measure_short(self, VMM_CALL_MALLOC, malloc_refused, REFUSALS, "refusals of cuMemAlloc");
  }
  if (status == EXIT_STATUS_DONE && has_pool) {
    status =
        measure_short(self, VMM_CALL_MALLOC_ASYNC, async_refused, REFUSALS, "refusals of cuMemAllocAsync");
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
 */
static uint64_t batch_count(const sweep *self, uint64_t size) {
  const uint64_t most = self->bench->session.usable_bytes / 4;
  uint64_t count = size < UINT64_C(1) << 16 ? (UINT64_C(4) << 20) / size : 64;
  if (count * size > UINT64_C(8) << 30) count = (UINT64_C(8) << 30) / size;
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
    bench_samples take = {0}, give = {0};
    for (uint64_t i = 0; i < warmup + self->bench->options.iterations; i++) {
      uint64_t taking, giving;
      vmm_status result = run_batch(self, async, size, addresses, count, &taking, &giving);
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
      bench_samples_add(&take, taking / count);
      bench_samples_add(&give, giving / count);
    }
    if (status == EXIT_STATUS_DONE && *supported) {
      add_point(self, async ? VMM_CALL_MALLOC_ASYNC : VMM_CALL_MALLOC, size, 0,
                bench_samples_summarize(&take).p50);
      add_point(self, async ? VMM_CALL_FREE_ASYNC : VMM_CALL_FREE, size, 0,
                bench_samples_summarize(&give).p50);
    }
    self->lost |= take.lost || give.lost;
    bench_samples_free(&take);
    bench_samples_free(&give);
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
    if (emptied == VMM_SUCCESS) emptied = vmm_cuda_pool_trim(self->driver, 0);
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
    bench_samples samples = {0};
    for (int j = 0; j < SMALL_CALLS; j++) {
      const uint64_t begin = self->driver->busy_ns;
      if (call_small(self, calls[i], &event) != VMM_SUCCESS) {
        status = fail(self, vmm_call_name(calls[i]));
        break;
      }
      bench_samples_add(&samples, self->driver->busy_ns - begin);
    }
    if (status == EXIT_STATUS_DONE) add_point(self, calls[i], 0, 0, bench_samples_summarize(&samples).p50);
    self->lost |= samples.lost;
    bench_samples_free(&samples);
  }
  if (event) vmm_event_discard(self->driver, event);
  if (status == EXIT_STATUS_DONE) {
    status = measure_short(self, VMM_CALL_RELEASE, release_mapped, SMALL_CALLS, "releases of mapped handles");
  }
  if (status == EXIT_STATUS_DONE) {
    status = measure_short(self, VMM_CALL_UNMAP, unmap_nothing, SMALL_CALLS, "cuMemUnmap of nothing");
  }
  return status;
}

/* ---- results ---- */

static const char *call_word(vmm_call call, char text[32]) {
  static const char *const names[VMM_CALL_COUNT] = {
#define XX(name, called) [VMM_CALL_##name] = #name,
      VMM_CALL_MAP(XX)
#undef XX
  };
  size_t i = 0;
  for (; names[call][i] && i < 31; i++) text[i] = (char)tolower((unsigned char)names[call][i]);
  text[i] = '\0';
  return text;
}

static int compare_points(const void *left, const void *right) {
  const cost_point *a = left, *b = right;
  if (a->call != b->call) return a->call < b->call ? -1 : 1;
  if (a->size != b->size) return a->size < b->size ? -1 : 1;
  return a->live_handles < b->live_handles ? -1 : a->live_handles > b->live_handles;
}

static bool write_profile(const sweep *self, FILE *stream) {
  const bench_session *session = &self->bench->session;
  fprintf(stream,
          "lakebed-profile 1\n"
          "device %s\n"
          "source '%s' on %s: %s, %s\n"
          "total_bytes %" PRIu64
          "\n"
          "usable_bytes %" PRIu64
          "\n"
          "granularity_bytes %" PRIu64
          "\n\n"
          "# cost CALL SIZE_BYTES LIVE_HANDLES MICROSECONDS\n"
          "# create, map, set_access, unmap, release: medians over %" PRIu64
          " builds of the mean call, %s, beside other handles of\n"
          "# %" PRIu64
          " bytes that are all mapped. malloc, free: medians of the mean call of a batch, on an idle\n"
          "# device. malloc_async, free_async: the same, from a pool that holds the memory already. Size 0: "
          "calls that\n"
          "# move no memory, create, malloc, malloc_async refused by a full device, release of a mapped "
          "handle.\n",
          session->device, session->options->command, session->date, session->device, session->provenance,
          session->total_bytes, session->usable_bytes, session->granularity, session->options->iterations,
          self->bench->whole_range ? "with one set_access and one unmap for all chunks"
                                   : "with one set_access and one unmap a chunk",
          session->granularity);
  for (size_t i = 0; i < self->count; i++) {
    const cost_point *point = &self->points[i];
    char word[32];
    if (i == 0 || point->call != self->points[i - 1].call) fputc('\n', stream);
    fprintf(stream, "cost %s %" PRIu64 " %" PRIu64 " %.6g\n", call_word(point->call, word), point->size,
            point->live_handles, point->nanoseconds / 1000);
  }
  return fflush(stream) == 0 && !ferror(stream);
}

static exit_status save_profile(const sweep *self, const char *path) {
  FILE *stream = fopen(path, "w");
  if (!stream) {
    program_complain("%s cannot be written: %s", path, strerror(errno));
    return EXIT_STATUS_USAGE;
  }
  bool written = write_profile(self, stream);
  if (fclose(stream) != 0) written = false;
  if (written) return EXIT_STATUS_DONE;
  program_complain("%s could not be written", path);
  return EXIT_STATUS_USAGE;
}

static void record_points(const sweep *self) {
  bench_session *session = &self->bench->session;
  for (size_t i = 0; i < self->count; i++) {
    const cost_point *point = &self->points[i];
    char word[32];
    json_t *record = bench_session_record(session, "profile");
    bench_record_text(session, record, "call", call_word(point->call, word));
    bench_record_integer(session, record, "size_bytes", point->size);
    bench_record_integer(session, record, "live_handles", point->live_handles);
    bench_record_real(session, record, "p50_us", point->nanoseconds / 1000);
  }
}

static void print_points(const sweep *self) {
  bench_session *session = &self->bench->session;
  bench_session_print(session, "\n# Profile: microseconds of one call\n");
  static const char *const titles[] = {"<call", "size", "live handles", "us"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < self->count; i++) {
    const cost_point *point = &self->points[i];
    char word[32], size[BENCH_SIZE_TEXT], live[UNITS_TEXT], time[UNITS_TEXT];
    bench_size_text(point->size, size);
    units_count(point->live_handles, live);
    units_significant(point->nanoseconds / 1000, time);
    table_row(rows);
    table_cell(rows, "%s", call_word(point->call, word));
    table_cell(rows, "%s", point->size ? size : "-");
    table_cell(rows, "%s", live);
    table_cell(rows, "%s", time);
  }
  if (session->report && !table_print(rows, session->report)) session->lost = true;
  table_destroy(rows);
}

exit_status bench_vmm_profile(bench_vmm *bench) {
  sweep self = {.bench = bench, .driver = bench->session.driver};
  exit_status status = measure_small(&self);
  if (status == EXIT_STATUS_DONE) status = measure_reservations(&self);
  if (status == EXIT_STATUS_DONE) status = measure_handles(&self);
  /* Last: a simulated pool keeps what it took. */
  if (status == EXIT_STATUS_DONE) status = measure_allocators(&self);
  if (status == EXIT_STATUS_DONE) {
    if (self.count > 0) qsort(self.points, self.count, sizeof *self.points, compare_points);
    bench->session.lost |= self.lost;
    record_points(&self);
    print_points(&self);
    if (bench->profile_path) status = save_profile(&self, bench->profile_path);
  }
  free(self.points);
  return status;
}
