#define _GNU_SOURCE
#include "tests/harness_support.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/program.h"
#include "tests/test_main.h"

enum { ARGUMENTS_LIMIT = 32 };

static char folder_path[512];
static pid_t folder_owner;

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place) {
  (void)about, (void)kind, (void)place;
  return remove(path);
}

void remove_test_folder(const char *path) { nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

static void remove_folder(void) {
  /* The program under test is a child that ends with the same handlers. */
  if (getpid() == folder_owner) remove_test_folder(folder_path);
}

/* The folder that holds this test's files, made at first need and removed at the end. */
static const char *folder(void) {
  if (folder_path[0] && folder_owner == getpid()) return folder_path;
  folder_owner = getpid();
  snprintf(folder_path, sizeof folder_path, "%s/harness_test.%ld", test_scratch(), (long)folder_owner);
  ck_assert_msg(mkdir(folder_path, 0700) == 0 || errno == EEXIST, "%s cannot be made", folder_path);
  ck_assert_int_eq(atexit(remove_folder), 0);
  return folder_path;
}

char *test_path(const char *name) {
  size_t size = strlen(folder()) + strlen(name) + 2;
  char *path = malloc(size);
  ck_assert_ptr_nonnull(path);
  snprintf(path, size, "%s/%s", folder(), name);
  return path;
}

char *fresh_test_folder(const char *name) {
  char *path = test_path(name);
  remove_test_folder(path);
  return path;
}

size_t count_lines(const char *text) {
  size_t lines = 0;
  for (; *text; text++) lines += *text == '\n';
  return lines;
}

char *write_test_file(const char *name, const char *content) {
  char *path = test_path(name);
  FILE *stream = fopen(path, "w");
  ck_assert_ptr_nonnull(stream);
  fputs(content, stream);
  ck_assert_int_eq(fclose(stream), 0);
  return path;
}

static char *read_stream(FILE *stream) {
  ck_assert_int_eq(fseek(stream, 0, SEEK_END), 0);
  long size = ftell(stream);
  ck_assert_int_ge(size, 0);
  rewind(stream);
  char *text = malloc((size_t)size + 1);
  ck_assert_ptr_nonnull(text);
  ck_assert_uint_eq(fread(text, 1, (size_t)size, stream), (size_t)size);
  text[size] = '\0';
  return text;
}

char *read_test_file(const char *path) {
  FILE *stream = fopen(path, "r");
  ck_assert_msg(stream != NULL, "%s cannot be read", path);
  char *text = read_stream(stream);
  fclose(stream);
  return text;
}

static void run_child(int argc, char **argv, FILE *output, FILE *errors) {
  if (dup2(fileno(output), STDOUT_FILENO) < 0 || dup2(fileno(errors), STDERR_FILENO) < 0) _exit(126);
  exit((int)program_main(argc, argv));
}

program_run run_program(const char *first, ...) {
  const char *words[ARGUMENTS_LIMIT + 1] = {first};
  va_list arguments;
  va_start(arguments, first);
  for (size_t count = 1; count < ARGUMENTS_LIMIT && words[count - 1]; count++)
    words[count] = va_arg(arguments, const char *);
  va_end(arguments);
  return run_program_into(NULL, words);
}

program_run run_program_into(const char *path, const char *const *words) {
  /* The program may write to argv; the copies are kept where a leak checker sees them. */
  static char *copies[ARGUMENTS_LIMIT];
  copies[0] = strdup("lakebed");
  char *argv[ARGUMENTS_LIMIT + 1] = {copies[0]};
  int argc = 1;
  for (; *words; words++, argc++) {
    ck_assert_int_lt(argc, ARGUMENTS_LIMIT);
    argv[argc] = copies[argc] = strdup(*words);
  }
  FILE *output = path ? fopen(path, "r+") : tmpfile(), *errors = tmpfile();
  ck_assert(output && errors);
  fflush(stdout);
  fflush(stderr);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) run_child(argc, argv, output, errors);
  int status = 0;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  program_run run = {.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
                     .output = path ? strdup("") : read_stream(output),
                     .errors = read_stream(errors)};
  fclose(output);
  fclose(errors);
  for (int i = 0; i < argc; i++) free(copies[i]);
  return run;
}

void program_run_free(program_run *run) {
  free(run->output);
  free(run->errors);
  run->output = run->errors = NULL;
}

json_t *parse_output(const program_run *run) {
  json_error_t error;
  json_t *parsed = json_loads(run->output, 0, &error);
  ck_assert_msg(parsed != NULL, "no JSON: %s\n%s", error.text, run->output);
  return parsed;
}

double json_number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  ck_assert_msg(json_is_number(value), "%s is no number", key);
  return json_number_value(value);
}

const char *json_text(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  ck_assert_msg(text != NULL, "%s is no text", key);
  return text;
}

const char *run_script(const char *command) {
  enum { SKIPPED = 77 };
  static char output[16384];
  FILE *script = popen(command, "r");
  ck_assert_ptr_nonnull(script);
  size_t length = fread(output, 1, sizeof output - 1, script);
  output[length] = '\0';
  int status = pclose(script);
  ck_assert(WIFEXITED(status));
  if (WEXITSTATUS(status) == SKIPPED) {
    output[strcspn(output, "\n")] = '\0';
    return output;
  }
  ck_assert_msg(WEXITSTATUS(status) == 0, "%s", output);
  return NULL;
}
