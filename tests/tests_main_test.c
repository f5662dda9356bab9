/* The test helper itself. */
#include "tests/test_main.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(case_passes) { ck_assert_int_eq(_i, 0); }
END_TEST

START_TEST(case_fails) { ck_assert_int_eq(_i, 1); }
END_TEST

START_TEST(case_crashes) { raise(SIGSEGV); }
END_TEST

START_TEST(case_skips) { test_skip("there is no moon"); }
END_TEST

/* One test of each kind. */
static Suite *sample_suite(void) {
  Suite *suite = suite_create("sample");
  TCase *tcase = tcase_create("each kind");
  tcase_add_test(tcase, case_passes);
  tcase_add_test(tcase, case_fails);
  tcase_add_test(tcase, case_crashes);
  tcase_add_loop_test(tcase, case_skips, 0, 3);
  suite_add_tcase(suite, tcase);
  return suite;
}

static Suite *skipping_suite(void) {
  Suite *suite = suite_create("skipping");
  TCase *tcase = tcase_create("skips");
  tcase_add_test(tcase, case_skips);
  suite_add_tcase(suite, tcase);
  return suite;
}

/* Runs test_main on a suite in a child process; stores what it printed. Returns its exit status. */
static int run_suite(Suite *(*suite_function)(void), const char *fork_mode, char *output,
                     size_t output_size) {
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    Suite *(*const suites[])(void) = {suite_function, NULL};
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv("CK_FORK", fork_mode, 1);
    unsetenv("CK_RUN_CASE");
    int status = test_main(suites);
    fflush(stdout);
    _exit(status);
  }
  close(ends[1]);
  size_t length = 0;
  ssize_t count = 0;
  while (length + 1 < output_size && (count = read(ends[0], output + length, output_size - 1 - length)) > 0) {
    length += (size_t)count;
  }
  output[length] = 0;
  close(ends[0]);
  int status = -1;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
  return WEXITSTATUS(status);
}

START_TEST(counts_each_outcome) {
  char output[8192];
  ck_assert_int_eq(run_suite(sample_suite, "yes", output, sizeof output), 1);
  ck_assert_msg(strstr(output, "\nlakebed-tests: passed=1 failed=2 skipped=3\n") != NULL, "%s", output);
  ck_assert_msg(strstr(output, "\nskipped case_skips:") != NULL, "%s", output);
  ck_assert_msg(strstr(output, ": there is no moon\n") != NULL, "%s", output);
}
END_TEST

START_TEST(counts_skips_without_fork) {
  char output[8192];
  ck_assert_int_eq(run_suite(skipping_suite, "no", output, sizeof output), 0);
  ck_assert_msg(strstr(output, "\nlakebed-tests: passed=0 failed=0 skipped=1\n") != NULL, "%s", output);
}
END_TEST

static Suite *helper_suite(void) {
  Suite *suite = suite_create("test_main");
  TCase *tcase = tcase_create("outcomes");
  tcase_add_test(tcase, counts_each_outcome);
  tcase_add_test(tcase, counts_skips_without_fork);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(helper_suite)
