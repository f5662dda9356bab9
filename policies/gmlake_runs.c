/* The index of runs: rows of free pBlocks that lie side by side. */
#include <inttypes.h>
#include <stdio.h>

#include "policies/gmlake_spaces.h"

/* Room runs out only where much was mapped: a space that has none left is seldom met. */
enum { EDGES_LOOKED_AT = 64 };

/* Spaces do not overlap. */
static inline int compare_addresses(const gmlake_place *a, const gmlake_place *b) {
  return a->address < b->address ? -1 : a->address > b->address;
}

static inline int compare_ages(const gmlake_place *a, const gmlake_place *b) {
  if (a->indexed != b->indexed) return a->indexed < b->indexed ? -1 : 1;
  if (a->space->birth != b->space->birth) return a->space->birth < b->space->birth ? -1 : 1;
  return compare_addresses(a, b);
}

static inline int compare_sizes(const gmlake_place *a, const gmlake_place *b) {
  if (a->indexed != b->indexed) return a->indexed < b->indexed ? -1 : 1;
  if (a->run != b->run) return a->run < b->run ? -1 : 1;
  return compare_ages(a, b);
}

RB_PROTOTYPE(gmlake_run_tree, gmlake_place, by_place, compare_addresses)
RB_GENERATE(gmlake_run_tree, gmlake_place, by_place, compare_addresses)
RB_PROTOTYPE(gmlake_size_tree, gmlake_place, by_size, compare_sizes)
RB_GENERATE(gmlake_size_tree, gmlake_place, by_size, compare_sizes)
RB_PROTOTYPE(gmlake_edge_tree, gmlake_place, by_edge, compare_sizes)
RB_GENERATE(gmlake_edge_tree, gmlake_place, by_edge, compare_sizes)
RB_PROTOTYPE(gmlake_home_tree, gmlake_place, by_home, compare_addresses)
RB_GENERATE(gmlake_home_tree, gmlake_place, by_home, compare_addresses)
RB_PROTOTYPE(gmlake_age_tree, gmlake_place, by_age, compare_ages)
RB_GENERATE(gmlake_age_tree, gmlake_place, by_age, compare_ages)

static vmm_address end_of(const gmlake_place *place) { return place->address + place->size; }

/* ---- runs of all places ---- */

static bool touches_begin(const gmlake_place *run) {
  return run->address == run->space->begin && gmlake_space_front_room(run->space) > 0;
}

static bool touches_end(const gmlake_place *run) {
  return run->address + run->run == run->space->end && gmlake_space_end_room(run->space) > 0;
}

static void run_list(gmlake_spaces *spaces, gmlake_place *first, uint64_t size) {
  first->run = size;
  first->has_several = size > first->size;
  if (first->has_several) RB_INSERT(gmlake_size_tree, &spaces->runs_by_size, first);
  first->at_edge = touches_begin(first) || touches_end(first);
  if (first->at_edge) RB_INSERT(gmlake_edge_tree, &spaces->edges, first);
}

static void run_unlist(gmlake_spaces *spaces, gmlake_place *first) {
  if (first->has_several) RB_REMOVE(gmlake_size_tree, &spaces->runs_by_size, first);
  if (first->at_edge) RB_REMOVE(gmlake_edge_tree, &spaces->edges, first);
}

static void run_enter(gmlake_spaces *spaces, gmlake_place *first, uint64_t size) {
  run_list(spaces, first, size);
  RB_INSERT(gmlake_run_tree, &spaces->runs, first);
}

static void run_resize(gmlake_spaces *spaces, gmlake_place *first, uint64_t size) {
  run_unlist(spaces, first);
  run_list(spaces, first, size);
}

/* Returns its size. */
static uint64_t run_leave(gmlake_spaces *spaces, gmlake_place *first) {
  uint64_t size = first->run;
  run_unlist(spaces, first);
  RB_REMOVE(gmlake_run_tree, &spaces->runs, first);
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

/* first to last: places that are joined, and newly indexed. */
static void run_add(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last) {
  uint64_t size = end_of(last) - first->address;
  if (joined(last, last->next)) size += run_leave(spaces, last->next);
  if (!joined(first->previous, first)) {
    run_enter(spaces, first, size);
    return;
  }
  gmlake_place *begin = run_around(spaces, first->previous);
  run_resize(spaces, begin, begin->run + size);
}

static void run_remove(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last) {
  gmlake_place *begin = run_around(spaces, first);
  vmm_address end = begin->address + begin->run;
  if (first != begin)
    run_resize(spaces, begin, first->address - begin->address);
  else
    run_leave(spaces, begin);
  if (end > end_of(last)) run_enter(spaces, last->next, end - end_of(last));
}

/* ---- rows at home ---- */

static bool has_whole_chunk(const gmlake_spaces *spaces, const gmlake_place *first) {
  if (first->home_run >= spaces->certain_row) return true;
  const pool_range *range = first->space->range;
  return gmlake_border_above(range, first->address) <
         gmlake_border_below(range, first->address + first->home_run);
}

static void home_run_resize(gmlake_spaces *spaces, gmlake_place *first, uint64_t size) {
  const bool before = first->has_whole_chunk;
  first->home_run = size;
  first->has_whole_chunk = size > 0 && has_whole_chunk(spaces, first);
  if (first->has_whole_chunk == before) return;
  if (before)
    RB_REMOVE(gmlake_age_tree, &spaces->home_runs_by_age, first);
  else
    RB_INSERT(gmlake_age_tree, &spaces->home_runs_by_age, first);
}

static void home_run_enter(gmlake_spaces *spaces, gmlake_place *first, uint64_t size) {
  RB_INSERT(gmlake_home_tree, &spaces->home_runs, first);
  home_run_resize(spaces, first, size);
}

/* Returns its size. */
static uint64_t home_run_leave(gmlake_spaces *spaces, gmlake_place *first) {
  uint64_t size = first->home_run;
  RB_REMOVE(gmlake_home_tree, &spaces->home_runs, first);
  home_run_resize(spaces, first, 0);
  return size;
}

static gmlake_place *home_run_around(gmlake_spaces *spaces, gmlake_place *place) {
  if (place->home_run > 0) return place;
  gmlake_place *after = RB_NFIND(gmlake_home_tree, &spaces->home_runs, place);
  return after ? RB_PREV(gmlake_home_tree, &spaces->home_runs, after)
               : RB_MAX(gmlake_home_tree, &spaces->home_runs);
}

static bool joined_at_home(const gmlake_place *left, const gmlake_place *right) {
  return left && right && left->home && right->home && left->indexed == right->indexed &&
         end_of(left) == right->address;
}

static void home_run_add(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last) {
  uint64_t size = end_of(last) - first->address;
  if (joined_at_home(last, last->next)) size += home_run_leave(spaces, last->next);
  if (!joined_at_home(first->previous, first)) {
    home_run_enter(spaces, first, size);
    return;
  }
  gmlake_place *begin = home_run_around(spaces, first->previous);
  home_run_resize(spaces, begin, begin->home_run + size);
}

static void home_run_remove(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last) {
  gmlake_place *begin = home_run_around(spaces, first);
  vmm_address end = begin->address + begin->home_run;
  if (first != begin)
    home_run_resize(spaces, begin, first->address - begin->address);
  else
    home_run_leave(spaces, begin);
  if (end > end_of(last)) home_run_enter(spaces, last->next, end - end_of(last));
}

/* ---- both ---- */

typedef void stretch_action(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last);

/* For the parts of a stretch that are at home. */
static void for_parts_at_home(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last,
                              stretch_action *action) {
  for (gmlake_place *place = first, *end = last->next; place != end; place = place->next) {
    if (!place->home) continue;
    gmlake_place *begin = place;
    while (place != last && place->next->home) place = place->next;
    action(spaces, begin, place);
  }
}

static void set_indexed(gmlake_place *first, gmlake_place *last, vmm_stream stream) {
  for (gmlake_place *place = first;; place = place->next) {
    place->indexed = stream;
    if (place == last) return;
  }
}

static void index_remove(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last) {
  run_remove(spaces, first, last);
  for_parts_at_home(spaces, first, last, home_run_remove);
  set_indexed(first, last, GMLAKE_NOT_INDEXED);
}

void gmlake_index_remove(gmlake_spaces *spaces, gmlake_place *place) { index_remove(spaces, place, place); }

/* Do two places that follow one another change alike? */
static bool change_together(const gmlake_place *left, const gmlake_place *right) {
  return joined(left, right) && left->free_on == right->free_on;
}

void gmlake_index_renew(gmlake_spaces *spaces, gmlake_place *place) {
  const vmm_stream stream = place->free_on;
  if (place->indexed == stream) return;
  gmlake_place *first = place, *last = place;
  while (change_together(first->previous, first)) first = first->previous;
  while (change_together(last, last->next)) last = last->next;
  if (place->indexed != GMLAKE_NOT_INDEXED) index_remove(spaces, first, last);
  if (stream == GMLAKE_NOT_INDEXED) return;
  set_indexed(first, last, stream);
  run_add(spaces, first, last);
  for_parts_at_home(spaces, first, last, home_run_add);
}

static void run_renew_edge(gmlake_spaces *spaces, gmlake_place *place) {
  if (!place || place->indexed == GMLAKE_NOT_INDEXED) return;
  gmlake_place *first = run_around(spaces, place);
  run_resize(spaces, first, first->run);
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
  for (int i = 0; i < EDGES_LOOKED_AT && run && run->indexed == stream;
       i++, run = RB_PREV(gmlake_edge_tree, &spaces->edges, run)) {
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
  gmlake_place *run = RB_NFIND(gmlake_age_tree, &spaces->home_runs_by_age, &key);
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
    size += place->size;
    last = place;
    place = place->next;
  } while (joined(last, place));
  return size == first->run && first->has_several == (last != first) &&
         first->at_edge == (touches_begin(first) || touches_end(first));
}

static bool home_run_is_sound(const gmlake_spaces *spaces, const gmlake_place *first) {
  if (joined_at_home(first->previous, first)) return false;
  uint64_t size = 0;
  const gmlake_place *place = first, *last = NULL;
  do {
    size += place->size;
    last = place;
    place = place->next;
  } while (joined_at_home(last, place));
  return size == first->home_run && first->has_whole_chunk == has_whole_chunk(spaces, first);
}

static bool place_is_sound(const gmlake_spaces *spaces, const gmlake_place *place) {
  const gmlake_space *space = place->space;
  const pool_range *range = space->range;
  if (place->size != place->block->base.size || place->address < space->begin || end_of(place) > space->end)
    return false;
  if (place->next && (place->next->previous != place || place->next->address < end_of(place))) return false;
  bool is_home = place == place->block->places;
  if (place->home != is_home || (is_home && place->address != place->block->base.address)) return false;
  const gmlake_place *home = place->block->places;
  for (uint64_t offset = 0; offset < place->size; offset += range->unit) {
    const pool_slot *here = gmlake_slot(range, place->address + offset);
    const pool_slot *there = gmlake_slot(home->space->range, home->address + offset);
    if (!here->chunk || here->chunk != there->chunk || here->offset != there->offset) return false;
  }
  bool begins = place->indexed != GMLAKE_NOT_INDEXED && !joined(place->previous, place);
  bool begins_home =
      place->indexed != GMLAKE_NOT_INDEXED && place->home && !joined_at_home(place->previous, place);
  if ((place->run > 0) != begins || (place->home_run > 0) != begins_home) return false;
  return (!begins || run_is_sound(place)) && (!begins_home || home_run_is_sound(spaces, place));
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
      if (place->home) home_bytes += place->size;
      if (place->space == space && place->previous == before && place_is_sound(spaces, place)) continue;
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
