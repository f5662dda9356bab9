/* Plain event files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/workloads_reading.h"

static void refused(const char *text, const char *message) {
  reading r;
  read_text(text, &r);
  assert_failed(&r, TRACE_MALFORMED, message);
}

START_TEST(events_comments_and_blank_lines) {
  reading r;
  read_text(
      "# a trace\n\n  \t\na 1 100 0\r\na 2 0\n# and\n  a 18446744073709551615\t9223372036854774783   7  # "
      "the most\n"
      "f 18446744073709551615\nf 2 #gone\nf 1\na 1 5 7",
      &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 7);
  ck_assert_str_eq(r.summary.format, "events");
  ck_assert_int_eq(r.events[0].kind, TRACE_ALLOC);
  ck_assert_uint_eq(r.events[0].size, 100);
  ck_assert_uint_eq(r.events[1].size, 0);
  ck_assert_uint_eq(r.events[2].id, UINT64_MAX);
  ck_assert_uint_eq(r.events[2].size, INT64_MAX - 1024);
  ck_assert_uint_eq(r.events[2].stream, 1);
  ck_assert_uint_eq(r.recorded_streams[1], 7);
  ck_assert_int_eq(r.events[3].kind, TRACE_FREE);
  ck_assert_uint_eq(r.events[3].slot, 2);
  ck_assert_uint_eq(r.events[6].slot, 0); /* the slot freed last is used first */
  ck_assert_uint_eq(r.slots, 3);
  ck_assert_uint_eq(r.summary.live_at_end, 1);
  ck_assert_uint_eq(r.summary.streams, 2);
}
END_TEST

START_TEST(lines_that_are_not_events) {
  refused("a 1 100 0\nb 1\n", "memory:2: expected 'a ID SIZE [STREAM]' or 'f ID', found 'b'");
  refused("a 1 100 0\nalloc 1\n", "memory:2: expected 'a ID SIZE [STREAM]' or 'f ID', found 'alloc'");
  refused("a\n", "memory:1: expected an ID (a number from 0 on), found nothing");
  refused("a x 1\n", "found 'x'");
  refused("a -1 1\n", "expected an ID (a number from 0 on), found '-1'");
  refused("a 1.5 1\n", "found '1.5'");
  refused("a 0x10 1\n", "found '0x10'");
  refused("a 18446744073709551616 1\n", "found '18446744073709551616'");
  refused("a 1\n", "memory:1: expected a SIZE (bytes, 0 to 2^63-1), found nothing");
  refused("a 1 -1\n", "expected a SIZE (bytes, 0 to 2^63-1), found '-1'");
  refused("a 1 9223372036854775808\n", "expected a SIZE (bytes, 0 to 2^63-1), found '9223372036854775808'");
  refused("a 1 18446744073709551615\n", "expected a SIZE (bytes, 0 to 2^63-1), found '18446744073709551615'");
  refused("a 1 99999999999999999999999\n",
          "expected a SIZE (bytes, 0 to 2^63-1), found '99999999999999999999999'");
  refused("a 1 2MiB 0\n", "found '2MiB'");
  refused("a 1 2 x\n", "expected a STREAM (a number from 0 on), found 'x'");
  refused("a 1 2 3 4\n", "expected the end of the line after STREAM, found '4'");
  refused("a 1 2\nf\n", "memory:2: expected an ID");
  refused("a 1 2\nf 1 2\n", "expected the end of the line after ID, found '2'");
  refused("a 1 2#3\n", "found '2#3'");
  refused("a 1 2\na \x7f-\xc3- 3\n", "found '?-?-'");
}
END_TEST

START_TEST(events_that_contradict) {
  refused("a 1 2\n\n# again\na 1 3\n", "memory:4: id 1 is allocated, but it is still live");
  refused("a 1 2\nf 2\n", "memory:2: id 2 is freed, but it was never allocated");
  refused("a 1 2\nf 1\nf 1\n", "memory:3: id 1 is freed twice");
  refused("a 1 9223372036854775807\na 2 1\n",
          "memory:2: id 2 is too large: more than 2^63 bytes would be live");
}
END_TEST

START_TEST(the_longest_line) {
  char line[2 * 4096];
  reading r;
  memset(line, ' ', sizeof line);
  memcpy(line, "a 1 2", 5);
  strcpy(line + 4096, "\nf 1\n");
  read_text(line, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.count, 2);
  strcpy(line + 4096, " \nf 1\n");
  refused(line, "memory:1: a line of more than 4096 bytes");
  memset(line, '7', sizeof line - 1);
  memcpy(line, "f ", 2);
  line[sizeof line - 1] = '\0';
  refused(line, "memory:1: a line of more than 4096 bytes");
  line[3000] = '\0';
  refused(line, "7777777777...'");
}
END_TEST

START_TEST(files_without_events) {
  reading r;
  read_text("", &r);
  assert_failed(&r, TRACE_NO_EVENTS, "memory: holds no events");
  read_text("# nothing\n\n", &r);
  assert_failed(&r, TRACE_NO_EVENTS, "memory: holds no events");
}
END_TEST

START_TEST(formats_that_are_not_known) {
  static const char *const texts[] = {"PK\x03\x04", "id,lower,upper,bytes\n",
                                      "\x7f"
                                      "ELF",
                                      "x"};
  reading r;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    read_text(texts[i], &r);
    ck_assert(!r.opened);
    assert_failed(&r, TRACE_UNREADABLE, "memory: is in no format that is known");
    assert_failed(&r, TRACE_UNREADABLE, "expected a PyTorch memory snapshot");
  }
  read_text("PK\x03\x04", &r);
  assert_failed(&r, TRACE_UNREADABLE, "it is a zip archive");
  read_file("tests/data/no such file", NULL, &r);
  assert_failed(&r, TRACE_UNREADABLE, "tests/data/no such file: cannot be opened: No such file or directory");
  read_file("tests/data", NULL, &r);
  assert_failed(&r, TRACE_UNREADABLE, "tests/data: cannot be read: Is a directory");
}
END_TEST

START_TEST(devices_are_for_snapshots) {
  reading r;
  const char text[] = "a 1 2\n";
  read_memory(text, strlen(text), &(trace_options){.device = 1}, &r);
  assert_failed(&r, TRACE_NO_EVENTS,
                "device 1 was asked for, but a trace in format events is of one device, 0");
  read_memory(text, strlen(text), &(trace_options){.seed_from_segments = true, .free_requests = true}, &r);
  ck_assert_int_eq(r.status, TRACE_END);
}
END_TEST

START_TEST(names_too_long_for_a_message_lose_their_beginning) {
  char name[1024];
  memset(name, 'd', sizeof name);
  strcpy(name + sizeof name - 11, "/trace.txt");
  trace *opened;
  trace_error error;
  ck_assert_int_eq(trace_open_memory("b", 1, name, NULL, &opened, &error), TRACE_UNREADABLE);
  ck_assert_int_eq(strncmp(error.message, "...dddd", 7), 0);
  ck_assert_ptr_nonnull(strstr(error.message, "d/trace.txt: is in no format"));
}
END_TEST

/* More ids than are remembered once freed, and slots that stay few. */
START_TEST(many_ids) {
  enum { ROUNDS = 300 * 1000, LIVE = 100 };
  size_t capacity = ROUNDS * 32, used = 0;
  char *text = malloc(capacity);
  ck_assert_ptr_nonnull(text);
  for (int i = 0; i < ROUNDS; i++) {
    used += (size_t)snprintf(text + used, capacity - used, "a %d 1\n", i);
    if (i >= LIVE) used += (size_t)snprintf(text + used, capacity - used, "f %d\n", i - LIVE);
  }
  reading r;
  read_memory(text, used, NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 2 * ROUNDS - LIVE);
  ck_assert_uint_eq(r.slots, LIVE + 1);
  ck_assert_uint_eq(r.summary.live_peak_bytes, LIVE + 1);
  free(text);
}
END_TEST

START_TEST(compressed_events_and_their_concatenation) {
  /* The bundled files are xz; two of them in a row are one stream too, whose ids then clash. */
  size_t size;
  unsigned char *bytes = read_bytes("workloads/bundled/edge.txt.xz", &size);
  ck_assert_ptr_nonnull(bytes);
  unsigned char *twice = malloc(2 * size);
  ck_assert_ptr_nonnull(twice);
  memcpy(twice, bytes, size);
  memcpy(twice + size, bytes, size);
  reading r;
  read_memory(bytes, size, NULL, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.count, 28);
  ck_assert_str_eq(r.summary.compression, "xz");
  read_memory(twice, 2 * size, NULL, &r);
  assert_failed(&r, TRACE_MALFORMED, "is allocated, but it is still live");
  ck_assert_uint_gt(r.count, 0);
  free(twice);
  free(bytes);
}
END_TEST

static Suite *events_suite(void) {
  Suite *suite = suite_create("plain events");
  TCase *all = tcase_create("events");
  tcase_add_test(all, events_comments_and_blank_lines);
  tcase_add_test(all, lines_that_are_not_events);
  tcase_add_test(all, events_that_contradict);
  tcase_add_test(all, the_longest_line);
  tcase_add_test(all, files_without_events);
  tcase_add_test(all, formats_that_are_not_known);
  tcase_add_test(all, devices_are_for_snapshots);
  tcase_add_test(all, names_too_long_for_a_message_lose_their_beginning);
  tcase_add_test(all, many_ids);
  tcase_add_test(all, compressed_events_and_their_concatenation);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(events_suite)
