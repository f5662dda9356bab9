/* Lakebed's own format, and the writer of it and of plain events. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test_main.h"
#include "tests/workloads_reading.h"
#include "workloads/trace_writer.h"

#define SMALL "tests/data/snapshots/small.p4.pickle"

static const trace_options everything = {.free_requests = true, .seed_from_segments = true};
static const trace_options requests = {.free_requests = true};

static char folder[PATH_MAX];

static void make_folder(void) {
  snprintf(folder, sizeof folder, "%s/lakebed-test-XXXXXX", test_scratch());
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void) {
  DIR *entries = opendir(folder);
  ck_assert_ptr_nonnull(entries);
  const struct dirent *entry;
  while ((entry = readdir(entries)) != NULL) unlinkat(dirfd(entries), entry->d_name, 0);
  closedir(entries);
  ck_assert_int_eq(rmdir(folder), 0);
}

/* Good until the second call after this one. */
static const char *in_folder(const char *name) {
  static char paths[2][PATH_MAX + 64];
  static unsigned calls;
  char *path = paths[calls++ % 2];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static unsigned files_in_folder(void) {
  DIR *entries = opendir(folder);
  ck_assert_ptr_nonnull(entries);
  unsigned count = 0;
  const struct dirent *entry;
  while ((entry = readdir(entries)) != NULL) count += entry->d_name[0] != '.';
  closedir(entries);
  return count;
}

static uint64_t convert(const char *from, const trace_options *options, const char *to,
                        trace_file_format format) {
  trace *opened;
  trace_writer *writer;
  trace_error error;
  ck_assert_int_eq(trace_open(from, options, &opened, &error), TRACE_OK);
  ck_assert_int_eq(trace_writer_open(to, format, &writer, &error), TRACE_OK);
  trace_event event;
  while (trace_next(opened, &event, &error) == TRACE_OK) {
    uint64_t stream = trace_stream_recorded(opened, event.stream);
    ck_assert_int_eq(trace_writer_add(writer, &event, stream, &error), TRACE_OK);
  }
  trace_close(opened);
  uint64_t left_out = trace_writer_left_out(writer);
  ck_assert_int_eq(trace_writer_finish(writer, &error), TRACE_OK);
  return left_out;
}

START_TEST(a_snapshot_written_and_read_again) {
  static const char *const names[] = {"t.lakebed", "t.lakebed.xz", "t.lakebed.gz", "t.lakebed.zst"};
  static const char *const compressions[] = {"none", "xz", "gzip", "zstd"};
  reading expected, r;
  read_file(SMALL, &everything, &expected);
  ck_assert_uint_gt(expected.count, 12);
  for (size_t i = 0; i < 4; i++) {
    ck_assert_uint_eq(convert(SMALL, &everything, in_folder(names[i]), TRACE_FILE_LAKEBED), 0);
    read_file(in_folder(names[i]), &requests, &r);
    assert_same_events(&expected, &r);
    ck_assert_str_eq(r.summary.format, "lakebed");
    ck_assert_str_eq(r.summary.compression, compressions[i]);
    ck_assert_uint_eq(r.summary.out_of_memory_events, 1);
  }
  read_file(SMALL, &(trace_options){.seed_from_segments = true}, &expected);
  read_file(in_folder(names[1]), NULL, &r);
  assert_same_events(&expected, &r);
}
END_TEST

START_TEST(plain_events_leave_out_what_they_cannot_hold) {
  reading expected, r;
  read_file(SMALL, NULL, &expected);
  ck_assert_uint_eq(convert(SMALL, &requests, in_folder("t.txt.zst"), TRACE_FILE_EVENTS), 3 + 1);
  read_file(in_folder("t.txt.zst"), NULL, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.count, expected.count - 1);
  ck_assert_uint_eq(r.summary.live_peak_bytes, expected.summary.live_peak_bytes);
  ck_assert_uint_eq(r.summary.streams, expected.summary.streams);
}
END_TEST

/* A real recording, through all compressions. */
START_TEST(a_recording_there_and_back) {
  static const char from[] = "workloads/bundled/opt-1.3b-N-b8-s512-w4-v1.pickle.xz";
  trace_events expected, loaded;
  trace_error error;
  ck_assert_int_eq(trace_load(from, &requests, &expected, &error), TRACE_OK);
  convert(from, &requests, in_folder("r.zst"), TRACE_FILE_LAKEBED);
  convert(in_folder("r.zst"), &requests, in_folder("again.gz"), TRACE_FILE_LAKEBED);
  ck_assert_int_eq(trace_load(in_folder("again.gz"), &requests, &loaded, &error), TRACE_OK);
  ck_assert_uint_eq(loaded.count, expected.count);
  for (uint64_t i = 0; i < expected.count; i++) assert_same_event(&loaded.events[i], &expected.events[i]);
  ck_assert_uint_eq(loaded.slots, expected.slots);
  trace_events_free(&loaded);
  trace_events_free(&expected);
}
END_TEST

START_TEST(exactly_these_lines) {
  static const trace_event events[] = {
      {.kind = TRACE_ALLOC, .id = 7, .size = 100, .time_us = 0},
      {.kind = TRACE_ALLOC, .id = 8, .size = 0, .stream = 1, .time_us = 1795985714661019},
      {.kind = TRACE_FREE_REQUESTED, .id = 7, .time_us = 1795985714661030},
      {.kind = TRACE_OUT_OF_MEMORY, .size = INT64_MAX, .stream = 1, .time_us = 1795985714661025},
      {.kind = TRACE_FREE, .id = 7, .time_us = 1795985714661025},
  };
  static const char expected[] =
      "lakebed-trace 1\na 7 100 0\ns 1 593655040\nt 1795985714661019\na 8 0 1\nr 7 11\n"
      "o 9223372036854775807 1 -5\nf 7\ne 5\n";
  trace_writer *writer;
  trace_error error;
  ck_assert_int_eq(trace_writer_open(in_folder("lines"), TRACE_FILE_LAKEBED, &writer, &error), TRACE_OK);
  for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
    uint64_t stream = events[i].stream == 1 ? 593655040 : 0;
    ck_assert_int_eq(trace_writer_add(writer, &events[i], stream, &error), TRACE_OK);
  }
  ck_assert_int_eq(trace_writer_finish(writer, &error), TRACE_OK);
  size_t size;
  unsigned char *bytes = read_bytes(in_folder("lines"), &size);
  ck_assert_uint_eq(size, sizeof expected - 1);
  ck_assert_mem_eq(bytes, expected, size);
  free(bytes);
}
END_TEST

START_TEST(no_half_of_a_file) {
  static const trace_event event = {.kind = TRACE_ALLOC, .id = 7, .size = 100};
  trace_writer *writer;
  trace_error error;
  ck_assert_int_eq(trace_writer_open(in_folder("a.xz"), TRACE_FILE_LAKEBED, &writer, &error), TRACE_OK);
  ck_assert_int_eq(trace_writer_add(writer, &event, 0, &error), TRACE_OK);
  ck_assert_int_ne(access(in_folder("a.xz"), F_OK), 0); /* not before it is complete */
  trace_writer_abandon(writer);
  ck_assert_uint_eq(files_in_folder(), 0);
  trace_writer_abandon(NULL);
  ck_assert_int_eq(trace_writer_open(in_folder("a.gz"), TRACE_FILE_EVENTS, &writer, &error), TRACE_OK);
  ck_assert_int_eq(trace_writer_finish(writer, &error), TRACE_OK);
  ck_assert_uint_eq(files_in_folder(), 1);
  struct stat about;
  ck_assert_int_eq(stat(in_folder("a.gz"), &about), 0);
  mode_t mask = umask(0);
  umask(mask);
  ck_assert_uint_eq(about.st_mode & 0777, 0666 & ~mask);
}
END_TEST

START_TEST(files_that_cannot_be_written) {
  static const trace_event event = {.kind = TRACE_ALLOC, .id = 7, .size = 100};
  trace_writer *writer;
  trace_error error;
  ck_assert_int_eq(trace_writer_open(in_folder("none/a"), TRACE_FILE_LAKEBED, &writer, &error),
                   TRACE_UNWRITABLE);
  ck_assert_ptr_null(writer);
  ck_assert_ptr_nonnull(strstr(error.message, "none/a: cannot be created: No such file or directory"));
  ck_assert_int_eq(trace_writer_open(folder, TRACE_FILE_LAKEBED, &writer, &error), TRACE_UNWRITABLE);
  if (access("/dev/full", W_OK) != 0) test_skip("there is no /dev/full to write to");
  ck_assert_int_eq(trace_writer_open("/dev/full", TRACE_FILE_LAKEBED, &writer, &error), TRACE_OK);
  trace_status status = TRACE_OK;
  for (int i = 0; i < 100 * 1000 && status == TRACE_OK; i++)
    status = trace_writer_add(writer, &event, 0, &error);
  ck_assert_int_eq(status, TRACE_UNWRITABLE);
  ck_assert_ptr_nonnull(strstr(error.message, "/dev/full: cannot be written: No space left on device"));
  trace_writer_abandon(writer);
  ck_assert_int_eq(trace_writer_open("/dev/full", TRACE_FILE_LAKEBED, &writer, &error), TRACE_OK);
  ck_assert_int_eq(trace_writer_finish(writer, &error), TRACE_UNWRITABLE);
}
END_TEST

static void refused(const char *lines, trace_status status, const char *message) {
  char text[512];
  snprintf(text, sizeof text, "lakebed-trace 1\n%s", lines);
  reading r;
  read_memory(text, strlen(text), &requests, &r);
  assert_failed(&r, status, message);
}

START_TEST(lines_that_are_refused) {
  reading r;
  read_text("lakebed-trace 2\ne 0\n", &r);
  assert_failed(&r, TRACE_MALFORMED,
                "memory:1: version 2 of the lakebed trace format: this program reads version 1");
  read_text("lakebed-trace x\n", &r);
  assert_failed(&r, TRACE_MALFORMED, "memory:1: expected the version of the lakebed trace format, found 'x'");
  read_text("lakebed-trace 1 1\n", &r);
  assert_failed(&r, TRACE_MALFORMED, "memory:1: expected the version");
  refused("e 0\n", TRACE_NO_EVENTS, "memory: holds no events");
  refused("", TRACE_MALFORMED, "memory:1: the trace ends without its 'e EVENTS' line: the file is truncated");
  refused("a 1 2 0\n", TRACE_MALFORMED, "the file is truncated");
  refused("a 1 2 0\ne 2\n", TRACE_MALFORMED, "memory:3: the trace says it has 2 events, 1 were read");
  refused("a 1 2 0\ne 1\na 2 2 0\n", TRACE_MALFORMED, "memory:4: expected nothing after the 'e EVENTS' line");
  refused("a 1 2 0\ne\n", TRACE_MALFORMED, "expected 'e EVENTS', found nothing");
  refused("x 1\n", TRACE_MALFORMED,
          "memory:2: expected a line that begins with a, f, r, o, s, t or e, found 'x'");
  refused("a x\n", TRACE_MALFORMED, "expected an ID");
  refused("a 1 9223372036854775808 0\n", TRACE_MALFORMED, "expected a SIZE");
  refused("a 1 2\n", TRACE_MALFORMED, "expected a stream INDEX");
  refused("a 1 2 1\n", TRACE_MALFORMED, "expected a stream INDEX that an 's' line has declared");
  refused("s 2 5\n", TRACE_MALFORMED, "expected the stream INDEX 1");
  refused("s 1 x\n", TRACE_MALFORMED, "expected 's INDEX HANDLE', found 'x'");
  refused("s 1 0\n", TRACE_MALFORMED, "the stream 0 is declared twice");
  refused("s 1 5\ns 2 5\n", TRACE_MALFORMED, "memory:3: the stream 5 is declared twice");
  refused("t -1\n", TRACE_MALFORMED, "expected 't MICROSECONDS'");
  refused("t 9223372036854775807\na 1 2 0 1\n", TRACE_MALFORMED, "the time leaves 0 to 2^63-1");
  refused("a 1 2 0 -1\n", TRACE_MALFORMED, "the time leaves 0 to 2^63-1");
  refused("a 1 2 0 --1\n", TRACE_MALFORMED, "expected the microseconds");
  refused("a 1 2 0 -\n", TRACE_MALFORMED, "expected the microseconds since the event before");
  refused("a 1 2 0 1 1\n", TRACE_MALFORMED, "found '1'");
  refused("f 1\n", TRACE_MALFORMED, "memory:2: id 1 is freed, but it was never allocated");
  refused("a 1 2 0\na 1 2 0\n", TRACE_MALFORMED, "memory:3: id 1 is allocated, but it is still live");
  refused("a 1 2 0\nf 1\nf 1\n", TRACE_MALFORMED, "memory:4: id 1 is freed twice");
  refused("a 1 2 0\nr 1\nr 1\n", TRACE_MALFORMED, "memory:4: id 1 has its free requested twice");
  refused("r 1\n", TRACE_MALFORMED, "id 1 is freed, but it was never allocated");
}
END_TEST

START_TEST(every_line_missing_or_cut_is_seen) {
  ck_assert_uint_eq(convert(SMALL, &everything, in_folder("t"), TRACE_FILE_LAKEBED), 0);
  size_t size;
  unsigned char *bytes = read_bytes(in_folder("t"), &size);
  reading r;
  for (size_t length = 0; length + 1 < size; length++) { /* without its last line feed it is whole */
    read_memory(bytes, length, &requests, &r);
    ck_assert_int_ne(r.status, TRACE_END);
  }
  for (size_t i = 0; i < size; i++) {
    for (int bit = 0; bit < 8; bit++) {
      bytes[i] ^= (unsigned char)(1 << bit);
      read_memory(bytes, size, &requests, &r);
      bytes[i] ^= (unsigned char)(1 << bit);
    }
  }
  free(bytes);
}
END_TEST

START_TEST(rewinding) {
  static const char text[] = "lakebed-trace 1\ns 1 77\nt 5\na 1 2 1 1\nr 1 1\nf 1 1\ne 3\n";
  trace *opened;
  trace_error error;
  ck_assert_int_eq(trace_open_memory(text, sizeof text - 1, "memory", NULL, &opened, &error), TRACE_OK);
  for (int lap = 0; lap < 3; lap++) {
    trace_event event;
    ck_assert_int_eq(trace_next(opened, &event, &error), TRACE_OK);
    ck_assert_uint_eq(event.time_us, 6);
    ck_assert_uint_eq(event.stream, 1);
    ck_assert_int_eq(trace_next(opened, &event, &error), TRACE_OK);
    ck_assert_int_eq(event.kind, TRACE_FREE);
    ck_assert_uint_eq(event.time_us, 8);
    ck_assert_int_eq(trace_next(opened, &event, &error), TRACE_END);
    ck_assert_int_eq(trace_rewind(opened, &error), TRACE_OK);
    ck_assert_uint_eq(trace_slots(opened), 1);
  }
  trace_close(opened);
}
END_TEST

static Suite *lakebed_suite(void) {
  Suite *suite = suite_create("lakebed format");
  TCase *writes = tcase_create("writer");
  tcase_add_checked_fixture(writes, make_folder, remove_folder);
  tcase_add_test(writes, a_snapshot_written_and_read_again);
  tcase_add_test(writes, plain_events_leave_out_what_they_cannot_hold);
  tcase_add_test(writes, a_recording_there_and_back);
  tcase_add_test(writes, exactly_these_lines);
  tcase_add_test(writes, no_half_of_a_file);
  tcase_add_test(writes, files_that_cannot_be_written);
  tcase_add_test(writes, every_line_missing_or_cut_is_seen);
  suite_add_tcase(suite, writes);
  TCase *reads = tcase_create("reader");
  tcase_add_test(reads, lines_that_are_refused);
  tcase_add_test(reads, rewinding);
  suite_add_tcase(suite, reads);
  return suite;
}

TEST_MAIN(lakebed_suite)
