/* A trace being read: what trace.c and the readers of the formats share. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_READER_H
#define LAKEBED_WORKLOADS_READER_H

#include "workloads/input.h"
#include "workloads/ledger.h"
#include "workloads/trace.h"

typedef struct trace_format {
  const char *name;
  bool has_devices; /* options.device chooses among several */
  /* Whether a file that begins with these bytes (at least the first line, or all) is in this format;
   * NULL where trace.c sees it by itself. */
  bool (*recognise)(const uint8_t *bytes, size_t size);
  /* Sets opened->reader; the input stands at its beginning. */
  trace_status (*create)(trace *opened, trace_error *error);
  trace_status (*next)(trace *opened, trace_event *event, trace_error *error);
  /* The input has been rewound and the ledger cleared. */
  void (*rewound)(trace *opened);
  /* opened->reader may be NULL. */
  void (*destroy)(trace *opened);
} trace_format;

struct trace {
  trace_input input;
  trace_options options;
  trace_ledger ledger;
  const trace_format *format;
  void *reader;
  trace_status ended; /* what next returns from now on, TRACE_OK while reading */
  trace_error failure;
  uint64_t *marks; /* with options.marks */
  size_t mark_count, mark_capacity;
};

/* For trace_marks. false: no memory. */
bool trace_add_mark(trace *opened, uint64_t time_us);

extern const trace_format trace_format_snapshot;
extern const trace_format trace_format_events;
extern const trace_format trace_format_lakebed;
extern const trace_format trace_format_rmm;
extern const trace_format trace_format_stalloc;
extern const trace_format trace_format_minimalloc;
extern const trace_format trace_format_kineto;

#endif
