/* Traces of PyTorch's profiler. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/test_main.h"
#include "tests/workloads_damage.h"
#include "tests/workloads_reading.h"
#include "workloads/input.h"

#define EVENT(time, device, address, bytes, total)                                                   \
  "{\"name\": \"[memory]\", \"ts\": " time ", \"args\": {\"Device Type\": 1, \"Device Id\": " device \
  ", \"Addr\": " address ", \"Bytes\": " bytes ", \"Total Allocated\": " total ", \"Total Reserved\": 0}}"

static const trace_options seeding = {.seed_from_segments = true};

static void assert_event(const trace_event *event, trace_event_kind kind, uint64_t id, uint64_t size,
                         uint64_t time_us) {
  ck_assert_int_eq(event->kind, kind);
  ck_assert_uint_eq(event->id, id);
  ck_assert_uint_eq(event->size, size);
  ck_assert_uint_eq(event->time_us, time_us);
}

/* Events are put in the order of time, and of what was allocated where times are equal. */
START_TEST(profile) {
  static const char *const paths[] = {"tests/data/traces/kineto.json", "tests/data/traces/kineto.json.gz"};
  for (int i = 0; i < 2; i++) {
    reading r;
    read_file(paths[i], NULL, &r);
    ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
    ck_assert_str_eq(r.summary.format, "kineto");
    ck_assert_uint_eq(r.count, 3);
    assert_event(&r.events[0], TRACE_ALLOC, 4096, 512, 1000);
    assert_event(&r.events[1], TRACE_FREE, 4096, 512, 1002);
    assert_event(&r.events[2], TRACE_ALLOC, 12288, 1024, 1002);
    ck_assert_uint_eq(r.summary.orphan_frees, 1);
    ck_assert_uint_eq(r.summary.orphan_bytes, 512);
    ck_assert_uint_eq(r.summary.live_before_bytes, 2048);
    ck_assert_uint_eq(r.summary.other_events, 1);
    ck_assert_uint_eq(r.summary.devices, 1);
  }
}
END_TEST

/* Of what was live before, the parts that are freed are known; the rest is one allocation. */
START_TEST(profile_with_seeds) {
  reading r;
  read_file("tests/data/traces/kineto.json", &seeding, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 6);
  assert_event(&r.events[0], TRACE_ALLOC, 0, 1536, 0);
  assert_event(&r.events[1], TRACE_ALLOC, 8192, 512, 0);
  assert_event(&r.events[3], TRACE_FREE, 8192, 512, 1001);
  ck_assert_uint_eq(r.summary.seeded, 2);
  ck_assert_uint_eq(r.summary.orphan_frees, 0);
  ck_assert_uint_eq(r.summary.live_before_bytes, 0);
  ck_assert_uint_eq(r.summary.live_bytes, 2560);
}
END_TEST

static void read_events(const char *events, const trace_options *options, reading *r) {
  char text[4096];
  int size = snprintf(text, sizeof text, "[%s]", events);
  read_memory(text, (size_t)size, options, r);
}

START_TEST(devices) {
  static const char two[] = EVENT("5", "2", "512", "64", "64") ",\n" EVENT("6", "7", "512", "32", "96");
  reading r;
  read_events(two, &(trace_options){.device = 7}, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 1);
  ck_assert_uint_eq(r.events[0].size, 32);
  ck_assert_uint_eq(r.summary.live_before_bytes, 64);
  ck_assert_uint_eq(r.summary.devices, 2);
  ck_assert_uint_eq(r.summary.other_events, 1);
  read_events(two, NULL, &r);
  assert_failed(&r, TRACE_NO_EVENTS, "holds no memory events of device 0, but of 2 7: choose one of them");
  read_events(EVENT("5", "2", "512", "64", "64"), &(trace_options){.device = 1}, &r);
  assert_failed(&r, TRACE_NO_EVENTS, "holds no memory events of device 1, but of 2");
}
END_TEST

/* Older profilers do not say what is allocated altogether. */
START_TEST(profiles_without_totals) {
  static const char events[] =
      "{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":1,\"Device Id\":0,\"Addr\":1,\"Bytes\":-7}},"
      "{\"name\":\"[memory]\",\"ts\":2,\"args\":{\"Device Type\":1,\"Device Id\":0,\"Addr\":1,\"Bytes\":8}}";
  reading r;
  read_events(events, NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 1);
  ck_assert_uint_eq(r.summary.orphan_bytes, 7);
  ck_assert_uint_eq(r.summary.live_before_bytes, 0);
  read_events(events, &seeding, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.count, 3);
  ck_assert_uint_eq(r.summary.live_bytes, 8);
}
END_TEST

START_TEST(profiles_without_events) {
  static const char *const texts[] = {"{\"traceEvents\": []}", "[]",
                                      " \n[{\"name\": \"aten::add\", \"ts\": 1}]"};
  reading r;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    read_text(texts[i], &r);
    assert_failed(&r, TRACE_NO_EVENTS, "was it recorded with profile_memory=True?");
  }
  read_events(EVENT("5", "0", "512", "-64", "64"), NULL, &r);
  assert_failed(&r, TRACE_NO_EVENTS, "holds no allocation, only frees of what was live before");
  damage_refused("{\"traces\": [1, 2, {\"traceEvents\": []}]}", "it is no PyTorch profiler trace");
  damage_refused("{\"traceEvents\": 1}", "without a list \"traceEvents\"");
  damage_refused("{\"traceEvents\": [1]}", "offset 17: expected an object in the list of trace events");
}
END_TEST

static void events_refused(const char *events, const char *message) {
  reading r;
  read_events(events, NULL, &r);
  assert_failed(&r, TRACE_MALFORMED, message);
}

START_TEST(events_that_contradict) {
  events_refused(EVENT("1", "0", "512", "64", "64") "," EVENT("2", "0", "512", "64", "128"),
                 "0x200 is allocated, but it is still live");
  events_refused(EVENT("1", "0", "512", "64", "64") "," EVENT("2", "0", "512", "-64", "0") "," EVENT(
                     "3", "0", "512", "-64", "-64"),
                 "expected \"Total Allocated\" of a [memory] event to be a number of bytes below 2^63");
  events_refused(EVENT("1", "0", "512", "64", "164") "," EVENT("2", "0", "512", "-64", "100") "," EVENT(
                     "3", "0", "512", "-64", "36"),
                 "0x200 is freed twice");
  events_refused(EVENT("1", "0", "512", "64", "64") "," EVENT("2", "0", "512", "-32", "32"),
                 "0x200 is freed with 32 bytes, but was allocated with 64");
  events_refused(
      EVENT("1", "0", "512", "64", "64") "," EVENT("2", "0", "1024", "64", "127"),
      "\"Total Allocated\" is 127 after this [memory] event, which the events before it do not lead to");
  events_refused(EVENT("1", "0", "512", "64", "63"), "\"Total Allocated\" is 63 after this");
  events_refused(EVENT("1", "0", "512", "-9223372036854775807", "9223372036854775807"), "do not lead to");
  events_refused(EVENT("1", "0", "512", "64", "64") "," EVENT("2", "0", "1024", "-32", "32"),
                 "more is freed than the 0 bytes that were live when the recording began");
  reading r;
  read_events(EVENT("1", "0", "512", "64", "65") "," EVENT("2", "0", "1024", "-32", "33"), &seeding, &r);
  assert_failed(&r, TRACE_MALFORMED, "more is freed than the 1 bytes that were live");
}
END_TEST

START_TEST(events_that_lack_something) {
  events_refused("{\"name\": \"[memory]\"}", "offset 1: expected \"ts\" in a [memory] event");
  events_refused("{\"name\": \"[memory]\", \"ts\": 1, \"args\": 1}", "expected \"Addr\" in a [memory] event");
  events_refused("{\"name\": \"[memory]\", \"ts\": 1, \"args\": {\"Addr\": 1}}", "expected \"Bytes\"");
  static const struct {
    const char *time, *device, *address, *bytes, *total, *message;
  } wrong[] = {
      {"-1", "0", "1", "1", "1", "\"ts\" of a [memory] event to be a time in microseconds from 0 on"},
      {"\"1\"", "0", "1", "1", "1", "\"ts\" of a [memory] event to be a time"},
      {"9223372036854776", "0", "1", "1", "1", "\"ts\" of a [memory] event to be a time"},
      {"nan", "0", "1", "1", "1", "\"ts\" of a [memory] event to be a time"},
      {"1", "-1", "1", "1", "1", "\"Device Id\" of a GPU's [memory] event to be from 0 on"},
      {"1", "-2", "1", "1", "1", "\"Device Id\" of a [memory] event to be the number of a device"},
      {"1", "4294967296", "1", "1", "1", "\"Device Id\" of a [memory] event to be the number of a device"},
      {"1", "0", "0", "1", "1", "\"Addr\" of a [memory] event to be an address from 1 on"},
      {"1", "0", "-1", "1", "1", "\"Addr\" of a [memory] event to be an address"},
      {"1", "0", "\"0x200\"", "1", "1", "\"Addr\" of a [memory] event to be an address"},
      {"1", "0", "{\"Addr\": [1]}", "1", "1", "\"Addr\" of a [memory] event to be an address"},
      {"1", "0", "18446744073709551616", "1", "1", "\"Addr\" of a [memory] event to be an address"},
      {"1", "0", "1", "0", "0", "\"Bytes\" of a [memory] event is 0"},
      {"1", "0", "1", "1.5", "1", "\"Bytes\" of a [memory] event to be a number of bytes below 2^63"},
      {"1", "0", "1", "9223372036854775808", "1", "\"Bytes\" of a [memory] event to be a number of bytes"},
      {"1", "0", "1", "-9223372036854775808", "1", "\"Bytes\" of a [memory] event to be a number of bytes"},
      {"1", "0", "1", "1", "1e3", "\"Total Allocated\" of a [memory] event to be a number of bytes"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    char events[1024];
    snprintf(events, sizeof events, EVENT("%s", "%s", "%s", "%s", "%s"), wrong[i].time, wrong[i].device,
             wrong[i].address, wrong[i].bytes, wrong[i].total);
    events_refused(events, wrong[i].message);
  }
}
END_TEST

START_TEST(json_that_is_none) {
  static const struct {
    const char *text, *message;
  } texts[] = {
      {"{\"a\": }", "memory: offset 6: expected a value, found '}'"},
      {"{\"a\" 1}", "memory: offset 5: expected ':' after a key, found '1'"},
      {"{a: 1}", "memory: offset 1: expected a key, found 'a'"},
      {"{\"a\": 1,}", "memory: offset 8: expected a key, found '}'"},
      {"[1,]", "memory: offset 1: expected an object in the list of trace events"},
      {"[[],]", "expected an object in the list"},
      {"{\"a\": [1,]}", "memory: offset 9: expected a value, found ']'"},
      {"{\"a\": [1 2]}", "memory: offset 9: expected ',' or ']', found '2'"},
      {"{\"a\": 1]", "memory: offset 7: expected ',' or '}', found ']'"},
      {"{\"a\": 01}", "memory: offset 6: expected a value, found '01'"},
      {"{\"a\": 1.}", "found '1.'"},
      {"{\"a\": .5}", "found '.5'"},
      {"{\"a\": +5}", "found '+5'"},
      {"{\"a\": 1e}", "found '1e'"},
      {"{\"a\": 1e+}", "found '1e+'"},
      {"{\"a\": --1}", "found '--1'"},
      {"{\"a\": -}", "found '-'"},
      {"{\"a\": True}", "memory: offset 6: expected a value, found 'True'"},
      {"{\"a\": nul}", "found 'nul'"},
      {"{\"a\": 1111111111222222222233333333334444444444555555555566666666667777}",
       "found '1111111111222222222233333333334444444444...'"},
      {"{\"a\": \"\\x\"}", "memory: offset 8: expected an escape after '\\', found 'x'"},
      {"{\"a\": \"\\u12g4\"}", "memory: offset 11: expected four hexadecimal digits after '\\u', found 'g'"},
      {"{\"a\": \"\n\"}", "memory: offset 7: expected the end of a string, found byte 0x0a"},
      {"{} {}", "memory: offset 3: expected nothing after the end of the JSON, found '{'"},
      {"{\"a\": 1", "memory: offset 7: expected the end of a value, found the end: the file is truncated"},
      {"{\"a\": \"", "memory: offset 7: expected the end of a string, found the end: the file is truncated"},
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) damage_refused(texts[i].text, texts[i].message);
}
END_TEST

/* Neither depth nor length takes memory. */
START_TEST(json_without_end) {
  enum { SIZE = 64 * 1024 * 1024 };
  char *text = malloc(SIZE);
  ck_assert_ptr_nonnull(text);
  memset(text, '[', SIZE);
  memcpy(text, "{\"a\":", 5);
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  reading r;
  read_memory(text, SIZE, NULL, &r);
  assert_failed(&r, TRACE_MALFORMED, "memory: offset 260: nested deeper than 256 levels");
  memset(text + 5, '"', 1);
  memset(text + 6, 'x', SIZE - 6);
  read_memory(text, SIZE, NULL, &r);
  assert_failed(&r, TRACE_MALFORMED, "offset 67108864: expected the end of a string");
  memset(text + 5, '1', SIZE - 5);
  read_memory(text, SIZE, NULL, &r);
  assert_failed(&r, TRACE_MALFORMED, "expected the end of a value");
  getrusage(RUSAGE_SELF, &after);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  ck_assert_int_lt(after.ru_maxrss - before.ru_maxrss, 4 * 1024);
#endif
  free(text);
}
END_TEST

/* Thousands at the same time, in the worst order. */
START_TEST(events_of_the_same_time) {
  enum { EVENTS = 20 * 1000 };
  size_t capacity = EVENTS * 160, used = 1;
  char *text = malloc(capacity);
  ck_assert_ptr_nonnull(text);
  text[0] = '[';
  for (int i = 0; i < EVENTS; i++) {
    int pair = i ^ 1; /* the total of the one belongs before that of the other, but for the first */
    used += (size_t)snprintf(text + used, capacity - used, "%s" EVENT("7", "0", "%d", "1", "%d"),
                             i == 0 ? "" : ",", pair + 1, i < 2 ? i + 1 : pair + 1);
  }
  used += (size_t)snprintf(text + used, capacity - used, "]");
  trace *opened;
  ck_assert_int_eq(trace_open_memory(text, used, "memory", NULL, &opened, NULL), TRACE_OK);
  for (int lap = 0; lap < 2; lap++) {
    trace_event event;
    trace_status status;
    uint64_t events = 0;
    while ((status = trace_next(opened, &event, NULL)) == TRACE_OK) {
      trace_summary summary;
      trace_summary_get(opened, &summary);
      events++;
      if (events > 2 && event.id != summary.live_bytes) ck_abort_msg("event %d", (int)events);
    }
    ck_assert_int_eq(status, TRACE_END);
    ck_assert_uint_eq(events, EVENTS);
    ck_assert_int_eq(trace_rewind(opened, NULL), TRACE_OK);
  }
  trace_close(opened);
  free(text);
}
END_TEST

typedef struct recorded {
  long long time, address, bytes, total;
  size_t place;
} recorded;

static int by_time(const void *left, const void *right) {
  const recorded *one = left, *other = right;
  if (one->time != other->time) return one->time < other->time ? -1 : 1;
  return one->place < other->place ? -1 : one->place > other->place;
}

/* The GPU's memory events of the public file by looking at its lines, which a program wrote all
 * alike; sorted by time. The caller frees. */
static recorded *scan_lines(const char *path, size_t *count) {
  trace_input input;
  ck_assert_int_eq(trace_input_open(&input, path, NULL), TRACE_OK);
  size_t capacity = 32 * 1024;
  recorded *found = malloc(capacity * sizeof *found);
  ck_assert_ptr_nonnull(found);
  *count = 0;
  long long time = 0;
  bool memory = false;
  while (trace_input_fill(&input, 4096, NULL) == TRACE_OK && input.at < input.end) {
    const uint8_t *feed = memchr(input.at, '\n', (size_t)(input.end - input.at));
    size_t length = feed == NULL ? (size_t)(input.end - input.at) : (size_t)(feed + 1 - input.at);
    char line[4096];
    snprintf(line, sizeof line, "%.*s", (int)length, (const char *)input.at);
    input.at += length;
    if (strstr(line, "\"ph\":") != NULL) memory = strstr(line, "\"name\": \"[memory]\"") != NULL;
    const char *ts = strstr(line, "\"ts\": "), *device = strstr(line, "\"Device Type\": 1,");
    if (ts != NULL) time = strtoll(ts + 6, NULL, 10);
    if (!memory || device == NULL) continue;
    if (*count == capacity) ck_abort_msg("more events than expected");
    recorded *event = &found[*count];
    event->time = time;
    event->place = (*count)++;
    event->address = strtoll(strstr(device, "\"Addr\": ") + 8, NULL, 10);
    event->bytes = strtoll(strstr(device, "\"Bytes\": ") + 9, NULL, 10);
    event->total = strtoll(strstr(device, "\"Total Allocated\": ") + 19, NULL, 10);
  }
  trace_input_close(&input);
  qsort(found, *count, sizeof *found, by_time);
  return found;
}

/* After every event the live bytes are what PyTorch says is allocated. */
START_TEST(published_profile) {
  char buffer[PATH_MAX], path[PATH_MAX + 64];
  const char *folder = beside_the_project("public", buffer);
  if (folder == NULL) test_skip("the folder of public traces is not beside the project");
  snprintf(path, sizeof path, "%s/hta_df_index_resolver.json.gz", folder);
  size_t count;
  recorded *expected = scan_lines(path, &count);
  ck_assert_uint_eq(count, 26770);
  for (int seeded = 0; seeded < 2; seeded++) {
    trace *opened;
    trace_error error;
    trace_options options = {.seed_from_segments = seeded == 1};
    ck_assert_int_eq(trace_open(path, &options, &opened, &error), TRACE_OK);
    trace_event event;
    trace_summary summary;
    trace_status status;
    size_t at = 0;
    while ((status = trace_next(opened, &event, &error)) == TRACE_OK) {
      trace_summary_get(opened, &summary);
      if (summary.seeded > 0 && event.id == 0) continue;
      const recorded *now = &expected[at++];
      uint64_t live = summary.live_bytes + summary.live_before_bytes - summary.orphan_bytes;
      if (at > count || live != (uint64_t)now->total || event.id != (uint64_t)now->address ||
          event.size != (uint64_t)llabs(now->bytes) || event.time_us != (uint64_t)now->time)
        ck_abort_msg("event %zu: %llu bytes live, %lld expected", at, (unsigned long long)live, now->total);
      if (seeded == 1 && summary.live_bytes != (uint64_t)now->total) ck_abort_msg("event %zu", at);
    }
    ck_assert_msg(status == TRACE_END, "%s", error.message);
    ck_assert_uint_eq(at, count);
    ck_assert_uint_eq(summary.live_before_bytes, seeded == 1 ? 0 : 4096614400);
    ck_assert_uint_eq(summary.seeded, (uint64_t)seeded);
    ck_assert_uint_eq(summary.orphan_frees, 0);
    ck_assert_uint_eq(summary.allocations, 13385 + (uint64_t)seeded);
    trace_close(opened);
  }
  free(expected);
}
END_TEST

static void check_truncated(const unsigned char *bytes, size_t length, const reading *r) {
  (void)bytes;
  if (length == 0) {
    assert_failed(r, TRACE_NO_EVENTS, "holds no events");
  } else if (r->status != TRACE_END) { /* but for the line feed at the end */
    char place[64];
    snprintf(place, sizeof place, "memory: offset %zu: ", length);
    assert_failed(r, TRACE_MALFORMED, place);
    assert_failed(r, TRACE_MALFORMED, "the file is truncated");
  } else {
    ck_assert_int_eq(bytes[length - 1], '}');
    ck_assert_int_eq(bytes[length], '\n');
  }
}

START_TEST(damaged_profiles) {
  size_t size;
  unsigned char *bytes = damage_read("kineto.json", &size);
  damage_truncate(bytes, size, check_truncated);
  /* Not each can be seen: most of a profile is about other things than memory. */
  ck_assert_uint_gt(damage_flip_bits(bytes, size), size * 8 / 4);
  free(bytes);
  bytes = damage_read("kineto.json.gz", &size);
  for (size_t length = 20; length < size; length++) {
    reading r;
    read_memory(bytes, length, NULL, &r);
    assert_failed(&r, TRACE_MALFORMED, "the compressed data ends too early: the file is truncated");
  }
  free(bytes);
}
END_TEST

static Suite *kineto_suite(void) {
  Suite *suite = suite_create("profiles");
  TCase *all = tcase_create("profiles");
  tcase_add_test(all, profile);
  tcase_add_test(all, profile_with_seeds);
  tcase_add_test(all, devices);
  tcase_add_test(all, profiles_without_totals);
  tcase_add_test(all, profiles_without_events);
  tcase_add_test(all, events_that_contradict);
  tcase_add_test(all, events_that_lack_something);
  tcase_add_test(all, json_that_is_none);
  tcase_add_test(all, json_without_end);
  tcase_add_test(all, events_of_the_same_time);
  tcase_add_test(all, published_profile);
  tcase_add_test(all, damaged_profiles);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(kineto_suite)
