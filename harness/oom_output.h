/* What 'lakebed oom' found out about one trace, and how it is written. docs/numbers.md defines the keys. */
#ifndef LAKEBED_HARNESS_OOM_OUTPUT_H
#define LAKEBED_HARNESS_OOM_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "harness/capacity_search.h"
#include "harness/policy_specs.h"
#include "workloads/trace.h"

/* Where the device on which recorded failures are judged comes from. */
typedef enum oom_judge {
  OOM_JUDGE_OPTION,   /* --capacity */
  OOM_JUDGE_RECORDED, /* segments and free memory when the recording ended in a failure */
  OOM_JUDGE_DEVICE    /* the simulated device */
} oom_judge;

/* A policy on the device on which the recorded run, or one like it, failed. */
typedef struct oom_verdict {
  bool known;    /* the replay went well */
  bool survives; /* serves everything, the request that failed when recorded too */
  bool is_probe; /* what it fails at is a request that failed when recorded */
  replay_failure failure;
} oom_verdict;

typedef struct oom_group {
  const char *path;
  const device_model *model;
  bool frees_requested;
  trace_summary summary;
  capacity_need need;
  const replay_probe *recorded; /* the requests that failed when recorded, up to REPLAY_PROBES */
  uint64_t recorded_count;      /* of them, all */
  oom_judge judge;
  uint64_t judge_capacity; /* 0: nothing to judge */
  const policy_specs *specs;
  const capacity_result *results;
  const oom_verdict *verdicts; /* one each, when there is something to judge */
  size_t count;
} oom_group;

void oom_report_print(const oom_group *group, FILE *stream);
/* Appends an object a policy to an array. Returns false when there is no memory. */
bool oom_json_append(json_t *array, const oom_group *group);
void oom_csv_header(FILE *stream);
void oom_csv_rows(const oom_group *group, FILE *stream);

#endif
