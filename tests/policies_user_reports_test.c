/* What users of other allocators ran into, for every policy. docs/user-problems.md says where each report is
 * tested; these have no better place. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/policies_program.h"
#include "tests/test_main.h"

/* ---- pytorch#193400: max_split_size_mb and expandable segments together ---- */

enum { CYCLES = 100 };

/* 64 MiB stay; 91 MiB and 45.5 MiB come and go, and with them come 2 MiB that stay. Reserved MiB after
 * cycle 0, 20, ... 100. */
static void run_cycles(const char *spec, uint64_t reserved[CYCLES / 20 + 1]) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = spec, .profile = "h200"});
  policies_alloc(&fixture, 64 * MIB, 0);
  for (int cycle = 0; cycle <= CYCLES; cycle++) {
    vmm_address a = policies_alloc(&fixture, 91 * MIB, 0), b = policies_alloc(&fixture, 91 * MIB / 2, 0);
    policies_alloc(&fixture, 2 * MIB, 0);
    policies_free(&fixture, a);
    policies_free(&fixture, b);
    if (cycle % 20 != 0) continue;
    const pool_statistics *statistics = policies_statistics(&fixture);
    reserved[cycle / 20] = statistics->reserved_bytes.current / MIB;
    require(statistics->requested_bytes.current == (66 + (uint64_t)cycle * 2) * MIB,
            "%s: %" PRIu64 " bytes are live", spec, statistics->requested_bytes.current);
  }
  policies_fixture_check(&fixture, spec);
  policies_fixture_close(&fixture);
}

/* At most 266 MiB are live at the end of a cycle, 402.5 MiB within. */
START_TEST(reserved_does_not_grow_without_bound) {
  static const struct {
    const char *spec;
    uint64_t bound;
  } cases[] = {
      {"bfc:max_split_size_mb=128", 500},
      {"expandable:max_split_size_mb=128", 500},
      {"bfc", 500},
      {"expandable", 500},
      {"native", 500},
      {"async", 500},
      {"rawvmm", 500},
      {"gmlake", 500},
      {"gmlake:frag_limit=128MiB", 500},
      {"aliasheap", 500},
      {"tfbfc", 64 + 256 + 256}, /* its regions double: what was 320 MiB becomes 576 MiB once, and stays */
  };
  uint64_t reserved[CYCLES / 20 + 1] = {0};
  run_cycles(cases[_i].spec, reserved);
  for (int i = 0; i <= CYCLES / 20; i++) {
    ck_assert_msg(reserved[i] <= cases[_i].bound, "%s: %" PRIu64 " MiB after cycle %d", cases[_i].spec,
                  reserved[i], 20 * i);
  }
}
END_TEST

/* The series of the thread, to the MiB. */
START_TEST(reserved_grows_as_in_pytorch_when_asked_to) {
  static const uint64_t reported[CYCLES / 20 + 1] = {220, 2980, 5760, 8520, 11300, 14060};
  uint64_t reserved[CYCLES / 20 + 1] = {0};
  run_cycles("expandable:max_split_size_mb=128,oversize_rule=pytorch", reserved);
  for (int i = 0; i <= CYCLES / 20; i++) ck_assert_uint_eq(reserved[i], reported[i]);
}
END_TEST

/* ---- pytorch#119452: options that contradict each other ---- */

START_TEST(contradictions_name_both_options) {
  static const struct {
    const char *spec, *pieces[2];
  } bad[] = {
      {"expandable:max_split_size_mb=20,large_segment_size_mb=64",
       {"max_split_size_mb=20", "large_segment_size_mb=64"}},
      {"expandable:oversize_rule=pytorch,large_segment_size_mb=128,max_split_size_mb=127",
       {"max_split_size_mb=127", "large_segment_size_mb=128"}},
      {"bfc:max_split_size_mb=20,large_segment_size_mb=64",
       {"max_split_size_mb=20", "large_segment_size_mb=64"}},
  };
  vmm_driver *sim;
  ck_assert_int_eq(vmm_sim_create(&(vmm_sim_configuration){.capacity = GIB}, &sim), VMM_SUCCESS);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    policy_spec spec;
    policy *created;
    char message[512] = "";
    ck_assert_int_eq(policy_spec_parse(bad[i].spec, &spec, message, sizeof message), VMM_SUCCESS);
    ck_assert_int_eq(policy_create(&spec, sim, UINT64_MAX, &created, message, sizeof message),
                     VMM_INVALID_VALUE);
    for (int k = 0; k < 2; k++)
      ck_assert_msg(strstr(message, bad[i].pieces[k]) != NULL, "%s: %s", bad[i].spec, message);
  }
  vmm_driver_destroy(sim);
}
END_TEST

/* ---- pytorch#192269: addresses run out before memory does ---- */

enum { STREAMS = 16 };

START_TEST(exhausted_addresses_are_called_so) {
  policies_fixture fixture;
  policies_fixture_open(
      &fixture,
      &(policies_fixture_options){.spec = "expandable", .capacity = 80 * GIB, .address_limit = 1024 * GIB});
  vmm_address addresses[STREAMS] = {0};
  vmm_status status = VMM_SUCCESS;
  vmm_stream served = 0;
  for (; served < STREAMS; served++) {
    status = policy_alloc(fixture.policy, 20 * MIB, served, &addresses[served]);
    if (status != VMM_SUCCESS) break;
  }
  /* 9/8 of the device for each stream. */
  ck_assert_uint_eq(served, 1024 / 90);
  ck_assert_int_eq(status, VMM_OUT_OF_MEMORY);
  ck_assert_uint_eq(policies_counter(&fixture, "reservations_count"), served);
  ck_assert_uint_eq(policies_counter(&fixture, "reserved_address_bytes"), served * 90 * GIB);
  char message[256];
  vmm_error_format(&fixture.meter->error, message, sizeof message);
  ck_assert_str_eq(message,
                   "cuMemAddressReserve(size=96636764160, alignment=2097152) returned "
                   "CUDA_ERROR_OUT_OF_MEMORY (2): no address space left for that");
  policies_fixture_check(&fixture, "addresses run out");
  /* A stream that ended makes room. */
  policies_free(&fixture, addresses[3]);
  policies_alloc(&fixture, 20 * MIB, served);
  policies_fixture_check(&fixture, "another stream ended");
  policies_fixture_close(&fixture);
}
END_TEST

/* aliasheap's windows are 144 times the device: it says at once that they do not fit. */
START_TEST(others_do_with_few_addresses) {
  static const char *const specs[] = {"native", "async", "bfc", "tfbfc", "rawvmm", "gmlake"};
  const policies_fixture_options few = {.capacity = 80 * GIB, .address_limit = 1024 * GIB};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    policies_fixture fixture;
    policies_fixture_options options = few;
    options.spec = specs[i];
    policies_fixture_open(&fixture, &options);
    for (vmm_stream stream = 0; stream < STREAMS; stream++) policies_alloc(&fixture, 20 * MIB, stream);
    policies_fixture_check(&fixture, specs[i]);
    policies_fixture_close(&fixture);
  }
  const vmm_sim_configuration configuration = {.capacity = few.capacity, .address_limit = few.address_limit};
  vmm_driver *sim;
  policy_spec spec;
  policy *created;
  char message[512] = "";
  ck_assert_int_eq(vmm_sim_create(&configuration, &sim), VMM_SUCCESS);
  ck_assert_int_eq(policy_spec_parse("aliasheap", &spec, message, sizeof message), VMM_SUCCESS);
  ck_assert_int_eq(policy_create(&spec, sim, UINT64_MAX, &created, message, sizeof message),
                   VMM_OUT_OF_MEMORY);
  ck_assert_msg(strstr(message, "no address space left for that") != NULL, "%s", message);
  vmm_driver_destroy(sim);
}
END_TEST

/* ---- pytorch#13751: an error that was dealt with comes back later ---- */

START_TEST(errors_that_were_got_over_are_forgotten) {
  static const struct {
    const char *spec;
    vmm_call call; /* that the policy makes again when it is refused */
  } cases[] = {{"async", VMM_CALL_MALLOC_ASYNC}, {"bfc", VMM_CALL_MALLOC},    {"expandable", VMM_CALL_CREATE},
               {"tfbfc", VMM_CALL_MALLOC},       {"gmlake", VMM_CALL_CREATE}, {"aliasheap", VMM_CALL_CREATE}};
  for (int handled_before = 0; handled_before < 2; handled_before++) {
    policies_fixture fixture;
    policies_fixture_open(&fixture,
                          &(policies_fixture_options){.spec = cases[_i].spec, .capacity = 256 * MIB});
    const vmm_error *error = &fixture.meter->error;
    policies_free(&fixture, policies_alloc(&fixture, 60 * MIB, 1));
    /* An error that is the caller's own stays, whatever is served later. */
    if (!handled_before) ck_assert_int_eq(vmm_unmap(fixture.meter, 4096, 4096), VMM_INVALID_VALUE);
    ck_assert_int_eq(vmm_sim_fail(fixture.sim, cases[_i].call, 1, VMM_OUT_OF_MEMORY), VMM_SUCCESS);
    policies_alloc(&fixture, 100 * MIB, 0);
    vmm_meter_call counts;
    vmm_meter_get(fixture.meter, cases[_i].call, &counts);
    ck_assert_uint_eq(counts.failures, 1);
    ck_assert_int_eq(error->status, handled_before ? VMM_SUCCESS : VMM_INVALID_VALUE);
    if (!handled_before) ck_assert_int_eq(error->call, VMM_CALL_UNMAP);
    policies_fixture_check(&fixture, cases[_i].spec);
    policies_fixture_close(&fixture);
  }
}
END_TEST

/* ---- mscclpp#451: granularities other than 2 MiB ---- */

START_TEST(any_granularity_is_kept) {
  static const uint64_t granularities[] = {64 * KIB, 512 * KIB, 4 * MIB, 16 * MIB, 64 * MIB};
  const char *text = policies_specs()[_i];
  for (size_t i = 0; i < sizeof granularities / sizeof *granularities; i++) {
    vmm_driver *sim;
    policy_spec spec;
    policy *created;
    char message[512] = "";
    const vmm_sim_configuration configuration = {.capacity = 2 * GIB, .granularity = granularities[i]};
    require(vmm_sim_create(&configuration, &sim) == VMM_SUCCESS, "no device");
    require(policy_spec_parse(text, &spec, message, sizeof message) == VMM_SUCCESS, "%s", message);
    vmm_status status = policy_create(&spec, sim, UINT64_MAX, &created, message, sizeof message);
    if (status != VMM_SUCCESS) {
      require(status == VMM_INVALID_VALUE && strstr(message, "granularity"), "%s: %s", text, message);
      vmm_driver_destroy(sim);
      continue;
    }
    vmm_address addresses[60];
    for (uint64_t k = 0; k < 60; k++) {
      status = policy_alloc(created, (k * 7919 % 23 + 1) * 777777, (vmm_stream)(k % 3), &addresses[k]);
      require(status == VMM_SUCCESS, "%s, granularity %" PRIu64 ": %s", text, granularities[i],
              vmm_status_name(status));
      if (k % 3 == 2) {
        status = policy_free(created, addresses[k - 1]);
        require(status == VMM_SUCCESS, "%s, granularity %" PRIu64 ": %s", text, granularities[i],
                vmm_status_name(status));
      }
      require(policy_check(created, message, sizeof message), "%s, granularity %" PRIu64 ": %s", text,
              granularities[i], message);
    }
    policy_destroy(created);
    vmm_sim_usage usage, none = {0};
    vmm_sim_usage_get(sim, &usage);
    require(memcmp(&usage, &none, sizeof usage) == 0, "%s leaves something", text);
    vmm_driver_destroy(sim);
  }
}
END_TEST

/* ---- pytorch#112377: a query on the way to the report hides what had failed ---- */

START_TEST(nothing_hides_the_failure) {
  static const vmm_call queries[] = {VMM_CALL_MEMORY_INFO, VMM_CALL_GRANULARITY, VMM_CALL_POOL_USAGE};
  const char *spec = policies_specs()[_i];
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = spec, .capacity = 256 * MIB});
  if (fixture.policy->class->capabilities & POLICY_NO_MEMORY) {
    policies_fixture_close(&fixture);
    return;
  }
  vmm_address kept = policies_alloc(&fixture, 60 * MIB, 1), address;
  for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
    for (uint64_t k = 1; k <= 8; k++)
      ck_assert_int_eq(vmm_sim_fail(fixture.sim, queries[i], k, VMM_UNKNOWN), VMM_SUCCESS);
  }
  ck_assert_int_eq(policy_alloc(fixture.policy, 300 * MIB, 0, &address), VMM_OUT_OF_MEMORY);
  const vmm_error *error = &fixture.meter->error;
  if (error->status != VMM_SUCCESS) {
    ck_assert_int_eq(error->status, VMM_OUT_OF_MEMORY);
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) ck_assert_int_ne(error->call, queries[i]);
  }
  vmm_sim_fail_none(fixture.sim);
  policies_free(&fixture, kept);
  policies_fixture_check(&fixture, spec);
  policies_fixture_close(&fixture);
}
END_TEST

static Suite *user_reports_suite(void) {
  Suite *suite = suite_create("policies_user_reports");
  int specs = 0;
  while (policies_specs()[specs]) specs++;
  TCase *growth = tcase_create("growth");
  tcase_add_loop_test(growth, reserved_does_not_grow_without_bound, 0, 11);
  tcase_add_test(growth, reserved_grows_as_in_pytorch_when_asked_to);
  suite_add_tcase(suite, growth);
  TCase *options = tcase_create("options and devices");
  tcase_add_test(options, contradictions_name_both_options);
  tcase_add_loop_test(options, any_granularity_is_kept, 0, specs);
  suite_add_tcase(suite, options);
  TCase *errors = tcase_create("errors");
  tcase_add_test(errors, exhausted_addresses_are_called_so);
  tcase_add_test(errors, others_do_with_few_addresses);
  tcase_add_loop_test(errors, errors_that_were_got_over_are_forgotten, 0, 6);
  tcase_add_loop_test(errors, nothing_hides_the_failure, 0, specs);
  suite_add_tcase(suite, errors);
  return suite;
}

TEST_MAIN(user_reports_suite)
