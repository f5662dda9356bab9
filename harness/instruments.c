#include "harness/instruments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/instrument_cupti.h"
#include "harness/instrument_nvtx.h"
#include "harness/instrument_trace_events.h"
#include "harness/program.h"
#include "vmm/meter.h"

enum { INSTRUMENTS = 4, DEPTH = 32 };

typedef struct open_range {
  instrument_range range;
  uint64_t driver_ns, driver_calls; /* as it began */
} open_range;

struct instruments {
  instrument *list[INSTRUMENTS];
  size_t count;
  instrument *latency; /* the one of them that reports; NULL: none */
  unsigned layers;     /* that any of them asked for */

  pool_observer pool_observer;
  vmm_meter_observer meter_observer;
  bool attached;
  pool_heap *heap; /* NULL once the policy is gone */
  vmm_driver *meter;

  open_range stack[DEPTH];
  unsigned depth, deeper; /* deeper: open ranges that the stack has no room for */
  uint64_t driver_calls;
  instrument_memory memory;
};

const char *instrument_layer_name(instrument_layer layer) {
  static const char *const names[INSTRUMENT_LAYER_COUNT] = {
#define XX(name, text) text,
      INSTRUMENT_LAYER_MAP(XX)
#undef XX
  };
  return names[layer];
}

/* ---- ranges ---- */

static void range_begin(instruments *set, const instrument_range *range) {
  if (set->depth == DEPTH) {
    set->deeper++;
    return;
  }
  open_range *opened = &set->stack[set->depth++];
  *opened = (open_range){*range, set->meter->busy_ns, set->driver_calls};
  for (size_t i = 0; i < set->count; i++) {
    instrument *each = set->list[i];
    if (each->layers >> range->layer & 1) each->class->begin(each, &opened->range);
  }
}

static void range_end(instruments *set, vmm_status status, uint64_t call_ns) {
  if (set->deeper) {
    set->deeper--;
    return;
  }
  if (set->depth == 0) return;
  const open_range *closed = &set->stack[--set->depth];
  instrument_outcome outcome = {status, call_ns, 1};
  if (closed->range.layer != INSTRUMENT_DRIVER) {
    outcome.driver_ns = set->meter->busy_ns - closed->driver_ns;
    outcome.driver_calls = set->driver_calls - closed->driver_calls;
  }
  /* The other way round, so that each is nested within those before it. */
  for (size_t i = set->count; i-- > 0;) {
    instrument *each = set->list[i];
    if (each->layers >> closed->range.layer & 1) each->class->end(each, &closed->range, &outcome);
  }
}

static uint64_t chunks_held(const instruments *set) { return set->heap ? set->heap->chunk_count : 0; }

static uint32_t state_around(const instruments *set) {
  return set->depth > 0 ? set->stack[set->depth - 1].range.state : 0;
}

/* ---- observers ---- */

static instrument_layer layer_of(unsigned operation) {
  switch (operation) {
    case POOL_OPERATION_ALLOC:
    case POOL_OPERATION_FREE:
    case POOL_OPERATION_RECORD_STREAM:
    case POOL_OPERATION_TRIM:
      return INSTRUMENT_POLICY;
    default:
      return INSTRUMENT_POOL;
  }
}

/* 1 to 5 for "S1" to "S5". */
static uint32_t state_of(const char *name) {
  return name[0] == 'S' && name[1] >= '1' && name[1] <= '5' && !name[2] ? (uint32_t)(name[1] - '0') : 0;
}

static void operation_begin(void *context, unsigned operation, const char *name, uint64_t bytes) {
  instruments *set = context;
  uint32_t state = state_of(name);
  const instrument_range range = {.layer = layer_of(operation),
                                  .name = name,
                                  .bytes = bytes,
                                  .chunks = chunks_held(set),
                                  .state = state ? state : state_around(set)};
  range_begin(set, &range);
}

static void operation_end(void *context, unsigned operation) {
  (void)operation;
  range_end(context, VMM_SUCCESS, 0);
}

/* The size among a call's arguments. */
static uint64_t bytes_of(vmm_call call, const uint64_t argument[4]) {
  switch (call) {
    case VMM_CALL_ADDRESS_RESERVE:
    case VMM_CALL_CREATE:
    case VMM_CALL_MALLOC:
    case VMM_CALL_MALLOC_ASYNC:
      return argument[0];
    case VMM_CALL_ADDRESS_FREE:
    case VMM_CALL_MAP:
    case VMM_CALL_UNMAP:
    case VMM_CALL_SET_ACCESS:
    case VMM_CALL_FILL:
    case VMM_CALL_VERIFY:
      return argument[1];
    default:
      return 0;
  }
}

static void call_begin(void *context, vmm_call call, const uint64_t argument[4]) {
  instruments *set = context;
  const instrument_range range = {.layer = INSTRUMENT_DRIVER,
                                  .name = vmm_call_name(call),
                                  .call = call,
                                  .bytes = bytes_of(call, argument),
                                  .chunks = chunks_held(set),
                                  .state = state_around(set)};
  range_begin(set, &range);
}

static void call_end(void *context, vmm_call call, vmm_status status, uint64_t duration_ns) {
  (void)call;
  instruments *set = context;
  set->driver_calls++;
  range_end(set, status, duration_ns);
}

/* ---- runs ---- */

void instruments_attach(instruments *set, const instrument_run *run, policy *subject, vmm_driver *meter) {
  if (!set) return;
  instruments_detach(set);
  set->attached = true;
  set->heap = &subject->heap;
  set->meter = meter;
  set->depth = set->deeper = 0;
  set->driver_calls = 0;
  set->memory = (instrument_memory){0};
  for (size_t i = 0; i < set->count; i++) set->list[i]->class->run_begin(set->list[i], run);
  set->heap->observer = &set->pool_observer;
  if (set->layers >> INSTRUMENT_DRIVER & 1) vmm_meter_observe(meter, &set->meter_observer);
}

instrument_report *instruments_report(instruments *set) {
  return set && set->attached && set->latency ? instrument_latency_report(set->latency) : NULL;
}

void instruments_detach(instruments *set) {
  if (!set || !set->attached) return;
  while (set->depth > 0 || set->deeper > 0) range_end(set, VMM_SUCCESS, 0);
  vmm_meter_observe(set->meter, NULL);
  for (size_t i = set->count; i-- > 0;) set->list[i]->class->run_end(set->list[i]);
  set->attached = false;
  set->heap = NULL;
  set->meter = NULL;
}

void instruments_range_begin(instruments *set, const char *name, uint64_t bytes) {
  if (!set->attached) return;
  const instrument_range range = {
      .layer = INSTRUMENT_HARNESS, .name = name, .bytes = bytes, .chunks = chunks_held(set)};
  range_begin(set, &range);
}

void instruments_range_end(instruments *set) {
  if (set->attached) range_end(set, VMM_SUCCESS, 0);
}

void instruments_clock_pause(instruments *set) {
  for (size_t i = 0; i < set->count && set->attached; i++) {
    if (set->list[i]->class->pause) set->list[i]->class->pause(set->list[i]);
  }
}

void instruments_clock_resume(instruments *set) {
  for (size_t i = 0; i < set->count && set->attached; i++) {
    if (set->list[i]->class->resume) set->list[i]->class->resume(set->list[i]);
  }
}

void instruments_memory_changed(instruments *set, uint64_t live_bytes) {
  if (!set->attached || !set->heap) return;
  const pool_statistics *statistics = &set->heap->statistics;
  const instrument_memory now = {live_bytes, statistics->allocated_bytes.current,
                                 statistics->reserved_bytes.current};
  if (memcmp(&now, &set->memory, sizeof now) == 0) return;
  set->memory = now;
  for (size_t i = 0; i < set->count; i++) {
    instrument *each = set->list[i];
    if (each->class->memory) each->class->memory(each, &now);
  }
}

void instruments_allocation_made(instruments *set, vmm_address address, uint64_t size, uint64_t number) {
  for (size_t i = 0; i < set->count && set->attached && address != 0; i++) {
    instrument *each = set->list[i];
    if (each->class->allocated) each->class->allocated(each, address, size, number);
  }
}

void instruments_allocation_freed(instruments *set, vmm_address address) {
  for (size_t i = 0; i < set->count && set->attached && address != 0; i++) {
    instrument *each = set->list[i];
    if (each->class->freed) each->class->freed(each, address);
  }
}

/* ---- beginning and end ---- */

instruments *instruments_of(instrument *const *list, size_t count) {
  instruments *set = count <= INSTRUMENTS ? calloc(1, sizeof *set) : NULL;
  if (!set) return NULL;
  memcpy(set->list, list, count * sizeof *list);
  set->count = count;
  for (size_t i = 0; i < count; i++) {
    set->layers |= list[i]->layers;
    if (strcmp(list[i]->class->name, "latency") == 0) set->latency = list[i];
  }
  set->pool_observer = (pool_observer){set, operation_begin, operation_end};
  set->meter_observer = (vmm_meter_observer){set, call_begin, call_end};
  return set;
}

bool instruments_destroy(instruments *set, char *message, size_t message_size) {
  if (!set) return true;
  instruments_detach(set);
  bool complete = true;
  for (size_t i = 0; i < set->count; i++)
    complete &= set->list[i]->class->destroy(set->list[i], message, message_size);
  free(set);
  return complete;
}

static instrument *create_latency(void) {
  char why[512];
  instrument_cupti *cupti = instrument_cupti_open(why, sizeof why);
  return instrument_latency_create(cupti, why);
}

static exit_status create_nvtx(const instrument_options *options, instrument **created, char *message,
                               size_t message_size) {
  *created = NULL;
  if (options->nvtx == INSTRUMENT_NVTX_OFF) return EXIT_STATUS_DONE;
  if (!instrument_nvtx_is_built()) {
    snprintf(message, message_size,
             "--nvtx: this program was built without NVTX's headers, which come with a CUDA toolkit; --nvtx "
             "off is all "
             "that it can do");
    return EXIT_STATUS_USAGE;
  }
  *created = instrument_nvtx_create(options->nvtx == INSTRUMENT_NVTX_COARSE);
  if (!*created) {
    program_complain("--nvtx: no tool listens; run under nsys or ncu, or let NVTX_INJECTION64_PATH name one");
  }
  return EXIT_STATUS_DONE;
}

exit_status instruments_create(const instrument_options *options, instruments **created, char *message,
                               size_t message_size) {
  *created = NULL;
  instrument *list[INSTRUMENTS];
  size_t count = 0;
  exit_status status = EXIT_STATUS_DONE;
  bool no_memory = false;
  if (options->trace_events_path) {
    list[count] = instrument_trace_events_create(options->trace_events_path, message, message_size);
    if (!list[count]) return EXIT_STATUS_USAGE;
    count++;
  }
  status = create_nvtx(options, &list[count], message, message_size);
  if (status == EXIT_STATUS_DONE && list[count]) count++;
  if (status == EXIT_STATUS_DONE && options->cupti) {
    list[count] = create_latency();
    no_memory = !list[count];
    if (list[count]) count++;
  }
  if (status == EXIT_STATUS_DONE && !no_memory && count == 0) return EXIT_STATUS_DONE;
  if (status == EXIT_STATUS_DONE && !no_memory) *created = instruments_of(list, count);
  if (*created) return EXIT_STATUS_DONE;
  char ignored[256];
  while (count > 0) {
    count--;
    list[count]->class->destroy(list[count], ignored, sizeof ignored);
  }
  if (status != EXIT_STATUS_DONE) return status;
  snprintf(message, message_size, "this machine has no memory left for the instruments");
  return EXIT_STATUS_CHECK_FAILED;
}

/* ---- options ---- */

enum option_key { OPTION_NVTX = 0x400, OPTION_CUPTI, OPTION_TRACE_EVENTS };

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "Instruments (docs/profiling.md):", 0},
    {"nvtx", OPTION_NVTX, "off|coarse|all", 0,
     "name ranges for Nsight: the policy's operations, or everything down to driver calls; default: off", 0},
    {"cupti", OPTION_CUPTI, NULL, 0,
     "time driver calls by the operation that caused them, with CUPTI beside our own clock", 0},
    {"trace-events", OPTION_TRACE_EVENTS, "FILE", 0,
     "write the ranges and memory as a trace for Perfetto or Chrome (JSON)", 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  static const char *const levels[] = {"off", "coarse", "all", NULL};
  instrument_options *options = state->input;
  switch (key) {
    case OPTION_NVTX:
      for (int level = 0; levels[level]; level++) {
        if (strcmp(levels[level], argument) != 0) continue;
        options->nvtx = (instrument_nvtx_level)level;
        return 0;
      }
      const char *nearest = policy_nearest_word(argument, levels);
      argp_failure(state, EXIT_STATUS_USAGE, 0, "--nvtx=%s: expected off, coarse or all%s%s%s", argument,
                   nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
      return EINVAL;
    case OPTION_CUPTI:
      options->cupti = true;
      return 0;
    case OPTION_TRACE_EVENTS:
      options->trace_events_path = argument;
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

const struct argp instrument_options_parser = {option_table, parse_option, NULL, NULL, NULL, NULL, NULL};
