/* What a policy holds at one moment, byte by byte: which of it is live, what is free, where it is mapped and
 * what shares it. Works for every policy, from what its heap knows; where a policy maps memory at more
 * than one address its own blocks (policy_blocks) say what is stitched from what. docs/forensics.md
 * defines each number. */
#ifndef LAKEBED_HARNESS_MEMORY_MAP_H
#define LAKEBED_HARNESS_MEMORY_MAP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "policies/policy.h"

typedef enum memory_state {
  MEMORY_FREE,
  MEMORY_LIVE,
  MEMORY_WAITING, /* freed, but other streams may still use it */
  MEMORY_STATES
} memory_state;

/* Positions are those of the line in which all physical memory lies, each byte once (pools/layout.h). */

/* Bytes in one state: of a live block, what is contiguous at home. */
typedef struct memory_run {
  uint64_t position, bytes;
  vmm_address home; /* of its first byte; 0: mapped nowhere */
  memory_state state;
  vmm_address address; /* where the block was given out; 0: free */
  uint64_t requested;  /* what was asked for; of a free run 0 */
  vmm_stream stream;
} memory_run;

/* Chunks of equal size one after the other, at home and in the line, mapped equally often. */
typedef struct memory_chunks {
  uint64_t position;
  vmm_address home; /* 0: mapped nowhere */
  uint64_t size, count;
  uint64_t first; /* number of the first: chunks are numbered by position, from 0 */
  uint32_t mappings;
} memory_chunks;

typedef enum memory_region_kind {
  MEMORY_SEGMENT,  /* one cuMemAlloc */
  MEMORY_RANGE,    /* reserved addresses at which chunks are at home, or nothing is */
  MEMORY_ELSEWHERE /* all that was given out of memory that the heap does not hold */
} memory_region_kind;

/* Addresses got from the driver at once. */
typedef struct memory_region {
  memory_region_kind kind;
  vmm_address address;
  uint64_t size;  /* of the addresses */
  uint64_t held;  /* physical bytes at home here */
  uint64_t again; /* bytes mapped here that are at home elsewhere */
  uint64_t chunks;
  uint64_t live_bytes, waiting_bytes, free_bytes; /* of held */
  uint64_t free_runs, largest_free_bytes;         /* contiguous at home */
} memory_region;

/* A stretch of a stitched block. */
typedef struct memory_part {
  size_t block;      /* where it is at home: index of the block; MEMORY_NO_BLOCK */
  uint64_t in_block; /* offset there */
  uint64_t offset;   /* in the stitched block */
  uint64_t bytes;
  uint64_t position;
  uint64_t first_chunk, last_chunk; /* their numbers */
} memory_part;

#define MEMORY_NO_BLOCK SIZE_MAX /* the policy does not say */

/* A block that the policy keeps: see policy_block. */
typedef struct memory_block {
  const char *kind;
  bool stitched, held;
  vmm_address address;
  uint64_t size;
  vmm_stream stream;
  uint64_t used_bytes;   /* of its memory, not free, through whatever address */
  uint64_t shared_bytes; /* of its memory, that stitched blocks map; of a stitched one: others than itself */
  uint64_t sharers;      /* at home: stitched blocks that map some of it */
  uint64_t position;     /* at home: of its first byte */
  uint64_t first_chunk, last_chunk; /* at home: their numbers */
  size_t first_part, parts;         /* of a stitched one */
} memory_block;

/* A stretch of the line over which so many stitched blocks lie. */
typedef struct memory_cover {
  uint64_t position, bytes;
  uint64_t count;
} memory_cover;

typedef struct memory_map {
  uint64_t lap, event;   /* the last event before the moment; of the lap, from 0 */
  uint64_t number;       /* the same over all laps */
  uint64_t wanted_bytes; /* of the request that found no memory; 0: there is none */
  uint64_t live_bytes;   /* requests, each rounded up to 512 bytes */
  uint64_t allocated_bytes, active_bytes, reserved_bytes, address_bytes;
  uint64_t largest_free_bytes; /* what the policy could hand out at once */
  bool knows_largest_free;
  uint64_t elsewhere_bytes; /* of reserved memory, what lies outside of the heap: where is not known */

  uint64_t bytes; /* of the line */
  uint64_t state_bytes[MEMORY_STATES];
  uint64_t live_blocks, free_runs;
  uint64_t chunk_count, chunk_bytes;
  uint64_t shared_bytes;   /* mapped at more than one address */
  uint64_t extra_mappings; /* of chunks, besides their home */
  uint64_t unmapped_bytes; /* of chunks that are mapped nowhere */

  memory_run *runs; /* by position; together all of the line */
  size_t run_count;
  memory_chunks *chunks; /* by position */
  size_t chunks_count;
  memory_region *regions; /* by address */
  size_t region_count;
  memory_block *blocks; /* those at home by position, then the stitched ones by address */
  size_t block_count, home_blocks;
  memory_part *parts;
  size_t part_count;
  memory_cover *covers; /* by position; where there is none, none */
  size_t cover_count;
} memory_map;

/* How a policy stands now. moment: lap, event, number, wanted_bytes and live_bytes are taken from it. NULL
 * when the host has no memory. O(n log n) in everything mapped and handed out. */
memory_map *memory_map_make(const policy *subject, const memory_map *moment);
/* Accepts NULL. */
void memory_map_free(memory_map *map);

/* "live", "free", "waiting". Static. */
const char *memory_state_name(memory_state state);
/* "segment", "range", "elsewhere". Static. */
const char *memory_region_kind_name(memory_region_kind kind);

/* Tables for people. details: whole ones. */
void memory_map_print(const memory_map *map, bool details, FILE *stream);
/* All of it as an object; NULL when there is no memory. */
json_t *memory_map_json(const memory_map *map);

/* A drawing: as many maps as are added, one below the other. */
typedef struct memory_drawing memory_drawing;
/* NULL when the host has no memory, as of the following. */
memory_drawing *memory_drawing_create(void);
/* title: a line above. map: NULL with a reason why there is none. Returns false when there is no memory. */
bool memory_drawing_add(memory_drawing *drawing, const char *title, const memory_map *map,
                        const char *reason);
/* Writes an SVG document. Returns false when not all of it was written. */
bool memory_drawing_write(const memory_drawing *drawing, FILE *stream);
/* Accepts NULL. */
void memory_drawing_destroy(memory_drawing *drawing);

#endif
