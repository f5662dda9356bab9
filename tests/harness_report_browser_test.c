/* Reports in Chromium, where it is installed: tests/report_browser.py says what is looked at. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/test_main.h"

enum { SKIPPED = 77 };

START_TEST(a_report_is_opened_sorted_zoomed_and_read_on_a_phone) {
  static char output[16384];
  FILE *script = popen("python3 tests/report_browser.py harness/lakebed 2>&1", "r");
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

static Suite *report_browser_suite(void) {
  Suite *suite = suite_create("reports in a browser");
  TCase *cases = tcase_create("browser");
  tcase_set_timeout(cases, 300);
  tcase_add_test(cases, a_report_is_opened_sorted_zoomed_and_read_on_a_phone);
  suite_add_tcase(suite, cases);
  return suite;
}
TEST_MAIN(report_browser_suite)
