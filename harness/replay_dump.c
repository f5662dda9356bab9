/* Maps of memory at a moment of a replay. */
#include <inttypes.h>
#include <stdio.h>

#include "harness/replay_internal.h"

/* Maps all memory. wanted: bytes of a request that found none; 0: there is none. */
static bool dump(replay *run, uint64_t wanted) {
  replay_result *result = run->result;
  const memory_map moment = {.lap = run->lap,
                             .event = result->events - run->lap_first,
                             .number = result->events,
                             .wanted_bytes = wanted,
                             .live_bytes = run->live_bytes};
  result->map = memory_map_make(run->subject, &moment);
  return result->map || replay_fail_no_memory(run);
}

bool replay_dump_failure(replay *run, uint64_t wanted) {
  if (run->settings->dump.moment != REPLAY_DUMP_OOM || run->result->map) return true;
  return dump(run, wanted);
}

bool replay_dump_live(replay *run, uint64_t live_bytes) {
  if (live_bytes < run->stop_at_live) return true;
  if (dump(run, 0)) run->result->map->live_bytes = live_bytes;
  run->result->stopped = true;
  return false;
}

bool replay_dump_event(replay *run) {
  const replay_dump *wanted = &run->settings->dump;
  if (wanted->moment != REPLAY_DUMP_EVENT || run->result->events != wanted->event + 1) return true;
  if (!dump(run, 0)) return false;
  run->result->map->event--;
  run->result->map->number--;
  return true;
}

void replay_dump_explain(replay_result *result, const replay_dump *wanted) {
  if (wanted->moment == REPLAY_DUMP_NEVER || result->map) return;
  if (!result->complete) {
    snprintf(result->map_reason, sizeof result->map_reason, "the replay failed");
  } else if (wanted->moment == REPLAY_DUMP_EVENT) {
    snprintf(result->map_reason, sizeof result->map_reason,
             "there is no event %" PRIu64 ": the replay has %" PRIu64 " of them, counted from 0",
             wanted->event, result->events);
  } else if (wanted->moment == REPLAY_DUMP_OOM) {
    snprintf(result->map_reason, sizeof result->map_reason, "no request found no memory");
  } else {
    snprintf(result->map_reason, sizeof result->map_reason, "%s",
             result->live_peak_bytes ? "a second replay did not come to as much live memory"
                                     : "no memory was ever live");
  }
}
