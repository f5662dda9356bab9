/* The real device, beyond what every driver must answer (vmm_conformance_test). Skipped without one. */
#include "vmm/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/vmm_conformance.h"

#define MIB (UINT64_C(1) << 20)

static char reason[512];

/* The device as configured; NULL, and the reason, where it cannot be had. */
static vmm_driver *open_device(const vmm_cuda_configuration *configuration) {
  vmm_driver *driver;
  vmm_status status = vmm_cuda_create(configuration, &driver, reason, sizeof reason);
  if (status != VMM_SUCCESS) ck_assert_str_ne(reason, "");
  return status == VMM_SUCCESS ? driver : NULL;
}

static const vmm_cuda_configuration plain;

#define OPEN_OR_SKIP(configuration)                  \
  vmm_driver *driver = open_device((configuration)); \
  if (!driver) test_skip(reason)

/* What a device that refuses work leaves in its message says what is wrong. */
START_TEST(a_missing_device_is_explained) {
  vmm_cuda_information information;
  vmm_status status = vmm_cuda_inspect(0, &information, reason, sizeof reason);
  if (status == VMM_SUCCESS) test_skip("there is a device");
  ck_assert_uint_gt(strlen(reason), 20);
  ck_assert_ptr_null(open_device(&plain));
}
END_TEST

START_TEST(the_device_is_described) {
  OPEN_OR_SKIP(&plain);
  const vmm_cuda_information *information = vmm_cuda_information_of(driver);
  ck_assert_str_ne(information->device, "");
  ck_assert_int_ge(information->cuda_version, 11020);
  ck_assert_int_ge(information->multiprocessors, 1);
  ck_assert_uint_ge(information->attribute_count, 10);
  ck_assert_str_eq(information->attributes[0].name, "virtual memory management");
  ck_assert_int_eq(information->attributes[0].value, 1);
  uint64_t granularity, minimum, recommended;
  ck_assert_success(vmm_granularity(driver, &granularity));
  ck_assert_success(vmm_cuda_granularities(driver, &minimum, &recommended));
  ck_assert_uint_eq(granularity, minimum);
  ck_assert_uint_eq(recommended % minimum, 0);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(a_device_that_does_not_exist_is_refused) {
  OPEN_OR_SKIP(&plain);
  vmm_driver_destroy(driver);
  vmm_driver *other;
  ck_assert_status(vmm_cuda_create(&(vmm_cuda_configuration){.ordinal = 4096}, &other, reason, sizeof reason),
                   VMM_INVALID_DEVICE);
  ck_assert_ptr_nonnull(strstr(reason, "4096"));
  const unsigned peers[] = {4097};
  ck_assert_status(vmm_cuda_create(&(vmm_cuda_configuration){.peers = peers, .peer_count = 1}, &other, reason,
                                   sizeof reason),
                   VMM_INVALID_DEVICE);
  ck_assert_ptr_nonnull(strstr(reason, "4097"));
}
END_TEST

/* One handle, mapped with access. */
static vmm_address map_one(vmm_driver *driver, uint64_t size, vmm_handle *handle) {
  vmm_address address;
  ck_assert_success(vmm_address_reserve(driver, size, 0, &address));
  ck_assert_success(vmm_create(driver, size, handle));
  ck_assert_success(vmm_map(driver, address, size, 0, *handle));
  ck_assert_success(vmm_set_access(driver, address, size));
  return address;
}

static void unmap_one(vmm_driver *driver, vmm_address address, uint64_t size, vmm_handle handle) {
  ck_assert_success(vmm_unmap(driver, address, size));
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_success(vmm_address_free(driver, address, size));
}

static void expect_usage(const vmm_driver *driver, const vmm_cuda_usage *expected) {
  vmm_cuda_usage usage;
  vmm_cuda_usage_get(driver, &usage);
  ck_assert_uint_eq(usage.physical_bytes, expected->physical_bytes);
  ck_assert_uint_eq(usage.reserved_address_bytes, expected->reserved_address_bytes);
  ck_assert_uint_eq(usage.handles, expected->handles);
  ck_assert_uint_eq(usage.mappings, expected->mappings);
  ck_assert_uint_eq(usage.reservations, expected->reservations);
  ck_assert_uint_eq(usage.mallocs, expected->mallocs);
  ck_assert_uint_eq(usage.async, expected->async);
  ck_assert_uint_eq(usage.events, expected->events);
}

START_TEST(what_is_allocated_is_known) {
  OPEN_OR_SKIP(&plain);
  const uint64_t size = 4 * MIB;
  vmm_handle handle;
  vmm_address address = map_one(driver, size, &handle), alias, allocation, pooled;
  vmm_event event;
  ck_assert_success(vmm_address_reserve(driver, size, 0, &alias));
  ck_assert_success(vmm_map(driver, alias, size, 0, handle));
  ck_assert_success(vmm_malloc(driver, 1000, &allocation));
  ck_assert_success(vmm_malloc_async(driver, 3000, 2, &pooled));
  ck_assert_success(vmm_event_record(driver, 2, &event));
  expect_usage(driver, &(vmm_cuda_usage){size + 4000, 2 * size, 1, 2, 2, 1, 1, 1, 0});
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_success(vmm_unmap(driver, address, size));
  expect_usage(driver, &(vmm_cuda_usage){size + 4000, 2 * size, 1, 1, 2, 1, 1, 1, 0});
  ck_assert_success(vmm_unmap(driver, alias, size));
  expect_usage(driver, &(vmm_cuda_usage){4000, 2 * size, 0, 0, 2, 1, 1, 1, 0});
  ck_assert_success(vmm_address_free(driver, address, size));
  ck_assert_success(vmm_address_free(driver, alias, size));
  ck_assert_success(vmm_free(driver, allocation));
  ck_assert_success(vmm_free_async(driver, pooled, 2));
  vmm_event_discard(driver, event);
  vmm_event_discard(driver, event);
  expect_usage(driver, &(vmm_cuda_usage){0});
  vmm_driver_destroy(driver);
}
END_TEST

/* What the driver takes for the first streams it keeps for later ones: then free memory tells of the rest. */
static void use_streams(vmm_driver *driver) {
  for (vmm_stream stream = 1; stream <= 8; stream++) {
    vmm_event event;
    ck_assert_success(vmm_event_record(driver, stream, &event));
    ck_assert_success(vmm_event_wait(driver, event));
    vmm_event_discard(driver, event);
  }
}

START_TEST(destroying_gives_everything_back) {
  OPEN_OR_SKIP(&plain);
  use_streams(driver);
  uint64_t before = vmm_conformance_free_bytes(driver);
  for (int i = 0; i < 4; i++) {
    vmm_driver *careless = open_device(&plain);
    ck_assert_ptr_nonnull(careless);
    vmm_handle handle, released;
    vmm_address address, pooled;
    vmm_event event;
    map_one(careless, 32 * MIB, &handle);
    map_one(careless, 32 * MIB, &released);
    ck_assert_success(vmm_release(careless, released));
    ck_assert_success(vmm_create(careless, 32 * MIB, &handle));
    ck_assert_success(vmm_address_reserve(careless, 64 * MIB, 0, &address));
    ck_assert_success(vmm_malloc(careless, 64 * MIB, &address));
    ck_assert_success(vmm_malloc_async(careless, 64 * MIB, 1, &pooled));
    ck_assert_success(vmm_event_record(careless, 1, &event));
    ck_assert_uint_lt(vmm_conformance_free_bytes(driver), before);
    vmm_driver_destroy(careless);
    uint64_t after = vmm_conformance_free_bytes(driver);
    /* Beside a second device the driver keeps up to 2 MiB for itself after the first time. */
    if (i == 0 && after < before && before - after <= 2 * MIB) before = after;
    ck_assert_uint_eq(after, before);
  }
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(memory_without_access_is_not_touched) {
  OPEN_OR_SKIP(&plain);
  const uint64_t size = 2 * MIB;
  vmm_mismatch mismatch;
  vmm_handle handle;
  vmm_address address, allocation;
  ck_assert_success(vmm_address_reserve(driver, 2 * size, 0, &address));
  ck_assert_status(vmm_fill(driver, address, size, 0, 1), VMM_ILLEGAL_ADDRESS);
  ck_assert_success(vmm_create(driver, size, &handle));
  ck_assert_success(vmm_map(driver, address, size, 0, handle));
  ck_assert_status(vmm_fill(driver, address, size, 0, 1), VMM_ILLEGAL_ADDRESS);
  ck_assert_success(vmm_set_access(driver, address, size));
  ck_assert_success(vmm_fill(driver, address, size, 0, 1));
  ck_assert_status(vmm_fill(driver, address + 8, size, 0, 1), VMM_ILLEGAL_ADDRESS);
  ck_assert_status(vmm_verify(driver, address, 2 * size, 0, 1, &mismatch), VMM_ILLEGAL_ADDRESS);
  ck_assert_success(vmm_malloc(driver, 1000, &allocation));
  ck_assert_status(vmm_fill(driver, allocation, 1001, 0, 1), VMM_ILLEGAL_ADDRESS);
  ck_assert_success(vmm_fill(driver, allocation, 1000, 0, 2));
  ck_assert_success(vmm_free(driver, allocation));
  ck_assert_status(vmm_fill(driver, allocation, 1000, 0, 2), VMM_ILLEGAL_ADDRESS);
  /* Nothing of this has harmed the context. */
  ck_assert_success(vmm_verify(driver, address, size, 0, 1, &mismatch));
  ck_assert_uint_eq(mismatch.wrong_words, 0);
  ck_assert_success(vmm_unmap(driver, address, size));
  ck_assert_status(vmm_fill(driver, address, size, 0, 1), VMM_ILLEGAL_ADDRESS);
  ck_assert_success(vmm_release(driver, handle));
  ck_assert_success(vmm_address_free(driver, address, 2 * size));
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(a_wrong_byte_is_found) {
  OPEN_OR_SKIP(&plain);
  const uint64_t size = 256 * MIB + 5;
  const uint64_t places[] = {0, 1, 4095, 4096, 128 * MIB + 3, 256 * MIB - 1, 256 * MIB, 256 * MIB + 4};
  vmm_address address;
  vmm_mismatch mismatch;
  ck_assert_success(vmm_malloc(driver, size + 16, &address));
  for (uint64_t shift = 0; shift < 16; shift += 5) {
    ck_assert_success(vmm_fill(driver, address + shift, size, 3, 99));
    ck_assert_success(vmm_verify(driver, address + shift, size, 3, 99, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
      uint8_t right, wrong;
      uint64_t word = vmm_pattern_word(99, places[i] / 8), bits = places[i] % 8 * 8;
      ck_assert_success(vmm_cuda_copy_from(driver, &right, address + shift + places[i], 1, 3));
      ck_assert_uint_eq(right, word >> bits & 255);
      wrong = right ^ 16;
      ck_assert_success(vmm_cuda_copy_to(driver, address + shift + places[i], &wrong, 1, 3));
      ck_assert_success(vmm_verify(driver, address + shift, size, 3, 99, &mismatch));
      uint64_t mask = places[i] < size - 5 ? UINT64_MAX : (UINT64_C(1) << 40) - 1;
      ck_assert_uint_eq(mismatch.wrong_words, 1);
      ck_assert_uint_eq(mismatch.first_offset, places[i] / 8 * 8);
      ck_assert_uint_eq(mismatch.expected, word & mask);
      ck_assert_uint_eq(mismatch.found, (word & mask) ^ UINT64_C(16) << bits);
      ck_assert_success(vmm_cuda_copy_to(driver, address + shift + places[i], &right, 1, 3));
    }
  }
  /* All of it wrong. */
  ck_assert_success(vmm_cuda_set_bytes(driver, address, 0, size, 3));
  ck_assert_success(vmm_verify(driver, address, size, 3, 99, &mismatch));
  ck_assert_uint_eq(mismatch.wrong_words, (size + 7) / 8);
  ck_assert_uint_eq(mismatch.first_offset, 0);
  ck_assert_uint_eq(mismatch.found, 0);
  ck_assert_success(vmm_free(driver, address));
  vmm_driver_destroy(driver);
}
END_TEST

/* A kernel that runs until it is told to stop, on a stream. */
typedef struct holder {
  vmm_cuda_module *module;
  volatile uint32_t *flags;
} holder;

static void hold_begin(holder *self, vmm_driver *driver, vmm_stream stream) {
  vmm_address device_flags;
  ck_assert_success(vmm_cuda_module_load_built_in(driver, "hold", &self->module, reason, sizeof reason));
  self->flags = vmm_cuda_host_alloc(driver, 2 * sizeof *self->flags, &device_flags);
  ck_assert_ptr_nonnull((void *)self->flags);
  self->flags[0] = self->flags[1] = 0;
  uint64_t bound_ns = UINT64_C(5000000000);
  void *arguments[] = {&device_flags, &bound_ns};
  ck_assert_success(vmm_cuda_launch(driver, self->module, "hold",
                                    &(vmm_cuda_shape){.grid = {1}, .block = {1}}, stream, arguments));
  while (self->flags[0] == 0) continue;
}

static void hold_end(holder *self, vmm_driver *driver) {
  self->flags[1] = 1;
  ck_assert_success(vmm_synchronize(driver));
  vmm_cuda_host_free(driver, (void *)self->flags);
  vmm_cuda_module_unload(driver, self->module);
}

START_TEST(events_follow_their_streams) {
  OPEN_OR_SKIP(&plain);
  holder busy;
  vmm_event behind, beside, after;
  hold_begin(&busy, driver, 5);
  ck_assert_success(vmm_event_record(driver, 5, &behind));
  ck_assert_success(vmm_event_record(driver, 6, &beside));
  ck_assert_success(vmm_event_wait(driver, beside));
  ck_assert_status(vmm_event_query(driver, behind), VMM_NOT_READY);
  ck_assert_int_eq(driver->error.status, VMM_SUCCESS);
  ck_assert_success(vmm_stream_wait_event(driver, 6, behind));
  ck_assert_success(vmm_event_record(driver, 6, &after));
  ck_assert_status(vmm_event_query(driver, after), VMM_NOT_READY);
  /* An event that is given back before it is reached, and taken again. */
  vmm_event_discard(driver, behind);
  vmm_event fresh;
  ck_assert_success(vmm_event_record(driver, 7, &fresh));
  ck_assert_uint_ne(fresh, behind);
  ck_assert_status(vmm_event_query(driver, behind), VMM_INVALID_HANDLE);
  ck_assert_success(vmm_event_wait(driver, fresh));
  ck_assert_status(vmm_event_query(driver, after), VMM_NOT_READY);
  hold_end(&busy, driver);
  ck_assert_success(vmm_event_query(driver, after));
  vmm_event_discard(driver, beside);
  vmm_event_discard(driver, after);
  vmm_event_discard(driver, fresh);
  expect_usage(driver, &(vmm_cuda_usage){0});
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(mapping_does_not_wait_for_a_kernel) {
  OPEN_OR_SKIP(&plain);
  holder busy;
  vmm_handle handle;
  vmm_mismatch mismatch;
  /* Loading kernels does wait. */
  vmm_address address = map_one(driver, 2 * MIB, &handle);
  ck_assert_success(vmm_fill(driver, address, 2 * MIB, 2, 1));
  ck_assert_success(vmm_verify(driver, address, 2 * MIB, 2, 1, &mismatch));
  unmap_one(driver, address, 2 * MIB, handle);
  hold_begin(&busy, driver, 1);
  uint64_t begin_ns = driver->busy_ns;
  address = map_one(driver, 2 * MIB, &handle);
  ck_assert_success(vmm_fill(driver, address, 2 * MIB, 2, 1));
  ck_assert_success(vmm_verify(driver, address, 2 * MIB, 2, 1, &mismatch));
  ck_assert_uint_eq(mismatch.wrong_words, 0);
  unmap_one(driver, address, 2 * MIB, handle);
  ck_assert_uint_lt(driver->busy_ns - begin_ns, UINT64_C(1000000000));
  hold_end(&busy, driver);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(time_is_told_between_events) {
  OPEN_OR_SKIP(&plain);
  vmm_event begin, end, untimed;
  double milliseconds = -1;
  vmm_address address;
  ck_assert_success(vmm_malloc(driver, 64 * MIB, &address));
  ck_assert_success(vmm_fill(driver, address, 64 * MIB, 1, 1));
  ck_assert_success(vmm_cuda_time_record(driver, 1, &begin));
  ck_assert_success(vmm_fill(driver, address, 64 * MIB, 1, 2));
  ck_assert_success(vmm_cuda_time_record(driver, 1, &end));
  ck_assert_success(vmm_event_record(driver, 1, &untimed));
  ck_assert_success(vmm_event_wait(driver, end));
  ck_assert_success(vmm_cuda_time_between(driver, begin, end, &milliseconds));
  ck_assert_double_gt(milliseconds, 0);
  ck_assert_double_lt(milliseconds, 1000);
  ck_assert_status(vmm_cuda_time_between(driver, begin, untimed, &milliseconds), VMM_INVALID_HANDLE);
  vmm_event_discard(driver, begin);
  vmm_event_discard(driver, end);
  vmm_event_discard(driver, untimed);
  ck_assert_success(vmm_free(driver, address));
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(copies_move_bytes) {
  OPEN_OR_SKIP(&plain);
  enum { SIZE = 100003 };
  unsigned char *sent = malloc(SIZE), *received = malloc(SIZE);
  ck_assert(sent && received);
  for (int i = 0; i < SIZE; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
  vmm_address to;
  ck_assert_success(vmm_malloc(driver, SIZE, &to));
  ck_assert_success(vmm_cuda_set_bytes(driver, to, 0xee, SIZE, 1));
  ck_assert_success(vmm_cuda_copy_to(driver, to + 1, sent, SIZE - 2, 1));
  ck_assert_success(vmm_cuda_copy_from(driver, received, to, SIZE, 1));
  ck_assert_uint_eq(received[0], 0xee);
  ck_assert_uint_eq(received[SIZE - 1], 0xee);
  ck_assert_mem_eq(received + 1, sent, SIZE - 2);
  ck_assert_success(vmm_free(driver, to));
  free(sent);
  free(received);
  vmm_driver_destroy(driver);
}
END_TEST

START_TEST(bad_kernels_are_refused) {
  OPEN_OR_SKIP(&plain);
  vmm_cuda_module *module;
  static const char text[] = "this is no kernel";
  ck_assert(vmm_cuda_module_load(driver, text, sizeof text, &module, reason, sizeof reason) != VMM_SUCCESS);
  ck_assert_ptr_null(module);
  ck_assert_ptr_nonnull(strstr(reason, "cuModuleLoadData returned"));
  ck_assert_status(vmm_cuda_module_load_built_in(driver, "none", &module, reason, sizeof reason),
                   VMM_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(reason, "none"));
  ck_assert_success(vmm_cuda_module_load_built_in(driver, "pattern", &module, reason, sizeof reason));
  ck_assert_status(vmm_cuda_launch(driver, module, "none", &(vmm_cuda_shape){0}, 0, NULL), VMM_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(vmm_cuda_failure(driver), "CUDA_ERROR_NOT_FOUND (500)"));
  vmm_cuda_module_unload(driver, module);
  vmm_driver_destroy(driver);
}
END_TEST

/* Memory of every kind that the device announces. */
START_TEST(kinds_of_memory_work) {
  static const vmm_cuda_configuration kinds[] = {{.handle_type = VMM_CUDA_HANDLE_POSIX_FD},
                                                 {.gpu_direct = true}};
  static const int attributes[] = {103, 110};
  vmm_cuda_information information;
  if (vmm_cuda_inspect(0, &information, reason, sizeof reason) != VMM_SUCCESS) test_skip(reason);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    vmm_driver *driver;
    vmm_status status = vmm_cuda_create(&kinds[i], &driver, reason, sizeof reason);
    for (size_t k = 0; k < information.attribute_count; k++) {
      if (information.attributes[k].number != attributes[i]) continue;
      ck_assert_status(status, information.attributes[k].value > 0 ? VMM_SUCCESS : VMM_NOT_SUPPORTED);
    }
    if (status != VMM_SUCCESS) continue;
    uint64_t granularity;
    ck_assert_success(vmm_granularity(driver, &granularity));
    vmm_handle handle;
    vmm_mismatch mismatch;
    vmm_address address = map_one(driver, granularity, &handle);
    ck_assert_success(vmm_fill(driver, address, granularity, 0, 5));
    ck_assert_success(vmm_verify(driver, address, granularity, 0, 5, &mismatch));
    ck_assert_uint_eq(mismatch.wrong_words, 0);
    unmap_one(driver, address, granularity, handle);
    vmm_driver_destroy(driver);
  }
}
END_TEST

START_TEST(the_pool_can_be_trimmed) {
  OPEN_OR_SKIP(&plain);
  use_streams(driver);
  vmm_pool_usage usage;
  uint64_t before = vmm_conformance_free_bytes(driver);
  vmm_address address;
  ck_assert_success(vmm_pool_usage_get(driver, &usage));
  ck_assert_uint_eq(usage.reserved_peak_bytes, 0);
  ck_assert_success(vmm_malloc_async(driver, 100 * MIB, 1, &address));
  ck_assert_success(vmm_free_async(driver, address, 1));
  ck_assert_success(vmm_synchronize(driver));
  ck_assert_success(vmm_pool_usage_get(driver, &usage));
  ck_assert_uint_ge(usage.reserved_bytes, 100 * MIB);
  ck_assert_uint_eq(usage.used_bytes, 0);
  ck_assert_uint_ge(usage.used_peak_bytes, 100 * MIB);
  ck_assert_success(vmm_pool_trim(driver, 0));
  ck_assert_success(vmm_pool_usage_get(driver, &usage));
  ck_assert_uint_eq(usage.reserved_bytes, 0);
  ck_assert_uint_eq(vmm_conformance_free_bytes(driver), before);
  vmm_driver_destroy(driver);
}
END_TEST

/* A kernel of another device writes through the address of this one's memory. */
static void write_from_peer(vmm_driver *peer, vmm_address address, uint64_t size, uint64_t pattern) {
  vmm_cuda_module *module;
  ck_assert_success(vmm_cuda_module_load_built_in(peer, "pattern", &module, reason, sizeof reason));
  void *arguments[] = {&address, &size, &pattern};
  const vmm_cuda_shape shape = {.grid = {64}, .block = {256}};
  ck_assert_success(vmm_cuda_launch(peer, module, "pattern_fill", &shape, 1, arguments));
  ck_assert_success(vmm_synchronize(peer));
  vmm_cuda_module_unload(peer, module);
}

START_TEST(peers_reach_the_memory) {
  static const unsigned peers[] = {0, 1};
  vmm_cuda_information information;
  if (vmm_cuda_inspect(0, &information, reason, sizeof reason) != VMM_SUCCESS) test_skip(reason);
  if (information.device_count < 2) test_skip("there is one device only");
  vmm_driver *own = open_device(&(vmm_cuda_configuration){.peers = peers, .peer_count = 2});
  vmm_driver *peer = open_device(&(vmm_cuda_configuration){.ordinal = 1});
  ck_assert_msg(own && peer, "%s", reason);
  if (vmm_cuda_information_of(own)->peers == 0) test_skip("the devices cannot reach each other's memory");
  ck_assert_uint_eq(vmm_cuda_information_of(own)->peers, 1);
  uint64_t before = vmm_conformance_free_bytes(peer);
  const uint64_t size = 64 * MIB;
  vmm_handle handle;
  vmm_mismatch mismatch;
  vmm_address address = map_one(own, size, &handle), pooled;
  write_from_peer(peer, address, size, 11);
  ck_assert_success(vmm_verify(own, address, size, 0, 11, &mismatch));
  ck_assert_uint_eq(mismatch.wrong_words, 0);
  ck_assert_success(vmm_malloc_async(own, size, 1, &pooled));
  ck_assert_success(vmm_synchronize(own));
  write_from_peer(peer, pooled, size, 12);
  ck_assert_success(vmm_verify(own, pooled, size, 1, 12, &mismatch));
  ck_assert_uint_eq(mismatch.wrong_words, 0);
  ck_assert_success(vmm_free_async(own, pooled, 1));
  /* Each object works on its own device, whichever was used last. */
  vmm_address other;
  ck_assert_success(vmm_malloc(peer, size, &other));
  ck_assert_uint_le(vmm_conformance_free_bytes(peer), before - size);
  ck_assert_success(vmm_fill(peer, other, size, 0, 13));
  ck_assert_success(vmm_fill(own, address, size, 0, 14));
  ck_assert_success(vmm_verify(peer, other, size, 0, 13, &mismatch));
  ck_assert_uint_eq(mismatch.wrong_words, 0);
  ck_assert_success(vmm_verify(own, address, size, 0, 14, &mismatch));
  ck_assert_uint_eq(mismatch.wrong_words, 0);
  ck_assert_success(vmm_free(peer, other));
  unmap_one(own, address, size, handle);
  vmm_driver_destroy(peer);
  vmm_driver_destroy(own);
}
END_TEST

static Suite *cuda_suite(void) {
  Suite *suite = suite_create("vmm cuda");
  TCase *tests = tcase_create("cuda");
  tcase_add_test(tests, a_missing_device_is_explained);
  tcase_add_test(tests, the_device_is_described);
  tcase_add_test(tests, a_device_that_does_not_exist_is_refused);
  tcase_add_test(tests, what_is_allocated_is_known);
  tcase_add_test(tests, destroying_gives_everything_back);
  tcase_add_test(tests, memory_without_access_is_not_touched);
  tcase_add_test(tests, a_wrong_byte_is_found);
  tcase_add_test(tests, events_follow_their_streams);
  tcase_add_test(tests, mapping_does_not_wait_for_a_kernel);
  tcase_add_test(tests, time_is_told_between_events);
  tcase_add_test(tests, copies_move_bytes);
  tcase_add_test(tests, bad_kernels_are_refused);
  tcase_add_test(tests, kinds_of_memory_work);
  tcase_add_test(tests, the_pool_can_be_trimmed);
  tcase_add_test(tests, peers_reach_the_memory);
  suite_add_tcase(suite, tests);
  return suite;
}

TEST_MAIN(cuda_suite)
