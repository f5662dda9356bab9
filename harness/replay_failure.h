/* How things stood when a request found no memory. docs/numbers.md defines each number. */
#ifndef LAKEBED_HARNESS_REPLAY_FAILURE_H
#define LAKEBED_HARNESS_REPLAY_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/device.h"
#include "policies/policy.h"
#include "workloads/trace.h"

/* Who said no. */
typedef enum replay_refusal {
  REPLAY_REFUSED_BY_DEVICE, /* a driver call was refused */
  REPLAY_REFUSED_BY_LIMIT,  /* the driver was not asked, or agreed: more would be past the limit */
  REPLAY_REFUSED_BY_POLICY  /* there is no limit either: the policy knows that it cannot be served */
} replay_refusal;

/* Runs of free memory that a policy keeps, by size: bin b has those of 2^b to 2^(b+1)-1 bytes. */
typedef struct replay_free_ranges {
  uint64_t count[64], bytes[64];
} replay_free_ranges;

typedef struct replay_failure {
  uint64_t number;     /* over all laps, from 0: what replay_served takes */
  uint64_t lap, event; /* event: within the lap, from 0 */
  uint64_t id, size;
  uint32_t stream;
  uint64_t live_bytes, allocated_bytes, reserved_bytes, largest_free_bytes;
  bool knows_largest_free, knows_free_ranges; /* the policy can say */
  replay_free_ranges free_ranges;
  uint64_t device_free_bytes; /* UINT64_MAX: the device does not say */
  replay_refusal refused_by;
  char driver_error[256]; /* empty: the driver was not asked, or agreed */
} replay_failure;

/* Describes the situation of a policy on a device; number, lap and event are the caller's to set. */
void replay_failure_describe(replay_failure *failure, const trace_event *event, const policy *subject,
                             const device *gpu, uint64_t live_bytes);

/* "limit", "device", "policy". Static. */
const char *replay_refusal_name(replay_refusal refusal);

#endif
