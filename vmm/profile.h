/* What the calls of a device cost: measured points that the simulated device
 * interpolates. Text files under vmm/profiles; the built-in ones are compiled in.
 *
 * Format, one item a line, '#' starts a comment:
 *   lakebed-profile 1
 *   device NVIDIA H200                       text
 *   source what was measured, when, by which command
 *   total_bytes 150109880320                 physical memory of the device
 *   usable_bytes 149557477376                what a process can take of it
 *   granularity_bytes 2097152
 *   cost CALL SIZE_BYTES LIVE_HANDLES MICROSECONDS   one measured point of one call;
 *                                            CALL as in VMM_CALL_MAP, small letters
 * A cost line gives the time of one call (set_access: of one mapping in a call)
 * on a handle, mapping or range of that size while that many handles live.
 * Between points: piecewise linear in log2(size) of log2(time), linear in
 * handles; outside them: the nearest point, beyond the largest size in
 * proportion to size. A point of size 0 is the price of a call that moves no
 * memory: one without a size, one that is refused, the release of a handle that
 * is still mapped. A call without any point costs nothing. */
#ifndef LAKEBED_VMM_PROFILE_H
#define LAKEBED_VMM_PROFILE_H

#include "vmm/driver.h"

typedef struct vmm_profile vmm_profile;

/* The names of the built-in profiles, NULL-terminated, static. */
const char *const *vmm_profile_names(void);

/* Loads a built-in profile by name, or a file by path. The caller destroys it.
 * On failure returns INVALID_VALUE (or OUT_OF_MEMORY) and writes
 * "file:line: what was expected" to message, always terminated. */
vmm_status vmm_profile_load(const char *name_or_path, vmm_profile **profile, char *message,
                            size_t message_size);
void vmm_profile_destroy(vmm_profile *profile);

const char *vmm_profile_device(const vmm_profile *profile);
const char *vmm_profile_source(const vmm_profile *profile);
uint64_t vmm_profile_total_bytes(const vmm_profile *profile);
uint64_t vmm_profile_usable_bytes(const vmm_profile *profile);
uint64_t vmm_profile_granularity(const vmm_profile *profile);

/* Nanoseconds of one call. O(log points), no allocation. */
uint64_t vmm_profile_cost_ns(const vmm_profile *profile, vmm_call call, uint64_t size, uint64_t live_handles);

#endif
