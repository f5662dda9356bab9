#include "workloads/partial_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FILES = 16 }; /* one more is left behind by a signal */

typedef enum entry_state { UNUSED, CHANGING, LISTED } entry_state;

/* Read by the signal handler: no locks, no memory of the heap. */
static struct {
  atomic_int state;
  char name[PATH_MAX];
} entries[MOST_FILES];

static const int ending_signals[] = {SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
enum { ENDING_SIGNALS = sizeof ending_signals / sizeof *ending_signals };

static void list(const char *name) {
  size_t size = strlen(name) + 1;
  for (size_t i = 0; i < MOST_FILES && size <= PATH_MAX; i++) {
    int unused = UNUSED;
    if (!atomic_compare_exchange_strong(&entries[i].state, &unused, CHANGING)) continue;
    memcpy(entries[i].name, name, size);
    atomic_store(&entries[i].state, LISTED);
    return;
  }
}

static void forget(const char *name) {
  for (size_t i = 0; i < MOST_FILES; i++) {
    if (atomic_load(&entries[i].state) != LISTED || strcmp(entries[i].name, name) != 0) continue;
    atomic_store(&entries[i].state, UNUSED);
    return;
  }
}

char *partial_file_name(const char *path) {
  size_t size = strlen(path) + 64;
  char *name = malloc(size);
  if (name) snprintf(name, size, "%s.partial-%ld", path, (long)getpid());
  return name;
}

int partial_file_create(const char *name) {
  /* Neither a file that is not listed nor one of another's that is. */
  sigset_t ending, before;
  sigemptyset(&ending);
  for (size_t i = 0; i < ENDING_SIGNALS; i++) sigaddset(&ending, ending_signals[i]);
  pthread_sigmask(SIG_BLOCK, &ending, &before);
  int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  int failure = errno;
  if (file >= 0) list(name);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = failure;
  return file;
}

bool partial_file_finish(const char *name, const char *path) {
  bool renamed = rename(name, path) == 0;
  int failure = errno;
  if (!renamed) unlink(name);
  forget(name);
  errno = failure;
  return renamed;
}

void partial_file_remove(const char *name) {
  unlink(name);
  forget(name);
}

static void remove_and_end(int number) {
  for (size_t i = 0; i < MOST_FILES; i++) {
    if (atomic_load(&entries[i].state) == LISTED) unlink(entries[i].name);
  }
  raise(number); /* its default action, once the handler has returned */
}

void partial_file_watch_signals(void) {
  for (size_t i = 0; i < ENDING_SIGNALS; i++) {
    struct sigaction action = {.sa_handler = remove_and_end, .sa_flags = (int)SA_RESETHAND}, before;
    sigemptyset(&action.sa_mask);
    if (sigaction(ending_signals[i], NULL, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    sigaction(ending_signals[i], &action, NULL);
  }
}
