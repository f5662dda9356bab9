/* How long driver calls took, split by the operations that caused them: on our own clock (what the meter
 * counts: modelled by sim, measured by cuda) and, where it is to be had, on CUPTI's callbacks. */
#ifndef LAKEBED_HARNESS_INSTRUMENT_LATENCY_H
#define LAKEBED_HARNESS_INSTRUMENT_LATENCY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "harness/instrument.h"
#include "harness/instrument_cupti.h"
#include "harness/instrument_histogram.h"

/* All calls of one kind that one path of nested operations made. */
typedef struct instrument_latency {
  char path[128]; /* "alloc/S4/grow"; "none" for calls outside of all operations */
  vmm_call call;
  instrument_histogram own, cupti;
} instrument_latency;

typedef struct instrument_report {
  instrument_latency *rows; /* outer operations before nested ones */
  size_t count;
  uint64_t lost;               /* calls that found no memory to be counted in */
  double own_overhead_ns;      /* what reading our clock twice costs */
  bool modelled;               /* our clock's times are a model's */
  char cupti_unavailable[512]; /* why; empty: CUPTI took part */
  instrument_cupti_facts cupti;
} instrument_report;

/* Measures. cupti: owned from now on, also on failure; NULL when it is unavailable, which why says. NULL when
 * the host has no memory. */
instrument *instrument_latency_create(instrument_cupti *cupti, const char *why);
/* What was measured since the run began; the instrument measures no more until the next run. NULL when
 * the host has no memory, or when there was nothing to measure. */
instrument_report *instrument_latency_report(instrument *self);

/* Sets "cupti", "own_clock" and "call_latency" of a result's object. host_timing: also times of
 * this machine's own work. Returns false when there is no memory. */
bool instrument_report_json(const instrument_report *report, json_t *object, bool host_timing);
/* The breakdown as a table. */
void instrument_report_print(const instrument_report *report, FILE *stream);
/* Accepts NULL. */
void instrument_report_free(instrument_report *report);

#endif
