/* The Python package: each case runs one of tests/torch/python_checks.py. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test_main.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static const char *const checks[] = {"use_serves_all_memory",
                                     "torch_memory_functions_answer",
                                     "mistakes_are_told",
                                     "a_missing_library_is_told",
                                     "a_pytorch_that_cannot_is_told",
                                     "fractions_bound_a_policy",
                                     "a_pool_gets_segments",
                                     "a_recording_is_written",
                                     "a_recording_under_pytorch_is_its_snapshot",
                                     "a_summary_is_for_people",
                                     "a_script_runs_unchanged",
                                     "bad_command_lines_are_refused",
                                     "results_become_tables",
                                     "a_plan_is_run",
                                     "plans_end_in_time"};

static bool python_is_there(void) { return system("python3 -c 'import ctypes, runpy' >/dev/null 2>&1") == 0; }

START_TEST(python) {
  if (SANITIZED) test_skip("a sanitizer must be there before the library, and Python is not built with one");
  if (!python_is_there()) test_skip("there is no python3");
  char command[512];
  setenv("PYTHONPATH", "tests/torch/stub:harness/torch", 1);
  setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
  setenv("LAKEBED_TORCH_LIBRARY", "harness/torch/liblakebed_torch.so", 1);
  snprintf(command, sizeof command, "python3 tests/torch/python_checks.py %s", checks[_i]);
  int status = system(command);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s failed (status %d)", checks[_i], status);
}
END_TEST

static Suite *python_suite(void) {
  Suite *suite = suite_create("torch_python");
  TCase *all = tcase_create("all");
  tcase_add_loop_test(all, python, 0, sizeof checks / sizeof *checks);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(python_suite)
