#include "harness/sweep_workers.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/program.h"
#include "harness/sweep_runner.h"

typedef struct worker {
  pid_t process; /* 0: there is none */
  int orders, answers;
  size_t cell;                /* that it runs; SIZE_MAX: none */
  const sweep_source *source; /* of its last cell */
  char *text;                 /* of the answer, as far as it has come */
  size_t length, room;
} worker;

typedef struct crew {
  const sweep_grid *grid;
  size_t *waiting; /* cells, in order; SIZE_MAX: given out */
  size_t count, first;
  worker *workers;
  struct pollfd *polled;
  unsigned jobs;
} crew;

/* ---- in a worker ---- */

static bool write_all(int file, const void *bytes, size_t size) {
  const char *next = bytes;
  while (size > 0) {
    ssize_t written = write(file, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    size -= (size_t)written;
  }
  return true;
}

/* An answer is the result's text with a NUL. */
static bool answer(int file, json_t *object) {
  char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
  json_decref(object);
  bool written = text && write_all(file, text, strlen(text) + 1);
  free(text);
  return written;
}

/* Ends with the last order. */
__attribute__((noreturn)) static void work(const sweep_grid *grid, int orders, int answers) {
  sweep_runner runner = {0};
  size_t cell;
  bool fine = true;
  while (fine && read(orders, &cell, sizeof cell) == sizeof cell)
    fine = answer(answers, sweep_runner_run(&runner, sweep_grid_cell(grid, cell)));
  sweep_runner_close(&runner);
  fflush(stderr);
  _exit(fine ? EXIT_STATUS_DONE : EXIT_STATUS_CHECK_FAILED);
}

/* ---- workers ---- */

static void close_pipe(int pipe[2]) {
  for (int i = 0; i < 2; i++) {
    if (pipe[i] >= 0) close(pipe[i]);
  }
}

/* What a worker must not keep open: then the others would not see their pipes end. */
static void close_others(const crew *self) {
  for (unsigned i = 0; i < self->jobs; i++) {
    if (self->workers[i].process == 0) continue;
    close(self->workers[i].orders);
    close(self->workers[i].answers);
  }
}

static bool hire(crew *self, worker *hired) {
  int orders[2] = {-1, -1}, answers[2] = {-1, -1};
  pid_t parent = getpid();
  fflush(stdout);
  fflush(stderr);
  pid_t process = pipe(orders) == 0 && pipe(answers) == 0 ? fork() : -1;
  if (process < 0) {
    program_complain("a process for the sweep cannot be made: %s", strerror(errno));
    close_pipe(orders);
    close_pipe(answers);
    return false;
  }
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_STATUS_CHECK_FAILED);
    close_others(self);
    close(orders[1]);
    close(answers[0]);
    work(self->grid, orders[0], answers[1]);
  }
  close(orders[0]);
  close(answers[1]);
  *hired = (worker){.process = process, .orders = orders[1], .answers = answers[0], .cell = SIZE_MAX};
  return true;
}

/* Waits for its end. Returns its status as of waitpid. */
static int dismiss(worker *dismissed) {
  int status = 0;
  close(dismissed->orders);
  close(dismissed->answers);
  while (waitpid(dismissed->process, &status, 0) < 0 && errno == EINTR) continue;
  free(dismissed->text);
  *dismissed = (worker){0};
  return status;
}

static void dismiss_all(crew *self) {
  for (unsigned i = 0; i < self->jobs; i++) {
    if (self->workers[i].process == 0) continue;
    if (self->workers[i].cell != SIZE_MAX) kill(self->workers[i].process, SIGKILL);
    dismiss(&self->workers[i]);
  }
}

/* ---- giving out ---- */

static bool is_read_by_another(const crew *self, const worker *asking, const sweep_source *source) {
  for (unsigned i = 0; i < self->jobs; i++) {
    const worker *other = &self->workers[i];
    if (other != asking && other->process && other->source == source) return true;
  }
  return false;
}

/* The next cell for a worker: one of the source that it has read, else of one that nobody reads, else the
 * first. SIZE_MAX: none is left. */
static size_t take(crew *self, const worker *asking) {
  enum { LOOK_AHEAD = 4096 };
  while (self->first < self->count && self->waiting[self->first] == SIZE_MAX) self->first++;
  size_t chosen = self->first, last = self->count;
  if (last - chosen > LOOK_AHEAD) last = chosen + LOOK_AHEAD;
  bool unread = false;
  for (size_t i = self->first; i < last; i++) {
    if (self->waiting[i] == SIZE_MAX) continue;
    const sweep_source *source = sweep_grid_cell(self->grid, self->waiting[i])->source;
    if (source == asking->source) {
      chosen = i;
      break;
    }
    if (!unread && !is_read_by_another(self, asking, source)) {
      chosen = i;
      unread = true;
      if (!asking->source) break;
    }
  }
  if (chosen >= self->count) return SIZE_MAX;
  size_t cell = self->waiting[chosen];
  self->waiting[chosen] = SIZE_MAX;
  return cell;
}

/* Gives a worker its next cell; lets it go when there is none. */
static bool give(crew *self, worker *asking) {
  size_t cell = take(self, asking);
  asking->cell = cell;
  asking->length = 0;
  if (cell == SIZE_MAX) {
    dismiss(asking);
    return true;
  }
  asking->source = sweep_grid_cell(self->grid, cell)->source;
  /* One that has just died is noticed when its answer is read. */
  if (!write_all(asking->orders, &cell, sizeof cell) && errno != EPIPE) {
    program_complain("a process of the sweep cannot be given work: %s", strerror(errno));
    return false;
  }
  return true;
}

/* ---- taking back ---- */

static json_t *death(const sweep_grid *grid, size_t cell, int status) {
  char message[160];
  if (WIFSIGNALED(status)) {
    int number = WTERMSIG(status);
    snprintf(message, sizeof message, "the process that ran the cell was ended by signal %d (%s)", number,
             strsignal(number));
  } else {
    snprintf(message, sizeof message, "the process that ran the cell ended with status %d",
             WEXITSTATUS(status));
  }
  return sweep_runner_absence(sweep_grid_cell(grid, cell), message);
}

/* More of an answer. 1: it is whole; 0: not yet; -1: the worker is gone. */
static int read_answer(worker *from) {
  if (from->room - from->length < 4096) {
    size_t room = from->room ? 2 * from->room : 1 << 16;
    char *text = realloc(from->text, room);
    if (!text) return -1;
    from->text = text;
    from->room = room;
  }
  ssize_t got = read(from->answers, from->text + from->length, from->room - from->length);
  if (got < 0 && errno == EINTR) return 0;
  if (got <= 0) return -1;
  from->length += (size_t)got;
  return from->text[from->length - 1] == '\0';
}

/* A worker has said something, or died. false: the sweep ends here. */
static bool attend(crew *self, worker *from, sweep_ended *ended, void *context) {
  int state = read_answer(from);
  if (state == 0) return true;
  size_t cell = from->cell;
  json_t *object = state > 0 ? json_loads(from->text, 0, NULL) : death(self->grid, cell, dismiss(from));
  if (!object) {
    program_complain("no memory for a result");
    return false;
  }
  if (!ended(context, cell, object)) return false;
  bool waiting = self->first < self->count;
  if (from->process == 0 && waiting && !hire(self, from)) return false;
  return from->process == 0 || give(self, from);
}

static unsigned poll_workers(crew *self) {
  unsigned busy = 0;
  for (unsigned i = 0; i < self->jobs; i++) {
    const worker *one = &self->workers[i];
    self->polled[i] = (struct pollfd){.fd = one->process ? one->answers : -1, .events = POLLIN};
    busy += one->process != 0;
  }
  if (busy > 0 && poll(self->polled, self->jobs, -1) < 0) {
    for (unsigned i = 0; i < self->jobs; i++) self->polled[i].revents = 0;
  }
  return busy;
}

static bool run(crew *self, sweep_ended *ended, void *context) {
  for (unsigned i = 0; i < self->jobs; i++) {
    if (!hire(self, &self->workers[i]) || !give(self, &self->workers[i])) return false;
  }
  while (poll_workers(self) > 0) {
    for (unsigned i = 0; i < self->jobs; i++) {
      if (self->polled[i].revents && !attend(self, &self->workers[i], ended, context)) return false;
    }
  }
  return true;
}

bool sweep_workers_run(const sweep_grid *grid, const size_t *cells, size_t count, unsigned jobs,
                       sweep_ended *ended, void *context) {
  if (jobs > count) jobs = (unsigned)count;
  if (count == 0) return true;
  crew self = {.grid = grid,
               .waiting = malloc(count * sizeof *cells),
               .count = count,
               .workers = calloc(jobs, sizeof *self.workers),
               .polled = calloc(jobs, sizeof *self.polled),
               .jobs = jobs};
  bool all = self.waiting && self.workers && self.polled;
  if (all) {
    memcpy(self.waiting, cells, count * sizeof *cells);
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    sigaction(SIGPIPE, &ignore, &before);
    all = run(&self, ended, context);
    dismiss_all(&self);
    sigaction(SIGPIPE, &before, NULL);
  } else {
    program_complain("no memory for the sweep's processes");
  }
  free(self.waiting);
  free(self.workers);
  free(self.polled);
  return all;
}
