/* Grid files: what they stand for, and what is said where they are wrong. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "harness/sweep.h"
#include "harness/sweep_words.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

static const struct {
  const char *text;
  const char *words[6]; /* ended by NULL */
} expansions[] = {
    {"plain", {"plain"}},
    {"a{b,c}d", {"abd", "acd"}},
    {"{x,y}{1,2}", {"x1", "x2", "y1", "y2"}},
    {"a{,b}", {"a", "ab"}},
    {"p:{k=1,2{3,4}},m", {"p:k=1,m", "p:23,m", "p:24,m"}},
    {"{one}", {"one"}},
};

START_TEST(braces_stand_for_all_combinations) {
  sweep_words words = {0};
  char message[128];
  ck_assert_msg(sweep_words_expand(&words, expansions[_i].text, message, sizeof message), "%s", message);
  size_t count = 0;
  while (expansions[_i].words[count]) count++;
  ck_assert_uint_eq(words.count, count);
  for (size_t i = 0; i < count; i++) ck_assert_str_eq(words.items[i], expansions[_i].words[i]);
  sweep_words_free(&words);
}
END_TEST

static const struct {
  const char *grid;
  const char *said;
} refusals[] = {
    {"trace edge\npolicie bfc\n", "grid:2: no setting 'policie' (did you mean policy?)"},
    {"trace\n", "grid:1: 'trace' has no value"},
    {"policy bfc\n", "nothing to replay"},
    {"", "nothing to replay"},
    {"trace edge\nalso\n", "nothing to replay"},
    {"trace edge\npolicy bfcc\n", "grid:2: there is no policy 'bfcc'"},
    {"trace edge\npolicy gmlake:frag_limit=many\n", "grid:2: "},
    {"trace edge\ncapacity lots\n", "grid:2: capacity 'lots': expected a size"},
    {"trace edge\ncapacity 3MiB\n", "grid:1: the capacity of 3145728 bytes is no multiple"},
    {"trace edge\ndevice h1000\n", "no device 'h1000'"},
    {"trace edge\nlimit 2.5\n", "grid:2: limit '2.5': expected none, a size"},
    {"trace edge\nlimit 1KiB\n", "a limit of 1024 bytes is less than"},
    {"trace edge\nlaps 0\n", "grid:2: laps '0': expected a whole number from 1"},
    {"trace edge\nfrees never\n", "grid:2: frees 'never': expected completed or requested"},
    {"trace edge\ncheck maybe\n", "grid:2: check 'maybe': expected no or yes"},
    {"trace edge\ntimeline 3\n", "grid:2: timeline '3'"},
    {"generate finetune -m opt-1.4b\n", "grid:1: 'generate finetune -m opt-1.4b' makes no trace"},
    {"generate finetune -m opt-1.4b\n", "did you mean opt-1.3b?"},
    {"generate nothing\n", "grid:1: 'generate nothing' makes no trace"},
    {"trace edge\npolicy {bfc\n", "grid:2: '{bfc': a '{' without its partner"},
    {"trace \"edge\n", "grid:1: a closing '\"' is missing"},
    {"trace nowhere\n", "grid:1: trace 'nowhere': No such file"},
    {"trace tests/none*.xz\n", "grid:1: no trace matches 'tests/none*.xz'"},
    {"trace workloads\n", "grid:1: trace 'workloads': no file that can be read again"},
    {"trace edge\nlaps {1,2,3,4,5,6,7,8,9,10}\nevent-delay {1,2,3,4,5,6,7,8,9,10}{1,2,3,4,5,6,7,8,9,10}\n"
     "timeline {16,17,18,19,20,21,22,23,24,25}{1,2,3,4,5,6,7,8,9,10}{1,2,3,4,5,6,7,8,9,10}\n",
     "the grid has more than 1000000 cells"},
};

START_TEST(what_is_wrong_in_a_grid_is_said_with_its_line) {
  char *grid = write_test_file("grid", refusals[_i].grid), *folder = fresh_test_folder("refused");
  program_run run = run_expecting(EXIT_STATUS_USAGE, "sweep", grid, "-o", folder);
  ck_assert_has(run.errors, refusals[_i].said);
  ck_assert_int_ne(access(folder, F_OK), 0);
  program_run_free(&run);
  free(grid);
  free(folder);
}
END_TEST

/* Neither takes longer or more memory the longer it is. */
START_TEST(a_grid_without_an_end_is_refused) {
  program_run run = run_expecting(EXIT_STATUS_USAGE, "sweep", "/dev/zero");
  ck_assert_has(run.errors, "/dev/zero:1: expected a line without NUL bytes");
  program_run_free(&run);
  enum { LENGTH = 1 << 20 };
  char *line = malloc(LENGTH + 1);
  ck_assert_ptr_nonnull(line);
  memset(line, '{', LENGTH);
  line[LENGTH] = '\0';
  const struct {
    size_t length;
    const char *said;
  } cases[] = {{LENGTH, "grid:1: expected a shorter line"}, {10000, "more than 64 groups of braces"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    memset(line + cases[i].length / 2, '}', cases[i].length / 2);
    line[cases[i].length] = '\0';
    memcpy(line, "trace ", 6);
    memcpy(line + 6, "{{{{{{", 6);
    memset(line + cases[i].length - 6, ' ', 6);
    char *grid = write_test_file("grid", line);
    run = run_expecting(EXIT_STATUS_USAGE, "sweep", grid);
    ck_assert_has(run.errors, cases[i].said);
    program_run_free(&run);
    free(grid);
  }
  free(line);
}
END_TEST

START_TEST(a_cell_that_is_named_twice_is_run_once) {
  sweep_grid *grid;
  ck_assert_int_eq(
      sweep_grid_parse("trace edge {edge,edge}\npolicy bfc\nalso\ntrace edge\npolicy bfc,native\n", "grid",
                       &grid),
      EXIT_STATUS_DONE);
  ck_assert_uint_eq(sweep_grid_count(grid), 2);
  ck_assert_str_eq(sweep_grid_cell(grid, 1)->policy, "native");
  for (size_t i = 0; i < 2; i++) ck_assert_uint_eq(sweep_grid_find(grid, sweep_grid_cell(grid, i)->key), i);
  ck_assert_uint_eq(sweep_grid_find(grid, "0"), SIZE_MAX);
  sweep_grid_free(grid);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static Suite *sweep_grid_suite(void) {
  Suite *suite = suite_create("sweep_grid");
  TCase *cases = tcase_create("grids");
  tcase_add_loop_test(cases, braces_stand_for_all_combinations, 0, COUNT(expansions));
  tcase_add_loop_test(cases, what_is_wrong_in_a_grid_is_said_with_its_line, 0, COUNT(refusals));
  tcase_add_test(cases, a_grid_without_an_end_is_refused);
  tcase_add_test(cases, a_cell_that_is_named_twice_is_run_once);
  suite_add_tcase(suite, cases);
  return suite;
}

TEST_MAIN(sweep_grid_suite)
