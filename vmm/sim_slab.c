#include "vmm/sim_slab.h"

#include <stdlib.h>

void sim_slabs_destroy(sim_slabs *set) {
  for (uint32_t i = 0; i < set->used; i++) free(set->slabs[i].pieces);
  free(set->slabs);
  *set = (sim_slabs){0};
}

static void list_append(sim_slabs *set, sim_piece_id id) {
  sim_piece *piece = sim_slabs_piece(set, id);
  uint32_t units = piece->units;
  piece->older = set->newest[units];
  piece->newer = 0;
  if (piece->older) {
    sim_slabs_piece(set, piece->older)->newer = id;
  } else {
    set->oldest[units] = id;
    set->sizes_present[units / 64] |= UINT64_C(1) << units % 64;
  }
  set->newest[units] = id;
}

static void list_remove(sim_slabs *set, sim_piece_id id) {
  const sim_piece *piece = sim_slabs_piece(set, id);
  uint32_t units = piece->units;
  if (piece->older) {
    sim_slabs_piece(set, piece->older)->newer = piece->newer;
  } else {
    set->oldest[units] = piece->newer;
  }
  if (piece->newer) {
    sim_slabs_piece(set, piece->newer)->older = piece->older;
  } else {
    set->newest[units] = piece->older;
  }
  if (set->oldest[units] == 0) set->sizes_present[units / 64] &= ~(UINT64_C(1) << units % 64);
}

sim_piece_id sim_slabs_find(const sim_slabs *set, uint32_t units) {
  uint32_t word = units / 64;
  uint64_t present = set->sizes_present[word] & (UINT64_MAX << units % 64);
  while (present == 0) {
    if (++word > SIM_SLAB_UNITS / 64) return 0;
    present = set->sizes_present[word];
  }
  return set->oldest[word * 64 + (uint32_t)__builtin_ctzll(present)];
}

bool sim_slabs_prepare(sim_slabs *set) {
  if (set->first_unused) return true;
  if (set->used == set->capacity) {
    if (set->capacity >= UINT32_MAX / SIM_SLAB_UNITS / 2) return false;
    uint32_t capacity = set->capacity ? set->capacity * 2 : 4;
    sim_slab *grown = realloc(set->slabs, capacity * sizeof *grown);
    if (!grown) return false;
    set->slabs = grown;
    set->capacity = capacity;
  }
  sim_piece *pieces = calloc(SIM_SLAB_UNITS, sizeof *pieces);
  if (!pieces) return false;
  set->slabs[set->used] = (sim_slab){.pieces = pieces};
  set->first_unused = ++set->used;
  return true;
}

uint32_t sim_slabs_add(sim_slabs *set, uint64_t start) {
  uint32_t number = set->first_unused - 1;
  sim_slab *slab = &set->slabs[number];
  set->first_unused = slab->next_unused;
  slab->start = start;
  slab->pieces[0] = (sim_piece){.units = SIM_SLAB_UNITS};
  list_append(set, number * SIM_SLAB_UNITS + 1);
  return number;
}

/* The piece after this one; 0: this is the slab's last. */
static sim_piece_id next_of(const sim_slabs *set, sim_piece_id id) {
  uint32_t units = sim_slabs_piece(set, id)->units;
  return (id - 1) % SIM_SLAB_UNITS + units < SIM_SLAB_UNITS ? id + units : 0;
}

/* Tells the piece after this one how long this one is. */
static void tell_next(const sim_slabs *set, sim_piece_id id) {
  sim_piece_id next = next_of(set, id);
  if (next) sim_slabs_piece(set, next)->units_before = sim_slabs_piece(set, id)->units;
}

uint64_t sim_slabs_take(sim_slabs *set, sim_piece_id id, uint32_t units) {
  sim_piece *piece = sim_slabs_piece(set, id);
  list_remove(set, id);
  if (piece->units > units) {
    sim_piece_id rest = id + units;
    *sim_slabs_piece(set, rest) =
        (sim_piece){.units = (uint16_t)(piece->units - units), .units_before = (uint16_t)units};
    piece->units = (uint16_t)units;
    tell_next(set, rest);
    list_append(set, rest);
  }
  piece->taken = true;
  return sim_slabs_address(set, id);
}

/* Makes one piece of a free piece and the free one after it, neither in a list. */
static void absorb_next(sim_slabs *set, sim_piece_id id) {
  sim_piece *piece = sim_slabs_piece(set, id);
  sim_piece *next = sim_slabs_piece(set, id + piece->units);
  piece->units = (uint16_t)(piece->units + next->units);
  next->units = 0;
  tell_next(set, id);
}

/* The piece before this one if it is free; 0: it is not. */
static sim_piece_id free_before(const sim_slabs *set, sim_piece_id id) {
  uint32_t units = sim_slabs_piece(set, id)->units_before;
  return units && !sim_slabs_piece(set, id - units)->taken ? id - units : 0;
}

static sim_piece_id free_after(const sim_slabs *set, sim_piece_id id) {
  sim_piece_id next = next_of(set, id);
  return next && !sim_slabs_piece(set, next)->taken ? next : 0;
}

bool sim_slabs_is_last(const sim_slabs *set, sim_piece_id id) {
  uint32_t units = sim_slabs_piece(set, id)->units;
  sim_piece_id before = free_before(set, id), after = free_after(set, id);
  if (before) units += sim_slabs_piece(set, before)->units;
  if (after) units += sim_slabs_piece(set, after)->units;
  return units == SIM_SLAB_UNITS;
}

void sim_slabs_give_back(sim_slabs *set, sim_piece_id id) {
  sim_slabs_piece(set, id)->taken = false;
  sim_piece_id after = free_after(set, id), before = free_before(set, id);
  if (after) {
    list_remove(set, after);
    absorb_next(set, id);
  }
  if (before) {
    list_remove(set, before);
    absorb_next(set, before);
    id = before;
  }
  if (sim_slabs_piece(set, id)->units < SIM_SLAB_UNITS) {
    list_append(set, id);
    return;
  }
  uint32_t number = (id - 1) / SIM_SLAB_UNITS;
  set->slabs[number].next_unused = set->first_unused;
  set->first_unused = number + 1;
}

sim_piece_id sim_slabs_piece_at(const sim_slabs *set, uint32_t slab, uint64_t address) {
  uint32_t unit = (uint32_t)((address - set->slabs[slab].start) / SIM_UNIT_BYTES);
  const sim_piece *pieces = set->slabs[slab].pieces;
  while (pieces[unit].units == 0) unit--;
  return slab * SIM_SLAB_UNITS + unit + 1;
}
