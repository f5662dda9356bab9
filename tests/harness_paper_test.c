/* The paper's evaluation: its grid, its tables, its summary, and what is said where something is missing. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/paper.h"
#include "harness/sweep_grid.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define GIB 1073741824.0

static char *folder(const char *name) {
  char *path = test_path(name);
  ck_assert(mkdir(path, 0700) == 0 || access(path, W_OK) == 0);
  return path;
}

static char *read_in(const char *where, const char *name) {
  char *path = sweep_path(where, name), *text = read_test_file(path);
  free(path);
  return text;
}

static bool exists_in(const char *where, const char *name) {
  char *path = sweep_path(where, name);
  bool exists = access(path, R_OK) == 0;
  free(path);
  return exists;
}

static json_t *rows_in(const char *where, const char *name) {
  char *text = read_in(where, name);
  json_t *object = json_loads(text, 0, NULL), *rows = json_incref(json_object_get(object, "rows"));
  ck_assert(json_is_array(rows));
  json_decref(object);
  free(text);
  return rows;
}

START_TEST(the_grid_has_76_workloads_that_can_be_generated) {
  char text[PAPER_WORKLOADS * (PAPER_LINE + 16)] = "policy native\n";
  for (size_t i = 0; i < PAPER_WORKLOADS; i++) {
    char line[PAPER_LINE];
    paper_workload_line(&paper_workloads[i], line);
    snprintf(text + strlen(text), sizeof text - strlen(text), "generate %s\n", line);
  }
  sweep_grid *grid;
  ck_assert_int_eq(sweep_grid_parse(text, "grid", &grid), EXIT_STATUS_DONE);
  ck_assert_uint_eq(sweep_grid_count(grid), PAPER_WORKLOADS);
  sweep_grid_free(grid);
  char *where = folder("grid");
  program_run run = run_expecting(EXIT_STATUS_DONE, "paper", "table2", "-o", where, "--no-figures");
  program_run_free(&run);
  json_t *rows = rows_in(where, "table2.json");
  ck_assert_uint_eq(json_array_size(rows), PAPER_WORKLOADS);
  ck_assert_str_eq(json_text(json_array_get(rows, 0), "model"), "OPT-1.3B");
  json_decref(rows);
  free(where);
}
END_TEST

START_TEST(a_figure_is_run_once_and_written_as_csv_and_json) {
  char *where = folder("figure");
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "paper", "fig3", "-o", where, "--no-figures", "-p", "bfc,aliasheap");
  ck_assert_has(run.errors, "10 of 10 cells run, 0 failed");
  program_run_free(&run);
  json_t *rows = rows_in(where, "fig3.json");
  ck_assert_uint_eq(json_array_size(rows), 10);
  for (size_t i = 0; i < 10; i += 2) {
    const json_t *bfc = json_array_get(rows, i), *ours = json_array_get(rows, i + 1);
    ck_assert_str_eq(json_text(bfc, "policy"), "bfc");
    ck_assert_str_eq(json_text(ours, "policy"), "aliasheap");
    ck_assert_str_eq(json_text(bfc, "panel"), "OPT-1.3B");
    ck_assert(json_number(bfc, "position") == (double)(i / 2));
    ck_assert(json_number(bfc, "utilization") <= json_number(ours, "utilization"));
    ck_assert(json_number(bfc, "paper_utilization") > 0.5);
    ck_assert_ptr_null(json_object_get(ours, "paper_utilization"));
    ck_assert(json_number(bfc, "live_gib") <= json_number(bfc, "reserved_gib"));
  }
  json_decref(rows);
  char *csv = read_in(where, "fig3.csv");
  ck_assert_has(csv, "# device: NVIDIA A100 80GB");
  ck_assert_has(csv, "\nfig10,OPT-1.3B,0,N,OPT-1.3B,N,FSDP,4,55,bfc,");
  ck_assert(!exists_in(where, "fig10.csv") && !exists_in(where, "summary.txt"));
  free(csv);
  run = run_expecting(EXIT_STATUS_DONE, "paper", "fig3", "-o", where, "--no-figures", "-p", "bfc,aliasheap");
  ck_assert_ptr_null(strstr(run.errors, "cells run"));
  program_run_free(&run);
  free(where);
}
END_TEST

/* ---- summary ---- */

static const json_t *made_result(double live_gib, double reserved_gib, double driver_us, int failed) {
  return json_pack("{s:f, s:f, s:f, s:f, s:i}", "utilization", live_gib / reserved_gib, "live_peak_bytes",
                   live_gib * GIB, "reserved_peak_bytes", reserved_gib * GIB, "driver_us", driver_us,
                   "failed_allocs", failed);
}

START_TEST(the_summary_compares_what_both_serve) {
  static paper_results results;
  char *where = folder("summary"), message[128];
  paper_settings settings = {.all = true,
                             .folder = where,
                             .device_name = "a device",
                             .latency_source = "a source",
                             .capacity = "80GiB",
                             .command = "lakebed paper"};
  ck_assert(policy_specs_add_list(&settings.specs, "bfc,gmlake,aliasheap", message, sizeof message));
  results.settings = &settings;
  const double reserved[3][3] = {{50, 40, 40}, {80, 60, 50}, {80, 70, 60}};
  for (size_t i = 0; i < 3; i++) {
    /* In the last workload bfc runs out of memory. */
    for (size_t k = 0; k < 3; k++)
      results.objects[i][k] = made_result(40, reserved[i][k], 1e6 * (double)(k + 1), i == 2 && k == 0);
  }
  ck_assert(paper_write_summary(&results));
  char *text = read_in(where, "summary.txt");
  ck_assert_has(text, "# driver: sim\n");
  ck_assert_has(text, "\n# date: ");
  /* 0.8 and 0.5 become 1.0 and 0.667; 10 and 20 GiB less. */
  ck_assert_has(text,
                "fragmentation 18.3 points less on average, 20.0 at most; 15.0 GiB less reserved on average, "
                "20.0 at most (2 workloads that both serve)");
  ck_assert_has(text, "aliasheap reserves no more than gmlake in 3 of 3 workloads that both serve");
  ck_assert_has(text, "9.0 s against 6.0 s");
  ck_assert_has(text, "2 of 3");
  ck_assert_has(text, "means over the 2 workloads that all policies serve");
  free(text);
  json_t *rows = rows_in(where, "summary.json");
  const json_t *bfc = json_array_get(rows, 0), *gmlake = json_array_get(rows, 1);
  ck_assert(json_number(bfc, "served") == 2 && json_number(gmlake, "served") == 3);
  ck_assert_double_eq_tol(json_number(bfc, "utilization_mean"), 0.65, 1e-6);
  ck_assert_double_eq_tol(json_number(gmlake, "utilization_worst"), 2.0 / 3, 1e-6);
  ck_assert_double_eq_tol(json_number(gmlake, "driver_s"), 6, 1e-9);
  json_decref(rows);
  for (size_t i = 0; i < 3; i++)
    for (size_t k = 0; k < 3; k++) json_decref((json_t *)(uintptr_t)results.objects[i][k]);
  policy_specs_free(&settings.specs);
  free(where);
}
END_TEST

/* ---- Table 1 and Figure 6 ---- */

START_TEST(measured_items_come_from_the_bench_results) {
  char *where = folder("bench");
  char *bench =
      write_test_file("vmm.csv",
                      "# device: a GPU\n# date: today\n"
                      "benchmark,method,p50_us\ntable1,chunks,2.5\nfigure6,cuMemAlloc,\ntable1,other,3\n");
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "paper", "table1", "-o", where, "--bench", bench, "--no-figures");
  program_run_free(&run);
  char *csv = read_in(where, "table1.csv");
  ck_assert_str_eq(
      csv, "# device: a GPU\n# date: today\nbenchmark,method,p50_us\ntable1,chunks,2.5\ntable1,other,3\n");
  free(csv);
  json_t *rows = rows_in(where, "table1.json");
  ck_assert_uint_eq(json_array_size(rows), 2);
  ck_assert_str_eq(json_text(json_array_get(rows, 0), "method"), "chunks");
  ck_assert_double_eq(json_number(json_array_get(rows, 0), "p50_us"), 2.5);
  json_decref(rows);
  free(write_test_file("vmm.csv", "benchmark,method\n"));
  run = run_expecting(EXIT_STATUS_USAGE, "paper", "fig6", "-o", where, "--bench", bench, "--no-figures");
  ck_assert_has(run.errors, "has no results of it");
  ck_assert(!exists_in(where, "fig6.csv"));
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "paper", "fig6", "-o", where, "--bench", "nowhere.csv",
                      "--no-figures");
  ck_assert_has(run.errors, "nowhere.csv cannot be read");
  program_run_free(&run);
  run =
      run_expecting(EXIT_STATUS_USAGE, "paper", "fig6", "-o", where, "--bench", "/dev/zero", "--no-figures");
  ck_assert_has(run.errors, "/dev/zero has no results of it");
  program_run_free(&run);
  char *own = sweep_path(where, "table1.csv");
  run = run_expecting(EXIT_STATUS_USAGE, "paper", "table1", "-o", where, "--bench", own, "--no-figures");
  ck_assert_has(run.errors, "cannot be written: it is what is measured");
  program_run_free(&run);
  free(own);
  free(bench);
  free(where);
}
END_TEST

/* ---- figures ---- */

START_TEST(without_gnuplot_the_data_are_written_all_the_same) {
  char *where = folder("undrawn"), *scripts = folder("root"), *results = sweep_path(scripts, "results");
  char *bench = write_test_file("vmm.csv", "benchmark,method\ntable1,chunks\n");
  setenv("LAKEBED_ROOT", where, 1);
  program_run run = run_expecting(EXIT_STATUS_CHECK_FAILED, "paper", "table1", "-o", where, "--bench", bench);
  ck_assert_has(run.errors, "LAKEBED_ROOT names the folder");
  program_run_free(&run);
  ck_assert(mkdir(results, 0700) == 0 || access(results, W_OK) == 0);
  char *common = sweep_path(results, "paper_common.gp");
  fclose(fopen(common, "w"));
  setenv("LAKEBED_ROOT", scripts, 1);
  setenv("PATH", "/nowhere", 1);
  run = run_expecting(EXIT_STATUS_DONE, "paper", "table1", "-o", where, "--bench", bench);
  ck_assert_has(run.errors, "no gnuplot here (Debian's package gnuplot-nox)");
  ck_assert(exists_in(where, "table1.csv") && exists_in(where, "table1.json"));
  program_run_free(&run);
  unlink(common);
  rmdir(results);
  free(common);
  free(results);
  free(bench);
  free(scripts);
  free(where);
}
END_TEST

static const struct {
  const char *arguments[4];
  const char *said;
} usages[] = {
    {{"paper", "fig7"}, "the paper has no 'fig7' here"},
    {{"paper", "tabel1"}, "did you mean table1?"},
    {{"paper", "-p", "bfcc"}, "there is no policy 'bfcc'"},
    {{"paper", "table2", "--device=h1000"}, "no device 'h1000'"},
    {{"paper", "table2", "--capacity=lots"}, "--capacity=lots: expected a size"},
    {{"paper", "table2", "-o", "/proc/none"}, "/proc/none"},
};

START_TEST(wrong_usage_is_refused) {
  const char *const *words = usages[_i].arguments;
  program_run run = run_expecting(EXIT_STATUS_USAGE, words[0], words[1], words[2], words[3]);
  ck_assert_has(run.errors, usages[_i].said);
  program_run_free(&run);
}
END_TEST

static Suite *paper_suite(void) {
  Suite *suite = suite_create("paper");
  TCase *cases = tcase_create("paper");
  tcase_add_test(cases, the_grid_has_76_workloads_that_can_be_generated);
  tcase_add_test(cases, a_figure_is_run_once_and_written_as_csv_and_json);
  tcase_add_test(cases, the_summary_compares_what_both_serve);
  tcase_add_test(cases, measured_items_come_from_the_bench_results);
  tcase_add_test(cases, without_gnuplot_the_data_are_written_all_the_same);
  tcase_add_loop_test(cases, wrong_usage_is_refused, 0, (int)(sizeof usages / sizeof *usages));
  suite_add_tcase(suite, cases);
  return suite;
}
TEST_MAIN(paper_suite)
