/* lakebed report: results as one HTML page. */
#define _GNU_SOURCE
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/option_values.h"
#include "harness/output_file.h"
#include "harness/program.h"
#include "harness/report.h"

typedef struct report_options {
  const char *output, *title;
  char **inputs; /* files, of folders those in them; owned */
  size_t count;
} report_options;

enum option_key { OPTION_OUTPUT = 'o', OPTION_TITLE = 0x100 };

static const struct argp_option option_table[] = {
    {"output", OPTION_OUTPUT, "FILE.html|-", 0, "the page that is written", 0},
    {"title", OPTION_TITLE, "TEXT", 0, "what the page is called; default: Lakebed report", 0},
    {0},
};

static const char documentation[] =
    "Puts RESULTS together to one HTML page that needs nothing else, no network either: a summary, tables "
    "that "
    "sort, memory over time, driver time by call and by operation, maps of memory, and how all was made.\v"
    "RESULTS are files that 'lakebed replay' wrote to --json, --csv, --timeline, --iterations or --dump "
    "(JSON), "
    "results of 'lakebed sweep', 'oom', 'bench' and 'paper', or folders, of which all files that end in "
    ".json and "
    ".csv "
    "are taken. What a file is is told from its content; a CSV file beside a JSON file of the same "
    "name with the same results adds nothing. docs/report.md describes the page.\n\n"
    "  lakebed replay --json r.json --timeline t.csv --dump m.json\n"
    "  lakebed report r.json t.csv m.json -o report.html\n\n"
    "'lakebed replay --report report.html' does the same at once.\n"
    "Exit status: 0 done; 2 bad usage or input, and nothing is written.";

static error_t add_input(report_options *options, char *path) {
  char **inputs = path ? realloc(options->inputs, (options->count + 1) * sizeof *inputs) : NULL;
  if (!inputs) {
    free(path);
    return ENOMEM;
  }
  options->inputs = inputs;
  options->inputs[options->count++] = path;
  return 0;
}

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length > tail && strcmp(text + length - tail, end) == 0;
}

static int is_result(const struct dirent *entry) {
  return entry->d_name[0] != '.' && (ends_with(entry->d_name, ".json") || ends_with(entry->d_name, ".csv"));
}

static void add_folder(struct argp_state *state, report_options *options, const char *folder) {
  struct dirent **files;
  const int count = scandir(folder, &files, is_result, alphasort);
  if (count < 0) argp_failure(state, EXIT_STATUS_USAGE, errno, "%s", folder);
  if (count == 0)
    argp_failure(state, EXIT_STATUS_USAGE, 0, "%s: no file in it ends in .json or .csv", folder);
  const size_t length = strlen(folder);
  for (int i = 0; i < count; i++) {
    char *path;
    if (asprintf(&path, "%s%s%s", folder, folder[length - 1] == '/' ? "" : "/", files[i]->d_name) < 0)
      path = NULL;
    if (add_input(options, path) != 0) argp_failure(state, EXIT_STATUS_CHECK_FAILED, 0, "no memory");
    free(files[i]);
  }
  free(files);
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  report_options *options = state->input;
  struct stat about;
  switch (key) {
    case OPTION_OUTPUT:
      options->output = argument;
      return 0;
    case OPTION_TITLE:
      options->title = argument;
      return 0;
    case ARGP_KEY_ARG:
      if (stat(argument, &about) == 0 && S_ISDIR(about.st_mode)) {
        add_folder(state, options, argument);
        return 0;
      }
      return add_input(options, strdup(argument));
    case ARGP_KEY_END:
      if (options->count == 0) argp_error(state, "RESULTS are expected, files or folders");
      if (!options->output) argp_error(state, "-o FILE.html is expected, the page to write");
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static bool spares_inputs(const report_options *options) {
  for (size_t i = 0; i < options->count; i++) {
    if (!output_same_file(options->output, options->inputs[i])) continue;
    program_complain("%s cannot be written: it is among the results to read", options->output);
    return false;
  }
  return true;
}

/* Is the file of this number one of those before it? */
static bool is_repeated(const report_options *options, size_t number) {
  size_t i = 0;
  while (i < number && !output_same_file(options->inputs[i], options->inputs[number])) i++;
  return i < number;
}

/* JSON first: it says more than a CSV file of the same results. */
static exit_status add_inputs(const report_options *options, report_page *page) {
  exit_status status = EXIT_STATUS_DONE;
  for (int csv = 0; csv <= 1; csv++) {
    for (size_t i = 0; status == EXIT_STATUS_DONE && i < options->count; i++) {
      if (ends_with(options->inputs[i], ".csv") == csv && !is_repeated(options, i))
        status = report_add_file(page, options->inputs[i]);
    }
  }
  return status;
}

static exit_status write_page(const report_options *options, report_page *page) {
  FILE *stream = output_open(options->output);
  if (!stream) return EXIT_STATUS_USAGE;
  const bool complete = report_write(page, stream);
  return output_close(stream, options->output, complete) ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

static exit_status make_page(const report_options *options) {
  if (!spares_inputs(options)) return EXIT_STATUS_USAGE;
  report_page *page = report_create(options->title);
  if (!page) {
    program_complain("no memory for the report");
    return EXIT_STATUS_CHECK_FAILED;
  }
  exit_status status = add_inputs(options, page);
  if (status == EXIT_STATUS_DONE) status = write_page(options, page);
  report_destroy(page);
  return status;
}

exit_status command_report(int argc, char **argv) {
  report_options options = {.title = "Lakebed report"};
  const struct argp parser = {option_table, parse_option, "RESULTS...", documentation, NULL, NULL, NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status == EXIT_STATUS_DONE) status = make_page(&options);
  for (size_t i = 0; i < options.count; i++) free(options.inputs[i]);
  free(options.inputs);
  return status;
}
