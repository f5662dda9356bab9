/* Memory stitched from handles, as often as wanted. */
#ifndef LAKEBED_HARNESS_BENCH_STITCH_H
#define LAKEBED_HARNESS_BENCH_STITCH_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/driver.h"

enum { BENCH_STITCH_PLACES = 4 };

/* Begins as {0}. */
typedef struct bench_stitch {
  vmm_driver *driver;
  uint64_t size, chunk, count; /* count handles of chunk bytes */
  vmm_handle *handles;
  uint64_t created;
  vmm_address places[BENCH_STITCH_PLACES]; /* each maps all handles; 0: unused */
  uint64_t mapped[BENCH_STITCH_PLACES];
} bench_stitch;

/* Creates the handles; size is a multiple of chunk. On failure nothing is left. */
vmm_status bench_stitch_open(bench_stitch *stitch, vmm_driver *driver, uint64_t size, uint64_t chunk);
/* Maps all handles one after the other, in the order they were created or in a random one (that depends on
 * seed alone), with access. On failure the place is as before. */
vmm_status bench_stitch_map(bench_stitch *stitch, bool shuffled, uint64_t seed, unsigned place);
/* The device is done with all. Returns the first failure. */
vmm_status bench_stitch_close(bench_stitch *stitch);

#endif
