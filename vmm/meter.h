/* A driver that wraps another and counts and times every call. The time of a
 * call is what the wrapped driver's busy_ns grew by, so that it is modelled time
 * on the simulated device and measured time on a real one. */
#ifndef LAKEBED_VMM_METER_H
#define LAKEBED_VMM_METER_H

#include "vmm/driver.h"

typedef struct vmm_meter_call {
  uint64_t count;    /* calls, failed ones too */
  uint64_t failures; /* calls that did not return SUCCESS (NOT_READY is none) */
  uint64_t total_ns;
  uint64_t minimum_ns;
  uint64_t maximum_ns;
} vmm_meter_call;

/* Hears every call as it begins and ends. For NVTX ranges and call traces. */
typedef struct vmm_meter_observer {
  void *context;
  void (*call_begin)(void *context, vmm_call call, const uint64_t argument[4]);
  void (*call_end)(void *context, vmm_call call, vmm_status status, uint64_t duration_ns);
} vmm_meter_observer;

/* Wraps a driver; borrows it: destroying the meter leaves the wrapped driver. */
vmm_status vmm_meter_create(vmm_driver *wrapped, vmm_driver **meter);

/* Counts of one kind of call so far. O(1). */
void vmm_meter_get(const vmm_driver *meter, vmm_call call, vmm_meter_call *counts);
/* Latency below which the given share (0 to 1) of a kind's calls lie, in
 * nanoseconds, from a histogram whose bins are 1.6 % wide; 0 without calls. */
uint64_t vmm_meter_percentile(const vmm_driver *meter, vmm_call call, double share);
/* Bins that are not empty, in ascending order: lower bound and count. Returns how
 * many were written (at most capacity). */
size_t vmm_meter_histogram(const vmm_driver *meter, vmm_call call, uint64_t *lower_ns, uint64_t *count,
                           size_t capacity);
/* Forgets all counts; busy_ns goes on. */
void vmm_meter_reset(vmm_driver *meter);
/* NULL: none. Borrowed until replaced. */
void vmm_meter_observe(vmm_driver *meter, const vmm_meter_observer *observer);

#endif
