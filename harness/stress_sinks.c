#include "harness/stress_sinks.h"

#include "harness/output_file.h"
#include "harness/program.h"

static void abandon(stress_sinks *sinks) {
  json_decref(sinks->array);
  output_abandon(sinks->json, sinks->json_path);
  output_abandon(sinks->csv, sinks->csv_path);
}

bool stress_sinks_open(stress_sinks *sinks, const char *json_path, const char *csv_path) {
  *sinks = (stress_sinks){.json_path = json_path, .csv_path = csv_path};
  if (json_path && csv_path &&
      (output_same_file(json_path, csv_path) ||
       (output_is_standard(json_path) && output_is_standard(csv_path)))) {
    program_complain("--json and --csv name the same file");
    return false;
  }
  bool opened = true;
  if (json_path) {
    sinks->array = json_array();
    sinks->json = output_open(json_path);
    opened = sinks->array && sinks->json;
  }
  if (opened && csv_path) opened = (sinks->csv = output_open(csv_path)) != NULL;
  if (!opened) abandon(sinks);
  if (sinks->json != stdout && sinks->csv != stdout) sinks->report = stdout;
  return opened;
}

exit_status stress_sinks_close(stress_sinks *sinks, bool written) {
  if (!written) {
    program_complain("no memory for the results");
    abandon(sinks);
    return EXIT_STATUS_CHECK_FAILED;
  }
  const bool complete =
      !sinks->json || output_json(sinks->array, JSON_INDENT(2) | JSON_REAL_PRECISION(15), sinks->json);
  json_decref(sinks->array);
  written = output_close(sinks->json, sinks->json_path, complete);
  written &= output_close(sinks->csv, sinks->csv_path, true);
  return written ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}
