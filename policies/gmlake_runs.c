/* The index of runs: rows of free pBlocks that lie side by side. */
#include <inttypes.h>
#include <stdio.h>

#include "policies/gmlake_spaces.h"

static inline int compare_places(const gmlake_place *a, const gmlake_place *b) {
  if (a->indexed != b->indexed) return a->indexed < b->indexed ? -1 : 1;
  if (a->space->birth != b->space->birth) return a->space->birth < b->space->birth ? -1 : 1;
  return a->address < b->address ? -1 : a->address > b->address;
}

static inline int compare_sizes(const gmlake_place *a, const gmlake_place *b) {
  if (a->indexed != b->indexed) return a->indexed < b->indexed ? -1 : 1;
  if (a->run != b->run) return a->run < b->run ? -1 : 1;
  return compare_places(a, b);
}

RB_PROTOTYPE(gmlake_run_tree, gmlake_place, by_place, compare_places)
RB_GENERATE(gmlake_run_tree, gmlake_place, by_place, compare_places)
RB_PROTOTYPE(gmlake_size_tree, gmlake_place, by_size, compare_sizes)
RB_GENERATE(gmlake_size_tree, gmlake_place, by_size, compare_sizes)
RB_PROTOTYPE(gmlake_edge_tree, gmlake_place, by_edge, compare_sizes)
RB_GENERATE(gmlake_edge_tree, gmlake_place, by_edge, compare_sizes)
RB_PROTOTYPE(gmlake_age_tree, gmlake_place, by_age, compare_places)
RB_GENERATE(gmlake_age_tree, gmlake_place, by_age, compare_places)

static uint64_t size_of(const gmlake_place *place) { return place->block->base.size; }
static vmm_address end_of(const gmlake_place *place) { return place->address + size_of(place); }

/* ---- runs of all places ---- */

static bool touches_begin(const gmlake_place *run) {
  return run->address == run->space->begin && gmlake_space_front_room(run->space) > 0;
}

static bool touches_end(const gmlake_place *run) {
  return run->address + run->run == run->space->end && gmlake_space_end_room(run->space) > 0;
}

static void run_enter(gmlake_spaces *spaces, gmlake_place *first, uint64_t size) {
  first->run = size;
  RB_INSERT(gmlake_run_tree, &spaces->runs, first);
  RB_INSERT(gmlake_size_tree, &spaces->runs_by_size, first);
  first->at_edge = touches_begin(first) || touches_end(first);
  if (first->at_edge) RB_INSERT(gmlake_edge_tree, &spaces->edges, first);
}

/* Returns its size. */
static uint64_t run_leave(gmlake_spaces *spaces, gmlake_place *first) {
  uint64_t size = first->run;
  RB_REMOVE(gmlake_run_tree, &spaces->runs, first);
  RB_REMOVE(gmlake_size_tree, &spaces->runs_by_size, first);
  if (first->at_edge) RB_REMOVE(gmlake_edge_tree, &spaces->edges, first);
  first->run = 0;
  return size;
}

static gmlake_place *run_around(gmlake_spaces *spaces, gmlake_place *place) {
  if (place->run > 0) return place;
  gmlake_place *after = RB_NFIND(gmlake_run_tree, &spaces->runs, place);
  return after ? RB_PREV(gmlake_run_tree, &spaces->runs, after) : RB_MAX(gmlake_run_tree, &spaces->runs);
}

/* May two places that follow one another be in one run? */
static bool joined(const gmlake_place *left, const gmlake_place *right) {
  return left && right && left->indexed == right->indexed && left->section == right->section &&
         end_of(left) == right->address;
}

static void run_add(gmlake_spaces *spaces, gmlake_place *place) {
  gmlake_place *first = place;
  uint64_t size = size_of(place);
  if (joined(place->previous, place)) {
    first = run_around(spaces, place->previous);
    size += run_leave(spaces, first);
  }
  if (joined(place, place->next)) size += run_leave(spaces, place->next);
  run_enter(spaces, first, size);
}

static void run_remove(gmlake_spaces *spaces, gmlake_place *place) {
  gmlake_place *first = run_around(spaces, place);
  vmm_address end = first->address + run_leave(spaces, first);
  if (place != first) run_enter(spaces, first, place->address - first->address);
  if (end > end_of(place)) run_enter(spaces, place->next, end - end_of(place));
}

/* ---- rows at home ---- */

static gmlake_place *home_run_around(gmlake_spaces *spaces, gmlake_place *place) {
  if (place->home_run > 0) return place;
  gmlake_place *after = RB_NFIND(gmlake_age_tree, &spaces->home_runs, place);
  return after ? RB_PREV(gmlake_age_tree, &spaces->home_runs, after)
               : RB_MAX(gmlake_age_tree, &spaces->home_runs);
}

static bool joined_at_home(const gmlake_place *left, const gmlake_place *right) {
  return left && right && left->home && right->home && left->indexed == right->indexed &&
         end_of(left) == right->address;
}

static void home_run_add(gmlake_spaces *spaces, gmlake_place *place) {
  gmlake_place *first = place, *next = place->next;
  uint64_t size = size_of(place);
  if (joined_at_home(place->previous, place)) {
    first = home_run_around(spaces, place->previous);
    size += first->home_run;
  } else {
    RB_INSERT(gmlake_age_tree, &spaces->home_runs, place);
  }
  if (joined_at_home(place, next)) {
    size += next->home_run;
    next->home_run = 0;
    RB_REMOVE(gmlake_age_tree, &spaces->home_runs, next);
  }
  first->home_run = size;
}

static void home_run_remove(gmlake_spaces *spaces, gmlake_place *place) {
  gmlake_place *first = home_run_around(spaces, place);
  vmm_address end = first->address + first->home_run;
  if (end > end_of(place)) {
    place->next->home_run = end - end_of(place);
    RB_INSERT(gmlake_age_tree, &spaces->home_runs, place->next);
  }
  first->home_run = place->address - first->address;
  if (place == first) RB_REMOVE(gmlake_age_tree, &spaces->home_runs, place);
}

/* ---- both ---- */

void gmlake_index_add(gmlake_spaces *spaces, gmlake_place *place, vmm_stream stream) {
  place->indexed = stream;
  run_add(spaces, place);
  if (place->home) home_run_add(spaces, place);
}

void gmlake_index_remove(gmlake_spaces *spaces, gmlake_place *place) {
  run_remove(spaces, place);
  if (place->home) home_run_remove(spaces, place);
  place->indexed = GMLAKE_NOT_INDEXED;
}

static void run_renew_edge(gmlake_spaces *spaces, gmlake_place *place) {
  if (!place || place->indexed == GMLAKE_NOT_INDEXED) return;
  gmlake_place *first = run_around(spaces, place);
  run_enter(spaces, first, run_leave(spaces, first));
}

void gmlake_index_edges(gmlake_spaces *spaces, gmlake_space *space) {
  run_renew_edge(spaces, space->first);
  run_renew_edge(spaces, space->last);
}

gmlake_place *gmlake_run_best_fit(gmlake_spaces *spaces, vmm_stream stream, uint64_t size) {
  gmlake_space before = {.birth = 0};
  gmlake_place key = {.indexed = stream, .run = size, .space = &before};
  gmlake_place *run = RB_NFIND(gmlake_size_tree, &spaces->runs_by_size, &key);
  return run && run->indexed == stream ? run : NULL;
}

gmlake_place *gmlake_run_longest_edge(gmlake_spaces *spaces, vmm_stream stream, uint64_t extension,
                                      bool *in_front) {
  gmlake_space before = {.birth = 0};
  gmlake_place key = {.indexed = stream + 1, .space = &before};
  gmlake_place *run = RB_NFIND(gmlake_edge_tree, &spaces->edges, &key);
  run = run ? RB_PREV(gmlake_edge_tree, &spaces->edges, run) : RB_MAX(gmlake_edge_tree, &spaces->edges);
  for (; run && run->indexed == stream; run = RB_PREV(gmlake_edge_tree, &spaces->edges, run)) {
    if (touches_end(run) && gmlake_space_end_room(run->space) >= extension) {
      *in_front = false;
      return run;
    }
    if (touches_begin(run) && gmlake_space_front_room(run->space) >= extension) {
      *in_front = true;
      return run;
    }
  }
  return NULL;
}

gmlake_place *gmlake_home_run_first(gmlake_spaces *spaces, vmm_stream stream) {
  gmlake_space before = {.birth = 0};
  gmlake_place key = {.indexed = stream, .space = &before};
  gmlake_place *run = RB_NFIND(gmlake_age_tree, &spaces->home_runs, &key);
  return run && run->indexed == stream ? run : NULL;
}

gmlake_place *gmlake_home_run_next(gmlake_place *run) {
  gmlake_place *next = RB_NEXT(gmlake_age_tree, NULL, run);
  return next && next->indexed == run->indexed ? next : NULL;
}

/* ---- check ---- */

/* A run that begins here is as long as its places, and joined to none before it. */
static bool run_is_sound(const gmlake_place *first) {
  if (joined(first->previous, first)) return false;
  uint64_t size = 0;
  const gmlake_place *place = first, *last = NULL;
  do {
    size += size_of(place);
    last = place;
    place = place->next;
  } while (joined(last, place));
  return size == first->run && first->at_edge == (touches_begin(first) || touches_end(first));
}

static bool home_run_is_sound(const gmlake_place *first) {
  if (joined_at_home(first->previous, first)) return false;
  uint64_t size = 0;
  const gmlake_place *place = first, *last = NULL;
  do {
    size += size_of(place);
    last = place;
    place = place->next;
  } while (joined_at_home(last, place));
  return size == first->home_run;
}

static bool place_is_sound(const gmlake_place *place) {
  const gmlake_space *space = place->space;
  const pool_range *range = space->range;
  if (place->address < space->begin || end_of(place) > space->end) return false;
  if (place->next && (place->next->previous != place || place->next->address < end_of(place))) return false;
  bool is_home = place == place->block->places;
  if (place->home != is_home || (is_home && place->address != place->block->base.address)) return false;
  const gmlake_place *home = place->block->places;
  for (uint64_t offset = 0; offset < size_of(place); offset += range->unit) {
    const pool_slot *here = gmlake_slot(range, place->address + offset);
    const pool_slot *there = gmlake_slot(home->space->range, home->address + offset);
    if (!here->chunk || here->chunk != there->chunk || here->offset != there->offset) return false;
  }
  bool begins = place->indexed != GMLAKE_NOT_INDEXED && !joined(place->previous, place);
  bool begins_home =
      place->indexed != GMLAKE_NOT_INDEXED && place->home && !joined_at_home(place->previous, place);
  if ((place->run > 0) != begins || (place->home_run > 0) != begins_home) return false;
  return (!begins || run_is_sound(place)) && (!begins_home || home_run_is_sound(place));
}

/* Over every mapped chunk lies a place, lest it be mapped for ever. */
static bool is_covered(const gmlake_space *space) {
  const pool_range *range = space->range;
  const gmlake_place *place = space->first;
  for (vmm_address at = space->begin; at < space->end;) {
    const pool_chunk *chunk = gmlake_slot(range, at)->chunk;
    if (!chunk) {
      at += range->unit;
      continue;
    }
    while (place && end_of(place) <= at) place = place->next;
    if (!place || place->address >= at + chunk->size) return false;
    at += chunk->size;
  }
  return true;
}

bool gmlake_spaces_check(const gmlake_spaces *spaces, char *message, size_t message_size) {
  uint64_t home_bytes = 0, mapped = 0;
  for (const gmlake_space *space = spaces->oldest; space; space = space->newer) {
    mapped += space->range->mapped;
    const gmlake_place *before = NULL;
    for (const gmlake_place *place = space->first; place; before = place, place = place->next) {
      if (place->home) home_bytes += size_of(place);
      if (place->space == space && place->previous == before && place_is_sound(place)) continue;
      snprintf(message, message_size, "the place of pBlock 0x%" PRIx64 " at 0x%" PRIx64 " does not fit",
               place->block->base.address, place->address);
      return false;
    }
    if (space->last == before && (spaces->lost_bytes > 0 || is_covered(space))) continue;
    snprintf(message, message_size, "the places of the space at 0x%" PRIx64 " are not all", space->begin);
    return false;
  }
  if (home_bytes + spaces->alias_bytes + spaces->lost_bytes == mapped) return true;
  snprintf(message, message_size,
           "%" PRIu64 " bytes at home, %" PRIu64 " elsewhere and %" PRIu64 " lost do not make up %" PRIu64
           " mapped",
           home_bytes, spaces->alias_bytes, spaces->lost_bytes, mapped);
  return false;
}
