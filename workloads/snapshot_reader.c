#include <inttypes.h>
#include <stdlib.h>

#include "workloads/failure.h"
#include "workloads/snapshot.h"

static void restart(snapshot_reader *reader) {
  snapshot_memo_clear(&reader->memo);
  reader->count = 0;
  reader->mark_count = 0;
  reader->started = false;
  reader->device_traces_seen = false;
  reader->devices = 0;
  reader->entries = 0;
  reader->events = 0;
  reader->other_device = UINT32_MAX;
  reader->other_entries = 0;
  reader->seeds_delivered = 0;
}

/* The end of the pickle: was there what was asked for? */
static trace_status check_end(trace *opened, trace_error *error) {
  const snapshot_reader *reader = opened->reader;
  const char *name = opened->input.name;
  uint32_t device = opened->options.device;
  opened->ledger.summary.devices = reader->devices;
  opened->ledger.summary.segments_bytes = reader->seeds.segments_bytes;
  if (reader->devices > 0 && device >= reader->devices) {
    return trace_fail(error, TRACE_NO_EVENTS, name,
                      "device %" PRIu32 " was asked for, device_traces holds %" PRIu32 " (0 to %" PRIu32 ")",
                      device, reader->devices, reader->devices - 1);
  }
  if (reader->events > 0 || reader->seeds.result.count > 0) return TRACE_END;
  if (reader->entries > 0) {
    return trace_fail(error, TRACE_NO_EVENTS, name,
                      "device_traces[%" PRIu32 "] holds %" PRIu64 " entries, but no allocation among them",
                      device, reader->entries);
  }
  if (reader->other_device != UINT32_MAX) {
    return trace_fail(error, TRACE_NO_EVENTS, name,
                      "device_traces[%" PRIu32 "] is empty, device_traces[%" PRIu32 "] holds %" PRIu64
                      " entries: choose that device",
                      device, reader->other_device, reader->other_entries);
  }
  return trace_fail(error, TRACE_NO_EVENTS, name,
                    "the snapshot holds no events (device_traces is empty): was history recording on? "
                    "Call torch.cuda.memory._record_memory_history() before the run");
}

/* One pass over the whole file for what was live at its beginning. */
static trace_status find_seeds(trace *opened, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  if (!opened->input.rewindable) {
    return trace_fail(
        error, TRACE_UNREADABLE, opened->input.name,
        "finding what was live at the beginning takes two passes, and this input can be read only once");
  }
  snapshot_seeds_init(&reader->seeds);
  reader->collecting = true;
  trace_event none;
  trace_status status = snapshot_run(opened, &none, error);
  reader->collecting = false;
  if (status != TRACE_END) return status;
  if (!snapshot_seeds_finish(&reader->seeds)) return trace_fail_memory(error, opened->input.name);
  restart(reader);
  opened->mark_count = 0;
  trace_ledger_clear(&opened->ledger);
  return trace_input_rewind(&opened->input, error);
}

static trace_status create(trace *opened, trace_error *error) {
  snapshot_reader *reader = calloc(1, sizeof *reader);
  if (reader == NULL) return trace_fail_memory(error, opened->input.name);
  opened->reader = reader;
  restart(reader);
  return opened->options.seed_from_segments ? find_seeds(opened, error) : TRACE_OK;
}

static trace_status next_seed(trace *opened, trace_event *event, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  const snapshot_seed *seed = &reader->seeds.result.seeds[reader->seeds_delivered];
  trace_ledger_result result =
      trace_ledger_alloc(&opened->ledger, seed->address, seed->size, seed->stream, event);
  if (result == TRACE_LEDGER_NO_MEMORY) return trace_fail_memory(error, opened->input.name);
  if (result != TRACE_LEDGER_OK) {
    return trace_fail(error, TRACE_MALFORMED, opened->input.name,
                      "the block of %" PRIu64 " bytes at 0x%" PRIx64 " in segments %s", seed->size,
                      seed->address, trace_ledger_result_text(result));
  }
  event->time_us = 0;
  reader->seeds_delivered++;
  opened->ledger.summary.seeded++;
  return TRACE_OK;
}

static trace_status next(trace *opened, trace_event *event, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  if (reader->seeds_delivered < reader->seeds.result.count) return next_seed(opened, event, error);
  trace_status status = snapshot_run(opened, event, error);
  return status == TRACE_END ? check_end(opened, error) : status;
}

static void rewound(trace *opened) { restart(opened->reader); }

static void destroy(trace *opened) {
  snapshot_reader *reader = opened->reader;
  if (reader == NULL) return;
  snapshot_memo_clear(&reader->memo);
  snapshot_seeds_free_all(&reader->seeds);
  free(reader->ground);
  free(reader);
}

const trace_format trace_format_snapshot = {.name = "pytorch-snapshot",
                                            .has_devices = true,
                                            .create = create,
                                            .next = next,
                                            .rewound = rewound,
                                            .destroy = destroy};
