#include <stdlib.h>

#include "vmm/sim_internal.h"

/* Where cuMemAlloc puts its allocations. Found by allocating and freeing on an H200 (driver
 * 580.159.04) and reproducing every address, in bare processes and under PyTorch:
 *
 * - VA comes in blocks of whole slots of 32 MiB, as many as the allocation needs, each at the
 *   upper end of the highest gap that is one slot larger than the block (the driver asks the
 *   kernel for a slot more, less a page, to align the block).
 * - An allocation of 2 MiB or more goes into the newest block that has a hole for it, there
 *   into the smallest hole, of equal ones into the lowest. It takes whole 2 MiB of memory.
 *   Only without any hole a block is made; a block that is empty goes back at once.
 * - Smaller ones share slabs of 2 MiB (sim_slab.h), each an allocation of 2 MiB of that kind.
 * - A new process already has two blocks of one slot: the upper one is taken up to 8 MiB, the
 *   other, three slots below, up to 30 MiB. The next block lies 15 slots below the upper one. */

#define SLOT_BYTES (32 * SIM_MIB)
#define PAGE_BYTES ((uint64_t)SIM_SLAB_BYTES)
#define KERNEL_PAGE_BYTES UINT64_C(4096)
#define UPPER_BLOCK_TAKEN_BYTES (8 * SIM_MIB)
#define LOWER_BLOCK_TAKEN_BYTES (30 * SIM_MIB)
#define LOWER_BLOCK_SLOTS_BELOW 3
#define FIRST_GAP_SLOTS_BELOW 15

static uint64_t round_up(uint64_t size, uint64_t step) { return (size + step - 1) & ~(step - 1); }

static uint64_t page_of(const sim_malloc_space *space, vmm_address address) {
  return (address - space->start) / PAGE_BYTES;
}

static bool pool_prepare(void **items, uint32_t used, uint32_t *capacity, uint32_t first_unused,
                         uint32_t more, size_t item_size) {
  if (first_unused && more == 1) return true;
  if (used + more <= *capacity) return true;
  if (*capacity > UINT32_MAX / 2) return false;
  uint32_t grown_capacity = *capacity ? *capacity * 2 : 64;
  void *grown = realloc(*items, grown_capacity * item_size);
  if (!grown) return false;
  *items = grown;
  *capacity = grown_capacity;
  return true;
}

static bool chunks_prepare(sim_malloc_space *space, uint32_t more) {
  void *items = space->chunks;
  bool ready = pool_prepare(&items, space->chunks_used, &space->chunks_capacity, space->first_unused_chunk,
                            more, sizeof *space->chunks);
  space->chunks = items;
  return ready;
}

static bool blocks_prepare(sim_malloc_space *space) {
  void *items = space->blocks;
  bool ready = pool_prepare(&items, space->blocks_used, &space->blocks_capacity, space->first_unused_block, 1,
                            sizeof *space->blocks);
  space->blocks = items;
  return ready && sim_extents_reserve(&space->blocks_by_age, 1);
}

static uint32_t chunk_new(sim_malloc_space *space, sim_chunk chunk) {
  uint32_t index = space->first_unused_chunk;
  if (index) {
    space->first_unused_chunk = space->chunks[index].next;
  } else {
    index = space->chunks_used++;
  }
  space->chunks[index] = chunk;
  return index;
}

static void chunk_delete(sim_malloc_space *space, uint32_t index) {
  space->chunks[index].next = space->first_unused_chunk;
  space->first_unused_chunk = index;
}

/* Says how large the largest hole of a block is now. */
static void block_update(sim_malloc_space *space, uint32_t index) {
  const sim_block *block = &space->blocks[index];
  uint64_t largest = 0;
  for (uint32_t i = block->first_chunk; i; i = space->chunks[i].next) {
    const sim_chunk *chunk = &space->chunks[i];
    if (chunk->use == SIM_CHUNK_FREE && chunk->size > largest) largest = chunk->size;
  }
  const sim_extent_node *node = sim_extents_get(&space->blocks_by_age, block->by_age);
  if (node->size != largest) sim_extents_resize(&space->blocks_by_age, block->by_age, node->start, largest);
}

/* A block that is one hole. There must be room for a chunk and a block. */
static uint32_t block_new(sim_malloc_space *space, uint64_t start, uint64_t size) {
  uint32_t index = space->first_unused_block;
  if (index) {
    space->first_unused_block = space->blocks[index].next_unused;
  } else {
    index = space->blocks_used++;
  }
  uint32_t chunk = chunk_new(space, (sim_chunk){.start = start, .size = size, .block = index});
  sim_extent by_age = sim_extents_insert(&space->blocks_by_age, space->next_age++, size, index);
  space->blocks[index] = (sim_block){.first_chunk = chunk, .by_age = by_age};
  return index;
}

/* Cuts a hole down to size; the rest is a hole behind it. */
static void chunk_split(sim_malloc_space *space, uint32_t index, uint64_t size) {
  const sim_chunk old = space->chunks[index];
  if (old.size == size) return;
  uint32_t rest = chunk_new(space, (sim_chunk){.start = old.start + size,
                                               .size = old.size - size,
                                               .block = old.block,
                                               .previous = index,
                                               .next = old.next});
  if (old.next) space->chunks[old.next].previous = rest;
  space->chunks[index].next = rest;
  space->chunks[index].size = size;
}

/* Joins a hole with the hole behind it. */
static void chunk_absorb_next(sim_malloc_space *space, uint32_t index) {
  sim_chunk *chunk = &space->chunks[index];
  uint32_t next = chunk->next;
  chunk->size += space->chunks[next].size;
  chunk->next = space->chunks[next].next;
  if (chunk->next) space->chunks[chunk->next].previous = index;
  chunk_delete(space, next);
}

/* A block that the process had before its first allocation; no memory of ours. */
static void block_taken_before(sim_malloc_space *space, uint64_t start, uint64_t taken) {
  uint32_t block = block_new(space, start, SLOT_BYTES);
  uint32_t chunk = space->blocks[block].first_chunk;
  chunk_split(space, chunk, taken);
  space->chunks[chunk].use = SIM_CHUNK_FOREIGN;
  block_update(space, block);
}

bool sim_malloc_create(vmm_sim *sim) {
  sim_malloc_space *space = &sim->malloc_space;
  space->chunks_used = space->blocks_used = 1; /* 0 is none */
  if (!chunks_prepare(space, 4) || !blocks_prepare(space) || !sim_extents_reserve(&space->blocks_by_age, 2) ||
      !sim_extents_reserve(&space->gaps, 1) || !sim_pages_create(&space->pages, space->size / PAGE_BYTES)) {
    return false;
  }
  uint64_t upper = space->start + space->size - SLOT_BYTES;
  block_taken_before(space, upper, UPPER_BLOCK_TAKEN_BYTES);
  block_taken_before(space, upper - LOWER_BLOCK_SLOTS_BELOW * SLOT_BYTES, LOWER_BLOCK_TAKEN_BYTES);
  uint64_t gap_end = upper - FIRST_GAP_SLOTS_BELOW * SLOT_BYTES;
  sim_extents_insert(&space->gaps, space->start, gap_end - space->start, 0);
  return true;
}

void sim_malloc_destroy(vmm_sim *sim) {
  sim_malloc_space *space = &sim->malloc_space;
  free(space->chunks);
  free(space->blocks);
  sim_extents_destroy(&space->blocks_by_age);
  sim_extents_destroy(&space->gaps);
  sim_pages_destroy(&space->pages);
  sim_slabs_destroy(&space->slabs);
}

/* The hole that takes an allocation of size bytes; 0: a block must be made. */
static uint32_t find_hole(const sim_malloc_space *space, uint64_t size) {
  sim_extent newest = sim_extents_last_fit(&space->blocks_by_age, size);
  if (newest == SIM_EXTENT_NONE) return 0;
  uint64_t block = sim_extents_get(&space->blocks_by_age, newest)->value;
  uint32_t best = 0;
  for (uint32_t i = space->blocks[block].first_chunk; i; i = space->chunks[i].next) {
    const sim_chunk *chunk = &space->chunks[i];
    if (chunk->use != SIM_CHUNK_FREE || chunk->size < size) continue;
    if (!best || chunk->size < space->chunks[best].size) best = i;
  }
  return best;
}

/* Takes whole pages; *taken is their chunk. A failure changes nothing. */
static vmm_status take_pages(vmm_sim *sim, uint64_t size, sim_chunk_use use, uint32_t *taken) {
  sim_malloc_space *space = &sim->malloc_space;
  if (!sim_physical_fits(sim, size)) return VMM_OUT_OF_MEMORY;
  if (!chunks_prepare(space, 2) || !blocks_prepare(space) || !sim_extents_reserve(&space->gaps, 1)) {
    return VMM_OUT_OF_MEMORY;
  }
  uint64_t block_size = round_up(size, SLOT_BYTES);
  uint32_t hole = find_hole(space, size);
  sim_extent gap = SIM_EXTENT_NONE;
  uint64_t start;
  if (hole) {
    start = space->chunks[hole].start;
  } else {
    gap = sim_extents_last_fit(&space->gaps, block_size + SLOT_BYTES - KERNEL_PAGE_BYTES);
    if (gap == SIM_EXTENT_NONE) return VMM_OUT_OF_MEMORY;
    const sim_extent_node *node = sim_extents_get(&space->gaps, gap);
    start = node->start + node->size - block_size;
  }
  if (!sim_pages_prepare(&space->pages, page_of(space, start), size / PAGE_BYTES)) return VMM_OUT_OF_MEMORY;
  vmm_status status = sim_backing_grow(sim, sim->next_physical + size);
  if (status == VMM_SUCCESS) status = sim_backing_map(sim, start, size, sim->next_physical, true);
  if (status != VMM_SUCCESS) return status;

  if (!hole) {
    sim_extents_carve(&space->gaps, gap, start, block_size);
    hole = space->blocks[block_new(space, start, block_size)].first_chunk;
  }
  chunk_split(space, hole, size);
  sim_chunk *chunk = &space->chunks[hole];
  chunk->use = use;
  chunk->physical = sim->next_physical;
  block_update(space, chunk->block);
  sim_pages_fill(&space->pages, page_of(space, start), size / PAGE_BYTES, hole);
  sim->next_physical += size;
  sim->usage.physical_bytes += size;
  *taken = hole;
  return VMM_SUCCESS;
}

/* Gives the pages of a chunk back. The gaps must have room for an insertion. */
static void give_pages_back(vmm_sim *sim, uint32_t index) {
  sim_malloc_space *space = &sim->malloc_space;
  const sim_chunk old = space->chunks[index];
  sim_backing_discard(sim, old.physical, old.size);
  sim_pages_fill(&space->pages, page_of(space, old.start), old.size / PAGE_BYTES, 0);
  sim->usage.physical_bytes -= old.size;
  space->chunks[index].use = SIM_CHUNK_FREE;
  if (old.next && space->chunks[old.next].use == SIM_CHUNK_FREE) chunk_absorb_next(space, index);
  if (old.previous && space->chunks[old.previous].use == SIM_CHUNK_FREE) {
    index = old.previous;
    chunk_absorb_next(space, index);
  }
  const sim_chunk *chunk = &space->chunks[index];
  if (chunk->previous || chunk->next) {
    block_update(space, chunk->block);
    return;
  }
  sim_block *block = &space->blocks[chunk->block];
  sim_extents_remove(&space->blocks_by_age, block->by_age);
  sim_extents_merge(&space->gaps, chunk->start, chunk->size);
  block->next_unused = space->first_unused_block;
  space->first_unused_block = chunk->block;
  chunk_delete(space, index);
}

static vmm_status take_piece(vmm_sim *sim, uint64_t size, vmm_address *address) {
  sim_malloc_space *space = &sim->malloc_space;
  uint32_t units = sim_units_of(size);
  sim_piece_id piece = sim_slabs_find(&space->slabs, units);
  if (!piece) {
    uint32_t chunk;
    if (!sim_slabs_prepare(&space->slabs)) return VMM_OUT_OF_MEMORY;
    vmm_status status = take_pages(sim, PAGE_BYTES, SIM_CHUNK_SLAB, &chunk);
    if (status != VMM_SUCCESS) return status;
    space->chunks[chunk].slab = sim_slabs_add(&space->slabs, space->chunks[chunk].start);
    piece = sim_slabs_find(&space->slabs, units);
  }
  *address = sim_slabs_take(&space->slabs, piece, units);
  return VMM_SUCCESS;
}

vmm_status sim_malloc(vmm_driver *driver, uint64_t size, vmm_address *address) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_MALLOC;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, size, 0, 0, 0);
  if (!address || size == 0) return sim_refuse(sim, VMM_INVALID_VALUE, call, size, 0, 0, 0);
  if (size > sim->capacity) {
    status = VMM_OUT_OF_MEMORY;
  } else if (size < PAGE_BYTES) {
    status = take_piece(sim, size, address);
  } else {
    uint32_t chunk;
    status = take_pages(sim, round_up(size, PAGE_BYTES), SIM_CHUNK_LARGE, &chunk);
    if (status == VMM_SUCCESS) *address = sim->malloc_space.chunks[chunk].start;
  }
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, size, 0, 0, 0);
  sim->usage.mallocs++;
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}

/* The chunk of live pages that an address lies in; 0: none. */
static uint32_t chunk_at(const sim_malloc_space *space, vmm_address address) {
  return address - space->start < space->size ? sim_pages_get(&space->pages, page_of(space, address)) : 0;
}

bool sim_malloc_find(const vmm_sim *sim, vmm_address address, sim_allocation *found) {
  const sim_malloc_space *space = &sim->malloc_space;
  uint32_t index = chunk_at(space, address);
  if (!index) return false;
  const sim_chunk *chunk = &space->chunks[index];
  *found = (sim_allocation){
      .start = chunk->start, .size = chunk->size, .physical = chunk->physical + (address - chunk->start)};
  if (chunk->use == SIM_CHUNK_LARGE) return true;
  sim_piece_id id = sim_slabs_piece_at(&space->slabs, chunk->slab, address);
  const sim_piece *piece = sim_slabs_piece(&space->slabs, id);
  found->start = sim_slabs_address(&space->slabs, id);
  found->size = (uint64_t)piece->units * SIM_UNIT_BYTES;
  return piece->taken;
}

/* Frees what sim_malloc_find has found. */
static vmm_status give_back(vmm_sim *sim, const sim_allocation *allocation) {
  sim_malloc_space *space = &sim->malloc_space;
  uint32_t index = chunk_at(space, allocation->start);
  const sim_chunk *chunk = &space->chunks[index];
  sim_piece_id piece = 0;
  bool last = true;
  if (chunk->use == SIM_CHUNK_SLAB) {
    piece = sim_slabs_piece_at(&space->slabs, chunk->slab, allocation->start);
    last = sim_slabs_is_last(&space->slabs, piece);
  }
  if (last) {
    if (!sim_extents_reserve(&space->gaps, 1)) return VMM_OUT_OF_MEMORY;
    vmm_status status = sim_backing_unmap(sim, chunk->start, chunk->size);
    if (status != VMM_SUCCESS) return status;
  }
  if (piece) sim_slabs_give_back(&space->slabs, piece);
  if (last) give_pages_back(sim, index);
  return VMM_SUCCESS;
}

vmm_status sim_free(vmm_driver *driver, vmm_address address) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_FREE;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, address, 0, 0, 0);
  if (address == 0) {
    sim_charge(sim, call, 0);
    return VMM_SUCCESS;
  }
  sim_allocation allocation;
  uint64_t size;
  if (sim_malloc_find(sim, address, &allocation) && allocation.start == address) {
    size = allocation.size;
    status = give_back(sim, &allocation);
    if (status == VMM_SUCCESS) {
      sim->usage.mallocs--;
      sim_finish_work(sim);
    }
  } else {
    status = sim_pool_give_back(sim, address, NULL, &size);
  }
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, address, 0, 0, 0);
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}
