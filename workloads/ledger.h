/* What is live while a trace is read: ids to slots, streams to dense indices, and the
 * summary's numbers. Internal to workloads; every reader reports its events here. */
#ifndef LAKEBED_WORKLOADS_LEDGER_H
#define LAKEBED_WORKLOADS_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "workloads/id_map.h"
#include "workloads/trace.h"

typedef enum trace_ledger_result {
  TRACE_LEDGER_OK,
  TRACE_LEDGER_ALREADY_LIVE, /* allocated while the id is live */
  TRACE_LEDGER_NEVER_SEEN,   /* freed, and no allocation of the id is remembered */
  TRACE_LEDGER_NOT_LIVE,     /* freed, and freed before */
  TRACE_LEDGER_REQUESTED,    /* free requested twice */
  TRACE_LEDGER_TOO_LARGE,    /* the live bytes would pass 2^63 */
  TRACE_LEDGER_TOO_MANY,     /* more live allocations or streams than their numbers can name */
  TRACE_LEDGER_NO_MEMORY
} trace_ledger_result;

typedef struct trace_ledger_slot trace_ledger_slot;

typedef struct trace_ledger {
  trace_id_map ids;
  trace_ledger_slot *slots;
  uint32_t slot_count;
  uint32_t slot_capacity;
  uint32_t slots_before; /* the most slots used before the last clear */
  uint32_t first_free_slot;
  trace_id_map stream_indices;
  uint64_t *streams; /* recorded, by dense index */
  uint32_t stream_count;
  uint32_t stream_capacity;
  uint32_t last_stream;
  trace_summary summary;
} trace_ledger;

bool trace_ledger_init(trace_ledger *ledger);
/* As after init; keeps the memory, and format, compression and devices of the summary. */
void trace_ledger_clear(trace_ledger *ledger);
void trace_ledger_free(trace_ledger *ledger);

/* Each fills *event (time_us is the caller's). On any result but OK nothing has changed. */
trace_ledger_result trace_ledger_alloc(trace_ledger *ledger, uint64_t id, uint64_t size, uint64_t stream,
                                       trace_event *event);
trace_ledger_result trace_ledger_free_requested(trace_ledger *ledger, uint64_t id, trace_event *event);
trace_ledger_result trace_ledger_free_completed(trace_ledger *ledger, uint64_t id, trace_event *event);
trace_ledger_result trace_ledger_out_of_memory(trace_ledger *ledger, uint64_t size, uint64_t stream,
                                               trace_event *event);

/* The size of a live allocation; false where id is not live. */
bool trace_ledger_size(const trace_ledger *ledger, uint64_t id, uint64_t *size);

/* One more than the highest slot ever given out. */
uint32_t trace_ledger_slots(const trace_ledger *ledger);

/* The dense index of a recorded stream. */
trace_ledger_result trace_ledger_stream(trace_ledger *ledger, uint64_t recorded, uint32_t *index);

/* What went wrong, for a message. */
const char *trace_ledger_result_text(trace_ledger_result result);
/* "NAME:LINE: id N ..." of a result that is not OK; or no memory. */
trace_status trace_ledger_fail(const char *name, uint64_t line, uint64_t id, trace_ledger_result result,
                               trace_error *error);

#endif
