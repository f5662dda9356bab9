/* S3 and S4 with as few mappings as possible.
 *
 * Free pBlocks that lie side by side somewhere, at home or where they were stitched before, are a
 * block already. Otherwise the longest such row at an end of a space with room is extended where it lies:
 * other free pBlocks are mapped a second time next to it, oldest first, and what is still missing is
 * allocated there, so that new memory is mapped once. Which pBlocks serve a request differs from what the
 * largest first would give, but not how much memory is held: S4 still takes all that is free before it
 * allocates. */
#include <stdlib.h>

#include "policies/gmlake.h"

/* Free memory at home that is to be mapped again: whole chunks from map_begin to map_end, of which the
 * block uses what lies between begin and end. */
typedef struct gmlake_piece {
  gmlake_place *place; /* of the pBlock at begin, once that begins there */
  vmm_address begin, end, map_begin, map_end;
} gmlake_piece;

/* Where a block of size bytes is to lie. */
typedef struct window_plan {
  vmm_stream stream;
  uint64_t size;
  gmlake_place *anchor; /* NULL: a new space */
  uint64_t anchor_size;
  bool in_front;         /* the anchor is extended in front */
  uint64_t piece_count;  /* in self->pieces, the first one lies next to the anchor or first */
  uint64_t mapped_bytes; /* of the pieces */
  uint64_t missing;      /* to be allocated */
} window_plan;

/* ---- the plan ---- */

static bool add_piece(gmlake *self, window_plan *plan, gmlake_piece piece) {
  if (plan->piece_count == self->piece_capacity) {
    uint64_t capacity = plan->piece_count * 2 + 16;
    gmlake_piece *larger = realloc(self->pieces, capacity * sizeof *larger);
    if (!larger) return false;
    self->pieces = larger;
    self->piece_capacity = capacity;
  }
  self->pieces[plan->piece_count++] = piece;
  plan->mapped_bytes += piece.map_end - piece.map_begin;
  plan->missing -= piece.end - piece.begin;
  return true;
}

/* Takes what is needed of the whole chunks in a row of free pBlocks at home. */
static bool take_row(gmlake *self, window_plan *plan, gmlake_place *place, vmm_address row_end) {
  const pool_range *range = place->space->range;
  gmlake_piece piece = {.place = place};
  piece.begin = piece.map_begin = gmlake_border_above(range, place->address);
  piece.end = piece.map_end = gmlake_border_below(range, row_end);
  if (piece.begin >= piece.end) return true;
  if (piece.end - piece.begin > plan->missing) {
    /* What is too much stays at the outer end of the block. */
    if (plan->in_front) {
      piece.begin = piece.end - plan->missing;
      piece.map_begin = piece.begin - gmlake_slot(range, piece.begin)->offset * range->unit;
    } else {
      piece.end = piece.begin + plan->missing;
      const pool_slot *last = gmlake_slot(range, piece.end - range->unit);
      piece.map_end = piece.end - (last->offset + 1) * range->unit + last->chunk->size;
    }
  }
  return add_piece(self, plan, piece);
}

/* Free memory at home that the anchor does not have, from the oldest on. false: no host memory. */
static bool plan_pieces(gmlake *self, window_plan *plan) {
  for (gmlake_place *run = gmlake_home_run_first(&self->spaces, plan->stream); run && plan->missing > 0;
       run = gmlake_home_run_next(run)) {
    const vmm_address run_end = run->address + run->row[GMLAKE_ROW_AT_HOME];
    gmlake_place *row = NULL;
    vmm_address row_end = run->address;
    for (gmlake_place *place = run; place && place->address < run_end && plan->missing > 0;
         place = place->next) {
      if (place->block->stamp == self->stamp) {
        if (row && !take_row(self, plan, row, row_end)) return false;
        row = NULL;
        continue;
      }
      if (!row) row = place;
      row_end = place->address + place->block->base.size;
    }
    if (row && plan->missing > 0 && !take_row(self, plan, row, row_end)) return false;
  }
  return true;
}

static bool make_plan(gmlake *self, window_plan *plan) {
  const uint64_t overhang = self->settings.largest_chunk - self->settings.chunk;
  self->stamp++;
  plan->missing = plan->size;
  plan->anchor = gmlake_run_longest_edge(&self->spaces, plan->stream, plan->size + overhang, &plan->in_front);
  if (plan->anchor) {
    plan->anchor_size = plan->anchor->row[GMLAKE_RUN];
    plan->missing -= plan->anchor_size;
    const vmm_address end = plan->anchor->address + plan->anchor_size;
    for (gmlake_place *place = plan->anchor; place && place->address < end; place = place->next) {
      place->block->stamp = self->stamp;
    }
  }
  return plan_pieces(self, plan);
}

/* ---- carrying it out ---- */

/* Splits pBlocks so that every piece consists of whole ones. */
static vmm_status cut_pieces(gmlake *self, const window_plan *plan) {
  for (uint64_t i = 0; i < plan->piece_count; i++) {
    gmlake_piece *piece = &self->pieces[i];
    vmm_status status = gmlake_cut_at(self, &piece->place, piece->begin, true);
    if (status != VMM_SUCCESS) return status;
    gmlake_place *last = piece->place;
    while (last->address + last->block->base.size < piece->end) last = last->next;
    uint64_t used = piece->end - last->address;
    if (used < last->block->base.size) status = gmlake_split(self, last->block, used, true);
    if (status != VMM_SUCCESS) return status;
  }
  return VMM_SUCCESS;
}

/* Places for the pBlocks of a piece, linked by next. */
static bool new_places(gmlake *self, const gmlake_piece *piece, gmlake_place ***link) {
  for (gmlake_place *home = piece->place; home && home->address < piece->end; home = home->next) {
    gmlake_place *place = gmlake_place_new(&self->spaces);
    if (!place) return false;
    place->block = home->block;
    place->address = home->address - piece->map_begin; /* within the piece, for now */
    **link = place;
    *link = &place->next;
  }
  return true;
}

static void gather_chunks(gmlake *self, const gmlake_piece *piece, uint64_t *count) {
  for (vmm_address at = piece->map_begin; at < piece->map_end; at += self->chunks[(*count)++]->size) {
    self->chunks[*count] = gmlake_slot(piece->place->space->range, at)->chunk;
  }
}

/* The number of the piece that lies i-th by address: in front of the anchor the last one, which may be
 * used in part, comes first. */
static uint64_t by_address(const window_plan *plan, uint64_t i) {
  if (!plan->in_front) return i;
  return i == 0 ? plan->piece_count - 1 : i - 1;
}

/* Does one of the pBlocks of the pieces lie in a section already? */
static bool lies_in_section(const gmlake *self, const window_plan *plan, const gmlake_space *space,
                            uint32_t section) {
  for (uint64_t i = 0; i < plan->piece_count; i++) {
    const gmlake_piece *piece = &self->pieces[i];
    for (const gmlake_place *home = piece->place; home && home->address < piece->end; home = home->next) {
      for (const gmlake_place *place = home->block->places; place; place = place->other) {
        if (place->space == space && place->section == section) return true;
      }
    }
  }
  return false;
}

/* Takes the anchor out of the index, where it ends its space no longer. Returns the section for what
 * is put next to it: a pBlock may lie in a space twice, but not in one section; then a new one begins with
 * the anchor. */
static uint32_t leave_edge(gmlake *self, const window_plan *plan) {
  if (!plan->anchor) return 0;
  gmlake_space *space = plan->anchor->space;
  uint32_t section = plan->anchor->section;
  if (lies_in_section(self, plan, space, section)) section = ++space->sections;
  const vmm_address end = plan->anchor->address + plan->anchor_size;
  for (gmlake_place *place = plan->anchor; place && place->address < end; place = place->next) {
    if (place->indexed != GMLAKE_NOT_INDEXED) gmlake_index_remove(&self->spaces, place);
    place->section = section;
    gmlake_pblock_changes(self, place->block);
  }
  return section;
}

/* What carrying out a plan needs from the host, and has got from the driver. */
typedef struct window_work {
  gmlake_space *space;
  gmlake_place *places; /* of the pieces, by address, linked by next */
  gmlake_pblock *fresh;
  gmlake_sblock *sblock;
  vmm_address alias_begin; /* where the pieces are mapped */
  bool new_space, aliased;
} window_work;

static vmm_status prepare_work(gmlake *self, const window_plan *plan, window_work *work) {
  gmlake_place **link = &work->places;
  for (uint64_t i = 0; i < plan->piece_count; i++) {
    if (!new_places(self, &self->pieces[by_address(plan, i)], &link)) return VMM_OUT_OF_MEMORY;
  }
  if (!gmlake_reserve_chunks(self, plan->mapped_bytes / self->settings.chunk)) return VMM_OUT_OF_MEMORY;
  vmm_status status = VMM_SUCCESS;
  if (plan->missing > 0) status = gmlake_pblock_new(self, plan->missing, plan->stream, &work->fresh);
  if (status == VMM_SUCCESS) status = gmlake_sblock_new(self, plan->size, plan->stream, &work->sblock);
  return status;
}

/* Maps the pieces a second time, then what is new. */
static vmm_status map_work(gmlake *self, const window_plan *plan, window_work *work, uint32_t section) {
  pool_heap *heap = &self->base.base.heap;
  vmm_status status = VMM_SUCCESS;
  pool_operation_begin(heap, self->base.stitch_operation, plan->size);
  if (plan->anchor) {
    work->space = plan->anchor->space;
  } else {
    status = gmlake_reserve_space(self, plan->mapped_bytes + plan->missing, &work->space);
    work->new_space = status == VMM_SUCCESS;
  }
  if (status == VMM_SUCCESS && plan->piece_count > 0) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < plan->piece_count; i++)
      gather_chunks(self, &self->pieces[by_address(plan, i)], &count);
    status = gmlake_space_map(&self->spaces, work->space, plan->in_front, self->chunks, count,
                              plan->mapped_bytes, &work->alias_begin);
    if (status == VMM_SUCCESS) {
      work->aliased = true;
      self->spaces.alias_bytes += plan->mapped_bytes;
      self->spaces.alias_mappings += count;
    }
  }
  pool_operation_end(heap);
  if (status == VMM_SUCCESS && work->fresh) {
    pool_operation_begin(heap, POOL_OPERATION_GROW, plan->missing);
    status = gmlake_pblock_allocate(self, work->fresh, work->space, plan->in_front, section);
    pool_operation_end(heap);
  }
  return status;
}

/* Enters the places of the pieces; the pBlocks of a piece keep their distance. */
static void enter_places(gmlake *self, const window_plan *plan, window_work *work, uint32_t section) {
  gmlake_place *place = work->places;
  gmlake_place *after = plan->in_front ? (work->fresh ? work->fresh->places : NULL)
                        : work->fresh  ? work->fresh->places->previous
                                       : work->space->last;
  vmm_address base = work->alias_begin;
  for (uint64_t i = 0; i < plan->piece_count; i++) {
    const gmlake_piece *piece = &self->pieces[by_address(plan, i)];
    for (const gmlake_place *home = piece->place; home && home->address < piece->end; home = home->next) {
      gmlake_place *next = place->next;
      place->space = work->space;
      place->section = section;
      place->address += base;
      gmlake_place_enter(place, after);
      place->other = place->block->places->other;
      place->block->places->other = place;
      gmlake_pblock_changes(self, place->block);
      after = place;
      place = next;
    }
    base += piece->map_end - piece->map_begin;
  }
  work->places = NULL;
}

/* The first place of the block. */
static gmlake_place *first_of(const window_plan *plan, const window_work *work, gmlake_place *first_alias) {
  if (plan->anchor && !plan->in_front) return plan->anchor;
  if (plan->in_front && work->fresh) return work->fresh->places;
  return first_alias ? first_alias : work->fresh->places;
}

static void abandon_work(gmlake *self, const window_plan *plan, window_work *work) {
  gmlake_places_discard(&self->spaces, work->places);
  if (work->fresh) gmlake_pblock_discard(self, work->fresh);
  if (work->sblock) gmlake_sblock_discard(self, work->sblock);
  if (work->aliased) {
    const vmm_address end = work->alias_begin + plan->mapped_bytes;
    if (gmlake_space_unmap(&self->spaces, work->space, work->alias_begin, end) != VMM_SUCCESS) {
      self->spaces.lost_bytes += plan->mapped_bytes;
    }
    self->spaces.alias_bytes -= plan->mapped_bytes;
    for (uint64_t i = 0; i < plan->piece_count; i++) {
      uint64_t count = 0;
      gather_chunks(self, &self->pieces[i], &count);
      self->spaces.alias_mappings -= count;
    }
  }
  if (work->new_space || work->aliased) gmlake_space_tidy(&self->spaces, work->space);
}

static vmm_status carry_out(gmlake *self, const window_plan *plan, uint64_t requested, vmm_address *address) {
  window_work work = {0};
  vmm_status status = cut_pieces(self, plan);
  if (status == VMM_SUCCESS) status = prepare_work(self, plan, &work);
  uint32_t section = 0;
  if (status == VMM_SUCCESS) {
    section = leave_edge(self, plan);
    status = map_work(self, plan, &work, section);
  }
  if (status != VMM_SUCCESS) {
    abandon_work(self, plan, &work);
    gmlake_undo_cuts(self, 0);
    return status;
  }
  gmlake_place *first_alias = work.places;
  enter_places(self, plan, &work, section);
  if (work.fresh) gmlake_deactivate(self, work.fresh, 0);
  gmlake_sblock_enter(self, work.sblock, first_of(plan, &work, first_alias));
  gmlake_keep_cuts(self);
  status = gmlake_give_sblock(self, work.sblock, requested, address);
  if (status == VMM_SUCCESS) return VMM_SUCCESS;
  gmlake_unstitch(self, work.sblock);
  if (work.fresh) gmlake_pblocks_return(self, work.fresh->places, work.fresh->base.address + plan->missing);
  return status;
}

/* Gives out the front of a run that is long enough: no driver call. */
static vmm_status give_run(gmlake *self, gmlake_place *run, uint64_t size, uint64_t requested,
                           vmm_address *address) {
  const vmm_address end = run->address + size;
  gmlake_place *last = run;
  while (last->address + last->block->base.size < end) last = last->next;
  vmm_status status = VMM_SUCCESS;
  if (last->address + last->block->base.size > end) {
    status = gmlake_split(self, last->block, end - last->address, true);
  }
  gmlake_sblock *sblock = NULL;
  if (status == VMM_SUCCESS) status = gmlake_sblock_new(self, size, run->block->base.stream, &sblock);
  if (status == VMM_SUCCESS) {
    gmlake_sblock_enter(self, sblock, run);
    status = gmlake_give_sblock(self, sblock, requested, address);
    if (status != VMM_SUCCESS) gmlake_unstitch(self, sblock);
  }
  if (status == VMM_SUCCESS)
    gmlake_keep_cuts(self);
  else
    gmlake_undo_cuts(self, 0);
  return status;
}

vmm_status gmlake_alloc_window(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                               vmm_address *address) {
  gmlake_index_changes(self);
  window_plan plan = {.stream = stream, .size = size};
  gmlake_place *run = gmlake_run_best_fit(&self->spaces, stream, size);
  if (!run && !make_plan(self, &plan)) return VMM_OUT_OF_MEMORY;
  pool_operation_begin(&self->base.base.heap,
                       self->base.state_operation[plan.missing > 0 ? GMLAKE_S4 : GMLAKE_S3], size);
  vmm_status status = VMM_OUT_OF_MEMORY;
  if (run) {
    status = give_run(self, run, size, requested, address);
  } else if (pool_heap_within_limit(&self->base.base.heap, plan.missing)) {
    status = carry_out(self, &plan, requested, address);
  }
  if (status == VMM_SUCCESS) gmlake_stitch_free(self);
  pool_operation_end(&self->base.base.heap);
  return status;
}
