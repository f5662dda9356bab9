/* What the parts of this libcuda share. */
#ifndef LAKEBED_TESTS_FAKE_CUDA_H
#define LAKEBED_TESTS_FAKE_CUDA_H

#include <cuda.h>

#include "vmm/driver.h"

#pragma GCC visibility push(hidden)

/* The device; NULL: there is none. */
extern vmm_driver *fake_sim;

/* The number after a word such as "init=" of the environment's list. */
long fake_wish_number(const char *word, long otherwise);
/* Shall this call of a function fail? Counts its calls. */
CUresult fake_injected(const char *name);
/* Of a call of the device, whose account of the error is not needed. */
CUresult fake_result_of(vmm_status status);
/* Loses memory, where that was asked for. */
void fake_lose(void);

#pragma GCC visibility pop

#define BEGIN()                                    \
  do {                                             \
    CUresult failure_ = fake_injected(__func__);   \
    if (failure_ != CUDA_SUCCESS) return failure_; \
  } while (0)

#endif
