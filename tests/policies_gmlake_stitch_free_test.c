/* GMLake's StitchFree over long times and random programs: limits on VA, sBlocks and mappings are kept,
 * nothing held goes, few addresses are enough, and nothing drifts over a thousand laps or an endless stream.
 * (Which sBlock goes first: policies_gmlake_stitched_test.c. That nothing is unmapped while work may go on:
 * policies_streams_test.c, over these limits too.) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/policies_program.h"
#include "tests/test_main.h"

enum { STEPS = 1500, LAPS = 1000, SETTLED = 20 };

/* ---- limits ---- */

static const struct {
  const char *spec, *counter;
  uint64_t limit;
} limited[] = {
    {"gmlake:stitch_bytes=64MiB", "stitched_bytes", 64 * MIB},
    {"gmlake:stitch_count=6", "sblocks_count", 6},
    {"gmlake:largest_chunk=2MiB,stitch_mappings=20", "stitched_mappings_count", 20},
    {"gmlake:stitching=views,stitch_bytes=64MiB", "stitched_bytes", 64 * MIB},
    {"gmlake:stitching=views,stitch_count=6", "sblocks_count", 6},
    {"gmlake:stitching=eager,stitch_mappings=20", "stitched_mappings_count", 20},
    {"gmlake:stitching=eager,stitch_bytes=64MiB", "stitched_bytes", 64 * MIB},
    {"gmlake:stitching=eager,stitch_count=6,candidates=smallest", "sblocks_count", 6},
};

/* Live blocks may hold more than the limit for a time: each step checks that all of them can be accessed, so
 * that no held sBlock was freed. Once all is free, the limit holds, and a step later at the latest. */
START_TEST(keeps_to_its_limit_and_frees_nothing_active) {
  const uint64_t seed = policies_random_seed(_i == 0 ? "keeps_to_its_limit_and_frees_nothing_active" : NULL);
  uint64_t freed = 0;
  for (uint64_t round = 0; round < 4; round++) {
    policies_fixture fixture;
    policies_fixture_open(
        &fixture, &(policies_fixture_options){
                      .spec = limited[_i].spec, .capacity = 512 * MIB, .event_delay = 2 * (round % 2)});
    policies_program program = {.fixture = &fixture,
                                .random = seed + round,
                                .streams = 1 + (uint32_t)round / 2,
                                .room = 300 * MIB,
                                .largest = 40 * MIB,
                                .may_run_out = true};
    for (int i = 0; i < STEPS; i++) policies_program_step(&program);
    policies_program_free_all(&program);
    for (int i = 0; i < 3; i++) vmm_sim_tick(fixture.sim);
    policies_free(&fixture, policies_alloc(&fixture, 2 * MIB, 0));
    const uint64_t kept = policies_counter(&fixture, limited[_i].counter);
    require(kept <= limited[_i].limit, "%s: %" PRIu64 " are kept", limited[_i].spec, kept);
    freed += policies_operation(&fixture, "stitch_free")->count;
    policies_fixture_close(&fixture);
  }
  ck_assert_uint_gt(freed, 0);
}
END_TEST

/* A device whose addresses are a few times its memory: sBlocks and room give way to what is asked for. */
START_TEST(goes_on_with_few_addresses) {
  static const char *const specs[] = {"gmlake", "gmlake:largest_chunk=2MiB,room=0", "gmlake:stitching=views",
                                      "gmlake:stitching=eager"};
  const uint64_t seed = policies_random_seed(_i == 0 ? "goes_on_with_few_addresses" : NULL);
  for (uint64_t addresses = 384; addresses <= 1536; addresses *= 2) {
    policies_fixture fixture;
    policies_fixture_open(
        &fixture,
        &(policies_fixture_options){
            .spec = specs[_i], .capacity = 256 * MIB, .address_limit = addresses * MIB, .event_delay = 1});
    policies_program program = {.fixture = &fixture,
                                .random = seed + addresses,
                                .streams = 2,
                                .room = 200 * MIB,
                                .largest = 30 * MIB,
                                .may_run_out = true};
    for (int i = 0; i < STEPS; i++) policies_program_step(&program);
    require(program.served > 10 * program.out_of_memory,
            "%s: with %" PRIu64 " MiB of addresses only %" PRIu64 " requests were served and %" PRIu64
            " were not",
            specs[_i], addresses, program.served, program.out_of_memory);
    policies_program_free_all(&program);
    policies_free(&fixture, policies_alloc(&fixture, 120 * MIB, 1));
    policies_fixture_close(&fixture);
  }
}
END_TEST

/* ---- a thousand laps ---- */

enum { RESERVED, ADDRESSES, CHUNKS, RANGES, SBLOCKS, STITCHED, CALLS, MEASURES };

static const char *const measure_names[MEASURES] = {
    "reserved bytes", "bytes of addresses", "chunks", "ranges", "sBlocks", "stitched bytes", "driver calls"};

static void measure(const policies_fixture *fixture, uint64_t calls_before, uint64_t most[MEASURES]) {
  const pool_heap *heap = &fixture->policy->heap;
  const uint64_t now[MEASURES] = {
      [RESERVED] = heap->statistics.reserved_bytes.current,
      [ADDRESSES] = heap->reserved_address_bytes,
      [CHUNKS] = heap->chunk_count,
      [RANGES] = heap->range_count,
      [SBLOCKS] = policies_counter(fixture, "sblocks_count"),
      [STITCHED] = policies_counter(fixture, "stitched_bytes"),
      [CALLS] = policies_memory_calls(fixture) - calls_before,
  };
  for (int i = 0; i < MEASURES; i++) {
    if (now[i] > most[i]) most[i] = now[i];
  }
}

/* Sizes that leave holes: what is freed fits the next request only when stitched. */
static void lap(policies_fixture *fixture, uint64_t *random) {
  static const uint64_t sizes[] = {4, 6, 10, 14, 22, 26, 34, 8, 16, 12};
  enum { BLOCKS = 24 };
  vmm_address blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++)
    blocks[i] = policies_alloc(fixture, sizes[policies_random_below(random, 10)] * MIB, 0);
  for (int i = 0; i < BLOCKS; i += 2) policies_free(fixture, blocks[i]);
  for (int i = 0; i < BLOCKS; i += 4) blocks[i] = policies_alloc(fixture, sizes[3 + i % 7] * 2 * MIB, 0);
  for (int i = 0; i < BLOCKS; i++) {
    if (i % 2 || i % 4 == 0) policies_free(fixture, blocks[i]);
  }
}

static const char *const lap_specs[] = {
    "gmlake",
    "gmlake:stitch_bytes=256MiB",
    "gmlake:stitch_count=10",
    "gmlake:largest_chunk=2MiB,stitch_mappings=40",
    "gmlake:room=0",
    "gmlake:stitching=views,stitch_count=20",
    "gmlake:stitching=views,stitch_bytes=256MiB",
    "gmlake:stitching=eager,stitch_mappings=200",
    "gmlake:variant=published,request_limit=4MiB,stitch_bytes=2GiB",
};

/* The same sizes each lap (period 1), or others for 50 laps before they come again: the second half of a
 * thousand laps never holds more, and never calls the driver more often in a lap, than the first. Of 50
 * different laps, not all that can be stitched has been seen by then: a sixteenth more is let pass. */
static void run_laps(const char *spec, uint64_t period) {
  policies_fixture fixture;
  uint64_t first[MEASURES] = {0}, second[MEASURES] = {0};
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = spec, .capacity = 2 * GIB});
  for (uint64_t i = 0; i < LAPS; i++) {
    uint64_t random = 1000 + i % period, calls = policies_memory_calls(&fixture);
    lap(&fixture, &random);
    if (i >= SETTLED) measure(&fixture, calls, i < LAPS / 2 ? first : second);
    if (i % 100 == 99) policies_fixture_check(&fixture, spec);
  }
  for (int i = 0; i < MEASURES; i++)
    require(second[i] <= first[i] + (period > 1 ? first[i] / 16 : 0),
            "%s, period %" PRIu64 ": %s grew from %" PRIu64 " to %" PRIu64, spec, period, measure_names[i],
            first[i], second[i]);
  policies_fixture_close(&fixture);
}

START_TEST(does_not_drift_over_a_thousand_laps) {
  run_laps(lap_specs[_i], 1);
  run_laps(lap_specs[_i], 50);
}
END_TEST

/* ---- an endless stream ---- */

enum { STREAM_EVENTS = 20000, STREAM_CHECKS = 8 };

static const struct {
  const char *spec;
  uint64_t ratio;
} bounded[] = {
    {"gmlake", 4},
    {"gmlake:largest_chunk=2MiB", 4},
    {"gmlake:stitch_ratio=1", 1},
    {"gmlake:stitching=views", 16},
    {"gmlake:stitching=eager", 16},
};

/* Random sizes with almost all memory live, so that hardly any sBlock is ever inactive. What a change of a
 * pBlock costs is the number of its places: on average it stays within the ratio, however long this goes on.
 */
START_TEST(places_do_not_grow_over_an_endless_stream) {
  enum { LIVE = 64 };
  const uint64_t room = 800 * MIB;
  struct {
    vmm_address address;
    uint64_t size;
  } live[LIVE];
  uint32_t count = 0;
  uint64_t live_bytes = 0, random = 17;
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = bounded[_i].spec, .capacity = 1 * GIB});
  for (int i = 0; i < STREAM_EVENTS; i++) {
    const uint64_t size = (1 + policies_random_below(&random, 32)) * 2 * MIB;
    while (count == LIVE || live_bytes + size > room) {
      const uint64_t victim = policies_random_below(&random, count);
      policies_free(&fixture, live[victim].address);
      live_bytes -= live[victim].size;
      live[victim] = live[--count];
    }
    live[count].address = policies_alloc(&fixture, size, 0);
    live[count++].size = size;
    live_bytes += size;
    const uint64_t stitched = policies_counter(&fixture, "stitched_bytes"),
                   held = policies_counter(&fixture, "pblock_bytes");
    require(stitched <= bounded[_i].ratio * held, "%s, event %d: %" PRIu64 " bytes are stitched of %" PRIu64,
            bounded[_i].spec, i, stitched, held);
    if (i % (STREAM_EVENTS / STREAM_CHECKS) == 0) policies_fixture_check(&fixture, bounded[_i].spec);
  }
  ck_assert_uint_gt(policies_operation(&fixture, "stitch_free")->count, 0);
  const uint64_t changes = policies_counter(&fixture, "indexed_pblocks_count"),
                 places = policies_counter(&fixture, "indexed_places_count");
  require(places <= 2 * (1 + bounded[_i].ratio) * changes,
          "%s: %" PRIu64 " places were looked at for %" PRIu64 " changes of pBlocks", bounded[_i].spec,
          places, changes);
  policies_fixture_close(&fixture);
}
END_TEST

static Suite *stitch_free_suite(void) {
  Suite *suite = suite_create("policies_gmlake_stitch_free");
  TCase *limits = tcase_create("limits");
  tcase_set_timeout(limits, 60);
  tcase_add_loop_test(limits, keeps_to_its_limit_and_frees_nothing_active, 0,
                      (int)(sizeof limited / sizeof *limited));
  tcase_add_loop_test(limits, goes_on_with_few_addresses, 0, 4);
  suite_add_tcase(suite, limits);
  TCase *laps = tcase_create("laps");
  tcase_set_timeout(laps, 60);
  tcase_add_loop_test(laps, does_not_drift_over_a_thousand_laps, 0,
                      (int)(sizeof lap_specs / sizeof *lap_specs));
  suite_add_tcase(suite, laps);
  TCase *stream = tcase_create("an endless stream");
  tcase_set_timeout(stream, 60);
  tcase_add_loop_test(stream, places_do_not_grow_over_an_endless_stream, 0,
                      (int)(sizeof bounded / sizeof *bounded));
  suite_add_tcase(suite, stream);
  return suite;
}

TEST_MAIN(stitch_free_suite)
