#include <inttypes.h>
#include <string.h>

#include "harness/bench_access.h"
#include "harness/table.h"
#include "harness/units.h"

static const uint64_t step = UINT64_C(0x9E3779B97F4A7C15); /* as in access.cu */

enum { BLOCKS = 8, RANDOM_READS = 256, THREADS = 256 };

typedef enum access_kind { ACCESS_READ, ACCESS_WRITE, ACCESS_COPY, ACCESS_RANDOM, ACCESS_KINDS } access_kind;
static const char *const kind_words[ACCESS_KINDS] = {"read", "write", "copy", "random"};

/* A buffer whose words are known. */
typedef struct buffer {
  vmm_address address;
  uint64_t size;
  uint64_t seed;
  bool filled;
} buffer;

typedef struct bandwidth {
  bench_summary times; /* of one pass, device nanoseconds */
  uint64_t bytes;      /* that one pass moves */
  uint64_t accesses;   /* random: words that one pass reads */
  uint64_t wrong;
} bandwidth;

static vmm_status write_buffer(bench_access *bench, buffer *known) {
  uint64_t pairs = known->size / 16;
  void *arguments[] = {&known->address, &pairs, &known->seed};
  return bench_access_launch(bench, "access_write", BLOCKS, ACCESS_STREAM_A, arguments);
}

/* Counts wrong words of pairs * 16 bytes from an address on. */
static vmm_status check_words(bench_access *bench, vmm_address address, uint64_t pairs, uint64_t seed,
                              uint64_t *wrong) {
  access_report report;
  void *arguments[] = {&address, &pairs, &seed, &bench->scratch};
  vmm_status status = bench_access_report_clear(bench, ACCESS_STREAM_A);
  if (status == VMM_SUCCESS) {
    status = bench_access_launch(bench, "access_check", BLOCKS, ACCESS_STREAM_A, arguments);
  }
  if (status == VMM_SUCCESS) status = bench_access_report_get(bench, ACCESS_STREAM_A, &report);
  if (status == VMM_SUCCESS) *wrong += report.wrong;
  return status;
}

/* One pass over the buffer, between two events. */
static vmm_status launch_kind(bench_access *bench, access_kind kind, buffer *known, uint64_t salt,
                              bandwidth *result) {
  uint64_t pairs = known->size / 16, half = pairs / 2, words = known->size / 8, reads = RANDOM_READS;
  vmm_address second = known->address + half * 16;
  vmm_status status = VMM_SUCCESS;
  result->bytes = known->size;
  switch (kind) {
    case ACCESS_READ: {
      void *arguments[] = {&known->address, &pairs, &bench->scratch};
      return bench_access_launch(bench, "access_read", BLOCKS, ACCESS_STREAM_A, arguments);
    }
    case ACCESS_WRITE:
      return write_buffer(bench, known);
    case ACCESS_COPY: {
      void *arguments[] = {&second, &known->address, &half};
      status = bench_access_launch(bench, "access_copy", BLOCKS, ACCESS_STREAM_A, arguments);
      result->bytes = 2 * half * 16;
      return status;
    }
    case ACCESS_RANDOM: {
      void *arguments[] = {&known->address, &words, &known->seed, &salt, &reads, &bench->scratch};
      result->accesses = (uint64_t)bench->multiprocessors * BLOCKS * THREADS * RANDOM_READS;
      result->bytes = result->accesses * 8;
      return bench_access_launch(bench, "access_random", BLOCKS, ACCESS_STREAM_A, arguments);
    }
    case ACCESS_KINDS:
      break;
  }
  return VMM_INVALID_VALUE;
}

/* What the kernels read, or what they wrote: is it right? */
static vmm_status verify_kind(bench_access *bench, access_kind kind, buffer *known, bandwidth *result) {
  const uint64_t pairs = known->size / 16, half = pairs / 2, words = known->size / 8;
  access_report report;
  vmm_status status;
  switch (kind) {
    case ACCESS_READ: {
      /* The sum of all words, which the kernel put where a report begins. */
      uint64_t sum, pair_count = words % 2 ? words * ((words - 1) / 2) : words / 2 * (words - 1);
      status = vmm_cuda_copy_from(bench->session.driver, &sum, bench->scratch, sizeof sum, ACCESS_STREAM_A);
      if (status == VMM_SUCCESS && sum != words * known->seed + step * pair_count) result->wrong++;
      return status;
    }
    case ACCESS_WRITE:
      return check_words(bench, known->address, pairs, known->seed, &result->wrong);
    case ACCESS_COPY:
      /* The copy repeats the first half's words; then the second half becomes its own again. */
      status = check_words(bench, known->address, half, known->seed, &result->wrong);
      if (status == VMM_SUCCESS) {
        status = check_words(bench, known->address + half * 16, half, known->seed, &result->wrong);
      }
      return status == VMM_SUCCESS ? write_buffer(bench, known) : status;
    case ACCESS_RANDOM:
      status = bench_access_report_get(bench, ACCESS_STREAM_A, &report);
      if (status == VMM_SUCCESS) result->wrong += report.wrong;
      return status;
    case ACCESS_KINDS:
      break;
  }
  return VMM_INVALID_VALUE;
}

static vmm_status clear_scratch(bench_access *bench, access_kind kind) {
  if (kind == ACCESS_READ) {
    return vmm_cuda_set_bytes(bench->session.driver, bench->scratch, 0, ACCESS_SCRATCH, ACCESS_STREAM_A);
  }
  return bench_access_report_clear(bench, ACCESS_STREAM_A);
}

static vmm_status time_pass(bench_access *bench, access_kind kind, buffer *known, uint64_t salt,
                            bandwidth *result, uint64_t *nanoseconds) {
  vmm_driver *driver = bench->session.driver;
  vmm_event begin = 0, end = 0;
  double milliseconds = 0;
  /* A write must show: each has a pattern of its own. */
  if (kind == ACCESS_WRITE) known->seed = salt * step + 1;
  vmm_status status = clear_scratch(bench, kind);
  if (status == VMM_SUCCESS) status = vmm_cuda_time_record(driver, ACCESS_STREAM_A, &begin);
  if (status == VMM_SUCCESS) status = launch_kind(bench, kind, known, salt, result);
  if (status == VMM_SUCCESS) status = vmm_cuda_time_record(driver, ACCESS_STREAM_A, &end);
  if (status == VMM_SUCCESS) status = vmm_event_wait(driver, end);
  if (status == VMM_SUCCESS) status = vmm_cuda_time_between(driver, begin, end, &milliseconds);
  if (begin) vmm_event_discard(driver, begin);
  if (end) vmm_event_discard(driver, end);
  *nanoseconds = (uint64_t)(milliseconds * 1e6 + 0.5);
  return status == VMM_SUCCESS ? verify_kind(bench, kind, known, result) : status;
}

static vmm_status measure_kind(bench_access *bench, access_kind kind, buffer *known, bandwidth *result) {
  bench_samples samples = {0};
  vmm_status status = VMM_SUCCESS;
  *result = (bandwidth){0};
  for (uint64_t i = 0; i < bench->options.warmup + bench->options.iterations && status == VMM_SUCCESS; i++) {
    uint64_t nanoseconds;
    status = time_pass(bench, kind, known, i + 1, result, &nanoseconds);
    if (i >= bench->options.warmup) bench_samples_add(&samples, nanoseconds);
  }
  result->times = bench_samples_summarize(&samples);
  bench->session.lost |= samples.lost;
  bench_samples_free(&samples);
  bench->wrong_words += result->wrong;
  return status;
}

/* "cuMemAlloc", or "2 MiB" and how the chunks lie. chunk 0: not stitched. */
static void report_buffer(bench_access *bench, table *rows, uint64_t chunk, bool shuffled,
                          const bandwidth results[ACCESS_KINDS]) {
  bench_session *session = &bench->session;
  char chunk_text[BENCH_SIZE_TEXT] = "cuMemAlloc";
  if (chunk) bench_size_text(chunk, chunk_text);
  const char *order = !chunk ? "-" : shuffled ? "shuffled" : "in order";
  table_row(rows);
  table_cell(rows, "%s", chunk_text);
  table_cell(rows, "%s", order);
  uint64_t wrong = 0;
  for (int kind = 0; kind < ACCESS_KINDS; kind++) {
    const bandwidth *result = &results[kind];
    const double gigabytes = result->times.p50 > 0 ? (double)result->bytes / result->times.p50 : 0;
    const double accesses = result->times.p50 > 0 ? (double)result->accesses * 1000 / result->times.p50 : 0;
    wrong += result->wrong;
    char text[UNITS_TEXT];
    units_significant(kind == ACCESS_RANDOM ? accesses : gigabytes, text);
    table_cell(rows, "%s", text);
    json_t *record = bench_session_record(session, "bandwidth");
    bench_record_text(session, record, "memory", chunk ? "stitched" : "cuMemAlloc");
    bench_record_integer(session, record, "chunk_bytes", chunk);
    bench_record_text(session, record, "order", order);
    bench_record_integer(session, record, "total_bytes", bench->total);
    bench_record_text(session, record, "access", kind_words[kind]);
    bench_record_integer(session, record, "bytes", result->bytes);
    bench_record_microseconds(session, record, "", &result->times);
    bench_record_real(session, record, "gigabytes_per_second", gigabytes);
    if (kind == ACCESS_RANDOM) {
      bench_record_real(session, record, "million_accesses_per_second", accesses);
    } else {
      bench_record_nothing(session, record, "million_accesses_per_second");
    }
    bench_record_integer(session, record, "wrong_words", result->wrong);
  }
  table_count(rows, wrong);
}

static exit_status measure_buffer(bench_access *bench, table *rows, vmm_address address, uint64_t chunk,
                                  bool shuffled) {
  buffer known = {.address = address, .size = bench->total, .seed = 1};
  bandwidth results[ACCESS_KINDS];
  vmm_status status = write_buffer(bench, &known);
  for (int kind = 0; kind < ACCESS_KINDS && status == VMM_SUCCESS; kind++) {
    status = measure_kind(bench, (access_kind)kind, &known, &results[kind]);
  }
  if (status != VMM_SUCCESS) return bench_access_failure(bench, "measuring bandwidth");
  report_buffer(bench, rows, chunk, shuffled, results);
  return EXIT_STATUS_DONE;
}

static exit_status measure_native(bench_access *bench, table *rows) {
  vmm_driver *driver = bench->session.driver;
  vmm_address address;
  if (vmm_malloc(driver, bench->total, &address) != VMM_SUCCESS) {
    return bench_access_failure(bench, "allocating the buffer");
  }
  exit_status status = measure_buffer(bench, rows, address, 0, false);
  if (vmm_free(driver, address) != VMM_SUCCESS) {
    status = exit_status_worse(status, bench_access_failure(bench, "freeing the buffer"));
  }
  return status;
}

static exit_status measure_stitched(bench_access *bench, table *rows, uint64_t chunk, bool shuffled) {
  vmm_driver *driver = bench->session.driver;
  bench_stitch stitch;
  vmm_status opened = bench_stitch_open(&stitch, driver, bench->total, chunk);
  if (opened == VMM_SUCCESS) opened = bench_stitch_map(&stitch, shuffled, chunk, 0);
  exit_status status = opened == VMM_SUCCESS ? measure_buffer(bench, rows, stitch.places[0], chunk, shuffled)
                                             : bench_access_failure(bench, "stitching the buffer");
  vmm_synchronize(driver);
  if (stitch.handles && bench_stitch_close(&stitch) != VMM_SUCCESS) {
    status = exit_status_worse(status, bench_access_failure(bench, "taking the buffer down"));
  }
  return status;
}

exit_status bench_access_bandwidth(bench_access *bench) {
  uint64_t sizes[BENCH_SIZES];
  const size_t count = bench_sizes(&bench->options, sizes);
  static const char *const titles[] = {"<chunks of", "<order",           "read GB/s",  "write GB/s",
                                       "copy GB/s",  "random M words/s", "wrong words"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  progress_begin(&bench->session.shown, "bandwidth");
  exit_status status = measure_native(bench, rows);
  for (size_t i = 0; i < count && status == EXIT_STATUS_DONE; i++) {
    progress_update(&bench->session.shown, (double)i / (double)count, 0, UINT64_MAX);
    if (bench->total % sizes[i] != 0) continue;
    for (int shuffled = 0; shuffled < 2 && status == EXIT_STATUS_DONE; shuffled++) {
      status = measure_stitched(bench, rows, sizes[i], shuffled);
    }
  }
  progress_end(&bench->session.shown, status == EXIT_STATUS_DONE ? "measured" : "failed");
  char total[BENCH_SIZE_TEXT];
  bench_size_text(bench->total, total);
  bench_session_print(
      &bench->session,
      "\n# Bandwidth of a buffer of %s (medians; a copy's bytes are those read and those written)\n", total);
  if (bench->session.outputs.report && !table_print(rows, bench->session.outputs.report))
    bench->session.lost = true;
  table_destroy(rows);
  return status;
}
