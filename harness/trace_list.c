#include "harness/trace_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/option_values.h"
#include "harness/output_file.h"
#include "harness/program.h"

#define BUNDLED_FOLDER "workloads/bundled"
#define BUNDLED_DEFAULT "opt-1.3b-LR-b16-s512-w4-v0-i8.pickle.xz"

/* LAKEBED_ROOT/workloads/bundled/NAME, to be freed. NULL: no memory. */
static char *bundled_path(const char *name) {
  const char *root = getenv("LAKEBED_ROOT");
  if (!root || !*root) root = ".";
  size_t size = strlen(root) + strlen(name) + sizeof "/" BUNDLED_FOLDER "/";
  char *path = malloc(size);
  if (path) snprintf(path, size, "%s/" BUNDLED_FOLDER "%s%s", root, *name ? "/" : "", name);
  return path;
}

/* "edge" and "edge.txt" name edge.txt.xz; model names have dots of their own. */
static bool names_file(const char *name, const char *file) {
  size_t length = strlen(name);
  return length > 0 && strncmp(name, file, length) == 0 && (file[length] == '\0' || file[length] == '.');
}

static int is_trace_file(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* The files of the folder in order; their count, 0 where there are none. */
static int list_bundled(struct dirent ***files) {
  char *folder = bundled_path("");
  int count = folder ? scandir(folder, files, is_trace_file, alphasort) : -1;
  free(folder);
  return count < 0 ? 0 : count;
}

static void free_files(struct dirent **files, int count) {
  for (int i = 0; i < count; i++) free(files[i]);
  if (count > 0) free(files);
}

/* The path of the one bundled trace of this name, to be freed. NULL: none, or several. */
static char *find_bundled(const char *name) {
  struct dirent **files = NULL;
  char *path = NULL;
  int count = list_bundled(&files), found = 0;
  for (int i = 0; i < count; i++) {
    if (!names_file(name, files[i]->d_name)) continue;
    free(path);
    path = bundled_path(files[i]->d_name);
    found++;
  }
  free_files(files, count);
  if (found == 1) return path;
  free(path);
  return NULL;
}

static bool is_bare_name(const char *name) {
  return !strchr(name, '/') && strcmp(name, "-") != 0 && access(name, F_OK) != 0;
}

static error_t add_owned(trace_list *list, char *path) {
  char **paths = path ? realloc(list->paths, (list->count + 1) * sizeof *paths) : NULL;
  if (!paths) {
    free(path);
    return ENOMEM;
  }
  list->paths = paths;
  list->paths[list->count++] = path;
  return 0;
}

error_t trace_list_add(trace_list *list, const char *name) {
  char *path = is_bare_name(name) ? find_bundled(name) : NULL;
  return add_owned(list, path ? path : strdup(name));
}

exit_status trace_list_add_default(trace_list *list) {
  char *path = bundled_path(BUNDLED_DEFAULT);
  if (path && access(path, R_OK) != 0) {
    program_complain(
        "no trace was given, and the bundled one is not at %s; LAKEBED_ROOT names the folder that "
        "Lakebed lies in",
        path);
    free(path);
    return EXIT_STATUS_USAGE;
  }
  if (add_owned(list, path) == 0) return EXIT_STATUS_DONE;
  program_complain("no memory for the traces");
  return EXIT_STATUS_CHECK_FAILED;
}

void trace_list_free(trace_list *list) {
  for (size_t i = 0; i < list->count; i++) free(list->paths[i]);
  free(list->paths);
  *list = (trace_list){0};
}

bool trace_list_spares(const trace_list *list, const char *output) {
  for (size_t i = 0; i < list->count; i++) {
    if (!output_same_file(output, list->paths[i])) continue;
    program_complain("%s cannot be written: it is a trace to replay", output);
    return false;
  }
  return true;
}

void trace_list_complain(const char *path, const trace_error *error) {
  struct dirent **files = NULL;
  int count = is_bare_name(path) ? list_bundled(&files) : 0;
  program_complain("%s", error->message);
  char names[1024] = "";
  size_t used = 0;
  for (int i = 0; i < count && used < sizeof names; i++) {
    size_t length = strlen(files[i]->d_name);
    if (length > 3 && strcmp(files[i]->d_name + length - 3, ".xz") == 0) length -= 3;
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%.*s", i ? ", " : "", (int)length,
                             files[i]->d_name);
  }
  if (count > 0) program_complain("bundled traces, which need no folder: %s", names);
  free_files(files, count);
}

/* ---- options ---- */

enum { OPTION_SEED = 0x400, OPTION_TRACE_DEVICE };

static const struct argp_option option_table[] = {
    {"seed-from-segments", OPTION_SEED, NULL, 0,
     "begin with the blocks that were live when the recording began", 0},
    {"trace-device", OPTION_TRACE_DEVICE, "N", 0, "which device of a snapshot to read; default: 0", 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  trace_options *options = state->input;
  switch (key) {
    case OPTION_SEED:
      options->seed_from_segments = true;
      return 0;
    case OPTION_TRACE_DEVICE:
      options->device = (uint32_t)option_parse_count(state, "trace-device", argument, 0, UINT32_MAX);
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

const struct argp trace_options_parser = {option_table, parse_option, NULL, NULL, NULL, NULL, NULL};
