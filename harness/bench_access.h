/* bench access: shared by its files:
 *   bench_access.c            options and the order of things
 *   bench_access_bandwidth.c  how fast stitched memory is
 *   bench_access_aliases.c    whether two addresses of one memory are safe */
#ifndef LAKEBED_HARNESS_BENCH_ACCESS_H
#define LAKEBED_HARNESS_BENCH_ACCESS_H

#include "harness/bench_session.h"
#include "harness/bench_stitch.h"

typedef struct bench_access {
  bench_options options;
  bench_session session;
  uint64_t total;       /* bytes of the buffer whose bandwidth is measured */
  uint64_t alias_total; /* bytes of the memory that two kernels change at once */
  uint64_t launches;    /* handovers from address to address */
  vmm_cuda_module *module;
  uint32_t multiprocessors;
  vmm_address scratch;  /* small results of kernels */
  uint64_t wrong_words; /* in all */
} bench_access;

enum { ACCESS_STREAM_A = 1, ACCESS_STREAM_B = 2, ACCESS_SCRATCH = 4096 };

/* What access.cu counts. */
typedef struct access_report {
  uint64_t wrong, first;
} access_report;

/* Says why: a driver call, a launch, a copy that failed. */
exit_status bench_access_failure(bench_access *bench, const char *doing);
/* Launches blocks of 256 threads, blocks_per_multiprocessor on each. */
vmm_status bench_access_launch(bench_access *bench, const char *kernel, uint32_t blocks_per_multiprocessor,
                               vmm_stream stream, void **arguments);
/* Nothing found yet, in the scratch memory. */
vmm_status bench_access_report_clear(bench_access *bench, vmm_stream stream);
/* Waits for the stream and fetches it. */
vmm_status bench_access_report_get(bench_access *bench, vmm_stream stream, access_report *report);

exit_status bench_access_bandwidth(bench_access *bench);
exit_status bench_access_aliases(bench_access *bench);
exit_status bench_access_handover(bench_access *bench);

#endif
