/* PyTorch snapshots: what is read from well-formed ones. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test_main.h"
#include "tests/workloads_pickle.h"
#include "tests/workloads_reading.h"

#define SMALL "tests/data/snapshots/small.p4.pickle"

/* Addresses of tests/data/snapshots/make_snapshots.py. */
#define BASE UINT64_C(0x7F0000000000)
#define BIG (BASE + (UINT64_C(2) << 20))
#define TIME UINT64_C(1795985714661019)

static void assert_event(const trace_event *event, trace_event_kind kind, uint32_t slot, uint32_t stream,
                         uint64_t size, uint64_t id, uint64_t time_us) {
  ck_assert_int_eq(event->kind, kind);
  ck_assert_uint_eq(event->slot, slot);
  ck_assert_uint_eq(event->stream, stream);
  ck_assert_uint_eq(event->size, size);
  ck_assert_uint_eq(event->id, id);
  ck_assert_uint_eq(event->time_us, time_us);
}

START_TEST(every_field_of_the_small_snapshot) {
  reading r;
  read_file(SMALL, NULL, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.count, 8);
  assert_event(&r.events[0], TRACE_ALLOC, 0, 1, 5000000, BIG, TIME + 4 * 11);
  assert_event(&r.events[1], TRACE_ALLOC, 1, 0, 3000, BASE + 1536, TIME + 5 * 11);
  assert_event(&r.events[2], TRACE_OUT_OF_MEMORY, 0, 0, UINT64_C(1) << 40, 123, TIME + 8 * 11);
  assert_event(&r.events[3], TRACE_ALLOC, 2, 0, 1, BASE + 8192, TIME + 9 * 11);
  assert_event(&r.events[4], TRACE_FREE, 1, 0, 3000, BASE + 1536, TIME + 10 * 11);
  assert_event(&r.events[5], TRACE_ALLOC, 1, 0, 100, BASE + 1536, TIME + 11 * 11);
  assert_event(&r.events[6], TRACE_FREE, 1, 0, 100, BASE + 1536, TIME + 13 * 11);
  assert_event(&r.events[7], TRACE_FREE, 2, 0, 1, BASE + 8192, TIME + 15 * 11);
  ck_assert_str_eq(r.summary.format, "pytorch-snapshot");
  ck_assert_str_eq(r.summary.compression, "none");
  ck_assert_uint_eq(r.summary.allocations, 4);
  ck_assert_uint_eq(r.summary.frees, 3);
  ck_assert_uint_eq(r.summary.orphan_frees, 1);
  ck_assert_uint_eq(r.summary.seeded, 0);
  ck_assert_uint_eq(r.summary.out_of_memory_events, 1);
  ck_assert_uint_eq(r.summary.other_events, 2);
  ck_assert_uint_eq(r.summary.live_at_end, 1);
  ck_assert_uint_eq(r.summary.live_peak_bytes, 5003001);
  ck_assert_uint_eq(r.summary.rounded_live_peak_bytes, 5000192 + 3072 + 512);
  ck_assert_uint_eq(r.summary.largest_bytes, 5000000);
  ck_assert_uint_eq(r.summary.devices, 3);
  ck_assert_uint_eq(r.summary.streams, 2);
  ck_assert_uint_eq(r.slots, 3);
  ck_assert_uint_eq(r.recorded_streams[0], 0);
  ck_assert_uint_eq(r.recorded_streams[1], 593655040);
}
END_TEST

START_TEST(protocols_2_to_5_read_the_same) {
  reading expected, r;
  read_file(SMALL, NULL, &expected);
  for (int protocol = 2; protocol <= 5; protocol++) {
    char path[64];
    snprintf(path, sizeof path, "tests/data/snapshots/small.p%d.pickle", protocol);
    read_file(path, NULL, &r);
    assert_same_events(&expected, &r);
  }
}
END_TEST

START_TEST(compressed_ones_read_the_same) {
  static const char *const endings[][2] = {{"xz", "xz"}, {"gz", "gzip"}, {"zst", "zstd"}};
  reading expected, r;
  read_file(SMALL, NULL, &expected);
  for (size_t i = 0; i < 3; i++) {
    char path[64];
    snprintf(path, sizeof path, SMALL ".%s", endings[i][0]);
    read_file(path, NULL, &r);
    assert_same_events(&expected, &r);
    ck_assert_str_eq(r.summary.compression, endings[i][1]);
    ck_assert_uint_eq(r.summary.input_bytes, expected.summary.input_bytes);
  }
}
END_TEST

START_TEST(free_requests_on_demand) {
  reading r;
  read_file(SMALL, &(trace_options){.free_requests = true}, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.count, 8 + 3);
  assert_event(&r.events[2], TRACE_FREE_REQUESTED, 1, 0, 3000, BASE + 1536, TIME + 6 * 11);
  ck_assert_uint_eq(r.summary.frees, 3);
  ck_assert_uint_eq(r.summary.orphan_frees, 1);
}
END_TEST

START_TEST(other_devices) {
  reading r;
  read_file(SMALL, &(trace_options){.device = 1}, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.count, 2);
  ck_assert_uint_eq(r.events[0].size, 4096);
  read_file(SMALL, &(trace_options){.device = 2}, &r);
  assert_failed(&r, TRACE_NO_EVENTS, "device_traces[2] is empty, device_traces[0] holds 16 entries");
  read_file(SMALL, &(trace_options){.device = 3}, &r);
  assert_failed(&r, TRACE_NO_EVENTS, "device 3 was asked for, device_traces holds 3 (0 to 2)");
}
END_TEST

START_TEST(seeds_are_what_was_live_at_the_start) {
  reading r;
  read_file(SMALL, &(trace_options){.seed_from_segments = true}, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.summary.seeded, 3);
  ck_assert_uint_eq(r.summary.orphan_frees, 0);
  assert_event(&r.events[0], TRACE_ALLOC, 0, 0, 400, BASE, 0);
  assert_event(&r.events[1], TRACE_ALLOC, 1, 0, 1000, BASE + 512, 0);
  assert_event(&r.events[2], TRACE_ALLOC, 2, 0, 2048, BASE + 1536, 0);
  assert_event(&r.events[3], TRACE_FREE, 2, 0, 2048, BASE + 1536, TIME + 3 * 11);
  ck_assert_uint_eq(r.count, 3 + 1 + 8);
  ck_assert_uint_eq(r.summary.live_at_end, 3); /* the active blocks of segments */
  ck_assert_uint_eq(r.summary.live_bytes, 400 + 1000 + 5000000);
  ck_assert_uint_eq(r.summary.segments_bytes, 22 << 20); /* of this device */
  read_file(SMALL, &(trace_options){.seed_from_segments = true, .device = 1}, &r);
  ck_assert_uint_eq(r.summary.seeded, 1);
  ck_assert_uint_eq(r.events[0].size, 700);
}
END_TEST

START_TEST(a_snapshot_without_recording) {
  reading r;
  read_file("tests/data/snapshots/unrecorded.pickle", NULL, &r);
  ck_assert(r.opened);
  assert_failed(&r, TRACE_NO_EVENTS, "was history recording on?");
  /* As a picture of the heap it is still of use. */
  read_file("tests/data/snapshots/unrecorded.pickle", &(trace_options){.seed_from_segments = true}, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.count, 3);
}
END_TEST

START_TEST(rewinding_gives_the_same_again) {
  for (int seeded = 0; seeded < 2; seeded++) {
    trace_options options = {.seed_from_segments = seeded != 0, .free_requests = true};
    trace *opened;
    trace_error error;
    ck_assert_int_eq(trace_open(SMALL ".xz", &options, &opened, &error), TRACE_OK);
    trace_event first[32], event;
    uint64_t count = 0;
    while (trace_next(opened, &event, &error) == TRACE_OK) first[count++] = event;
    trace_summary summary, again;
    trace_summary_get(opened, &summary);
    ck_assert_double_eq(trace_progress(opened), 1.0);
    for (int lap = 0; lap < 3; lap++) {
      ck_assert_int_eq(trace_rewind(opened, &error), TRACE_OK);
      ck_assert_double_lt(trace_progress(opened), 1.0);
      uint64_t at = 0;
      while (trace_next(opened, &event, &error) == TRACE_OK) {
        ck_assert_uint_lt(at, count);
        assert_same_event(&event, &first[at]);
        at++;
        if (lap == 0 && at == count / 2) break; /* rewinding in the middle */
      }
      if (lap > 0) ck_assert_uint_eq(at, count);
    }
    trace_summary_get(opened, &again);
    ck_assert_mem_eq(&summary, &again, sizeof summary);
    trace_close(opened);
  }
}
END_TEST

START_TEST(loading_keeps_all_events) {
  trace_events loaded;
  trace_error error;
  reading r;
  read_file(SMALL, NULL, &r);
  ck_assert_int_eq(trace_load(SMALL, NULL, &loaded, &error), TRACE_OK);
  ck_assert_uint_eq(loaded.count, r.count);
  ck_assert_uint_eq(loaded.slots, r.slots);
  for (uint64_t i = 0; i < r.count; i++) assert_same_event(&loaded.events[i], &r.events[i]);
  ck_assert_uint_eq(loaded.summary.live_peak_bytes, r.summary.live_peak_bytes);
  trace_events_free(&loaded);
  ck_assert_ptr_null(loaded.events);
  ck_assert_int_eq(trace_load("tests/data/snapshots/unrecorded.pickle", NULL, &loaded, &error),
                   TRACE_NO_EVENTS);
  ck_assert_ptr_null(loaded.events);
  ck_assert_int_eq(trace_load("tests/data/snapshots/none", NULL, &loaded, &error), TRACE_UNREADABLE);
}
END_TEST

/* As c10's own pickler writes: protocol 2, BINUNICODE, LONG1 of 8 bytes, strings shared by value,
 * one batch for a list of any length. */
START_TEST(the_way_c10_writes_it) {
  enum { EVENTS = 5000 };
  pickle made = {0};
  pickle_ops(&made, "\x80\x02}(X\x0d\0\0\0device_tracesq\x00](](");
  for (int i = 0; i < EVENTS; i++) {
    pickle_ops(&made, "}(");
    if (i == 0) {
      pickle_ops(&made, "X\x06\0\0\0actionq\x01X\x05\0\0\0allocq\x02X\x04\0\0\0addrq\x03\x8a\x08");
      pickle_little(&made, (uint64_t)i * 512, 8);
      pickle_ops(&made, "X\x04\0\0\0sizeq\x04\x8a\x08");
      pickle_little(&made, (uint64_t)i, 8);
      pickle_ops(&made, "X\x06\0\0\0streamq\x05K\x00");
    } else {
      pickle_ops(&made, "h\x01h\x02h\x03\x8a\x08");
      pickle_little(&made, (uint64_t)i * 512, 8);
      pickle_ops(&made, "h\x04\x8a\x08");
      pickle_little(&made, (uint64_t)i, 8);
      pickle_ops(&made, "h\x05K\x00");
    }
    pickle_ops(&made, "u");
  }
  pickle_ops(&made, "eeu.");
  reading r;
  read_memory(made.bytes, made.size, NULL, &r);
  ck_assert_int_eq(r.status, TRACE_END);
  ck_assert_uint_eq(r.count, EVENTS);
  ck_assert_uint_eq(r.events[7].size, 7);
  ck_assert_uint_eq(r.events[7].id, 7 * 512);
  pickle_free(&made);
}
END_TEST

START_TEST(keys_in_any_order_and_unknown_ones) {
  pickle made = {0};
  pickle_ops(&made, "\x80\x05}(");
  pickle_string(&made, "unknown");
  /* {1: [2, None, True, False, 0.0], "x": {}, "y": [{}, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), b"abc"]}
   */
  pickle_ops(&made,
             "}(K\x01](K\x02N\x88\x89G\0\0\0\0\0\0\0\0e\x8c\x01x}\x8c\x01y]("
             "})K\x01\x85K\x01K\x02\x86K\x01K\x02K\x03\x87(K\x01K\x02K\x03K\x04tC\x03"
             "abce"
             "u");
  pickle_string(&made, "device_traces");
  pickle_list_begin(&made);
  pickle_list_begin(&made);
  pickle_dict_begin(&made);
  pickle_key_integer(&made, "size", 4096);
  pickle_string(&made, "later");
  /* {"size": 1, "action": "free_completed", "addr": [{"action": "alloc"}]}: known words, but not here */
  pickle_ops(&made,
             "}(\x8c\x04sizeK\x01\x8c\x06"
             "action\x8c\x0e"
             "free_completed\x8c\x04"
             "addr]}\x8c\x06"
             "action\x8c\x05"
             "allocsau");
  pickle_key_integer(&made, "stream", 9);
  pickle_key_integer(&made, "addr", 1 << 20);
  pickle_key_string(&made, "action", "alloc");
  pickle_key_integer(&made, "pool_id", -1);
  pickle_dict_end(&made);
  pickle_snapshot_end(&made);
  reading r;
  read_memory(made.bytes, made.size, NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 1);
  assert_event(&r.events[0], TRACE_ALLOC, 0, 1, 4096, 1 << 20, 0);
  pickle_free(&made);
}
END_TEST

/* Lists and dicts of one element are written without a mark: ITEM APPEND, KEY VALUE SETITEM. */
START_TEST(single_items_without_a_mark) {
  pickle made = {0};
  pickle_ops(&made, "\x80\x04}");
  pickle_string(&made, "device_traces");
  pickle_ops(&made, "]]"); /* the list of devices, the device */
  pickle_entry(&made, "alloc", 512, 100);
  pickle_ops(&made, "a"); /* a single entry */
  pickle_ops(&made, "(");
  pickle_entry(&made, "alloc", 1024, 100);
  pickle_entry(&made, "free_completed", 512, 100);
  pickle_ops(&made, "e");
  pickle_entry(&made, "alloc", 512, 200); /* one left over after a batch */
  pickle_ops(&made, "aas.");
  reading r;
  read_memory(made.bytes, made.size, NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 4);
  ck_assert_uint_eq(r.summary.devices, 1);
  pickle_free(&made);
}
END_TEST

/* Blocks of old snapshots have no address: they follow each other in their segment. */
START_TEST(blocks_without_addresses) {
  pickle made = {0};
  pickle_ops(&made, "\x80\x04}(");
  pickle_string(&made, "segments");
  pickle_list_begin(&made);
  pickle_dict_begin(&made);
  pickle_string(&made, "blocks");
  pickle_list_begin(&made);
  for (int i = 0; i < 3; i++) {
    pickle_dict_begin(&made);
    pickle_key_integer(&made, "size", 1024);
    pickle_key_string(&made, "state", i == 1 ? "inactive" : "active_allocated");
    pickle_dict_end(&made);
  }
  pickle_list_end(&made);
  pickle_key_integer(&made, "stream", 5);
  pickle_key_integer(&made, "device", 0);
  pickle_key_integer(&made, "address", 1 << 21);
  pickle_dict_end(&made);
  pickle_list_end(&made);
  pickle_string(&made, "device_traces");
  pickle_list_begin(&made);
  pickle_list_begin(&made);
  pickle_entry(&made, "free_completed", (1 << 21) + 2048, 1024);
  pickle_snapshot_end(&made);
  reading r;
  read_memory(made.bytes, made.size, &(trace_options){.seed_from_segments = true}, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 3);
  assert_event(&r.events[0], TRACE_ALLOC, 0, 1, 1024, 1 << 21, 0);
  assert_event(&r.events[1], TRACE_ALLOC, 1, 0, 1024, (1 << 21) + 2048, 0);
  ck_assert_int_eq(r.events[2].kind, TRACE_FREE);
  pickle_free(&made);
}
END_TEST

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MANY_EVENTS = 500 * 1000, MOST_KIB = 64 * 1024 };
#else
enum { MANY_EVENTS = 10 * 1000 * 1000, MOST_KIB = 8 * 1024 };
#endif

/* Writes a snapshot of MANY_EVENTS entries into a pipe, with the memo growing as Python's does. */
static void write_many(int pipe_end) {
  FILE *file = fdopen(pipe_end, "wb");
  pickle made = {0};
  pickle_ops(&made,
             "\x80\x04}\x94(\x8c\x0d"
             "device_traces\x94]\x94]\x94(");
  for (int i = 0; i < MANY_EVENTS; i++) {
    if (i % 1000 == 999) pickle_ops(&made, "e(");
    pickle_ops(&made, "}\x94(");
    pickle_ops(&made,
               "\x8c\x06"
               "action");
    bool freed = i >= 1000 && i % 2 == 1;
    pickle_string(&made, freed ? "free_completed" : "alloc");
    /* Every address is new: what is live is bounded, what has ever been seen is not. */
    pickle_key_integer(&made, "addr", (INT64_C(1) << 40) + (freed ? i - 1 : i) * INT64_C(512));
    pickle_key_integer(&made, "size", 512);
    pickle_ops(&made,
               "\x8c\x0f"
               "compile_context\x8c\x03N/A\x94u");
    if (made.size > 1 << 16) {
      fwrite(made.bytes, 1, made.size, file);
      made.size = 0;
    }
  }
  pickle_ops(&made, "eau.");
  fwrite(made.bytes, 1, made.size, file);
  fclose(file);
  _exit(0);
}

START_TEST(memory_does_not_grow_with_the_events) {
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  fflush(stdout);
  pid_t writer = fork();
  ck_assert_int_ge(writer, 0);
  if (writer == 0) {
    close(ends[0]);
    write_many(ends[1]);
  }
  close(ends[1]);
  char path[32];
  snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  trace *opened;
  trace_error error;
  ck_assert_int_eq(trace_open(path, NULL, &opened, &error), TRACE_OK);
  trace_event event;
  uint64_t count = 0;
  trace_status status;
  while ((status = trace_next(opened, &event, &error)) == TRACE_OK) count++;
  ck_assert_msg(status == TRACE_END, "%s", error.message);
  ck_assert_uint_eq(count, MANY_EVENTS);
  ck_assert_double_eq(trace_progress(opened), 1.0);
  ck_assert_int_eq(trace_rewind(opened, &error), TRACE_UNREADABLE);
  trace_close(opened);
  getrusage(RUSAGE_SELF, &after);
  ck_assert_msg(after.ru_maxrss - before.ru_maxrss < MOST_KIB, "%ld KiB more than before",
                after.ru_maxrss - before.ru_maxrss);
  close(ends[0]);
  int exit_status;
  ck_assert_int_eq(waitpid(writer, &exit_status, 0), writer);
  ck_assert_int_eq(exit_status, 0);
}
END_TEST

START_TEST(standard_input) {
  reading expected, r;
  read_file(SMALL, NULL, &expected);
  ck_assert_ptr_nonnull(freopen(SMALL ".gz", "rb", stdin));
  trace *opened;
  trace_error error;
  ck_assert_int_eq(trace_open("-", &(trace_options){.seed_from_segments = true}, &opened, &error),
                   TRACE_UNREADABLE);
  ck_assert_ptr_nonnull(strstr(error.message, "standard input: "));
  ck_assert_ptr_nonnull(strstr(error.message, "takes two passes"));
  ck_assert_ptr_nonnull(freopen(SMALL ".gz", "rb", stdin));
  ck_assert_int_eq(trace_open("-", NULL, &opened, &error), TRACE_OK);
  ck_assert_double_lt(trace_progress(opened), 0.0);
  trace_close(opened);
  ck_assert_ptr_nonnull(freopen(SMALL ".gz", "rb", stdin));
  read_file("-", NULL, &r);
  assert_same_events(&expected, &r);
}
END_TEST

static Suite *snapshot_suite(void) {
  Suite *suite = suite_create("snapshot");
  TCase *reads = tcase_create("reads");
  tcase_add_test(reads, every_field_of_the_small_snapshot);
  tcase_add_test(reads, protocols_2_to_5_read_the_same);
  tcase_add_test(reads, compressed_ones_read_the_same);
  tcase_add_test(reads, free_requests_on_demand);
  tcase_add_test(reads, other_devices);
  tcase_add_test(reads, seeds_are_what_was_live_at_the_start);
  tcase_add_test(reads, a_snapshot_without_recording);
  tcase_add_test(reads, rewinding_gives_the_same_again);
  tcase_add_test(reads, loading_keeps_all_events);
  tcase_add_test(reads, the_way_c10_writes_it);
  tcase_add_test(reads, keys_in_any_order_and_unknown_ones);
  tcase_add_test(reads, single_items_without_a_mark);
  tcase_add_test(reads, blocks_without_addresses);
  tcase_add_test(reads, standard_input);
  tcase_add_test(reads, memory_does_not_grow_with_the_events);
  suite_add_tcase(suite, reads);
  return suite;
}

TEST_MAIN(snapshot_suite)
