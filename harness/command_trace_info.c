/* lakebed trace info: what traces hold. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "harness/option_values.h"
#include "harness/output_file.h"
#include "harness/program.h"
#include "harness/progress.h"
#include "harness/replay_output.h"
#include "harness/table.h"
#include "harness/trace_list.h"
#include "harness/units.h"
#include "workloads/trace.h"

enum { SIZE_CLASSES = 65 }; /* 0; then [2^(i-1), 2^i) */

typedef struct trace_facts {
  const char *path;
  trace_summary summary;
  uint64_t count[SIZE_CLASSES], bytes[SIZE_CLASSES];
} trace_facts;

typedef struct info_options {
  trace_list traces;
  trace_options trace;
  bool json, quiet;
} info_options;

enum { OPTION_JSON = 0x100 };

static const struct argp_option option_table[] = {
    {"json", OPTION_JSON, NULL, 0, "print a JSON array instead, an object a trace", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  info_options *options = state->input;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->trace;
      return 0;
    case OPTION_JSON:
      options->json = true;
      return 0;
    case 'q':
      options->quiet = true;
      return 0;
    case ARGP_KEY_ARG:
      return trace_list_add(&options->traces, argument);
    case ARGP_KEY_NO_ARGS:
      argp_error(state, "which trace? 'lakebed trace info TRACE...'");
      return EINVAL;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static unsigned size_class(uint64_t size) { return size == 0 ? 0 : 64u - (unsigned)__builtin_clzll(size); }

static trace_status gather(const char *path, const trace_options *options, progress *shown,
                           trace_facts *facts, trace_error *error) {
  memset(facts, 0, sizeof *facts);
  facts->path = path;
  trace *opened;
  trace_status status = trace_open(path, options, &opened, error);
  if (status != TRACE_OK) return status;
  progress_begin(shown, "%s", replay_trace_name(path));
  trace_event event;
  uint64_t events = 0;
  while ((status = trace_next(opened, &event, error)) == TRACE_OK) {
    if (event.kind == TRACE_ALLOC) {
      facts->count[size_class(event.size)]++;
      facts->bytes[size_class(event.size)] += event.size;
    }
    if (++events % 4096 == 0) progress_update(shown, trace_progress(opened), events, UINT64_MAX);
  }
  trace_summary_get(opened, &facts->summary);
  progress_end(shown, status == TRACE_END ? "read" : "failed");
  trace_close(opened);
  return status;
}

static json_t *facts_object(const trace_facts *facts) {
  const trace_summary *summary = &facts->summary;
  json_t *object = json_object();
  json_t *name = json_string(replay_trace_name(facts->path));
  json_object_set_new(object, "trace", name ? name : json_string("?"));
  json_object_set_new(object, "format", json_string(summary->format));
  json_object_set_new(object, "compression", json_string(summary->compression));
  const struct {
    const char *key;
    uint64_t value;
  } numbers[] = {{"events", summary->allocations + summary->frees},
                 {"allocations", summary->allocations},
                 {"frees", summary->frees},
                 {"orphan_frees", summary->orphan_frees},
                 {"orphan_bytes", summary->orphan_bytes},
                 {"live_before_bytes", summary->live_before_bytes},
                 {"free_size_mismatches", summary->free_size_mismatches},
                 {"seeded", summary->seeded},
                 {"out_of_memory_events", summary->out_of_memory_events},
                 {"other_events", summary->other_events},
                 {"streams", summary->streams},
                 {"devices", summary->devices},
                 {"live_at_end", summary->live_at_end},
                 {"live_at_end_bytes", summary->live_bytes},
                 {"requested_peak_bytes", summary->live_peak_bytes},
                 {"live_peak_bytes", summary->rounded_live_peak_bytes},
                 {"largest_bytes", summary->largest_bytes},
                 {"input_bytes", summary->input_bytes}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    json_object_set_new(object, numbers[i].key, json_integer((json_int_t)numbers[i].value));
  }
  json_t *sizes = json_array();
  for (unsigned i = 0; i < SIZE_CLASSES; i++) {
    if (facts->count[i] == 0) continue;
    json_t *entry = json_object();
    json_object_set_new(entry, "from_bytes", json_integer(i == 0 ? 0 : (json_int_t)(UINT64_C(1) << (i - 1))));
    json_object_set_new(entry, "count", json_integer((json_int_t)facts->count[i]));
    json_object_set_new(entry, "bytes", json_integer((json_int_t)facts->bytes[i]));
    json_array_append_new(sizes, entry);
  }
  json_object_set_new(object, "sizes", sizes);
  return object;
}

static void print_count(const char *name, uint64_t value, const char *remark) {
  char text[UNITS_TEXT];
  units_count(value, text);
  printf("%-14s %s%s\n", name, text, remark);
}

static void print_bytes(const char *name, uint64_t value) {
  char text[UNITS_TEXT];
  units_bytes(value, text);
  printf("%-14s %s (%" PRIu64 " bytes)\n", name, text, value);
}

static void print_facts(const trace_facts *facts) {
  const trace_summary *summary = &facts->summary;
  char text[UNITS_TEXT], bytes[UNITS_TEXT];
  printf("%-14s %s\n", "trace", replay_trace_name(facts->path));
  units_bytes(summary->input_bytes, bytes);
  printf("%-14s %s, compression %s, %s uncompressed\n", "format", summary->format, summary->compression,
         bytes);
  print_count("events", summary->allocations + summary->frees, "");
  print_count("allocations", summary->allocations, "");
  print_count("frees", summary->frees, "");
  if (summary->orphan_frees) {
    print_count("orphan frees", summary->orphan_frees, " of allocations from before the recording, left out");
  }
  if (summary->live_before_bytes) {
    units_bytes(summary->live_before_bytes, bytes);
    printf("%-14s %s when the recording began, left out\n", "live before", bytes);
  }
  if (summary->free_size_mismatches)
    print_count("sizes differ", summary->free_size_mismatches,
                summary->free_size_mismatches == 1 ? " free of another size than its allocation"
                                                   : " frees of another size than their allocation");
  if (summary->seeded)
    print_count("seeded", summary->seeded,
                summary->seeded == 1 ? " allocation from before the recording"
                                     : " allocations from before the recording");
  if (summary->out_of_memory_events)
    print_count("out of memory", summary->out_of_memory_events,
                summary->out_of_memory_events == 1 ? " time when recorded" : " times when recorded");
  print_count("streams", summary->streams, "");
  if (summary->devices > 1) print_count("devices", summary->devices, "");
  print_bytes("peak live", summary->rounded_live_peak_bytes);
  print_bytes("peak requested", summary->live_peak_bytes);
  print_bytes("largest", summary->largest_bytes);
  char allocations[UNITS_COUNTED];
  units_counted(summary->live_at_end, "allocation", allocations);
  units_bytes(summary->live_bytes, bytes);
  printf("%-14s %s, %s\n\n", "live at end", allocations, bytes);

  const char *titles[] = {"size from", "allocations", "bytes"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (unsigned i = 0; i < SIZE_CLASSES; i++) {
    if (facts->count[i] == 0) continue;
    table_row(rows);
    units_bytes(i == 0 ? 0 : UINT64_C(1) << (i - 1), text);
    table_cell(rows, "%s", text);
    units_count(facts->count[i], text);
    table_cell(rows, "%s", text);
    units_bytes(facts->bytes[i], text);
    table_cell(rows, "%s", text);
  }
  table_print(rows, stdout);
  table_destroy(rows);
}

static void print_overview(const trace_facts *facts, size_t count) {
  const char *titles[] = {"<trace",  "<format",   "<compression", "events",     "orphan frees",
                          "streams", "peak live", "largest",      "live at end"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < count; i++) {
    const trace_summary *summary = &facts[i].summary;
    char text[UNITS_TEXT];
    table_row(rows);
    table_cell(rows, "%s", replay_trace_name(facts[i].path));
    table_cell(rows, "%s", summary->format);
    table_cell(rows, "%s", summary->compression);
    units_count(summary->allocations + summary->frees, text);
    table_cell(rows, "%s", text);
    units_count(summary->orphan_frees, text);
    table_cell(rows, "%s", text);
    table_count(rows, summary->streams);
    units_bytes(summary->rounded_live_peak_bytes, text);
    table_cell(rows, "%s", text);
    units_bytes(summary->largest_bytes, text);
    table_cell(rows, "%s", text);
    units_count(summary->live_at_end, text);
    table_cell(rows, "%s", text);
  }
  table_print(rows, stdout);
  table_destroy(rows);
}

static exit_status print_json(const trace_facts *facts, size_t count) {
  json_t *array = json_array();
  bool written = array != NULL;
  for (size_t i = 0; i < count && written; i++)
    written = json_array_append_new(array, facts_object(&facts[i])) == 0;
  written = output_close(stdout, "-", written && output_json(array, JSON_INDENT(2), stdout));
  json_decref(array);
  return written ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

static exit_status inform(const info_options *options) {
  trace_facts *facts = calloc(options->traces.count ? options->traces.count : 1, sizeof *facts);
  if (!facts) {
    program_complain("no memory for what the traces hold");
    return EXIT_STATUS_CHECK_FAILED;
  }
  progress shown;
  progress_init(&shown, options->quiet);
  exit_status status = EXIT_STATUS_DONE;
  size_t read = 0;
  for (size_t i = 0; i < options->traces.count; i++) {
    const char *path = options->traces.paths[i];
    trace_error error;
    if (gather(path, &options->trace, &shown, &facts[read], &error) == TRACE_END) {
      read++;
    } else {
      trace_list_complain(path, &error);
      status = EXIT_STATUS_USAGE;
    }
  }
  if (options->json) {
    status = exit_status_worse(status, print_json(facts, read));
  } else if (read == 1) {
    print_facts(facts);
  } else if (read > 1) {
    print_overview(facts, read);
  }
  free(facts);
  return status;
}

exit_status command_trace_info(int argc, char **argv) {
  info_options options = {0};
  const struct argp_child children[] = {{&trace_options_parser, 0, NULL, 0}, {0}};
  const struct argp parser = {
      option_table, parse_option, "TRACE...", "Says what traces hold: events, streams, peaks and sizes.",
      children,     NULL,         NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status == EXIT_STATUS_DONE) status = inform(&options);
  trace_list_free(&options.traces);
  return status;
}
