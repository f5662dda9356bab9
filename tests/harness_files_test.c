/* Files that the program writes: all of one, or what it held before. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/exit_status.h"
#include "harness/output_file.h"
#include "harness/program.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define BEFORE "what was here before\n"
#define TRACE "a 1 1048576 0\nf 1\n"

static void ck_assert_content(const char *path, const char *content) {
  char *text = read_test_file(path);
  ck_assert_str_eq(text, content);
  free(text);
}

/* No file that is written is left beside those that the test made. */
static void ck_assert_no_partial_files(void) {
  char *folder = test_path(".");
  DIR *listing = opendir(folder);
  ck_assert_ptr_nonnull(listing);
  for (const struct dirent *entry; (entry = readdir(listing));)
    ck_assert_msg(!strstr(entry->d_name, ".partial-"), "%s is left behind", entry->d_name);
  closedir(listing);
  free(folder);
}

START_TEST(an_output_has_its_name_when_it_is_whole) {
  char *path = write_test_file("named.txt", BEFORE);
  FILE *stream = output_open(path);
  ck_assert_ptr_nonnull(stream);
  fputs("half", stream);
  fflush(stream);
  ck_assert_content(path, BEFORE);
  output_abandon(stream, path);
  ck_assert_content(path, BEFORE);
  stream = output_open(path);
  ck_assert_ptr_nonnull(stream);
  ck_assert_ptr_null(output_open(path));
  fputs("whole", stream);
  ck_assert(output_close(stream, path, true));
  ck_assert_content(path, "whole");
  ck_assert_ptr_null(output_open(""));
  ck_assert_no_partial_files();
  free(path);
}
END_TEST

/* The file that a link leads to is not there yet: still one file for two results. */
START_TEST(links_that_lead_nowhere_name_their_target) {
  char *trace = write_test_file("trace.txt", TRACE), *target = test_path("yet_to_be.txt");
  char *link = test_path("dangling.txt"), *further = test_path("further.txt");
  ck_assert_int_eq(symlink("yet_to_be.txt", link), 0);
  ck_assert_int_eq(symlink(link, further), 0);
  const char *const pairs[][2] = {{target, link}, {link, target}, {further, link}, {target, further}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "--policy", "bfc", "--json",
                                    pairs[i][0], "--csv", pairs[i][1], trace);
    program_run_free(&run);
    ck_assert_int_ne(access(target, F_OK), 0);
  }
  unlink(further);
  unlink(link);
  free(further);
  free(link);
  free(target);
  free(trace);
}
END_TEST

START_TEST(links_and_devices_stay) {
  char *target = write_test_file("target.txt", BEFORE), *link = test_path("link.txt");
  char *trace = write_test_file("linked.txt", TRACE);
  struct stat about;
  ck_assert_int_eq(symlink("target.txt", link), 0);
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--policy", "bfc", "--csv", link, trace);
  program_run_free(&run);
  ck_assert(lstat(link, &about) == 0 && S_ISLNK(about.st_mode));
  char *text = read_test_file(target);
  ck_assert_int_eq(strncmp(text, "# program: lakebed ", 19), 0);
  free(text);
  run = run_expecting(EXIT_STATUS_DONE, "trace", "convert", "-q", "--format", "events", trace, link);
  program_run_free(&run);
  ck_assert(lstat(link, &about) == 0 && S_ISLNK(about.st_mode));
  ck_assert_content(target, TRACE);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "--policy", "bfc", "--json", "/dev/full", trace);
  ck_assert_has(run.errors, "/dev/full could not be written");
  program_run_free(&run);
  ck_assert_no_partial_files();
  unlink(link);
  free(link);
  free(target);
  free(trace);
}
END_TEST

START_TEST(refused_outputs_change_nothing) {
  char *trace = write_test_file("kept_trace.txt", TRACE), *path = write_test_file("kept.txt", BEFORE);
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "--json", path, "--csv", path, trace);
  ck_assert_has(run.errors, "kept.txt cannot be written: it is being written already");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--json", path, "--csv", "/nowhere/at/all", trace);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--timeline", trace, trace);
  ck_assert_has(run.errors, "kept_trace.txt cannot be written: it is a trace");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--trace-events", trace, trace);
  ck_assert_has(run.errors, "kept_trace.txt cannot be written: it is a trace");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--trace-events", path, "--json", path, trace);
  ck_assert_has(run.errors, "kept.txt cannot be written: it is being written already");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--trace-events", path, "--csv", "/nowhere/at/all", trace);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "bench", "vmm", "--driver", "sim", "--save-profile", path, "--json",
                      path);
  ck_assert_has(run.errors, "kept.txt cannot be written: it is being written already");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "convert", "-q", trace, trace);
  ck_assert_has(run.errors, "kept_trace.txt cannot be written: it is the trace to convert");
  program_run_free(&run);
  char *link = test_path("kept_link.txt");
  ck_assert_int_eq(symlink("kept_trace.txt", link), 0);
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "convert", "-q", trace, link);
  ck_assert_has(run.errors, "kept_link.txt cannot be written: it is the trace to convert");
  program_run_free(&run);
  unlink(link);
  free(link);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--csv", "-", "--timeline", "-", trace);
  ck_assert_has(run.errors, "only one of");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "oom", "--json", path, "--csv", trace, trace);
  ck_assert_has(run.errors, "kept_trace.txt cannot be written: it is a trace");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "faults", "--csv", trace, trace);
  ck_assert_has(run.errors, "kept_trace.txt cannot be written: it is a trace");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "stress", "--csv", path, "--save-program", path);
  ck_assert_has(run.errors, "kept.txt cannot be written: it is being written already");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "bench", "alloc", "--json", "-", "--csv", "-");
  ck_assert_has(run.errors, "only one of the files can go to standard output");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "bench", "alloc", "--json", path, "--csv", "/nowhere/at/all");
  program_run_free(&run);
  ck_assert_content(path, BEFORE);
  ck_assert_content(trace, TRACE);
  ck_assert_no_partial_files();
  free(path);
  free(trace);
}
END_TEST

START_TEST(help_names_the_outputs_of_each_command) {
  static const char *const commands[][3] = {
      {"replay", NULL, "write the results as CSV, a row a policy\n"},
      {"oom", NULL, "write the results as CSV, a row a policy\n"},
      {"stress", NULL, "write the results as CSV, a row a policy\n"},
      {"faults", NULL,
       "write the results as CSV, a row a policy, program\n                             and call\n"},
      {"bench", "vmm", "write the results as CSV\n"},
      {"bench", "access", "write the results as CSV\n"},
      {"bench", "alloc", "write the results as CSV\n"}};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    const char *const words[] = {commands[i][0], commands[i][1] ? commands[i][1] : "--help", "--help", NULL};
    program_run run = run_program_into(NULL, words);
    ck_assert_int_eq(run.status, EXIT_STATUS_DONE);
    ck_assert_has(run.output, "--json=FILE|-          write the results as JSON\n");
    ck_assert_has(run.output, commands[i][2]);
    ck_assert_has(run.output, "-q, --quiet                no progress\n");
    program_run_free(&run);
  }
}
END_TEST

/* Of a signal of the program's end only what was there before is left. */
static const struct {
  int number;
  const char *arguments[9];
} interrupted[] = {
    {SIGINT, {"replay", "-q", "--policy", "bfc", "--json", "OUT", "PIPE"}},
    {SIGTERM, {"replay", "-q", "--policy", "bfc", "--csv", "OUT", "PIPE"}},
    {SIGTERM, {"trace", "convert", "-q", "PIPE", "OUT"}},
    {SIGQUIT, {"trace", "convert", "-q", "PIPE", "OUT"}},
    {SIGINT, {"bench", "vmm", "--driver", "sim", "--iterations", "1000000", "--csv", "OUT"}},
};

static bool is_begun(const char *path, pid_t child) {
  static const char *const endings[] = {"", "-0"};
  char partial[1200];
  bool begun = false;
  for (size_t i = 0; i < 2; i++) {
    snprintf(partial, sizeof partial, "%s.partial-%ld%s", path, (long)child, endings[i]);
    begun |= access(partial, F_OK) == 0;
  }
  return begun;
}

START_TEST(a_signal_leaves_nothing_behind) {
  char *path = write_test_file("interrupted.txt", BEFORE), *pipe_path = test_path("interrupted.pipe");
  ck_assert_int_eq(mkfifo(pipe_path, 0600), 0);
  /* Held open, so that it never ends. */
  int pipe_file = open(pipe_path, O_RDWR | O_NONBLOCK);
  ck_assert_int_ge(pipe_file, 0);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL); /* Check has its own actions */
    signal(SIGTERM, SIG_DFL);
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    static char name[] = "lakebed";
    char *argv[10] = {name};
    int argc = 1;
    for (const char *const *word = interrupted[_i].arguments; *word; word++) {
      bool is_path = strcmp(*word, "OUT") == 0, is_pipe = strcmp(*word, "PIPE") == 0;
      argv[argc++] = is_path ? path : is_pipe ? pipe_path : strdup(*word);
    }
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
    _exit((int)program_main(argc, argv));
  }
  for (int i = 0; i < 1000 && !is_begun(path, child); i++) {
    while (write(pipe_file, TRACE, strlen(TRACE)) > 0) continue;
    usleep(10000);
  }
  ck_assert(is_begun(path, child));
  ck_assert_int_eq(kill(child, interrupted[_i].number), 0);
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == interrupted[_i].number, "ended with %#x",
                (unsigned)status);
  ck_assert_content(path, BEFORE);
  ck_assert_no_partial_files();
  close(pipe_file);
  unlink(pipe_path);
  free(pipe_path);
  free(path);
}
END_TEST

START_TEST(a_file_that_may_not_grow_is_no_result) {
  char *path = test_path("limited.txt");
  const struct rlimit limit = {4096, RLIM_INFINITY};
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  program_run run = run_program("trace", "generate", "random", "-q", path, (const char *)NULL);
  const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_FSIZE, &none);
  ck_assert_int_eq(run.status, EXIT_STATUS_USAGE);
  ck_assert_has(run.errors, "limited.txt");
  ck_assert_int_ne(access(path, F_OK), 0);
  ck_assert_no_partial_files();
  program_run_free(&run);
  free(path);
}
END_TEST

START_TEST(doctor_writes_as_others_do) {
  char *target = write_test_file("doctor_target.json", BEFORE), *link = test_path("doctor.json");
  struct stat about;
  ck_assert_int_eq(symlink("doctor_target.json", link), 0);
  ck_assert_ptr_nonnull(link);
  char argument[1200];
  snprintf(argument, sizeof argument, "--json=%s", link);
  program_run run = run_program("doctor", argument, (const char *)NULL);
  program_run_free(&run);
  ck_assert(lstat(link, &about) == 0 && S_ISLNK(about.st_mode));
  char *text = read_test_file(target);
  ck_assert_has(text, "\"findings\"");
  free(text);
  run = run_expecting(EXIT_STATUS_USAGE, "doctor", "--json=/dev/full");
  ck_assert_has(run.errors, "/dev/full could not be written");
  program_run_free(&run);
  unlink(link);
  free(link);
  free(target);
}
END_TEST

static Suite *files_suite(void) {
  Suite *suite = suite_create("files");
  TCase *outputs = tcase_create("outputs");
  tcase_add_test(outputs, an_output_has_its_name_when_it_is_whole);
  tcase_add_test(outputs, links_that_lead_nowhere_name_their_target);
  tcase_add_test(outputs, links_and_devices_stay);
  tcase_add_test(outputs, refused_outputs_change_nothing);
  tcase_add_test(outputs, help_names_the_outputs_of_each_command);
  tcase_add_test(outputs, a_file_that_may_not_grow_is_no_result);
  tcase_add_test(outputs, doctor_writes_as_others_do);
  tcase_add_loop_test(outputs, a_signal_leaves_nothing_behind, 0,
                      (int)(sizeof interrupted / sizeof *interrupted));
  suite_add_tcase(suite, outputs);
  return suite;
}

TEST_MAIN(files_suite)
