/* How long every allocation of a trace lives, for policies that have to know before it is replayed. The
 * order and the kinds of frees are those of the replay. */
#ifndef LAKEBED_HARNESS_LIFETIMES_H
#define LAKEBED_HARNESS_LIFETIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/event_source.h"
#include "policies/policy.h"

typedef struct lifetimes {
  policy_lifetime *items;
  uint64_t count, capacity;
  uint64_t *slots; /* of each slot: 0: nothing that the policy is asked for; else 1 more than the request that
                      lives there */
  uint32_t slot_count;
} lifetimes;

/* Adds the next event of a trace; events go to an empty struct. frees_requested: memory is freed where its
 * free was requested. false when the host has no memory. Amortised O(1). */
bool lifetimes_add(lifetimes *known, const trace_event *event, bool frees_requested);
/* All events have been added: what the policy is told, borrowed. O(slots). */
policy_lifetimes lifetimes_end(lifetimes *known);
/* The lifetimes of a source, from its beginning; the caller frees them after a failure too. */
trace_status lifetimes_read(event_source *source, bool frees_requested, lifetimes *known, trace_error *error);
void lifetimes_free(lifetimes *known);

#endif
