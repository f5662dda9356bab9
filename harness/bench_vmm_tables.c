#include <inttypes.h>
#include <stdlib.h>

#include "harness/bench_vmm.h"
#include "harness/table.h"
#include "harness/units.h"

/* GMLake's Table 1 (ASPLOS'24): 2 GiB on an A100, relative to one cuMemAlloc of 2 GiB. */
static const struct {
  uint64_t chunk;
  double stages[BENCH_STAGES_BUILDING], build;
} paper_rows[] = {
    {UINT64_C(2) << 20, {0.003, 18.1, 0.70, 96.8}, 115.4},
    {UINT64_C(128) << 20, {0.003, 0.89, 0.01, 8.2}, 9.1},
    {UINT64_C(1) << 30, {0.002, 0.79, 0.002, 0.7}, 1.5},
};
static const uint64_t paper_total = UINT64_C(2) << 30;

/* A stage of the paper, BENCH_STAGE_COUNT for the whole build; negative where it has no such number. */
static double paper_value(uint64_t total, uint64_t chunk, int stage) {
  for (size_t i = 0; i < sizeof paper_rows / sizeof *paper_rows; i++) {
    if (total != paper_total || paper_rows[i].chunk != chunk) continue;
    if (stage == BENCH_STAGE_COUNT) return paper_rows[i].build;
    return stage < BENCH_STAGES_BUILDING ? paper_rows[i].stages[stage] : -1;
  }
  return -1;
}

static void microseconds_cell(table *rows, double nanoseconds) { table_number(rows, nanoseconds / 1000); }

static void print_table(bench_session *session, table *rows) {
  progress_clear(&session->shown);
  if (session->outputs.report && !table_print(rows, session->outputs.report)) session->lost = true;
  table_destroy(rows);
}

/* ---- results for the files ---- */

typedef struct native_time {
  double malloc_ns, free_ns;
} native_time;

static void record_call(bench_vmm *bench, const char *benchmark, const bench_vmm_point *point,
                        const char *call, uint64_t calls, const bench_summary *times,
                        const bench_summary *single, double reference_ns, double paper) {
  bench_session *session = &bench->session;
  json_t *record = bench_session_record(session, benchmark);
  bench_record_text(session, record, "method", "chunks");
  bench_record_integer(session, record, "total_bytes", point->plan.total);
  bench_record_integer(session, record, "chunk_bytes", point->plan.chunk);
  bench_record_integer(session, record, "chunks", bench_build_chunks(&point->plan));
  bench_record_text(session, record, "call", call);
  bench_record_integer(session, record, "calls", calls);
  bench_record_microseconds(session, record, "", times);
  if (reference_ns > 0) {
    bench_record_real(session, record, "normalized", times->p50 / reference_ns);
  } else {
    bench_record_nothing(session, record, "normalized");
  }
  if (paper >= 0) {
    bench_record_real(session, record, "paper_normalized", paper);
  } else {
    bench_record_nothing(session, record, "paper_normalized");
  }
  if (single) bench_record_microseconds(session, record, "call_", single);
  bench_vmm_record_conditions(bench, record);
}

/* Building calls are relative to cuMemAlloc, the others to cuMemFree. */
static void record_point(bench_vmm *bench, const char *benchmark, const bench_vmm_point *point,
                         const native_time *native) {
  const uint64_t total = point->plan.total, chunk = point->plan.chunk;
  uint64_t building = 0, tearing = 0;
  for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) {
    const bool builds = stage < BENCH_STAGES_BUILDING;
    *(builds ? &building : &tearing) += point->stage_calls[stage];
    record_call(bench, benchmark, point, bench_stage_words[stage], point->stage_calls[stage],
                &point->stages[stage], &point->calls[stage], builds ? native->malloc_ns : native->free_ns,
                paper_value(total, chunk, stage));
  }
  record_call(bench, benchmark, point, "build", building, &point->build, NULL, native->malloc_ns,
              paper_value(total, chunk, BENCH_STAGE_COUNT));
  record_call(bench, benchmark, point, "teardown", tearing, &point->teardown, NULL, native->free_ns, -1);
}

static void record_native(bench_vmm *bench, const char *benchmark, const bench_vmm_native *native,
                          const char *method, const bench_summary *taking, const bench_summary *giving) {
  bench_session *session = &bench->session;
  for (int i = 0; i < 2; i++) {
    const bench_summary *times = i ? giving : taking;
    const double reference = i ? native->free.p50 : native->malloc.p50;
    json_t *record = bench_session_record(session, benchmark);
    bench_record_text(session, record, "method", method);
    bench_record_integer(session, record, "total_bytes", native->total);
    bench_record_integer(session, record, "chunk_bytes", native->total);
    bench_record_integer(session, record, "chunks", 1);
    bench_record_text(session, record, "call", i ? "free" : "malloc");
    bench_record_integer(session, record, "calls", 1);
    bench_record_microseconds(session, record, "", times);
    if (reference > 0) {
      bench_record_real(session, record, "normalized", times->p50 / reference);
    } else {
      bench_record_nothing(session, record, "normalized");
    }
    bench_vmm_record_conditions(bench, record);
  }
}

static void record_natives(bench_vmm *bench, const char *benchmark, const bench_vmm_native *native) {
  record_native(bench, benchmark, native, "cuMemAlloc", &native->malloc, &native->free);
  if (native->has_warm) {
    record_native(bench, benchmark, native, "cuMemAllocAsync warm", &native->async_warm,
                  &native->async_warm_free);
  }
  if (native->has_cold) {
    record_native(bench, benchmark, native, "cuMemAllocAsync cold", &native->async_cold,
                  &native->async_cold_free);
  }
}

/* ---- measuring a total ---- */

typedef struct total_points {
  bench_vmm_native native;
  bench_vmm_point *points; /* freed by the caller */
  size_t count;
} total_points;

static exit_status measure_total(bench_vmm *bench, uint64_t total, total_points *all) {
  uint64_t sizes[BENCH_SIZES];
  const size_t count = bench_sizes(&bench->options, sizes);
  char text[BENCH_SIZE_TEXT];
  bench_size_text(total, text);
  *all = (total_points){.points = calloc(count, sizeof *all->points)};
  if (!all->points) return bench_vmm_failure(bench, bench->session.driver, "measuring %s", text);
  progress_begin(&bench->session.shown, "%s", text);
  progress_update(&bench->session.shown, 0, 0, UINT64_MAX);
  exit_status status = bench_vmm_measure_native(bench, total, &all->native);
  for (size_t i = 0; i < count && sizes[i] <= total; i++) {
    bench_vmm_point_open(bench, total, sizes[i], &all->points[all->count++]);
  }
  /* By turns, so that a change of the machine's speed meets all sizes alike. */
  const uint64_t warmup = bench_vmm_warmup(bench), rounds = warmup + bench->options.iterations;
  for (uint64_t round = 0; round < rounds && status == EXIT_STATUS_DONE; round++) {
    for (size_t i = 0; i < all->count && status == EXIT_STATUS_DONE; i++) {
      status = bench_vmm_point_build(bench, &all->points[i], round >= warmup);
    }
    progress_update(&bench->session.shown, (double)round / (double)rounds, 0, UINT64_MAX);
  }
  for (size_t i = 0; i < all->count; i++) bench_vmm_point_close(bench, &all->points[i]);
  progress_end(&bench->session.shown, status == EXIT_STATUS_DONE ? "measured" : "failed");
  const exit_status forgotten = bench_vmm_forget_kept(bench);
  return exit_status_worse(status, forgotten);
}

static native_time reference_of(const bench_vmm_native *native) {
  return (native_time){native->malloc.p50, native->free.p50};
}

/* ---- Table 1 ---- */

static void print_normalized(bench_vmm *bench, const total_points *all) {
  char total[BENCH_SIZE_TEXT], reference[UNITS_TEXT], chunk[BENCH_SIZE_TEXT];
  bench_size_text(all->native.total, total);
  units_significant(all->native.malloc.p50 / 1000, reference);
  const bool beside = all->native.total == paper_total;
  bench_session_print(&bench->session,
                      "\n# Table 1: %s from chunks, relative to one cuMemAlloc of %s = %s us (medians)%s\n",
                      total, total, reference, beside ? "; A100: the GMLake paper's" : "");
  const char *titles[] = {"chunk",       "chunks",     "reserve",         "create",
                          "map",         "set access", "build",           "A100 reserve",
                          "A100 create", "A100 map",   "A100 set access", "A100 build"};
  table *rows = table_create(titles, beside ? sizeof titles / sizeof *titles : 7);
  for (size_t i = 0; i < all->count; i++) {
    const bench_vmm_point *point = &all->points[i];
    bench_size_text(point->plan.chunk, chunk);
    table_row(rows);
    table_cell(rows, "%s", chunk);
    table_count(rows, bench_build_chunks(&point->plan));
    const double unit = all->native.malloc.p50;
    for (int stage = 0; stage < BENCH_STAGES_BUILDING; stage++) {
      table_number(rows, unit > 0 ? point->stages[stage].p50 / unit : 0);
    }
    table_number(rows, unit > 0 ? point->build.p50 / unit : 0);
    for (int stage = 0; stage <= BENCH_STAGES_BUILDING && beside; stage++) {
      double value = paper_value(all->native.total, point->plan.chunk,
                                 stage == BENCH_STAGES_BUILDING ? (int)BENCH_STAGE_COUNT : stage);
      if (value < 0) {
        table_cell(rows, "-");
      } else {
        table_number(rows, value);
      }
    }
  }
  print_table(&bench->session, rows);
}

static void print_raw(bench_vmm *bench, const total_points *all) {
  char total[BENCH_SIZE_TEXT], chunk[BENCH_SIZE_TEXT];
  bench_size_text(all->native.total, total);
  bench_session_print(&bench->session,
                      "\n# Table 1: %s from chunks, microseconds (medians of whole stages)\n", total);
  const char *titles[] = {"chunk", "calls", "reserve", "create", "map",     "set access", "build",
                          "p90",   "p99",   "max",     "unmap",  "release", "addr free",  "teardown"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < all->count; i++) {
    const bench_vmm_point *point = &all->points[i];
    uint64_t calls = 0;
    for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) calls += point->stage_calls[stage];
    bench_size_text(point->plan.chunk, chunk);
    table_row(rows);
    table_cell(rows, "%s", chunk);
    table_count(rows, calls);
    for (int stage = 0; stage < BENCH_STAGES_BUILDING; stage++)
      microseconds_cell(rows, point->stages[stage].p50);
    microseconds_cell(rows, point->build.p50);
    microseconds_cell(rows, (double)point->build.p90);
    microseconds_cell(rows, (double)point->build.p99);
    microseconds_cell(rows, (double)point->build.maximum);
    for (int stage = BENCH_STAGES_BUILDING; stage < BENCH_STAGE_COUNT; stage++) {
      microseconds_cell(rows, point->stages[stage].p50);
    }
    microseconds_cell(rows, point->teardown.p50);
  }
  print_table(&bench->session, rows);
}

static void print_natives(bench_vmm *bench, const bench_vmm_native *native) {
  char total[BENCH_SIZE_TEXT], taken[UNITS_TEXT], given[UNITS_TEXT];
  bench_size_text(native->total, total);
  units_significant(native->malloc.p50 / 1000, taken);
  units_significant(native->free.p50 / 1000, given);
  bench_session_print(&bench->session, "# cuMemAlloc of %s: %s us, cuMemFree: %s us\n", total, taken, given);
}

/* Builds that a kernel should have accompanied, and did not to their end. */
static void print_kernel_ended(bench_vmm *bench, const total_points *all) {
  uint64_t ended = 0;
  for (size_t i = 0; i < all->count; i++) ended += all->points[i].kernel_ended;
  if (ended > 0) {
    bench_session_print(&bench->session, "# the kernel ended before %" PRIu64 " of the builds did\n", ended);
  }
}

exit_status bench_vmm_table1(bench_vmm *bench) {
  const uint64_t *totals = bench->total_count ? bench->totals : &paper_total;
  const size_t count = bench->total_count ? bench->total_count : 1;
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < count && status == EXIT_STATUS_DONE; i++) {
    total_points all;
    status = measure_total(bench, totals[i], &all);
    if (status == EXIT_STATUS_DONE) {
      const native_time native = reference_of(&all.native);
      record_natives(bench, "table1", &all.native);
      for (size_t j = 0; j < all.count; j++) record_point(bench, "table1", &all.points[j], &native);
      print_normalized(bench, &all);
      print_raw(bench, &all);
      print_natives(bench, &all.native);
      print_kernel_ended(bench, &all);
    }
    free(all.points);
  }
  return status;
}

/* ---- Figure 6 ---- */

static void figure6_cells(table *rows, const total_points *all, double nanoseconds) {
  microseconds_cell(rows, nanoseconds);
  table_number(rows, all->native.malloc.p50 > 0 ? nanoseconds / all->native.malloc.p50 : 0);
}

/* One of the driver's own ways, over all totals. way: 0 cuMemAlloc, 1 a warm pool, 2 a cold one. */
static void figure6_native_row(table *rows, const total_points *all, size_t count, int way) {
  static const char *const names[] = {"cuMemAlloc", "cuMemAllocAsync warm", "cuMemAllocAsync cold"};
  if ((way == 1 && !all[0].native.has_warm) || (way == 2 && !all[0].native.has_cold)) return;
  table_row(rows);
  table_cell(rows, "%s", names[way]);
  for (size_t i = 0; i < count; i++) {
    const bench_vmm_native *native = &all[i].native;
    const bench_summary *times[] = {&native->malloc, &native->async_warm, &native->async_cold};
    figure6_cells(rows, &all[i], times[way]->p50);
  }
}

static void print_figure6(bench_vmm *bench, const total_points *all, size_t count) {
  bench_session_print(&bench->session,
                      "\n# Figure 6: time to allocate, microseconds (medians) and relative to cuMemAlloc\n");
  char names[BENCH_TOTALS][BENCH_SIZE_TEXT];
  const char *titles[1 + 2 * BENCH_TOTALS] = {"<from chunks of"};
  size_t columns = 1, longest = 0;
  for (size_t i = 0; i < count && columns + 2 <= TABLE_COLUMNS; i++) {
    bench_size_text(all[i].native.total, names[i]);
    titles[columns++] = names[i];
    titles[columns++] = "x";
    if (all[i].count > all[longest].count) longest = i;
  }
  table *rows = table_create(titles, columns);
  for (size_t j = 0; j < all[longest].count; j++) {
    char chunk[BENCH_SIZE_TEXT];
    bench_size_text(all[longest].points[j].plan.chunk, chunk);
    table_row(rows);
    table_cell(rows, "%s", chunk);
    for (size_t i = 0; i < count; i++) {
      if (j < all[i].count) {
        figure6_cells(rows, &all[i], all[i].points[j].build.p50);
      } else {
        table_cell(rows, "-");
        table_cell(rows, "-");
      }
    }
  }
  for (int way = 0; way < 3; way++) figure6_native_row(rows, all, count, way);
  print_table(&bench->session, rows);
  for (size_t i = 0; i < count; i++) print_kernel_ended(bench, &all[i]);
}

exit_status bench_vmm_figure6(bench_vmm *bench) {
  static const uint64_t paper_totals[] = {UINT64_C(512) << 20, UINT64_C(1) << 30, UINT64_C(2) << 30};
  const uint64_t *totals = bench->total_count ? bench->totals : paper_totals;
  const size_t count = bench->total_count ? bench->total_count : sizeof paper_totals / sizeof *paper_totals;
  total_points all[BENCH_TOTALS] = {0};
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < count && status == EXIT_STATUS_DONE; i++) {
    status = measure_total(bench, totals[i], &all[i]);
    if (status != EXIT_STATUS_DONE) break;
    const native_time native = reference_of(&all[i].native);
    record_natives(bench, "figure6", &all[i].native);
    for (size_t j = 0; j < all[i].count; j++) record_point(bench, "figure6", &all[i].points[j], &native);
  }
  if (status == EXIT_STATUS_DONE) print_figure6(bench, all, count);
  for (size_t i = 0; i < count; i++) free(all[i].points);
  return status;
}
