#define _GNU_SOURCE
#include "harness/sweep_source.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/program.h"
#include "harness/sweep_words.h"

/* 'lakebed trace generate KIND OPTION... -', whose option parser may end the process. */
__attribute__((noreturn)) static void run_generator(const sweep_source *source, int output) {
  static char name[] = "lakebed trace generate", quiet[] = "--quiet", standard_output[] = "-";
  char message[256];
  sweep_words words = {0};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_DFL);
  if (dup2(output, STDOUT_FILENO) < 0 || !sweep_words_split(&words, source->text, message, sizeof message))
    _exit(EXIT_STATUS_CHECK_FAILED);
  char **argv = calloc(words.count + 4, sizeof *argv);
  if (!argv) _exit(EXIT_STATUS_CHECK_FAILED);
  argv[0] = name;
  memcpy(argv + 1, words.items, words.count * sizeof *argv);
  argv[words.count + 1] = quiet;
  argv[words.count + 2] = standard_output;
  exit_status status = command_trace_generate((int)words.count + 3, argv);
  fflush(NULL);
  _exit((int)status);
}

/* Returns the process, or -1. */
static pid_t start_generator(const sweep_source *source, int output) {
  fflush(NULL);
  pid_t process = fork();
  if (process == 0) run_generator(source, output);
  return process;
}

static int wait_for(pid_t process) {
  int status = -1;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

bool sweep_source_can_generate(const sweep_source *source) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return false;
  pid_t process = start_generator(source, output[1]);
  close(output[1]);
  char first;
  ssize_t got = 0;
  if (process > 0) {
    do got = read(output[0], &first, 1);
    while (got < 0 && errno == EINTR);
    if (got == 1) kill(process, SIGKILL);
    wait_for(process);
  }
  close(output[0]);
  return got == 1;
}

static trace_status fail(trace_error *error, trace_status status, const char *what) {
  error->status = status;
  snprintf(error->message, sizeof error->message, "%s", what);
  return status;
}

trace_status sweep_source_open(const sweep_source *source, const trace_options *options,
                               event_source **events, trace_error *error) {
  if (!source->generated) return event_source_open(source->text, options, events, error);
  *events = NULL;
  int file = memfd_create("lakebed-generated", MFD_CLOEXEC);
  if (file < 0) return fail(error, TRACE_NO_MEMORY, "no memory for a generated trace");
  pid_t process = start_generator(source, file);
  int ended = process > 0 ? wait_for(process) : -1;
  trace_status status = TRACE_OK;
  if (ended == 0) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    status = event_source_open(path, options, events, error);
  } else {
    status = fail(error, TRACE_UNREADABLE, "the trace could not be generated");
  }
  close(file);
  return status;
}
