#include "harness/replay_failure.h"

static void add_range(void *context, uint64_t bytes) {
  replay_free_ranges *ranges = context;
  if (bytes == 0) return;
  unsigned bin = 63u - (unsigned)__builtin_clzll(bytes);
  ranges->count[bin]++;
  ranges->bytes[bin] += bytes;
}

void replay_failure_describe(replay_failure *failure, const trace_event *event, const policy *subject,
                             const device *gpu, uint64_t live_bytes) {
  const pool_heap *heap = &subject->heap;
  *failure = (replay_failure){
      .id = event->id,
      .size = event->size,
      .stream = event->stream,
      .live_bytes = live_bytes,
      .allocated_bytes = heap->statistics.allocated_bytes.current,
      .reserved_bytes = heap->statistics.reserved_bytes.current,
      .knows_largest_free = subject->class->largest_free != NULL,
      .largest_free_bytes = policy_largest_free(subject),
      .knows_free_ranges = subject->class->free_ranges != NULL,
      .device_free_bytes = UINT64_MAX,
  };
  policy_free_ranges(subject, add_range, &failure->free_ranges);
  device_error_format(gpu, failure->driver_error, sizeof failure->driver_error);
  failure->refused_by = failure->driver_error[0]    ? REPLAY_REFUSED_BY_DEVICE
                        : heap->limit != UINT64_MAX ? REPLAY_REFUSED_BY_LIMIT
                                                    : REPLAY_REFUSED_BY_POLICY;
  uint64_t held;
  if (device_held_bytes(gpu, &held)) failure->device_free_bytes = gpu->model->capacity - held;
}

const char *replay_refusal_name(replay_refusal refusal) {
  switch (refusal) {
    case REPLAY_REFUSED_BY_DEVICE:
      return "device";
    case REPLAY_REFUSED_BY_LIMIT:
      return "limit";
    case REPLAY_REFUSED_BY_POLICY:
      break;
  }
  return "policy";
}
