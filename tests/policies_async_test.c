/* Policy async over the model of the driver's pool. */
#include <inttypes.h>
#include <string.h>

#include "tests/policies_fixture.h"
#include "tests/test_main.h"

static uint64_t reserved(const policies_fixture *fixture) {
  return policies_statistics(fixture)->reserved_bytes.current;
}

START_TEST(reserved_is_what_the_pool_holds) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "async", .profile = "h200"});
  vmm_address first = policies_alloc(&fixture, 40 * MIB, 0);
  ck_assert_uint_eq(reserved(&fixture), 64 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->allocated_bytes.current, 40 * MIB);
  policies_alloc(&fixture, 100, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->allocated_bytes.current, 40 * MIB + 512);
  ck_assert_uint_eq(policies_counter(&fixture, "pool_used_bytes"), 40 * MIB + 512);
  policies_fixture_check(&fixture, "two blocks");
  policies_free(&fixture, first);
  ck_assert_uint_eq(reserved(&fixture), 64 * MIB);
  ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
  ck_assert_uint_eq(reserved(&fixture), 32 * MIB); /* the small one lies in the second chunk */
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.peak, 64 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_allocations, 1);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_frees, 1);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_MALLOC_ASYNC), 2);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_POOL_USAGE), 0);
  policies_fixture_close(&fixture);
}
END_TEST

/* Memory that another stream uses is free when both have come so far, and neither waits for the other. */
START_TEST(recorded_streams_are_waited_for_elsewhere) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "async", .event_delay = 4});
  vmm_address block = policies_alloc(&fixture, 32 * MIB, 1);
  ck_assert_int_eq(policy_record_stream(fixture.policy, block, 2), VMM_SUCCESS);
  ck_assert_int_eq(policy_record_stream(fixture.policy, block, 3), VMM_SUCCESS);
  policies_free(&fixture, block);
  ck_assert_uint_eq(policies_counter(&fixture, "stream_waits_count"), 3);
  ck_assert_uint_ne(policies_alloc(&fixture, 32 * MIB, 1), block); /* not even on its own stream */
  for (int i = 0; i < 4; i++) vmm_sim_tick(fixture.sim);
  ck_assert_uint_eq(policies_alloc(&fixture, 32 * MIB, 4), block);
  /* Without other streams its own has it at once. */
  vmm_address again = policies_alloc(&fixture, 32 * MIB, 1);
  policies_free(&fixture, again);
  ck_assert_uint_eq(policies_alloc(&fixture, 32 * MIB, 1), again);
  policies_fixture_check(&fixture, "streams");
  policies_fixture_close(&fixture);
}
END_TEST

/* rmm#1245: the pool has memory, but in pieces whose end the host has not seen. */
START_TEST(runs_out_waits_trims_and_asks_again) {
  policies_fixture fixture;
  policies_fixture_open(
      &fixture, &(policies_fixture_options){
                    .spec = _i ? "async" : "async:retry=false", .capacity = 128 * MIB, .event_delay = 100});
  vmm_address blocks[4], whole = 0;
  for (int i = 0; i < 4; i++) blocks[i] = policies_alloc(&fixture, 32 * MIB, 0);
  for (int i = 0; i < 4; i++) policies_free(&fixture, blocks[i]);
  vmm_status status = policy_alloc(fixture.policy, 128 * MIB, 0, &whole);
  ck_assert_int_eq(status, _i ? VMM_SUCCESS : VMM_OUT_OF_MEMORY);
  ck_assert_uint_eq(policies_statistics(&fixture)->retries, (unsigned)_i);
  ck_assert_uint_eq(policies_statistics(&fixture)->failures, (unsigned)!_i);
  ck_assert_uint_eq(reserved(&fixture), 128 * MIB);
  policies_fixture_check(&fixture, "ran out");
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(the_limit_bounds_the_pool_or_the_requests) {
  policies_fixture fixture;
  vmm_address address = 0;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "async", .limit = 100 * MIB});
  policies_alloc(&fixture, 40 * MIB, 0);
  ck_assert_int_eq(policy_alloc(fixture.policy, 60 * MIB, 0, &address), VMM_OUT_OF_MEMORY);
  policies_alloc(&fixture, 56 * MIB, 0);
  ck_assert_uint_eq(reserved(&fixture), 96 * MIB);
  policies_fixture_close(&fixture);
  policies_fixture_open(
      &fixture, &(policies_fixture_options){.spec = "async:limit_counts=requested", .limit = 100 * MIB});
  policies_alloc(&fixture, 40 * MIB, 0);
  ck_assert_int_eq(policy_alloc(fixture.policy, 60 * MIB + 1, 0, &address), VMM_OUT_OF_MEMORY);
  policies_alloc(&fixture, 60 * MIB, 0); /* PyTorch counts what callers hold */
  ck_assert_uint_eq(reserved(&fixture), 128 * MIB);
  policies_fixture_check(&fixture, "limited requests");
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(the_threshold_lets_memory_go) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "async:release_threshold=64MiB"});
  vmm_address big = policies_alloc(&fixture, 320 * MIB, 0);
  policies_free(&fixture, big);
  ck_assert_int_eq(vmm_synchronize(fixture.sim), VMM_SUCCESS);
  policies_alloc(&fixture, 1 * MIB, 0);
  ck_assert_uint_eq(reserved(&fixture), 64 * MIB);
  policies_fixture_close(&fixture);
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "async"});
  policies_free(&fixture, policies_alloc(&fixture, 320 * MIB, 0));
  ck_assert_int_eq(vmm_synchronize(fixture.sim), VMM_SUCCESS);
  policies_alloc(&fixture, 1 * MIB, 0);
  ck_assert_uint_eq(reserved(&fixture), 320 * MIB);
  policies_fixture_close(&fixture);
}
END_TEST

/* Two policies after each other on one device: the second finds a pool without the first one's bound. */
START_TEST(leaves_the_pool_as_it_was) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "async", .limit = 64 * MIB});
  policies_alloc(&fixture, 60 * MIB, 3);
  policy_destroy(fixture.policy);
  policy_spec spec;
  char message[200];
  ck_assert_int_eq(policy_spec_parse("async", &spec, message, sizeof message), VMM_SUCCESS);
  ck_assert_int_eq(policy_create(&spec, fixture.meter, UINT64_MAX, &fixture.policy, message, sizeof message),
                   VMM_SUCCESS);
  policies_alloc(&fixture, 200 * MIB, 0);
  policies_fixture_check(&fixture, "a second policy");
  policies_fixture_close(&fixture);
}
END_TEST

static Suite *async_suite(void) {
  Suite *suite = suite_create("policies_async");
  TCase *tcase = tcase_create("async");
  tcase_add_test(tcase, reserved_is_what_the_pool_holds);
  tcase_add_test(tcase, recorded_streams_are_waited_for_elsewhere);
  tcase_add_loop_test(tcase, runs_out_waits_trims_and_asks_again, 0, 2);
  tcase_add_test(tcase, the_limit_bounds_the_pool_or_the_requests);
  tcase_add_test(tcase, the_threshold_lets_memory_go);
  tcase_add_test(tcase, leaves_the_pool_as_it_was);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(async_suite)
