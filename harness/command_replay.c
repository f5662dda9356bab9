/* lakebed replay: every trace through every policy. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/option_values.h"
#include "harness/output_file.h"
#include "harness/output_set.h"
#include "harness/program.h"
#include "harness/replay.h"
#include "harness/replay_options.h"
#include "harness/replay_output.h"
#include "harness/units.h"

/* Where the results go. NULL: nowhere. */
typedef struct replay_sinks {
  output_set files;
  FILE *timeline, *iterations, *dump_svg, *dump_json, *page_file;
  json_t *maps;
  memory_drawing *drawing;
  report_page *page;
} replay_sinks;

static report_page *create_page(const replay_options *options) {
  char title[512];
  if (options->traces.count == 1)
    snprintf(title, sizeof title, "%s", replay_trace_name(options->traces.paths[0]));
  else
    snprintf(title, sizeof title, "%zu traces", options->traces.count);
  return report_create(title);
}

/* Opens all files before the work, so that a wrong path shows at once. */
static bool open_sinks(const replay_options *options, const replay_group *group, replay_sinks *sinks) {
  output_set *files = &sinks->files;
  if (!output_set_open(files, &options->output) ||
      !output_set_add(files, options->timeline_path, &sinks->timeline) ||
      !output_set_add(files, options->iterations_path, &sinks->iterations) ||
      !output_set_add(files, options->dump_svg_path, &sinks->dump_svg) ||
      !output_set_add(files, options->dump_json_path, &sinks->dump_json) ||
      !output_set_add(files, options->report_path, &sinks->page_file))
    return false;
  if ((sinks->dump_svg && !(sinks->drawing = memory_drawing_create())) ||
      (sinks->dump_json && !(sinks->maps = json_array())) ||
      (sinks->page_file && !(sinks->page = create_page(options)))) {
    program_complain("no memory for the results");
    return false;
  }
  if (files->csv) replay_csv_header(group, files->csv);
  if (sinks->timeline) replay_timeline_header(sinks->timeline);
  if (sinks->iterations) replay_iterations_header(sinks->iterations);
  return true;
}

static void free_contents(replay_sinks *sinks) {
  json_decref(sinks->maps);
  memory_drawing_destroy(sinks->drawing);
  report_destroy(sinks->page);
}

static exit_status close_sinks(replay_sinks *sinks) {
  output_set *files = &sinks->files;
  const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(15);
  if (sinks->maps)
    output_set_wrote(files, sinks->dump_json, output_json(sinks->maps, flags, sinks->dump_json));
  if (sinks->drawing)
    output_set_wrote(files, sinks->dump_svg, memory_drawing_write(sinks->drawing, sinks->dump_svg));
  if (sinks->page) output_set_wrote(files, sinks->page_file, report_write(sinks->page, sinks->page_file));
  free_contents(sinks);
  return output_set_close(files);
}

static void abandon_sinks(replay_sinks *sinks) {
  free_contents(sinks);
  output_set_abandon(&sinks->files);
}

static void show_outcome(progress *shown, const replay_result *result) {
  char outcome[128], count[UNITS_TEXT], reserved[UNITS_TEXT];
  if (result->complete) {
    units_count(result->events, count);
    units_bytes(result->statistics.reserved_bytes.peak, reserved);
    snprintf(outcome, sizeof outcome, "%s events, at most %s reserved%s", count, reserved,
             result->failed_allocs ? ", requests failed," : "");
    progress_end(shown, outcome);
  } else {
    progress_end(shown, "failed");
  }
}

/* No policy has a result of a trace that cannot be read. */
static void fail_all(const replay_options *options, exit_status status, const char *message,
                     replay_result *results) {
  for (size_t i = 0; i < options->specs.count; i++) {
    replay_result_free(&results[i]);
    results[i].spec = &options->specs.items[i];
    results[i].status = status;
    results[i].trace_failed = true;
    snprintf(results[i].message, sizeof results[i].message, "%s", message);
  }
}

/* One that fails does not stop the others, unless it is the trace that fails. */
static exit_status replay_policies(const replay_options *options, const replay_settings *settings,
                                   const char *path, event_source *source, progress *shown,
                                   replay_result *results) {
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < options->specs.count; i++) {
    progress_begin(shown, "%s  %s (%zu of %zu)", replay_trace_name(path), options->specs.items[i].text, i + 1,
                   options->specs.count);
    progress_update(shown, 0, 0, UINT64_MAX);
    replay_run(source, &options->specs.items[i], settings, shown, &results[i]);
    show_outcome(shown, &results[i]);
    status = exit_status_worse(status, results[i].status);
    if (results[i].trace_failed) {
      const replay_result failed = results[i];
      program_complain("%s", failed.message);
      fail_all(options, failed.status, failed.message, results);
      return status;
    }
    if (!results[i].complete) program_complain("%s: %s", options->specs.items[i].text, results[i].message);
  }
  return status;
}

/* Was there the event after which memory was to be mapped? If not, says so. */
static bool event_is_there(const replay_options *options, const char *path, const replay_result *results) {
  for (size_t i = 0; options->dump.moment == REPLAY_DUMP_EVENT && i < options->specs.count; i++) {
    if (!results[i].complete || results[i].map) continue;
    program_complain("--dump-at: %s: %s", replay_trace_name(path), results[i].map_reason);
    return false;
  }
  return true;
}

static bool has_oracle(const replay_options *options) {
  for (size_t i = 0; i < options->specs.count; i++) {
    if (options->specs.items[i].class->capabilities & POLICY_NEEDS_LIFETIMES) return true;
  }
  return false;
}

/* The caller closes *source, which may be NULL, in any case. */
static trace_status open_source(const replay_options *options, const char *path, event_source **source,
                                trace_error *error) {
  const bool peak = options->dump.moment == REPLAY_DUMP_PEAK, oracle = has_oracle(options);
  trace_status status = event_source_open(path, &options->trace, source, error);
  if (status != TRACE_OK) return status;
  const char *advice =
      oracle                ? "an oracle reads it twice; store it in a file"
      : options->iterations ? "store it in a file, or do not ask for --iterations"
      : peak ? "name one policy, one lap and another moment than the peak, or store it in a file"
             : "name one policy and one lap, or store it in a file";
  if (options->specs.count > 1 || options->laps > 1 || peak || options->iterations || oracle)
    event_source_expect_rewinds(*source, advice);
  return options->iterations ? event_source_find_marks(*source, error) : TRACE_OK;
}

/* group: what is the same for all traces of the call. */
static exit_status replay_trace(const replay_options *options, replay_group group, const char *path,
                                progress *shown, const replay_sinks *sinks) {
  replay_result *results = calloc(options->specs.count, sizeof *results);
  if (!results) {
    program_complain("no memory for the results");
    return EXIT_STATUS_CHECK_FAILED;
  }
  group.path = path;
  group.results = results;
  group.count = options->specs.count;
  trace_error error;
  event_source *source;
  exit_status status;
  if (open_source(options, path, &source, &error) == TRACE_OK) {
    status = replay_policies(options, group.settings, path, source, shown, results);
    group.has_summary = event_source_complete(source);
    event_source_summary(source, &group.summary);
  } else {
    status = error.status == TRACE_NO_MEMORY ? EXIT_STATUS_CHECK_FAILED : EXIT_STATUS_USAGE;
    trace_list_complain(path, &error);
    fail_all(options, status, error.message, results);
  }
  if (sinks->files.report && !results[0].trace_failed)
    replay_report_print(&group, options->details, sinks->files.report);
  if (sinks->files.csv) replay_csv_rows(&group, sinks->files.csv);
  if (sinks->iterations) replay_iterations_rows(&group, sinks->iterations);
  if (sinks->timeline) replay_timeline_rows(&group, sinks->timeline);
  if (sinks->files.array && !replay_json_append(sinks->files.array, &group)) {
    program_complain("no memory for the JSON results");
    status = EXIT_STATUS_CHECK_FAILED;
  }
  if ((sinks->maps && !replay_maps_json_append(sinks->maps, &group)) ||
      (sinks->drawing && !replay_maps_draw(sinks->drawing, &group))) {
    program_complain("no memory for the maps");
    status = EXIT_STATUS_CHECK_FAILED;
  }
  if (sinks->page) status = exit_status_worse(status, replay_page_add(sinks->page, &group));
  if (!event_is_there(options, path, results)) status = exit_status_worse(status, EXIT_STATUS_USAGE);
  for (size_t i = 0; i < options->specs.count; i++) replay_result_free(&results[i]);
  free(results);
  event_source_close(source);
  return status;
}

static exit_status replay_traces(const replay_options *options, replay_settings *settings,
                                 replay_group *group, const replay_sinks *sinks) {
  progress shown;
  progress_init(&shown, options->output.quiet);
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < options->traces.count; i++) {
    const char *path = options->traces.paths[i];
    settings->trace = replay_trace_name(path);
    group->first = i == 0;
    status = exit_status_worse(status, replay_trace(options, *group, path, &shown, sinks));
  }
  return status;
}

/* No policy can hold less than the device gives out at once. */
static exit_status check_limit(const replay_options *options, const replay_settings *settings) {
  char granularity[UNITS_TEXT];
  if (settings->limit >= settings->model->granularity) return EXIT_STATUS_DONE;
  units_bytes(settings->model->granularity, granularity);
  program_complain("--limit: %" PRIu64
                   " bytes%s are less than the %s in which the device gives memory; expected "
                   "a size such as 40GiB or a fraction such as 0.5 or 50%%",
                   settings->limit, options->limit_fraction > 0 ? ", which the fraction comes to," : "",
                   granularity);
  return EXIT_STATUS_USAGE;
}

static exit_status replay_on(const replay_options *options, const device_model *model, instruments *set) {
  replay_settings settings = {
      .model = model,
      .limit = options->limit_fraction > 0 ? (uint64_t)(options->limit_fraction * (double)model->total)
                                           : options->limit,
      .limit_fraction = options->limit_fraction,
      .laps = options->laps,
      .frees_requested = options->trace.free_requests,
      .check = options->check,
      .verify = options->verify,
      .timeline_points = options->timeline_path || options->report_path ? options->timeline_points : 0,
      .iterations = options->iterations,
      .dump = options->dump,
      .instruments = set,
  };
  char date[OPTION_DATE_TEXT];
  option_date(date);
  replay_group group = {.settings = &settings,
                        .specs = &options->specs,
                        .host_timing = options->host_timing,
                        .date = date,
                        .command = options->command};
  exit_status status = check_limit(options, &settings);
  if (status != EXIT_STATUS_DONE) return status;
  replay_sinks sinks = {0};
  if (!open_sinks(options, &group, &sinks)) {
    abandon_sinks(&sinks);
    return EXIT_STATUS_USAGE;
  }
  status = replay_traces(options, &settings, &group, &sinks);
  return exit_status_worse(status, close_sinks(&sinks));
}

static exit_status run(const replay_options *options, instruments *set) {
  device_model model;
  exit_status status = device_model_open(&options->device, &model);
  if (status != EXIT_STATUS_DONE) return status;
  status = replay_on(options, &model, set);
  device_model_unload(&model);
  return status;
}

/* Instruments come before the device, and end after it. */
static exit_status run_with_instruments(const replay_options *options) {
  char message[1024];
  instruments *set;
  exit_status status = instruments_create(&options->instruments, &set, message, sizeof message);
  if (status != EXIT_STATUS_DONE) {
    program_complain("%s", message);
    return status;
  }
  status = run(options, set);
  if (instruments_destroy(set, message, sizeof message)) return status;
  program_complain("%s", message);
  return exit_status_worse(status, EXIT_STATUS_USAGE);
}

exit_status command_replay(int argc, char **argv) {
  replay_options options;
  exit_status status = replay_options_parse(argc, argv, &options);
  if (status == EXIT_STATUS_DONE) status = run_with_instruments(&options);
  replay_options_free(&options);
  return status;
}
