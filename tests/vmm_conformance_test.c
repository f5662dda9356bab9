/* The conformance cases on the simulated device (accounts only, backed by pages, with events that take
 * their time, and behind a meter) and on the real one, if there is one. */
#include "tests/vmm_conformance.h"

#include <stdio.h>

#include "tests/test_main.h"
#include "vmm/cuda.h"
#include "vmm/meter.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)

static void run_case(int number, const vmm_sim_configuration *configuration) {
  const vmm_conformance_case *conformance_case = &vmm_conformance_cases[number];
  vmm_driver *sim, *meter;
  ck_assert_success(vmm_sim_create(configuration, &sim));
  ck_assert_success(vmm_meter_create(sim, &meter));
  vmm_driver *driver = number % 2 ? meter : sim;
  conformance_case->run(driver);
  vmm_sim_usage usage;
  vmm_sim_usage_get(sim, &usage);
  const char *name = conformance_case->name;
  ck_assert_msg(usage.physical_bytes == usage.pool_bytes, "%s left memory", name);
  ck_assert_msg(usage.reservations == 0 && usage.reserved_address_bytes == 0, "%s left reservations", name);
  ck_assert_msg(usage.handles == 0 && usage.mappings == 0 && usage.mallocs == 0, "%s left handles", name);
  ck_assert_msg(usage.events == 0 && usage.pool_allocations == 0, "%s left events or pool memory", name);
  vmm_driver_destroy(meter);
  vmm_driver_destroy(sim);
}

START_TEST(on_accounts) {
  vmm_profile *profile;
  char message[200];
  ck_assert_success(vmm_profile_load("h200", &profile, message, sizeof message));
  run_case(_i, &(vmm_sim_configuration){.profile = profile});
  vmm_profile_destroy(profile);
}
END_TEST

START_TEST(on_a_small_device) {
  run_case(_i, &(vmm_sim_configuration){.capacity = 512 * MIB, .event_delay = 5});
}
END_TEST

START_TEST(on_small_granules) {
  run_case(_i, &(vmm_sim_configuration){.capacity = 256 * MIB, .granularity = 64 * 1024});
}
END_TEST

START_TEST(on_pages) { run_case(_i, &(vmm_sim_configuration){.capacity = 512 * MIB, .backed = true}); }
END_TEST

/* With CK_FORK=no all cases share one context, which takes longer to make than all of them. */
START_TEST(on_a_real_device) {
  static char reason[512];
  static vmm_driver *keeper;
  const vmm_cuda_configuration configuration = {.ordinal = 0};
  vmm_driver *driver;
  if (!keeper && vmm_cuda_create(&configuration, &keeper, reason, sizeof reason) != VMM_SUCCESS) {
    test_skip(reason);
  }
  ck_assert_success(vmm_cuda_create(&configuration, &driver, reason, sizeof reason));
  vmm_conformance_cases[_i].run(driver);
  vmm_cuda_usage usage;
  vmm_cuda_usage_get(driver, &usage);
  const char *name = vmm_conformance_cases[_i].name;
  ck_assert_msg(usage.physical_bytes == 0 && usage.handles == 0 && usage.mappings == 0, "%s left memory",
                name);
  ck_assert_msg(usage.reservations == 0 && usage.mallocs == 0 && usage.async == 0, "%s left addresses", name);
  ck_assert_msg(usage.events == 0, "%s left events", name);
  vmm_driver_destroy(driver);
}
END_TEST

static Suite *conformance_suite(void) {
  Suite *suite = suite_create("vmm conformance");
  int count = vmm_conformance_count();
  TCase *tcase = tcase_create("sim");
  tcase_add_loop_test(tcase, on_accounts, 0, count);
  tcase_add_loop_test(tcase, on_a_small_device, 0, count);
  tcase_add_loop_test(tcase, on_small_granules, 0, count);
  tcase_add_loop_test(tcase, on_pages, 0, count);
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("cuda");
  tcase_add_loop_test(tcase, on_a_real_device, 0, count);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(conformance_suite)
