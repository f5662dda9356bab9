/* The simulated device: configuration, addresses, what it holds, time, events, pool. */
#include "vmm/sim.h"

#include <string.h>

#include "tests/test_main.h"
#include "tests/vmm_conformance.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

static vmm_driver *make(vmm_sim_configuration configuration) {
  vmm_driver *driver = NULL;
  if (configuration.capacity == 0 && !configuration.profile) configuration.capacity = GIB;
  ck_assert_success(vmm_sim_create(&configuration, &driver));
  return driver;
}

static vmm_profile *load(const char *name) {
  vmm_profile *profile = NULL;
  char message[200];
  ck_assert_success(vmm_profile_load(name, &profile, message, sizeof message));
  return profile;
}

START_TEST(bad_configurations_are_refused) {
  vmm_profile *profile = load("h200");
  const vmm_sim_configuration bad[] = {
      {.capacity = 0},
      {.capacity = GIB, .granularity = 3 * MIB},
      {.capacity = GIB, .granularity = 2048},
      {.capacity = 4 * GIB, .granularity = 2 * GIB},
      {.capacity = GIB + 4096},
      {.capacity = GIB, .address_limit = MIB},
      {.capacity = 1024 * GIB},
      {.profile = profile, .capacity = 3 * MIB},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    vmm_driver *driver = (vmm_driver *)&driver;
    ck_assert_status(vmm_sim_create(&bad[i], &driver), VMM_INVALID_VALUE);
    ck_assert_ptr_null(driver);
  }
  ck_assert_status(vmm_sim_create(&bad[0], NULL), VMM_INVALID_VALUE);
  vmm_driver *driver;
  ck_assert_status(vmm_sim_create(NULL, &driver), VMM_INVALID_VALUE);
  vmm_profile_destroy(profile);
}
END_TEST

START_TEST(sizes_come_from_the_profile) {
  vmm_profile *profile = load("h200");
  vmm_driver *driver = make((vmm_sim_configuration){.profile = profile});
  uint64_t granularity, free_bytes, total_bytes;
  ck_assert_success(vmm_granularity(driver, &granularity));
  ck_assert_uint_eq(granularity, 2 * MIB);
  ck_assert_success(vmm_memory_info(driver, &free_bytes, &total_bytes));
  ck_assert_uint_eq(total_bytes, 150109880320);
  ck_assert_uint_eq(free_bytes, 149557477376 / (2 * MIB) * (2 * MIB));
  vmm_driver_destroy(driver);

  driver = make((vmm_sim_configuration){.profile = profile, .capacity = 80 * GIB, .granularity = 64 * 1024});
  ck_assert_success(vmm_granularity(driver, &granularity));
  ck_assert_uint_eq(granularity, 64 * 1024);
  ck_assert_success(vmm_memory_info(driver, &free_bytes, &total_bytes));
  ck_assert_uint_eq(total_bytes, 80 * GIB);
  ck_assert_uint_eq(free_bytes, 80 * GIB);
  vmm_driver_destroy(driver);
  vmm_profile_destroy(profile);
}
END_TEST

START_TEST(missing_places_for_results_are_refused) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  uint64_t bytes;
  ck_assert_status(vmm_granularity(driver, NULL), VMM_INVALID_VALUE);
  ck_assert_status(vmm_memory_info(driver, NULL, &bytes), VMM_INVALID_VALUE);
  ck_assert_status(vmm_memory_info(driver, &bytes, NULL), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_reserve(driver, 2 * MIB, 0, NULL), VMM_INVALID_VALUE);
  ck_assert_status(vmm_create(driver, 2 * MIB, NULL), VMM_INVALID_VALUE);
  ck_assert_status(vmm_malloc(driver, 2 * MIB, NULL), VMM_INVALID_VALUE);
  ck_assert_status(vmm_malloc_async(driver, 2 * MIB, 0, NULL), VMM_INVALID_VALUE);
  ck_assert_status(vmm_event_record(driver, 0, NULL), VMM_INVALID_VALUE);
  ck_assert_status(vmm_verify(driver, 2 * MIB, 8, 0, 0, NULL), VMM_INVALID_VALUE);
  vmm_driver_destroy(driver);
}
END_TEST

/* --- address space --- */

START_TEST(address_space_is_128_tib) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_address address;
  for (int i = 0; i < 126; i++) ck_assert_success(vmm_address_reserve(driver, TIB, 0, &address));
  ck_assert_status(vmm_address_reserve(driver, TIB, 0, &address), VMM_OUT_OF_MEMORY);
  ck_assert_status(vmm_address_reserve(driver, 2 * MIB, 0, &address), VMM_OUT_OF_MEMORY);
  ck_assert_success(vmm_malloc(driver, 512 * MIB, &address));
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(address_space_can_be_limited) {
  vmm_driver *driver = make((vmm_sim_configuration){.address_limit = 10 * MIB + 1});
  vmm_address first, second, third;
  ck_assert_success(vmm_address_reserve(driver, 4 * MIB, 0, &first));
  ck_assert_success(vmm_address_reserve(driver, 6 * MIB, 0, &second));
  ck_assert_status(vmm_address_reserve(driver, 2 * MIB, 0, &third), VMM_OUT_OF_MEMORY);
  ck_assert_success(vmm_address_free(driver, first, 4 * MIB));
  ck_assert_status(vmm_address_reserve(driver, 6 * MIB, 0, &third), VMM_OUT_OF_MEMORY);
  ck_assert_success(vmm_address_reserve(driver, 4 * MIB, 0, &third));
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(reservations_are_first_fit_from_the_bottom) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_address address[8], again;
  for (int i = 0; i < 8; i++) {
    ck_assert_success(vmm_address_reserve(driver, 4 * MIB, 0, &address[i]));
    ck_assert_uint_eq(address[i], address[0] + (uint64_t)i * 4 * MIB);
  }
  ck_assert_success(vmm_address_free(driver, address[5], 4 * MIB));
  ck_assert_success(vmm_address_free(driver, address[2], 4 * MIB));
  ck_assert_success(vmm_address_free(driver, address[1], 4 * MIB));
  ck_assert_success(vmm_address_reserve(driver, 6 * MIB, 0, &again));
  ck_assert_uint_eq(again, address[1]);
  ck_assert_success(vmm_address_reserve(driver, 4 * MIB, 0, &again));
  ck_assert_uint_eq(again, address[5]);
  ck_assert_success(vmm_address_reserve(driver, 2 * MIB, 16 * MIB, &again));
  ck_assert_uint_eq(again % (16 * MIB), 0);
  ck_assert_uint_ge(again, address[7] + 4 * MIB);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(ranges_across_reservations_are_refused) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_address first, second;
  vmm_handle pair, one;
  ck_assert_success(vmm_address_reserve(driver, 4 * MIB, 0, &first));
  ck_assert_success(vmm_address_reserve(driver, 4 * MIB, 0, &second));
  ck_assert_uint_eq(second, first + 4 * MIB);
  ck_assert_success(vmm_create(driver, 4 * MIB, &pair));
  ck_assert_success(vmm_create(driver, 2 * MIB, &one));
  ck_assert_status(vmm_map(driver, first + 2 * MIB, 4 * MIB, 0, pair), VMM_INVALID_VALUE);
  ck_assert_success(vmm_map(driver, first + 2 * MIB, 2 * MIB, 0, one));
  ck_assert_success(vmm_map(driver, second, 2 * MIB, 0, one));
  ck_assert_status(vmm_set_access(driver, first + 2 * MIB, 4 * MIB), VMM_INVALID_VALUE);
  ck_assert_status(vmm_unmap(driver, first + 2 * MIB, 4 * MIB), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_free(driver, first, 8 * MIB), VMM_INVALID_VALUE);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(access_over_a_hole_is_refused) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_address address;
  vmm_handle handle;
  ck_assert_success(vmm_address_reserve(driver, 8 * MIB, 0, &address));
  ck_assert_success(vmm_create(driver, 2 * MIB, &handle));
  ck_assert_success(vmm_map(driver, address, 2 * MIB, 0, handle));
  ck_assert_success(vmm_map(driver, address + 4 * MIB, 2 * MIB, 0, handle));
  ck_assert_status(vmm_set_access(driver, address, 6 * MIB), VMM_INVALID_VALUE);
  ck_assert(!vmm_sim_accessible(driver, address, 1));
  vmm_driver_destroy(driver);
}
END_TEST

/* --- what is behind an address --- */

START_TEST(aliases_are_the_same_bytes) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_address address, other, memory, pooled;
  vmm_handle a, b;
  ck_assert_success(vmm_address_reserve(driver, 8 * MIB, 0, &address));
  ck_assert_success(vmm_address_reserve(driver, 8 * MIB, 0, &other));
  ck_assert_success(vmm_create(driver, 2 * MIB, &a));
  ck_assert_success(vmm_create(driver, 4 * MIB, &b));
  ck_assert_success(vmm_map(driver, address, 2 * MIB, 0, a));
  ck_assert_success(vmm_map(driver, address + 2 * MIB, 4 * MIB, 0, b));
  ck_assert_success(vmm_map(driver, other, 4 * MIB, 0, b));
  ck_assert_success(vmm_map(driver, other + 4 * MIB, 2 * MIB, 0, a));
  ck_assert_success(vmm_malloc(driver, 3 * MIB, &memory));
  ck_assert_success(vmm_malloc_async(driver, 40 * MIB, 0, &pooled));
  ck_assert_uint_eq(vmm_sim_physical(driver, address + 5), vmm_sim_physical(driver, other + 4 * MIB + 5));
  ck_assert_uint_eq(vmm_sim_physical(driver, address + 5 * MIB), vmm_sim_physical(driver, other + 3 * MIB));
  ck_assert_uint_ne(vmm_sim_physical(driver, address), vmm_sim_physical(driver, other));
  ck_assert_uint_eq(vmm_sim_physical(driver, address + 6 * MIB), UINT64_MAX);
  ck_assert_uint_eq(vmm_sim_physical(driver, 5), UINT64_MAX);
  ck_assert_uint_eq(vmm_sim_physical(driver, UINT64_MAX), UINT64_MAX);
  ck_assert_uint_eq(vmm_sim_physical(driver, memory + MIB), vmm_sim_physical(driver, memory) + MIB);
  ck_assert_uint_eq(vmm_sim_physical(driver, pooled + 33 * MIB), vmm_sim_physical(driver, pooled) + 33 * MIB);
  ck_assert_uint_ne(vmm_sim_physical(driver, pooled), vmm_sim_physical(driver, memory));

  ck_assert(!vmm_sim_accessible(driver, address, 1));
  ck_assert_success(vmm_set_access(driver, address, 6 * MIB));
  ck_assert(vmm_sim_accessible(driver, address, 6 * MIB));
  ck_assert(vmm_sim_accessible(driver, address + 1, 6 * MIB - 1));
  ck_assert(!vmm_sim_accessible(driver, address + 1, 6 * MIB));
  ck_assert(!vmm_sim_accessible(driver, address, 0));
  ck_assert(!vmm_sim_accessible(driver, other, 1));
  ck_assert(vmm_sim_accessible(driver, memory, 3 * MIB));
  ck_assert(!vmm_sim_accessible(driver, memory, 5 * MIB));
  ck_assert(vmm_sim_accessible(driver, pooled, 40 * MIB));
  ck_assert(!vmm_sim_accessible(driver, pooled, 41 * MIB));
  ck_assert_success(vmm_unmap(driver, address, 2 * MIB));
  ck_assert_success(vmm_map(driver, address, 2 * MIB, 0, a));
  ck_assert(!vmm_sim_accessible(driver, address, 1));
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(usage_counts_everything) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_address address, memory, small, pooled;
  vmm_handle handle;
  vmm_event event;
  vmm_sim_usage usage;
  ck_assert_success(vmm_address_reserve(driver, 8 * MIB, 0, &address));
  ck_assert_success(vmm_create(driver, 2 * MIB, &handle));
  ck_assert_success(vmm_map(driver, address, 2 * MIB, 0, handle));
  ck_assert_success(vmm_map(driver, address + 2 * MIB, 2 * MIB, 0, handle));
  ck_assert_success(vmm_malloc(driver, 3 * MIB, &memory));
  ck_assert_success(vmm_malloc(driver, 5, &small));
  ck_assert_success(vmm_malloc_async(driver, 5, 0, &pooled));
  ck_assert_success(vmm_event_record(driver, 0, &event));
  vmm_sim_usage_get(driver, &usage);
  ck_assert_uint_eq(usage.physical_bytes, (2 + 4 + 2 + 32) * MIB);
  ck_assert_uint_eq(usage.reserved_address_bytes, 8 * MIB);
  ck_assert_uint_eq(usage.handles, 1);
  ck_assert_uint_eq(usage.mappings, 2);
  ck_assert_uint_eq(usage.reservations, 1);
  ck_assert_uint_eq(usage.mallocs, 2);
  ck_assert_uint_eq(usage.events, 1);
  ck_assert_uint_eq(usage.pool_bytes, 32 * MIB);
  ck_assert_uint_eq(usage.pool_allocations, 1);
  ck_assert_success(vmm_release(driver, handle));
  vmm_sim_usage_get(driver, &usage);
  ck_assert_uint_eq(usage.handles, 1);
  ck_assert_success(vmm_unmap(driver, address, 8 * MIB));
  ck_assert_success(vmm_address_free(driver, address, 8 * MIB));
  ck_assert_success(vmm_free(driver, memory));
  ck_assert_success(vmm_free(driver, small));
  ck_assert_success(vmm_free_async(driver, pooled, 0));
  vmm_event_discard(driver, event);
  vmm_event_discard(driver, event);
  vmm_sim_usage_get(driver, &usage);
  ck_assert_uint_eq(usage.pool_bytes, 32 * MIB);
  usage.pool_bytes = usage.physical_bytes = 0;
  ck_assert_mem_eq(&usage, &(vmm_sim_usage){0}, sizeof usage);
  vmm_driver_destroy(driver);
}
END_TEST

/* A name that is given out again is not the old one. */
START_TEST(old_names_stay_dead) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_handle old, new;
  ck_assert_success(vmm_create(driver, 2 * MIB, &old));
  ck_assert_success(vmm_release(driver, old));
  ck_assert_success(vmm_create(driver, 2 * MIB, &new));
  ck_assert_uint_ne(old, new);
  ck_assert_status(vmm_release(driver, old), VMM_INVALID_VALUE);
  ck_assert_success(vmm_release(driver, new));
  vmm_event first, second;
  ck_assert_success(vmm_event_record(driver, 0, &first));
  vmm_event_discard(driver, first);
  ck_assert_success(vmm_event_record(driver, 0, &second));
  ck_assert_uint_ne(first, second);
  ck_assert_status(vmm_event_query(driver, first), VMM_INVALID_HANDLE);
  vmm_event_discard(driver, first);
  ck_assert_success(vmm_event_query(driver, second));
  vmm_driver_destroy(driver);
}
END_TEST

/* --- modelled time --- */

START_TEST(calls_cost_what_the_profile_says) {
  vmm_profile *profile = load("h200");
  vmm_driver *driver = make((vmm_sim_configuration){.profile = profile});
  vmm_address address, memory;
  vmm_handle handle[4];
  uint64_t expected = 0;
#define COST(call, size, live) vmm_profile_cost_ns(profile, VMM_CALL_##call, size, live)
  ck_assert_success(vmm_address_reserve(driver, 64 * MIB, 0, &address));
  expected += COST(ADDRESS_RESERVE, 64 * MIB, 0);
  for (uint64_t i = 0; i < 4; i++) {
    ck_assert_success(vmm_create(driver, 16 * MIB, &handle[i]));
    expected += COST(CREATE, 16 * MIB, i);
    ck_assert_success(vmm_map(driver, address + i * 16 * MIB, 16 * MIB, 0, handle[i]));
    expected += COST(MAP, 16 * MIB, i + 1);
  }
  ck_assert_success(vmm_set_access(driver, address, 64 * MIB));
  expected += 4 * COST(SET_ACCESS, 16 * MIB, 4);
  ck_assert_uint_eq(driver->busy_ns, expected);
  ck_assert_success(vmm_release(driver, handle[0])); /* mapped: its memory goes with the mapping */
  expected += COST(RELEASE, 0, 4);
  ck_assert_success(vmm_unmap(driver, address, 16 * MIB));
  expected += COST(UNMAP, 16 * MIB, 4) + COST(RELEASE, 16 * MIB, 4);
  ck_assert_success(vmm_unmap(driver, address, 64 * MIB));
  expected += 3 * COST(UNMAP, 16 * MIB, 3);
  for (uint64_t i = 1; i < 4; i++) {
    ck_assert_success(vmm_release(driver, handle[i]));
    expected += COST(RELEASE, 16 * MIB, 4 - i);
  }
  ck_assert_success(vmm_address_free(driver, address, 64 * MIB));
  expected += COST(ADDRESS_FREE, 64 * MIB, 0);
  ck_assert_uint_eq(driver->busy_ns, expected);
  ck_assert_success(vmm_malloc(driver, 512 * MIB, &memory));
  ck_assert_success(vmm_free(driver, memory));
  expected += COST(MALLOC, 512 * MIB, 0) + COST(FREE, 512 * MIB, 0);
  ck_assert_uint_eq(driver->busy_ns, expected);
  ck_assert_status(vmm_create(driver, 1, &handle[0]), VMM_INVALID_VALUE);
  expected += COST(CREATE, 0, 0);
  ck_assert_status(vmm_malloc(driver, TIB, &memory), VMM_OUT_OF_MEMORY);
  expected += COST(MALLOC, 0, 0);
  ck_assert_uint_eq(driver->busy_ns, expected);
#undef COST
  vmm_driver_destroy(driver);
  vmm_profile_destroy(profile);
}
END_TEST

/* --- events --- */

START_TEST(events_take_their_ticks) {
  vmm_driver *driver = make((vmm_sim_configuration){.event_delay = 3});
  vmm_event first, second, third;
  ck_assert_success(vmm_event_record(driver, 0, &first));
  vmm_sim_tick(driver);
  ck_assert_success(vmm_event_record(driver, 1, &second));
  ck_assert_status(vmm_event_query(driver, first), VMM_NOT_READY);
  ck_assert_int_eq(driver->error.status, VMM_SUCCESS);
  vmm_sim_tick(driver);
  ck_assert_status(vmm_event_query(driver, first), VMM_NOT_READY);
  vmm_sim_tick(driver);
  ck_assert_success(vmm_event_query(driver, first));
  ck_assert_status(vmm_event_query(driver, second), VMM_NOT_READY);
  ck_assert_success(vmm_event_wait(driver, second));
  ck_assert_success(vmm_event_query(driver, second));
  ck_assert_success(vmm_event_record(driver, 0, &first));
  ck_assert_success(vmm_event_record(driver, 2, &third));
  ck_assert_status(vmm_event_query(driver, third), VMM_NOT_READY);
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_success(vmm_event_query(driver, third));
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(freeing_waits_for_the_device) {
  vmm_driver *driver = make((vmm_sim_configuration){.event_delay = 1000});
  vmm_address memory;
  vmm_event event;
  ck_assert_success(vmm_malloc(driver, 2 * MIB, &memory));
  ck_assert_success(vmm_event_record(driver, 5, &event));
  ck_assert_status(vmm_event_query(driver, event), VMM_NOT_READY);
  ck_assert_success(vmm_free(driver, memory));
  ck_assert_success(vmm_event_query(driver, event));
  vmm_driver_destroy(driver);
}
END_TEST

/* --- the pool --- */

START_TEST(pool_grows_by_32_mib_in_one_range) {
  vmm_driver *driver = make((vmm_sim_configuration){0});
  vmm_address first, second, third;
  vmm_sim_usage usage;
  ck_assert_success(vmm_malloc_async(driver, 40 * MIB, 0, &first));
  vmm_sim_usage_get(driver, &usage);
  ck_assert_uint_eq(usage.pool_bytes, 64 * MIB);
  ck_assert_success(vmm_malloc_async(driver, 40 * MIB, 0, &second));
  ck_assert_uint_eq(second, first + 40 * MIB);
  vmm_sim_usage_get(driver, &usage);
  ck_assert_uint_eq(usage.pool_bytes, 96 * MIB);
  ck_assert_success(vmm_malloc_async(driver, 513, 0, &third));
  ck_assert_uint_eq(third, second + 40 * MIB);
  ck_assert_success(vmm_malloc_async(driver, 1, 0, &third));
  ck_assert_uint_eq(third, second + 40 * MIB + 1024);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(pool_reuses_across_streams_when_the_free_is_done) {
  vmm_driver *driver = make((vmm_sim_configuration){.event_delay = 2});
  vmm_address first, second, third;
  ck_assert_success(vmm_malloc_async(driver, 10 * MIB, 0, &first));
  ck_assert_success(vmm_free_async(driver, first, 0));
  ck_assert_success(vmm_malloc_async(driver, 10 * MIB, 1, &second));
  ck_assert_uint_ne(second, first);
  ck_assert_success(vmm_malloc_async(driver, 4 * MIB, 0, &third)); /* its own stream may */
  ck_assert_uint_eq(third, first);
  vmm_sim_tick(driver);
  vmm_sim_tick(driver);
  ck_assert_success(vmm_malloc_async(driver, 6 * MIB, 1, &third)); /* the rest of it */
  ck_assert_uint_eq(third, first + 4 * MIB);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(pool_fails_when_the_device_is_full) {
  vmm_driver *driver = make((vmm_sim_configuration){.capacity = 128 * MIB});
  vmm_address first, second;
  ck_assert_success(vmm_malloc_async(driver, 96 * MIB, 0, &first));
  ck_assert_status(vmm_malloc_async(driver, 33 * MIB, 0, &second), VMM_OUT_OF_MEMORY);
  ck_assert_status(vmm_malloc(driver, 34 * MIB, &second), VMM_OUT_OF_MEMORY);
  ck_assert_success(vmm_malloc_async(driver, 32 * MIB, 0, &second));
  ck_assert_success(vmm_free_async(driver, first, 0));
  ck_assert_success(vmm_free_async(driver, second, 0));
  ck_assert_success(vmm_malloc_async(driver, 128 * MIB, 0, &second));
  ck_assert_uint_eq(first, second);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(many_devices_live_side_by_side) {
  vmm_driver *drivers[8];
  vmm_address address[8];
  for (int i = 0; i < 8; i++) {
    drivers[i] = make((vmm_sim_configuration){.backed = i % 2 == 0});
    ck_assert_success(vmm_malloc(drivers[i], 4 * MIB, &address[i]));
  }
  for (int i = 0; i < 8; i++) {
    vmm_status status = vmm_fill(drivers[i], address[i], 4 * MIB, 0, (uint64_t)i);
    ck_assert_status(status, i % 2 == 0 ? VMM_SUCCESS : VMM_NOT_SUPPORTED);
  }
  for (int i = 0; i < 8; i += 2) {
    vmm_mismatch mismatch;
    ck_assert_success(vmm_verify(drivers[i], address[i], 4 * MIB, 0, (uint64_t)i, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 0);
  }
  for (int i = 0; i < 8; i++) vmm_driver_destroy(drivers[i]);
}
END_TEST

static Suite *sim_suite(void) {
  Suite *suite = suite_create("vmm sim");
  TCase *tcase = tcase_create("configuration");
  tcase_add_test(tcase, bad_configurations_are_refused);
  tcase_add_test(tcase, sizes_come_from_the_profile);
  tcase_add_test(tcase, missing_places_for_results_are_refused);
  tcase_add_test(tcase, many_devices_live_side_by_side);
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("address space");
  tcase_add_test(tcase, address_space_is_128_tib);
  tcase_add_test(tcase, address_space_can_be_limited);
  tcase_add_test(tcase, reservations_are_first_fit_from_the_bottom);
  tcase_add_test(tcase, ranges_across_reservations_are_refused);
  tcase_add_test(tcase, access_over_a_hole_is_refused);
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("contents");
  tcase_add_test(tcase, aliases_are_the_same_bytes);
  tcase_add_test(tcase, usage_counts_everything);
  tcase_add_test(tcase, old_names_stay_dead);
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("time");
  tcase_add_test(tcase, calls_cost_what_the_profile_says);
  tcase_add_test(tcase, events_take_their_ticks);
  tcase_add_test(tcase, freeing_waits_for_the_device);
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("pool");
  tcase_add_test(tcase, pool_grows_by_32_mib_in_one_range);
  tcase_add_test(tcase, pool_reuses_across_streams_when_the_free_is_done);
  tcase_add_test(tcase, pool_fails_when_the_device_is_full);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(sim_suite)
