/* lakebed trace convert: write a trace in another format. */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/option_values.h"
#include "harness/program.h"
#include "harness/progress.h"
#include "harness/replay_output.h"
#include "harness/trace_list.h"
#include "harness/units.h"
#include "policies/policy.h"
#include "workloads/trace.h"
#include "workloads/trace_writer.h"

typedef struct convert_options {
  trace_list input; /* one */
  const char *output;
  trace_file_format format;
  trace_options trace;
  bool quiet;
} convert_options;

enum { OPTION_FORMAT = 0x100 };

static const struct argp_option option_table[] = {
    {"format", OPTION_FORMAT, "lakebed|events", 0, "format to write; default: lakebed", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {0},
};

static void parse_format(struct argp_state *state, const char *text, trace_file_format *format) {
  static const char *const names[] = {[TRACE_FILE_LAKEBED] = "lakebed", [TRACE_FILE_EVENTS] = "events", NULL};
  for (size_t i = 0; names[i]; i++) {
    if (strcmp(names[i], text) != 0) continue;
    *format = (trace_file_format)i;
    return;
  }
  const char *nearest = policy_nearest_word(text, names);
  argp_error(state, "no format '%s'%s%s%s; there are: lakebed, events", text,
             nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  convert_options *options = state->input;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->trace;
      return 0;
    case OPTION_FORMAT:
      parse_format(state, argument, &options->format);
      return 0;
    case 'q':
      options->quiet = true;
      return 0;
    case ARGP_KEY_ARG:
      if (state->arg_num == 0) {
        return trace_list_add(&options->input, argument);
      }
      if (state->arg_num > 1) argp_error(state, "one trace at a time");
      options->output = argument;
      return 0;
    case ARGP_KEY_END:
      if (!options->output) argp_error(state, "from where to where? 'lakebed trace convert IN OUT'");
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

/* Copies all events. TRACE_END when they are all written. */
static trace_status copy(trace *input, trace_writer *output, progress *shown, uint64_t *events,
                         trace_error *error) {
  trace_event event;
  trace_status status;
  *events = 0;
  while ((status = trace_next(input, &event, error)) == TRACE_OK) {
    status = trace_writer_add(output, &event, trace_stream_recorded(input, event.stream), error);
    if (status != TRACE_OK) return status;
    if (++*events % 4096 == 0) progress_update(shown, trace_progress(input), *events, UINT64_MAX);
  }
  return status;
}

/* Through a link, for one, the output would be emptied before it is read. */
static bool is_own_output(const char *input, const char *output) {
  struct stat read, written;
  bool known = strcmp(input, "-") == 0 ? fstat(STDIN_FILENO, &read) == 0 : stat(input, &read) == 0;
  return known && S_ISREG(read.st_mode) && stat(output, &written) == 0 && read.st_dev == written.st_dev &&
         read.st_ino == written.st_ino;
}

static exit_status convert(const convert_options *options) {
  progress shown;
  progress_init(&shown, options->quiet);
  trace_error error;
  trace *input = NULL;
  trace_writer *output = NULL;
  const char *path = options->input.paths[0];
  if (is_own_output(path, options->output)) {
    program_complain("%s cannot be written: it is the trace to convert", options->output);
    return EXIT_STATUS_USAGE;
  }
  trace_status status = trace_open(path, &options->trace, &input, &error);
  if (status == TRACE_OK) status = trace_writer_open(options->output, options->format, &output, &error);
  uint64_t events = 0, left_out = 0;
  if (status == TRACE_OK) {
    progress_begin(&shown, "%s", replay_trace_name(path));
    status = copy(input, output, &shown, &events, &error);
    left_out = trace_writer_left_out(output);
    if (status == TRACE_END) {
      status = trace_writer_finish(output, &error);
    } else {
      trace_writer_abandon(output);
    }
    progress_end(&shown, status == TRACE_OK ? "converted" : "failed");
  }
  trace_close(input);
  if (status != TRACE_OK) {
    trace_list_complain(path, &error);
    return status == TRACE_NO_MEMORY ? EXIT_STATUS_CHECK_FAILED : EXIT_STATUS_USAGE;
  }
  char written[UNITS_TEXT];
  units_count(events - left_out, written);
  fprintf(stderr, "%s: %s events", options->output, written);
  if (left_out > 0) fprintf(stderr, ", %" PRIu64 " that the format cannot hold left out", left_out);
  fputc('\n', stderr);
  return EXIT_STATUS_DONE;
}

exit_status command_trace_convert(int argc, char **argv) {
  convert_options options = {.format = TRACE_FILE_LAKEBED, .trace.free_requests = true};
  const struct argp_child children[] = {{&trace_options_parser, 0, NULL, 0}, {0}};
  const struct argp parser = {
      option_table,
      parse_option,
      "IN OUT",
      "Writes the events of a trace in another format, compressed when OUT ends with .xz, .gz "
      "or .zst; '-' is standard input or output.",
      children,
      NULL,
      NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status == EXIT_STATUS_DONE) status = convert(&options);
  trace_list_free(&options.input);
  return status;
}
