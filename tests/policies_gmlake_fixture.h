/* What the tests of gmlake share: its blocks as text, and what a step did to them. */
#ifndef LAKEBED_TESTS_POLICIES_GMLAKE_FIXTURE_H
#define LAKEBED_TESTS_POLICIES_GMLAKE_FIXTURE_H

#include "tests/policies_fixture.h"

/* Over the H200's latencies. capacity 0: the profile's. Forgets the calls counted so far. */
policies_fixture gmlake_open(const char *spec, uint64_t capacity);

/* Driver calls since the last step. */
typedef struct gmlake_calls {
  uint64_t reserve, create, map, access, unmap, release, address_free, synchronize;
} gmlake_calls;

#define NO_CALLS ((gmlake_calls){.reserve = 0})

/* From here on calls count as new. */
void gmlake_forget_calls(const policies_fixture *fixture);

/* Checks everything, and that the blocks are as described. Sizes in MiB by address. A range of pBlocks:
 * "12! 8 (6)", '!' for active ones, brackets where nothing is mapped; an sBlock's own range: "<12 10 2>",
 * the pieces of pBlocks that it maps. Ranges are divided by commas. */
void gmlake_expect_blocks(const policies_fixture *fixture, const char *step, const char *blocks);

/* A step's outcome: the blocks, how many sBlocks there are and how many of them have a VA of their
 * own, and the driver calls it took. Reserved memory is that of all pBlocks. */
void gmlake_expect(const policies_fixture *fixture, const char *step, const char *blocks, uint64_t sblocks,
                   uint64_t stitched, uint64_t reserved_mib, gmlake_calls calls);

/* How often each state was met and each function ran: "S1 S2 S3 S4 S5 split stitch stitch_free". */
void gmlake_expect_counts(const policies_fixture *fixture, const char *counts);

/* Are two runs of addresses the same bytes? */
void gmlake_expect_same_memory(const policies_fixture *fixture, vmm_address one, vmm_address other,
                               uint64_t size);

#endif
