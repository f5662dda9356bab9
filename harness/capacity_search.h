/* The smallest simulated device on which a policy serves a whole trace, by bisection over replays. */
#ifndef LAKEBED_HARNESS_CAPACITY_SEARCH_H
#define LAKEBED_HARNESS_CAPACITY_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/replay.h"
#include "vmm/sim.h"

#define CAPACITY_STEP_BYTES (UINT64_C(2) << 20)
#define CAPACITY_LARGEST_BYTES VMM_SIM_LARGEST_CAPACITY

/* What a trace needs whatever the policy. */
typedef struct capacity_need {
  uint64_t live_peak_bytes; /* requests rounded up to 512 bytes; the recorded run's failed ones included */
  uint64_t requested_peak_bytes; /* as asked for */
  uint64_t events;
} capacity_need;

typedef struct capacity_result {
  const policy_spec *spec; /* borrowed */
  exit_status status;      /* DONE; OUT_OF_MEMORY: not even the largest device does; else a replay failed */
  char message[REPLAY_MESSAGE]; /* of the replay that failed */
  bool found;
  bool trace_failed;

  uint64_t capacity_bytes; /* the smallest that serves everything; one step less does not */
  pool_statistics statistics;
  uint64_t driver_ns;                 /* there */
  uint64_t roomy_reserved_peak_bytes; /* on a device with room to spare */
  bool knows_below;                   /* a replay one step below has shown what fails */
  bool below_is_probe;                /* and it is a request that failed when recorded */
  replay_failure below;
  unsigned replays;
} capacity_result;

/* Searches for one policy. settings: model (simulated; its capacity does not matter), frees_requested. need:
 * see capacity_need. About log2(bytes between live and reserved peak / 2 MiB) + 2 replays, each over at the
 * first request that fails. Assumes that more memory never serves less; the answer serves and the step below
 * does not, whether that is so or not. */
void capacity_search(event_source *source, const policy_spec *spec, const replay_settings *settings,
                     const capacity_need *need, progress *shown, capacity_result *result);

#endif
