/* lakebed replay --dump-at and --dump: maps of memory in numbers and in pictures. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/exit_status.h"
#include "harness/memory_map.h"
#include "policies/policy.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)

/* Two blocks that are free apart from each other, and a request that only both together can serve. */
#define STITCHED \
  "a 1 4194304\na 2 8388608\na 3 4194304\na 4 8388608\na 5 4194304\nf 2\nf 4\na 6 16777216\nf 1\n"

/* The objects of the file of maps, to be freed. */
static json_t *read_maps(const char *path) {
  json_error_t error;
  json_t *maps = json_load_file(path, 0, &error);
  ck_assert_msg(maps != NULL, "%s: %s", path, error.text);
  return maps;
}

static const json_t *map_of(const json_t *maps, size_t i) {
  const json_t *map = json_object_get(json_array_get(maps, i), "map");
  ck_assert(json_is_object(map));
  return map;
}

static uint64_t whole(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  ck_assert_msg(json_is_integer(value), "%s is no whole number", key);
  return (uint64_t)json_integer_value(value);
}

static uint64_t sum(const json_t *array, const char *key) {
  uint64_t all = 0;
  size_t i;
  const json_t *entry;
  json_array_foreach(array, i, entry) { all += whole(entry, key); }
  return all;
}

/* Runs follow one another without a gap, and regions, blocks and chunks add up to them. */
static void check_map(const json_t *map) {
  const json_t *runs = json_object_get(map, "runs"), *entry;
  uint64_t position = 0, live = 0, available = 0;
  size_t i;
  json_array_foreach(runs, i, entry) {
    ck_assert_uint_eq(whole(entry, "position"), position);
    position += whole(entry, "bytes");
    if (strcmp(json_text(entry, "state"), "live") == 0) live += whole(entry, "bytes");
    if (strcmp(json_text(entry, "state"), "free") == 0) available += whole(entry, "bytes");
  }
  ck_assert_uint_eq(position, whole(map, "line_bytes"));
  ck_assert_uint_eq(live, whole(map, "allocated_bytes"));
  ck_assert_uint_eq(available, whole(map, "free_bytes"));
  const json_t *regions = json_object_get(map, "regions");
  ck_assert_uint_eq(sum(regions, "held_bytes"), position - whole(map, "unmapped_bytes"));
  ck_assert_uint_eq(sum(regions, "live_bytes"), live);
  ck_assert_uint_eq(sum(regions, "free_bytes"), available);
  ck_assert_uint_eq(sum(json_object_get(map, "chunks"), "count"), whole(map, "chunks_count"));
  const json_t *blocks = json_object_get(map, "blocks");
  json_array_foreach(json_object_get(map, "stitched"), i, entry) {
    const json_t *parts = json_object_get(entry, "parts"), *part;
    size_t k;
    uint64_t offset = 0;
    json_array_foreach(parts, k, part) {
      ck_assert_uint_ge(whole(part, "offset"), offset);
      offset = whole(part, "offset") + whole(part, "bytes");
      if (json_is_null(json_object_get(part, "block"))) continue;
      const json_t *home = json_array_get(blocks, whole(part, "block"));
      ck_assert_uint_eq(whole(part, "position"), whole(home, "position") + whole(part, "offset_in_block"));
      ck_assert_uint_le(whole(part, "offset_in_block") + whole(part, "bytes"), whole(home, "bytes"));
      ck_assert_uint_ge(whole(part, "first_chunk"), whole(home, "first_chunk"));
      ck_assert_uint_le(whole(part, "last_chunk"), whole(home, "last_chunk"));
      ck_assert_uint_gt(whole(home, "sharers"), 0);
    }
    ck_assert_uint_le(offset, whole(entry, "bytes"));
  }
}

/* ---- numbers ---- */

START_TEST(a_map_shows_what_is_stitched_from_what) {
  char *trace = write_test_file("stitched.txt", STITCHED), *path = test_path("maps.json");
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "gmlake:stitching=eager,bfc",
                                  "--dump-at", "7", "--dump", path, trace);
  ck_assert_has(run.output, "gmlake:stitching=eager: memory after an event (lap 1, event 7)");
  ck_assert_has(run.output, "Blocks at home, and in how many stitched ones they are:");
  json_t *maps = read_maps(path);
  ck_assert_uint_eq(json_array_size(maps), 2);
  ck_assert_str_eq(json_text(json_array_get(maps, 0), "dump_at"), "7");
  const json_t *map = map_of(maps, 0);
  check_map(map);
  check_map(map_of(maps, 1));
  ck_assert_uint_eq(json_array_size(json_object_get(map_of(maps, 1), "stitched")), 0);
  ck_assert_uint_eq(whole(map, "event"), 7);
  ck_assert_uint_eq(whole(map, "live_bytes"), 28 * MIB);
  ck_assert_uint_eq(whole(map, "line_bytes"), 28 * MIB);
  ck_assert_uint_eq(whole(map, "chunks_count"), 14);
  ck_assert_uint_eq(whole(map, "shared_bytes"), 16 * MIB);
  ck_assert_uint_eq(whole(map, "extra_mappings"), 8);
  const json_t *stitched = json_object_get(map, "stitched");
  ck_assert_uint_eq(json_array_size(stitched), 1);
  const json_t *sblock = json_array_get(stitched, 0), *parts = json_object_get(sblock, "parts");
  ck_assert_str_eq(json_text(sblock, "kind"), "sBlock");
  ck_assert(json_is_true(json_object_get(sblock, "given_out")));
  ck_assert_uint_eq(json_array_size(parts), 2);
  ck_assert_uint_eq(whole(sblock, "used_bytes"), 16 * MIB);
  ck_assert_uint_eq(whole(sblock, "shared_bytes"), 0);
  const json_t *home =
      json_array_get(json_object_get(map, "blocks"), whole(json_array_get(parts, 0), "block"));
  ck_assert_str_eq(json_text(home, "kind"), "pBlock");
  ck_assert_uint_eq(whole(home, "bytes"), 8 * MIB);
  ck_assert_uint_eq(whole(home, "sharers"), 1);
  ck_assert_uint_eq(sum(json_object_get(map, "covers"), "bytes"), 16 * MIB);
  json_decref(maps);
  program_run_free(&run);
  free(trace);
  free(path);
}
END_TEST

START_TEST(every_policy_has_a_map_that_adds_up) {
  static const char *const runs[][3] = {
      {"workloads/bundled/sawtooth_seq.txt.xz", "peak", "0"},
      {"workloads/bundled/multi_stream.txt.xz", "7000", "40"},
      {"workloads/bundled/opt-1.3b-N-b8-s512-w4-v1.pickle.xz", "30000", "0"}};
  char *path = test_path("all.json");
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--dump-at", runs[i][1],
                                    "--event-delay", runs[i][2], "--dump", path, runs[i][0]);
    json_t *maps = read_maps(path);
    ck_assert_uint_gt(json_array_size(maps), 7);
    size_t k;
    const json_t *entry;
    json_array_foreach(maps, k, entry) {
      const json_t *map = json_object_get(entry, "map");
      check_map(map);
      const bool elsewhere =
          strcmp(json_text(entry, "policy"), "async") == 0 || strcmp(json_text(entry, "policy"), "null") == 0;
      if (!elsewhere) ck_assert_uint_eq(whole(map, "line_bytes"), whole(map, "reserved_bytes"));
    }
    json_decref(maps);
    program_run_free(&run);
  }
  free(path);
}
END_TEST

START_TEST(the_peak_is_where_most_is_live) {
  char *trace = write_test_file("peak.txt",
                                "a 1 1000000\na 2 3000000\nf 1\na 3 1000\nf 2\na 4 3000000\na 5 1000\nf 4\n");
  char *path = test_path("peak.json");
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "bfc,native", "--laps", "2",
                                  "--dump", path, trace);
  ck_assert_has(run.output, "bfc: memory when most was live (lap 1, event 1)");
  json_t *maps = read_maps(path);
  ck_assert_str_eq(json_text(json_array_get(maps, 0), "dump_at"), "peak");
  for (size_t i = 0; i < 2; i++) {
    ck_assert_uint_eq(whole(map_of(maps, i), "event"), 1);
    ck_assert_uint_eq(whole(map_of(maps, i), "live_blocks"), 2);
  }
  json_decref(maps);
  program_run_free(&run);
  free(trace);
  free(path);
}
END_TEST

START_TEST(the_first_request_that_finds_nothing_is_shown) {
  char *trace = write_test_file("oom.txt", "a 1 30000000\na 2 30000000\na 3 50000000\na 4 60000000\nf 1\n");
  char *path = test_path("oom.json");
  program_run run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "replay", "-q", "-p", "bfc,null", "--limit",
                                  "80MiB", "--dump-at", "oom", "--dump", path, trace);
  ck_assert_has(run.output, "bfc: memory when a request found none (lap 1, event 2)");
  ck_assert_has(run.output, "null: no map of memory: no request found no memory");
  json_t *maps = read_maps(path);
  ck_assert_uint_eq(whole(map_of(maps, 0), "wanted_bytes"), 50000000);
  ck_assert(json_is_null(json_object_get(json_array_get(maps, 1), "map")));
  ck_assert_str_eq(json_text(json_array_get(maps, 1), "no_map"), "no request found no memory");
  json_decref(maps);
  program_run_free(&run);
  free(trace);
  free(path);
}
END_TEST

START_TEST(events_are_counted_over_all_laps) {
  char *trace = write_test_file("laps.txt", "a 1 100\na 2 100\nf 1\n");
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "bfc", "--laps", "3", "--dump-at", "7", trace);
  ck_assert_has(run.output, "memory after an event (lap 3, event 1)");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "-p", "bfc", "--laps", "3", "--dump-at", "9", trace);
  ck_assert_has(run.errors, "laps.txt: there is no event 9: the replay has 9 of them, counted from 0");
  program_run_free(&run);
  free(trace);
}
END_TEST

/* A block that another stream still uses is neither live nor free. */
START_TEST(freed_blocks_that_wait_are_told_apart) {
  const vmm_sim_configuration device = {.capacity = 64 * MIB, .event_delay = 1000000};
  vmm_driver *sim;
  policy_spec spec;
  policy *made;
  char message[256];
  vmm_address first, second;
  ck_assert_int_eq(vmm_sim_create(&device, &sim), VMM_SUCCESS);
  ck_assert_int_eq(policy_spec_parse("bfc", &spec, message, sizeof message), VMM_SUCCESS);
  ck_assert_int_eq(policy_create(&spec, sim, UINT64_MAX, &made, message, sizeof message), VMM_SUCCESS);
  ck_assert_int_eq(policy_alloc(made, 3 * MIB, 0, &first), VMM_SUCCESS);
  ck_assert_int_eq(policy_alloc(made, 4 * MIB, 0, &second), VMM_SUCCESS);
  ck_assert_int_eq(policy_record_stream(made, first, 1), VMM_SUCCESS);
  ck_assert_int_eq(policy_free(made, first), VMM_SUCCESS);
  memory_map *map = memory_map_make(made, &(memory_map){.lap = 1});
  ck_assert_ptr_nonnull(map);
  ck_assert_uint_eq(map->state_bytes[MEMORY_WAITING], 3 * MIB);
  ck_assert_uint_eq(map->state_bytes[MEMORY_LIVE], 4 * MIB);
  ck_assert_uint_eq(map->state_bytes[MEMORY_FREE], 13 * MIB);
  ck_assert_uint_eq(map->live_blocks, 1);
  ck_assert_uint_eq(map->region_count, 1);
  ck_assert_uint_eq(map->regions[0].waiting_bytes, 3 * MIB);
  ck_assert_uint_eq(map->regions[0].largest_free_bytes, 13 * MIB);
  ck_assert_uint_eq(map->runs[0].address, first);
  ck_assert_str_eq(memory_state_name(map->runs[0].state), "waiting");
  memory_map_free(map);
  policy_destroy(made);
  vmm_driver_destroy(sim);
}
END_TEST

/* ---- pictures ---- */

static size_t count_pieces(const char *text, const char *piece) {
  size_t count = 0;
  for (const char *at = text; (at = strstr(at, piece)); at += strlen(piece)) count++;
  return count;
}

/* Every element is closed, in order, and nothing but elements and text is there. */
static void check_markup(const char *text) {
  char open[16][16];
  size_t depth = 0;
  for (const char *at = strchr(text, '<'); at; at = strchr(at + 1, '<')) {
    const char *end = strchr(at, '>');
    ck_assert_ptr_nonnull(end);
    char name[16] = "";
    if (at[1] == '/') {
      ck_assert_int_eq(sscanf(at + 2, "%15[a-z]", name), 1);
      ck_assert_uint_gt(depth, 0);
      ck_assert_str_eq(name, open[--depth]);
    } else {
      ck_assert_int_eq(sscanf(at + 1, "%15[a-z]", name), 1);
      if (end[-1] == '/') continue;
      ck_assert_uint_lt(depth, 16);
      memcpy(open[depth++], name, sizeof name);
    }
  }
  ck_assert_uint_eq(depth, 0);
}

START_TEST(a_drawing_has_a_picture_a_run) {
  char *trace = write_test_file("a<b&c.txt", STITCHED), *path = test_path("maps.svg"),
       *again = test_path("again.svg");
  for (int i = 0; i < 2; i++) {
    program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "bfc,gmlake:stitching=eager,null",
                                    "--dump-at", "7", "--dump", i ? again : path, trace);
    program_run_free(&run);
  }
  char *text = read_test_file(path), *same = read_test_file(again);
  ck_assert_str_eq(text, same);
  check_markup(text);
  ck_assert_uint_eq(count_pieces(text, "<svg "), 1);
  ck_assert_uint_eq(count_pieces(text, "<g class=\"map\">"), 3);
  ck_assert_has(
      text, "<text x=\"84\" y=\"24\" class=\"title\">a&lt;b&amp;c.txt, bfc: memory after an event</text>");
  ck_assert_has(text, "lap 1, event 7: 28.0 MiB live, 28.0 MiB reserved");
  ck_assert_has(text, "Physical memory in the order of its home addresses, 16.0 MiB a row");
  ck_assert_has(text, "1 stitched block: where in memory each one's chunks lie");
  ck_assert_uint_eq(count_pieces(text, "<path class=\"held\""), 1);
  ck_assert_uint_eq(count_pieces(text, "<path class=\"thread\""), 1);
  /* 28 MiB in rows of 16: 8 MiB of the first are covered, from column 256 on, and as many of the second. */
  ck_assert_uint_eq(count_pieces(text, "<path class=\"c1\""), 2);
  ck_assert_has(text, "<path class=\"c1\" d=\"M340 ");
  free(text);
  free(same);
  free(trace);
  free(path);
  free(again);
}
END_TEST

/* What is empty, what is in neither column nor row, what came from outside. */
START_TEST(a_drawing_takes_anything) {
  memory_drawing *drawing = memory_drawing_create();
  ck_assert(memory_drawing_add(drawing, "a \"title\"\n\xff", NULL, "there is <none>"));
  const memory_map empty = {0};
  ck_assert(memory_drawing_add(drawing, "\xc3\xa4", &empty, ""));
  /* More than 96 rows of 16 MiB; a run of less than a pixel. */
  memory_run runs[] = {
      {.bytes = 1, .home = 1, .state = MEMORY_LIVE},
      {.position = 1, .bytes = (UINT64_C(200) << 30) - 2, .home = 2, .state = MEMORY_FREE},
      {.position = (UINT64_C(200) << 30) - 1, .bytes = 1, .home = 3, .state = MEMORY_WAITING}};
  const memory_map large = {.bytes = UINT64_C(200) << 30,
                            .runs = runs,
                            .run_count = 3,
                            .state_bytes = {[MEMORY_WAITING] = 1},
                            .wanted_bytes = 17};
  ck_assert(memory_drawing_add(drawing, "large", &large, ""));
  char *text;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  ck_assert(memory_drawing_write(drawing, stream));
  fclose(stream);
  check_markup(text);
  ck_assert_has(text, ">a \"title\"?\?</text>");
  ck_assert_has(text, "there is &lt;none&gt;");
  ck_assert_has(text, ">\xc3\xa4</text>");
  ck_assert_has(text, "No memory is held.");
  ck_assert_has(text, "4.00 GiB a row");
  ck_assert_has(text, "a request of 17 B found no memory");
  ck_assert_uint_eq(count_pieces(text, "<path class=\"free\""), 50);
  free(text);
  memory_drawing_destroy(drawing);
  memory_drawing_destroy(NULL);
  memory_map_free(NULL);
}
END_TEST

/* ---- usage ---- */

START_TEST(wrong_options_are_refused) {
  static const char *const wrong[][3] = {
      {"--dump-at=highest", NULL, "--dump-at=highest: expected the number of an event, peak or oom"},
      {"--dump-at=-1", NULL, "--dump-at=-1: expected the number of an event, peak or oom"},
      {"--dump-at=12x", NULL, "--dump-at=12x: expected a whole number"},
      {"--dump-at=99999999999999999999", NULL, "expected a whole number"},
      {"--dump=map.png", NULL, "--dump=map.png: expected the name of a file that ends in .svg or .json"},
      {"--dump=-", NULL, "--dump=-: expected the name of a file that ends in .svg or .json"},
      {"--dump=.svg", NULL, "expected the name of a file that ends in .svg or .json"},
      {"--dump=/nowhere/at/all.svg", NULL, "/nowhere/at/all.svg cannot be written"},
      {"--dump=one.svg", "--dump=two.svg", "--dump=two.svg: one.svg is to have the maps already"},
  };
  char *trace = write_test_file("usage.txt", "a 1 100\nf 1\n");
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    program_run run =
        wrong[i][1] ? run_program("replay", "-q", "-p", "bfc", trace, wrong[i][0], wrong[i][1], (char *)NULL)
                    : run_program("replay", "-q", "-p", "bfc", trace, wrong[i][0], (char *)NULL);
    ck_assert_msg(run.status == EXIT_STATUS_USAGE, "%s ended with %d", wrong[i][0], run.status);
    ck_assert_has(run.errors, wrong[i][2]);
    program_run_free(&run);
  }
  free(trace);
}
END_TEST

START_TEST(maps_overwrite_no_trace_and_no_other_output) {
  char *trace = write_test_file("trace.json", "a 1 100\nf 1\n"), *other = test_path("both.json");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "-p", "bfc", "--dump", trace, trace);
  program_run_free(&run);
  run =
      run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "-p", "bfc", "--dump", other, "--json", other, trace);
  ck_assert_has(run.errors, "it is being written already");
  program_run_free(&run);
  char *text = read_test_file(trace);
  ck_assert_str_eq(text, "a 1 100\nf 1\n");
  free(text);
  free(trace);
  free(other);
}
END_TEST

START_TEST(the_peak_of_standard_input_needs_a_trace_that_is_kept) {
  char *kept = write_test_file("kept.txt", STITCHED), *path = test_path("long.txt");
  FILE *stream = fopen(path, "w");
  ck_assert_ptr_nonnull(stream);
  for (int i = 0; i < (1 << 19) + 1; i++) fputs("a 1 100\nf 1\n", stream);
  fclose(stream);
  ck_assert_ptr_nonnull(freopen(kept, "r", stdin));
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "bfc", "--dump-at=peak", "-");
  ck_assert_has(run.output, "bfc: memory when most was live");
  program_run_free(&run);
  ck_assert_ptr_nonnull(freopen(path, "r", stdin));
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "-p", "null", "--dump-at=peak", "-");
  ck_assert_has(run.errors,
                "name one policy, one lap and another moment than the peak, or store it in a file");
  program_run_free(&run);
  ck_assert_ptr_nonnull(freopen(path, "r", stdin));
  run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "-p", "null", "--dump-at=1000000", "-");
  ck_assert_has(run.output, "null: memory after an event (lap 1, event 1000000)");
  program_run_free(&run);
  remove(path);
  free(path);
  free(kept);
}
END_TEST

static Suite *memory_map_suite(void) {
  Suite *suite = suite_create("harness_memory_map");
  TCase *cases = tcase_create("numbers");
  tcase_add_test(cases, a_map_shows_what_is_stitched_from_what);
  tcase_add_test(cases, every_policy_has_a_map_that_adds_up);
  tcase_add_test(cases, freed_blocks_that_wait_are_told_apart);
  tcase_add_test(cases, the_peak_is_where_most_is_live);
  tcase_add_test(cases, the_first_request_that_finds_nothing_is_shown);
  tcase_add_test(cases, events_are_counted_over_all_laps);
  suite_add_tcase(suite, cases);
  TCase *pictures = tcase_create("pictures");
  tcase_add_test(pictures, a_drawing_has_a_picture_a_run);
  tcase_add_test(pictures, a_drawing_takes_anything);
  suite_add_tcase(suite, pictures);
  TCase *usage = tcase_create("usage");
  tcase_add_test(usage, wrong_options_are_refused);
  tcase_add_test(usage, maps_overwrite_no_trace_and_no_other_output);
  tcase_add_test(usage, the_peak_of_standard_input_needs_a_trace_that_is_kept);
  suite_add_tcase(suite, usage);
  return suite;
}

TEST_MAIN(memory_map_suite)
