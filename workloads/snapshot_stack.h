/* The stack of the snapshot reader's machine: values go up on it, and into their containers. Internal
 * to workloads.
 *
 * offset is that of the opcode at work, for messages. After a failure the machine is of no more use. */
#ifndef LAKEBED_WORKLOADS_SNAPSHOT_STACK_H
#define LAKEBED_WORKLOADS_SNAPSHOT_STACK_H

#include "workloads/snapshot.h"

/* These work on the top of the stack as a pointer, the first free item, and return the new one. The
 * item below the lowest one is a mark. There must be room for one more. */
static inline snapshot_item *snapshot_push(snapshot_item *top, uint32_t tag, uint64_t value,
                                           uint64_t offset) {
  *top = (snapshot_item){.tag = tag, .offset_low = (uint32_t)offset, .value = value};
  return top + 1;
}

static inline snapshot_item *snapshot_push_opaque(snapshot_item *top, uint64_t offset) {
  if (top[-1].tag == ITEM_OPAQUE) {
    top[-1].value++;
    return top;
  }
  return snapshot_push(top, ITEM_OPAQUE, 1, offset);
}

static inline snapshot_item *snapshot_push_word(snapshot_item *top, snapshot_word word, uint64_t offset) {
  if (word == WORD_NONE) return snapshot_push_opaque(top, offset);
  return snapshot_push(top, snapshot_tag(ITEM_WORD, word), 0, offset);
}

/* The same on the stack as the reader keeps it. */
void snapshot_put_opaque(snapshot_reader *reader, uint64_t offset);
void snapshot_put_word(snapshot_reader *reader, snapshot_word word, uint64_t offset);
/* EMPTY_LIST, EMPTY_DICT: their role follows from the place they are put at. */
trace_status snapshot_put_list(trace *opened, uint64_t offset, trace_error *error);
void snapshot_put_dict(snapshot_reader *reader, uint64_t offset);

/* Room for one more item. */
trace_status snapshot_stack_reserve(trace *opened, trace_error *error);

/* SETITEMS, SETITEM: *outcome says whether that completed an event. */
trace_status snapshot_set_batch(trace *opened, uint64_t offset, trace_event *event, snapshot_outcome *outcome,
                                trace_error *error);
trace_status snapshot_set_one(trace *opened, uint64_t offset, trace_event *event, snapshot_outcome *outcome,
                              trace_error *error);
/* APPENDS, APPEND. */
trace_status snapshot_append_batch(trace *opened, uint64_t offset, trace_error *error);
trace_status snapshot_append_one(trace *opened, uint64_t offset, trace_error *error);
/* TUPLE, TUPLE1 to TUPLE3. */
trace_status snapshot_make_tuple(trace *opened, uint8_t opcode, uint64_t offset, trace_error *error);

/* Failures that the opcodes share: too little on the stack; a pickle of something else. */
trace_status snapshot_stack_short(const trace *opened, uint64_t offset, uint8_t opcode, trace_error *error);
trace_status snapshot_not_one(const trace *opened, uint64_t offset, trace_error *error);

#endif
