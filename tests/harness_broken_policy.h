/* A policy with a fault, to see that a check finds it: one driver allocation a request otherwise. */
#ifndef LAKEBED_TESTS_HARNESS_BROKEN_POLICY_H
#define LAKEBED_TESTS_HARNESS_BROKEN_POLICY_H

#include "policies/policy.h"

typedef enum broken_fault {
  BROKEN_NOTHING,     /* sound */
  BROKEN_OVERLAP,     /* the third block of 1 MiB and more lies in the second */
  BROKEN_LEAK,        /* a freed block of 4 MiB and more is kept for ever */
  BROKEN_COUNT,       /* once trimmed, the statistics count a block too many */
  BROKEN_LOSS,        /* a request that fails has given away its block all the same */
  BROKEN_REFUSAL,     /* once a driver call has failed, no later request is served */
  BROKEN_SECOND_FREE, /* a second free succeeds */
  BROKEN_STREAM,      /* a recorded stream of number 2 is refused */
  BROKEN_SHORT,       /* requests of 3 MiB and more get half of it */
  BROKEN_FAULTS
} broken_fault;

/* A spec of it. */
policy_spec broken_policy_spec(broken_fault fault);

#endif
