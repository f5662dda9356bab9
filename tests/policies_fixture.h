/* What the tests of policies share: a policy over a metered simulated device, a check
 * that policy, heap and device agree, replays of traces from memory, and where traces lie. */
#ifndef LAKEBED_TESTS_POLICIES_FIXTURE_H
#define LAKEBED_TESTS_POLICIES_FIXTURE_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/lifetimes.h"
#include "policies/policy.h"
#include "vmm/meter.h"
#include "vmm/sim.h"
#include "workloads/trace.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
/* The H200's memory, of which PyTorch's memory fraction is a part. */
#define H200_BYTES UINT64_C(150109880320)

/* For loops: ck_assert tells the parent process of every assertion that holds. */
#define require(condition, ...)                  \
  do {                                           \
    if (!(condition)) ck_abort_msg(__VA_ARGS__); \
  } while (0)

typedef struct policies_fixture_options {
  const char *spec;
  const char *profile;    /* NULL: calls cost nothing */
  uint64_t capacity;      /* 0: the profile's, or 4 GiB */
  uint64_t limit;         /* 0: none */
  uint64_t address_limit; /* 0: the device's */
  uint64_t event_delay;
  bool backed;
  const policy_lifetimes *lifetimes; /* what an oracle is told; NULL: nothing */
} policies_fixture_options;

typedef struct policies_fixture {
  vmm_profile *profile;
  vmm_driver *sim, *meter;
  policy *policy;
} policies_fixture;

/* Fails the test when there is no such policy. */
void policies_fixture_open(policies_fixture *fixture, const policies_fixture_options *options);
/* Destroys the policy and finds nothing left on the device. */
void policies_fixture_close(policies_fixture *fixture);
/* policy_check, and that the heap holds what the device says. */
void policies_fixture_check(const policies_fixture *fixture, const char *where);
/* A served allocation; fails the test otherwise. */
vmm_address policies_alloc(policies_fixture *fixture, uint64_t size, vmm_stream stream);
void policies_free(policies_fixture *fixture, vmm_address address);
/* Driver calls of one kind, of every kind (but events and memory_info) since the beginning. */
uint64_t policies_calls(const policies_fixture *fixture, vmm_call call);
uint64_t policies_memory_calls(const policies_fixture *fixture);
/* A counter of the policy, or one of its operations, by name; fails the test when it has none. */
uint64_t policies_counter(const policies_fixture *fixture, const char *name);
const pool_operation *policies_operation(const policies_fixture *fixture, const char *name);

static inline const pool_statistics *policies_statistics(const policies_fixture *fixture) {
  return &fixture->policy->heap.statistics;
}

/* ---- traces ---- */

typedef struct policies_replay {
  const trace_events *events;
  vmm_address *addresses;   /* per slot; 0: not live */
  uint64_t *sizes;          /* per slot */
  uint64_t live, live_peak; /* each request rounded up to 512 bytes */
  uint64_t out_of_memory;
  uint64_t last_third_calls; /* memory calls after two thirds of the events of a lap */
} policies_replay;

void policies_replay_open(policies_replay *replay, const trace_events *events);
/* One lap, ending as the trace does. check_every: events between two checks; 0: none. */
void policies_replay_lap(policies_replay *replay, policies_fixture *fixture, uint64_t check_every);
/* Frees what is live. */
void policies_replay_free_all(policies_replay *replay, policies_fixture *fixture);
void policies_replay_close(policies_replay *replay);

/* What an oracle has to know to replay these events; the caller frees with lifetimes_free. */
policy_lifetimes policies_lifetimes(const trace_events *events, lifetimes *known);

/* All traces that can be reached, by name, sorted: those under workloads/bundled, and those of
 * the folder ../shared/traces beside the source tree where there is one. */
typedef struct policies_trace {
  char name[96];
  char path[1024];
  bool bundled;
  bool recording; /* of a training run, not a made-up event file */
} policies_trace;

size_t policies_traces(policies_trace *traces, size_t capacity);
/* The path of a folder of ../shared beside the source tree; NULL when it is not there. buffer: PATH_MAX
 * bytes.
 */
const char *policies_shared(const char *folder, char *buffer);
/* Fails the test when it cannot be read. */
void policies_trace_load(const policies_trace *found, trace_events *events);

/* ---- random numbers ---- */

/* LAKEBED_SEED or a fixed one. Printed with the test's name unless that is NULL, so that a failure can be
 * repeated. */
uint64_t policies_random_seed(const char *test);
uint64_t policies_random(uint64_t *state);
static inline uint64_t policies_random_below(uint64_t *state, uint64_t bound) {
  return policies_random(state) % bound;
}

#endif
