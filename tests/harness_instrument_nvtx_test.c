/* NVTX as a tool sees it: a listener of ours in the place of Nsight. */
#include <stdlib.h>
#include <string.h>

#include "tests/harness_instrument_fixture.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

enum { EVENTS = 600, LIVE = EVENTS / 3 };

/* Runs the program under the listener. What the listener saw; *results: the program's, may be NULL. */
static json_t *listen(const char *level, bool plain, const char *specs, json_t **results) {
  char *library = test_library_path(NVTX_LISTENER), *seen = test_path("seen.json");
  char *events = write_events("events.txt", EVENTS);
  setenv("NVTX_INJECTION64_PATH", library, 1);
  setenv("LAKEBED_NVTX_LISTENER", seen, 1);
  if (plain) setenv("LAKEBED_NVTX_LISTENER_PLAIN", "1", 1);
  program_run run = run_expecting(0, "replay", "-q", "-p", specs, "--json", "-", "--nvtx", level,
                                  "--capacity", "16GiB", events);
  ck_assert_str_eq(run.errors, "");
  if (results) *results = parse_output(&run);
  json_error_t error;
  json_t *found = json_load_file(seen, 0, &error);
  ck_assert_msg(found != NULL, "the listener wrote no JSON: %s", error.text);
  program_run_free(&run);
  free(library);
  free(seen);
  free(events);
  return found;
}

static uint64_t number_of(const json_t *object, const char *key) {
  return (uint64_t)json_number(object, key);
}

/* The one range of this path. */
static const json_t *range_of(const json_t *seen, const char *path) {
  size_t index;
  json_t *range;
  json_array_foreach(json_object_get(seen, "ranges"), index, range) {
    if (strcmp(json_text(range, "path"), path) == 0) return range;
  }
  ck_abort_msg("no range %s", path);
  return NULL;
}

/* All ranges whose path ends with the name and holds the piece. */
static uint64_t sum_ranges(const json_t *seen, const char *name, const char *piece) {
  size_t index, length = strlen(name);
  json_t *range;
  uint64_t sum = 0;
  json_array_foreach(json_object_get(seen, "ranges"), index, range) {
    const char *path = json_text(range, "path"), *last = strrchr(path, '/');
    if (last && strcmp(last + 1, name) == 0 && strlen(last + 1) == length && strstr(path, piece)) {
      sum += number_of(range, "count");
    }
  }
  return sum;
}

static void check_balance(const json_t *seen) {
  ck_assert_str_eq(json_text(seen, "domain"), "lakebed");
  ck_assert_uint_eq(number_of(seen, "domains_destroyed"), 1);
  ck_assert_uint_eq(number_of(seen, "pushes"), number_of(seen, "pops"));
  ck_assert_uint_eq(number_of(seen, "open"), 0);
  ck_assert_uint_eq(number_of(seen, "pops_too_many"), 0);
  ck_assert_uint_eq(number_of(seen, "lost"), 0);
}

static int layer_of(const char *category) {
  for (int layer = 0; layer < INSTRUMENT_LAYER_COUNT; layer++) {
    if (strcmp(category, instrument_layer_name((instrument_layer)layer)) == 0) return layer;
  }
  ck_abort_msg("no category %s", category);
  return -1;
}

/* Every range lies in one of an outer or the same layer; driver calls have nothing in them. */
static void check_nesting(const json_t *seen) {
  size_t index;
  json_t *range;
  json_array_foreach(json_object_get(seen, "ranges"), index, range) {
    char outer[512];
    snprintf(outer, sizeof outer, "%s", json_text(range, "path"));
    int layer = layer_of(json_text(range, "category"));
    char *last = strrchr(outer, '/');
    if (!last) {
      ck_assert_int_eq(layer, INSTRUMENT_HARNESS);
      continue;
    }
    *last = '\0';
    int outer_layer = layer_of(json_text(range_of(seen, outer), "category"));
    ck_assert_int_le(outer_layer, layer);
    ck_assert_int_ne(outer_layer, INSTRUMENT_DRIVER);
    if (layer == INSTRUMENT_POLICY) ck_assert_int_eq(outer_layer, INSTRUMENT_HARNESS);
  }
}

START_TEST(all_levels) {
  if (!test_library_is_built(NVTX_LISTENER)) test_skip("no NVTX headers");
  json_t *results, *seen = listen("all", false, "gmlake", &results);
  const json_t *result = json_array_get(results, 0);
  check_balance(seen);
  check_nesting(seen);
  ck_assert_uint_eq(number_of(seen, "deepest"), 5);
  /* Operations and driver calls: as many as the results say. */
  const char *name;
  json_t *entry;
  json_object_foreach(json_object_get(result, "operations"), name, entry) {
    ck_assert_uint_eq(sum_ranges(seen, name, "/"), number_of(entry, "count"));
  }
  size_t compared = 0;
  json_object_foreach(json_object_get(result, "driver_calls"), name, entry) {
    /* Asked before the run, while the policy was created. */
    if (strncmp(name, "cuMemGet", strlen("cuMemGet")) == 0) continue;
    ck_assert_uint_eq(sum_ranges(seen, name, "gmlake/alloc") + sum_ranges(seen, name, "gmlake/free"),
                      number_of(entry, "count"));
    compared++;
  }
  ck_assert_uint_ge(compared, 4);
  /* What was taken is returned, within the range of its own. */
  ck_assert_uint_eq(sum_ranges(seen, "cuMemCreate", "/"), sum_ranges(seen, "cuMemRelease", "/"));
  ck_assert_uint_gt(sum_ranges(seen, "cuMemRelease", "gmlake/destroy"), 0);
  json_decref(seen);
  json_decref(results);
}
END_TEST

START_TEST(payloads) {
  if (!test_library_is_built(NVTX_LISTENER)) test_skip("no NVTX headers");
  json_t *results, *seen = listen("all", false, "gmlake:largest_chunk=2MiB", &results);
  ck_assert_str_eq(json_text(seen, "schema"), "bytes,chunks,state");
  size_t index;
  json_t *range;
  json_array_foreach(json_object_get(seen, "ranges"), index, range) {
    const char *path = json_text(range, "path");
    ck_assert_uint_eq(number_of(range, "structured"), number_of(range, "count"));
    ck_assert_uint_eq(number_of(range, "registered"), number_of(range, "count"));
    const char *state = strstr(path, "/S");
    uint64_t expected = state && state[2] >= '1' && state[2] <= '5' ? (uint64_t)(state[2] - '0') : 0;
    ck_assert_uint_eq(number_of(range, "state_least"), expected);
    ck_assert_uint_eq(number_of(range, "state_most"), expected);
  }
  /* Bytes: of the requests, and of a call. */
  const json_t *alloc = range_of(seen, "gmlake:largest_chunk=2MiB/alloc");
  uint64_t requested = 0;
  for (unsigned i = 0; i < EVENTS; i++) requested += (unsigned long)(i * 2654435761u % 60) * 700000 + 1000;
  ck_assert_uint_eq(number_of(alloc, "bytes"), requested);
  const json_t *create = range_of(seen, "gmlake:largest_chunk=2MiB/alloc/S4/grow/cuMemCreate");
  ck_assert_uint_eq(number_of(create, "bytes"), number_of(create, "count") << 21);
  /* Chunks: the last one is made when all others are held. */
  ck_assert_uint_eq(number_of(create, "chunks_most"), number_of(create, "count") - 1);
  json_decref(seen);
  json_decref(results);
}
END_TEST

START_TEST(counters_and_memory) {
  if (!test_library_is_built(NVTX_LISTENER)) test_skip("no NVTX headers");
  json_t *results, *seen = listen("all", false, "bfc", &results);
  const json_t *result = json_array_get(results, 0), *counters = json_object_get(seen, "counters");
  ck_assert_uint_eq(number_of(json_object_get(counters, "reserved bytes"), "last"),
                    number_of(result, "final_reserved_bytes"));
  ck_assert_uint_eq(number_of(json_object_get(counters, "allocated bytes"), "last"),
                    number_of(result, "final_allocated_bytes"));
  ck_assert_uint_ge(number_of(json_object_get(counters, "live bytes"), "samples"), EVENTS);
  ck_assert_uint_eq(number_of(seen, "regions_registered"), EVENTS);
  ck_assert_uint_eq(number_of(seen, "regions_named"), EVENTS);
  ck_assert_uint_eq(number_of(seen, "regions"), LIVE);
  ck_assert_has(json_text(seen, "region_name"), "bfc event ");
  json_decref(seen);
  json_decref(results);
}
END_TEST

/* An older tool, that knows ranges alone: the payload is the bytes. */
START_TEST(tool_without_extensions) {
  if (!test_library_is_built(NVTX_LISTENER)) test_skip("no NVTX headers");
  json_t *seen = listen("all", true, "bfc", NULL);
  check_balance(seen);
  check_nesting(seen);
  const json_t *alloc = range_of(seen, "bfc/alloc");
  ck_assert_uint_eq(number_of(alloc, "structured"), 0);
  ck_assert_uint_eq(number_of(alloc, "count"), EVENTS);
  ck_assert_uint_gt(number_of(alloc, "bytes"), (uint64_t)EVENTS * 1000);
  ck_assert_uint_eq(number_of(seen, "regions_registered"), 0);
  json_decref(seen);
}
END_TEST

START_TEST(coarse) {
  if (!test_library_is_built(NVTX_LISTENER)) test_skip("no NVTX headers");
  json_t *seen = listen("coarse", false, "gmlake,native", NULL);
  check_balance(seen);
  check_nesting(seen);
  ck_assert_uint_eq(number_of(seen, "deepest"), 2);
  ck_assert_uint_eq(number_of(range_of(seen, "gmlake/alloc"), "count"), EVENTS);
  ck_assert_uint_eq(number_of(range_of(seen, "native/alloc"), "count"), EVENTS);
  ck_assert_uint_eq(number_of(range_of(seen, "native/free"), "count"), EVENTS - LIVE);
  ck_assert_uint_eq(number_of(seen, "regions_registered"), 0);
  json_decref(seen);
}
END_TEST

/* Kernels of the verification are found by these ranges. */
START_TEST(verification) {
  if (!test_library_is_built(NVTX_LISTENER)) test_skip("no NVTX headers");
  char *library = test_library_path(NVTX_LISTENER), *path = test_path("seen.json");
  char *events = write_events("events.txt", 30);
  setenv("NVTX_INJECTION64_PATH", library, 1);
  setenv("LAKEBED_NVTX_LISTENER", path, 1);
  program_run run = run_expecting(0, "replay", "-q", "-p", "gmlake,bfc:max_split_size_mb=64", "--verify",
                                  "--nvtx", "coarse", "--capacity", "1GiB", events);
  json_t *seen = json_load_file(path, 0, NULL);
  ck_assert_ptr_nonnull(seen);
  check_balance(seen);
  ck_assert_uint_eq(number_of(range_of(seen, "gmlake/fill"), "count"), 30);
  ck_assert_uint_eq(number_of(range_of(seen, "bfc:max_split_size_mb=64/verify"), "count"), 30);
  json_decref(seen);
  program_run_free(&run);
  free(library);
  free(path);
  free(events);
}
END_TEST

START_TEST(nobody_listens) {
  if (!instrument_nvtx_is_built()) test_skip("no NVTX headers");
  unsetenv("NVTX_INJECTION64_PATH");
  program_run run = run_expecting(0, "replay", "-q", "-p", "null", "--nvtx", "all");
  ck_assert_has(run.errors, "no tool listens");
  program_run_free(&run);
  ck_assert_ptr_null(instrument_nvtx_create(false));
}
END_TEST

START_TEST(not_built) {
  if (instrument_nvtx_is_built()) test_skip("NVTX is built in");
  program_run run = run_expecting(2, "replay", "-q", "-p", "null", "--nvtx", "coarse");
  ck_assert_has(run.errors, "built without NVTX");
  program_run_free(&run);
}
END_TEST

START_TEST(unknown_level) {
  program_run run = run_expecting(2, "replay", "-q", "-p", "null", "--nvtx", "corse");
  ck_assert_has(run.errors, "--nvtx=corse: expected off, coarse or all; did you mean coarse?");
  program_run_free(&run);
}
END_TEST

static Suite *nvtx_suite(void) {
  Suite *suite = suite_create("nvtx");
  TCase *listener = tcase_create("listener");
  tcase_add_test(listener, all_levels);
  tcase_add_test(listener, payloads);
  tcase_add_test(listener, counters_and_memory);
  tcase_add_test(listener, tool_without_extensions);
  tcase_add_test(listener, coarse);
  tcase_add_test(listener, verification);
  suite_add_tcase(suite, listener);
  TCase *none = tcase_create("none");
  tcase_add_test(none, nobody_listens);
  tcase_add_test(none, not_built);
  tcase_add_test(none, unknown_level);
  suite_add_tcase(suite, none);
  return suite;
}

TEST_MAIN(nvtx_suite)
