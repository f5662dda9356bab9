/* What is written about replays: for people, as JSON, as CSV. */
#ifndef LAKEBED_HARNESS_REPLAY_OUTPUT_H
#define LAKEBED_HARNESS_REPLAY_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "harness/policy_specs.h"
#include "harness/replay.h"
#include "harness/report.h"

/* All runs over one trace. */
typedef struct replay_group {
  const char *path;
  const replay_settings *settings;
  trace_summary summary;
  bool has_summary; /* the trace was read to its end */
  const policy_specs *specs;
  const replay_result *results; /* one each */
  size_t count;
  bool host_timing;
  bool first;                 /* of the traces of this call */
  const char *date, *command; /* when and how this call was made; in outputs only with host_timing */
} replay_group;

/* The last part of a path. */
const char *replay_trace_name(const char *path);
/* "frag_limit=2MiB,chunk=2MiB": every option with its value; empty without options. Cut at text_size. */
void replay_options_text(const policy_spec *spec, char *text, size_t text_size);
/* The same of the options that are not as by default. */
void replay_changed_options_text(const policy_spec *spec, char *text, size_t text_size);

/* "a model: ..." where what a policy does on this device is modelled rather than known; NULL: it is not. */
const char *replay_model_note(const policy_spec *spec, const device_model *model);

/* Header, table and notes. details: also all options, and each policy's calls, operations and counters. */
void replay_report_print(const replay_group *group, bool details, FILE *stream);
/* What was replayed: trace, device, policies. */
void replay_report_header(const replay_group *group, bool details, FILE *stream);
/* The policies alone, with what was changed of their options, and notes on them. */
void replay_report_policies(const policy_specs *specs, const device_model *model, FILE *stream);

/* Of the runs that went to their end, the first request that found no memory; and the recorded run's own. */
void replay_report_failures(const replay_group *group, FILE *stream);
/* ", 3 from before the recording, ...": what a trace holds that the run did not do itself. */
void replay_report_recorded(const trace_summary *summary, uint64_t recorded_ooms, FILE *stream);
/* What was asked for, what was live, reserved and free, and who refused: lines of a name and a value. */
void replay_report_situation(const replay_failure *failure, const device_model *model, uint64_t limit,
                             FILE *stream);

/* What made a run's numbers, with the trace and the options enough to make them again. */
void replay_json_provenance(json_t *object, const replay_group *group);
/* A new object that says which trace went through which policy. NULL: no memory. */
json_t *replay_json_begin(const replay_group *group, const replay_result *result);
/* Appends an object a run to an array. Returns false when there is no memory. */
bool replay_json_append(json_t *array, const replay_group *group);

/* Did this other run serve the request with which result first failed? One that hands out addresses without
 * memory does not count. */
bool replay_served_by(const replay_result *other, const replay_result *result);

/* Provenance as lines that begin with '#', then the columns. group: its results are not looked at. */
void replay_csv_header(const replay_group *group, FILE *stream);
/* A row a run; cells without a value are empty. */
void replay_csv_rows(const replay_group *group, FILE *stream);

/* What each iteration did, if they were told apart. */
void replay_report_iterations(const replay_group *group, FILE *stream);
/* Sets "iterations" and what follows from them. */
void replay_json_iterations(json_t *object, const replay_result *result);
void replay_iterations_header(FILE *stream);
void replay_iterations_rows(const replay_group *group, FILE *stream);

/* Maps of memory, of the runs that have one; why there is none of the others. */
void replay_report_maps(const replay_group *group, bool details, FILE *stream);
/* The same as an object a run, as a picture a run. Return false when there is no memory. */
bool replay_maps_json_append(json_t *array, const replay_group *group);
bool replay_maps_draw(memory_drawing *drawing, const replay_group *group);

/* Adds runs, their maps and their timelines to a page, as from a file of this name. */
#define REPLAY_PAGE_SOURCE "lakebed replay"
exit_status replay_page_add(report_page *page, const replay_group *group);

void replay_timeline_header(FILE *stream);
void replay_timeline_rows(const replay_group *group, FILE *stream);

/* The same situation as keys of an object. */
void replay_json_situation(json_t *object, const replay_failure *failure);
/* A policy's options with their effective values. */
json_t *replay_json_options(const policy_spec *spec);
/* A name or message from outside as a JSON string: "?" where it is no UTF-8. */
json_t *replay_json_words(const char *text);

/* A line of provenance, "# key: text": what is in it ends no line. */
void replay_csv_provenance(FILE *stream, const char *key, const char *text);
/* Writes a CSV field, quoted when it must be. */
void replay_csv_field(FILE *stream, const char *text);

#endif
