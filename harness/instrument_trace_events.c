#include "harness/instrument_trace_events.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/progress.h"
#include "workloads/partial_file.h"

enum {
  BUFFER = 64 << 10,
  EVENT = 1024, /* longest event; names are cut */
  DEPTH = 64,   /* ranges beyond are left out */
  ENDING = DEPTH * 96 + 16,
};

typedef struct trace_events {
  instrument base;
  int file;
  bool seekable; /* what was written last can be written over */
  char *path;
  char *partial;   /* the file's name until it is whole; NULL: written in place */
  uint64_t offset; /* of the buffer in the file */
  size_t used;
  char buffer[BUFFER];
  int failure; /* errno of the first write that failed; nothing is written after it */

  unsigned run; /* the process of the trace; 1 is the first */
  bool modelled, in_run;
  uint64_t begin_ns;    /* of the run, on the wall clock */
  uint64_t paused_ns;   /* wall time that is not the run's */
  uint64_t modelled_ns; /* driver time that the wall clock does not have */
  uint64_t call_begin_ns, pause_begin_ns;
  uint64_t last_ns; /* of the run, latest written */
  unsigned depth, deeper;
  instrument_memory memory;
} trace_events;

/* ---- the file ---- */

static bool write_fully(trace_events *self, const char *bytes, size_t size, uint64_t offset) {
  while (size > 0) {
    ssize_t written =
        self->seekable ? pwrite(self->file, bytes, size, (off_t)offset) : write(self->file, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      self->failure = written < 0 ? errno : EIO;
      return false;
    }
    bytes += written;
    size -= (size_t)written;
    offset += (uint64_t)written;
  }
  return true;
}

static size_t append_number(char *text, uint64_t value) {
  char digits[20];
  size_t count = 0, used = 0;
  do {
    digits[count++] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  while (count > 0) text[used++] = digits[--count];
  return used;
}

static size_t append_text(char *text, const char *words) {
  size_t length = strlen(words);
  memcpy(text, words, length);
  return length;
}

/* Microseconds with three decimals. */
static size_t append_time(char *text, uint64_t nanoseconds) {
  size_t used = append_number(text, nanoseconds / 1000);
  unsigned rest = (unsigned)(nanoseconds % 1000);
  text[used++] = '.';
  text[used++] = (char)('0' + rest / 100);
  text[used++] = (char)('0' + rest / 10 % 10);
  text[used++] = (char)('0' + rest % 10);
  return used;
}

/* What closes the ranges that are open and the file. */
static size_t write_ending(const trace_events *self, char *text) {
  size_t used = 0;
  for (unsigned i = 0; i < self->depth; i++) {
    used += append_text(text + used, ",\n{\"ph\":\"E\",\"pid\":");
    used += append_number(text + used, self->run);
    used += append_text(text + used, ",\"tid\":1,\"ts\":");
    used += append_time(text + used, self->last_ns);
    used += append_text(text + used, "}");
  }
  return used + append_text(text + used, "\n]}\n");
}

/* Empties the buffer. The file then ends as if the trace did; the next write goes over that end. */
static void flush(trace_events *self) {
  if (self->failure) {
    self->used = 0;
    return;
  }
  size_t size = self->used;
  if (self->seekable) {
    char whole[BUFFER + ENDING];
    memcpy(whole, self->buffer, size);
    size_t ending = write_ending(self, whole + size);
    if (!write_fully(self, whole, size + ending, self->offset)) return;
    /* The new end may lie before the old one. */
    if (ftruncate(self->file, (off_t)(self->offset + size + ending)) != 0) self->failure = errno;
  } else {
    write_fully(self, self->buffer, size, self->offset);
  }
  self->offset += size;
  self->used = 0;
}

/* Room for one event, after the comma. */
static char *event_room(trace_events *self) {
  if (BUFFER - self->used < EVENT) flush(self);
  self->used += append_text(self->buffer + self->used, ",\n");
  return self->buffer + self->used;
}

/* A JSON string in quotes; text is from outside and may be anything. */
static size_t append_string(char *place, const char *text) {
  char cut[EVENT / 8];
  snprintf(cut, sizeof cut, "%s", text);
  json_t *string = json_string(cut);
  char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
  size_t used = append_text(place, quoted ? quoted : "\"?\"");
  free(quoted);
  json_decref(string);
  return used;
}

/* Names of ranges are words of ours or a policy's; only an odd one needs care. */
static size_t append_name(char *place, const char *name) {
  size_t used = 0;
  place[used++] = '"';
  for (const char *letter = name; *letter; letter++) {
    if (*letter < ' ' || *letter > '~' || *letter == '"' || *letter == '\\' || used > EVENT / 8) {
      return append_string(place, name);
    }
    place[used++] = *letter;
  }
  place[used++] = '"';
  return used;
}

/* ---- time ---- */

/* The run's time at a moment of the wall clock. */
static uint64_t run_time(trace_events *self, uint64_t wall_ns) {
  uint64_t now_ns = wall_ns - self->begin_ns - self->paused_ns + self->modelled_ns;
  self->last_ns = now_ns;
  return now_ns;
}

/* The time since then was not the run's. Returns the moment at which it goes on. */
static uint64_t skip_since(trace_events *self, uint64_t wall_ns) {
  uint64_t now_ns = progress_clock_ns();
  self->paused_ns += now_ns - wall_ns;
  return now_ns;
}

/* ---- events ---- */

static size_t append_head(const trace_events *self, char *place, char phase, uint64_t time_ns) {
  size_t used = append_text(place, "{\"ph\":\"");
  place[used++] = phase;
  used += append_text(place + used, "\",\"pid\":");
  used += append_number(place + used, self->run);
  used += append_text(place + used, ",\"tid\":1,\"ts\":");
  return used + append_time(place + used, time_ns);
}

static size_t append_argument(char *place, const char *separator, const char *name, uint64_t value) {
  size_t used = append_text(place, separator);
  used += append_text(place + used, name);
  return used + append_number(place + used, value);
}

static void write_begin(trace_events *self, instrument_layer layer, const char *name, uint64_t time_ns,
                        const instrument_range *range) {
  char *place = event_room(self);
  size_t used = append_head(self, place, 'B', time_ns);
  used += append_text(place + used, ",\"cat\":\"");
  used += append_text(place + used, instrument_layer_name(layer));
  used += append_text(place + used, "\",\"name\":");
  used += append_name(place + used, name);
  if (range && (range->bytes || range->state)) {
    used += append_text(place + used, ",\"args\":{");
    if (range->bytes) used += append_argument(place + used, "", "\"bytes\":", range->bytes);
    if (range->state)
      used += append_argument(place + used, range->bytes ? "," : "", "\"state\":", range->state);
    used += append_text(place + used, "}");
  }
  used += append_text(place + used, "}");
  self->used += used;
  self->depth++;
}

static void write_end(trace_events *self, uint64_t time_ns, const instrument_range *range,
                      const instrument_outcome *outcome) {
  char *place = event_room(self);
  size_t used = append_head(self, place, 'E', time_ns);
  if (outcome && range->layer == INSTRUMENT_DRIVER && outcome->status != VMM_SUCCESS) {
    used += append_text(place + used, ",\"args\":{\"status\":\"");
    used += append_text(place + used, vmm_status_name(outcome->status));
    used += append_text(place + used, "\"}");
  } else if (outcome && range->layer != INSTRUMENT_DRIVER && outcome->driver_calls > 0) {
    used += append_argument(place + used, ",\"args\":{", "\"driver_calls\":", outcome->driver_calls);
    used += append_text(place + used, ",\"driver_us\":");
    used += append_time(place + used, outcome->driver_ns);
    used += append_text(place + used, "}");
  }
  used += append_text(place + used, "}");
  self->used += used;
  self->depth--;
}

static void write_name(trace_events *self, const char *what, const char *name, const char *more) {
  char joined[EVENT / 4];
  snprintf(joined, sizeof joined, "%s%s%s", name, *more ? " on " : "", more);
  char *place = event_room(self);
  size_t used = append_text(place, "{\"ph\":\"M\",\"pid\":");
  used += append_number(place + used, self->run);
  used += append_text(place + used, ",\"tid\":1,\"name\":\"");
  used += append_text(place + used, what);
  used += append_text(place + used, "\",\"args\":{\"name\":");
  used += append_string(place + used, joined);
  used += append_text(place + used, "}}");
  self->used += used;
}

static void write_counter(trace_events *self, const char *name, uint64_t time_ns, uint64_t bytes) {
  char *place = event_room(self);
  size_t used = append_head(self, place, 'C', time_ns);
  used += append_text(place + used, ",\"name\":\"");
  used += append_text(place + used, name);
  used += append_argument(place + used, "\",\"args\":{", "\"bytes\":", bytes);
  used += append_text(place + used, "}}");
  self->used += used;
}

/* ---- the instrument ---- */

static void run_begin(instrument *base, const instrument_run *run) {
  trace_events *self = (trace_events *)base;
  self->run++;
  self->modelled = run->modelled;
  self->in_run = true;
  self->paused_ns = self->modelled_ns = self->last_ns = 0;
  self->deeper = 0;
  self->memory = (instrument_memory){0};
  write_name(self, "process_name", run->policy, run->trace);
  write_name(self, "thread_name", run->modelled ? "operations, modelled driver time" : "operations", "");
  write_begin(self, INSTRUMENT_HARNESS, run->policy, 0, NULL);
  self->begin_ns = progress_clock_ns();
}

static void run_end(instrument *base) {
  trace_events *self = (trace_events *)base;
  if (!self->in_run) return;
  uint64_t time_ns = run_time(self, progress_clock_ns());
  /* A run that failed may leave ranges open. */
  while (self->depth > 0) write_end(self, time_ns, NULL, NULL);
  self->in_run = false;
  flush(self);
}

static void begin(instrument *base, const instrument_range *range) {
  trace_events *self = (trace_events *)base;
  uint64_t wall_ns = progress_clock_ns();
  if (self->depth == DEPTH) {
    self->deeper++;
    return;
  }
  write_begin(self, range->layer, range->name, run_time(self, wall_ns), range);
  uint64_t resumed_ns = skip_since(self, wall_ns);
  if (range->layer == INSTRUMENT_DRIVER) self->call_begin_ns = resumed_ns;
}

static void end(instrument *base, const instrument_range *range, const instrument_outcome *outcome) {
  trace_events *self = (trace_events *)base;
  uint64_t wall_ns = progress_clock_ns();
  if (self->deeper) {
    self->deeper--;
    return;
  }
  if (self->modelled && range->layer == INSTRUMENT_DRIVER) {
    /* The simulator's own work gives way to what the call would have taken. */
    self->paused_ns += wall_ns - self->call_begin_ns;
    self->modelled_ns += outcome->driver_ns;
  }
  write_end(self, run_time(self, wall_ns), range, outcome);
  skip_since(self, wall_ns);
}

static void pause_clock(instrument *base) { ((trace_events *)base)->pause_begin_ns = progress_clock_ns(); }

static void resume_clock(instrument *base) {
  trace_events *self = (trace_events *)base;
  skip_since(self, self->pause_begin_ns);
}

static void memory(instrument *base, const instrument_memory *now) {
  trace_events *self = (trace_events *)base;
  uint64_t wall_ns = progress_clock_ns(), time_ns = run_time(self, wall_ns);
  if (now->live_bytes != self->memory.live_bytes) write_counter(self, "live", time_ns, now->live_bytes);
  if (now->reserved_bytes != self->memory.reserved_bytes) {
    write_counter(self, "reserved", time_ns, now->reserved_bytes);
  }
  self->memory = *now;
  skip_since(self, wall_ns);
}

static bool destroy(instrument *base, char *message, size_t message_size) {
  trace_events *self = (trace_events *)base;
  run_end(base);
  flush(self);
  if (!self->seekable && !self->failure) {
    char ending[ENDING];
    write_fully(self, ending, write_ending(self, ending), 0);
  }
  if (close(self->file) != 0 && !self->failure) self->failure = errno;
  if (self->partial && (self->run == 0 || self->failure)) {
    unlink(self->partial);
  } else if (self->partial && rename(self->partial, self->path) != 0) {
    self->failure = errno;
    unlink(self->partial);
  }
  bool written = self->failure == 0;
  if (!written)
    snprintf(message, message_size, "%s could not be written: %s", self->path, strerror(self->failure));
  free(self->partial);
  free(self->path);
  free(self);
  return written;
}

static const instrument_class trace_events_class = {.name = "trace-events",
                                                    .run_begin = run_begin,
                                                    .run_end = run_end,
                                                    .begin = begin,
                                                    .end = end,
                                                    .pause = pause_clock,
                                                    .resume = resume_clock,
                                                    .memory = memory,
                                                    .destroy = destroy};

/* Under the name that it keeps when the program is killed: what is in it then can be read. */
static int open_file(const char *path, char **partial) {
  struct stat about;
  bool exists = lstat(path, &about) == 0;
  if (exists && !S_ISREG(about.st_mode)) return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (exists && access(path, W_OK) != 0) return -1;
  *partial = partial_file_name(path);
  return *partial ? open(*partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
}

instrument *instrument_trace_events_create(const char *path, char *message, size_t message_size) {
  trace_events *self = calloc(1, sizeof *self);
  char *copy = strdup(path), *partial = NULL;
  errno = ENOMEM;
  int file = self && copy ? open_file(path, &partial) : -1;
  struct stat kind;
  if (file < 0 || fstat(file, &kind) != 0) {
    snprintf(message, message_size, "%s cannot be written: %s", path,
             errno == EEXIST ? "it is being written already" : strerror(errno));
    if (file >= 0) close(file);
    if (file >= 0 && partial) unlink(partial);
    free(partial);
    free(copy);
    free(self);
    return NULL;
  }
  self->base = (instrument){&trace_events_class, INSTRUMENT_ALL_LAYERS};
  self->file = file;
  self->path = copy;
  self->partial = partial;
  self->seekable = S_ISREG(kind.st_mode);
  /* The first event needs no case of its own for the comma before it. */
  self->used = append_text(
      self->buffer,
      "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":\"lakebed\",\"clock\":\"each run's own, from "
      "0; on a simulated device driver calls take their modelled time\"},\"traceEvents\":[\n"
      "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"lakebed\"}}");
  flush(self);
  if (self->failure) {
    destroy(&self->base, message, message_size);
    return NULL;
  }
  return &self->base;
}
