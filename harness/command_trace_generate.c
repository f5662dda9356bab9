/* lakebed trace generate: its kinds, and what they share. */
#include "harness/command_trace_generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/option_values.h"
#include "harness/program.h"
#include "harness/progress.h"
#include "harness/units.h"
#include "policies/policy.h"

enum { OPTION_FORMAT = 0x100 };

static const struct argp_option target_options[] = {
    {"format", OPTION_FORMAT, "lakebed|events", 0, "format to write; default: lakebed", 50},
    {"quiet", 'q', NULL, 0, "no progress, and do not say what was written", 50},
    {0},
};

unsigned generate_parse_name(struct argp_state *state, const char *option, const char *text,
                             const char *const *names) {
  char valid[256] = "";
  size_t used = 0;
  for (unsigned i = 0; names[i]; i++) {
    if (strcmp(names[i], text) == 0) return i;
    if (used < sizeof valid)
      used += (size_t)snprintf(valid + used, sizeof valid - used, "%s%s", i ? ", " : "", names[i]);
  }
  const char *nearest = policy_nearest_word(text, names);
  argp_error(state, "--%s=%s: there is none%s%s%s; there are: %s", option, text,
             nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "", valid);
  return 0;
}

void generate_parse_sequence(struct argp_state *state, const char *option, const char *text,
                             generate_sequence *sequence) {
  if (generate_sequence_parse(text, sequence)) return;
  argp_error(
      state,
      "--%s=%s: expected a length such as 512, a list such as 336,512,309 (%d at most), uniform:LOW-HIGH, or "
      "lognormal:MEAN,DEVIATION:LOW-HIGH",
      option, text, GENERATE_SEQUENCE_LIST_LIMIT);
}

static error_t parse_target(int key, char *argument, struct argp_state *state) {
  static const char *const formats[] = {
      [TRACE_FILE_LAKEBED] = "lakebed", [TRACE_FILE_EVENTS] = "events", NULL};
  generate_target *target = state->input;
  switch (key) {
    case OPTION_FORMAT:
      target->format = (trace_file_format)generate_parse_name(state, "format", argument, formats);
      return 0;
    case 'q':
      target->quiet = true;
      return 0;
    case ARGP_KEY_ARG:
      if (target->output) argp_error(state, "one output at a time, not also '%s'", argument);
      target->output = argument;
      return 0;
    case ARGP_KEY_END:
      if (!target->output) argp_error(state, "where to? A file's name, or - for standard output");
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

const struct argp generate_target_parser = {target_options, parse_target, NULL, NULL, NULL, NULL, NULL};

/* Counts what goes on to the writer. */
typedef struct counting_sink {
  trace_writer *writer;
  progress shown;
  uint64_t events, allocations, live_bytes, peak_bytes;
} counting_sink;

static void show(counting_sink *counted) {
  char events[UNITS_TEXT];
  units_count(counted->events, events);
  progress_say(&counted->shown, -1, "%s events", events);
}

static trace_status count_event(void *context, const trace_event *event, uint64_t recorded_stream,
                                trace_error *error) {
  counting_sink *counted = context;
  if (++counted->events % 4096 == 0) show(counted);
  uint64_t bytes = (event->size + 511) & ~UINT64_C(511);
  if (event->kind == TRACE_ALLOC) {
    counted->allocations++;
    counted->live_bytes += bytes;
    if (counted->live_bytes > counted->peak_bytes) counted->peak_bytes = counted->live_bytes;
  } else {
    counted->live_bytes -= bytes;
  }
  return trace_writer_add(counted->writer, event, recorded_stream, error);
}

exit_status generate_run(const generate_target *target, generate_call *call, const void *options) {
  trace_error error = {0};
  counting_sink counted = {0};
  progress_init(&counted.shown, target->quiet);
  progress_begin(&counted.shown, "%s", target->output);
  trace_status status = trace_writer_open(target->output, target->format, &counted.writer, &error);
  if (status == TRACE_OK) {
    status = call(options, (generate_sink){count_event, &counted}, &error);
    if (status == TRACE_OK) {
      status = trace_writer_finish(counted.writer, &error);
    } else {
      trace_writer_abandon(counted.writer);
    }
  }
  progress_clear(&counted.shown);
  if (status != TRACE_OK) {
    program_complain("%s", error.message);
    return status == TRACE_NO_MEMORY ? EXIT_STATUS_CHECK_FAILED : EXIT_STATUS_USAGE;
  }
  if (!target->quiet) {
    char events[UNITS_TEXT], allocations[UNITS_TEXT], peak[UNITS_TEXT];
    units_count(counted.events, events);
    units_count(counted.allocations, allocations);
    units_bytes(counted.peak_bytes, peak);
    fprintf(stderr, "%s: %s events, %s allocations, peak live %s\n", target->output, events, allocations,
            peak);
  }
  return EXIT_STATUS_DONE;
}

exit_status command_trace_generate(int argc, char **argv) {
  static const program_command kinds[] = {
      {"finetune", "fine-tuning of a language model", command_trace_generate_finetune},
      {"serving", "a language model that answers requests, with growing caches",
       command_trace_generate_serving},
      {"random", "random sizes and lifetimes", command_trace_generate_random},
      {"adversarial", "patterns that leave holes which later requests do not fit",
       command_trace_generate_adversarial},
      {NULL, NULL, NULL},
  };
  return program_dispatch(kinds, "Makes traces from descriptions.", argc, argv);
}
