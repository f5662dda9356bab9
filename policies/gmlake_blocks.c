/* GMLake's pBlocks: Alloc and Split, what the index is told of them, and those of other streams. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/gmlake.h"

/* pBlocks of another stream that are looked at in vain before it is given up. */
enum { REFUSALS = 64 };

enum { CHAINS = 8 }; /* lists that are walked at a time */

/* ---- room for the work ---- */

vmm_status gmlake_prepare_stream(gmlake *self, vmm_stream stream) {
  if (stream >= POOL_STREAM_LIMIT) return VMM_INVALID_VALUE;
  if (stream >= self->streams) {
    uint32_t streams = stream + 4;
    uint64_t *stitchable = realloc(self->stitchable, streams * sizeof *stitchable);
    if (!stitchable) return VMM_OUT_OF_MEMORY;
    memset(stitchable + self->streams, 0, (streams - self->streams) * sizeof *stitchable);
    self->stitchable = stitchable;
    self->streams = streams;
  }
  return pool_stream_clock_prepare(&self->base.clock, self->streams - 1);
}

/* Room for count items of a size in a growing array. */
static bool reserve(void **items, uint64_t *capacity, uint64_t count, size_t size) {
  if (count <= *capacity) return true;
  uint64_t larger = count + count / 2 + 16;
  void *moved = realloc(*items, larger * size);
  if (!moved) return false;
  *items = moved;
  *capacity = larger;
  return true;
}

bool gmlake_reserve_chunks(gmlake *self, uint64_t count) {
  return reserve((void **)&self->chunks, &self->chunk_capacity, count, sizeof *self->chunks);
}

bool gmlake_reserve_members(gmlake *self, uint64_t count) {
  return reserve((void **)&self->members, &self->member_capacity, count, sizeof *self->members);
}

vmm_status gmlake_reserve_space(gmlake *self, uint64_t size, gmlake_space **space) {
  bool with_room = self->settings.stitching == GMLAKE_DEFERRED;
  vmm_status status;
  do {
    status = gmlake_space_reserve(&self->spaces, size, self->settings.chunk, with_room, space);
  } while (status == VMM_OUT_OF_MEMORY && gmlake_make_address_room(self));
  return status;
}

/* ---- Alloc ---- */

vmm_status gmlake_pblock_new(gmlake *self, uint64_t size, vmm_stream stream, gmlake_pblock **made) {
  gmlake_pblock *pblock = pool_store_new(&self->pblock_store, sizeof *pblock);
  gmlake_place *place = gmlake_place_new(&self->spaces);
  gmlake_class *class = gmlake_class_get(&self->classes, stream, size);
  if (!pblock || !place || !class || !gmlake_set_prepare(&class->pblocks, 1)) {
    pool_store_delete(&self->pblock_store, pblock);
    pool_store_delete(&self->spaces.places, place);
    return VMM_OUT_OF_MEMORY;
  }
  pblock->base = (gmlake_block){.size = size, .class = class, .stream = stream};
  pblock->places = place;
  place->block = pblock;
  place->home = true;
  *made = pblock;
  return VMM_SUCCESS;
}

void gmlake_pblock_discard(gmlake *self, gmlake_pblock *pblock) {
  pool_store_delete(&self->spaces.places, pblock->places);
  pool_store_delete(&self->pblock_store, pblock);
}

/* The sizes of the chunks for size bytes: as large as allowed. Returns how many. */
static uint64_t chunk_count(const gmlake *self, uint64_t size) {
  uint64_t largest = self->settings.largest_chunk;
  return (size + largest - 1) / largest;
}

static vmm_status create_chunks(gmlake *self, uint64_t size, void *owner) {
  const uint64_t largest = self->settings.largest_chunk, count = chunk_count(self, size);
  if (!gmlake_reserve_chunks(self, count)) return VMM_OUT_OF_MEMORY;
  if (largest == self->settings.chunk) {
    return pool_chunks_create(&self->base.base.heap, largest, count, owner, self->chunks);
  }
  uint64_t *sizes = malloc(count * sizeof *sizes);
  if (!sizes) return VMM_OUT_OF_MEMORY;
  for (uint64_t i = 0; i < count; i++) sizes[i] = i + 1 < count ? largest : size - i * largest;
  vmm_status status = pool_chunks_create_sizes(&self->base.base.heap, sizes, count, owner, self->chunks);
  free(sizes);
  return status;
}

vmm_status gmlake_pblock_allocate(gmlake *self, gmlake_pblock *pblock, gmlake_space *space, bool in_front,
                                  uint32_t section) {
  pool_heap *heap = &self->base.base.heap;
  const uint64_t size = pblock->base.size;
  vmm_address address = 0;
  vmm_status status = create_chunks(self, size, space->range);
  if (status == VMM_SUCCESS) {
    uint64_t count = chunk_count(self, size);
    status = gmlake_space_map(&self->spaces, space, in_front, self->chunks, count, size, &address);
    for (uint64_t i = 0; status != VMM_SUCCESS && i < count; i++) pool_chunk_give_up(heap, self->chunks[i]);
  }
  if (status != VMM_SUCCESS) return status;
  gmlake_place *place = pblock->places;
  pblock->base.address = place->address = address;
  place->space = space;
  place->section = section;
  gmlake_place_enter(place, in_front ? NULL : space->last);
  gmlake_set_add(&pblock->base.class->pblocks, &pblock->base);
  self->pblock_count++;
  self->pblock_bytes += size;
  return VMM_SUCCESS;
}

vmm_status gmlake_grow(gmlake *self, uint64_t size, vmm_stream stream, gmlake_pblock **made) {
  gmlake_pblock *pblock;
  gmlake_space *space;
  if (!pool_heap_within_limit(&self->base.base.heap, size)) return VMM_OUT_OF_MEMORY;
  vmm_status status = gmlake_pblock_new(self, size, stream, &pblock);
  if (status != VMM_SUCCESS) return status;
  pool_operation_begin(&self->base.base.heap, POOL_OPERATION_GROW, size);
  status = gmlake_reserve_space(self, size, &space);
  if (status == VMM_SUCCESS) {
    status = gmlake_pblock_allocate(self, pblock, space, false, 0);
    if (status != VMM_SUCCESS) gmlake_space_free(&self->spaces, space);
  }
  pool_operation_end(&self->base.base.heap);
  if (status != VMM_SUCCESS) {
    gmlake_pblock_discard(self, pblock);
    return status;
  }
  *made = pblock;
  return VMM_SUCCESS;
}

/* ---- Split ---- */

void gmlake_pblock_unindex(gmlake *self, gmlake_pblock *pblock) {
  for (gmlake_place *place = pblock->places; place; place = place->other) {
    place->free_on = GMLAKE_NOT_INDEXED;
    if (place->indexed != GMLAKE_NOT_INDEXED) gmlake_index_remove(&self->spaces, place);
  }
}

static void join_class(gmlake *self, gmlake_pblock *pblock, gmlake_class *class) {
  pblock->base.class = class;
  gmlake_set_add(&class->pblocks, &pblock->base);
  if (pblock->base.free) {
    gmlake_set_mark(&class->pblocks, &pblock->base);
    gmlake_class_has_free(&self->classes, class);
  }
}

/* Another place for every one of the pBlock's, linked by other. */
static bool copy_places(gmlake *self, const gmlake_pblock *pblock, gmlake_pblock *rest) {
  gmlake_place **link = &rest->places;
  for (const gmlake_place *place = pblock->places; place; place = place->other) {
    gmlake_place *copy = gmlake_place_new(&self->spaces);
    if (!copy) return false;
    *link = copy;
    link = &copy->other;
  }
  return true;
}

static void discard_places(gmlake *self, gmlake_pblock *pblock) {
  for (gmlake_place *place = pblock->places, *next; place; place = next) {
    next = place->other;
    pool_store_delete(&self->spaces.places, place);
  }
}

typedef struct split_plan {
  gmlake_pblock *rest;
  gmlake_class *front_class, *rest_class;
  gmlake_sblock *whole;
} split_plan;

static bool prepare_split(gmlake *self, const gmlake_pblock *pblock, uint64_t size, bool keep_size,
                          split_plan *plan) {
  const vmm_stream stream = pblock->base.stream;
  *plan = (split_plan){.rest = pool_store_new(&self->pblock_store, sizeof *plan->rest),
                       .front_class = gmlake_class_get(&self->classes, stream, size),
                       .rest_class = gmlake_class_get(&self->classes, stream, pblock->base.size - size)};
  /* Two may join one class; and the old one must have room if the split is undone. */
  if (plan->rest && plan->front_class && plan->rest_class &&
      gmlake_set_prepare(&plan->front_class->pblocks, 2) &&
      gmlake_set_prepare(&plan->rest_class->pblocks, 2) &&
      gmlake_set_prepare(&pblock->base.class->pblocks, 1) && copy_places(self, pblock, plan->rest) &&
      (!keep_size || gmlake_sblock_new(self, pblock->base.size, stream, &plan->whole) == VMM_SUCCESS)) {
    return true;
  }
  if (plan->rest) discard_places(self, plan->rest);
  pool_store_delete(&self->pblock_store, plan->rest);
  return false;
}

vmm_status gmlake_split(gmlake *self, gmlake_pblock *pblock, uint64_t size, bool keep_size) {
  split_plan plan;
  if (!reserve((void **)&self->cuts, &self->cut_capacity, self->cut_count + 1, sizeof *self->cuts) ||
      !prepare_split(self, pblock, size, keep_size, &plan)) {
    return VMM_OUT_OF_MEMORY;
  }
  pool_operation_begin(&self->base.base.heap, self->base.split_operation, size);
  gmlake_pblock *rest = plan.rest;
  gmlake_pblock_unindex(self, pblock);
  gmlake_set_remove(&pblock->base.class->pblocks, &pblock->base);
  self->stitchable[pblock->base.stream] -= gmlake_stitchable(self, pblock->base.size);
  rest->freed_at = pblock->freed_at;
  rest->base.address = pblock->base.address + size;
  rest->base.size = pblock->base.size - size;
  rest->base.stream = pblock->base.stream;
  rest->base.free = true;
  pblock->base.size = size;
  rest->previous = pblock;
  rest->next = pblock->next;
  if (rest->next) rest->next->previous = rest;
  pblock->next = rest;
  gmlake_place *copy = rest->places;
  for (gmlake_place *place = pblock->places; place; place = place->other, copy = copy->other) {
    place->size = size;
    copy->block = rest;
    copy->space = place->space;
    copy->address = place->address + size;
    copy->users = place->users;
    copy->section = place->section;
    copy->home = place->home;
    gmlake_place_enter(copy, place);
  }
  join_class(self, pblock, plan.front_class);
  join_class(self, rest, plan.rest_class);
  self->stitchable[pblock->base.stream] +=
      gmlake_stitchable(self, size) + gmlake_stitchable(self, rest->base.size);
  self->pblock_count++;
  self->free_count++;
  gmlake_pblock_changes(self, pblock);
  gmlake_pblock_changes(self, rest);
  if (plan.whole) gmlake_sblock_enter(self, plan.whole, pblock->places);
  self->cuts[self->cut_count++] = (gmlake_cut){pblock, rest, plan.whole};
  pool_operation_end(&self->base.base.heap);
  return VMM_SUCCESS;
}

vmm_status gmlake_cut_at(gmlake *self, gmlake_place **place, vmm_address address, bool keep_size) {
  while ((*place)->address + (*place)->block->base.size <= address) *place = (*place)->next;
  if ((*place)->address == address) return VMM_SUCCESS;
  vmm_status status = gmlake_split(self, (*place)->block, address - (*place)->address, keep_size);
  if (status == VMM_SUCCESS) *place = (*place)->next;
  return status;
}

static void undo_cut(gmlake *self, const gmlake_cut *cut) {
  gmlake_pblock *front = cut->front, *rest = cut->rest;
  if (cut->whole) {
    gmlake_sblock_forget(self, cut->whole);
    gmlake_sblock_discard(self, cut->whole);
  }
  gmlake_index_changes(self);
  gmlake_pblock_unindex(self, front);
  while (rest->places) gmlake_place_delete(&self->spaces, rest->places);
  gmlake_set_remove(&front->base.class->pblocks, &front->base);
  gmlake_set_remove(&rest->base.class->pblocks, &rest->base);
  self->stitchable[front->base.stream] -=
      gmlake_stitchable(self, front->base.size) + gmlake_stitchable(self, rest->base.size);
  front->base.size += rest->base.size;
  for (gmlake_place *place = front->places; place; place = place->other) place->size = front->base.size;
  front->next = rest->next;
  if (rest->next) rest->next->previous = front;
  join_class(self, front, gmlake_class_find(&self->classes, front->base.stream, front->base.size));
  self->stitchable[front->base.stream] += gmlake_stitchable(self, front->base.size);
  self->pblock_count--;
  self->free_count--;
  gmlake_pblock_changes(self, front);
  pool_store_delete(&self->pblock_store, rest);
}

void gmlake_undo_cuts(gmlake *self, uint64_t first) {
  while (self->cut_count > first) undo_cut(self, &self->cuts[--self->cut_count]);
}

static vmm_stream wanted_index(const gmlake *self, const gmlake_pblock *pblock) {
  const gmlake_block *base = &pblock->base;
  bool free = base->free && base->size >= self->settings.frag_limit;
  return free ? base->stream : GMLAKE_NOT_INDEXED;
}

/* Notes in the places of all pBlocks that have changed what the index is to say. Goes along several chains of
 * places at a time: the next one of each is on its way from memory meanwhile. */
static void note_changes(gmlake *self) {
  struct {
    gmlake_place *place;
    vmm_stream wanted;
  } chains[CHAINS];
  gmlake_pblock *pblock = self->changed;
  for (int count = 0; pblock || count > 0;) {
    for (; pblock && count < CHAINS; pblock = pblock->next_changed, count++) {
      chains[count].place = pblock->places;
      chains[count].wanted = wanted_index(self, pblock);
      __builtin_prefetch(pblock->places);
      self->indexed_pblocks++;
    }
    for (int i = count; i-- > 0;) {
      gmlake_place *place = chains[i].place;
      place->free_on = chains[i].wanted;
      self->indexed_places++;
      __builtin_prefetch(place->previous);
      __builtin_prefetch(place->next);
      __builtin_prefetch(place->other);
      chains[i].place = place->other;
      if (!place->other) chains[i] = chains[--count];
    }
  }
}

void gmlake_index_changes(gmlake *self) {
  note_changes(self);
  for (gmlake_pblock *pblock; (pblock = self->changed);) {
    self->changed = pblock->next_changed;
    pblock->base.changed = false;
    for (gmlake_place *place = pblock->places; place; place = place->other)
      gmlake_index_renew(&self->spaces, place);
  }
}

/* ---- other streams ---- */

/* Moves a free pBlock to another stream. false: no host memory. */
static bool change_stream(gmlake *self, gmlake_pblock *pblock, vmm_stream stream) {
  gmlake_block *base = &pblock->base;
  gmlake_class *class = gmlake_class_get(&self->classes, stream, base->size);
  if (!class || !gmlake_set_prepare(&class->pblocks, 1)) return false;
  gmlake_pblock_unindex(self, pblock);
  gmlake_set_remove(&pblock->base.class->pblocks, base);
  self->stitchable[base->stream] -= base->size;
  base->stream = stream;
  /* A third stream that borrows it must come after the wait of this one. */
  const bool waited = self->settings.streams == GMLAKE_STREAMS_WAIT;
  pblock->freed_at = waited ? pool_stream_clock_point(&self->base.clock, stream) : 0;
  self->stitchable[stream] += base->size;
  self->borrowed_bytes += base->size;
  join_class(self, pblock, class);
  gmlake_pblock_changes(self, pblock);
  return true;
}

/* May work of stream follow what used the pBlock last? */
static bool may_follow(gmlake *self, const gmlake_pblock *pblock, vmm_stream stream) {
  const vmm_stream before = pblock->base.stream;
  if (self->settings.streams == GMLAKE_STREAMS_SEEN) {
    return pool_stream_clock_passed(&self->base.clock, before, pblock->freed_at);
  }
  return pool_stream_clock_wait(&self->base.clock, stream, before, pblock->freed_at) == VMM_SUCCESS;
}

bool gmlake_borrow(gmlake *self, uint64_t size, vmm_stream stream) {
  if (self->settings.streams == GMLAKE_STREAMS_APART || size < self->settings.frag_limit) return false;
  bool any = false;
  for (vmm_stream other = 0; other < self->streams; other++) {
    if (other == stream || self->stitchable[other] == 0) continue;
    gmlake_cursor cursor;
    gmlake_cursor_begin(&cursor, &self->classes, other, true);
    gmlake_block *block;
    int refused = 0;
    while (self->stitchable[stream] < size && refused < REFUSALS && (block = gmlake_cursor_next(&cursor))) {
      if (block->size < self->settings.frag_limit) break;
      /* One that is larger than what is missing is only taken if no smaller one is enough. */
      gmlake_block *fit = gmlake_classes_best_fit(&self->classes, other, size - self->stitchable[stream]);
      gmlake_pblock *pblock = (gmlake_pblock *)(fit && fit->size <= block->size ? fit : block);
      if (!may_follow(self, pblock, stream)) {
        refused++;
        continue;
      }
      if (!change_stream(self, pblock, stream)) return any;
      any = true;
    }
  }
  return any;
}

/* ---- check ---- */

/* The index knows of every pBlock that is not among those that have changed. */
static bool index_is_current(const gmlake *self, char *message, size_t message_size) {
  for (const gmlake_space *space = self->spaces.oldest; space && self->indexes; space = space->newer) {
    for (const gmlake_place *place = space->first; place; place = place->next) {
      const gmlake_pblock *pblock = place->block;
      if (pblock->base.changed ||
          (place->indexed == place->free_on && place->free_on == wanted_index(self, pblock)))
        continue;
      snprintf(message, message_size, "the index does not know the state of pBlock 0x%" PRIx64,
               pblock->base.address);
      return false;
    }
  }
  return true;
}

bool gmlake_blocks_check(const gmlake *self, char *message, size_t message_size) {
  uint64_t count = 0, bytes = 0, free_count = 0, free_bytes = 0;
  for (const gmlake_space *space = self->spaces.oldest; space; space = space->newer) {
    for (const gmlake_place *place = space->first; place; place = place->next) {
      if (!place->home) continue;
      const gmlake_block *base = &place->block->base;
      count++;
      bytes += base->size;
      free_count += base->free;
      free_bytes += base->free ? base->size : 0;
      const pool_range *range = space->range;
      for (uint64_t i = 0; i < base->size / range->unit; i++) {
        const pool_slot *slot = gmlake_slot(range, base->address) + i;
        if (slot->chunk->owner == range) continue;
        snprintf(message, message_size, "a chunk of pBlock 0x%" PRIx64 " is at home elsewhere",
                 base->address);
        return false;
      }
    }
  }
  if (!index_is_current(self, message, message_size)) return false;
  uint64_t all_stitchable = 0, chunk_bytes = self->base.base.heap.statistics.reserved_bytes.current;
  for (uint32_t stream = 0; stream < self->streams; stream++) all_stitchable += self->stitchable[stream];
  for (const pool_segment *segment = self->base.base.heap.segments; segment; segment = segment->next) {
    chunk_bytes -= segment->size;
  }
  if (count == self->pblock_count && bytes == self->pblock_bytes && free_count == self->free_count &&
      free_bytes == self->free_bytes && all_stitchable <= free_bytes &&
      bytes + self->base.base.heap.stranded_bytes == chunk_bytes) {
    return true;
  }
  snprintf(message, message_size,
           "%" PRIu64 " pBlocks count %" PRIu64 " bytes, %" PRIu64 " of them free, and own %" PRIu64
           " of %" PRIu64 ", %" PRIu64 " of them free",
           self->pblock_count, self->pblock_bytes, self->free_bytes, bytes, chunk_bytes, free_bytes);
  return false;
}
