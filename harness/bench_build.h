/* One allocation built from chunks and taken down again, each stage timed: reserve, create, map, set access;
 * unmap, release, address free. What Table 1 of the GMLake paper measures. */
#ifndef LAKEBED_HARNESS_BENCH_BUILD_H
#define LAKEBED_HARNESS_BENCH_BUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/bench_samples.h"
#include "vmm/driver.h"

/* XX(name, word in results, call) in the order in which they happen. */
#define BENCH_STAGE_MAP(XX)                \
  XX(RESERVE, "reserve", ADDRESS_RESERVE)  \
  XX(CREATE, "create", CREATE)             \
  XX(MAP, "map", MAP)                      \
  XX(SET_ACCESS, "set_access", SET_ACCESS) \
  XX(UNMAP, "unmap", UNMAP)                \
  XX(RELEASE, "release", RELEASE)          \
  XX(ADDRESS_FREE, "address_free", ADDRESS_FREE)

typedef enum bench_stage {
#define XX(name, word, call) BENCH_##name,
  BENCH_STAGE_MAP(XX)
#undef XX
      BENCH_STAGE_COUNT,
  BENCH_STAGES_BUILDING = BENCH_UNMAP /* so many stages build, the rest take down */
} bench_stage;

extern const char *const bench_stage_words[BENCH_STAGE_COUNT];
extern const vmm_call bench_stage_calls[BENCH_STAGE_COUNT];

enum { BENCH_THREADS = 64 };

typedef struct bench_build_plan {
  uint64_t total, chunk; /* bytes; the last chunk is smaller when chunk does not divide total */
  bool whole_range;      /* one set_access and one unmap for all chunks; false: one a chunk */
  uint64_t aliases;      /* places that each handle is mapped at, the measured one last; at least 1 */
  unsigned threads;      /* each builds its part, all stages side by side; at least 1 */
} bench_build_plan;

/* What one build took. With one thread the time spent in the driver's calls; with several the wall time from
 * when all began a stage to when the last was done with it. */
typedef struct bench_build_times {
  uint64_t ns[BENCH_STAGE_COUNT];
  uint64_t calls[BENCH_STAGE_COUNT];
} bench_build_times;

/* Builds and takes down once. drivers: one a thread. calls: each call's time is added to its stage's samples;
 * NULL: not kept. On failure everything is given back, and *failed is the driver object whose stored error
 * says why (no error stored: the host has no memory). */
vmm_status bench_build_run(vmm_driver *const *drivers, const bench_build_plan *plan, bench_build_times *times,
                           bench_samples calls[BENCH_STAGE_COUNT], vmm_driver **failed);

static inline uint64_t bench_build_ns(const bench_build_times *times) {
  uint64_t sum = 0;
  for (int stage = 0; stage < BENCH_STAGES_BUILDING; stage++) sum += times->ns[stage];
  return sum;
}
static inline uint64_t bench_teardown_ns(const bench_build_times *times) {
  uint64_t sum = 0;
  for (int stage = BENCH_STAGES_BUILDING; stage < BENCH_STAGE_COUNT; stage++) sum += times->ns[stage];
  return sum;
}
/* Chunks that total is made of. */
static inline uint64_t bench_build_chunks(const bench_build_plan *plan) {
  return (plan->total + plan->chunk - 1) / plan->chunk;
}

/* Handles that live beside what is measured, as in a process that holds much memory: of one granule each, all
 * mapped with access in one reservation. Begins as {0}. */
typedef struct bench_filler {
  vmm_handle *handles;
  uint64_t count, capacity; /* live; room for so many in the reservation */
  uint64_t mapped, accessible;
  vmm_address address;
  uint64_t granularity;
} bench_filler;

/* Room for so many handles. */
vmm_status bench_filler_open(bench_filler *filler, vmm_driver *driver, uint64_t capacity,
                             uint64_t granularity);
/* So many live from now on; not fewer than before. */
vmm_status bench_filler_grow(bench_filler *filler, vmm_driver *driver, uint64_t count);
/* Gives all back. The first failure. */
vmm_status bench_filler_close(bench_filler *filler, vmm_driver *driver);

#endif
