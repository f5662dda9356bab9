/* Random programs of alloc, free, record_stream, trim and ticks over a policy, against a
 * simple model of what must be live. Every step is checked. */
#ifndef LAKEBED_TESTS_POLICIES_PROGRAM_H
#define LAKEBED_TESTS_POLICIES_PROGRAM_H

#include "tests/policies_fixture.h"

enum { PROGRAM_LIVE = 256, PROGRAM_SIZES = 14 };

typedef struct policies_program {
  policies_fixture *fixture;
  uint64_t random;    /* set to a seed before the first step */
  uint32_t streams;   /* at least 1 */
  uint64_t largest;   /* bytes of a request; 0: 24 MiB */
  uint64_t room;      /* live bytes to stay below; 0: 256 MiB */
  bool failing;       /* driver calls are made to fail: requests may end in errors */
  bool failing_twice; /* more than one: a request may end in an error after it emptied caches */
  bool may_run_out;   /* out of memory is no surprise */

  uint64_t steps;
  uint64_t sizes[PROGRAM_SIZES]; /* what is asked for again and again */
  struct {
    vmm_address address;
    uint64_t size;
  } live[PROGRAM_LIVE];
  uint32_t live_count;
  uint64_t live_bytes;
  uint64_t served, out_of_memory, errors; /* outcomes of allocations */
  uint64_t refused_frees;                 /* frees, record_streams and trims that failed */
  uint64_t digest;                        /* of all addresses and outcomes */
} policies_program;

/* One step, then the checks: policy, heap and device agree, what is live is accessible, overlaps
 * nothing, and the statistics count it; a request that failed has changed nothing. */
void policies_program_step(policies_program *program);
/* Frees all that is live; every free must succeed. */
void policies_program_free_all(policies_program *program);

/* What a failed request or free must not change. */
typedef struct policies_holdings {
  uint64_t allocations, allocated, pending;
  uint64_t reserved; /* but chunks that the driver would not take back */
} policies_holdings;

policies_holdings policies_holdings_of(const policies_fixture *fixture);

/* The specs to test all policies with: each registered one with its defaults, and others with
 * options that matter. NULL-terminated. Those that must know the whole trace are left out. */
const char *const *policies_specs(void);

#endif
