/* What memory costs without any pool: native, and the virtual memory calls by chunk size
 * (Table 1 of the GMLake paper, on the H200's measured latencies). */
#include <inttypes.h>
#include <stdio.h>

#include "tests/policies_fixture.h"
#include "tests/test_main.h"

/* Driver time of one allocation of 2 GiB, in nanoseconds. */
static uint64_t cost_of(const char *spec, const char *profile) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = spec, .profile = profile});
  uint64_t before = fixture.meter->busy_ns;
  policies_alloc(&fixture, 2 * GIB, 0);
  uint64_t cost = fixture.meter->busy_ns - before;
  policies_fixture_check(&fixture, spec);
  policies_fixture_close(&fixture);
  return cost;
}

START_TEST(costs_what_the_h200_measured) {
  uint64_t native = cost_of("native", "h200");
  ck_assert_msg(native > 350000 && native < 480000, "native: %" PRIu64 " ns", native);
  static const struct {
    const char *spec;
    double least, most;
  } bounds[] = {
      {"rawvmm:chunk=2MiB", 100, 150},
      {"rawvmm:chunk=16MiB", 12, 20},
      {"rawvmm:chunk=128MiB", 2, 4},
      {"rawvmm:chunk=1GiB", 0.95, 1.5},
  };
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
    double times = (double)cost_of(bounds[i].spec, "h200") / (double)native;
    printf("%s: %.2f times native\n", bounds[i].spec, times);
    ck_assert_msg(times >= bounds[i].least && times <= bounds[i].most, "%s costs %.2f times native",
                  bounds[i].spec, times);
  }
}
END_TEST

START_TEST(costs_what_the_paper_says) {
  uint64_t native = cost_of("native", "a100");
  double small = (double)cost_of("rawvmm:chunk=2MiB", "a100") / (double)native;
  double middle = (double)cost_of("rawvmm:chunk=128MiB", "a100") / (double)native;
  double large = (double)cost_of("rawvmm:chunk=1GiB", "a100") / (double)native;
  printf("a100: %.1f, %.2f, %.2f times native\n", small, middle, large);
  ck_assert_msg(small >= 110 && small <= 120, "2 MiB: %.1f", small);
  ck_assert_msg(middle >= 8.5 && middle <= 9.7, "128 MiB: %.2f", middle);
  ck_assert_msg(large >= 1.3 && large <= 1.7, "1 GiB: %.2f", large);
}
END_TEST

/* One reservation, one access call over all, a handle and a mapping for each chunk, and the reverse. */
START_TEST(makes_the_calls_it_must) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "rawvmm:chunk=8MiB"});
  vmm_address address =
      policies_alloc(&fixture, 21 * MIB, 0); /* 8, 8 and 6 MiB: only the granule is wasted */
  policies_fixture_check(&fixture, "allocated");
  ck_assert(vmm_sim_accessible(fixture.sim, address, 22 * MIB));
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 22 * MIB);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_allocations, 1);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_ADDRESS_RESERVE), 1);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_CREATE), 3);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_MAP), 3);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_SET_ACCESS), 1);
  policies_free(&fixture, address);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_SYNCHRONIZE), 1);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_UNMAP), 1);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_RELEASE), 3);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_ADDRESS_FREE), 1);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 0);
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_frees, 1);
  address = policies_alloc(&fixture, 100, 0); /* less than a chunk */
  ck_assert_uint_eq(policies_statistics(&fixture)->driver_allocations, 2);
  ck_assert_uint_eq(policies_statistics(&fixture)->reserved_bytes.current, 2 * MIB);
  policies_free(&fixture, address);
  policies_fixture_close(&fixture);
}
END_TEST

START_TEST(native_makes_one_call_each_way) {
  policies_fixture fixture;
  policies_fixture_open(&fixture, &(policies_fixture_options){.spec = "native"});
  vmm_address address = policies_alloc(&fixture, 21 * MIB, 0);
  policies_free(&fixture, address);
  ck_assert_uint_eq(policies_memory_calls(&fixture), 2);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_MALLOC), 1);
  ck_assert_uint_eq(policies_calls(&fixture, VMM_CALL_FREE), 1);
  policies_fixture_close(&fixture);
}
END_TEST

static Suite *rawvmm_suite(void) {
  Suite *suite = suite_create("policies_rawvmm");
  TCase *cost = tcase_create("cost");
  tcase_add_test(cost, costs_what_the_h200_measured);
  tcase_add_test(cost, costs_what_the_paper_says);
  tcase_add_test(cost, makes_the_calls_it_must);
  tcase_add_test(cost, native_makes_one_call_each_way);
  suite_add_tcase(suite, cost);
  return suite;
}

TEST_MAIN(rawvmm_suite)
