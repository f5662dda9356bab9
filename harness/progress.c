#include "harness/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "harness/units.h"

static const uint64_t redraw_ns = 100 * 1000 * 1000;

uint64_t progress_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void progress_init(progress *self, bool quiet) {
  memset(self, 0, sizeof *self);
  self->quiet = quiet;
  const char *kind = getenv("TERM");
  self->terminal = isatty(STDERR_FILENO) && (!kind || strcmp(kind, "dumb") != 0);
}

void progress_begin(progress *self, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(self->label, sizeof self->label, format, arguments);
  va_end(arguments);
  self->begin_ns = progress_clock_ns();
  self->next_ns = 0;
}

/* Columns of the terminal, so that the line is not broken and redrawing reaches all of it. */
static int line_width(void) {
  struct winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 79;
  return size.ws_col - 1;
}

void progress_update(progress *self, double share, uint64_t events, uint64_t held_bytes) {
  if (self->quiet || !self->terminal) return;
  uint64_t now = progress_clock_ns();
  if (now < self->next_ns) return;
  self->next_ns = now + redraw_ns;
  double seconds = (double)(now - self->begin_ns) * 1e-9;
  char percent[16] = "", rate[UNITS_TEXT], count[UNITS_TEXT], held[UNITS_TEXT + 16] = "";
  if (share >= 0) snprintf(percent, sizeof percent, "%3.0f %%  ", 100 * (share < 1 ? share : 1));
  units_count(events, count);
  units_significant(seconds > 0 ? (double)events / seconds * 1e-6 : 0, rate);
  if (held_bytes != UINT64_MAX) {
    char bytes[UNITS_TEXT];
    units_bytes(held_bytes, bytes);
    snprintf(held, sizeof held, "  %s reserved", bytes);
  }
  char line[384];
  snprintf(line, sizeof line, "%s  %s%s events  %s M/s%s", self->label, percent, count, rate, held);
  fprintf(stderr, "\r\033[K%.*s", line_width(), line);
  fflush(stderr);
  self->drawn = true;
}

void progress_say(progress *self, double share, const char *format, ...) {
  static const uint64_t rest_ns = 10 * UINT64_C(1000000000);
  if (self->quiet) return;
  uint64_t now = progress_clock_ns();
  if (self->next_ns == 0 && !self->terminal) self->next_ns = now + rest_ns;
  if (now < self->next_ns) return;
  self->next_ns = now + (self->terminal ? redraw_ns : rest_ns);
  char said[256], percent[16] = "", line[512];
  if (share >= 0) snprintf(percent, sizeof percent, "%3.0f %%  ", 100 * share);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(said, sizeof said, format, arguments);
  va_end(arguments);
  snprintf(line, sizeof line, "%s  %s%s", self->label, percent, said);
  if (self->terminal) {
    fprintf(stderr, "\r\033[K%.*s", line_width(), line);
  } else {
    fprintf(stderr, "%s\n", line);
  }
  fflush(stderr);
  self->drawn = self->terminal;
}

void progress_end(progress *self, const char *outcome) {
  if (self->quiet) return;
  progress_clear(self);
  if (self->terminal) return;
  char spent[UNITS_TEXT];
  units_time(progress_clock_ns() - self->begin_ns, spent);
  fprintf(stderr, "%s  %s in %s\n", self->label, outcome, spent);
}

void progress_clear(progress *self) {
  if (!self->drawn) return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
  self->drawn = false;
}
