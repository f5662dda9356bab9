/* lakebed report: what becomes of results of each kind, and of what is none. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/exit_status.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

static const char trace[] = "a 1 6000000\na 2 300\nf 1\na 3 30000000 1\nf 2\n";

/* The results in a page, of the script element that holds them; to be released. */
static json_t *results_of(const char *page) {
  static const char begin[] = "<script type=\"application/json\" id=\"results\">";
  const char *from = strstr(page, begin);
  ck_assert_ptr_nonnull(from);
  from += strlen(begin);
  const char *end = strstr(from, "</script>");
  ck_assert_ptr_nonnull(end);
  json_error_t error;
  json_t *results = json_loadb(from, (size_t)(end - from), 0, &error);
  ck_assert_msg(results != NULL, "the page has no JSON: %s", error.text);
  return results;
}

static json_t *report_of(const char *path) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "report", path, "-o", "-");
  json_t *results = results_of(run.output);
  program_run_free(&run);
  return results;
}

static size_t count_of(const json_t *results, const char *part) {
  return json_array_size(json_object_get(results, part));
}

/* A report of this content ends with a message that has these pieces, and nothing is written. */
static void expect_refused(const char *name, const char *content, const char *piece) {
  char *input = write_test_file(name, content), *output = test_path("refused.html");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "report", input, "-o", output);
  ck_assert_has(run.errors, name);
  ck_assert_has(run.errors, piece);
  ck_assert_str_eq(run.output, "");
  ck_assert_int_ne(access(output, F_OK), 0);
  program_run_free(&run);
  free(input);
  free(output);
}

/* ---- kinds of results ---- */

START_TEST(a_replay_becomes_a_page) {
  char *input = write_test_file("short.txt", trace), *json = test_path("r.json"),
       *timeline = test_path("t.csv");
  char *maps = test_path("m.json"), *iterations = test_path("i.csv"), *page = test_path("page.html"),
       asked[600];
  snprintf(asked, sizeof asked, "--iterations=%s", iterations);
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", input, "-p", "bfc,gmlake", "--json", json,
                                  "--timeline", timeline, "--dump", maps, asked);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "report", json, timeline, maps, iterations, "-o", page, "--title",
                      "<Ours>");
  ck_assert_str_eq(run.output, "");
  ck_assert_str_eq(run.errors, "");
  program_run_free(&run);
  char *text = read_test_file(page);
  ck_assert_int_eq(strncmp(text, "<!doctype html>", 15), 0);
  ck_assert_has(text, "Permission is hereby granted");
  ck_assert_has(text, "default-src 'none'");
  ck_assert_ptr_null(strstr(text, "@include"));
  ck_assert_ptr_null(strstr(text, "<script src"));
  ck_assert_ptr_null(strstr(text, "<link"));
  json_t *results = results_of(text);
  ck_assert_str_eq(json_text(results, "title"), "<Ours>");
  ck_assert_uint_eq(count_of(results, "sources"), 4);
  ck_assert_uint_eq(count_of(results, "runs"), 2);
  ck_assert_uint_eq(count_of(results, "lines"), 2);
  ck_assert_uint_eq(count_of(results, "maps"), 2);
  /* Those of the JSON and those of the CSV. */
  ck_assert_uint_eq(count_of(results, "iterations"), 4);
  const json_t *bfc = json_array_get(json_object_get(results, "runs"), 0);
  ck_assert_str_eq(json_text(bfc, "trace"), "short.txt");
  ck_assert(json_number(bfc, "live_peak_bytes") == 30000640);
  const json_t *costs = json_object_get(json_object_get(bfc, "driver_calls"), "cuMemAlloc");
  ck_assert_uint_eq(json_array_size(costs), 5);
  ck_assert_int_eq(json_integer_value(json_array_get(costs, 0)), 3);
  const json_t *line = json_array_get(json_object_get(results, "lines"), 0);
  ck_assert_uint_eq(count_of(line, "events"), 5);
  ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(line, "live"), 1)), 6000128 + 512);
  json_decref(results);
  free(text);
  free(input);
  free(json);
  free(timeline);
  free(maps);
  free(iterations);
  free(page);
}
END_TEST

START_TEST(a_replay_makes_its_page_itself) {
  char *input = write_test_file("short.txt", trace), *page = test_path("own.html");
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", input, input, "-p", "bfc,native", "--report", page);
  ck_assert_has(run.output, "reserved peak");
  ck_assert_msg(strstr(run.output, "memory when most was live") == NULL, "maps are printed too:\n%s",
                run.output);
  program_run_free(&run);
  char *text = read_test_file(page);
  json_t *results = results_of(text);
  ck_assert_str_eq(json_text(results, "title"), "2 traces");
  ck_assert_uint_eq(count_of(results, "sources"), 3);
  ck_assert_uint_eq(count_of(results, "runs"), 4);
  ck_assert_uint_eq(count_of(results, "lines"), 4);
  ck_assert_uint_eq(count_of(results, "maps"), 4);
  const json_t *map = json_array_get(json_object_get(results, "maps"), 0);
  ck_assert_str_eq(json_text(map, "dump_at"), "peak");
  json_decref(results);
  free(text);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", input, "--report", input);
  ck_assert_has(run.errors, "it is a trace to replay");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", input, "--report", "-", "--json", "-");
  ck_assert_has(run.errors, "standard output");
  program_run_free(&run);
  free(input);
  free(page);
}
END_TEST

START_TEST(a_folder_gives_its_results_once) {
  char *folder = test_path("results"), path[600];
  ck_assert_int_eq(mkdir(folder, 0700), 0);
  char *input = write_test_file("short.txt", trace), json[600], csv[600];
  snprintf(json, sizeof json, "%s/replay.json", folder);
  snprintf(csv, sizeof csv, "%s/replay.csv", folder);
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", input, "-p", "bfc,native", "--json", json,
                                  "--csv", csv);
  program_run_free(&run);
  snprintf(path, sizeof path, "%s/notes.txt", folder);
  FILE *notes = fopen(path, "w");
  ck_assert_ptr_nonnull(notes);
  ck_assert_int_eq(fclose(notes), 0);
  json_t *results = report_of(folder);
  ck_assert_uint_eq(count_of(results, "runs"), 2);
  ck_assert_uint_eq(count_of(results, "sources"), 2);
  json_decref(results);
  ck_assert_int_eq(unlink(json), 0);
  results = report_of(folder);
  ck_assert_uint_eq(count_of(results, "runs"), 2);
  const json_t *native = json_array_get(json_object_get(results, "runs"), 1);
  ck_assert(json_number(native, "reserved_peak_bytes") == 30000300);
  ck_assert(json_number(native, "calls") == 5);
  json_decref(results);
  ck_assert_int_eq(unlink(csv), 0);
  run = run_expecting(EXIT_STATUS_USAGE, "report", folder, "-o", "-");
  ck_assert_has(run.errors, ".json");
  program_run_free(&run);
  ck_assert_int_eq(unlink(path), 0);
  ck_assert_int_eq(rmdir(folder), 0);
  free(input);
  free(folder);
}
END_TEST

START_TEST(other_results_become_tables) {
  char *bench = write_test_file("b.json",
                                "{\"program\":\"lakebed 9, bench vmm\",\"device\":\"D\",\"results\":["
                                "{\"benchmark\":\"x\",\"a\":1},{\"benchmark\":\"y\",\"b\":2.5},"
                                "{\"benchmark\":\"x\",\"c\":\"t\",\"a\":null}]}");
  json_t *results = report_of(bench);
  const json_t *tables = json_object_get(results, "tables");
  ck_assert_uint_eq(json_array_size(tables), 2);
  ck_assert_uint_eq(count_of(json_array_get(tables, 0), "rows"), 2);
  ck_assert_uint_eq(json_object_size(json_object_get(json_array_get(tables, 0), "columns")), 2);
  json_decref(results);
  char *csv = write_test_file("c.csv",
                              "# program: lakebed 9, bench alloc\n# note: a: b\nname,x_us\n"
                              "\"a \"\"b\"\",\nc\",2.5\nd,\n");
  results = report_of(csv);
  const json_t *rows = json_object_get(json_array_get(json_object_get(results, "tables"), 0), "rows");
  ck_assert_str_eq(json_string_value(json_array_get(json_array_get(rows, 0), 0)), "a \"b\",\nc");
  ck_assert(json_real_value(json_array_get(json_array_get(rows, 0), 1)) == 2.5);
  ck_assert(json_is_null(json_array_get(json_array_get(rows, 1), 1)));
  const json_t *provenance =
      json_object_get(json_array_get(json_object_get(results, "sources"), 0), "provenance");
  ck_assert_str_eq(json_string_value(json_array_get(json_object_get(provenance, "note"), 0)), "a: b");
  json_decref(results);
  program_run run = run_expecting(EXIT_STATUS_DONE, "oom", "-q", "edge", "-p", "bfc,native", "--json", "-");
  char *oom = write_test_file("oom.json", run.output);
  program_run_free(&run);
  results = report_of(oom);
  ck_assert_uint_eq(count_of(json_array_get(json_object_get(results, "tables"), 0), "rows"), 2);
  json_decref(results);
  free(bench);
  free(csv);
  free(oom);
}
END_TEST

START_TEST(a_sweep_has_lines_of_its_runs) {
  char *input = write_test_file("short.txt", trace), grid[700], results[600];
  snprintf(grid, sizeof grid, "trace %s\npolicy bfc\ncapacity {1,2}GiB\ntimeline 100\n", input);
  char *path = write_test_file("two.grid", grid), *folder = test_path("two.sweep");
  program_run run = run_expecting(EXIT_STATUS_DONE, "sweep", "-q", path);
  program_run_free(&run);
  json_t *page = report_of(folder);
  ck_assert_uint_eq(count_of(page, "runs"), 2);
  ck_assert_uint_eq(count_of(page, "lines"), 2);
  for (size_t i = 0; i < 2; i++) {
    const json_t *line = json_array_get(json_object_get(page, "lines"), i);
    ck_assert(json_number(line, "run") == (double)i);
    ck_assert_uint_eq(count_of(line, "reserved"), 5);
  }
  json_decref(page);
  static const char *const files[] = {"results.json", "results.csv", "cells.jsonl", "lock"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(results, sizeof results, "%s/%s", folder, files[i]);
    ck_assert_int_eq(unlink(results), 0);
  }
  ck_assert_int_eq(rmdir(folder), 0);
  free(input);
  free(path);
  free(folder);
}
END_TEST

/* ---- size ---- */

START_TEST(points_of_a_line_are_bounded) {
  char *path = test_path("long.csv");
  FILE *stream = fopen(path, "w");
  ck_assert_ptr_nonnull(stream);
  fputs("trace,policy,event,time_us,live_bytes,allocated_bytes,reserved_bytes\n", stream);
  for (unsigned i = 0; i < 100000; i++)
    fprintf(stream, "t,p,%u,0,%u,0,%u\n", i, i % 7 + (i == 54321 ? 1000 : 0),
            i % 5 + (i == 12345 ? 2000 : 0));
  ck_assert_int_eq(fclose(stream), 0);
  json_t *results = report_of(path);
  const json_t *line = json_array_get(json_object_get(results, "lines"), 0);
  ck_assert_uint_le(count_of(line, "events"), 2000);
  json_int_t live = 0, reserved = 0;
  for (size_t i = 0; i < count_of(line, "events"); i++) {
    json_int_t point = json_integer_value(json_array_get(json_object_get(line, "live"), i));
    if (point > live) live = point;
    point = json_integer_value(json_array_get(json_object_get(line, "reserved"), i));
    if (point > reserved) reserved = point;
  }
  ck_assert_int_eq(live, 54321 % 7 + 1000);
  ck_assert_int_eq(reserved, 12345 % 5 + 2000);
  ck_assert_ptr_null(json_object_get(line, "times"));
  json_decref(results);
  free(path);
}
END_TEST

#define MAP_OF(line_bytes, runs, more)                                                       \
  "[{\"trace\":\"t\",\"policy\":\"p\",\"dump_at\":\"peak\",\"no_map\":null,\"map\":{\"line_" \
  "bytes\":" line_bytes ",\"runs\":[" runs "]" more "}}]"
#define RUN(position, bytes, state) "{\"position\":" position ",\"bytes\":" bytes ",\"state\":\"" state "\"}"

START_TEST(a_map_is_cut_into_cells) {
  /* 16 GiB: cells of 2 MiB are 8192. */
  char *path = write_test_file(
      "map.json",
      MAP_OF("17179869184",
             RUN("0", "2097152", "live") "," RUN("2097152", "1", "waiting") "," RUN(
                 "2097153", "17177771519", "free") "," RUN("17179868672", "512", "live"),
             ",\"covers\":[{\"position\":2097152,\"bytes\":4194304,\"count\":70}],\"regions\":["
             "{\"kind\":\"segment\",\"address\":18446744,\"address_bytes\":8,\"held_bytes\":4194304},"
             "{\"kind\":\"segment\",\"address\":255,\"address_bytes\":8,\"held_bytes\":17175674880}],"
             "\"stitched\":[{\"kind\":\"sBlock\",\"bytes\":5,\"used_bytes\":3,\"given_out\":true}]"));
  json_t *results = report_of(path);
  const json_t *map = json_array_get(json_object_get(results, "maps"), 0);
  ck_assert(json_number(map, "cell_bytes") == 2097152);
  const char *cells = json_text(map, "cells"), *covers = json_text(map, "covers");
  ck_assert_uint_eq(strlen(cells), 8192);
  /* All live; a byte that waits; free; 512 bytes live, of the other shade. */
  ck_assert_int_eq(cells[0], 'c');
  ck_assert_int_eq(cells[1], 'B');
  ck_assert_int_eq(cells[2], 'A');
  ck_assert_int_eq(cells[8191], 'k');
  ck_assert_int_eq(covers[0], 'A');
  ck_assert_int_eq(covers[1], '_');
  ck_assert_int_eq(covers[2], '_');
  ck_assert_int_eq(covers[3], 'A');
  ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(map, "starts"), 1)), 2);
  const json_t *largest = json_array_get(json_object_get(map, "regions"), 0);
  ck_assert_str_eq(json_text(largest, "address"), "0xff");
  const json_t *sums = json_object_get(json_object_get(map, "blocks"), "sBlock");
  ck_assert_int_eq(json_integer_value(json_array_get(sums, 3)), 3);
  json_decref(results);
  free(path);
}
END_TEST

/* ---- what is no result ---- */

START_TEST(what_is_no_result_is_refused) {
  expect_refused("empty.json", "", "empty");
  expect_refused("list.json", "[]", "empty list");
  expect_refused("other.json", "{\"a\":1}", "these are no results");
  expect_refused("list2.json", "[{\"trace\":\"t\",\"policy\":\"p\"}]", "these are no results");
  expect_refused("numbers.json", "[1,2]", "these are no results");
  expect_refused("broken.json", "[{\"trace\":\n\"t\",", ":2:");
  expect_refused("text.csv", "some words\n", "these are no results");
  expect_refused("bytes.csv",
                 "\x7f"
                 "ELF",
                 "these are no results");
  expect_refused("remarks.csv", "# program: lakebed 1, replay\n", "names of columns");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "report", "/nonexistent.json", "-o", "-");
  ck_assert_has(run.errors, "/nonexistent.json");
  program_run_free(&run);
}
END_TEST

START_TEST(damaged_results_are_refused) {
  expect_refused("type.json", "[{\"trace\":\"t\",\"policy\":\"p\",\"status\":\"done\",\"driver_us\":\"7\"}]",
                 "[0].driver_us: expected a number");
  expect_refused("name.json", "[{\"trace\":7,\"policy\":\"p\",\"status\":\"done\"}]",
                 "[0].trace: expected a text");
  expect_refused(
      "costs.json",
      "[{\"trace\":\"t\",\"policy\":\"p\",\"status\":\"done\",\"driver_calls\":{\"c\":{\"us\":\"x\"}}}]",
      "driver_calls.c.us");
  expect_refused("line.json",
                 "[{\"trace\":\"t\",\"policy\":\"p\",\"status\":\"done\",\"timeline\":[[0,0,-1,0,0]]}]",
                 "timeline[0]");
  expect_refused(
      "mixed.json",
      "[{\"trace\":\"t\",\"policy\":\"p\",\"status\":\"done\"},{\"trace\":\"t\",\"policy\":\"p\"}]", "[1]");
  expect_refused("gap.json", MAP_OF("1024", RUN("0", "512", "live") "," RUN("600", "1", "free"), ""),
                 "runs[1]");
  expect_refused("long.json", MAP_OF("1024", RUN("0", "1025", "live"), ""), "runs[0]");
  expect_refused("huge.json",
                 MAP_OF("9223372036854775807",
                        RUN("0", "9223372036854775807", "live") "," RUN("9223372036854775807",
                                                                        "9223372036854775807", "live"),
                        ""),
                 "runs[1]");
  expect_refused("covers.json",
                 MAP_OF("1024", RUN("0", "1024", "live"),
                        ",\"covers\":[{\"position\":9223372036854775807,\"bytes\":9,\"count\":1}]"),
                 "covers[0]");
  expect_refused("few.csv", "trace,policy,event,time_us,live_bytes,allocated_bytes,reserved_bytes\nt,p,1\n",
                 "line 2: expected 7 fields, found 3");
  expect_refused("number.csv",
                 "trace,policy,event,time_us,live_bytes,allocated_bytes,reserved_bytes\nt,p,1,0,x,0,0\n",
                 "line 2: live_bytes");
  expect_refused("quotes.csv", "# program: lakebed 1, x\na,b\n1,\"2\n", "line 3: quotes that do not end");
  expect_refused("behind.csv", "# program: lakebed 1, x\na,b\n\"1\"2,\"3\"\n", "line 3: text behind");
  expect_refused("inside.csv", "# program: lakebed 1, x\na,b\n1\"2,\"3\n", "line 3: text behind");
}
END_TEST

/* Names of measures and columns become keys, which must be UTF-8 even where they were cut off. */
START_TEST(names_that_are_no_utf_8_are_kept) {
  static const char operation[] =
      "aéééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"
      "éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé";
  char *object;
  ck_assert_int_gt(asprintf(&object,
                            "[{\"trace\":\"t\",\"policy\":\"p\",\"status\":\"done\",\"iterations\":["
                            "{\"lap\":1,\"iteration\":1,\"operations\":{\"%s\":{\"count\":1}}},"
                            "{\"lap\":1,\"iteration\":2,\"operations\":{\"%s\":{\"count\":2}}}]}]",
                            operation, operation),
                   0);
  const struct {
    const char *name, *content;
  } files[] = {{"name.json", object},
               {"measure.csv", "trace,policy,lap,iteration,measure,value\nt,p,1,1,\xff,5\nt,p,1,2,\xff,6\n"},
               {"column.csv", "trace,policy,iteration,events,memory_calls,\xff\nt,p,1,1,1,5\nt,p,2,1,1,6\n"}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char *path = write_test_file(files[i].name, files[i].content);
    json_t *results = report_of(path), *values = NULL;
    const json_t *series = json_array_get(json_object_get(results, "iterations"), 0);
    const char *name;
    json_t *measure;
    json_object_foreach(json_object_get(series, "measures"), name, measure) {
      if (strchr(name, '?') || strchr(name, 'a') == name) values = measure;
    }
    ck_assert_msg(json_array_size(values) == 2, "%s", files[i].name);
    json_decref(results);
    free(path);
  }
  free(object);
}
END_TEST

START_TEST(inputs_are_spared) {
  char *input = write_test_file("short.txt", trace), *json = test_path("keep.json");
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", input, "-p", "bfc", "--json", json);
  program_run_free(&run);
  char *before = read_test_file(json);
  run = run_expecting(EXIT_STATUS_USAGE, "report", json, "-o", json);
  ck_assert_has(run.errors, "among the results");
  program_run_free(&run);
  char *after = read_test_file(json);
  ck_assert_str_eq(before, after);
  run = run_expecting(EXIT_STATUS_USAGE, "report", json);
  ck_assert_has(run.errors, "-o FILE.html");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "report", "-o", "x.html");
  ck_assert_has(run.errors, "RESULTS");
  program_run_free(&run);
  free(before);
  free(after);
  free(input);
  free(json);
}
END_TEST

/* ---- text ---- */

START_TEST(text_stays_text) {
  char *path =
      write_test_file("evil.json",
                      "[{\"trace\":\"</script><script>alert(1)</script><!--\",\"policy\":\"<b>&\\u0000\","
                      "\"status\":\"done\"}]");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "report", path, "-o", "-");
  program_run_free(&run);
  free(path);
  path = write_test_file("evil.json",
                         "[{\"trace\":\"</script><script>alert(1)</script><!--\",\"policy\":\"<b>&\","
                         "\"status\":\"done\",\"counters\":{\"</SCRIPT>\":1}}]");
  run = run_expecting(EXIT_STATUS_DONE, "report", path, "-o", "-", "--title", "</title>\xff");
  ck_assert_ptr_null(strstr(run.output, "alert(1)</script>"));
  ck_assert_ptr_null(strstr(run.output, "</SCRIPT>"));
  json_t *results = results_of(run.output);
  ck_assert_str_eq(json_text(json_array_get(json_object_get(results, "runs"), 0), "trace"),
                   "</script><script>alert(1)</script><!--");
  ck_assert_str_eq(json_text(results, "title"), "</title>?");
  json_decref(results);
  program_run_free(&run);
  free(path);
}
END_TEST

START_TEST(the_same_results_give_the_same_page) {
  char *input = write_test_file("short.txt", trace), *json = test_path("same.json");
  program_run run =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", input, "-p", "bfc,gmlake,aliasheap", "--json", json);
  program_run_free(&run);
  program_run first = run_expecting(EXIT_STATUS_DONE, "report", json, "-o", "-");
  program_run second = run_expecting(EXIT_STATUS_DONE, "report", json, json, "-o", "-");
  ck_assert_msg(strcmp(first.output, second.output) == 0, "a file that is named twice counts once");
  program_run_free(&first);
  program_run_free(&second);
  free(input);
  free(json);
}
END_TEST

static Suite *report_suite(void) {
  Suite *suite = suite_create("report");
  TCase *cases = tcase_create("report");
  tcase_add_test(cases, a_replay_becomes_a_page);
  tcase_add_test(cases, a_replay_makes_its_page_itself);
  tcase_add_test(cases, a_folder_gives_its_results_once);
  tcase_add_test(cases, other_results_become_tables);
  tcase_add_test(cases, a_sweep_has_lines_of_its_runs);
  tcase_add_test(cases, points_of_a_line_are_bounded);
  tcase_add_test(cases, a_map_is_cut_into_cells);
  tcase_add_test(cases, what_is_no_result_is_refused);
  tcase_add_test(cases, damaged_results_are_refused);
  tcase_add_test(cases, names_that_are_no_utf_8_are_kept);
  tcase_add_test(cases, inputs_are_spared);
  tcase_add_test(cases, text_stays_text);
  tcase_add_test(cases, the_same_results_give_the_same_page);
  suite_add_tcase(suite, cases);
  return suite;
}
TEST_MAIN(report_suite)
