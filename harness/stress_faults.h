/* Every driver call of a policy made to fail, one at a time, and then another while the first failure is
 * cleaned up after: on the simulated device, over a program that is served without failures. */
#ifndef LAKEBED_HARNESS_STRESS_FAULTS_H
#define LAKEBED_HARNESS_STRESS_FAULTS_H

#include "harness/stress_run.h"

/* Failures of one kind of call. Every run counts once in served, out_of_memory, errors or refused: what
 * became of the steps on the way. */
typedef struct fault_counts {
  uint64_t runs;          /* in which a call failed */
  uint64_t served;        /* nothing was seen of it */
  uint64_t out_of_memory; /* a request was told so, and served when made again */
  uint64_t errors;        /* a request got another failure, and was served when made again */
  uint64_t refused;       /* a free, trim or record_stream was, and done when made again; a trim or
                             record_stream may have stayed undone */
  uint64_t rolled_back, emptied, kept; /* requests that failed: see stress_counts */
} fault_counts;

/* What the policy does, by the names of its heap: "S4", "stitch". */
typedef struct fault_stage {
  const char *name;             /* static */
  uint64_t times;               /* in the program without failures */
  uint64_t times_with_failures; /* in all runs with failures together */
  uint64_t runs;                /* whose first failing call lay inside, maybe nested */
} fault_stage;

typedef struct fault_settings {
  const device_model *model; /* simulated */
  const policy_spec *spec;
  uint64_t limit;
  bool pairs;           /* two failures: the second one of a call that builds or undoes mappings */
  uint64_t part, parts; /* every parts-th run, from number part on; 0 of 1: all */
} fault_settings;

typedef struct fault_report {
  uint64_t steps;                     /* of the program */
  uint64_t clean_calls;               /* driver calls of the program without failures */
  fault_counts calls[VMM_CALL_COUNT]; /* by the call that failed first */
  fault_stage stages[POOL_OPERATION_LIMIT];
  unsigned stage_count;
  bool failed;
  stress_result result; /* failed: the finding */
  stress_program found; /* failed: the program with its failures; to be freed */
  char message[256];    /* why there is no report */
} fault_report;

/* false: message says why. A finding ends the report and is told in it; so does a program that is not served
 * without failures. */
bool stress_faults(const fault_settings *settings, const stress_program *program, progress *shown,
                   fault_report *report);

#endif
