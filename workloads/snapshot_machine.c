#include <inttypes.h>

#include "workloads/failure.h"
#include "workloads/pickle_opcodes.h"
#include "workloads/snapshot_stack.h"

enum {
  LONGEST_STEP = 2 + 255, /* bytes of the longest opcode that is decoded in one piece */
  WIDEST_MEMO_GAP = 256
};

/* What the loop of snapshot_run keeps in registers; the rest of the machine works on input and reader. */
typedef struct registers {
  const uint8_t *at;
  const uint8_t *end;
  snapshot_item *top; /* the first free item; the one before it can always be looked at */
  uint64_t origin;    /* offset of a byte = origin + its address */
} registers;

static inline registers load(const trace *opened) {
  const trace_input *input = &opened->input;
  const snapshot_reader *reader = opened->reader;
  return (registers){.at = input->at,
                     .end = input->end,
                     .top = reader->items + reader->count,
                     .origin = input->base - (uint64_t)(uintptr_t)input->buffer};
}

static inline void store(trace *opened, registers now) {
  snapshot_reader *reader = opened->reader;
  opened->input.at = now.at;
  reader->count = (size_t)(now.top - reader->items);
}

static inline uint16_t little16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

static inline uint32_t little32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t little64(const uint8_t *at) { return little32(at) | (uint64_t)little32(at + 4) << 32; }

/* Little-endian two's complement of size bytes, 0 to 8; the bytes behind it may be read. */
static inline uint64_t little_signed(const uint8_t *at, unsigned size) {
  if (size == 0) return 0;
  unsigned unused = 64 - 8 * size;
  return (uint64_t)((int64_t)(little64(at) << unused) >> unused);
}

static trace_status refused(const trace *opened, uint8_t opcode, uint64_t offset, trace_error *error) {
  const char *name = opened->input.name;
  switch (pickle_opcode_class_of(opcode)) {
    case PICKLE_CODE:
      return trace_fail_offset(
          error, name, offset,
          "opcode %s (0x%02x) can run code or reach outside of the file; a snapshot is plain data "
          "and needs none of it: refused",
          pickle_opcode_name(opcode), opcode);
    case PICKLE_TOO_LARGE:
      return trace_fail_offset(error, name, offset,
                               "opcode %s (0x%02x): integers of more than 8 bytes are refused",
                               pickle_opcode_name(opcode), opcode);
    case PICKLE_UNUSED:
      return trace_fail_offset(error, name, offset,
                               "opcode %s (0x%02x) is not one that snapshots are written with",
                               pickle_opcode_name(opcode), opcode);
    case PICKLE_DATA:
    case PICKLE_UNKNOWN:
      break;
  }
  return trace_fail_offset(error, name, offset, "unknown pickle opcode 0x%02x", opcode);
}

/* An opcode or its argument lies beyond the end of the input. */
static trace_status truncated(const trace *opened, trace_error *error) {
  uint64_t end = opened->input.base + (uint64_t)(opened->input.end - opened->input.buffer);
  return trace_fail_offset(error, opened->input.name, end,
                           "the pickle ends here without a STOP: the file is truncated");
}

/* STOP: exactly the root dict must be left, and nothing may follow. */
static trace_status stop(trace *opened, uint64_t offset, trace_error *error) {
  const snapshot_reader *reader = opened->reader;
  const char *name = opened->input.name;
  if (reader->count != 1 || reader->items[0].tag != snapshot_tag(ITEM_DICT, ROLE_ROOT) ||
      !reader->device_traces_seen) {
    return snapshot_not_one(opened, offset, error);
  }
  trace_status status = trace_input_fill(&opened->input, 1, error);
  if (status != TRACE_OK) return status;
  if (opened->input.at != opened->input.end) {
    return trace_fail_offset(error, name, offset + 1, "data follows the end of the pickle");
  }
  return TRACE_END;
}

/* Skips a string that need not be in the buffer as a whole; header: bytes of its opcode and size. */
static trace_status skip_string(trace *opened, size_t header, uint64_t size, trace_error *error) {
  trace_input *input = &opened->input;
  if ((size_t)(input->end - input->at) < header) return truncated(opened, error);
  input->at += header;
  bool skipped;
  trace_status status = trace_input_skip(input, size, &skipped, error);
  if (status != TRACE_OK || skipped) return status;
  return truncated(opened, error);
}

static trace_status memo_put(trace *opened, uint64_t index, uint8_t opcode, uint64_t offset,
                             trace_error *error) {
  snapshot_reader *reader = opened->reader;
  if (reader->count == 0 || snapshot_kind(&reader->items[reader->count - 1]) == ITEM_MARK) {
    return snapshot_stack_short(opened, offset, opcode, error);
  }
  if (index > reader->memo.count + WIDEST_MEMO_GAP || index > UINT32_MAX) {
    return trace_fail_offset(error, opened->input.name, offset,
                             "memo slot %" PRIu64 " is far beyond the %" PRIu64 " in use", index,
                             reader->memo.count);
  }
  const snapshot_item *top = &reader->items[reader->count - 1];
  snapshot_word word = snapshot_kind(top) == ITEM_WORD ? (snapshot_word)snapshot_detail(top) : WORD_NONE;
  return snapshot_memo_put(&reader->memo, index, word) ? TRACE_OK
                                                       : trace_fail_memory(error, opened->input.name);
}

/* BINGET or LONG_BINGET at offset, which input need not have reached yet. */
static trace_status memo_missing(trace *opened, const uint8_t *at, uint64_t offset, trace_error *error) {
  bool is_short = *at == PICKLE_BINGET;
  if (opened->input.end - at < (is_short ? 2 : 5)) return truncated(opened, error);
  return trace_fail_offset(error, opened->input.name, offset, "memo slot %" PRIu32 " was never put",
                           is_short ? at[1] : little32(at + 1));
}

static trace_status protocol(trace *opened, uint8_t version, uint64_t offset, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  if (reader->started) return trace_fail_offset(error, opened->input.name, offset, "a second PROTO opcode");
  if (version < 2 || version > 5) {
    return trace_fail_offset(error, opened->input.name, offset, "pickle protocol %u: expected 2, 3, 4 or 5",
                             version);
  }
  reader->started = true;
  return TRACE_OK;
}

/* BINUNICODE and BINUNICODE8; header: bytes of its opcode and size. */
static trace_status long_string(trace *opened, size_t header, uint64_t size, uint64_t offset,
                                trace_error *error) {
  snapshot_reader *reader = opened->reader;
  snapshot_word word = WORD_NONE;
  if (size <= LONGEST_STEP - header) word = snapshot_word_of(opened->input.at + header, (size_t)size);
  snapshot_put_word(reader, word, offset);
  return skip_string(opened, header, size, error);
}

/* Moves input by size bytes, all of which must be there. */
static trace_status advance(trace *opened, size_t size, trace_error *error) {
  trace_input *input = &opened->input;
  if ((size_t)(input->end - input->at) < size) return truncated(opened, error);
  input->at += size;
  return TRACE_OK;
}

/* The opcodes that are not in every trace entry. Leaves input after the opcode. */
static trace_status run_opcode(trace *opened, trace_event *event, snapshot_outcome *outcome,
                               trace_error *error) {
  snapshot_reader *reader = opened->reader;
  const uint8_t *at = opened->input.at;
  uint64_t offset = trace_input_offset(&opened->input);
  uint8_t opcode = *at;
  trace_status status;
  switch (opcode) {
    case PICKLE_BINUNICODE:
      return long_string(opened, 5, little32(at + 1), offset, error);
    case PICKLE_BINUNICODE8:
      return long_string(opened, 9, little64(at + 1), offset, error);
    case PICKLE_SHORT_BINBYTES:
      snapshot_put_opaque(reader, offset);
      return skip_string(opened, 2, at[1], error);
    case PICKLE_BINBYTES:
      snapshot_put_opaque(reader, offset);
      return skip_string(opened, 5, little32(at + 1), error);
    case PICKLE_BINBYTES8:
      snapshot_put_opaque(reader, offset);
      return skip_string(opened, 9, little64(at + 1), error);
    case PICKLE_BINFLOAT:
      snapshot_put_opaque(reader, offset);
      return advance(opened, 9, error);
    case PICKLE_FRAME: /* its length is of no use to a reader that buffers by itself */
      return advance(opened, 9, error);
    case PICKLE_PROTO:
      status = advance(opened, 2, error);
      return status == TRACE_OK ? protocol(opened, at[1], offset, error) : status;
    case PICKLE_BINPUT:
      status = advance(opened, 2, error);
      return status == TRACE_OK ? memo_put(opened, at[1], opcode, offset, error) : status;
    case PICKLE_LONG_BINPUT:
      status = advance(opened, 5, error);
      return status == TRACE_OK ? memo_put(opened, little32(at + 1), opcode, offset, error) : status;
    default:
      break;
  }
  opened->input.at = at + 1; /* no arguments from here on */
  switch (opcode) {
    case PICKLE_NONE:
    case PICKLE_NEWTRUE:
    case PICKLE_NEWFALSE:
    case PICKLE_EMPTY_TUPLE:
      snapshot_put_opaque(reader, offset);
      return TRACE_OK;
    case PICKLE_EMPTY_LIST:
      return snapshot_put_list(opened, offset, error);
    case PICKLE_SETITEM:
      return snapshot_set_one(opened, offset, event, outcome, error);
    case PICKLE_APPENDS:
      return snapshot_append_batch(opened, offset, error);
    case PICKLE_APPEND:
      return snapshot_append_one(opened, offset, error);
    case PICKLE_TUPLE:
    case PICKLE_TUPLE1:
    case PICKLE_TUPLE2:
    case PICKLE_TUPLE3:
      return snapshot_make_tuple(opened, opcode, offset, error);
    case PICKLE_STOP:
      return stop(opened, offset, error);
    default:
      return refused(opened, opcode, offset, error);
  }
}

/* Room for one more item and, unless the input ends before, LONGEST_STEP bytes to look at. */
static trace_status prepare(trace *opened, trace_error *error) {
  trace_status status = trace_input_fill(&opened->input, LONGEST_STEP, error);
  if (status != TRACE_OK) return status;
  if (opened->input.at >= opened->input.end) return truncated(opened, error);
  return snapshot_stack_reserve(opened, error);
}

trace_status snapshot_run(trace *opened, trace_event *event, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  const snapshot_memo *memo = &reader->memo;
  trace_status status = prepare(opened, error);
  if (status != TRACE_OK) return status;
  registers now = load(opened);
  const snapshot_item *limit = reader->items + reader->capacity;
  for (;;) {
    if (now.end - now.at < LONGEST_STEP || now.top == limit) {
      store(opened, now);
      status = prepare(opened, error);
      if (status != TRACE_OK) return status;
      now = load(opened);
      limit = reader->items + reader->capacity;
    }
    const uint8_t *at = now.at;
    uint64_t offset = now.origin + (uint64_t)(uintptr_t)at;
    switch (*at) {
      case PICKLE_BINGET:
        if (at[1] >= memo->count) return memo_missing(opened, at, offset, error);
        now.top = snapshot_push_word(now.top, snapshot_memo_get(memo, at[1]), offset);
        now.at = at + 2;
        break;
      case PICKLE_LONG_BINGET: {
        uint32_t index = little32(at + 1);
        if (index >= memo->count) return memo_missing(opened, at, offset, error);
        now.top = snapshot_push_word(now.top, snapshot_memo_get(memo, index), offset);
        now.at = at + 5;
        break;
      }
      case PICKLE_LONG1:
        if (at[1] > 8) {
          return trace_fail_offset(error, opened->input.name, offset,
                                   "opcode LONG1 with an integer of %u bytes: more than 8 are refused",
                                   at[1]);
        }
        now.top = snapshot_push(now.top, ITEM_INTEGER, little_signed(at + 2, at[1]), offset);
        now.at = at + 2 + at[1];
        break;
      case PICKLE_BININT:
        now.top = snapshot_push(now.top, ITEM_INTEGER, (uint64_t)(int64_t)(int32_t)little32(at + 1), offset);
        now.at = at + 5;
        break;
      case PICKLE_BININT1:
        now.top = snapshot_push(now.top, ITEM_INTEGER, at[1], offset);
        now.at = at + 2;
        break;
      case PICKLE_BININT2:
        now.top = snapshot_push(now.top, ITEM_INTEGER, little16(at + 1), offset);
        now.at = at + 3;
        break;
      case PICKLE_SHORT_BINUNICODE:
        now.top = snapshot_push_word(now.top, snapshot_word_of(at + 2, at[1]), offset);
        now.at = at + 2 + at[1];
        break;
      case PICKLE_MEMOIZE:
        now.at = at + 1;
        if ((now.top[-1].tag == ITEM_OPAQUE || snapshot_kind(&now.top[-1]) == ITEM_DICT) &&
            memo->count < UINT32_MAX) {
          reader->memo.count++; /* what memo_put would do */
          break;
        }
        store(opened, now);
        status = memo_put(opened, memo->count, PICKLE_MEMOIZE, offset, error);
        if (status != TRACE_OK) return status;
        break;
      case PICKLE_MARK:
        if (reader->mark_count == SNAPSHOT_DEEPEST) {
          return trace_fail_offset(error, opened->input.name, offset, "nested deeper than %d",
                                   SNAPSHOT_DEEPEST);
        }
        reader->marks[reader->mark_count++] = (size_t)(now.top - reader->items);
        now.top = snapshot_push(now.top, ITEM_MARK, 0, offset);
        now.at = at + 1;
        break;
      case PICKLE_EMPTY_DICT:
        now.at = at + 1;
        store(opened, now);
        snapshot_put_dict(reader, offset);
        now.top = reader->items + reader->count;
        break;
      case PICKLE_SETITEMS: {
        now.at = at + 1;
        store(opened, now);
        snapshot_outcome outcome = SNAPSHOT_NOTHING;
        status = snapshot_set_batch(opened, offset, event, &outcome, error);
        if (status != TRACE_OK || outcome == SNAPSHOT_EVENT) return status;
        now.top = reader->items + reader->count;
        break;
      }
      default: {
        store(opened, now);
        snapshot_outcome outcome = SNAPSHOT_NOTHING;
        status = run_opcode(opened, event, &outcome, error);
        if (status != TRACE_OK || outcome == SNAPSHOT_EVENT) return status;
        now = load(opened);
        break;
      }
    }
    if (now.at > now.end) return truncated(opened, error);
  }
}
