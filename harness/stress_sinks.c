#include "harness/stress_sinks.h"

#include "harness/option_values.h"
#include "harness/program.h"

static void abandon(stress_sinks *sinks) {
  json_decref(sinks->array);
  option_abandon_output(sinks->json, sinks->json_path);
  option_abandon_output(sinks->csv, sinks->csv_path);
}

bool stress_sinks_open(stress_sinks *sinks, const char *json_path, const char *csv_path) {
  *sinks = (stress_sinks){.json_path = json_path, .csv_path = csv_path};
  if (json_path && csv_path &&
      (option_same_file(json_path, csv_path) ||
       (option_is_standard_output(json_path) && option_is_standard_output(csv_path)))) {
    program_complain("--json and --csv name the same file");
    return false;
  }
  bool opened = true;
  if (json_path) {
    sinks->array = json_array();
    sinks->json = option_open_output(json_path);
    opened = sinks->array && sinks->json;
  }
  if (opened && csv_path) opened = (sinks->csv = option_open_output(csv_path)) != NULL;
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
  if (sinks->json) {
    written = json_dumpf(sinks->array, sinks->json, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0 &&
              fputc('\n', sinks->json) != EOF;
    if (!written) program_complain("%s could not be written", sinks->json_path);
  }
  json_decref(sinks->array);
  written &= option_close_output(sinks->json, sinks->json_path);
  written &= option_close_output(sinks->csv, sinks->csv_path);
  return written ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}
