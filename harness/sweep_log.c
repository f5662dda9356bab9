#define _GNU_SOURCE
#include "harness/sweep_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/program.h"
#include "harness/progress.h"

struct sweep_log {
  char *path;
  int file, folder_lock;
  off_t size;       /* of whole lines */
  uint64_t sync_ns; /* when they were last brought to the disk */
};

char *sweep_path(const char *folder, const char *name) {
  char *path;
  return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static exit_status refuse(const char *path, const char *problem) {
  program_complain("%s: %s", path, problem);
  return EXIT_STATUS_USAGE;
}

static exit_status no_memory(void) {
  program_complain("no memory for the sweep's log");
  return EXIT_STATUS_CHECK_FAILED;
}

/* ---- locks ---- */

/* operation: LOCK_SH or LOCK_EX. path: for messages. Processes of a sweep that was just killed may take a
 * moment to end. */
static exit_status lock(int file, int operation, bool wait, const char *path) {
  for (unsigned attempt = 0; flock(file, operation | LOCK_NB) != 0; attempt++) {
    if (errno != EWOULDBLOCK && errno != EINTR) return refuse(path, strerror(errno));
    if (!wait && attempt >= 20) return refuse(path, "a sweep of this folder is running already");
    if (wait && attempt == 20) program_complain("waits for whoever runs this shard already (%s)", path);
    const struct timespec moment = {.tv_nsec = 100 * 1000 * 1000};
    nanosleep(&moment, NULL);
  }
  return EXIT_STATUS_DONE;
}

static exit_status make_folder(const char *folder) {
  if (mkdir(folder, 0777) == 0 || errno == EEXIST) return EXIT_STATUS_DONE;
  return refuse(folder, strerror(errno));
}

static exit_status open_file(const char *folder, const char *name, int flags, char **path, int *file) {
  *path = sweep_path(folder, name);
  if (!*path) return no_memory();
  *file = open(*path, flags | O_CLOEXEC, 0666);
  return *file >= 0 ? EXIT_STATUS_DONE : refuse(*path, strerror(errno));
}

static exit_status open_folder_lock(const char *folder, sweep_log *log) {
  char *path;
  exit_status status = open_file(folder, "lock", O_RDWR | O_CREAT, &path, &log->folder_lock);
  free(path);
  return status;
}

/* The split is written down by a shard that is alone; any other must have the same, or two could run one
 * cell. file: of the split, locked. */
static exit_status agree_on_split(const char *folder, sweep_shard shard, bool alone, int file) {
  char text[32] = "";
  ssize_t length = pread(file, text, sizeof text - 1, 0);
  unsigned long split = length > 0 ? strtoul(text, NULL, 10) : 0;
  if (split == shard.count) return EXIT_STATUS_DONE;
  if (!alone) {
    program_complain("%s: the sweep that is running is split in %lu shards, not %u", folder, split,
                     shard.count);
    return EXIT_STATUS_USAGE;
  }
  length = snprintf(text, sizeof text, "%u\n", shard.count);
  if (ftruncate(file, 0) == 0 && pwrite(file, text, (size_t)length, 0) == length) return EXIT_STATUS_DONE;
  return refuse(folder, strerror(errno));
}

static exit_status lock_for_shard(const char *folder, sweep_shard shard, bool wait, sweep_log *log) {
  char *path;
  int file = -1;
  exit_status status = open_file(folder, "shards", O_RDWR | O_CREAT, &path, &file);
  if (status == EXIT_STATUS_DONE) status = lock(file, LOCK_EX, wait, path);
  if (status == EXIT_STATUS_DONE) {
    bool alone = flock(log->folder_lock, LOCK_EX | LOCK_NB) == 0;
    if (!alone) status = lock(log->folder_lock, LOCK_SH, wait, folder);
    if (status == EXIT_STATUS_DONE) status = agree_on_split(folder, shard, alone, file);
    if (status == EXIT_STATUS_DONE && alone) status = lock(log->folder_lock, LOCK_SH, wait, folder);
  }
  if (file >= 0) close(file);
  free(path);
  return status;
}

/* ---- one log ---- */

/* The bytes up to the last line end. */
static bool whole_lines(int file, off_t *size) {
  char block[4096];
  off_t end = lseek(file, 0, SEEK_END);
  while (end > 0) {
    off_t begin = end > (off_t)sizeof block ? end - (off_t)sizeof block : 0;
    ssize_t got = pread(file, block, (size_t)(end - begin), begin);
    if (got <= 0) return false;
    const char *newline = memrchr(block, '\n', (size_t)got);
    if (newline) {
      *size = begin + (newline - block) + 1;
      return true;
    }
    end = begin;
  }
  *size = 0;
  return end == 0;
}

/* So that the log itself is there after a power failure. */
static void sync_folder(const char *folder) {
  int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

static exit_status open_log(const char *folder, sweep_shard shard, bool wait, sweep_log *log) {
  char name[64] = "cells.jsonl";
  if (shard.count > 0) snprintf(name, sizeof name, "cells-%u-of-%u.jsonl", shard.number, shard.count);
  exit_status status = open_file(folder, name, O_RDWR | O_CREAT | O_APPEND, &log->path, &log->file);
  if (status == EXIT_STATUS_DONE) status = lock(log->file, LOCK_EX, wait, log->path);
  if (status != EXIT_STATUS_DONE) return status;
  if (!whole_lines(log->file, &log->size) || ftruncate(log->file, log->size) != 0)
    return refuse(log->path, strerror(errno));
  sync_folder(folder);
  return EXIT_STATUS_DONE;
}

exit_status sweep_log_open(const char *folder, sweep_shard shard, bool wait, sweep_log **opened) {
  *opened = NULL;
  sweep_log *log = calloc(1, sizeof *log);
  if (!log) return no_memory();
  log->file = log->folder_lock = -1;
  exit_status status = make_folder(folder);
  if (status == EXIT_STATUS_DONE) status = open_folder_lock(folder, log);
  if (status == EXIT_STATUS_DONE && shard.count > 0) {
    status = lock_for_shard(folder, shard, wait, log);
  } else if (status == EXIT_STATUS_DONE) {
    status = lock(log->folder_lock, LOCK_EX, wait, folder);
  }
  if (status == EXIT_STATUS_DONE) status = open_log(folder, shard, wait, log);
  if (status == EXIT_STATUS_DONE) {
    *opened = log;
  } else {
    sweep_log_close(log);
  }
  return status;
}

/* Waits for the disk a few times a second at most: a power failure may cost the cells of that time. */
static bool sync_log(sweep_log *log) {
  static const uint64_t rest_ns = 200 * 1000 * 1000;
  uint64_t now = progress_clock_ns();
  if (now - log->sync_ns < rest_ns) return true;
  bool written = fdatasync(log->file) == 0;
  log->sync_ns = progress_clock_ns();
  return written;
}

bool sweep_log_append(sweep_log *log, const json_t *object) {
  char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15));
  char *line;
  int length = text ? asprintf(&line, "%s\n", text) : -1;
  free(text);
  if (length < 0) {
    no_memory();
    return false;
  }
  errno = 0;
  bool written = write(log->file, line, (size_t)length) == length && sync_log(log);
  free(line);
  if (written) {
    log->size += length;
    return true;
  }
  program_complain("%s cannot be written: %s", log->path, strerror(errno ? errno : ENOSPC));
  if (ftruncate(log->file, log->size) != 0) program_complain("%s: %s", log->path, strerror(errno));
  return false;
}

void sweep_log_close(sweep_log *log) {
  if (!log) return;
  if (log->file >= 0) {
    fdatasync(log->file);
    close(log->file);
  }
  if (log->folder_lock >= 0) close(log->folder_lock);
  free(log->path);
  free(log);
}
