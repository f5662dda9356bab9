/* What tests of the program share: running it, files for it, its JSON. */
#ifndef LAKEBED_TESTS_HARNESS_SUPPORT_H
#define LAKEBED_TESTS_HARNESS_SUPPORT_H

#include <jansson.h>
#include <stddef.h>

typedef struct program_run {
  int status; /* exit status; negative: the number of the signal that ended it */
  char *output;
  char *errors;
} program_run;

/* Runs the program in a process of its own with these arguments (after its name; ends with NULL). */
program_run run_program(const char *first, ...) __attribute__((sentinel));
/* The same with words of a list (ends with NULL); its standard output goes to a file that is there, unless
 * path is NULL, and .output is empty then. */
program_run run_program_into(const char *path, const char *const *words);
void program_run_free(program_run *run);

/* Runs it and fails the test unless it ends with the status. */
#define run_expecting(expected, ...)                                                               \
  __extension__({                                                                                  \
    program_run run_ = run_program(__VA_ARGS__, (const char *)NULL);                               \
    ck_assert_msg(run_.status == (expected), "ended with %d, not %d\n%.1500s%.1500s", run_.status, \
                  (int)(expected), run_.output, run_.errors);                                      \
    run_;                                                                                          \
  })

/* Runs a script that ends with 0 when all is as it must be, and with 77 when it cannot run here; anything
 * else fails the test with what it printed. Returns NULL, or why it cannot run: its first line, static. */
const char *run_script(const char *command);

#define ck_assert_has(text, piece) \
  ck_assert_msg(strstr((text), (piece)) != NULL, "'%s' is not in:\n%.3000s", (piece), (text))

/* Writes a file of this name into the test's own folder. Returns its path, to be freed. */
char *write_test_file(const char *name, const char *content);
/* The path of a file in the test's own folder, to be freed. */
char *test_path(const char *name);
/* The same of a folder that is not there: nothing of this name is left. */
char *fresh_test_folder(const char *name);
/* Removes a folder, where there is one, with all that is in it. */
void remove_test_folder(const char *path);
/* Ends of lines in a text. */
size_t count_lines(const char *text);
/* A file's content, to be freed. */
char *read_test_file(const char *path);

/* Parses the output of a run; fails the test when it is no JSON. */
json_t *parse_output(const program_run *run);
/* A number of an object; fails the test when there is none. */
double json_number(const json_t *object, const char *key);
/* A text of an object; fails the test when there is none. */
const char *json_text(const json_t *object, const char *key);

#endif
