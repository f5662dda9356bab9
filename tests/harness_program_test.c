/* The program as its users meet it: command lines, exit statuses, messages; policies and traces. */
#include <stdlib.h>
#include <string.h>

#include "harness/exit_status.h"
#include "harness/program.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define EDGE "workloads/bundled/edge.txt.xz"
#define REAL "workloads/bundled/opt-1.3b-N-b8-s512-w4-v1.pickle.xz"

START_TEST(help_and_version) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "--help");
  ck_assert_has(run.output, "replay");
  ck_assert_has(run.output, "doctor");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "--version");
  ck_assert_str_eq(run.output, "lakebed " PROGRAM_VERSION "\n");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "version");
  ck_assert_str_eq(run.output, "lakebed " PROGRAM_VERSION "\n");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "-h");
  static const char *const words[] = {"test", "lint", "new-policy", "golden"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) ck_assert_has(run.output, words[i]);
  program_run_free(&run);
  static const char *const commands[] = {"replay", "policies", "doctor"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    run = run_expecting(EXIT_STATUS_DONE, commands[i], "--help");
    ck_assert_has(run.output, "Usage: lakebed ");
    ck_assert_has(run.output, commands[i]);
    program_run_free(&run);
    run = run_expecting(EXIT_STATUS_DONE, commands[i], "-h");
    ck_assert_has(run.output, "Usage: lakebed ");
    program_run_free(&run);
  }
  run = run_expecting(EXIT_STATUS_USAGE, (const char *)NULL);
  ck_assert_has(run.errors, "Commands:");
  program_run_free(&run);
}
END_TEST

START_TEST(unknown_command_names_the_nearest) {
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replya");
  ck_assert_has(run.errors, "'replya'");
  ck_assert_has(run.errors, "did you mean replay?");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "convrt");
  ck_assert_has(run.errors, "did you mean convert?");
  program_run_free(&run);
}
END_TEST

/* A command line that is refused, and what the message must name. */
static const struct {
  const char *arguments[3];
  const char *pieces[3];
} refused[] = {
    {{"--policy", "gmlak", EDGE}, {"'gmlak'", "did you mean gmlake?", "native"}},
    {{"--policy", "gmlake:fraglimit=2MiB", EDGE},
     {"'fraglimit'", "did you mean frag_limit?", "stitch_count"}},
    {{"--policy", "gmlake:frag_limit=10MBB", EDGE}, {"frag_limit", "10MBB", NULL}},
    {{"--policy", "gmlake:frag_limit=-1", EDGE}, {"frag_limit", "-1", NULL}},
    {{"--policy", "gmlake:frag_limit=", EDGE}, {"frag_limit", NULL, NULL}},
    {{"--policy", "gmlake:chunk=2MiB,chunk=4MiB", EDGE}, {"chunk", "twice", NULL}},
    {{"--policy", "native,,bfc", EDGE}, {"'native,,bfc'", "between two commas", NULL}},
    {{"--policy", "native,", EDGE}, {"'native,'", "after the last comma", NULL}},
    {{"--policy", ",bfc", EDGE}, {"',bfc'", "at its beginning", NULL}},
    {{"--device", "h20", EDGE}, {"'h20'", "did you mean h200?", "a100"}},
    {{"--driver", "cud", EDGE}, {"'cud'", "did you mean cuda?", NULL}},
    {{"--laps", "0", EDGE}, {"--laps=0", NULL, NULL}},
    {{"--laps", "-3", EDGE}, {"--laps=-3", NULL, NULL}},
    {{"--capacity", "10MBB", EDGE}, {"--capacity=10MBB", NULL, NULL}},
    {{"--capacity", "3000000", EDGE}, {"3000000", "granularity", NULL}},
    {{"--capacity", "100TiB", EDGE}, {"100 TiB", "at most 512 GiB", NULL}},
    {{"--limit", "150%", EDGE}, {"--limit=150%", "40GiB", "0.5 or 50%"}},
    {{"--limit", "1.5", EDGE}, {"--limit=1.5", "40GiB", "0.5 or 50%"}},
    {{"--limit", "0", EDGE}, {"--limit=0", "40GiB", "0.5 or 50%"}},
    {{"--limit", "0.0", EDGE}, {"--limit=0.0", NULL, NULL}},
    {{"--limit", "1048576", EDGE}, {"1048576 bytes", "2.00 MiB", "0.5 or 50%"}},
    {{"--json", "/nowhere/at/all.json", EDGE}, {"/nowhere/at/all.json", NULL, NULL}},
    {{"--no-such-option", EDGE, NULL}, {"--no-such-option", NULL, NULL}},
    {{"no/such/trace", NULL, NULL}, {"no/such/trace", NULL, NULL}},
    {{"egde", NULL, NULL}, {"egde", "bundled", "edge.txt, "}},
};

START_TEST(bad_usage_is_refused) {
  const char *const *arguments = refused[_i].arguments;
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", arguments[0], arguments[1], arguments[2]);
  for (size_t i = 0; i < 3 && refused[_i].pieces[i]; i++) ck_assert_has(run.errors, refused[_i].pieces[i]);
  ck_assert_str_eq(run.output, "");
  program_run_free(&run);
}
END_TEST

START_TEST(policies_are_listed) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "policies");
  ck_assert_has(run.output, "gmlake");
  ck_assert_has(run.output, "caching allocator");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "policies", "gmlake");
  ck_assert_has(run.output, "frag_limit");
  ck_assert_has(run.output, "2MiB");
  ck_assert_has(run.output, "granularity: the device's");
  ck_assert_has(run.output, "K, KB and KiB are all 1024 bytes");
  for (const char *line = run.output; *line; line += strcspn(line, "\n") + 1)
    ck_assert_msg(strcspn(line, "\n") <= 110, "longer than 110 columns: %s", line);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "policies", "gmlake:chunk=4MiB");
  ck_assert_has(run.output, "\nchunk            4MiB            size     2MiB ");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "policies", "gmlak");
  ck_assert_has(run.errors, "did you mean gmlake?");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "policies", "--json");
  json_t *array = parse_output(&run);
  ck_assert_uint_ge(json_array_size(array), 5);
  ck_assert(json_is_array(json_object_get(json_array_get(array, 0), "options")));
  json_decref(array);
  program_run_free(&run);
}
END_TEST

START_TEST(traces_are_described) {
  program_run run = run_expecting(EXIT_STATUS_DONE, "trace", "info", "--json", EDGE, REAL);
  json_t *array = parse_output(&run);
  ck_assert_uint_eq(json_array_size(array), 2);
  const json_t *edge = json_array_get(array, 0), *sizes = json_object_get(edge, "sizes");
  ck_assert_double_eq(json_number(edge, "events"), 28);
  ck_assert_double_eq(json_number(edge, "live_peak_bytes"), 727714816);
  double allocations = 0;
  for (size_t i = 0; i < json_array_size(sizes); i++)
    allocations += json_number(json_array_get(sizes, i), "count");
  ck_assert_double_eq(allocations, json_number(edge, "allocations"));
  json_decref(array);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "trace", "info", EDGE);
  ck_assert_has(run.output, "peak live");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "info");
  program_run_free(&run);
}
END_TEST

/* A line of a text, to be freed. */
static char *copy_row(const char *text, size_t row) {
  for (; row > 0; row--) text = strchr(text, '\n') + 1;
  char *copy = strndup(text, strcspn(text, "\n"));
  ck_assert_ptr_nonnull(copy);
  return copy;
}

START_TEST(conversion_keeps_what_matters) {
  static const struct {
    const char *name, *format;
  } targets[] = {{"plain.txt", "events"}, {"own.trace.xz", "lakebed"}, {"plain.txt.gz", "events"}};
  program_run expected =
      run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--no-host-timing", "--csv", "-", REAL);
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
    char *path = test_path(targets[i].name);
    program_run run =
        run_expecting(EXIT_STATUS_DONE, "trace", "convert", "--format", targets[i].format, REAL, path);
    program_run_free(&run);
    run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--no-host-timing", "--csv", "-", path);
    /* All but the trace's name is the same. */
    size_t rows = count_lines(expected.output);
    ck_assert_uint_eq(count_lines(run.output), rows);
    for (size_t row = 0; row < rows; row++) {
      char *wanted = copy_row(expected.output, row), *found = copy_row(run.output, row);
      /* All but the trace's name is the same. */
      if (wanted[0] == '#') {
        ck_assert_str_eq(found, wanted);
      } else {
        ck_assert_str_eq(strchr(found, ','), strchr(wanted, ','));
      }
      free(wanted);
      free(found);
    }
    program_run_free(&run);
    free(path);
  }
  program_run_free(&expected);
  program_run run = run_expecting(EXIT_STATUS_USAGE, "trace", "convert", "--format", "event", EDGE, "x");
  ck_assert_has(run.errors, "did you mean events?");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "convert", EDGE);
  program_run_free(&run);
}
END_TEST

static Suite *program_suite(void) {
  Suite *suite = suite_create("program");
  TCase *usage = tcase_create("usage");
  tcase_add_test(usage, help_and_version);
  tcase_add_test(usage, unknown_command_names_the_nearest);
  tcase_add_loop_test(usage, bad_usage_is_refused, 0, (int)(sizeof refused / sizeof *refused));
  suite_add_tcase(suite, usage);
  TCase *others = tcase_create("others");
  tcase_add_test(others, policies_are_listed);
  tcase_add_test(others, traces_are_described);
  tcase_add_test(others, conversion_keeps_what_matters);
  suite_add_tcase(suite, others);
  return suite;
}

TEST_MAIN(program_suite)
