/* A driver around the simulated device that knows which work comes after which: every call that orders
 * streams, or lets the host see how far they are, moves a vector clock. With it a test can tell
 * whether memory is given away while a stream may still be using it: through the same address, or
 * another one of the same physical memory. */
#ifndef LAKEBED_TESTS_POLICIES_WATCH_H
#define LAKEBED_TESTS_POLICIES_WATCH_H

#include "tests/policies_fixture.h"

/* Streams 0 to 4 are the test's; a policy's own, whatever its number, is the last one. */
enum { WATCH_STREAMS = 6, WATCH_OWN_STREAM = 5, WATCH_USES = 4096, WATCH_LIVE = 64, WATCH_PARTS = 64 };

/* For each stream, how many pieces of its work are known to be over. */
typedef struct watch_clock {
  uint64_t seen[WATCH_STREAMS];
} watch_clock;

/* A run of physical bytes. */
typedef struct watch_part {
  uint64_t physical, size;
} watch_part;

/* A block and the work on it. */
typedef struct watch_block {
  vmm_address address;
  uint64_t size;
  vmm_stream stream;               /* that it was allocated on */
  bool recorded[WATCH_STREAMS];    /* streams that may work on it, its own included */
  uint64_t last[WATCH_STREAMS];    /* each stream's last piece of work on it, from 1; 0: none */
  uint64_t done_at[WATCH_STREAMS]; /* tick at which that is over */
  watch_part parts[WATCH_PARTS];
  uint32_t part_count;
} watch_block;

typedef struct watch_event {
  vmm_event event; /* 0: discarded */
  watch_clock clock;
} watch_event;

/* What the device is made to do wrong, so that a test sees that it would be caught. */
typedef enum watch_fault {
  WATCH_SOUND,
  WATCH_LIES,  /* event_query says at once that an event is reached */
  WATCH_DEAF,  /* stream_wait_event makes no stream wait */
  WATCH_HASTY, /* synchronize does not wait */
} watch_fault;

typedef struct watch {
  vmm_driver driver; /* first: what the policy gets */
  vmm_driver *sim;
  watch_fault fault;
  bool driver_reuses;               /* memory is the driver's own pool's: it sees by itself what is over */
  uint64_t delay, now;              /* ticks */
  uint64_t work[WATCH_STREAMS];     /* pieces given to each stream */
  watch_clock order[WATCH_STREAMS]; /* work given to a stream from now on comes after this */
  watch_clock host;                 /* what the host has seen to be over */
  watch_event events[1024];
  uint32_t event_count;
  watch_block live[WATCH_LIVE];
  uint32_t live_count;
  watch_block *uses; /* freed blocks whose work the host has not seen to be over */
  uint32_t use_count;
  uint64_t violations;
  char first_violation[256];
} watch;

/* A fresh device of this size; events are reached so many ticks after they were recorded. */
void watch_open(watch *self, uint64_t capacity, uint64_t delay);
/* Destroys the device, which must be empty. */
void watch_close(watch *self);
/* Time passes. */
void watch_tick(watch *self);
/* A policy handed out a block on a stream: a violation if work of others may still be using it. */
void watch_handed_out(watch *self, vmm_address address, uint64_t size, vmm_stream stream);
/* A stream that may works on a live block. */
void watch_work(watch *self, uint32_t live, vmm_stream stream);
/* The caller frees a live block: to be called just before the policy's free. */
void watch_freed(watch *self, uint32_t live);

#endif
