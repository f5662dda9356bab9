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
#include "policies/policy.h"
#include "workloads/id_map.h"
#include "workloads/trace_writer.h"

enum { PLUGIN_DEVICES = 64 };

typedef struct plugin_counts {
  uint64_t served_allocations, served_frees; /* by the policy */
  uint64_t bypassed_allocations;             /* of size 0 */
  uint64_t bypassed_frees;                   /* of null or unknown pointers */
  uint64_t failed_frees;                     /* refused by the driver */
  uint64_t out_of_memory;                    /* requests that failed for it */
  uint64_t trimmed_retries; /* requests made again after the policy had returned what it did not use */
  uint64_t alloc_ns, free_ns, longest_ns; /* wall time inside the plugin */
} plugin_counts;

typedef struct plugin_device {
  pthread_mutex_t lock;
  bool opened; /* the rest is valid */
  vmm_driver *raw, *meter;
  policy *policy;
  uint64_t total_bytes;
  char name[128];
  trace_id_map streams; /* cudaStream_t to index */
  uint32_t stream_count;
  plugin_counts counts;
  trace_writer *recording;
  char recording_failure[512]; /* why it ended by itself */
  double fraction;             /* valid before opening too; 0: no limit */
} plugin_device;

typedef struct plugin_state {
  pthread_mutex_t lock; /* of what follows, taken before a device's lock */
  bool configured;
  policy_spec spec;
  bool simulated;
  char profile[256];
  uint64_t capacity;
  plugin_device devices[PLUGIN_DEVICES];
  atomic_bool child; /* a process that was forked from one with CUDA: nothing works here */
} plugin_state;

extern plugin_state plugin;

typedef enum plugin_failure_kind { PLUGIN_OUT_OF_MEMORY, PLUGIN_FAILED } plugin_failure_kind;

enum { PLUGIN_FAILURE_TEXT = 2048 };

static inline uint64_t plugin_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* plugin_device.c: the device, opened, with its lock held; NULL, and message says why. */
plugin_device *plugin_device_enter(int ordinal, char *message, size_t message_size);
/* The same for one that is open already; NULL if it is not, or if this is a forked child. */
plugin_device *plugin_device_enter_opened(int ordinal);
static inline void plugin_device_leave(plugin_device *device) { pthread_mutex_unlock(&device->lock); }
/* The number by which the policy knows a stream. */
vmm_status plugin_stream_of(plugin_device *device, void *stream, vmm_stream *index);

/* plugin_record.c */
void plugin_record(plugin_device *device, trace_event_kind kind, uint64_t address, uint64_t size,
                   void *stream);
vmm_status plugin_record_stop(plugin_device *device, char *message, size_t message_size);

/* plugin_report.c: why a request was not served, for people; the driver's error is told and cleared. */
void plugin_explain(const plugin_device *device, int ordinal, uint64_t size, vmm_status status,
                    char text[PLUGIN_FAILURE_TEXT]);
/* "frag_limit=2MiB, chunk=2MiB": every option of a spec. */
void plugin_describe_options(const policy_spec *spec, char *text, size_t text_size);

/* plugin_raise.c: throws; returns only where there is nothing to throw. The caller holds no lock. */
void plugin_raise(plugin_failure_kind kind, const char *text);

#endif
