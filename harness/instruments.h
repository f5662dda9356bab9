/* The instruments of a program: NVTX ranges, CUPTI, trace events. They hear the pool layer's operations
 * and the meter's driver calls, and are attached run by run.
 *
 * None asked for, or none that anybody listens to: instruments_create gives NULL, which every function
 * here takes, and no observer is ever set. docs/profiling.md says what each shows. */
#ifndef LAKEBED_HARNESS_INSTRUMENTS_H
#define LAKEBED_HARNESS_INSTRUMENTS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/exit_status.h"
#include "harness/instrument.h"
#include "harness/instrument_latency.h"
#include "policies/policy.h"

typedef enum instrument_nvtx_level {
  INSTRUMENT_NVTX_OFF,
  INSTRUMENT_NVTX_COARSE,
  INSTRUMENT_NVTX_ALL
} instrument_nvtx_level;

typedef struct instrument_options {
  instrument_nvtx_level nvtx;
  bool cupti;
  const char *trace_events_path; /* NULL: none */
} instrument_options;

/* --nvtx, --cupti and --trace-events, as a child of a command's parser; its input is an
 * instrument_options. */
extern const struct argp instrument_options_parser;

typedef struct instruments instruments;

/* Makes those asked for. Warns on standard error of one that can show nothing and leaves it out. On
 * failure says why: USAGE for what this program was built without or a file that cannot be
 * written. */
exit_status instruments_create(const instrument_options *options, instruments **created, char *message,
                               size_t message_size);
/* Makes a set of given instruments, which it then owns. NULL when the host has no memory. */
instruments *instruments_of(instrument *const *list, size_t count);
/* Detaches and ends them. Returns false and says why when an output file is not complete. */
bool instruments_destroy(instruments *set, char *message, size_t message_size);

/* A run begins: observes the policy's heap and the meter. The caller keeps run's strings. */
void instruments_attach(instruments *set, const instrument_run *run, policy *subject, vmm_driver *meter);
/* Latencies of the run's driver calls up to now; later ones are not counted. NULL when nothing measures
 * them. The caller frees it. */
instrument_report *instruments_report(instruments *set);
/* The run is over. Before the meter is destroyed; the policy may be gone. */
void instruments_detach(instruments *set);

/* The functions behind those below; set is not NULL. */
void instruments_range_begin(instruments *set, const char *name, uint64_t bytes);
void instruments_range_end(instruments *set);
void instruments_clock_pause(instruments *set);
void instruments_clock_resume(instruments *set);
void instruments_memory_changed(instruments *set, uint64_t live_bytes);
void instruments_allocation_made(instruments *set, vmm_address address, uint64_t size, uint64_t number);
void instruments_allocation_freed(instruments *set, vmm_address address);

/* The harness's own work, a range around what is called in between. name: static. */
static inline void instruments_begin(instruments *set, const char *name, uint64_t bytes) {
  if (set) instruments_range_begin(set, name, bytes);
}
static inline void instruments_end(instruments *set) {
  if (set) instruments_range_end(set);
}
/* What happens in between is no part of the run. */
static inline void instruments_pause(instruments *set) {
  if (set) instruments_clock_pause(set);
}
static inline void instruments_resume(instruments *set) {
  if (set) instruments_clock_resume(set);
}
/* After an event. */
static inline void instruments_memory(instruments *set, uint64_t live_bytes) {
  if (set) instruments_memory_changed(set, live_bytes);
}
static inline void instruments_allocated(instruments *set, vmm_address address, uint64_t size,
                                         uint64_t number) {
  if (set) instruments_allocation_made(set, address, size, number);
}
static inline void instruments_freed(instruments *set, vmm_address address) {
  if (set) instruments_allocation_freed(set, address);
}

#endif
