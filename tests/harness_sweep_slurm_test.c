/* A sweep on a real Slurm, where its packages are installed: tests/slurm_sweep.sh says what is done. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/test_main.h"

enum { SKIPPED = 77 };

START_TEST(nodes_die_and_nothing_is_lost_or_run_twice) {
  static char output[16384];
  FILE *script = popen("tests/slurm_sweep.sh harness/lakebed 2>&1", "r");
  ck_assert_ptr_nonnull(script);
  size_t length = fread(output, 1, sizeof output - 1, script);
  output[length] = '\0';
  int status = pclose(script);
  ck_assert(WIFEXITED(status));
  output[strcspn(output, WEXITSTATUS(status) == SKIPPED ? "\n" : "")] = '\0';
  if (WEXITSTATUS(status) == SKIPPED) test_skip(output);
  ck_assert_msg(WEXITSTATUS(status) == 0, "%s", output);
}
END_TEST

static Suite *sweep_slurm_suite(void) {
  Suite *suite = suite_create("sweep on Slurm");
  TCase *cases = tcase_create("slurm");
  tcase_set_timeout(cases, 300);
  tcase_add_test(cases, nodes_die_and_nothing_is_lost_or_run_twice);
  suite_add_tcase(suite, cases);
  return suite;
}
TEST_MAIN(sweep_slurm_suite)
