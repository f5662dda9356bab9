/* One replay: one trace through one policy over one fresh device, and everything that is
 * measured on the way. docs/numbers.md defines each number. */
#ifndef LAKEBED_HARNESS_REPLAY_H
#define LAKEBED_HARNESS_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/device.h"
#include "harness/event_source.h"
#include "harness/exit_status.h"
#include "harness/instruments.h"
#include "harness/memory_map.h"
#include "harness/progress.h"
#include "harness/replay_dump.h"
#include "harness/replay_failure.h"
#include "harness/replay_iterations.h"
#include "harness/timeline.h"
#include "policies/policy.h"

typedef struct replay_settings {
  const device_model *model;
  uint64_t limit;           /* most bytes a policy may hold; UINT64_MAX: none */
  double limit_fraction;    /* of the device that the limit was given as; 0: as bytes */
  uint64_t laps;            /* times the trace is replayed, at least 1 */
  bool frees_requested;     /* memory is freed where its free was requested, not where it completed */
  bool stop_at_failure;     /* the run ends at the first request that finds no memory */
  bool check;               /* the policy's invariants after every event */
  bool verify;              /* every allocation is filled, and compared before its free */
  size_t timeline_points;   /* 0: no timeline */
  bool iterations;          /* tell iterations apart; their marks have been found in the source */
  replay_dump dump;         /* when to map all memory */
  instruments *instruments; /* borrowed; NULL: none */
  const char *trace;        /* its name, for the instruments; NULL: none */
} replay_settings;

/* What one kind of driver call cost. */
typedef struct replay_call {
  uint64_t count, failures;
  uint64_t total_ns, p50_ns, p99_ns;
} replay_call;

/* A lap's end: with several laps after all has been freed, else as the trace leaves it. */
typedef struct replay_lap {
  uint64_t events;
  uint64_t failed_allocs;
  uint64_t driver_calls, driver_ns; /* of this lap alone */
  uint64_t allocated_bytes, reserved_bytes, address_bytes;
  uint64_t segments, chunks, ranges;
  uint64_t split_blocks; /* free blocks with a neighbour */
  uint64_t largest_free_bytes;
} replay_lap;

/* A request that the recorded run could not serve, made again at that point and freed at once. */
typedef struct replay_probe {
  bool served;
  uint64_t recorded_free_bytes; /* of the device, as recorded; 0: not recorded */
  replay_failure state; /* how things stood when it had been answered; of a served one, before its free */
} replay_probe;

enum { REPLAY_PROBES = 64 }; /* the first so many are kept */

enum { REPLAY_MESSAGE = 1024 };

typedef struct replay_result {
  const policy_spec *spec;      /* borrowed */
  exit_status status;           /* DONE, OUT_OF_MEMORY: went to the end; else it failed */
  bool complete;                /* all events were replayed and the numbers hold */
  bool trace_failed;            /* the trace cannot be read to its end */
  bool stopped;                 /* at a failure, as asked */
  char message[REPLAY_MESSAGE]; /* why it failed */

  uint64_t events; /* replayed: allocations and frees, all laps */
  uint64_t live_peak_bytes;
  uint64_t failed_allocs;
  uint64_t recorded_ooms;        /* requests that the recorded run could not serve */
  uint64_t recorded_ooms_served; /* of these, by this policy */
  pool_statistics statistics;    /* before the last lap's memory was given back */
  uint64_t device_held_bytes;    /* by the device's own account, at the same time; UINT64_MAX: it has none */
  uint64_t device_peak_bytes;    /* the most of it after an event */
  replay_call calls[VMM_CALL_COUNT];
  uint64_t driver_calls, driver_ns;
  uint64_t host_ns; /* wall time of the replay loop, reading left out */
  pool_operation operations[POOL_OPERATION_LIMIT];
  unsigned operation_count;
  policy_counter counters[REPLAY_COUNTERS];
  size_t counter_count;

  replay_lap *laps;
  uint64_t lap_count;
  uint64_t settled_lap; /* from this lap on every lap is like the last; 0: the last one still differs */
  char drift[256];      /* what grew in the last lap; empty: nothing */

  replay_failure first_failure; /* when failed_allocs > 0 */
  uint8_t *failed_events;       /* a bit an event */
  uint64_t failed_events_bytes;

  replay_probe *probes; /* min(recorded_ooms, REPLAY_PROBES) of them */

  timeline_point *timeline;
  size_t timeline_count;

  replay_iterations iterations;

  memory_map *map;      /* NULL: there is none */
  char map_reason[128]; /* why; empty: none was asked for */

  instrument_report *latency; /* NULL: nothing measured it */
} replay_result;

/* Replays the source, from its beginning, through a policy. Never stops the program: what goes
 * wrong is in the result, which the caller frees. */
void replay_run(event_source *source, const policy_spec *spec, const replay_settings *settings,
                progress *shown, replay_result *result);
void replay_result_free(replay_result *result);

/* Did this run serve the request with this number? */
bool replay_served(const replay_result *result, uint64_t number);

/* Peak live over peak reserved; negative where nothing was reserved. */
double replay_utilization(const replay_result *result);

/* The project's measure of a live request: its size rounded up to 512 bytes. */
static inline uint64_t replay_live_size(uint64_t size) { return (size + 511) & ~UINT64_C(511); }

#endif
