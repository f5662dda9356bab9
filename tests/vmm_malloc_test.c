/* cuMemAlloc on the simulated device: the addresses of an H200, and what it takes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/vmm_conformance.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MEASURED "tests/data/vmm_h200_malloc_addresses.txt"

enum { IDS = 4000 };

/* A device like the H200, and where its upper first slot begins: 8 MiB of it are taken. */
static vmm_driver *new_process(vmm_address *upper) {
  vmm_driver *driver;
  ck_assert_success(vmm_sim_create(&(vmm_sim_configuration){.capacity = 139 * GIB}, &driver));
  ck_assert_success(vmm_malloc(driver, 20 * MIB, upper));
  ck_assert_success(vmm_free(driver, *upper));
  *upper -= 8 * MIB;
  return driver;
}

START_TEST(addresses_are_those_of_an_h200) {
  static vmm_address addresses[IDS];
  FILE *file = fopen(MEASURED, "r");
  ck_assert_ptr_nonnull(file);
  vmm_driver *driver = NULL;
  vmm_address upper = 0;
  char line[200], sequence[40] = "";
  int compared = 0, sequences = 0;
  while (fgets(line, sizeof line, file)) {
    uint64_t id, size;
    int64_t place;
    if (sscanf(line, "s %39s", sequence) == 1) {
      vmm_driver_destroy(driver);
      driver = new_process(&upper);
      sequences++;
    } else if (sscanf(line, "a %" SCNu64 " %" SCNu64 " %" SCNd64, &id, &size, &place) == 3) {
      ck_assert_uint_lt(id, IDS);
      ck_assert_success(vmm_malloc(driver, size, &addresses[id]));
      int64_t found = (int64_t)(addresses[id] - upper) / 512;
      ck_assert_msg(found == place,
                    "%s, allocation %" PRIu64 " of %" PRIu64 " bytes: at %" PRId64 ", the H200 had %" PRId64,
                    sequence, id, size, found, place);
      compared++;
    } else if (sscanf(line, "f %" SCNu64, &id) == 1) {
      ck_assert_success(vmm_free(driver, addresses[id]));
    }
  }
  vmm_driver_destroy(driver);
  fclose(file);
  ck_assert_int_eq(sequences, 6);
  ck_assert_int_gt(compared, 2000);
}
END_TEST

static uint64_t taken_by(vmm_driver *driver, uint64_t size, vmm_address *address) {
  uint64_t before = vmm_conformance_free_bytes(driver);
  ck_assert_success(vmm_malloc(driver, size, address));
  return before - vmm_conformance_free_bytes(driver);
}

/* As memory_info showed it on an H200. */
START_TEST(memory_is_taken_in_steps_of_2_mib) {
  vmm_address upper, address;
  vmm_driver *driver = new_process(&upper);
  ck_assert_uint_eq(taken_by(driver, 1, &address), 2 * MIB);
  ck_assert_uint_eq(taken_by(driver, 1, &address), 0);
  ck_assert_uint_eq(taken_by(driver, MIB, &address), 0);
  ck_assert_uint_eq(taken_by(driver, MIB, &address), 2 * MIB);
  ck_assert_uint_eq(taken_by(driver, 2 * MIB - 512, &address), 2 * MIB);
  ck_assert_uint_eq(taken_by(driver, 2 * MIB, &address), 2 * MIB);
  ck_assert_uint_eq(taken_by(driver, 2 * MIB + 1, &address), 4 * MIB);
  ck_assert_uint_eq(taken_by(driver, 20 * MIB, &address), 20 * MIB);
  ck_assert_uint_eq(taken_by(driver, 33 * MIB, &address), 34 * MIB);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(small_allocations_fill_the_device) {
  vmm_driver *driver;
  ck_assert_success(vmm_sim_create(&(vmm_sim_configuration){.capacity = 8 * MIB}, &driver));
  vmm_address address, first = 0;
  uint64_t count = 0;
  while (vmm_malloc(driver, 4096, &address) == VMM_SUCCESS) {
    if (count++ == 0) first = address;
  }
  ck_assert_uint_eq(count, 8 * MIB / 4096);
  ck_assert_int_eq(driver->error.status, VMM_OUT_OF_MEMORY);
  ck_assert_success(vmm_free(driver, first));
  ck_assert_success(vmm_malloc(driver, 4096, &address));
  ck_assert_uint_eq(address, first);
  vmm_driver_destroy(driver);
}
END_TEST

/* Everything given back: the same addresses again, however scrambled the order. */
START_TEST(giving_everything_back_leaves_nothing) {
  enum { COUNT = 500 };
  vmm_address upper, addresses[COUNT], first[COUNT];
  vmm_driver *driver = new_process(&upper);
  for (int lap = 0; lap < 4; lap++) {
    for (uint64_t i = 0; i < COUNT; i++) {
      uint64_t size = i % 3 ? 1 + i * 7919 % (3 * MIB) : 1 + i * 104729 % (90 * MIB);
      ck_assert_success(vmm_malloc(driver, size, &addresses[i]));
      if (lap == 0) first[i] = addresses[i];
      ck_assert_uint_eq(addresses[i], first[i]);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
      uint64_t place = i * 211 % COUNT;
      ck_assert_success(vmm_free(driver, addresses[lap % 2 ? place : COUNT - 1 - place]));
    }
    vmm_sim_usage usage;
    vmm_sim_usage_get(driver, &usage);
    ck_assert_mem_eq(&usage, &(vmm_sim_usage){0}, sizeof usage);
  }
  vmm_driver_destroy(driver);
}
END_TEST

static Suite *malloc_suite(void) {
  Suite *suite = suite_create("vmm malloc");
  TCase *tcase = tcase_create("cuMemAlloc");
  tcase_add_test(tcase, addresses_are_those_of_an_h200);
  tcase_add_test(tcase, memory_is_taken_in_steps_of_2_mib);
  tcase_add_test(tcase, small_allocations_fill_the_device);
  tcase_add_test(tcase, giving_everything_back_leaves_nothing);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(malloc_suite)
