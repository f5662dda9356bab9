/* How fast policies replay traces from memory, the simulated H200 included: events a second
 * and nanoseconds an event, the median of several runs. null does nothing but give out
 * addresses: what is above it is the policy's and the device's. The time is that of the thread
 * on its core, so that other work on the machine disturbs less.
 *
 *   bazel run -c opt //tests/bench:replay_bench [-- RUNS [TRACE...]]   (7 runs of the bundled traces) */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policies/policy.h"
#include "vmm/meter.h"
#include "vmm/sim.h"
#include "workloads/trace.h"

enum { POLICIES = 4, RUNS_LIMIT = 1000, TRACES_LIMIT = 64 };

static const char *const policy_names[POLICIES] = {"null", "bfc", "gmlake", "aliasheap"};

typedef struct run_result {
  double ns_per_event;
  double calls_per_event; /* of the driver; metered runs only */
  uint64_t out_of_memory;
} run_result;

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int fail(const char *what, const char *message) {
  fprintf(stderr, "replay_bench: %s: %s\n", what, message);
  return 1;
}

/* The loop that is measured. Returns false when the policy answers what it must not. */
static bool replay(policy *self, const trace_events *events, vmm_address *addresses,
                   uint64_t *out_of_memory) {
  for (uint64_t i = 0; i < events->count; i++) {
    const trace_event *event = &events->events[i];
    if (event->kind == TRACE_ALLOC) {
      vmm_status status = policy_alloc(self, event->size, event->stream, &addresses[event->slot]);
      if (status == VMM_SUCCESS) continue;
      if (status != VMM_OUT_OF_MEMORY) return false;
      ++*out_of_memory;
    } else if (event->kind == TRACE_FREE) {
      if (policy_free(self, addresses[event->slot]) != VMM_SUCCESS) return false;
    }
  }
  return true;
}

static double calls_per_event(const vmm_driver *meter, const trace_events *events) {
  uint64_t calls = 0;
  for (vmm_call call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts;
    vmm_meter_get(meter, call, &counts);
    calls += counts.count;
  }
  return (double)calls / (double)events->count;
}

/* One replay over a fresh device. */
static int run_once(const char *name, const trace_events *events, const vmm_profile *profile,
                    vmm_address *addresses, bool metered, run_result *result) {
  char message[512] = "";
  const vmm_sim_configuration configuration = {.profile = profile};
  vmm_driver *sim = NULL, *meter = NULL;
  policy *self = NULL;
  policy_spec spec;
  *result = (run_result){0};
  vmm_status status = vmm_sim_create(&configuration, &sim);
  if (status == VMM_SUCCESS && metered) status = vmm_meter_create(sim, &meter);
  if (status == VMM_SUCCESS) status = policy_spec_parse(name, &spec, message, sizeof message);
  if (status == VMM_SUCCESS)
    status = policy_create(&spec, meter ? meter : sim, UINT64_MAX, &self, message, sizeof message);
  bool done = false;
  if (status == VMM_SUCCESS) {
    double begin = now_ns();
    done = replay(self, events, addresses, &result->out_of_memory);
    result->ns_per_event = (now_ns() - begin) / (double)events->count;
    if (meter) result->calls_per_event = calls_per_event(meter, events);
  }
  policy_destroy(self);
  vmm_driver_destroy(meter);
  vmm_driver_destroy(sim);
  if (done) return 0;
  return fail(name, message[0] ? message : "the replay failed");
}

static int compare_numbers(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

static double median(double *numbers, int count) {
  qsort(numbers, (size_t)count, sizeof *numbers, compare_numbers);
  return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

static void print_row(const char *path, const trace_events *events, double *const numbers[POLICIES],
                      const double calls[POLICIES], int runs) {
  const char *name = strrchr(path, '/');
  printf("%-40.40s %9" PRIu64, name ? name + 1 : path, events->count);
  for (int p = 0; p < POLICIES; p++) {
    double middle = median(numbers[p], runs);
    printf(" %8.1f ns %7.2f M/s %6.2f", middle, 1e3 / middle, calls[p]);
  }
  printf("\n");
  fflush(stdout);
}

static int bench_trace(const char *path, const vmm_profile *profile, int runs) {
  trace_events events;
  trace_error error;
  if (trace_load(path, NULL, &events, &error) != TRACE_OK) return fail(path, error.message);
  vmm_address *addresses = calloc(events.slots + 1, sizeof *addresses);
  double *numbers[POLICIES], calls[POLICIES] = {0};
  int failed = addresses == NULL;
  for (int p = 0; p < POLICIES; p++) {
    numbers[p] = malloc((size_t)runs * sizeof *numbers[p]);
    failed |= numbers[p] == NULL;
  }
  if (failed) fail(path, "the host has no memory");
  /* By turns, so that a busy moment of the machine hits all alike; the first round warms up and counts calls.
   */
  for (int run = -1; run < runs && !failed; run++) {
    for (int p = 0; p < POLICIES && !failed; p++) {
      run_result result;
      failed = run_once(policy_names[p], &events, profile, addresses, run < 0, &result);
      if (!failed && result.out_of_memory > 0) failed = fail(policy_names[p], "ran out of memory");
      if (run >= 0)
        numbers[p][run] = result.ns_per_event;
      else
        calls[p] = result.calls_per_event;
    }
  }
  if (!failed) print_row(path, &events, numbers, calls, runs);
  for (int p = 0; p < POLICIES; p++) free(numbers[p]);
  free(addresses);
  trace_events_free(&events);
  return failed;
}

static int compare_paths(const void *left, const void *right) {
  return strcmp(*(char *const *)left, *(char *const *)right);
}

/* The traces that come with the program. The caller frees each. */
static int bundled(char *paths[], int limit) {
  static const char folder[] = "workloads/bundled";
  int count = 0;
  DIR *opened = opendir(folder);
  for (struct dirent *entry; opened && count < limit && (entry = readdir(opened));) {
    if (!strstr(entry->d_name, ".xz")) continue;
    size_t size = sizeof folder + strlen(entry->d_name) + 1;
    paths[count] = malloc(size);
    if (!paths[count]) break;
    snprintf(paths[count++], size, "%s/%s", folder, entry->d_name);
  }
  if (opened) closedir(opened);
  qsort(paths, (size_t)count, sizeof *paths, compare_paths);
  return count;
}

int main(int count, char **arguments) {
  char message[512];
  vmm_profile *profile;
  int runs = count > 1 ? atoi(arguments[1]) : 7;
  if (runs < 1 || runs > RUNS_LIMIT) return fail(arguments[1], "expected a number of runs from 1 to 1000");
  if (vmm_profile_load("h200", &profile, message, sizeof message) != VMM_SUCCESS)
    return fail("h200", message);
  printf("median of %d runs, trace in memory, simulated H200 included, one core\n%-40s %9s", runs, "trace",
         "events");
  for (int p = 0; p < POLICIES; p++) printf(" %23s", policy_names[p]);
  printf("\n");
  char *paths[TRACES_LIMIT];
  int failed = 0, found = count > 2 ? 0 : bundled(paths, TRACES_LIMIT);
  if (count <= 2 && found == 0)
    failed = fail("workloads/bundled", "no traces here; run from the root of the tree");
  for (int i = 2; i < count; i++) failed |= bench_trace(arguments[i], profile, runs);
  for (int i = 0; i < found; i++) {
    failed |= bench_trace(paths[i], profile, runs);
    free(paths[i]);
  }
  vmm_profile_destroy(profile);
  return failed;
}
