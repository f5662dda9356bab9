/* A simulated GPU. Refuses what the hardware refuses, with the same codes;
 * charges each call a latency from a profile; can be told to fail; can be
 * backed by real, really aliasing pages. Without backing it keeps accounts only:
 * 140 GB with 70,000 mappings take tens of MB.
 *
 * Not thread-safe: one caller at a time. */
#ifndef LAKEBED_VMM_SIM_H
#define LAKEBED_VMM_SIM_H

#include "vmm/driver.h"
#include "vmm/profile.h"

typedef struct vmm_sim_configuration {
  const vmm_profile *profile; /* latencies, capacity and granularity; borrowed; NULL: every call is free */
  uint64_t capacity;          /* physical bytes; 0: the profile's usable bytes */
  uint64_t granularity;       /* 0: the profile's, or 2 MiB */
  uint64_t address_limit;     /* VA bytes that can be reserved; 0: 128 TiB */
  uint64_t event_delay;       /* an event completes after so many vmm_sim_tick calls; 0: at once */
  bool backed;                /* chunks are pages of a memfd mapped at real addresses */
} vmm_sim_configuration;

/* Creates the device. The caller destroys it with vmm_driver_destroy. Errors:
 * INVALID_VALUE for a granularity that is no power of two or for a capacity
 * that is no multiple; OUT_OF_MEMORY when the host has none. */
vmm_status vmm_sim_create(const vmm_sim_configuration *configuration, vmm_driver **driver);

/* Makes the k-th call of a kind from now on (1 = the next) return status and do
 * nothing. Several may be pending, for one kind or many. The count starts at
 * the time of this call. OUT_OF_MEMORY when the host has none. */
vmm_status vmm_sim_fail(vmm_driver *sim, vmm_call call, uint64_t k, vmm_status status);
/* Forgets the failures that are still pending. */
void vmm_sim_fail_none(vmm_driver *sim);

/* One unit of device work has passed: events age by one. O(1). */
void vmm_sim_tick(vmm_driver *sim);

/* What the device holds now. For leak checks and the invariant walker. O(1). */
typedef struct vmm_sim_usage {
  uint64_t physical_bytes; /* cuMemAlloc, pool and handles, released-but-mapped ones too */
  uint64_t reserved_address_bytes;
  uint64_t handles;      /* with a reference or a mapping */
  uint64_t mappings;
  uint64_t reservations;
  uint64_t mallocs;      /* live cuMemAlloc allocations */
  uint64_t events;       /* recorded and not discarded */
} vmm_sim_usage;
void vmm_sim_usage_get(const vmm_driver *sim, vmm_sim_usage *usage);

/* Is [address, address + size) mapped with access, or a live cuMemAlloc block? O(mappings covered). */
bool vmm_sim_accessible(const vmm_driver *sim, vmm_address address, uint64_t size);
/* The physical place behind an address: a number that is equal for two addresses
 * exactly when they are the same byte of memory. UINT64_MAX when nothing is mapped. O(1). */
uint64_t vmm_sim_physical(const vmm_driver *sim, vmm_address address);

#endif
