#include "harness/replay_options.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/program.h"

#define BUNDLED_TRACE "workloads/bundled/opt-1.3b-LR-b16-s512-w4-v0-i8.pickle.xz"

enum {
  LAPS_LIMIT = 1000000,
  TIMELINE_POINTS_LIMIT = 100000000,
  TIMELINE_POINTS_DEFAULT = 2000,
};

enum option_key {
  OPTION_POLICY = 'p',
  OPTION_QUIET = 'q',
  OPTION_DRIVER = 0x100,
  OPTION_DEVICE,
  OPTION_DEVICE_ORDINAL,
  OPTION_CAPACITY,
  OPTION_LIMIT,
  OPTION_LAPS,
  OPTION_CHECK,
  OPTION_VERIFY,
  OPTION_TIMELINE,
  OPTION_TIMELINE_POINTS,
  OPTION_JSON,
  OPTION_CSV,
  OPTION_DETAILS,
  OPTION_NO_HOST_TIMING,
  OPTION_SEED,
  OPTION_TRACE_DEVICE,
};

enum { GROUP_WHAT = 1, GROUP_DEVICE, GROUP_CHECKS, GROUP_OUTPUT };

static const struct argp_option option_table[] = {
    {"policy", OPTION_POLICY, "P[,P...]", 0,
     "policies to replay, each NAME[:KEY=VALUE,...]; may be repeated; default: all", GROUP_WHAT},
    {"laps", OPTION_LAPS, "N", 0, "replay each trace N times, with everything freed after each lap",
     GROUP_WHAT},
    {"seed-from-segments", OPTION_SEED, NULL, 0,
     "begin with the blocks that were live when the recording began", GROUP_WHAT},
    {"trace-device", OPTION_TRACE_DEVICE, "N", 0, "which device of a snapshot to replay; default: 0",
     GROUP_WHAT},

    {"driver", OPTION_DRIVER, "sim|cuda", 0, "the simulated device or the real one; default: sim",
     GROUP_DEVICE},
    {"device", OPTION_DEVICE, "NAME|FILE", 0, "profile of the simulated device; default: h200", GROUP_DEVICE},
    {"device-ordinal", OPTION_DEVICE_ORDINAL, "N", 0, "which real device; default: 0", GROUP_DEVICE},
    {"capacity", OPTION_CAPACITY, "SIZE", 0, "memory of the simulated device; default: its profile's",
     GROUP_DEVICE},
    {"limit", OPTION_LIMIT, "SIZE|FRACTION", 0, "most memory a policy may hold: 40GiB, 0.5, 50%",
     GROUP_DEVICE},

    {"check", OPTION_CHECK, NULL, 0, "check the policies' invariants after every event (slow)", GROUP_CHECKS},
    {"verify", OPTION_VERIFY, NULL, 0,
     "fill every allocation and compare it before it is freed; the simulated device then lies in this "
     "machine's memory",
     GROUP_CHECKS},

    {"json", OPTION_JSON, "FILE|-", 0, "write the results as JSON", GROUP_OUTPUT},
    {"csv", OPTION_CSV, "FILE|-", 0, "write the results as CSV, a row a policy", GROUP_OUTPUT},
    {"timeline", OPTION_TIMELINE, "FILE", 0,
     "write live, allocated and reserved memory over the events as CSV", GROUP_OUTPUT},
    {"timeline-points", OPTION_TIMELINE_POINTS, "N", 0,
     "at most N points a policy; extremes stay; default: 2000", GROUP_OUTPUT},
    {"details", OPTION_DETAILS, NULL, 0, "also print each policy's driver calls, operations and counters",
     GROUP_OUTPUT},
    {"no-host-timing", OPTION_NO_HOST_TIMING, NULL, 0,
     "leave out times of this machine, which differ from run to run", GROUP_OUTPUT},
    {"quiet", OPTION_QUIET, NULL, 0, "no progress", GROUP_OUTPUT},
    {0},
};

static const char documentation[] =
    "Replays each TRACE (default: a bundled recording of OPT-1.3B fine-tuning) through each policy and "
    "prints how much "
    "memory each would have held and what its driver calls cost.\v"
    "A TRACE is a PyTorch memory snapshot or a file of events, compressed or not; '-' is standard input. "
    "'lakebed policies' lists policies and their options.\n"
    "Exit status: 0 done; 1 a check failed; 2 bad usage or input; 3 requests found no memory; 4 the device "
    "is unusable.";

size_t replay_options_spec_length(const char *list) {
  size_t length = 0;
  while (true) {
    int depth = 0;
    for (; list[length] && (list[length] != ',' || depth > 0); length++) {
      if (list[length] == '[') depth++;
      if (list[length] == ']' && depth > 0) depth--;
    }
    if (!list[length]) return length;
    const char *next = list + length + 1;
    if (next[strcspn(next, "=:,")] != '=') return length;
    length++;
  }
}

static bool add_spec(replay_options *options, const char *text, char *message, size_t message_size) {
  policy_spec *specs = realloc(options->specs, (options->spec_count + 1) * sizeof *specs);
  if (!specs) {
    snprintf(message, message_size, "no memory for the policies");
    return false;
  }
  options->specs = specs;
  if (policy_spec_parse(text, &specs[options->spec_count], message, message_size) != VMM_SUCCESS)
    return false;
  options->spec_count++;
  return true;
}

static bool add_all_specs(replay_options *options, char *message, size_t message_size) {
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    if (!add_spec(options, (*class)->name, message, message_size)) return false;
  }
  return true;
}

static bool add_spec_list(replay_options *options, const char *list, char *message, size_t message_size) {
  while (true) {
    size_t length = replay_options_spec_length(list);
    char *text = strndup(list, length);
    if (!text) {
      snprintf(message, message_size, "no memory for the policies");
      return false;
    }
    bool added = strcmp(text, "all") == 0 ? add_all_specs(options, message, message_size)
                                          : add_spec(options, text, message, message_size);
    free(text);
    if (!added) return false;
    if (!list[length]) return true;
    list += length + 1;
  }
}

static bool parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *number) {
  char *end;
  errno = 0;
  *number = strtoull(text, &end, 10);
  return text[0] >= '0' && text[0] <= '9' && errno == 0 && *end == '\0' && *number >= least &&
         *number <= most;
}

/* "0.5" or "50%"; a plain number is bytes. */
static bool parse_fraction(const char *text, double *fraction) {
  char *end;
  if (text[0] < '0' || text[0] > '9') return false;
  *fraction = strtod(text, &end);
  if (strcmp(end, "%") == 0) {
    *fraction /= 100;
  } else if (*end != '\0' || !strchr(text, '.')) {
    return false;
  }
  return *fraction > 0 && *fraction <= 1;
}

/* The size of an option that needs one. */
static void parse_size(struct argp_state *state, const char *option, const char *text, uint64_t *bytes) {
  if (!policy_parse_size(text, bytes) || *bytes == 0 || *bytes == UINT64_MAX) {
    argp_error(state, "--%s=%s: expected a size such as 80GiB, 512MiB or a number of bytes", option, text);
  }
}

static void parse_count(struct argp_state *state, const char *option, const char *text, uint64_t least,
                        uint64_t most, uint64_t *number) {
  if (!parse_number(text, least, most, number)) {
    argp_error(state, "--%s=%s: expected a whole number from %llu to %llu", option, text,
               (unsigned long long)least, (unsigned long long)most);
  }
}

static error_t add_trace(replay_options *options, const char *path) {
  const char **traces = realloc(options->traces, (options->trace_count + 1) * sizeof *traces);
  if (!traces) return ENOMEM;
  options->traces = traces;
  options->traces[options->trace_count++] = path;
  return 0;
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  replay_options *options = state->input;
  char message[1024];
  uint64_t number;
  switch (key) {
    case OPTION_POLICY:
      if (!add_spec_list(options, argument, message, sizeof message)) {
        argp_failure(state, EXIT_STATUS_USAGE, 0, "%s", message);
      }
      return 0;
    case OPTION_LAPS:
      parse_count(state, "laps", argument, 1, LAPS_LIMIT, &options->laps);
      return 0;
    case OPTION_SEED:
      options->trace.seed_from_segments = true;
      return 0;
    case OPTION_TRACE_DEVICE:
      parse_count(state, "trace-device", argument, 0, UINT32_MAX, &number);
      options->trace.device = (uint32_t)number;
      return 0;
    case OPTION_DRIVER:
      options->device.driver = argument;
      return 0;
    case OPTION_DEVICE:
      options->device.profile = argument;
      return 0;
    case OPTION_DEVICE_ORDINAL:
      parse_count(state, "device-ordinal", argument, 0, INT32_MAX, &number);
      options->device.ordinal = (unsigned)number;
      return 0;
    case OPTION_CAPACITY:
      parse_size(state, "capacity", argument, &options->device.capacity);
      return 0;
    case OPTION_LIMIT:
      if (!parse_fraction(argument, &options->limit_fraction)) {
        options->limit_fraction = 0;
        parse_size(state, "limit", argument, &options->limit);
      }
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
      parse_count(state, "timeline-points", argument, 16, TIMELINE_POINTS_LIMIT, &options->timeline_points);
      return 0;
    case OPTION_JSON:
      options->json_path = argument;
      return 0;
    case OPTION_CSV:
      options->csv_path = argument;
      return 0;
    case OPTION_DETAILS:
      options->details = true;
      return 0;
    case OPTION_NO_HOST_TIMING:
      options->host_timing = false;
      return 0;
    case OPTION_QUIET:
      options->quiet = true;
      return 0;
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->instruments;
      return 0;
    case ARGP_KEY_ARG:
      return add_trace(options, argument);
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static exit_status use_bundled_trace(replay_options *options) {
  const char *root = getenv("LAKEBED_ROOT");
  if (!root || !*root) root = ".";
  size_t size = strlen(root) + sizeof "/" BUNDLED_TRACE;
  options->default_trace = malloc(size);
  if (!options->default_trace) {
    program_complain("no memory for the trace's name");
    return EXIT_STATUS_CHECK_FAILED;
  }
  snprintf(options->default_trace, size, "%s/" BUNDLED_TRACE, root);
  if (access(options->default_trace, R_OK) != 0) {
    program_complain(
        "no trace was given, and the bundled one is not at %s; LAKEBED_ROOT names the folder that Lakebed "
        "lies in",
        options->default_trace);
    return EXIT_STATUS_USAGE;
  }
  if (add_trace(options, options->default_trace) != 0) {
    program_complain("no memory for the traces");
    return EXIT_STATUS_CHECK_FAILED;
  }
  return EXIT_STATUS_DONE;
}

static bool is_dash(const char *path) { return path && strcmp(path, "-") == 0; }

exit_status replay_options_parse(int argc, char **argv, replay_options *options) {
  *options = (replay_options){.device = {.driver = "sim", .profile = "h200"},
                              .limit = UINT64_MAX,
                              .laps = 1,
                              .host_timing = true,
                              .timeline_points = TIMELINE_POINTS_DEFAULT};
  const struct argp_child children[] = {{&instrument_options_parser, 0, NULL, GROUP_OUTPUT + 1}, {0}};
  const struct argp parser = {option_table, parse_option, "[TRACE...]", documentation, children, NULL, NULL};
  error_t failure = argp_parse(&parser, argc, argv, 0, NULL, options);
  if (failure != 0) {
    program_complain("the command line cannot be read: %s", strerror(failure));
    return EXIT_STATUS_USAGE;
  }
  if (is_dash(options->json_path) && is_dash(options->csv_path)) {
    program_complain("only one of --json and --csv can go to standard output");
    return EXIT_STATUS_USAGE;
  }
  char message[1024];
  if (options->spec_count == 0 && !add_all_specs(options, message, sizeof message)) {
    program_complain("%s", message);
    return EXIT_STATUS_USAGE;
  }
  return options->trace_count == 0 ? use_bundled_trace(options) : EXIT_STATUS_DONE;
}

void replay_options_free(replay_options *options) {
  free(options->traces);
  free(options->default_trace);
  free(options->specs);
  *options = (replay_options){0};
}
