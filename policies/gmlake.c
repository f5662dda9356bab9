/* GMLake's virtual memory stitching (ASPLOS'24, arXiv 2401.08156, sections 3 and 4): pPool,
 * sPool, BestFit, Split, Stitch, Update, StitchFree and the allocation states S1 to S5.
 *
 * Where the paper is silent: pools are kept by stream; both parts of a split pBlock keep their part
 * of its VA; a request below the fragmentation limit takes the smallest larger block whole if that
 * wastes less than the limit; when the device is full, free memory goes back to it before S5 is
 * reported, that of other streams first. docs/gmlake.md says what the options do. */
#include "policies/gmlake.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/pytorch_rounding.h"

enum {
  OPTION_CHUNK,
  OPTION_LARGEST_CHUNK,
  OPTION_SMALL_LIMIT,
  OPTION_FRAG_LIMIT,
  OPTION_TOLERANCE,
  OPTION_STITCHING,
  OPTION_STITCH,
  OPTION_CANDIDATES,
  OPTION_CROSS_STREAM,
  OPTION_ROOM,
  OPTION_STITCH_BYTES,
  OPTION_STITCH_COUNT,
  OPTION_STITCH_MAPPINGS,
  OPTION_STITCH_RATIO,
  OPTION_VARIANT,
  OPTION_REQUEST_LIMIT,
  OPTION_REUSE_FACTOR
};

static const policy_option options[] = {
    {"chunk", POLICY_OPTION_SIZE, "2MiB", POLICY_GRANULARITY, 1e15, NULL, "bytes",
     "granularity: requests are rounded up to it, blocks are split and stitched at its multiples"},
    {"largest_chunk", POLICY_OPTION_SIZE, "4MiB", 0, 1e15, NULL, "bytes",
     "largest physical handle of a new block; uniform chunks as in the paper where it is chunk or less; only "
     "with stitching=deferred"},
    {"small_limit", POLICY_OPTION_SIZE, "0", 0, 1e15, NULL, "bytes",
     "requests below it go to a splitting pool without stitching; 0: chunk"},
    {"frag_limit", POLICY_OPTION_SIZE, "2MiB", 0, 0, NULL, "bytes",
     "blocks below this size are neither split nor stitched (the paper's example is 128MiB)"},
    {"tolerance", POLICY_OPTION_SIZE, "0", 0, 1e15, NULL, "bytes",
     "a block that is larger by at most so much counts as an exact match (the paper: 0)"},
    {"stitching", POLICY_OPTION_CHOICE, "deferred", 0, 0, "eager|views|deferred", "",
     "eager: every Stitch maps all its chunks at once, after a Split too; views: not after a Split; "
     "deferred: only what does not lie side by side yet"},
    {"stitch", POLICY_OPTION_CHOICE, "before_growing", 0, 0, "before_growing|after_growing", "",
     "stitch before more memory is asked for, or only when there is none"},
    {"candidates", POLICY_OPTION_CHOICE, "default", 0, 0, "default|largest|smallest|oldest", "",
     "order in which free blocks are stitched; default: oldest first with stitching=deferred, which knows no "
     "other; else largest first"},
    {"cross_stream", POLICY_OPTION_CHOICE, "off", 0, 0, "off|seen|wait", "",
     "use other streams' free blocks before growing: never, once the host has seen their work done, or at "
     "once with a stream wait"},
    {"room", POLICY_OPTION_SIZE, "4GiB", 0, 1e15, NULL, "bytes",
     "VA left on both sides of a block so that it can be extended in place; only with stitching=deferred"},
    {"stitch_bytes", POLICY_OPTION_SIZE, "1TiB", 0, 0, NULL, "bytes",
     "most bytes mapped a second time; beyond it the least recently used inactive sBlocks are freed"},
    {"stitch_count", POLICY_OPTION_INTEGER, "100000", 0, 0, NULL, "sBlocks",
     "most sBlocks to keep; beyond it the least recently used inactive ones are freed"},
    {"stitch_mappings", POLICY_OPTION_INTEGER, "unlimited", 0, 0, NULL, "mappings",
     "most chunks mapped a second time; beyond it the least recently used inactive sBlocks are freed"},
    {"stitch_ratio", POLICY_OPTION_REAL, "0", 0, 1e9, NULL, "",
     "most bytes mapped a second time for each byte of pBlocks; beyond it the least recently used sBlocks "
     "that "
     "are not given out are freed, active through a pBlock or not; 0: 4 with stitching=deferred, else 16"},
    {"variant", POLICY_OPTION_CHOICE, "paper", 0, 0, "paper|published", "",
     "whose rules: the paper's, or those of the authors' code, which heeds chunk, stitch, stitch_bytes, "
     "request_limit and reuse_factor alone"},
    {"request_limit", POLICY_OPTION_SIZE, "512MiB", 0, 0, NULL, "bytes",
     "variant=published: smaller requests are not stitched (its fragLimit)"},
    {"reuse_factor", POLICY_OPTION_REAL, "10", 1, 1e9, NULL, "",
     "variant=published: an sBlock serves requests down to its size divided by this"},
    {0},
};

enum { STITCH_BEFORE_GROWING, STITCH_AFTER_GROWING };
enum { CANDIDATES_DEFAULT, CANDIDATES_LARGEST, CANDIDATES_SMALLEST, CANDIDATES_OLDEST };
enum { VARIANT_PAPER, VARIANT_PUBLISHED };

/* ---- making and destroying ---- */

vmm_status gmlake_base_create(const policy_configuration *configuration, const policy_class *rules,
                              size_t size, void **created, char *message, size_t message_size) {
  static const char *const states[GMLAKE_STATES] = {"S1", "S2", "S3", "S4", "S5"};
  const policy_value *chunk = &configuration->values[OPTION_CHUNK];
  gmlake_policy_base *self = calloc(1, size);
  if (!self) return VMM_OUT_OF_MEMORY;
  pool_heap *heap = &self->base.heap;
  vmm_status status = pool_heap_init(heap, configuration->driver, true, configuration->limit);
  if (status == VMM_SUCCESS && chunk->integer % heap->granularity != 0) {
    snprintf(message, message_size,
             "policy gmlake: chunk=%s is no multiple of the device's granularity of %" PRIu64 " bytes",
             chunk->text, heap->granularity);
    status = VMM_INVALID_VALUE;
  }
  if (status != VMM_SUCCESS) {
    free(self);
    return status;
  }
  self->rules = rules;
  for (int i = 0; i < GMLAKE_STATES; i++) self->state_operation[i] = pool_operation_define(heap, states[i]);
  self->split_operation = pool_operation_define(heap, "split");
  self->stitch_operation = pool_operation_define(heap, "stitch");
  self->stitch_free_operation = pool_operation_define(heap, "stitch_free");
  pool_caching_init(&self->small, heap, &self->small_blocks);
  self->small.by_age = true;
  pool_stream_clock_init(&self->clock, configuration->driver);
  *created = self;
  return VMM_SUCCESS;
}

void gmlake_base_fini(gmlake_policy_base *base) {
  pool_stream_clock_fini(&base->clock);
  pool_heap_fini(&base->base.heap);
  pool_caching_fini(&base->small);
  pool_block_store_fini(&base->small_blocks);
}

static bool read_settings(gmlake *self, const policy_value *values, char *message, size_t message_size) {
  if (values[OPTION_STITCH_BYTES].integer < values[OPTION_FRAG_LIMIT].integer &&
      values[OPTION_FRAG_LIMIT].integer != UINT64_MAX) {
    /* No stitched block could be kept, and what Alloc adds below the limit is never stitched again. */
    snprintf(message, message_size, "policy gmlake: stitch_bytes=%s must not be below frag_limit=%s",
             values[OPTION_STITCH_BYTES].text, values[OPTION_FRAG_LIMIT].text);
    return false;
  }
  const double ratio = values[OPTION_STITCH_RATIO].real;
  if (ratio > 0 && ratio < 1) {
    /* The same: of all memory as one block, nothing could be kept. */
    snprintf(message, message_size, "policy gmlake: stitch_ratio=%s must be 0 or from 1 on",
             values[OPTION_STITCH_RATIO].text);
    return false;
  }
  const gmlake_stitching stitching = (gmlake_stitching)values[OPTION_STITCHING].integer;
  const uint64_t candidates = values[OPTION_CANDIDATES].integer, chunk = values[OPTION_CHUNK].integer;
  if (stitching == GMLAKE_DEFERRED &&
      (candidates == CANDIDATES_LARGEST || candidates == CANDIDATES_SMALLEST)) {
    snprintf(message, message_size, "policy gmlake: candidates=%s needs stitching=eager or views",
             values[OPTION_CANDIDATES].text);
    return false;
  }
  self->settings = (gmlake_settings){
      .chunk = chunk,
      .largest_chunk = chunk,
      .small_limit = values[OPTION_SMALL_LIMIT].integer,
      .frag_limit = values[OPTION_FRAG_LIMIT].integer,
      .tolerance = values[OPTION_TOLERANCE].integer,
      .stitch_bytes = values[OPTION_STITCH_BYTES].integer,
      .stitch_count = values[OPTION_STITCH_COUNT].integer,
      .stitch_mappings = values[OPTION_STITCH_MAPPINGS].integer,
      .stitch_ratio = ratio > 0                      ? ratio
                      : stitching == GMLAKE_DEFERRED ? 4
                                                     : 16,
      .grow_first = values[OPTION_STITCH].integer == STITCH_AFTER_GROWING,
      .stitching = stitching,
      .candidates = candidates == CANDIDATES_SMALLEST ? GMLAKE_SMALLEST_FIRST
                    : candidates == CANDIDATES_OLDEST ? GMLAKE_OLDEST_FIRST
                                                      : GMLAKE_LARGEST_FIRST,
      .streams = (gmlake_streams)values[OPTION_CROSS_STREAM].integer,
  };
  uint64_t largest = values[OPTION_LARGEST_CHUNK].integer;
  if (stitching == GMLAKE_DEFERRED && largest > chunk) self->settings.largest_chunk = largest / chunk * chunk;
  if (self->settings.small_limit == 0) self->settings.small_limit = chunk;
  self->indexes = stitching == GMLAKE_DEFERRED || candidates == CANDIDATES_OLDEST;
  return true;
}

static const policy_class paper_rules;

static vmm_status paper_create(const policy_configuration *configuration, policy **created, char *message,
                               size_t message_size) {
  void *made;
  vmm_status status =
      gmlake_base_create(configuration, &paper_rules, sizeof(gmlake), &made, message, message_size);
  if (status != VMM_SUCCESS) return status;
  gmlake *self = made;
  if (!read_settings(self, configuration->values, message, message_size)) {
    gmlake_base_fini(&self->base);
    free(self);
    return VMM_INVALID_VALUE;
  }
  gmlake_classes_init(&self->classes);
  gmlake_spaces_init(&self->spaces, &self->base.base.heap, configuration->values[OPTION_ROOM].integer,
                     self->settings.largest_chunk, self->settings.chunk);
  *created = &self->base.base;
  return VMM_SUCCESS;
}

static void paper_destroy(policy *base) {
  gmlake *self = (gmlake *)base;
  gmlake_base_fini(&self->base);
  pool_store_fini(&self->pblock_store);
  pool_store_fini(&self->sblock_store);
  gmlake_classes_fini(&self->classes);
  gmlake_spaces_fini(&self->spaces);
  free(self->stitchable);
  free(self->chunks);
  free(self->members);
  free(self->cuts);
  free(self->pieces);
  free(self);
}

/* ---- the policy's functions ---- */

static vmm_status alloc_small(gmlake *self, uint64_t requested, vmm_stream stream, vmm_address *address) {
  const uint64_t chunk = self->settings.chunk;
  uint64_t size = (requested + PYTORCH_BLOCK_MINIMUM - 1) / PYTORCH_BLOCK_MINIMUM * PYTORCH_BLOCK_MINIMUM;
  pool_block *block = pool_free_set_best_fit(&self->base.small.free, stream, size);
  if (!block) {
    vmm_status status =
        pool_caching_grow(&self->base.small, (size + chunk - 1) / chunk * chunk, stream, &block);
    if (status != VMM_SUCCESS) return status;
  }
  return pool_caching_hand_out(&self->base.small, block, size, requested,
                               block->size - size >= PYTORCH_BLOCK_MINIMUM, address);
}

static void take_back(gmlake *self, const pool_allocation *taken) {
  if (self->frees_before_stitch_free > 0) self->frees_before_stitch_free--;
  if (taken->requested < self->settings.small_limit) {
    pool_caching_take_back(&self->base.small, taken->owner);
  } else if (((const gmlake_block *)taken->owner)->stitched) {
    gmlake_take_back_sblock(self, taken->owner);
  } else {
    gmlake_take_back_pblock(self, taken->owner);
  }
}

static void take_back_complete(gmlake *self, bool wait) {
  if (self->base.base.heap.pending_count == 0) return;
  pool_allocation taken;
  while (pool_heap_next_complete(&self->base.base.heap, wait, &taken)) take_back(self, &taken);
}

static vmm_status return_unused(gmlake *self, vmm_stream kept) {
  vmm_status large = gmlake_return_memory(self, kept), small = pool_caching_release_all(&self->base.small);
  return large == VMM_SUCCESS ? small : large;
}

static vmm_status alloc_once(gmlake *self, uint64_t requested, vmm_stream stream, vmm_address *address) {
  const uint64_t chunk = self->settings.chunk;
  if (requested < self->settings.small_limit) return alloc_small(self, requested, stream, address);
  return gmlake_alloc_large(self, (requested + chunk - 1) / chunk * chunk, requested, stream, address);
}

/* Has another stream, or the small pool, something that could go back? */
static bool others_have_memory(const gmlake *self, vmm_stream stream) {
  uint64_t own = stream < self->streams ? self->stitchable[stream] : 0;
  return self->free_bytes > own || self->base.small.free.bytes > 0;
}

/* The memory of other streams goes back first: the request's own has been stitched as far as it
 * goes, and would have to be made anew. */
static vmm_status return_and_retry(gmlake *self, uint64_t requested, vmm_stream stream,
                                   vmm_address *address) {
  vmm_status status = VMM_OUT_OF_MEMORY;
  for (int all = !others_have_memory(self, stream); all < 2 && status == VMM_OUT_OF_MEMORY; all++) {
    return_unused(self, all ? GMLAKE_NOT_INDEXED : stream);
    self->base.base.heap.statistics.retries++;
    status = alloc_once(self, requested, stream, address);
  }
  return status;
}

static vmm_status paper_alloc(policy *base, uint64_t requested, vmm_stream stream, vmm_address *address) {
  gmlake *self = (gmlake *)base;
  pool_heap *heap = &base->heap;
  take_back_complete(self, false);
  if (requested >= self->settings.small_limit &&
      requested + self->settings.chunk - 1 < self->settings.frag_limit) {
    self->below_limit++;
  }
  vmm_status status = alloc_once(self, requested, stream, address);
  if (status != VMM_OUT_OF_MEMORY) return status;
  take_back_complete(self, true);
  const uint64_t unused = self->free_bytes + self->base.small.free.bytes;
  if (pool_heap_within_limit_after(heap, unused, requested))
    status = return_and_retry(self, requested, stream, address);
  if (status == VMM_OUT_OF_MEMORY) {
    pool_operation_begin(heap, self->base.state_operation[GMLAKE_S5], requested);
    pool_operation_end(heap);
  }
  return status;
}

static vmm_status paper_free(policy *base, vmm_address address) {
  pool_allocation *allocation = pool_heap_find(&base->heap, address), taken;
  if (!allocation) return VMM_INVALID_VALUE;
  vmm_status status;
  if (pool_heap_take_back(&base->heap, allocation, &taken, &status)) {
    take_back((gmlake *)base, &taken);
    gmlake_stitch_free((gmlake *)base);
  }
  return status;
}

static vmm_status paper_trim(policy *base) {
  take_back_complete((gmlake *)base, true);
  return return_unused((gmlake *)base, GMLAKE_NOT_INDEXED);
}

static size_t paper_counters(const policy *base, policy_counter *counters, size_t capacity) {
  const gmlake *self = (const gmlake *)base;
  const policy_counter all[] = {
      {"pblock_bytes", self->pblock_bytes},
      {"inactive_pblocks_count", self->free_count},
      {"inactive_pblocks_bytes", self->free_bytes},
      {"sblocks_count", self->sblocks.count},
      {"stitched_sblocks_count", self->sblocks.count - self->sblocks.view_count},
      {"stitched_bytes", self->spaces.alias_bytes},
      {"stitched_mappings_count", self->spaces.alias_mappings},
      {"requests_below_frag_limit_count", self->below_limit},
      {"borrowed_bytes", self->borrowed_bytes},
      {"indexed_pblocks_count", self->indexed_pblocks},
      {"indexed_places_count", self->indexed_places},
  };
  size_t count = sizeof all / sizeof *all;
  memcpy(counters, all, (count < capacity ? count : capacity) * sizeof *all);
  return count;
}

/* All free pBlocks of a stream can be stitched into one. */
static uint64_t paper_largest_free(const policy *base) {
  const gmlake *self = (const gmlake *)base;
  uint64_t largest = pool_caching_largest_free(&self->base.small);
  for (uint32_t stream = 0; stream < self->streams; stream++) {
    if (self->stitchable[stream] > largest) largest = self->stitchable[stream];
  }
  uint64_t single = gmlake_classes_largest_free(&self->classes);
  return single > largest ? single : largest;
}

static void paper_free_ranges(const policy *base, pool_range_visit *visit, void *context) {
  const gmlake *self = (const gmlake *)base;
  pool_free_set_visit(&self->base.small.free, visit, context);
  for (gmlake_class *class = gmlake_classes_first(&self->classes); class;
       class = gmlake_classes_next(class)) {
    for (uint32_t i = 0; i < class->pblocks.used; i++) {
      const gmlake_block *block = class->pblocks.members[i];
      if (block && block->free) visit(context, block->size);
    }
  }
}

static void paper_blocks(const policy *base, policy_block_visit *visit, void *context) {
  const gmlake *self = (const gmlake *)base;
  for (gmlake_class *class = gmlake_classes_first(&self->classes); class;
       class = gmlake_classes_next(class)) {
    for (uint32_t i = 0; i < class->pblocks.used; i++) {
      const gmlake_block *block = class->pblocks.members[i];
      if (block)
        gmlake_visit_block(block->address, block->size, block->stream, false, !block->free, visit, context);
    }
    for (uint32_t i = 0; i < class->sblocks.used; i++) {
      const gmlake_block *block = class->sblocks.members[i];
      if (block)
        gmlake_visit_block(block->address, block->size, block->stream, true, block->held, visit, context);
    }
  }
}

static bool paper_check(const policy *base, char *message, size_t message_size) {
  const gmlake *self = (const gmlake *)base;
  const pool_caching *pools[] = {&self->base.small};
  const uint64_t chunk_bytes = self->pblock_bytes + base->heap.stranded_bytes;
  return pool_caching_check(pools, 1, base->heap.statistics.reserved_bytes.current - chunk_bytes, message,
                            message_size) &&
         gmlake_classes_check(&self->classes, message, message_size) &&
         gmlake_spaces_check(&self->spaces, message, message_size) &&
         gmlake_blocks_check(self, message, message_size) &&
         gmlake_stitched_check(self, message, message_size);
}

static const policy_class paper_rules = {.destroy = paper_destroy,
                                         .alloc = paper_alloc,
                                         .free = paper_free,
                                         .trim = paper_trim,
                                         .counters = paper_counters,
                                         .largest_free = paper_largest_free,
                                         .free_ranges = paper_free_ranges,
                                         .blocks = paper_blocks,
                                         .check = paper_check};

/* ---- whose rules ---- */

static const policy_class *rules_of(const policy *base) { return ((const gmlake_policy_base *)base)->rules; }

static vmm_status gmlake_create(const policy_configuration *configuration, policy **created, char *message,
                                size_t message_size) {
  const policy_value *values = configuration->values;
  if (values[OPTION_VARIANT].integer == VARIANT_PAPER) {
    return paper_create(configuration, created, message, message_size);
  }
  const gmlake_published_settings settings = {
      .chunk = values[OPTION_CHUNK].integer,
      .request_limit = values[OPTION_REQUEST_LIMIT].integer,
      .stitch_bytes = values[OPTION_STITCH_BYTES].integer,
      .reuse_factor = values[OPTION_REUSE_FACTOR].real,
      .stitch_after_growing = values[OPTION_STITCH].integer == STITCH_AFTER_GROWING,
  };
  return gmlake_published_create(configuration, &settings, created, message, message_size);
}

static void gmlake_destroy(policy *base) { rules_of(base)->destroy(base); }

static vmm_status gmlake_alloc(policy *base, uint64_t requested, vmm_stream stream, vmm_address *address) {
  return rules_of(base)->alloc(base, requested, stream, address);
}

static vmm_status gmlake_free(policy *base, vmm_address address) {
  return rules_of(base)->free(base, address);
}

static vmm_status gmlake_record_stream(policy *base, vmm_address address, vmm_stream stream) {
  return pool_heap_record_stream(&base->heap, address, stream);
}

static vmm_status gmlake_trim(policy *base) { return rules_of(base)->trim(base); }

static size_t gmlake_counters(const policy *base, policy_counter *counters, size_t capacity) {
  return rules_of(base)->counters(base, counters, capacity);
}

static uint64_t gmlake_largest_free(const policy *base) { return rules_of(base)->largest_free(base); }

static void gmlake_free_ranges(const policy *base, pool_range_visit *visit, void *context) {
  rules_of(base)->free_ranges(base, visit, context);
}

static void gmlake_blocks(const policy *base, policy_block_visit *visit, void *context) {
  rules_of(base)->blocks(base, visit, context);
}

static bool gmlake_check(const policy *base, char *message, size_t message_size) {
  return rules_of(base)->check(base, message, message_size);
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
    .blocks = gmlake_blocks,
};
