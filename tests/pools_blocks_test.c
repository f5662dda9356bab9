/* Blocks and their ordered sets, against a sorted array. */
#include "pools/blocks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pools/caching.h"
#include "tests/pools_fixture.h"
#include "tests/test_main.h"

enum { STREAMS = 5, STEPS = 200000, LIMIT = 1200 };

/* ---- free sets ---- */

/* All blocks of a set as the specification orders them: (stream, size, address). */
typedef struct sorted {
  pool_block *blocks[LIMIT];
  int count;
} sorted;

static int order(vmm_stream stream, uint64_t size, vmm_address address, const pool_block *b) {
  if (stream != b->stream) return stream < b->stream ? -1 : 1;
  if (size != b->size) return size < b->size ? -1 : 1;
  return address < b->address ? -1 : address > b->address;
}

/* The first place at or after a key. */
static int place_of(const sorted *model, vmm_stream stream, uint64_t size, vmm_address address) {
  int i = 0;
  while (i < model->count && order(stream, size, address, model->blocks[i]) > 0) i++;
  return i;
}

static void model_insert(sorted *model, pool_block *block) {
  int i = place_of(model, block->stream, block->size, block->address);
  memmove(&model->blocks[i + 1], &model->blocks[i], (size_t)(model->count - i) * sizeof(pool_block *));
  model->blocks[i] = block;
  model->count++;
}

static void model_remove(sorted *model, int i) {
  model->count--;
  memmove(&model->blocks[i], &model->blocks[i + 1], (size_t)(model->count - i) * sizeof(pool_block *));
}

static pool_block *model_at(const sorted *model, int i, vmm_stream stream) {
  return i >= 0 && i < model->count && model->blocks[i]->stream == stream ? model->blocks[i] : NULL;
}

static void compare_whole(const pool_free_set *set, const sorted *model) {
  uint64_t bytes = 0;
  int i = 0;
  for (vmm_stream stream = 0; stream < STREAMS; stream++) {
    pool_block *last = NULL;
    for (pool_block *block = pool_free_set_first(set, stream); block;
         block = pool_free_set_next(block), i++) {
      require(i < model->count && block == model->blocks[i], "block %d of the set is not the model's", i);
      require(pool_free_set_previous(block) == last, "the block before block %d", i);
      require(block->state == POOL_BLOCK_FREE, "block %d is not free", i);
      bytes += block->size;
      last = block;
    }
    require(pool_free_set_largest(set, stream) == last, "the largest block of stream %u", stream);
  }
  require(i == model->count, "the set ends early");
  require(set->blocks == (uint64_t)model->count && set->bytes == bytes, "the set's counters");
}

START_TEST(agrees_with_a_sorted_array) {
  uint64_t random = pools_random_seed("agrees_with_a_sorted_array");
  pool_block_store store = {0};
  pool_free_set set = {0};
  static sorted model;
  for (vmm_stream stream = 0; stream < STREAMS; stream++) {
    ck_assert_int_eq(pool_free_set_prepare(&set, stream), VMM_SUCCESS);
  }
  for (int step = 0; step < STEPS; step++) {
    /* Few sizes, so that many are equal; addresses in no order. */
    uint64_t size = 512 * (1 + pools_random_below(&random, step % 3 == 0 ? 5 : 200));
    vmm_stream stream = (vmm_stream)pools_random_below(&random, STREAMS);
    int at = place_of(&model, stream, size, 0);
    pool_block *found = pool_free_set_best_fit(&set, stream, size);
    require(found == model_at(&model, at, stream), "step %d: best fit", step);
    bool filling = step / 5000 % 2 == 0;
    if (model.count < LIMIT && pools_random_below(&random, 100) < (filling ? 60 : 40)) {
      pool_block *block = pool_block_new(&store);
      require(block && !block->previous && !block->next && !block->backing && !block->pool,
              "step %d: a used block", step);
      block->address = (1 + pools_random_below(&random, UINT64_C(1) << 36)) * 512;
      block->order = block->address;
      block->size = size;
      block->stream = stream;
      pool_free_set_insert(&set, block);
      model_insert(&model, block);
    } else if (model.count > 0) {
      int i = (int)pools_random_below(&random, (uint64_t)model.count);
      if (found && pools_random_below(&random, 2)) i = at;
      pool_block *block = model.blocks[i];
      pool_free_set_remove(&set, block);
      model_remove(&model, i);
      pool_block_delete(&store, block);
    }
    if (step % 1000 == 0) compare_whole(&set, &model);
  }
  compare_whole(&set, &model);
  pool_free_set_fini(&set);
  pool_block_store_fini(&store);
}
END_TEST

START_TEST(takes_the_lowest_address_among_equals) {
  pool_block_store store = {0};
  pool_free_set set = {0};
  ck_assert_int_eq(pool_free_set_prepare(&set, 0), VMM_SUCCESS);
  static const uint64_t addresses[] = {7 * 512, 3 * 512, 9 * 512, 512, 5 * 512};
  for (size_t i = 0; i < 5; i++) {
    pool_block *block = pool_block_new(&store);
    *block = (pool_block){.address = addresses[i], .order = addresses[i], .size = 512};
    pool_free_set_insert(&set, block);
  }
  for (uint64_t expected = 512; expected <= 9 * 512; expected += 1024) {
    pool_block *block = pool_free_set_best_fit(&set, 0, 1);
    ck_assert_ptr_nonnull(block);
    ck_assert_uint_eq(block->address, expected);
    pool_free_set_remove(&set, block);
  }
  ck_assert_ptr_null(pool_free_set_best_fit(&set, 0, 1));
  pool_free_set_fini(&set);
  pool_block_store_fini(&store);
}
END_TEST

START_TEST(knows_no_blocks_of_unknown_streams) {
  pool_free_set set = {0};
  ck_assert_ptr_null(pool_free_set_best_fit(&set, 3, 512));
  ck_assert_ptr_null(pool_free_set_largest(&set, 3));
  ck_assert_ptr_null(pool_free_set_first(&set, 3));
  ck_assert_int_eq(pool_free_set_prepare(&set, 3), VMM_SUCCESS);
  ck_assert_ptr_null(pool_free_set_first(&set, 3));
  ck_assert_ptr_null(pool_free_set_best_fit(&set, 1000, 512));
  pool_free_set_fini(&set);
}
END_TEST

/* A set moves when streams are added: blocks already in it stay in order. */
START_TEST(grows_by_streams_with_blocks_in_it) {
  pool_block_store store = {0};
  pool_free_set set = {0};
  for (vmm_stream stream = 0; stream < 200; stream++) {
    ck_assert_int_eq(pool_free_set_prepare(&set, stream), VMM_SUCCESS);
    for (uint64_t i = 1; i <= 3; i++) {
      pool_block *block = pool_block_new(&store);
      *block = (pool_block){.address = i * 4096, .order = i * 4096, .size = i * 512, .stream = stream};
      pool_free_set_insert(&set, block);
    }
  }
  for (vmm_stream stream = 0; stream < 200; stream++) {
    require(pool_free_set_best_fit(&set, stream, 513)->size == 1024, "stream %u", stream);
    require(pool_free_set_largest(&set, stream)->size == 1536, "stream %u", stream);
  }
  ck_assert_uint_eq(set.blocks, 600);
  ck_assert_uint_eq(set.bytes, 200 * 6 * 512);
  pool_free_set_fini(&set);
  pool_block_store_fini(&store);
}
END_TEST

/* ---- splitting and merging ---- */

START_TEST(splits_and_absorbs_in_address_order) {
  int segment, pool;
  pool_block_store store = {0};
  pool_block *a = pool_block_new(&store), *b = pool_block_new(&store), *c = pool_block_new(&store);
  *a = (pool_block){
      .address = 4096, .order = 4096, .size = 8192, .stream = 2, .backing = &segment, .pool = &pool};
  ck_assert(!pool_block_is_split(a));
  pool_block_split(a, 1024, c);
  pool_block_split(a, 512, b);
  ck_assert_uint_eq(a->size, 512);
  ck_assert_uint_eq(b->address, 4096 + 512);
  ck_assert_uint_eq(b->size, 512);
  ck_assert_uint_eq(c->address, 4096 + 1024);
  ck_assert_uint_eq(c->size, 8192 - 1024);
  ck_assert(a->next == b && b->next == c && !c->next && !a->previous && b->previous == a && c->previous == b);
  ck_assert(c->stream == 2 && c->backing == &segment && c->pool == &pool);
  ck_assert(pool_block_is_split(a) && pool_block_is_split(b) && pool_block_is_split(c));
  pool_block_absorb(&store, b, a); /* backwards */
  ck_assert(b->address == 4096 && b->size == 1024 && !b->previous && b->next == c);
  pool_block_absorb(&store, b, c); /* forwards */
  ck_assert(b->address == 4096 && b->size == 8192 && !pool_block_is_split(b));
  pool_block_store_fini(&store);
}
END_TEST

/* One segment cut at random and put together again, whatever the order. */
START_TEST(comes_together_in_any_order) {
  uint64_t random = pools_random_seed("comes_together_in_any_order");
  for (int round = 0; round < 300; round++) {
    pool_block_store store = {0};
    pool_block *blocks[64];
    int count = 1;
    blocks[0] = pool_block_new(&store);
    *blocks[0] = (pool_block){.address = 1 << 20, .order = 1 << 20, .size = 64 * 512};
    while (count < 40) {
      pool_block *block = blocks[pools_random_below(&random, (uint64_t)count)];
      if (block->size == 512) continue;
      blocks[count] = pool_block_new(&store);
      pool_block_split(block, 512 * (1 + pools_random_below(&random, block->size / 512 - 1)), blocks[count]);
      count++;
    }
    while (count > 1) {
      int i = (int)pools_random_below(&random, (uint64_t)count);
      pool_block *neighbour = pools_random_below(&random, 2) ? blocks[i]->next : blocks[i]->previous;
      if (!neighbour) continue;
      uint64_t together = blocks[i]->size + neighbour->size;
      int gone = 0;
      while (blocks[gone] != neighbour) gone++;
      pool_block *kept = blocks[i];
      pool_block_absorb(&store, kept, neighbour);
      blocks[gone] = blocks[--count];
      require(kept->size == together, "round %d: sizes", round);
      require(
          !kept->next || (kept->next->previous == kept && kept->next->address == kept->address + kept->size),
          "round %d: the block after", round);
      require(!kept->previous || (kept->previous->next == kept &&
                                  kept->previous->address + kept->previous->size == kept->address),
              "round %d: the block before", round);
    }
    require(blocks[0]->address == 1 << 20 && blocks[0]->size == 64 * 512 && !pool_block_is_split(blocks[0]),
            "round %d: the whole", round);
    pool_block_store_fini(&store);
  }
}
END_TEST

/* ---- caching pools ---- */

typedef struct caching_fixture {
  pools_fixture base;
  pool_block_store store;
  pool_caching pool;
} caching_fixture;

static void caching_open(caching_fixture *fixture) {
  memset(fixture, 0, sizeof *fixture);
  pools_fixture_open(&fixture->base, 0, 0, UINT64_MAX);
  pool_caching_init(&fixture->pool, &fixture->base.heap, &fixture->store);
}

static void caching_close(caching_fixture *fixture) {
  pools_fixture_close(&fixture->base);
  pool_caching_fini(&fixture->pool);
  pool_block_store_fini(&fixture->store);
}

static bool caching_sound(caching_fixture *fixture, char *message, size_t message_size) {
  const pool_caching *pools[] = {&fixture->pool};
  return pool_caching_check(pools, 1, fixture->base.heap.statistics.reserved_bytes.current, message,
                            message_size);
}

static vmm_address caching_alloc(caching_fixture *fixture, uint64_t size) {
  vmm_address address;
  pool_block *block = pool_free_set_best_fit(&fixture->pool.free, 0, size);
  if (!block) ck_assert_int_eq(pool_caching_grow(&fixture->pool, 2 * MIB, 0, &block), VMM_SUCCESS);
  ck_assert_int_eq(pool_caching_hand_out(&fixture->pool, block, size, size, block->size > size, &address),
                   VMM_SUCCESS);
  return address;
}

static void caching_free(caching_fixture *fixture, vmm_address address) {
  pool_heap *heap = &fixture->base.heap;
  pool_allocation taken;
  vmm_status status;
  ck_assert(pool_heap_take_back(heap, pool_heap_find(heap, address), &taken, &status));
  pool_caching_take_back(&fixture->pool, taken.owner);
}

START_TEST(counts_what_cannot_be_returned) {
  caching_fixture fixture;
  caching_open(&fixture);
  const pool_statistics *statistics = &fixture.base.heap.statistics;
  char message[256] = "";
  vmm_address a = caching_alloc(&fixture, 512), b = caching_alloc(&fixture, 1024),
              c = caching_alloc(&fixture, 512);
  ck_assert_uint_eq(b, a + 512);
  ck_assert_uint_eq(c, b + 1024);
  ck_assert_uint_eq(statistics->inactive_split.current, 1);
  ck_assert_uint_eq(statistics->inactive_split_bytes.current, 2 * MIB - 2048);
  caching_free(&fixture, b);
  ck_assert_uint_eq(statistics->inactive_split.current, 2);
  ck_assert_uint_eq(statistics->inactive_split_bytes.current, 2 * MIB - 1024);
  ck_assert_msg(caching_sound(&fixture, message, sizeof message), "%s", message);
  ck_assert_int_eq(pool_caching_release_all(&fixture.pool), VMM_SUCCESS); /* none is whole */
  ck_assert_uint_eq(statistics->segments.current, 1);
  ck_assert_uint_eq(caching_alloc(&fixture, 1024), b);
  caching_free(&fixture, a);
  caching_free(&fixture, c);
  caching_free(&fixture, b);
  ck_assert_uint_eq(statistics->inactive_split.current, 0);
  ck_assert_uint_eq(statistics->inactive_split_bytes.current, 0);
  ck_assert_uint_eq(pool_caching_largest_free(&fixture.pool), 2 * MIB);
  ck_assert_msg(caching_sound(&fixture, message, sizeof message), "%s", message);
  vmm_sim_fail(fixture.base.sim, VMM_CALL_FREE, 1, VMM_UNKNOWN);
  ck_assert_int_eq(pool_caching_release_all(&fixture.pool), VMM_UNKNOWN);
  ck_assert_msg(caching_sound(&fixture, message, sizeof message), "%s", message);
  ck_assert_uint_eq(pool_caching_largest_free(&fixture.pool), 2 * MIB);
  ck_assert_int_eq(pool_caching_release_all(&fixture.pool), VMM_SUCCESS);
  ck_assert_uint_eq(statistics->segments.current, 0);
  caching_close(&fixture);
}
END_TEST

/* Each way in which a pool can be at odds with itself. */
START_TEST(finds_broken_pools) {
  caching_fixture fixture;
  caching_open(&fixture);
  char message[256];
  vmm_address a = caching_alloc(&fixture, 512);
  caching_alloc(&fixture, 1024);
  caching_free(&fixture, a);
  pool_block *low = pool_free_set_best_fit(&fixture.pool.free, 0, 1);
  pool_block *high = pool_free_set_largest(&fixture.pool.free, 0);
  ck_assert_uint_eq(low->address, a);
  ck_assert(caching_sound(&fixture, message, sizeof message));

  low->state = POOL_BLOCK_LIVE;
  ck_assert(!caching_sound(&fixture, message, sizeof message));
  ck_assert_msg(strstr(message, "does not fit its neighbours") != NULL, "%s", message);
  low->state = POOL_BLOCK_FREE;

  low->next->address += 512;
  ck_assert(!caching_sound(&fixture, message, sizeof message));
  low->next->address -= 512;

  pool_block *middle = low->next;
  low->next = high; /* free beside free */
  ck_assert(!caching_sound(&fixture, message, sizeof message));
  low->next = middle;

  fixture.pool.free.blocks++;
  ck_assert(!caching_sound(&fixture, message, sizeof message));
  ck_assert_msg(strstr(message, "a free set counts 3 blocks") != NULL, "%s", message);
  fixture.pool.free.blocks--;

  fixture.base.heap.statistics.inactive_split.current++;
  ck_assert(!caching_sound(&fixture, message, sizeof message));
  ck_assert_msg(strstr(message, "inactive split says 3 blocks") != NULL, "%s", message);
  fixture.base.heap.statistics.inactive_split.current--;

  /* A block that nobody has. */
  pool_free_set_remove(&fixture.pool.free, low);
  fixture.base.heap.statistics.inactive_split.current--;
  fixture.base.heap.statistics.inactive_split_bytes.current -= 512;
  low->state = POOL_BLOCK_LIVE;
  ck_assert(!caching_sound(&fixture, message, sizeof message));
  ck_assert_msg(strstr(message, "do not make up segments") != NULL, "%s", message);
  caching_close(&fixture);
}
END_TEST

START_TEST(grows_all_or_nothing) {
  caching_fixture fixture;
  caching_open(&fixture);
  pools_picture before, after;
  pools_picture_take(&fixture.base, &before);
  pool_block *block;
  vmm_sim_fail(fixture.base.sim, VMM_CALL_MALLOC, 1, VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(pool_caching_grow(&fixture.pool, 2 * MIB, 1, &block), VMM_OUT_OF_MEMORY);
  pools_picture_take(&fixture.base, &after);
  pools_picture_same(&before, &after, "pool_caching_grow");
  ck_assert_uint_eq(fixture.pool.free.blocks, 0);
  ck_assert_int_eq(pool_caching_grow(&fixture.pool, 2 * MIB, 1, &block), VMM_SUCCESS);
  ck_assert_uint_eq(block->stream, 1);
  caching_close(&fixture);
}
END_TEST

static Suite *blocks_suite(void) {
  Suite *suite = suite_create("pools_blocks");
  TCase *sets = tcase_create("free sets");
  tcase_add_test(sets, agrees_with_a_sorted_array);
  tcase_add_test(sets, takes_the_lowest_address_among_equals);
  tcase_add_test(sets, knows_no_blocks_of_unknown_streams);
  tcase_add_test(sets, grows_by_streams_with_blocks_in_it);
  suite_add_tcase(suite, sets);
  TCase *cutting = tcase_create("splitting");
  tcase_add_test(cutting, splits_and_absorbs_in_address_order);
  tcase_add_test(cutting, comes_together_in_any_order);
  suite_add_tcase(suite, cutting);
  TCase *caching = tcase_create("caching");
  tcase_add_test(caching, counts_what_cannot_be_returned);
  tcase_add_test(caching, finds_broken_pools);
  tcase_add_test(caching, grows_all_or_nothing);
  suite_add_tcase(suite, caching);
  return suite;
}

TEST_MAIN(blocks_suite)
