/* What holds for every registered policy. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/policies_program.h"
#include "tests/test_main.h"

static const char *spec_number(int i) { return policies_specs()[i]; }

static int spec_count(void) {
  int count = 0;
  while (policies_specs()[count]) count++;
  return count;
}

static bool has_memory(const policies_fixture *fixture) {
  return !(fixture->policy->class->capabilities & POLICY_NO_MEMORY);
}

/* ---- nonsense ---- */

START_TEST(answers_absurd_sizes) {
  policies_fixture fixture;
  policies_fixture_open(&fixture,
                        &(policies_fixture_options){.spec = spec_number(_i), .capacity = 256 * MIB});
  const pool_statistics *statistics = policies_statistics(&fixture);
  vmm_address address = 77;
  ck_assert_int_eq(policy_alloc(fixture.policy, 0, 0, &address), VMM_SUCCESS);
  ck_assert_uint_eq(address, 0);
  ck_assert_int_eq(policy_free(fixture.policy, 0), VMM_SUCCESS);
  ck_assert_uint_eq(statistics->allocations.added, 0);
  ck_assert_uint_eq(statistics->failures, 0);
  uint64_t calls = policies_memory_calls(&fixture);
  static const uint64_t absurd[] = {UINT64_C(1) << 63,       UINT64_MAX,        UINT64_MAX - 511,
                                    UINT64_MAX - (2 << 20),  UINT64_C(1) << 60, (UINT64_C(1) << 63) - 1,
                                    UINT64_MAX / 2 + 2 * MIB};
  const size_t count = sizeof absurd / sizeof *absurd;
  for (size_t i = 0; i < count; i++) {
    address = 77;
    ck_assert_int_eq(policy_alloc(fixture.policy, absurd[i], 0, &address), VMM_OUT_OF_MEMORY);
    ck_assert_uint_eq(address, 0);
  }
  ck_assert_uint_eq(policies_memory_calls(&fixture), calls); /* the device is not asked */
  ck_assert_uint_eq(statistics->failures, count);
  /* Beyond any device, though not absurd: 130,674 GiB were really asked for. */
  static const uint64_t huge[] = {(UINT64_C(1) << 60) - 1, 130674 * GIB, 100 * 1024 * GIB, 300 * GIB,
                                  256 * MIB + 1};
  for (size_t i = 0; has_memory(&fixture) && i < sizeof huge / sizeof *huge; i++) {
    address = 77;
    ck_assert_int_eq(policy_alloc(fixture.policy, huge[i], 0, &address), VMM_OUT_OF_MEMORY);
    ck_assert_uint_eq(address, 0);
    policies_fixture_check(&fixture, "a huge request");
  }
  ck_assert_uint_lt(policies_memory_calls(&fixture) - calls, 1000);
  ck_assert_uint_eq(statistics->allocated_bytes.current, 0);
  policies_free(&fixture, policies_alloc(&fixture, 5 * MIB, 0));
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(refuses_frees_of_what_is_not_live) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = spec_number(_i), .event_delay = 2});
  static const uint64_t sizes[] = {100, 3 * MIB, 30 * MIB};
  for (size_t i = 0; i < 3; i++) {
    ck_assert_int_eq(policy_free(fixture.policy, 4096), VMM_INVALID_VALUE);
    ck_assert_int_eq(policy_free(fixture.policy, UINT64_MAX), VMM_INVALID_VALUE);
    vmm_address address = policies_alloc(&fixture, sizes[i], 0);
    policies_holdings before = policies_holdings_of(&fixture);
    ck_assert_int_eq(policy_free(fixture.policy, address + 1), VMM_INVALID_VALUE);
    ck_assert_int_eq(policy_free(fixture.policy, address - 1), VMM_INVALID_VALUE);
    ck_assert_int_eq(policy_free(fixture.policy, address + sizes[i] / 2), VMM_INVALID_VALUE);
    policies_holdings after = policies_holdings_of(&fixture);
    ck_assert_mem_eq(&before, &after, sizeof before);
    policies_free(&fixture, address);
    ck_assert_int_eq(policy_free(fixture.policy, address), VMM_INVALID_VALUE);
    address = policies_alloc(&fixture, sizes[i], 0);
    ck_assert_int_eq(policy_record_stream(fixture.policy, address, 3), VMM_SUCCESS);
    policies_free(&fixture, address);
    ck_assert_int_eq(policy_free(fixture.policy, address),
                     VMM_INVALID_VALUE); /* though it may wait for a stream */
    policies_fixture_check(&fixture, "refused frees");
  }
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(refuses_absurd_streams) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = spec_number(_i)});
  vmm_address address = policies_alloc(&fixture, 3 * MIB, 0), other = 77;
  static const vmm_stream absurd[] = {POOL_STREAM_LIMIT, UINT32_MAX, UINT32_MAX - 3, UINT32_MAX - 8};
  for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
    ck_assert_int_eq(policy_alloc(fixture.policy, 3 * MIB, absurd[i], &other), VMM_INVALID_VALUE);
    ck_assert_uint_eq(other, 0);
    ck_assert_int_eq(policy_record_stream(fixture.policy, address, absurd[i]), VMM_INVALID_VALUE);
  }
  ck_assert_uint_eq(policies_statistics(&fixture)->failures, 0);
  vmm_address many = policies_alloc(&fixture, 3 * MIB, 63);
  policies_free(&fixture, many);
  policies_free(&fixture, address);
  policies_fixture_check(&fixture, "many streams");
  policies_fixture_close(&fixture);
}
END_TEST

/* ---- random programs ---- */

static void run(policies_program *program, uint64_t steps) {
  for (uint64_t i = 0; i < steps; i++) policies_program_step(program);
}

START_TEST(keeps_its_word_with_room_to_spare) {
  uint64_t seed = policies_random_seed(_i == 0 ? "keeps_its_word_with_room_to_spare" : NULL);
  for (uint64_t round = 0; round < 4; round++) {
    policies_fixture fixture;
    policies_fixture_open(&fixture,
                          &(policies_fixture_options){
                              .spec = spec_number(_i), .profile = "h200", .event_delay = 7 * (round % 2)});
    policies_program program = {.fixture = &fixture, .random = seed + round, .streams = round < 2 ? 1 : 3};
    run(&program, 1500);
    policies_program_free_all(&program);
    ck_assert_uint_gt(program.served, 300);
    ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
    /* Nothing is live: a policy that can trim has nothing left to hold. */
    if (fixture.policy->class->trim)
      ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 0);
    ck_assert_uint_eq(policies_statistics(&fixture)->failures, 0);
    policies_fixture_close(&fixture);
  }
}
END_TEST

START_TEST(keeps_its_word_in_a_tight_place) {
  uint64_t seed = policies_random_seed(_i == 0 ? "keeps_its_word_in_a_tight_place" : NULL), out_of_memory = 0;
  for (uint64_t round = 0; round < 6; round++) {
    /* By turns the device is small and the limit is. */
    policies_fixture fixture;
    bool limited = round % 2;
    policies_fixture_open(&fixture,
                          &(policies_fixture_options){.spec = spec_number(_i),
                                                      .capacity = limited ? GIB : 128 * MIB,
                                                      .limit = limited ? 100 * MIB + round * 512 : 0,
                                                      .event_delay = round % 3 == 2 ? 5 : 0});
    policies_program program = {.fixture = &fixture,
                                .random = seed + round,
                                .streams = round < 3 ? 1 : 3,
                                .room = 160 * MIB,
                                .largest = 40 * MIB,
                                .may_run_out = true};
    run(&program, 1000);
    out_of_memory += program.out_of_memory;
    /* However often it ran out: empty, it serves what fits. */
    policies_program_free_all(&program);
    ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
    policies_free(&fixture, policies_alloc(&fixture, 60 * MIB, 0));
    if (has_memory(&fixture) && limited && strcmp(fixture.policy->class->name, "expandable") != 0) {
      ck_assert_uint_le(policies_statistics(&fixture)->reserved_bytes.peak, 100 * MIB + round * 512);
    }
    policies_fixture_close(&fixture);
  }
  if (strcmp(spec_number(_i), "null") != 0) ck_assert_uint_gt(out_of_memory, 0);
}
END_TEST

/* A device whose addresses run out before its memory does: requests may fail for want of them, and that must
 * harm nothing. */
START_TEST(keeps_its_word_with_few_addresses) {
  uint64_t seed = policies_random_seed(_i == 0 ? "keeps_its_word_with_few_addresses" : NULL);
  /* aliasheap's first window is one reservation. */
  const uint64_t first_window = strncmp(spec_number(_i), "aliasheap", 9) == 0 ? 38 * GIB : 0;
  for (uint64_t addresses = 64; addresses <= 1024; addresses *= 4) {
    policies_fixture fixture;
    policies_fixture_open(&fixture,
                          &(policies_fixture_options){.spec = spec_number(_i),
                                                      .capacity = 256 * MIB,
                                                      .address_limit = first_window + addresses * MIB,
                                                      .event_delay = 2});
    policies_program program = {.fixture = &fixture,
                                .random = seed + addresses,
                                .streams = 3,
                                .room = 200 * MIB,
                                .largest = 30 * MIB,
                                .may_run_out = true};
    run(&program, 1000);
    policies_program_free_all(&program);
    ck_assert_int_eq(policy_trim(fixture.policy), VMM_SUCCESS);
    policies_fixture_close(&fixture);
  }
}
END_TEST

/* The same program twice: the same addresses, outcomes, statistics and driver time. */
START_TEST(does_the_same_again) {
  uint64_t seed = policies_random_seed(_i == 0 ? "does_the_same_again" : NULL);
  uint64_t digests[2], busy[2];
  pool_statistics statistics[2];
  for (int again = 0; again < 2; again++) {
    policies_fixture fixture;
    policies_fixture_open(
        &fixture, &(policies_fixture_options){
                      .spec = spec_number(_i), .profile = "h200", .capacity = 256 * MIB, .event_delay = 3});
    policies_program program = {
        .fixture = &fixture, .random = seed, .streams = 3, .largest = 40 * MIB, .may_run_out = true};
    run(&program, 2000);
    digests[again] = program.digest;
    busy[again] = fixture.meter->busy_ns;
    statistics[again] = *policies_statistics(&fixture);
    policies_fixture_close(&fixture);
  }
  ck_assert_uint_eq(digests[0], digests[1]);
  ck_assert_uint_eq(busy[0], busy[1]);
  ck_assert_mem_eq(&statistics[0], &statistics[1], sizeof statistics[0]);
}
END_TEST

/* ---- reports of users ---- */

/* ATen's cache: a block of 4 GB went to a request of 10 kB, and the next 4 GB were taken anew. */
START_TEST(does_not_waste_a_huge_block) {
  static const char *const specs[] = {"native", "bfc",    "expandable",
                                      "rawvmm", "gmlake", "gmlake:frag_limit=128MiB"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    policies_fixture fixture;
    policies_fixture_open(&fixture, &(policies_fixture_options){.spec = specs[i], .profile = "h200"});
    policies_free(&fixture, policies_alloc(&fixture, 4000 * MIB, 0));
    policies_alloc(&fixture, 10000, 0);
    policies_alloc(&fixture, 4000 * MIB, 0);
    ck_assert_msg(policies_statistics(&fixture)->reserved_bytes.peak <= 4002 * MIB, "%s: %" PRIu64, specs[i],
                  policies_statistics(&fixture)->reserved_bytes.peak);
    policies_fixture_close(&fixture);
  }
}
END_TEST

/* pytorch#35901: a huge segment, cut up by small blocks, leaves half of the device unusable to
 * PyTorch; stitching and expandable segments use it. */
START_TEST(serves_a_fragmented_device) {
  static const struct {
    const char *spec;
    bool serves;
  } outcomes[] = {{"bfc", false}, {"expandable", true}, {"gmlake", true}, {"native", true}, {"rawvmm", true}};
  const uint64_t big = 11600 * MIB;
  for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
    policies_fixture fixture;
    policies_fixture_open(&fixture,
                          &(policies_fixture_options){.spec = outcomes[i].spec, .capacity = 22000 * MIB});
    policies_free(&fixture, policies_alloc(&fixture, big, 0));
    vmm_address small[40], address;
    for (int k = 0; k < 40; k++) small[k] = policies_alloc(&fixture, 16 * MIB, 0);
    for (int k = 0; k < 40; k++) {
      if (k % 3 != 0) policies_free(&fixture, small[k]);
    }
    vmm_status status = policy_alloc(fixture.policy, big, 0, &address);
    policies_fixture_check(&fixture, outcomes[i].spec);
    ck_assert_msg(status == (outcomes[i].serves ? VMM_SUCCESS : VMM_OUT_OF_MEMORY), "%s: %s",
                  outcomes[i].spec, vmm_status_name(status));
    if (!outcomes[i].serves) {
      /* Most of the device is free, and the report can say so. */
      ck_assert_uint_eq(policy_largest_free(fixture.policy), big - 40 * 16 * MIB + 0);
      ck_assert_uint_eq(policies_statistics(&fixture)->failures, 1);
    }
    policies_fixture_close(&fixture);
  }
}
END_TEST

/* pytorch#188008: one failed map or access call, then a crash or a failed assertion. 200 MiB in ten handles:
 * each call fails in turn; the device is as before, the next requests are served. */
START_TEST(rolls_a_failed_map_back) {
  static const char *const specs[] = {"rawvmm:chunk=20MiB", "gmlake:chunk=20MiB", "expandable"};
  static const vmm_call calls[] = {VMM_CALL_CREATE, VMM_CALL_MAP, VMM_CALL_SET_ACCESS};
  static const vmm_status failures[] = {VMM_OUT_OF_MEMORY, VMM_UNKNOWN};
  for (size_t i = 0; i < sizeof specs / sizeof *specs * 3 * 2; i++) {
    const char *spec = specs[i / 6];
    vmm_call call = calls[i / 2 % 3];
    vmm_status failure = failures[i % 2], status = failure;
    for (uint64_t k = 1; status == failure || k == 1; k++) {
      policies_fixture fixture;
      policies_fixture_open(&fixture, &(policies_fixture_options){.spec = spec});
      vmm_sim_usage before, after;
      vmm_address address;
      vmm_sim_usage_get(fixture.sim, &before);
      require(vmm_sim_fail(fixture.sim, call, k, failure) == VMM_SUCCESS, "no room for a failure");
      status = policy_alloc(fixture.policy, 200 * MIB, 0, &address);
      vmm_sim_fail_none(fixture.sim);
      vmm_sim_usage_get(fixture.sim, &after);
      vmm_meter_call counts;
      vmm_meter_get(fixture.meter, call, &counts);
      /* gmlake and expandable empty their caches and try again when memory is short. */
      require(status == VMM_SUCCESS || status == failure, "%s: %s", spec, vmm_status_name(status));
      require(counts.failures == 1 || k > 1, "%s never calls %s", spec, vmm_call_name(call));
      if (status == failure) {
        after.reservations = before.reservations; /* expandable keeps its addresses */
        after.reserved_address_bytes = before.reserved_address_bytes;
        require(memcmp(&before, &after, sizeof before) == 0, "%s: %s number %" PRIu64 " leaves something",
                spec, vmm_call_name(call), k);
        require(policies_statistics(&fixture)->reserved_bytes.current == 0, "%s: something is reserved",
                spec);
      }
      policies_fixture_check(&fixture, spec);
      policies_free(&fixture, policies_alloc(&fixture, 2 * MIB, 0));
      policies_free(&fixture, policies_alloc(&fixture, 200 * MIB, 0));
      policies_fixture_close(&fixture);
    }
  }
}
END_TEST

static Suite *common_suite(void) {
  Suite *suite = suite_create("policies_common");
  int specs = spec_count();
  TCase *nonsense = tcase_create("nonsense");
  tcase_add_loop_test(nonsense, answers_absurd_sizes, 0, specs);
  tcase_add_loop_test(nonsense, refuses_frees_of_what_is_not_live, 0, specs);
  tcase_add_loop_test(nonsense, refuses_absurd_streams, 0, specs);
  suite_add_tcase(suite, nonsense);
  TCase *programs = tcase_create("random programs");
  tcase_add_loop_test(programs, keeps_its_word_with_room_to_spare, 0, specs);
  tcase_add_loop_test(programs, keeps_its_word_in_a_tight_place, 0, specs);
  tcase_add_loop_test(programs, keeps_its_word_with_few_addresses, 0, specs);
  tcase_add_loop_test(programs, does_the_same_again, 0, specs);
  suite_add_tcase(suite, programs);
  TCase *reports = tcase_create("reports of users");
  tcase_add_test(reports, rolls_a_failed_map_back);
  tcase_add_test(reports, does_not_waste_a_huge_block);
  tcase_add_test(reports, serves_a_fragmented_device);
  suite_add_tcase(suite, reports);
  return suite;
}

TEST_MAIN(common_suite)
