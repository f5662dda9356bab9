/* Sweeps: many processes, kills, failures, shards. */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/program.h"
#include "harness/sweep.h"
#include "harness/sweep_workers.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

/* 2 traces x 2 capacities x 3 policies, and one cell more. */
#define GRID                                                  \
  "# what is run\n"                                           \
  "trace    edge \"workloads/bundled/sawtooth_seq.txt.xz\"\n" \
  "policy   bfc gmlake:frag_limit={2MiB,4MiB}\n"              \
  "capacity default 64GiB\n"                                  \
  "also\n"                                                    \
  "trace    edge # again\n"                                   \
  "device   a100\n"                                           \
  "policy   aliasheap\n"                                      \
  "laps     2\n"
enum { GRID_CELLS = 13 };

/* ---- files ---- */

static char *read_in(const char *folder, const char *name) {
  char *path = sweep_path(folder, name), *text = read_test_file(path);
  free(path);
  return text;
}

/* Cells logged in all of a folder. */
static size_t count_logged(const char *folder) {
  size_t lines = 0;
  DIR *opened = opendir(folder);
  if (!opened) return 0;
  for (struct dirent *entry = readdir(opened); entry; entry = readdir(opened)) {
    if (strncmp(entry->d_name, "cells", 5) != 0) continue;
    char *text = read_in(folder, entry->d_name);
    lines += count_lines(text);
    free(text);
  }
  closedir(opened);
  return lines;
}

static void assert_same_results(const char *left, const char *right) {
  static const char *const names[] = {"results.json", "results.csv"};
  for (size_t i = 0; i < 2; i++) {
    char *first = read_in(left, names[i]), *second = read_in(right, names[i]);
    ck_assert_str_eq(first, second);
    free(first);
    free(second);
  }
}

static void sweep(int expected, const char *grid, const char *folder) {
  program_run run = run_expecting(expected, "sweep", grid, "-o", folder, "--quiet");
  program_run_free(&run);
}

/* ---- sweeps ---- */

START_TEST(results_do_not_depend_on_how_cells_are_run) {
  char *grid = write_test_file("grid", GRID);
  char *one = fresh_test_folder("one"), *two = fresh_test_folder("two"),
       *shards = fresh_test_folder("shards");
  program_run run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", one, "--jobs", "1");
  ck_assert_has(run.errors, "13 of 13 cells run, 0 failed");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", two, "--jobs", "2", "--quiet");
  ck_assert_str_eq(run.errors, "");
  program_run_free(&run);
  static const char *const parts[] = {"3/3", "1/3", "2/3"};
  for (size_t i = 0; i < 3; i++) {
    run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", shards, "--shard", parts[i], "--quiet");
    program_run_free(&run);
  }
  run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", shards, "--merge");
  program_run_free(&run);
  assert_same_results(one, two);
  assert_same_results(one, shards);
  ck_assert_uint_eq(count_logged(shards), GRID_CELLS);
  char *csv = read_in(one, "results.csv");
  ck_assert_uint_eq(count_lines(csv), GRID_CELLS + 2);
  free(csv);
  remove_test_folder(one);
  remove_test_folder(two);
  remove_test_folder(shards);
  free(one);
  free(two);
  free(shards);
  free(grid);
}
END_TEST

START_TEST(a_cell_is_what_replay_gives) {
  char *grid =
      write_test_file("grid", "trace edge\npolicy gmlake\ndevice a100\ncapacity 1GiB\ntimeline 20\n");
  char *folder = fresh_test_folder("single");
  sweep(EXIT_STATUS_DONE, grid, folder);
  char *text = read_in(folder, "results.json");
  json_t *cells = json_loads(text, 0, NULL), *cell = json_array_get(cells, 0);
  ck_assert_uint_eq(json_array_size(cells), 1);
  json_t *timeline = json_incref(json_object_get(cell, "timeline"));
  ck_assert_uint_ge(json_array_size(timeline), 2);
  ck_assert_uint_le(json_array_size(timeline), 20);
  ck_assert_uint_eq(json_array_size(json_array_get(timeline, 0)), 5);
  json_decref(timeline);
  json_object_del(cell, "timeline");
  json_object_del(cell, "key");
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "edge", "-p", "gmlake", "--device", "a100",
                                  "--capacity", "1GiB", "--no-host-timing", "--quiet", "--json", "-");
  json_t *replayed = parse_output(&run);
  ck_assert(json_equal(cells, replayed));
  json_decref(replayed);
  json_decref(cells);
  program_run_free(&run);
  free(text);
  remove_test_folder(folder);
  free(folder);
  free(grid);
}
END_TEST

START_TEST(traces_are_made_for_a_sweep) {
  char *grid = write_test_file(
      "grid", "generate finetune --model opt-1.3b -S {N,LR} -b 4 -i 2 # small\npolicy bfc native\n");
  char *one = fresh_test_folder("one"), *two = fresh_test_folder("two"), *made = test_path("made.txt");
  program_run run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", one, "--jobs", "1", "--quiet");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", two, "--jobs", "4", "--quiet");
  program_run_free(&run);
  assert_same_results(one, two);
  char *text = read_in(one, "results.json");
  json_t *cells = json_loads(text, 0, NULL), *cell = json_array_get(cells, 2);
  ck_assert_uint_eq(json_array_size(cells), 4);
  ck_assert_str_eq(json_string_value(json_object_get(cell, "trace")),
                   "finetune --model opt-1.3b -S LR -b 4 -i 2");
  run = run_expecting(EXIT_STATUS_DONE, "trace", "generate", "finetune", "--model", "opt-1.3b", "-S", "LR",
                      "-b", "4", "-i", "2", made);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "replay", made, "-p", "bfc", "--quiet", "--json", "-");
  json_t *replayed = parse_output(&run);
  ck_assert(json_number(json_array_get(replayed, 0), "reserved_peak_bytes") ==
            json_number(cell, "reserved_peak_bytes"));
  json_decref(replayed);
  json_decref(cells);
  program_run_free(&run);
  free(text);
  remove_test_folder(one);
  remove_test_folder(two);
  free(made);
  free(one);
  free(two);
  free(grid);
}
END_TEST

START_TEST(a_grid_that_grows_runs_what_is_new) {
  char *folder = fresh_test_folder("grown"),
       *grid = write_test_file("grid", "trace edge\npolicy bfc native\n");
  sweep(EXIT_STATUS_DONE, grid, folder);
  ck_assert_uint_eq(count_logged(folder), 2);
  free(grid);
  grid = write_test_file("grid", "trace edge\npolicy tfbfc native bfc\n");
  program_run run = run_expecting(EXIT_STATUS_CHECK_FAILED, "sweep", grid, "-o", folder, "--merge");
  ck_assert_has(run.errors, "1 of 3 cells have not been run");
  program_run_free(&run);
  char *text = read_in(folder, "results.csv");
  ck_assert_has(text, ",missing,");
  free(text);
  sweep(EXIT_STATUS_DONE, grid, folder);
  sweep(EXIT_STATUS_DONE, grid, folder);
  ck_assert_uint_eq(count_logged(folder), 3);
  run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", folder, "--status");
  ck_assert_has(run.output, "3 cells: 3 done, 0 failed, 0 not run");
  program_run_free(&run);
  remove_test_folder(folder);
  free(folder);
  free(grid);
}
END_TEST

/* ---- kills ---- */

/* The test's process as a sweep of its own, to be killed. */
static pid_t start_sweep(char *grid, char *folder) {
  fflush(NULL);
  pid_t process = fork();
  ck_assert_int_ge(process, 0);
  if (process == 0) {
    static char name[] = "lakebed", command[] = "sweep", output[] = "-o", quiet[] = "-q";
    char *argv[] = {name, command, grid, output, folder, quiet, NULL};
    exit((int)program_main(6, argv));
  }
  return process;
}

static void wait_for_cells(const char *folder, size_t count) {
  const struct timespec moment = {.tv_nsec = 1000 * 1000};
  for (int i = 0; i < 20000 && count_logged(folder) < count; i++) nanosleep(&moment, NULL);
  ck_assert_uint_ge(count_logged(folder), count);
}

static void assert_no_key_twice(const char *folder) {
  char *text = read_in(folder, "cells.jsonl"), *line = text;
  while (line && *line) {
    char *next = strchr(line, '\n');
    static const char head[] = "{\"key\":\"";
    ck_assert_int_eq(strncmp(line, head, sizeof head - 1), 0);
    char key[SWEEP_KEY_TEXT + sizeof head];
    snprintf(key, sizeof key, "%.*s", (int)(sizeof head - 1 + SWEEP_KEY_TEXT - 1), line);
    ck_assert_ptr_null(next ? strstr(next, key) : NULL);
    line = next ? next + 1 : NULL;
  }
  free(text);
}

START_TEST(a_kill_loses_nothing_and_runs_nothing_twice) {
  char *grid = write_test_file("grid",
                               "trace edge sawtooth_seq\npolicy bfc gmlake aliasheap tfbfc\n"
                               "laps {1,2,3}\n");
  char *whole = fresh_test_folder("whole"), *killed = fresh_test_folder("killed");
  sweep(EXIT_STATUS_DONE, grid, whole);
  for (size_t cells = 1; cells < 24; cells += 9) {
    pid_t process = start_sweep(grid, killed);
    wait_for_cells(killed, cells);
    kill(process, SIGKILL);
    ck_assert_int_eq(waitpid(process, NULL, 0), process);
  }
  sweep(EXIT_STATUS_DONE, grid, killed);
  assert_same_results(whole, killed);
  ck_assert_uint_eq(count_logged(killed), 24);
  assert_no_key_twice(killed);
  remove_test_folder(whole);
  remove_test_folder(killed);
  free(whole);
  free(killed);
  free(grid);
}
END_TEST

START_TEST(half_a_line_does_not_count) {
  char *grid = write_test_file("grid", GRID), *whole = fresh_test_folder("whole"),
       *torn = fresh_test_folder("torn");
  sweep(EXIT_STATUS_DONE, grid, whole);
  sweep(EXIT_STATUS_DONE, grid, torn);
  char *log = sweep_path(torn, "cells.jsonl");
  struct stat about;
  ck_assert_int_eq(stat(log, &about), 0);
  ck_assert_int_eq(truncate(log, about.st_size - 40), 0);
  program_run run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", torn, "--status");
  ck_assert_has(run.output, "13 cells: 12 done, 0 failed, 1 not run");
  program_run_free(&run);
  sweep(EXIT_STATUS_DONE, grid, torn);
  assert_same_results(whole, torn);
  assert_no_key_twice(torn);
  remove_test_folder(whole);
  remove_test_folder(torn);
  free(log);
  free(whole);
  free(torn);
  free(grid);
}
END_TEST

START_TEST(a_log_may_hold_anything) {
  char *grid = write_test_file("grid", "trace edge\npolicy null\n"), *folder = fresh_test_folder("anything");
  sweep(EXIT_STATUS_DONE, grid, folder);
  char *log = sweep_path(folder, "cells.jsonl"), *line = read_test_file(log);
  json_t *object = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
  const char *key = json_string_value(json_object_get(object, "key"));
  ck_assert_ptr_nonnull(key);
  FILE *stream = fopen(log, "w");
  ck_assert_ptr_nonnull(stream);
  fputs("no JSON\n{\"key\":5}\n[1]\n\xff\n", stream);
  fprintf(stream,
          "{\"key\":\"%s\",\"status\":\"done\",\"trace\":[1],\"driver_calls\":{\"a\":5,\"b\":{\"count\":"
          "9223372036854775807},\"c\":{\"count\":9223372036854775807}}}\n",
          key);
  fclose(stream);
  program_run run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", folder, "-q");
  ck_assert_has(run.errors, "4 lines of the logs are damaged");
  program_run_free(&run);
  char *csv = sweep_path(folder, "results.csv"), *table = read_test_file(csv);
  ck_assert_has(table, ",9223372036854775807,");
  json_decref(object);
  remove_test_folder(folder);
  free(line);
  free(table);
  free(csv);
  free(log);
  free(folder);
  free(grid);
}
END_TEST

START_TEST(two_sweeps_of_one_folder_are_refused) {
  char *grid = write_test_file("grid", GRID), *folder = fresh_test_folder("busy");
  sweep_log *log;
  ck_assert_int_eq(sweep_log_open(folder, (sweep_shard){0}, false, &log), EXIT_STATUS_DONE);
  program_run run = run_expecting(EXIT_STATUS_USAGE, "sweep", grid, "-o", folder);
  ck_assert_has(run.errors, "a sweep of this folder is running already");
  program_run_free(&run);
  sweep_log_close(log);
  ck_assert_int_eq(sweep_log_open(folder, (sweep_shard){1, 3}, false, &log), EXIT_STATUS_DONE);
  run = run_expecting(EXIT_STATUS_USAGE, "sweep", grid, "-o", folder, "--shard", "1/2");
  ck_assert_has(run.errors, "is split in 3 shards, not 2");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", folder, "--shard", "2/3", "--quiet");
  program_run_free(&run);
  sweep_log_close(log);
  /* Nobody runs it now: it may be split otherwise. */
  run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", folder, "--shard", "1/2", "--quiet");
  program_run_free(&run);
  sweep(EXIT_STATUS_DONE, grid, folder);
  ck_assert_uint_eq(count_logged(folder), GRID_CELLS);
  remove_test_folder(folder);
  free(folder);
  free(grid);
}
END_TEST

/* ---- failures ---- */

START_TEST(a_cell_that_fails_stops_no_other) {
  char *bad = write_test_file("bad.txt", "a 1 100 0\nf 2\n"), *folder = fresh_test_folder("failing"), *grid,
       *text;
  ck_assert_int_ge(asprintf(&text, "trace %s edge\npolicy bfc native\n", bad), 0);
  grid = write_test_file("grid", text);
  program_run run = run_expecting(EXIT_STATUS_CHECK_FAILED, "sweep", grid, "-o", folder);
  ck_assert_has(run.errors, "4 of 4 cells run, 2 failed");
  program_run_free(&run);
  /* What has failed is not run again unless that is asked for. */
  sweep(EXIT_STATUS_CHECK_FAILED, grid, folder);
  ck_assert_uint_eq(count_logged(folder), 4);
  run = run_expecting(EXIT_STATUS_DONE, "sweep", grid, "-o", folder, "--status");
  ck_assert_has(run.output, "failed  bad.txt  bfc  h200: ");
  ck_assert_has(run.output, "bad.txt:2: ");
  ck_assert_has(run.output, "4 cells: 2 done, 2 failed, 0 not run");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_CHECK_FAILED, "sweep", grid, "-o", folder, "--retry-failed", "--quiet");
  program_run_free(&run);
  ck_assert_uint_eq(count_logged(folder), 6);
  /* Another content is another cell. */
  free(write_test_file("bad.txt", "a 1 100 0\nf 1\n"));
  sweep(EXIT_STATUS_DONE, grid, folder);
  ck_assert_uint_eq(count_logged(folder), 8);
  remove_test_folder(folder);
  free(folder);
  free(grid);
  free(text);
  free(bad);
}
END_TEST

/* Counts endings; kills the processes that run when the first comes. */
typedef struct killing {
  size_t ends[24];
  size_t failed;
  bool killed;
} killing;

static bool kill_others(void *context, size_t cell, json_t *object) {
  killing *seen = context;
  seen->ends[cell]++;
  if (sweep_result_failed(object)) {
    seen->failed++;
    ck_assert_has(json_string_value(json_object_get(object, "error")), "signal 9");
  }
  json_decref(object);
  if (seen->killed) return true;
  seen->killed = true;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
  FILE *children = fopen(path, "r");
  for (int child; children && fscanf(children, "%d", &child) == 1;) kill(child, SIGKILL);
  if (children) fclose(children);
  return true;
}

START_TEST(a_process_that_dies_fails_its_cell_alone) {
  if (access("/proc/self/task/1/children", F_OK) != 0 && access("/proc/thread-self/children", F_OK) != 0)
    test_skip("this kernel does not list a process's children");
  sweep_grid *grid;
  ck_assert_int_eq(sweep_grid_parse("trace edge sawtooth_seq\npolicy bfc gmlake aliasheap tfbfc\n"
                                    "laps {1,2,3}\n",
                                    "grid", &grid),
                   EXIT_STATUS_DONE);
  size_t cells[24];
  for (size_t i = 0; i < 24; i++) cells[i] = i;
  killing seen = {0};
  ck_assert(sweep_workers_run(grid, cells, 24, 3, kill_others, &seen));
  for (size_t i = 0; i < 24; i++) ck_assert_uint_eq(seen.ends[i], 1);
  ck_assert_uint_ge(seen.failed, 1);
  ck_assert_uint_le(seen.failed, 3);
  sweep_grid_free(grid);
}
END_TEST

START_TEST(a_disk_that_is_full_stops_the_sweep_between_cells) {
  char *grid = write_test_file("grid", GRID), *whole = fresh_test_folder("whole"),
       *full = fresh_test_folder("full");
  sweep(EXIT_STATUS_DONE, grid, whole);
  struct rlimit before, small;
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 9000;
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
  program_run run = run_expecting(EXIT_STATUS_USAGE, "sweep", grid, "-o", full, "--quiet");
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
  ck_assert_has(run.errors, "cells.jsonl cannot be written");
  ck_assert_has(run.errors, "the same command goes on from there");
  program_run_free(&run);
  char *log = read_in(full, "cells.jsonl");
  ck_assert(log[0] && log[strlen(log) - 1] == '\n');
  free(log);
  sweep(EXIT_STATUS_DONE, grid, full);
  assert_same_results(whole, full);
  ck_assert_uint_eq(count_logged(full), GRID_CELLS);
  remove_test_folder(whole);
  remove_test_folder(full);
  free(whole);
  free(full);
  free(grid);
}
END_TEST

static const struct {
  const char *arguments[4];
  const char *said;
} usages[] = {
    {{"sweep"}, "a GRID is expected"},
    {{"sweep", "none.grid"}, "none.grid cannot be read"},
    {{"sweep", "a", "b"}, "one GRID is expected"},
    {{"sweep", "a", "--shard=0/3"}, "expected K/N"},
    {{"sweep", "a", "--shard=4/3"}, "expected K/N"},
    {{"sweep", "a", "--jobs=0"}, "a whole number from 1"},
    {{"sweep", "a", "--merge", "--slurm"}, "only one of"},
    {{"sweep", "a", "--shards=3"}, "go with --slurm"},
    {{"sweep", "a", "--merge", "--shard=1/2"}, "--shard is for a run"},
    {{"sweep", "a", "--shard=1/2", "--status"}, "--shard is for a run"},
    {{"sweep", "a", "--slurm", "--shard=1/2"}, "--shard is for a run"},
    {{"sweep", "a", "--merge", "--wait"}, "--wait is for a run"},
};

START_TEST(wrong_usage_is_refused) {
  const char *const *words = usages[_i].arguments;
  program_run run = run_expecting(EXIT_STATUS_USAGE, words[0], words[1], words[2], words[3]);
  ck_assert_has(run.errors, usages[_i].said);
  program_run_free(&run);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static Suite *sweep_suite(void) {
  Suite *suite = suite_create("sweep");
  TCase *cases = tcase_create("usage");
  tcase_add_loop_test(cases, wrong_usage_is_refused, 0, COUNT(usages));
  suite_add_tcase(suite, cases);
  cases = tcase_create("sweeps");
  tcase_add_test(cases, results_do_not_depend_on_how_cells_are_run);
  tcase_add_test(cases, a_cell_is_what_replay_gives);
  tcase_add_test(cases, traces_are_made_for_a_sweep);
  tcase_add_test(cases, a_grid_that_grows_runs_what_is_new);
  tcase_add_test(cases, a_kill_loses_nothing_and_runs_nothing_twice);
  tcase_add_test(cases, half_a_line_does_not_count);
  tcase_add_test(cases, a_log_may_hold_anything);
  tcase_add_test(cases, two_sweeps_of_one_folder_are_refused);
  tcase_add_test(cases, a_cell_that_fails_stops_no_other);
  tcase_add_test(cases, a_process_that_dies_fails_its_cell_alone);
  tcase_add_test(cases, a_disk_that_is_full_stops_the_sweep_between_cells);
  suite_add_tcase(suite, cases);
  return suite;
}
TEST_MAIN(sweep_suite)
