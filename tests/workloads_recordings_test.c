/* Real recordings: those that come with the program, and those beside the project where they are. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/workloads_reading.h"

#define GOLDEN "tests/golden/pytorch_2.11_h200.jsonl"

/* Counted with Python from the unpickled snapshots. */
static const struct {
  const char *name;
  uint64_t allocations, frees, segments;
  uint32_t streams;
} recordings[] = {
    {"gpt-neox-20b-LR-b24-s512-w4-v0", 59976, 58380, 302, 3},
    {"gpt2-xl-LR-b16-s512-w4-v1", 63647, 61909, 99, 3},
    {"opt-1.3b-LR-b16-s1024-w1-v1", 20505, 19246, 201, 1},
    {"opt-1.3b-LR-b16-s512-w1-v0-i8", 39753, 38494, 194, 1},
    {"opt-1.3b-LR-b16-s512-w16-v0-i8", 51923, 50665, 71, 3},
    {"opt-1.3b-LR-b16-s512-w4-v0-i8", 51923, 50665, 81, 3},
    {"opt-1.3b-LR-b32-s512-w4-v0", 39257, 37999, 80, 3},
    {"opt-1.3b-LRO-b16-s512-w4-v0-i8", 56764, 56758, 41, 3},
    {"opt-1.3b-LRO-b16-s512-w4-v1", 42574, 42568, 43, 3},
    {"opt-1.3b-N-b16-s512-w4-v0-i8", 29346, 28177, 257, 3},
    {"opt-1.3b-N-b8-s512-w4-v1", 22162, 20993, 244, 3},
    {"opt-1.3b-R-b16-s512-w4-v0-i8", 33955, 32785, 88, 3},
    {"opt-13b-LR-b8-s512-w1-v1", 50065, 47974, 581, 1},
    {"opt-13b-LR-b8-s512-w4-v1", 65241, 63151, 359, 3},
};

/* peak_requested of a trace under PyTorch's default settings; 0: not in the golden file. */
static uint64_t golden_peak(const char *golden, const char *name) {
  char wanted[256];
  snprintf(wanted, sizeof wanted,
           "{\"trace\": \"%s\", \"conf\": \"\", \"fraction\": 0, \"peak_requested\": ", name);
  const char *at = strstr(golden, wanted);
  return at == NULL ? 0 : strtoull(at + strlen(wanted), NULL, 10);
}

static char *read_golden(void) {
  size_t size;
  unsigned char *bytes = read_bytes(GOLDEN, &size);
  ck_assert_ptr_nonnull(bytes);
  char *text = realloc(bytes, size + 1);
  ck_assert_ptr_nonnull(text);
  text[size] = '\0';
  return text;
}

/* Checks those of the known traces that are in folder; returns how many. */
static unsigned check_folder(const char *folder) {
  char *golden = read_golden();
  unsigned checked = 0;
  for (size_t i = 0; i < sizeof recordings / sizeof recordings[0]; i++) {
    char path[PATH_MAX + 128];
    snprintf(path, sizeof path, "%s/%s.pickle.xz", folder, recordings[i].name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) continue;
    fclose(file);
    reading r;
    read_file(path, NULL, &r);
    ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
    ck_assert_uint_eq(r.summary.allocations, recordings[i].allocations);
    ck_assert_uint_eq(r.summary.frees, recordings[i].frees);
    ck_assert_uint_eq(r.summary.orphan_frees, 0);
    ck_assert_uint_eq(r.summary.other_events, recordings[i].segments);
    ck_assert_uint_eq(r.summary.streams, recordings[i].streams);
    ck_assert_uint_eq(r.summary.devices, 1);
    uint64_t peak = golden_peak(golden, recordings[i].name);
    if (peak == 0)
      ck_assert_str_eq(recordings[i].name, "opt-1.3b-LR-b16-s1024-w1-v1"); /* has no golden line */
    if (peak != 0) ck_assert_uint_eq(r.summary.live_peak_bytes, peak);
    checked++;
  }
  static const char *const synthetic[] = {"edge", "loguniform_1B_1G", "multi_stream", "sawtooth_seq"};
  for (size_t i = 0; i < sizeof synthetic / sizeof synthetic[0]; i++) {
    char path[PATH_MAX + 128];
    snprintf(path, sizeof path, "%s/%s.txt.xz", folder, synthetic[i]);
    reading r;
    read_file(path, NULL, &r);
    ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
    ck_assert_uint_eq(r.summary.live_peak_bytes, golden_peak(golden, synthetic[i]));
  }
  free(golden);
  return checked;
}

START_TEST(bundled_traces) { ck_assert_uint_ge(check_folder("workloads/bundled"), 3); }
END_TEST

START_TEST(all_recordings) {
  char buffer[PATH_MAX];
  const char *folder = beside_the_project("traces", buffer);
  if (folder == NULL) test_skip("no folder ../shared/traces beside the project");
  ck_assert_uint_eq(check_folder(folder), sizeof recordings / sizeof recordings[0]);
}
END_TEST

static const char *public_file(const char *name, char *buffer) {
  const char *folder = beside_the_project("public", buffer);
  if (folder == NULL) return NULL;
  size_t length = strlen(folder);
  snprintf(buffer + length, PATH_MAX - length, "/%s", name);
  return buffer;
}

/* Its recording began in the middle of the run. */
START_TEST(public_training_snapshot) {
  char buffer[PATH_MAX];
  const char *path = public_file("wedsonlin_medium_128_training.pickle.xz", buffer);
  if (path == NULL) test_skip("no folder ../shared/public beside the project");
  reading r;
  read_file(path, NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.summary.allocations, 6526);
  ck_assert_uint_eq(r.summary.frees, 6305 - 438);
  ck_assert_uint_eq(r.summary.orphan_frees, 438);
  ck_assert_uint_eq(r.summary.live_at_end, 659);
  read_file(path, &(trace_options){.free_requests = true}, &r);
  ck_assert_uint_eq(r.count, 6526 + 2 * (6305 - 438));

  /* With what was there before, what is live at the end is what segments says is active. */
  read_file(path, &(trace_options){.seed_from_segments = true}, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.summary.seeded, 438 + 226);
  ck_assert_uint_eq(r.summary.orphan_frees, 0);
  ck_assert_uint_eq(r.summary.live_at_end, 885);
  ck_assert_uint_eq(r.summary.live_bytes, 6808535044);
}
END_TEST

START_TEST(public_inference_snapshot) {
  char buffer[PATH_MAX];
  const char *path = public_file("wedsonlin_medium_1024_inference.pickle.xz", buffer);
  if (path == NULL) test_skip("no folder ../shared/public beside the project");
  reading r;
  read_file(path, NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  ck_assert_uint_eq(r.summary.allocations, 1280);
  ck_assert_uint_eq(r.summary.frees, 1280);
  ck_assert_uint_eq(r.summary.live_at_end, 0);
  read_file(path, &(trace_options){.seed_from_segments = true}, &r);
  ck_assert_uint_eq(r.summary.seeded, 223);
  ck_assert_uint_eq(r.summary.live_bytes, 1701711872);
}
END_TEST

static Suite *recordings_suite(void) {
  Suite *suite = suite_create("recordings");
  TCase *all = tcase_create("recordings");
  tcase_add_test(all, bundled_traces);
  tcase_add_test(all, all_recordings);
  tcase_add_test(all, public_training_snapshot);
  tcase_add_test(all, public_inference_snapshot);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(recordings_suite)
