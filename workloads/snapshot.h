/* The reader of PyTorch memory snapshots, its parts. Internal to workloads.
 *
 * A snapshot is a pickle: a program for a stack machine. snapshot_machine.c runs
 * it without ever building the objects: values that nobody asks for are only
 * counted, dicts with a known place in a snapshot (a trace entry, a segment, a
 * block) are handed to snapshot_dicts.c the moment their items are complete, and
 * forgotten. So memory does not grow with the number of events. */
#ifndef LAKEBED_WORKLOADS_SNAPSHOT_H
#define LAKEBED_WORKLOADS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/reader.h"
#include "workloads/snapshot_seeds.h"

/* Strings that mean something in a snapshot. */
typedef enum snapshot_word {
  WORD_NONE, /* any other */
  WORD_DEVICE_TRACES,
  WORD_SEGMENTS,
  WORD_ACTION,
  WORD_ADDR,
  WORD_SIZE,
  WORD_STREAM,
  WORD_TIME_US,
  WORD_ADDRESS,
  WORD_REQUESTED_SIZE,
  WORD_STATE,
  WORD_BLOCKS,
  WORD_DEVICE,
  WORD_DEVICE_FREE,
  WORD_ALLOC,
  WORD_FREE_REQUESTED,
  WORD_FREE_COMPLETED,
  WORD_SEGMENT_ALLOC,
  WORD_SEGMENT_FREE,
  WORD_SEGMENT_MAP,
  WORD_SEGMENT_UNMAP,
  WORD_OOM,
  WORD_SNAPSHOT,
  WORD_ACTIVE_ALLOCATED,
  WORD_ACTIVE_PENDING_FREE,
  WORD_ACTIVE_AWAITING_FREE,
  WORD_INACTIVE,
  WORD_EXTERNAL_ANNOTATIONS,
  WORD_STAGE,
  WORD_NAME,
  WORD_END,
  WORD_OPTIMIZER_STEP, /* any string that begins so */
  WORD_COUNT
} snapshot_word;

typedef enum snapshot_item_kind {
  ITEM_OPAQUE,  /* value: how many values of no interest stand here side by side */
  ITEM_SEALED,  /* value: how many dicts with a role, complete and handed over */
  ITEM_INTEGER, /* value: the number, two's complement */
  ITEM_WORD,    /* detail: a snapshot_word */
  ITEM_LIST,    /* detail: a snapshot_role */
  ITEM_DICT,    /* detail: a snapshot_role; value: the offset it begins at */
  ITEM_MARK
} snapshot_item_kind;

typedef enum snapshot_role {
  ROLE_NONE,
  ROLE_ROOT,          /* the outermost dict */
  ROLE_DEVICE_TRACES, /* its list of lists of trace entries */
  ROLE_TRACE,         /* one of them */
  ROLE_ENTRY,         /* a dict in it */
  ROLE_SEGMENTS,      /* the list of segments (from here on only when seeding) */
  ROLE_SEGMENT,
  ROLE_BLOCKS,
  ROLE_BLOCK,
  ROLE_ANNOTATIONS, /* the list of external_annotations (only when looking for marks) */
  ROLE_ANNOTATION
} snapshot_role;

typedef struct snapshot_item {
  uint32_t tag; /* snapshot_item_kind, detail << 8 */
  uint32_t offset_low;
  uint64_t value;
} snapshot_item;

static inline uint32_t snapshot_tag(snapshot_item_kind kind, uint32_t detail) {
  return (uint32_t)kind | detail << 8;
}
static inline uint32_t snapshot_kind(const snapshot_item *item) { return item->tag & 0xFF; }
static inline uint32_t snapshot_detail(const snapshot_item *item) { return item->tag >> 8; }

/* Which memo slots hold a known word: one byte a slot, in pages that exist only where one was put. */
typedef struct snapshot_memo {
  uint8_t **pages;
  size_t page_count;
  uint64_t count; /* slots put so far */
} snapshot_memo;

enum { SNAPSHOT_DEEPEST = 256 }; /* marks open at the same time */

typedef struct snapshot_reader {
  snapshot_item *ground; /* the allocation: a mark that stays, then the items */
  snapshot_item *items;  /* the machine's stack */
  size_t count;
  size_t capacity;
  size_t marks[SNAPSHOT_DEEPEST];
  size_t mark_count;
  snapshot_memo memo;

  bool started; /* PROTO has been read */
  bool device_traces_seen;
  uint32_t devices;       /* lists in device_traces so far */
  uint64_t entries;       /* trace entries of the device asked for */
  uint64_t events;        /* events delivered */
  uint32_t other_device;  /* the first other device with entries, UINT32_MAX: none */
  uint64_t other_entries; /* its entries */

  snapshot_seeds seeds;
  bool collecting; /* the pass that finds the seeds */
  size_t seeds_delivered;
} snapshot_reader;

typedef enum snapshot_outcome { SNAPSHOT_NOTHING, SNAPSHOT_EVENT } snapshot_outcome;

/* Runs the pickle until an event (TRACE_OK) or its end (TRACE_END). */
trace_status snapshot_run(trace *opened, trace_event *event, trace_error *error);

/* A dict with a role is complete: its keys and values are items[first .. count). */
trace_status snapshot_dict_complete(trace *opened, size_t first, const snapshot_item *dict,
                                    trace_event *event, snapshot_outcome *outcome, trace_error *error);

/* The word a string is, or WORD_NONE. */
snapshot_word snapshot_word_of(const uint8_t *bytes, size_t size);
const char *snapshot_word_text(snapshot_word word);

bool snapshot_memo_put(snapshot_memo *memo, uint64_t index, snapshot_word word);
void snapshot_memo_clear(snapshot_memo *memo);

enum { SNAPSHOT_MEMO_PAGE_BITS = 12, SNAPSHOT_MEMO_PAGE = 1 << SNAPSHOT_MEMO_PAGE_BITS };

static inline snapshot_word snapshot_memo_get(const snapshot_memo *memo, uint64_t index) {
  uint64_t page = index >> SNAPSHOT_MEMO_PAGE_BITS;
  if (page >= memo->page_count || memo->pages[page] == NULL) return WORD_NONE;
  return (snapshot_word)memo->pages[page][index & (SNAPSHOT_MEMO_PAGE - 1)];
}

#endif
