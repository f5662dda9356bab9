#define _GNU_SOURCE

#include "harness/output_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/program.h"
#include "workloads/partial_file.h"

/* The stream's file is called path: it is none that gets its name at the end. */
static bool written_in_place(FILE *stream, const char *partial) {
  struct stat opened, named;
  return stream == stdout || fstat(fileno(stream), &opened) != 0 || lstat(partial, &named) != 0 ||
         opened.st_dev != named.st_dev || opened.st_ino != named.st_ino;
}

FILE *output_open(const char *path) {
  if (strcmp(path, "-") == 0) return stdout;
  if (!*path) {
    program_complain("the name of an output is empty");
    return NULL;
  }
  struct stat about;
  bool exists = lstat(path, &about) == 0;
  FILE *stream = NULL;
  if (exists && !S_ISREG(about.st_mode)) {
    stream = fopen(path, "w");
  } else if (!exists || access(path, W_OK) == 0) {
    char *partial = partial_file_name(path);
    int file = partial ? partial_file_create(partial) : -1;
    stream = file >= 0 ? fdopen(file, "w") : NULL;
    if (file >= 0 && !stream) {
      close(file);
      partial_file_remove(partial);
    }
    free(partial);
  }
  if (!stream) {
    program_complain("%s cannot be written: %s", path,
                     errno == EEXIST ? "it is being written already" : strerror(errno));
  }
  return stream;
}

bool output_is_standard(const char *path) { return path && strcmp(path, "-") == 0; }

bool output_json(const json_t *value, size_t flags, FILE *stream) {
  return json_dumpf(value, stream, flags) == 0 && fputc('\n', stream) != EOF;
}

bool output_close(FILE *stream, const char *path, bool written) {
  if (!stream) return true;
  written &= fflush(stream) == 0 && !ferror(stream);
  if (stream == stdout) {
    if (!written) program_complain_of_output();
    return written;
  }
  char *partial = partial_file_name(path);
  bool in_place = !partial || written_in_place(stream, partial);
  if (fclose(stream) != 0) written = false;
  if (!in_place && written)
    written = partial_file_finish(partial, path);
  else if (!in_place)
    partial_file_remove(partial);
  free(partial);
  if (!written) program_complain("%s could not be written", path);
  return written;
}

void output_abandon(FILE *stream, const char *path) {
  if (!stream || stream == stdout) return;
  char *partial = partial_file_name(path);
  if (partial && !written_in_place(stream, partial)) partial_file_remove(partial);
  free(partial);
  fclose(stream);
}

/* Where a file would be made that is not there: links that lead nowhere are followed. NULL when they never
 * end, or the folder is not there. */
static char *place_of(const char *path) {
  char at[PATH_MAX], target[PATH_MAX], folder[PATH_MAX + 2];
  if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at) return NULL;
  for (int links = 0; links < 40; links++) {
    const char *slash = strrchr(at, '/');
    const char *name = slash ? slash + 1 : at;
    const int length = (int)(name - at);
    ssize_t bytes = readlink(at, target, sizeof target - 1);
    if (bytes < 0) {
      snprintf(folder, sizeof folder, "%.*s.", length, at);
      char *whole = realpath(folder, NULL), *place = NULL;
      if (whole && asprintf(&place, "%s/%s", whole, name) < 0) place = NULL;
      free(whole);
      return place;
    }
    target[bytes] = '\0';
    if (snprintf(folder, sizeof folder, "%.*s%s", target[0] == '/' ? 0 : length, at, target) >=
        (int)sizeof at)
      return NULL;
    memcpy(at, folder, sizeof at);
  }
  return NULL;
}

bool output_same_file(const char *left, const char *right) {
  struct stat first, second;
  const bool left_exists = stat(left, &first) == 0, right_exists = stat(right, &second) == 0;
  if (left_exists && !S_ISREG(first.st_mode)) return false;
  if (strcmp(left, right) == 0) return strcmp(left, "-") != 0;
  if (left_exists && right_exists) return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  if (left_exists || right_exists) return false;
  char *one = place_of(left), *other = place_of(right);
  const bool same = one && other && strcmp(one, other) == 0;
  free(one);
  free(other);
  return same;
}
