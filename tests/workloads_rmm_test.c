/* RMM's logs, of logging_resource_adaptor and of rmm.csv_log(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/workloads_damage.h"
#include "tests/workloads_reading.h"

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"
#define OLD_HEADER                                                                                     \
  "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,Start,End" \
  ",Elapsed,Location\n"

#define MICROSECONDS_PER_DAY UINT64_C(86400000000)

static void assert_event(const trace_event *event, trace_event_kind kind, uint64_t id, uint64_t size,
                         uint32_t stream, uint64_t time_us) {
  ck_assert_int_eq(event->kind, kind);
  ck_assert_uint_eq(event->id, id);
  ck_assert_uint_eq(event->size, size);
  ck_assert_uint_eq(event->stream, stream);
  ck_assert_uint_eq(event->time_us, time_us);
}

/* Failures are events, the clock goes on over midnight, null pointers are passed over. */
START_TEST(logging_resource_adaptor) {
  reading r;
  read_file("tests/data/traces/rmm.csv", NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_str_eq(r.summary.format, "rmm");
  ck_assert_uint_eq(r.count, 6);
  assert_event(&r.events[0], TRACE_ALLOC, 0x7f3a00000000, 1048576, 0, MICROSECONDS_PER_DAY - 10);
  assert_event(&r.events[1], TRACE_ALLOC, 0x7f3a00100000, 256, 1, MICROSECONDS_PER_DAY - 5);
  assert_event(&r.events[2], TRACE_OUT_OF_MEMORY, 0, 8589934592, 1, MICROSECONDS_PER_DAY + 2);
  assert_event(&r.events[3], TRACE_FREE, 0x7f3a00000000, 1048576, 0, MICROSECONDS_PER_DAY + 5);
  assert_event(&r.events[4], TRACE_ALLOC, 0x7f3a00000000, 3000, 2, MICROSECONDS_PER_DAY + 1000000);
  assert_event(&r.events[5], TRACE_FREE, 0x7f3a00100000, 256, 1, MICROSECONDS_PER_DAY + 1500000);
  ck_assert_uint_eq(r.recorded_streams[1], 0x55d0c0a31f20);
  ck_assert_uint_eq(r.recorded_streams[2], 2);
  ck_assert_uint_eq(r.summary.out_of_memory_events, 1);
  ck_assert_uint_eq(r.summary.other_events, 2);
  ck_assert_uint_eq(r.summary.free_size_mismatches, 1);
  ck_assert_uint_eq(r.summary.live_bytes, 3000);
  ck_assert_uint_eq(r.summary.live_peak_bytes, 1048576 + 256);
}
END_TEST

START_TEST(csv_log_of_two_devices) {
  reading r;
  read_file("tests/data/traces/rmm_old.csv", NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_str_eq(r.summary.format, "rmm");
  ck_assert_uint_eq(r.count, 4);
  assert_event(&r.events[0], TRACE_ALLOC, 0x7fae06600000, 80, 0, 1107400);
  assert_event(&r.events[1], TRACE_ALLOC, 0x7fae06600200, 4096, 1, 1200000);
  assert_event(&r.events[2], TRACE_OUT_OF_MEMORY, 0, 99999999999, 0, 1300000);
  assert_event(&r.events[3], TRACE_FREE, 0x7fae06600000, 80, 0, 1200000);
  ck_assert_uint_eq(r.summary.devices, 2);
  ck_assert_uint_eq(r.summary.other_events, 1);
  ck_assert_uint_eq(r.summary.free_size_mismatches, 0); /* this log has no sizes in frees */
  read_file("tests/data/traces/rmm_old.csv", &(trace_options){.device = 1}, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 1);
  assert_event(&r.events[0], TRACE_ALLOC, 0x7fae06600000, 64, 0, 1250000);
  read_file("tests/data/traces/rmm_old.csv", &(trace_options){.device = 2}, &r);
  assert_failed(&r, TRACE_NO_EVENTS, "holds no events of device 2, but of device 0");
  read_file("tests/data/traces/rmm.csv", &(trace_options){.device = 1}, &r);
  assert_failed(&r, TRACE_NO_EVENTS, "device 1 was asked for, but this log is of one device, 0");
}
END_TEST

/* Times with a colon before the fraction, in seconds, or none; decimal streams; columns in
 * another order or fewer; both words for a free; carriage returns. */
START_TEST(variants) {
  static const char *const texts[] = {
      HEADER "1,10:19:54:000123,allocate,0x10,8,18\r\n1,10:19:54:000124,free,0x10,8,0\r\n",
      HEADER "1,37194.000123,allocate,0x10,8,0x12\n\n1,37194.000124,deallocate,0x10,8,0x12\n",
      ",Stream,Size,Pointer,Action,Time\n0,0x12,8,0x10,allocate,10:19:54.000123\n"
      "1,0x12,8,0x10,free,10:19:54.000124999\n",
      "Action,Pointer,Size,Stream\nallocate, 0x10 ,8,0x12\nfree,0x10,8,0x12\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    reading r;
    read_text(texts[i], &r);
    ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
    ck_assert_uint_eq(r.count, 2);
    uint64_t time = i < 3 ? UINT64_C(37194000123) : 0;
    assert_event(&r.events[0], TRACE_ALLOC, 0x10, 8, 1, time);
    assert_event(&r.events[1], TRACE_FREE, 0x10, 8, 1, time == 0 ? 0 : time + 1);
    ck_assert_uint_eq(r.recorded_streams[1], 0x12);
  }
  reading r;
  read_text("Action,Pointer,Size\nallocate,0x10,8\n", &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.summary.streams, 1);
}
END_TEST

/* Threads write slightly out of order, around midnight too. */
START_TEST(clocks) {
  reading r;
  read_text(HEADER
            "1,23:59:59.9,allocate,0x10,8,0\n"
            "2,00:00:00.1,allocate,0x20,8,0\n"
            "1,23:59:59.8,allocate,0x30,8,0\n"
            "1,12:00:00.0,allocate,0x40,8,0\n"
            "1,23:59:59.0,allocate,0x50,8,0\n"
            "1,00:00:00.0,allocate,0x60,8,0\n",
            &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  static const uint64_t times[] = {
      MICROSECONDS_PER_DAY - 100000, MICROSECONDS_PER_DAY + 100000,      MICROSECONDS_PER_DAY - 200000,
      MICROSECONDS_PER_DAY * 3 / 2,  2 * MICROSECONDS_PER_DAY - 1000000, 2 * MICROSECONDS_PER_DAY,
  };
  for (int i = 0; i < 6; i++) ck_assert_uint_eq(r.events[i].time_us, times[i]);
}
END_TEST

START_TEST(rows_that_are_not_events) {
  static const struct {
    const char *row, *message;
  } rows[] = {
      {"1,0.5,Allocate,0x10,8,0\n", "memory:2: expected 'allocate', 'allocate failure', 'free'"},
      {"1,0.5,allocate fail,0x10,8,0\n", "memory:2: expected 'allocate', 'allocate failure', 'free'"},
      {"1,0.5,,0x10,8,0\n", "found nothing"},
      {"1,0.5,allocate,0x,8,0\n", "memory:2: expected an address (0x...), found '0x'"},
      {"1,0.5,allocate,0x11112222333344445,8,0\n", "found '0x11112222333344445'"},
      {"1,0.5,allocate,0x12g,8,0\n", "found '0x12g'"},
      {"1,0.5,allocate,(nil),8,0\n", "expected the address of the 8 bytes that were allocated, found null"},
      {"1,0.5,allocate,(nil)x,0,0\n", "found '(nil)x'"},
      {"1,0.5,allocate,0x10,-8,0\n", "memory:2: expected a size in bytes, found '-8'"},
      {"1,0.5,allocate,0x10,18446744073709551616,0\n", "found '18446744073709551616'"},
      {"1,0.5,allocate,0x10,18446744073709551615,0\n", "0x10 is too large: more than 2^63 bytes"},
      {"1,0.5,allocate,0x10,9223372036854775807,0\n1,0.5,allocate,0x20,9,0\n", "memory:3: 0x20 is too large"},
      {"1,0.5,allocate,0x10,8.0,0\n", "found '8.0'"},
      {"1,0.5,allocate,0x10,8,stream\n", "memory:2: expected a stream (0x... or 0), found 'stream'"},
      {"one,0.5,allocate,0x10,8,0\n", "memory:2: expected the number of a thread, found 'one'"},
      {"1,24:00:00.0,allocate,0x10,8,0\n", "memory:2: expected a time (HH:MM:SS.FRACTION, or seconds)"},
      {"1,12:60:00.0,allocate,0x10,8,0\n", "found '12:60:00.0'"},
      {"1,12:00:00.x,allocate,0x10,8,0\n", "found '12:00:00.x'"},
      {"1,12:00:00,allocate,0x10,8,0\n", "found '12:00:00'"},
      {"1,-1,allocate,0x10,8,0\n", "found '-1'"},
      {"1,1e99,allocate,0x10,8,0\n", "found '1e99'"},
      {"1,1e,allocate,0x10,8,0\n", "found '1e'"},
      {"1,9223372036855,allocate,0x10,8,0\n", "found '9223372036855'"},
      {"1,1.,allocate,0x10,8,0\n", "found '1.'"},
      {"1,0.5,allocate,0x10,8\n", "memory:2: expected 6 fields, as the header has, found 5"},
      {"1,0.5,allocate,0x10,8,0,0\n", "memory:2: expected 6 fields, as the header has, found 7"},
      {"1,0.5,allocate,0x10,8,0 # why\n", "expected a stream"},
      {"1,0.5,allocate,0x10,8,0\n1,0.6,allocate,0x10,9,0\n",
       "memory:3: 0x10 is allocated, but it is still live"},
      {"1,0.5,free,0x10,8,0\n", "memory:2: 0x10 is freed, but it was never allocated"},
      {"1,0.5,allocate,0x10,8,0\n1,0.6,free,0x10,8,0\n1,0.7,free,0x10,8,0\n",
       "memory:4: 0x10 is freed twice"},
      {"1,0.5,allocate,0x10,8,0", "memory:2: the last line has no end: the log is truncated"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char text[1024];
    snprintf(text, sizeof text, "%s%s", HEADER, rows[i].row);
    damage_refused(text, rows[i].message);
  }
  damage_refused(OLD_HEADER "Realloc,0,0x10,0,80,0,0,1,1.1,1.2,0.1,a:1\n",
                 "memory:2: a Realloc row does not say which allocation it gave back");
  damage_refused(OLD_HEADER "alloc,0,0x10,0,80,0,0,1,1.1,1.2,0.1,a:1\n", "'Alloc', 'Realloc' or 'Free'");
  damage_refused(OLD_HEADER "Alloc,64,0x10,0,80,0,0,1,1.1,1.2,0.1,a:1\n", "expected a device from 0 to 63");
  damage_refused("Action,Size,Pointer,Size\n", "memory:1: expected each column once, found 'Size'");
}
END_TEST

/* A program's mistake is part of the record: what was asked for is more than any device has. */
START_TEST(failures_of_any_size) {
  reading r;
  read_text(HEADER
            "1,0.5,allocate failure,0x0,18446744073709551615,0\n"
            "1,0.6,allocate failure,(nil),0,0x1\n",
            &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.summary.out_of_memory_events, 2);
  ck_assert_uint_eq(r.events[0].size, INT64_MAX);
  ck_assert_uint_eq(r.events[1].size, 0);
}
END_TEST

START_TEST(logs_without_events) {
  reading r;
  read_text(HEADER, &r);
  assert_failed(&r, TRACE_NO_EVENTS, "memory: holds no events");
  read_text("\n" OLD_HEADER "\n", &r);
  assert_failed(&r, TRACE_NO_EVENTS, "memory: holds no events");
  read_text(HEADER "1,0.5,allocate,(nil),0,0\n", &r);
  assert_failed(&r, TRACE_NO_EVENTS, "memory: holds no events");
  read_text("Thread,Time,Action,Pointer,Stream\n", &r);
  assert_failed(&r, TRACE_UNREADABLE, "is in no format that is known");
}
END_TEST

/* A cut log is noticed unless it is cut between two lines. */
static void check_truncated(const unsigned char *bytes, size_t length, const reading *r) {
  const unsigned char *first_end = memchr(bytes, '\n', 1024);
  size_t header = (size_t)(first_end - bytes) + 1;
  if (length <= header) {
    ck_assert_int_ne(r->status, TRACE_END);
  } else if (bytes[length - 1] == '\n') {
    ck_assert_int_eq(r->status, TRACE_END);
  } else {
    assert_failed(r, TRACE_MALFORMED, "the log is truncated");
  }
}

START_TEST(damaged_logs) {
  static const char *const names[] = {"rmm.csv", "rmm_old.csv"};
  for (int i = 0; i < 2; i++) {
    size_t size;
    unsigned char *bytes = damage_read(names[i], &size);
    damage_truncate(bytes, size, check_truncated);
    /* Not each can be seen: a digit of an address or a size may become another, and a path any path. */
    ck_assert_uint_gt(damage_flip_bits(bytes, size), size * 8 / 3);
    free(bytes);
  }
}
END_TEST

static Suite *rmm_suite(void) {
  Suite *suite = suite_create("RMM logs");
  TCase *all = tcase_create("logs");
  tcase_add_test(all, logging_resource_adaptor);
  tcase_add_test(all, csv_log_of_two_devices);
  tcase_add_test(all, variants);
  tcase_add_test(all, clocks);
  tcase_add_test(all, rows_that_are_not_events);
  tcase_add_test(all, failures_of_any_size);
  tcase_add_test(all, logs_without_events);
  tcase_add_test(all, damaged_logs);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(rmm_suite)
