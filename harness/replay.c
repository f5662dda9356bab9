#include "harness/replay_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/lifetimes.h"
#include "harness/replay_laps.h"
#include "vmm/meter.h"

bool replay_fail(replay *run, exit_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(run->result->message, sizeof run->result->message, format, arguments);
  va_end(arguments);
  run->result->status = status;
  return false;
}

bool replay_fail_no_memory(replay *run) {
  return replay_fail(run, EXIT_STATUS_CHECK_FAILED,
                     "this machine has no memory left for the replay's own records");
}

/* A driver call or the policy failed where it must not. */
bool replay_fail_call(replay *run, const trace_event *event, const char *verb, vmm_status status) {
  char cause[256];
  device_error_format(&run->gpu, cause, sizeof cause);
  return replay_fail(run, EXIT_STATUS_CHECK_FAILED,
                     "event %" PRIu64 ": to %s %" PRIu64 " bytes (id %" PRIu64 ") failed: %s (%s)%s%s",
                     run->result->events, verb, event->size, event->id, vmm_status_text(status),
                     vmm_status_name(status), cause[0] ? "; " : "", cause);
}

static bool grow_slots(replay *run, uint32_t slot) {
  uint32_t count = run->slot_count ? run->slot_count : 1024;
  while (count <= slot) {
    if (count > UINT32_MAX / 2) return replay_fail_no_memory(run);
    count *= 2;
  }
  replay_slot *slots = realloc(run->slots, count * sizeof *slots);
  if (!slots) return replay_fail_no_memory(run);
  memset(slots + run->slot_count, 0, (count - run->slot_count) * sizeof *slots);
  run->slots = slots;
  run->slot_count = count;
  return true;
}

/* Sets the bit of the event that failed. */
static bool note_failed_event(replay *run) {
  replay_result *result = run->result;
  uint64_t byte = result->events / 8;
  if (byte >= result->failed_events_bytes) {
    uint64_t size = (byte + 1) * 2;
    uint8_t *bits = realloc(result->failed_events, size);
    if (!bits) return replay_fail_no_memory(run);
    memset(bits + result->failed_events_bytes, 0, size - result->failed_events_bytes);
    result->failed_events = bits;
    result->failed_events_bytes = size;
  }
  result->failed_events[byte] = (uint8_t)(result->failed_events[byte] | 1u << result->events % 8);
  return true;
}

static void describe(const replay *run, const trace_event *event, replay_failure *failure) {
  replay_failure_describe(failure, event, run->subject, &run->gpu, run->live_bytes);
  failure->number = run->result->events;
  failure->lap = run->lap;
  failure->event = run->result->events - run->lap_first;
}

/* Ends the run early, as asked. */
static bool stop(replay *run) {
  run->result->stopped = true;
  run->result->status = EXIT_STATUS_OUT_OF_MEMORY;
  return false;
}

static bool allocate(replay *run, const trace_event *event) {
  if (event->slot >= run->slot_count && !grow_slots(run, event->slot)) return false;
  replay_slot *slot = &run->slots[event->slot];
  vmm_address address;
  run->allocations++;
  vmm_status status = policy_alloc(run->subject, event->size, event->stream, &address);
  if (status == VMM_OUT_OF_MEMORY) {
    if (run->result->failed_allocs++ == 0) describe(run, event, &run->result->first_failure);
    if (!replay_dump_failure(run, event->size)) return false;
    if (run->settings->stop_at_failure) return stop(run);
    device_error_clear(&run->gpu);
    *slot = (replay_slot){.address = REPLAY_NO_ADDRESS};
    return note_failed_event(run);
  }
  if (status != VMM_SUCCESS) return replay_fail_call(run, event, "allocate", status);
  *slot = (replay_slot){.address = address, .size = event->size, .stream = event->stream};
  instruments_allocated(run->settings->instruments, address, event->size, run->result->events);
  run->live_bytes += replay_live_size(event->size);
  if (event->size > run->largest_bytes) run->largest_bytes = event->size;
  if (run->live_bytes > run->result->live_peak_bytes) run->result->live_peak_bytes = run->live_bytes;
  if (!replay_dump_live(run, run->live_bytes)) return false;
  return !run->verify || address == 0 || replay_fill(run, slot, event);
}

static bool release(replay *run, uint32_t number, const trace_event *event) {
  replay_slot *slot = &run->slots[number];
  if (slot->address != REPLAY_NO_ADDRESS) {
    if (run->verify && slot->address != 0 && !replay_verify(run, slot)) return false;
    instruments_freed(run->settings->instruments, slot->address);
    vmm_status status = policy_free(run->subject, slot->address);
    if (status != VMM_SUCCESS) return replay_fail_call(run, event, "free", status);
    run->live_bytes -= replay_live_size(slot->size);
  }
  slot->address = 0;
  slot->size = 0;
  return true;
}

/* The recorded run found no memory here. Would this policy have? */
static bool probe(replay *run, const trace_event *event) {
  replay_result *result = run->result;
  const uint64_t number = result->recorded_ooms++;
  vmm_address address;
  vmm_status status = policy_alloc(run->subject, event->size, event->stream, &address);
  if (status != VMM_SUCCESS && status != VMM_OUT_OF_MEMORY)
    return replay_fail_call(run, event, "allocate", status);
  const bool served = status == VMM_SUCCESS;
  const uint64_t live = run->live_bytes + (served ? replay_live_size(event->size) : 0);
  if (live > result->live_peak_bytes) result->live_peak_bytes = live;
  if (!replay_dump_live(run, live)) return false;
  if (!served && !replay_dump_failure(run, event->size)) return false;
  if (number < REPLAY_PROBES) {
    replay_probe *probes = realloc(result->probes, (number + 1) * sizeof *probes);
    if (!probes) return replay_fail_no_memory(run);
    result->probes = probes;
    probes[number] = (replay_probe){.served = served, .recorded_free_bytes = event->id};
    describe(run, event, &probes[number].state);
  }
  result->recorded_ooms_served += served;
  device_error_clear(&run->gpu);
  if (!served) return !run->settings->stop_at_failure || stop(run);
  status = policy_free(run->subject, address);
  return status == VMM_SUCCESS || replay_fail_call(run, event, "free", status);
}

static bool check(replay *run) {
  char message[512];
  if (policy_check(run->subject, message, sizeof message)) return true;
  return replay_fail(run, EXIT_STATUS_CHECK_FAILED,
                     "event %" PRIu64 ": the policy's invariants do not hold: %s", run->result->events,
                     message);
}

/* The free of a slot, or the request for it. Events are counted at whichever frees the memory. */
static bool replay_free(replay *run, const trace_event *event, bool *counts) {
  if (event->slot >= run->slot_count) return true;
  replay_slot *slot = &run->slots[event->slot];
  const bool request = event->kind == TRACE_FREE_REQUESTED;
  *counts = request ? run->settings->frees_requested : !slot->freed;
  slot->freed = request && *counts;
  return !*counts || release(run, event->slot, event);
}

static bool replay_event(replay *run, const trace_event *event) {
  bool counts = true;
  if (run->iteration_begin && !replay_iterations_event(run, event)) return false;
  if (event->kind == TRACE_ALLOC) {
    if (!allocate(run, event)) return false;
  } else if (event->kind == TRACE_OUT_OF_MEMORY) {
    if (!probe(run, event)) return false;
    counts = false;
  } else if (!replay_free(run, event, &counts)) {
    return false;
  }
  if (!counts && event->kind != TRACE_OUT_OF_MEMORY) return true;
  vmm_status status = device_advance(&run->gpu, run->uses_pool);
  if (status != VMM_SUCCESS) return replay_fail_call(run, event, "wait for", status);
  /* A policy that asked, was refused and helped itself leaves an error that is nobody's. */
  if (run->gpu.raw->error.status != VMM_SUCCESS) device_error_clear(&run->gpu);
  uint64_t held;
  if (device_held_bytes(&run->gpu, &held) && held > run->result->device_peak_bytes)
    run->result->device_peak_bytes = held;
  instruments_memory(run->settings->instruments, run->live_bytes);
  if (run->settings->check && !check(run)) return false;
  if (run->iteration_begin) replay_iterations_peaks(run);
  if (run->line && counts) {
    const pool_statistics *statistics = &run->subject->heap.statistics;
    timeline_point point = {run->result->events, event->time_us, run->live_bytes,
                            statistics->allocated_bytes.current, statistics->reserved_bytes.current};
    timeline_add(run->line, &point);
  }
  run->result->events += counts;
  return !counts || replay_dump_event(run);
}

/* Frees what the trace left alive, in the order of its slots. */
static bool free_all(replay *run) {
  for (uint32_t i = 0; i < run->slot_count; i++) {
    if (run->slots[i].address == 0) continue;
    const trace_event event = {.kind = TRACE_FREE, .slot = i, .size = run->slots[i].size};
    if (!release(run, i, &event)) return false;
    instruments_memory(run->settings->instruments, run->live_bytes);
    if (run->settings->check && !check(run)) return false;
  }
  return true;
}

static void count_calls(const replay *run, uint64_t *calls, uint64_t *nanoseconds) {
  *calls = *nanoseconds = 0;
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts;
    vmm_meter_get(run->gpu.meter, (vmm_call)call, &counts);
    *calls += counts.count;
    *nanoseconds += counts.total_ns;
  }
}

static void record_lap(replay *run) {
  const pool_heap *heap = &run->subject->heap;
  replay_result *result = run->result;
  replay_lap *lap = &result->laps[result->lap_count++];
  *lap = (replay_lap){
      .events = result->events - run->lap_first,
      .failed_allocs = result->failed_allocs,
      .allocated_bytes = heap->statistics.allocated_bytes.current,
      .reserved_bytes = heap->statistics.reserved_bytes.current,
      .address_bytes = heap->reserved_address_bytes,
      .segments = heap->statistics.segments.current,
      .chunks = heap->chunk_count,
      .ranges = heap->range_count,
      .split_blocks = heap->statistics.inactive_split.current,
      .largest_free_bytes = policy_largest_free(run->subject),
  };
  count_calls(run, &lap->driver_calls, &lap->driver_ns);
  for (const replay_lap *earlier = result->laps; earlier < lap; earlier++) {
    lap->driver_calls -= earlier->driver_calls;
    lap->driver_ns -= earlier->driver_ns;
    lap->failed_allocs -= earlier->failed_allocs;
  }
}

/* Before the memory of the last lap is given back. */
static void record_totals(replay *run) {
  replay_result *result = run->result;
  const pool_heap *heap = &run->subject->heap;
  result->statistics = heap->statistics;
  if (!device_held_bytes(&run->gpu, &result->device_held_bytes)) {
    result->device_held_bytes = result->device_peak_bytes = UINT64_MAX;
  }
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts;
    vmm_meter_get(run->gpu.meter, (vmm_call)call, &counts);
    result->calls[call] = (replay_call){counts.count, counts.failures, counts.total_ns,
                                        vmm_meter_percentile(run->gpu.meter, (vmm_call)call, 0.5),
                                        vmm_meter_percentile(run->gpu.meter, (vmm_call)call, 0.99)};
  }
  count_calls(run, &result->driver_calls, &result->driver_ns);
  result->operation_count = heap->operation_count;
  memcpy(result->operations, heap->operations, sizeof result->operations);
  size_t counters = policy_counters(run->subject, result->counters, REPLAY_COUNTERS);
  result->counter_count = counters < REPLAY_COUNTERS ? counters : REPLAY_COUNTERS;
  result->latency = instruments_report(run->settings->instruments);
}

static bool fail_trace(replay *run, const trace_error *error) {
  run->result->trace_failed = true;
  return replay_fail(run, error->status == TRACE_NO_MEMORY ? EXIT_STATUS_CHECK_FAILED : EXIT_STATUS_USAGE,
                     "%s", error->message);
}

static bool replay_lap_events(replay *run, event_source *source, progress *shown) {
  replay_result *result = run->result;
  trace_error error;
  run->lap_first = result->events;
  if (event_source_rewind(source, &error) != TRACE_OK) return fail_trace(run, &error);
  while (true) {
    const trace_event *events;
    size_t count;
    instruments_pause(run->settings->instruments);
    trace_status status = event_source_next(source, &events, &count, &error);
    instruments_resume(run->settings->instruments);
    if (status == TRACE_END) return true;
    if (status != TRACE_OK) return fail_trace(run, &error);
    uint64_t begin_ns = progress_clock_ns();
    for (size_t i = 0; i < count; i++) {
      if (!replay_event(run, &events[i])) return false;
    }
    result->host_ns += progress_clock_ns() - begin_ns;
    double share = event_source_progress(source);
    if (share >= 0) share = ((double)(run->lap - 1) + share) / (double)run->settings->laps;
    progress_update(shown, share, result->events, run->subject->heap.statistics.reserved_bytes.current);
  }
}

/* Numbers that cannot be true, whoever got them wrong. */
static bool check_sanity(replay *run) {
  const replay_result *result = run->result;
  const policy *subject = run->subject;
  if (subject->class->capabilities & POLICY_NO_MEMORY || subject->heap.memory_elsewhere) return true;
  const pool_statistics *statistics = &result->statistics;
  if (statistics->allocated_bytes.peak > run->settings->model->capacity) {
    return replay_fail(run, EXIT_STATUS_CHECK_FAILED,
                       "this cannot be true: %" PRIu64 " bytes were allocated on a device of %" PRIu64,
                       statistics->allocated_bytes.peak, run->settings->model->capacity);
  }
  if (statistics->reserved_bytes.current > result->device_held_bytes) {
    return replay_fail(run, EXIT_STATUS_CHECK_FAILED,
                       "this cannot be true: the policy reserves %" PRIu64
                       " bytes, but the device gave out %" PRIu64,
                       statistics->reserved_bytes.current, result->device_held_bytes);
  }
  return true;
}

static bool replay_laps(replay *run, event_source *source, progress *shown) {
  for (run->lap = 1; run->lap <= run->settings->laps; run->lap++) {
    if (!replay_lap_events(run, source, shown)) return false;
    if (run->lap == run->settings->laps) {
      record_totals(run);
      if (!check_sanity(run) || !replay_verify_all(run)) return false;
    }
    if (run->settings->laps > 1 && !free_all(run)) return false;
    record_lap(run);
    if (!replay_iterations_lap_end(run)) return false;
  }
  return true;
}

static bool check_laps(replay *run) {
  char message[256];
  if (replay_laps_check(run->result, message, sizeof message)) return true;
  return replay_fail(run, EXIT_STATUS_CHECK_FAILED, "%s", message);
}

static void attach_instruments(replay *run, const policy_spec *spec) {
  const replay_settings *settings = run->settings;
  const instrument_run subject = {.policy = spec->text,
                                  .trace = settings->trace ? settings->trace : "",
                                  .modelled = settings->model->source != NULL,
                                  .device = run->gpu.raw};
  instruments_attach(settings->instruments, &subject, run->subject, run->gpu.meter);
}

/* Makes the policy; one that has to know the trace in advance is told. */
static bool create_policy(replay *run, event_source *source, const policy_spec *spec) {
  char message[REPLAY_MESSAGE];
  lifetimes known = {0};
  policy_lifetimes told;
  const bool oracle = spec->class->capabilities & POLICY_NEEDS_LIFETIMES;
  if (oracle) {
    trace_error error;
    if (lifetimes_read(source, run->settings->frees_requested, &known, &error) != TRACE_OK) {
      lifetimes_free(&known);
      return fail_trace(run, &error);
    }
    told = lifetimes_end(&known);
  }
  vmm_status status =
      policy_create_with_lifetimes(spec, run->gpu.meter, run->settings->limit, oracle ? &told : NULL,
                                   &run->subject, message, sizeof message);
  lifetimes_free(&known);
  if (status == VMM_SUCCESS) return true;
  exit_status kind = status == VMM_INVALID_VALUE   ? EXIT_STATUS_USAGE
                     : status == VMM_OUT_OF_MEMORY ? EXIT_STATUS_OUT_OF_MEMORY
                                                   : EXIT_STATUS_CHECK_FAILED;
  return replay_fail(run, kind, "%s", message);
}

static bool prepare(replay *run, event_source *source, const policy_spec *spec) {
  replay_result *result = run->result;
  char message[REPLAY_MESSAGE];
  result->laps = calloc(run->settings->laps, sizeof *result->laps);
  if (!result->laps) return replay_fail_no_memory(run);
  if (run->settings->timeline_points > 0) {
    run->line = timeline_create(run->settings->timeline_points);
    if (!run->line) return replay_fail_no_memory(run);
  }
  exit_status opened = device_open(run->settings->model, &run->gpu, message, sizeof message);
  if (opened != EXIT_STATUS_DONE) return replay_fail(run, opened, "%s", message);
  if (!create_policy(run, source, spec)) return false;
  attach_instruments(run, spec);
  return true;
}

static bool keep_timeline(replay *run) {
  replay_result *result = run->result;
  if (!run->line) return true;
  size_t room = run->settings->timeline_points;
  result->timeline =
      malloc((room > TIMELINE_LEAST_POINTS ? room : TIMELINE_LEAST_POINTS) * sizeof *result->timeline);
  if (!result->timeline) return replay_fail_no_memory(run);
  result->timeline_count = timeline_points(run->line, result->timeline);
  return true;
}

/* Gives everything back and sees that the device is empty. */
static void finish(replay *run) {
  replay_result *result = run->result;
  instruments *set = run->settings->instruments;
  instruments_begin(set, "destroy", 0);
  policy_destroy(run->subject);
  instruments_end(set);
  instruments_detach(set);
  char left[512];
  if (run->gpu.raw && !device_is_empty(&run->gpu, left, sizeof left)) {
    size_t used = strlen(result->message);
    snprintf(result->message + used, sizeof result->message - used,
             "%sthe policy was destroyed and leaks: %s", used ? "; " : "", left);
    result->status = EXIT_STATUS_CHECK_FAILED;
    result->complete = false;
  }
  device_close(&run->gpu);
  timeline_destroy(run->line);
  free(run->slots);
  free(run->iteration_begin);
}

/* stop_at_live: as of struct replay. */
static void run_once(event_source *source, const policy_spec *spec, const replay_settings *settings,
                     uint64_t stop_at_live, progress *shown, replay_result *result) {
  memset(result, 0, sizeof *result);
  result->spec = spec;
  replay run = {.settings = settings, .result = result, .stop_at_live = stop_at_live};
  run.verify = settings->verify && !(spec->class->capabilities & POLICY_NO_MEMORY);
  run.uses_pool = spec->class->capabilities & POLICY_NEEDS_ASYNC;
  if (prepare(&run, source, spec) && replay_iterations_begin(&run, source) &&
      replay_laps(&run, source, shown) && check_laps(&run) && keep_timeline(&run)) {
    result->complete = true;
    if (result->failed_allocs > 0) result->status = EXIT_STATUS_OUT_OF_MEMORY;
    replay_laps_settle(result);
    replay_iterations_settle(&result->iterations);
  }
  finish(&run);
}

/* Where the peak is shows only at the end: the run is made again up to there. */
static void dump_peak(event_source *source, const policy_spec *spec, const replay_settings *settings,
                      progress *shown, replay_result *result) {
  replay_settings again = *settings;
  again.check = again.verify = again.iterations = false;
  again.timeline_points = 0;
  again.instruments = NULL;
  again.dump = (replay_dump){.moment = REPLAY_DUMP_NEVER};
  replay_result second;
  run_once(source, spec, &again, result->live_peak_bytes, shown, &second);
  result->map = second.map;
  second.map = NULL;
  replay_result_free(&second);
}

void replay_run(event_source *source, const policy_spec *spec, const replay_settings *settings,
                progress *shown, replay_result *result) {
  run_once(source, spec, settings, UINT64_MAX, shown, result);
  if (settings->dump.moment == REPLAY_DUMP_PEAK && result->complete)
    dump_peak(source, spec, settings, shown, result);
  replay_dump_explain(result, &settings->dump);
}

void replay_result_free(replay_result *result) {
  free(result->laps);
  free(result->failed_events);
  free(result->probes);
  free(result->timeline);
  memory_map_free(result->map);
  free(result->iterations.items);
  instrument_report_free(result->latency);
  memset(result, 0, sizeof *result);
}

bool replay_served(const replay_result *result, uint64_t number) {
  if (number >= result->events) return false;
  uint64_t byte = number / 8;
  return byte >= result->failed_events_bytes || !(result->failed_events[byte] >> number % 8 & 1);
}

double replay_utilization(const replay_result *result) {
  uint64_t reserved = result->statistics.reserved_bytes.peak;
  return reserved > 0 ? (double)result->live_peak_bytes / (double)reserved : -1;
}
