/* Programs for policies: lists of steps that can be made from a seed, written as text, read back and cut
 * down.
 *
 * A step that names a block that is not there (its request found no memory, or was cut away) does nothing,
 * so that any part of a program is a program. As text, a line a step; '#' begins a comment:
 *
 *   a ID SIZE STREAM   ask for a block
 *   f ID               free it
 *   r ID STREAM        the stream uses it too, and writes it
 *   w ID               write it once more; nobody waits for that before it is freed
 *   s STREAM           a slow kernel begins on the stream (on a real device)
 *   t                  trim
 *   l SIZE             set the limit; "unlimited" is none
 *   k                  device work goes on by one step (on the simulated device)
 *   x CALL K STATUS    the K-th call of this kind from now on fails (on the simulated device):
 *                      x cuMemMap 1 2
 *   y CALL STATUS      once a driver call has failed, the next call of this kind fails too */
#ifndef LAKEBED_HARNESS_STRESS_PROGRAM_H
#define LAKEBED_HARNESS_STRESS_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "workloads/trace.h"

typedef enum stress_kind {
  STRESS_ALLOC,
  STRESS_FREE,
  STRESS_RECORD,
  STRESS_WRITE,
  STRESS_SLOW,
  STRESS_TRIM,
  STRESS_LIMIT,
  STRESS_TICK,
  STRESS_FAIL,
  STRESS_FAIL_NEXT,
  STRESS_KINDS
} stress_kind;

typedef struct stress_step {
  stress_kind kind;
  uint32_t id;     /* of a block, from 0; FAIL, FAIL_NEXT: the vmm_call */
  uint64_t size;   /* ALLOC, LIMIT: bytes; FAIL: K */
  uint32_t stream; /* ALLOC, RECORD, SLOW; FAIL, FAIL_NEXT: the vmm_status */
} stress_step;

/* Begins as {0}. */
typedef struct stress_program {
  stress_step *steps;
  size_t count, capacity;
  uint32_t ids; /* one more than the highest */
} stress_program;

/* What random programs are made of. */
typedef struct stress_mix {
  uint64_t steps;
  uint32_t streams;
  uint64_t room;    /* bytes that are live at most, but for a third more where memory shall run out */
  uint64_t largest; /* bytes of a request */
  uint64_t limit;   /* the policy's; limits that are set lie below it */
  uint64_t held;    /* bytes that all programs of a run hold together: limits that are set lie around it */
  uint32_t live;    /* blocks at most */
  bool limits;      /* the limit changes now and then */
  bool slow;        /* slow kernels */
} stress_mix;

/* Both return false, with the program as it was, when the host has no memory. */
bool stress_program_add(stress_program *program, const stress_step *step);
bool stress_program_copy(stress_program *program, const stress_program *from);
void stress_program_free(stress_program *program);

/* A random program; the same seed and mix give the same one. */
bool stress_program_generate(stress_program *program, uint64_t seed, const stress_mix *mix);
/* Of a trace, at most count events from first on, without frees of what was there before. */
bool stress_program_slice(stress_program *program, const trace_events *events, uint64_t first,
                          uint64_t count);
/* Adds steps that free what is live, and a trim. */
bool stress_program_finish(stress_program *program);
/* Reads a text. On failure message says the line and what was expected. */
bool stress_program_read(stress_program *program, FILE *stream, const char *name, char *message,
                         size_t message_size);
void stress_program_write(const stress_program *program, FILE *stream);

#endif
