#include "harness/option_values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/program.h"
#include "policies/policy.h"
#include "workloads/partial_file.h"

uint64_t option_parse_size(struct argp_state *state, const char *option, const char *text) {
  uint64_t bytes = 0;
  if (!policy_parse_size(text, &bytes) || bytes == 0 || bytes == UINT64_MAX) {
    argp_error(state, "--%s=%s: expected a size such as 80GiB, 512MiB or a number of bytes", option, text);
  }
  return bytes;
}

uint64_t option_parse_count(struct argp_state *state, const char *option, const char *text, uint64_t least,
                            uint64_t most) {
  char *end;
  errno = 0;
  uint64_t number = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || errno != 0 || *end != '\0' || number < least || number > most) {
    argp_error(state, "--%s=%s: expected a whole number from %" PRIu64 " to %" PRIu64, option, text, least,
               most);
  }
  return number;
}

/* "0.5" or "50%" */
static bool parse_fraction(const char *text, double *fraction) {
  char *end;
  if (text[0] < '0' || text[0] > '9') return false;
  *fraction = strtod(text, &end);
  if (strcmp(end, "%") == 0) {
    *fraction /= 100;
  } else if (*end != '\0' || !strchr(text, '.')) {
    return false;
  }
  return *fraction > 0 && *fraction <= 1;
}

bool option_parse_frees(struct argp_state *state, const char *text) {
  const bool requested = strcmp(text, "requested") == 0;
  if (!requested && strcmp(text, "completed") != 0) {
    argp_error(state, "--frees=%s: expected completed or requested", text);
  }
  return requested;
}

bool option_read_share(const char *text, uint64_t *bytes, double *fraction) {
  *bytes = 0;
  if (parse_fraction(text, fraction)) return true;
  *fraction = 0;
  return policy_parse_size(text, bytes) && *bytes > 0 && *bytes != UINT64_MAX;
}

void option_parse_share(struct argp_state *state, const char *option, const char *text, uint64_t *bytes,
                        double *fraction) {
  if (!option_read_share(text, bytes, fraction))
    argp_error(state, "--%s=%s: expected " OPTION_SHARE, option, text);
}

static char *join_command(int argc, char **argv) {
  size_t size = 1;
  for (int i = 0; i < argc; i++) size += strlen(argv[i]) + 1;
  char *text = malloc(size);
  if (!text) return NULL;
  char *end = text;
  *end = '\0';
  for (int i = 0; i < argc; i++) {
    if (i > 0) *end++ = ' ';
    end = stpcpy(end, argv[i]);
  }
  return text;
}

exit_status option_read_command(const struct argp *parser, int argc, char **argv, void *input,
                                char **command) {
  if (command && !(*command = join_command(argc, argv))) {
    program_complain("no memory for the command line");
    return EXIT_STATUS_CHECK_FAILED;
  }
  error_t failure = argp_parse(parser, argc, argv, 0, NULL, input);
  if (failure == 0) return EXIT_STATUS_DONE;
  program_complain("the command line cannot be read: %s", strerror(failure));
  return EXIT_STATUS_USAGE;
}

void option_date(char text[OPTION_DATE_TEXT]) {
  time_t now = time(NULL);
  struct tm utc;
  if (!gmtime_r(&now, &utc) || strftime(text, OPTION_DATE_TEXT, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
    text[0] = '\0';
}

/* The stream's file is called path: it is none that gets its name at the end. */
static bool written_in_place(FILE *stream, const char *partial) {
  struct stat opened, named;
  return stream == stdout || fstat(fileno(stream), &opened) != 0 || lstat(partial, &named) != 0 ||
         opened.st_dev != named.st_dev || opened.st_ino != named.st_ino;
}

FILE *option_open_output(const char *path) {
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

bool option_is_standard_output(const char *path) { return path && strcmp(path, "-") == 0; }

bool option_close_output(FILE *stream, const char *path) {
  if (!stream) return true;
  bool written = fflush(stream) == 0 && !ferror(stream);
  char *partial = partial_file_name(path);
  bool in_place = !partial || written_in_place(stream, partial);
  if (stream != stdout && fclose(stream) != 0) written = false;
  if (!in_place && written)
    written = partial_file_finish(partial, path);
  else if (!in_place)
    partial_file_remove(partial);
  free(partial);
  if (!written) program_complain("%s could not be written", path);
  return written;
}

void option_abandon_output(FILE *stream, const char *path) {
  if (!stream || stream == stdout) return;
  char *partial = partial_file_name(path);
  if (partial && !written_in_place(stream, partial)) partial_file_remove(partial);
  free(partial);
  fclose(stream);
}

bool option_same_file(const char *left, const char *right) {
  struct stat first, second;
  bool exists = stat(left, &first) == 0;
  if (exists && !S_ISREG(first.st_mode)) return false;
  if (strcmp(left, right) == 0) return strcmp(left, "-") != 0;
  return exists && stat(right, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}
