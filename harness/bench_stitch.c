#include "harness/bench_stitch.h"

#include <stdlib.h>

static void keep_first(vmm_status *first, vmm_status status) {
  if (*first == VMM_SUCCESS) *first = status;
}

vmm_status bench_stitch_open(bench_stitch *stitch, vmm_driver *driver, uint64_t size, uint64_t chunk) {
  *stitch = (bench_stitch){.driver = driver, .size = size, .chunk = chunk};
  if (chunk == 0 || size == 0 || size % chunk != 0) return VMM_INVALID_VALUE;
  stitch->count = size / chunk;
  stitch->handles = calloc(stitch->count, sizeof *stitch->handles);
  vmm_status status = stitch->handles ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  while (stitch->created < stitch->count && status == VMM_SUCCESS) {
    status = vmm_create(driver, chunk, &stitch->handles[stitch->created]);
    if (status == VMM_SUCCESS) stitch->created++;
  }
  if (status != VMM_SUCCESS) bench_stitch_close(stitch);
  return status;
}

/* Which handle comes next: each once. NULL when the host has no memory. */
static uint64_t *make_order(uint64_t count, bool shuffled, uint64_t seed) {
  uint64_t *order = malloc(count * sizeof *order);
  if (!order) return NULL;
  for (uint64_t i = 0; i < count; i++) order[i] = i;
  for (uint64_t i = count; shuffled && i > 1; i--) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const uint64_t other = (seed >> 33) % i, kept = order[i - 1];
    order[i - 1] = order[other];
    order[other] = kept;
  }
  return order;
}

static vmm_status close_place(bench_stitch *stitch, unsigned place) {
  vmm_status first = VMM_SUCCESS;
  if (stitch->mapped[place]) {
    keep_first(&first, vmm_unmap(stitch->driver, stitch->places[place], stitch->mapped[place]));
  }
  if (stitch->places[place]) {
    keep_first(&first, vmm_address_free(stitch->driver, stitch->places[place], stitch->size));
  }
  stitch->places[place] = 0;
  stitch->mapped[place] = 0;
  return first;
}

vmm_status bench_stitch_map(bench_stitch *stitch, bool shuffled, uint64_t seed, unsigned place) {
  if (place >= BENCH_STITCH_PLACES || stitch->places[place]) return VMM_INVALID_VALUE;
  uint64_t *order = make_order(stitch->count, shuffled, seed);
  if (!order) return VMM_OUT_OF_MEMORY;
  vmm_status status = vmm_address_reserve(stitch->driver, stitch->size, 0, &stitch->places[place]);
  for (uint64_t i = 0; i < stitch->count && status == VMM_SUCCESS; i++) {
    status = vmm_map(stitch->driver, stitch->places[place] + stitch->mapped[place], stitch->chunk, 0,
                     stitch->handles[order[i]]);
    if (status == VMM_SUCCESS) stitch->mapped[place] += stitch->chunk;
  }
  free(order);
  if (status == VMM_SUCCESS) status = vmm_set_access(stitch->driver, stitch->places[place], stitch->size);
  if (status != VMM_SUCCESS) close_place(stitch, place);
  return status;
}

vmm_status bench_stitch_close(bench_stitch *stitch) {
  vmm_status first = VMM_SUCCESS;
  for (unsigned i = 0; i < BENCH_STITCH_PLACES; i++) keep_first(&first, close_place(stitch, i));
  while (stitch->created > 0) {
    keep_first(&first, vmm_release(stitch->driver, stitch->handles[--stitch->created]));
  }
  free(stitch->handles);
  *stitch = (bench_stitch){0};
  return first;
}
