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
  const uint64_t size = a->row[GMLAKE_RUN], other = b->row[GMLAKE_RUN];
  if (size != other) return size < other ? -1 : 1;
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

/* ---- one row ---- */

/* May two places that follow one another be in one row? */
static inline bool joined(const gmlake_place *left, const gmlake_place *right, gmlake_row_kind kind) {
  return left && right && left->indexed == right->indexed && end_of(left) == right->address &&
         (kind == GMLAKE_RUN ? left->section == right->section : left->home && right->home);
}

static bool touches_begin(const gmlake_place *run) {
  return run->address == run->space->begin && gmlake_space_front_room(run->space) > 0;
}

static bool touches_end(const gmlake_place *run) {
  return run->address + run->row[GMLAKE_RUN] == run->space->end && gmlake_space_end_room(run->space) > 0;
}

static bool has_whole_chunk(const gmlake_spaces *spaces, const gmlake_place *first) {
  const uint64_t size = first->row[GMLAKE_ROW_AT_HOME];
  if (size >= spaces->certain_row) return true;
  const pool_range *range = first->space->range;
  return gmlake_border_above(range, first->address) < gmlake_border_below(range, first->address + size);
}

static void run_resize(gmlake_spaces *spaces, gmlake_place *first, uint64_t size) {
  if (first->has_several) RB_REMOVE(gmlake_size_tree, &spaces->runs_by_size, first);
  if (first->at_edge) RB_REMOVE(gmlake_edge_tree, &spaces->edges, first);
  first->row[GMLAKE_RUN] = size;
  first->has_several = size > first->size;
  if (first->has_several) RB_INSERT(gmlake_size_tree, &spaces->runs_by_size, first);
  first->at_edge = size > 0 && (touches_begin(first) || touches_end(first));
  if (first->at_edge) RB_INSERT(gmlake_edge_tree, &spaces->edges, first);
}

static void row_at_home_resize(gmlake_spaces *spaces, gmlake_place *first, uint64_t size) {
  const bool before = first->has_whole_chunk;
  first->row[GMLAKE_ROW_AT_HOME] = size;
  first->has_whole_chunk = size > 0 && has_whole_chunk(spaces, first);
  if (first->has_whole_chunk == before) return;
  if (before)
    RB_REMOVE(gmlake_age_tree, &spaces->home_runs_by_age, first);
  else
    RB_INSERT(gmlake_age_tree, &spaces->home_runs_by_age, first);
}

/* 0: there is none. */
static inline void row_resize(gmlake_spaces *spaces, gmlake_place *first, uint64_t size,
                              gmlake_row_kind kind) {
  if (kind == GMLAKE_RUN)
    run_resize(spaces, first, size);
  else
    row_at_home_resize(spaces, first, size);
}

static inline void row_enter(gmlake_spaces *spaces, gmlake_place *first, uint64_t size,
                             gmlake_row_kind kind) {
  if (kind == GMLAKE_RUN)
    RB_INSERT(gmlake_run_tree, &spaces->runs, first);
  else
    RB_INSERT(gmlake_home_tree, &spaces->home_runs, first);
  row_resize(spaces, first, size, kind);
}

/* Returns its size. */
static inline uint64_t row_leave(gmlake_spaces *spaces, gmlake_place *first, gmlake_row_kind kind) {
  const uint64_t size = first->row[kind];
  if (kind == GMLAKE_RUN)
    RB_REMOVE(gmlake_run_tree, &spaces->runs, first);
  else
    RB_REMOVE(gmlake_home_tree, &spaces->home_runs, first);
  row_resize(spaces, first, 0, kind);
  return size;
}

static gmlake_place *run_before(gmlake_spaces *spaces, gmlake_place *place) {
  gmlake_place *after = RB_NFIND(gmlake_run_tree, &spaces->runs, place);
  return after ? RB_PREV(gmlake_run_tree, &spaces->runs, after) : RB_MAX(gmlake_run_tree, &spaces->runs);
}

static gmlake_place *row_at_home_before(gmlake_spaces *spaces, gmlake_place *place) {
  gmlake_place *after = RB_NFIND(gmlake_home_tree, &spaces->home_runs, place);
  return after ? RB_PREV(gmlake_home_tree, &spaces->home_runs, after)
               : RB_MAX(gmlake_home_tree, &spaces->home_runs);
}

/* The first place of the row that a place is in. */
static inline gmlake_place *row_around(gmlake_spaces *spaces, gmlake_place *place, gmlake_row_kind kind) {
  if (place->row[kind] > 0) return place;
  return kind == GMLAKE_RUN ? run_before(spaces, place) : row_at_home_before(spaces, place);
}

/* ---- rows that grow and shrink ---- */

/* first to last: places that are joined, and newly indexed. */
static inline void row_add(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last,
                           gmlake_row_kind kind) {
  uint64_t size = end_of(last) - first->address;
  if (joined(last, last->next, kind)) size += row_leave(spaces, last->next, kind);
  if (!joined(first->previous, first, kind)) {
    row_enter(spaces, first, size, kind);
    return;
  }
  gmlake_place *begin = row_around(spaces, first->previous, kind);
  row_resize(spaces, begin, begin->row[kind] + size, kind);
}

static inline void row_remove(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last,
                              gmlake_row_kind kind) {
  gmlake_place *begin = row_around(spaces, first, kind);
  const vmm_address end = begin->address + begin->row[kind];
  if (first != begin)
    row_resize(spaces, begin, first->address - begin->address, kind);
  else
    row_leave(spaces, begin, kind);
  if (end > end_of(last)) row_enter(spaces, last->next, end - end_of(last), kind);
}

static void run_add(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last) {
  row_add(spaces, first, last, GMLAKE_RUN);
}

static void run_remove(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last) {
  row_remove(spaces, first, last, GMLAKE_RUN);
}

static void row_at_home_add(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last) {
  row_add(spaces, first, last, GMLAKE_ROW_AT_HOME);
}

static void row_at_home_remove(gmlake_spaces *spaces, gmlake_place *first, gmlake_place *last) {
  row_remove(spaces, first, last, GMLAKE_ROW_AT_HOME);
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
  for_parts_at_home(spaces, first, last, row_at_home_remove);
  set_indexed(first, last, GMLAKE_NOT_INDEXED);
}

void gmlake_index_remove(gmlake_spaces *spaces, gmlake_place *place) { index_remove(spaces, place, place); }

/* Do two places that follow one another change alike? */
static bool change_together(const gmlake_place *left, const gmlake_place *right) {
  return joined(left, right, GMLAKE_RUN) && left->free_on == right->free_on;
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
  for_parts_at_home(spaces, first, last, row_at_home_add);
}

static void run_renew_edge(gmlake_spaces *spaces, gmlake_place *place) {
  if (!place || place->indexed == GMLAKE_NOT_INDEXED) return;
  gmlake_place *first = row_around(spaces, place, GMLAKE_RUN);
  run_resize(spaces, first, first->row[GMLAKE_RUN]);
}

void gmlake_index_edges(gmlake_spaces *spaces, gmlake_space *space) {
  run_renew_edge(spaces, space->first);
  run_renew_edge(spaces, space->last);
}

gmlake_place *gmlake_run_best_fit(gmlake_spaces *spaces, vmm_stream stream, uint64_t size) {
  gmlake_space before = {.birth = 0};
  gmlake_place key = {.indexed = stream, .row = {[GMLAKE_RUN] = size}, .space = &before};
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

/* A row that begins here is as long as its places, and joined to none before it. */
static bool row_is_sound(const gmlake_spaces *spaces, const gmlake_place *first, gmlake_row_kind kind) {
  if (joined(first->previous, first, kind)) return false;
  uint64_t size = 0;
  const gmlake_place *place = first, *last = NULL;
  do {
    size += place->size;
    last = place;
    place = place->next;
  } while (joined(last, place, kind));
  if (size != first->row[kind]) return false;
  if (kind == GMLAKE_ROW_AT_HOME) return first->has_whole_chunk == has_whole_chunk(spaces, first);
  return first->has_several == (last != first) &&
         first->at_edge == (touches_begin(first) || touches_end(first));
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
  const bool indexed = place->indexed != GMLAKE_NOT_INDEXED;
  for (gmlake_row_kind kind = 0; kind < GMLAKE_ROW_KINDS; kind++) {
    const bool begins =
        indexed && (kind == GMLAKE_RUN || place->home) && !joined(place->previous, place, kind);
    if ((place->row[kind] > 0) != begins || (begins && !row_is_sound(spaces, place, kind))) return false;
  }
  return true;
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
