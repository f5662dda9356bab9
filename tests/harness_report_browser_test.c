/* Reports in Chromium, where it is installed: tests/report_browser.py says what is looked at. */
#include "tests/harness_support.h"
#include "tests/test_main.h"

START_TEST(a_report_is_opened_sorted_zoomed_and_read_on_a_phone) {
  const char *reason = run_script("python3 tests/report_browser.py harness/lakebed 2>&1");
  if (reason) test_skip(reason);
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
