/* What instruments cost: the same operations with and without them, on a simulated device.
 *
 *   instrument_bench [LISTENER]
 *
 * LISTENER: a library for NVTX_INJECTION64_PATH, which stands for a tool that listens; default: the tests'
 * own. Prints nanoseconds of processor time an operation (an allocation or a free), the least of several
 * batches, and how much more that is than without instruments, also for each range. Each measurement has a
 * process of its own. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/instrument_nvtx.h"
#include "harness/instruments.h"
#include "harness/table.h"
#include "policies/policy.h"
#include "vmm/meter.h"
#include "vmm/profile.h"
#include "vmm/sim.h"

enum { PAIRS = 500, BATCHES = 100, LIVE = 64 };

/* What is measured. */
typedef struct subject {
  const char *name;
  const char *spec;
  uint64_t size;
  const char *explanation;
} subject;

static const subject subjects[] = {
    {"cached", "bfc", 3 << 20, "bfc, blocks from its cache: no driver call"},
    {"native", "native", 3 << 20, "native, a driver call each"},
    {"rawvmm", "rawvmm", 16 << 20, "rawvmm, 16 MiB of 2 MiB chunks"},
};

typedef struct setting {
  const char *name;
  instrument_options options;
  bool listener; /* a tool listens to NVTX */
} setting;

static const setting settings[] = {
    {"none", {0}, false},
    {"nvtx all, no tool", {.nvtx = INSTRUMENT_NVTX_ALL}, false},
    {"nvtx coarse, listener", {.nvtx = INSTRUMENT_NVTX_COARSE}, true},
    {"nvtx all, listener", {.nvtx = INSTRUMENT_NVTX_ALL}, true},
    {"own clock by operation", {.cupti = true}, false},
    {"trace events, /dev/null", {.trace_events_path = "/dev/null"}, false},
    {"trace events, file", {.trace_events_path = "instrument_bench.trace.json"}, false},
};

enum { SUBJECTS = sizeof subjects / sizeof *subjects, SETTINGS = sizeof settings / sizeof *settings };

typedef struct bench_run {
  vmm_profile *profile;
  vmm_driver *device, *meter;
  policy *subject;
  instruments *set;
} bench_run;

/* What is measured in the child and told to the parent. */
typedef struct measurement {
  double operation_ns; /* negative: could not be measured */
  double ranges;       /* an operation, if all levels are heard */
} measurement;

static bool open_run(bench_run *run, const subject *what, const setting *how) {
  char message[512];
  policy_spec spec;
  const instrument_run described = {what->spec, "bench", true, NULL};
  if (vmm_profile_load("h200", &run->profile, message, sizeof message) != VMM_SUCCESS) return false;
  const vmm_sim_configuration configuration = {.profile = run->profile, .capacity = UINT64_C(64) << 30};
  if (vmm_sim_create(&configuration, &run->device) != VMM_SUCCESS) return false;
  if (vmm_meter_create(run->device, &run->meter) != VMM_SUCCESS) return false;
  if (policy_spec_parse(what->spec, &spec, message, sizeof message) != VMM_SUCCESS) return false;
  if (policy_create(&spec, run->meter, UINT64_MAX, &run->subject, message, sizeof message) != VMM_SUCCESS)
    return false;
  if (instruments_create(&how->options, &run->set, message, sizeof message) != EXIT_STATUS_DONE) return false;
  instruments_attach(run->set, &described, run->subject, run->meter);
  return true;
}

/* Processor time, which a busy machine does not change much. */
static uint64_t processor_ns(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return 0;
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t count_calls(const bench_run *run) {
  uint64_t calls = 0;
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts;
    vmm_meter_get(run->meter, (vmm_call)call, &counts);
    calls += counts.count;
  }
  return calls;
}

/* As the replay loop does it: an event, then a look at the memory. */
static bool allocate_and_free(bench_run *run, vmm_address *address, uint64_t size) {
  instruments_freed(run->set, *address);
  if (policy_free(run->subject, *address) != VMM_SUCCESS) return false;
  instruments_memory(run->set, 0);
  if (policy_alloc(run->subject, size, 0, address) != VMM_SUCCESS) return false;
  instruments_allocated(run->set, *address, size, 0);
  instruments_memory(run->set, size);
  return true;
}

static measurement measure(const subject *what, const setting *how) {
  bench_run run = {0};
  measurement found = {-1, 0};
  vmm_address addresses[LIVE] = {0};
  if (!open_run(&run, what, how)) return found;
  for (int i = 0; i < LIVE; i++) {
    if (policy_alloc(run.subject, what->size, 0, &addresses[i]) != VMM_SUCCESS) return found;
  }
  double least = -1;
  uint64_t calls = count_calls(&run);
  for (int batch = 0; batch < BATCHES; batch++) {
    uint64_t begin_ns = processor_ns();
    for (int i = 0; i < PAIRS; i++) {
      if (!allocate_and_free(&run, &addresses[i % LIVE], what->size)) return found;
    }
    double each = (double)(processor_ns() - begin_ns) / (2.0 * PAIRS);
    if (least < 0 || each < least) least = each;
  }
  found.operation_ns = least;
  found.ranges = (double)(count_calls(&run) - calls) / (2.0 * PAIRS * BATCHES) + 1;
  return found;
}

/* In a process of its own: a tool is found at the first NVTX call and stays. */
static measurement measure_apart(const subject *what, const setting *how, const char *listener) {
  measurement found = {-1, 0};
  int channel[2];
  if ((how->listener && access(listener, R_OK) != 0) || pipe(channel) != 0) return found;
  pid_t child = fork();
  if (child == 0) {
    if (how->listener) setenv("NVTX_INJECTION64_PATH", listener, 1);
    if (!how->listener) unsetenv("NVTX_INJECTION64_PATH");
    setenv("LAKEBED_CUPTI", "/none", 1);
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    found = measure(what, how);
    _exit(write(channel[1], &found, sizeof found) == sizeof found ? 0 : 1);
  }
  close(channel[1]);
  if (read(channel[0], &found, sizeof found) != sizeof found) found.operation_ns = -1;
  close(channel[0]);
  if (child > 0) waitpid(child, NULL, 0);
  return found;
}

static bool print_subject(const subject *what, const char *listener) {
  static const char *const titles[] = {"<instruments", "ns/operation", "more", "more a range"};
  table *rows = table_create(titles, 4);
  measurement without = {-1, 0};
  for (size_t i = 0; i < SETTINGS; i++) {
    measurement found = measure_apart(what, &settings[i], listener);
    if (i == 0) without = found;
    table_row(rows);
    table_cell(rows, "%s", settings[i].name);
    if (found.operation_ns < 0) {
      table_cell(rows, "not measured");
      continue;
    }
    double more = found.operation_ns - without.operation_ns;
    bool coarse = settings[i].options.nvtx == INSTRUMENT_NVTX_COARSE;
    table_cell(rows, "%.1f", found.operation_ns);
    table_cell(rows, "%.1f", more);
    table_cell(rows, "%.1f", more / (coarse ? 1 : found.ranges));
  }
  printf("%s: %s; %.1f ranges an operation\n", what->name, what->explanation, without.ranges);
  bool printed = table_print(rows, stdout);
  puts("");
  table_destroy(rows);
  return printed;
}

int main(int argc, char **argv) {
  const char *listener = argc > 1 ? argv[1] : "tests/nvtx_listener/libnvtx_listener.so";
  char *path = realpath(listener, NULL);
  bool printed = true;
  for (size_t i = 0; i < SUBJECTS && printed; i++)
    printed = print_subject(&subjects[i], path ? path : listener);
  unlink("instrument_bench.trace.json");
  free(path);
  return printed ? 0 : 1;
}
