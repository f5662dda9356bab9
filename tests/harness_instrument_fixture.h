/* What tests of the instruments share: a run on a simulated device, its events, the trace that it leaves. */
#ifndef LAKEBED_TESTS_HARNESS_INSTRUMENT_FIXTURE_H
#define LAKEBED_TESTS_HARNESS_INSTRUMENT_FIXTURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "harness/instrument_nvtx.h"
#include "harness/instruments.h"
#include "policies/policy.h"
#include "vmm/driver.h"
#include "vmm/profile.h"

#define NVTX_LISTENER "tests/nvtx_listener/libnvtx_listener.so"
#define FAKE_CUPTI "tests/fake_cupti/libfake_cupti.so"

/* Was this library built for this test? (Not without a CUDA toolkit.) */
bool test_library_is_built(const char *path);
/* Its path from the root, to be freed. */
char *test_library_path(const char *path);

/* Hears a driver call begin (site 0) and end (site 1), as CUPTI would. */
typedef void call_hook(const char *function, int site, uint64_t *correlation);

/* A policy over a meter over a device that measures its calls as a real one does and tells the hook of each,
 * over a simulated device. */
typedef struct instrumented_run {
  vmm_profile *profile;
  vmm_driver *sim;
  vmm_driver *traced;
  vmm_driver *meter;
  policy *subject;
} instrumented_run;

/* hook may be NULL. */
void instrumented_run_open(instrumented_run *run, const char *spec, call_hook *hook);
void instrumented_run_close(instrumented_run *run);

/* Allocates and frees so that gmlake goes through S1 to S4, splits and stitches. */
void instrumented_run_exercise(instrumented_run *run);

/* Events for the program: count allocations of many sizes, two thirds of them freed. Path to be freed. */
char *write_events(const char *name, unsigned count);

/* A Chrome trace that was checked: ranges balanced and properly nested by layer, time never going back. */
typedef struct checked_trace {
  uint64_t begins, ends, counters, runs;
  uint64_t live_bytes, reserved_bytes; /* last sampled */
  uint64_t deepest;
} checked_trace;

checked_trace check_trace(const char *path);
/* How many ranges of a name (NULL: any) a category has, and their total time. */
uint64_t count_ranges(const char *path, const char *category, const char *name, double *total_us);

#endif
