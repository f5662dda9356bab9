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

static Suite *tfbfc_suite(void) {
  Suite *suite = suite_create("tfbfc");
  TCase *regions = tcase_create("regions");
  tcase_add_test(regions, regions_double_for_ever);
  suite_add_tcase(suite, regions);
  return suite;
}

TEST_MAIN(tfbfc_suite)
