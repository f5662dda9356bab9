/* Snapshots made to do harm: each gets a message with its place, none crashes, hangs or takes memory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/workloads_pickle.h"
#include "tests/workloads_reading.h"

#define SMALL "tests/data/snapshots/small.p4.pickle"

static const trace_options plain = {0};
static const trace_options seeding = {.seed_from_segments = true, .free_requests = true};

static void assert_refused(const pickle *made, const char *part) {
  reading r;
  read_memory(made->bytes, made->size, &plain, &r);
  assert_failed(&r, TRACE_MALFORMED, part);
  read_memory(made->bytes, made->size, &seeding, &r);
  assert_failed(&r, TRACE_MALFORMED, part);
}

static void assert_ops_refused(const char *ops, size_t size, const char *part) {
  pickle made = {0};
  pickle_bytes(&made, ops, size);
  assert_refused(&made, part);
  pickle_free(&made);
}
#define refused_ops(literal, part) assert_ops_refused(literal, sizeof(literal) - 1, part)

START_TEST(opcodes_that_run_code) {
  static const struct {
    uint8_t opcode;
    const char *name;
  } codes[] = {{'c', "GLOBAL"}, {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},          {'b', "BUILD"},
               {'i', "INST"},   {'o', "OBJ"},           {0x81, "NEWOBJ"},         {0x92, "NEWOBJ_EX"},
               {'P', "PERSID"}, {'Q', "BINPERSID"},     {0x82, "EXT1"},           {0x83, "EXT2"},
               {0x84, "EXT4"},  {0x97, "NEXT_BUFFER"},  {0x98, "READONLY_BUFFER"}};
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
    pickle made = {0};
    pickle_snapshot_begin(&made);
    pickle_entry(&made, "alloc", 512, 512);
    char expected[96];
    snprintf(expected, sizeof expected, "memory: offset %zu: opcode %s (0x%02x) can run code", made.size,
             codes[i].name, codes[i].opcode);
    pickle_byte(&made, codes[i].opcode);
    pickle_ops(&made, "posix\nsystem\n");
    pickle_snapshot_end(&made);
    assert_refused(&made, expected);
    pickle_free(&made);
  }
}
END_TEST

START_TEST(unknown_opcodes) {
  unsigned known = 0;
  for (unsigned opcode = 0; opcode < 256; opcode++) {
    uint8_t bytes[64] = {0x80, 4, (uint8_t)opcode};
    reading r;
    read_memory(bytes, sizeof bytes, &plain, &r);
    ck_assert_int_eq(r.status, TRACE_MALFORMED);
    char unknown[64];
    snprintf(unknown, sizeof unknown, "memory: offset 2: unknown pickle opcode 0x%02x", opcode);
    if (strcmp(r.error.message, unknown) != 0) known++;
  }
  ck_assert_uint_eq(known, 68); /* the opcodes of pickletools.opcodes in Python 3.11 */
  refused_ops("\x80\x04L1\n.", "offset 2: opcode LONG (0x4c) is not one that snapshots are written with");
  refused_ops("\x80\x04\x8f.", "opcode EMPTY_SET");
}
END_TEST

START_TEST(protocols) {
  refused_ops("\x80\x01}.", "offset 0: pickle protocol 1: expected 2, 3, 4 or 5");
  refused_ops("\x80\x06}.", "pickle protocol 6");
  refused_ops("\x80\x04\x80\x04}.", "offset 2: a second PROTO");
  refused_ops("\x80", "offset 1: the pickle ends here");
}
END_TEST

static void entry_with(pickle *made, const char *key, const char *value_ops, size_t size) {
  pickle_snapshot_begin(made);
  pickle_entry(made, "alloc", 1 << 20, 512);
  pickle_dict_begin(made);
  pickle_key_string(made, "action", "alloc");
  if (strcmp(key, "addr") != 0) pickle_key_integer(made, "addr", 512);
  if (strcmp(key, "size") != 0) pickle_key_integer(made, "size", 512);
  pickle_string(made, key);
  pickle_bytes(made, value_ops, size);
  pickle_dict_end(made);
  pickle_snapshot_end(made);
}
#define refused_value(key, literal, part)                 \
  do {                                                    \
    pickle made = {0};                                    \
    entry_with(&made, key, literal, sizeof(literal) - 1); \
    assert_refused(&made, part);                          \
    pickle_free(&made);                                   \
  } while (0)

START_TEST(integers_of_more_than_8_bytes) {
  refused_value("size", "\x8a\x09\0\0\0\0\0\0\0\x80\0", "opcode LONG1 with an integer of 9 bytes"); /* 2^63 */
  refused_value("size", "\x8a\xff", "opcode LONG1 with an integer of 255 bytes");
  refused_value("size", "\x8b\x01\0\0\0\x01", "opcode LONG4 (0x8b): integers of more than 8 bytes");
  refused_value("unknown", "\x8a\x09\0\0\0\0\0\0\0\0\x01", "9 bytes");
}
END_TEST

START_TEST(numbers_that_cannot_be) {
  refused_value("size", "J\xff\xff\xff\xff", "a trace entry whose size is negative (-1)");
  refused_value("size", "\x8a\x08\0\0\0\0\0\0\0\x80", "whose size is negative (-9223372036854775808)");
  refused_value("size", "\x8a\x01\xff", "negative (-1)");
  refused_value("size", "\x8c\x01x", "whose size is not an integer");
  refused_value("size", "G\0\0\0\0\0\0\0\0", "whose size is not an integer");
  refused_value("size", "N", "whose size is not an integer");
  refused_value("size",
                "\x8c\x05"
                "alloc",
                "whose size is not an integer");
  refused_value("addr", "J\xff\xff\xff\xff", "whose addr is negative");
  refused_value("stream", "J\xff\xff\xff\xff", "whose stream is negative");
  refused_value("time_us", "]", "whose time_us is not an integer");
  refused_value("unknown", "N\x8c\x04sizeN", "whose size is not an integer"); /* the later one counts */
  refused_value("action",
                "\x8c\x05"
                "blloc",
                "whose action is not one that is known");
  refused_value("action",
                "\x8c\x04"
                "size",
                "whose action is not one that is known");
  refused_value("action", "K\x01", "whose action is not one that is known");
  refused_value("unknown", "\x8c\x01xN", "a key without a value");
  refused_value("unknown", "NK\x01K\x02", "expected a string as the key of a dict");
}
END_TEST

START_TEST(sizes_at_the_edge) {
  pickle made = {0};
  pickle_snapshot_begin(&made);
  pickle_entry(&made, "alloc", 512, 0);
  pickle_entry(&made, "alloc", 1024, INT64_MAX);
  pickle_entry(&made, "free_completed", 1024, INT64_MAX);
  pickle_snapshot_end(&made);
  reading r;
  read_memory(made.bytes, made.size, &plain, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.events[0].size, 0);
  ck_assert_uint_eq(r.summary.largest_bytes, INT64_MAX);
  ck_assert_uint_eq(r.summary.rounded_live_peak_bytes, UINT64_C(1) << 63);
  pickle_free(&made);

  pickle_snapshot_begin(&made);
  pickle_entry(&made, "alloc", 512, 1);
  pickle_entry(&made, "alloc", 1024, INT64_MAX);
  pickle_snapshot_end(&made);
  read_memory(made.bytes, made.size, &plain, &r);
  assert_failed(&r, TRACE_MALFORMED, "more than 2^63 bytes would be live");
  pickle_free(&made);
}
END_TEST

START_TEST(what_is_missing) {
  pickle made = {0};
  pickle_snapshot_begin(&made);
  size_t place = made.size;
  pickle_dict_begin(&made);
  pickle_key_string(&made, "action", "alloc");
  pickle_key_integer(&made, "addr", 512);
  pickle_dict_end(&made);
  pickle_snapshot_end(&made);
  char expected[80];
  snprintf(expected, sizeof expected, "memory: offset %zu: a trace entry whose size is missing", place);
  assert_refused(&made, expected);
  pickle_free(&made);
  refused_ops(
      "\x80\x04}(\x8c\x0d"
      "device_traces](](}ee"
      "u.",
      "is not a dict with items");
  refused_ops(
      "\x80\x04}(\x8c\x0d"
      "device_traces](](}(ueeu.",
      "a trace entry whose action is missing");
  refused_ops(
      "\x80\x04}(\x8c\x0d"
      "device_traces](](K\x01"
      "eeu.",
      "holds something that is not a dict");
  refused_ops(
      "\x80\x04}(\x8c\x0d"
      "device_traces](K\x01"
      "eu.",
      "device_traces holds something that is not a list");
  refused_ops(
      "\x80\x04}(\x8c\x0d"
      "device_tracesK\x01u.",
      "a snapshot whose device_traces is not a list");
  refused_ops(
      "\x80\x04}(\x8c\x0d"
      "device_traces]\x8c\x0d"
      "device_traces]u.",
      "a second device_traces");
}
END_TEST

START_TEST(no_snapshots_at_all) {
  static const char expected[] = "expected a dict with device_traces";
  refused_ops("\x80\x04N.", expected);
  refused_ops("\x80\x04K\x01.", expected);
  refused_ops("\x80\x04}.", expected);
  refused_ops("\x80\x04](}}e.", expected); /* torch.cuda.memory_snapshot() of old */
  refused_ops("\x80\x04}(\x8c\x08segments]u.", expected);
  refused_ops("\x80\x04}N\x86.", expected); /* ({}, None) */
  refused_ops("\x80\x04}K\x01Ns.", "offset 3: expected a string as the key of a dict");
  refused_ops("\x80\x04.", expected);
  refused_ops(
      "\x80\x04}(\x8c\x0d"
      "device_traces]u.K",
      "data follows the end of the pickle");
}
END_TEST

START_TEST(frees_and_allocations_that_contradict) {
  pickle made = {0};
  pickle_snapshot_begin(&made);
  pickle_entry(&made, "alloc", 512, 100);
  pickle_entry(&made, "alloc", 512, 100);
  pickle_snapshot_end(&made);
  reading r;
  read_memory(made.bytes, made.size, &plain, &r);
  assert_failed(&r, TRACE_MALFORMED,
                "the allocation of 100 bytes at 0x200 is allocated, but it is still live");
  pickle_free(&made);

  pickle_snapshot_begin(&made);
  pickle_entry(&made, "alloc", 512, 100);
  pickle_entry(&made, "free_completed", 512, 100);
  pickle_entry(&made, "free_completed", 512, 100);
  pickle_snapshot_end(&made);
  read_memory(made.bytes, made.size, &plain, &r);
  assert_failed(&r, TRACE_MALFORMED, "at 0x200 is freed twice");
  ck_assert_uint_eq(r.count, 2);
  pickle_free(&made);

  pickle_snapshot_begin(&made);
  pickle_entry(&made, "alloc", 512, 100);
  pickle_entry(&made, "free_requested", 512, 100);
  pickle_entry(&made, "free_requested", 512, 100);
  pickle_snapshot_end(&made);
  read_memory(made.bytes, made.size, &(trace_options){.free_requests = true}, &r);
  assert_failed(&r, TRACE_MALFORMED, "has its free requested twice");
  pickle_free(&made);

  pickle_snapshot_begin(&made);
  for (int i = 0; i < 3; i++) pickle_entry(&made, "free_completed", 512 * (i + 1), 100);
  pickle_entry(&made, "free_requested", 512, 100);
  pickle_snapshot_end(&made);
  read_memory(made.bytes, made.size, &(trace_options){.free_requests = true}, &r);
  assert_failed(&r, TRACE_NO_EVENTS, "holds 4 entries, but no allocation among them");
  ck_assert_uint_eq(r.summary.orphan_frees, 3);
  ck_assert_uint_eq(r.summary.live_bytes, 0);
  pickle_free(&made);
}
END_TEST

START_TEST(stacks_that_do_not_hold) {
  refused_ops("\x80\x04u", "offset 2: opcode SETITEMS finds no values");
  refused_ops("\x80\x04(u", "SETITEMS finds no values");
  refused_ops("\x80\x04(e", "APPENDS finds no values");
  refused_ops("\x80\x04}e", "APPENDS finds no values");
  refused_ops("\x80\x04}s", "SETITEM finds no values");
  refused_ops("\x80\x04}K\x01s", "SETITEM finds no values");
  refused_ops("\x80\x04K\x01K\x02K\x03s", "items are set on what is not a dict");
  refused_ops("\x80\x04](NNu", "items are set on what is not a dict");
  refused_ops("\x80\x04}(NNe", "items are appended to what is not a list");
  refused_ops("\x80\x04]a", "APPEND finds no values");
  refused_ops("\x80\x04](a", "APPEND finds no values");
  refused_ops("\x80\x04NNa", "APPEND finds no values");
  refused_ops("\x80\x04t", "TUPLE finds no values");
  refused_ops("\x80\x04N\x86", "TUPLE2 finds no values");
  refused_ops("\x80\x04N(NN\x87", "TUPLE3 finds no values");
  refused_ops("\x80\x04\x94", "MEMOIZE finds no values");
  refused_ops("\x80\x04(q\0", "BINPUT finds no values");
  refused_ops("\x80\x04}(Nu.", "a key without a value");
}
END_TEST

/* Parts of a snapshot in places where their events would be lost or counted twice. */
START_TEST(parts_in_the_wrong_place) {
  static const char entry[] =
      "}(\x8c\x06"
      "action\x8c\x05"
      "alloc\x8c\x04"
      "addrK\x01\x8c\x04sizeK\x01u";
  static const struct {
    const char *before, *after;
  } places[] = {{"}(\x8c\x0d"
                 "device_traces](](",
                 "\x85"
                 "eeu."}, /* in a tuple */
                {"}(\x8c\x0d"
                 "device_traces](](",
                 "teu."},
                {"}(\x8c\x0d"
                 "device_traces](](",
                 "eau."},
                {"}(\x8c\x0d"
                 "device_traces](](",
                 "e\x85"
                 "eu."},
                {"}(\x8c\x0d"
                 "device_traces](](",
                 "](ee"
                 "eu."},
                {"}(\x8c\x0d"
                 "device_traces](](",
                 "uu."},
                {"}(\x8c\x0d"
                 "device_traces](](",
                 "NNsee"
                 "u."},
                {"}(N\x8c\x0d"
                 "device_traces](](",
                 "eeNu."}};
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    pickle made = {0};
    pickle_ops(&made, "\x80\x04");
    pickle_bytes(&made, places[i].before, strlen(places[i].before));
    pickle_bytes(&made, entry, sizeof entry - 1);
    pickle_bytes(&made, places[i].after, strlen(places[i].after));
    assert_refused(&made, "memory: offset ");
    pickle_free(&made);
  }
}
END_TEST

START_TEST(deep_nesting) {
  pickle made = {0};
  pickle_ops(&made, "\x80\x04");
  for (int i = 0; i < 100000; i++) pickle_ops(&made, "](");
  assert_refused(&made, "nested deeper than 256");
  made.size = 2;
  for (int i = 0; i < 3 * 1000 * 1000; i++) pickle_ops(&made, "]");
  assert_refused(&made, "values wait for their container");
  pickle_free(&made);
}
END_TEST

START_TEST(huge_counts) {
  refused_ops("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff", "the file is truncated");
  refused_ops("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "the file is truncated");
  refused_ops("\x80\x04\x8d\0\0\0\0\0\0\0\x80", "the file is truncated");
  refused_ops("\x80\x04X\xff\xff\xff\xffx", "the file is truncated");
  refused_ops(
      "\x80\x04"
      "B\xff\xff\xff\xffx",
      "the file is truncated");
  refused_ops("\x80\x04Nr\xff\xff\xff\xff", "memo slot 4294967295 is far beyond the 0 in use");
  refused_ops("\x80\x04j\xff\xff\xff\xff", "memo slot 4294967295 was never put");
  refused_ops("\x80\x04h\0", "memo slot 0 was never put");
}
END_TEST

START_TEST(frames_that_lie) {
  pickle made = {0};
  pickle_ops(&made, "\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff");
  pickle_ops(&made,
             "}(\x95\0\0\0\0\0\0\0\0\x8c\x0d"
             "device_traces\x95\x03\0\0\0\0\0\0\x80](](");
  pickle_entry(&made, "alloc", 512, 512);
  pickle_snapshot_end(&made);
  reading r;
  read_memory(made.bytes, made.size, &plain, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 1);
  pickle_free(&made);
}
END_TEST

/* The same slot put over and over, with and without a word that is known. */
START_TEST(memo_slots_put_again) {
  pickle made = {0};
  pickle_ops(&made,
             "\x80\x02}(\x8c\x05"
             "allocq\0\x8c\x06"
             "actionq\0q\x01\x8c\x05xxxxxq\x00\x8c\x05"
             "allocq\x00");
  pickle_string(&made, "device_traces");
  pickle_ops(&made,
             "](](}(h\x01h\x00\x8c\x04"
             "addrK\x01\x8c\x04sizeK\x02ueeu.");
  reading r;
  read_memory(made.bytes, made.size, &plain, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 1);
  ck_assert_uint_eq(r.events[0].size, 2);
  pickle_free(&made);
}
END_TEST

static Suite *hostile_suite(void) {
  Suite *suite = suite_create("hostile snapshots");
  TCase *refusals = tcase_create("refusals");
  tcase_add_test(refusals, opcodes_that_run_code);
  tcase_add_test(refusals, unknown_opcodes);
  tcase_add_test(refusals, protocols);
  tcase_add_test(refusals, integers_of_more_than_8_bytes);
  tcase_add_test(refusals, numbers_that_cannot_be);
  tcase_add_test(refusals, sizes_at_the_edge);
  tcase_add_test(refusals, what_is_missing);
  tcase_add_test(refusals, no_snapshots_at_all);
  tcase_add_test(refusals, frees_and_allocations_that_contradict);
  tcase_add_test(refusals, stacks_that_do_not_hold);
  tcase_add_test(refusals, parts_in_the_wrong_place);
  tcase_add_test(refusals, deep_nesting);
  tcase_add_test(refusals, huge_counts);
  tcase_add_test(refusals, frames_that_lie);
  tcase_add_test(refusals, memo_slots_put_again);
  suite_add_tcase(suite, refusals);
  return suite;
}

TEST_MAIN(hostile_suite)
