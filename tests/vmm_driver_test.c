/* Names, texts and stored errors. */
#include "vmm/driver.h"

#include <stdio.h>
#include <string.h>

#include "tests/test_main.h"

START_TEST(statuses_have_cuda_names) {
  ck_assert_str_eq(vmm_status_name(VMM_SUCCESS), "CUDA_SUCCESS");
  ck_assert_str_eq(vmm_status_name(VMM_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY");
  ck_assert_str_eq(vmm_status_name(VMM_NOT_SUPPORTED), "CUDA_ERROR_NOT_SUPPORTED");
  ck_assert_str_eq(vmm_status_text(VMM_OUT_OF_MEMORY), "out of memory");
  ck_assert_int_eq(VMM_INVALID_VALUE, 1);
  ck_assert_int_eq(VMM_OUT_OF_MEMORY, 2);
  ck_assert_int_eq(VMM_NOT_SUPPORTED, 801);
}
END_TEST

START_TEST(unknown_statuses_have_a_name) {
  ck_assert_str_eq(vmm_status_name((vmm_status)12345), "CUDA_ERROR_UNKNOWN");
  ck_assert_str_eq(vmm_status_text((vmm_status)12345), "unknown error");
  ck_assert_str_eq(vmm_call_name((vmm_call)VMM_CALL_COUNT), "unknown call");
}
END_TEST

START_TEST(calls_have_cuda_names) {
  ck_assert_str_eq(vmm_call_name(VMM_CALL_CREATE), "cuMemCreate");
  ck_assert_str_eq(vmm_call_name(VMM_CALL_SET_ACCESS), "cuMemSetAccess");
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) ck_assert_ptr_nonnull(vmm_call_name((vmm_call)call));
}
END_TEST

START_TEST(errors_name_their_arguments) {
  static const struct {
    vmm_error error;
    const char *text;
  } cases[] = {
      {{VMM_OUT_OF_MEMORY, VMM_CALL_CREATE, {2097152}},
       "cuMemCreate(size=2097152) returned CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"},
      {{VMM_NOT_SUPPORTED, VMM_CALL_MAP, {0x302000000, 4096, 512, 9}},
       "cuMemMap(address=0x302000000, size=4096, offset=512, handle=9) returned CUDA_ERROR_NOT_SUPPORTED "
       "(801): "
       "operation not supported"},
      {{VMM_INVALID_VALUE, VMM_CALL_ADDRESS_RESERVE, {1, 3}},
       "cuMemAddressReserve(size=1, alignment=3) returned CUDA_ERROR_INVALID_VALUE (1): invalid value"},
      {{VMM_INVALID_HANDLE, VMM_CALL_STREAM_WAIT_EVENT, {2, 7}},
       "cuStreamWaitEvent(stream=2, event=7) returned CUDA_ERROR_INVALID_HANDLE (400): invalid handle"},
      {{VMM_INVALID_CONTEXT, VMM_CALL_SYNCHRONIZE, {0}},
       "cuCtxSynchronize() returned CUDA_ERROR_INVALID_CONTEXT (201): invalid context"},
      {{VMM_SUCCESS, VMM_CALL_CREATE, {1}}, ""},
  };
  char text[200];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    vmm_error_format(&cases[i].error, text, sizeof text);
    ck_assert_str_eq(text, cases[i].text);
  }
}
END_TEST

START_TEST(texts_are_cut_and_terminated) {
  vmm_error error = {VMM_OUT_OF_MEMORY, VMM_CALL_CREATE, {2097152}};
  char whole[200], text[200];
  vmm_error_format(&error, whole, sizeof whole);
  for (size_t size = 1; size < strlen(whole) + 3; size++) {
    memset(text, 'x', sizeof text);
    vmm_error_format(&error, text, size);
    size_t length = size - 1 < strlen(whole) ? size - 1 : strlen(whole);
    ck_assert_uint_eq(strlen(text), length);
    ck_assert_int_eq(memcmp(text, whole, length), 0);
    ck_assert_int_eq(text[size], 'x');
  }
  text[0] = 'x';
  vmm_error_format(&error, text, 0);
  ck_assert_int_eq(text[0], 'x');
}
END_TEST

START_TEST(the_first_failure_stays) {
  vmm_driver driver = {0};
  ck_assert_int_eq(vmm_error_set(&driver, VMM_SUCCESS, VMM_CALL_MAP, 1, 2, 3, 4), VMM_SUCCESS);
  ck_assert_int_eq(driver.error.status, VMM_SUCCESS);
  ck_assert_int_eq(vmm_error_set(&driver, VMM_OUT_OF_MEMORY, VMM_CALL_MAP, 1, 2, 3, 4), VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(vmm_error_set(&driver, VMM_UNKNOWN, VMM_CALL_CREATE, 9, 9, 9, 9), VMM_UNKNOWN);
  ck_assert_int_eq(driver.error.status, VMM_OUT_OF_MEMORY);
  ck_assert_int_eq(driver.error.call, VMM_CALL_MAP);
  for (uint64_t i = 0; i < 4; i++) ck_assert_uint_eq(driver.error.argument[i], i + 1);
  vmm_error_clear(&driver);
  ck_assert_int_eq(driver.error.status, VMM_SUCCESS);
  ck_assert_int_eq(vmm_error_set(&driver, VMM_UNKNOWN, VMM_CALL_CREATE, 9, 9, 9, 9), VMM_UNKNOWN);
  ck_assert_int_eq(driver.error.call, VMM_CALL_CREATE);
}
END_TEST

/* Neighbouring words and patterns differ, so that a shifted or mixed-up region is seen. */
START_TEST(pattern_words_differ) {
  for (uint64_t pattern = 0; pattern < 64; pattern++) {
    for (uint64_t index = 0; index < 256; index++) {
      ck_assert_uint_ne(vmm_pattern_word(pattern, index), vmm_pattern_word(pattern, index + 1));
      ck_assert_uint_ne(vmm_pattern_word(pattern, index), vmm_pattern_word(pattern + 1, index));
    }
  }
}
END_TEST

START_TEST(destroying_nothing_is_fine) { vmm_driver_destroy(NULL); }
END_TEST

static Suite *driver_suite(void) {
  Suite *suite = suite_create("vmm driver");
  TCase *tcase = tcase_create("names and errors");
  tcase_add_test(tcase, statuses_have_cuda_names);
  tcase_add_test(tcase, unknown_statuses_have_a_name);
  tcase_add_test(tcase, calls_have_cuda_names);
  tcase_add_test(tcase, errors_name_their_arguments);
  tcase_add_test(tcase, texts_are_cut_and_terminated);
  tcase_add_test(tcase, the_first_failure_stays);
  tcase_add_test(tcase, pattern_words_differ);
  tcase_add_test(tcase, destroying_nothing_is_fine);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(driver_suite)
