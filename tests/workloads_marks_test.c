/* Ends of iterations: what a snapshot's annotations say of them. */
#include <stdlib.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/workloads_pickle.h"
#include "tests/workloads_reading.h"

static void annotation(pickle *made, const char *stage, const char *name, int64_t device, int64_t time_us) {
  pickle_dict_begin(made);
  pickle_key_string(made, "stage", stage);
  pickle_key_string(made, "name", name);
  pickle_key_integer(made, "device", device);
  pickle_key_integer(made, "time_us", time_us);
  pickle_dict_end(made);
}

/* One allocation, and annotations as PyTorch writes them, out of order. */
static void snapshot_with_annotations(pickle *made) {
  pickle_snapshot_begin(made);
  pickle_entry(made, "alloc", 4096, 512);
  pickle_list_end(made);
  pickle_list_end(made);
  pickle_string(made, "external_annotations");
  pickle_list_begin(made);
  annotation(made, "START", "Optimizer.step#AdamW.step", 0, 50);
  annotation(made, "END", "Optimizer.step#AdamW.step", 0, 300);
  annotation(made, "END", "Optimizer.step#SGD.step", 0, 100);
  annotation(made, "END", "Optimizer.zero_grad#SGD.zero_grad", 0, 120);
  annotation(made, "END", "Optimizer.steps", 0, 130);
  annotation(made, "END", "", 0, 140);
  annotation(made, "END", "Optimizer.step#AdamW.step", 1, 200);
  pickle_dict_begin(made);
  pickle_key_string(made, "stage", "END");
  pickle_key_string(made, "name", "Optimizer.step#AdamW.step");
  pickle_key_integer(made, "time_us", 250);
  pickle_dict_end(made);
  pickle_dict_begin(made);
  pickle_key_string(made, "name", "Optimizer.step#AdamW.step");
  pickle_key_string(made, "time_us", "late");
  pickle_dict_end(made);
  pickle_list_end(made);
  pickle_dict_end(made);
  pickle_ops(made, ".");
}

static size_t read_marks(const pickle *made, const trace_options *options, uint64_t *marks) {
  trace *opened;
  trace_error error;
  trace_event event;
  size_t count = 0;
  ck_assert_int_eq(trace_open_memory(made->bytes, made->size, "marks", options, &opened, &error), TRACE_OK);
  for (int lap = 0; lap < 2; lap++) {
    trace_status status;
    while ((status = trace_next(opened, &event, &error)) == TRACE_OK) continue;
    ck_assert_msg(status == TRACE_END, "%s", error.message);
    const uint64_t *found;
    count = trace_marks(opened, &found);
    ck_assert_uint_le(count, 8);
    for (size_t i = 0; i < count; i++) marks[i] = found[i];
    ck_assert_int_eq(trace_rewind(opened, &error), TRACE_OK);
    ck_assert_uint_eq(trace_marks(opened, &found), 0);
  }
  trace_close(opened);
  return count;
}

START_TEST(optimizer_steps_of_the_device_end_iterations) {
  pickle made = {0};
  uint64_t marks[8];
  snapshot_with_annotations(&made);
  ck_assert_uint_eq(read_marks(&made, &(trace_options){.marks = true}, marks), 3);
  ck_assert_uint_eq(marks[0], 100);
  ck_assert_uint_eq(marks[1], 250);
  ck_assert_uint_eq(marks[2], 300);
  ck_assert_uint_eq(read_marks(&made, &(trace_options){.marks = true, .seed_from_segments = true}, marks), 3);
  ck_assert_uint_eq(read_marks(&made, &(trace_options){0}, marks), 0);
  pickle_free(&made);
}
END_TEST

START_TEST(annotations_change_no_event) {
  static const char *const paths[] = {"tests/data/snapshots/small.p2.pickle",
                                      "tests/data/snapshots/small.p5.pickle"};
  for (size_t i = 0; i < 2; i++) {
    reading plain, marked;
    read_file(paths[i], NULL, &plain);
    read_file(paths[i], &(trace_options){.marks = true}, &marked);
    assert_same_events(&plain, &marked);
  }
  pickle made = {0};
  snapshot_with_annotations(&made);
  reading plain, marked;
  read_memory(made.bytes, made.size, NULL, &plain);
  read_memory(made.bytes, made.size, &(trace_options){.marks = true}, &marked);
  assert_same_events(&plain, &marked);
  ck_assert_int_eq(marked.status, TRACE_END);
  pickle_free(&made);
}
END_TEST

START_TEST(what_is_no_annotation_is_refused_where_marks_are_wanted) {
  pickle made = {0};
  pickle_snapshot_begin(&made);
  pickle_entry(&made, "alloc", 4096, 512);
  pickle_list_end(&made);
  pickle_list_end(&made);
  pickle_string(&made, "external_annotations");
  pickle_list_begin(&made);
  pickle_integer(&made, 7);
  pickle_list_end(&made);
  pickle_dict_end(&made);
  pickle_ops(&made, ".");
  reading r;
  read_memory(made.bytes, made.size, NULL, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  read_memory(made.bytes, made.size, &(trace_options){.marks = true}, &r);
  assert_failed(&r, TRACE_MALFORMED, "external_annotations holds something that is not a dict with items");
  pickle_free(&made);
}
END_TEST

START_TEST(other_formats_have_no_marks) {
  trace *opened;
  trace_event event;
  const uint64_t *marks;
  static const char text[] = "a 1 100\nf 1\n";
  ck_assert_int_eq(
      trace_open_memory(text, strlen(text), "events", &(trace_options){.marks = true}, &opened, NULL),
      TRACE_OK);
  while (trace_next(opened, &event, NULL) == TRACE_OK) continue;
  ck_assert_uint_eq(trace_marks(opened, &marks), 0);
  trace_close(opened);
}
END_TEST

static Suite *marks_suite(void) {
  Suite *suite = suite_create("workloads_marks");
  TCase *cases = tcase_create("marks");
  tcase_add_test(cases, optimizer_steps_of_the_device_end_iterations);
  tcase_add_test(cases, annotations_change_no_event);
  tcase_add_test(cases, what_is_no_annotation_is_refused_where_marks_are_wanted);
  tcase_add_test(cases, other_formats_have_no_marks);
  suite_add_tcase(suite, cases);
  return suite;
}

TEST_MAIN(marks_suite)
