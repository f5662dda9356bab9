/* A simulated GPU. Refuses what the hardware refuses, with the same codes;
 * charges each call a latency from a profile; can be told to fail; can be
 * backed by real, really aliasing pages. Without backing it keeps accounts only:
 * 140 GB with 70,000 mappings take a few MB. The same calls give the same
 * addresses: reservations by first fit from the bottom, cuMemAlloc in the order
 * that an H200 shows (sim_malloc.c), never overlapping.
 *
 * Stricter than an H200 where a caller should not go: ranges that cross the end
 * of a reservation, access over holes, cuMemFreeAsync of cuMemAlloc's memory.
 *
 * busy_ns: a call that succeeds costs what the profile says for its size (unmap
 * and set_access: the sum over the mappings; what a release of a mapped handle
 * saves, the last unmap pays); one that is refused or injected to fail costs the
 * profile's point of size 0, or without one that of the smallest size.
 *
 * Not thread-safe: one caller at a time. */
#ifndef LAKEBED_VMM_SIM_H
#define LAKEBED_VMM_SIM_H

#include "vmm/driver.h"
#include "vmm/profile.h"

#define VMM_SIM_LARGEST_CAPACITY (UINT64_C(512) << 30) /* bytes */

typedef struct vmm_sim_configuration {
  const vmm_profile *profile; /* latencies, capacity and granularity; borrowed; NULL: every call is free */
  uint64_t capacity;          /* physical bytes; 0: the profile's usable bytes */
  uint64_t granularity;       /* 0: the profile's, or 2 MiB */
  uint64_t address_limit;     /* VA bytes that can be reserved; 0 or more: 126 TiB, what 128 TiB leave beside
                                 the host and cuMemAlloc; backed: 8 TiB, or what the host has left */
  uint64_t event_delay;       /* an event completes after so many vmm_sim_tick calls; 0: at once */
  bool backed;                /* chunks are pages of a memfd mapped at real addresses */
} vmm_sim_configuration;

/* Creates the device. The caller destroys it with vmm_driver_destroy. Errors:
 * INVALID_VALUE for a granularity that is no power of two from 4 KiB to 1 GiB,
 * for a capacity that is no multiple of it, above VMM_SIM_LARGEST_CAPACITY, or 0 without
 * a profile, for an address_limit below the granularity; OUT_OF_MEMORY when the
 * host has none. */
vmm_status vmm_sim_create(const vmm_sim_configuration *configuration, vmm_driver **driver);

/* Makes the k-th call of a kind from now on (1 = the next) return status and do
 * nothing. Several may be pending, for one kind or many; one more for the same
 * call replaces it. The count starts at the time of this call. INVALID_VALUE for
 * no such call, k 0 or status SUCCESS; OUT_OF_MEMORY when the host has none. */
vmm_status vmm_sim_fail(vmm_driver *sim, vmm_call call, uint64_t k, vmm_status status);
/* Forgets the failures that are still pending. */
void vmm_sim_fail_none(vmm_driver *sim);

/* One unit of device work has passed: events age by one. O(1). */
void vmm_sim_tick(vmm_driver *sim);

/* What the device holds now. For leak checks and the invariant walker. O(1). */
typedef struct vmm_sim_usage {
  uint64_t physical_bytes; /* cuMemAlloc, pool and handles, released-but-mapped ones too */
  uint64_t reserved_address_bytes;
  uint64_t handles; /* with a reference or a mapping */
  uint64_t mappings;
  uint64_t reservations;
  uint64_t mallocs;          /* live cuMemAlloc allocations */
  uint64_t events;           /* recorded and not discarded */
  uint64_t pool_bytes;       /* of physical_bytes, what the stream-ordered pool holds */
  uint64_t pool_allocations; /* live ones of cuMemAllocAsync */
} vmm_sim_usage;
void vmm_sim_usage_get(const vmm_driver *sim, vmm_sim_usage *usage);

/* Is [address, address + size) mapped with access, or in one live allocation of
 * cuMemAlloc or the pool? O(mappings covered), O(log n) for the pool. */
bool vmm_sim_accessible(const vmm_driver *sim, vmm_address address, uint64_t size);
/* The physical place behind an address: a number that is equal for two addresses
 * exactly when they are the same byte of memory. UINT64_MAX when nothing is mapped. O(1). */
uint64_t vmm_sim_physical(const vmm_driver *sim, vmm_address address);

#endif
