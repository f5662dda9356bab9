/* What every Check binary of this folder shares: its main function, skipping, and
 * a closing line that a program can read. A test file ends with
 *
 *   static Suite *sim_suite(void) { ... }
 *   TEST_MAIN(sim_suite)
 *
 * CK_FORK=no runs all cases in one process (for a debugger), CK_RUN_CASE=NAME
 * runs one case, as in any Check program. A case may take 120 seconds unless
 * CK_DEFAULT_TIMEOUT says otherwise. */
#ifndef LAKEBED_TESTS_TEST_MAIN_H
#define LAKEBED_TESTS_TEST_MAIN_H

#include <check.h>

/* Runs the suites (NULL-terminated) and prints each skipped test with its reason
 * and the line "lakebed-tests: passed=N failed=N skipped=N". Returns 0 when nothing
 * failed, 1 otherwise. */
int test_main(Suite *(*const *suite_functions)(void));

/* Defines main for up to many suite functions. */
#define TEST_MAIN(...)                                          \
  int main(void) {                                              \
    Suite *(*const suite_functions[])(void) = {__VA_ARGS__, 0}; \
    return test_main(suite_functions);                          \
  }

/* Ends the test whose body this stands in. It counts as skipped, not as passed.
 * reason: a string that says what is missing. */
#define test_skip(reason)                           \
  do {                                              \
    test_skip_record(__func__, __LINE__, (reason)); \
    return;                                         \
  } while (0)

/* The folder in which a test may make files and folders of its own: TEST_TMPDIR, else TMPDIR, else the
 * system's. Static. */
const char *test_scratch(void);

/* Notes a skip for the parent process. Called by test_skip. */
void test_skip_record(const char *function, int line, const char *reason);

#endif
