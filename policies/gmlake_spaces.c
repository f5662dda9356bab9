#include "policies/gmlake_spaces.h"

#include <stdlib.h>

/* Rooms may take so much VA as long as as much again is set aside, to be given back when VA runs out. A
 * device that has not so much to set aside gives no room. */
#define ROOM_BUDGET (UINT64_C(16) << 40)

void gmlake_spaces_init(gmlake_spaces *spaces, pool_heap *heap, uint64_t room, uint64_t largest_chunk,
                        uint64_t unit) {
  *spaces = (gmlake_spaces){.heap = heap, .room = room, .certain_row = 2 * (largest_chunk - unit) + unit};
  RB_INIT(&spaces->runs);
  RB_INIT(&spaces->runs_by_size);
  RB_INIT(&spaces->edges);
  RB_INIT(&spaces->home_runs);
  RB_INIT(&spaces->home_runs_by_age);
}

static void space_forget(gmlake_spaces *spaces, gmlake_space *space) {
  if (space->older)
    space->older->newer = space->newer;
  else
    spaces->oldest = space->newer;
  if (space->newer)
    space->newer->older = space->older;
  else
    spaces->newest = space->older;
  free(space);
}

void gmlake_spaces_fini(gmlake_spaces *spaces) {
  while (spaces->oldest) space_forget(spaces, spaces->oldest);
  pool_store_fini(&spaces->places);
}

/* ---- spaces ---- */

/* VA to leave on either side of a new space, in whole units. */
static uint64_t room_for_one(gmlake_spaces *spaces, uint64_t unit) {
  uint64_t room = spaces->room / unit * unit;
  if (room == 0) return 0;
  if (!spaces->room_known) {
    spaces->room_known = true;
    vmm_status status = pool_range_reserve(spaces->heap, ROOM_BUDGET, ROOM_BUDGET, &spaces->set_aside);
    if (status == VMM_SUCCESS) spaces->room_budget = ROOM_BUDGET;
  }
  return room <= spaces->room_budget / 2 ? room : 0;
}

/* Gives back what was set aside. false: there is nothing. */
static bool give_back_set_aside(gmlake_spaces *spaces) {
  spaces->room_budget = 0;
  pool_range *range = spaces->set_aside;
  spaces->set_aside = NULL;
  return range && pool_range_free(spaces->heap, range) == VMM_SUCCESS;
}

static vmm_status reserve_range(gmlake_spaces *spaces, uint64_t size, uint64_t unit, uint64_t *room,
                                pool_range **range) {
  if (*room > 0) {
    vmm_status status = pool_range_reserve(spaces->heap, size + 2 * *room, unit, range);
    if (status == VMM_SUCCESS) spaces->room_budget -= 2 * *room;
    if (status != VMM_OUT_OF_MEMORY) return status;
    *room = 0;
  }
  vmm_status status = pool_range_reserve(spaces->heap, size, unit, range);
  if (status != VMM_OUT_OF_MEMORY || !give_back_set_aside(spaces)) return status;
  return pool_range_reserve(spaces->heap, size, unit, range);
}

vmm_status gmlake_space_reserve(gmlake_spaces *spaces, uint64_t size, uint64_t unit, bool with_room,
                                gmlake_space **made) {
  gmlake_space *space = calloc(1, sizeof *space);
  if (!space) return VMM_OUT_OF_MEMORY;
  uint64_t room = with_room ? room_for_one(spaces, unit) : 0;
  vmm_status status = reserve_range(spaces, size, unit, &room, &space->range);
  if (status != VMM_SUCCESS) {
    free(space);
    return status;
  }
  space->begin = space->end = space->range->address + room;
  space->birth = ++spaces->births;
  space->older = spaces->newest;
  if (spaces->newest)
    spaces->newest->newer = space;
  else
    spaces->oldest = space;
  spaces->newest = space;
  *made = space;
  return VMM_SUCCESS;
}

vmm_status gmlake_space_free(gmlake_spaces *spaces, gmlake_space *space) {
  spaces->lost_bytes -= space->range->mapped;
  vmm_status status = pool_range_free(spaces->heap, space->range);
  space_forget(spaces, space);
  return status;
}

vmm_status gmlake_space_map(gmlake_spaces *spaces, gmlake_space *space, bool in_front,
                            pool_chunk *const *chunks, uint64_t count, uint64_t size, vmm_address *address) {
  pool_range *range = space->range;
  if (size > (in_front ? gmlake_space_front_room(space) : gmlake_space_end_room(space)))
    return VMM_INVALID_VALUE;
  *address = in_front ? space->begin - size : space->end;
  uint64_t mapped_before = range->mapped;
  vmm_status status = pool_range_map(spaces->heap, range, *address - range->address, chunks, count);
  if (status == VMM_SUCCESS) {
    if (in_front)
      space->begin -= size;
    else
      space->end += size;
  } else if (range->mapped > mapped_before) {
    /* The driver would not undo a part: nothing can be mapped there any more. */
    spaces->lost_bytes += range->mapped - mapped_before;
    if (in_front)
      space->begin_closed = true;
    else
      space->end_closed = true;
    gmlake_index_edges(spaces, space);
  }
  return status;
}

/* Moves the ends of what is mapped to where something is. */
static void find_ends(gmlake_space *space) {
  const pool_range *range = space->range;
  while (space->end > space->begin && !gmlake_slot(range, space->end - range->unit)->chunk)
    space->end -= range->unit;
  while (space->begin < space->end && !gmlake_slot(range, space->begin)->chunk) space->begin += range->unit;
}

vmm_status gmlake_space_unmap(gmlake_spaces *spaces, gmlake_space *space, vmm_address begin,
                              vmm_address end) {
  pool_range *range = space->range;
  return pool_range_unmap(spaces->heap, range, begin - range->address, end - begin);
}

vmm_status gmlake_space_tidy(gmlake_spaces *spaces, gmlake_space *space) {
  if (space->range->mapped == 0) return gmlake_space_free(spaces, space);
  find_ends(space);
  gmlake_index_edges(spaces, space);
  return VMM_SUCCESS;
}

/* ---- places ---- */

void gmlake_places_discard(gmlake_spaces *spaces, gmlake_place *list) {
  for (gmlake_place *next; list; list = next) {
    next = list->next;
    pool_store_delete(&spaces->places, list);
  }
}

void gmlake_place_enter(gmlake_place *place, gmlake_place *after) {
  gmlake_space *space = place->space;
  gmlake_place *before = after ? after->next : space->first;
  place->size = place->block->base.size;
  place->indexed = place->free_on = GMLAKE_NOT_INDEXED;
  place->previous = after;
  place->next = before;
  if (after)
    after->next = place;
  else
    space->first = place;
  if (before)
    before->previous = place;
  else
    space->last = place;
}

void gmlake_place_delete(gmlake_spaces *spaces, gmlake_place *place) {
  gmlake_space *space = place->space;
  if (place->indexed != GMLAKE_NOT_INDEXED) gmlake_index_remove(spaces, place);
  if (place->previous)
    place->previous->next = place->next;
  else
    space->first = place->next;
  if (place->next)
    place->next->previous = place->previous;
  else
    space->last = place->previous;
  gmlake_place **link = &place->block->places;
  while (*link != place) link = &(*link)->other;
  *link = place->other;
  pool_store_delete(&spaces->places, place);
}

vmm_address gmlake_border_above(const pool_range *range, vmm_address address) {
  const pool_slot *slot = gmlake_slot(range, address);
  return slot->offset == 0 ? address : address - slot->offset * range->unit + slot->chunk->size;
}

vmm_address gmlake_border_below(const pool_range *range, vmm_address end) {
  const pool_slot *slot = gmlake_slot(range, end - range->unit);
  vmm_address begin = end - range->unit - slot->offset * range->unit;
  return begin + slot->chunk->size == end ? end : begin;
}
