/* TensorFlow's allocator: what the suites for all policies do not reach. */
#include "tests/policies_fixture.h"
#include "tests/test_main.h"

enum { REGIONS = 200 }; /* doubled so often, no size fits 64 bits */

START_TEST(regions_double_for_ever) {
  policies_fixture fixture;
  policies_fixture_open(&fixture,
                        &(policies_fixture_options){.spec = "tfbfc", .capacity = 2 * MIB, .limit = 30 * MIB});
  for (int i = 0; i < REGIONS; i++) {
    vmm_address refused;
    policies_free(&fixture, policies_alloc(&fixture, 512, 0));
    /* More than the device has: the region is given back, and the next request begins another. */
    ck_assert_int_eq(policy_alloc(fixture.policy, 2 * MIB + 256, 0, &refused), VMM_OUT_OF_MEMORY);
    policies_fixture_check(&fixture, "after a refusal");
  }
  policies_fixture_close(&fixture);
}
END_TEST

/* The conformance table of TensorFlow's rules: 1 GiB, growth allowed. */
START_TEST(conformance_table) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "tfbfc", .limit = GIB});
  const pool_statistics *statistics = policies_statistics(&fixture);
  static const struct {
    uint64_t size, pool_bytes, bytes_in_use; /* size 0: the second block is freed */
  } steps[] = {{1, 2097152, 256},
               {3145728, 6291456, 4194560},
               {20971520, 39845888, 37748992},
               {0, 39845888, 33554688},
               {1048576, 39845888, 35651584}};
  vmm_address blocks[5];
  for (size_t i = 0; i < 5; i++) {
    if (steps[i].size > 0)
      blocks[i] = policies_alloc(&fixture, steps[i].size, 0);
    else
      policies_free(&fixture, blocks[1]);
    ck_assert_uint_eq(statistics->reserved_bytes.current, steps[i].pool_bytes);
    ck_assert_uint_eq(statistics->allocated_bytes.current, steps[i].bytes_in_use);
    policies_fixture_check(&fixture, "in the table");
  }
  policies_free(&fixture, blocks[0]);
  policies_free(&fixture, blocks[2]);
  policies_free(&fixture, blocks[4]);
  policies_fixture_close(&fixture);
}
END_TEST

/* A trace has as many streams as it likes: beyond what a chunk's set tells apart the host waits. */
START_TEST(any_number_of_streams) {
  enum { STREAMS = 200, APART = 63 };
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "tfbfc", .event_delay = 1000});
  for (vmm_stream stream = 0; stream < STREAMS; stream++) {
    vmm_address block = policies_alloc(&fixture, 2 * MIB, stream);
    /* The work of the stream that had it before is over, or comes first. */
    ck_assert_uint_eq(policies_counter(&fixture, "stream_waits_count"), stream < APART ? stream : APART);
    ck_assert_uint_eq(policies_statistics(&fixture)->host_waits,
                      stream < APART ? 0 : 1 + 2 * (stream - APART));
    vmm_event event;
    ck_assert_int_eq(vmm_event_record(fixture.sim, stream, &event), VMM_SUCCESS);
    policies_free(&fixture, block);
    vmm_address again = policies_alloc(&fixture, 2 * MIB, stream + 1);
    ck_assert_uint_eq(again, block);
    ck_assert_int_eq(vmm_event_query(fixture.sim, event), stream < APART ? VMM_NOT_READY : VMM_SUCCESS);
    vmm_event_discard(fixture.sim, event);
    policies_free(&fixture, again);
  }
  policies_fixture_close(&fixture);
}
END_TEST

static Suite *tfbfc_suite(void) {
  Suite *suite = suite_create("tfbfc");
  TCase *regions = tcase_create("regions");
  tcase_add_test(regions, regions_double_for_ever);
  suite_add_tcase(suite, regions);
  TCase *table = tcase_create("table");
  tcase_add_test(table, conformance_table);
  suite_add_tcase(suite, table);
  TCase *streams = tcase_create("streams");
  tcase_add_test(streams, any_number_of_streams);
  suite_add_tcase(suite, streams);
  return suite;
}

TEST_MAIN(tfbfc_suite)
