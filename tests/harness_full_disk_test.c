/* A disk that is full: every command that writes says so once and ends with 2. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/exit_status.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

enum { WORDS = 24 };

/* FULL: a file that cannot be written; with an ending, a link to it. TRACE, OTHER: traces. GRID: a sweep of
 * one. RESULT: results of a replay. A folder's name and a file in it: that file cannot be written. */
static const char *const to_files[] = {
    "replay -q -p bfc TRACE --json FULL",
    "replay -q -p bfc TRACE --csv FULL",
    "replay -q -p bfc TRACE --timeline FULL",
    "replay -q -p bfc TRACE --iterations=FULL",
    "replay -q -p bfc TRACE --report FULL",
    "replay -q -p bfc TRACE --trace-events FULL",
    "replay -q -p bfc TRACE --dump FULL.svg",
    "replay -q -p bfc TRACE --dump FULL.json",
    "oom -q -p bfc TRACE --json FULL",
    "oom -q -p bfc TRACE --csv FULL",
    "stress -q -p bfc --operations 100 --json FULL",
    "stress -q -p bfc --operations 100 --csv FULL",
    "faults -q -p native TRACE --random 0 --json FULL",
    "faults -q -p native TRACE --random 0 --csv FULL",
    "bench vmm -q --driver sim --iterations 1 --warmup 0 --max 4MiB table1 --json FULL",
    "bench vmm -q --driver sim --iterations 1 --warmup 0 --max 4MiB table1 --csv FULL",
    "bench vmm -q --driver sim --iterations 1 --warmup 0 --save-profile FULL",
    "bench alloc -q --driver sim -p bfc --iterations 1 --json FULL",
    "bench alloc -q --driver sim -p bfc --iterations 1 --csv FULL",
    "doctor --json=FULL",
    "report RESULT -o FULL",
    "trace convert -q TRACE FULL",
    "trace convert -q TRACE FULL.xz",
    "trace convert -q TRACE FULL.gz",
    "trace convert -q TRACE FULL.zst",
    "trace convert -q --format events TRACE FULL",
    "trace compare -q TRACE OTHER --csv FULL",
    "trace generate random -q FULL",
    "trace generate adversarial -q FULL",
    "trace generate finetune -q -i 1 FULL",
    "trace generate serving -q FULL",
    "sweep -q GRID -o folder/results.json",
    "sweep -q GRID -o folder/results.csv",
    "paper -q --no-figures -p native table2 -o folder/table2.csv",
    "paper -q --no-figures -p native table2 -o folder/table2.json",
    "paper -q --no-figures -p native fig3 -o folder/cells.grid",
};

static const char *const to_standard_output[] = {
    "replay -q -p bfc TRACE",
    "replay -q -p bfc TRACE --json -",
    "replay -q -p bfc TRACE --csv -",
    "replay -q -p bfc TRACE --timeline -",
    "replay -q -p bfc TRACE --iterations=-",
    "replay -q -p bfc TRACE --report -",
    "replay --help",
    "oom -q -p bfc TRACE",
    "oom -q -p bfc TRACE --json -",
    "oom -q -p bfc TRACE --csv -",
    "stress -q -p bfc --operations 100",
    "stress -q -p bfc --operations 100 --json -",
    "stress -q -p bfc --operations 100 --csv -",
    "faults -q -p native TRACE --random 0",
    "faults -q -p native TRACE --random 0 --json -",
    "faults -q -p native TRACE --random 0 --csv -",
    "bench vmm --list",
    "bench vmm -q --driver sim --iterations 1 --warmup 0 --max 4MiB table1",
    "bench vmm -q --driver sim --iterations 1 --warmup 0 --max 4MiB table1 --json -",
    "bench vmm -q --driver sim --iterations 1 --warmup 0 --max 4MiB table1 --csv -",
    "bench access --list",
    "bench alloc -q --driver sim -p bfc --iterations 1",
    "bench alloc -q --driver sim -p bfc --iterations 1 --json -",
    "bench alloc -q --driver sim -p bfc --iterations 1 --csv -",
    "doctor",
    "doctor --json",
    "policies",
    "policies bfc",
    "policies --json",
    "policies bfc --json",
    "report RESULT -o -",
    "trace info -q TRACE",
    "trace info -q --json TRACE",
    "trace convert -q TRACE -",
    "trace convert -q --format events TRACE -",
    "trace compare -q TRACE OTHER",
    "trace compare -q TRACE OTHER --csv -",
    "trace generate random -q -",
    "trace generate adversarial -q -",
    "trace generate finetune -q -i 1 -",
    "trace generate serving -q -",
    "sweep -q --status GRID",
    "paper --help",
    "--help",
    "--version",
};

/* A link in the test's folder, under a folder of its own if the name says so, to what is always full. */
static char *full_link(const char *name) {
  char *path = test_path(name), *slash = strchr(name, '/') ? strrchr(path, '/') : NULL;
  if (slash) {
    *slash = '\0';
    ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
    *slash = '/';
  }
  ck_assert(symlink("/dev/full", path) == 0);
  return path;
}

/* What a word stands for, to be freed. A link that was made for it, to be removed and freed, goes to *made.
 */
static char *expand(const char *word, char **made) {
  if (strcmp(word, "TRACE") == 0) return write_test_file("trace.txt", "a 1 1048576 0\nf 1\n");
  if (strcmp(word, "OTHER") == 0) return write_test_file("other.txt", "a 1 2097152 0\nf 1\n");
  if (strcmp(word, "GRID") == 0) return write_test_file("one.grid", "generate random\npolicy null\n");
  if (strcmp(word, "RESULT") == 0) return test_path("result.json");
  if (strstr(word, "FULL") == NULL && strncmp(word, "folder/", 7) != 0) return strdup(word);
  const char *option = strchr(word, '='), *name = option ? option + 1 : word;
  if (strcmp(name, "FULL") != 0) {
    *made = full_link(name);
    char *path = strdup(*made);
    if (strncmp(word, "folder/", 7) == 0) *strrchr(path, '/') = '\0';
    return path;
  }
  char text[64];
  snprintf(text, sizeof text, "%.*s/dev/full", (int)(name - word), word);
  return strdup(text);
}

static void ck_assert_told_once(const char *command, const char *output_path) {
  char *line = strdup(command), *words[WORDS + 1] = {NULL}, *rest = line, *made = NULL;
  size_t count = 0;
  for (char *word; (word = strsep(&rest, " "));) {
    ck_assert_uint_lt(count, WORDS);
    words[count++] = expand(word, &made);
  }
  program_run run = run_program_into(output_path, (const char *const *)words);
  ck_assert_msg(run.status == EXIT_STATUS_USAGE, "%s: ended with %d\n%s", command, run.status, run.errors);
  const char *end = strchr(run.errors, '\n');
  ck_assert_msg(end && end[1] == '\0' &&
                    (strstr(run.errors, "could not be written") || strstr(run.errors, "cannot be written")),
                "%s: said\n%s", command, run.errors);
  program_run_free(&run);
  if (made) unlink(made);
  free(made);
  for (size_t i = 0; i < count; i++) free(words[i]);
  free(line);
}

/* The trace and results of it. */
static void make_inputs(void) {
  char *made = NULL, *trace = expand("TRACE", &made), *path = test_path("result.json");
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "bfc", trace, "--json", path);
  program_run_free(&run);
  free(trace);
  free(path);
}

START_TEST(a_file_that_cannot_be_written_is_told_once) {
  if (access("/dev/full", W_OK) != 0) test_skip("there is no /dev/full to write to");
  make_inputs();
  ck_assert_told_once(to_files[_i], NULL);
}
END_TEST

START_TEST(standard_output_that_cannot_be_written_is_told_once) {
  if (access("/dev/full", W_OK) != 0) test_skip("there is no /dev/full to write to");
  make_inputs();
  ck_assert_told_once(to_standard_output[_i], "/dev/full");
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static bool begins(const char *line, const char *prefix, const char *name, size_t name_length) {
  const size_t length = strlen(prefix);
  return strncmp(line, prefix, length) == 0 && strncmp(line + length, name, name_length) == 0 &&
         line[length + name_length] == ' ';
}

/* The commands that a help lists have each a line above. */
static void ck_assert_all_tried(const char *prefix, program_run run) {
  const char *line = strstr(run.output, "Commands:\n");
  ck_assert_ptr_nonnull(line);
  size_t commands = 0;
  for (line += strlen("Commands:\n"); strncmp(line, "  ", 2) == 0; line = strchr(line, '\n') + 1) {
    const char *name = line + 2;
    const size_t length = strcspn(name, " ");
    bool tried = false;
    for (int i = 0; i < COUNT(to_standard_output); i++)
      tried |= begins(to_standard_output[i], prefix, name, length);
    ck_assert_msg(tried, "%s%.*s is not tried on a full disk", prefix, (int)length, name);
    commands++;
  }
  ck_assert_uint_gt(commands, 2);
  program_run_free(&run);
}

START_TEST(no_command_is_left_out) {
  ck_assert_all_tried("", run_expecting(EXIT_STATUS_DONE, "--help"));
  ck_assert_all_tried("trace ", run_expecting(EXIT_STATUS_DONE, "trace", "--help"));
  ck_assert_all_tried("trace generate ", run_expecting(EXIT_STATUS_DONE, "trace", "generate", "--help"));
  ck_assert_all_tried("bench ", run_expecting(EXIT_STATUS_DONE, "bench", "--help"));
}
END_TEST

static Suite *full_disk_suite(void) {
  Suite *suite = suite_create("full_disk");
  TCase *cases = tcase_create("commands");
  tcase_add_loop_test(cases, a_file_that_cannot_be_written_is_told_once, 0, COUNT(to_files));
  tcase_add_loop_test(cases, standard_output_that_cannot_be_written_is_told_once, 0,
                      COUNT(to_standard_output));
  tcase_add_test(cases, no_command_is_left_out);
  suite_add_tcase(suite, cases);
  return suite;
}

TEST_MAIN(full_disk_suite)
