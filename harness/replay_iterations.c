#include "harness/replay_iterations.h"

#include <stdlib.h>
#include <string.h>

#include "harness/replay_internal.h"
#include "vmm/meter.h"

/* Everything that grows, up to now. */
static void sample(const replay *run, replay_iteration *now) {
  const replay_result *result = run->result;
  const pool_heap *heap = &run->subject->heap;
  *now = (replay_iteration){.events = result->events,
                            .allocations = run->allocations,
                            .failed_allocs = result->failed_allocs,
                            .reserved_bytes = heap->statistics.reserved_bytes.current};
  for (vmm_call call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts;
    vmm_meter_get(run->gpu.meter, call, &counts);
    now->driver_calls += counts.count;
    now->driver_ns += counts.total_ns;
    if (call >= VMM_CALL_ADDRESS_RESERVE && call <= VMM_CALL_FREE_ASYNC) now->memory_calls += counts.count;
  }
  memcpy(now->operations, heap->operations, sizeof now->operations);
}

static void subtract(replay_iteration *from, const replay_iteration *before) {
  from->events -= before->events;
  from->allocations -= before->allocations;
  from->failed_allocs -= before->failed_allocs;
  from->driver_calls -= before->driver_calls;
  from->driver_ns -= before->driver_ns;
  from->memory_calls -= before->memory_calls;
  for (unsigned i = 0; i < POOL_OPERATION_LIMIT; i++) {
    from->operations[i].count -= before->operations[i].count;
    from->operations[i].driver_ns -= before->operations[i].driver_ns;
  }
}

bool replay_iterations_begin(replay *run, const event_source *source) {
  if (!run->settings->iterations) return true;
  run->mark_count = event_source_marks(source, &run->marks);
  run->result->iterations.marked = run->mark_count > 0;
  run->iteration_begin = calloc(2, sizeof *run->iteration_begin);
  return run->iteration_begin || replay_fail_no_memory(run);
}

void replay_iterations_peaks(replay *run) {
  if (run->live_bytes > run->iteration_live_peak) run->iteration_live_peak = run->live_bytes;
  const uint64_t reserved = run->subject->heap.statistics.reserved_bytes.current;
  if (reserved > run->iteration_reserved_peak) run->iteration_reserved_peak = reserved;
}

/* The iteration is over. */
static bool add_iteration(replay *run, uint64_t number) {
  replay_iterations *all = &run->result->iterations;
  if (all->count == all->capacity) {
    size_t capacity = all->capacity ? all->capacity * 2 : 16;
    replay_iteration *items = realloc(all->items, capacity * sizeof *items);
    if (!items) return replay_fail_no_memory(run);
    all->items = items;
    all->capacity = capacity;
  }
  replay_iteration *added = &all->items[all->count++], *begin = run->iteration_begin, *now = begin + 1;
  sample(run, now);
  *added = *now;
  subtract(added, begin);
  *begin = *now;
  added->lap = run->lap;
  added->number = number;
  added->live_peak_bytes = run->iteration_live_peak;
  added->reserved_peak_bytes = run->iteration_reserved_peak;
  policy_counter counters[REPLAY_COUNTERS];
  size_t count = policy_counters(run->subject, counters, REPLAY_COUNTERS);
  for (size_t i = 0; i < count && i < REPLAY_COUNTERS; i++) added->counters[i] = counters[i].value;
  run->iteration_live_peak = run->iteration_reserved_peak = 0;
  replay_iterations_peaks(run);
  return true;
}

/* Puts what came since the last iteration to it. */
static void extend_iteration(replay *run) {
  replay_iterations *all = &run->result->iterations;
  replay_iteration *last = &all->items[all->count - 1];
  const uint64_t number = last->number, live = last->live_peak_bytes, reserved = last->reserved_peak_bytes;
  replay_iteration before = *run->iteration_begin;
  subtract(&before, last);
  *run->iteration_begin = before;
  if (live > run->iteration_live_peak) run->iteration_live_peak = live;
  if (reserved > run->iteration_reserved_peak) run->iteration_reserved_peak = reserved;
  all->count--;
  add_iteration(run, number);
}

bool replay_iterations_event(replay *run, const trace_event *event) {
  while (run->next_mark < run->mark_count && event->time_us > run->marks[run->next_mark]) {
    run->next_mark++;
    if (!add_iteration(run, run->next_mark)) return false;
  }
  return true;
}

bool replay_iterations_lap_end(replay *run) {
  if (!run->settings->iterations) return true;
  const bool frees_alone = run->allocations == run->iteration_begin->allocations;
  if (run->next_mark > 0 && frees_alone) {
    extend_iteration(run);
  } else if (!add_iteration(run, run->next_mark + 1)) {
    return false;
  }
  run->next_mark = 0;
  return true;
}

/* ---- what they say ---- */

/* POOL_OPERATION_LIMIT: there is none. */
static unsigned operation_named(const replay_iteration *iteration, const char *name) {
  for (unsigned i = 0; i < POOL_OPERATION_LIMIT; i++) {
    if (iteration->operations[i].name && strcmp(iteration->operations[i].name, name) == 0) return i;
  }
  return POOL_OPERATION_LIMIT;
}

bool replay_iteration_is_exact(const replay_iteration *iteration) {
  static const char *const others[] = {"S2", "S3", "S4", "S5"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    unsigned operation = operation_named(iteration, others[i]);
    if (operation < POOL_OPERATION_LIMIT && iteration->operations[operation].count > 0) return false;
  }
  return true;
}

void replay_iterations_settle(replay_iterations *iterations) {
  if (iterations->count > 0)
    iterations->states = operation_named(&iterations->items[0], "S1") < POOL_OPERATION_LIMIT;
  size_t from = iterations->count;
  while (from > 0 && replay_iteration_is_exact(&iterations->items[from - 1])) from--;
  iterations->exact_from = from;
  from = iterations->count;
  while (from > 0 && iterations->items[from - 1].memory_calls == 0) from--;
  iterations->quiet_from = from;
}
