/* GMLake's virtual memory stitching, as the paper describes it (ASPLOS'24, arXiv
 * 2401.08156, sections 3 and 4): pPool, sPool, BestFit, Split, Stitch, Update,
 * StitchFree and the allocation states S1 to S5.
 *
 * Where the paper is silent: pools are kept per stream; both parts of a split pBlock
 * keep their part of its VA; a request below the fragmentation limit takes the
 * smallest larger block whole if that wastes less than the limit; when the device
 * is full, free pBlocks of all streams go back to it before S5 is reported. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/gmlake_stitched.h"
#include "policies/policy.h"
#include "policies/pytorch_rounding.h"
#include "pools/caching.h"

enum { OPTION_CHUNK, OPTION_FRAG_LIMIT, OPTION_STITCH_BYTES, OPTION_STITCH_COUNT };

static const policy_option options[] = {
    {"chunk", POLICY_OPTION_SIZE, "2MiB", POLICY_GRANULARITY, 1e15, NULL, "bytes",
     "size of one physical handle; requests below it go to the small pool"},
    {"frag_limit", POLICY_OPTION_SIZE, "2MiB", 0, 0, NULL, "bytes",
     "blocks below this size are neither split nor stitched (the paper's example is 128MiB)"},
    {"stitch_bytes", POLICY_OPTION_SIZE, "1TiB", 0, 0, NULL, "bytes",
     "most VA that sBlocks may take; beyond it the least recently used inactive ones are freed"},
    {"stitch_count", POLICY_OPTION_INTEGER, "100000", 0, 0, NULL, "sBlocks",
     "most sBlocks to keep; beyond it the least recently used inactive ones are freed"},
    {0},
};

enum state { S1, S2, S3, S4, S5, STATES };

enum { STITCH_FREE_WALK = 64 }; /* sBlocks looked at for each free, at most, while over a limit */

typedef struct gmlake {
  policy base;
  pool_block_store blocks;
  pool_caching small;    /* requests below one chunk */
  pool_free_set pblocks; /* inactive pBlocks */
  gmlake_stitched stitched;
  uint64_t chunk;
  uint64_t frag_limit;
  uint64_t stitch_bytes_limit;
  uint64_t stitch_count_limit;
  uint64_t pblocks_made; /* by Alloc: of equal pBlocks the oldest serves, whatever the addresses */
  uint64_t pblock_bytes; /* active and inactive */
  uint64_t frees_before_stitch_free; /* since it found too little the last time */
  uint64_t below_limit;              /* requests below the fragmentation limit, which never stitch */
  unsigned state_operation[STATES];
  unsigned split_operation, stitch_operation, stitch_free_operation;
  pool_chunk **chunks; /* room for a stitch in the making */
  uint64_t chunks_capacity;
} gmlake;

static vmm_status gmlake_create(const policy_configuration *configuration, policy **created, char *message,
                                size_t message_size) {
  gmlake *self = calloc(1, sizeof *self);
  if (!self) return VMM_OUT_OF_MEMORY;
  const policy_value *values = configuration->values;
  pool_heap *heap = &self->base.heap;
  vmm_status status = pool_heap_init(heap, configuration->driver, true, configuration->limit);
  self->chunk = values[OPTION_CHUNK].integer;
  self->frag_limit = values[OPTION_FRAG_LIMIT].integer;
  self->stitch_bytes_limit = values[OPTION_STITCH_BYTES].integer;
  self->stitch_count_limit = values[OPTION_STITCH_COUNT].integer;
  if (status == VMM_SUCCESS && self->chunk % heap->granularity != 0) {
    snprintf(message, message_size,
             "policy gmlake: chunk=%s is no multiple of the device's granularity of %" PRIu64 " bytes",
             values[OPTION_CHUNK].text, heap->granularity);
    status = VMM_INVALID_VALUE;
  } else if (status == VMM_SUCCESS && self->stitch_bytes_limit < self->frag_limit &&
             self->frag_limit != UINT64_MAX) {
    /* No stitched block could be kept, and what Alloc adds below the limit is never stitched again. */
    snprintf(message, message_size, "policy gmlake: stitch_bytes=%s must not be below frag_limit=%s",
             values[OPTION_STITCH_BYTES].text, values[OPTION_FRAG_LIMIT].text);
    status = VMM_INVALID_VALUE;
  }
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  static const char *const names[STATES] = {"S1", "S2", "S3", "S4", "S5"};
  for (int i = 0; i < STATES; i++) self->state_operation[i] = pool_operation_define(heap, names[i]);
  self->split_operation = pool_operation_define(heap, "split");
  self->stitch_operation = pool_operation_define(heap, "stitch");
  self->stitch_free_operation = pool_operation_define(heap, "stitch_free");
  pool_caching_init(&self->small, heap, &self->blocks);
  self->small.by_age = true;
  gmlake_stitched_init(&self->stitched, heap);
  *created = &self->base;
  return VMM_SUCCESS;
}

static void gmlake_destroy(policy *base) {
  gmlake *self = (gmlake *)base;
  gmlake_stitched_fini(&self->stitched);
  pool_heap_fini(&base->heap);
  pool_caching_fini(&self->small);
  pool_free_set_fini(&self->pblocks);
  pool_block_store_fini(&self->blocks);
  free(self->chunks);
  free(self);
}

/* ---- physical memory ---- */

static pool_slot *first_slot(const pool_block *pblock) {
  const pool_range *range = pblock->backing;
  return &range->slots[(pblock->address - range->address) / range->unit];
}

static vmm_status reserve_chunks(gmlake *self, uint64_t count) {
  if (count <= self->chunks_capacity) return VMM_SUCCESS;
  uint64_t capacity = count + count / 2;
  pool_chunk **larger = realloc(self->chunks, capacity * sizeof *larger);
  if (!larger) return VMM_OUT_OF_MEMORY;
  self->chunks = larger;
  self->chunks_capacity = capacity;
  return VMM_SUCCESS;
}

/* Puts the chunks of the first size bytes of a pBlock at place at. Returns the next place. */
static uint64_t gather(gmlake *self, uint64_t at, const pool_block *pblock, uint64_t size) {
  const pool_slot *slot = first_slot(pblock);
  for (uint64_t i = 0; i < size / self->chunk; i++) self->chunks[at++] = slot[i].chunk;
  return at;
}

/* Alloc: the only source of physical memory. The pBlock is in no set yet. */
static vmm_status alloc_pblock(gmlake *self, uint64_t size, vmm_stream stream, pool_block **made) {
  pool_heap *heap = &self->base.heap;
  uint64_t count = size / self->chunk;
  pool_chunk **chunks = malloc(count * sizeof *chunks);
  pool_block *pblock = pool_block_new(&self->blocks);
  pool_range *range = NULL;
  pool_operation_begin(heap, POOL_OPERATION_GROW, size);
  vmm_status status =
      chunks && pblock ? pool_range_reserve(heap, size, self->chunk, &range) : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) {
    status = pool_chunks_create(heap, self->chunk, count, pblock, chunks);
    if (status == VMM_SUCCESS) {
      status = pool_range_map(heap, range, 0, chunks, count);
      for (uint64_t i = 0; status != VMM_SUCCESS && i < count; i++) pool_chunk_give_up(heap, chunks[i]);
    }
    if (status != VMM_SUCCESS) pool_range_free(heap, range);
  }
  pool_operation_end(heap);
  free(chunks);
  if (status != VMM_SUCCESS) {
    if (pblock) pool_block_delete(&self->blocks, pblock);
    return status;
  }
  *pblock = (pool_block){.address = range->address,
                         .size = size,
                         .order = pool_block_order(self->pblocks_made++),
                         .stream = stream,
                         .state = POOL_BLOCK_LIVE,
                         .backing = range,
                         .pool = &self->pblocks};
  self->pblock_bytes += size;
  *made = pblock;
  return VMM_SUCCESS;
}

/* Returns a pBlock in no set, whose chunks no sBlock maps, to the driver. One that cannot be
 * unmapped is free afterwards. */
static vmm_status free_pblock(gmlake *self, pool_block *pblock) {
  pool_heap *heap = &self->base.heap;
  pool_range *range = pblock->backing;
  uint64_t count = pblock->size / self->chunk;
  vmm_status status = reserve_chunks(self, count);
  if (status == VMM_SUCCESS) {
    gather(self, 0, pblock, pblock->size);
    status = pool_range_unmap(heap, range, pblock->address - range->address, pblock->size);
  }
  if (status != VMM_SUCCESS) {
    pool_free_set_insert(&self->pblocks, pblock);
    return status;
  }
  for (uint64_t i = 0; i < count; i++) {
    vmm_status released = pool_chunk_give_up(heap, self->chunks[i]);
    if (status == VMM_SUCCESS) status = released;
  }
  if (pblock->previous) pblock->previous->next = pblock->next;
  if (pblock->next) pblock->next->previous = pblock->previous;
  if (range->mapped == 0) {
    vmm_status freed = pool_range_free(heap, range);
    if (status == VMM_SUCCESS) status = freed;
  }
  self->pblock_bytes -= pblock->size;
  heap->statistics.driver_frees++;
  pool_block_delete(&self->blocks, pblock);
  return status;
}

/* ---- Split, Update, StitchFree ---- */

static void activate(gmlake *self, pool_block *pblock) {
  pool_free_set_remove(&self->pblocks, pblock);
  pblock->state = POOL_BLOCK_LIVE;
}

/* What a split needs from the host, taken before anything changes. */
typedef struct split_parts {
  pool_block *rest;
  gmlake_sblock *whole;
} split_parts;

static vmm_status prepare_split(gmlake *self, const pool_block *pblock, split_parts *parts) {
  parts->rest = pool_block_new(&self->blocks);
  if (!parts->rest) return VMM_OUT_OF_MEMORY;
  vmm_status status = gmlake_stitch_view(&self->stitched, pblock->backing, pblock->address, pblock->size,
                                         pblock->stream, &parts->whole);
  if (status != VMM_SUCCESS) pool_block_delete(&self->blocks, parts->rest);
  return status;
}

static void abandon_split(gmlake *self, split_parts *parts) {
  pool_block_delete(&self->blocks, parts->rest);
  gmlake_unstitch(&self->stitched, parts->whole);
}

/* Split an inactive pBlock: the front stays, the rest becomes a pBlock of its own, and the
 * old size remains an exact match. sBlocks find the parts through their chunks. */
static void split(gmlake *self, pool_block *pblock, uint64_t size, split_parts *parts) {
  pool_operation_begin(&self->base.heap, self->split_operation, size);
  pool_free_set_remove(&self->pblocks, pblock);
  pool_block_split(pblock, size, parts->rest);
  pool_slot *slot = first_slot(parts->rest);
  for (uint64_t i = 0; i < parts->rest->size / self->chunk; i++) slot[i].chunk->owner = parts->rest;
  pool_free_set_insert(&self->pblocks, pblock);
  pool_free_set_insert(&self->pblocks, parts->rest);
  pool_operation_end(&self->base.heap);
}

static bool is_over_limits(const gmlake *self) {
  return self->stitched.stitched_bytes > self->stitch_bytes_limit ||
         self->stitched.count > self->stitch_count_limit;
}

/* The least recently used sBlock from here on that may be freed. Views take no VA. */
static gmlake_sblock *next_to_free(gmlake_sblock *sblock, bool views_too) {
  while (sblock && ((sblock->view && !views_too) || !gmlake_sblock_inactive(sblock))) sblock = sblock->newer;
  return sblock;
}

/* StitchFree: drops the least recently used inactive sBlocks until VA and count are an
 * eighth below their limits. The host waits first, if there is anything to drop: their memory may
 * still be in use. What found too little is tried again only after some frees, so that a
 * free costs no more than a bounded part of the walk. */
static void stitch_free(gmlake *self) {
  gmlake_stitched *stitched = &self->stitched;
  if (!is_over_limits(self) || self->frees_before_stitch_free > 0) return;
  bool views_too = stitched->count > self->stitch_count_limit;
  gmlake_sblock *sblock = next_to_free(stitched->oldest, views_too);
  pool_heap *heap = &self->base.heap;
  if (sblock) {
    pool_operation_begin(heap, self->stitch_free_operation, 0);
    heap->statistics.host_waits++;
    bool idle = vmm_synchronize(heap->driver) == VMM_SUCCESS;
    while (idle && sblock) {
      bool bytes_kept = stitched->stitched_bytes <= self->stitch_bytes_limit - self->stitch_bytes_limit / 8;
      views_too = stitched->count > self->stitch_count_limit - self->stitch_count_limit / 8;
      if (bytes_kept && !views_too) break;
      gmlake_sblock *newer = sblock->newer;
      if (!sblock->view || views_too) gmlake_unstitch(stitched, sblock);
      sblock = next_to_free(newer, views_too);
    }
    pool_operation_end(heap);
  }
  if (is_over_limits(self)) self->frees_before_stitch_free = stitched->count / STITCH_FREE_WALK;
}

/* Everything unused goes back to the driver. */
static vmm_status release_cached(gmlake *self) {
  pool_heap *heap = &self->base.heap;
  heap->statistics.host_waits++;
  vmm_status first = vmm_synchronize(heap->driver);
  if (first != VMM_SUCCESS) return first;
  for (gmlake_sblock *sblock = self->stitched.oldest, *newer; sblock; sblock = newer) {
    newer = sblock->newer;
    vmm_status status = gmlake_unstitch(&self->stitched, sblock);
    if (first == VMM_SUCCESS) first = status;
  }
  for (uint32_t stream = 0; stream < self->pblocks.streams; stream++) {
    for (pool_block *pblock = pool_free_set_first(&self->pblocks, stream), *next; pblock; pblock = next) {
      next = pool_free_set_next(pblock);
      bool stitched_elsewhere = false;
      for (uint64_t i = 0; i < pblock->size / self->chunk; i++)
        stitched_elsewhere |= first_slot(pblock)[i].chunk->mappings > 1;
      if (stitched_elsewhere) continue;
      pool_free_set_remove(&self->pblocks, pblock);
      vmm_status status = free_pblock(self, pblock);
      if (first == VMM_SUCCESS) first = status;
    }
  }
  vmm_status small = pool_caching_release_all(&self->small);
  return first == VMM_SUCCESS ? small : first;
}

/* ---- the states ---- */

/* Gives out a free pBlock, or its front if parts for a split are prepared. */
static vmm_status give_pblock(gmlake *self, pool_block *pblock, uint64_t size, split_parts *parts,
                              uint64_t requested, vmm_address *address) {
  vmm_status status =
      pool_heap_hand_out(&self->base.heap, pblock->address, size, requested, pblock->stream, pblock);
  if (status != VMM_SUCCESS) return status;
  if (parts) split(self, pblock, size, parts);
  activate(self, pblock);
  *address = pblock->address;
  return VMM_SUCCESS;
}

static vmm_status give_sblock(gmlake *self, gmlake_sblock *sblock, uint64_t requested, vmm_address *address) {
  const pool_block *base = &sblock->base;
  vmm_status status =
      pool_heap_hand_out(&self->base.heap, base->address, base->size, requested, base->stream, sblock);
  if (status != VMM_SUCCESS) return status;
  pool_block *member;
  uint64_t index;
  GMLAKE_FOR_EACH_MEMBER(member, index, sblock) activate(self, member);
  gmlake_sblock_hold(&self->stitched, sblock);
  *address = base->address;
  return VMM_SUCCESS;
}

/* S2: the smallest larger pBlock, split unless the fragmentation limit forbids. */
static vmm_status single_block(gmlake *self, pool_block *pblock, uint64_t size, uint64_t requested,
                               vmm_address *address) {
  if (size < self->frag_limit) return give_pblock(self, pblock, pblock->size, NULL, requested, address);
  split_parts parts;
  vmm_status status = prepare_split(self, pblock, &parts);
  if (status != VMM_SUCCESS) return status;
  status = give_pblock(self, pblock, size, &parts, requested, address);
  if (status != VMM_SUCCESS) abandon_split(self, &parts);
  return status;
}

/* Makes an sBlock of the chunks gathered so far. */
static vmm_status stitch(gmlake *self, uint64_t count, uint64_t size, vmm_stream stream,
                         gmlake_sblock **made) {
  pool_operation_begin(&self->base.heap, self->stitch_operation, size);
  vmm_status status = gmlake_stitch(&self->stitched, self->chunks, count, size, stream, made);
  pool_operation_end(&self->base.heap);
  return status;
}

/* S3: enough free pBlocks together, from the largest down; the last one is split to fit. */
static vmm_status several_blocks(gmlake *self, uint64_t size, vmm_stream stream, uint64_t requested,
                                 vmm_address *address) {
  vmm_status status = reserve_chunks(self, size / self->chunk);
  if (status != VMM_SUCCESS) return status;
  pool_block *last = pool_free_set_largest(&self->pblocks, stream);
  uint64_t missing = size, count = 0, part;
  while (true) {
    part = last->size < missing ? last->size : missing;
    count = gather(self, count, last, part);
    missing -= part;
    if (missing == 0) break;
    last = pool_free_set_previous(last);
  }
  bool splits = part < last->size;
  split_parts parts;
  if (splits && (status = prepare_split(self, last, &parts)) != VMM_SUCCESS) return status;
  gmlake_sblock *sblock = NULL;
  status = stitch(self, count, size, stream, &sblock);
  if (status != VMM_SUCCESS) {
    if (splits) abandon_split(self, &parts);
    return status;
  }
  if (splits) split(self, last, part, &parts);
  return give_sblock(self, sblock, requested, address);
}

/* S4: new memory for what is missing, stitched with all candidates. */
static vmm_status insufficient(gmlake *self, uint64_t size, uint64_t available, vmm_stream stream,
                               uint64_t requested, vmm_address *address) {
  if (!pool_heap_within_limit(&self->base.heap, size - available)) return VMM_OUT_OF_MEMORY;
  vmm_status status = pool_free_set_prepare(&self->pblocks, stream);
  if (status == VMM_SUCCESS) status = reserve_chunks(self, size / self->chunk);
  if (status != VMM_SUCCESS) return status;
  pool_block *fresh = NULL;
  gmlake_sblock *sblock = NULL;
  status = alloc_pblock(self, size - available, stream, &fresh);
  if (status != VMM_SUCCESS) return status;
  if (available > 0) {
    uint64_t count = 0, missing = available;
    for (pool_block *pblock = pool_free_set_largest(&self->pblocks, stream); missing > 0;
         pblock = pool_free_set_previous(pblock)) {
      count = gather(self, count, pblock, pblock->size);
      missing -= pblock->size;
    }
    count = gather(self, count, fresh, fresh->size);
    status = stitch(self, count, size, stream, &sblock);
    if (status != VMM_SUCCESS) {
      free_pblock(self, fresh);
      return status;
    }
  }
  pool_free_set_insert(&self->pblocks, fresh);
  return sblock ? give_sblock(self, sblock, requested, address)
                : give_pblock(self, fresh, fresh->size, NULL, requested, address);
}

/* Bytes of free pBlocks of the stream that may be stitched, counted up to wanted. */
static uint64_t candidates(const gmlake *self, vmm_stream stream, uint64_t wanted) {
  uint64_t available = 0;
  for (pool_block *pblock = pool_free_set_largest(&self->pblocks, stream);
       pblock && pblock->size >= self->frag_limit && available < wanted;
       pblock = pool_free_set_previous(pblock)) {
    available += pblock->size;
  }
  return available;
}

/* BestFit and what follows from it (the paper's Figure 9). */
static vmm_status alloc_large(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                              vmm_address *address) {
  pool_heap *heap = &self->base.heap;
  pool_block *pblock = pool_free_set_best_fit(&self->pblocks, stream, size);
  bool exact = pblock && pblock->size == size, may_stitch = size >= self->frag_limit;
  gmlake_sblock *sblock = exact ? NULL : gmlake_stitched_find(&self->stitched, stream, size);
  uint64_t available = 0;
  enum state state = S4;
  if (exact || sblock) {
    state = S1;
  } else if (pblock && (may_stitch || pblock->size - size < self->frag_limit)) {
    state = S2;
  } else if (may_stitch && (available = candidates(self, stream, size)) >= size) {
    state = S3;
  }
  vmm_status status;
  pool_operation_begin(heap, self->state_operation[state], size);
  if (state == S1) {
    status = sblock ? give_sblock(self, sblock, requested, address)
                    : give_pblock(self, pblock, size, NULL, requested, address);
  } else {
    status = state == S2   ? single_block(self, pblock, size, requested, address)
             : state == S3 ? several_blocks(self, size, stream, requested, address)
                           : insufficient(self, size, available, stream, requested, address);
    if (status == VMM_SUCCESS) stitch_free(self);
  }
  pool_operation_end(heap);
  return status;
}

static vmm_status alloc_small(gmlake *self, uint64_t requested, vmm_stream stream, vmm_address *address) {
  uint64_t size = (requested + PYTORCH_BLOCK_MINIMUM - 1) / PYTORCH_BLOCK_MINIMUM * PYTORCH_BLOCK_MINIMUM;
  pool_block *block = pool_free_set_best_fit(&self->small.free, stream, size);
  if (!block) {
    vmm_status status = pool_caching_grow(&self->small, self->chunk, stream, &block);
    if (status != VMM_SUCCESS) return status;
  }
  return pool_caching_hand_out(&self->small, block, size, requested,
                               block->size - size >= PYTORCH_BLOCK_MINIMUM, address);
}

/* Update: a freed block is inactive again, and with it every sBlock that has no active pBlock left. */
static void take_back(gmlake *self, const pool_allocation *taken) {
  pool_block *block = taken->owner;
  if (self->frees_before_stitch_free > 0) self->frees_before_stitch_free--;
  if (block->pool == &self->small) {
    pool_caching_take_back(&self->small, block);
  } else if (block->pool == &self->stitched) {
    gmlake_sblock *sblock = taken->owner;
    pool_block *member;
    uint64_t index;
    GMLAKE_FOR_EACH_MEMBER(member, index, sblock) pool_free_set_insert(&self->pblocks, member);
    gmlake_sblock_let_go(&self->stitched, sblock);
  } else {
    pool_free_set_insert(&self->pblocks, block);
  }
}

static void take_back_complete(gmlake *self, bool wait) {
  pool_allocation taken;
  while (pool_heap_next_complete(&self->base.heap, wait, &taken)) take_back(self, &taken);
}

static vmm_status gmlake_alloc(policy *base, uint64_t requested, vmm_stream stream, vmm_address *address) {
  gmlake *self = (gmlake *)base;
  pool_heap *heap = &base->heap;
  take_back_complete(self, false);
  uint64_t size = (requested + self->chunk - 1) / self->chunk * self->chunk;
  bool small = requested < self->chunk;
  if (!small && size < self->frag_limit) self->below_limit++;
  vmm_status status = small ? alloc_small(self, requested, stream, address)
                            : alloc_large(self, size, requested, stream, address);
  if (status != VMM_OUT_OF_MEMORY) return status;
  take_back_complete(self, true);
  release_cached(self);
  heap->statistics.retries++;
  status = small ? alloc_small(self, requested, stream, address)
                 : alloc_large(self, size, requested, stream, address);
  if (status == VMM_OUT_OF_MEMORY) {
    pool_operation_begin(heap, self->state_operation[S5], requested);
    pool_operation_end(heap);
  }
  return status;
}

static vmm_status gmlake_free(policy *base, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(&base->heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  vmm_status status;
  if (pool_heap_take_back(&base->heap, allocation, &taken, &status)) {
    take_back((gmlake *)base, &taken);
    stitch_free((gmlake *)base);
  }
  return status;
}

static vmm_status gmlake_record_stream(policy *base, vmm_address address, vmm_stream stream) {
  return pool_heap_record_stream(&base->heap, address, stream);
}

static vmm_status gmlake_trim(policy *base) {
  gmlake *self = (gmlake *)base;
  take_back_complete(self, true);
  return release_cached(self);
}

static size_t gmlake_counters(const policy *base, policy_counter *counters, size_t capacity) {
  const gmlake *self = (const gmlake *)base;
  const policy_counter all[] = {
      {"pblock_bytes", self->pblock_bytes},
      {"inactive_pblocks_count", self->pblocks.blocks},
      {"inactive_pblocks_bytes", self->pblocks.bytes},
      {"sblocks_count", self->stitched.count},
      {"stitched_sblocks_count", self->stitched.stitched_count},
      {"stitched_bytes", self->stitched.stitched_bytes},
      {"requests_below_frag_limit_count", self->below_limit},
  };
  size_t count = sizeof all / sizeof *all;
  memcpy(counters, all, (count < capacity ? count : capacity) * sizeof *all);
  return count;
}

/* All free pBlocks of a stream can be stitched into one. */
static uint64_t gmlake_largest_free(const policy *base) {
  const gmlake *self = (const gmlake *)base;
  uint64_t largest = pool_caching_largest_free(&self->small);
  for (uint32_t stream = 0; stream < self->pblocks.streams; stream++) {
    const pool_block *single = pool_free_set_largest(&self->pblocks, stream);
    uint64_t together = candidates(self, stream, UINT64_MAX);
    if (single && single->size > together) together = single->size;
    if (together > largest) largest = together;
  }
  return largest;
}

static void gmlake_free_ranges(const policy *base, pool_range_visit *visit, void *context) {
  const gmlake *self = (const gmlake *)base;
  pool_free_set_visit(&self->small.free, visit, context);
  pool_free_set_visit(&self->pblocks, visit, context);
}

static bool gmlake_check(const policy *base, char *message, size_t message_size) {
  const gmlake *self = (const gmlake *)base;
  const pool_caching *pools[] = {&self->small};
  const uint64_t stranded = base->heap.stranded_bytes;
  uint64_t reserved = base->heap.statistics.reserved_bytes.current - stranded;
  if (!pool_caching_check(pools, 1, reserved - self->pblock_bytes, message, message_size)) return false;
  if (!gmlake_stitched_check(&self->stitched, message, message_size)) return false;
  /* Each chunk lies in the window of the one pBlock that owns it. */
  uint64_t owned = 0;
  for (const pool_range *range = base->heap.ranges; range; range = range->next) {
    for (uint64_t i = 0; i < range->size / range->unit; i++) {
      if (!range->slots[i].chunk || range->slots[i].chunk->owner == &base->heap) continue;
      const pool_block *owner = range->slots[i].chunk->owner;
      vmm_address address = range->address + i * range->unit;
      if (owner->backing == range && address >= owner->address && address < owner->address + owner->size)
        owned += range->unit;
    }
  }
  if (owned + stranded == base->heap.chunk_count * self->chunk && owned == self->pblock_bytes) return true;
  snprintf(message, message_size, "pBlocks count %" PRIu64 " bytes and own %" PRIu64 " of %" PRIu64,
           self->pblock_bytes, owned, base->heap.chunk_count * self->chunk - stranded);
  return false;
}

const policy_class gmlake_policy = {
    .magic = POLICY_MAGIC,
    .abi = POLICY_ABI,
    .size = sizeof(policy_class),
    .name = "gmlake",
    .summary = "virtual memory stitching as the GMLake paper describes it",
    .capabilities = POLICY_NEEDS_VMM,
    .options = options,
    .create = gmlake_create,
    .destroy = gmlake_destroy,
    .alloc = gmlake_alloc,
    .free = gmlake_free,
    .record_stream = gmlake_record_stream,
    .trim = gmlake_trim,
    .counters = gmlake_counters,
    .largest_free = gmlake_largest_free,
    .free_ranges = gmlake_free_ranges,
    .check = gmlake_check,
};
