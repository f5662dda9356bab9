/* What 'lakebed replay' was asked to do. */
#ifndef LAKEBED_HARNESS_REPLAY_OPTIONS_H
#define LAKEBED_HARNESS_REPLAY_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/device.h"
#include "harness/exit_status.h"
#include "harness/instruments.h"
#include "harness/output_options.h"
#include "harness/policy_specs.h"
#include "harness/replay_dump.h"
#include "harness/trace_list.h"
#include "workloads/trace.h"

typedef struct replay_options {
  trace_list traces;
  policy_specs specs;
  device_choice device;
  uint64_t limit;        /* UINT64_MAX: none */
  double limit_fraction; /* of the device's bytes; 0: limit holds */
  uint64_t laps;
  bool check, verify, details, host_timing;
  output_options output;
  const char *timeline_path;
  uint64_t timeline_points;
  bool iterations;
  const char *iterations_path; /* "-": standard output */
  replay_dump dump;
  const char *dump_svg_path, *dump_json_path;
  const char *report_path; /* "-": standard output */
  char *command;           /* the command line, as it was given */
  trace_options trace;     /* free_requests: frees count where they were requested */
  instrument_options instruments;
} replay_options;

/* Reads the command line. On a usage error says what is wrong and returns it; the
 * caller frees the options in any case. */
exit_status replay_options_parse(int argc, char **argv, replay_options *options);
void replay_options_free(replay_options *options);

#endif
