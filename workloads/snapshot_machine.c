#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/failure.h"
#include "workloads/pickle_opcodes.h"
#include "workloads/snapshot.h"

enum {
  LONGEST_STEP = 2 + 255, /* bytes of the longest opcode that is decoded in one piece */
  FIRST_CAPACITY = 1024,
  MOST_ITEMS = 1024 * 1024, /* values waiting for their container at the same time */
  WIDEST_MEMO_GAP = 256
};

#define NO_MARK SIZE_MAX

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

static bool grow_items(snapshot_reader *reader) {
  size_t capacity = reader->capacity == 0 ? FIRST_CAPACITY : 2 * reader->capacity;
  snapshot_item *ground = realloc(reader->ground, (capacity + 1) * sizeof *ground);
  if (ground == NULL) return false;
  ground->tag = ITEM_MARK;
  reader->ground = ground;
  reader->items = ground + 1;
  reader->capacity = capacity;
  return true;
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

/* The dict or list that the innermost open mark belongs to; NULL: none. */
static inline const snapshot_item *marked_container(const snapshot_reader *reader) {
  if (reader->mark_count == 0) return NULL;
  size_t mark = reader->marks[reader->mark_count - 1];
  return mark == 0 ? NULL : &reader->items[mark - 1];
}

/* What a new list is, from the place it is put at. */
static snapshot_role role_of_new_list(const snapshot_reader *reader) {
  if (reader->count == 0) return ROLE_NONE;
  const snapshot_item *top = &reader->items[reader->count - 1];
  const snapshot_item *container = marked_container(reader);
  if (snapshot_kind(top) == ITEM_WORD) { /* it may be the value of a key */
    const snapshot_item *below = reader->count >= 2 ? top - 1 : NULL;
    if (below != NULL && snapshot_kind(below) == ITEM_DICT && snapshot_detail(below) != ROLE_NONE)
      container = below;
    if (container == NULL || snapshot_kind(container) != ITEM_DICT) return ROLE_NONE;
    uint32_t word = snapshot_detail(top);
    uint32_t role = snapshot_detail(container);
    if (role == ROLE_ROOT && word == WORD_DEVICE_TRACES) return ROLE_DEVICE_TRACES;
    if (role == ROLE_ROOT && word == WORD_SEGMENTS && reader->collecting) return ROLE_SEGMENTS;
    if (role == ROLE_SEGMENT && word == WORD_BLOCKS) return ROLE_BLOCKS;
    return ROLE_NONE;
  }
  if (top->tag == snapshot_tag(ITEM_LIST, ROLE_DEVICE_TRACES)) return ROLE_TRACE;
  if (container == NULL || container->tag != snapshot_tag(ITEM_LIST, ROLE_DEVICE_TRACES)) return ROLE_NONE;
  if (snapshot_kind(top) == ITEM_MARK || top->tag == snapshot_tag(ITEM_LIST, ROLE_TRACE)) return ROLE_TRACE;
  return ROLE_NONE;
}

static snapshot_role role_within(const snapshot_item *list) {
  if (list == NULL || snapshot_kind(list) != ITEM_LIST) return ROLE_NONE;
  switch (snapshot_detail(list)) {
    case ROLE_TRACE:
      return ROLE_ENTRY;
    case ROLE_SEGMENTS:
      return ROLE_SEGMENT;
    case ROLE_BLOCKS:
      return ROLE_BLOCK;
    default:
      return ROLE_NONE;
  }
}

static snapshot_role role_of_new_dict(const snapshot_reader *reader) {
  if (reader->count == 0) return ROLE_ROOT;
  const snapshot_item *top = &reader->items[reader->count - 1];
  snapshot_role role = role_within(top);
  if (role != ROLE_NONE) return role;
  uint32_t kind = snapshot_kind(top);
  if (kind != ITEM_MARK && kind != ITEM_SEALED && kind != ITEM_DICT) return ROLE_NONE;
  return role_within(marked_container(reader));
}

static inline snapshot_item *push(snapshot_item *top, uint32_t tag, uint64_t value, uint64_t offset) {
  *top = (snapshot_item){.tag = tag, .offset_low = (uint32_t)offset, .value = value};
  return top + 1;
}

static inline snapshot_item *push_opaque(snapshot_item *top, uint64_t offset) {
  if (top[-1].tag == ITEM_OPAQUE) {
    top[-1].value++;
    return top;
  }
  return push(top, ITEM_OPAQUE, 1, offset);
}

static inline snapshot_item *push_word(snapshot_item *top, snapshot_word word, uint64_t offset) {
  if (word == WORD_NONE) return push_opaque(top, offset);
  return push(top, snapshot_tag(ITEM_WORD, word), 0, offset);
}

static void push_on(snapshot_reader *reader, uint32_t tag, uint64_t value, uint64_t offset) {
  push(reader->items + reader->count, tag, value, offset);
  reader->count++;
}

static void push_opaque_on(snapshot_reader *reader, uint64_t offset) {
  reader->count = (size_t)(push_opaque(reader->items + reader->count, offset) - reader->items);
}

/* Items [first .. count) hold nothing with a role: that would lose events. */
static bool roles_in(const snapshot_reader *reader, size_t first) {
  for (size_t i = first; i < reader->count; i++) {
    uint32_t kind = snapshot_kind(&reader->items[i]);
    if (kind == ITEM_SEALED || (kind >= ITEM_LIST && snapshot_detail(&reader->items[i]) != ROLE_NONE))
      return true;
  }
  return false;
}

static uint64_t values_in(const snapshot_reader *reader, size_t first) {
  uint64_t values = 0;
  for (size_t i = first; i < reader->count; i++) {
    const snapshot_item *item = &reader->items[i];
    values += snapshot_kind(item) <= ITEM_SEALED ? item->value : 1;
  }
  return values;
}

static trace_status not_a_snapshot(const trace *opened, uint64_t offset, trace_error *error) {
  return trace_fail_offset(error, opened->input.name, offset,
                           "this pickle is no memory snapshot: expected a dict with device_traces, as "
                           "torch.cuda.memory._snapshot() returns it");
}

/* items[first .. count) were to go into something and have a role. */
static trace_status misplaced(const trace *opened, size_t first, uint64_t offset, trace_error *error) {
  if (first == 0) return not_a_snapshot(opened, offset, error);
  return trace_fail_offset(error, opened->input.name, offset,
                           "a part of device_traces or segments stands where a snapshot has none");
}

static trace_status no_place(const trace *opened, uint64_t offset, uint8_t opcode, trace_error *error) {
  return trace_fail_offset(error, opened->input.name, offset,
                           "opcode %s finds no values to work on: the pickle is damaged",
                           pickle_opcode_name(opcode));
}

/* The index of the innermost mark, which is closed; NO_MARK: there is none. */
static size_t close_mark(snapshot_reader *reader) {
  return reader->mark_count == 0 ? NO_MARK : reader->marks[--reader->mark_count];
}

/* Replaces the dict at place, and all above it, by its completed self. */
static void seal(snapshot_reader *reader, size_t place) {
  reader->count = place + 1;
  if (place > 0 && reader->items[place - 1].tag == ITEM_SEALED) {
    reader->items[place - 1].value++;
    reader->count = place;
  } else {
    reader->items[place].tag = ITEM_SEALED;
    reader->items[place].value = 1;
  }
}

/* The key-value pairs items[first .. count) go into the dict at place. */
static trace_status set_items(trace *opened, size_t place, size_t first, uint64_t offset, trace_event *event,
                              snapshot_outcome *outcome, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  snapshot_item dict = reader->items[place];
  if (snapshot_kind(&dict) != ITEM_DICT) {
    return trace_fail_offset(error, opened->input.name, offset,
                             "items are set on what is not a dict, or on one that is already complete");
  }
  if (snapshot_detail(&dict) == ROLE_NONE) {
    if (values_in(reader, first) % 2 != 0) {
      return trace_fail_offset(error, opened->input.name, offset, "a key without a value");
    }
    if (roles_in(reader, first)) return misplaced(opened, first, offset, error);
    reader->count = place + 1;
    return TRACE_OK;
  }
  trace_status status = snapshot_dict_complete(opened, first, &dict, event, outcome, error);
  if (status != TRACE_OK) return status;
  if (snapshot_detail(&dict) == ROLE_ROOT) {
    reader->count = place + 1;
  } else {
    seal(reader, place);
  }
  return TRACE_OK;
}

static const char *role_text(uint32_t role) {
  switch (role) {
    case ROLE_DEVICE_TRACES:
      return "device_traces";
    case ROLE_TRACE:
      return "a list in device_traces";
    case ROLE_SEGMENTS:
      return "segments";
    case ROLE_BLOCKS:
      return "blocks";
    default:
      return "a list";
  }
}

/* Items [first .. count) go into the list at place. */
static trace_status append_items(trace *opened, size_t place, size_t first, uint64_t offset,
                                 trace_error *error) {
  snapshot_reader *reader = opened->reader;
  const snapshot_item *list = &reader->items[place];
  if (snapshot_kind(list) != ITEM_LIST) {
    return trace_fail_offset(error, opened->input.name, offset, "items are appended to what is not a list");
  }
  uint32_t role = snapshot_detail(list);
  if (role == ROLE_NONE) {
    if (roles_in(reader, first)) return misplaced(opened, first, offset, error);
    reader->count = place + 1;
    return TRACE_OK;
  }
  for (size_t i = first; i < reader->count; i++) {
    uint32_t wanted = role == ROLE_DEVICE_TRACES ? snapshot_tag(ITEM_LIST, ROLE_TRACE) : ITEM_SEALED;
    if (reader->items[i].tag != wanted) {
      return trace_fail_offset(error, opened->input.name, offset, "%s holds something that is not a %s",
                               role_text(role), role == ROLE_DEVICE_TRACES ? "list" : "dict with items");
    }
  }
  reader->count = place + 1;
  return TRACE_OK;
}

/* The values above the innermost mark, or the topmost wanted ones, become one tuple. */
static trace_status make_tuple(trace *opened, size_t wanted, uint8_t opcode, uint64_t offset,
                               trace_error *error) {
  snapshot_reader *reader = opened->reader;
  size_t first = reader->count;
  if (opcode == PICKLE_TUPLE) {
    size_t mark = close_mark(reader);
    if (mark == NO_MARK) return no_place(opened, offset, opcode, error);
    if (roles_in(reader, mark + 1)) return misplaced(opened, mark + 1, offset, error);
    reader->count = mark;
    push_opaque_on(reader, offset);
    return TRACE_OK;
  }
  while (wanted > 0) {
    if (first == 0 || snapshot_kind(&reader->items[first - 1]) == ITEM_MARK) {
      return no_place(opened, offset, opcode, error);
    }
    snapshot_item *item = &reader->items[first - 1];
    if (item->tag == ITEM_OPAQUE && item->value > wanted) {
      item->value -= wanted;
      break;
    }
    wanted -= item->tag == ITEM_OPAQUE ? (size_t)item->value : 1;
    first--;
  }
  if (roles_in(reader, first)) return misplaced(opened, first, offset, error);
  reader->count = first;
  push_opaque_on(reader, offset);
  return TRACE_OK;
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
    return not_a_snapshot(opened, offset, error);
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
    return no_place(opened, offset, opcode, error);
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

static trace_status push_list(trace *opened, uint64_t offset, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  snapshot_role role = role_of_new_list(reader);
  uint64_t value = 0;
  if (role == ROLE_DEVICE_TRACES) {
    if (reader->device_traces_seen) {
      return trace_fail_offset(error, opened->input.name, offset, "a second device_traces");
    }
    reader->device_traces_seen = true;
  } else if (role == ROLE_TRACE) {
    value = reader->devices++;
  }
  push_on(reader, snapshot_tag(ITEM_LIST, role), value, offset);
  return TRACE_OK;
}

static void push_dict(snapshot_reader *reader, uint64_t offset) {
  snapshot_role role = role_of_new_dict(reader);
  if (role == ROLE_NONE && reader->items[reader->count - 1].tag == snapshot_tag(ITEM_DICT, ROLE_NONE)) {
    /* Nothing can be set on the dict before this one any more: it need not be told apart. */
    reader->count--;
    push_opaque_on(reader, offset);
  }
  if (role == ROLE_SEGMENT) snapshot_seeds_segment_begin(&reader->seeds);
  push_on(reader, snapshot_tag(ITEM_DICT, role), offset, offset);
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

/* SETITEM: the two values on top go into the dict below them. */
static trace_status set_one_item(trace *opened, uint64_t offset, trace_event *event,
                                 snapshot_outcome *outcome, trace_error *error) {
  const snapshot_reader *reader = opened->reader;
  size_t place = reader->count;
  uint64_t values = 0;
  while (values < 2 && place > 0 && snapshot_kind(&reader->items[place - 1]) != ITEM_MARK) {
    place--;
    values += snapshot_kind(&reader->items[place]) <= ITEM_SEALED ? reader->items[place].value : 1;
  }
  if (place == 0 || values != 2) return no_place(opened, offset, PICKLE_SETITEM, error);
  return set_items(opened, place - 1, place, offset, event, outcome, error);
}

static trace_status append_one_item(trace *opened, uint64_t offset, trace_error *error) {
  const snapshot_reader *reader = opened->reader;
  if (reader->count < 2 || snapshot_kind(&reader->items[reader->count - 1]) == ITEM_MARK ||
      values_in(reader, reader->count - 1) != 1) {
    return no_place(opened, offset, PICKLE_APPEND, error);
  }
  return append_items(opened, reader->count - 2, reader->count - 1, offset, error);
}

static trace_status append_batch(trace *opened, uint64_t offset, trace_error *error) {
  size_t mark = close_mark(opened->reader);
  if (mark == NO_MARK || mark == 0) return no_place(opened, offset, PICKLE_APPENDS, error);
  return append_items(opened, mark - 1, mark + 1, offset, error);
}

/* BINUNICODE and BINUNICODE8; header: bytes of its opcode and size. */
static trace_status long_string(trace *opened, size_t header, uint64_t size, uint64_t offset,
                                trace_error *error) {
  snapshot_reader *reader = opened->reader;
  snapshot_word word = WORD_NONE;
  if (size <= LONGEST_STEP - header) word = snapshot_word_of(opened->input.at + header, (size_t)size);
  reader->count = (size_t)(push_word(reader->items + reader->count, word, offset) - reader->items);
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
      push_opaque_on(reader, offset);
      return skip_string(opened, 2, at[1], error);
    case PICKLE_BINBYTES:
      push_opaque_on(reader, offset);
      return skip_string(opened, 5, little32(at + 1), error);
    case PICKLE_BINBYTES8:
      push_opaque_on(reader, offset);
      return skip_string(opened, 9, little64(at + 1), error);
    case PICKLE_BINFLOAT:
      push_opaque_on(reader, offset);
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
      push_opaque_on(reader, offset);
      return TRACE_OK;
    case PICKLE_EMPTY_LIST:
      return push_list(opened, offset, error);
    case PICKLE_SETITEM:
      return set_one_item(opened, offset, event, outcome, error);
    case PICKLE_APPENDS:
      return append_batch(opened, offset, error);
    case PICKLE_APPEND:
      return append_one_item(opened, offset, error);
    case PICKLE_TUPLE:
      return make_tuple(opened, 0, opcode, offset, error);
    case PICKLE_TUPLE1:
    case PICKLE_TUPLE2:
    case PICKLE_TUPLE3:
      return make_tuple(opened, (size_t)(opcode - PICKLE_TUPLE1 + 1), opcode, offset, error);
    case PICKLE_STOP:
      return stop(opened, offset, error);
    default:
      return refused(opened, opcode, offset, error);
  }
}

/* Room for one more item and, unless the input ends before, LONGEST_STEP bytes to look at. */
static trace_status prepare(trace *opened, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  trace_status status = trace_input_fill(&opened->input, LONGEST_STEP, error);
  if (status != TRACE_OK) return status;
  if (opened->input.at >= opened->input.end) return truncated(opened, error);
  if (reader->count < reader->capacity) return TRACE_OK;
  if (reader->capacity >= MOST_ITEMS) {
    return trace_fail_offset(error, opened->input.name, trace_input_offset(&opened->input),
                             "more than %d values wait for their container", MOST_ITEMS);
  }
  return grow_items(reader) ? TRACE_OK : trace_fail_memory(error, opened->input.name);
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
        now.top = push_word(now.top, snapshot_memo_get(memo, at[1]), offset);
        now.at = at + 2;
        break;
      case PICKLE_LONG_BINGET: {
        uint32_t index = little32(at + 1);
        if (index >= memo->count) return memo_missing(opened, at, offset, error);
        now.top = push_word(now.top, snapshot_memo_get(memo, index), offset);
        now.at = at + 5;
        break;
      }
      case PICKLE_LONG1:
        if (at[1] > 8) {
          return trace_fail_offset(error, opened->input.name, offset,
                                   "opcode LONG1 with an integer of %u bytes: more than 8 are refused",
                                   at[1]);
        }
        now.top = push(now.top, ITEM_INTEGER, little_signed(at + 2, at[1]), offset);
        now.at = at + 2 + at[1];
        break;
      case PICKLE_BININT:
        now.top = push(now.top, ITEM_INTEGER, (uint64_t)(int64_t)(int32_t)little32(at + 1), offset);
        now.at = at + 5;
        break;
      case PICKLE_BININT1:
        now.top = push(now.top, ITEM_INTEGER, at[1], offset);
        now.at = at + 2;
        break;
      case PICKLE_BININT2:
        now.top = push(now.top, ITEM_INTEGER, little16(at + 1), offset);
        now.at = at + 3;
        break;
      case PICKLE_SHORT_BINUNICODE:
        now.top = push_word(now.top, snapshot_word_of(at + 2, at[1]), offset);
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
        now.top = push(now.top, ITEM_MARK, 0, offset);
        now.at = at + 1;
        break;
      case PICKLE_EMPTY_DICT:
        now.at = at + 1;
        store(opened, now);
        push_dict(reader, offset);
        now.top = reader->items + reader->count;
        break;
      case PICKLE_SETITEMS: {
        now.at = at + 1;
        store(opened, now);
        size_t mark = close_mark(reader);
        if (mark == NO_MARK || mark == 0) return no_place(opened, offset, PICKLE_SETITEMS, error);
        snapshot_outcome outcome = SNAPSHOT_NOTHING;
        status = set_items(opened, mark - 1, mark + 1, offset, event, &outcome, error);
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
