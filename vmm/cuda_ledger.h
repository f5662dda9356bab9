/* What is allocated through a driver object: so that destroying it gives everything back, leaks are seen,
 * fill and verify refuse memory that a kernel must not touch, and handles are known from numbers
 * that are none. What the driver has accepted is entered. All O(log n) unless said otherwise. */
#ifndef LAKEBED_VMM_CUDA_LEDGER_H
#define LAKEBED_VMM_CUDA_LEDGER_H

#include "vmm/cuda.h"
#include "vmm/sim_extents.h"

/* A physical allocation: its reference may go before its mappings. */
typedef struct cuda_ledger_handle {
  vmm_handle name;
  uint64_t size; /* 0: unused */
  uint32_t mappings;
  uint32_t next_unused;
  bool referenced;
} cuda_ledger_handle;

/* An all-zero struct is an empty ledger. */
typedef struct cuda_ledger {
  sim_extents reservations;
  sim_extents mappings;    /* value: record, and whether there is access */
  sim_extents allocations; /* value: whether the pool's */
  sim_extents names;       /* handles with a reference, each an extent of size 1; value: record */
  sim_extents released;    /* those without, but with mappings */
  cuda_ledger_handle *handles;
  uint32_t handles_used, handles_capacity, first_unused_handle;
  vmm_cuda_usage usage;
} cuda_ledger;

void cuda_ledger_destroy(cuda_ledger *ledger);
/* Makes room for one more entry of each kind, so that the next add cannot fail. */
bool cuda_ledger_prepare(cuda_ledger *ledger);

void cuda_ledger_reserve(cuda_ledger *ledger, vmm_address address, uint64_t size);
void cuda_ledger_address_free(cuda_ledger *ledger, vmm_address address);
void cuda_ledger_create(cuda_ledger *ledger, vmm_handle handle, uint64_t size);
void cuda_ledger_release(cuda_ledger *ledger, vmm_handle handle);
/* Has it a reference? Has it been released while it is still mapped? */
bool cuda_ledger_is_referenced(const cuda_ledger *ledger, vmm_handle handle);
bool cuda_ledger_is_released(const cuda_ledger *ledger, vmm_handle handle);
void cuda_ledger_map(cuda_ledger *ledger, vmm_address address, uint64_t size, vmm_handle handle);
/* All mappings of the range. O(mappings * log n), as is allow. */
void cuda_ledger_unmap(cuda_ledger *ledger, vmm_address address, uint64_t size);
void cuda_ledger_allow(cuda_ledger *ledger, vmm_address address, uint64_t size);
void cuda_ledger_allocate(cuda_ledger *ledger, vmm_address address, uint64_t size, bool pooled);
void cuda_ledger_deallocate(cuda_ledger *ledger, vmm_address address);

/* May a kernel touch all of it? O(mappings covered * log n). */
bool cuda_ledger_accessible(const cuda_ledger *ledger, vmm_address address, uint64_t size);

/* The last of each kind, for giving it back; false: none is left. */
bool cuda_ledger_any_mapping(const cuda_ledger *ledger, vmm_address *address, uint64_t *size);
bool cuda_ledger_any_handle(const cuda_ledger *ledger, vmm_handle *handle);
bool cuda_ledger_any_reservation(const cuda_ledger *ledger, vmm_address *address, uint64_t *size);
bool cuda_ledger_any_allocation(const cuda_ledger *ledger, vmm_address *address, bool *pooled);

#endif
