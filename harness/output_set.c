#include "harness/output_set.h"

#include "harness/output_file.h"
#include "harness/program.h"

bool output_paths_are_apart(const char *const *paths, size_t count, const trace_list *traces) {
  bool standard = false;
  for (size_t i = 0; i < count; i++) {
    if (!paths[i]) continue;
    if (traces && !trace_list_spares(traces, paths[i])) return false;
    for (size_t k = 0; k < i; k++) {
      if (!paths[k] || !output_same_file(paths[i], paths[k])) continue;
      program_complain("%s cannot be written: it is being written already", paths[i]);
      return false;
    }
    if (output_is_standard(paths[i]) && standard) {
      program_complain("only one of the files can go to standard output: '-' is given twice");
      return false;
    }
    standard |= output_is_standard(paths[i]);
  }
  return true;
}

bool output_set_add(output_set *set, const char *path, FILE **stream) {
  *stream = NULL;
  if (!path) return true;
  if (!(*stream = output_open(path))) return false;
  set->files[set->count].path = path;
  set->files[set->count].stream = *stream;
  set->files[set->count++].whole = true;
  if (*stream == stdout) set->report = NULL;
  return true;
}

bool output_set_open(output_set *set, const output_options *options) {
  *set = (output_set){.report = stdout};
  if (!output_set_add(set, options->json_path, &set->json)) return false;
  if (set->json && !(set->array = json_array())) {
    program_complain("no memory for the results");
    return false;
  }
  return output_set_add(set, options->csv_path, &set->csv);
}

void output_set_wrote(output_set *set, const FILE *stream, bool written) {
  for (size_t i = 0; i < set->count; i++) {
    if (set->files[i].stream == stream) set->files[i].whole &= written;
  }
}

exit_status output_set_close(output_set *set) {
  bool written = true;
  if (set->array)
    output_set_wrote(set, set->json,
                     output_json(set->array, JSON_INDENT(2) | JSON_REAL_PRECISION(15), set->json));
  json_decref(set->array);
  for (size_t i = 0; i < set->count; i++)
    written &= output_close(set->files[i].stream, set->files[i].path, set->files[i].whole);
  *set = (output_set){0};
  return written ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

void output_set_abandon(output_set *set) {
  json_decref(set->array);
  for (size_t i = 0; i < set->count; i++) output_abandon(set->files[i].stream, set->files[i].path);
  *set = (output_set){0};
}
