/* What each option of gmlake does, by hand: the blocks that follow from it. With stitching=views where the
 * order of blocks matters; tests/policies_gmlake_test.c has the states and the fragmentation limit,
 * tests/policies_gmlake_stitched_test.c the
 * limits of StitchFree. */
#include "tests/policies_gmlake_fixture.h"
#include "tests/test_main.h"

/* ---- exact matches ---- */

START_TEST(tolerates_a_block_that_is_a_little_larger) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views,tolerance=4MiB", 0);
  vmm_address a = policies_alloc(&fixture, 10 * MIB, 0), b = policies_alloc(&fixture, 8 * MIB, 0);
  policies_free(&fixture, a);
  /* 10 is at most 4 more than 6: taken whole, though the paper would split it. */
  ck_assert_uint_eq(policies_alloc(&fixture, 6 * MIB, 0), a);
  gmlake_expect_blocks(&fixture, "alloc 6", "10!, 8!");
  ck_assert_uint_eq(policies_statistics(&fixture)->allocated_bytes.current, 18 * MIB);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  /* The same size comes first, then the smallest that is tolerated. */
  ck_assert_uint_eq(policies_alloc(&fixture, 8 * MIB, 0), b);
  policies_free(&fixture, b);
  ck_assert_uint_eq(policies_alloc(&fixture, 6 * MIB, 0), b);
  /* 4 is 6 less than 10: split. */
  ck_assert_uint_eq(policies_alloc(&fixture, 4 * MIB, 0), a);
  gmlake_expect_blocks(&fixture, "alloc 4", "4! 6, 8!");
  gmlake_expect_counts(&fixture, "3 1 0 2 0 1 0 0");
  policies_fixture_close(&fixture);
}
END_TEST

/* A stitched block is tolerated like any other. */
START_TEST(tolerates_a_stitched_block) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views,tolerance=2MiB", 0);
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0), b = policies_alloc(&fixture, 6 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  vmm_address both = policies_alloc(&fixture, 14 * MIB, 0);
  policies_free(&fixture, both);
  ck_assert_uint_eq(policies_alloc(&fixture, 12 * MIB, 0), both);
  gmlake_expect(&fixture, "alloc 12", "8!, 6!, <8 6>", 1, 1, 14,
                (gmlake_calls){.reserve = 3, .create = 7, .map = 14, .access = 3});
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- candidates ---- */

/* pBlocks of 8, 4 and 12, all free. */
static policies_fixture open_three(const char *spec) {
  policies_fixture fixture = gmlake_open(spec, 0);
  vmm_address blocks[3];
  for (int i = 0; i < 3; i++) blocks[i] = policies_alloc(&fixture, (uint64_t[]){8, 4, 12}[i] * MIB, 0);
  for (int i = 0; i < 3; i++) policies_free(&fixture, blocks[i]);
  return fixture;
}

static const struct {
  const char *spec, *blocks;
} orders[] = {
    /* 12, and 4 of the 8. */
    {"gmlake:stitching=views", "4! 4, 4, 12!, <12 4>"},
    {"gmlake:stitching=views,candidates=largest", "4! 4, 4, 12!, <12 4>"},
    /* 4, 8, and 4 of the 12. */
    {"gmlake:stitching=views,candidates=smallest", "8!, 4!, 4! 8, <4 8 4>"},
    /* In the order in which they were made. */
    {"gmlake:stitching=views,candidates=oldest", "8!, 4!, 4! 8, <8 4 4>"},
    {"gmlake:stitching=eager,candidates=smallest", "8!, 4!, 4! 8, <4 8 4>, <4 8>"},
};

START_TEST(stitches_candidates_in_their_order) {
  policies_fixture fixture = open_three(orders[_i].spec);
  policies_alloc(&fixture, 16 * MIB, 0);
  gmlake_expect_blocks(&fixture, orders[_i].spec, orders[_i].blocks);
  gmlake_expect_counts(&fixture, _i == 4 ? "0 0 1 3 0 1 2 0" : "0 0 1 3 0 1 1 0");
  policies_fixture_close(&fixture);
}
END_TEST

/* stitching=deferred takes what lies at home, from the oldest on. */
START_TEST(deferred_stitching_takes_the_oldest) {
  policies_fixture fixture = open_three("gmlake:largest_chunk=2MiB,room=0");
  policies_alloc(&fixture, 16 * MIB, 0);
  gmlake_expect_blocks(&fixture, "alloc 16", "8!, 4!, 4! 8, <8 4 4>");
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- when to stitch ---- */

START_TEST(stitches_before_growing_or_after) {
  static const char *const specs[] = {"gmlake:stitching=views", "gmlake:stitching=views,stitch=after_growing",
                                      "gmlake:stitching=views,stitch=after_growing"};
  static const uint64_t capacities[] = {64 * MIB, 64 * MIB, 24 * MIB};
  /* Stitched; more memory taken; no more to be had, so stitched after all. */
  static const char *const blocks[] = {"8!, 8!, <8 8>", "8, 8, 16!", "8!, 8!, <8 8>"};
  policies_fixture fixture = gmlake_open(specs[_i], capacities[_i]);
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0), b = policies_alloc(&fixture, 8 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  policies_alloc(&fixture, 16 * MIB, 0);
  gmlake_expect_blocks(&fixture, specs[_i], blocks[_i]);
  ck_assert_uint_eq(policies_statistics(&fixture)->failures, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 0);
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- the small pool ---- */

START_TEST(sends_requests_below_the_limit_to_the_small_pool) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views,small_limit=6MiB", 0);
  vmm_address a = policies_alloc(&fixture, 5 * MIB, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->segments.current, 1); /* of three chunks */
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 6 * MIB);
  ck_assert_uint_eq(policies_alloc(&fixture, MIB, 0), a + 5 * MIB);
  policies_alloc(&fixture, 6 * MIB, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->segments.current, 1);
  gmlake_expect_blocks(&fixture, "from the limit on", "6!");
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- chunks and room ---- */

START_TEST(makes_memory_of_chunks_as_large_as_allowed) {
  /* 5 MiB are two chunks of the granularity. */
  static const char *const specs[] = {"gmlake:largest_chunk=8MiB,room=0", "gmlake:room=0",
                                      "gmlake:largest_chunk=5MiB,room=0", "gmlake:largest_chunk=2MiB,room=0",
                                      "gmlake:largest_chunk=8MiB,stitching=views"};
  static const uint64_t chunks[] = {3, 6, 6, 11, 11};
  policies_fixture fixture = gmlake_open(specs[_i], 0);
  vmm_address a = policies_alloc(&fixture, 22 * MIB, 0);
  gmlake_expect(&fixture, specs[_i], "22!", 0, 0, 22,
                (gmlake_calls){.reserve = 1, .create = chunks[_i], .map = chunks[_i], .access = 1});
  /* Blocks are split at the granularity all the same: within a chunk if need be. */
  policies_free(&fixture, a);
  ck_assert_uint_eq(policies_alloc(&fixture, 2 * MIB, 0), a);
  gmlake_expect(&fixture, specs[_i], "2! 20", 1, 0, 22, NO_CALLS);
  /* Only whole chunks go back: what shares one with the block that is held stays. */
  ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
  static const char *const left[] = {"2! 6 (14)", "2! 2 (18)", "2! 2 (18)", "2! (20)", "2! (20)"};
  gmlake_expect_blocks(&fixture, "trimmed", left[_i]);
  policies_fixture_close(&fixture);
}
END_TEST

/* With room beside it the free block of 8 grows where it lies: one chunk more, and nothing is mapped twice.
 * An end counts that has room for the whole request and the rest of a chunk. */
START_TEST(extends_a_block_where_there_is_room) {
  policies_fixture fixture = gmlake_open("gmlake:room=24MiB", 0);
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0);
  policies_free(&fixture, a);
  gmlake_forget_calls(&fixture);
  ck_assert_uint_eq(policies_alloc(&fixture, 12 * MIB, 0), a);
  gmlake_expect(&fixture, "behind", "(16777216), (24) 8! 4! (20)", 1, 0, 12,
                (gmlake_calls){.create = 1, .map = 1, .access = 1});
  policies_free(&fixture, a);
  /* 20 and 2 do not fit behind any more, but in front. */
  ck_assert_uint_eq(policies_alloc(&fixture, 20 * MIB, 0), a - 8 * MIB);
  gmlake_expect(&fixture, "in front", "(16777216), (16) 8! 8! 4! (20)", 2, 0, 20,
                (gmlake_calls){.create = 2, .map = 2, .access = 1});
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(maps_a_block_again_where_there_is_no_room) {
  policies_fixture fixture = gmlake_open("gmlake:room=0", 0);
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0);
  policies_free(&fixture, a);
  gmlake_forget_calls(&fixture);
  vmm_address b = policies_alloc(&fixture, 12 * MIB, 0);
  gmlake_expect(&fixture, "again", "8!, <8 4>", 1, 1, 12,
                (gmlake_calls){.reserve = 1, .create = 1, .map = 2 + 1, .access = 2});
  gmlake_expect_same_memory(&fixture, a, b, 8 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- streams ---- */

/* Enough frees for the clock of a stream to look at what the device has done. */
static void free_often(policies_fixture *fixture, vmm_stream stream) {
  for (int i = 0; i < 70; i++) policies_free(fixture, policies_alloc(fixture, 2 * MIB, stream));
}

START_TEST(takes_what_another_stream_freed_once_it_is_seen_done) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){
                                      .spec = "gmlake:stitching=views,cross_stream=seen", .event_delay = 3});
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0);
  free_often(&fixture, 0);
  policies_free(&fixture, a);
  /* The work may still run: new memory. */
  vmm_address b = policies_alloc(&fixture, 8 * MIB, 1);
  ck_assert_uint_ne(b, a);
  ck_assert_uint_eq(policies_counter(&fixture, "borrowed_bytes"), 0);
  policies_free(&fixture, b);
  for (int tick = 0; tick < 3; tick++) vmm_sim_tick(fixture.sim);
  policies_alloc(&fixture, 8 * MIB, 1); /* its own, an exact match */
  ck_assert_uint_eq(policies_alloc(&fixture, 8 * MIB, 1), a);
  ck_assert_uint_eq(policies_counter(&fixture, "borrowed_bytes"), 8 * MIB);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_STREAM_WAIT_EVENT), 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->host_waits, 0);
  policies_fixture_check(&fixture, "the end");
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(never_takes_from_another_stream_unless_asked_to) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views", 0);
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0);
  free_often(&fixture, 0);
  policies_free(&fixture, a);
  policies_alloc(&fixture, 8 * MIB, 1);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 18 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* What the second stream has borrowed and not used is ordered after the first one's work by its wait alone: a
 * third that borrows it must wait for the second. */
START_TEST(waits_along_a_chain_of_streams) {
  policies_fixture fixture;
  policies_fixture_open(
      &fixture,
      &(policies_fixture_options){.spec = "gmlake:stitching=views,cross_stream=wait", .event_delay = 100});
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0);
  policies_free(&fixture, a);
  ck_assert_uint_eq(policies_alloc(&fixture, 4 * MIB, 1), a);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_EVENT_RECORD), 1);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_STREAM_WAIT_EVENT), 1);
  ck_assert_uint_eq(policies_alloc(&fixture, 4 * MIB, 2), a + 4 * MIB);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_EVENT_RECORD), 2);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_STREAM_WAIT_EVENT), 2);
  ck_assert_uint_eq(policies_counter(&fixture, "borrowed_bytes"), 8 * MIB + 4 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 8 * MIB);
  policies_fixture_check(&fixture, "the end");
  policies_fixture_close(&fixture);
}
END_TEST

/* The device is full: what the other stream does not use goes back, and its own 12 are stitched all the same.
 */
START_TEST(gives_back_other_streams_memory_first) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views", 32 * MIB);
  vmm_address a = policies_alloc(&fixture, 12 * MIB, 0), b = policies_alloc(&fixture, 16 * MIB, 1);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  vmm_address c = policies_alloc(&fixture, 20 * MIB, 0);
  policies_fixture_check(&fixture, "alloc 20");
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 20 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 1);
  gmlake_expect_same_memory(&fixture, c, a, 12 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* Blocks below the limit cannot be stitched: the whole of them goes back. */
START_TEST(gives_back_its_own_memory_at_last) {
  policies_fixture fixture = gmlake_open("gmlake:stitching=views,frag_limit=8MiB", 24 * MIB);
  vmm_address blocks[4];
  for (int i = 0; i < 4; i++) blocks[i] = policies_alloc(&fixture, 6 * MIB, 0);
  for (int i = 0; i < 4; i++) policies_free(&fixture, blocks[i]);
  policies_alloc(&fixture, 12 * MIB, 0);
  gmlake_expect_blocks(&fixture, "alloc 12", "12!");
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 12 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* A wait that the driver refuses leaves the block with its stream. */
START_TEST(grows_when_a_stream_cannot_wait) {
  policies_fixture fixture;
  policies_fixture_open(
      &fixture,
      &(policies_fixture_options){.spec = "gmlake:stitching=views,cross_stream=wait", .event_delay = 100});
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0);
  policies_free(&fixture, a);
  vmm_sim_fail(fixture.sim, VMM_CALL_STREAM_WAIT_EVENT, 1, VMM_UNKNOWN);
  ck_assert_uint_ne(policies_alloc(&fixture, 8 * MIB, 1), a);
  ck_assert_uint_eq(policies_counter(&fixture, "borrowed_bytes"), 0);
  ck_assert_uint_eq(policies_alloc(&fixture, 8 * MIB, 0), a);
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- variant=published ---- */

/* pBlocks of 12 and 14, free. */
static policies_fixture open_published(const char *spec) {
  policies_fixture fixture = gmlake_open(spec, 0);
  vmm_address a = policies_alloc(&fixture, 12 * MIB, 0), b = policies_alloc(&fixture, 14 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  return fixture;
}

START_TEST(published_stitches_from_its_request_limit_on) {
  static const char *const specs[] = {"gmlake:variant=published",
                                      "gmlake:variant=published,request_limit=26MiB",
                                      "gmlake:variant=published,request_limit=28MiB"};
  static const uint64_t reserved[] = {26 + 26, 26, 26 + 26}, stitched[] = {0, 1, 0};
  policies_fixture fixture = open_published(specs[_i]);
  policies_alloc(&fixture, 26 * MIB, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, reserved[_i] * MIB);
  ck_assert_uint_eq(policies_counter(&fixture, "sblocks_count"), stitched[_i]);
  policies_fixture_check(&fixture, specs[_i]);
  policies_fixture_close(&fixture);
}
END_TEST

/* No pBlock has 20. An sBlock of 26 is 1.3 times as large: if that is tolerated, its last 6 stay free. */
START_TEST(published_reuses_a_larger_stitched_block) {
  static const char *const specs[] = {"gmlake:variant=published,request_limit=2MiB",
                                      "gmlake:variant=published,request_limit=2MiB,reuse_factor=1.3",
                                      "gmlake:variant=published,request_limit=2MiB,reuse_factor=1.2"};
  static const uint64_t stitched[] = {1, 1, 2};
  policies_fixture fixture = open_published(specs[_i]);
  vmm_address both = policies_alloc(&fixture, 26 * MIB, 0);
  policies_free(&fixture, both);
  vmm_address twenty = policies_alloc(&fixture, 20 * MIB, 0);
  ck_assert_int_eq(twenty == both, stitched[_i] == 1);
  ck_assert_uint_eq(policies_counter(&fixture, "sblocks_count"), stitched[_i]);
  /* Either way 6 of the 12 are left, and the sBlock is not whole. */
  ck_assert_uint_eq(policies_counter(&fixture, "inactive_pblocks_bytes"), 6 * MIB);
  policies_alloc(&fixture, 6 * MIB, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 26 * MIB);
  policies_fixture_check(&fixture, specs[_i]);
  policies_fixture_close(&fixture);
}
END_TEST

/* Of an sBlock of 42 the first 30 are used: the pBlock of 12 behind them is free, and stays while the sBlock
 * is held, which maps it. */
START_TEST(published_keeps_what_a_held_block_maps) {
  policies_fixture fixture = gmlake_open("gmlake:variant=published,request_limit=2MiB", 0);
  vmm_address blocks[3];
  for (int i = 0; i < 3; i++) blocks[i] = policies_alloc(&fixture, (uint64_t)(12 + 2 * i) * MIB, 0);
  for (int i = 0; i < 3; i++) policies_free(&fixture, blocks[i]);
  policies_free(&fixture, policies_alloc(&fixture, 42 * MIB, 0));
  vmm_address thirty = policies_alloc(&fixture, 30 * MIB, 0);
  ck_assert_uint_eq(policies_counter(&fixture, "inactive_pblocks_bytes"), 12 * MIB);
  ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
  policies_fixture_check(&fixture, "trimmed");
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 42 * MIB);
  policies_free(&fixture, thirty);
  ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 0);
  policies_fixture_close(&fixture);
}
END_TEST

/* Any pBlock that is large enough wins, even over an sBlock of exactly the size: the paper's rules give that.
 */
START_TEST(published_prefers_a_pblock) {
  policies_fixture fixture = open_published("gmlake:variant=published,request_limit=2MiB");
  vmm_address both = policies_alloc(&fixture, 26 * MIB, 0), large = policies_alloc(&fixture, 40 * MIB, 0);
  policies_free(&fixture, both);
  policies_free(&fixture, large);
  ck_assert_uint_eq(policies_alloc(&fixture, 26 * MIB, 0), large);
  policies_fixture_close(&fixture);
}
END_TEST

static Suite *options_suite(void) {
  Suite *suite = suite_create("policies_gmlake_options");
  TCase *paper = tcase_create("variant=paper");
  tcase_add_test(paper, tolerates_a_block_that_is_a_little_larger);
  tcase_add_test(paper, tolerates_a_stitched_block);
  tcase_add_loop_test(paper, stitches_candidates_in_their_order, 0, (int)(sizeof orders / sizeof *orders));
  tcase_add_test(paper, deferred_stitching_takes_the_oldest);
  tcase_add_loop_test(paper, stitches_before_growing_or_after, 0, 3);
  tcase_add_test(paper, sends_requests_below_the_limit_to_the_small_pool);
  tcase_add_loop_test(paper, makes_memory_of_chunks_as_large_as_allowed, 0, 5);
  tcase_add_test(paper, extends_a_block_where_there_is_room);
  tcase_add_test(paper, maps_a_block_again_where_there_is_no_room);
  suite_add_tcase(suite, paper);
  TCase *streams = tcase_create("cross_stream");
  tcase_add_test(streams, takes_what_another_stream_freed_once_it_is_seen_done);
  tcase_add_test(streams, never_takes_from_another_stream_unless_asked_to);
  tcase_add_test(streams, waits_along_a_chain_of_streams);
  tcase_add_test(streams, grows_when_a_stream_cannot_wait);
  tcase_add_test(streams, gives_back_other_streams_memory_first);
  tcase_add_test(streams, gives_back_its_own_memory_at_last);
  suite_add_tcase(suite, streams);
  TCase *published = tcase_create("variant=published");
  tcase_add_loop_test(published, published_stitches_from_its_request_limit_on, 0, 3);
  tcase_add_loop_test(published, published_reuses_a_larger_stitched_block, 0, 3);
  tcase_add_test(published, published_keeps_what_a_held_block_maps);
  tcase_add_test(published, published_prefers_a_pblock);
  suite_add_tcase(suite, published);
  return suite;
}

TEST_MAIN(options_suite)
