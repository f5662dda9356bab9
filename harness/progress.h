/* Progress on standard error: one line that is drawn again and again on a terminal;
 * otherwise one line when a part is done. */
#ifndef LAKEBED_HARNESS_PROGRESS_H
#define LAKEBED_HARNESS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
  bool terminal;
  bool quiet;
  bool drawn;
  uint64_t next_ns;
  uint64_t begin_ns;
  char label[160];
} progress;

void progress_init(progress *self, bool quiet);
/* A new part begins: what it is. */
void progress_begin(progress *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* share: 0 to 1, or negative when unknown. held_bytes UINT64_MAX: nothing to say of memory. Draws at most ten
 * times a second. */
void progress_update(progress *self, double share, uint64_t events, uint64_t held_bytes);
/* The same of work that is counted in other things: share and what else there is to say. Where there is no
 * terminal, a line every ten seconds. */
void progress_say(progress *self, double share, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The part is over. outcome: a few words. */
void progress_end(progress *self, const char *outcome);
/* Takes the line off the screen, so that something else can be printed. */
void progress_clear(progress *self);

/* Nanoseconds of a clock that only goes forward. */
uint64_t progress_clock_ns(void);

#endif
