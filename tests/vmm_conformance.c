#include "tests/vmm_conformance.h"

#include <stdlib.h>

enum { MANY = 16 };

#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

static uint64_t granularity_of(vmm_driver *driver) {
  uint64_t bytes = 0;
  ck_assert_success(vmm_granularity(driver, &bytes));
  ck_assert_uint_gt(bytes, 0);
  ck_assert_uint_eq(bytes & (bytes - 1), 0);
  return bytes;
}

uint64_t vmm_conformance_free_bytes(vmm_driver *driver) {
  uint64_t free_bytes = 0, total_bytes = 0;
  ck_assert_success(vmm_memory_info(driver, &free_bytes, &total_bytes));
  ck_assert_uint_le(free_bytes, total_bytes);
  return free_bytes;
}

static vmm_address reserve(vmm_driver *driver, uint64_t size) {
  vmm_address address = 0;
  ck_assert_success(vmm_address_reserve(driver, size, 0, &address));
  ck_assert_uint_ne(address, 0);
  ck_assert_uint_eq(address % granularity_of(driver), 0);
  return address;
}

static vmm_handle create(vmm_driver *driver, uint64_t size) {
  vmm_handle handle = 0;
  ck_assert_success(vmm_create(driver, size, &handle));
  ck_assert_uint_ne(handle, 0);
  return handle;
}

/* Is something mapped at this one granule? A second mapping is refused exactly then. */
static bool is_mapped(vmm_driver *driver, vmm_address address) {
  uint64_t granule = granularity_of(driver);
  vmm_handle probe = create(driver, granule);
  vmm_status status = vmm_map(driver, address, granule, 0, probe);
  if (status == VMM_SUCCESS) ck_assert_success(vmm_unmap(driver, address, granule));
  if (status != VMM_SUCCESS) ck_assert_status(status, VMM_INVALID_VALUE);
  ck_assert_success(vmm_release(driver, probe));
  vmm_error_clear(driver);
  return status != VMM_SUCCESS;
}

static void round_trip(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver), before = vmm_conformance_free_bytes(driver);
  vmm_address address = reserve(driver, MANY * granule);
  vmm_handle handles[MANY];
  for (int i = 0; i < MANY; i++) {
    handles[i] = create(driver, granule);
    ck_assert_success(vmm_map(driver, address + (uint64_t)i * granule, granule, 0, handles[i]));
  }
  ck_assert_success(vmm_set_access(driver, address, MANY * granule));
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before - MANY * granule);
  ck_assert_success(vmm_unmap(driver, address, MANY * granule));
  for (int i = 0; i < MANY; i++) ck_assert_success(vmm_release(driver, handles[i]));
  ck_assert_success(vmm_address_free(driver, address, MANY * granule));
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before);
  ck_assert_int_eq(driver->error.status, VMM_SUCCESS);
}

static void reserve_refuses_bad_sizes(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = 0;
  ck_assert_status(vmm_address_reserve(driver, 0, 0, &address), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_reserve(driver, granule + 4096, 0, &address), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_reserve(driver, granule / 2, 0, &address), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_reserve(driver, granule, 3, &address), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_reserve(driver, granule, 3 * granule, &address), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_reserve(driver, 200 * TIB, 0, &address), VMM_OUT_OF_MEMORY);
}

static void reserve_aligns(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address first = reserve(driver, granule);
  vmm_address aligned[3];
  for (int i = 0; i < 3; i++) {
    uint64_t alignment = GIB << (2 * i);
    ck_assert_success(vmm_address_reserve(driver, granule, alignment, &aligned[i]));
    ck_assert_uint_eq(aligned[i] % alignment, 0);
  }
  for (int i = 0; i < 3; i++) ck_assert_success(vmm_address_free(driver, aligned[i], granule));
  vmm_address small;
  ck_assert_success(vmm_address_reserve(driver, granule, 4096, &small));
  ck_assert_uint_eq(small % granule, 0);
  ck_assert_success(vmm_address_free(driver, small, granule));
  ck_assert_success(vmm_address_free(driver, first, granule));
}

static void reservations_do_not_overlap(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address[MANY];
  for (int i = 0; i < MANY; i++) address[i] = reserve(driver, (uint64_t)(i + 1) * granule);
  for (int i = 0; i < MANY; i++) {
    for (int k = 0; k < i; k++) {
      uint64_t size_i = (uint64_t)(i + 1) * granule, size_k = (uint64_t)(k + 1) * granule;
      ck_assert(address[i] + size_i <= address[k] || address[k] + size_k <= address[i]);
    }
  }
  for (int i = 0; i < MANY; i++)
    ck_assert_success(vmm_address_free(driver, address[i], (uint64_t)(i + 1) * granule));
}

static void address_free_wants_a_whole_empty_reservation(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = reserve(driver, 4 * granule);
  vmm_handle handle = create(driver, granule);
  ck_assert_success(vmm_map(driver, address + granule, granule, 0, handle));
  ck_assert_status(vmm_address_free(driver, address, 4 * granule), VMM_INVALID_VALUE);
  ck_assert_success(vmm_unmap(driver, address + granule, granule));
  ck_assert_status(vmm_address_free(driver, address, 2 * granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_free(driver, address, 8 * granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_free(driver, address, 0), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_free(driver, address + 2 * granule, 2 * granule), VMM_INVALID_VALUE);
  ck_assert_success(vmm_address_free(driver, address, 4 * granule));
  ck_assert_status(vmm_address_free(driver, address, 4 * granule), VMM_INVALID_VALUE);
  ck_assert_success(vmm_release(driver, handle));
}

static void create_refuses_bad_sizes(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_handle handle;
  ck_assert_status(vmm_create(driver, 0, &handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_create(driver, granule + 1, &handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_create(driver, granule / 2, &handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_create(driver, TIB, &handle), VMM_OUT_OF_MEMORY);
  ck_assert_status(vmm_create(driver, UINT64_C(1) << 63, &handle), VMM_OUT_OF_MEMORY);
}

static void release_without_a_reference_is_refused(vmm_driver *driver) {
  vmm_handle handle = create(driver, granularity_of(driver));
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_status(vmm_release(driver, handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_release(driver, 0), VMM_INVALID_VALUE);
}

static void map_onto_a_mapping_is_refused(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = reserve(driver, 4 * granule);
  vmm_handle first = create(driver, granule), second = create(driver, granule),
             wide = create(driver, 2 * granule);
  ck_assert_success(vmm_map(driver, address + granule, granule, 0, first));
  ck_assert_status(vmm_map(driver, address + granule, granule, 0, second), VMM_INVALID_VALUE);
  ck_assert_status(vmm_map(driver, address + granule, granule, 0, first), VMM_INVALID_VALUE);
  ck_assert_status(vmm_map(driver, address, 2 * granule, 0, wide), VMM_INVALID_VALUE);
  ck_assert_status(vmm_map(driver, address + granule, 2 * granule, 0, wide), VMM_INVALID_VALUE);
  ck_assert_success(vmm_map(driver, address + 2 * granule, 2 * granule, 0, wide));
  ck_assert_success(vmm_unmap(driver, address, 4 * granule));
  ck_assert_success(vmm_release(driver, first));
  ck_assert_success(vmm_release(driver, second));
  ck_assert_success(vmm_release(driver, wide));
  ck_assert_success(vmm_address_free(driver, address, 4 * granule));
}

static void map_refuses_parts_of_a_handle(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = reserve(driver, 8 * granule);
  vmm_handle handle = create(driver, 2 * granule), other = create(driver, granule);
  ck_assert_status(vmm_map(driver, address, granule, granule, handle), VMM_NOT_SUPPORTED);
  ck_assert_status(vmm_map(driver, address, 2 * granule, 2 * granule, handle), VMM_NOT_SUPPORTED);
  ck_assert_status(vmm_map(driver, address, 2 * granule, 4096, handle), VMM_NOT_SUPPORTED);
  ck_assert_status(vmm_map(driver, address, granule, 0, handle), VMM_NOT_SUPPORTED);
  ck_assert_status(vmm_map(driver, address, 4 * granule, 0, handle), VMM_NOT_SUPPORTED);
  ck_assert_status(vmm_map(driver, address, 2 * granule - 4096, 0, handle), VMM_NOT_SUPPORTED);
  ck_assert_status(vmm_map(driver, address, 0, 0, handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_map(driver, address + 4096, 2 * granule, 0, handle), VMM_INVALID_VALUE);
  /* The handle is looked at before the place. */
  ck_assert_success(vmm_map(driver, address, granule, 0, other));
  ck_assert_status(vmm_map(driver, address, 2 * granule, 2 * granule, handle), VMM_NOT_SUPPORTED);
  ck_assert_status(vmm_map(driver, address, granule, 0, handle), VMM_NOT_SUPPORTED);
  ck_assert_success(vmm_unmap(driver, address, granule));
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_success(vmm_release(driver, other));
  ck_assert_success(vmm_address_free(driver, address, 8 * granule));
}

static void map_wants_a_reservation(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = reserve(driver, granule);
  ck_assert_success(vmm_address_free(driver, address, granule));
  vmm_handle handle = create(driver, granule);
  ck_assert_status(vmm_map(driver, address + TIB, granule, 0, handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_map(driver, 0, granule, 0, handle), VMM_INVALID_VALUE);
  vmm_address memory;
  ck_assert_success(vmm_malloc(driver, 2 * granule, &memory));
  ck_assert_status(vmm_map(driver, memory, granule, 0, handle), VMM_INVALID_VALUE);
  ck_assert_success(vmm_free(driver, memory));
  ck_assert_success(vmm_release(driver, handle));
}

static void a_released_handle_cannot_be_mapped(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = reserve(driver, 2 * granule);
  vmm_handle handle = create(driver, granule);
  ck_assert_success(vmm_map(driver, address, granule, 0, handle));
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_status(vmm_release(driver, handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_map(driver, address + granule, granule, 0, handle), VMM_NOT_SUPPORTED);
  ck_assert_success(vmm_unmap(driver, address, granule));
  ck_assert_status(vmm_map(driver, address, granule, 0, handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_map(driver, address, granule, 0, 0), VMM_INVALID_VALUE);
  ck_assert_success(vmm_address_free(driver, address, 2 * granule));
}

static void release_while_mapped_keeps_the_memory(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver), before = vmm_conformance_free_bytes(driver);
  vmm_address address = reserve(driver, 2 * granule);
  vmm_handle handle = create(driver, granule);
  ck_assert_success(vmm_map(driver, address, granule, 0, handle));
  ck_assert_success(vmm_map(driver, address + granule, granule, 0, handle));
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before - granule);
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before - granule);
  ck_assert_success(vmm_set_access(driver, address, 2 * granule));
  ck_assert_success(vmm_unmap(driver, address, granule));
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before - granule);
  ck_assert_success(vmm_unmap(driver, address + granule, granule));
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before);
  ck_assert_success(vmm_address_free(driver, address, 2 * granule));
}

static void a_handle_can_be_mapped_many_times(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver), before = vmm_conformance_free_bytes(driver);
  vmm_address address = reserve(driver, 65 * granule);
  vmm_handle handle = create(driver, granule);
  for (uint64_t i = 0; i < 65; i++)
    ck_assert_success(vmm_map(driver, address + i * granule, granule, 0, handle));
  ck_assert_success(vmm_set_access(driver, address, 65 * granule));
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before - granule);
  ck_assert_success(vmm_unmap(driver, address, 65 * granule));
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_success(vmm_address_free(driver, address, 65 * granule));
}

static void unmap_wants_whole_mappings(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = reserve(driver, 16 * granule);
  vmm_handle pair = create(driver, 2 * granule), one = create(driver, granule), two = create(driver, granule);
  ck_assert_success(vmm_map(driver, address, granule, 0, one));
  ck_assert_success(vmm_map(driver, address + 2 * granule, granule, 0, two));
  ck_assert_success(vmm_map(driver, address + 5 * granule, 2 * granule, 0, pair));
  ck_assert_status(vmm_unmap(driver, address + 5 * granule, granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_unmap(driver, address + 6 * granule, granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_unmap(driver, address, 0), VMM_INVALID_VALUE);
  ck_assert_status(vmm_unmap(driver, address, granule / 2), VMM_INVALID_VALUE);
  ck_assert_status(vmm_unmap(driver, address + 4096, granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_unmap(driver, address + TIB, granule), VMM_INVALID_VALUE);
  /* All or nothing: the last mapping of this range is cut. */
  ck_assert_status(vmm_unmap(driver, address, 6 * granule), VMM_INVALID_VALUE);
  ck_assert(is_mapped(driver, address));
  ck_assert(is_mapped(driver, address + 2 * granule));
  ck_assert(is_mapped(driver, address + 5 * granule));
  /* With holes in between, before and behind. */
  ck_assert_success(vmm_unmap(driver, address, 4 * granule));
  ck_assert(!is_mapped(driver, address));
  ck_assert(!is_mapped(driver, address + 2 * granule));
  ck_assert(is_mapped(driver, address + 6 * granule));
  ck_assert_success(vmm_unmap(driver, address + 3 * granule, 13 * granule));
  ck_assert(!is_mapped(driver, address + 6 * granule));
  /* Nothing at all. */
  ck_assert_success(vmm_unmap(driver, address, 16 * granule));
  ck_assert_success(vmm_release(driver, pair));
  ck_assert_success(vmm_release(driver, one));
  ck_assert_success(vmm_release(driver, two));
  ck_assert_success(vmm_address_free(driver, address, 16 * granule));
}

static void set_access_wants_whole_mappings(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = reserve(driver, 8 * granule);
  vmm_handle pair = create(driver, 2 * granule), one = create(driver, granule);
  ck_assert_status(vmm_set_access(driver, address, granule), VMM_INVALID_VALUE);
  ck_assert_success(vmm_map(driver, address + granule, granule, 0, one));
  ck_assert_success(vmm_map(driver, address + 2 * granule, 2 * granule, 0, pair));
  ck_assert_status(vmm_set_access(driver, address + 2 * granule, granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_set_access(driver, address + 3 * granule, granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_set_access(driver, address + granule, 2 * granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_set_access(driver, address + granule, 4 * granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_set_access(driver, address, 4 * granule), VMM_INVALID_VALUE);
  ck_assert_status(vmm_set_access(driver, address + granule, 0), VMM_INVALID_VALUE);
  ck_assert_status(vmm_set_access(driver, address + granule, granule / 2), VMM_INVALID_VALUE);
  ck_assert_status(vmm_set_access(driver, address + TIB, granule), VMM_INVALID_VALUE);
  ck_assert_success(vmm_set_access(driver, address + granule, granule));
  ck_assert_success(vmm_set_access(driver, address + granule, granule));
  ck_assert_success(vmm_set_access(driver, address + granule, 3 * granule));
  ck_assert_success(vmm_unmap(driver, address + granule, 3 * granule));
  ck_assert_status(vmm_set_access(driver, address + granule, granule), VMM_INVALID_VALUE);
  ck_assert_success(vmm_release(driver, pair));
  ck_assert_success(vmm_release(driver, one));
  ck_assert_success(vmm_address_free(driver, address, 8 * granule));
}

static void an_unmapped_place_can_be_mapped_again(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = reserve(driver, 2 * granule);
  for (int i = 0; i < 3; i++) {
    vmm_handle handle = create(driver, 2 * granule);
    ck_assert_success(vmm_map(driver, address, 2 * granule, 0, handle));
    ck_assert_success(vmm_set_access(driver, address, 2 * granule));
    ck_assert_success(vmm_release(driver, handle));
    ck_assert_success(vmm_unmap(driver, address, 2 * granule));
  }
  ck_assert_success(vmm_address_free(driver, address, 2 * granule));
}

static void address_space_ends(vmm_driver *driver) {
  static vmm_address reservations[256];
  int count = 0;
  vmm_status status = VMM_SUCCESS;
  while (count < 256) {
    status = vmm_address_reserve(driver, TIB, 0, &reservations[count]);
    if (status != VMM_SUCCESS) break;
    count++;
  }
  ck_assert_status(status, VMM_OUT_OF_MEMORY);
  ck_assert_int_ge(count, 1);
  ck_assert_int_le(count, 127);
  for (int i = 0; i < count; i++) ck_assert_success(vmm_address_free(driver, reservations[i], TIB));
  vmm_error_clear(driver);
  vmm_address again = reserve(driver, TIB);
  ck_assert_success(vmm_address_free(driver, again, TIB));
}

static void memory_ends(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver), before = vmm_conformance_free_bytes(driver);
  static vmm_handle handles[4096];
  size_t count = 0;
  uint64_t size = (before / 64) & ~(granule - 1), taken = 0;
  if (size == 0) size = granule;
  while (size >= granule && count < sizeof handles / sizeof *handles) {
    vmm_status status = vmm_create(driver, size, &handles[count]);
    if (status == VMM_SUCCESS) {
      count++;
      taken += size;
      continue;
    }
    ck_assert_status(status, VMM_OUT_OF_MEMORY);
    size = (size / 2) & ~(granule - 1);
  }
  ck_assert_uint_le(taken, before);
  ck_assert_uint_lt(vmm_conformance_free_bytes(driver), 4 * granule);
  vmm_address address;
  ck_assert_status(vmm_malloc(driver, 4 * granule, &address), VMM_OUT_OF_MEMORY);
  for (size_t i = 0; i < count; i++) ck_assert_success(vmm_release(driver, handles[i]));
  vmm_error_clear(driver);
  ck_assert_success(vmm_malloc(driver, 4 * granule, &address));
  ck_assert_success(vmm_free(driver, address));
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before);
}

static void malloc_and_free(vmm_driver *driver) {
  static const uint64_t sizes[] = {1,       511,           512,      513,     1 << 20, (1 << 20) + 1,
                                   2 << 20, (2 << 20) + 1, 20 << 20, 33 << 20};
  enum { COUNT = sizeof sizes / sizeof *sizes };
  uint64_t before = vmm_conformance_free_bytes(driver);
  vmm_address address[COUNT];
  for (int i = 0; i < COUNT; i++) {
    ck_assert_success(vmm_malloc(driver, sizes[i], &address[i]));
    ck_assert_uint_eq(address[i] % 512, 0);
    for (int k = 0; k < i; k++) {
      ck_assert(address[i] + sizes[i] <= address[k] || address[k] + sizes[k] <= address[i]);
    }
  }
  for (int i = 0; i < COUNT; i++) ck_assert_success(vmm_free(driver, address[i]));
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before);
}

static void malloc_refuses(vmm_driver *driver) {
  vmm_address address = 0;
  ck_assert_status(vmm_malloc(driver, 0, &address), VMM_INVALID_VALUE);
  ck_assert_status(vmm_malloc(driver, TIB, &address), VMM_OUT_OF_MEMORY);
  ck_assert_status(vmm_malloc(driver, UINT64_C(1) << 63, &address), VMM_OUT_OF_MEMORY);
  ck_assert_status(vmm_malloc(driver, UINT64_MAX, &address), VMM_OUT_OF_MEMORY);
}

static void free_refuses(vmm_driver *driver) {
  vmm_address large, small, reserved = reserve(driver, granularity_of(driver));
  ck_assert_success(vmm_malloc(driver, 4 << 20, &large));
  ck_assert_success(vmm_malloc(driver, 4096, &small));
  ck_assert_status(vmm_free(driver, large + (1 << 20)), VMM_INVALID_VALUE);
  ck_assert_status(vmm_free(driver, small + 512), VMM_INVALID_VALUE);
  ck_assert_status(vmm_free(driver, 0x123456), VMM_INVALID_VALUE);
  ck_assert_status(vmm_free(driver, reserved), VMM_INVALID_VALUE);
  ck_assert_status(vmm_unmap(driver, large, 2 << 20), VMM_INVALID_VALUE);
  ck_assert_status(vmm_set_access(driver, large, 2 << 20), VMM_INVALID_VALUE);
  ck_assert_success(vmm_free(driver, large));
  ck_assert_status(vmm_free(driver, large), VMM_INVALID_VALUE);
  ck_assert_success(vmm_free(driver, small));
  ck_assert_status(vmm_free(driver, small), VMM_INVALID_VALUE);
  ck_assert_success(vmm_free(driver, 0));
  ck_assert_success(vmm_address_free(driver, reserved, granularity_of(driver)));
}

static void pool_allocates_and_frees(vmm_driver *driver) {
  vmm_address first, second, nothing = 1;
  ck_assert_success(vmm_malloc_async(driver, 1000, 0, &first));
  ck_assert_success(vmm_malloc_async(driver, 40 << 20, 1, &second));
  ck_assert_uint_eq(first % 512, 0);
  ck_assert(first + 1000 <= second || second + (40 << 20) <= first);
  ck_assert_success(vmm_malloc_async(driver, 0, 0, &nothing));
  ck_assert_uint_eq(nothing, 0);
  ck_assert_success(vmm_free_async(driver, nothing, 0));
  ck_assert_status(vmm_malloc_async(driver, TIB, 0, &nothing), VMM_OUT_OF_MEMORY);
  ck_assert_status(vmm_free_async(driver, 0x123456, 0), VMM_INVALID_VALUE);
  ck_assert_status(vmm_free_async(driver, second + (1 << 20), 1), VMM_INVALID_VALUE);
  ck_assert_success(vmm_free_async(driver, second, 1));
  ck_assert_status(vmm_free_async(driver, second, 1), VMM_INVALID_VALUE);
  ck_assert_success(vmm_free(driver, first));
  ck_assert_success(vmm_synchronize(driver));
}

static void pool_reuses_in_stream_order(vmm_driver *driver) {
  vmm_address first, second;
  ck_assert_success(vmm_malloc_async(driver, 20 << 20, 3, &first));
  ck_assert_success(vmm_free_async(driver, first, 3));
  uint64_t held = vmm_conformance_free_bytes(driver);
  for (int i = 0; i < 10; i++) {
    ck_assert_success(vmm_malloc_async(driver, 20 << 20, 3, &second));
    ck_assert_success(vmm_free_async(driver, second, 3));
  }
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), held);
  ck_assert_success(vmm_synchronize(driver));
}

static void pool_is_bounded_and_trimmed(vmm_driver *driver) {
  vmm_pool_configuration configuration = {.release_threshold = UINT64_MAX,
                                          .maximum_bytes = UINT64_C(128) << 20,
                                          .reuse_event = true,
                                          .reuse_opportunistic = true,
                                          .reuse_internal = true};
  vmm_pool_usage usage;
  vmm_address first, second;
  uint64_t before = vmm_conformance_free_bytes(driver);
  ck_assert_success(vmm_pool_configure(driver, &configuration));
  ck_assert_success(vmm_pool_usage_get(driver, &usage));
  ck_assert_uint_eq(usage.reserved_bytes, 0);
  ck_assert_success(vmm_malloc_async(driver, 40 << 20, 0, &first));
  ck_assert_success(vmm_malloc_async(driver, 40 << 20, 1, &second));
  ck_assert_success(vmm_pool_usage_get(driver, &usage));
  ck_assert_uint_ge(usage.used_bytes, 80 << 20);
  ck_assert_uint_ge(usage.reserved_bytes, usage.used_bytes);
  ck_assert_uint_le(usage.reserved_bytes, 128 << 20);
  ck_assert_uint_ge(usage.reserved_peak_bytes, usage.reserved_bytes);
  configuration.maximum_bytes = UINT64_C(200) << 20;
  ck_assert_status(vmm_pool_configure(driver, &configuration), VMM_NOT_PERMITTED);
  configuration.maximum_bytes = UINT64_C(128) << 20;
  configuration.reuse_internal = false;
  ck_assert_success(vmm_pool_configure(driver, &configuration));
  vmm_address third = 0;
  ck_assert_status(vmm_malloc_async(driver, 60 << 20, 0, &third), VMM_OUT_OF_MEMORY);
  ck_assert_success(vmm_free_async(driver, first, 0));
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_success(vmm_pool_trim(driver, 0));
  ck_assert_success(vmm_pool_usage_get(driver, &usage));
  ck_assert_uint_ge(usage.reserved_bytes, 40 << 20);
  ck_assert_uint_lt(usage.reserved_bytes, 80 << 20);
  ck_assert_success(vmm_free_async(driver, second, 1));
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_success(vmm_pool_trim(driver, 0));
  ck_assert_success(vmm_pool_usage_get(driver, &usage));
  ck_assert_uint_eq(usage.reserved_bytes, 0);
  ck_assert_uint_eq(usage.used_bytes, 0);
  ck_assert_uint_ge(usage.used_peak_bytes, 80 << 20);
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before);
  configuration.maximum_bytes = UINT64_MAX;
  ck_assert_success(vmm_pool_configure(driver, &configuration));
  ck_assert_success(vmm_malloc_async(driver, 160 << 20, 0, &first));
  ck_assert_success(vmm_free_async(driver, first, 0));
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_success(vmm_pool_trim(driver, 0));
}

static void events_complete(vmm_driver *driver) {
  vmm_event event[MANY];
  for (uint32_t i = 0; i < MANY; i++) {
    ck_assert_success(vmm_event_record(driver, i % 3, &event[i]));
    ck_assert_uint_ne(event[i], 0);
  }
  ck_assert_success(vmm_stream_wait_event(driver, 4, event[0]));
  ck_assert_success(vmm_event_wait(driver, event[0]));
  ck_assert_success(vmm_event_query(driver, event[0]));
  ck_assert_success(vmm_synchronize(driver));
  for (int i = 0; i < MANY; i++) {
    ck_assert_success(vmm_event_query(driver, event[i]));
    vmm_event_discard(driver, event[i]);
  }
  ck_assert_int_eq(driver->error.status, VMM_SUCCESS);
}

static void unknown_events_are_refused(vmm_driver *driver) {
  ck_assert_status(vmm_event_query(driver, 0), VMM_INVALID_HANDLE);
  ck_assert_status(vmm_event_wait(driver, 0), VMM_INVALID_HANDLE);
  ck_assert_status(vmm_stream_wait_event(driver, 0, 0), VMM_INVALID_HANDLE);
  vmm_event_discard(driver, 0);
}

static void the_first_error_is_kept(vmm_driver *driver) {
  vmm_handle handle;
  vmm_address address;
  char text[160];
  ck_assert_status(vmm_create(driver, 12345, &handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_malloc(driver, 0, &address), VMM_INVALID_VALUE);
  ck_assert_int_eq(driver->error.call, VMM_CALL_CREATE);
  vmm_error_format(&driver->error, text, sizeof text);
  ck_assert_str_eq(text, "cuMemCreate(size=12345) returned CUDA_ERROR_INVALID_VALUE (1): invalid value");
  vmm_error_clear(driver);
  ck_assert_int_eq(driver->error.status, VMM_SUCCESS);
  ck_assert_status(vmm_address_free(driver, 0x200000, 77), VMM_INVALID_VALUE);
  vmm_error_format(&driver->error, text, sizeof text);
  ck_assert_str_eq(
      text,
      "cuMemAddressFree(address=0x200000, size=77) returned CUDA_ERROR_INVALID_VALUE (1): invalid value");
}

/* Verification, through two addresses of the same memory. NOT_SUPPORTED where it is only accounts. */
static void fill_and_verify(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver);
  vmm_address address = reserve(driver, 2 * granule);
  vmm_handle handle = create(driver, granule);
  ck_assert_success(vmm_map(driver, address, granule, 0, handle));
  ck_assert_success(vmm_map(driver, address + granule, granule, 0, handle));
  ck_assert_success(vmm_set_access(driver, address, 2 * granule));
  vmm_mismatch mismatch = {0};
  vmm_status status = vmm_fill(driver, address, granule, 0, 7);
  if (status != VMM_NOT_SUPPORTED) {
    ck_assert_success(status);
    ck_assert_success(vmm_verify(driver, address + granule, granule, 0, 7, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 0);
    ck_assert_success(vmm_fill(driver, address + granule + 4096, 1003, 0, 8));
    ck_assert_success(vmm_verify(driver, address + 4096, 1003, 0, 8, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 0);
    ck_assert_success(vmm_verify(driver, address, granule, 0, 7, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 126);
    ck_assert_uint_eq(mismatch.first_offset, 4096);
    ck_assert_uint_eq(mismatch.expected, vmm_pattern_word(7, 512));
    ck_assert_uint_eq(mismatch.found, vmm_pattern_word(8, 0));
  } else {
    ck_assert_status(vmm_verify(driver, address, granule, 0, 7, &mismatch), VMM_NOT_SUPPORTED);
  }
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_success(vmm_unmap(driver, address, 2 * granule));
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_success(vmm_address_free(driver, address, 2 * granule));
}

static void refusals_change_nothing(vmm_driver *driver) {
  uint64_t granule = granularity_of(driver), before = vmm_conformance_free_bytes(driver);
  vmm_address address = 77;
  vmm_handle handle = 77;
  ck_assert_status(vmm_create(driver, 3, &handle), VMM_INVALID_VALUE);
  ck_assert_status(vmm_address_reserve(driver, 3, 0, &address), VMM_INVALID_VALUE);
  ck_assert_status(vmm_malloc(driver, TIB, &address), VMM_OUT_OF_MEMORY);
  ck_assert_uint_eq(address, 77);
  ck_assert_uint_eq(handle, 77);
  /* A real driver that finds no memory may give up what it kept for itself. */
  ck_assert_uint_ge(vmm_conformance_free_bytes(driver), before);
  vmm_address reserved = reserve(driver, granule);
  ck_assert_success(vmm_address_free(driver, reserved, granule));
}

const vmm_conformance_case vmm_conformance_cases[] = {
#define CASE(name) \
  { #name, name }
    CASE(round_trip),
    CASE(reserve_refuses_bad_sizes),
    CASE(reserve_aligns),
    CASE(reservations_do_not_overlap),
    CASE(address_free_wants_a_whole_empty_reservation),
    CASE(create_refuses_bad_sizes),
    CASE(release_without_a_reference_is_refused),
    CASE(map_onto_a_mapping_is_refused),
    CASE(map_refuses_parts_of_a_handle),
    CASE(map_wants_a_reservation),
    CASE(a_released_handle_cannot_be_mapped),
    CASE(release_while_mapped_keeps_the_memory),
    CASE(a_handle_can_be_mapped_many_times),
    CASE(unmap_wants_whole_mappings),
    CASE(set_access_wants_whole_mappings),
    CASE(an_unmapped_place_can_be_mapped_again),
    CASE(address_space_ends),
    CASE(memory_ends),
    CASE(malloc_and_free),
    CASE(malloc_refuses),
    CASE(free_refuses),
    CASE(pool_allocates_and_frees),
    CASE(pool_reuses_in_stream_order),
    CASE(pool_is_bounded_and_trimmed),
    CASE(events_complete),
    CASE(unknown_events_are_refused),
    CASE(the_first_error_is_kept),
    CASE(fill_and_verify),
    CASE(refusals_change_nothing),
#undef CASE
    {NULL, NULL},
};

int vmm_conformance_count(void) {
  int count = 0;
  while (vmm_conformance_cases[count].name) count++;
  return count;
}
