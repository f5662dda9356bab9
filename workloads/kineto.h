/* The memory events of a PyTorch profiler trace. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_KINETO_H
#define LAKEBED_WORKLOADS_KINETO_H

#include "workloads/reader.h"

enum { KINETO_MOST_DEVICES = 64 };

typedef struct kineto_event {
  uint64_t time_ns;
  uint64_t address;
  int64_t bytes; /* allocated, or with a minus freed; never 0 */
  int64_t total; /* allocated after it, KINETO_NO_TOTAL where the profile does not say */
  uint64_t offset;
  uint32_t device;
} kineto_event;

#define KINETO_NO_TOTAL INT64_C(-1)

typedef struct kineto_profile {
  kineto_event *events;
  size_t count, capacity;
  uint64_t trace_events; /* of any kind */
  uint64_t skipped;      /* memory events that are of no GPU */
  uint32_t devices[KINETO_MOST_DEVICES];
  uint32_t device_count;
} kineto_profile;

/* Reads the input of opened to its end. profile: empty, with or without memory to reuse. */
trace_status kineto_read(trace *opened, kineto_profile *profile, trace_error *error);

#endif
