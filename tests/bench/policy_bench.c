/* What one allocation and one free cost under a policy, by the number of live blocks: the time of each,
 * measured one by one on the simulated device, whose modelled driver time is not in it but whose own
 * work is. Driver calls made meanwhile are counted beside it: in a steady state there are none.
 *
 *   bazel run -c opt //tests/bench:policy_bench [-- -n LIVE,... -s SMALLEST -l LARGEST -o ROUNDS POLICY...]
 *
 * pair: a block of a size that was in use is asked for and freed at once, beside LIVE others. turn: a live
 * block, any, is freed and one of another size asked for. Sizes are spread evenly over their logarithms.
 * Of each of ROUNDS rounds p50 and p99 are taken; the median of those is shown, which a busy moment of the
 * machine does not move. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "policies/policy.h"
#include "vmm/meter.h"
#include "vmm/sim.h"

enum { SAMPLES = 50000, ROUNDS_LIMIT = 101, LIVE_LIMIT = 16 };

typedef struct setting {
  uint64_t live[LIVE_LIMIT];
  int live_count;
  uint64_t smallest, largest;
  int rounds;
  const vmm_profile *profile;
} setting;

typedef struct bench {
  vmm_driver *sim, *meter;
  policy *subject;
  vmm_address *blocks;
  uint64_t live;
  uint64_t random;
  double logarithm, spread; /* of sizes */
  uint32_t *samples;        /* nanoseconds */
  uint64_t failures;
} bench;

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t draw(bench *self) {
  self->random ^= self->random << 13;
  self->random ^= self->random >> 7;
  self->random ^= self->random << 17;
  return self->random;
}

static uint64_t draw_size(bench *self) {
  double share = (double)(draw(self) >> 11) / 9007199254740992.0;
  return (uint64_t)exp(self->logarithm + share * self->spread);
}

static vmm_address ask(bench *self, uint64_t size) {
  vmm_address address = 0;
  if (policy_alloc(self->subject, size, 0, &address) != VMM_SUCCESS) self->failures++;
  return address;
}

static void give_back(bench *self, vmm_address address) {
  if (policy_free(self->subject, address) != VMM_SUCCESS) self->failures++;
}

static uint64_t driver_calls(const bench *self) {
  uint64_t calls = 0;
  for (vmm_call call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts;
    vmm_meter_get(self->meter, call, &counts);
    calls += counts.count;
  }
  return calls;
}

static void turn(bench *self, uint64_t size) {
  vmm_address *block = &self->blocks[draw(self) % self->live];
  give_back(self, *block);
  *block = ask(self, size);
}

static int compare_samples(const void *left, const void *right) {
  uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
  return a < b ? -1 : a > b;
}

typedef struct measured {
  uint32_t p50[ROUNDS_LIMIT], p99[ROUNDS_LIMIT];
  uint64_t calls;
} measured;

static uint32_t sample_of(uint64_t begin, uint64_t end) {
  return end - begin > UINT32_MAX ? UINT32_MAX : (uint32_t)(end - begin);
}

/* One round: SAMPLES pairs or turns, each with its time. */
static void measure(bench *self, bool pairs, measured *result, int round) {
  uint64_t calls = driver_calls(self);
  for (int i = 0; i < SAMPLES; i++) {
    uint64_t size = draw_size(self), begin = now_ns();
    if (pairs)
      give_back(self, ask(self, size));
    else
      turn(self, size);
    self->samples[i] = sample_of(begin, now_ns());
  }
  result->calls += driver_calls(self) - calls;
  qsort(self->samples, SAMPLES, sizeof *self->samples, compare_samples);
  result->p50[round] = self->samples[SAMPLES / 2];
  result->p99[round] = self->samples[SAMPLES / 100 * 99];
}

static uint32_t median(uint32_t *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare_samples);
  return values[count / 2];
}

static void print_measured(measured *result, int rounds) {
  printf(" %8" PRIu32 " %8" PRIu32 " %8" PRIu64, median(result->p50, rounds), median(result->p99, rounds),
         result->calls);
}

static void close_bench(bench *self) {
  policy_destroy(self->subject);
  vmm_driver_destroy(self->meter);
  vmm_driver_destroy(self->sim);
  free(self->blocks);
  free(self->samples);
}

static bool open_bench(bench *self, const char *text, const setting *given, uint64_t live) {
  char message[512] = "the host has no memory";
  policy_spec spec;
  *self = (bench){.live = live, .random = UINT64_C(0x9E3779B97F4A7C15)};
  self->logarithm = log((double)given->smallest);
  self->spread = log((double)given->largest) - self->logarithm;
  self->blocks = calloc(live, sizeof *self->blocks);
  self->samples = calloc(SAMPLES, sizeof *self->samples);
  vmm_sim_configuration configuration = {.profile = given->profile, .capacity = VMM_SIM_LARGEST_CAPACITY};
  vmm_status status = self->blocks && self->samples ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) status = vmm_sim_create(&configuration, &self->sim);
  if (status == VMM_SUCCESS) status = vmm_meter_create(self->sim, &self->meter);
  if (status == VMM_SUCCESS) status = policy_spec_parse(text, &spec, message, sizeof message);
  if (status == VMM_SUCCESS)
    status = policy_create(&spec, self->meter, UINT64_MAX, &self->subject, message, sizeof message);
  if (status == VMM_SUCCESS) return true;
  fprintf(stderr, "policy_bench: %s: %s\n", text, message);
  close_bench(self);
  return false;
}

/* A row of the table. */
static int bench_policy(const char *text, const setting *given, uint64_t live) {
  bench self;
  measured pairs = {.calls = 0}, turns = {.calls = 0};
  if (!open_bench(&self, text, given, live)) return 1;
  for (uint64_t i = 0; i < live; i++) self.blocks[i] = ask(&self, draw_size(&self));
  for (uint64_t i = 0; i < 2 * live; i++) turn(&self, draw_size(&self));
  for (int round = 0; round < given->rounds; round++) measure(&self, true, &pairs, round);
  for (int round = 0; round < given->rounds; round++) measure(&self, false, &turns, round);
  printf("%-40.40s %9" PRIu64, text, live);
  print_measured(&pairs, given->rounds);
  print_measured(&turns, given->rounds);
  printf("\n");
  fflush(stdout);
  uint64_t failures = self.failures;
  close_bench(&self);
  if (failures == 0) return 0;
  fprintf(stderr, "policy_bench: %s: %" PRIu64 " operations failed\n", text, failures);
  return 1;
}

/* What the clock itself costs: two readings. */
static uint32_t clock_cost(void) {
  uint32_t values[1001];
  for (int i = 0; i < 1001; i++) {
    uint64_t begin = now_ns();
    values[i] = sample_of(begin, now_ns());
  }
  return median(values, 1001);
}

static bool parse_live(const char *text, setting *given) {
  given->live_count = 0;
  for (const char *at = text; given->live_count < LIVE_LIMIT; at++) {
    char *end;
    uint64_t live = strtoull(at, &end, 10);
    if (end == at || live == 0 || live > 100000000) return false;
    given->live[given->live_count++] = live;
    if (*end == '\0') return true;
    if (*end != ',') return false;
    at = end;
  }
  return false;
}

static bool parse_options(int count, char **arguments, setting *given) {
  for (int option; (option = getopt(count, arguments, "n:s:l:o:")) != -1;) {
    bool good = false;
    if (option == 'n') good = parse_live(optarg, given);
    if (option == 's') good = policy_parse_size(optarg, &given->smallest);
    if (option == 'l') good = policy_parse_size(optarg, &given->largest);
    if (option == 'o') good = (given->rounds = atoi(optarg)) > 0 && given->rounds <= ROUNDS_LIMIT;
    if (!good) return false;
  }
  return given->smallest > 0 && given->largest >= given->smallest;
}

int main(int count, char **arguments) {
  static char *all[] = {"bfc", "expandable", "gmlake", "aliasheap", NULL};
  char message[512];
  vmm_profile *profile;
  setting given = {.live = {1000, 10000, 100000, 1000000},
                   .live_count = 4,
                   .smallest = 512,
                   .largest = UINT64_C(256) << 10,
                   .rounds = 11};
  if (!parse_options(count, arguments, &given)) {
    fprintf(stderr, "Usage: policy_bench [-n LIVE,...] [-s SMALLEST] [-l LARGEST] [-o ROUNDS] [POLICY...]\n");
    return 2;
  }
  if (vmm_profile_load("h200", &profile, message, sizeof message) != VMM_SUCCESS) {
    fprintf(stderr, "policy_bench: %s\n", message);
    return 1;
  }
  given.profile = profile;
  printf("ns of allocation and free together, medians of %d rounds of %d; blocks of %" PRIu64 " to %" PRIu64
         " bytes; the clock takes %" PRIu32 " ns of each\n%-40s %9s %8s %8s %8s %8s %8s %8s\n",
         given.rounds, SAMPLES, given.smallest, given.largest, clock_cost(), "policy", "live", "pair p50",
         "p99", "calls", "turn p50", "p99", "calls");
  int failed = 0;
  char **specs = optind < count ? arguments + optind : all;
  for (char **spec = specs; *spec; spec++) {
    for (int i = 0; i < given.live_count; i++) failed |= bench_policy(*spec, &given, given.live[i]);
  }
  vmm_profile_destroy(profile);
  return failed;
}
