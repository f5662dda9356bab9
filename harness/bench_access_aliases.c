/* Two addresses of one memory: CUDA's documentation promises little about using both at once; these tests
 * show what the hardware does. */
#include <inttypes.h>
#include <string.h>

#include "harness/bench_access.h"
#include "harness/table.h"
#include "harness/units.h"

enum { CHECK_BLOCKS = 8, BOTH_PARITIES = 2 };

/* As in access.cu. */
typedef struct gate {
  uint32_t arrived[2];
  uint64_t begin[2], end[2];
} gate;

enum { GATE_OFFSET = 1024 };

static vmm_status begin_words(bench_access *bench, vmm_address address) {
  uint64_t words = bench->alias_total / 4;
  void *arguments[] = {&address, &words};
  vmm_status status = bench_access_launch(bench, "alias_begin", CHECK_BLOCKS, ACCESS_STREAM_A, arguments);
  return status == VMM_SUCCESS ? vmm_synchronize(bench->session.driver) : status;
}

/* Words that were not changed steps times, seen through one address. */
static vmm_status check_words(bench_access *bench, vmm_address address, uint32_t steps,
                              access_report *report) {
  uint64_t words = bench->alias_total / 4;
  void *arguments[] = {&address, &words, &steps, &bench->scratch};
  vmm_status status = vmm_synchronize(bench->session.driver);
  if (status == VMM_SUCCESS) status = bench_access_report_clear(bench, ACCESS_STREAM_A);
  if (status == VMM_SUCCESS) {
    status = bench_access_launch(bench, "alias_check", CHECK_BLOCKS, ACCESS_STREAM_A, arguments);
  }
  if (status == VMM_SUCCESS) status = bench_access_report_get(bench, ACCESS_STREAM_A, report);
  return status;
}

static vmm_status modify(bench_access *bench, vmm_address address, uint64_t block_bytes, uint32_t parity,
                         uint32_t rounds, vmm_address both, vmm_stream stream) {
  uint64_t words = bench->alias_total / 4, block_words = block_bytes / 4;
  void *arguments[] = {&address, &words, &block_words, &parity, &rounds, &both};
  /* One block on each multiprocessor: two such kernels run side by side. */
  return bench_access_launch(bench, "alias_modify", both ? 1 : CHECK_BLOCKS, stream, arguments);
}

/* Share of the shorter kernel's time in which the other ran too. */
static double overlap(const gate *times) {
  const uint64_t begin = times->begin[0] > times->begin[1] ? times->begin[0] : times->begin[1];
  const uint64_t end = times->end[0] < times->end[1] ? times->end[0] : times->end[1];
  const uint64_t first = times->end[0] - times->begin[0], second = times->end[1] - times->begin[1];
  const uint64_t shorter = first < second ? first : second;
  return end > begin && shorter > 0 ? (double)(end - begin) / (double)shorter : 0;
}

/* What one test of two addresses found. */
typedef struct alias_outcome {
  uint64_t launches;    /* of pairs, or of single kernels */
  double least_overlap; /* negative: the kernels were not to run at once */
  access_report via_a, via_b;
} alias_outcome;

/* Two kernels at once, launches times, each changing its own half of the blocks through its own address. */
static vmm_status run_at_once(bench_access *bench, const bench_stitch *stitch, uint64_t block_bytes,
                              uint32_t rounds, alias_outcome *outcome) {
  vmm_driver *driver = bench->session.driver;
  const vmm_address both = bench->scratch + GATE_OFFSET;
  vmm_status status = begin_words(bench, stitch->places[0]);
  outcome->launches = bench->options.iterations;
  outcome->least_overlap = 1;
  for (uint64_t i = 0; i < outcome->launches && status == VMM_SUCCESS; i++) {
    gate times = {.begin = {UINT64_MAX, UINT64_MAX}};
    status = vmm_cuda_copy_to(driver, both, &times, sizeof times, ACCESS_STREAM_A);
    if (status == VMM_SUCCESS) {
      status = modify(bench, stitch->places[0], block_bytes, 0, rounds, both, ACCESS_STREAM_A);
    }
    if (status == VMM_SUCCESS) {
      status = modify(bench, stitch->places[1], block_bytes, 1, rounds, both, ACCESS_STREAM_B);
    }
    if (status == VMM_SUCCESS) status = vmm_synchronize(driver);
    if (status == VMM_SUCCESS)
      status = vmm_cuda_copy_from(driver, &times, both, sizeof times, ACCESS_STREAM_A);
    const double share = overlap(&times);
    if (share < outcome->least_overlap) outcome->least_overlap = share;
  }
  const uint32_t steps = (uint32_t)outcome->launches * rounds;
  if (status == VMM_SUCCESS) status = check_words(bench, stitch->places[0], steps, &outcome->via_a);
  if (status == VMM_SUCCESS) status = check_words(bench, stitch->places[1], steps, &outcome->via_b);
  return status;
}

/* One kernel after the other, each through the other address than the last: in one stream, or in two of which
 * each waits for the other's event. */
static vmm_status run_in_turn(bench_access *bench, const bench_stitch *stitch, bool streams,
                              alias_outcome *outcome) {
  vmm_driver *driver = bench->session.driver;
  vmm_status status = begin_words(bench, stitch->places[0]);
  outcome->launches = bench->launches;
  outcome->least_overlap = -1;
  for (uint64_t i = 0; i < outcome->launches && status == VMM_SUCCESS; i++) {
    const vmm_stream stream = streams && i % 2 ? ACCESS_STREAM_B : ACCESS_STREAM_A;
    status = modify(bench, stitch->places[i % 2], 4, BOTH_PARITIES, 1, 0, stream);
    if (status != VMM_SUCCESS || !streams) continue;
    vmm_event done;
    status = vmm_event_record(driver, stream, &done);
    if (status != VMM_SUCCESS) break;
    status = vmm_stream_wait_event(driver, i % 2 ? ACCESS_STREAM_A : ACCESS_STREAM_B, done);
    vmm_event_discard(driver, done);
  }
  if (status == VMM_SUCCESS) {
    status = check_words(bench, stitch->places[0], (uint32_t)outcome->launches, &outcome->via_a);
  }
  if (status == VMM_SUCCESS) {
    status = check_words(bench, stitch->places[1], (uint32_t)outcome->launches, &outcome->via_b);
  }
  return status;
}

static void report(bench_access *bench, table *rows, const char *test, uint64_t chunk, uint64_t block_bytes,
                   uint32_t rounds, const alias_outcome *outcome) {
  bench_session *session = &bench->session;
  char chunk_text[BENCH_SIZE_TEXT], block_text[BENCH_SIZE_TEXT], words[UNITS_TEXT];
  bench_size_text(chunk, chunk_text);
  bench_size_text(block_bytes, block_text);
  units_count(bench->alias_total / 4, words);
  const uint64_t wrong = outcome->via_a.wrong + outcome->via_b.wrong;
  bench->wrong_words += wrong;
  table_row(rows);
  table_cell(rows, "%s", test);
  table_cell(rows, "%s", chunk_text);
  table_cell(rows, "%s", block_bytes ? block_text : "-");
  table_count(rows, rounds);
  table_count(rows, outcome->launches);
  if (outcome->least_overlap < 0) {
    table_cell(rows, "-");
  } else {
    table_cell(rows, "%.1f %%", outcome->least_overlap * 100);
  }
  table_cell(rows, "%s", words);
  table_count(rows, outcome->via_a.wrong);
  table_count(rows, outcome->via_b.wrong);

  json_t *record = bench_session_record(session, test);
  bench_record_text(session, record, "memory", "aliased");
  bench_record_integer(session, record, "chunk_bytes", chunk);
  bench_record_integer(session, record, "total_bytes", bench->alias_total);
  bench_record_integer(session, record, "block_bytes", block_bytes);
  bench_record_integer(session, record, "rounds", rounds);
  bench_record_integer(session, record, "launches", outcome->launches);
  if (outcome->least_overlap < 0) {
    bench_record_nothing(session, record, "least_overlap");
  } else {
    bench_record_real(session, record, "least_overlap", outcome->least_overlap);
  }
  bench_record_integer(session, record, "words", bench->alias_total / 4);
  bench_record_integer(session, record, "wrong_words", wrong);
  bench_record_integer(session, record, "wrong_words_via_a", outcome->via_a.wrong);
  bench_record_integer(session, record, "wrong_words_via_b", outcome->via_b.wrong);
  const access_report *first = outcome->via_a.wrong   ? &outcome->via_a
                               : outcome->via_b.wrong ? &outcome->via_b
                                                      : NULL;
  if (first) {
    bench_record_integer(session, record, "first_wrong_word", first->first);
  } else {
    bench_record_nothing(session, record, "first_wrong_word");
  }
}

static table *make_table(void) {
  static const char *const titles[] = {"<test",   "chunks of", "blocks of",   "rounds",     "launches",
                                       "overlap", "words",     "wrong via A", "wrong via B"};
  return table_create(titles, sizeof titles / sizeof *titles);
}

static void finish_table(bench_access *bench, table *rows, const char *title) {
  bench_session_print(&bench->session, "\n# %s\n", title);
  if (bench->session.outputs.report && !table_print(rows, bench->session.outputs.report))
    bench->session.lost = true;
  table_destroy(rows);
}

typedef exit_status (*alias_test)(bench_access *bench, const bench_stitch *stitch, table *rows);

/* Runs a test on the same handles mapped at two addresses, for every size of chunks. */
static exit_status for_each_chunk(bench_access *bench, alias_test test, table *rows) {
  uint64_t sizes[BENCH_SIZES];
  const size_t count = bench_sizes(&bench->options, sizes);
  vmm_driver *driver = bench->session.driver;
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < count && status == EXIT_STATUS_DONE; i++) {
    if (bench->alias_total % sizes[i] != 0) continue;
    progress_update(&bench->session.shown, (double)i / (double)count, 0, UINT64_MAX);
    bench_stitch stitch;
    vmm_status opened = bench_stitch_open(&stitch, driver, bench->alias_total, sizes[i]);
    if (opened == VMM_SUCCESS) opened = bench_stitch_map(&stitch, false, 0, 0);
    if (opened == VMM_SUCCESS) opened = bench_stitch_map(&stitch, false, 0, 1);
    status = opened == VMM_SUCCESS ? test(bench, &stitch, rows)
                                   : bench_access_failure(bench, "mapping memory at two addresses");
    vmm_synchronize(driver);
    if (stitch.handles && bench_stitch_close(&stitch) != VMM_SUCCESS) {
      status = exit_status_worse(status, bench_access_failure(bench, "taking the memory down"));
    }
  }
  return status;
}

static exit_status test_at_once(bench_access *bench, const bench_stitch *stitch, table *rows) {
  static const uint64_t blocks[] = {512, 128, 32, 16, 8, 4};
  static const uint32_t rounds[] = {1, 8};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    for (size_t j = 0; j < sizeof rounds / sizeof *rounds; j++) {
      alias_outcome outcome = {0};
      if (run_at_once(bench, stitch, blocks[i], rounds[j], &outcome) != VMM_SUCCESS) {
        return bench_access_failure(bench, "changing memory through two addresses at once");
      }
      report(bench, rows, "aliases", stitch->chunk, blocks[i], rounds[j], &outcome);
    }
  }
  return EXIT_STATUS_DONE;
}

static exit_status test_in_turn(bench_access *bench, const bench_stitch *stitch, table *rows) {
  static const char *const names[] = {"handover by stream", "handover by event"};
  for (int streams = 0; streams < 2; streams++) {
    alias_outcome outcome = {0};
    if (run_in_turn(bench, stitch, streams, &outcome) != VMM_SUCCESS) {
      return bench_access_failure(bench, "changing memory through two addresses in turn");
    }
    report(bench, rows, names[streams], stitch->chunk, 0, 1, &outcome);
  }
  return EXIT_STATUS_DONE;
}

exit_status bench_access_aliases(bench_access *bench) {
  table *rows = make_table();
  progress_begin(&bench->session.shown, "aliases");
  exit_status status = for_each_chunk(bench, test_at_once, rows);
  progress_end(&bench->session.shown, status == EXIT_STATUS_DONE ? "tested" : "failed");
  finish_table(bench, rows,
               "Two kernels on two streams change neighbouring blocks of the same memory at once, through "
               "two addresses");
  return status;
}

exit_status bench_access_handover(bench_access *bench) {
  table *rows = make_table();
  progress_begin(&bench->session.shown, "handover");
  exit_status status = for_each_chunk(bench, test_in_turn, rows);
  progress_end(&bench->session.shown, status == EXIT_STATUS_DONE ? "tested" : "failed");
  finish_table(bench, rows,
               "Kernels change the same memory in turn, each through the other address than the last");
  return status;
}
