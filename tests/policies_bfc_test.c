/* PyTorch's allocator by hand-computed scenarios: the vectors of its specification step by
 * step, the rules for oversize blocks, garbage collection, the retry ladder and the limit. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/policies_fixture.h"
#include "tests/test_main.h"

/* ---- vectors ---- */

enum { NAMES = 26 };

/* One step: name 'a' + size allocates, name alone frees, no name empties the cache. */
typedef struct vector {
  char name;
  uint64_t size;
  uint64_t reserved, allocated, split_count, split_bytes;
} vector;

static const vector segments[] = {
    {'a', 1, 2097152, 512, 1, 2096640},
    {'b', 1048576, 2097152, 1049088, 1, 1048064},
    {'c', 1048577, 23068672, 2098176, 2, 20970496},
    {'d', 10485760, 23068672, 12583936, 2, 10484736},
    {'e', 9437184, 44040192, 22021120, 3, 22019072},
    {'f', 20447232, 65011712, 42992640, 3, 22019072},
    {'c', 0, 65011712, 41943552, 4, 23068160},
    {'d', 0, 65011712, 31457792, 2, 12582400},
    {0, 0, 44040192, 31457792, 2, 12582400},
};

static const vector expandable_segments[] = {
    {'a', 1, 2097152, 512, 0, 0},
    {'b', 1572864, 23068672, 1573376, 0, 0},
    {'c', 26214400, 44040192, 27787776, 0, 0},
    {'b', 0, 44040192, 26214912, 0, 0},
    {'g', 1049088, 44040192, 27264000, 0, 0},
    {'c', 0, 44040192, 1049600, 0, 0},
    {0, 0, 23068672, 1049600, 0, 0},
};

static void follow(const char *spec, const vector *vectors, size_t count) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = spec});
  const pool_statistics *statistics = policies_statistics(&fixture);
  vmm_address addresses[NAMES] = {0};
  for (size_t i = 0; i < count; i++) {
    const vector *step = &vectors[i];
    char where[64];
    snprintf(where, sizeof where, "%s, step %zu", spec, i + 1);
    if (!step->name) {
      ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
    } else if (step->size) {
      addresses[step->name - 'a'] = policies_alloc(&fixture, step->size, 0);
    } else {
      policies_free(&fixture, addresses[step->name - 'a']);
    }
    policies_fixture_check(&fixture, where);
    ck_assert_msg(statistics->reserved_bytes.current == step->reserved, "%s: reserved %" PRIu64, where,
                  statistics->reserved_bytes.current);
    ck_assert_msg(statistics->allocated_bytes.current == step->allocated, "%s: allocated %" PRIu64, where,
                  statistics->allocated_bytes.current);
    ck_assert_msg(statistics->inactive_split.current == step->split_count, "%s: inactive split %" PRIu64,
                  where, statistics->inactive_split.current);
    ck_assert_msg(statistics->inactive_split_bytes.current == step->split_bytes,
                  "%s: inactive split %" PRIu64 " bytes", where, statistics->inactive_split_bytes.current);
    if (statistics->inactive_split.current == 0) ck_assert_uint_eq(statistics->segments.current, 0);
  }
  policies_fixture_close(&fixture);
}

START_TEST(follows_the_vectors) { follow("bfc", segments, sizeof segments / sizeof *segments); }
END_TEST

START_TEST(follows_the_vectors_of_expandable_segments) {
  follow("expandable", expandable_segments, sizeof expandable_segments / sizeof *expandable_segments);
}
END_TEST

/* ---- what is reused ---- */

static policies_fixture open_bfc(const char *spec, uint64_t capacity, uint64_t limit) {
  policies_fixture fixture;
  policies_fixture_open(&fixture,
                        &(policies_fixture_options){.spec = spec, .capacity = capacity, .limit = limit});
  return fixture;
}

static vmm_status try_alloc(policies_fixture *fixture, uint64_t size) {
  vmm_address address;
  return policy_alloc(fixture->policy, size, 0, &address);
}

static void expect_held(const policies_fixture *fixture, uint64_t reserved, uint64_t allocated) {
  policies_fixture_check(fixture, "a scenario");
  ck_assert_uint_eq(policies_statistics(fixture)->reserved_bytes.current, reserved);
  ck_assert_uint_eq(policies_statistics(fixture)->allocated_bytes.current, allocated);
}

START_TEST(takes_the_smallest_block_that_fits) {
  policies_fixture fixture = open_bfc("bfc", 0, 0);
  vmm_address large = policies_alloc(&fixture, 100 * MIB, 0), middle = policies_alloc(&fixture, 60 * MIB, 0),
              small = policies_alloc(&fixture, 40 * MIB, 0);
  policies_free(&fixture, large);
  policies_free(&fixture, small);
  policies_free(&fixture, middle);
  ck_assert_uint_eq(policy_largest_free(fixture.policy), 100 * MIB);
  ck_assert_uint_eq(policies_alloc(&fixture, 50 * MIB, 0), middle);
  ck_assert_uint_eq(policies_alloc(&fixture, 10 * MIB, 0),
                    middle + 50 * MIB);                            /* its rest is the smallest now */
  ck_assert_uint_eq(policies_alloc(&fixture, 39 * MIB, 0), small); /* 1 MiB of slack is not split off */
  expect_held(&fixture, 200 * MIB, 100 * MIB);
  policies_free(&fixture, small);
  ck_assert_uint_eq(policies_alloc(&fixture, 39 * MIB - 512, 0), small); /* one block more is */
  expect_held(&fixture, 200 * MIB, 99 * MIB - 512);
  policies_fixture_close(&fixture);
}
END_TEST

/* 512 bytes are split off a small block, 1 MiB stays with a large one. */
START_TEST(keeps_small_and_large_apart) {
  policies_fixture fixture = open_bfc("bfc", 0, 0);
  vmm_address large = policies_alloc(&fixture, 20 * MIB, 0);
  policies_free(&fixture, large);
  vmm_address small = policies_alloc(&fixture, MIB, 0);
  ck_assert(small < large || small >= large + 20 * MIB);
  expect_held(&fixture, 22 * MIB, MIB);
  ck_assert_uint_eq(policies_alloc(&fixture, MIB - 512, 0), small + MIB);
  ck_assert_uint_eq(policies_alloc(&fixture, 100, 0), small + 2 * MIB - 512);
  expect_held(&fixture, 22 * MIB, 2 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(reuses_on_the_same_stream_only) {
  policies_fixture fixture = open_bfc("bfc", 0, 0);
  vmm_address first = policies_alloc(&fixture, 20 * MIB, 3);
  policies_free(&fixture, first);
  vmm_address other = policies_alloc(&fixture, 20 * MIB, 2);
  ck_assert_uint_ne(other, first);
  ck_assert_uint_eq(policies_alloc(&fixture, 20 * MIB, 3), first);
  policies_fixture_close(&fixture);
}
END_TEST

/* ATen's cache once gave 4 GB to a request of 10 kB. */
START_TEST(splits_a_huge_block) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "bfc", .profile = "h200"});
  vmm_address huge = policies_alloc(&fixture, 4000 * MIB, 0);
  policies_free(&fixture, huge);
  policies_alloc(&fixture, 10000, 0);
  ck_assert_uint_eq(policies_alloc(&fixture, 4000 * MIB, 0), huge);
  expect_held(&fixture, 4002 * MIB, 4000 * MIB + 10240);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(rounds_by_divisions) {
  policies_fixture fixture = open_bfc("bfc:roundup_power2_divisions=[64:4,>:2]", 0, 0);
  policies_alloc(&fixture, 33 * MIB, 0); /* 32 MiB in quarters */
  expect_held(&fixture, 40 * MIB, 40 * MIB);
  policies_alloc(&fixture, 129 * MIB, 0); /* 128 MiB in halves */
  expect_held(&fixture, 232 * MIB, 232 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- max_split_size_mb ---- */

START_TEST(keeps_oversize_blocks_whole) {
  policies_fixture fixture = open_bfc("bfc:max_split_size_mb=64", 0, 0);
  vmm_address oversize = policies_alloc(&fixture, 100 * MIB, 0);
  policies_free(&fixture, oversize);
  vmm_address small =
      policies_alloc(&fixture, 30 * MIB, 0); /* below the limit: does not get an oversize block */
  expect_held(&fixture, 130 * MIB, 30 * MIB);
  policies_free(&fixture, small);
  vmm_address exact = policies_alloc(&fixture, 80 * MIB, 0); /* 20 MiB would be wasted: that is too much */
  expect_held(&fixture, 210 * MIB, 80 * MIB);
  policies_free(&fixture, exact);
  ck_assert_uint_eq(policies_alloc(&fixture, 64 * MIB, 0), exact); /* 16 MiB is not: taken whole */
  expect_held(&fixture, 210 * MIB, 80 * MIB);
  ck_assert_uint_eq(policies_alloc(&fixture, 80 * MIB + 512, 0), oversize);
  expect_held(&fixture, 210 * MIB, 180 * MIB);
  ck_assert_uint_eq(policies_alloc(&fixture, 20 * MIB, 0), small); /* below it blocks are split as ever */
  expect_held(&fixture, 210 * MIB, 200 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(allows_the_slack_that_is_asked_for) {
  policies_fixture fixture = open_bfc("bfc:max_split_size_mb=64,max_non_split_rounding_mb=50", 0, 0);
  vmm_address oversize = policies_alloc(&fixture, 120 * MIB, 0);
  policies_free(&fixture, oversize);
  ck_assert_uint_eq(policies_alloc(&fixture, 70 * MIB + 512, 0), oversize);
  policies_free(&fixture, oversize);
  ck_assert_uint_ne(policies_alloc(&fixture, 70 * MIB, 0), oversize);
  policies_fixture_close(&fixture);
}
END_TEST

/* First one oversize block that is large enough goes back, and nothing else. */
START_TEST(returns_one_oversize_block_that_suffices) {
  policies_fixture fixture = open_bfc("bfc:max_split_size_mb=64", 0, 400 * MIB);
  vmm_address a = policies_alloc(&fixture, 100 * MIB, 0), b = policies_alloc(&fixture, 200 * MIB, 0),
              c = policies_alloc(&fixture, 30 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  policies_free(&fixture, c);
  policies_alloc(&fixture, 150 * MIB, 0);
  expect_held(&fixture, 280 * MIB, 150 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_frees, 1);
  policies_fixture_close(&fixture);
}
END_TEST

/* None is: the largest go until their sum is. */
START_TEST(returns_the_largest_oversize_blocks) {
  policies_fixture fixture = open_bfc("bfc:max_split_size_mb=64", 0, 400 * MIB);
  vmm_address a = policies_alloc(&fixture, 100 * MIB, 0), b = policies_alloc(&fixture, 120 * MIB, 0),
              c = policies_alloc(&fixture, 70 * MIB, 0), d = policies_alloc(&fixture, 30 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  policies_free(&fixture, c);
  policies_free(&fixture, d);
  policies_alloc(&fixture, 200 * MIB, 0); /* 120 and 100 */
  expect_held(&fixture, 300 * MIB, 200 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_frees, 2);
  policies_fixture_close(&fixture);
}
END_TEST

/* The oversize blocks together are not: they are gone all the same, and the whole cache follows. */
START_TEST(returns_everything_when_oversize_blocks_do_not_suffice) {
  policies_fixture fixture = open_bfc("bfc:max_split_size_mb=64", 0, 400 * MIB);
  vmm_address a = policies_alloc(&fixture, 100 * MIB, 0), b = policies_alloc(&fixture, 70 * MIB, 0),
              c = policies_alloc(&fixture, 30 * MIB, 0), d = policies_alloc(&fixture, 512, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  policies_free(&fixture, c);
  policies_free(&fixture, d);
  policies_alloc(&fixture, 390 * MIB, 0);
  expect_held(&fixture, 390 * MIB, 390 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 1);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_frees, 4);
  policies_fixture_close(&fixture);
}
END_TEST

/* An oversize block of another stream does not go before the whole cache does. */
START_TEST(returns_oversize_blocks_of_the_stream_only) {
  policies_fixture fixture = open_bfc("bfc:max_split_size_mb=64", 0, 400 * MIB);
  vmm_address a = policies_alloc(&fixture, 200 * MIB, 1), b = policies_alloc(&fixture, 100 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  policies_alloc(&fixture, 150 * MIB, 0);
  expect_held(&fixture, 150 * MIB, 150 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 1);
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- garbage_collection_threshold ---- */

/* Three blocks of 200 MiB at a threshold of 600 MiB; the first two freed at different ages. */
static policies_fixture open_garbage(const char *spec) {
  policies_fixture fixture = open_bfc(spec, 0, 2000 * MIB);
  vmm_address a = policies_alloc(&fixture, 200 * MIB, 0), b = policies_alloc(&fixture, 200 * MIB, 0);
  policies_alloc(&fixture, 200 * MIB, 0);
  policies_free(&fixture, a);
  policies_alloc(&fixture, 210 * MIB, 0); /* 600 MiB held: not above the threshold */
  policies_free(&fixture, b);
  expect_held(&fixture, 810 * MIB, 410 * MIB);
  return fixture;
}

START_TEST(collects_the_oldest_first) {
  /* 200 MiB above 610 MiB: the older block is enough. */
  policies_fixture fixture = open_garbage("bfc:garbage_collection_threshold=0.305");
  policies_alloc(&fixture, 220 * MIB, 0);
  expect_held(&fixture, 830 * MIB, 630 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_frees, 1);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 0);
  /* The younger one is still there. */
  policies_alloc(&fixture, 200 * MIB, 0);
  expect_held(&fixture, 830 * MIB, 830 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(collects_in_rounds_until_there_is_enough) {
  /* 210 MiB above 600 MiB: the older one is not enough, a second round takes the other. */
  policies_fixture fixture = open_garbage("bfc:garbage_collection_threshold=0.3");
  policies_alloc(&fixture, 220 * MIB, 0);
  expect_held(&fixture, 630 * MIB, 630 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_frees, 2);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(collects_on_a_miss_only_and_no_split_blocks) {
  policies_fixture fixture = open_garbage("bfc:garbage_collection_threshold=0.3");
  policies_alloc(&fixture, 100 * MIB,
                 0); /* splits the free block with the lower address: a hit, no collection */
  expect_held(&fixture, 810 * MIB, 510 * MIB);
  policies_alloc(&fixture, 220 * MIB, 0); /* only the whole one can go */
  expect_held(&fixture, 830 * MIB, 730 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_frees, 1);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(collects_nothing_without_a_limit) {
  policies_fixture fixture = open_bfc("bfc:garbage_collection_threshold=0.01", 0, 0);
  policies_free(&fixture, policies_alloc(&fixture, 200 * MIB, 0));
  policies_alloc(&fixture, 300 * MIB, 0);
  expect_held(&fixture, 500 * MIB, 300 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- the limit and the retry ladder ---- */

START_TEST(retries_after_emptying_the_cache) {
  policies_fixture fixture = open_bfc("bfc", 0, 100 * MIB);
  const pool_statistics *statistics = policies_statistics(&fixture);
  vmm_address a = policies_alloc(&fixture, 60 * MIB, 0);
  policies_free(&fixture, a);
  vmm_address b = policies_alloc(&fixture, 30 * MIB, 0);
  ck_assert_uint_eq(a, b);
  ck_assert_int_eq(try_alloc(&fixture, 60 * MIB), VMM_OUT_OF_MEMORY); /* a's segment is in use */
  expect_held(&fixture, 60 * MIB, 30 * MIB);
  ck_assert_uint_eq(statistics->retries, 1);
  ck_assert_uint_eq(statistics->failures, 1);
  ck_assert_uint_eq(policy_largest_free(fixture.policy), 30 * MIB);
  policies_free(&fixture, b);
  policies_alloc(&fixture, 80 * MIB, 0);
  expect_held(&fixture, 80 * MIB, 80 * MIB);
  ck_assert_uint_eq(statistics->retries, 2);
  policies_alloc(&fixture, 20 * MIB, 0);
  expect_held(&fixture, 100 * MIB, 100 * MIB); /* to the byte */
  ck_assert_int_eq(try_alloc(&fixture, 1), VMM_OUT_OF_MEMORY);
  ck_assert_uint_eq(statistics->reserved_bytes.peak, 100 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(retries_when_the_device_is_full) {
  policies_fixture fixture = open_bfc("bfc", 128 * MIB, 0);
  const pool_statistics *statistics = policies_statistics(&fixture);
  vmm_address a = policies_alloc(&fixture, 100 * MIB, 1);
  policies_free(&fixture, a);
  policies_alloc(&fixture, 120 * MIB, 0);
  expect_held(&fixture, 120 * MIB, 120 * MIB);
  ck_assert_uint_eq(statistics->retries, 1);
  ck_assert_uint_eq(statistics->failures, 0);
  ck_assert_int_eq(try_alloc(&fixture, 10 * MIB), VMM_OUT_OF_MEMORY);
  ck_assert_uint_eq(statistics->failures, 1);
  ck_assert_int_eq(try_alloc(&fixture, 2 * MIB), VMM_OUT_OF_MEMORY); /* takes a segment of 20 MiB */
  policies_alloc(&fixture, MIB, 0);                                  /* one of 2 MiB */
  expect_held(&fixture, 122 * MIB, 121 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* A failure that is none of memory is passed on at once. */
START_TEST(passes_other_failures_on) {
  policies_fixture fixture = open_bfc("bfc", 0, 0);
  vmm_address a = policies_alloc(&fixture, 100 * MIB, 0);
  policies_free(&fixture, a);
  vmm_sim_fail(fixture.sim, VMM_CALL_MALLOC, 1, VMM_ILLEGAL_ADDRESS);
  ck_assert_int_eq(try_alloc(&fixture, 120 * MIB), VMM_ILLEGAL_ADDRESS);
  expect_held(&fixture, 100 * MIB, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->failures, 0);
  policies_fixture_close(&fixture);
}
END_TEST

/* A segment that the driver does not take back stays, and is used. */
START_TEST(goes_on_when_a_segment_cannot_be_returned) {
  policies_fixture fixture = open_bfc("bfc", 0, 100 * MIB);
  vmm_address a = policies_alloc(&fixture, 40 * MIB, 0), b = policies_alloc(&fixture, 30 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  vmm_sim_fail(fixture.sim, VMM_CALL_FREE, 1, VMM_UNKNOWN);
  policies_alloc(&fixture, 60 * MIB, 0); /* the one of 30 MiB is refused, the other makes room */
  expect_held(&fixture, 90 * MIB, 60 * MIB);
  ck_assert_uint_eq(policies_alloc(&fixture, 30 * MIB, 0), b);
  policies_fixture_close(&fixture);
}
END_TEST

/* Memory that waits for another stream is waited for before the request fails. */
START_TEST(waits_for_streams_before_it_fails) {
  policies_fixture fixture;
  policies_fixture_open(&fixture,
                        &(policies_fixture_options){.spec = "bfc", .limit = 100 * MIB, .event_delay = 10});
  const pool_statistics *statistics = policies_statistics(&fixture);
  vmm_address a = policies_alloc(&fixture, 80 * MIB, 0);
  ck_assert_int_eq(policy_record_stream(fixture.policy, a, 5), VMM_SUCCESS);
  policies_free(&fixture, a);
  ck_assert_uint_eq(statistics->allocated_bytes.current, 0);
  ck_assert_uint_eq(statistics->active_bytes.current, 80 * MIB);
  policies_alloc(&fixture, 20 * MIB, 0); /* fits beside it: nobody waits */
  ck_assert_uint_eq(statistics->host_waits, 0);
  ck_assert_uint_eq(statistics->active_bytes.current, 100 * MIB);
  policies_alloc(&fixture, 70 * MIB, 0);
  ck_assert_uint_eq(statistics->host_waits, 1);
  ck_assert_uint_eq(statistics->retries, 1);
  expect_held(&fixture, 90 * MIB, 90 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(gives_waiting_blocks_back_in_time) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "bfc", .event_delay = 3});
  vmm_address a = policies_alloc(&fixture, 80 * MIB, 0);
  ck_assert_int_eq(policy_record_stream(fixture.policy, a, 1), VMM_SUCCESS);
  ck_assert_int_eq(policy_record_stream(fixture.policy, a, 2), VMM_SUCCESS);
  policies_free(&fixture, a);
  ck_assert_int_eq(policy_free(fixture.policy, a), VMM_INVALID_VALUE);
  for (int tick = 0; tick < 3; tick++) {
    vmm_address other = policies_alloc(&fixture, 80 * MIB, 0);
    ck_assert_uint_ne(other, a);
    policies_fixture_check(&fixture, "waiting");
    vmm_sim_tick(fixture.sim);
  }
  ck_assert_uint_eq(policies_alloc(&fixture, 80 * MIB, 0), a);
  policies_fixture_close(&fixture);
}
END_TEST

static Suite *bfc_suite(void) {
  Suite *suite = suite_create("policies_bfc");
  TCase *vectors = tcase_create("vectors");
  tcase_add_test(vectors, follows_the_vectors);
  tcase_add_test(vectors, follows_the_vectors_of_expandable_segments);
  suite_add_tcase(suite, vectors);
  TCase *reuse = tcase_create("reuse");
  tcase_add_test(reuse, takes_the_smallest_block_that_fits);
  tcase_add_test(reuse, keeps_small_and_large_apart);
  tcase_add_test(reuse, reuses_on_the_same_stream_only);
  tcase_add_test(reuse, splits_a_huge_block);
  tcase_add_test(reuse, rounds_by_divisions);
  suite_add_tcase(suite, reuse);
  TCase *oversize = tcase_create("max_split_size_mb");
  tcase_add_test(oversize, keeps_oversize_blocks_whole);
  tcase_add_test(oversize, allows_the_slack_that_is_asked_for);
  tcase_add_test(oversize, returns_one_oversize_block_that_suffices);
  tcase_add_test(oversize, returns_the_largest_oversize_blocks);
  tcase_add_test(oversize, returns_everything_when_oversize_blocks_do_not_suffice);
  tcase_add_test(oversize, returns_oversize_blocks_of_the_stream_only);
  suite_add_tcase(suite, oversize);
  TCase *garbage = tcase_create("garbage collection");
  tcase_add_test(garbage, collects_the_oldest_first);
  tcase_add_test(garbage, collects_in_rounds_until_there_is_enough);
  tcase_add_test(garbage, collects_on_a_miss_only_and_no_split_blocks);
  tcase_add_test(garbage, collects_nothing_without_a_limit);
  suite_add_tcase(suite, garbage);
  TCase *ladder = tcase_create("limit and retries");
  tcase_add_test(ladder, retries_after_emptying_the_cache);
  tcase_add_test(ladder, retries_when_the_device_is_full);
  tcase_add_test(ladder, passes_other_failures_on);
  tcase_add_test(ladder, goes_on_when_a_segment_cannot_be_returned);
  tcase_add_test(ladder, waits_for_streams_before_it_fails);
  tcase_add_test(ladder, gives_waiting_blocks_back_in_time);
  suite_add_tcase(suite, ladder);
  return suite;
}

TEST_MAIN(bfc_suite)
