/* Allocations below 2 MiB share slabs of 2 MiB: pieces of 512-byte units in address order,
 * and over all slabs one list per size of the free ones, the one that got its size first at
 * the front. Smallest size that fits, front of its list: that order reproduces an H200's
 * addresses. All O(1), except that the owner's address search walks back inside a slab. */
#ifndef LAKEBED_VMM_SIM_SLAB_H
#define LAKEBED_VMM_SIM_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_SLAB_BYTES = 2 << 20, SIM_UNIT_BYTES = 512, SIM_SLAB_UNITS = SIM_SLAB_BYTES / SIM_UNIT_BYTES };

/* A unit of a slab; units > 0 where a piece begins. */
typedef struct sim_piece {
  uint16_t units;
  uint16_t units_before; /* of the piece before this one; 0: none */
  bool taken;
  uint32_t older, newer; /* free: neighbours in the list of its size */
} sim_piece;

typedef struct sim_slab {
  uint64_t start; /* address */
  uint32_t next_unused;
  sim_piece *pieces; /* SIM_SLAB_UNITS of them */
} sim_slab;

/* A piece of any slab: slab number * SIM_SLAB_UNITS + unit, plus 1; 0: none. */
typedef uint32_t sim_piece_id;

typedef struct sim_slabs {
  sim_slab *slabs;
  uint32_t used, capacity, first_unused; /* first_unused: number + 1; 0: none */
  sim_piece_id oldest[SIM_SLAB_UNITS + 1], newest[SIM_SLAB_UNITS + 1];
  uint64_t sizes_present[SIM_SLAB_UNITS / 64 + 1];
} sim_slabs;

static inline uint32_t sim_units_of(uint64_t size) {
  return (uint32_t)((size + SIM_UNIT_BYTES - 1) / SIM_UNIT_BYTES);
}

void sim_slabs_destroy(sim_slabs *set);
/* A free piece of at least this many units; 0: none, a slab must be added. */
sim_piece_id sim_slabs_find(const sim_slabs *set, uint32_t units);
/* Makes room for one more slab; false: no host memory. */
bool sim_slabs_prepare(sim_slabs *set);
/* Adds a slab at an address, one free piece; there must be room. Returns its number. */
uint32_t sim_slabs_add(sim_slabs *set, uint64_t start);
/* Takes units from the start of a free piece and returns their address. */
uint64_t sim_slabs_take(sim_slabs *set, sim_piece_id piece, uint32_t units);
/* Is this taken piece the only one of its slab? */
bool sim_slabs_is_last(const sim_slabs *set, sim_piece_id piece);
/* Frees a taken piece. If it was its slab's last, the slab leaves the set. */
void sim_slabs_give_back(sim_slabs *set, sim_piece_id piece);
/* The piece of a slab that an address lies in, taken or free. */
sim_piece_id sim_slabs_piece_at(const sim_slabs *set, uint32_t slab, uint64_t address);

static inline sim_piece *sim_slabs_piece(const sim_slabs *set, sim_piece_id id) {
  return &set->slabs[(id - 1) / SIM_SLAB_UNITS].pieces[(id - 1) % SIM_SLAB_UNITS];
}
static inline uint64_t sim_slabs_address(const sim_slabs *set, sim_piece_id id) {
  return set->slabs[(id - 1) / SIM_SLAB_UNITS].start + (uint64_t)((id - 1) % SIM_SLAB_UNITS) * SIM_UNIT_BYTES;
}

#endif
