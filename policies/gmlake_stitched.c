#include "policies/gmlake_stitched.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static inline int compare(const gmlake_sblock *a, const gmlake_sblock *b) {
  if (a->base.stream != b->base.stream) return a->base.stream < b->base.stream ? -1 : 1;
  if (a->base.size != b->base.size) return a->base.size < b->base.size ? -1 : 1;
  return a->number < b->number ? -1 : a->number > b->number;
}

RB_PROTOTYPE(gmlake_sblock_tree, gmlake_sblock, by_size, compare)
RB_GENERATE(gmlake_sblock_tree, gmlake_sblock, by_size, compare)

void gmlake_stitched_init(gmlake_stitched *stitched, pool_heap *heap) {
  *stitched = (gmlake_stitched){.heap = heap};
  RB_INIT(&stitched->by_size);
}

void gmlake_stitched_fini(gmlake_stitched *stitched) {
  for (gmlake_sblock *sblock; (sblock = RB_ROOT(&stitched->by_size));) {
    RB_REMOVE(gmlake_sblock_tree, &stitched->by_size, sblock);
    free(sblock);
  }
}

static void list_append(gmlake_stitched *stitched, gmlake_sblock *sblock) {
  sblock->older = stitched->newest;
  sblock->newer = NULL;
  if (stitched->newest)
    stitched->newest->newer = sblock;
  else
    stitched->oldest = sblock;
  stitched->newest = sblock;
}

static void list_remove(gmlake_stitched *stitched, gmlake_sblock *sblock) {
  if (sblock->older)
    sblock->older->newer = sblock->newer;
  else
    stitched->oldest = sblock->newer;
  if (sblock->newer)
    sblock->newer->older = sblock->older;
  else
    stitched->newest = sblock->older;
}

static void enter(gmlake_stitched *stitched, gmlake_sblock *sblock, pool_range *range, vmm_address address,
                  uint64_t size, vmm_stream stream, bool view) {
  *sblock = (gmlake_sblock){
      .base = {.address = address, .size = size, .stream = stream, .backing = range, .pool = stitched},
      .view = view,
      .number = stitched->next_number++};
  RB_INSERT(gmlake_sblock_tree, &stitched->by_size, sblock);
  list_append(stitched, sblock);
  stitched->count++;
}

vmm_status gmlake_stitch(gmlake_stitched *stitched, pool_chunk *const *chunks, uint64_t count, uint64_t size,
                         vmm_stream stream, gmlake_sblock **made) {
  gmlake_sblock *sblock = malloc(sizeof *sblock);
  if (!sblock) return VMM_OUT_OF_MEMORY;
  pool_range *range;
  vmm_status status = pool_range_reserve(stitched->heap, size, chunks[0]->size, &range);
  if (status == VMM_SUCCESS) {
    status = pool_range_map(stitched->heap, range, 0, chunks, count);
    if (status != VMM_SUCCESS) pool_range_free(stitched->heap, range);
  }
  if (status != VMM_SUCCESS) {
    free(sblock);
    return status;
  }
  enter(stitched, sblock, range, range->address, size, stream, false);
  stitched->stitched_count++;
  stitched->stitched_bytes += size;
  *made = sblock;
  return VMM_SUCCESS;
}

vmm_status gmlake_stitch_view(gmlake_stitched *stitched, pool_range *range, vmm_address address,
                              uint64_t size, vmm_stream stream, gmlake_sblock **made) {
  gmlake_sblock *sblock = malloc(sizeof *sblock);
  if (!sblock) return VMM_OUT_OF_MEMORY;
  enter(stitched, sblock, range, address, size, stream, true);
  *made = sblock;
  return VMM_SUCCESS;
}

vmm_status gmlake_unstitch(gmlake_stitched *stitched, gmlake_sblock *sblock) {
  if (!sblock->view) {
    pool_range *range = sblock->base.backing;
    vmm_status status = pool_range_unmap(stitched->heap, range, 0, range->size);
    if (status != VMM_SUCCESS) return status;
    /* Unmapped it serves nobody; a VA that cannot be freed stays with the heap. */
    pool_range_free(stitched->heap, range);
    stitched->stitched_count--;
    stitched->stitched_bytes -= sblock->base.size;
  }
  RB_REMOVE(gmlake_sblock_tree, &stitched->by_size, sblock);
  list_remove(stitched, sblock);
  stitched->count--;
  free(sblock);
  return VMM_SUCCESS;
}

bool gmlake_sblock_inactive(gmlake_sblock *sblock) {
  if (sblock->held) return false;
  pool_block *member = gmlake_sblock_member(sblock, sblock->guess);
  if (member->state != POOL_BLOCK_FREE) return false;
  uint64_t index;
  GMLAKE_FOR_EACH_MEMBER(member, index, sblock) {
    if (member->state == POOL_BLOCK_FREE) continue;
    sblock->guess = index;
    return false;
  }
  return true;
}

gmlake_sblock *gmlake_stitched_find(gmlake_stitched *stitched, vmm_stream stream, uint64_t size) {
  gmlake_sblock key = {.base = {.stream = stream, .size = size}};
  for (gmlake_sblock *sblock = RB_NFIND(gmlake_sblock_tree, &stitched->by_size, &key);
       sblock && sblock->base.stream == stream && sblock->base.size == size;
       sblock = RB_NEXT(gmlake_sblock_tree, NULL, sblock)) {
    if (gmlake_sblock_inactive(sblock)) return sblock;
  }
  return NULL;
}

void gmlake_sblock_hold(gmlake_stitched *stitched, gmlake_sblock *sblock) {
  list_remove(stitched, sblock);
  sblock->held = true;
}

void gmlake_sblock_let_go(gmlake_stitched *stitched, gmlake_sblock *sblock) {
  list_append(stitched, sblock);
  sblock->held = false;
}

bool gmlake_stitched_check(const gmlake_stitched *stitched, char *message, size_t message_size) {
  uint64_t count = 0, own = 0, own_bytes = 0, held = 0, listed = 0;
  for (const gmlake_sblock *sblock = stitched->oldest; sblock; sblock = sblock->newer) listed++;
  struct gmlake_sblock_tree tree = stitched->by_size;
  gmlake_sblock *sblock;
  RB_FOREACH(sblock, gmlake_sblock_tree, &tree) {
    count++;
    /* cppcheck-suppress uninitvar ; the tree's macro sets it */
    held += sblock->held;
    const pool_block *base = &sblock->base;
    if (!sblock->view) {
      own++;
      /* cppcheck-suppress uninitvar */
      own_bytes += base->size;
    }
    uint64_t covered = 0, index;
    pool_block *member;
    GMLAKE_FOR_EACH_MEMBER(member, index, sblock) {
      covered += member->size;
      if (member->stream == base->stream && !(sblock->held && member->state == POOL_BLOCK_FREE)) continue;
      snprintf(message, message_size, "sBlock 0x%" PRIx64 " does not agree with its pBlock 0x%" PRIx64,
               base->address, member->address);
      return false;
    }
    if (covered != base->size) {
      snprintf(message, message_size, "sBlock 0x%" PRIx64 " of %" PRIu64 " bytes has pBlocks of %" PRIu64,
               base->address, base->size, covered);
      return false;
    }
  }
  if (count != stitched->count || own != stitched->stitched_count || own_bytes != stitched->stitched_bytes ||
      listed + held != count) {
    snprintf(message, message_size,
             "the sPool counts %" PRIu64 " sBlocks, %" PRIu64 " bytes and has %" PRIu64 ", %" PRIu64
             "; %" PRIu64 " held, %" PRIu64 " not",
             stitched->count, stitched->stitched_bytes, count, own_bytes, held, listed);
    return false;
  }
  return true;
}
