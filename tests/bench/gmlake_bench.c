/* What gmlake's operations cost on one core, by the number of live blocks: what grows faster than the
 * logarithm of that number, or than the chunks that are mapped, shows here.
 *
 * The pools are filled with N live blocks of one to three chunks and N/8 free ones. "S1" frees a live block
 * and asks for its size again, as in a training loop's steady state; the two are timed together, 64 such
 * pairs for each number, so that the clock costs nothing: once with blocks from all of them, which
 * the processor does not find in its caches, and once with 64 of them over and over. Then requests of 1 to 64
 * chunks take the place of live blocks; each is counted under the state in which it was served, with the
 * mappings that it made. Times include the simulated device's own, which is most of what a mapping costs
 * here. Chunks are 64 KiB, so that a million blocks fit into the simulated device; the VA left beside a block
 * is as many chunks as with the default options.
 *
 *   bazel run -c opt //tests/bench:gmlake_bench [-- [OPTIONS [N...]]]    (options such as stitching=views) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policies/policy.h"
#include "vmm/sim.h"

enum { STATES = 4, PAIRS = 64, SAMPLES = 2000, REQUESTS = 20000, LARGEST = 64 };

#define CHUNK (UINT64_C(64) << 10)

static const char *const state_names[STATES] = {"S1", "S2", "S3", "S4"};

typedef struct block {
  vmm_address address;
  uint64_t size;
} block;

/* Times of one kind of work, in nanoseconds. */
typedef struct samples {
  double *times;
  size_t count, capacity;
  uint64_t mappings;
} samples;

static uint64_t random_state;

static uint64_t random_below(uint64_t bound) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % bound;
}

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* What it takes to read the clock. */
static double clock_ns(void) {
  const double begin = now_ns();
  for (int i = 0; i < 1000; i++) now_ns();
  return (now_ns() - begin) / 1000;
}

static int fail(const char *what) {
  fprintf(stderr, "gmlake_bench: %s\n", what);
  return 1;
}

static bool add(samples *all, double time, uint64_t mappings) {
  if (all->count == all->capacity) {
    size_t capacity = all->capacity * 2 + 1024;
    double *larger = realloc(all->times, capacity * sizeof *larger);
    if (!larger) return false;
    all->times = larger;
    all->capacity = capacity;
  }
  all->times[all->count++] = time;
  all->mappings += mappings;
  return true;
}

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

static void print(const char *name, samples *all) {
  if (all->count == 0) {
    printf("  %-22s %8s\n", name, "none");
    return;
  }
  qsort(all->times, all->count, sizeof *all->times, compare);
  double sum = 0;
  for (size_t i = 0; i < all->count; i++) sum += all->times[i];
  double count = (double)all->count;
  printf("  %-22s %8zu %10.0f %10.0f %10.0f %12.1f\n", name, all->count, all->times[all->count / 2],
         all->times[all->count * 99 / 100], sum / count, (double)all->mappings / count);
}

static const pool_operation *operation(const policy *self, const char *name) {
  for (unsigned i = 0; i < self->heap.operation_count; i++) {
    if (strcmp(self->heap.operations[i].name, name) == 0) return &self->heap.operations[i];
  }
  return NULL;
}

/* Pairs of a free and the same request, of random live blocks. */
static bool steady(policy *self, block *live, size_t count, samples *pairs) {
  const pool_operation *exact = operation(self, "S1");
  const uint64_t before = exact->count;
  for (int sample = 0; sample < SAMPLES; sample++) {
    size_t chosen[PAIRS];
    for (int i = 0; i < PAIRS; i++) chosen[i] = random_below(count);
    double begin = now_ns();
    for (int i = 0; i < PAIRS; i++) {
      block *one = &live[chosen[i]];
      if (policy_free(self, one->address) != VMM_SUCCESS ||
          policy_alloc(self, one->size, 0, &one->address) != VMM_SUCCESS)
        return false;
    }
    if (!add(pairs, (now_ns() - begin) / PAIRS, 0)) return false;
  }
  if (exact->count - before == (uint64_t)SAMPLES * PAIRS) return true;
  fprintf(stderr, "gmlake_bench: not all were exact matches\n");
  return false;
}

/* Requests of other sizes in the place of random live blocks. */
static bool mixed(policy *self, vmm_driver *sim, block *live, size_t count, samples states[STATES],
                  samples *frees) {
  for (int request = 0; request < REQUESTS; request++) {
    block *one = &live[random_below(count)];
    double begin = now_ns();
    if (policy_free(self, one->address) != VMM_SUCCESS) return false;
    if (!add(frees, now_ns() - begin, 0)) return false;
    uint64_t before[STATES];
    for (int i = 0; i < STATES; i++) before[i] = operation(self, state_names[i])->count;
    one->size = (1 + random_below(1 + random_below(LARGEST))) * CHUNK;
    vmm_sim_usage old, new;
    vmm_sim_usage_get(sim, &old);
    begin = now_ns();
    if (policy_alloc(self, one->size, 0, &one->address) != VMM_SUCCESS) return false;
    double time = now_ns() - begin;
    vmm_sim_usage_get(sim, &new);
    for (int i = 0; i < STATES; i++) {
      if (operation(self, state_names[i])->count == before[i]) continue;
      if (!add(&states[i], time, new.mappings - old.mappings)) return false;
    }
  }
  return true;
}

/* count live blocks among an eighth as many free ones. */
static bool fill(policy *self, block *live, size_t count) {
  const size_t all = count + count / 8;
  for (size_t i = 0; i < all; i++) {
    live[i].size = (1 + random_below(3)) * CHUNK;
    if (policy_alloc(self, live[i].size, 0, &live[i].address) != VMM_SUCCESS) return false;
  }
  for (size_t left = all; left > count; left--) {
    size_t i = random_below(left);
    if (policy_free(self, live[i].address) != VMM_SUCCESS) return false;
    live[i] = live[left - 1];
  }
  return true;
}

static bool measure(policy *self, vmm_driver *sim, size_t count) {
  block *live = calloc(count + count / 8, sizeof *live);
  samples pairs = {0}, same = {0}, states[STATES] = {{0}}, frees = {0}, again = {0};
  bool done = live && fill(self, live, count) && steady(self, live, count, &pairs) &&
              steady(self, live, PAIRS, &same) && mixed(self, sim, live, count, states, &frees) &&
              steady(self, live, count, &again);
  printf("%zu live blocks\n", count);
  print("S1 and free", &pairs);
  print("of the same 64 blocks", &same);
  for (int i = 0; i < STATES; i++) print(state_names[i], &states[i]);
  print("free", &frees);
  print("S1 and free, after that", &again);
  free(live);
  free(pairs.times);
  free(same.times);
  free(frees.times);
  free(again.times);
  for (int i = 0; i < STATES; i++) free(states[i].times);
  return done;
}

static int run(const char *options, size_t count) {
  char message[300], text[300];
  snprintf(text, sizeof text,
           "gmlake:chunk=64KiB,largest_chunk=128KiB,frag_limit=64KiB,room=128MiB,stitch_count=100000000%s%s",
           *options ? "," : "", options);
  policy_spec spec;
  if (policy_spec_parse(text, &spec, message, sizeof message) != VMM_SUCCESS) return fail(message);
  vmm_driver *sim = NULL;
  policy *self = NULL;
  const vmm_sim_configuration configuration = {.capacity = VMM_SIM_LARGEST_CAPACITY, .granularity = CHUNK};
  if (vmm_sim_create(&configuration, &sim) != VMM_SUCCESS) return fail("no device");
  if (policy_create(&spec, sim, UINT64_MAX, &self, message, sizeof message) != VMM_SUCCESS) {
    vmm_driver_destroy(sim);
    return fail(message);
  }
  random_state = 88172645463325252u;
  bool done = measure(self, sim, count);
  policy_destroy(self);
  vmm_driver_destroy(sim);
  return done ? 0 : fail("an operation failed");
}

int main(int argc, char **argv) {
  static const size_t counts[] = {1000, 10000, 100000, 1000000};
  const char *options = argc > 1 ? argv[1] : "";
  printf("gmlake%s%s; processor time in ns; to read the clock takes %.0f, which is in single times\n",
         *options ? ":" : "", options, clock_ns());
  printf("  %-22s %8s %10s %10s %10s %12s\n", "", "times", "p50", "p99", "mean", "mappings");
  int status = 0;
  for (int i = 2; i < argc && status == 0; i++) status = run(options, strtoul(argv[i], NULL, 10));
  for (size_t i = 0; argc <= 2 && status == 0 && i < sizeof counts / sizeof *counts; i++) {
    status = run(options, counts[i]);
  }
  return status;
}
