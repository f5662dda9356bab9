/* Policies over many traces and over copies of them whose sizes are a little other: what a rule is worth, and
 * how much of it is luck. The first policy is what driver time is compared with.
 *
 *   bazel run -c opt //tests/bench:policy_study_bench -- [-c COPY,...] [-s SPREAD] [-m FACTOR] \
 *       -p expandable -p aliasheap TRACE...
 *
 * In copy N, any number but 0, every size is multiplied by a factor from 1 - SPREAD to 1 + SPREAD (0.08) that
 * depends on N and the size alone, so that equal sizes stay equal; copy 0 is the trace as recorded, and the
 * default. -m: the policy may hold FACTOR times the live peak. Simulated H200. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policies/policy.h"
#include "vmm/meter.h"
#include "vmm/sim.h"
#include "workloads/trace.h"

enum { POLICIES_LIMIT = 64, COPIES_LIMIT = 64 };

typedef struct setting {
  const char *specs[POLICIES_LIMIT];
  int spec_count;
  uint64_t copies[COPIES_LIMIT];
  int copy_count;
  double spread, limit_factor;
  const vmm_profile *profile;
} setting;

typedef struct outcome {
  double utilisation, driver_ms;
  uint64_t reserved, failures, host_waits;
} outcome;

typedef struct total {
  double sum, least, driver_ms, slowest;
  uint64_t runs, below, more, failed, failures, host_waits;
} total;

static int fail(const char *what, const char *message) {
  fprintf(stderr, "policy_study_bench: %s: %s\n", what, message);
  return 1;
}

/* A factor from 1 - spread to 1 + spread. */
static double factor_of(uint64_t size, uint64_t copy, double spread) {
  uint64_t mixed = (size + copy * 1000000) * UINT64_C(0x9E3779B97F4A7C15);
  mixed = (mixed ^ mixed >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
  mixed ^= mixed >> 32;
  return 1 + spread * (2 * (double)(mixed & 0xFFFFFF) / 16777216.0 - 1);
}

static uint64_t size_in(const setting *given, uint64_t copy, uint64_t size) {
  if (copy == 0) return size;
  uint64_t scaled = (uint64_t)((double)size * factor_of(size, copy, given->spread));
  if (scaled >= 512) scaled = scaled / 512 * 512;
  return scaled > 0 ? scaled : 1;
}

/* The most that callers hold, each size rounded up to 512 bytes. */
static uint64_t live_peak(const setting *given, const trace_events *events, uint64_t copy, uint64_t *sizes) {
  uint64_t live = 0, peak = 0;
  for (uint64_t i = 0; i < events->count; i++) {
    const trace_event *event = &events->events[i];
    if (event->kind == TRACE_ALLOC) {
      sizes[event->slot] = (size_in(given, copy, event->size) + 511) / 512 * 512;
      live += sizes[event->slot];
      if (live > peak) peak = live;
    } else if (event->kind == TRACE_FREE) {
      live -= sizes[event->slot];
    }
  }
  return peak;
}

static bool replay(policy *self, const setting *given, const trace_events *events, uint64_t copy,
                   vmm_address *addresses, vmm_driver *sim, outcome *result) {
  for (uint64_t i = 0; i < events->count; i++) {
    const trace_event *event = &events->events[i];
    vmm_sim_tick(sim);
    if (event->kind == TRACE_ALLOC) {
      addresses[event->slot] = 0;
      vmm_status status =
          policy_alloc(self, size_in(given, copy, event->size), event->stream, &addresses[event->slot]);
      if (status != VMM_SUCCESS && status != VMM_OUT_OF_MEMORY) return false;
      result->failures += status != VMM_SUCCESS;
    } else if (event->kind == TRACE_FREE) {
      if (policy_free(self, addresses[event->slot]) != VMM_SUCCESS) return false;
    }
  }
  return true;
}

static int run(const char *text, const setting *given, const trace_events *events, uint64_t copy,
               outcome *result) {
  char message[512] = "the host has no memory";
  vmm_address *addresses = calloc(events->slots + 1, sizeof *addresses);
  uint64_t *sizes = calloc(events->slots + 1, sizeof *sizes);
  vmm_driver *sim = NULL, *meter = NULL;
  policy *self = NULL;
  policy_spec spec;
  vmm_sim_configuration configuration = {.profile = given->profile};
  *result = (outcome){0};
  uint64_t peak = sizes ? live_peak(given, events, copy, sizes) : 0, limit = UINT64_MAX;
  if (given->limit_factor > 0) limit = (uint64_t)(given->limit_factor * (double)peak) >> 21 << 21;
  vmm_status status = addresses && sizes ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) status = vmm_sim_create(&configuration, &sim);
  if (status == VMM_SUCCESS) status = vmm_meter_create(sim, &meter);
  if (status == VMM_SUCCESS) status = policy_spec_parse(text, &spec, message, sizeof message);
  if (status == VMM_SUCCESS) status = policy_create(&spec, meter, limit, &self, message, sizeof message);
  bool done = status == VMM_SUCCESS && replay(self, given, events, copy, addresses, sim, result);
  if (done) {
    const pool_statistics *statistics = &self->heap.statistics;
    result->reserved = statistics->reserved_bytes.peak;
    result->host_waits = statistics->host_waits;
    result->utilisation = result->reserved ? (double)peak / (double)result->reserved : 0;
    result->driver_ms = (double)meter->busy_ns * 1e-6;
  }
  policy_destroy(self);
  vmm_driver_destroy(meter);
  vmm_driver_destroy(sim);
  free(addresses);
  free(sizes);
  return done ? 0 : fail(text, status == VMM_SUCCESS ? "the replay failed" : message);
}

static void add(total *sum, const outcome *added, const outcome *reference) {
  double slower = reference->driver_ms > 0 ? added->driver_ms / reference->driver_ms : 0;
  sum->sum += added->utilisation;
  if (sum->runs++ == 0 || added->utilisation < sum->least) sum->least = added->utilisation;
  if (slower > sum->slowest) sum->slowest = slower;
  sum->driver_ms += added->driver_ms;
  sum->below += added->utilisation < 0.98;
  sum->more += added->reserved > reference->reserved;
  sum->failed += added->failures > 0;
  sum->failures += added->failures;
  sum->host_waits += added->host_waits;
}

static int study_trace(const char *path, const setting *given, total *totals) {
  trace_events events;
  trace_error error;
  if (trace_load(path, NULL, &events, &error) != TRACE_OK) return fail(path, error.message);
  int failed = 0;
  for (int i = 0; i < given->copy_count && !failed; i++) {
    outcome reference = {0};
    for (int p = 0; p < given->spec_count && !failed; p++) {
      outcome result;
      failed = run(given->specs[p], given, &events, given->copies[i], &result);
      if (p == 0) reference = result;
      if (!failed) add(&totals[p], &result, &reference);
    }
  }
  trace_events_free(&events);
  return failed;
}

static bool parse_copies(const char *text, setting *given) {
  given->copy_count = 0;
  for (const char *at = text; given->copy_count < COPIES_LIMIT; at++) {
    char *end;
    given->copies[given->copy_count++] = strtoull(at, &end, 10);
    if (end == at) return false;
    if (*end == '\0') return true;
    if (*end != ',') return false;
    at = end;
  }
  return false;
}

static bool parse_options(int count, char **arguments, setting *given) {
  for (int option; (option = getopt(count, arguments, "c:s:m:p:")) != -1;) {
    bool good = option == 'c' ? parse_copies(optarg, given) : option != '?';
    if (option == 's') good = (given->spread = atof(optarg)) > 0 && given->spread < 1;
    if (option == 'm') good = (given->limit_factor = atof(optarg)) >= 1;
    if (option == 'p') good = given->spec_count < POLICIES_LIMIT;
    if (!good) return false;
    if (option == 'p') given->specs[given->spec_count++] = optarg;
  }
  return given->spec_count > 0 && optind < count;
}

int main(int count, char **arguments) {
  char message[512];
  vmm_profile *profile;
  setting given = {.copy_count = 1, .spread = 0.08};
  if (!parse_options(count, arguments, &given)) {
    fprintf(stderr,
            "Usage: policy_study_bench [-c COPY,...] [-s SPREAD] [-m FACTOR] -p POLICY... TRACE...\n");
    return 2;
  }
  if (vmm_profile_load("h200", &profile, message, sizeof message) != VMM_SUCCESS)
    return fail("h200", message);
  given.profile = profile;
  total totals[POLICIES_LIMIT] = {0};
  int failed = 0;
  for (int i = optind; i < count; i++) failed |= study_trace(arguments[i], &given, totals);
  printf("%5s %7s %7s %6s %6s %10s %7s %8s %7s %9s %6s  %s\n", "runs", "mean", "least", "<0.98", ">first",
         "driver ms", "x first", "slowest", "unserved", "requests", "waits", "policy");
  for (int p = 0; p < given.spec_count && !failed; p++) {
    const total *sum = &totals[p];
    printf("%5" PRIu64 " %7.4f %7.4f %6" PRIu64 " %6" PRIu64 " %10.1f %7.3f %8.2f %7" PRIu64 " %9" PRIu64
           " %6" PRIu64 "  %s\n",
           sum->runs, sum->runs ? sum->sum / (double)sum->runs : 0, sum->least, sum->below, sum->more,
           sum->driver_ms, totals[0].driver_ms > 0 ? sum->driver_ms / totals[0].driver_ms : 0, sum->slowest,
           sum->failed, sum->failures, sum->host_waits, given.specs[p]);
  }
  vmm_profile_destroy(profile);
  return failed;
}
