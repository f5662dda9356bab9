/* Runs a fuzz target over the files of one folder, each in a process of its own,
 * and over no bytes at all. Closes with the line that tests/test_main.h defines. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SECONDS_PER_INPUT = 60 };

/* Reads a whole file; NULL when it cannot. The caller frees. */
static uint8_t *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  uint8_t *data = NULL;
  long length = -1;
  if (fseek(file, 0, SEEK_END) == 0) length = ftell(file);
  if (length >= 0 && fseek(file, 0, SEEK_SET) == 0) {
    /* Exactly the file's size, so that a sanitizer sees a read past its end. */
    data = malloc(length ? (size_t)length : 1);
    if (data && fread(data, 1, (size_t)length, file) != (size_t)length) {
      free(data);
      data = NULL;
    }
  }
  fclose(file);
  *size = data ? (size_t)length : 0;
  return data;
}

/* Returns 1 when the target survived the input. */
static int survives(const char *name, const uint8_t *data, size_t size) {
  fflush(stdout);
  pid_t child = fork();
  if (child < 0) {
    perror("fork");
    return 0;
  }
  if (child == 0) {
    alarm(SECONDS_PER_INPUT);
    LLVMFuzzerTestOneInput(data, size);
    exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0) return 1;
  printf("failed %s: %s %d\n", name, WIFSIGNALED(status) ? "signal" : "exit status",
         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return 0;
}

int main(int count, char **arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  static const uint8_t nothing[1];
  int passed = survives("(no bytes)", nothing, 0);
  int failed = !passed;
  struct dirent **entries = NULL;
  int entry_count = scandir(arguments[1], &entries, NULL, alphasort);
  for (int i = 0; i < entry_count; i++) {
    const char *name = entries[i]->d_name;
    if (name[0] != '.') {
      char path[4096];
      snprintf(path, sizeof path, "%s/%s", arguments[1], name);
      size_t size = 0;
      uint8_t *data = read_file(path, &size);
      if (!data) printf("failed %s: cannot be read\n", name);
      int survived = data && survives(name, data, size);
      passed += survived;
      failed += !survived;
      free(data);
    }
    free(entries[i]);
  }
  free(entries);
  printf("lakebed-tests: passed=%d failed=%d skipped=0\n", passed, failed);
  return failed ? 1 : 0;
}
