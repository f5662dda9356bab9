/* Stitching of policy aliasheap: which free pieces of handles become one block, and
 * their second mapping. */
#include <stdlib.h>
#include <string.h>

#include "policies/alias_heap.h"

enum { SIZES_LIMIT = 4096 };

static const uint64_t quantum = 512;

vmm_status alias_wait_for(alias_heap *heap, const alias_interval *intervals, uint32_t count,
                          vmm_stream stream) {
  bool unclean = false;
  for (vmm_stream other = 0; other < heap->holes.streams && other < heap->clock.count; other++) {
    if (other == stream) continue;
    uint64_t latest = 0;
    for (uint32_t i = 0; i < count; i++) {
      const pool_hole *hole = pool_holes_at_or_above(&heap->holes, intervals[i].begin);
      if (hole && hole->begin <= intervals[i].begin && hole->last[other] > latest) latest = hole->last[other];
    }
    if (latest == 0 || pool_stream_clock_ordered(&heap->clock, stream, other, latest) ||
        pool_stream_clock_passed(&heap->clock, other, latest)) {
      continue;
    }
    vmm_status status = pool_stream_clock_wait(&heap->clock, stream, other, latest);
    if (status != VMM_SUCCESS) return status;
    unclean = true;
  }
  heap->unclean_uses += unclean;
  return VMM_SUCCESS;
}

void alias_carve(alias_heap *heap, const alias_interval *intervals, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    pool_hole *hole = pool_holes_at_or_above(&heap->holes, intervals[i].begin);
    pool_holes_carve(&heap->holes, hole, intervals[i].begin, intervals[i].end);
  }
}

/* ---- the plan ---- */

typedef struct plan {
  alias_window *window; /* to be extended; NULL: a new one */
  alias_place end;      /* its free end */
  alias_interval lead;  /* the end of a handle, where the block begins */
  alias_interval *runs; /* whole handles */
  uint32_t run_count;
  uint64_t fresh;      /* bytes of new handles */
  alias_interval last; /* the beginning of a handle, where the block ends */
} plan;

/* A free run and the handle borders in it. */
typedef struct candidate {
  vmm_address begin, end;
  vmm_address first, last; /* borders; first > last: none inside */
  double rank;             /* the higher comes first */
} candidate;

static uint64_t core_of(const candidate *here) {
  return here->last > here->first ? here->last - here->first : 0;
}
static uint64_t lead_of(const candidate *here) {
  return here->first <= here->end && here->first > here->begin ? here->first - here->begin : 0;
}
static uint64_t trail_of(const candidate *here) {
  return here->last >= here->begin && here->last < here->end ? here->end - here->last : 0;
}

static int by_rank(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->rank > b->rank || a->rank < b->rank) return a->rank > b->rank ? -1 : 1;
  if (core_of(a) != core_of(b)) return core_of(a) > core_of(b) ? -1 : 1;
  return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* A mapping costs the same for a handle of any size: long runs of large ones first. */
static double rank_of(const alias_heap *heap, const candidate *here) {
  double core = (double)core_of(here), handles = 0;
  if (core_of(here) == 0 || !heap->settings.coarsest) return core;
  for (vmm_address at = here->first; at < here->last; handles++) at += alias_handle_at(heap, at)->chunk->size;
  return core * (core / handles) * (core / handles);
}

static int by_address(const void *left, const void *right) {
  const alias_interval *a = left, *b = right;
  return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* The holes without what the window's end already takes. */
static candidate *list_candidates(const alias_heap *heap, const alias_place *taken, uint64_t *count) {
  candidate *all = malloc((heap->holes.count + taken->interval_count + 1) * sizeof *all);
  uint64_t found = 0;
  for (pool_hole *hole = all ? pool_holes_first(&heap->holes, 1) : NULL; hole;
       hole = pool_holes_next(hole, 1)) {
    vmm_address begin = hole->begin;
    while (begin < hole->end) {
      vmm_address end = hole->end, next = end;
      for (uint32_t i = 0; i < taken->interval_count; i++) {
        const alias_interval *interval = &taken->intervals[i];
        if (interval->end <= begin || interval->begin >= end) continue;
        end = interval->begin > begin ? interval->begin : begin;
        next = interval->end;
      }
      if (begin < end) {
        candidate *here = &all[found++];
        *here = (candidate){begin, end, alias_border_above(heap, begin), alias_border_below(heap, end), 0};
        here->rank = rank_of(heap, here);
      }
      begin = next;
    }
  }
  *count = found;
  return all;
}

/* The shortest trail edge of at least size bytes, not the candidate's that is barred. */
static const candidate *trail_for(const candidate *all, uint64_t count, uint64_t size, uint64_t minimum) {
  const candidate *best = NULL;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t trail = trail_of(&all[i]);
    if (trail < minimum || trail < size) continue;
    if (!best || trail < trail_of(best) || (trail == trail_of(best) && all[i].begin < best->begin))
      best = &all[i];
  }
  return best;
}

/* The window whose free end covers most of the request; none if that is too little. */
static bool plan_window(const alias_heap *heap, uint64_t size, plan *made) {
  uint64_t least = (uint64_t)(heap->settings.extension_minimum * (double)size);
  if (least < heap->settings.edge_minimum) least = heap->settings.edge_minimum;
  for (uint32_t i = 0; i < heap->window_count; i++) {
    alias_window *window = heap->windows[i];
    alias_place end;
    if (window->length == 0 || size > window->range->size - heap->base.heap.granularity - window->length)
      continue;
    if (!alias_window_free_end(heap, window, size, &end)) return false;
    if (end.size >= least && end.size > made->end.size) {
      free(made->end.intervals);
      made->end = end;
      made->window = window;
    } else {
      free(end.intervals);
    }
  }
  return true;
}

/* Walks the cores from the first in rank, taking whole handles while they fit. Returns what is left;
 * *spare is the smallest handle that did not fit, NULL if none. */
static uint64_t plan_cores(const alias_heap *heap, candidate *all, uint64_t count, uint64_t left,
                           uint64_t longest_trail, plan *made, const alias_handle **spare) {
  *spare = NULL;
  qsort(all, count, sizeof *all, by_rank);
  for (uint64_t i = 0; i < count && left > longest_trail && left > 0; i++) {
    if (core_of(&all[i]) == 0) break;
    alias_interval taken = {all[i].first, all[i].first};
    while (taken.end < all[i].last) {
      const alias_handle *handle = alias_handle_at(heap, taken.end);
      if (handle->chunk->size > left) {
        if (!*spare || handle->chunk->size < (*spare)->chunk->size) *spare = handle;
        break;
      }
      taken.end += handle->chunk->size;
      left -= handle->chunk->size;
      if (left <= longest_trail) break;
    }
    if (taken.begin < taken.end) made->runs[made->run_count++] = taken;
  }
  qsort(made->runs, made->run_count, sizeof *made->runs, by_address);
  return left;
}

/* Which pieces serve size bytes. False without host memory. */
static bool make_plan(const alias_heap *heap, uint64_t size, plan *made) {
  const alias_settings *settings = &heap->settings;
  const uint64_t unit = heap->base.heap.granularity;
  const uint64_t minimum =
      settings->edges ? alias_pressed(heap) ? quantum : settings->edge_minimum : UINT64_MAX;
  if (!plan_window(heap, size, made)) return false;
  uint64_t left = size - made->end.size, count;
  candidate *all = list_candidates(heap, &made->end, &count);
  made->runs = malloc((count + 1) * sizeof *made->runs);
  if (!all || !made->runs) {
    free(all);
    return false;
  }
  if (!made->window) {
    const candidate *best = NULL;
    for (uint64_t i = 0; i < count; i++) {
      uint64_t lead = lead_of(&all[i]);
      if (lead >= minimum && lead < left && (!best || lead > lead_of(best))) best = &all[i];
    }
    if (best) {
      made->lead = (alias_interval){best->begin, best->first};
      left -= lead_of(best);
    }
  }
  uint64_t longest_trail = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (trail_of(&all[i]) >= minimum && trail_of(&all[i]) > longest_trail) longest_trail = trail_of(&all[i]);
  }
  const alias_handle *spare;
  left = plan_cores(heap, all, count, left, longest_trail, made, &spare);
  const candidate *trail = NULL;
  if (left > 0 && left <= longest_trail) {
    trail = trail_for(all, count, left, minimum);
  } else if (left > 0 && spare) {
    made->last = (alias_interval){spare->home, spare->home + (settings->edges ? left : spare->chunk->size)};
    left = 0;
  } else if (left > 0) {
    made->fresh = alias_round_up(left - longest_trail, unit);
    if (made->fresh >= left) {
      left = 0;
    } else {
      left -= made->fresh;
      trail = trail_for(all, count, left, minimum);
    }
  }
  if (trail) made->last = (alias_interval){trail->last, trail->last + left};
  free(all);
  return true;
}

/* The bytes of all pieces but the last. */
static uint64_t covered_before_last(const plan *made) {
  uint64_t covered = made->end.size + (made->lead.end - made->lead.begin) + made->fresh;
  for (uint32_t i = 0; i < made->run_count; i++) covered += made->runs[i].end - made->runs[i].begin;
  return covered;
}

static void plan_free(plan *made) {
  free(made->end.intervals);
  free(made->runs);
}

/* ---- carrying it out ---- */

typedef struct work {
  pool_chunk **chunks; /* to be mapped, in order */
  uint64_t chunk_count, chunk_capacity;
  alias_segment *segments;
  uint32_t segment_count;
  uint64_t mapped; /* bytes */
  pool_chunk **fresh;
  alias_handle **handles;
  uint64_t fresh_count;
} work;

static bool work_add_chunk(work *state, pool_chunk *chunk) {
  if (state->chunk_count == state->chunk_capacity) {
    uint64_t capacity = state->chunk_capacity ? state->chunk_capacity * 2 : 64;
    pool_chunk **chunks = realloc(state->chunks, capacity * sizeof *chunks);
    if (!chunks) return false;
    state->chunks = chunks;
    state->chunk_capacity = capacity;
  }
  state->chunks[state->chunk_count++] = chunk;
  return true;
}

/* All handles that an interval touches, as one segment. */
static bool work_add_run(const alias_heap *heap, work *state, const alias_interval *interval, uint64_t base,
                         uint64_t birth) {
  if (interval->begin == interval->end) return true;
  const alias_handle *handle = alias_handle_at(heap, interval->begin);
  vmm_address begin = handle->home, at = begin;
  while (at < interval->end) {
    handle = alias_handle_at(heap, at);
    if (!work_add_chunk(state, handle->chunk)) return false;
    at += handle->chunk->size;
  }
  state->segments[state->segment_count++] = (alias_segment){begin, at, base + state->mapped, birth};
  state->mapped += at - begin;
  return true;
}

/* New handles whose home will be the window. */
static vmm_status create_fresh(alias_heap *heap, work *state, uint64_t bytes, bool start_up) {
  uint64_t *sizes = malloc(SIZES_LIMIT * sizeof *sizes);
  if (!sizes) return VMM_OUT_OF_MEMORY;
  uint64_t count = alias_cut(heap, bytes, start_up, sizes, SIZES_LIMIT);
  state->fresh = calloc(count, sizeof *state->fresh);
  state->handles = calloc(count, sizeof *state->handles);
  vmm_status status = state->fresh && state->handles ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  for (uint64_t i = 0; status == VMM_SUCCESS && i < count; i++) {
    state->handles[i] = malloc(sizeof **state->handles);
    if (!state->handles[i]) status = VMM_OUT_OF_MEMORY;
    state->fresh_count = i + 1;
  }
  if (status == VMM_SUCCESS) {
    status = pool_chunks_create_sizes(&heap->base.heap, sizes, count, state, state->fresh);
    if (status != VMM_SUCCESS) memset(state->fresh, 0, count * sizeof *state->fresh);
  }
  free(sizes);
  return status;
}

static void work_undo(alias_heap *heap, work *state) {
  for (uint64_t i = 0; i < state->fresh_count; i++) {
    if (state->fresh[i]) pool_chunk_give_up(&heap->base.heap, state->fresh[i]);
    free(state->handles[i]);
  }
}

static void work_free(work *state) {
  free(state->chunks);
  free(state->segments);
  free(state->fresh);
  free(state->handles);
}

/* Gathers the handles to map, in the order of the window. Every piece but the first begins
 * and every piece but the last ends on a handle border. */
static vmm_status gather(alias_heap *heap, const plan *made, work *state, uint64_t base, bool start_up,
                         uint64_t birth) {
  state->segments = malloc((made->run_count + 3) * sizeof *state->segments);
  if (!state->segments) return VMM_OUT_OF_MEMORY;
  bool all = work_add_run(heap, state, &made->lead, base, birth);
  for (uint32_t i = 0; all && i < made->run_count; i++)
    all = work_add_run(heap, state, &made->runs[i], base, birth);
  if (!all) return VMM_OUT_OF_MEMORY;
  if (made->fresh > 0) {
    vmm_status status = create_fresh(heap, state, made->fresh, start_up);
    if (status != VMM_SUCCESS) return status;
    state->segments[state->segment_count++] = (alias_segment){0, made->fresh, base + state->mapped, birth};
    for (uint64_t i = 0; i < state->fresh_count; i++) {
      if (!work_add_chunk(state, state->fresh[i])) return VMM_OUT_OF_MEMORY;
    }
    state->mapped += made->fresh;
  }
  return work_add_run(heap, state, &made->last, base, birth) ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
}

/* The block's intervals in window order; fresh is where the new handles lie. */
static bool list_intervals(const plan *made, uint64_t size, vmm_address fresh, alias_place *place) {
  uint32_t count = 0;
  alias_interval *intervals = malloc((made->end.interval_count + made->run_count + 3) * sizeof *intervals);
  if (!intervals) return false;
  for (uint32_t i = 0; i < made->end.interval_count; i++) intervals[count++] = made->end.intervals[i];
  if (made->lead.begin < made->lead.end) intervals[count++] = made->lead;
  for (uint32_t i = 0; i < made->run_count; i++) intervals[count++] = made->runs[i];
  uint64_t covered = 0;
  for (uint32_t i = 0; i < count; i++) covered += intervals[i].end - intervals[i].begin;
  covered += made->last.end - made->last.begin;
  if (made->fresh > 0) {
    uint64_t used = covered + made->fresh > size ? size - covered : made->fresh;
    intervals[count++] = (alias_interval){fresh, fresh + used};
    covered += used;
  }
  if (made->last.begin < made->last.end) intervals[count++] = made->last;
  place->intervals = intervals;
  place->interval_count = count;
  place->size = covered;
  return true;
}

static vmm_status carry_out(alias_heap *heap, const plan *made, uint64_t size, vmm_stream stream,
                            bool start_up, alias_place *place) {
  pool_heap *pool = &heap->base.heap;
  work state = {0};
  alias_window *window = made->window;
  bool new_window = false;
  if (!window) window = alias_window_for(heap, size, &new_window);
  if (!window) return VMM_OUT_OF_MEMORY;
  const uint64_t base = window->length;
  vmm_status status = gather(heap, made, &state, base, start_up, heap->births + 1);
  vmm_address fresh = 0;
  uint64_t fresh_at = 0;
  for (uint32_t i = 0; status == VMM_SUCCESS && i < state.segment_count; i++) {
    if (state.segments[i].home_begin != 0) continue;
    fresh_at = state.segments[i].offset;
    fresh = window->range->address + fresh_at;
    state.segments[i].home_begin = fresh;
    state.segments[i].home_end += fresh;
  }
  if (status == VMM_SUCCESS) status = alias_window_reserve_segments(window, state.segment_count);
  if (status == VMM_SUCCESS && !list_intervals(made, size, fresh, place)) status = VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) status = pool_holes_prepare(&heap->holes, place->interval_count + 2);
  if (status == VMM_SUCCESS && state.mapped > window->range->size - pool->granularity - base)
    status = VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) status = alias_wait_for(heap, place->intervals, place->interval_count, stream);
  if (status == VMM_SUCCESS && state.mapped > 0) {
    status = pool_range_map(pool, window->range, base, state.chunks, state.chunk_count);
  }
  if (status != VMM_SUCCESS) {
    free(place->intervals);
    *place = (alias_place){0};
    work_undo(heap, &state);
    work_free(&state);
    if (new_window) alias_window_forget(heap, heap->window_count - 1);
    return status;
  }
  for (uint64_t i = 0, at = fresh_at; i < state.fresh_count; at += state.fresh[i++]->size) {
    *state.handles[i] = (alias_handle){state.fresh[i], window->range->address + at};
    state.fresh[i]->owner = state.handles[i];
  }
  memcpy(window->segments + window->segment_count, state.segments,
         state.segment_count * sizeof *state.segments);
  window->segment_count += state.segment_count;
  window->length += state.mapped;
  heap->births++;
  if (made->fresh > 0) {
    window->pinned = true;
    pool_holes_insert(&heap->holes, fresh, fresh + made->fresh, NULL);
  }
  alias_carve(heap, place->intervals, place->interval_count);
  uint64_t lead_in = made->lead.begin < made->lead.end
                         ? made->lead.begin - alias_handle_at(heap, made->lead.begin)->home
                         : 0;
  place->window = window;
  place->offset = base - made->end.size + lead_in;
  work_free(&state);
  return VMM_SUCCESS;
}

vmm_status alias_stitch(alias_heap *heap, uint64_t size, uint64_t grow_bytes, vmm_stream stream,
                        bool start_up, alias_place *place, bool *declined) {
  plan made = {0};
  *place = (alias_place){0};
  *declined = false;
  pool_operation_begin(&heap->base.heap, heap->stitch_operation, size);
  vmm_status status = make_plan(heap, size, &made) ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS && made.last.begin < made.last.end && alias_pressed(heap) &&
      alias_split(heap, made.last.begin + (size - covered_before_last(&made)))) {
    plan_free(&made);
    made = (plan){0};
    status = make_plan(heap, size, &made) ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  }
  if (status == VMM_SUCCESS && made.fresh >= grow_bytes) {
    *declined = true;
    status = VMM_OUT_OF_MEMORY;
  }
  if (status == VMM_SUCCESS) status = carry_out(heap, &made, size, stream, start_up, place);
  pool_operation_end(&heap->base.heap);
  plan_free(&made);
  if (status == VMM_SUCCESS) heap->stitches++;
  return status;
}
