/* Every call of the simulated device, made to fail and left alone. */
#include <string.h>

#include "tests/test_main.h"
#include "tests/vmm_conformance.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static vmm_driver *make(vmm_sim_configuration configuration) {
  vmm_driver *driver = NULL;
  configuration.capacity = GIB;
  ck_assert_success(vmm_sim_create(&configuration, &driver));
  return driver;
}

static vmm_address a_reservation, a_mapping, a_memory, a_pooled;
static vmm_handle a_handle;
static vmm_event an_event;

/* Makes one legal call of a kind on what prepare has made. Returns its status. */
static vmm_status one_call(vmm_driver *driver, vmm_call call) {
  uint64_t number, other;
  vmm_mismatch mismatch;
  vmm_pool_usage look;
  const vmm_pool_configuration configuration = {.release_threshold = UINT64_MAX, .maximum_bytes = UINT64_MAX};
  switch (call) {
    case VMM_CALL_GRANULARITY:
      return vmm_granularity(driver, &number);
    case VMM_CALL_MEMORY_INFO:
      return vmm_memory_info(driver, &number, &other);
    case VMM_CALL_ADDRESS_RESERVE:
      return vmm_address_reserve(driver, 2 * MIB, 0, &number);
    case VMM_CALL_ADDRESS_FREE:
      return vmm_address_free(driver, a_reservation, 2 * MIB);
    case VMM_CALL_CREATE:
      return vmm_create(driver, 2 * MIB, &number);
    case VMM_CALL_RELEASE:
      return vmm_release(driver, a_handle);
    case VMM_CALL_MAP:
      return vmm_map(driver, a_reservation, 2 * MIB, 0, a_handle);
    case VMM_CALL_UNMAP:
      return vmm_unmap(driver, a_mapping, 2 * MIB);
    case VMM_CALL_SET_ACCESS:
      return vmm_set_access(driver, a_mapping, 2 * MIB);
    case VMM_CALL_MALLOC:
      return vmm_malloc(driver, 2 * MIB, &number);
    case VMM_CALL_FREE:
      return vmm_free(driver, a_memory);
    case VMM_CALL_MALLOC_ASYNC:
      return vmm_malloc_async(driver, 2 * MIB, 0, &number);
    case VMM_CALL_FREE_ASYNC:
      return vmm_free_async(driver, a_pooled, 0);
    case VMM_CALL_POOL_CONFIGURE:
      return vmm_pool_configure(driver, &configuration);
    case VMM_CALL_POOL_USAGE:
      return vmm_pool_usage_get(driver, &look);
    case VMM_CALL_POOL_TRIM:
      return vmm_pool_trim(driver, UINT64_MAX);
    case VMM_CALL_EVENT_RECORD:
      return vmm_event_record(driver, 0, &number);
    case VMM_CALL_EVENT_QUERY:
      return vmm_event_query(driver, an_event);
    case VMM_CALL_EVENT_WAIT:
      return vmm_event_wait(driver, an_event);
    case VMM_CALL_STREAM_WAIT_EVENT:
      return vmm_stream_wait_event(driver, 1, an_event);
    case VMM_CALL_SYNCHRONIZE:
      return vmm_synchronize(driver);
    case VMM_CALL_FILL:
      return vmm_fill(driver, a_memory, 64, 0, 1);
    case VMM_CALL_VERIFY:
      return vmm_verify(driver, a_memory, 64, 0, 1, &mismatch);
    case VMM_CALL_COUNT:
      break;
  }
  return VMM_UNKNOWN;
}

static vmm_driver *prepare(void) {
  vmm_driver *driver = make((vmm_sim_configuration){.backed = true});
  ck_assert_success(vmm_address_reserve(driver, 2 * MIB, 0, &a_reservation));
  ck_assert_success(vmm_address_reserve(driver, 2 * MIB, 0, &a_mapping));
  ck_assert_success(vmm_create(driver, 2 * MIB, &a_handle));
  ck_assert_success(vmm_map(driver, a_mapping, 2 * MIB, 0, a_handle));
  ck_assert_success(vmm_malloc(driver, 2 * MIB, &a_memory));
  ck_assert_success(vmm_malloc_async(driver, 2 * MIB, 0, &a_pooled));
  ck_assert_success(vmm_event_record(driver, 0, &an_event));
  return driver;
}

START_TEST(every_call_can_be_made_to_fail) {
  vmm_call call = (vmm_call)_i;
  vmm_driver *driver = prepare();
  vmm_sim_usage before, after;
  char text[200];
  vmm_sim_usage_get(driver, &before);
  ck_assert_success(vmm_sim_fail(driver, call, 1, VMM_LAUNCH_FAILED));
  ck_assert_status(one_call(driver, call), VMM_LAUNCH_FAILED);
  vmm_sim_usage_get(driver, &after);
  ck_assert_mem_eq(&before, &after, sizeof before);
  ck_assert_int_eq(driver->error.status, VMM_LAUNCH_FAILED);
  ck_assert_int_eq(driver->error.call, call);
  vmm_error_format(&driver->error, text, sizeof text);
  ck_assert_ptr_nonnull(strstr(text, vmm_call_name(call)));
  /* The same call then does its work as if nothing had been. */
  ck_assert_success(one_call(driver, call));
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(the_right_call_fails) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_handle handle;
  vmm_address address;
  ck_assert_success(vmm_create(driver, 2 * MIB, &handle));
  ck_assert_success(vmm_sim_fail(driver, VMM_CALL_CREATE, 3, VMM_OUT_OF_MEMORY));
  ck_assert_success(vmm_sim_fail(driver, VMM_CALL_CREATE, 5, VMM_UNKNOWN));
  ck_assert_success(vmm_sim_fail(driver, VMM_CALL_CREATE, 1, VMM_NOT_PERMITTED));
  ck_assert_success(vmm_sim_fail(driver, VMM_CALL_MALLOC, 2, VMM_OUT_OF_MEMORY));
  const vmm_status expected[] = {VMM_NOT_PERMITTED, VMM_SUCCESS, VMM_OUT_OF_MEMORY,
                                 VMM_SUCCESS,       VMM_UNKNOWN, VMM_SUCCESS};
  for (int i = 0; i < 6; i++) ck_assert_status(vmm_create(driver, 2 * MIB, &handle), expected[i]);
  ck_assert_success(vmm_malloc(driver, 512, &address));
  ck_assert_status(vmm_malloc(driver, 512, &address), VMM_OUT_OF_MEMORY);
  ck_assert_success(vmm_malloc(driver, 512, &address));
  /* Refused calls count too. */
  ck_assert_success(vmm_sim_fail(driver, VMM_CALL_CREATE, 2, VMM_UNKNOWN));
  ck_assert_status(vmm_create(driver, 0, &handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_create(driver, 2 * MIB, &handle), VMM_UNKNOWN);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(pending_failures_can_be_replaced_and_forgotten) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_handle handle;
  for (uint64_t k = 1; k <= 100; k++) {
    ck_assert_success(vmm_sim_fail(driver, VMM_CALL_CREATE, k, VMM_UNKNOWN));
    ck_assert_success(vmm_sim_fail(driver, VMM_CALL_CREATE, k, VMM_OUT_OF_MEMORY));
  }
  for (int i = 0; i < 50; i++) ck_assert_status(vmm_create(driver, 2 * MIB, &handle), VMM_OUT_OF_MEMORY);
  vmm_sim_fail_none(driver);
  ck_assert_success(vmm_create(driver, 2 * MIB, &handle));
  ck_assert_status(vmm_sim_fail(driver, VMM_CALL_CREATE, 0, VMM_UNKNOWN), VMM_INVALID_VALUE);
  ck_assert_status(vmm_sim_fail(driver, VMM_CALL_CREATE, 1, VMM_SUCCESS), VMM_INVALID_VALUE);
  ck_assert_status(vmm_sim_fail(driver, VMM_CALL_CREATE, UINT64_MAX, VMM_UNKNOWN), VMM_INVALID_VALUE);
  ck_assert_status(vmm_sim_fail(driver, VMM_CALL_COUNT, 1, VMM_UNKNOWN), VMM_INVALID_VALUE);
  ck_assert_success(vmm_create(driver, 2 * MIB, &handle));
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(without_a_profile_calls_are_free_of_charge) {
  vmm_driver *driver = prepare();
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) one_call(driver, (vmm_call)call);
  ck_assert_uint_eq(driver->busy_ns, 0);
  vmm_driver_destroy(driver);
}
END_TEST

static Suite *failures_suite(void) {
  Suite *suite = suite_create("vmm sim failures");
  TCase *tcase = tcase_create("injected failures");
  tcase_add_loop_test(tcase, every_call_can_be_made_to_fail, 0, VMM_CALL_COUNT);
  tcase_add_test(tcase, the_right_call_fails);
  tcase_add_test(tcase, pending_failures_can_be_replaced_and_forgotten);
  tcase_add_test(tcase, without_a_profile_calls_are_free_of_charge);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(failures_suite)
