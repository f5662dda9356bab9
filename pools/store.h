/* Storage for many items of one size, side by side: freed ones are reused, all go at once. */
#ifndef LAKEBED_POOLS_STORE_H
#define LAKEBED_POOLS_STORE_H

#include <stddef.h>

/* An all-zero struct is an empty store. */
typedef struct pool_store {
  struct pool_slab *slabs;
  struct pool_unused *unused;
} pool_store;

/* A zeroed item, aligned for any type, and to 64 bytes, a line of the processor's cache, if size is a
 * multiple of that; size: at least a pointer's, the same for all of a store. NULL when the host has no
 * memory. Amortised O(size). */
void *pool_store_new(pool_store *store, size_t size);
/* Accepts NULL. O(1). */
void pool_store_delete(pool_store *store, void *item);
/* Deletes all items. */
void pool_store_fini(pool_store *store);

#endif
