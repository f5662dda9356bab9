/* lakebed oom: the smallest device on which each policy serves a whole trace, and which policies would
 * have survived where the recorded run ran out of memory. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/oom_output.h"
#include "harness/option_values.h"
#include "harness/output_set.h"
#include "harness/policy_specs.h"
#include "harness/program.h"
#include "harness/replay_output.h"
#include "harness/trace_list.h"
#include "harness/units.h"

typedef struct oom_options {
  trace_list traces;
  policy_specs specs;
  device_choice device;
  uint64_t capacity; /* of the device that is judged; 0: see oom_judge */
  trace_options trace;
  bool no_seeds;
  output_options output;
} oom_options;

enum option_key {
  OPTION_POLICY = 'p',
  OPTION_DEVICE = 0x100,
  OPTION_CAPACITY,
  OPTION_FREES,
  OPTION_NO_SEEDS,
  OPTION_TRACE_DEVICE,
};

static const struct argp_option option_table[] = {
    {"policy", OPTION_POLICY, "P[,P...]", 0,
     "policies to try, each NAME[:KEY=VALUE,...]; may be repeated; default: all that hold memory", 0},
    {"device", OPTION_DEVICE, "NAME|FILE", 0, "profile of the simulated device; default: h200", 0},
    {"capacity", OPTION_CAPACITY, "SIZE", 0,
     "also say which policies survive on a device of this size; default where the recording holds an "
     "out-of-memory event: the size of the device it was made on, as far as it shows",
     0},
    {"frees", OPTION_FREES, "completed|requested", 0,
     "free memory where the recorded run had it back (default), or where the caller asked for that", 0},
    {"no-seeds", OPTION_NO_SEEDS, NULL, 0,
     "leave out what was live when the recording began, which is taken from the snapshot's segments", 0},
    {"trace-device", OPTION_TRACE_DEVICE, "N", 0, "which device of a snapshot; default: 0", 0},
    {0},
};

static const char documentation[] =
    "Finds the smallest device on which each policy serves the whole TRACE (default: a bundled recording), "
    "in "
    "steps of 2 MiB, and prints it beside the peak of live memory.\v"
    "A request that found no memory when the TRACE was recorded has to be served too: it is made at its "
    "place and freed at once. Where there is one, the report says what was asked, what was free, and which "
    "policies would have survived.\n"
    "Exit status: 0 done; 1 a check failed; 2 bad usage or input; 3 a policy serves the TRACE on no device "
    "up to 512 GiB.";

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  oom_options *options = state->input;
  switch (key) {
    case OPTION_POLICY:
      policy_specs_parse(state, &options->specs, argument);
      return 0;
    case OPTION_DEVICE:
      options->device.profile = argument;
      return 0;
    case OPTION_CAPACITY:
      options->capacity = option_parse_size(state, "capacity", argument);
      if (options->capacity % CAPACITY_STEP_BYTES != 0 || options->capacity > CAPACITY_LARGEST_BYTES)
        argp_error(state, "--capacity=%s: expected a multiple of 2 MiB, at most 512 GiB", argument);
      return 0;
    case OPTION_FREES:
      options->trace.free_requests = option_parse_frees(state, argument);
      return 0;
    case OPTION_NO_SEEDS:
      options->no_seeds = true;
      return 0;
    case OPTION_TRACE_DEVICE:
      options->trace.device = (uint32_t)option_parse_count(state, "trace-device", argument, 0, UINT32_MAX);
      return 0;
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->output;
      return 0;
    case ARGP_KEY_ARG:
      return trace_list_add(&options->traces, argument);
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static exit_status parse(int argc, char **argv, oom_options *options) {
  *options =
      (oom_options){.device = {.driver = "sim", .profile = "h200"}, .output = {.csv_rows = "a row a policy"}};
  const struct argp_child children[] = {{&output_options_parser, 0, NULL, 0}, {0}};
  const struct argp parser = {option_table, parse_option, "[TRACE...]", documentation, children, NULL, NULL};
  char message[1024];
  exit_status status = option_read_command(&parser, argc, argv, options, NULL);
  if (status != EXIT_STATUS_DONE) return status;
  if (options->specs.count == 0 &&
      !policy_specs_add_all(&options->specs, POLICY_NO_MEMORY | POLICY_NEEDS_LIFETIMES, message,
                            sizeof message)) {
    program_complain("%s", message);
    return EXIT_STATUS_USAGE;
  }
  for (size_t i = 0; i < options->specs.count; i++) {
    if (!(options->specs.items[i].class->capabilities & POLICY_NO_MEMORY)) continue;
    program_complain("policy %s holds no memory, so every device is large enough for it",
                     options->specs.items[i].class->name);
    return EXIT_STATUS_USAGE;
  }
  if (options->traces.count == 0) status = trace_list_add_default(&options->traces);
  if (status != EXIT_STATUS_DONE) return status;
  const char *const outputs[] = {options->output.json_path, options->output.csv_path};
  return output_paths_are_apart(outputs, 2, &options->traces) ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

static void free_options(oom_options *options) {
  trace_list_free(&options->traces);
  policy_specs_free(&options->specs);
}

/* ---- one trace ---- */

/* Everything about one trace in the making. */
typedef struct oom_work {
  const oom_options *options;
  event_source *source;
  replay_settings settings;
  progress *shown;
  oom_group group;
  replay_result need; /* of a policy that serves everything */
  capacity_result *results;
  oom_verdict *verdicts;
} oom_work;

/* What was live when a recording began takes a second reading, which a pipe does not allow. */
static bool can_be_read_twice(const char *path) {
  struct stat status;
  return strcmp(path, "-") != 0 && stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* What the trace needs whatever the policy: a replay through one that serves everything. */
static exit_status measure_need(oom_work *work) {
  policy_spec spec;
  char message[256];
  if (policy_spec_parse("null", &spec, message, sizeof message) != VMM_SUCCESS) {
    program_complain("%s", message);
    return EXIT_STATUS_CHECK_FAILED;
  }
  replay_run(work->source, &spec, &work->settings, work->shown, &work->need);
  if (!work->need.complete) {
    program_complain("%s", work->need.message);
    return work->need.status;
  }
  oom_group *group = &work->group;
  group->need = (capacity_need){.live_peak_bytes = work->need.live_peak_bytes,
                                .requested_peak_bytes = work->need.statistics.requested_bytes.peak,
                                .events = work->need.events};
  group->recorded = work->need.probes;
  group->recorded_count = work->need.recorded_ooms;
  event_source_summary(work->source, &group->summary);
  return EXIT_STATUS_DONE;
}

/* The device on which recorded failures are judged. */
static void choose_judge(oom_work *work) {
  oom_group *group = &work->group;
  const uint64_t count = group->recorded_count;
  if (work->options->capacity) {
    group->judge = OOM_JUDGE_OPTION;
    group->judge_capacity = work->options->capacity;
    return;
  }
  if (count == 0) return;
  group->judge = OOM_JUDGE_DEVICE;
  group->judge_capacity = group->model->capacity / CAPACITY_STEP_BYTES * CAPACITY_STEP_BYTES;
  /* A recording that ends with its failure shows the device: all that the process holds, and what was free.
   */
  const replay_probe *last = count <= REPLAY_PROBES ? &group->recorded[count - 1] : NULL;
  if (!last || last->state.event != group->need.events || !last->recorded_free_bytes ||
      !group->summary.segments_bytes)
    return;
  const uint64_t shown = (group->summary.segments_bytes + last->recorded_free_bytes) / CAPACITY_STEP_BYTES;
  if (shown == 0 || shown > CAPACITY_LARGEST_BYTES / CAPACITY_STEP_BYTES) return;
  group->judge = OOM_JUDGE_RECORDED;
  group->judge_capacity = shown * CAPACITY_STEP_BYTES;
}

static exit_status judge(oom_work *work, const policy_spec *spec, oom_verdict *verdict) {
  device_model model = *work->group.model;
  model.capacity = model.total = work->group.judge_capacity;
  replay_settings settings = work->settings;
  settings.model = &model;
  settings.stop_at_failure = true;
  replay_result run;
  replay_run(work->source, spec, &settings, work->shown, &run);
  verdict->survives = run.complete;
  verdict->known = run.complete || run.stopped;
  verdict->is_probe = run.failed_allocs == 0;
  if (run.failed_allocs > 0) {
    verdict->failure = run.first_failure;
  } else if (!run.complete && run.recorded_ooms > 0 && run.recorded_ooms <= REPLAY_PROBES) {
    verdict->failure = run.probes[run.recorded_ooms - 1].state;
  }
  exit_status status = verdict->known ? EXIT_STATUS_DONE : run.status;
  replay_result_free(&run);
  return status;
}

static exit_status try_policies(oom_work *work) {
  const policy_specs *specs = &work->options->specs;
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < specs->count; i++) {
    capacity_result *result = &work->results[i];
    char outcome[128] = "failed", capacity[UNITS_TEXT];
    progress_begin(work->shown, "%s  %s (%zu of %zu)", replay_trace_name(work->group.path),
                   specs->items[i].text, i + 1, specs->count);
    capacity_search(work->source, &specs->items[i], &work->settings, &work->group.need, work->shown, result);
    if (result->found) {
      units_bytes(result->capacity_bytes, capacity);
      snprintf(outcome, sizeof outcome, "%s are enough: %u replay%s", capacity, result->replays,
               result->replays == 1 ? "" : "s");
    } else if (result->status == EXIT_STATUS_OUT_OF_MEMORY) {
      snprintf(outcome, sizeof outcome, "no device is large enough");
    }
    progress_end(work->shown, outcome);
    status = exit_status_worse(status, result->status);
    if (!result->found && result->status != EXIT_STATUS_OUT_OF_MEMORY)
      program_complain("%s: %s", specs->items[i].text, result->message);
    if (result->trace_failed) return status;
    if (work->group.judge_capacity)
      status = exit_status_worse(status, judge(work, &specs->items[i], &work->verdicts[i]));
  }
  return status;
}

static exit_status write_results(const oom_work *work, const output_set *sinks) {
  if (sinks->report) oom_report_print(&work->group, sinks->report);
  if (sinks->csv) oom_csv_rows(&work->group, sinks->csv);
  if (!sinks->array || oom_json_append(sinks->array, &work->group)) return EXIT_STATUS_DONE;
  program_complain("no memory for the JSON results");
  return EXIT_STATUS_CHECK_FAILED;
}

static exit_status try_trace(const oom_options *options, const device_model *model, const char *path,
                             progress *shown, const output_set *sinks) {
  trace_error error;
  trace_options reading = options->trace;
  reading.seed_from_segments = !options->no_seeds && can_be_read_twice(path);
  oom_work work = {.options = options,
                   .settings = {.model = model,
                                .limit = UINT64_MAX,
                                .laps = 1,
                                .frees_requested = options->trace.free_requests},
                   .shown = shown};
  if (event_source_open(path, &reading, &work.source, &error) != TRACE_OK) {
    trace_list_complain(path, &error);
    return EXIT_STATUS_USAGE;
  }
  event_source_expect_rewinds(work.source, "store it in a file");
  work.results = calloc(options->specs.count, sizeof *work.results);
  work.verdicts = calloc(options->specs.count, sizeof *work.verdicts);
  work.group = (oom_group){.path = path,
                           .model = model,
                           .frees_requested = options->trace.free_requests,
                           .specs = &options->specs,
                           .results = work.results,
                           .verdicts = work.verdicts,
                           .count = options->specs.count};
  exit_status status = EXIT_STATUS_CHECK_FAILED;
  if (!work.results || !work.verdicts) {
    program_complain("no memory for the results");
  } else if ((status = measure_need(&work)) == EXIT_STATUS_DONE) {
    choose_judge(&work);
    status = try_policies(&work);
    status = exit_status_worse(status, write_results(&work, sinks));
  }
  free(work.results);
  free(work.verdicts);
  replay_result_free(&work.need);
  event_source_close(work.source);
  return status;
}

/* ---- the command ---- */

static exit_status run(const oom_options *options) {
  device_model model;
  exit_status status = device_model_open(&options->device, &model);
  if (status != EXIT_STATUS_DONE) return status;
  output_set sinks;
  progress shown;
  progress_init(&shown, options->output.quiet);
  /* Before the work, so that a wrong path shows at once. */
  if (output_set_open(&sinks, &options->output)) {
    if (sinks.csv) oom_csv_header(sinks.csv);
    for (size_t i = 0; i < options->traces.count; i++)
      status =
          exit_status_worse(status, try_trace(options, &model, options->traces.paths[i], &shown, &sinks));
    status = exit_status_worse(status, output_set_close(&sinks));
  } else {
    output_set_abandon(&sinks);
    status = EXIT_STATUS_USAGE;
  }
  device_model_unload(&model);
  return status;
}

exit_status command_oom(int argc, char **argv) {
  oom_options options;
  exit_status status = parse(argc, argv, &options);
  if (status == EXIT_STATUS_DONE) status = run(&options);
  free_options(&options);
  return status;
}
