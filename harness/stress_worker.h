/* One thread of a stress run: takes the steps of a program. Used by stress_run.c. */
#ifndef LAKEBED_HARNESS_STRESS_WORKER_H
#define LAKEBED_HARNESS_STRESS_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "harness/stress_run.h"
#include "policies/shared_policy.h"

enum { STRESS_EXCHANGE = 64 };

/* What the threads of a run have in common. */
typedef struct stress_session {
  const stress_settings *settings;
  device gpu;
  policy *subject;
  shared_policy *shared;
  stress_memory memory;     /* under the policy's lock */
  uint64_t driver_failures; /* the same; calls that did not succeed, whoever wanted that */
  uint64_t until_failure;   /* the same; so many calls of a kind until the one that a program makes fail */
  vmm_call failing;         /* that kind */
  uint32_t failed_inside;   /* the operations around it: stress_result */
  bool fails_next;          /* once a call has failed, another shall */
  vmm_call next_failing;
  vmm_status next_status;
  bool has_memory, alone;
  atomic_bool stop;    /* a thread has found something */
  atomic_uint running; /* threads */
  atomic_uint_least64_t steps;

  pthread_mutex_t exchange_lock;
  stress_block exchange[STRESS_EXCHANGE]; /* blocks that wait for another thread */
  uint32_t exchange_count;
} stress_session;

/* A live block of the model, by address. */
typedef struct stress_live {
  vmm_address address;
  uint64_t size;
} stress_live;

typedef struct stress_worker {
  pthread_t thread;
  stress_session *session;
  const stress_program *program;
  uint64_t number;      /* of the step, from 1 */
  stress_block *blocks; /* by id */
  stress_live *live;    /* alone: sorted */
  uint32_t live_count;
  uint64_t live_bytes;
  bool armed; /* the program has made a call fail */
  stress_counts counts;
  bool failed;
  char message[768];
} stress_worker;

/* false when the host has no memory; stress_worker_close is called all the same. */
bool stress_worker_open(stress_worker *self, stress_session *session, const stress_program *program);
void stress_worker_close(stress_worker *self);
/* All steps, or until something is found. */
void stress_worker_run(stress_worker *self);
/* Frees what is live; every free must succeed. */
void stress_worker_free_all(stress_worker *self);
/* Verifies and frees a block that came from another thread. */
bool stress_worker_free_foreign(stress_worker *self, stress_block *block);
/* Bytes of the device and the limit that the policy does not hold. */
uint64_t stress_room(const stress_session *session);
/* Walks all invariants. */
bool stress_worker_check(stress_worker *self);
/* Says what was found, once. Returns false. */
bool stress_worker_fail(stress_worker *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
