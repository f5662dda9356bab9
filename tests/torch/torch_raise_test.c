/* Exceptions of C++ that the plugin throws, as a libc10 of our own sees them. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "harness/torch/lakebed_torch.h"
#include "tests/test_main.h"

static jmp_buf thrown;
static char type_name[64], message[512];
static int table_fits;

static void catch_it(const char *type, const char *text, int has_table) {
  strncpy(type_name, type, sizeof type_name - 1);
  strncpy(message, text, sizeof message - 1);
  table_fits = has_table;
  longjmp(thrown, 1);
}

typedef void set_catcher(void (*handler)(const char *type, const char *text, int has_table));

static void load_libc10(void) {
  void *library = dlopen("tests/torch/libc10.so", RTLD_NOW);
  ck_assert_msg(library != NULL, "%s", dlerror());
  set_catcher *set;
  void *address = dlsym(library, "fake_c10_catch");
  memcpy(&set, &address, sizeof set);
  set(catch_it);
  setenv("LAKEBED_TORCH_DEVICE", "sim:h200:64MiB", 1);
}

/* Did the call throw? */
#define THROWS(call) (setjmp(thrown) == 0 ? ((void)(call), 0) : 1)

START_TEST(out_of_memory_is_thrown_as_pytorch_throws_it) {
  load_libc10();
  for (int i = 0; i < 3; i++) {
    ck_assert(THROWS(lakebed_torch_malloc((size_t)1 << 30, 0, NULL)));
    ck_assert_str_eq(type_name, "c10::OutOfMemoryError");
    ck_assert(table_fits);
    ck_assert_ptr_nonnull(strstr(message, "CUDA out of memory. Tried to allocate 1.00 GiB."));
    ck_assert_ptr_nonnull(strstr(message, "aliasheap"));
  }
  /* No lock is left behind, and smaller requests are served. */
  void *pointer = lakebed_torch_malloc(1 << 20, 0, NULL);
  ck_assert_ptr_nonnull(pointer);
  lakebed_torch_free(pointer, 1 << 20, 0, NULL);
}
END_TEST

START_TEST(other_failures_are_thrown_as_errors) {
  load_libc10();
  ck_assert(THROWS(lakebed_torch_malloc(100, 99, NULL)));
  ck_assert_str_eq(type_name, "c10::Error");
  ck_assert_ptr_nonnull(strstr(message, "device 99"));
  ck_assert(THROWS(lakebed_torch_memory_fraction(1.5, 0)));
  ck_assert_ptr_nonnull(strstr(message, "fraction"));
  static const lakebed_torch_pool pool = {1, 0};
  ck_assert(THROWS(lakebed_torch_begin_pool(0, pool, NULL)));
  ck_assert_ptr_nonnull(strstr(message, "CUDA graphs"));
}
END_TEST

START_TEST(a_bad_policy_is_told_when_memory_is_wanted) {
  load_libc10();
  setenv("LAKEBED_POLICY", "gmlaek", 1);
  ck_assert(THROWS(lakebed_torch_malloc(100, 0, NULL)));
  ck_assert_str_eq(type_name, "c10::Error");
  ck_assert_ptr_nonnull(strstr(message, "gmlake"));
}
END_TEST

static Suite *raise_suite(void) {
  Suite *suite = suite_create("torch_raise");
  TCase *all = tcase_create("all");
  tcase_add_test(all, out_of_memory_is_thrown_as_pytorch_throws_it);
  tcase_add_test(all, other_failures_are_thrown_as_errors);
  tcase_add_test(all, a_bad_policy_is_told_when_memory_is_wanted);
  suite_add_tcase(suite, all);
  return suite;
}

TEST_MAIN(raise_suite)
