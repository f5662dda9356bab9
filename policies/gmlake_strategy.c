/* GMLake's BestFit and its states S1 to S5 (the paper's Figure 9). */
#include "policies/gmlake.h"

/* ---- giving out, Update ---- */

vmm_status gmlake_give_pblock(gmlake *self, gmlake_pblock *pblock, uint64_t requested, vmm_address *address) {
  const gmlake_block *base = &pblock->base;
  vmm_status status =
      pool_heap_hand_out(&self->base.base.heap, base->address, base->size, requested, base->stream, pblock);
  if (status != VMM_SUCCESS) return status;
  gmlake_activate(self, pblock);
  gmlake_set_unmark(&base->class->pblocks, base);
  *address = base->address;
  return VMM_SUCCESS;
}

vmm_status gmlake_give_sblock(gmlake *self, gmlake_sblock *sblock, uint64_t requested, vmm_address *address) {
  const gmlake_block *base = &sblock->base;
  vmm_status status =
      pool_heap_hand_out(&self->base.base.heap, base->address, base->size, requested, base->stream, sblock);
  if (status != VMM_SUCCESS) return status;
  const gmlake_place *place;
  GMLAKE_FOR_EACH_PLACE(place, sblock) gmlake_activate(self, place->block);
  gmlake_sblock_hold(self, sblock);
  *address = base->address;
  return VMM_SUCCESS;
}

void gmlake_take_back_pblock(gmlake *self, gmlake_pblock *pblock) {
  gmlake_deactivate(self, pblock, pool_stream_clock_point(&self->base.clock, pblock->base.stream));
}

void gmlake_take_back_sblock(gmlake *self, gmlake_sblock *sblock) {
  uint64_t point = pool_stream_clock_point(&self->base.clock, sblock->base.stream);
  const gmlake_place *place;
  GMLAKE_FOR_EACH_PLACE(place, sblock) gmlake_deactivate(self, place->block, point);
  gmlake_sblock_let_go(self, sblock, point);
}

/* ---- S1 ---- */

/* An inactive block of a class; at most one of the two. */
static void exact_match(gmlake_class *class, gmlake_pblock **pblock, gmlake_sblock **sblock) {
  *pblock = (gmlake_pblock *)gmlake_class_free_pblock(class);
  *sblock = *pblock ? NULL : gmlake_class_inactive_sblock(class);
}

/* Gives out an inactive block of the size, or at most so much larger as is tolerated. false: there is none.
 */
static bool give_exact(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                       vmm_address *address, vmm_status *status) {
  gmlake_pblock *pblock = NULL;
  gmlake_sblock *sblock = NULL;
  gmlake_class *class = gmlake_class_find(&self->classes, stream, size);
  if (class) exact_match(class, &pblock, &sblock);
  if (!pblock && !sblock && self->settings.tolerance > 0) {
    for (class = gmlake_class_at_least(&self->classes, stream, size);
         class && !pblock && !sblock && class->size - size <= self->settings.tolerance;
         class = gmlake_class_larger(class)) {
      exact_match(class, &pblock, &sblock);
    }
  }
  if (!pblock && !sblock) return false;
  pool_operation_begin(&self->base.base.heap, self->base.state_operation[GMLAKE_S1], size);
  *status = pblock ? gmlake_give_pblock(self, pblock, requested, address)
                   : gmlake_give_sblock(self, sblock, requested, address);
  pool_operation_end(&self->base.base.heap);
  return true;
}

/* ---- Stitch after Split ---- */

/* Only eager stitching maps the old size of a split pBlock again; otherwise Split itself has left a
 * view. It serves later requests alone: if it fails, this one has been served all the same. */
static void stitch_old_size(gmlake *self, gmlake_pblock *front) {
  if (self->settings.stitching != GMLAKE_EAGER || !gmlake_reserve_members(self, 2)) return;
  self->members[0] = front;
  self->members[1] = front->next;
  gmlake_sblock *whole;
  gmlake_stitch(self, 2, front->base.size + front->next->base.size, front->base.stream, &whole);
}

/* ---- S2 ---- */

static vmm_status single_block(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                               vmm_address *address) {
  gmlake_pblock *pblock = (gmlake_pblock *)gmlake_classes_best_fit(&self->classes, stream, size);
  if (size < self->settings.frag_limit) return gmlake_give_pblock(self, pblock, requested, address);
  vmm_status status = gmlake_split(self, pblock, size, self->settings.stitching != GMLAKE_EAGER);
  if (status != VMM_SUCCESS) return status;
  status = gmlake_give_pblock(self, pblock, requested, address);
  if (status != VMM_SUCCESS) {
    gmlake_undo_cuts(self, 0);
    return status;
  }
  gmlake_keep_cuts(self);
  stitch_old_size(self, pblock);
  return VMM_SUCCESS;
}

/* ---- S3, S4 with a VA of its own for every stitch ---- */

/* The candidates in their order up to size bytes, into self->members. The last one may be larger than
 * what is missing. Returns how many; *bytes: what they have, UINT64_MAX without host memory. */
static uint64_t collect_candidates(gmlake *self, uint64_t size, vmm_stream stream, uint64_t *bytes) {
  const bool descending = self->settings.candidates == GMLAKE_LARGEST_FIRST;
  const bool by_age = self->settings.candidates == GMLAKE_OLDEST_FIRST;
  uint64_t count = 0, sum = 0;
  gmlake_cursor cursor;
  gmlake_place *run = NULL, *place = NULL;
  if (by_age) {
    gmlake_index_changes(self);
    run = place = gmlake_home_run_first(&self->spaces, stream);
  } else {
    gmlake_cursor_begin(&cursor, &self->classes, stream, descending);
  }
  while (sum < size) {
    gmlake_pblock *pblock;
    if (by_age) {
      if (!place) break;
      pblock = place->block;
      bool ends = place->address + pblock->base.size == run->address + run->row[GMLAKE_ROW_AT_HOME];
      if (ends) run = gmlake_home_run_next(run);
      place = ends ? run : place->next;
    } else {
      pblock = (gmlake_pblock *)gmlake_cursor_next(&cursor);
      if (!pblock || (descending && pblock->base.size < self->settings.frag_limit)) break;
      if (pblock->base.size < self->settings.frag_limit) continue;
    }
    if (!gmlake_reserve_members(self, count + 2)) {
      *bytes = UINT64_MAX;
      return 0;
    }
    self->members[count++] = pblock;
    sum += pblock->base.size;
  }
  *bytes = sum;
  return count;
}

/* S3: the candidates suffice, and the last one is split to fit. S4: what is missing is new. */
static vmm_status stitch_candidates(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                                    vmm_address *address) {
  uint64_t available, count = collect_candidates(self, size, stream, &available);
  gmlake_pblock *fresh = NULL, *split = NULL;
  gmlake_sblock *sblock;
  vmm_status status = available == UINT64_MAX ? VMM_OUT_OF_MEMORY : VMM_SUCCESS;
  if (status == VMM_SUCCESS && available > size) {
    split = self->members[count - 1];
    status = gmlake_split(self, split, split->base.size - (available - size),
                          self->settings.stitching != GMLAKE_EAGER);
  } else if (status == VMM_SUCCESS && available < size) {
    status = gmlake_grow(self, size - available, stream, &fresh);
    if (status == VMM_SUCCESS) self->members[count++] = fresh;
  }
  if (status == VMM_SUCCESS) status = gmlake_stitch(self, count, size, stream, &sblock);
  if (status == VMM_SUCCESS) {
    gmlake_keep_cuts(self);
    if (fresh) gmlake_deactivate(self, fresh, 0);
    status = gmlake_give_sblock(self, sblock, requested, address);
    if (status == VMM_SUCCESS) {
      if (split) stitch_old_size(self, split);
      return VMM_SUCCESS;
    }
    gmlake_unstitch(self, sblock);
  }
  gmlake_undo_cuts(self, 0);
  if (fresh) {
    /* What the driver does not take back is free memory. */
    if (!fresh->base.free) gmlake_deactivate(self, fresh, 0);
    gmlake_pblocks_return(self, fresh->places, fresh->base.address + fresh->base.size);
  }
  return status;
}

static vmm_status grow_alone(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                             vmm_address *address) {
  gmlake_pblock *fresh;
  vmm_status status = gmlake_grow(self, size, stream, &fresh);
  if (status != VMM_SUCCESS) return status;
  gmlake_deactivate(self, fresh, 0);
  status = gmlake_give_pblock(self, fresh, requested, address);
  if (status != VMM_SUCCESS) gmlake_pblocks_return(self, fresh->places, fresh->base.address + size);
  return status;
}

/* ---- BestFit ---- */

typedef vmm_status (*gmlake_action)(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                                    vmm_address *address);

static vmm_status in_state(gmlake *self, enum gmlake_state state, gmlake_action action, uint64_t size,
                           uint64_t requested, vmm_stream stream, vmm_address *address) {
  pool_operation_begin(&self->base.base.heap, self->base.state_operation[state], size);
  vmm_status status = action(self, size, requested, stream, address);
  if (status == VMM_SUCCESS) gmlake_stitch_free(self);
  pool_operation_end(&self->base.base.heap);
  return status;
}

/* S3 or S4. */
static vmm_status several_blocks(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                                 vmm_address *address) {
  const bool alone = self->stitchable[stream] == 0 || size < self->settings.frag_limit;
  if (alone || self->settings.grow_first) {
    vmm_status status = in_state(self, GMLAKE_S4, grow_alone, size, requested, stream, address);
    if (alone || status != VMM_OUT_OF_MEMORY) return status;
  }
  if (self->settings.stitching == GMLAKE_DEFERRED) {
    return gmlake_alloc_window(self, size, requested, stream, address);
  }
  const enum gmlake_state state = self->stitchable[stream] >= size ? GMLAKE_S3 : GMLAKE_S4;
  return in_state(self, state, stitch_candidates, size, requested, stream, address);
}

/* The whole of a larger block is taken without a Split if the waste is below the fragmentation limit. */
static bool fits_alone(const gmlake *self, const gmlake_block *larger, uint64_t size) {
  return size >= self->settings.frag_limit || larger->size - size < self->settings.frag_limit;
}

vmm_status gmlake_alloc_large(gmlake *self, uint64_t size, uint64_t requested, vmm_stream stream,
                              vmm_address *address) {
  vmm_status status = stream < self->streams ? VMM_SUCCESS : gmlake_prepare_stream(self, stream);
  if (status != VMM_SUCCESS) return status;
  for (bool borrowed = false;; borrowed = true) {
    if (give_exact(self, size, requested, stream, address, &status)) return status;
    const gmlake_block *larger = gmlake_classes_best_fit(&self->classes, stream, size);
    if (larger && fits_alone(self, larger, size)) {
      return in_state(self, GMLAKE_S2, single_block, size, requested, stream, address);
    }
    if (self->stitchable[stream] >= size || borrowed || !gmlake_borrow(self, size, stream)) {
      return several_blocks(self, size, requested, stream, address);
    }
  }
}
