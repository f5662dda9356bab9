/* A static plan: an offset for every request of a trace that is known in advance, so that no two that are
 * live at the same time overlap and the highest end is low. This is dynamic storage allocation, which is
 * NP-hard: several greedy orders are tried, then changed where they failed, then, for few requests, a
 * search that may find that a bound can be met. All of it is deterministic.
 *
 * Sizes and offsets are bytes. Not thread-safe. */
#ifndef LAKEBED_POLICIES_PLAN_H
#define LAKEBED_POLICIES_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "policies/policy.h"

/* A request in the plan. Time is cut into sections: in the middle of one only allocations happen, so that a
 * section's last moment has everything live that is live in it. */
typedef struct plan_block {
  uint64_t size;       /* rounded up */
  uint64_t offset;     /* the answer */
  uint32_t begin, end; /* sections, half open */
  bool optional;       /* placed after all others: see plan_settings.room */
} plan_block;

/* Blocks placed one after the other, each as low as it fits. The last one takes O(n log n) and is always
 * tried; the others are given up when the effort is spent. */
typedef enum plan_order {
  PLAN_BY_SIZE,     /* the largest first */
  PLAN_BY_AREA,     /* size x life */
  PLAN_BY_LIFETIME, /* the longest first */
  PLAN_BY_START,    /* as they come: first fit without knowing the future */
  PLAN_ORDERS
} plan_order;

typedef struct plan_settings {
  uint64_t quantum;   /* sizes are rounded up to this */
  uint64_t precision; /* plans that need as many of these are as good */
  uint64_t effort;    /* steps, some nanoseconds each, after which whatever is being tried is given up */
  /* Memory that there is. Requests that failed when recorded are placed after all others, so that they
   * displace nothing. Where they come to lie higher than they need to, they are placed among the others
   * instead, if all fit in here; one that does not fit beside what is live with it stays last. */
  uint64_t room;
} plan_settings;

typedef struct plan {
  plan_block *blocks; /* a request each, in their order */
  uint64_t count;
  uint32_t sections;
  uint64_t peak;                     /* the highest end of a block that is not optional */
  uint64_t lower_bound;              /* the most of these that is live at once: no plan's peak is lower */
  uint64_t order_peaks[PLAN_ORDERS]; /* of each order tried, else 0 */
  uint64_t rounds;                   /* of improvement */
  uint64_t nodes;                    /* of the search */
  uint64_t steps;                    /* spent in all */
} plan;

/* Plans for all requests. INVALID_VALUE for sizes whose sum is no uint64_t, ends that are not after their
 * begin, or more than 2^31 requests; OUT_OF_MEMORY when the host has none. The caller frees with plan_free.
 * An order takes O(n log^2 n) as long as the sets of plan_space.h stay short. */
vmm_status plan_make(const policy_lifetimes *requests, const plan_settings *settings, plan *made);
void plan_free(plan *made);

/* From 0 to below 1, for choices of a plan: xorshift (Marsaglia, 2003). *state is not 0. */
double plan_random(uint64_t *state);

#endif
