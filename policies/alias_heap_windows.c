/* Windows of policy aliasheap: finding free places in them, and giving them back. */
#include <stdlib.h>
#include <string.h>

#include "policies/alias_heap.h"

static bool contains(const pool_range *range, vmm_address address) {
  return range && address >= range->address && address < range->address + range->size;
}

pool_range *alias_range_at(const alias_heap *heap, vmm_address address) {
  if (contains(heap->main, address)) return heap->main;
  for (uint32_t i = 0; i < heap->window_count; i++) {
    if (contains(heap->windows[i]->range, address)) return heap->windows[i]->range;
  }
  return NULL;
}

const alias_handle *alias_handle_at(const alias_heap *heap, vmm_address address) {
  const pool_range *range = alias_range_at(heap, address);
  if (!range) return NULL;
  const pool_chunk *chunk = range->slots[(address - range->address) / range->unit].chunk;
  return chunk ? chunk->owner : NULL;
}

vmm_address alias_border_above(const alias_heap *heap, vmm_address begin) {
  const alias_handle *handle = alias_handle_at(heap, begin);
  return !handle || handle->home == begin ? begin : handle->home + handle->chunk->size;
}

vmm_address alias_border_below(const alias_heap *heap, vmm_address end) {
  const alias_handle *handle = alias_handle_at(heap, end - 1);
  return !handle || handle->home + handle->chunk->size == end ? end : handle->home;
}

/* ---- free places ---- */

/* A free run of a window in the making: pieces that follow each other. */
typedef struct piece {
  alias_interval home;
  uint64_t offset;
  uint64_t birth;
} piece;

typedef struct run {
  piece *pieces;
  uint32_t count, capacity;
} run;

static uint64_t run_begin(const run *made) { return made->pieces[0].offset; }
static uint64_t run_end(const run *made) {
  const piece *last = &made->pieces[made->count - 1];
  return last->offset + (last->home.end - last->home.begin);
}

static bool run_append(run *made, const piece *added) {
  if (made->count == made->capacity) {
    uint32_t capacity = made->capacity ? made->capacity * 2 : 32;
    piece *pieces = realloc(made->pieces, capacity * sizeof *pieces);
    if (!pieces) return false;
    made->pieces = pieces;
    made->capacity = capacity;
  }
  made->pieces[made->count++] = *added;
  return true;
}

/* Drops everything before an offset from a run's begin. */
static void run_begin_at(run *made, uint64_t offset) {
  uint32_t dropped = 0;
  while (dropped < made->count &&
         made->pieces[dropped].offset + (made->pieces[dropped].home.end - made->pieces[dropped].home.begin) <=
             offset) {
    dropped++;
  }
  memmove(made->pieces, made->pieces + dropped, (made->count - dropped) * sizeof *made->pieces);
  made->count -= dropped;
  if (made->count > 0 && made->pieces[0].offset < offset) {
    made->pieces[0].home.begin += offset - made->pieces[0].offset;
    made->pieces[0].offset = offset;
  }
}

/* The piece of a run that repeats the lowest of these home bytes that any repeats, NULL if none. */
static const piece *run_repeats(const run *made, const alias_interval *home) {
  const piece *lowest = NULL;
  for (uint32_t i = 0; i < made->count; i++) {
    const piece *here = &made->pieces[i];
    if (here->home.begin >= home->end || home->begin >= here->home.end) continue;
    if (!lowest || here->home.begin < lowest->home.begin) lowest = here;
  }
  return lowest;
}

typedef struct search {
  const alias_heap *heap;
  alias_window *window;
  uint64_t size;
  uint64_t best_birth;
  alias_place *place;
  uint64_t tried_begin; /* the run's begin that was looked at last */
  bool failed;
} search;

/* Keeps the front of the run if it is long enough and older than what was found. */
static void consider(search *state, const run *made) {
  if (made->count == 0 || run_end(made) - run_begin(made) < state->size ||
      state->tried_begin == run_begin(made))
    return;
  state->tried_begin = run_begin(made);
  uint64_t youngest = 0, covered = 0;
  uint32_t used = 0;
  while (covered < state->size) {
    const piece *here = &made->pieces[used++];
    covered += here->home.end - here->home.begin;
    if (here->birth > youngest) youngest = here->birth;
  }
  if (state->place->window && youngest >= state->best_birth) return;
  alias_interval *intervals = malloc(used * sizeof *intervals);
  if (!intervals) {
    state->failed = true;
    return;
  }
  for (uint32_t i = 0; i < used; i++) intervals[i] = made->pieces[i].home;
  intervals[used - 1].end -= covered - state->size;
  free(state->place->intervals);
  *state->place = (alias_place){state->window, run_begin(made), state->size, intervals, used};
  state->best_birth = youngest;
}

/* Adds free bytes at an offset to the run, or begins a new one. */
static void extend_run(search *state, run *made, piece added) {
  if (made->count > 0 && run_end(made) != added.offset) made->count = 0;
  const piece *first;
  while ((first = run_repeats(made, &added.home))) {
    /* The same bytes twice in one block cannot be: the run ends before the second copy,
     * and goes on with what lies behind the first. */
    piece before = added;
    vmm_address begin = first->home.begin > added.home.begin ? first->home.begin : added.home.begin;
    vmm_address end = first->home.end < added.home.end ? first->home.end : added.home.end;
    uint64_t behind_first = first->offset + (end - first->home.begin);
    before.home.end = begin;
    if (before.home.begin < before.home.end) {
      if (!run_append(made, &before)) state->failed = true;
      added.offset += begin - added.home.begin;
      added.home.begin = begin;
    }
    consider(state, made);
    run_begin_at(made, behind_first);
  }
  if (!run_append(made, &added)) state->failed = true;
  consider(state, made);
}

/* The free bytes of a home interval: what a hole leaves of it, whole handles only if no handle may
 * serve two addresses. */
static bool free_part(const alias_heap *heap, const pool_hole *hole, const alias_segment *segment,
                      alias_interval *part) {
  part->begin = hole->begin > segment->home_begin ? hole->begin : segment->home_begin;
  part->end = hole->end < segment->home_end ? hole->end : segment->home_end;
  if (!heap->settings.edges && part->begin < part->end) {
    part->begin = alias_border_above(heap, part->begin);
    part->end = alias_border_below(heap, part->end);
  }
  return part->begin < part->end;
}

bool alias_window_find(const alias_heap *heap, uint64_t size, alias_place *place) {
  *place = (alias_place){0};
  run made = {0};
  search state = {.heap = heap, .size = size, .place = place};
  for (uint32_t i = 0; i < heap->window_count && !state.failed; i++) {
    alias_window *window = heap->windows[i];
    if (window->length < size) continue;
    made.count = 0;
    state.window = window;
    state.tried_begin = UINT64_MAX;
    for (uint32_t k = 0; k < window->segment_count; k++) {
      const alias_segment *segment = &window->segments[k];
      for (pool_hole *hole = pool_holes_at_or_above(&heap->holes, segment->home_begin);
           hole && hole->begin < segment->home_end; hole = pool_holes_next(hole, 1)) {
        alias_interval part;
        if (!free_part(heap, hole, segment, &part)) continue;
        extend_run(&state, &made,
                   (piece){part, segment->offset + (part.begin - segment->home_begin), segment->birth});
      }
    }
  }
  free(made.pieces);
  if (state.failed) {
    free(place->intervals);
    *place = (alias_place){0};
  }
  return place->window != NULL;
}

bool alias_window_free_end(const alias_heap *heap, const alias_window *window, uint64_t limit,
                           alias_place *place) {
  *place = (alias_place){0};
  alias_interval *intervals = malloc((window->segment_count + 1) * sizeof *intervals);
  if (!intervals) return false;
  uint32_t count = 0;
  uint64_t length = 0, expected = window->length;
  for (uint32_t k = window->segment_count; k > 0 && length < limit; k--) {
    const alias_segment *segment = &window->segments[k - 1];
    const pool_hole *hole = pool_holes_at_or_above(&heap->holes, segment->home_end - 1);
    alias_interval part;
    if (segment->offset + (segment->home_end - segment->home_begin) != expected || !hole ||
        hole->begin >= segment->home_end || !free_part(heap, hole, segment, &part) ||
        part.end != segment->home_end)
      break;
    expected = segment->offset;
    if (part.end - part.begin > limit - length) part.begin = part.end - (limit - length);
    if (!heap->settings.edges) part.begin = alias_border_above(heap, part.begin);
    for (uint32_t i = 0; i < count; i++) {
      if (intervals[i].begin < part.end && part.begin < intervals[i].end) part.begin = intervals[i].end;
    }
    if (part.begin >= part.end) break;
    intervals[count++] = part;
    length += part.end - part.begin;
    if (part.begin > segment->home_begin) break;
  }
  for (uint32_t i = 0; i < count / 2; i++) {
    alias_interval other = intervals[i];
    intervals[i] = intervals[count - 1 - i];
    intervals[count - 1 - i] = other;
  }
  *place = (alias_place){NULL, window->length - length, length, intervals, count};
  return true;
}

/* ---- segments ---- */

vmm_status alias_window_reserve_segments(alias_window *window, uint32_t added) {
  uint32_t needed = window->segment_count + added;
  if (needed <= window->segment_capacity) return VMM_SUCCESS;
  alias_segment *segments = realloc(window->segments, needed * 2 * sizeof *segments);
  if (!segments) return VMM_OUT_OF_MEMORY;
  window->segments = segments;
  window->segment_capacity = needed * 2;
  return VMM_SUCCESS;
}

void alias_window_cut_segment(alias_window *window, uint32_t index, const alias_interval *home) {
  alias_segment whole = window->segments[index], parts[2];
  uint32_t left = 0, behind = window->segment_count - index - 1;
  if (whole.home_begin < home->begin)
    parts[left++] = (alias_segment){whole.home_begin, home->begin, whole.offset, whole.birth};
  if (home->end < whole.home_end)
    parts[left++] = (alias_segment){home->end, whole.home_end, whole.offset + (home->end - whole.home_begin),
                                    whole.birth};
  memmove(&window->segments[index + left], &window->segments[index + 1], behind * sizeof *window->segments);
  memcpy(&window->segments[index], parts, left * sizeof *parts);
  window->segment_count = index + left + behind;
}

/* ---- giving back ---- */

void alias_window_forget(alias_heap *heap, uint32_t index) {
  alias_window *window = heap->windows[index];
  uint32_t place = heap->unused_count++;
  for (; place > 0 && heap->unused_ranges[place - 1]->address < window->range->address; place--) {
    heap->unused_ranges[place] = heap->unused_ranges[place - 1];
  }
  heap->unused_ranges[place] = window->range;
  free(window->segments);
  free(window);
  memmove(&heap->windows[index], &heap->windows[index + 1],
          (heap->window_count - index - 1) * sizeof *heap->windows);
  heap->window_count--;
}

/* Has the host seen the end of all work on the memory that a window maps? */
static bool seen_done(alias_heap *heap, const alias_window *window) {
  for (uint32_t k = 0; k < window->segment_count; k++) {
    const alias_segment *segment = &window->segments[k];
    for (pool_hole *hole = pool_holes_at_or_above(&heap->holes, segment->home_begin);
         hole && hole->begin < segment->home_end; hole = pool_holes_next(hole, 1)) {
      for (vmm_stream stream = 0; stream < heap->clock.count && stream < heap->holes.streams; stream++) {
        if (hole->last[stream] && !pool_stream_clock_passed(&heap->clock, stream, hole->last[stream]))
          return false;
      }
    }
  }
  return true;
}

/* Is the chunk mapped at this offset of a range at home? */
static bool is_home(const pool_range *range, uint64_t offset, const pool_chunk *chunk) {
  return ((const alias_handle *)chunk->owner)->home == range->address + offset;
}

/* Unmaps all that an idle window maps a second time. It serves no block any more, and keeps the
 * handles that have their home there. */
static void retire_window(alias_heap *heap, alias_window *window, vmm_status *first) {
  pool_range *range = window->range;
  window->segment_count = 0;
  window->begin = window->length;
  for (uint64_t offset = 0, size; offset < window->length; offset += size) {
    pool_chunk *chunk = range->slots[offset / range->unit].chunk;
    size = chunk ? chunk->size : range->unit;
    if (!chunk || is_home(range, offset, chunk)) continue;
    vmm_status status = pool_range_unmap(&heap->base.heap, range, offset, size);
    if (*first == VMM_SUCCESS) *first = status;
  }
}

/* Unmaps a window none of whose handles have their home there. */
static vmm_status unmap_window(alias_heap *heap, uint32_t index) {
  alias_window *window = heap->windows[index];
  vmm_status status = VMM_SUCCESS;
  if (window->range->mapped < window->length) {
    /* Handles were cut out of it. */
    retire_window(heap, window, &status);
  } else if (window->length > 0) {
    status = pool_range_unmap(&heap->base.heap, window->range, 0, window->length);
  }
  if (status != VMM_SUCCESS) return status;
  alias_window_forget(heap, index);
  heap->evictions++;
  return VMM_SUCCESS;
}

/* The window used longest ago that is idle, and whose work is seen done; pinned: also those that own handles.
 */
static alias_window *oldest_idle(alias_heap *heap, bool pinned) {
  alias_window *oldest = NULL;
  for (uint32_t i = 0; i < heap->window_count; i++) {
    alias_window *window = heap->windows[i];
    if (window->live > 0 || window->pinned > pinned || (oldest && window->last_use >= oldest->last_use))
      continue;
    if (seen_done(heap, window)) oldest = window;
  }
  return oldest;
}

static bool has_room(const alias_heap *heap, const alias_window *window, uint64_t size) {
  return size <= window->range->size - heap->base.heap.granularity - window->length;
}

static uint32_t index_of(const alias_heap *heap, const alias_window *window) {
  uint32_t i = 0;
  while (heap->windows[i] != window) i++;
  return i;
}

/* Any window with room behind what it maps: the one that maps the least. */
static alias_window *shortest_window(const alias_heap *heap, uint64_t size) {
  alias_window *shortest = NULL;
  for (uint32_t i = 0; i < heap->window_count; i++) {
    alias_window *window = heap->windows[i];
    if (has_room(heap, window, size) && (!shortest || window->length < shortest->length)) shortest = window;
  }
  return shortest;
}

alias_window *alias_window_for(alias_heap *heap, uint64_t size, bool *fresh) {
  alias_window *oldest = NULL;
  *fresh = false;
  if (heap->window_count >= heap->settings.windows_limit && (oldest = oldest_idle(heap, false))) {
    pool_operation_begin(&heap->base.heap, heap->evict_operation, oldest->length);
    unmap_window(heap, index_of(heap, oldest));
    pool_operation_end(&heap->base.heap);
  }
  if (heap->unused_count > 0) {
    alias_window *window = calloc(1, sizeof *window);
    if (!window) return NULL;
    window->range = heap->unused_ranges[--heap->unused_count];
    heap->windows[heap->window_count++] = window;
    *fresh = true;
    return window;
  }
  /* All ranges own handles. What one maps a second time goes, and the new block lies behind. */
  oldest = oldest_idle(heap, true);
  if (oldest && has_room(heap, oldest, size)) {
    vmm_status status = VMM_SUCCESS;
    pool_operation_begin(&heap->base.heap, heap->evict_operation, oldest->length);
    retire_window(heap, oldest, &status);
    pool_operation_end(&heap->base.heap);
    heap->evictions++;
    return oldest;
  }
  return shortest_window(heap, size);
}

/* Is every byte of a handle free, and is it mapped at home only? */
static bool releasable(const alias_heap *heap, const pool_chunk *chunk) {
  const alias_handle *handle = chunk->owner;
  const pool_hole *hole = pool_holes_at_or_above(&heap->holes, handle->home);
  return chunk->mappings == 1 && hole && hole->begin <= handle->home &&
         hole->end >= handle->home + chunk->size;
}

vmm_status alias_release_handle(alias_heap *heap, pool_range *range, pool_chunk *chunk) {
  pool_heap *pool = &heap->base.heap;
  alias_handle *handle = chunk->owner;
  vmm_address home = handle->home;
  uint64_t size = chunk->size;
  vmm_status status = pool_holes_prepare(&heap->holes, 1);
  if (status == VMM_SUCCESS) status = pool_range_unmap(pool, range, home - range->address, size);
  if (status != VMM_SUCCESS) return status;
  pool_holes_carve(&heap->holes, pool_holes_at_or_above(&heap->holes, home), home, home + size);
  pool->statistics.driver_frees++;
  free(handle);
  return pool_chunk_give_up(pool, chunk);
}

/* Handles in the main range that are wholly free. */
static vmm_status release_main(alias_heap *heap) {
  vmm_status first = VMM_SUCCESS;
  pool_range *range = heap->main;
  for (uint64_t offset = 0; range && offset < heap->main_length;) {
    pool_chunk *chunk = range->slots[offset / range->unit].chunk;
    uint64_t size = chunk ? chunk->size : range->unit;
    if (chunk && releasable(heap, chunk)) {
      vmm_status status = alias_release_handle(heap, range, chunk);
      if (first == VMM_SUCCESS) first = status;
    }
    offset += size;
  }
  while (heap->main_length > 0 && !range->slots[heap->main_length / range->unit - 1].chunk)
    heap->main_length -= range->unit;
  return first;
}

/* Handles that have their home in an idle window and are wholly free. */
static void release_window(alias_heap *heap, alias_window *window, vmm_status *first) {
  pool_range *range = window->range;
  for (uint64_t offset = 0, size; offset < window->length; offset += size) {
    pool_chunk *chunk = range->slots[offset / range->unit].chunk;
    size = chunk ? chunk->size : range->unit;
    if (!chunk || !is_home(range, offset, chunk) || !releasable(heap, chunk)) continue;
    vmm_status status = alias_release_handle(heap, range, chunk);
    if (*first == VMM_SUCCESS) *first = status;
  }
}

vmm_status alias_release_all(alias_heap *heap) {
  vmm_status first = VMM_SUCCESS;
  /* Windows may map each other's handles: first all second mappings go, then what is free at home. */
  for (uint32_t i = 0; i < heap->window_count; i++) {
    if (heap->windows[i]->live == 0) retire_window(heap, heap->windows[i], &first);
  }
  for (uint32_t i = heap->window_count; i-- > 0;) {
    alias_window *window = heap->windows[i];
    if (window->live > 0) continue;
    release_window(heap, window, &first);
    if (window->range->mapped > 0) continue;
    alias_window_forget(heap, i);
    heap->evictions++;
  }
  vmm_status status = release_main(heap);
  return first == VMM_SUCCESS ? status : first;
}
