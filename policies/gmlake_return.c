/* GMLake's memory goes back to the driver. */
#include "policies/gmlake.h"

vmm_status gmlake_pblocks_return(gmlake *self, gmlake_place *first, vmm_address end) {
  pool_heap *heap = &self->base.base.heap;
  gmlake_space *space = first->space;
  const vmm_address begin = first->address;
  uint64_t count = 0;
  if (!gmlake_reserve_chunks(self, (end - begin) / self->settings.chunk)) return VMM_OUT_OF_MEMORY;
  for (vmm_address at = begin; at < end; at += self->chunks[count++]->size) {
    self->chunks[count] = gmlake_slot(space->range, at)->chunk;
  }
  /* The index looks at chunks: it has to forget them first. */
  gmlake_index_changes(self);
  for (gmlake_place *place = first; place && place->address < end; place = place->next)
    gmlake_pblock_unindex(self, place->block);
  vmm_status status = gmlake_space_unmap(&self->spaces, space, begin, end);
  if (status != VMM_SUCCESS) {
    for (gmlake_place *place = first; place && place->address < end; place = place->next)
      gmlake_pblock_changes(self, place->block);
    return status;
  }
  for (uint64_t i = 0; i < count; i++) {
    vmm_status released = pool_chunk_give_up(heap, self->chunks[i]);
    if (status == VMM_SUCCESS) status = released;
  }
  heap->statistics.driver_frees++;
  for (gmlake_place *place = first, *next; place && place->address < end; place = next) {
    next = place->next;
    gmlake_pblock *pblock = place->block;
    gmlake_block *base = &pblock->base;
    if (base->free) {
      self->stitchable[base->stream] -= gmlake_stitchable(self, base->size);
      self->free_count--;
      self->free_bytes -= base->size;
    }
    self->pblock_count--;
    self->pblock_bytes -= base->size;
    if (pblock->previous) pblock->previous->next = pblock->next;
    if (pblock->next) pblock->next->previous = pblock->previous;
    gmlake_set_remove(&pblock->base.class->pblocks, base);
    gmlake_place_delete(&self->spaces, place);
    pool_store_delete(&self->pblock_store, pblock);
  }
  vmm_status tidied = gmlake_space_tidy(&self->spaces, space);
  return status == VMM_SUCCESS ? tidied : status;
}

static bool may_return(const gmlake_place *place, vmm_stream kept) {
  return place && place->home && place->block->base.free && place->block->base.stream != kept;
}

/* The end of the smallest row of free pBlocks from this place on that is made of whole chunks, which are
 * mapped nowhere else; 0 if there is none. */
static vmm_address returnable_end(const gmlake_place *place, vmm_stream kept) {
  const pool_range *range = place->space->range;
  vmm_address end = place->address;
  if (gmlake_slot(range, end)->offset != 0) return 0;
  do {
    if (!may_return(place, kept) || place->address != end) return 0;
    for (uint64_t i = 0; i < place->block->base.size / range->unit; i++) {
      if (gmlake_slot(range, end)[i].chunk->mappings > 1) return 0;
    }
    end += place->block->base.size;
    place = place->next;
  } while (gmlake_border_below(range, end) != end);
  return end;
}

/* Splits the free pBlocks of a space so that those made of whole chunks can go. */
static void cut_at_chunks(gmlake *self, const gmlake_space *space, vmm_stream kept) {
  for (gmlake_place *place = space->first; place; place = place->next) {
    if (!may_return(place, kept)) continue;
    const pool_range *range = space->range;
    vmm_address border = gmlake_border_above(range, place->address),
                end = place->address + place->block->base.size;
    if (border == place->address) border = gmlake_border_below(range, end);
    if (border <= place->address || border >= end) continue;
    if (gmlake_split(self, place->block, border - place->address, false) != VMM_SUCCESS) return;
    gmlake_keep_cuts(self);
  }
}

/* Are its pBlocks in use, or of the stream? */
static bool is_all_of(const gmlake_sblock *sblock, vmm_stream kept) {
  const gmlake_place *place;
  GMLAKE_FOR_EACH_PLACE(place, sblock) {
    if (may_return(place->block->places, kept)) return false;
  }
  return true;
}

vmm_status gmlake_return_memory(gmlake *self, vmm_stream kept) {
  pool_heap *heap = &self->base.base.heap;
  heap->statistics.host_waits++;
  vmm_status first = vmm_synchronize(heap->driver);
  if (first != VMM_SUCCESS) return first;
  pool_stream_clock_all_passed(&self->base.clock);
  for (gmlake_sblock *sblock = self->sblocks.oldest, *newer; sblock; sblock = newer) {
    newer = sblock->newer;
    if (sblock->base.stream == kept && is_all_of(sblock, kept)) continue;
    vmm_status status = gmlake_unstitch(self, sblock);
    if (first == VMM_SUCCESS) first = status;
  }
  vmm_status status = gmlake_unmap_unused(self);
  if (first == VMM_SUCCESS) first = status;
  for (gmlake_space *space = self->spaces.oldest, *newer; space; space = newer) {
    newer = space->newer;
    if (self->settings.largest_chunk > self->settings.chunk) cut_at_chunks(self, space, kept);
    for (gmlake_place *place = space->first, *next; place; place = next) {
      next = place->next;
      vmm_address end = may_return(place, kept) ? returnable_end(place, kept) : 0;
      if (end == 0) continue;
      while (next && next->address < end) next = next->next;
      status = gmlake_pblocks_return(self, place, end);
      if (first == VMM_SUCCESS) first = status;
    }
  }
  gmlake_classes_forget_empty(&self->classes);
  return first;
}
