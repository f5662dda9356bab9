/* What every driver must answer: the same cases for the simulated device, the
 * metered one and the real one. Each case uses about 100 MiB (the exhausting ones
 * everything) and leaves the device as it found it. */
#ifndef LAKEBED_TESTS_VMM_CONFORMANCE_H
#define LAKEBED_TESTS_VMM_CONFORMANCE_H

#include <check.h>

#include "vmm/driver.h"

typedef struct vmm_conformance_case {
  const char *name;
  void (*run)(vmm_driver *driver);
} vmm_conformance_case;

/* Ends with a name of NULL. */
extern const vmm_conformance_case vmm_conformance_cases[];
/* How many there are. */
int vmm_conformance_count(void);

/* Compares statuses by name and says which call it was. */
#define ck_assert_status(call, expected) ck_assert_str_eq(vmm_status_name(call), vmm_status_name(expected))
#define ck_assert_success(call) ck_assert_status(call, VMM_SUCCESS)

/* What memory_info says is free. */
uint64_t vmm_conformance_free_bytes(vmm_driver *driver);

#endif
