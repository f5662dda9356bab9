/* What 'lakebed doctor' looks at, and what it found. */
#ifndef LAKEBED_HARNESS_DOCTOR_H
#define LAKEBED_HARNESS_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "harness/exit_status.h"

typedef enum doctor_outcome {
  DOCTOR_OK,
  DOCTOR_NOTE,    /* good to know */
  DOCTOR_MISSING, /* something optional is not there */
  DOCTOR_FAILED   /* a real device cannot be used, or not as it should */
} doctor_outcome;

typedef struct doctor {
  bool quiet;   /* nothing for people */
  json_t *json; /* the findings and what belongs to them */
  exit_status status;
} doctor;

/* One finding: a line for people, an entry of "findings". */
void doctor_find(doctor *self, doctor_outcome outcome, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A finding after which the program ends with this status at least. */
void doctor_fail(doctor *self, exit_status status, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Looks at a real device and tries it; says everything there is to say about it. probe_memory: also takes
 * all of its free memory for a moment. */
void doctor_device(doctor *self, unsigned ordinal, bool probe_memory);

#endif
