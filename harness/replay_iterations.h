/* What a policy did in each iteration of the recorded run, and from which one on it has settled. An iteration
 * ends where the trace says that one ended (trace_marks), and at the end of a lap. */
#ifndef LAKEBED_HARNESS_REPLAY_ITERATIONS_H
#define LAKEBED_HARNESS_REPLAY_ITERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policies/policy.h"

enum { REPLAY_COUNTERS = 64 };

typedef struct replay_iteration {
  uint64_t lap, number; /* number: within the lap, from 1 */
  uint64_t events, allocations, failed_allocs;
  uint64_t driver_calls, driver_ns;
  uint64_t memory_calls;                           /* of them, those that take, give back or map memory */
  uint64_t live_peak_bytes, reserved_peak_bytes;   /* within the iteration */
  uint64_t reserved_bytes;                         /* at its end */
  pool_operation operations[POOL_OPERATION_LIMIT]; /* of this iteration alone */
  uint64_t counters[REPLAY_COUNTERS];              /* the policy's, at its end */
} replay_iteration;

/* The iterations of a run. */
typedef struct replay_iterations {
  replay_iteration *items;
  size_t count, capacity;
  bool marked; /* the trace says where they end; else they are laps */
  bool states; /* the policy has states S1 to S5 */
  /* From this index on there was no state but S1; no driver call for memory. count: not in the last one
   * either. */
  size_t exact_from, quiet_from;
} replay_iterations;

/* Was there a state besides S1? */
bool replay_iteration_is_exact(const replay_iteration *iteration);
/* Finds states, exact_from and quiet_from. O(iterations). */
void replay_iterations_settle(replay_iterations *iterations);

#endif
