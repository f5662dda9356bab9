/* The test helper itself. */
#include "tests/test_main.h"

START_TEST(passing_case) { ck_assert_int_eq(1 + 1, 2); }
END_TEST

static Suite *helper_suite(void) {
  Suite *suite = suite_create("test_main");
  TCase *tcase = tcase_create("plain");
  tcase_add_test(tcase, passing_case);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(helper_suite)
