/* The plugin for PyTorch over libcuda: streams of others, failing calls, the end of the driver. On a libcuda
 * of our own, which has one block of memory for all devices. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "harness/torch/lakebed_torch.h"
#include "tests/test_main.h"
#include "vmm/cuda.h"

#define MIB ((size_t)1 << 20)

static char message[512];

/* A stream as PyTorch would have made it. */
static void *make_stream(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*create)(void **stream, unsigned flags) = NULL;
  void *address = library ? dlsym(library, "cuStreamCreate") : NULL, *stream = NULL;
  memcpy(&create, &address, sizeof create);
  if (create) create(&stream, 1);
  return stream;
}

/* Is there a device? The fake one has a name of its own: what is made to fail is for it alone. */
static bool fake_is_there(void) {
  vmm_cuda_information information;
  return vmm_cuda_inspect(0, &information, message, sizeof message) == VMM_SUCCESS &&
         strcmp(information.device, "Fake GPU") == 0;
}

static void begin(const char *spec, const char *wishes) {
  setenv("LAKEBED_QUIET", "1", 1);
  setenv("LAKEBED_FAKE_CUDA", wishes, 1);
  ck_assert_msg(lakebed_torch_configure(spec, NULL, message, sizeof message) == 0, "%s", message);
}

static bool told(const char *text) {
  static char statistics[1 << 15];
  ck_assert_uint_lt(lakebed_torch_statistics(0, statistics, sizeof statistics), sizeof statistics);
  return strstr(statistics, text);
}

static const char *const policies[] = {"native", "async",     "bfc",    "expandable",
                                       "tfbfc",  "aliasheap", "gmlake", "rawvmm"};

START_TEST(streams_of_pytorch_are_used) {
  if (!fake_is_there()) test_skip("the libcuda of our own is not there (built without a CUDA toolkit?)");
  for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
    begin(policies[i], "");
    void *streams[3] = {NULL, make_stream(), make_stream()}, *kept[12];
    ck_assert(streams[1] && streams[2]);
    for (size_t k = 0; k < 12; k++) {
      kept[k] = lakebed_torch_malloc((k + 1) * MIB, 0, streams[k % 3]);
      ck_assert_msg(kept[k] != NULL, "%s: %s", policies[i], lakebed_torch_failure());
      lakebed_torch_record_stream(kept[k], streams[(k + 1) % 3]);
    }
    for (size_t k = 0; k < 12; k++) lakebed_torch_free(kept[k], 0, 0, NULL);
    ck_assert_msg(lakebed_torch_check(0, message, sizeof message) == 0, "%s: %s", policies[i], message);
    ck_assert(told("\"streams\": 3,"));
    lakebed_torch_empty_cache();
    ck_assert_msg(told("\"failed_frees\": 0,"), "%s", policies[i]);
    lakebed_torch_close();
  }
}
END_TEST

START_TEST(a_refused_call_is_tried_again_after_trimming) {
  if (!fake_is_there()) test_skip("the libcuda of our own is not there");
  begin("native", "fail=cuMemAlloc_v2:2:2");
  void *first = lakebed_torch_malloc(MIB, 0, NULL), *second = lakebed_torch_malloc(MIB, 0, NULL);
  ck_assert(first && second);
  ck_assert(told("\"trimmed_retries\": 1,"));
}
END_TEST

START_TEST(an_illegal_address_is_no_lack_of_memory) {
  if (!fake_is_there()) test_skip("the libcuda of our own is not there");
  begin("native", "fail=cuMemAlloc_v2:1:700");
  ck_assert_ptr_null(lakebed_torch_malloc(MIB, 0, NULL));
  ck_assert_ptr_null(strstr(lakebed_torch_failure(), "out of memory"));
  ck_assert_ptr_nonnull(strstr(lakebed_torch_failure(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
  ck_assert_ptr_nonnull(lakebed_torch_malloc(MIB, 0, NULL));
}
END_TEST

START_TEST(frees_after_the_driver_has_gone_do_no_harm) {
  if (!fake_is_there()) test_skip("the libcuda of our own is not there");
  begin("native", "fail=cuMemFree_v2:1:4");
  void *first = lakebed_torch_malloc(MIB, 0, NULL), *second = lakebed_torch_malloc(MIB, 0, NULL);
  lakebed_torch_free(first, 0, 0, NULL);
  lakebed_torch_free(second, 0, 0, NULL);
  ck_assert(told("\"failed_frees\": 1,"));
  ck_assert(told("\"served_frees\": 1,"));
}
END_TEST

START_TEST(other_devices_may_reach_the_memory) {
  if (!fake_is_there()) test_skip("the libcuda of our own is not there");
  begin("aliasheap", "devices=4");
  for (int device = 0; device < 4; device++) {
    void *pointer = lakebed_torch_malloc(64 * MIB, device, NULL);
    ck_assert_msg(pointer != NULL, "device %d: %s", device, lakebed_torch_failure());
    lakebed_torch_free(pointer, 0, device, NULL);
  }
  ck_assert_ptr_null(lakebed_torch_malloc(MIB, 4, NULL));
  ck_assert_ptr_nonnull(strstr(lakebed_torch_failure(), "device 4"));
}
END_TEST

START_TEST(a_stream_is_adopted_once) {
  if (!fake_is_there()) test_skip("the libcuda of our own is not there");
  vmm_driver *driver;
  ck_assert_int_eq(vmm_cuda_create(&(vmm_cuda_configuration){0}, &driver, message, sizeof message), 0);
  void *stream = make_stream();
  ck_assert_int_eq(vmm_cuda_stream_adopt(driver, 0, stream), VMM_INVALID_VALUE);
  ck_assert_int_eq(vmm_cuda_stream_adopt(driver, 3, NULL), VMM_INVALID_VALUE);
  ck_assert_int_eq(vmm_cuda_stream_adopt(driver, 3, stream), VMM_SUCCESS);
  ck_assert_int_eq(vmm_cuda_stream_adopt(driver, 3, make_stream()), VMM_INVALID_VALUE);
  vmm_event event;
  ck_assert_int_eq(vmm_event_record(driver, 3, &event), VMM_SUCCESS);
  ck_assert_int_eq(vmm_event_record(driver, 4, &event), VMM_SUCCESS);
  vmm_driver_destroy(driver);
  /* Its owner may still destroy it. */
  int (*destroy)(void *stream);
  void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuStreamDestroy_v2");
  memcpy(&destroy, &address, sizeof destroy);
  ck_assert_int_eq(destroy(stream), 0);
}
END_TEST

static Suite *cuda_suite(void) {
  Suite *suite = suite_create("torch_cuda");
  TCase *all = tcase_create("all");
  tcase_add_test(all, streams_of_pytorch_are_used);
  tcase_add_test(all, a_refused_call_is_tried_again_after_trimming);
  tcase_add_test(all, an_illegal_address_is_no_lack_of_memory);
  tcase_add_test(all, frees_after_the_driver_has_gone_do_no_harm);
  tcase_add_test(all, other_devices_may_reach_the_memory);
  tcase_add_test(all, a_stream_is_adopted_once);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(cuda_suite)
