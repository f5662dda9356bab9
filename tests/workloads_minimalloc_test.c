/* Lifetimes as minimalloc has them. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/workloads_damage.h"
#include "tests/workloads_reading.h"

static void assert_order(const reading *r, const char *order) {
  char found[128];
  size_t used = 0;
  ck_assert_msg(r->status == TRACE_END, "%s", r->error.message);
  for (uint64_t i = 0; i < r->count; i++) {
    used += (size_t)snprintf(found + used, sizeof found - used, "%s%llu", i == 0 ? "" : " ",
                             (unsigned long long)r->events[i].id);
    ck_assert_uint_lt(used, sizeof found);
  }
  ck_assert_str_eq(found, order);
  ck_assert_uint_eq(r->summary.live_at_end, 0);
}

/* What ends at a time has ended before anything begins at it. */
START_TEST(lifetimes) {
  reading r;
  read_file("tests/data/traces/lifetimes.csv", NULL, &r);
  ck_assert_str_eq(r.summary.format, "minimalloc");
  assert_order(&r, "2 0 0 1 1 2 3 3");
  ck_assert_uint_eq(r.summary.live_peak_bytes, 4300);
  ck_assert_uint_eq(r.events[0].size, 300);
  ck_assert_uint_eq(r.summary.streams, 1);
}
END_TEST

START_TEST(other_names_of_the_columns) {
  static const char *const texts[] = {
      "buffer,begin,upper,size\na,0,3,5\nb,3,4,6\n",
      "size,buffer_id,upper,start,offset\n5,a,3,0,0\n6,b,4,3,128\n",
      "id,lower,end,size,gaps\na,0,2,5,\nb,3,3,6, \n", /* end is the last moment, not the one after it */
      "id,lower,upper,size,comment\r\na,0,3,5,one\r\n\r\nb,3,4,6,two",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    reading r;
    read_text(texts[i], &r);
    assert_order(&r, "0 0 1 1");
    ck_assert_uint_eq(r.summary.live_peak_bytes, 6);
  }
}
END_TEST

START_TEST(rows_that_are_not_lifetimes) {
  static const struct {
    const char *row, *message;
  } rows[] = {
      {"a,0,3\n", "memory:2: expected 5 fields, as the header has, found 3"},
      {"a,0,3,4,1,1\n", "memory:2: expected 5 fields, as the header has, found 6"},
      {",0,3,4,1\n", "memory:2: expected an id, found nothing"},
      {"a,x,3,4,1\n", "memory:2: expected the time at which the life begins, found 'x'"},
      {"a,0,9223372036854775808,4,1\n", "memory:2: expected the time at which the life ends"},
      {"a,0,,4,1\n", "expected the time at which the life ends, found nothing"},
      {"a,3,3,4,1\n", "memory:2: expected a life that ends after it began, found '3'"},
      {"a,3,2,4,1\n", "memory:2: expected a life that ends after it began, found '2'"},
      {"a,0,3,-4,1\n", "memory:2: expected a size (bytes, 0 to 2^63-1), found '-4'"},
      {"a,0,3,9223372036854775808,1\n", "expected a size (bytes, 0 to 2^63-1), found '9223372036854775808'"},
      {"a,0,3,4.5,1\n", "found '4.5'"},
      {"a,0,3,4,0\n", "memory:2: expected an alignment from 1 on, found '0'"},
      {"a,0,3,4,x\n", "memory:2: expected an alignment from 1 on, found 'x'"},
      {"b,0,3,1,1\na,0,3,9223372036854775807,1\n",
       "memory:3: the buffer of this row is too large: more than 2^63 bytes would be live"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char text[256];
    snprintf(text, sizeof text, "id,lower,upper,size,alignment\n%s", rows[i].row);
    damage_refused(text, rows[i].message);
  }
  damage_refused("id,lower,upper,size,gaps\na,0,9,4,3-5\n", "memory:2: expected no gaps");
  damage_refused("id,lower,upper,size,offset\na,0,9,4,-1\n", "memory:2: expected an offset, found '-1'");
  damage_refused("id,lower,end,size\na,0,9223372036854775807,4\n",
                 "expected the time at which the life ends");
  damage_refused("id,lower,upper,size,size\na,0,9,4,4\n",
                 "memory:1: expected each column once, found 'size'");
  reading r;
  read_text("id,lower,upper,size\n", &r);
  assert_failed(&r, TRACE_NO_EVENTS, "memory: holds no events");
}
END_TEST

START_TEST(moments_at_the_edge) {
  reading r;
  read_text("id,lower,upper,size\na,-9223372036854775807,9223372036854775807,5\nb,0,1,0\n", &r);
  assert_order(&r, "0 1 1 0");
}
END_TEST

/* Rows in any order, as many as need more than the first memory, and twice. */
START_TEST(many_lifetimes) {
  enum { ROWS = 20 * 1000, LIVE = 10 };
  size_t capacity = ROWS * 40, used = 0;
  char *text = malloc(capacity);
  ck_assert_ptr_nonnull(text);
  used += (size_t)snprintf(text, capacity, "id,lower,upper,size\n");
  for (unsigned i = 0; i < ROWS; i++) {
    unsigned row = i * 7919u % ROWS;
    used += (size_t)snprintf(text + used, capacity - used, "%u,%u,%u,1\n", row, row, row + LIVE);
  }
  trace *opened;
  ck_assert_int_eq(trace_open_memory(text, used, "memory", NULL, &opened, NULL), TRACE_OK);
  for (int lap = 0; lap < 2; lap++) {
    trace_event event;
    trace_status status;
    while ((status = trace_next(opened, &event, NULL)) == TRACE_OK)
      if (event.slot >= LIVE) ck_abort_msg("slot %u", event.slot);
    ck_assert_int_eq(status, TRACE_END);
    trace_summary summary;
    trace_summary_get(opened, &summary);
    ck_assert_uint_eq(summary.allocations, ROWS);
    ck_assert_uint_eq(summary.frees, ROWS);
    ck_assert_uint_eq(summary.live_peak_bytes, LIVE);
    ck_assert_uint_eq(summary.input_bytes, used);
    ck_assert_int_eq(trace_rewind(opened, NULL), TRACE_OK);
  }
  trace_close(opened);
  free(text);
}
END_TEST

START_TEST(published_problems) {
  static const struct {
    const char *name;
    uint64_t rows, peak;
  } problems[] = {
      {"A.1048576", 154, 1048576}, {"B.1048576", 170, 1048576}, {"C.1048576", 203, 1039360},
      {"D.1048576", 213, 986112},  {"E.1048576", 215, 1048576}, {"F.1048576", 296, 1048576},
      {"G.1048576", 308, 1048576}, {"H.1048576", 316, 1048576}, {"I.1048576", 374, 1048576},
      {"J.1048576", 409, 989184},  {"K.1048576", 454, 1048576}, {"input.12", 5, 12},
  };
  char buffer[PATH_MAX];
  const char *folder = beside_the_project("public", buffer);
  if (folder == NULL) test_skip("the folder of public traces is not beside the project");
  for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s.csv", folder, problems[i].name);
    reading r;
    read_file(path, NULL, &r);
    ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
    ck_assert_uint_eq(r.summary.allocations, problems[i].rows);
    ck_assert_uint_eq(r.summary.frees, problems[i].rows);
    ck_assert_uint_eq(r.summary.live_peak_bytes, problems[i].peak);
    ck_assert_uint_eq(r.summary.live_bytes, 0);
  }
}
END_TEST

/* A file that is cut in its last number reads as one with a smaller one; anywhere else it is noticed. */
static void check_truncated(const unsigned char *bytes, size_t length, const reading *r) {
  static const char header[] = "id,lower,upper,size,alignment\n";
  if (length < sizeof header) {
    ck_assert_int_ne(r->status, TRACE_END);
    return;
  }
  size_t line = length;
  unsigned commas = 0;
  while (bytes[line - 1] != '\n') commas += bytes[--line] == ',';
  bool whole = line == length || (commas == 4 && bytes[length - 1] != ',');
  ck_assert_int_eq(r->status == TRACE_END, whole);
  if (!whole) ck_assert_int_eq(r->status, TRACE_MALFORMED);
}

START_TEST(damaged_lifetimes) {
  size_t size;
  unsigned char *bytes = damage_read("lifetimes.csv", &size);
  damage_truncate(bytes, size, check_truncated);
  /* Not each can be seen: any id, and many a digit, is as good as another. */
  ck_assert_uint_gt(damage_flip_bits(bytes, size), size * 8 / 3);
  free(bytes);
}
END_TEST

static Suite *minimalloc_suite(void) {
  Suite *suite = suite_create("minimalloc lifetimes");
  TCase *all = tcase_create("lifetimes");
  tcase_add_test(all, lifetimes);
  tcase_add_test(all, other_names_of_the_columns);
  tcase_add_test(all, rows_that_are_not_lifetimes);
  tcase_add_test(all, moments_at_the_edge);
  tcase_add_test(all, many_lifetimes);
  tcase_add_test(all, published_problems);
  tcase_add_test(all, damaged_lifetimes);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(minimalloc_suite)
