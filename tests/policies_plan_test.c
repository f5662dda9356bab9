/* Static plans: sound, near the lower bound, and refused where they make no sense. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/plan.h"
#include "policies/plan_space.h"
#include "tests/policies_fixture.h"
#include "tests/test_main.h"

static uint64_t below(uint64_t *random, uint64_t bound) { return policies_random_below(random, bound); }

static bool overlap(const plan_block *left, const plan_block *right) {
  return left->begin < right->end && right->begin < left->end && left->offset < right->offset + right->size &&
         right->offset < left->offset + left->size;
}

/* No two blocks overlap in time and space, by the requests themselves, and nothing lies above the peak. */
static void check_plan(const policy_lifetimes *told, const plan *made) {
  uint64_t peak = 0, most = 0;
  for (uint64_t i = 0; i < told->count; i++) {
    const plan_block *block = &made->blocks[i];
    require(block->size >= told->items[i].size && block->size % 512 == 0, "block %" PRIu64 " is too small",
            i);
    uint64_t live = block->size;
    for (uint64_t k = 0; k < i; k++) {
      if (told->items[k].end <= i) continue;
      require(!overlap(block, &made->blocks[k]), "blocks %" PRIu64 " and %" PRIu64 " overlap", i, k);
      const bool apart = block->offset >= made->blocks[k].offset + made->blocks[k].size ||
                         made->blocks[k].offset >= block->offset + block->size;
      require(apart, "blocks %" PRIu64 " and %" PRIu64 " share an address", i, k);
      if (!made->blocks[k].optional) live += made->blocks[k].size;
    }
    require(told->items[i].optional || !block->optional, "block %" PRIu64 " has to be served", i);
    if (block->optional) continue;
    if (live > most) most = live;
    if (block->offset + block->size > peak) peak = block->offset + block->size;
  }
  ck_assert_uint_eq(made->peak, peak);
  ck_assert_uint_eq(made->lower_bound, most);
  ck_assert_uint_ge(made->peak, made->lower_bound);
}

/* One that failed when recorded has room at the end, if what is live then lies at the bottom or above it. */
START_TEST(what_failed_when_recorded_is_placed_where_there_is_room) {
  const policy_lifetime items[] = {
      {300 * KIB, 2, 0, false}, {100 * KIB, 3, 0, false}, {310 * KIB, 3, 0, true}};
  const policy_lifetimes told = {items, 3};
  static const struct {
    uint64_t room, peak, lower_bound;
    bool last;
  } cases[] = {{0, 400 * KIB, 400 * KIB, true},
               {409 * KIB, 400 * KIB, 400 * KIB, true},
               {410 * KIB, 410 * KIB, 410 * KIB, false},
               {UINT64_MAX, 410 * KIB, 410 * KIB, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const plan_settings settings = {512, 512, 1000000, cases[i].room};
    plan made;
    ck_assert_int_eq(plan_make(&told, &settings, &made), VMM_SUCCESS);
    ck_assert_uint_eq(made.peak, cases[i].peak);
    ck_assert_uint_eq(made.lower_bound, cases[i].lower_bound);
    ck_assert_int_eq(made.blocks[2].optional, cases[i].last);
    ck_assert(!overlap(&made.blocks[0], &made.blocks[1]) && !overlap(&made.blocks[1], &made.blocks[2]));
    plan_free(&made);
  }
}
END_TEST

static void make_plan(const policy_lifetimes *told, uint64_t precision, uint64_t million_steps, uint64_t room,
                      plan *made) {
  const plan_settings settings = {512, precision, million_steps * 1000000, room};
  ck_assert_int_eq(plan_make(told, &settings, made), VMM_SUCCESS);
  check_plan(told, made);
}

/* Random requests, some of them optional. */
static uint64_t random_requests(uint64_t *random, policy_lifetime *requests, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    uint64_t life = below(random, 4) ? 1 + below(random, 6) : 1 + below(random, count);
    if (life > count - i) life = count - i;
    requests[i] = (policy_lifetime){.size = 1 + below(random, 40000), .end = i + life};
    if (below(random, 25) == 0) requests[i] = (policy_lifetime){30000, i + 1, 0, true};
  }
  return count;
}

START_TEST(random_plans_are_sound) {
  uint64_t random = policies_random_seed("random_plans_are_sound");
  policy_lifetime requests[300] = {{0}};
  for (int round = 0; round < 60; round++) {
    policy_lifetimes told = {requests, random_requests(&random, requests, 1 + below(&random, 300))};
    plan made;
    make_plan(&told, 512, (uint64_t)round % 3, round % 2 ? below(&random, 1500000) : 0, &made);
    ck_assert_uint_eq(made.count, told.count);
    plan_free(&made);
  }
}
END_TEST

/* The tree finds what a look at every block finds. */
START_TEST(the_lowest_place_is_found) {
  enum { BLOCKS = 400, SECTIONS = 100 };
  uint64_t random = policies_random_seed("the_lowest_place_is_found");
  for (int round = 0; round < 20; round++) {
    plan_block blocks[BLOCKS];
    plan_space *space = plan_space_create(SECTIONS);
    ck_assert_ptr_nonnull(space);
    for (int i = 0; i < BLOCKS; i++) {
      plan_block block = {.size = 1 + below(&random, 50), .begin = (uint32_t)below(&random, SECTIONS)};
      block.end = block.begin + 1 + (uint32_t)below(&random, SECTIONS - block.begin);
      for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < i; k++) {
          if (!overlap(&block, &blocks[k])) continue;
          block.offset = blocks[k].offset + blocks[k].size;
          moved = true;
        }
      }
      ck_assert_uint_eq(plan_space_lowest(space, block.begin, block.end, block.size), block.offset);
      ck_assert(plan_space_add(space, block.begin, block.end, block.offset, block.size));
      blocks[i] = block;
    }
    plan_space_clear(space);
    ck_assert_uint_eq(plan_space_lowest(space, 0, SECTIONS, 7), 0);
    plan_space_destroy(space);
  }
}
END_TEST

/* A rectangle of time and space cut into pieces, which therefore fit it without a gap. */
typedef struct cutting {
  uint64_t random;
  struct {
    uint64_t begin, end, low, high;
  } pieces[64];
  int count;
} cutting;

static void cut(cutting *self, uint64_t begin, uint64_t end, uint64_t low, uint64_t high, int pieces) {
  if (pieces == 1 || end - begin < 2 || high - low < 2) {
    self->pieces[self->count].begin = begin;
    self->pieces[self->count].end = end;
    self->pieces[self->count].low = low;
    self->pieces[self->count++].high = high;
    return;
  }
  if (below(&self->random, 2)) {
    const uint64_t middle = begin + 1 + below(&self->random, end - begin - 1);
    cut(self, begin, middle, low, high, pieces / 2);
    cut(self, middle, end, low, high, pieces - pieces / 2);
  } else {
    const uint64_t middle = low + 1 + below(&self->random, high - low - 1);
    cut(self, begin, end, low, middle, pieces / 2);
    cut(self, begin, end, middle, high, pieces - pieces / 2);
  }
}

static int compare_lifetimes(const void *left, const void *right) {
  const uint64_t *a = left, *b = right; /* begins */
  return a[0] < b[0] ? -1 : a[0] > b[0];
}

static void requests_of(cutting *self, policy_lifetime *requests) {
  qsort(self->pieces, (size_t)self->count, sizeof *self->pieces, compare_lifetimes);
  for (int i = 0; i < self->count; i++) {
    uint64_t before = 0;
    while (before < (uint64_t)self->count && self->pieces[before].begin < self->pieces[i].end) before++;
    requests[i] =
        (policy_lifetime){.size = (self->pieces[i].high - self->pieces[i].low) * 512, .end = before};
  }
}

START_TEST(what_fits_without_a_gap_is_put_together) {
  for (uint64_t round = 0; round < 12; round++) {
    cutting pieces = {.random = 77 + round};
    policy_lifetime requests[64];
    cut(&pieces, 0, 400, 0, 400, 40);
    requests_of(&pieces, requests);
    const policy_lifetimes told = {requests, (uint64_t)pieces.count};
    plan made;
    make_plan(&told, 512, 300, 0, &made);
    ck_assert_uint_eq(made.lower_bound, UINT64_C(400) * 512);
    ck_assert_msg(made.peak == made.lower_bound, "cutting %" PRIu64 ": %" PRIu64 " of %d pieces, not 204800",
                  round, made.peak, pieces.count);
    plan_free(&made);
  }
}
END_TEST

START_TEST(nonsense_is_refused) {
  const struct {
    policy_lifetime requests[2];
    uint64_t count;
  } cases[] = {
      {{{1, 0, 0, false}}, 1},                   /* freed before it is made */
      {{{1, 2, 0, false}}, 1},                   /* freed after the end */
      {{{1, 2, 0, false}, {1, 1, 0, false}}, 2}, /* the second one before it is made */
      {{{0, 1, 0, false}}, 1},                   /* nothing */
      {{{UINT64_MAX, 1, 0, false}}, 1},          /* too much to be rounded */
      {{{UINT64_C(1) << 61, 1, 0, false}, {UINT64_C(1) << 62, 2, 0, false}}, 2}, /* in sum */
      {{{1, 1, 0, false}}, UINT64_C(1) << 40},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    plan made;
    const policy_lifetimes told = {cases[i].requests, cases[i].count};
    ck_assert_int_eq(plan_make(&told, &(plan_settings){512, 512, 0, 0}, &made), VMM_INVALID_VALUE);
    ck_assert_ptr_null(made.blocks);
  }
}
END_TEST

/* How many of minimalloc's challenges, each of which is known to fit 1 MiB, fit; -1: they are not here. */
static int minimalloc_fits(const char *names, unsigned effort) {
  char folder[PATH_MAX], path[PATH_MAX + 64];
  if (!policies_shared("public/A.1048576.csv", folder)) return -1;
  const size_t letter = strlen(folder) - strlen("A.1048576.csv");
  int fit = 0;
  for (const char *name = names; *name; name++) {
    trace_events events;
    trace_error error;
    lifetimes known;
    folder[letter] = *name;
    snprintf(path, sizeof path, "%s", folder);
    require(trace_load(path, NULL, &events, &error) == TRACE_OK, "%s", error.message);
    const policy_lifetimes told = policies_lifetimes(&events, &known);
    plan made;
    make_plan(&told, MIB, effort, 0, &made);
    printf("minimalloc %c: %" PRIu64 " requests, live peak %" PRIu64 ", planned peak %" PRIu64 "\n", *name,
           made.count, made.lower_bound, made.peak);
    fit += made.peak <= MIB;
    plan_free(&made);
    lifetimes_free(&known);
    trace_events_free(&events);
  }
  printf("%d of %zu cases fit\n", fit, strlen(names));
  return fit;
}

/* Those that fit soon. Which do depends on the last bits of logarithms. */
START_TEST(minimalloc_cases) {
  const int fit = minimalloc_fits("ABCDGH", 300);
  if (fit < 0) test_skip("no folder ../shared/public beside the project");
  ck_assert_int_ge(fit, 4);
}
END_TEST

/* All of them, for a minute: not in CI (docs/planned.md). */
START_TEST(minimalloc_all_cases) {
  if (!getenv("LAKEBED_LONG_TESTS")) test_skip("LAKEBED_LONG_TESTS is not set");
  const int fit = minimalloc_fits("ABCDEFGHIJK", 8000);
  if (fit < 0) test_skip("no folder ../shared/public beside the project");
  ck_assert_int_ge(fit, 9);
}
END_TEST

static Suite *plan_suite(void) {
  Suite *suite = suite_create("policies_plan");
  TCase *plans = tcase_create("plans");
  tcase_add_test(plans, random_plans_are_sound);
  tcase_add_test(plans, the_lowest_place_is_found);
  tcase_add_test(plans, what_fits_without_a_gap_is_put_together);
  tcase_add_test(plans, what_failed_when_recorded_is_placed_where_there_is_room);
  tcase_add_test(plans, nonsense_is_refused);
  tcase_add_test(plans, minimalloc_cases);
  TCase *longer = tcase_create("minimalloc");
  tcase_set_timeout(longer, 600);
  tcase_add_test(longer, minimalloc_all_cases);
  suite_add_tcase(suite, longer);
  suite_add_tcase(suite, plans);
  return suite;
}

TEST_MAIN(plan_suite)
