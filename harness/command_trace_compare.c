/* lakebed trace compare: how near one trace is to another. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/device.h"
#include "harness/option_values.h"
#include "harness/output_file.h"
#include "harness/output_set.h"
#include "harness/policy_specs.h"
#include "harness/program.h"
#include "harness/replay.h"
#include "harness/replay_output.h"
#include "harness/table.h"
#include "harness/trace_list.h"
#include "harness/units.h"
#include "workloads/size_histogram.h"

enum { OPTION_CSV = 0x100, OPTION_DEVICE, OPTION_CAPACITY };
enum { POLICIES = 4 };

typedef struct compare_options {
  trace_list traces; /* reference, other, reference, other, ... */
  policy_specs specs;
  device_choice device;
  trace_options trace;
  const char *csv_path;
  char *command;
  bool quiet;
} compare_options;

static const struct argp_option option_table[] = {
    {"policy", 'p', "POLICY[,...]", 0,
     "policies whose utilisation of both traces is compared, four at most; default: bfc", 0},
    {"csv", OPTION_CSV, "FILE", 0, "the numbers as CSV; '-' is standard output, without the table", 0},
    {"device", OPTION_DEVICE, "NAME|FILE", 0, "profile of the simulated device; default: h200", 0},
    {"capacity", OPTION_CAPACITY, "SIZE", 0, "its memory; default: its profile's", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  compare_options *options = state->input;
  char message[512];
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->trace;
      return 0;
    case 'p':
      if (!policy_specs_add_list(&options->specs, argument, message, sizeof message))
        argp_error(state, "--policy=%s: %s", argument, message);
      if (options->specs.count > POLICIES) argp_error(state, "--policy: at most %d policies", POLICIES);
      return 0;
    case OPTION_CSV:
      options->csv_path = argument;
      return 0;
    case OPTION_DEVICE:
      options->device.profile = argument;
      return 0;
    case OPTION_CAPACITY:
      options->device.capacity = option_parse_size(state, "capacity", argument);
      return 0;
    case 'q':
      options->quiet = true;
      return 0;
    case ARGP_KEY_ARG:
      return trace_list_add(&options->traces, argument);
    case ARGP_KEY_END:
      if (options->traces.count == 0 || options->traces.count % 2 != 0)
        argp_error(state, "traces come in pairs, a reference and the one to compare with it; there %s %zu",
                   options->traces.count == 1 ? "is" : "are", options->traces.count);
      if (options->specs.count == 0 &&
          !policy_specs_add_list(&options->specs, "bfc", message, sizeof message))
        argp_error(state, "%s", message);
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

/* What is compared of a trace. */
typedef struct trace_measure {
  trace_summary summary;
  size_histogram *sizes; /* owned */
  double utilization[POLICIES];
} trace_measure;

static exit_status count_sizes(event_source *source, trace_measure *measure, trace_error *error) {
  const trace_event *events;
  size_t count;
  trace_status status;
  while ((status = event_source_next(source, &events, &count, error)) == TRACE_OK)
    for (size_t i = 0; i < count; i++)
      if (events[i].kind == TRACE_ALLOC) size_histogram_add(measure->sizes, events[i].size);
  if (status != TRACE_END) return EXIT_STATUS_USAGE;
  event_source_summary(source, &measure->summary);
  return EXIT_STATUS_DONE;
}

static exit_status replay_all(const compare_options *options, const device_model *model, event_source *source,
                              const char *path, progress *shown, trace_measure *measure) {
  const replay_settings settings = {.model = model, .limit = UINT64_MAX, .laps = 1, .trace = path};
  for (size_t i = 0; i < options->specs.count; i++) {
    replay_result result = {0};
    progress_begin(shown, "%s  %s", replay_trace_name(path), options->specs.items[i].text);
    replay_run(source, &options->specs.items[i], &settings, shown, &result);
    exit_status status = result.status;
    measure->utilization[i] = replay_utilization(&result);
    if (status != EXIT_STATUS_DONE)
      program_complain("%s: %s: %s", replay_trace_name(path), options->specs.items[i].text,
                       result.complete ? "requests found no memory" : result.message);
    progress_end(shown, status == EXIT_STATUS_DONE ? "done" : "failed");
    replay_result_free(&result);
    if (status != EXIT_STATUS_DONE) return status;
  }
  return EXIT_STATUS_DONE;
}

static exit_status measure_trace(const compare_options *options, const device_model *model, const char *path,
                                 progress *shown, trace_measure *measure) {
  trace_error error;
  event_source *source = NULL;
  measure->sizes = calloc(1, sizeof *measure->sizes);
  if (!measure->sizes) {
    program_complain("no memory for the sizes");
    return EXIT_STATUS_CHECK_FAILED;
  }
  exit_status status = EXIT_STATUS_USAGE;
  if (event_source_open(path, &options->trace, &source, &error) == TRACE_OK) {
    event_source_expect_rewinds(source, "store it in a file");
    status = count_sizes(source, measure, &error);
  }
  if (status == EXIT_STATUS_DONE) {
    status = replay_all(options, model, source, path, shown, measure);
  } else {
    trace_list_complain(path, &error);
    if (error.status == TRACE_NO_MEMORY) status = EXIT_STATUS_CHECK_FAILED;
  }
  event_source_close(source);
  return status;
}

static double ratio(uint64_t reference, uint64_t other) {
  return reference ? (double)other / (double)reference : other ? INFINITY : 1;
}

static bool print_table(const compare_options *options, const trace_measure *measures) {
  char titles[8 + 2 * POLICIES][64] = {"<reference",  "peak live", "compared", "ratio",
                                       "allocations", "compared",  "ratio",    "sizes apart"};
  const char *pointers[8 + 2 * POLICIES];
  size_t columns = 8;
  for (size_t i = 0; i < options->specs.count; i++) {
    snprintf(titles[columns++], sizeof titles[0], "%.48s", options->specs.items[i].text);
    snprintf(titles[columns++], sizeof titles[0], "compared");
  }
  for (size_t i = 0; i < columns; i++) pointers[i] = titles[i];
  table *rows = table_create(pointers, columns);
  for (size_t i = 0; i < options->traces.count; i += 2) {
    const trace_measure *reference = &measures[i], *other = &measures[i + 1];
    char text[UNITS_TEXT];
    table_row(rows);
    table_cell(rows, "%s", replay_trace_name(options->traces.paths[i]));
    units_bytes(reference->summary.rounded_live_peak_bytes, text);
    table_cell(rows, "%s", text);
    units_bytes(other->summary.rounded_live_peak_bytes, text);
    table_cell(rows, "%s", text);
    table_cell(rows, "%.3f",
               ratio(reference->summary.rounded_live_peak_bytes, other->summary.rounded_live_peak_bytes));
    table_count(rows, reference->summary.allocations);
    table_count(rows, other->summary.allocations);
    table_cell(rows, "%.3f", ratio(reference->summary.allocations, other->summary.allocations));
    table_cell(rows, "%.3f", size_histogram_distance(reference->sizes, other->sizes));
    for (size_t k = 0; k < options->specs.count; k++) {
      table_cell(rows, "%.3f", reference->utilization[k]);
      table_cell(rows, "%.3f", other->utilization[k]);
    }
  }
  bool printed = rows && table_print(rows, stdout);
  table_destroy(rows);
  if (!printed) program_complain("no memory for the table");
  return printed;
}

/* Pairs of rows whose utilisation a policy orders one way in the references and the other way in the others.
 */
static void print_order(const compare_options *options, const trace_measure *measures) {
  size_t pairs = options->traces.count / 2;
  puts("\nsizes apart: the earth mover's distance of the sizes asked for, in doublings");
  for (size_t k = 0; k < options->specs.count; k++) {
    double furthest = 0;
    size_t turned = 0;
    for (size_t i = 0; i < pairs; i++) {
      double reference = measures[2 * i].utilization[k], other = measures[2 * i + 1].utilization[k];
      if (fabs(reference - other) > furthest) furthest = fabs(reference - other);
      for (size_t j = 0; j < i; j++)
        turned +=
            (reference - measures[2 * j].utilization[k]) * (other - measures[2 * j + 1].utilization[k]) < 0;
    }
    printf("%s: utilisation off by %.3f", options->specs.items[k].text, furthest);
    if (pairs > 1)
      printf(" at most; %zu of %zu pairs of rows in another order", turned, pairs * (pairs - 1) / 2);
    putchar('\n');
  }
}

static void write_csv(const compare_options *options, const trace_measure *measures, FILE *stream) {
  fprintf(stream, "# program: lakebed " PROGRAM_VERSION ", trace compare\n# command: %s\n",
          options->command ? options->command : "");
  fputs(
      "reference,compared,policy,reference_live_peak_bytes,compared_live_peak_bytes,live_peak_ratio,"
      "reference_allocations,compared_allocations,allocations_ratio,sizes_apart_doublings,"
      "reference_utilization,compared_utilization\n",
      stream);
  for (size_t i = 0; i < options->traces.count; i += 2) {
    const trace_measure *reference = &measures[i], *other = &measures[i + 1];
    for (size_t k = 0; k < options->specs.count; k++) {
      replay_csv_field(stream, replay_trace_name(options->traces.paths[i]));
      fputc(',', stream);
      replay_csv_field(stream, replay_trace_name(options->traces.paths[i + 1]));
      fputc(',', stream);
      replay_csv_field(stream, options->specs.items[k].text);
      fprintf(stream, ",%" PRIu64 ",%" PRIu64 ",%.6f,%" PRIu64 ",%" PRIu64 ",%.6f,%.6f,%.6f,%.6f\n",
              reference->summary.rounded_live_peak_bytes, other->summary.rounded_live_peak_bytes,
              ratio(reference->summary.rounded_live_peak_bytes, other->summary.rounded_live_peak_bytes),
              reference->summary.allocations, other->summary.allocations,
              ratio(reference->summary.allocations, other->summary.allocations),
              size_histogram_distance(reference->sizes, other->sizes), reference->utilization[k],
              other->utilization[k]);
    }
  }
}

static exit_status compare_on(const compare_options *options, const device_model *model) {
  trace_measure *measures = calloc(options->traces.count, sizeof *measures);
  FILE *csv = NULL;
  if (!measures) {
    program_complain("no memory for the traces");
    return EXIT_STATUS_CHECK_FAILED;
  }
  if (options->csv_path) {
    csv = output_open(options->csv_path);
    if (!csv) {
      free(measures);
      return EXIT_STATUS_USAGE;
    }
  }
  progress shown;
  progress_init(&shown, options->quiet);
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < options->traces.count && status == EXIT_STATUS_DONE; i++)
    status = measure_trace(options, model, options->traces.paths[i], &shown, &measures[i]);
  if (status == EXIT_STATUS_DONE && csv != stdout) {
    if (!print_table(options, measures)) status = EXIT_STATUS_CHECK_FAILED;
    print_order(options, measures);
  }
  if (status == EXIT_STATUS_DONE) {
    if (csv) write_csv(options, measures, csv);
    if (!output_close(csv, options->csv_path, true)) status = EXIT_STATUS_USAGE;
  } else {
    output_abandon(csv, options->csv_path);
  }
  for (size_t i = 0; i < options->traces.count; i++) free(measures[i].sizes);
  free(measures);
  return status;
}

static exit_status compare(const compare_options *options) {
  if (!output_paths_are_apart(&options->csv_path, 1, &options->traces)) return EXIT_STATUS_USAGE;
  device_model model;
  exit_status status = device_model_open(&options->device, &model);
  if (status != EXIT_STATUS_DONE) return status;
  status = compare_on(options, &model);
  device_model_unload(&model);
  return status;
}

exit_status command_trace_compare(int argc, char **argv) {
  compare_options options = {.device = {.driver = "sim", .profile = "h200"}};
  const struct argp_child children[] = {{&trace_options_parser, 0, NULL, 0}, {0}};
  const struct argp parser = {
      option_table,
      parse_option,
      "REFERENCE COMPARED...",
      "Says how near a trace is to a reference, for one pair or several: peak of what is live, "
      "number of allocations, sizes asked for, and the utilisation that policies reach on "
      "the simulated device.",
      children,
      NULL,
      NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, &options.command);
  if (status == EXIT_STATUS_DONE) status = compare(&options);
  trace_list_free(&options.traces);
  policy_specs_free(&options.specs);
  free(options.command);
  return status;
}
