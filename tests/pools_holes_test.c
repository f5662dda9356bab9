/* Holes by address against a list of runs, and the points in streams that their reuse waits for. */
#include "pools/holes.h"

#include <inttypes.h>
#include <string.h>

#include "pools/stream_clock.h"
#include "tests/pools_fixture.h"
#include "tests/test_main.h"

enum { UNITS = 600, STREAMS = 3, STEPS = 60000, UNIT = 512 };

/* ---- holes ---- */

/* For each unit of memory whether it is free, and the runs that follow from it. */
typedef struct run {
  uint64_t begin, end;
  uint64_t last[STREAMS];
} run;

typedef struct model {
  run runs[UNITS];
  int count;
} model;

/* The first run that ends above begin. */
static int run_above(const model *all, uint64_t begin) {
  int i = 0;
  while (i < all->count && all->runs[i].end <= begin) i++;
  return i;
}

static void remove_run(model *all, int i) {
  all->count--;
  memmove(&all->runs[i], &all->runs[i + 1], (size_t)(all->count - i) * sizeof(run));
}

static void insert_run(model *all, int i, run added) {
  memmove(&all->runs[i + 1], &all->runs[i], (size_t)(all->count - i) * sizeof(run));
  all->runs[i] = added;
  all->count++;
}

static void merge(run *into, const run *other) {
  for (int s = 0; s < STREAMS; s++) {
    if (other->last[s] > into->last[s]) into->last[s] = other->last[s];
  }
}

static void model_insert(model *all, run added) {
  int i = run_above(all, added.begin);
  if (i > 0 && all->runs[i - 1].end == added.begin) {
    merge(&added, &all->runs[i - 1]);
    added.begin = all->runs[i - 1].begin;
    remove_run(all, --i);
  }
  if (i < all->count && all->runs[i].begin == added.end) {
    merge(&added, &all->runs[i]);
    added.end = all->runs[i].end;
    remove_run(all, i);
  }
  insert_run(all, i, added);
}

static void model_carve(model *all, int i, uint64_t begin, uint64_t end) {
  run before = all->runs[i], after = all->runs[i];
  remove_run(all, i);
  before.end = begin;
  after.begin = end;
  if (after.begin < after.end) insert_run(all, i, after);
  if (before.begin < before.end) insert_run(all, i, before);
}

static bool same(const pool_hole *hole, const run *expected) {
  return hole && hole->begin == expected->begin * UNIT && hole->end == expected->end * UNIT &&
         memcmp(hole->last, expected->last, sizeof expected->last) == 0;
}

static void compare(const pool_holes *holes, const model *all, int step) {
  char message[256] = "";
  require(pool_holes_check(holes, message, sizeof message), "step %d: %s", step, message);
  uint64_t bytes = 0, longest = 0;
  pool_hole *hole = pool_holes_first(holes, 1);
  for (int i = 0; i < all->count; i++) {
    uint64_t length = (all->runs[i].end - all->runs[i].begin) * UNIT;
    require(same(hole, &all->runs[i]), "step %d: hole %d", step, i);
    bytes += length;
    if (length > longest) longest = length;
    hole = pool_holes_next(hole, 1);
  }
  require(!hole, "step %d: a hole too many", step);
  require(
      holes->count == (uint64_t)all->count && holes->bytes == bytes && pool_holes_longest(holes) == longest,
      "step %d: counters", step);
}

static void compare_searches(const pool_holes *holes, const model *all, uint64_t *random, int step) {
  uint64_t size = 1 + pools_random_below(random, 30 * UNIT),
           address = pools_random_below(random, UNITS) * UNIT;
  pool_hole *hole = pool_holes_first(holes, size);
  for (int i = 0; i < all->count; i++) {
    if ((all->runs[i].end - all->runs[i].begin) * UNIT < size) continue;
    require(same(hole, &all->runs[i]), "step %d: the next hole of %" PRIu64 " bytes", step, size);
    hole = pool_holes_next(hole, size);
  }
  require(!hole, "step %d: a hole of %" PRIu64 " bytes too many", step, size);
  uint64_t limit = size + pools_random_below(random, 10 * UNIT);
  uint32_t tries = 1 + (uint32_t)pools_random_below(random, 8), left = tries;
  int below = 0;
  for (; below < all->count; below++) {
    uint64_t length = (all->runs[below].end - all->runs[below].begin) * UNIT;
    if (length >= size && (length < limit || --left == 0)) break;
  }
  hole = pool_holes_first_below(holes, size, limit, tries);
  require(below == all->count || left == 0 ? !hole : same(hole, &all->runs[below]),
          "step %d: the lowest of %" PRIu64 " to %" PRIu64 " bytes, %" PRIu32 " tries", step, size, limit,
          tries);
  int above = run_above(all, address / UNIT);
  hole = pool_holes_at_or_above(holes, address);
  require(above == all->count ? !hole : same(hole, &all->runs[above]), "step %d: at or above 0x%" PRIx64,
          step, address);
}

START_TEST(agrees_with_a_list_of_runs) {
  uint64_t random = pools_random_seed("agrees_with_a_list_of_runs"), point = 0;
  static model all;
  pool_holes holes;
  pool_holes_init(&holes);
  ck_assert_int_eq(pool_holes_prepare_stream(&holes, STREAMS - 1), VMM_SUCCESS);
  for (int step = 0; step < STEPS; step++) {
    require(pool_holes_prepare(&holes, 1) == VMM_SUCCESS, "no node");
    uint64_t begin = pools_random_below(&random, UNITS), length = 1 + pools_random_below(&random, 24);
    int i = run_above(&all, begin);
    bool is_free = i < all.count && all.runs[i].begin <= begin;
    uint64_t bound = is_free ? all.runs[i].end : i < all.count ? all.runs[i].begin : UNITS;
    uint64_t end = begin + length < bound ? begin + length : bound;
    if (is_free) {
      if (pools_random_below(&random, 4) == 0) begin = all.runs[i].begin;
      pool_holes_carve(&holes, pool_holes_at_or_above(&holes, begin * UNIT), begin * UNIT, end * UNIT);
      model_carve(&all, i, begin, end);
    } else {
      run added = {.begin = begin, .end = end};
      uint64_t last[64] = {0};
      bool used = pools_random_below(&random, 3) != 0;
      if (used) added.last[pools_random_below(&random, STREAMS)] = ++point;
      memcpy(last, added.last, sizeof added.last);
      require(holes.streams <= 64, "more streams than expected");
      pool_holes_insert(&holes, begin * UNIT, end * UNIT, used ? last : NULL);
      model_insert(&all, added);
    }
    compare_searches(&holes, &all, &random, step);
    if (step % 50 == 0) compare(&holes, &all, step);
  }
  compare(&holes, &all, STEPS);
  pool_holes_fini(&holes);
}
END_TEST

/* Streams may be added while there are holes: nothing was freed there yet. */
START_TEST(learns_of_streams_late) {
  pool_holes holes;
  pool_holes_init(&holes);
  ck_assert_int_eq(pool_holes_prepare_stream(&holes, 0), VMM_SUCCESS);
  ck_assert_int_eq(pool_holes_prepare(&holes, 3), VMM_SUCCESS);
  uint64_t last[256] = {7};
  ck_assert_uint_le(holes.streams, 256);
  pool_holes_insert(&holes, 512, 1024, last);
  ck_assert_int_eq(pool_holes_prepare_stream(&holes, 100), VMM_SUCCESS);
  pool_hole *hole = pool_holes_first(&holes, 512);
  ck_assert_uint_eq(hole->last[0], 7);
  ck_assert_uint_eq(hole->last[100], 0);
  last[0] = 3;
  last[100] = 9;
  pool_holes_insert(&holes, 1024, 1536, last);
  ck_assert_uint_eq(hole->last[0], 7);
  ck_assert_uint_eq(hole->last[100], 9);
  pool_holes_fini(&holes);
}
END_TEST

/* ---- stream clocks ---- */

START_TEST(sees_points_pass) {
  vmm_sim_configuration configuration = {.capacity = 64 * MIB, .event_delay = 4};
  vmm_driver *sim;
  ck_assert_int_eq(vmm_sim_create(&configuration, &sim), VMM_SUCCESS);
  pool_stream_clock clock;
  pool_stream_clock_init(&clock, sim);
  ck_assert_int_eq(pool_stream_clock_prepare(&clock, 1), VMM_SUCCESS);
  uint64_t point = pool_stream_clock_point(&clock, 1);
  ck_assert(!pool_stream_clock_passed(&clock, 1, point));
  /* Another stream is made to wait: one event and one wait, and not again for the same point. */
  ck_assert_int_eq(pool_stream_clock_wait(&clock, 0, 1, point), VMM_SUCCESS);
  ck_assert_int_eq(pool_stream_clock_wait(&clock, 0, 1, point), VMM_SUCCESS);
  ck_assert_uint_eq(clock.waits, 1);
  vmm_sim_usage usage;
  vmm_sim_usage_get(sim, &usage);
  ck_assert_uint_eq(usage.events, 1);
  for (int tick = 0; tick < 4; tick++) {
    ck_assert(!pool_stream_clock_passed(&clock, 1, point));
    vmm_sim_tick(sim);
  }
  ck_assert(pool_stream_clock_passed(&clock, 1, point));
  uint64_t later = pool_stream_clock_point(&clock, 1);
  ck_assert(!pool_stream_clock_passed(&clock, 1, later));
  pool_stream_clock_all_passed(&clock);
  ck_assert(pool_stream_clock_passed(&clock, 1, later));
  pool_stream_clock_fini(&clock);
  vmm_sim_usage_get(sim, &usage);
  ck_assert_uint_eq(usage.events, 0);
  vmm_driver_destroy(sim);
}
END_TEST

/* When no event can be had the host waits instead; when that fails too, so does the wait. */
START_TEST(waits_on_the_host_without_events) {
  vmm_sim_configuration configuration = {.capacity = 64 * MIB, .event_delay = 4};
  vmm_driver *sim;
  ck_assert_int_eq(vmm_sim_create(&configuration, &sim), VMM_SUCCESS);
  pool_stream_clock clock;
  pool_stream_clock_init(&clock, sim);
  ck_assert_int_eq(pool_stream_clock_prepare(&clock, 1), VMM_SUCCESS);
  uint64_t point = pool_stream_clock_point(&clock, 1);
  vmm_sim_fail(sim, VMM_CALL_EVENT_RECORD, 1, VMM_UNKNOWN);
  vmm_sim_fail(sim, VMM_CALL_SYNCHRONIZE, 1, VMM_UNKNOWN);
  ck_assert_int_eq(pool_stream_clock_wait(&clock, 0, 1, point), VMM_UNKNOWN);
  ck_assert(!pool_stream_clock_passed(&clock, 1, point));
  vmm_sim_fail(sim, VMM_CALL_EVENT_RECORD, 1, VMM_UNKNOWN);
  ck_assert_int_eq(pool_stream_clock_wait(&clock, 0, 1, point), VMM_SUCCESS);
  ck_assert(pool_stream_clock_passed(&clock, 1, point));
  point = pool_stream_clock_point(&clock, 1);
  vmm_sim_fail(sim, VMM_CALL_STREAM_WAIT_EVENT, 1, VMM_UNKNOWN);
  ck_assert_int_eq(pool_stream_clock_wait(&clock, 0, 1, point), VMM_UNKNOWN);
  ck_assert_int_eq(pool_stream_clock_wait(&clock, 0, 1, point), VMM_SUCCESS);
  pool_stream_clock_fini(&clock);
  vmm_driver_destroy(sim);
}
END_TEST

static Suite *holes_suite(void) {
  Suite *suite = suite_create("pools_holes");
  TCase *holes = tcase_create("holes");
  tcase_add_test(holes, agrees_with_a_list_of_runs);
  tcase_add_test(holes, learns_of_streams_late);
  suite_add_tcase(suite, holes);
  TCase *clocks = tcase_create("stream clocks");
  tcase_add_test(clocks, sees_points_pass);
  tcase_add_test(clocks, waits_on_the_host_without_events);
  suite_add_tcase(suite, clocks);
  return suite;
}

TEST_MAIN(holes_suite)
