#include "harness/verify_pattern.h"
#include "tests/test_main.h"
#include "vmm/driver.h"

START_TEST(words_tell_their_event) {
  static const uint64_t events[] = {0, 1, 77, 123456, 999999};
  static const uint64_t indices[] = {0, 1, 63, 4096, 262143};
  for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
    uint64_t pattern = verify_pattern(events[i]);
    ck_assert_uint_eq(verify_pattern_event(pattern), events[i]);
    for (size_t j = 0; j < sizeof indices / sizeof *indices; j++) {
      uint64_t event = 0, offset = 0;
      ck_assert(
          verify_pattern_find(vmm_pattern_word(pattern, indices[j]), 1000000, 2 << 20, &event, &offset));
      ck_assert_uint_eq(event, events[i]);
      ck_assert_uint_eq(offset, 8 * indices[j]);
    }
  }
}
END_TEST

START_TEST(other_words_are_not_taken_for_one) {
  uint64_t event, offset, word = 0;
  for (int i = 0; i < 50; i++) {
    ck_assert(!verify_pattern_find(word, 1000000, 1 << 20, &event, &offset));
    word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  }
  ck_assert(!verify_pattern_find(UINT64_MAX, 1000000, 1 << 20, &event, &offset));
  /* Beyond the events so far, and beyond the largest allocation. */
  ck_assert(!verify_pattern_find(vmm_pattern_word(verify_pattern(5), 3), 5, 1 << 20, &event, &offset));
  ck_assert(!verify_pattern_find(vmm_pattern_word(verify_pattern(5), 3), 6, 24, &event, &offset));
  ck_assert(verify_pattern_find(vmm_pattern_word(verify_pattern(5), 3), 6, 25, &event, &offset));
}
END_TEST

START_TEST(a_flipped_bit_is_no_other_event) {
  for (int bit = 0; bit < 64; bit++) {
    uint64_t event, offset, word = vmm_pattern_word(verify_pattern(5), 100) ^ UINT64_C(1) << bit;
    ck_assert(!verify_pattern_find(word, 1000000, 1 << 20, &event, &offset));
  }
}
END_TEST

static Suite *verify_pattern_suite(void) {
  Suite *suite = suite_create("verify pattern");
  TCase *tests = tcase_create("verify pattern");
  tcase_add_test(tests, words_tell_their_event);
  tcase_add_test(tests, other_words_are_not_taken_for_one);
  tcase_add_test(tests, a_flipped_bit_is_no_other_event);
  suite_add_tcase(suite, tests);
  return suite;
}

TEST_MAIN(verify_pattern_suite)
