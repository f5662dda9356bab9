/* What the files of a replay share; nothing of it is for others.
 *   replay.c          the loop: events, laps, totals
 *   replay_verify.c   every allocation filled, and compared before its free
 *   replay_failure.c  how things stood when memory ran out
 *   replay_laps.c     what laps have in common
 *   replay_dump.c     maps of memory at a moment
 *   replay_iterations.c  what each iteration did */
#ifndef LAKEBED_HARNESS_REPLAY_INTERNAL_H
#define LAKEBED_HARNESS_REPLAY_INTERNAL_H

#include "harness/replay.h"

#define REPLAY_NO_ADDRESS UINT64_MAX /* the slot's request failed */

typedef struct replay_slot {
  vmm_address address; /* 0: empty, or a request of 0 bytes */
  uint64_t size;
  uint64_t pattern; /* what verification filled it with */
  vmm_stream stream;
  bool freed; /* at its request; the end of that free is still to come */
} replay_slot;

/* What the loop carries along. */
typedef struct replay {
  const replay_settings *settings;
  replay_result *result;
  device gpu;
  policy *subject;
  bool uses_pool; /* the driver's */
  bool verify;
  replay_slot *slots;
  uint32_t slot_count;
  uint64_t live_bytes;
  uint64_t largest_bytes;  /* of any allocation */
  uint64_t lap, lap_first; /* number of the lap, of its first event */
  timeline *line;
  uint64_t allocations;              /* requests made */
  const uint64_t *marks;             /* the ends of iterations, borrowed */
  size_t mark_count, next_mark;      /* next_mark: within the lap */
  replay_iteration *iteration_begin; /* what all had grown to when this one began, and room for now; NULL: not
                                        told apart */
  uint64_t iteration_live_peak, iteration_reserved_peak;
  uint64_t stop_at_live; /* so much live memory is mapped, and ends the run; UINT64_MAX: none does */
} replay;

/* Ends the run with a status and says why. Returns false. */
bool replay_fail(replay *run, exit_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool replay_fail_no_memory(replay *run);
/* A driver call or the policy failed where it must not. */
bool replay_fail_call(replay *run, const trace_event *event, const char *verb, vmm_status status);

/* If this is the moment: a request found no memory; live memory is so much now, which ends the run. */
bool replay_dump_failure(replay *run, uint64_t wanted);
bool replay_dump_live(replay *run, uint64_t live_bytes);
/* The same for the event that has just been counted. */
bool replay_dump_event(replay *run);
/* Says why there is no map, if one was wanted. */
void replay_dump_explain(replay_result *result, const replay_dump *wanted);

/* Prepares to tell iterations apart, if asked to. */
bool replay_iterations_begin(replay *run, const event_source *source);
/* Before an event; after it, for the peaks. Only if iterations are told apart. */
bool replay_iterations_event(replay *run, const trace_event *event);
void replay_iterations_peaks(replay *run);
/* All of a lap is over. */
bool replay_iterations_lap_end(replay *run);

/* Fills a new allocation; compares one that is about to be freed; compares all that live. */
bool replay_fill(replay *run, replay_slot *slot, const trace_event *event);
bool replay_verify(replay *run, const replay_slot *slot);
bool replay_verify_all(replay *run);

#endif
