/* Every allocation is filled with a pattern of its own and compared before it is freed. */
#include <inttypes.h>
#include <stdio.h>

#include "harness/replay_internal.h"
#include "harness/verify_pattern.h"

bool replay_fill(replay *run, replay_slot *slot, const trace_event *event) {
  slot->pattern = verify_pattern(run->result->events);
  instruments_begin(run->settings->instruments, "fill", slot->size);
  vmm_status status = vmm_fill(run->gpu.raw, slot->address, slot->size, slot->stream, slot->pattern);
  instruments_end(run->settings->instruments);
  return status == VMM_SUCCESS || replay_fail_call(run, event, "fill", status);
}

/* Says of which allocation the wrong word is; failing that, which live one has addresses in common. */
static void describe_intruder(const replay *run, const replay_slot *slot, const vmm_mismatch *mismatch,
                              char *text, size_t text_size) {
  uint64_t event, offset;
  if (verify_pattern_find(mismatch->found, run->result->events + 1, run->largest_bytes, &event, &offset)) {
    for (uint32_t i = 0; i < run->slot_count; i++) {
      const replay_slot *other = &run->slots[i];
      if (other->address == 0 || other->address == REPLAY_NO_ADDRESS ||
          verify_pattern_event(other->pattern) != event) {
        continue;
      }
      snprintf(text, text_size,
               "that is what event %" PRIu64 " has at offset %" PRIu64 " of its %" PRIu64
               " bytes at 0x%" PRIx64 " on stream %" PRIu32,
               event, offset, other->size, other->address, other->stream);
      return;
    }
    snprintf(text, text_size, "that is what event %" PRIu64 ", freed since, had at offset %" PRIu64, event,
             offset);
    return;
  }
  for (uint32_t i = 0; i < run->slot_count; i++) {
    const replay_slot *other = &run->slots[i];
    if (other == slot || other->address == 0 || other->address == REPLAY_NO_ADDRESS) continue;
    if (other->address < slot->address + slot->size && slot->address < other->address + other->size) {
      snprintf(text, text_size,
               "no allocation's pattern, but the %" PRIu64 " bytes of event %" PRIu64 " overlap it",
               other->size, verify_pattern_event(other->pattern));
      return;
    }
  }
  snprintf(text, text_size,
           "no allocation's pattern, and no live allocation has addresses in common with it");
}

bool replay_verify(replay *run, const replay_slot *slot) {
  vmm_mismatch mismatch;
  instruments_begin(run->settings->instruments, "verify", slot->size);
  vmm_status status =
      vmm_verify(run->gpu.raw, slot->address, slot->size, slot->stream, slot->pattern, &mismatch);
  instruments_end(run->settings->instruments);
  if (status != VMM_SUCCESS) {
    char cause[256];
    device_error_format(&run->gpu, cause, sizeof cause);
    return replay_fail(run, EXIT_STATUS_CHECK_FAILED,
                       "event %" PRIu64 ": the memory of event %" PRIu64 " cannot be read: %s",
                       run->result->events, verify_pattern_event(slot->pattern), cause);
  }
  if (mismatch.wrong_words == 0) return true;
  char intruder[256];
  describe_intruder(run, slot, &mismatch, intruder, sizeof intruder);
  return replay_fail(run, EXIT_STATUS_CHECK_FAILED,
                     "event %" PRIu64 ": the %" PRIu64 " bytes that event %" PRIu64 " allocated at 0x%" PRIx64
                     " have changed: %" PRIu64 " wrong words, the first at offset %" PRIu64
                     ", expected 0x%016" PRIx64 ", found 0x%016" PRIx64 "; %s",
                     run->result->events, slot->size, verify_pattern_event(slot->pattern), slot->address,
                     mismatch.wrong_words, mismatch.first_offset, mismatch.expected, mismatch.found,
                     intruder);
}

bool replay_verify_all(replay *run) {
  for (uint32_t i = 0; run->verify && i < run->slot_count; i++) {
    const replay_slot *slot = &run->slots[i];
    if (slot->address != 0 && slot->address != REPLAY_NO_ADDRESS && !replay_verify(run, slot)) return false;
  }
  return true;
}
