/* Results of 'lakebed stress' and 'lakebed faults', for people and programs. docs/reliability.md defines
 * them. */
#ifndef LAKEBED_HARNESS_STRESS_OUTPUT_H
#define LAKEBED_HARNESS_STRESS_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include "harness/stress_faults.h"
#include "harness/stress_run.h"

/* What all results of a call have in common. */
typedef struct stress_group {
  const char *name; /* "stress" */
  const device_model *model;
  const char *command, *date;
  uint64_t limit;
  uint64_t seed;
  uint32_t threads, streams;
  bool verify, slow_kernels;
} stress_group;

/* All programs of a policy. */
typedef struct stress_total {
  const policy_spec *spec;
  stress_result sum; /* peaks: the highest; the finding, if there is one */
  uint64_t programs;
  uint64_t seed; /* of the program with the finding */
} stress_total;

/* Adds a run to the total. */
void stress_total_add(stress_total *total, const stress_result *result);

void stress_output_header(const stress_group *group, FILE *stream);
void stress_output_table(const stress_total *totals, size_t count, FILE *stream);
void stress_output_csv(const stress_group *group, const stress_total *totals, size_t count, FILE *stream);
/* An object a policy. false when the host has no memory. */
bool stress_output_json(const stress_group *group, const stress_total *totals, size_t count, json_t *array);

/* Faults of one policy over one program. */
typedef struct fault_row {
  const policy_spec *spec;
  const char *program; /* name of the trace, or "random-1" */
  bool pairs;
  fault_report report;
} fault_row;

void fault_output_table(const fault_row *rows, size_t count, FILE *stream);
/* Of each policy, over all programs: how often each stage is gone through, and the calls that failed inside.
 */
void fault_output_stages(const fault_row *rows, size_t count, FILE *stream);
void fault_output_csv(const stress_group *group, const fault_row *rows, size_t count, FILE *stream);
bool fault_output_json(const stress_group *group, const fault_row *rows, size_t count, json_t *array);

#endif
