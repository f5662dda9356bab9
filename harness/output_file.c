#include "harness/output_file.h"

#include <errno.h>
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

bool output_same_file(const char *left, const char *right) {
  struct stat first, second;
  bool exists = stat(left, &first) == 0;
  if (exists && !S_ISREG(first.st_mode)) return false;
  if (strcmp(left, right) == 0) return strcmp(left, "-") != 0;
  return exists && stat(right, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}
