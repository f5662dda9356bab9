/* GMLake's sBlocks: Stitch and StitchFree. */
#include <inttypes.h>
#include <stdio.h>

#include "policies/gmlake.h"

enum { STITCH_FREE_WALK = 64 }; /* sBlocks looked at for each free, at most, while over a limit */

static uint64_t size_of(const gmlake_place *place) { return place->block->base.size; }
static vmm_address end_of(const gmlake_place *place) { return place->address + size_of(place); }

/* ---- the list by age, those who watch ---- */

static void list_append(gmlake_sblocks *sblocks, gmlake_sblock *sblock) {
  sblock->older = sblocks->newest;
  sblock->newer = NULL;
  if (sblocks->newest)
    sblocks->newest->newer = sblock;
  else
    sblocks->oldest = sblock;
  sblocks->newest = sblock;
}

static void list_remove(gmlake_sblocks *sblocks, gmlake_sblock *sblock) {
  if (sblock->older)
    sblock->older->newer = sblock->newer;
  else
    sblocks->oldest = sblock->newer;
  if (sblock->newer)
    sblock->newer->older = sblock->older;
  else
    sblocks->newest = sblock->older;
}

/* Not marked in its class while it watches. */
static void watch(gmlake_sblock *sblock, gmlake_pblock *pblock) {
  gmlake_set_unmark(&sblock->base.class->sblocks, &sblock->base);
  sblock->watched = pblock;
  sblock->watch_previous = NULL;
  sblock->watch_next = pblock->watchers;
  if (pblock->watchers) pblock->watchers->watch_previous = sblock;
  pblock->watchers = sblock;
}

static void watch_no_more(gmlake_sblock *sblock) {
  if (!sblock->watched) return;
  if (sblock->watch_previous)
    sblock->watch_previous->watch_next = sblock->watch_next;
  else
    sblock->watched->watchers = sblock->watch_next;
  if (sblock->watch_next) sblock->watch_next->watch_previous = sblock->watch_previous;
  sblock->watched = NULL;
}

void gmlake_wake_watchers(gmlake_pblock *pblock) {
  for (gmlake_sblock *sblock; (sblock = pblock->watchers);) {
    pblock->watchers = sblock->watch_next;
    sblock->watched = NULL;
    gmlake_set_mark(&sblock->base.class->sblocks, &sblock->base);
  }
}

/* ---- making and dropping ---- */

vmm_status gmlake_sblock_new(gmlake *self, uint64_t size, vmm_stream stream, gmlake_sblock **made) {
  gmlake_sblock *sblock = pool_store_new(&self->sblock_store, sizeof *sblock);
  gmlake_class *class = gmlake_class_get(&self->classes, stream, size);
  if (!sblock || !class || !gmlake_set_prepare(&class->sblocks, 1)) {
    gmlake_sblock_discard(self, sblock);
    return VMM_OUT_OF_MEMORY;
  }
  sblock->base = (gmlake_block){.size = size, .class = class, .stream = stream, .stitched = true};
  *made = sblock;
  return VMM_SUCCESS;
}

void gmlake_sblock_discard(gmlake *self, gmlake_sblock *sblock) {
  pool_store_delete(&self->sblock_store, sblock);
}

void gmlake_sblock_enter(gmlake *self, gmlake_sblock *sblock, gmlake_place *first) {
  sblock->first = first;
  sblock->base.address = first->address;
  sblock->base.view = true;
  gmlake_place *place;
  GMLAKE_FOR_EACH_PLACE(place, sblock) {
    if (place->home) continue;
    place->users++;
    sblock->base.view = false;
  }
  gmlake_set_add(&sblock->base.class->sblocks, &sblock->base);
  gmlake_set_mark(&sblock->base.class->sblocks, &sblock->base);
  list_append(&self->sblocks, sblock);
  self->sblocks.count++;
  self->sblocks.view_count += sblock->base.view;
}

void gmlake_sblock_forget(gmlake *self, gmlake_sblock *sblock) {
  gmlake_place *place;
  GMLAKE_FOR_EACH_PLACE(place, sblock) {
    if (!place->home) place->users--;
  }
  watch_no_more(sblock);
  gmlake_set_remove(&sblock->base.class->sblocks, &sblock->base);
  list_remove(&self->sblocks, sblock);
  self->sblocks.count--;
  self->sblocks.view_count -= sblock->base.view;
}

/* A row of chunks in one space that nothing needs. */
typedef struct unused_row {
  gmlake_space *space;
  gmlake_place *place; /* the first that lies over it; NULL: none */
  vmm_address begin, end;
  uint64_t chunks;
  vmm_status status;
} unused_row;

/* Unmaps the row and deletes the places that lie over it. Returns the place after them, or next if there
 * are none. */
static gmlake_place *unmap_row(gmlake *self, unused_row *row, gmlake_place *next) {
  if (row->chunks == 0) return next;
  vmm_status status = gmlake_space_unmap(&self->spaces, row->space, row->begin, row->end);
  if (row->status == VMM_SUCCESS) row->status = status;
  if (status == VMM_SUCCESS) {
    self->spaces.alias_bytes -= row->end - row->begin;
    self->spaces.alias_mappings -= row->chunks;
    for (gmlake_place *place = row->place; place && place->address < row->end; place = next) {
      next = place->next;
      gmlake_place_delete(&self->spaces, place);
    }
  }
  row->chunks = 0;
  return next;
}

/* Does a place from this one on need what is mapped up to an address? */
static bool is_needed(const gmlake_place *place, vmm_address end) {
  for (; place && place->address < end; place = place->next) {
    if (place->home || place->users > 0) return true;
  }
  return false;
}

/* Unmaps the chunks of a space between two addresses that no sBlock lies over and that are not at home.
 * place: one at or before the first of them. */
static vmm_status unmap_between(gmlake *self, gmlake_space *space, gmlake_place *place, vmm_address begin,
                                vmm_address end) {
  const pool_range *range = space->range;
  const vmm_address mapped_end = space->end;
  unused_row row = {.space = space};
  vmm_address at = begin - gmlake_slot(range, begin)->offset * range->unit;
  while (place && place->previous && end_of(place->previous) > at) place = place->previous;
  while (at < end && at < mapped_end) {
    const pool_chunk *chunk = gmlake_slot(range, at)->chunk;
    const uint64_t size = chunk ? chunk->size : range->unit;
    while (place && end_of(place) <= at) place = place->next;
    if (!chunk || is_needed(place, at + size)) {
      place = unmap_row(self, &row, place);
    } else {
      if (row.chunks == 0) {
        row.begin = at;
        row.place = place && place->address < at + size ? place : NULL;
      } else if (!row.place && place && place->address < at + size) {
        row.place = place;
      }
      row.end = at + size;
      row.chunks++;
    }
    at += size;
  }
  unmap_row(self, &row, NULL);
  return row.status;
}

vmm_status gmlake_unstitch(gmlake *self, gmlake_sblock *sblock) {
  gmlake_place *first = sblock->first;
  gmlake_space *space = first->space;
  const vmm_address begin = sblock->base.address, end = begin + sblock->base.size;
  const bool view = sblock->base.view;
  gmlake_sblock_forget(self, sblock);
  gmlake_sblock_discard(self, sblock);
  if (view) return VMM_SUCCESS;
  vmm_status status = unmap_between(self, space, first, begin, end);
  vmm_status tidied = gmlake_space_tidy(&self->spaces, space);
  return status == VMM_SUCCESS ? tidied : status;
}

vmm_status gmlake_unmap_unused(gmlake *self) {
  vmm_status first = VMM_SUCCESS;
  for (gmlake_space *space = self->spaces.oldest, *newer; space; space = newer) {
    newer = space->newer;
    vmm_status status = unmap_between(self, space, space->first, space->begin, space->end);
    vmm_status tidied = gmlake_space_tidy(&self->spaces, space);
    if (first == VMM_SUCCESS) first = status == VMM_SUCCESS ? tidied : status;
  }
  return first;
}

/* ---- Stitch ---- */

/* Places for the members, linked by next. */
static bool new_places(gmlake *self, uint64_t count, gmlake_place **list) {
  gmlake_place **link = list;
  for (uint64_t i = 0; i < count; i++) {
    gmlake_place *place = gmlake_place_new(&self->spaces);
    if (!place) return false;
    place->block = self->members[i];
    *link = place;
    link = &place->next;
  }
  return true;
}

/* The chunks of the members in their order. Returns how many. */
static uint64_t gather_chunks(gmlake *self, uint64_t member_count) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < member_count; i++) {
    const gmlake_block *base = &self->members[i]->base;
    const pool_range *range = self->members[i]->places->space->range;
    const pool_slot *slot = gmlake_slot(range, base->address);
    for (uint64_t k = 0; k < base->size / range->unit; k++) self->chunks[count++] = slot[k].chunk;
  }
  return count;
}

static void enter_places(gmlake_space *space, vmm_address address, gmlake_place *list) {
  for (gmlake_place *place = list, *next; place; place = next) {
    next = place->next;
    place->space = space;
    place->address = address;
    address += size_of(place);
    gmlake_place_enter(place, space->last);
    place->other = place->block->places->other;
    place->block->places->other = place;
  }
}

vmm_status gmlake_stitch(gmlake *self, uint64_t member_count, uint64_t size, vmm_stream stream,
                         gmlake_sblock **made) {
  gmlake_place *places = NULL;
  gmlake_space *space = NULL;
  gmlake_sblock *sblock = NULL;
  vmm_address address = 0;
  pool_operation_begin(&self->base.base.heap, self->base.stitch_operation, size);
  vmm_status status =
      gmlake_reserve_chunks(self, size / self->settings.chunk) && new_places(self, member_count, &places)
          ? gmlake_sblock_new(self, size, stream, &sblock)
          : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) status = gmlake_reserve_space(self, size, &space);
  if (status == VMM_SUCCESS) {
    uint64_t count = gather_chunks(self, member_count);
    status = gmlake_space_map(&self->spaces, space, false, self->chunks, count, size, &address);
    if (status == VMM_SUCCESS) {
      self->spaces.alias_bytes += size;
      self->spaces.alias_mappings += count;
      enter_places(space, address, places);
      for (uint64_t i = 0; i < member_count; i++) gmlake_pblock_changes(self, self->members[i]);
      gmlake_sblock_enter(self, sblock, space->first);
      *made = sblock;
    } else {
      gmlake_space_free(&self->spaces, space);
    }
  }
  if (status != VMM_SUCCESS) {
    gmlake_places_discard(&self->spaces, places);
    gmlake_sblock_discard(self, sblock);
  }
  pool_operation_end(&self->base.base.heap);
  return status;
}

/* ---- exact match ---- */

/* Are all its pBlocks free, and of its stream? Else it watches the first that is not. */
static bool is_inactive(gmlake_sblock *sblock) {
  const gmlake_place *place;
  GMLAKE_FOR_EACH_PLACE(place, sblock) {
    gmlake_pblock *pblock = place->block;
    if (pblock->base.free && pblock->base.stream == sblock->base.stream) continue;
    watch(sblock, pblock);
    return false;
  }
  return true;
}

gmlake_sblock *gmlake_class_inactive_sblock(gmlake_class *class) {
  for (gmlake_block *base; (base = gmlake_set_first_marked(&class->sblocks));) {
    gmlake_sblock *sblock = (gmlake_sblock *)base;
    if (is_inactive(sblock)) return sblock;
  }
  return NULL;
}

void gmlake_sblock_hold(gmlake *self, gmlake_sblock *sblock) {
  list_remove(&self->sblocks, sblock);
  sblock->base.held = true;
}

void gmlake_sblock_let_go(gmlake *self, gmlake_sblock *sblock, uint64_t point) {
  list_append(&self->sblocks, sblock);
  sblock->freed_at = point;
  sblock->base.held = false;
}

/* ---- StitchFree ---- */

static bool kept(uint64_t value, uint64_t limit, bool with_spare) {
  return value <= (with_spare ? limit - limit / 8 : limit);
}

static bool mappings_kept(const gmlake *self, bool with_spare) {
  return kept(self->spaces.alias_bytes, self->settings.stitch_bytes, with_spare) &&
         kept(self->spaces.alias_mappings, self->settings.stitch_mappings, with_spare);
}

/* Has the host seen the end of all work that used the sBlock's addresses? Waits, once. */
static bool may_unmap(gmlake *self, const gmlake_sblock *sblock, bool *waited) {
  if (*waited || pool_stream_clock_passed(&self->base.clock, sblock->base.stream, sblock->freed_at))
    return true;
  self->base.base.heap.statistics.host_waits++;
  if (vmm_synchronize(self->base.base.heap.driver) != VMM_SUCCESS) return false;
  pool_stream_clock_all_passed(&self->base.clock);
  *waited = true;
  return true;
}

static bool all_free(const gmlake_sblock *sblock) {
  const gmlake_place *place;
  GMLAKE_FOR_EACH_PLACE(place, sblock) {
    if (!place->block->base.free) return false;
  }
  return true;
}

/* A pBlock's changes are noted in all its places: this bounds how many it has, on average. */
static bool ratio_kept(const gmlake *self, bool with_spare) {
  const double limit = self->settings.stitch_ratio * (double)self->pblock_bytes;
  return limit >= 0x1p63 || kept(self->spaces.alias_bytes, (uint64_t)limit, with_spare);
}

static bool is_over_limits(const gmlake *self) {
  return !mappings_kept(self, false) || !kept(self->sblocks.count, self->settings.stitch_count, false) ||
         !ratio_kept(self, false);
}

/* The least recently used sBlock from here on that may be dropped. To drop a view frees no mapping. */
static gmlake_sblock *next_to_drop(gmlake_sblock *sblock, bool views_too, bool active_too) {
  while (sblock && ((sblock->base.view && !views_too) || (!active_too && !all_free(sblock))))
    sblock = sblock->newer;
  return sblock;
}

void gmlake_stitch_free(gmlake *self) {
  const gmlake_settings *settings = &self->settings;
  if (!is_over_limits(self) || self->frees_before_stitch_free > 0) return;
  bool views_too = !kept(self->sblocks.count, settings->stitch_count, false), waited = false;
  /* With little memory free a large sBlock is almost always active through some pBlock. */
  bool active_too = !ratio_kept(self, false);
  gmlake_sblock *sblock = next_to_drop(self->sblocks.oldest, views_too, active_too);
  if (sblock) {
    pool_operation_begin(&self->base.base.heap, self->base.stitch_free_operation, 0);
    while (sblock && (sblock->base.view || may_unmap(self, sblock, &waited))) {
      gmlake_sblock *newer = sblock->newer;
      gmlake_unstitch(self, sblock);
      views_too = !kept(self->sblocks.count, settings->stitch_count, true);
      active_too = active_too && !ratio_kept(self, true);
      if (!views_too && !active_too && mappings_kept(self, true)) break;
      sblock = next_to_drop(newer, views_too, active_too);
    }
    pool_operation_end(&self->base.base.heap);
  }
  if (is_over_limits(self)) self->frees_before_stitch_free = self->sblocks.count / STITCH_FREE_WALK;
}

bool gmlake_make_address_room(gmlake *self) {
  uint64_t wanted = (self->sblocks.count - self->sblocks.view_count) / 8 + 1, dropped = 0;
  bool waited = false;
  pool_operation_begin(&self->base.base.heap, self->base.stitch_free_operation, 0);
  for (gmlake_sblock *sblock = self->sblocks.oldest, *newer; sblock && dropped < wanted; sblock = newer) {
    newer = sblock->newer;
    if (sblock->base.view || !all_free(sblock)) continue;
    if (!may_unmap(self, sblock, &waited)) break;
    dropped++;
    gmlake_unstitch(self, sblock);
  }
  pool_operation_end(&self->base.base.heap);
  return dropped > 0;
}

/* ---- check ---- */

static bool sblock_is_sound(const gmlake_sblock *sblock) {
  vmm_address at = sblock->base.address;
  bool view = true;
  const gmlake_place *place;
  GMLAKE_FOR_EACH_PLACE(place, sblock) {
    if (place->address != at || place->space != sblock->first->space) return false;
    if (!place->home && place->users == 0) return false;
    if (sblock->base.held && place->block->base.free) return false;
    view &= place->home;
    at += size_of(place);
  }
  bool marked = gmlake_set_marked_from(&sblock->base.class->sblocks, sblock->base.number) == &sblock->base;
  return at == sblock->base.address + sblock->base.size && view == sblock->base.view &&
         marked == !sblock->watched && sblock->base.class->size == sblock->base.size &&
         sblock->base.class->stream == sblock->base.stream;
}

bool gmlake_stitched_check(const gmlake *self, char *message, size_t message_size) {
  uint64_t count = 0, views = 0, held = 0, listed = 0;
  for (const gmlake_sblock *sblock = self->sblocks.oldest; sblock; sblock = sblock->newer) listed++;
  for (gmlake_class *class = gmlake_classes_first(&self->classes); class;
       class = gmlake_classes_next(class)) {
    for (uint32_t i = 0; i < class->sblocks.used; i++) {
      const gmlake_sblock *sblock = (const gmlake_sblock *)class->sblocks.members[i];
      if (!sblock) continue;
      count++;
      views += sblock->base.view;
      held += sblock->base.held;
      if (sblock->base.class == class && sblock_is_sound(sblock)) continue;
      snprintf(message, message_size,
               "sBlock 0x%" PRIx64 " of %" PRIu64 " bytes does not agree with its pBlocks",
               sblock->base.address, sblock->base.size);
      return false;
    }
  }
  if (count == self->sblocks.count && views == self->sblocks.view_count && listed + held == count)
    return true;
  snprintf(message, message_size,
           "the sPool counts %" PRIu64 " sBlocks and has %" PRIu64 ", of which %" PRIu64
           " are held and %" PRIu64 " listed",
           self->sblocks.count, count, held, listed);
  return false;
}
