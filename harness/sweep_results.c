/* Reading back what sweeps have logged. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/program.h"
#include "harness/sweep_log.h"

bool sweep_result_failed(const json_t *object) {
  const char *status = json_string_value(json_object_get(object, "status"));
  return !status || strcmp(status, "done") != 0;
}

static void count(sweep_results *results, const json_t *object, int step) {
  if (!object) return;
  size_t *counter = sweep_result_failed(object) ? &results->failed : &results->done;
  *counter += (size_t)step;
}

void sweep_results_set(sweep_results *results, size_t cell, json_t *object) {
  json_t *known = results->objects[cell];
  bool was_done = known && !sweep_result_failed(known);
  if (was_done) results->repeated++;
  if (was_done && sweep_result_failed(object)) {
    json_decref(object);
    return;
  }
  count(results, known, -1);
  count(results, object, 1);
  json_decref(known);
  results->objects[cell] = object;
}

static void read_line(const char *line, size_t length, const sweep_grid *grid, sweep_results *results) {
  json_t *object = json_loadb(line, length, 0, NULL);
  const char *key = json_string_value(json_object_get(object, "key"));
  size_t cell = key ? sweep_grid_find(grid, key) : SIZE_MAX;
  if (cell != SIZE_MAX) {
    sweep_results_set(results, cell, object);
    return;
  }
  if (key) {
    results->strangers++;
  } else {
    results->damaged++;
  }
  json_decref(object);
}

static exit_status read_log(const char *path, const sweep_grid *grid, sweep_results *results) {
  FILE *stream = fopen(path, "r");
  if (!stream) {
    program_complain("%s cannot be read: %s", path, strerror(errno));
    return EXIT_STATUS_USAGE;
  }
  char *line = NULL;
  size_t room = 0;
  for (ssize_t length; (length = getline(&line, &room, stream)) > 0;) {
    /* The last line may be about to be written, or torn. */
    if (line[length - 1] == '\n') read_line(line, (size_t)length, grid, results);
  }
  bool whole = !ferror(stream);
  if (!whole) program_complain("%s cannot be read: %s", path, strerror(errno));
  free(line);
  fclose(stream);
  return whole ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

static int is_log(const struct dirent *entry) {
  const char *ending = strrchr(entry->d_name, '.');
  return strncmp(entry->d_name, "cells", 5) == 0 && ending && strcmp(ending, ".jsonl") == 0;
}

exit_status sweep_results_read(const char *folder, const sweep_grid *grid, sweep_results *results) {
  *results = (sweep_results){.count = sweep_grid_count(grid)};
  results->objects = calloc(results->count, sizeof *results->objects);
  if (!results->objects) {
    program_complain("no memory for the results");
    return EXIT_STATUS_CHECK_FAILED;
  }
  struct dirent **files;
  int found = scandir(folder, &files, is_log, alphasort);
  if (found < 0 && errno == ENOENT) return EXIT_STATUS_DONE;
  if (found < 0) {
    program_complain("%s cannot be read: %s", folder, strerror(errno));
    return EXIT_STATUS_USAGE;
  }
  exit_status status = EXIT_STATUS_DONE;
  for (int i = 0; i < found; i++) {
    char *path = status == EXIT_STATUS_DONE ? sweep_path(folder, files[i]->d_name) : NULL;
    if (path) status = read_log(path, grid, results);
    free(path);
    free(files[i]);
  }
  free(files);
  return status;
}

void sweep_results_free(sweep_results *results) {
  for (size_t i = 0; results->objects && i < results->count; i++) json_decref(results->objects[i]);
  free(results->objects);
  *results = (sweep_results){0};
}
