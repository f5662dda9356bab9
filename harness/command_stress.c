/* lakebed stress: random programs through policies, in one thread or several, on either device. */
#include <argp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/option_values.h"
#include "harness/output_file.h"
#include "harness/output_set.h"
#include "harness/policy_specs.h"
#include "harness/program.h"
#include "harness/stress_output.h"
#include "harness/stress_shrink.h"
#include "harness/units.h"

typedef struct stress_options {
  policy_specs specs;
  device_choice device;
  uint64_t limit, room, largest;
  double limit_fraction;
  uint32_t threads, streams;
  uint64_t operations, round, seconds, seed, check_every;
  bool verify, slow_kernels, no_limits;
  const char *program_path, *save_path;
  output_options output;
  char *command;
} stress_options;

enum option_key {
  OPTION_POLICY = 'p',
  OPTION_DRIVER = 0x100,
  OPTION_LIMIT,
  OPTION_EVENT_DELAY,
  OPTION_THREADS,
  OPTION_STREAMS,
  OPTION_OPERATIONS,
  OPTION_DURATION,
  OPTION_ROUND,
  OPTION_SEED,
  OPTION_ROOM,
  OPTION_LARGEST,
  OPTION_NO_LIMITS,
  OPTION_VERIFY,
  OPTION_SLOW_KERNELS,
  OPTION_CHECK_EVERY,
  OPTION_PROGRAM,
  OPTION_SAVE_PROGRAM,
};

enum { GROUP_WHAT = 1, GROUP_DEVICE, GROUP_CHECKS, GROUP_OUTPUT };

enum {
  LIVE_BLOCKS = 512,
  SHRINK_RUNS = 3000,
  SHRINK_RUNS_REAL = 100,
  SIMULATED_CAPACITY_MIB = 512,
  STREAMS_LIMIT = 64
};

static const struct argp_option option_table[] = {
    {"policy", OPTION_POLICY, "P[,P...]", 0,
     "policies to try, each NAME[:KEY=VALUE,...]; may be repeated; default: all that need not know the "
     "future",
     GROUP_WHAT},
    {"operations", OPTION_OPERATIONS, "N", 0, "steps a policy takes in all; default: 200000", GROUP_WHAT},
    {"duration", OPTION_DURATION, "SECONDS", 0, "go on for so long with each policy instead", GROUP_WHAT},
    {"round", OPTION_ROUND, "N", 0,
     "steps of a program; then everything is freed and checked, and the next one begins on a fresh policy; "
     "default: 20000",
     GROUP_WHAT},
    {"seed", OPTION_SEED, "N", 0, "of the first program, the next ones count on; default: the time",
     GROUP_WHAT},
    {"threads", OPTION_THREADS, "N", 0, "threads that share the policy, each with a program; default: 1",
     GROUP_WHAT},
    {"streams", OPTION_STREAMS, "N", 0, "streams that blocks are used on; default: 4", GROUP_WHAT},
    {"room", OPTION_ROOM, "SIZE", 0,
     "bytes that are live at most, a third more now and then; default: the device's, or the limit",
     GROUP_WHAT},
    {"largest", OPTION_LARGEST, "SIZE", 0, "largest request; default: a twelfth of the room", GROUP_WHAT},
    {"no-limits", OPTION_NO_LIMITS, NULL, 0, "the limit stays as it is", GROUP_WHAT},
    {"program", OPTION_PROGRAM, "FILE", 0, "run this program, as a failure prints it, and no random ones",
     GROUP_WHAT},

    {"driver", OPTION_DRIVER, "sim|cuda", 0, "the simulated device or the real one; default: sim",
     GROUP_DEVICE},
    {"event-delay", OPTION_EVENT_DELAY, "N", 0,
     "work of the simulated device is done after so many steps of kind k; default: 3", GROUP_DEVICE},
    {"limit", OPTION_LIMIT, "SIZE|FRACTION", 0,
     "most memory a policy may hold: 40GiB, or a share of the device's: 0.5, 50%", GROUP_DEVICE},

    {"verify", OPTION_VERIFY, NULL, 0,
     "write every block and compare it before it is freed, some through all addresses of their memory",
     GROUP_CHECKS},
    {"slow-kernels", OPTION_SLOW_KERNELS, NULL, 0,
     "on a real device: keep slow kernels in flight, so that writes come late", GROUP_CHECKS},
    {"check-every", OPTION_CHECK_EVERY, "N", 0,
     "steps between two walks of all invariants; 0: only at a program's end; default: 64", GROUP_CHECKS},

    {"save-program", OPTION_SAVE_PROGRAM, "FILE", 0, "where a failing program goes; default: standard error",
     GROUP_OUTPUT},
    {0},
};

static const char documentation[] =
    "Runs random programs of requests, frees, shared streams, trims and changing limits through each policy "
    "and compares the outcome with a model. What is wrong is told with its seed, and a program of one thread "
    "is cut down to the few steps that are needed for it.\v"
    "With several threads their order is not repeatable, and nothing is cut down. docs/reliability.md says "
    "what is checked.\n"
    "Exit status: 0 done; 1 a check failed; 2 bad usage or input; 4 the device is unusable.";

static error_t parse_what(int key, char *argument, struct argp_state *state, stress_options *options) {
  switch (key) {
    case OPTION_OPERATIONS:
      options->operations = option_parse_count(state, "operations", argument, 1, UINT64_MAX / 2);
      return 0;
    case OPTION_DURATION:
      options->seconds = option_parse_count(state, "duration", argument, 1, 1000000);
      return 0;
    case OPTION_ROUND:
      options->round = option_parse_count(state, "round", argument, 1, 10000000);
      return 0;
    case OPTION_SEED:
      options->seed = option_parse_count(state, "seed", argument, 0, UINT64_MAX / 2);
      return 0;
    case OPTION_THREADS:
      options->threads = (uint32_t)option_parse_count(state, "threads", argument, 1, STRESS_THREADS_LIMIT);
      return 0;
    case OPTION_STREAMS:
      options->streams = (uint32_t)option_parse_count(state, "streams", argument, 1, STREAMS_LIMIT);
      return 0;
    case OPTION_ROOM:
      options->room = option_parse_size(state, "room", argument);
      return 0;
    case OPTION_LARGEST:
      options->largest = option_parse_size(state, "largest", argument);
      return 0;
    case OPTION_NO_LIMITS:
      options->no_limits = true;
      return 0;
    case OPTION_PROGRAM:
      options->program_path = argument;
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  stress_options *options = state->input;
  switch (key) {
    case OPTION_POLICY:
      policy_specs_parse(state, &options->specs, argument);
      return 0;
    case OPTION_DRIVER:
      options->device.driver = argument;
      return 0;
    case OPTION_EVENT_DELAY:
      options->device.event_delay = option_parse_count(state, "event-delay", argument, 0, 1000000);
      return 0;
    case OPTION_LIMIT:
      option_parse_share(state, "limit", argument, &options->limit, &options->limit_fraction);
      return 0;
    case OPTION_VERIFY:
      options->verify = options->device.backed = true;
      return 0;
    case OPTION_SLOW_KERNELS:
      options->slow_kernels = true;
      return 0;
    case OPTION_CHECK_EVERY:
      options->check_every = option_parse_count(state, "check-every", argument, 0, UINT64_MAX / 2);
      return 0;
    case OPTION_SAVE_PROGRAM:
      options->save_path = argument;
      return 0;
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->device;
      state->child_inputs[1] = &options->output;
      return 0;
    case ARGP_KEY_ARG:
      argp_error(state, "'%s' is not expected here", argument);
      return 0;
    default:
      return parse_what(key, argument, state, options);
  }
}

static exit_status refuse(const char *message) {
  program_complain("%s", message);
  return EXIT_STATUS_USAGE;
}

/* What does not go together, and what follows from what was given. */
static exit_status complete(stress_options *options) {
  char message[1024];
  const bool real = strcmp(options->device.driver, "cuda") == 0;
  if (options->specs.count == 0 &&
      !policy_specs_add_all(&options->specs, POLICY_NEEDS_LIFETIMES, message, sizeof message))
    return refuse(message);
  for (size_t i = 0; i < options->specs.count; i++) {
    const policy_class *class = options->specs.items[i].class;
    if (!(class->capabilities & POLICY_NEEDS_LIFETIMES)) continue;
    program_complain("policy %s must know the whole trace first; a random program has none", class->name);
    return EXIT_STATUS_USAGE;
  }
  const char *const outputs[] = {options->output.json_path, options->output.csv_path, options->save_path};
  if (!output_paths_are_apart(outputs, 3, NULL)) return EXIT_STATUS_USAGE;
  if (options->slow_kernels && !real) return refuse("--slow-kernels needs --driver cuda");
  if (options->program_path && options->threads > 1) return refuse("--program is for one thread");
  if (real) options->device.event_delay = 0;
  if (!real && options->device.event_delay == UINT64_MAX) options->device.event_delay = 3;
  if (!real && options->device.capacity == 0)
    options->device.capacity = (uint64_t)SIMULATED_CAPACITY_MIB << 20;
  return EXIT_STATUS_DONE;
}

static exit_status parse(int argc, char **argv, stress_options *options) {
  *options = (stress_options){.device = {.driver = "sim", .profile = "h200", .event_delay = UINT64_MAX},
                              .limit = UINT64_MAX,
                              .threads = 1,
                              .streams = 4,
                              .operations = 200000,
                              .round = 20000,
                              .seed = (uint64_t)time(NULL),
                              .check_every = 64,
                              .output = {.csv_rows = "a row a policy"}};
  const struct argp_child children[] = {{&device_choice_small_parser, 0, NULL, GROUP_DEVICE},
                                        {&output_options_parser, 0, NULL, GROUP_OUTPUT},
                                        {0}};
  const struct argp parser = {option_table, parse_option, NULL, documentation, children, NULL, NULL};
  exit_status status = option_read_command(&parser, argc, argv, options, &options->command);
  return status == EXIT_STATUS_DONE ? complete(options) : status;
}

/* ---- running ---- */

typedef struct stress_work {
  const stress_options *options;
  device_model model;
  stress_mix mix;
  uint64_t limit;
  stress_program *programs; /* one a thread */
  progress shown;
} stress_work;

/* The program goes where --save-program says, with what is wrong as its head. */
static void tell_program(const stress_work *work, const stress_total *total, const stress_program *program) {
  const stress_options *options = work->options;
  FILE *stream = options->save_path ? output_open(options->save_path) : stderr;
  if (!stream) return;
  fprintf(stream, "# %s, seed %" PRIu64 ", step %" PRIu64 ": %s\n", total->spec->text, total->seed,
          total->sum.step, total->sum.message);
  fprintf(stream, "# run it: lakebed stress --policy '%s' --driver %s%s --capacity %" PRIu64,
          total->spec->text, options->device.driver, options->verify ? " --verify" : "",
          work->model.capacity);
  if (!work->model.real) fprintf(stream, " --event-delay %" PRIu64, options->device.event_delay);
  if (work->limit != UINT64_MAX) fprintf(stream, " --limit %" PRIu64, work->limit);
  fprintf(stream, " --check-every 1 --program FILE\n");
  stress_program_write(program, stream);
  if (options->save_path) output_close(stream, options->save_path, true);
}

static void tell_finding(stress_work *work, const stress_settings *settings, stress_total *total) {
  progress_clear(&work->shown);
  program_complain("%s: seed %" PRIu64 ", thread %" PRIu32 ", step %" PRIu64 ": %s", total->spec->text,
                   total->seed, total->sum.thread, total->sum.step, total->sum.message);
  if (work->options->threads > 1) return;
  stress_settings closer = *settings;
  closer.check_every = settings->check_every ? 1 : 0;
  closer.end_ns = 0;
  stress_result result = {.step = total->sum.step};
  const size_t steps = work->programs[0].count;
  const uint64_t runs =
      stress_shrink(&closer, &work->programs[0], &result, work->model.real ? SHRINK_RUNS_REAL : SHRINK_RUNS);
  if (result.failed) {
    total->sum.step = result.step;
    memcpy(total->sum.message, result.message, sizeof result.message);
  }
  program_complain("cut down from %zu to %zu steps in %" PRIu64 " runs:", steps, work->programs[0].count,
                   runs);
  tell_program(work, total, &work->programs[0]);
}

/* The programs of one round. false: the host has no memory. */
static bool make_programs(stress_work *work, uint64_t seed, uint64_t steps) {
  stress_mix mix = work->mix;
  mix.steps = steps;
  for (uint32_t i = 0; i < work->options->threads; i++) {
    if (!stress_program_generate(&work->programs[i], seed + ((uint64_t)i << 40), &mix)) return false;
  }
  return true;
}

/* As many programs as it takes, each on a fresh policy. */
static exit_status run_policy(stress_work *work, const policy_spec *spec, stress_total *total) {
  const stress_options *options = work->options;
  stress_settings settings = {
      .model = &work->model,
      .spec = spec,
      .limit = work->limit,
      .last_request = (work->limit < work->model.capacity ? work->limit : work->model.capacity) / 2,
      .check_every = options->check_every,
      .verify = options->verify && !(spec->class->capabilities & POLICY_NO_MEMORY),
      .slow_kernels = options->slow_kernels};
  const uint64_t begin_ns = progress_clock_ns();
  if (options->seconds) settings.end_ns = begin_ns + options->seconds * UINT64_C(1000000000);
  *total = (stress_total){.spec = spec};
  progress_begin(&work->shown, "%s", spec->text);
  for (uint64_t round = 0, done = 0; !total->sum.failed; round++) {
    const uint64_t left = options->operations - done, wanted = options->round * options->threads;
    uint64_t steps = options->seconds || left >= wanted ? options->round
                                                        : (left + options->threads - 1) / options->threads;
    const uint64_t seed = options->seed + round;
    stress_result result;
    if (!options->program_path && !make_programs(work, seed, steps)) {
      program_complain("no memory for the programs");
      return EXIT_STATUS_CHECK_FAILED;
    }
    settings.steps_before = done;
    if (!stress_run(&settings, work->programs, options->threads, &work->shown, &result)) {
      program_complain("%s: %s", spec->text, result.message);
      return EXIT_STATUS_NO_DEVICE;
    }
    stress_total_add(total, &result);
    total->seed = seed;
    done += result.counts.steps;
    progress_update(&work->shown, -1, done, result.statistics.reserved_bytes.peak);
    if (options->program_path) break;
    if (settings.end_ns ? progress_clock_ns() >= settings.end_ns : done >= options->operations) break;
  }
  if (total->sum.failed && !options->program_path) tell_finding(work, &settings, total);
  if (total->sum.failed && options->program_path)
    program_complain("%s: step %" PRIu64 ": %s", spec->text, total->sum.step, total->sum.message);
  char outcome[UNITS_COUNTED + 16], steps[UNITS_COUNTED];
  units_counted(total->sum.counts.steps, "step", steps);
  snprintf(outcome, sizeof outcome, "%s, %s", steps, total->sum.failed ? "FAILED" : "sound");
  progress_end(&work->shown, outcome);
  return total->sum.failed ? EXIT_STATUS_CHECK_FAILED : EXIT_STATUS_DONE;
}

static exit_status read_program(stress_work *work) {
  char message[512];
  const char *path = work->options->program_path;
  FILE *stream = fopen(path, "r");
  if (!stream) {
    program_complain("%s cannot be read: %s", path, strerror(errno));
    return EXIT_STATUS_USAGE;
  }
  const bool read = stress_program_read(&work->programs[0], stream, path, message, sizeof message);
  fclose(stream);
  return read ? EXIT_STATUS_DONE : refuse(message);
}

static exit_status run_all(stress_work *work, stress_total *totals) {
  const stress_options *options = work->options;
  exit_status status = options->program_path ? read_program(work) : EXIT_STATUS_DONE;
  output_set sinks;
  if (status != EXIT_STATUS_DONE) return status;
  if (!output_set_open(&sinks, &options->output)) {
    output_set_abandon(&sinks);
    return EXIT_STATUS_USAGE;
  }
  char date[OPTION_DATE_TEXT];
  option_date(date);
  const stress_group group = {.name = "stress",
                              .model = &work->model,
                              .command = options->command,
                              .date = date,
                              .limit = work->limit,
                              .seed = options->seed,
                              .threads = options->threads,
                              .streams = options->streams,
                              .verify = options->verify,
                              .slow_kernels = options->slow_kernels};
  size_t done = 0;
  for (; done < options->specs.count; done++) {
    const exit_status outcome = run_policy(work, &options->specs.items[done], &totals[done]);
    status = exit_status_worse(status, outcome);
    if (outcome == EXIT_STATUS_NO_DEVICE) break;
  }
  if (sinks.report) {
    stress_output_header(&group, sinks.report);
    stress_output_table(totals, done, sinks.report);
  }
  if (sinks.csv) stress_output_csv(&group, totals, done, sinks.csv);
  if (!sinks.array || stress_output_json(&group, totals, done, sinks.array))
    return exit_status_worse(status, output_set_close(&sinks));
  program_complain("no memory for the results");
  output_set_abandon(&sinks);
  return EXIT_STATUS_CHECK_FAILED;
}

/* What the device and the limit leave to choose. */
static exit_status choose_mix(stress_work *work) {
  const stress_options *options = work->options;
  const device_model *model = &work->model;
  work->limit = options->limit_fraction > 0 ? (uint64_t)(options->limit_fraction * (double)model->total)
                                            : options->limit;
  if (work->limit < 16 * model->granularity)
    return refuse("--limit: less than 16 times the device's granularity");
  uint64_t room = options->room;
  if (room == 0) room = work->limit < model->capacity ? work->limit : model->capacity;
  const uint64_t held = room;
  room /= options->threads;
  work->mix = (stress_mix){.streams = options->streams,
                           .room = room,
                           .held = held,
                           .largest = options->largest ? options->largest : room / 12 + 1,
                           .limit = work->limit,
                           .live = LIVE_BLOCKS,
                           .limits = !options->no_limits,
                           .slow = options->slow_kernels};
  return EXIT_STATUS_DONE;
}

static exit_status run(const stress_options *options) {
  stress_work work = {.options = options};
  exit_status status = device_model_open(&options->device, &work.model);
  if (status != EXIT_STATUS_DONE) return status;
  status = choose_mix(&work);
  progress_init(&work.shown, options->output.quiet);
  work.programs = calloc(options->threads, sizeof *work.programs);
  stress_total *totals = calloc(options->specs.count, sizeof *totals);
  if (status == EXIT_STATUS_DONE && (!work.programs || !totals))
    status = refuse("no memory for the programs");
  if (status == EXIT_STATUS_DONE) status = run_all(&work, totals);
  for (uint32_t i = 0; work.programs && i < options->threads; i++) stress_program_free(&work.programs[i]);
  free(work.programs);
  free(totals);
  device_model_unload(&work.model);
  return status;
}

exit_status command_stress(int argc, char **argv) {
  stress_options options;
  exit_status status = parse(argc, argv, &options);
  if (status == EXIT_STATUS_DONE) status = run(&options);
  policy_specs_free(&options.specs);
  free(options.command);
  return status;
}
