/* The ordered set of address ranges under the simulated device, against a plain array. */
#include "vmm/sim_extents.h"

#include <string.h>

#include "tests/test_main.h"

enum { SPACE = 400, STEPS = 4000 };

typedef struct naive {
  uint64_t start[SPACE], size[SPACE];
  sim_extent extent[SPACE];
  int count; /* ascending in start */
} naive;

static uint64_t state;

static uint64_t next_random(uint64_t limit) {
  state += UINT64_C(0x9E3779B97F4A7C15);
  uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
  return (mixed ^ (mixed >> 31)) % limit;
}

/* The place of a new range, or -1 when it overlaps one. */
static int place_for(const naive *model, uint64_t start, uint64_t size) {
  int place = 0;
  while (place < model->count && model->start[place] < start) place++;
  if (place > 0 && model->start[place - 1] + model->size[place - 1] > start) return -1;
  if (place < model->count && start + size > model->start[place]) return -1;
  return place;
}

static void naive_insert(naive *model, int place, uint64_t start, uint64_t size, sim_extent extent) {
  for (int i = model->count++; i > place; i--) {
    model->start[i] = model->start[i - 1];
    model->size[i] = model->size[i - 1];
    model->extent[i] = model->extent[i - 1];
  }
  model->start[place] = start;
  model->size[place] = size;
  model->extent[place] = extent;
}

static void naive_remove(naive *model, int place) {
  model->count--;
  for (int i = place; i < model->count; i++) {
    model->start[i] = model->start[i + 1];
    model->size[i] = model->size[i + 1];
    model->extent[i] = model->extent[i + 1];
  }
}

static void compare(const sim_extents *set, const naive *model) {
  uint64_t address = next_random(SPACE), size = 1 + next_random(30),
           alignment = UINT64_C(1) << next_random(6);
  sim_extent floor = 0, ceiling = 0, containing = 0, first = 0, last = 0, aligned = 0;
  for (int i = 0; i < model->count; i++) {
    uint64_t start = model->start[i], end = start + model->size[i];
    uint64_t aligned_start = (start + alignment - 1) / alignment * alignment;
    if (start <= address) floor = model->extent[i];
    if (start >= address && !ceiling) ceiling = model->extent[i];
    if (start <= address && address < end) containing = model->extent[i];
    if (model->size[i] >= size && !first) first = model->extent[i];
    if (model->size[i] >= size) last = model->extent[i];
    if (aligned_start + size <= end && !aligned) aligned = model->extent[i];
  }
  ck_assert_uint_eq(set->count, (uint32_t)model->count);
  ck_assert_uint_eq(sim_extents_floor(set, address), floor);
  ck_assert_uint_eq(sim_extents_ceiling(set, address), ceiling);
  ck_assert_uint_eq(sim_extents_containing(set, address), containing);
  ck_assert_uint_eq(sim_extents_first_fit(set, size), first);
  ck_assert_uint_eq(sim_extents_last_fit(set, size), last);
  ck_assert_uint_eq(sim_extents_first_fit_aligned(set, size, alignment), aligned);
}

START_TEST(answers_like_an_array) {
  static naive model;
  memset(&model, 0, sizeof model);
  sim_extents set = {0};
  state = (uint64_t)_i;
  ck_assert(sim_extents_reserve(&set, 1));
  for (int step = 0; step < STEPS; step++) {
    uint64_t kind = next_random(3);
    if (kind == 0) {
      uint64_t start = next_random(SPACE), size = 1 + next_random(20);
      int place = place_for(&model, start, size);
      if (place >= 0) {
        ck_assert(sim_extents_reserve(&set, 1));
        sim_extent extent = sim_extents_insert(&set, start, size, start * 7);
        ck_assert_uint_ne(extent, SIM_EXTENT_NONE);
        naive_insert(&model, place, start, size, extent);
      }
    } else if (model.count > 0 && kind == 1) {
      int place = (int)next_random((uint64_t)model.count);
      ck_assert_uint_eq(sim_extents_get(&set, model.extent[place])->value, model.start[place] * 7);
      sim_extents_remove(&set, model.extent[place]);
      naive_remove(&model, place);
    } else if (model.count > 0) {
      int place = (int)next_random((uint64_t)model.count);
      uint64_t size = 1 + next_random(model.size[place]);
      sim_extents_resize(&set, model.extent[place], model.start[place], size);
      model.size[place] = size;
    }
    compare(&set, &model);
  }
  sim_extents_destroy(&set);
  ck_assert_uint_eq(set.count, 0);
}
END_TEST

/* Free space that is carved and merged again: a map of bytes says what is free. */
START_TEST(carving_and_merging_keep_the_free_bytes) {
  static bool is_free[SPACE];
  memset(is_free, 1, sizeof is_free);
  sim_extents set = {0};
  state = (uint64_t)_i + 1000;
  ck_assert(sim_extents_reserve(&set, 1));
  sim_extents_insert(&set, 0, SPACE, 0);
  for (int step = 0; step < STEPS; step++) {
    uint64_t start = next_random(SPACE), size = 1 + next_random(12);
    if (start + size > SPACE) continue;
    uint64_t free_bytes = 0;
    for (uint64_t i = start; i < start + size; i++) free_bytes += is_free[i];
    ck_assert(sim_extents_reserve(&set, 1));
    if (free_bytes == size) {
      sim_extents_carve(&set, sim_extents_containing(&set, start), start, size);
    } else if (free_bytes == 0) {
      sim_extents_merge(&set, start, size);
    } else {
      continue;
    }
    memset(is_free + start, free_bytes == 0, size);
    uint32_t runs = 0;
    for (uint64_t i = 0; i < SPACE; i++) {
      runs += is_free[i] && (i == 0 || !is_free[i - 1]);
      bool found = sim_extents_containing(&set, i) != SIM_EXTENT_NONE;
      if (found != is_free[i]) ck_abort_msg("byte %d", (int)i); /* Check's assertions are slow */
    }
    ck_assert_uint_eq(set.count, runs);
  }
  sim_extents_destroy(&set);
}
END_TEST

START_TEST(room_is_really_room) {
  sim_extents set = {0};
  ck_assert(sim_extents_reserve(&set, 1000));
  const sim_extent_node *nodes = set.nodes;
  for (uint64_t i = 0; i < 1000; i++) sim_extents_insert(&set, i * 10, 5, i);
  ck_assert_ptr_eq(set.nodes, nodes);
  ck_assert(sim_extents_reserve(&set, 1));
  ck_assert(!sim_extents_reserve(&set, UINT32_MAX));
  ck_assert_uint_eq(set.count, 1000);
  sim_extents_destroy(&set);
}
END_TEST

static Suite *extents_suite(void) {
  Suite *suite = suite_create("vmm extents");
  TCase *tcase = tcase_create("extents");
  tcase_add_loop_test(tcase, answers_like_an_array, 0, 10);
  tcase_add_loop_test(tcase, carving_and_merging_keep_the_free_bytes, 0, 5);
  tcase_add_test(tcase, room_is_really_room);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(extents_suite)
