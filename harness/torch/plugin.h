/* What the files of the plugin share.
 *   plugin.c             requests, and the functions that PyTorch calls
 *   plugin_device.c      opening and closing devices, configuration
 *   plugin_record.c      traces of live runs
 *   plugin_report.c      statistics, and the text of a failure
 *   plugin_raise.c       exceptions of C++ */
#ifndef LAKEBED_HARNESS_TORCH_PLUGIN_H
#define LAKEBED_HARNESS_TORCH_PLUGIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "harness/torch/lakebed_torch.h"
#include "policies/shared_policy.h"
#include "workloads/id_map.h"
#include "workloads/trace_writer.h"

enum { PLUGIN_DEVICES = 64, PLUGIN_MESSAGE = 512, PLUGIN_FAILURE_TEXT = 2048 };

typedef struct plugin_counts {
  uint64_t served_allocations, served_frees; /* by the policy */
  uint64_t bypassed_allocations;             /* of size 0 */
  uint64_t bypassed_frees;                   /* of null or unknown pointers */
  uint64_t failed_frees;                     /* refused by the driver */
  uint64_t out_of_memory;                    /* requests that failed for it */
  uint64_t trimmed_retries; /* requests made again after the policy had returned what it did not use */
  uint64_t alloc_ns, free_ns, longest_ns; /* wall time under the policy's lock */
} plugin_counts;

typedef struct plugin_device {
  _Atomic(shared_policy *) policy; /* NULL: not open. Its lock guards what follows */
  int ordinal;
  vmm_driver *raw, *meter;
  uint64_t total_bytes;
  char name[128];
  trace_id_map streams; /* cudaStream_t to the number by which the policy knows it */
  uint32_t stream_count;
  plugin_counts counts;
  trace_writer *recording;
  char recording_failure[PLUGIN_MESSAGE]; /* why it ended by itself; empty: it did not */

  /* The share of the device that the policy may hold; not limited: no share was set, or all of it. Guarded
   * by the state's lock. */
  double fraction;
  bool limited;
} plugin_device;

typedef struct plugin_state {
  pthread_mutex_t lock; /* taken before a policy's */
  bool configured;
  policy_spec spec; /* does not change while a device is open, nor does what follows */
  bool simulated;
  char profile[256];
  uint64_t capacity;
  char *wanted_path;  /* of a recording that begins with its device; NULL: none */
  int wanted_ordinal; /* of that device; -1: the first that is opened */
  plugin_device devices[PLUGIN_DEVICES];
} plugin_state;

extern plugin_state plugin;

static inline uint64_t plugin_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* plugin_device.c: opened if need be; NULL, and message says why not. */
plugin_device *plugin_device_open(int ordinal, char *message, size_t message_size);
/* NULL if it is not open. */
plugin_device *plugin_device_opened(int ordinal);
/* Calls use with a context under the policy's lock. NOT_INITIALIZED in a forked child, DEINITIALIZED while
 * the process ends; then use is not called. */
static inline vmm_status plugin_with(plugin_device *device, shared_policy_use *use, void *context) {
  return shared_policy_with(atomic_load_explicit(&device->policy, memory_order_acquire), use, context);
}
/* The number of a stream; under the lock. */
vmm_status plugin_stream_of(plugin_device *device, void *stream, vmm_stream *index);

/* plugin_record.c; under the lock. */
void plugin_record(plugin_device *device, trace_event_kind kind, uint64_t address, uint64_t size,
                   void *stream);
/* Begins the recording that was asked for before the device was open. The state's lock is held. */
void plugin_record_wanted(plugin_device *device);
vmm_status plugin_record_stop(plugin_device *device, char *message, size_t message_size);

/* plugin_report.c: why a request was not served, for people; the driver's error is told and cleared. Under
 * the lock. */
void plugin_explain(const plugin_device *device, const policy *subject, uint64_t size, vmm_status status,
                    char text[PLUGIN_FAILURE_TEXT]);
/* "frag_limit=2MiB, chunk=2MiB": every option of a spec. */
void plugin_describe_options(const policy_spec *spec, char *text, size_t text_size);

typedef enum plugin_failure_kind { PLUGIN_OUT_OF_MEMORY, PLUGIN_FAILED } plugin_failure_kind;

/* plugin_raise.c: throws; returns only where there is nothing to throw. The caller holds no lock. */
void plugin_raise(plugin_failure_kind kind, const char *text);

#endif
