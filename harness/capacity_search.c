#include "harness/capacity_search.h"

#include <string.h>

#include "harness/units.h"

typedef struct search {
  event_source *source;
  const replay_settings *settings;
  progress *shown;
  capacity_result *result;
  unsigned expected; /* replays */
} search;

typedef enum answer { SERVES, FAILS, BROKEN } answer;

static uint64_t round_up(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

/* One replay on a device of so many bytes. The caller frees run. */
static answer attempt(search *state, uint64_t capacity, replay_result *run) {
  capacity_result *result = state->result;
  device_model model = *state->settings->model;
  model.capacity = model.total = capacity;
  replay_settings settings = *state->settings;
  settings.model = &model;
  settings.stop_at_failure = true;
  progress silent;
  progress_init(&silent, true);
  double share = (double)result->replays / (double)state->expected;
  progress_update(state->shown, share, result->replays, capacity);
  result->replays++;
  replay_run(state->source, result->spec, &settings, &silent, run);
  if (run->complete) return SERVES;
  if (run->stopped && run->status == EXIT_STATUS_OUT_OF_MEMORY) return FAILS;
  /* A device too small for the policy to begin with is a failure like others. */
  if (run->status == EXIT_STATUS_OUT_OF_MEMORY) return FAILS;
  result->status = run->status;
  result->trace_failed = run->trace_failed;
  memcpy(result->message, run->message, sizeof result->message);
  return BROKEN;
}

static void keep_served(capacity_result *result, uint64_t capacity, const replay_result *run) {
  result->found = true;
  result->capacity_bytes = capacity;
  result->statistics = run->statistics;
  result->driver_ns = run->driver_ns;
}

/* The request that ended a run. */
static void keep_below(capacity_result *result, const replay_result *run) {
  result->knows_below = run->stopped;
  result->below_is_probe = run->failed_allocs == 0;
  if (run->failed_allocs > 0) {
    result->below = run->first_failure;
  } else if (run->recorded_ooms > 0 && run->recorded_ooms <= REPLAY_PROBES) {
    result->below = run->probes[run->recorded_ooms - 1].state;
  } else {
    result->knows_below = false;
  }
}

/* Devices with room to spare: four times what lives, then the largest there is. Sets *high to one that
 * serves everything, if any does. */
static answer begin(search *state, const capacity_need *need, uint64_t *high) {
  const uint64_t spare = UINT64_C(4) << 30;
  uint64_t rooms[] = {CAPACITY_LARGEST_BYTES, CAPACITY_LARGEST_BYTES};
  if (need->live_peak_bytes < (CAPACITY_LARGEST_BYTES - spare) / 4)
    rooms[0] = round_up(4 * need->live_peak_bytes + spare, CAPACITY_STEP_BYTES);
  answer found = FAILS;
  for (int i = 0; i < 2 && found == FAILS; i++) {
    replay_result run;
    found = attempt(state, rooms[i], &run);
    if (found == SERVES) {
      keep_served(state->result, rooms[i], &run);
      state->result->roomy_reserved_peak_bytes = run.statistics.reserved_bytes.peak;
      *high = rooms[i];
      uint64_t peak = round_up(run.device_peak_bytes, CAPACITY_STEP_BYTES);
      /* What it took with room to spare is mostly enough; if not, the search has to begin higher. */
      replay_result_free(&run);
      if (peak == 0 || peak >= *high) return SERVES;
      found = attempt(state, peak, &run);
      if (found == SERVES) {
        keep_served(state->result, peak, &run);
        *high = peak;
      }
      replay_result_free(&run);
      return found == BROKEN ? BROKEN : SERVES;
    }
    if (found == FAILS && i == 1) keep_below(state->result, &run);
    replay_result_free(&run);
    if (rooms[0] == rooms[1]) break;
  }
  return found;
}

static unsigned halvings(uint64_t bytes) {
  unsigned count = 0;
  for (uint64_t steps = bytes / CAPACITY_STEP_BYTES; steps > 1; steps = (steps + 1) / 2) count++;
  return count;
}

void capacity_search(event_source *source, const policy_spec *spec, const replay_settings *settings,
                     const capacity_need *need, progress *shown, capacity_result *result) {
  *result = (capacity_result){.spec = spec};
  search state = {source, settings, shown, result, 16};
  /* Less than what callers hold at their peak cannot do. */
  uint64_t low = need->requested_peak_bytes > 0
                     ? (need->requested_peak_bytes - 1) / CAPACITY_STEP_BYTES * CAPACITY_STEP_BYTES
                     : 0;
  uint64_t high = 0;
  answer found = begin(&state, need, &high);
  if (found == FAILS) result->status = EXIT_STATUS_OUT_OF_MEMORY;
  if (found != SERVES) return;
  if (low >= high) low = high - CAPACITY_STEP_BYTES;
  state.expected = result->replays + halvings(high - low);
  while (high - low > CAPACITY_STEP_BYTES) {
    uint64_t middle = low + (high - low) / 2 / CAPACITY_STEP_BYTES * CAPACITY_STEP_BYTES;
    replay_result run;
    found = attempt(&state, middle, &run);
    if (found == SERVES) {
      keep_served(result, middle, &run);
      high = middle;
    } else {
      keep_below(result, &run);
      low = middle;
    }
    replay_result_free(&run);
    if (found == BROKEN) {
      result->found = false;
      return;
    }
  }
}
