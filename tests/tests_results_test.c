/* Each file under results/ says what it was measured on and how: device, driver, date and command stand at
 * the beginning of texts and tables, and of JSON unless they do in the table of the same name beside it. */
#define _GNU_SOURCE
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test_main.h"

enum { BEGINNING = 1 << 16, FILES_OPEN = 16 };

static int files_seen, files_silent;

static const char *ending_of(const char *path) {
  const char *name = strrchr(path, '/'), *dot = name ? strrchr(name, '.') : NULL;
  return dot ? dot : "";
}

static bool read_beginning(const char *path, char text[BEGINNING]) {
  FILE *stream = fopen(path, "r");
  text[0] = '\0';
  if (!stream) return false;
  text[fread(text, 1, BEGINNING - 1, stream)] = '\0';
  fclose(stream);
  return true;
}

/* The lines before the first that is no comment. */
static void cut_behind_comments(char *text) {
  char *line = text;
  while (*line == '#') {
    char *end = strchr(line, '\n');
    if (!end) return;
    line = end + 1;
  }
  *line = '\0';
}

/* Prints the first of the words that is not there. */
static bool says(const char *path, const char *text, const char *const words[]) {
  for (; *words; words++) {
    if (strstr(text, *words)) continue;
    printf("%s: no '%s'\n", path, *words);
    return false;
  }
  return true;
}

static const char *const header_words[] = {"# device: ", "# driver: ", "# date: 20", "# command: ", NULL};

static bool table_says(const char *path) {
  char text[BEGINNING];
  if (!read_beginning(path, text)) return false;
  cut_behind_comments(text);
  return says(path, text, header_words);
}

static bool json_says(const char *path) {
  static const char *const keys[] = {"\"device\"", "\"driver\"", "\"date\"", "\"command\"", NULL};
  char text[BEGINNING], table[4096];
  snprintf(table, sizeof table, "%.*s.csv", (int)(strlen(path) - strlen(".json")), path);
  return table_says(table) || (read_beginning(path, text) && says(path, text, keys));
}

static bool profile_says(const char *path) {
  static const char *const words[] = {"\ndevice ", "\nsource '", "driver ", "' on 20", NULL};
  char text[BEGINNING];
  return read_beginning(path, text) && says(path, text, words);
}

static int visit(const char *path, const struct stat *status, int kind, struct FTW *where) {
  (void)status;
  (void)where;
  const char *ending = ending_of(path);
  if (kind != FTW_F) return 0;
  const bool table = strcmp(ending, ".csv") == 0 || strcmp(ending, ".txt") == 0;
  const bool json = strcmp(ending, ".json") == 0, profile = strcmp(ending, ".profile") == 0;
  if (!table && !json && !profile) return 0;
  files_seen++;
  files_silent += !(table ? table_says(path) : json ? json_says(path) : profile_says(path));
  return 0;
}

START_TEST(results_say_how_they_were_made) {
  files_seen = files_silent = 0;
  if (nftw("results", visit, FILES_OPEN, 0) != 0) test_skip("no folder results here");
  printf("%d files, %d of them incomplete\n", files_seen, files_silent);
  ck_assert_int_gt(files_seen, 50);
  ck_assert_int_eq(files_silent, 0);
}
END_TEST

static Suite *results_suite(void) {
  Suite *suite = suite_create("results");
  TCase *headers = tcase_create("headers");
  tcase_add_test(headers, results_say_how_they_were_made);
  suite_add_tcase(suite, headers);
  return suite;
}

TEST_MAIN(results_suite)
