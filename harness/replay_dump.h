/* When a replay makes a map of memory, and where it goes. */
#ifndef LAKEBED_HARNESS_REPLAY_DUMP_H
#define LAKEBED_HARNESS_REPLAY_DUMP_H

#include <stdbool.h>
#include <stdint.h>

typedef enum replay_dump_moment {
  REPLAY_DUMP_NEVER,
  REPLAY_DUMP_EVENT, /* after the event of that number, over all laps, from 0 */
  REPLAY_DUMP_PEAK,  /* when live memory is as much as it ever is for the first time: takes a second replay */
  REPLAY_DUMP_OOM    /* when a request finds no memory for the first time */
} replay_dump_moment;

typedef struct replay_dump {
  replay_dump_moment moment;
  uint64_t event; /* EVENT */
  bool unprinted; /* maps go to files only */
} replay_dump;

#endif
