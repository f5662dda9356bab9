/* The parts of policy aliasheap: handles, windows and the plan of a stitch. Only its
 * own files include this. Sizes are bytes.
 *
 * One home: every handle is mapped at one address for as long as it exists, in the main
 * range or in the window in which it was created; free memory is accounted at home
 * addresses. A window maps handles a second time, in another order, so that free pieces
 * far apart become one block. Freeing unmaps nothing: the window can serve again. */
#ifndef LAKEBED_POLICIES_ALIAS_HEAP_H
#define LAKEBED_POLICIES_ALIAS_HEAP_H

#include "policies/policy.h"
#include "pools/heap.h"
#include "pools/holes.h"
#include "pools/stream_clock.h"

/* One physical handle: the owner of its chunk. */
typedef struct alias_handle {
  pool_chunk *chunk;
  vmm_address home;
} alias_handle;

/* A run of home addresses. */
typedef struct alias_interval {
  vmm_address begin, end;
} alias_interval;

/* Whole handles, adjacent at home and in the window. */
typedef struct alias_segment {
  vmm_address home_begin, home_end;
  uint64_t offset; /* in the window */
  uint64_t birth;  /* rises with every stitch */
} alias_segment;

typedef struct alias_window {
  pool_range *range;
  uint64_t length; /* used so far, from offset 0 */
  uint64_t begin;  /* segments begin here: of what lies before, only handles at home are left */
  alias_segment *segments;
  uint32_t segment_count, segment_capacity;
  uint64_t live; /* blocks handed out */
  uint64_t last_use;
  bool pinned; /* some handles have their home here */
} alias_window;

/* A block that lies in a window: the owner of its allocation. A block at home has none. */
typedef struct alias_block {
  alias_window *window;
  uint32_t interval_count;
  alias_interval intervals[]; /* home addresses, in the order of the window */
} alias_block;

typedef struct alias_settings {
  uint64_t huge;            /* from here on a request that finds no hole is stitched */
  uint64_t small_job;       /* below this live peak huge is less, in proportion */
  uint64_t medium;          /* from here on it may be, if growing would waste too much */
  uint64_t handle_start;    /* handles while the job starts up, at most */
  double start_share;       /* of reserved memory, likewise */
  uint64_t handle_least;    /* later ones, at the ends of a growth: at least */
  uint64_t handle_edge;     /* at most */
  uint64_t handle_parts;    /* in between, the live peak divided by this */
  uint64_t handle_limit;    /* later ones, in the middle of a growth: at most */
  double middle_share;      /* of the growth, likewise */
  uint64_t keep;            /* holes from here on are kept from smaller requests */
  uint64_t near_limit;      /* requests up to here prefer holes not much longer than they are: */
  double near;              /* below this many times their size */
  uint64_t near_least;      /* or this many bytes */
  double settled;           /* live peaks' worth of allocations without a new one */
  bool coarsest;            /* large handles are stitched first */
  uint64_t edge_minimum;    /* pieces of handles worth stitching */
  double extension_minimum; /* share of a request that the free end of a window must cover */
  uint64_t windows_limit;
  double waste_high, waste_live, waste_low; /* growth rules for medium requests */
  bool edges;                               /* handles may serve two addresses at a time */
  double split_below, split_tight; /* shares of the limit that are left: from here on handles are split */
  uint64_t split_least;            /* where so many granules are set free, half of it when tight */
  bool prefer_clean;               /* a hole that needs no wait comes before a lower one */
} alias_settings;

typedef struct alias_heap {
  policy base;
  alias_settings settings;
  pool_holes holes;
  pool_stream_clock clock;
  pool_range *main;
  uint64_t main_length; /* mapped so far */
  alias_window **windows;
  uint32_t window_count;
  pool_range **unused_ranges; /* for windows to come, the lowest address last */
  uint32_t unused_count;
  uint64_t births, uses;
  uint64_t live, live_peak; /* bytes */
  uint64_t total_allocated, total_freed;
  uint64_t allocated_at_peak; /* total_allocated when the live peak last rose */
  uint64_t stitches, window_hits, evictions, unclean_uses;
  unsigned hit_operation, stitch_operation, evict_operation, split_operation;
} alias_heap;

static inline uint64_t alias_round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/* The handle whose home contains an address that is free or used memory. O(windows). */
const alias_handle *alias_handle_at(const alias_heap *heap, vmm_address address);
/* The first handle border at or above begin, where home memory begins; the last at or below end, where it
 * ends. */
vmm_address alias_border_above(const alias_heap *heap, vmm_address begin);
vmm_address alias_border_below(const alias_heap *heap, vmm_address end);
/* The range, of the main one and those of windows, that contains an address; NULL if none. O(windows). */
pool_range *alias_range_at(const alias_heap *heap, vmm_address address);

/* A place in a window where size bytes are free: the one whose youngest needed segment is
 * oldest. The intervals are the caller's to free. False if there is none, or no host memory. O(segments +
 * holes). */
typedef struct alias_place {
  alias_window *window;
  uint64_t offset;
  uint64_t size;
  alias_interval *intervals;
  uint32_t interval_count;
} alias_place;
bool alias_window_find(const alias_heap *heap, uint64_t size, alias_place *place);
/* The free bytes that touch the mapped end of a window, at most limit; intervals in window order. */
bool alias_window_free_end(const alias_heap *heap, const alias_window *window, uint64_t limit,
                           alias_place *place);

/* ---- growth: alias_heap_growth.c ---- */

/* Has the job freed next to nothing yet? */
bool alias_starting_up(const alias_heap *heap);
/* Has the live peak stood long enough to be taken for the job's? */
bool alias_settled(const alias_heap *heap);
/* Is a request that finds no hole to be stitched rather than let the main range grow by need? */
bool alias_stitches(const alias_heap *heap, uint64_t size, uint64_t need);
/* The least by which to grow. */
uint64_t alias_growth_quantum(const alias_heap *heap, bool start_up);
/* How a growth of so many bytes is cut into handles: writes their sizes, returns how many,
 * at most capacity. */
uint64_t alias_cut(const alias_heap *heap, uint64_t bytes, bool start_up, uint64_t *sizes, uint64_t capacity);
/* Free bytes at the end of the main range. O(log n). */
uint64_t alias_main_tail(const alias_heap *heap);
/* New handles at the end of the main range, free. */
vmm_status alias_grow(alias_heap *heap, uint64_t bytes, bool start_up);

/* ---- stitching: alias_heap_stitch.c ---- */

/* Second mappings of free pieces of handles, and new ones for what is missing. grow_bytes: what
 * growing the main range would take instead; *declined when that is no more, with OUT_OF_MEMORY.
 * On success the memory is out of the holes and the place describes it. */
vmm_status alias_stitch(alias_heap *heap, uint64_t size, uint64_t grow_bytes, vmm_stream stream,
                        bool start_up, alias_place *place, bool *declined);

/* Makes stream wait for every other that used these bytes and has not been seen to be done. */
vmm_status alias_wait_for(alias_heap *heap, const alias_interval *intervals, uint32_t count,
                          vmm_stream stream);
/* Takes intervals out of the holes. Nodes must be prepared. */
void alias_carve(alias_heap *heap, const alias_interval *intervals, uint32_t count);

/* A window for a block of size bytes: a new one, for which the one used longest ago may be unmapped; else an
 * old one, behind whose end the block can lie. NULL if none. */
alias_window *alias_window_for(alias_heap *heap, uint64_t size, bool *fresh);
/* Room in the window's list for so many more segments. OUT_OF_MEMORY when the host has none. */
vmm_status alias_window_reserve_segments(alias_window *window, uint32_t added);
/* Takes home bytes, whole handles, out of a segment that contains them. One more must be reserved. */
void alias_window_cut_segment(alias_window *window, uint32_t index, const alias_interval *home);
/* A handle that is free and mapped at home only, in this range, goes back to the driver. */
vmm_status alias_release_handle(alias_heap *heap, pool_range *range, pool_chunk *chunk);
/* Everything idle goes back to the driver. The device has no work left. */
vmm_status alias_release_all(alias_heap *heap);
/* Drops a window that maps nothing; its VA waits for the next one. */
void alias_window_forget(alias_heap *heap, uint32_t index);

/* ---- near the limit: alias_heap_split.c ---- */

/* Do the limit and the device leave so little that free handles are split where blocks end? */
bool alias_pressed(const alias_heap *heap);
/* Makes the next multiple of the granularity from end on a border of handles, if that leaves enough behind
 * it, all of the handle is free and the host has seen the end of all work on it: windows lose it, and two
 * take its place at home. True: the handle is another, or, if the driver refused those two, not there any
 * more. O(windows + segments). */
bool alias_split(alias_heap *heap, vmm_address end);

/* The invariants: see policy_class. */
bool alias_heap_check(const policy *base, char *message, size_t message_size);

#endif
