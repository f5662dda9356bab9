/* The simulated device with real pages: what is written through one address is read through
 * another, and what has no access cannot be touched. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test_main.h"
#include "tests/vmm_conformance.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static vmm_driver *make(uint64_t capacity) {
  vmm_driver *driver = NULL;
  ck_assert_success(vmm_sim_create(&(vmm_sim_configuration){.capacity = capacity, .backed = true}, &driver));
  return driver;
}

static unsigned char *at(vmm_address address) { return (unsigned char *)(uintptr_t)address; }

/* Does touching an address end a process? */
static bool touching_faults(vmm_address address, bool writing) {
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    volatile unsigned char *byte = at(address);
    if (writing) {
      *byte = 1;
    } else {
      (void)*byte;
    }
    _exit(0);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status);
}

START_TEST(stitched_memory_aliases) {
  vmm_driver *driver = make(256 * MIB);
  enum { CHUNKS = 16 };
  vmm_handle handles[CHUNKS];
  vmm_address forward, backward;
  ck_assert_success(vmm_address_reserve(driver, CHUNKS * 2 * MIB, 0, &forward));
  ck_assert_success(vmm_address_reserve(driver, CHUNKS * 2 * MIB, 0, &backward));
  for (uint64_t i = 0; i < CHUNKS; i++) {
    ck_assert_success(vmm_create(driver, 2 * MIB, &handles[i]));
    ck_assert_success(vmm_map(driver, forward + i * 2 * MIB, 2 * MIB, 0, handles[i]));
    ck_assert_success(vmm_map(driver, backward + (CHUNKS - 1 - i) * 2 * MIB, 2 * MIB, 0, handles[i]));
  }
  ck_assert_success(vmm_set_access(driver, forward, CHUNKS * 2 * MIB));
  ck_assert_success(vmm_set_access(driver, backward, CHUNKS * 2 * MIB));
  for (uint64_t i = 0; i < CHUNKS; i++) memset(at(forward + i * 2 * MIB), (int)i + 1, 2 * MIB);
  for (uint64_t i = 0; i < CHUNKS; i++) {
    const unsigned char *chunk = at(backward + (CHUNKS - 1 - i) * 2 * MIB);
    ck_assert_uint_eq(chunk[0], i + 1);
    ck_assert_uint_eq(chunk[2 * MIB - 1], i + 1);
  }
  strcpy((char *)at(backward + 2 * MIB - 3), "across"); /* over the seam of two chunks */
  ck_assert_mem_eq(at(forward + CHUNKS * 2 * MIB - 3), "acr", 3);
  ck_assert_mem_eq(at(forward + (CHUNKS - 2) * 2 * MIB), "oss", 4);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(access_is_what_makes_memory_touchable) {
  vmm_driver *driver = make(64 * MIB);
  vmm_address address;
  vmm_handle handle;
  ck_assert_success(vmm_address_reserve(driver, 4 * MIB, 0, &address));
  ck_assert(touching_faults(address, false));
  ck_assert_success(vmm_create(driver, 2 * MIB, &handle));
  ck_assert_success(vmm_map(driver, address, 2 * MIB, 0, handle));
  ck_assert(touching_faults(address, false));
  ck_assert(touching_faults(address + 2 * MIB - 1, true));
  ck_assert_success(vmm_set_access(driver, address, 2 * MIB));
  ck_assert(!touching_faults(address, false));
  ck_assert(!touching_faults(address + 2 * MIB - 1, true));
  ck_assert(touching_faults(address + 2 * MIB, false));
  ck_assert_success(vmm_unmap(driver, address, 2 * MIB));
  ck_assert(touching_faults(address, false));
  ck_assert_success(vmm_map(driver, address, 2 * MIB, 0, handle));
  ck_assert(touching_faults(address, false));
  vmm_address memory;
  ck_assert_success(vmm_malloc(driver, 4 * MIB, &memory));
  ck_assert(!touching_faults(memory + 4 * MIB - 1, true));
  ck_assert(touching_faults(memory + 4 * MIB, true));
  ck_assert_success(vmm_free(driver, memory));
  ck_assert(touching_faults(memory, false));
  ck_assert_success(vmm_malloc_async(driver, 1 * MIB, 0, &memory));
  ck_assert(!touching_faults(memory, true));
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(memory_outlives_its_handle_and_its_first_address) {
  vmm_driver *driver = make(64 * MIB);
  vmm_address first, second;
  vmm_handle handle;
  ck_assert_success(vmm_address_reserve(driver, 2 * MIB, 0, &first));
  ck_assert_success(vmm_address_reserve(driver, 2 * MIB, 0, &second));
  ck_assert_success(vmm_create(driver, 2 * MIB, &handle));
  ck_assert_success(vmm_map(driver, first, 2 * MIB, 0, handle));
  ck_assert_success(vmm_set_access(driver, first, 2 * MIB));
  strcpy((char *)at(first), "still here");
  ck_assert_success(vmm_map(driver, second, 2 * MIB, 0, handle));
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_success(vmm_unmap(driver, first, 2 * MIB));
  ck_assert_success(vmm_address_free(driver, first, 2 * MIB));
  ck_assert_success(vmm_set_access(driver, second, 2 * MIB));
  ck_assert_str_eq((char *)at(second), "still here");
  vmm_driver_destroy(driver);
}
END_TEST

/* KiB of shared memory of this process, from the kernel. */
static long shared_kib(void) {
  char line[200];
  long kib = -1;
  FILE *file = fopen("/proc/self/status", "r");
  ck_assert_ptr_nonnull(file);
  while (fgets(line, sizeof line, file)) sscanf(line, "RssShmem: %ld kB", &kib);
  fclose(file);
  return kib;
}

START_TEST(freed_memory_goes_back_to_the_host) {
  vmm_driver *driver = make(512 * MIB);
  long before = shared_kib();
  if (before < 0) {
    vmm_driver_destroy(driver);
    test_skip("/proc/self/status has no RssShmem");
  }
  vmm_address memory;
  for (int lap = 0; lap < 3; lap++) {
    ck_assert_success(vmm_malloc(driver, 64 * MIB, &memory));
    memset(at(memory), 1, 64 * MIB);
    ck_assert_int_ge(shared_kib() - before, 64 * 1024);
    ck_assert_success(vmm_free(driver, memory));
    ck_assert_int_lt(shared_kib() - before, 8 * 1024);
  }
  vmm_driver_destroy(driver);
}
END_TEST

/* A device larger than the host: only what is touched takes memory. */
START_TEST(large_devices_are_sparse) {
  vmm_driver *driver = make(128 * GIB);
  vmm_address address, memory;
  vmm_handle handle;
  ck_assert_success(vmm_address_reserve(driver, 64 * GIB, 0, &address));
  ck_assert_success(vmm_create(driver, 64 * GIB, &handle));
  ck_assert_success(vmm_map(driver, address, 64 * GIB, 0, handle));
  ck_assert_success(vmm_set_access(driver, address, 64 * GIB));
  ck_assert_success(vmm_malloc(driver, 32 * GIB, &memory));
  vmm_mismatch mismatch;
  ck_assert_success(vmm_fill(driver, address + 63 * GIB, 4096, 0, 5));
  ck_assert_success(vmm_fill(driver, memory + 31 * GIB, 4096, 0, 6));
  ck_assert_success(vmm_verify(driver, address + 63 * GIB, 4096, 0, 5, &mismatch));
  ck_assert_uint_eq(mismatch.wrong_words, 0);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(fill_and_verify_want_accessible_memory) {
  vmm_driver *driver = make(64 * MIB);
  vmm_address address, memory;
  vmm_handle handle;
  vmm_mismatch mismatch;
  ck_assert_success(vmm_address_reserve(driver, 4 * MIB, 0, &address));
  ck_assert_success(vmm_create(driver, 2 * MIB, &handle));
  ck_assert_success(vmm_map(driver, address, 2 * MIB, 0, handle));
  ck_assert_status(vmm_fill(driver, address, 8, 0, 1), VMM_ILLEGAL_ADDRESS);
  ck_assert_success(vmm_set_access(driver, address, 2 * MIB));
  ck_assert_success(vmm_fill(driver, address, 2 * MIB, 0, 1));
  ck_assert_status(vmm_fill(driver, address, 2 * MIB + 1, 0, 1), VMM_ILLEGAL_ADDRESS);
  ck_assert_status(vmm_verify(driver, address + 2 * MIB, 8, 0, 1, &mismatch), VMM_ILLEGAL_ADDRESS);
  ck_assert_status(vmm_fill(driver, 4096, 8, 0, 1), VMM_ILLEGAL_ADDRESS);
  ck_assert_success(vmm_malloc(driver, 700, &memory));
  ck_assert_success(vmm_fill(driver, memory, 1024, 0, 1));
  ck_assert_status(vmm_fill(driver, memory, 1025, 0, 1), VMM_ILLEGAL_ADDRESS);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(verify_finds_single_bits_at_any_length) {
  vmm_driver *driver = make(64 * MIB);
  vmm_address memory;
  vmm_mismatch mismatch;
  ck_assert_success(vmm_malloc(driver, 4096, &memory));
  for (uint64_t size = 1; size < 64; size++) {
    ck_assert_success(vmm_fill(driver, memory, 4096, 0, 99));
    ck_assert_success(vmm_fill(driver, memory, size, 0, size));
    ck_assert_success(vmm_verify(driver, memory, size, 0, size, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 0);
    uint64_t guard = vmm_pattern_word(99, size / 8), found; /* nothing behind the end is written */
    memcpy(&found, at(memory + size / 8 * 8), 8);
    ck_assert_uint_eq(found >> (size % 8 * 8), guard >> (size % 8 * 8));
    *at(memory + size - 1) ^= 16;
    ck_assert_success(vmm_verify(driver, memory, size, 0, size, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 1);
    ck_assert_uint_eq(mismatch.first_offset, (size - 1) / 8 * 8);
    ck_assert_uint_eq(mismatch.expected ^ mismatch.found, UINT64_C(16) << ((size - 1) % 8 * 8));
  }
  vmm_driver_destroy(driver);
}
END_TEST

static Suite *backed_suite(void) {
  Suite *suite = suite_create("vmm backed");
  TCase *tcase = tcase_create("pages");
  tcase_add_test(tcase, stitched_memory_aliases);
  tcase_add_test(tcase, access_is_what_makes_memory_touchable);
  tcase_add_test(tcase, memory_outlives_its_handle_and_its_first_address);
  tcase_add_test(tcase, freed_memory_goes_back_to_the_host);
  tcase_add_test(tcase, large_devices_are_sparse);
  tcase_add_test(tcase, fill_and_verify_want_accessible_memory);
  tcase_add_test(tcase, verify_finds_single_bits_at_any_length);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(backed_suite)
