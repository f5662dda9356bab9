/* One run of a benchmark command: its device, its header, its results, its leak check. */
#ifndef LAKEBED_HARNESS_BENCH_SESSION_H
#define LAKEBED_HARNESS_BENCH_SESSION_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "harness/bench_options.h"
#include "harness/bench_samples.h"
#include "harness/exit_status.h"
#include "harness/output_set.h"
#include "harness/progress.h"
#include "vmm/driver.h"
#include "vmm/profile.h"

enum { BENCH_MESSAGE = 512 };

typedef struct bench_session {
  const bench_options *options;
  vmm_driver *driver;
  bool simulated;
  vmm_profile *profile; /* sim */
  uint64_t granularity;
  uint64_t total_bytes;  /* of the device */
  uint64_t usable_bytes; /* free when it was opened */
  uint64_t free_before;  /* what must be free again when the session closes */
  char device[256];
  char date[32];        /* "2026-11-29T22:41:07Z" */
  char provenance[256]; /* "driver 580.159.04, CUDA 13.0" */

  output_set outputs;
  json_t *header, *results;
  bool lost;                /* a result found no memory */
  bench_samples host_loops; /* see bench_session_probe_host */
  progress shown;
} bench_session;

/* Opens the device, the files and prints the header. what: "vmm". On failure says why and
 * leaves nothing open. */
exit_status bench_session_open(bench_session *session, const bench_options *options, const char *what);
/* Ends a run that went so: gives the device back, checks that it holds nothing of ours any more (a leak
 * is a failed check), writes the files. Returns what the program shall end with. */
exit_status bench_session_close(bench_session *session, exit_status status);

/* What is free now, with what the command has set up for the whole run (kernels), must be free at the end. */
vmm_status bench_session_baseline(bench_session *session);

/* One more object on the device, for a thread of its own. Only on a real device. The caller destroys it. */
exit_status bench_session_add_driver(bench_session *session, vmm_driver **driver);

/* "# key: value" for people, a member of the header in the files. */
void bench_session_note(bench_session *session, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* How long a fixed piece of host work takes now; 0 on a simulated device, whose times do not depend on it.
 * Their spread is noted when the session closes. */
uint64_t bench_session_probe_host(bench_session *session);
/* A line that is only for people. Nothing when there is no report. */
void bench_session_print(bench_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A new result; borrowed, valid until the session closes. Setting a member of it is how a value gets
 * into the files. */
json_t *bench_session_record(bench_session *session, const char *benchmark);
void bench_record_text(bench_session *session, json_t *record, const char *key, const char *value);
void bench_record_integer(bench_session *session, json_t *record, const char *key, uint64_t value);
void bench_record_real(bench_session *session, json_t *record, const char *key, double value);
void bench_record_nothing(bench_session *session, json_t *record, const char *key);
/* PREFIXp50_us, PREFIXp90_us, PREFIXp99_us, PREFIXmax_us. */
void bench_record_microseconds(bench_session *session, json_t *record, const char *prefix,
                               const bench_summary *summary);

/* Says which driver call failed and with what; the status that stands for it. */
exit_status bench_session_driver_failure(bench_session *session, vmm_driver *driver, const char *doing);

/* Every size from minimum to maximum of the options. Returns how many (at most capacity). */
enum { BENCH_SIZES = 64 };
size_t bench_sizes(const bench_options *options, uint64_t sizes[BENCH_SIZES]);

#endif
