/* Policies on a real device while slow kernels are in flight: memory that another stream still writes is
 * not given to anybody who would write it too, and comes back when that stream is done. */
#include <stdio.h>
#include <string.h>

#include "policies/policy.h"
#include "tests/test_main.h"
#include "vmm/cuda.h"

enum { BUSY_STREAM = 5, OTHER_STREAM = 6, ROUNDS = 6 };

static const uint64_t sizes[] = {4096, 3 << 20, 48 << 20, 400 << 20};

static void must(vmm_status status, const char *what) {
  ck_assert_msg(status == VMM_SUCCESS, "%s: %s", what, vmm_status_name(status));
}

/* A kernel that keeps a stream busy until it is told to stop, a tenth of a second at most. */
typedef struct holder {
  vmm_cuda_module *module;
  volatile uint32_t *flags;
} holder;

static void hold_begin(holder *self, vmm_driver *driver) {
  char reason[256];
  vmm_address device_flags;
  must(vmm_cuda_module_load_built_in(driver, "hold", &self->module, reason, sizeof reason),
       "loading the kernel");
  self->flags = vmm_cuda_host_alloc(driver, 2 * sizeof *self->flags, &device_flags);
  ck_assert_ptr_nonnull((void *)self->flags);
  self->flags[0] = self->flags[1] = 0;
  uint64_t bound_ns = UINT64_C(100000000);
  void *arguments[] = {&device_flags, &bound_ns};
  must(vmm_cuda_launch(driver, self->module, "hold", &(vmm_cuda_shape){.grid = {1}, .block = {1}},
                       BUSY_STREAM, arguments),
       "launching the kernel");
}

static void hold_end(holder *self, vmm_driver *driver) {
  self->flags[1] = 1;
  must(vmm_synchronize(driver), "waiting for the device");
  vmm_cuda_host_free(driver, (void *)self->flags);
  vmm_cuda_module_unload(driver, self->module);
}

/* One block, written late by a busy stream and freed at once; then the next owner writes its own. */
static void hand_over(policy *under_test, vmm_driver *driver, uint64_t size, uint64_t pattern,
                      vmm_stream next_stream) {
  vmm_address first, second;
  holder busy;
  must(policy_alloc(under_test, size, OTHER_STREAM, &first), "the first block");
  hold_begin(&busy, driver);
  must(vmm_fill(driver, first, size, BUSY_STREAM, pattern), "writing late");
  must(policy_record_stream(under_test, first, BUSY_STREAM), "recording the busy stream");
  must(policy_free(under_test, first), "freeing");
  must(policy_alloc(under_test, size, next_stream, &second), "the second block");
  must(vmm_fill(driver, second, size, next_stream, pattern + 1), "writing the second block");
  hold_end(&busy, driver);
  vmm_mismatch mismatch;
  must(vmm_verify(driver, second, size, next_stream, pattern + 1, &mismatch), "reading");
  ck_assert_msg(mismatch.wrong_words == 0, "%s: %llu words of a block of %llu bytes are another stream's",
                under_test->class->name, (unsigned long long)mismatch.wrong_words, (unsigned long long)size);
  must(policy_free(under_test, second), "freeing the second block");
}

START_TEST(late_writers_hit_nobody) {
  const policy_class *class = policy_list()[_i];
  char reason[512];
  vmm_driver *driver = NULL;
  if (vmm_cuda_create(&(vmm_cuda_configuration){0}, &driver, reason, sizeof reason) != VMM_SUCCESS)
    test_skip(reason);
  if (class->capabilities & (POLICY_NO_MEMORY | POLICY_NEEDS_LIFETIMES)) {
    vmm_driver_destroy(driver);
    test_skip("a policy without memory of its own");
  }
  policy_spec spec;
  policy *under_test;
  must(policy_spec_parse(class->name, &spec, reason, sizeof reason), reason);
  must(policy_create(&spec, driver, UINT64_MAX, &under_test, reason, sizeof reason), reason);
  uint64_t settled = 0;
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      uint64_t pattern = ((uint64_t)round << 32) + 2 * i + 1;
      hand_over(under_test, driver, sizes[i], pattern, round % 2 ? BUSY_STREAM : OTHER_STREAM);
    }
    /* What was waited for comes back: two rounds have seen all there is to hold. */
    uint64_t held = under_test->heap.statistics.reserved_bytes.peak;
    if (round == 1) settled = held;
    if (round > 1) ck_assert_uint_eq(held, settled);
    ck_assert_msg(policy_check(under_test, reason, sizeof reason), "%s: %s", class->name, reason);
  }
  policy_destroy(under_test);
  vmm_driver_destroy(driver);
}
END_TEST

static Suite *harness_cuda_streams_suite(void) {
  int count = 0;
  while (policy_list()[count]) count++;
  Suite *suite = suite_create("harness_cuda_streams");
  TCase *test_case = tcase_create("slow kernels");
  tcase_add_loop_test(test_case, late_writers_hit_nobody, 0, count);
  suite_add_tcase(suite, test_case);
  return suite;
}

TEST_MAIN(harness_cuda_streams_suite)
