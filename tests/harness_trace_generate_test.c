/* lakebed trace generate and trace compare. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/exit_status.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

START_TEST(kinds_are_listed_and_described) {
  static const char *const kinds[] = {"finetune", "serving", "random", "adversarial"};
  program_run run = run_expecting(EXIT_STATUS_DONE, "trace", "generate", "--help");
  for (size_t i = 0; i < 4; i++) ck_assert_has(run.output, kinds[i]);
  program_run_free(&run);
  for (size_t i = 0; i < 4; i++) {
    run = run_expecting(EXIT_STATUS_DONE, "trace", "generate", kinds[i], "--help");
    ck_assert_has(run.output, "OUT");
    program_run_free(&run);
  }
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "generate", "finetun");
  ck_assert_has(run.errors, "did you mean finetune?");
  program_run_free(&run);
}
END_TEST

/* A command line that is refused, and what the message must name. */
static const struct {
  const char *arguments[6];
  const char *pieces[2];
} refused[] = {
    {{"finetune"}, {"where to?", NULL}},
    {{"finetune", "-", "x"}, {"'x'", NULL}},
    {{"finetune", "-S", "LX", "-"}, {"--strategy=LX", NULL}},
    {{"finetune", "-m", "opt-1.3", "-"}, {"--model=opt-1.3", "did you mean opt-1.3b?"}},
    {{"finetune", "-s", "uniform:5", "-"}, {"--sequence=uniform:5", NULL}},
    {{"finetune", "-w", "0", "-"}, {"--world=0", NULL}},
    {{"finetune", "--platform", "deepspeeed", "-"}, {"--platform=deepspeeed", "did you mean deepspeed?"}},
    {{"finetune", "--precision", "int8", "-"}, {"--precision=int8", "bf16"}},
    {{"finetune", "--format", "pickle", "-"}, {"--format=pickle", "lakebed"}},
    {{"finetune", "--hidden", "64", "-"}, {"--layers", NULL}},
    {{"finetune", "-m", "opt-13b", "--ffn", "3", "-"}, {"one model", NULL}},
    {{"finetune", "--family", "bert", "-"}, {"--family=bert", "llama"}},
    {{"finetune", "-s", "4000", "-"}, {"4000 tokens", "2048 positions"}},
    {{"finetune", "--config", "no/such/file", "-"}, {"no/such/file", "cannot be opened"}},
    {{"finetune", "no/such/folder/x"}, {"no/such/folder/x", NULL}},
    {{"serving", "--cache", "paged", "-"}, {"--cache=paged", "blocks"}},
    {{"serving", "--prompt", "-3", "-"}, {"--prompt=-3", NULL}},
    {{"random", "--distribution", "normal", "-"}, {"--distribution=normal", "loguniform"}},
    {{"random", "--min", "2GiB", "-"}, {"sizes", NULL}},
    {{"random", "--max", "1XB", "-"}, {"--max=1XB", NULL}},
    {{"adversarial", "-p", "saw", "-"}, {"--pattern=saw", "sawtooth"}},
};

START_TEST(refusals_name_the_word) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    const char *const *a = refused[i].arguments;
    program_run run =
        run_expecting(EXIT_STATUS_USAGE, "trace", "generate", a[0], a[1], a[2], a[3], a[4], a[5]);
    for (size_t k = 0; k < 2 && refused[i].pieces[k]; k++) ck_assert_has(run.errors, refused[i].pieces[k]);
    ck_assert_str_eq(run.output, "");
    program_run_free(&run);
  }
}
END_TEST

/* A tiny decoder, written twice, in either format, and read back. */
START_TEST(what_is_written_can_be_read) {
  char *first = test_path("first.xz"), *second = test_path("second.xz"), *plain = test_path("plain.events");
  static const char *const kinds[] = {"finetune", "serving"};
  for (size_t i = 0; i < 2; i++) {
    program_run run;
    for (size_t turn = 0; turn < 2; turn++) {
      run = run_expecting(EXIT_STATUS_DONE, "trace", "generate", kinds[i], "--hidden", "64", "--layers", "2",
                          "--heads", "4", turn ? second : first);
      ck_assert_has(run.errors, "allocations, peak live");
      program_run_free(&run);
    }
    char *left = read_test_file(first), *right = read_test_file(second);
    ck_assert_str_eq(left, right);
    free(left);
    free(right);
    run = run_expecting(EXIT_STATUS_DONE, "trace", "generate", kinds[i], "--hidden", "64", "--layers", "2",
                        "--heads", "4", "--format", "events", "--quiet", plain);
    ck_assert_str_eq(run.errors, "");
    program_run_free(&run);
    run = run_expecting(EXIT_STATUS_DONE, "trace", "compare", "--quiet", first, plain);
    ck_assert_has(run.output, "1.000");
    ck_assert_has(run.output, "bfc: utilisation off by 0.000\n");
    program_run_free(&run);
  }
  free(first);
  free(second);
  free(plain);
}
END_TEST

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 2, \"intermediate_size\": 256, \"vocab_size\": 32000, \"rope_scaling\": "
    "null}\n";

START_TEST(configurations_of_models) {
  char *path = write_test_file("config.json", config), *read = test_path("read.events"),
       *said = test_path("said.events");
  program_run run = run_expecting(EXIT_STATUS_DONE, "trace", "generate", "finetune", "--config", path,
                                  "--format", "events", read);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "trace", "generate", "finetune", "--hidden", "64", "--layers", "2",
                      "--heads", "4", "--kv-heads", "2", "--format", "events", said);
  program_run_free(&run);
  char *left = read_test_file(read), *right = read_test_file(said);
  ck_assert_str_eq(left, right);
  free(left);
  free(right);
  free(path);
  static const struct {
    const char *content, *piece;
  } wrong[] = {
      {"", "config.json:1: "},
      {"[1]", "an object is expected"},
      {"{\"hidden_size\": 64}", "'model_type' is missing"},
      {"{\"model_type\": \"bert\"}", "'model_type' is 'bert'"},
      {"{\"model_type\": \"llama\"}", "'hidden_size' is missing"},
      {"{\"model_type\": \"gpt2\", \"n_embd\": \"wide\"}", "'n_embd' is expected to be a whole number"},
      {"{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 0}",
       "'n_layer' is expected to be a whole number"},
      {"{\"model_type\":\n \"gpt2\",, }", "config.json:2: "},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    path = write_test_file("config.json", wrong[i].content);
    run = run_expecting(EXIT_STATUS_USAGE, "trace", "generate", "finetune", "--config", path, read);
    ck_assert_has(run.errors, wrong[i].piece);
    program_run_free(&run);
    free(path);
  }
  free(read);
  free(said);
}
END_TEST

/* One size against another: 1 KiB and 4 KiB are two doublings apart, 2 MiB live against 8. */
START_TEST(comparison_by_hand) {
  char *small = write_test_file("small.events", "a 1 1024\na 2 1024\nf 1\nf 2\n");
  char *large =
      write_test_file("large.events", "a 1 4096\na 2 4096\na 3 4096\na 4 4096\nf 1\nf 2\nf 3\nf 4\n");
  char *csv = test_path("compared.csv");
  program_run run = run_expecting(EXIT_STATUS_DONE, "trace", "compare", "--quiet", "-p", "native,bfc",
                                  "--csv", csv, small, large);
  ck_assert_has(run.output, "8.000");
  ck_assert_has(run.output, "2.000");
  program_run_free(&run);
  char *content = read_test_file(csv);
  ck_assert_has(content, "small.events,large.events,native,2048,16384,8.000000,2,4,2.000000,2.000000,");
  ck_assert_has(content, "small.events,large.events,bfc,");
  free(content);
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "compare", small);
  ck_assert_has(run.errors, "pairs");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "trace", "compare", "--csv", large, small, large);
  ck_assert_has(run.errors, "cannot be written");
  program_run_free(&run);
  char *huge = write_test_file("huge.events", "a 1 8388608\nf 1\n");
  run = run_expecting(EXIT_STATUS_OUT_OF_MEMORY, "trace", "compare", "--quiet", "--capacity", "4MiB", small,
                      huge);
  program_run_free(&run);
  free(huge);
  free(small);
  free(large);
  free(csv);
}
END_TEST

/* Against a recording of the same training: a bundled one, six iterations of OPT-1.3B on four ranks, plain,
 * of which the lengths are known. */
START_TEST(a_recording_is_met) {
  char *path = test_path("generated.lakebed"), *csv = test_path("compared.csv");
  program_run run = run_expecting(EXIT_STATUS_DONE, "trace", "generate", "finetune", "-m", "opt-1.3b", "-S",
                                  "N", "-b", "8", "-s", "236,336,512,379,309,242", "-w", "4", path);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_DONE, "trace", "compare", "--quiet", "--csv", csv,
                      "opt-1.3b-N-b8-s512-w4-v1", path);
  program_run_free(&run);
  char *content = read_test_file(csv), *row = strrchr(content, '\n');
  while (row > content && row[-1] != '\n') row--;
  double reference_peak, peak, peak_ratio, allocations_ratio, apart, reference_utilization, utilization;
  unsigned long reference_allocations, allocations;
  row = strstr(row, ",bfc,");
  ck_assert_ptr_nonnull(row);
  ck_assert_int_eq(sscanf(row, ",bfc,%lf,%lf,%lf,%lu,%lu,%lf,%lf,%lf,%lf", &reference_peak, &peak,
                          &peak_ratio, &reference_allocations, &allocations, &allocations_ratio, &apart,
                          &reference_utilization, &utilization),
                   9);
  ck_assert_double_eq_tol(peak_ratio, 1, 0.01);
  ck_assert_double_eq_tol(allocations_ratio, 1, 0.01);
  ck_assert_double_le(apart, 0.05);
  ck_assert_double_eq_tol(utilization, reference_utilization, 0.01);
  free(content);
  free(path);
  free(csv);
}
END_TEST

static Suite *trace_generate_suite(void) {
  Suite *suite = suite_create("trace generate");
  TCase *tests = tcase_create("trace generate");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, kinds_are_listed_and_described);
  tcase_add_test(tests, refusals_name_the_word);
  tcase_add_test(tests, what_is_written_can_be_read);
  tcase_add_test(tests, configurations_of_models);
  tcase_add_test(tests, comparison_by_hand);
  tcase_add_test(tests, a_recording_is_met);
  suite_add_tcase(suite, tests);
  return suite;
}

TEST_MAIN(trace_generate_suite)
