/* Sweeps: grid files, many processes, kills, failures, shards. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/program.h"
#include "harness/sweep.h"
#include "harness/sweep_words.h"
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

static void remove_folder(const char *path) {
  DIR *opened = opendir(path);
  if (!opened) return;
  for (struct dirent *entry = readdir(opened); entry; entry = readdir(opened)) {
    if (entry->d_name[0] != '.') unlinkat(dirfd(opened), entry->d_name, 0);
  }
  closedir(opened);
  rmdir(path);
}

/* A folder's path that nothing has yet, to be freed. */
static char *fresh_folder(const char *name) {
  char *path = test_path(name);
  remove_folder(path);
  return path;
}

static char *read_in(const char *folder, const char *name) {
  char *path = sweep_path(folder, name), *text = read_test_file(path);
  free(path);
  return text;
}

static size_t count_lines(const char *text) {
  size_t lines = 0;
  for (; *text; text++) lines += *text == '\n';
  return lines;
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

/* ---- grid files ---- */

static const struct {
  const char *text;
  const char *words[6]; /* ended by NULL */
} expansions[] = {
    {"plain", {"plain"}},
    {"a{b,c}d", {"abd", "acd"}},
    {"{x,y}{1,2}", {"x1", "x2", "y1", "y2"}},
    {"a{,b}", {"a", "ab"}},
    {"p:{k=1,2{3,4}},m", {"p:k=1,m", "p:23,m", "p:24,m"}},
    {"{one}", {"one"}},
};

START_TEST(braces_stand_for_all_combinations) {
  sweep_words words = {0};
  char message[128];
  ck_assert_msg(sweep_words_expand(&words, expansions[_i].text, message, sizeof message), "%s", message);
  size_t count = 0;
  while (expansions[_i].words[count]) count++;
  ck_assert_uint_eq(words.count, count);
  for (size_t i = 0; i < count; i++) ck_assert_str_eq(words.items[i], expansions[_i].words[i]);
  sweep_words_free(&words);
}
END_TEST

static const struct {
  const char *grid;
  const char *said;
} refusals[] = {
    {"trace edge\npolicie bfc\n", "grid:2: no setting 'policie' (did you mean policy?)"},
    {"trace\n", "grid:1: 'trace' has no value"},
    {"policy bfc\n", "nothing to replay"},
    {"", "nothing to replay"},
    {"trace edge\nalso\n", "nothing to replay"},
    {"trace edge\npolicy bfcc\n", "grid:2: there is no policy 'bfcc'"},
    {"trace edge\npolicy gmlake:frag_limit=many\n", "grid:2: "},
    {"trace edge\ncapacity lots\n", "grid:2: capacity 'lots': expected a size"},
    {"trace edge\ncapacity 3MiB\n", "grid:1: the capacity of 3145728 bytes is no multiple"},
    {"trace edge\ndevice h1000\n", "no device 'h1000'"},
    {"trace edge\nlimit 2.5\n", "grid:2: limit '2.5': expected none, a size"},
    {"trace edge\nlimit 1KiB\n", "a limit of 1024 bytes is less than"},
    {"trace edge\nlaps 0\n", "grid:2: laps '0': expected a whole number from 1"},
    {"trace edge\nfrees never\n", "grid:2: frees 'never': expected completed or requested"},
    {"trace edge\ncheck maybe\n", "grid:2: check 'maybe': expected no or yes"},
    {"trace edge\ntimeline 3\n", "grid:2: timeline '3'"},
    {"generate finetune -m opt-1.4b\n", "grid:1: 'generate finetune -m opt-1.4b' makes no trace"},
    {"generate finetune -m opt-1.4b\n", "did you mean opt-1.3b?"},
    {"generate nothing\n", "grid:1: 'generate nothing' makes no trace"},
    {"trace edge\npolicy {bfc\n", "grid:2: '{bfc': a '{' without its partner"},
    {"trace \"edge\n", "grid:1: a closing '\"' is missing"},
    {"trace nowhere\n", "grid:1: trace 'nowhere': No such file"},
    {"trace tests/none*.xz\n", "grid:1: no trace matches 'tests/none*.xz'"},
    {"trace workloads\n", "grid:1: trace 'workloads': no file that can be read again"},
    {"trace edge\nlaps {1,2,3,4,5,6,7,8,9,10}\nevent-delay {1,2,3,4,5,6,7,8,9,10}{1,2,3,4,5,6,7,8,9,10}\n"
     "timeline {16,17,18,19,20,21,22,23,24,25}{1,2,3,4,5,6,7,8,9,10}{1,2,3,4,5,6,7,8,9,10}\n",
     "the grid has more than 1000000 cells"},
};

START_TEST(what_is_wrong_in_a_grid_is_said_with_its_line) {
  char *grid = write_test_file("grid", refusals[_i].grid), *folder = fresh_folder("refused");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "sweep", grid, "-o", folder);
  ck_assert_has(run.errors, refusals[_i].said);
  ck_assert_int_ne(access(folder, F_OK), 0);
  program_run_free(&run);
  free(grid);
  free(folder);
}
END_TEST

/* Neither takes longer or more memory the longer it is. */
START_TEST(a_grid_without_an_end_is_refused) {
  program_run run = run_expecting(EXIT_STATUS_USAGE, "sweep", "/dev/zero");
  ck_assert_has(run.errors, "/dev/zero:1: expected a line without NUL bytes");
  program_run_free(&run);
  enum { LENGTH = 1 << 20 };
  char *line = malloc(LENGTH + 1);
  ck_assert_ptr_nonnull(line);
  memset(line, '{', LENGTH);
  line[LENGTH] = '\0';
  const struct {
    size_t length;
    const char *said;
  } cases[] = {{LENGTH, "grid:1: expected a shorter line"}, {10000, "more than 64 groups of braces"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    memset(line + cases[i].length / 2, '}', cases[i].length / 2);
    line[cases[i].length] = '\0';
    memcpy(line, "trace ", 6);
    memcpy(line + 6, "{{{{{{", 6);
    memset(line + cases[i].length - 6, ' ', 6);
    char *grid = write_test_file("grid", line);
    run = run_expecting(EXIT_STATUS_USAGE, "sweep", grid);
    ck_assert_has(run.errors, cases[i].said);
    program_run_free(&run);
    free(grid);
  }
  free(line);
}
END_TEST

START_TEST(a_cell_that_is_named_twice_is_run_once) {
  sweep_grid *grid;
  ck_assert_int_eq(
      sweep_grid_parse("trace edge {edge,edge}\npolicy bfc\nalso\ntrace edge\npolicy bfc,native\n", "grid",
                       &grid),
      EXIT_STATUS_DONE);
  ck_assert_uint_eq(sweep_grid_count(grid), 2);
  ck_assert_str_eq(sweep_grid_cell(grid, 1)->policy, "native");
  for (size_t i = 0; i < 2; i++) ck_assert_uint_eq(sweep_grid_find(grid, sweep_grid_cell(grid, i)->key), i);
  ck_assert_uint_eq(sweep_grid_find(grid, "0"), SIZE_MAX);
  sweep_grid_free(grid);
}
END_TEST

/* ---- sweeps ---- */

START_TEST(results_do_not_depend_on_how_cells_are_run) {
  char *grid = write_test_file("grid", GRID);
  char *one = fresh_folder("one"), *two = fresh_folder("two"), *shards = fresh_folder("shards");
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
  remove_folder(one);
  remove_folder(two);
  remove_folder(shards);
  free(one);
  free(two);
  free(shards);
  free(grid);
}
END_TEST

START_TEST(a_cell_is_what_replay_gives) {
  char *grid =
      write_test_file("grid", "trace edge\npolicy gmlake\ndevice a100\ncapacity 1GiB\ntimeline 20\n");
  char *folder = fresh_folder("single");
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
  remove_folder(folder);
  free(folder);
  free(grid);
}
END_TEST

START_TEST(traces_are_made_for_a_sweep) {
  char *grid = write_test_file(
      "grid", "generate finetune --model opt-1.3b -S {N,LR} -b 4 -i 2 # small\npolicy bfc native\n");
  char *one = fresh_folder("one"), *two = fresh_folder("two"), *made = test_path("made.txt");
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
  remove_folder(one);
  remove_folder(two);
  free(made);
  free(one);
  free(two);
  free(grid);
}
END_TEST

START_TEST(a_grid_that_grows_runs_what_is_new) {
  char *folder = fresh_folder("grown"), *grid = write_test_file("grid", "trace edge\npolicy bfc native\n");
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
  remove_folder(folder);
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
  char *whole = fresh_folder("whole"), *killed = fresh_folder("killed");
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
  remove_folder(whole);
  remove_folder(killed);
  free(whole);
  free(killed);
  free(grid);
}
END_TEST

START_TEST(half_a_line_does_not_count) {
  char *grid = write_test_file("grid", GRID), *whole = fresh_folder("whole"), *torn = fresh_folder("torn");
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
  remove_folder(whole);
  remove_folder(torn);
  free(log);
  free(whole);
  free(torn);
  free(grid);
}
END_TEST

START_TEST(a_log_may_hold_anything) {
  char *grid = write_test_file("grid", "trace edge\npolicy null\n"), *folder = fresh_folder("anything");
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
  remove_folder(folder);
  free(line);
  free(table);
  free(csv);
  free(log);
  free(folder);
  free(grid);
}
END_TEST

START_TEST(two_sweeps_of_one_folder_are_refused) {
  char *grid = write_test_file("grid", GRID), *folder = fresh_folder("busy");
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
  remove_folder(folder);
  free(folder);
  free(grid);
}
END_TEST

/* ---- failures ---- */

START_TEST(a_cell_that_fails_stops_no_other) {
  char *bad = write_test_file("bad.txt", "a 1 100 0\nf 2\n"), *folder = fresh_folder("failing"), *grid, *text;
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
  remove_folder(folder);
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
  char *grid = write_test_file("grid", GRID), *whole = fresh_folder("whole"), *full = fresh_folder("full");
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
  remove_folder(whole);
  remove_folder(full);
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
  TCase *cases = tcase_create("grids");
  tcase_add_loop_test(cases, braces_stand_for_all_combinations, 0, COUNT(expansions));
  tcase_add_loop_test(cases, what_is_wrong_in_a_grid_is_said_with_its_line, 0, COUNT(refusals));
  tcase_add_test(cases, a_grid_without_an_end_is_refused);
  tcase_add_test(cases, a_cell_that_is_named_twice_is_run_once);
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
