#include "pools/store.h"

#include <stdlib.h>
#include <string.h>

enum { SLAB_ITEMS = 256, CACHE_LINE = 64 };

struct pool_slab {
  struct pool_slab *next;
  _Alignas(CACHE_LINE) max_align_t items[];
};

struct pool_unused {
  struct pool_unused *next;
};

static struct pool_unused *add_slab(pool_store *store, size_t size) {
  const size_t step = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t);
  struct pool_slab *slab = aligned_alloc(CACHE_LINE, sizeof *slab + SLAB_ITEMS * step * sizeof *slab->items);
  if (!slab) return NULL;
  slab->next = store->slabs;
  store->slabs = slab;
  for (size_t i = SLAB_ITEMS; i-- > 0;) pool_store_delete(store, &slab->items[i * step]);
  return store->unused;
}

void *pool_store_new(pool_store *store, size_t size) {
  struct pool_unused *item = store->unused ? store->unused : add_slab(store, size);
  if (!item) return NULL;
  store->unused = item->next;
  return memset(item, 0, size);
}

void pool_store_delete(pool_store *store, void *item) {
  struct pool_unused *unused = item;
  if (!unused) return;
  unused->next = store->unused;
  store->unused = unused;
}

void pool_store_fini(pool_store *store) {
  for (struct pool_slab *slab = store->slabs, *next; slab; slab = next) {
    next = slab->next;
    free(slab);
  }
  *store = (pool_store){0};
}
