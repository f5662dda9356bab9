#include "harness/replay_options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/option_values.h"
#include "harness/output_set.h"
#include "harness/program.h"

enum {
  LAPS_LIMIT = 1000000,
  EVENT_DELAY_LIMIT = 1000000000,
  TIMELINE_POINTS_LIMIT = 100000000,
  TIMELINE_POINTS_DEFAULT = 2000,
};

enum option_key {
  OPTION_POLICY = 'p',
  OPTION_DRIVER = 0x100,
  OPTION_LIMIT,
  OPTION_LAPS,
  OPTION_FREES,
  OPTION_EVENT_DELAY,
  OPTION_CHECK,
  OPTION_VERIFY,
  OPTION_TIMELINE,
  OPTION_TIMELINE_POINTS,
  OPTION_ITERATIONS,
  OPTION_DUMP_AT,
  OPTION_DUMP,
  OPTION_REPORT,
  OPTION_DETAILS,
  OPTION_NO_HOST_TIMING,
};

enum { GROUP_WHAT = 1, GROUP_DEVICE, GROUP_CHECKS, GROUP_OUTPUT };

static const struct argp_option option_table[] = {
    {"policy", OPTION_POLICY, "P[,P...]", 0,
     "policies to replay, each NAME[:KEY=VALUE,...]; may be repeated; default: all", GROUP_WHAT},
    {"laps", OPTION_LAPS, "N", 0, "replay each trace N times, with everything freed after each lap",
     GROUP_WHAT},
    {"frees", OPTION_FREES, "completed|requested", 0,
     "free memory where the recorded run had it back (default), or where the caller asked for that and other "
     "streams may still have used it",
     GROUP_WHAT},

    {"driver", OPTION_DRIVER, "sim|cuda", 0, "the simulated device or the real one; default: sim",
     GROUP_DEVICE},
    {"event-delay", OPTION_EVENT_DELAY, "N", 0,
     "work of the simulated device is done N events of the trace after it was given; default: 0, at once",
     GROUP_DEVICE},
    {"limit", OPTION_LIMIT, "SIZE|FRACTION", 0,
     "most memory a policy may hold: 40GiB, or a share of the device's: 0.5, 50%", GROUP_DEVICE},

    {"check", OPTION_CHECK, NULL, 0, "check the policies' invariants after every event (slow)", GROUP_CHECKS},
    {"verify", OPTION_VERIFY, NULL, 0,
     "fill every allocation with a pattern of its own and compare it before it is freed: a wrong word is a "
     "policy "
     "that gave one byte to two. The simulated device then lies in this machine's memory, which must hold "
     "it: "
     "see --capacity",
     GROUP_CHECKS},

    {"timeline", OPTION_TIMELINE, "FILE", 0,
     "write live, allocated and reserved memory over the events as CSV", GROUP_OUTPUT},
    {"timeline-points", OPTION_TIMELINE_POINTS, "N", 0,
     "at most N points a policy; extremes stay; default: 2000", GROUP_OUTPUT},
    {"iterations", OPTION_ITERATIONS, "FILE|-", OPTION_ARG_OPTIONAL,
     "also print what each policy did in each iteration of the recorded run (where the trace says that one "
     "ended, "
     "else in each lap), and from which one on nothing but reuse; to FILE as CSV",
     GROUP_OUTPUT},
    {"dump-at", OPTION_DUMP_AT, "EVENT|peak|oom", 0,
     "also print a map of all memory: after the event of that number (from 0, over all laps), when most "
     "memory "
     "is live, or when a request first finds none",
     GROUP_OUTPUT},
    {"dump", OPTION_DUMP, "FILE.svg|FILE.json", 0,
     "draw the maps, or write them as JSON; may be given once for each; without --dump-at: at the peak",
     GROUP_OUTPUT},
    {"report", OPTION_REPORT, "FILE.html|-", 0,
     "write a page with the results, memory over the events and the maps (without --dump-at: at the peak), "
     "as "
     "'lakebed report' makes it",
     GROUP_OUTPUT},
    {"details", OPTION_DETAILS, NULL, 0,
     "also print all options, and each policy's driver calls, operations and counters", GROUP_OUTPUT},
    {"no-host-timing", OPTION_NO_HOST_TIMING, NULL, 0,
     "leave out times of this machine, which differ from run to run", GROUP_OUTPUT},
    {0},
};

static const char documentation[] =
    "Replays each TRACE (default: a bundled recording of OPT-1.3B fine-tuning) through each policy and "
    "prints how much memory each would have held and what its driver calls cost.\v"
    "A TRACE is a PyTorch memory snapshot, another recording or a file of events (docs/formats.md), "
    "compressed or "
    "not, or the name of a bundled one: edge; '-' is standard input. 'lakebed policies' lists policies and "
    "their "
    "options. In a SIZE K, KB and KiB are all 1024 bytes, M, MB and MiB 1024 times that, and so on.\n"
    "Exit status: 0 done; 1 a check failed; 2 bad usage or input; 3 requests found no memory; 4 the device "
    "is unusable.";

static void parse_dump_at(struct argp_state *state, replay_options *options, const char *text) {
  if (strcmp(text, "peak") == 0) {
    options->dump = (replay_dump){.moment = REPLAY_DUMP_PEAK};
  } else if (strcmp(text, "oom") == 0) {
    options->dump = (replay_dump){.moment = REPLAY_DUMP_OOM};
  } else if (text[0] < '0' || text[0] > '9') {
    argp_error(state, "--dump-at=%s: expected the number of an event, peak or oom", text);
  } else {
    options->dump = (replay_dump){.moment = REPLAY_DUMP_EVENT,
                                  .event = option_parse_count(state, "dump-at", text, 0, INT64_MAX)};
  }
}

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length > tail && strcmp(text + length - tail, end) == 0;
}

static void parse_dump(struct argp_state *state, replay_options *options, const char *path) {
  const char **place = ends_with(path, ".svg")    ? &options->dump_svg_path
                       : ends_with(path, ".json") ? &options->dump_json_path
                                                  : NULL;
  if (!place) {
    argp_error(state, "--dump=%s: expected the name of a file that ends in .svg or .json", path);
  } else if (*place) {
    argp_error(state, "--dump=%s: %s is to have the maps already", path, *place);
  } else {
    *place = path;
  }
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  replay_options *options = state->input;
  switch (key) {
    case OPTION_POLICY:
      policy_specs_parse(state, &options->specs, argument);
      return 0;
    case OPTION_LAPS:
      options->laps = option_parse_count(state, "laps", argument, 1, LAPS_LIMIT);
      return 0;
    case OPTION_FREES:
      options->trace.free_requests = option_parse_frees(state, argument);
      return 0;
    case OPTION_DRIVER:
      options->device.driver = argument;
      return 0;
    case OPTION_EVENT_DELAY:
      options->device.event_delay = option_parse_count(state, "event-delay", argument, 0, EVENT_DELAY_LIMIT);
      return 0;
    case OPTION_LIMIT:
      option_parse_share(state, "limit", argument, &options->limit, &options->limit_fraction);
      return 0;
    case OPTION_CHECK:
      options->check = true;
      return 0;
    case OPTION_VERIFY:
      options->verify = options->device.backed = true;
      return 0;
    case OPTION_TIMELINE:
      options->timeline_path = argument;
      return 0;
    case OPTION_TIMELINE_POINTS:
      options->timeline_points =
          option_parse_count(state, "timeline-points", argument, 16, TIMELINE_POINTS_LIMIT);
      return 0;
    case OPTION_ITERATIONS:
      options->iterations = options->trace.marks = true;
      if (argument) options->iterations_path = argument;
      return 0;
    case OPTION_DUMP_AT:
      parse_dump_at(state, options, argument);
      return 0;
    case OPTION_DUMP:
      parse_dump(state, options, argument);
      return 0;
    case OPTION_REPORT:
      options->report_path = argument;
      return 0;
    case OPTION_DETAILS:
      options->details = true;
      return 0;
    case OPTION_NO_HOST_TIMING:
      options->host_timing = false;
      return 0;
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->trace;
      state->child_inputs[1] = &options->device;
      state->child_inputs[2] = &options->output;
      state->child_inputs[3] = &options->instruments;
      return 0;
    case ARGP_KEY_ARG:
      return trace_list_add(&options->traces, argument);
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static exit_status check_outputs(const replay_options *options) {
  const char *const outputs[] = {options->output.json_path, options->output.csv_path,
                                 options->timeline_path,    options->iterations_path,
                                 options->dump_svg_path,    options->dump_json_path,
                                 options->report_path,      options->instruments.trace_events_path};
  const size_t count = sizeof outputs / sizeof *outputs;
  return output_paths_are_apart(outputs, count, &options->traces) ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

exit_status replay_options_parse(int argc, char **argv, replay_options *options) {
  *options = (replay_options){.device = {.driver = "sim", .profile = "h200"},
                              .limit = UINT64_MAX,
                              .laps = 1,
                              .host_timing = true,
                              .timeline_points = TIMELINE_POINTS_DEFAULT,
                              .output = {.csv_rows = "a row a policy"}};
  const struct argp_child children[] = {{&trace_options_parser, 0, NULL, GROUP_WHAT},
                                        {&device_choice_parser, 0, NULL, GROUP_DEVICE},
                                        {&output_options_parser, 0, NULL, GROUP_OUTPUT},
                                        {&instrument_options_parser, 0, NULL, GROUP_OUTPUT + 1},
                                        {0}};
  const struct argp parser = {option_table, parse_option, "[TRACE...]", documentation, children, NULL, NULL};
  exit_status status = option_read_command(&parser, argc, argv, options, &options->command);
  if (status != EXIT_STATUS_DONE) return status;
  if (options->dump.moment == REPLAY_DUMP_NEVER && (options->dump_svg_path || options->dump_json_path))
    options->dump.moment = REPLAY_DUMP_PEAK;
  if (options->dump.moment == REPLAY_DUMP_NEVER && options->report_path)
    options->dump = (replay_dump){.moment = REPLAY_DUMP_PEAK, .unprinted = true};
  char message[1024];
  if (options->specs.count == 0 && !policy_specs_add_all(&options->specs, 0, message, sizeof message)) {
    program_complain("%s", message);
    return EXIT_STATUS_USAGE;
  }
  if (options->traces.count == 0) status = trace_list_add_default(&options->traces);
  return status == EXIT_STATUS_DONE ? check_outputs(options) : status;
}

void replay_options_free(replay_options *options) {
  trace_list_free(&options->traces);
  free(options->command);
  policy_specs_free(&options->specs);
  *options = (replay_options){0};
}
