#include "workloads/snapshot_stack.h"

#include <stdlib.h>

#include "workloads/failure.h"
#include "workloads/pickle_opcodes.h"

enum {
  FIRST_CAPACITY = 1024,
  MOST_ITEMS = 1024 * 1024 /* values waiting for their container at the same time */
};

#define NO_MARK SIZE_MAX

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

trace_status snapshot_stack_reserve(trace *opened, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  if (reader->count < reader->capacity) return TRACE_OK;
  if (reader->capacity >= MOST_ITEMS) {
    return trace_fail_offset(error, opened->input.name, trace_input_offset(&opened->input),
                             "more than %d values wait for their container", MOST_ITEMS);
  }
  return grow_items(reader) ? TRACE_OK : trace_fail_memory(error, opened->input.name);
}

/* The dict or list that the innermost open mark belongs to; NULL: none. */
static inline const snapshot_item *marked_container(const snapshot_reader *reader) {
  if (reader->mark_count == 0) return NULL;
  size_t mark = reader->marks[reader->mark_count - 1];
  return mark == 0 ? NULL : &reader->items[mark - 1];
}

/* What a new list is, from the place it is put at. */
static snapshot_role role_of_new_list(const trace *opened) {
  const snapshot_reader *reader = opened->reader;
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
    if (role == ROLE_ROOT && word == WORD_EXTERNAL_ANNOTATIONS && opened->options.marks)
      return ROLE_ANNOTATIONS;
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
    case ROLE_ANNOTATIONS:
      return ROLE_ANNOTATION;
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

void snapshot_put_opaque(snapshot_reader *reader, uint64_t offset) {
  reader->count = (size_t)(snapshot_push_opaque(reader->items + reader->count, offset) - reader->items);
}

void snapshot_put_word(snapshot_reader *reader, snapshot_word word, uint64_t offset) {
  reader->count = (size_t)(snapshot_push_word(reader->items + reader->count, word, offset) - reader->items);
}

static void push_on(snapshot_reader *reader, uint32_t tag, uint64_t value, uint64_t offset) {
  snapshot_push(reader->items + reader->count, tag, value, offset);
  reader->count++;
}

trace_status snapshot_put_list(trace *opened, uint64_t offset, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  snapshot_role role = role_of_new_list(opened);
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

void snapshot_put_dict(snapshot_reader *reader, uint64_t offset) {
  snapshot_role role = role_of_new_dict(reader);
  if (role == ROLE_NONE && reader->items[reader->count - 1].tag == snapshot_tag(ITEM_DICT, ROLE_NONE)) {
    /* Nothing can be set on the dict before this one any more: it need not be told apart. */
    reader->count--;
    snapshot_put_opaque(reader, offset);
  }
  if (role == ROLE_SEGMENT) snapshot_seeds_segment_begin(&reader->seeds);
  push_on(reader, snapshot_tag(ITEM_DICT, role), offset, offset);
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

trace_status snapshot_not_one(const trace *opened, uint64_t offset, trace_error *error) {
  return trace_fail_offset(error, opened->input.name, offset,
                           "this pickle is no memory snapshot: expected a dict with device_traces, as "
                           "torch.cuda.memory._snapshot() returns it");
}

/* items[first .. count) were to go into something and have a role. */
static trace_status misplaced(const trace *opened, size_t first, uint64_t offset, trace_error *error) {
  if (first == 0) return snapshot_not_one(opened, offset, error);
  return trace_fail_offset(error, opened->input.name, offset,
                           "a part of device_traces or segments stands where a snapshot has none");
}

trace_status snapshot_stack_short(const trace *opened, uint64_t offset, uint8_t opcode, trace_error *error) {
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
    case ROLE_ANNOTATIONS:
      return "external_annotations";
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
trace_status snapshot_make_tuple(trace *opened, uint8_t opcode, uint64_t offset, trace_error *error) {
  snapshot_reader *reader = opened->reader;
  size_t first = reader->count;
  if (opcode == PICKLE_TUPLE) {
    size_t mark = close_mark(reader);
    if (mark == NO_MARK) return snapshot_stack_short(opened, offset, opcode, error);
    if (roles_in(reader, mark + 1)) return misplaced(opened, mark + 1, offset, error);
    reader->count = mark;
    snapshot_put_opaque(reader, offset);
    return TRACE_OK;
  }
  size_t wanted = (size_t)(opcode - PICKLE_TUPLE1 + 1);
  while (wanted > 0) {
    if (first == 0 || snapshot_kind(&reader->items[first - 1]) == ITEM_MARK) {
      return snapshot_stack_short(opened, offset, opcode, error);
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
  snapshot_put_opaque(reader, offset);
  return TRACE_OK;
}

trace_status snapshot_set_batch(trace *opened, uint64_t offset, trace_event *event, snapshot_outcome *outcome,
                                trace_error *error) {
  size_t mark = close_mark(opened->reader);
  if (mark == NO_MARK || mark == 0) return snapshot_stack_short(opened, offset, PICKLE_SETITEMS, error);
  return set_items(opened, mark - 1, mark + 1, offset, event, outcome, error);
}

/* SETITEM: the two values on top go into the dict below them. */
trace_status snapshot_set_one(trace *opened, uint64_t offset, trace_event *event, snapshot_outcome *outcome,
                              trace_error *error) {
  const snapshot_reader *reader = opened->reader;
  size_t place = reader->count;
  uint64_t values = 0;
  while (values < 2 && place > 0 && snapshot_kind(&reader->items[place - 1]) != ITEM_MARK) {
    place--;
    values += snapshot_kind(&reader->items[place]) <= ITEM_SEALED ? reader->items[place].value : 1;
  }
  if (place == 0 || values != 2) return snapshot_stack_short(opened, offset, PICKLE_SETITEM, error);
  return set_items(opened, place - 1, place, offset, event, outcome, error);
}

trace_status snapshot_append_one(trace *opened, uint64_t offset, trace_error *error) {
  const snapshot_reader *reader = opened->reader;
  if (reader->count < 2 || snapshot_kind(&reader->items[reader->count - 1]) == ITEM_MARK ||
      values_in(reader, reader->count - 1) != 1) {
    return snapshot_stack_short(opened, offset, PICKLE_APPEND, error);
  }
  return append_items(opened, reader->count - 2, reader->count - 1, offset, error);
}

trace_status snapshot_append_batch(trace *opened, uint64_t offset, trace_error *error) {
  size_t mark = close_mark(opened->reader);
  if (mark == NO_MARK || mark == 0) return snapshot_stack_short(opened, offset, PICKLE_APPENDS, error);
  return append_items(opened, mark - 1, mark + 1, offset, error);
}
