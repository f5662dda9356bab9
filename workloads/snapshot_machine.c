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

/* Where the machine stands: copied from the input to registers and back. */
typedef struct cursor {
  const uint8_t *at;
  const uint8_t *end;
  uint64_t origin; /* offset of a byte = origin + its address */
} cursor;

static inline uint64_t offset_of(const cursor *c, const uint8_t *at) {
  return c->origin + (uint64_t)(uintptr_t)at;
}

static void load_cursor(const trace_input *input, cursor *c) {
  c->at = input->at;
  c->end = input->end;
  c->origin = input->base - (uint64_t)(uintptr_t)input->buffer;
}

static bool grow_items(snapshot_reader *reader) {
  size_t capacity = reader->capacity == 0 ? FIRST_CAPACITY : 2 * reader->capacity;
  snapshot_item *items = realloc(reader->items, capacity * sizeof *items);
  if (items == NULL) return false;
  reader->items = items;
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

static inline void push(snapshot_reader *reader, uint32_t tag, uint64_t value, uint64_t offset) {
  reader->items[reader->count++] =
      (snapshot_item){.tag = tag, .offset_low = (uint32_t)offset, .value = value};
}

static inline void push_opaque(snapshot_reader *reader, uint64_t offset) {
  if (reader->count > 0 && reader->items[reader->count - 1].tag == ITEM_OPAQUE) {
    reader->items[reader->count - 1].value++;
  } else {
    push(reader, ITEM_OPAQUE, 1, offset);
  }
}

static inline void push_word(snapshot_reader *reader, snapshot_word word, uint64_t offset) {
  if (word == WORD_NONE) {
    push_opaque(reader, offset);
  } else {
    push(reader, snapshot_tag(ITEM_WORD, word), 0, offset);
  }
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
  if (values_in(reader, first) % 2 != 0) {
    return trace_fail_offset(error, opened->input.name, offset, "a key without a value");
  }
  if (snapshot_detail(&dict) == ROLE_NONE) {
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
    push_opaque(reader, offset);
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
  push_opaque(reader, offset);
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

static trace_status truncated(const trace *opened, const cursor *c, trace_error *error) {
  return trace_fail_offset(error, opened->input.name, offset_of(c, c->end),
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

/* Skips the rest of a string that need not be in the buffer as a whole. */
static trace_status skip_string(trace *opened, cursor *c, const uint8_t *content, uint64_t size,
                                trace_error *error) {
  trace_input *input = &opened->input;
  if (content > c->end) return truncated(opened, c, error);
  input->at = content;
  bool skipped;
  trace_status status = trace_input_skip(input, size, &skipped, error);
  if (status != TRACE_OK) return status;
  load_cursor(input, c);
  return skipped ? TRACE_OK : truncated(opened, c, error);
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

static trace_status memo_missing(const trace *opened, uint64_t index, uint64_t offset, trace_error *error) {
  return trace_fail_offset(error, opened->input.name, offset, "memo slot %" PRIu64 " was never put", index);
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
  push(reader, snapshot_tag(ITEM_LIST, role), value, offset);
  return TRACE_OK;
}

static void push_dict(snapshot_reader *reader, uint64_t offset) {
  snapshot_role role = role_of_new_dict(reader);
  if (role == ROLE_NONE && reader->items[reader->count - 1].tag == snapshot_tag(ITEM_DICT, ROLE_NONE)) {
    /* Nothing can be set on the dict before this one any more: it need not be told apart. */
    reader->count--;
    push_opaque(reader, offset);
  }
  if (role == ROLE_SEGMENT) snapshot_seeds_segment_begin(&reader->seeds);
  push(reader, snapshot_tag(ITEM_DICT, role), offset, offset);
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

trace_status snapshot_run(trace *opened, trace_event *event, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  trace_input *input = &opened->input;
  trace_status status = TRACE_OK;
  cursor c;
  load_cursor(input, &c);
  while (status == TRACE_OK) {
    if (c.end - c.at < LONGEST_STEP && !input->finished) {
      input->at = c.at;
      status = trace_input_fill(input, LONGEST_STEP, error);
      if (status != TRACE_OK) return status;
      load_cursor(input, &c);
    }
    const uint8_t *at = c.at;
    uint64_t offset = offset_of(&c, at);
    if (at >= c.end) return truncated(opened, &c, error);
    if (reader->count == reader->capacity) {
      if (reader->capacity >= MOST_ITEMS) {
        return trace_fail_offset(error, input->name, offset, "more than %d values wait for their container",
                                 MOST_ITEMS);
      }
      if (!grow_items(reader)) return trace_fail_memory(error, input->name);
    }
    uint8_t opcode = *at;
    c.at = at + 1;
    switch (opcode) {
      case PICKLE_BINGET:
      case PICKLE_LONG_BINGET: {
        uint64_t index = opcode == PICKLE_BINGET ? at[1] : little32(at + 1);
        c.at = at + (opcode == PICKLE_BINGET ? 2 : 5);
        if (index >= reader->memo.count) {
          status = c.at > c.end ? truncated(opened, &c, error) : memo_missing(opened, index, offset, error);
          break;
        }
        push_word(reader, snapshot_memo_get(&reader->memo, index), offset);
        break;
      }
      case PICKLE_MEMOIZE:
        status = memo_put(opened, reader->memo.count, opcode, offset, error);
        break;
      case PICKLE_BINPUT:
      case PICKLE_LONG_BINPUT:
        c.at = at + (opcode == PICKLE_BINPUT ? 2 : 5);
        if (c.at > c.end) return truncated(opened, &c, error);
        status = memo_put(opened, opcode == PICKLE_BINPUT ? at[1] : little32(at + 1), opcode, offset, error);
        break;
      case PICKLE_LONG1:
        if (at[1] > 8) {
          return trace_fail_offset(error, input->name, offset,
                                   "opcode LONG1 with an integer of %u bytes: more than 8 are refused",
                                   at[1]);
        }
        push(reader, ITEM_INTEGER, little_signed(at + 2, at[1]), offset);
        c.at = at + 2 + at[1];
        break;
      case PICKLE_BININT:
        push(reader, ITEM_INTEGER, (uint64_t)(int64_t)(int32_t)little32(at + 1), offset);
        c.at = at + 5;
        break;
      case PICKLE_BININT1:
        push(reader, ITEM_INTEGER, at[1], offset);
        c.at = at + 2;
        break;
      case PICKLE_BININT2:
        push(reader, ITEM_INTEGER, little16(at + 1), offset);
        c.at = at + 3;
        break;
      case PICKLE_SHORT_BINUNICODE:
        push_word(reader, snapshot_word_of(at + 2, at[1]), offset);
        c.at = at + 2 + at[1];
        break;
      case PICKLE_BINUNICODE:
      case PICKLE_BINUNICODE8: {
        uint64_t size = opcode == PICKLE_BINUNICODE ? little32(at + 1) : little64(at + 1);
        const uint8_t *content = at + (opcode == PICKLE_BINUNICODE ? 5 : 9);
        if (size <= 128) { /* so that it lies within LONGEST_STEP */
          push_word(reader, snapshot_word_of(content, (size_t)size), offset);
          c.at = content + size;
        } else {
          push_opaque(reader, offset);
          status = skip_string(opened, &c, content, size, error);
        }
        break;
      }
      case PICKLE_SHORT_BINBYTES:
        push_opaque(reader, offset);
        c.at = at + 2 + at[1];
        break;
      case PICKLE_BINBYTES:
        push_opaque(reader, offset);
        status = skip_string(opened, &c, at + 5, little32(at + 1), error);
        break;
      case PICKLE_BINBYTES8:
        push_opaque(reader, offset);
        status = skip_string(opened, &c, at + 9, little64(at + 1), error);
        break;
      case PICKLE_NONE:
      case PICKLE_NEWTRUE:
      case PICKLE_NEWFALSE:
      case PICKLE_EMPTY_TUPLE:
        push_opaque(reader, offset);
        break;
      case PICKLE_BINFLOAT:
        push_opaque(reader, offset);
        c.at = at + 9;
        break;
      case PICKLE_EMPTY_DICT:
        push_dict(reader, offset);
        break;
      case PICKLE_EMPTY_LIST:
        status = push_list(opened, offset, error);
        break;
      case PICKLE_MARK:
        if (reader->mark_count == SNAPSHOT_DEEPEST) {
          return trace_fail_offset(error, input->name, offset, "nested deeper than %d", SNAPSHOT_DEEPEST);
        }
        reader->marks[reader->mark_count++] = reader->count;
        push(reader, ITEM_MARK, 0, offset);
        break;
      case PICKLE_SETITEMS: {
        size_t mark = close_mark(reader);
        if (mark == NO_MARK || mark == 0) return no_place(opened, offset, opcode, error);
        snapshot_outcome outcome = SNAPSHOT_NOTHING;
        status = set_items(opened, mark - 1, mark + 1, offset, event, &outcome, error);
        if (status == TRACE_OK && outcome == SNAPSHOT_EVENT) {
          input->at = c.at;
          return TRACE_OK;
        }
        break;
      }
      case PICKLE_SETITEM: {
        size_t place = reader->count;
        for (uint64_t values = 0; values < 2; values++) {
          if (place == 0 || snapshot_kind(&reader->items[place - 1]) == ITEM_MARK) break;
          place--;
          if (snapshot_kind(&reader->items[place]) <= ITEM_SEALED) values += reader->items[place].value - 1;
        }
        if (place == 0 || values_in(reader, place) != 2) return no_place(opened, offset, opcode, error);
        snapshot_outcome outcome = SNAPSHOT_NOTHING;
        status = set_items(opened, place - 1, place, offset, event, &outcome, error);
        if (status == TRACE_OK && outcome == SNAPSHOT_EVENT) {
          input->at = c.at;
          return TRACE_OK;
        }
        break;
      }
      case PICKLE_APPENDS: {
        size_t mark = close_mark(reader);
        if (mark == NO_MARK || mark == 0) return no_place(opened, offset, opcode, error);
        status = append_items(opened, mark - 1, mark + 1, offset, error);
        break;
      }
      case PICKLE_APPEND: {
        size_t top = reader->count - 1; /* checked before it is used */
        if (reader->count < 2 || snapshot_kind(&reader->items[top]) == ITEM_MARK ||
            values_in(reader, top) != 1) {
          return no_place(opened, offset, opcode, error);
        }
        status = append_items(opened, top - 1, top, offset, error);
        break;
      }
      case PICKLE_TUPLE:
        status = make_tuple(opened, 0, opcode, offset, error);
        break;
      case PICKLE_TUPLE1:
      case PICKLE_TUPLE2:
      case PICKLE_TUPLE3:
        status = make_tuple(opened, (size_t)(opcode - PICKLE_TUPLE1 + 1), opcode, offset, error);
        break;
      case PICKLE_FRAME:
        c.at = at + 9; /* its length is of no use to a reader that buffers by itself */
        break;
      case PICKLE_PROTO:
        c.at = at + 2;
        if (c.at <= c.end) status = protocol(opened, at[1], offset, error);
        break;
      case PICKLE_STOP:
        input->at = c.at;
        return stop(opened, offset, error);
      default:
        return refused(opened, opcode, offset, error);
    }
    if (c.at > c.end && status == TRACE_OK) return truncated(opened, &c, error);
  }
  return status;
}
