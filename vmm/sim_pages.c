#include "vmm/sim_pages.h"

#include <stdlib.h>

enum { SMALLEST_LEAF_BITS = 10, LARGEST_ROOT_BITS = 16 };

bool sim_pages_create(sim_pages *pages, uint64_t count) {
  pages->leaf_bits = SMALLEST_LEAF_BITS;
  while (count >> pages->leaf_bits >= UINT64_C(1) << LARGEST_ROOT_BITS) pages->leaf_bits++;
  pages->leaf_count = (count >> pages->leaf_bits) + 1;
  pages->leaves = calloc(pages->leaf_count, sizeof *pages->leaves);
  return pages->leaves != NULL;
}

void sim_pages_destroy(sim_pages *pages) {
  for (uint64_t i = 0; pages->leaves && i < pages->leaf_count; i++) free(pages->leaves[i]);
  free(pages->leaves);
  *pages = (sim_pages){0};
}

static uint64_t leaf_size(const sim_pages *pages) { return UINT64_C(1) << pages->leaf_bits; }

/* How many pages from this one on lie in the same leaf, at most limit. */
static uint64_t pages_in_leaf(const sim_pages *pages, uint64_t page, uint64_t limit) {
  uint64_t left = leaf_size(pages) - (page & (leaf_size(pages) - 1));
  return left < limit ? left : limit;
}

bool sim_pages_prepare(sim_pages *pages, uint64_t page, uint64_t count) {
  uint64_t last = (page + count - 1) >> pages->leaf_bits;
  for (uint64_t i = page >> pages->leaf_bits; i <= last; i++) {
    if (pages->leaves[i]) continue;
    pages->leaves[i] = calloc(leaf_size(pages), sizeof **pages->leaves);
    if (!pages->leaves[i]) return false;
  }
  return true;
}

void sim_pages_fill(sim_pages *pages, uint64_t page, uint64_t count, uint32_t value) {
  while (count > 0) {
    uint64_t step = pages_in_leaf(pages, page, count);
    uint32_t *entry = pages->leaves[page >> pages->leaf_bits] + (page & (leaf_size(pages) - 1));
    for (uint64_t i = 0; i < step; i++) entry[i] = value;
    page += step;
    count -= step;
  }
}

bool sim_pages_empty(const sim_pages *pages, uint64_t page, uint64_t count) {
  while (count > 0) {
    uint64_t step = pages_in_leaf(pages, page, count);
    const uint32_t *leaf = pages->leaves[page >> pages->leaf_bits];
    if (leaf) {
      const uint32_t *entry = leaf + (page & (leaf_size(pages) - 1));
      for (uint64_t i = 0; i < step; i++) {
        if (entry[i]) return false;
      }
    }
    page += step;
    count -= step;
  }
  return true;
}
