/* A number per page of an address range, 0 at first; the table's leaves come when first
 * needed and stay. */
#ifndef LAKEBED_VMM_SIM_PAGES_H
#define LAKEBED_VMM_SIM_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sim_pages {
  uint32_t **leaves;
  uint64_t leaf_count;
  unsigned leaf_bits;
} sim_pages;

/* false: no host memory. */
bool sim_pages_create(sim_pages *pages, uint64_t count);
void sim_pages_destroy(sim_pages *pages);
/* Makes the leaves of a range, so that filling it cannot fail; false: no host memory. */
bool sim_pages_prepare(sim_pages *pages, uint64_t page, uint64_t count);
void sim_pages_fill(sim_pages *pages, uint64_t page, uint64_t count, uint32_t value);
/* Is every page of the range 0? */
bool sim_pages_empty(const sim_pages *pages, uint64_t page, uint64_t count);

static inline uint32_t sim_pages_get(const sim_pages *pages, uint64_t page) {
  const uint32_t *leaf = pages->leaves[page >> pages->leaf_bits];
  return leaf ? leaf[page & ((UINT64_C(1) << pages->leaf_bits) - 1)] : 0;
}

/* How many pages from this one on lie in a leaf that does not exist, at most limit. */
static inline uint64_t sim_pages_skip(const sim_pages *pages, uint64_t page, uint64_t limit) {
  if (pages->leaves[page >> pages->leaf_bits]) return 0;
  uint64_t leaf_size = UINT64_C(1) << pages->leaf_bits;
  uint64_t left = leaf_size - (page & (leaf_size - 1));
  return left < limit ? left : limit;
}

#endif
