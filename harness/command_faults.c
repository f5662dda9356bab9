/* lakebed faults: every driver call of a policy fails, one at a time. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/option_values.h"
#include "harness/output_set.h"
#include "harness/policy_specs.h"
#include "harness/program.h"
#include "harness/replay_output.h"
#include "harness/stress_faults.h"
#include "harness/stress_output.h"
#include "harness/trace_list.h"

typedef struct faults_options {
  trace_list traces;
  policy_specs specs;
  device_choice device;
  uint64_t events, skip, random, seed, part, parts;
  bool pairs;
  output_options output;
  char *command;
} faults_options;

enum option_key {
  OPTION_POLICY = 'p',
  OPTION_EVENTS = 0x100,
  OPTION_SKIP,
  OPTION_RANDOM,
  OPTION_SEED,
  OPTION_PAIRS,
  OPTION_PART,
  OPTION_DEVICE,
  OPTION_CAPACITY,
};

static const struct argp_option option_table[] = {
    {"policy", OPTION_POLICY, "P[,P...]", 0,
     "policies to try, each NAME[:KEY=VALUE,...]; may be repeated; default: all that hold memory and need "
     "not know the future",
     0},
    {"events", OPTION_EVENTS, "N", 0, "events of each TRACE, from the first; default: 300", 0},
    {"skip", OPTION_SKIP, "N", 0, "leave out so many events before them; default: 0", 0},
    {"random", OPTION_RANDOM, "N", 0,
     "also try so many random programs of 200 steps, with several streams and trims; default: 1", 0},
    {"seed", OPTION_SEED, "N", 0, "of the first random program; default: 1", 0},
    {"pairs", OPTION_PAIRS, NULL, 0,
     "also let a call around stitching fail, and then the next one of each kind that builds mappings or "
     "takes them back",
     0},
    {"part", OPTION_PART, "K/N", 0, "only every N-th failure, from the K-th on", 0},
    {"device", OPTION_DEVICE, "NAME|FILE", 0, "profile of the simulated device; default: h200", 0},
    {"capacity", OPTION_CAPACITY, "SIZE", 0, "its memory; default: 16GiB", 0},
    {0},
};

static const char documentation[] =
    "Runs the beginning of each TRACE (default: none, only random programs) through each policy on the "
    "simulated device, and again for every driver call of the run, with that call refused. Each time the "
    "request must be served, or be refused with everything as it was, and served when it is made again; the "
    "invariants must hold, and nothing may be left.\v"
    "docs/reliability.md explains the columns.\n"
    "Exit status: 0 done; 1 a check failed; 2 bad usage or input.";

enum { EVENTS = 300, RANDOM_STEPS = 200, RANDOM_LIMIT = 1000, CAPACITY_GIB = 16, LEAST_CAPACITY = 64 << 20 };

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  faults_options *options = state->input;
  switch (key) {
    case OPTION_POLICY:
      policy_specs_parse(state, &options->specs, argument);
      return 0;
    case OPTION_EVENTS:
      options->events = option_parse_count(state, "events", argument, 1, 1000000);
      return 0;
    case OPTION_SKIP:
      options->skip = option_parse_count(state, "skip", argument, 0, UINT64_MAX / 2);
      return 0;
    case OPTION_RANDOM:
      options->random = option_parse_count(state, "random", argument, 0, RANDOM_LIMIT);
      return 0;
    case OPTION_SEED:
      options->seed = option_parse_count(state, "seed", argument, 0, UINT64_MAX / 2);
      return 0;
    case OPTION_PAIRS:
      options->pairs = true;
      return 0;
    case OPTION_PART:
      options->parts = option_parse_part(state, "part", argument, UINT64_MAX - 1, &options->part);
      return 0;
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->output;
      return 0;
    case OPTION_DEVICE:
      options->device.profile = argument;
      return 0;
    case OPTION_CAPACITY:
      options->device.capacity = option_parse_size(state, "capacity", argument);
      return 0;
    case ARGP_KEY_ARG:
      return trace_list_add(&options->traces, argument);
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static exit_status parse(int argc, char **argv, faults_options *options) {
  *options = (faults_options){.device = {.driver = "sim",
                                         .profile = "h200",
                                         .capacity = (uint64_t)CAPACITY_GIB << 30,
                                         .event_delay = 3},
                              .events = EVENTS,
                              .random = 1,
                              .seed = 1,
                              .part = 1,
                              .parts = 1,
                              .output = {.csv_rows = "a row a policy, program and call"}};
  const struct argp_child children[] = {{&output_options_parser, 0, NULL, 0}, {0}};
  const struct argp parser = {option_table, parse_option, "[TRACE...]", documentation, children, NULL, NULL};
  char message[1024];
  exit_status status = option_read_command(&parser, argc, argv, options, &options->command);
  if (status != EXIT_STATUS_DONE) return status;
  const char *const outputs[] = {options->output.json_path, options->output.csv_path};
  if (!output_paths_are_apart(outputs, 2, &options->traces)) return EXIT_STATUS_USAGE;
  if (options->specs.count == 0 &&
      !policy_specs_add_all(&options->specs, POLICY_NO_MEMORY | POLICY_NEEDS_LIFETIMES, message,
                            sizeof message)) {
    program_complain("%s", message);
    return EXIT_STATUS_USAGE;
  }
  for (size_t i = 0; i < options->specs.count; i++) {
    const policy_class *class = options->specs.items[i].class;
    if (!(class->capabilities & POLICY_NEEDS_LIFETIMES)) continue;
    program_complain("policy %s must know the whole trace first, and a part of one is run here", class->name);
    return EXIT_STATUS_USAGE;
  }
  return EXIT_STATUS_DONE;
}

/* ---- running ---- */

typedef struct faults_work {
  const faults_options *options;
  device_model model;
  progress shown;
  stress_program *programs;
  char (*names)[128];
  size_t program_count;
  fault_row *rows;
  size_t row_count;
} faults_work;

static exit_status load_trace(faults_work *work, const char *path) {
  const faults_options *options = work->options;
  trace_events events;
  trace_error error;
  if (trace_load(path, NULL, &events, &error) != TRACE_OK) {
    trace_list_complain(path, &error);
    return error.status == TRACE_NO_MEMORY ? EXIT_STATUS_CHECK_FAILED : EXIT_STATUS_USAGE;
  }
  stress_program *program = &work->programs[work->program_count];
  const bool made = stress_program_slice(program, &events, options->skip, options->events);
  trace_events_free(&events);
  if (!made || program->count == 0) {
    program_complain("%s: %s", path, made ? "has no events from --skip on" : "no memory for the program");
    return EXIT_STATUS_USAGE;
  }
  snprintf(work->names[work->program_count++], sizeof *work->names, "%s", replay_trace_name(path));
  return EXIT_STATUS_DONE;
}

static exit_status make_programs(faults_work *work) {
  const faults_options *options = work->options;
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < options->traces.count && status == EXIT_STATUS_DONE; i++)
    status = load_trace(work, options->traces.paths[i]);
  for (uint64_t i = 0; i < options->random && status == EXIT_STATUS_DONE; i++) {
    const stress_mix mix = {.steps = RANDOM_STEPS,
                            .streams = 3,
                            .room = UINT64_C(96) << 20,
                            .largest = UINT64_C(16) << 20,
                            .limit = UINT64_MAX,
                            .live = 64};
    if (!stress_program_generate(&work->programs[work->program_count], options->seed + i, &mix)) {
      program_complain("no memory for the programs");
      return EXIT_STATUS_CHECK_FAILED;
    }
    snprintf(work->names[work->program_count++], sizeof *work->names, "random-%" PRIu64, options->seed + i);
  }
  return status;
}

static exit_status run_row(faults_work *work, const policy_spec *spec, size_t program, bool pairs) {
  const faults_options *options = work->options;
  fault_row *row = &work->rows[work->row_count++];
  *row = (fault_row){.spec = spec, .program = work->names[program], .pairs = pairs};
  const fault_settings settings = {.model = &work->model,
                                   .spec = spec,
                                   .limit = UINT64_MAX,
                                   .pairs = pairs,
                                   .part = options->part - 1,
                                   .parts = options->parts};
  progress_begin(&work->shown, "%s  %s  %s", spec->text, row->program,
                 pairs ? "two failures" : "one failure");
  const bool done = stress_faults(&settings, &work->programs[program], &work->shown, &row->report);
  progress_end(&work->shown, done && !row->report.failed ? "sound" : "FAILED");
  if (!done) {
    program_complain("%s: %s", spec->text, row->report.message);
    return EXIT_STATUS_CHECK_FAILED;
  }
  if (!row->report.failed) return EXIT_STATUS_DONE;
  program_complain("%s, %s: step %" PRIu64 ": %s", spec->text, row->program, row->report.result.step,
                   row->report.result.message);
  fputs("# the program, for 'lakebed stress --program FILE':\n", stderr);
  stress_program_write(&row->report.found, stderr);
  return EXIT_STATUS_CHECK_FAILED;
}

static exit_status run_all(faults_work *work) {
  const faults_options *options = work->options;
  exit_status status = make_programs(work);
  output_set sinks;
  if (status != EXIT_STATUS_DONE) return status;
  if (!output_set_open(&sinks, &options->output)) {
    output_set_abandon(&sinks);
    return EXIT_STATUS_USAGE;
  }
  char date[OPTION_DATE_TEXT];
  option_date(date);
  for (size_t i = 0; i < work->program_count; i++) {
    for (size_t k = 0; k < options->specs.count; k++) {
      const policy_spec *spec = &options->specs.items[k];
      status = exit_status_worse(status, run_row(work, spec, i, false));
      if (options->pairs && spec->class->capabilities & POLICY_NEEDS_VMM)
        status = exit_status_worse(status, run_row(work, spec, i, true));
    }
  }
  const stress_group group = {.name = "faults",
                              .model = &work->model,
                              .command = options->command,
                              .date = date,
                              .limit = UINT64_MAX,
                              .seed = options->seed};
  if (sinks.report) {
    stress_output_header(&group, sinks.report);
    fault_output_table(work->rows, work->row_count, sinks.report);
    fprintf(sinks.report, "\nStages, and the calls that were made to fail inside them\n");
    fault_output_stages(work->rows, work->row_count, sinks.report);
  }
  if (sinks.csv) fault_output_csv(&group, work->rows, work->row_count, sinks.csv);
  if (!sinks.array || fault_output_json(&group, work->rows, work->row_count, sinks.array))
    return exit_status_worse(status, output_set_close(&sinks));
  program_complain("no memory for the results");
  output_set_abandon(&sinks);
  return EXIT_STATUS_CHECK_FAILED;
}

static void free_work(faults_work *work) {
  for (size_t i = 0; i < work->row_count; i++) stress_program_free(&work->rows[i].report.found);
  for (size_t i = 0; i < work->program_count; i++) stress_program_free(&work->programs[i]);
  free(work->rows);
  free(work->programs);
  free(work->names);
  device_model_unload(&work->model);
}

static exit_status run(const faults_options *options) {
  char message[1024];
  faults_work work = {.options = options};
  const size_t programs = options->traces.count + options->random;
  exit_status status = device_model_load(&options->device, &work.model, message, sizeof message);
  if (status == EXIT_STATUS_DONE && work.model.total < LEAST_CAPACITY) {
    status = EXIT_STATUS_USAGE;
    snprintf(message, sizeof message, "--capacity: at least 64MiB are needed");
  }
  if (status == EXIT_STATUS_DONE && programs == 0) {
    status = EXIT_STATUS_USAGE;
    snprintf(message, sizeof message, "there is nothing to run: give a TRACE or --random");
  }
  if (status != EXIT_STATUS_DONE) {
    program_complain("%s", message);
    device_model_unload(&work.model);
    return status;
  }
  progress_init(&work.shown, options->output.quiet);
  work.programs = calloc(programs, sizeof *work.programs);
  work.names = calloc(programs, sizeof *work.names);
  work.rows = calloc(2 * programs * options->specs.count, sizeof *work.rows);
  if (work.programs && work.names && work.rows) {
    status = run_all(&work);
  } else {
    program_complain("no memory for the results");
    status = EXIT_STATUS_CHECK_FAILED;
  }
  free_work(&work);
  return status;
}

exit_status command_faults(int argc, char **argv) {
  faults_options options;
  exit_status status = parse(argc, argv, &options);
  if (status == EXIT_STATUS_DONE) status = run(&options);
  trace_list_free(&options.traces);
  policy_specs_free(&options.specs);
  free(options.command);
  return status;
}
