/* CUPTI, loaded at run time: hears the driver's own calls as they are entered and left, and counts its
 * records of memory operations. One at a time in a process. */
#ifndef LAKEBED_HARNESS_INSTRUMENT_CUPTI_H
#define LAKEBED_HARNESS_INSTRUMENT_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/driver.h"

/* What the driver reported of its memory operations. */
typedef struct instrument_cupti_activity {
  char unavailable[256]; /* why there are no records; empty: there can be */
  uint64_t records, dropped;
  uint64_t allocations, releases; /* records of each kind */
  uint64_t allocated_bytes, released_bytes;
  uint64_t pool_peak_bytes, pool_used_peak_bytes; /* of the driver's stream-ordered pools */
} instrument_cupti_activity;

/* Of one run. */
typedef struct instrument_cupti_facts {
  char library[256];      /* what was loaded */
  uint32_t version;       /* its CUPTI_API_VERSION */
  uint64_t callbacks;     /* calls heard from entry to exit */
  uint64_t elsewhere;     /* calls on other threads, not in the breakdown */
  double overhead_ns;     /* what hearing a call adds to it; negative: could not be measured */
  char overhead_call[32]; /* measured with this call */
  instrument_cupti_activity activity;
} instrument_cupti_facts;

typedef struct instrument_cupti instrument_cupti;

/* Called at the exit of a driver call, on its thread. */
typedef void instrument_cupti_listener(void *context, vmm_call call, uint64_t duration_ns);

/* Loads the library and subscribes. The environment's LAKEBED_CUPTI names another library than the usual
 * ones. On failure returns NULL and says why: no library, another subscriber, no permission. */
instrument_cupti *instrument_cupti_open(char *why, size_t why_size);
/* A run begins: calls of this thread go to the listener. device: measures with it what hearing
 * a call costs; NULL: does not. */
void instrument_cupti_start(instrument_cupti *self, instrument_cupti_listener *listener, void *context,
                            vmm_driver *device);
/* The run is over: waits for outstanding records. */
void instrument_cupti_stop(instrument_cupti *self, instrument_cupti_facts *facts);
/* Accepts NULL. */
void instrument_cupti_close(instrument_cupti *self);

#endif
