/* A sweep as a job array of Slurm. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/output_file.h"
#include "harness/program.h"
#include "harness/sweep.h"

enum { ARGUMENTS_LIMIT = 64 };

/* A word for the shell. */
static void write_quoted(FILE *stream, const char *text) {
  fputc('\'', stream);
  for (; *text; text++) {
    if (*text == '\'') {
      fputs("'\\''", stream);
    } else {
      fputc(*text, stream);
    }
  }
  fputc('\'', stream);
}

static bool copy_file(const char *from, const char *to) {
  FILE *in = fopen(from, "r"), *out = in ? output_open(to) : NULL;
  bool copied = in && out;
  for (int c; copied && (c = fgetc(in)) != EOF;) copied = fputc(c, out) != EOF;
  if (in && ferror(in)) copied = false;
  if (!in) program_complain("%s cannot be read: %s", from, strerror(errno));
  if (in) fclose(in);
  return out && output_close(out, to, copied);
}

/* The script that each task runs, in the folder in which the job was submitted. */
static bool write_script(const sweep_submission *submission, const char *script, const char *grid) {
  char program[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) {
    program_complain("the program's own path is not known: %s", strerror(errno));
    return false;
  }
  program[length] = '\0';
  FILE *stream = output_open(script);
  if (!stream) return false;
  fputs("#!/bin/sh\nexec ", stream);
  write_quoted(stream, program);
  fputs(" sweep ", stream);
  write_quoted(stream, grid);
  fputs(" -o ", stream);
  write_quoted(stream, submission->folder);
  fprintf(stream, " --shard \"$SLURM_ARRAY_TASK_ID/%u\" --jobs \"${SLURM_CPUS_PER_TASK:-1}\" --wait%s\n",
          submission->shards, submission->retry_failed ? " --retry-failed" : "");
  return output_close(stream, script, true);
}

/* Runs a command and keeps the first line that it prints. */
static int run_command(char *const *argv, char *line, size_t line_size) {
  int output[2];
  if (pipe(output) != 0) return -1;
  fflush(NULL);
  pid_t process = fork();
  if (process == 0) {
    if (dup2(output[1], STDOUT_FILENO) < 0) _exit(127);
    close(output[0]);
    execvp(argv[0], argv);
    _exit(127);
  }
  close(output[1]);
  FILE *stream = fdopen(output[0], "r");
  line[0] = '\0';
  if (stream && fgets(line, (int)line_size, stream)) line[strcspn(line, "\n")] = '\0';
  if (stream) {
    while (fgetc(stream) != EOF) continue;
    fclose(stream);
  } else {
    close(output[0]);
  }
  int status = -1;
  while (process > 0 && waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
  return process > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static exit_status submit_script(const sweep_submission *submission, const char *script) {
  char array[64], line[256];
  char *log;
  if (asprintf(&log, "--output=%s/slurm-%%a.log", submission->folder) < 0) {
    program_complain("no memory for the job");
    return EXIT_STATUS_CHECK_FAILED;
  }
  snprintf(array, sizeof array, "--array=1-%u", submission->shards);
  const char *argv[ARGUMENTS_LIMIT] = {
      "sbatch", "--parsable", "--requeue", "--job-name=lakebed-sweep", array, "--open-mode=append", log};
  size_t count = 7;
  for (const char *const *option = submission->options; *option && count < ARGUMENTS_LIMIT - 2; option++)
    argv[count++] = *option;
  argv[count] = script;
  int status = run_command((char *const *)(uintptr_t)argv, line, sizeof line);
  free(log);
  if (status == 0) {
    printf(
        "submitted job %s: %u shards; its output is in %s/slurm-*.log\n"
        "when it has ended: lakebed sweep %s -o %s --merge\n",
        line, submission->shards, submission->folder, submission->grid_path, submission->folder);
    return EXIT_STATUS_DONE;
  }
  program_complain(status == 127 ? "sbatch was not found; Debian's package is slurm-client"
                                 : "sbatch refused the job");
  return EXIT_STATUS_NO_DEVICE;
}

exit_status sweep_submit(const sweep_grid *grid, const sweep_submission *given) {
  sweep_submission submission = *given;
  if (submission.shards > sweep_grid_count(grid)) submission.shards = (unsigned)sweep_grid_count(grid);
  if (mkdir(submission.folder, 0777) != 0 && errno != EEXIST) {
    program_complain("%s: %s", submission.folder, strerror(errno));
    return EXIT_STATUS_USAGE;
  }
  char *script = sweep_path(submission.folder, "job.sh"), *copy = sweep_path(submission.folder, "job.grid");
  exit_status status = EXIT_STATUS_USAGE;
  /* The grid may be edited while tasks wait. */
  if (script && copy && copy_file(submission.grid_path, copy) && write_script(&submission, script, copy))
    status = submit_script(&submission, script);
  free(script);
  free(copy);
  return status;
}
