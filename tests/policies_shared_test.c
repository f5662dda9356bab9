/* A policy that several threads share, that survives forks, suspension and the end of the process. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policies/shared_policy.h"
#include "tests/policies_program.h"
#include "tests/test_main.h"

enum { THREADS = 8, OPERATIONS = 1500, LIVE = 12 };

static const char *spec_number(int i) { return policies_specs()[i]; }

static int spec_count(void) {
  int count = 0;
  while (policies_specs()[count]) count++;
  return count;
}

typedef struct sharing {
  policies_fixture fixture;
  shared_policy *shared;
} sharing;

static void open_sharing(sharing *self, const policies_fixture_options *options) {
  policies_fixture_open(&self->fixture, options);
  ck_assert_int_eq(shared_policy_create(self->fixture.policy, &self->shared), VMM_SUCCESS);
}

/* Finds nothing left on the device. */
static void close_sharing(sharing *self) {
  shared_policy_destroy(self->shared);
  self->fixture.policy = NULL;
  policies_fixture_close(&self->fixture);
}

static void check_sharing(sharing *self, const char *where) {
  char message[512];
  vmm_status status = shared_policy_check(self->shared, message, sizeof message);
  require(status == VMM_SUCCESS, "%s: %s", where, message);
}

static vmm_address must_alloc(sharing *self, uint64_t size, vmm_stream stream) {
  vmm_address address = 0;
  vmm_status status = shared_policy_alloc(self->shared, size, stream, &address);
  require(status == VMM_SUCCESS && address, "%" PRIu64 " bytes: %s", size, vmm_status_name(status));
  return address;
}

static pool_statistics statistics_of(sharing *self) {
  pool_statistics statistics;
  ck_assert_int_eq(shared_policy_statistics(self->shared, &statistics), VMM_SUCCESS);
  return statistics;
}

/* ---- threads ---- */

typedef struct worker {
  pthread_t thread;
  shared_policy *shared;
  uint64_t random;
  vmm_stream stream;
  struct {
    vmm_address address;
    uint64_t size;
  } live[LIVE];
  uint32_t live_count;
  uint64_t served, out_of_memory, trims;
  char failure[160]; /* of a thread that is not the test's: told afterwards */
} worker;

static uint64_t below(worker *self, uint64_t bound) { return policies_random_below(&self->random, bound); }

static void note_failure(worker *self, const char *what, vmm_status status) {
  if (!self->failure[0])
    snprintf(self->failure, sizeof self->failure, "%s: %s", what, vmm_status_name(status));
}

static void thread_alloc(worker *self) {
  static const uint64_t sizes[] = {512, 40000, 1 * MIB, 2 * MIB, 5 * MIB, 12 * MIB, 20 * MIB};
  uint64_t size = below(self, 2) ? sizes[below(self, 7)] : 1 + below(self, 6 * MIB);
  vmm_address address;
  vmm_status status = shared_policy_alloc(self->shared, size, self->stream, &address);
  if (status == VMM_OUT_OF_MEMORY) {
    self->out_of_memory++;
  } else if (status != VMM_SUCCESS) {
    note_failure(self, "a request", status);
  } else {
    self->live[self->live_count].address = address;
    self->live[self->live_count++].size = size;
    self->served++;
  }
}

static void thread_free(worker *self) {
  uint32_t i = (uint32_t)below(self, self->live_count);
  vmm_status status = shared_policy_free(self->shared, self->live[i].address);
  if (status != VMM_SUCCESS) note_failure(self, "a free", status);
  self->live[i] = self->live[--self->live_count];
}

static void thread_step(worker *self) {
  uint64_t kind = below(self, 100);
  vmm_status status = VMM_SUCCESS;
  if (self->live_count < LIVE && (kind < 45 || self->live_count == 0)) {
    thread_alloc(self);
  } else if (kind < 86) {
    thread_free(self);
  } else if (kind < 96) {
    status = shared_policy_record_stream(self->shared, self->live[below(self, self->live_count)].address,
                                         (vmm_stream)below(self, THREADS));
  } else if (kind < 99) {
    pool_statistics statistics;
    status = shared_policy_statistics(self->shared, &statistics);
    if (statistics.allocated_bytes.current < self->live[0].size)
      note_failure(self, "statistics", VMM_UNKNOWN);
  } else if (below(self, 8) == 0) {
    status = shared_policy_trim(self->shared);
    self->trims++;
  }
  if (status != VMM_SUCCESS) note_failure(self, "another call", status);
}

static void *thread_run(void *context) {
  worker *self = context;
  for (int i = 0; i < OPERATIONS && !self->failure[0]; i++) thread_step(self);
  return NULL;
}

START_TEST(serves_eight_threads) {
  const char *spec = spec_number(_i);
  uint64_t seed = policies_random_seed(_i == 0 ? "serves_eight_threads" : NULL), served = 0;
  sharing all;
  open_sharing(&all, &(policies_fixture_options){.spec = spec, .capacity = GIB, .event_delay = 2});
  worker *workers = calloc(THREADS, sizeof *workers);
  ck_assert_ptr_nonnull(workers);
  for (vmm_stream i = 0; i < THREADS; i++) {
    workers[i] = (worker){.shared = all.shared, .random = seed + i * 7919, .stream = i};
    ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, thread_run, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
  uint64_t live = 0;
  for (int i = 0; i < THREADS; i++) {
    require(!workers[i].failure[0], "%s: thread %d: %s", spec, i, workers[i].failure);
    served += workers[i].served;
    live += workers[i].live_count;
  }
  check_sharing(&all, spec);
  ck_assert_uint_eq(statistics_of(&all).allocations.current, live);
  ck_assert_uint_gt(served, THREADS * OPERATIONS / 4);
  /* No two threads have bytes in common. */
  for (int i = 0; i < THREADS * LIVE; i++) {
    for (int k = 0; k < i; k++) {
      const worker *left = &workers[i / LIVE], *right = &workers[k / LIVE];
      uint32_t a = (uint32_t)i % LIVE, b = (uint32_t)k % LIVE;
      if (a >= left->live_count || b >= right->live_count) continue;
      require(left->live[a].address + left->live[a].size <= right->live[b].address ||
                  right->live[b].address + right->live[b].size <= left->live[a].address,
              "%s: two threads were given the same memory", spec);
    }
  }
  free(workers);
  close_sharing(&all);
}
END_TEST

/* ---- forks ---- */

/* What the child finds; its exit status says how often it was wrong. */
static int call_everything(shared_policy *shared, vmm_address live) {
  vmm_address address = 77;
  pool_statistics statistics;
  char message[64];
  int wrong = 0;
  wrong += shared_policy_alloc(shared, MIB, 0, &address) != VMM_NOT_INITIALIZED || address != 0;
  wrong += shared_policy_alloc(shared, 0, 0, &address) != VMM_NOT_INITIALIZED;
  wrong += shared_policy_free(shared, live) != VMM_NOT_INITIALIZED;
  wrong += shared_policy_record_stream(shared, live, 1) != VMM_NOT_INITIALIZED;
  wrong += shared_policy_trim(shared) != VMM_NOT_INITIALIZED;
  wrong += shared_policy_set_limit(shared, GIB) != VMM_NOT_INITIALIZED;
  wrong += shared_policy_suspend(shared) != VMM_NOT_INITIALIZED;
  wrong += shared_policy_resume(shared) != VMM_NOT_INITIALIZED;
  wrong += shared_policy_statistics(shared, &statistics) != VMM_NOT_INITIALIZED;
  wrong += shared_policy_reset_peaks(shared) != VMM_NOT_INITIALIZED;
  wrong += shared_policy_check(shared, message, sizeof message) != VMM_NOT_INITIALIZED;
  shared_policy_close(shared);
  shared_policy_destroy(shared);
  return wrong;
}

static int status_of(pid_t child) {
  int status = 0;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFEXITED(status), "the child was ended by signal %d", WTERMSIG(status));
  return WEXITSTATUS(status);
}

/* A policy of the child's own is served; what it has of its parent is not. */
static int make_another(void) {
  sharing own;
  open_sharing(&own, &(policies_fixture_options){.spec = "bfc"});
  vmm_address address = must_alloc(&own, 3 * MIB, 0);
  int wrong = shared_policy_free(own.shared, address) != VMM_SUCCESS;
  close_sharing(&own);
  return wrong;
}

START_TEST(a_forked_process_is_refused) {
  sharing all;
  open_sharing(&all, &(policies_fixture_options){.spec = spec_number(_i)});
  vmm_address live = must_alloc(&all, 3 * MIB, 0);
  uint64_t calls = policies_memory_calls(&all.fixture);
  pid_t child = fork();
  if (child == 0) _exit(call_everything(all.shared, live) + make_another());
  ck_assert_int_eq(status_of(child), 0);
  /* The parent goes on as if nothing had happened. */
  ck_assert_uint_eq(policies_memory_calls(&all.fixture), calls);
  ck_assert_int_eq(shared_policy_free(all.shared, live), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_free(all.shared, must_alloc(&all, 5 * MIB, 1)), VMM_SUCCESS);
  check_sharing(&all, "after a fork");
  close_sharing(&all);
}
END_TEST

typedef struct lock_holder {
  shared_policy *shared;
  pthread_barrier_t holds, may_go;
} lock_holder;

static void hold(void *context, policy *subject) {
  (void)subject;
  lock_holder *self = context;
  pthread_barrier_wait(&self->holds);
  pthread_barrier_wait(&self->may_go);
}

static void *hold_lock(void *context) {
  lock_holder *self = context;
  shared_policy_with(self->shared, hold, self);
  return NULL;
}

/* Another thread is in the middle of a call: the child has its lock, held by nobody. */
START_TEST(a_fork_during_a_call_is_no_deadlock) {
  sharing all;
  open_sharing(&all, &(policies_fixture_options){.spec = "gmlake"});
  vmm_address live = must_alloc(&all, 3 * MIB, 0);
  lock_holder holder = {.shared = all.shared};
  pthread_t thread;
  pthread_barrier_init(&holder.holds, NULL, 2);
  pthread_barrier_init(&holder.may_go, NULL, 2);
  ck_assert_int_eq(pthread_create(&thread, NULL, hold_lock, &holder), 0);
  pthread_barrier_wait(&holder.holds);
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(call_everything(all.shared, live));
  }
  int status = status_of(child);
  pthread_barrier_wait(&holder.may_go);
  pthread_join(thread, NULL);
  pthread_barrier_destroy(&holder.holds);
  pthread_barrier_destroy(&holder.may_go);
  ck_assert_int_eq(status, 0);
  close_sharing(&all);
}
END_TEST

/* ---- the end ---- */

static shared_policy *closed_at_exit;
static vmm_address live_at_exit;

static void free_at_exit(void) {
  if (shared_policy_free(closed_at_exit, live_at_exit) != VMM_SUCCESS) _exit(9);
}
static void close_at_exit(void) { shared_policy_close(closed_at_exit); }

/* A process may end with blocks live, and free them after the device is gone. */
START_TEST(a_process_may_end_with_live_blocks) {
  for (int closes = 0; closes < 2; closes++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      sharing all;
      open_sharing(&all, &(policies_fixture_options){.spec = spec_number(_i), .event_delay = 50});
      live_at_exit = must_alloc(&all, 3 * MIB, 0);
      vmm_address waiting = must_alloc(&all, 30 * MIB, 1);
      if (shared_policy_record_stream(all.shared, waiting, 2) != VMM_SUCCESS) _exit(8);
      if (shared_policy_free(all.shared, waiting) != VMM_SUCCESS) _exit(8);
      closed_at_exit = all.shared;
      if (closes) {
        /* In reverse order: closed, the device destroyed, the block freed. */
        atexit(free_at_exit);
        atexit(close_at_exit);
      }
      exit(7);
    }
    ck_assert_int_eq(status_of(child), 7);
  }
}
END_TEST

START_TEST(close_leaves_the_device_alone) {
  sharing all;
  open_sharing(&all, &(policies_fixture_options){.spec = spec_number(_i)});
  vmm_address live = must_alloc(&all, 3 * MIB, 0), address;
  uint64_t calls = policies_memory_calls(&all.fixture);
  shared_policy_close(all.shared);
  shared_policy_close(all.shared);
  ck_assert_int_eq(shared_policy_alloc(all.shared, MIB, 0, &address), VMM_DEINITIALIZED);
  ck_assert_uint_eq(address, 0);
  ck_assert_int_eq(shared_policy_alloc(all.shared, 0, 0, &address), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_free(all.shared, live), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_free(all.shared, live), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_record_stream(all.shared, live, 2), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_trim(all.shared), VMM_DEINITIALIZED);
  ck_assert_int_eq(shared_policy_suspend(all.shared), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_resume(all.shared), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_set_limit(all.shared, GIB), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_with(all.shared, hold, NULL), VMM_DEINITIALIZED);
  ck_assert_uint_eq(statistics_of(&all).allocations.current, 1);
  ck_assert_uint_eq(policies_memory_calls(&all.fixture), calls);
  close_sharing(&all);
}
END_TEST

/* ---- suspension ---- */

START_TEST(suspend_and_resume_can_be_repeated) {
  sharing all;
  open_sharing(&all, &(policies_fixture_options){.spec = spec_number(_i), .event_delay = 3});
  vmm_address kept = must_alloc(&all, 3 * MIB, 0), other = must_alloc(&all, 40 * MIB, 1), address = 77;
  ck_assert_int_eq(shared_policy_resume(all.shared), VMM_SUCCESS); /* was never suspended */
  ck_assert_int_eq(shared_policy_free(all.shared, must_alloc(&all, 60 * MIB, 1)), VMM_SUCCESS);
  uint64_t before = 0;
  for (int again = 0; again < 3; again++) {
    ck_assert_int_eq(shared_policy_suspend(all.shared), VMM_SUCCESS);
    ck_assert_int_eq(shared_policy_alloc(all.shared, MIB, 0, &address), VMM_NOT_PERMITTED);
    ck_assert_uint_eq(address, 0);
    ck_assert_int_eq(shared_policy_alloc(all.shared, 0, 0, &address), VMM_SUCCESS);
    pool_statistics now = statistics_of(&all);
    ck_assert_uint_eq(now.allocations.current, 2);
    ck_assert_uint_eq(now.failures, 0);
    if (again > 0) ck_assert_uint_eq(now.reserved_bytes.current, before);
    before = now.reserved_bytes.current;
    check_sharing(&all, "suspended");
  }
  /* Blocks can be freed meanwhile, and go back with the next suspension. */
  ck_assert_int_eq(shared_policy_free(all.shared, other), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_suspend(all.shared), VMM_SUCCESS);
  bool one_region = strstr(spec_number(_i), "allow_growth=false") != NULL; /* kept by the other block */
  if (before > 0 && all.fixture.policy->class->trim && !one_region)
    ck_assert_uint_lt(statistics_of(&all).reserved_bytes.current, before);
  for (int again = 0; again < 3; again++) {
    ck_assert_int_eq(shared_policy_resume(all.shared), VMM_SUCCESS);
    ck_assert_int_eq(shared_policy_free(all.shared, must_alloc(&all, 50 * MIB, 1)), VMM_SUCCESS);
  }
  ck_assert_int_eq(shared_policy_free(all.shared, kept), VMM_SUCCESS);
  check_sharing(&all, "resumed");
  close_sharing(&all);
}
END_TEST

START_TEST(a_suspension_that_fails_suspends_nothing) {
  static const char *const specs[] = {"bfc", "expandable", "gmlake", "aliasheap", "async", "tfbfc"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    sharing all;
    open_sharing(&all, &(policies_fixture_options){.spec = specs[i]});
    ck_assert_int_eq(shared_policy_free(all.shared, must_alloc(&all, 60 * MIB, 1)), VMM_SUCCESS);
    static const vmm_call calls[] = {VMM_CALL_SYNCHRONIZE, VMM_CALL_UNMAP, VMM_CALL_FREE, VMM_CALL_POOL_TRIM};
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
      vmm_sim_fail(all.fixture.sim, calls[k], 1, VMM_UNKNOWN);
    vmm_status status = shared_policy_suspend(all.shared);
    vmm_sim_fail_none(all.fixture.sim);
    ck_assert_msg(status == VMM_UNKNOWN, "%s: %s", specs[i], vmm_status_name(status));
    ck_assert_int_eq(shared_policy_free(all.shared, must_alloc(&all, 60 * MIB, 1)), VMM_SUCCESS);
    check_sharing(&all, specs[i]);
    ck_assert_int_eq(shared_policy_suspend(all.shared), VMM_SUCCESS);
    close_sharing(&all);
  }
}
END_TEST

/* ---- limits ---- */

START_TEST(a_limit_can_be_set_at_any_time) {
  const char *spec = spec_number(_i);
  const bool bounded_by_driver = strncmp(spec, "async", 5) == 0;
  sharing all;
  open_sharing(&all, &(policies_fixture_options){.spec = spec, .capacity = GIB});
  if (!all.fixture.policy->class->free_ranges && strcmp(spec, "null") == 0) {
    close_sharing(&all);
    return;
  }
  vmm_address address, live;
  ck_assert_int_eq(shared_policy_set_limit(all.shared, 100 * MIB), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_alloc(all.shared, 200 * MIB, 0, &address), VMM_OUT_OF_MEMORY);
  live = must_alloc(&all, 60 * MIB, 0);
  /* Below what is held: nothing goes, nothing more comes. */
  vmm_status status = shared_policy_set_limit(all.shared, 20 * MIB);
  ck_assert_msg(status == (bounded_by_driver ? VMM_NOT_PERMITTED : VMM_SUCCESS), "%s: %s", spec,
                vmm_status_name(status));
  uint64_t held = statistics_of(&all).reserved_bytes.current;
  check_sharing(&all, "a limit below what is held");
  ck_assert_int_eq(shared_policy_alloc(all.shared, 90 * MIB, 0, &address), VMM_OUT_OF_MEMORY);
  ck_assert_uint_le(statistics_of(&all).reserved_bytes.current, held);
  check_sharing(&all, "out of memory");
  ck_assert_int_eq(shared_policy_free(all.shared, live), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_trim(all.shared), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_set_limit(all.shared, 50 * MIB), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_alloc(all.shared, 60 * MIB, 0, &address), VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(shared_policy_free(all.shared, must_alloc(&all, 18 * MIB, 0)), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_set_limit(all.shared, UINT64_MAX), VMM_SUCCESS);
  ck_assert_int_eq(shared_policy_free(all.shared, must_alloc(&all, 400 * MIB, 0)), VMM_SUCCESS);
  check_sharing(&all, "no limit");
  ck_assert_int_eq(shared_policy_reset_peaks(all.shared), VMM_SUCCESS);
  pool_statistics now = statistics_of(&all);
  ck_assert_uint_eq(now.allocated_bytes.peak, 0);
  ck_assert_uint_eq(now.reserved_bytes.peak, now.reserved_bytes.current);
  close_sharing(&all);
}
END_TEST

static Suite *shared_suite(void) {
  Suite *suite = suite_create("policies_shared");
  int specs = spec_count();
  TCase *threads = tcase_create("threads");
  tcase_set_timeout(threads, 60);
  tcase_add_loop_test(threads, serves_eight_threads, 0, specs);
  suite_add_tcase(suite, threads);
  TCase *forks = tcase_create("forks");
  tcase_add_loop_test(forks, a_forked_process_is_refused, 0, specs);
  tcase_add_test(forks, a_fork_during_a_call_is_no_deadlock);
  suite_add_tcase(suite, forks);
  TCase *ends = tcase_create("ends");
  tcase_add_loop_test(ends, a_process_may_end_with_live_blocks, 0, specs);
  tcase_add_loop_test(ends, close_leaves_the_device_alone, 0, specs);
  suite_add_tcase(suite, ends);
  TCase *states = tcase_create("states");
  tcase_add_loop_test(states, suspend_and_resume_can_be_repeated, 0, specs);
  tcase_add_test(states, a_suspension_that_fails_suspends_nothing);
  tcase_add_loop_test(states, a_limit_can_be_set_at_any_time, 0, specs);
  suite_add_tcase(suite, states);
  return suite;
}

TEST_MAIN(shared_suite)
