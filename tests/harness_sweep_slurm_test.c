/* A sweep on a real Slurm, where its packages are installed: tests/slurm_sweep.sh says what is done. */
#include "tests/harness_support.h"
#include "tests/test_main.h"

START_TEST(nodes_die_and_nothing_is_lost_or_run_twice) {
  const char *reason = run_script("tests/slurm_sweep.sh harness/lakebed 2>&1");
  if (reason) test_skip(reason);
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
