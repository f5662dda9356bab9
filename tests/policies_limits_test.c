/* --limit: never exceeded, and out of memory exactly where each peer would be. */
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

/* PyTorch checks the limit with the size of a segment, and then maps whole pages of 20 MiB. */
static uint64_t slack_of(const char *spec) { return strncmp(spec, "expandable", 10) == 0 ? 20 * MIB - 1 : 0; }

START_TEST(is_never_exceeded) {
  const char *spec = spec_number(_i);
  if (strcmp(spec, "null") == 0) return;
  static const uint64_t limits[] = {41 * MIB, 97 * MIB + 512, 150 * MIB + 1, 64 * MIB - 1};
  uint64_t seed = policies_random_seed(_i == 0 ? "is_never_exceeded" : NULL), out_of_memory = 0;
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    policies_fixture fixture;
    policies_fixture_open(
        &fixture, &(policies_fixture_options){
                      .spec = spec, .capacity = GIB, .limit = limits[i], .event_delay = i % 2 ? 6 : 0});
    policies_program program = {.fixture = &fixture,
                                .random = seed + i,
                                .streams = 1 + (uint32_t)i % 3,
                                .room = 170 * MIB,
                                .largest = 30 * MIB,
                                .may_run_out = true};
    for (int step = 0; step < 700; step++) {
      policies_program_step(&program);
      uint64_t reserved = policies_statistics(&fixture)->reserved_bytes.peak;
      require(reserved <= limits[i] + slack_of(spec), "%s: %" PRIu64 " reserved with a limit of %" PRIu64,
              spec, reserved, limits[i]);
    }
    out_of_memory += program.out_of_memory;
    policies_program_free_all(&program);
    policies_fixture_close(&fixture);
  }
  ck_assert_uint_gt(out_of_memory, 10);
}
END_TEST

/* The requests of a list in turn; a negative number frees the block of that position, counted from 1. All
 * but the last are served with either limit, the last one only with the first. */
typedef struct exact_case {
  const char *spec;
  uint64_t enough, too_little;
  int64_t requests[8];
  uint64_t reserved; /* in the end, when all is served */
} exact_case;

static const exact_case exact[] = {
    /* What was asked for, to the byte. */
    {"native", 100, 99, {60, 40}, 100},
    /* TOTAL + segment: 20 MiB and 20 MiB (PyTorch's conformance vector c, d, e). */
    {"bfc", 40 * MIB, 40 * MIB - 1, {1048577, 10485760, 9437184}, 40 * MIB},
    /* Cached segments go first: 20 MiB that are free make room for 24. */
    {"bfc", 46 * MIB, 46 * MIB - 1, {1048577, 21 * MIB, -1, 24 * MIB}, 46 * MIB},
    /* The check is of 26 MiB, what is mapped are two pages. */
    {"expandable", 26 * MIB, 26 * MIB - 1, {25 * MIB}, 40 * MIB},
    {"expandable", 2 * MIB, 2 * MIB - 1, {1}, 2 * MIB},
    /* Regions of 4 MiB and of what is left below the limit. */
    {"tfbfc", 10 * MIB, 10 * MIB - 256, {3 * MIB, 6 * MIB}, 10 * MIB},
    {"tfbfc", 10 * MIB + 255, 10 * MIB - 1, {3 * MIB, 6 * MIB}, 10 * MIB},
    {"tfbfc:allow_growth=false", 10 * MIB, 10 * MIB - 256, {10 * MIB}, 10 * MIB},
    /* A free region is given back for one that fits. */
    {"tfbfc", 16 * MIB, 16 * MIB - 256, {3 * MIB, -1, 16 * MIB}, 16 * MIB},
    {"rawvmm", 6 * MIB, 6 * MIB - 1, {1, 2 * MIB, 5}, 6 * MIB},
    {"rawvmm:chunk=8MiB", 12 * MIB, 12 * MIB - 1, {9 * MIB, 1}, 12 * MIB},
    {"gmlake", 6 * MIB, 6 * MIB - 1, {3 * MIB, 2 * MIB}, 6 * MIB},
    /* Two free blocks of 4 and 2 MiB, stitched with 2 MiB more. */
    {"gmlake", 10 * MIB, 10 * MIB - 1, {4 * MIB, 2 * MIB, 2 * MIB, -1, -2, 8 * MIB}, 10 * MIB},
    {"aliasheap", 64 * MIB, 64 * MIB - 1, {60 * MIB, 4 * MIB}, 64 * MIB},
    {"async", 96 * MIB, 96 * MIB - 1, {40 * MIB, 56 * MIB}, 96 * MIB},
    {"async:limit_counts=requested", 96 * MIB, 96 * MIB - 1, {40 * MIB, 56 * MIB}, 96 * MIB},
};

static vmm_status run_requests(policies_fixture *fixture, const int64_t requests[8]) {
  vmm_address served[8] = {0};
  vmm_status last = VMM_SUCCESS;
  for (int i = 0, position = 0; i < 8 && requests[i] != 0; i++) {
    ck_assert_int_eq(last, VMM_SUCCESS);
    if (requests[i] < 0) {
      policies_free(fixture, served[-requests[i] - 1]);
    } else {
      last = policy_alloc(fixture->policy, (uint64_t)requests[i], 0, &served[position++]);
    }
  }
  return last;
}

START_TEST(runs_out_exactly_where_the_peer_does) {
  const exact_case *here = &exact[_i];
  policies_fixture fixture;
  policies_fixture_open(
      &fixture, &(policies_fixture_options){.spec = here->spec, .capacity = GIB, .limit = here->enough});
  ck_assert_int_eq(run_requests(&fixture, here->requests), VMM_SUCCESS);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, here->reserved);
  policies_fixture_check(&fixture, here->spec);
  policies_fixture_close(&fixture);
  policies_fixture_open(
      &fixture, &(policies_fixture_options){.spec = here->spec, .capacity = GIB, .limit = here->too_little});
  ck_assert_int_eq(run_requests(&fixture, here->requests), VMM_OUT_OF_MEMORY);
  ck_assert_uint_eq(policies_statistics(&fixture)->failures, 1);
  policies_fixture_check(&fixture, here->spec);
  policies_fixture_close(&fixture);
}
END_TEST

/* A limit beyond the device changes nothing: the device refuses. */
START_TEST(beyond_the_device_the_device_decides) {
  const char *spec = spec_number(_i);
  if (strcmp(spec, "null") == 0) return;
  uint64_t served[2] = {0, 0};
  for (int limited = 0; limited < 2; limited++) {
    policies_fixture fixture;
    policies_fixture_open(&fixture, &(policies_fixture_options){
                                        .spec = spec, .capacity = 256 * MIB, .limit = limited ? 4 * GIB : 0});
    vmm_address address;
    while (policy_alloc(fixture.policy, 12 * MIB, 0, &address) == VMM_SUCCESS) served[limited]++;
    policies_fixture_close(&fixture);
  }
  ck_assert_uint_gt(served[0], 10);
  /* TensorFlow takes the limit for what there is, and grows towards it. */
  if (strncmp(spec, "tfbfc", 5) == 0) return;
  ck_assert_uint_eq(served[0], served[1]);
}
END_TEST

static Suite *limits_suite(void) {
  Suite *suite = suite_create("policies_limits");
  TCase *limits = tcase_create("limits");
  tcase_set_timeout(limits, 60);
  tcase_add_loop_test(limits, is_never_exceeded, 0, spec_count());
  tcase_add_loop_test(limits, runs_out_exactly_where_the_peer_does, 0, (int)(sizeof exact / sizeof *exact));
  tcase_add_loop_test(limits, beyond_the_device_the_device_decides, 0, spec_count());
  suite_add_tcase(suite, limits);
  return suite;
}

TEST_MAIN(limits_suite)
