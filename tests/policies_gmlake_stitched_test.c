/* GMLake's sBlocks: which go when there are too many, and what memory they really are. */
#include <inttypes.h>
#include <stdio.h>

#include <string.h>

#include "tests/policies_gmlake_fixture.h"
#include "tests/test_main.h"

/* ---- StitchFree ---- */

/* pBlocks of 8, 8, 10, 10, 12 and 12; sBlocks of 16 and 20, both inactive, the one of 16 used last. */
static policies_fixture open_two_stitched(const char *spec, vmm_address blocks[6]) {
  policies_fixture fixture = gmlake_open(spec, 0);
  for (int i = 0; i < 6; i++) blocks[i] = policies_alloc(&fixture, (uint64_t)(8 + i / 2 * 2) * MIB, 0);
  policies_free(&fixture, blocks[0]);
  policies_free(&fixture, blocks[1]);
  vmm_address sixteen = policies_alloc(&fixture, 16 * MIB, 0);
  policies_free(&fixture, sixteen);
  policies_free(&fixture, blocks[2]);
  policies_free(&fixture, blocks[3]);
  policies_free(&fixture, policies_alloc(&fixture, 20 * MIB, 0));
  ck_assert_uint_eq(policies_alloc(&fixture, 16 * MIB, 0), sixteen);
  policies_free(&fixture, sixteen);
  gmlake_expect_blocks(&fixture, "two sBlocks", "8, 8, 10, 10, 12!, 12!, <8 8>, <10 10>");
  ck_assert_uint_eq(policies_operation(&fixture, "stitch_free")->count, 0);
  gmlake_forget_calls(&fixture);
  return fixture;
}

/* Stitches 24 of the two blocks of 12. */
static vmm_address stitch_third(policies_fixture *fixture, const vmm_address blocks[6]) {
  policies_free(fixture, blocks[4]);
  policies_free(fixture, blocks[5]);
  return policies_alloc(fixture, 24 * MIB, 0);
}

START_TEST(frees_the_least_recently_used_by_bytes) {
  /* 16, 20 and 24 are 12 too many; an eighth below the limit is 42: the one of 20 is enough. */
  vmm_address blocks[6];
  policies_fixture fixture = open_two_stitched("gmlake:stitching=views,stitch_bytes=48MiB", blocks);
  stitch_third(&fixture, blocks);
  gmlake_expect(
      &fixture, "a third", "8, 8, 10, 10, 12!, 12!, <8 8>, <12 12>", 2, 2, 60,
      (gmlake_calls){.reserve = 1, .map = 12, .access = 1, .unmap = 1, .address_free = 1, .synchronize = 1});
  ck_assert_uint_eq(policies_operation(&fixture, "stitch_free")->count, 1);
  ck_assert_uint_eq(policies_counter(&fixture, "stitched_bytes"), 40 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(frees_as_many_as_it_takes) {
  /* 35 is an eighth below 40: both go. */
  vmm_address blocks[6];
  policies_fixture fixture = open_two_stitched("gmlake:stitching=views,stitch_bytes=40MiB", blocks);
  stitch_third(&fixture, blocks);
  gmlake_expect(
      &fixture, "a third", "8, 8, 10, 10, 12!, 12!, <12 12>", 1, 1, 60,
      (gmlake_calls){.reserve = 1, .map = 12, .access = 1, .unmap = 2, .address_free = 2, .synchronize = 1});
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(frees_the_least_recently_used_by_count) {
  vmm_address blocks[6];
  policies_fixture fixture = open_two_stitched("gmlake:stitching=views,stitch_count=2", blocks);
  stitch_third(&fixture, blocks);
  gmlake_expect_blocks(&fixture, "a third", "8, 8, 10, 10, 12!, 12!, <8 8>, <12 12>");
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(frees_the_least_recently_used_by_mappings) {
  /* 8, 10 and 12 chunks are mapped again, 6 too many; an eighth below the limit is 21: 20 are left. */
  vmm_address blocks[6];
  policies_fixture fixture = open_two_stitched("gmlake:stitching=views,stitch_mappings=24", blocks);
  stitch_third(&fixture, blocks);
  gmlake_expect_blocks(&fixture, "a third", "8, 8, 10, 10, 12!, 12!, <8 8>, <12 12>");
  ck_assert_uint_eq(policies_counter(&fixture, "stitched_mappings_count"), 20);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(never_frees_what_is_held) {
  vmm_address blocks[6];
  policies_fixture fixture = open_two_stitched("gmlake:stitching=views,stitch_bytes=40MiB", blocks);
  vmm_address twenty = policies_alloc(&fixture, 20 * MIB, 0);
  vmm_address third = stitch_third(&fixture, blocks);
  gmlake_expect_blocks(&fixture, "one held", "8, 8, 10!, 10!, 12!, 12!, <10 10>, <12 12>");
  ck_assert(vmm_sim_accessible(fixture.sim, twenty, 20 * MIB));
  ck_assert(vmm_sim_accessible(fixture.sim, third, 24 * MIB));
  /* Freed while the VA is beyond its limit, the one of 24 goes at once; then the one of 20 fits and stays. */
  policies_free(&fixture, third);
  policies_free(&fixture, twenty);
  policies_alloc(&fixture, 16 * MIB, 0);
  gmlake_expect_blocks(&fixture, "and freed", "8, 8, 10, 10, 12!, 4! 8, <12 4>, <10 10>");
  policies_fixture_close(&fixture);
}
END_TEST

static const char *const contradictions[][2] = {
    {"gmlake:frag_limit=1GiB,stitch_bytes=1MiB", "stitch_bytes=1MiB must not be below frag_limit=1GiB"},
    {"gmlake:stitch_ratio=0.5", "stitch_ratio=0.5 must be 0 or from 1 on"},
};

/* A stitched block that no limit lets live would cost new memory every time. */
START_TEST(refuses_limits_that_contradict) {
  policy_spec spec;
  policy *refused = NULL;
  char message[256];
  vmm_driver *sim;
  ck_assert_int_eq(policy_spec_parse(contradictions[_i][0], &spec, message, sizeof message), VMM_SUCCESS);
  ck_assert_int_eq(vmm_sim_create(&(vmm_sim_configuration){.capacity = GIB}, &sim), VMM_SUCCESS);
  ck_assert_int_eq(policy_create(&spec, sim, UINT64_MAX, &refused, message, sizeof message),
                   VMM_INVALID_VALUE);
  ck_assert_ptr_nonnull(strstr(message, contradictions[_i][1]));
  vmm_driver_destroy(sim);
}
END_TEST

/* Laps that stitch far more than the limit: once everything is freed, the VA is within it. */
START_TEST(keeps_to_its_limit_over_laps) {
  policies_fixture fixture;
  policies_fixture_open(
      &fixture, &(policies_fixture_options){.spec = "gmlake:stitch_bytes=256MiB", .capacity = 4 * GIB});
  uint64_t random = 7;
  for (int lap = 0; lap < 20; lap++) {
    vmm_address blocks[40];
    for (int i = 0; i < 40; i++)
      blocks[i] = policies_alloc(&fixture, (1 + policies_random_below(&random, 30)) * 2 * MIB, 0);
    for (int i = 0; i < 40; i += 2) policies_free(&fixture, blocks[i]);
    for (int i = 0; i < 40; i += 2)
      blocks[i] = policies_alloc(&fixture, (1 + policies_random_below(&random, 30)) * 2 * MIB, 0);
    for (int i = 0; i < 40; i++) policies_free(&fixture, blocks[i]);
    require(policies_counter(&fixture, "stitched_bytes") <= 256 * MIB, "lap %d: the VA is beyond its limit",
            lap);
    policies_fixture_check(&fixture, "after a lap");
  }
  policies_fixture_close(&fixture);
}
END_TEST

/* An sBlock that nobody holds is active while one of its pBlocks is: it is passed over. */
START_TEST(never_frees_what_is_active_through_a_pblock) {
  vmm_address blocks[6];
  policies_fixture fixture = open_two_stitched("gmlake:stitching=views,stitch_bytes=48MiB", blocks);
  ck_assert_uint_eq(policies_alloc(&fixture, 10 * MIB, 0), blocks[2]);
  stitch_third(&fixture, blocks);
  gmlake_expect_blocks(&fixture, "one active", "8, 8, 10!, 10, 12!, 12!, <10 10>, <12 12>");
  policies_free(&fixture, blocks[2]);
  uint64_t exact = policies_operation(&fixture, "S1")->count;
  policies_alloc(&fixture, 20 * MIB, 0); /* still an exact match */
  ck_assert_uint_eq(policies_operation(&fixture, "S1")->count, exact + 1);
  policies_fixture_close(&fixture);
}
END_TEST

/* Past stitch_ratio that does not keep it: 16, 20, 24 and 22 are more than the 60 of all pBlocks, and until
 * an eighth less is left the least recently used go, of which the one of 20 is active. */
START_TEST(frees_what_is_active_past_its_ratio) {
  vmm_address blocks[6];
  policies_fixture fixture = open_two_stitched("gmlake:stitching=views,stitch_ratio=1", blocks);
  ck_assert_uint_eq(policies_alloc(&fixture, 10 * MIB, 0), blocks[2]);
  policies_free(&fixture, stitch_third(&fixture, blocks));
  gmlake_expect_blocks(&fixture, "at the limit", "8, 8, 10!, 10, 12, 12, <8 8>, <10 10>, <12 12>");
  policies_alloc(&fixture, 22 * MIB, 0);
  gmlake_expect_blocks(&fixture, "past it", "8, 8, 10!, 10, 12!, 10! 2, <12 10 2>, <12 10>");
  ck_assert(vmm_sim_accessible(fixture.sim, blocks[2], 10 * MIB));
  policies_fixture_close(&fixture);
}
END_TEST

/* The host must have seen the end of the work: if it cannot wait, nothing is unmapped. */
START_TEST(frees_nothing_without_having_waited) {
  vmm_address blocks[6];
  policies_fixture fixture = open_two_stitched("gmlake:stitching=views,stitch_bytes=48MiB", blocks);
  vmm_sim_fail(fixture.sim, VMM_CALL_SYNCHRONIZE, 1, VMM_UNKNOWN);
  stitch_third(&fixture, blocks);
  gmlake_expect_blocks(&fixture, "no wait", "8, 8, 10, 10, 12!, 12!, <8 8>, <10 10>, <12 12>");
  policies_fixture_close(&fixture);
}
END_TEST

/* Nothing is stitched beyond the device's addresses: then sBlocks make room. */
START_TEST(makes_room_when_addresses_run_out) {
  policies_fixture fixture;
  policies_fixture_open(
      &fixture, &(policies_fixture_options){.spec = "gmlake:stitching=views", .address_limit = 64 * MIB});
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0), b = policies_alloc(&fixture, 16 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  policies_free(&fixture, policies_alloc(&fixture, 24 * MIB, 0));
  gmlake_expect_blocks(&fixture, "24", "8, 16, <16 8>");
  /* 16 MiB of addresses are left: not enough for 26 and the 2 that are missing. */
  policies_alloc(&fixture, 26 * MIB, 0);
  policies_fixture_check(&fixture, "26");
  ck_assert_uint_eq(policies_statistics(&fixture)->failures, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, 1);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 26 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* A stitched block in use by another stream waits like any other, and its sBlock with it. */
START_TEST(waits_for_streams_of_stitched_blocks) {
  policies_fixture fixture;
  policies_fixture_open(&fixture,
                        &(policies_fixture_options){.spec = "gmlake:stitching=views", .event_delay = 3});
  vmm_address a = policies_alloc(&fixture, 8 * MIB, 0), b = policies_alloc(&fixture, 16 * MIB, 0);
  policies_free(&fixture, a);
  policies_free(&fixture, b);
  vmm_address both = policies_alloc(&fixture, 24 * MIB, 0);
  ck_assert_int_eq(policy_record_stream(fixture.policy, both, 1), VMM_SUCCESS);
  policies_free(&fixture, both);
  for (int tick = 0; tick < 3; tick++) {
    gmlake_expect_blocks(&fixture, "waiting",
                         tick == 0   ? "8!, 16!, <16 8>"
                         : tick == 1 ? "8!, 16!, <16 8>, 8!"
                                     : "8!, 16!, <16 8>, 8!, 8!");
    policies_alloc(&fixture, 8 * MIB, 0);
    vmm_sim_tick(fixture.sim);
  }
  ck_assert_uint_eq(policies_alloc(&fixture, 8 * MIB, 0), a);
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- memory that is really there ---- */

typedef struct filled {
  vmm_address address;
  uint64_t size, pattern;
} filled;

/* Each byte of a block is its pattern's, through its own address and through every other place where
 * its chunks are mapped. Returns how many chunks were seen through another one. */
static uint64_t verify_everywhere(policies_fixture *fixture, const filled *block) {
  vmm_mismatch mismatch;
  require(
      vmm_verify(fixture->meter, block->address, block->size, 0, block->pattern, &mismatch) == VMM_SUCCESS,
      "no verification");
  require(mismatch.wrong_words == 0, "0x%" PRIx64 ": %" PRIu64 " wrong words from %" PRIu64, block->address,
          mismatch.wrong_words, mismatch.first_offset);
  const pool_range *home = fixture->policy->heap.ranges;
  while (home && (block->address < home->address || block->address >= home->address + home->size))
    home = home->next;
  uint64_t elsewhere = 0;
  if (!home) return 0; /* the small pool has no ranges */
  for (uint64_t offset = 0; offset < block->size; offset += home->unit) {
    const pool_slot *here = &home->slots[(block->address - home->address + offset) / home->unit];
    for (const pool_range *range = fixture->policy->heap.ranges; range; range = range->next) {
      for (uint64_t slot = 0; slot < range->size / range->unit; slot++) {
        vmm_address other = range->address + slot * range->unit;
        const pool_slot *there = &range->slots[slot];
        if (there->chunk != here->chunk || there->offset != here->offset || other == block->address + offset)
          continue;
        elsewhere++;
        for (uint64_t word = 0; word < home->unit / 8 && offset + word * 8 + 8 <= block->size; word += 61) {
          require(((const uint64_t *)(uintptr_t)other)[word] ==
                      vmm_pattern_word(block->pattern, offset / 8 + word),
                  "0x%" PRIx64 " through 0x%" PRIx64 ": word %" PRIu64, block->address, other, word);
        }
      }
    }
  }
  return elsewhere;
}

static const char *const data_specs[] = {
    "gmlake",
    "gmlake:largest_chunk=2MiB,stitch_count=8",
    "gmlake:largest_chunk=16MiB,room=64MiB",
    "gmlake:largest_chunk=8MiB,frag_limit=4MiB,stitch_mappings=12",
    "gmlake:largest_chunk=6MiB,room=0",
    "gmlake:stitching=views",
    "gmlake:stitching=views,stitch_count=8",
    "gmlake:stitching=views,frag_limit=6MiB",
    "gmlake:stitching=views,chunk=4MiB",
    "gmlake:stitching=eager",
    "gmlake:variant=published,request_limit=4MiB",
};

enum { DATA_SPECS = sizeof data_specs / sizeof *data_specs };

START_TEST(holds_its_data_through_every_address) {
  uint64_t random =
      policies_random_seed(_i == 0 ? "holds_its_data_through_every_address" : NULL) + (uint64_t)_i;
  policies_fixture fixture;
  policies_fixture_open(
      &fixture, &(policies_fixture_options){.spec = data_specs[_i], .capacity = 96 * MIB, .backed = true});
  filled live[16];
  uint32_t count = 0;
  uint64_t elsewhere = 0, bytes = 0, pattern = 1;
  for (int step = 0; step < 260; step++) {
    uint64_t size = (1 + policies_random_below(&random, 7)) * 2 * MIB - 8 * policies_random_below(&random, 3);
    if (policies_random_below(&random, 6) == 0) size = 8 * (1 + policies_random_below(&random, 30000));
    if (count < 16 && bytes + size < 64 * MIB && policies_random_below(&random, 2)) {
      filled *block = &live[count++];
      *block = (filled){policies_alloc(&fixture, size, 0), size, pattern++};
      bytes += size;
      require(vmm_fill(fixture.meter, block->address, size, 0, block->pattern) == VMM_SUCCESS, "no fill");
    } else if (count > 0) {
      uint32_t i = (uint32_t)policies_random_below(&random, count);
      elsewhere += verify_everywhere(&fixture, &live[i]);
      policies_free(&fixture, live[i].address);
      bytes -= live[i].size;
      live[i] = live[--count];
    }
    policies_fixture_check(&fixture, data_specs[_i]);
  }
  for (uint32_t i = 0; i < count; i++) elsewhere += verify_everywhere(&fixture, &live[i]);
  printf("%s: %" PRIu64 " stitches, %" PRIu64 " splits, %" PRIu64
         " chunks verified through a second address\n",
         data_specs[_i], policies_operation(&fixture, "stitch")->count,
         policies_operation(&fixture, "split")->count, elsewhere);
  ck_assert_uint_gt(policies_operation(&fixture, "stitch")->count, 0);
  ck_assert_uint_gt(policies_operation(&fixture, "split")->count, 0);
  ck_assert_uint_gt(elsewhere, 0);
  policies_fixture_close(&fixture);
}
END_TEST

static Suite *stitched_suite(void) {
  Suite *suite = suite_create("policies_gmlake_stitched");
  TCase *freeing = tcase_create("StitchFree");
  tcase_add_test(freeing, frees_the_least_recently_used_by_bytes);
  tcase_add_test(freeing, frees_as_many_as_it_takes);
  tcase_add_test(freeing, frees_the_least_recently_used_by_count);
  tcase_add_test(freeing, frees_the_least_recently_used_by_mappings);
  tcase_add_test(freeing, never_frees_what_is_held);
  tcase_add_test(freeing, never_frees_what_is_active_through_a_pblock);
  tcase_add_test(freeing, frees_what_is_active_past_its_ratio);
  tcase_add_loop_test(freeing, refuses_limits_that_contradict, 0, 2);
  tcase_add_test(freeing, keeps_to_its_limit_over_laps);
  tcase_add_test(freeing, frees_nothing_without_having_waited);
  tcase_add_test(freeing, makes_room_when_addresses_run_out);
  tcase_add_test(freeing, waits_for_streams_of_stitched_blocks);
  suite_add_tcase(suite, freeing);
  TCase *data = tcase_create("data");
  tcase_add_loop_test(data, holds_its_data_through_every_address, 0, DATA_SPECS);
  suite_add_tcase(suite, data);
  return suite;
}

TEST_MAIN(stitched_suite)
