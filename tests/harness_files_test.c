/* Files that the program writes: all of one, or what it held before. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/exit_status.h"
#include "harness/option_values.h"
#include "tests/harness_support.h"
#include "tests/test_main.h"

#define BEFORE "what was here before\n"
#define TRACE "a 1 1048576 0\nf 1\n"

static void ck_assert_content(const char *path, const char *content) {
  char *text = read_test_file(path);
  ck_assert_str_eq(text, content);
  free(text);
}

/* No file that is written is left beside those that the test made. */
static void ck_assert_no_partial_files(void) {
  char *folder = test_path(".");
  DIR *listing = opendir(folder);
  ck_assert_ptr_nonnull(listing);
  for (const struct dirent *entry; (entry = readdir(listing));)
    ck_assert_msg(!strstr(entry->d_name, ".partial-"), "%s is left behind", entry->d_name);
  closedir(listing);
  free(folder);
}

START_TEST(an_output_has_its_name_when_it_is_whole) {
  char *path = write_test_file("named.txt", BEFORE);
  FILE *stream = option_open_output(path);
  ck_assert_ptr_nonnull(stream);
  fputs("half", stream);
  fflush(stream);
  ck_assert_content(path, BEFORE);
  option_abandon_output(stream, path);
  ck_assert_content(path, BEFORE);
  stream = option_open_output(path);
  ck_assert_ptr_nonnull(stream);
  ck_assert_ptr_null(option_open_output(path));
  fputs("whole", stream);
  ck_assert(option_close_output(stream, path));
  ck_assert_content(path, "whole");
  ck_assert_ptr_null(option_open_output(""));
  ck_assert_no_partial_files();
  free(path);
}
END_TEST

START_TEST(links_and_devices_stay) {
  char *target = write_test_file("target.txt", BEFORE), *link = test_path("link.txt");
  char *trace = write_test_file("linked.txt", TRACE);
  struct stat about;
  ck_assert_int_eq(symlink("target.txt", link), 0);
  program_run run = run_expecting(EXIT_STATUS_DONE, "replay", "-q", "--policy", "bfc", "--csv", link, trace);
  program_run_free(&run);
  ck_assert(lstat(link, &about) == 0 && S_ISLNK(about.st_mode));
  char *text = read_test_file(target);
  ck_assert_int_eq(strncmp(text, "# program: lakebed ", 19), 0);
  free(text);
  run = run_expecting(EXIT_STATUS_DONE, "trace", "convert", "-q", "--format", "events", trace, link);
  program_run_free(&run);
  ck_assert(lstat(link, &about) == 0 && S_ISLNK(about.st_mode));
  ck_assert_content(target, TRACE);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "-q", "--policy", "bfc", "--json", "/dev/full", trace);
  ck_assert_has(run.errors, "/dev/full could not be written");
  program_run_free(&run);
  ck_assert_no_partial_files();
  unlink(link);
  free(link);
  free(target);
  free(trace);
}
END_TEST

START_TEST(refused_outputs_change_nothing) {
  char *trace = write_test_file("kept_trace.txt", TRACE), *path = write_test_file("kept.txt", BEFORE);
  program_run run = run_expecting(EXIT_STATUS_USAGE, "replay", "--json", path, "--csv", path, trace);
  ck_assert_has(run.errors, "kept.txt cannot be written: it is being written already");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--json", path, "--csv", "/nowhere/at/all", trace);
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--timeline", trace, trace);
  ck_assert_has(run.errors, "kept_trace.txt cannot be written: it is a trace");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "replay", "--csv", "-", "--timeline", "-", trace);
  ck_assert_has(run.errors, "only one of");
  program_run_free(&run);
  run = run_expecting(EXIT_STATUS_USAGE, "bench", "alloc", "--json", path, "--csv", "/nowhere/at/all");
  program_run_free(&run);
  ck_assert_content(path, BEFORE);
  ck_assert_content(trace, TRACE);
  ck_assert_no_partial_files();
  free(path);
  free(trace);
}
END_TEST

static Suite *files_suite(void) {
  Suite *suite = suite_create("files");
  TCase *outputs = tcase_create("outputs");
  tcase_add_test(outputs, an_output_has_its_name_when_it_is_whole);
  tcase_add_test(outputs, links_and_devices_stay);
  tcase_add_test(outputs, refused_outputs_change_nothing);
  suite_add_tcase(suite, outputs);
  return suite;
}

TEST_MAIN(files_suite)
