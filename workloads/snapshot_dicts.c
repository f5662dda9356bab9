#include <inttypes.h>
#include <string.h>

#include "workloads/failure.h"
#include "workloads/snapshot.h"

/* What a dict says under the words we know. */
typedef struct fields {
  uint32_t integers; /* bit w: numbers[w] is an integer */
  uint32_t words;    /* bit w: numbers[w] is a snapshot_word */
  uint32_t lists;    /* bit w: numbers[w] is the snapshot_role of a list */
  uint32_t present;  /* bit w: there is a value of any kind */
  uint64_t numbers[WORD_COUNT];
} fields;

_Static_assert(WORD_COUNT <= 32, "one bit a word");

static const char *const words[WORD_COUNT] = {
    [WORD_NONE] = "",
    [WORD_DEVICE_TRACES] = "device_traces",
    [WORD_SEGMENTS] = "segments",
    [WORD_ACTION] = "action",
    [WORD_ADDR] = "addr",
    [WORD_SIZE] = "size",
    [WORD_STREAM] = "stream",
    [WORD_TIME_US] = "time_us",
    [WORD_ADDRESS] = "address",
    [WORD_REQUESTED_SIZE] = "requested_size",
    [WORD_STATE] = "state",
    [WORD_BLOCKS] = "blocks",
    [WORD_DEVICE] = "device",
    [WORD_DEVICE_FREE] = "device_free",
    [WORD_ALLOC] = "alloc",
    [WORD_FREE_REQUESTED] = "free_requested",
    [WORD_FREE_COMPLETED] = "free_completed",
    [WORD_SEGMENT_ALLOC] = "segment_alloc",
    [WORD_SEGMENT_FREE] = "segment_free",
    [WORD_SEGMENT_MAP] = "segment_map",
    [WORD_SEGMENT_UNMAP] = "segment_unmap",
    [WORD_OOM] = "oom",
    [WORD_SNAPSHOT] = "snapshot",
    [WORD_ACTIVE_ALLOCATED] = "active_allocated",
    [WORD_ACTIVE_PENDING_FREE] = "active_pending_free",
    [WORD_ACTIVE_AWAITING_FREE] = "active_awaiting_free",
    [WORD_INACTIVE] = "inactive",
    [WORD_EXTERNAL_ANNOTATIONS] = "external_annotations",
    [WORD_STAGE] = "stage",
    [WORD_NAME] = "name",
    [WORD_END] = "END",
    [WORD_OPTIMIZER_STEP] = "Optimizer.step#",
};

const char *snapshot_word_text(snapshot_word word) { return words[word]; }

snapshot_word snapshot_word_of(const uint8_t *bytes, size_t size) {
  /* For each size the words that have it: most strings are none of them, and there are many. */
  static const uint8_t of_size[][4] = {
      [3] = {WORD_OOM, WORD_END},
      [4] = {WORD_ADDR, WORD_SIZE, WORD_NAME},
      [5] = {WORD_ALLOC, WORD_STATE, WORD_STAGE},
      [6] = {WORD_ACTION, WORD_STREAM, WORD_BLOCKS, WORD_DEVICE},
      [7] = {WORD_TIME_US, WORD_ADDRESS},
      [8] = {WORD_SEGMENTS, WORD_SNAPSHOT, WORD_INACTIVE},
      [11] = {WORD_SEGMENT_MAP, WORD_DEVICE_FREE},
      [12] = {WORD_SEGMENT_FREE},
      [13] = {WORD_DEVICE_TRACES, WORD_SEGMENT_ALLOC, WORD_SEGMENT_UNMAP},
      [14] = {WORD_FREE_REQUESTED, WORD_FREE_COMPLETED, WORD_REQUESTED_SIZE},
      [16] = {WORD_ACTIVE_ALLOCATED},
      [19] = {WORD_ACTIVE_PENDING_FREE},
      [20] = {WORD_ACTIVE_AWAITING_FREE, WORD_EXTERNAL_ANNOTATIONS},
  };
  if (size >= sizeof of_size / sizeof of_size[0]) {
    const char *step = words[WORD_OPTIMIZER_STEP];
    return bytes[0] == 'O' && memcmp(step, bytes, strlen(step)) == 0 ? WORD_OPTIMIZER_STEP : WORD_NONE;
  }
  for (size_t i = 0; i < sizeof of_size[0] && of_size[size][i] != WORD_NONE; i++) {
    const char *text = words[of_size[size][i]];
    if (text[0] == (char)bytes[0] && memcmp(text, bytes, size) == 0) return (snapshot_word)of_size[size][i];
  }
  return WORD_NONE;
}

static inline uint32_t bit(uint32_t word) { return UINT32_C(1) << word; }

/* The full offset of an item of a dict: the item keeps 32 bits of it. */
static uint64_t item_offset(const snapshot_item *item, const snapshot_item *dict) {
  return dict->value + (uint32_t)(item->offset_low - (uint32_t)dict->value);
}

/* Reads the pairs items[first .. count) into f. */
static trace_status collect(const trace *opened, size_t first, const snapshot_item *dict, fields *f,
                            trace_error *error) {
  const snapshot_reader *reader = opened->reader;
  f->integers = f->words = f->lists = f->present = 0;
  uint64_t position = 0;
  uint32_t key = WORD_NONE;
  for (const snapshot_item *item = &reader->items[first]; item < &reader->items[reader->count]; item++) {
    uint32_t kind = snapshot_kind(item);
    if (kind == ITEM_OPAQUE) {
      f->present |= bit(key);
      f->integers &= ~bit(key);
      f->words &= ~bit(key);
      f->lists &= ~bit(key);
      position += item->value;
      key = WORD_NONE;
      continue;
    }
    if (position % 2 == 0) {
      if (kind != ITEM_WORD) {
        return trace_fail_offset(error, opened->input.name, item_offset(item, dict),
                                 "expected a string as the key of a dict");
      }
      key = snapshot_detail(item);
    } else {
      uint32_t mask = bit(key);
      f->present |= mask;
      f->integers = kind == ITEM_INTEGER ? f->integers | mask : f->integers & ~mask;
      f->words = kind == ITEM_WORD ? f->words | mask : f->words & ~mask;
      f->lists = kind == ITEM_LIST ? f->lists | mask : f->lists & ~mask;
      f->numbers[key] = kind == ITEM_INTEGER ? item->value : snapshot_detail(item);
      uint32_t role = kind == ITEM_LIST || kind == ITEM_DICT ? snapshot_detail(item) : (uint32_t)ROLE_NONE;
      bool expected = role == ROLE_NONE || (role == ROLE_DEVICE_TRACES && key == WORD_DEVICE_TRACES) ||
                      (role == ROLE_SEGMENTS && key == WORD_SEGMENTS) ||
                      (role == ROLE_ANNOTATIONS && key == WORD_EXTERNAL_ANNOTATIONS) ||
                      (role == ROLE_BLOCKS && key == WORD_BLOCKS);
      if (kind == ITEM_SEALED || !expected) {
        return trace_fail_offset(error, opened->input.name, item_offset(item, dict),
                                 "a part of device_traces or segments stands where a snapshot has none");
      }
      key = WORD_NONE;
    }
    position++;
  }
  if (position % 2 != 0) {
    return trace_fail_offset(error, opened->input.name, dict->value, "a dict with a key without a value");
  }
  return TRACE_OK;
}

/* An integer of a dict that must be there, and must not be negative. */
static trace_status number(const trace *opened, const snapshot_item *dict, const char *what, const fields *f,
                           snapshot_word word, uint64_t *value, trace_error *error) {
  if (!(f->integers & bit(word))) {
    return trace_fail_offset(error, opened->input.name, dict->value, "%s whose %s is %s", what,
                             snapshot_word_text(word), f->present & bit(word) ? "not an integer" : "missing");
  }
  *value = f->numbers[word];
  if (*value > INT64_MAX) {
    return trace_fail_offset(error, opened->input.name, dict->value, "%s whose %s is negative (%" PRId64 ")",
                             what, snapshot_word_text(word), (int64_t)*value);
  }
  return TRACE_OK;
}

/* As number, but fallback where there is none. */
static trace_status optional_number(const trace *opened, const snapshot_item *dict, const char *what,
                                    const fields *f, snapshot_word word, uint64_t fallback, uint64_t *value,
                                    trace_error *error) {
  *value = fallback;
  return f->present & bit(word) ? number(opened, dict, what, f, word, value, error) : TRACE_OK;
}

static trace_status ledger_failed(const trace *opened, const snapshot_item *dict, uint64_t address,
                                  uint64_t size, trace_ledger_result result, trace_error *error) {
  if (result == TRACE_LEDGER_NO_MEMORY) return trace_fail_memory(error, opened->input.name);
  return trace_fail_offset(error, opened->input.name, dict->value,
                           "the allocation of %" PRIu64 " bytes at 0x%" PRIx64 " %s", size, address,
                           trace_ledger_result_text(result));
}

static trace_status collect_seed(trace *opened, uint32_t action, uint64_t address, uint64_t size,
                                 uint64_t stream, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  bool done = true;
  if (action == WORD_ALLOC) done = snapshot_seeds_alloc(&reader->seeds, address);
  if (action == WORD_FREE_COMPLETED) done = snapshot_seeds_free(&reader->seeds, address, size, stream);
  return done ? TRACE_OK : trace_fail_memory(error, opened->input.name);
}

static trace_status entry_complete(trace *opened, const fields *f, const snapshot_item *dict,
                                   trace_event *event, snapshot_outcome *outcome, trace_error *error) {
  static const char what[] = "a trace entry";
  snapshot_reader *reader = opened->reader;
  uint32_t device = reader->devices - 1;
  if (device != opened->options.device) {
    if (reader->other_device == UINT32_MAX) reader->other_device = device;
    if (reader->other_device == device) reader->other_entries++;
    return TRACE_OK;
  }
  reader->entries++;
  if (!(f->words & bit(WORD_ACTION))) {
    return trace_fail_offset(error, opened->input.name, dict->value, "%s whose action is %s", what,
                             f->present & bit(WORD_ACTION) ? "not one that is known" : "missing");
  }
  uint32_t action = (uint32_t)f->numbers[WORD_ACTION];
  trace_summary *summary = &opened->ledger.summary;
  switch (action) {
    case WORD_SEGMENT_ALLOC:
    case WORD_SEGMENT_FREE:
    case WORD_SEGMENT_MAP:
    case WORD_SEGMENT_UNMAP:
    case WORD_SNAPSHOT:
      summary->other_events++;
      return TRACE_OK;
    case WORD_ALLOC:
    case WORD_FREE_REQUESTED:
    case WORD_FREE_COMPLETED:
    case WORD_OOM:
      break;
    default:
      return trace_fail_offset(error, opened->input.name, dict->value,
                               "%s whose action is not one that is known", what);
  }
  if (action == WORD_FREE_REQUESTED && !opened->options.free_requests) return TRACE_OK;

  uint64_t address = 0, free_bytes = 0, size, stream, time_us;
  trace_status status = number(opened, dict, what, f, WORD_SIZE, &size, error);
  if (status == TRACE_OK && action != WORD_OOM)
    status = number(opened, dict, what, f, WORD_ADDR, &address, error);
  if (status == TRACE_OK && action == WORD_OOM)
    status = optional_number(opened, dict, what, f, WORD_DEVICE_FREE, 0, &free_bytes, error);
  if (status == TRACE_OK) status = optional_number(opened, dict, what, f, WORD_STREAM, 0, &stream, error);
  if (status == TRACE_OK) status = optional_number(opened, dict, what, f, WORD_TIME_US, 0, &time_us, error);
  if (status != TRACE_OK) return status;
  if (reader->collecting) return collect_seed(opened, action, address, size, stream, error);

  trace_ledger_result result;
  switch (action) {
    case WORD_ALLOC:
      result = trace_ledger_alloc(&opened->ledger, address, size, stream, event);
      break;
    case WORD_FREE_REQUESTED:
      result = trace_ledger_free_requested(&opened->ledger, address, event);
      if (result == TRACE_LEDGER_NEVER_SEEN) return TRACE_OK;
      break;
    case WORD_FREE_COMPLETED:
      result = trace_ledger_free_completed(&opened->ledger, address, event);
      if (result == TRACE_LEDGER_NEVER_SEEN) {
        summary->orphan_frees++;
        summary->orphan_bytes += size;
        return TRACE_OK;
      }
      break;
    default:
      result = trace_ledger_out_of_memory(&opened->ledger, size, stream, event);
      event->id = free_bytes;
      break;
  }
  if (result != TRACE_LEDGER_OK) return ledger_failed(opened, dict, address, size, result, error);
  event->time_us = time_us;
  reader->events++;
  *outcome = SNAPSHOT_EVENT;
  return TRACE_OK;
}

static trace_status block_complete(trace *opened, const fields *f, const snapshot_item *dict,
                                   trace_error *error) {
  static const char what[] = "a block";
  snapshot_reader *reader = opened->reader;
  uint64_t address, size, requested;
  trace_status status = number(opened, dict, what, f, WORD_SIZE, &size, error);
  if (status == TRACE_OK) status = optional_number(opened, dict, what, f, WORD_ADDRESS, 0, &address, error);
  if (status == TRACE_OK) {
    status = optional_number(opened, dict, what, f, WORD_REQUESTED_SIZE, size, &requested, error);
  }
  if (status != TRACE_OK) return status;
  uint32_t state = f->words & bit(WORD_STATE) ? (uint32_t)f->numbers[WORD_STATE] : (uint32_t)WORD_NONE;
  bool active = state == WORD_ACTIVE_ALLOCATED || state == WORD_ACTIVE_PENDING_FREE ||
                state == WORD_ACTIVE_AWAITING_FREE;
  if (!active && state != WORD_INACTIVE) {
    return trace_fail_offset(error, opened->input.name, dict->value, "%s whose state is %s", what,
                             f->present & bit(WORD_STATE) ? "not one that is known" : "missing");
  }
  bool has_address = (f->present & bit(WORD_ADDRESS)) != 0;
  return snapshot_seeds_block(&reader->seeds, has_address, address, size, active, requested)
             ? TRACE_OK
             : trace_fail_memory(error, opened->input.name);
}

static trace_status segment_complete(trace *opened, const fields *f, const snapshot_item *dict,
                                     trace_error *error) {
  static const char what[] = "a segment";
  snapshot_reader *reader = opened->reader;
  uint64_t address, stream, device;
  trace_status status = number(opened, dict, what, f, WORD_ADDRESS, &address, error);
  if (status == TRACE_OK) status = number(opened, dict, what, f, WORD_DEVICE, &device, error);
  if (status == TRACE_OK) status = optional_number(opened, dict, what, f, WORD_STREAM, 0, &stream, error);
  if (status != TRACE_OK) return status;
  if (!(f->lists & bit(WORD_BLOCKS)) || f->numbers[WORD_BLOCKS] != ROLE_BLOCKS) {
    return trace_fail_offset(error, opened->input.name, dict->value, "%s whose blocks are not a list", what);
  }
  snapshot_seeds_segment_end(&reader->seeds, device == opened->options.device, address, stream);
  return TRACE_OK;
}

/* The end of an optimizer's step on the device asked for. Anything else is none of our business. */
static trace_status annotation_complete(trace *opened, const fields *f, trace_error *error) {
  const uint32_t wanted = bit(WORD_STAGE) | bit(WORD_NAME);
  if ((f->words & wanted) != wanted || f->numbers[WORD_STAGE] != WORD_END ||
      f->numbers[WORD_NAME] != WORD_OPTIMIZER_STEP || !(f->integers & bit(WORD_TIME_US)))
    return TRACE_OK;
  if (f->integers & bit(WORD_DEVICE) && f->numbers[WORD_DEVICE] != opened->options.device) return TRACE_OK;
  return trace_add_mark(opened, f->numbers[WORD_TIME_US]) ? TRACE_OK
                                                          : trace_fail_memory(error, opened->input.name);
}

static trace_status root_complete(const trace *opened, const fields *f, const snapshot_item *dict,
                                  trace_error *error) {
  static const snapshot_word lists[] = {WORD_DEVICE_TRACES, WORD_SEGMENTS};
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
    if (f->present & ~f->lists & bit(lists[i])) {
      return trace_fail_offset(error, opened->input.name, dict->value, "a snapshot whose %s is not a list",
                               snapshot_word_text(lists[i]));
    }
  }
  return TRACE_OK;
}

trace_status snapshot_dict_complete(trace *opened, size_t first, const snapshot_item *dict,
                                    trace_event *event, snapshot_outcome *outcome, trace_error *error) {
  fields f;
  trace_status status = collect(opened, first, dict, &f, error);
  if (status != TRACE_OK) return status;
  switch (snapshot_detail(dict)) {
    case ROLE_ENTRY:
      return entry_complete(opened, &f, dict, event, outcome, error);
    case ROLE_BLOCK:
      return block_complete(opened, &f, dict, error);
    case ROLE_SEGMENT:
      return segment_complete(opened, &f, dict, error);
    case ROLE_ANNOTATION:
      return annotation_complete(opened, &f, error);
    default:
      return root_complete(opened, &f, dict, error);
  }
}
