/* Numbers as text, tables, CSV fields, timelines, lists of policies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/policy_specs.h"
#include "harness/replay_output.h"
#include "harness/table.h"
#include "harness/timeline.h"
#include "harness/units.h"
#include "tests/test_main.h"

START_TEST(bytes_have_three_digits) {
  static const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {{0, "0 B"},
               {1023, "1,023 B"},
               {1024, "1.00 KiB"},
               {1047999, "1,023 KiB"},
               {1048575, "1.00 MiB"},
               {UINT64_C(1099511627775), "1.00 TiB"},
               {10 << 20, "10.0 MiB"},
               {UINT64_C(149557477376), "139 GiB"},
               {UINT64_C(8617197568), "8.03 GiB"},
               {UINT64_C(10737312000), "10.0 GiB"},
               {UINT64_MAX, "16.0 EiB"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[UNITS_TEXT];
    units_bytes(cases[i].bytes, text);
    ck_assert_str_eq(text, cases[i].text);
  }
}
END_TEST

START_TEST(numbers_and_times) {
  static const struct {
    double value;
    const char *text;
  } cases[] = {{0, "0"},          {0.00001, "0.00001"},     {0.7106, "0.711"}, {0.99951, "1.00"},
               {1.005e0, "1.00"}, {9.996, "10.0"},          {99.96, "100"},    {12345.6, "12,346"},
               {-2.5, "-2.50"},   {-1234567, "-1,234,567"}, {-123, "-123"}};
  char text[UNITS_TEXT];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    units_significant(cases[i].value, text);
    ck_assert_str_eq(text, cases[i].text);
  }
  units_count(0, text);
  ck_assert_str_eq(text, "0");
  units_count(999, text);
  ck_assert_str_eq(text, "999");
  units_count(1234567, text);
  ck_assert_str_eq(text, "1,234,567");
  units_count(UINT64_MAX, text);
  ck_assert_str_eq(text, "18,446,744,073,709,551,615");
  char counted[UNITS_COUNTED];
  units_counted(1, "stream", counted);
  ck_assert_str_eq(counted, "1 stream");
  units_counted(1258, "stream", counted);
  ck_assert_str_eq(counted, "1,258 streams");
  units_time(412, text);
  ck_assert_str_eq(text, "412 ns");
  units_time(1250000, text);
  ck_assert_str_eq(text, "1.25 ms");
  units_time(999600, text);
  ck_assert_str_eq(text, "1.00 ms");
  units_time(UINT64_C(3600000000000), text);
  ck_assert_str_eq(text, "3,600 s");
}
END_TEST

/* What a function prints, to be freed. */
static char *printed_table(const table *rows) {
  char *text;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  ck_assert_ptr_nonnull(stream);
  ck_assert(table_print(rows, stream));
  fclose(stream);
  return text;
}

START_TEST(tables_align) {
  const char *titles[] = {"<name", "count"};
  table *rows = table_create(titles, 2);
  for (int i = 0; i < 40; i++) {
    table_row(rows);
    table_cell(rows, "%s", i == 39 ? "the longest of names" : "n");
    table_cell(rows, "%d", i * 1000000);
    table_cell(rows, "beyond the last column");
  }
  char *text = printed_table(rows);
  ck_assert_int_eq(strncmp(text,
                           "name                     count\n"
                           "--------------------  --------\n"
                           "n                            0\n"
                           "n                      1000000\n",
                           4 * 31),
                   0);
  ck_assert_ptr_nonnull(strstr(text, "\nthe longest of names  39000000\n"));
  free(text);
  table_destroy(rows);
  table_row(NULL);
  table_cell(NULL, "nothing");
  table_destroy(NULL);
}
END_TEST

START_TEST(csv_fields_are_quoted) {
  static const char *const cases[][2] = {{"plain", "plain"},
                                         {"a,b", "\"a,b\""},
                                         {"say \"x\"", "\"say \"\"x\"\"\""},
                                         {"two\nlines", "\"two\nlines\""},
                                         {"", ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *text;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    replay_csv_field(stream, cases[i][0]);
    fclose(stream);
    ck_assert_str_eq(text, cases[i][1]);
    free(text);
  }
}
END_TEST

START_TEST(lists_of_policies_are_split) {
  static const struct {
    const char *list, *first;
  } cases[] = {{"bfc", "bfc"},
               {"bfc,native", "bfc"},
               {"gmlake:frag_limit=2MiB,chunk=4MiB,bfc", "gmlake:frag_limit=2MiB,chunk=4MiB"},
               {"gmlake:frag_limit=2MiB,bfc:max_split_size_mb=20,x=1", "gmlake:frag_limit=2MiB"},
               {"bfc:roundup_power2_divisions=[256:1,512:2,>:8],native",
                "bfc:roundup_power2_divisions=[256:1,512:2,>:8]"},
               {"bfc:a=[1,2],b=[3,c=4],native", "bfc:a=[1,2],b=[3,c=4]"},
               {"bfc,", "bfc"},
               {",bfc", ""},
               {"bfc:a=[1,2", "bfc:a=[1,2"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_uint_eq(policy_specs_first_length(cases[i].list), strlen(cases[i].first));
  }
}
END_TEST

static timeline_point point_at(uint64_t event) {
  /* A wave with one spike in each number. */
  timeline_point point = {event, event * 10, 1000 + event % 97, 2000 + event % 89, 3000 + event % 83};
  if (event == 4321) point.live_bytes = 100000;
  if (event == 5432) point.allocated_bytes = 100001;
  if (event == 6543) point.reserved_bytes = 100002;
  if (event == 3210) point.live_bytes = 1;
  return point;
}

static bool has_point(const timeline_point *points, size_t count, uint64_t event) {
  for (size_t i = 0; i < count; i++) {
    if (points[i].event == event) return true;
  }
  return false;
}

START_TEST(timelines_keep_extremes) {
  static const size_t limits[] = {16, 17, 18, 23, 100, 1001};
  size_t limit = limits[_i];
  timeline_point *points = malloc(limit * sizeof *points);
  for (uint64_t length = 1; length <= 20000; length = length * 2 + 7) {
    timeline *line = timeline_create(limit);
    ck_assert_ptr_nonnull(line);
    for (uint64_t event = 0; event < length; event++) {
      timeline_point point = point_at(event);
      timeline_add(line, &point);
    }
    size_t count = timeline_points(line, points);
    ck_assert_uint_le(count, limit);
    if (length <= limit) ck_assert_uint_eq(count, length);
    ck_assert_uint_eq(points[0].event, 0);
    ck_assert_uint_eq(points[count - 1].event, length - 1);
    for (size_t i = 0; i < count; i++) {
      timeline_point expected = point_at(points[i].event);
      ck_assert_mem_eq(&points[i], &expected, sizeof expected);
      if (i > 0) ck_assert_uint_gt(points[i].event, points[i - 1].event);
    }
    static const uint64_t extremes[] = {3210, 4321, 5432, 6543};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
      if (extremes[i] < length) ck_assert(has_point(points, count, extremes[i]));
    }
    timeline_destroy(line);
  }
  free(points);
}
END_TEST

static Suite *output_suite(void) {
  Suite *suite = suite_create("output");
  TCase *text = tcase_create("text");
  tcase_add_test(text, bytes_have_three_digits);
  tcase_add_test(text, numbers_and_times);
  tcase_add_test(text, tables_align);
  tcase_add_test(text, csv_fields_are_quoted);
  tcase_add_test(text, lists_of_policies_are_split);
  tcase_add_loop_test(text, timelines_keep_extremes, 0, 6);
  suite_add_tcase(suite, text);
  return suite;
}

TEST_MAIN(output_suite)
