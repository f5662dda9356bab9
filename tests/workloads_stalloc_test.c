/* STAlloc's logs. */
#include <stdlib.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/workloads_damage.h"
#include "tests/workloads_reading.h"

START_TEST(stalloc_log) {
  reading r;
  read_file("tests/data/traces/stalloc.txt", NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_str_eq(r.summary.format, "stalloc");
  ck_assert_uint_eq(r.count, 5);
  ck_assert_int_eq(r.events[0].kind, TRACE_ALLOC);
  ck_assert_uint_eq(r.events[0].id, 0x7f1e41200000);
  ck_assert_uint_eq(r.events[0].size, 2097152);
  ck_assert_uint_eq(r.events[2].size, 1000);
  ck_assert_uint_eq(r.events[2].stream, 1);
  ck_assert_int_eq(r.events[3].kind, TRACE_FREE);
  ck_assert_uint_eq(r.events[3].slot, r.events[2].slot);
  ck_assert_uint_eq(r.recorded_streams[1], 0x55d0c0a31f20);
  ck_assert_uint_eq(r.summary.other_events, 8); /* 7 lines about the training, 1 allocation of nothing */
  ck_assert_uint_eq(r.summary.live_bytes, 2097152);
}
END_TEST

/* Each beginning that a log may have. */
START_TEST(stalloc_is_recognised) {
  static const char *const beginnings[] = {"1 0x10 8 0x20\n",
                                           "Iteration Index : 12\n",
                                           "Iteration Index : end\n",
                                           "micro-batch : W\n",
                                           "attention.mlp->SwitchMLP Layer : B-end\n",
                                           "token_permutation : F-start\n"};
  for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
    char text[128];
    strcpy(text, beginnings[i]);
    strcat(text, "1 0x1000 8 0\n");
    reading r;
    read_text(text, &r);
    ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
    ck_assert_str_eq(r.summary.format, "stalloc");
  }
}
END_TEST

START_TEST(stalloc_lines_that_are_not_events) {
  static const char first[] = "1 0x10 8 0\n";
  static const struct {
    const char *line, *message;
  } lines[] = {
      {"2 0x20 8 0\n", "memory:2: expected '1 ADDRESS SIZE STREAM' (allocation), '0 ADDRESS SIZE STREAM'"},
      {"malloc 0x20 8 0\n", "or a line that says where the training is, found 'malloc'"},
      {"Iteration Index : -1\n", "found 'Iteration'"},
      {"micro-batch : X\n", "found 'micro-batch'"},
      {"micro-batch : F-start\n", "found 'micro-batch'"},
      {"mlp->MoELayer Layer : F-begin\n", "found 'mlp->MoELayer'"},
      {": F-start\n", "found ':'"},
      {"1 7f20 8 0\n", "memory:2: expected an ADDRESS (0x...), found '7f20'"},
      {"1 0x20 -8 0\n", "memory:2: expected a SIZE (bytes, 0 to 2^63-1), found '-8'"},
      {"1 0x20 9223372036854775808 0\n", "expected a SIZE"},
      {"1 0x20 9223372036854775807 0\n", "0x20 is too large: more than 2^63 bytes"},
      {"1 0x20 8\n", "memory:2: expected a STREAM (0x... or 0), found nothing"},
      {"1 0x20 8 0 0\n", "memory:2: expected the end of the line after STREAM, found '0'"},
      {"1 0 8 0\n", "memory:2: expected the address of the 8 bytes that were allocated, found null"},
      {"1 0x10 9 0\n", "memory:2: 0x10 is allocated, but it is still live"},
      {"0 0x20 9 0\n", "memory:2: 0x20 is freed, but it was never allocated"},
      {"0 0x10 8 0\n0 0x10 8 0\n", "memory:3: 0x10 is freed twice"},
      {"0 0x10 8 0", "memory:2: the last line has no end: the log is truncated"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    char text[256];
    strcpy(text, first);
    strcat(text, lines[i].line);
    damage_refused(text, lines[i].message);
  }
  reading r;
  read_text("Iteration Index : 0\n0 0 0 0\n", &r);
  assert_failed(&r, TRACE_NO_EVENTS, "memory: holds no events");
}
END_TEST

START_TEST(stalloc_frees_of_another_size) {
  reading r;
  read_text("1 0x10 8 0\n0 0x10 9 0\n", &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.events[1].size, 8);
  ck_assert_uint_eq(r.summary.free_size_mismatches, 1);
}
END_TEST

static void check_truncated(const unsigned char *bytes, size_t length, const reading *r) {
  if (length == 0) {
    assert_failed(r, TRACE_NO_EVENTS, "holds no events");
  } else if (bytes[length - 1] == '\n') {
    ck_assert_int_eq(r->status, TRACE_END);
  } else {
    ck_assert(r->status == TRACE_MALFORMED || r->status == TRACE_UNREADABLE);
    if (r->opened) assert_failed(r, TRACE_MALFORMED, "the log is truncated");
  }
}

START_TEST(damaged_stalloc_logs) {
  size_t size;
  unsigned char *bytes = damage_read("stalloc.txt", &size);
  damage_truncate(bytes, size, check_truncated);
  /* Not each can be seen: any name of a layer is as good as another. */
  ck_assert_uint_gt(damage_flip_bits(bytes, size), size * 8 / 3);
  free(bytes);
}
END_TEST

static Suite *stalloc_suite(void) {
  Suite *suite = suite_create("STAlloc logs");
  TCase *all = tcase_create("logs");
  tcase_add_test(all, stalloc_log);
  tcase_add_test(all, stalloc_is_recognised);
  tcase_add_test(all, stalloc_lines_that_are_not_events);
  tcase_add_test(all, stalloc_frees_of_another_size);
  tcase_add_test(all, damaged_stalloc_logs);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(stalloc_suite)
