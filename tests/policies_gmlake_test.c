/* GMLake's states and functions, walked by hand and asserted block by block: with stitching=views, where
 * every stitched block has a VA of its own. */
#include "tests/policies_gmlake_fixture.h"
#include "tests/test_main.h"

/* ---- the states ---- */

START_TEST(walks_through_all_states) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views", 40 * MIB);
  vmm_address a, b, c, d, e, f, whole;

  /* S4 without candidates: Alloc. */
  a = policies_alloc(&fixture, 20 * MIB, 0);
  gmlake_expect(&fixture, "alloc 20", "20!", 0, 0, 20,
                (gmlake_calls){.reserve = 1, .create = 10, .map = 10, .access = 1});
  policies_free(&fixture, a);
  gmlake_expect(&fixture, "free 20", "20", 0, 0, 20, NO_CALLS);

  /* S1: the pBlock of this size. */
  ck_assert_uint_eq(policies_alloc(&fixture, 20 * MIB - 1, 0), a); /* rounded up to chunks */
  gmlake_expect(&fixture, "alloc 20 again", "20!", 0, 0, 20, NO_CALLS);
  policies_free(&fixture, a);

  /* S2: Split. The front is given out; the old size stays an exact match, as a view. */
  b = policies_alloc(&fixture, 12 * MIB, 0);
  ck_assert_uint_eq(b, a);
  gmlake_expect(&fixture, "alloc 12", "12! 8", 1, 0, 20, NO_CALLS);
  c = policies_alloc(&fixture, 8 * MIB, 0);
  ck_assert_uint_eq(c, a + 12 * MIB);
  gmlake_expect(&fixture, "alloc 8", "12! 8!", 1, 0, 20, NO_CALLS);
  d = policies_alloc(&fixture, 10 * MIB, 0);
  gmlake_expect(&fixture, "alloc 10", "12! 8!, 10!", 1, 0, 30,
                (gmlake_calls){.reserve = 1, .create = 5, .map = 5, .access = 1});
  gmlake_expect_counts(&fixture, "2 1 0 2 0 1 0 0");

  /* S1 again: the whole of the split block, once both its parts are free, and not before. */
  policies_free(&fixture, b);
  policies_free(&fixture, d);
  gmlake_expect(&fixture, "free 12 and 10", "12 8!, 10", 1, 0, 30, NO_CALLS);
  policies_free(&fixture, c);
  whole = policies_alloc(&fixture, 20 * MIB, 0);
  ck_assert_uint_eq(whole, a);
  gmlake_expect(&fixture, "alloc the whole", "12! 8!, 10", 1, 0, 30, NO_CALLS);
  policies_free(&fixture, whole);
  gmlake_expect(&fixture, "free the whole", "12 8, 10", 1, 0, 30, NO_CALLS);

  /* S3: 12, 10 and a part of 8 together; that one is split, its old size stays. */
  e = policies_alloc(&fixture, 24 * MIB, 0);
  gmlake_expect(&fixture, "alloc 24", "12! 2! 6, 10!, <12 10 2>", 3, 1, 30,
                (gmlake_calls){.reserve = 1, .map = 12, .access = 1});
  gmlake_expect_same_memory(&fixture, e, a, 12 * MIB);
  gmlake_expect_same_memory(&fixture, e + 12 * MIB, d, 10 * MIB);
  gmlake_expect_same_memory(&fixture, e + 22 * MIB, a + 12 * MIB, 2 * MIB);
  ck_assert(vmm_sim_accessible(fixture.sim, e, 24 * MIB));
  gmlake_expect_counts(&fixture, "3 1 1 2 0 2 1 0");

  /* S4: 6 are free, 2 are missing: Alloc and Stitch. The view of 8 is active through its first part. */
  f = policies_alloc(&fixture, 8 * MIB, 0);
  gmlake_expect(&fixture, "alloc 8 anew", "12! 2! 6!, 10!, <12 10 2>, 2!, <6 2>", 4, 2, 32,
                (gmlake_calls){.reserve = 2, .create = 1, .map = 1 + 4, .access = 2});
  gmlake_expect_same_memory(&fixture, f, a + 14 * MIB, 6 * MIB);
  gmlake_expect_counts(&fixture, "3 1 1 3 0 2 2 0");

  /* Freed and asked for again, each is an exact match: no driver call. */
  policies_free(&fixture, e);
  policies_free(&fixture, f);
  ck_assert_uint_eq(policies_alloc(&fixture, 24 * MIB, 0), e);
  ck_assert_uint_eq(policies_alloc(&fixture, 8 * MIB, 0), f);
  policies_free(&fixture, f);
  gmlake_expect(&fixture, "again", "12! 2! 6, 10!, <12 10 2>, 2, <6 2>", 4, 2, 32, NO_CALLS);
  gmlake_expect_counts(&fixture, "5 1 1 3 0 2 2 0");

  /* S5: 30 do not fit into 40 with 24 held. Four of the missing eleven chunks are made and returned. To give
   * back what is free would not help: it stays. */
  vmm_address none;
  ck_assert_int_eq(policy_alloc(fixture.policy, 30 * MIB, 0, &none), VMM_OUT_OF_MEMORY);
  gmlake_expect(&fixture, "alloc 30", "12! 2! 6, 10!, <12 10 2>, 2, <6 2>", 4, 2, 32,
                (gmlake_calls){.reserve = 1, .create = 5, .release = 4, .address_free = 1});
  gmlake_expect_counts(&fixture, "5 1 1 4 1 2 2 0");
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->failures, 1);

  /* What was held is whole, and the rest of the device can be used. */
  gmlake_expect_same_memory(&fixture, e, a, 12 * MIB);
  policies_free(&fixture, e);
  ck_assert_uint_eq(policies_alloc(&fixture, 24 * MIB, 0), e);
  policies_alloc(&fixture, 16 * MIB, 0);
  gmlake_expect_blocks(&fixture, "full", "12! 2! 6!, 10!, <12 10 2>, 2!, <6 2>, 8!, <6 2 8>");
  policies_fixture_close(&fixture);
}
END_TEST

/* sBlocks find the parts of a pBlock that was split after them. */
START_TEST(follows_a_split_through_its_sblocks) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views", 0);
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0), b = policies_alloc(&fixture, 10 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  vmm_address both = policies_alloc(&fixture, 18 * MIB, 0);
  policies_free(&fixture, both);
  ck_assert_uint_eq(policies_alloc(&fixture, 4 * MIB, 0), a); /* 8 becomes 4 and 4 */
  gmlake_expect_blocks(&fixture, "split", "4! 4, 10, <10 4 4>");
  /* The sBlock is active through one of its parts: 18 must be made anew, of what is free. */
  vmm_address other = policies_alloc(&fixture, 18 * MIB, 0);
  gmlake_expect_blocks(&fixture, "anew", "4! 4!, 10!, <10 4 4>, 4!, <10 4 4>");
  gmlake_expect_same_memory(&fixture, other, b, 10 * MIB);
  policies_free(&fixture, a);
  policies_free(&fixture, other);
  /* Both are inactive; the older one is given. */
  ck_assert_uint_eq(policies_alloc(&fixture, 18 * MIB, 0), both);
  gmlake_expect_blocks(&fixture, "the old one", "4! 4!, 10!, <10 4 4>, 4, <10 4 4>");
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(keeps_streams_apart) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views", 0);
  policies_free(&fixture, policies_alloc(&fixture, 8 * MIB, 0));
  policies_free(&fixture, policies_alloc(&fixture, 8 * MIB, 1));
  policies_alloc(&fixture, 16 * MIB, 0); /* 8 of its own stream, 8 new ones */
  gmlake_expect_blocks(&fixture, "two streams", "8!, 8, 8!, <8 8>");
  policies_fixture_close(&fixture);
}
END_TEST

/* Below one chunk a splitting pool of chunk-sized segments serves. */
START_TEST(serves_small_requests_from_segments) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views,chunk=4MiB", 0);
  vmm_address a = policies_alloc(&fixture, 4 * MIB - 1, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->segments.current, 1);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 4 * MIB);
  policies_free(&fixture, a);
  ck_assert_uint_eq(policies_alloc(&fixture, 100, 0), a);
  ck_assert_uint_eq(policies_alloc(&fixture, 3 * MIB, 0), a + 512);
  policies_alloc(&fixture, 4 * MIB, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->segments.current, 1);
  gmlake_expect_blocks(&fixture, "one chunk", "4!");
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- the fragmentation limit ---- */

START_TEST(neither_splits_nor_stitches_below_the_limit) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views,frag_limit=8MiB", 0);
  vmm_address a = policies_alloc(&fixture, 20 * MIB, 0), b = policies_alloc(&fixture, 10 * MIB, 0);
  policies_free(&fixture, a);
  /* Of 20, 14 would be wasted: that is not below the limit. */
  vmm_address c = policies_alloc(&fixture, 6 * MIB, 0);
  gmlake_expect_blocks(&fixture, "alloc 6", "20, 10!, 6!");
  policies_free(&fixture, b);
  /* Of 10, 4 are: taken whole. */
  ck_assert_uint_eq(policies_alloc(&fixture, 6 * MIB, 0), b);
  gmlake_expect_blocks(&fixture, "alloc 6 again", "20, 10!, 6!");
  ck_assert_uint_eq(policies_statistics(&fixture)->allocated_bytes.current, 16 * MIB);
  /* From the limit on blocks are split, though the rest be small. */
  ck_assert_uint_eq(policies_alloc(&fixture, 16 * MIB, 0), a);
  gmlake_expect_blocks(&fixture, "alloc 16", "16! 4, 10!, 6!");
  /* Blocks below it are no candidates: 4 and 6 are free, and all of 10 is new. */
  policies_free(&fixture, c);
  policies_alloc(&fixture, 10 * MIB, 0);
  gmlake_expect_blocks(&fixture, "alloc 10", "16! 4, 10!, 6, 10!");
  ck_assert_uint_eq(policies_counter(&fixture, "requests_below_frag_limit_count"), 2);
  gmlake_expect_counts(&fixture, "0 2 0 4 0 1 0 0");
  policies_fixture_close(&fixture);
}
END_TEST

/* The report of a user who saw no effect: all his requests were below the limit of 512 MiB. */
START_TEST(says_when_nothing_is_above_the_limit) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views,frag_limit=512MiB", 8 * GIB);
  for (int i = 0; i < 20; i++) policies_alloc(&fixture, (uint64_t)(10 + 12 * i) * MIB, 0);
  ck_assert_uint_eq(policies_counter(&fixture, "requests_below_frag_limit_count"), 20);
  gmlake_expect_counts(&fixture, "0 0 0 20 0 0 0 0");
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(splits_to_the_last_chunk_without_a_limit) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views,frag_limit=0", 0);
  vmm_address a = policies_alloc(&fixture, 6 * MIB, 0);
  policies_free(&fixture, a);
  ck_assert_uint_eq(policies_alloc(&fixture, 2 * MIB, 0), a);
  gmlake_expect_blocks(&fixture, "split", "2! 4");
  policies_alloc(&fixture, 6 * MIB, 0);
  gmlake_expect_blocks(&fixture, "stitched", "2! 4!, 2!, <4 2>");
  policies_fixture_close(&fixture);
}
END_TEST

static Suite *gmlake_suite(void) {
  Suite *suite = suite_create("policies_gmlake");
  TCase *states = tcase_create("states");
  tcase_add_test(states, walks_through_all_states);
  tcase_add_test(states, follows_a_split_through_its_sblocks);
  tcase_add_test(states, keeps_streams_apart);
  tcase_add_test(states, serves_small_requests_from_segments);
  suite_add_tcase(suite, states);
  TCase *limit = tcase_create("fragmentation limit");
  tcase_add_test(limit, neither_splits_nor_stitches_below_the_limit);
  tcase_add_test(limit, says_when_nothing_is_above_the_limit);
  tcase_add_test(limit, splits_to_the_last_chunk_without_a_limit);
  suite_add_tcase(suite, limit);
  return suite;
}

TEST_MAIN(gmlake_suite)
