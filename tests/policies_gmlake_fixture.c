#include "tests/policies_gmlake_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/gmlake.h"

static int compare_ranges(const void *left, const void *right) {
  const pool_range *a = *(pool_range *const *)left, *b = *(pool_range *const *)right;
  return a->address < b->address ? -1 : a->address > b->address;
}

/* The pBlock that lies at an address of a space; NULL where nothing is mapped. */
static const gmlake_place *place_at(const gmlake_space *space, vmm_address address) {
  const gmlake_place *place = space ? space->first : NULL;
  while (place && place->address + place->block->base.size <= address) place = place->next;
  return place && place->address <= address ? place : NULL;
}

static const gmlake_space *space_of(const policies_fixture *fixture, const pool_range *range) {
  const gmlake_space *space = ((const gmlake *)fixture->policy)->spaces.oldest;
  while (space && space->range != range) space = space->newer;
  return space;
}

static void describe(const policies_fixture *fixture, char *text, size_t text_size) {
  pool_range *ranges[256];
  size_t count = 0, used = 0;
  for (pool_range *range = fixture->policy->heap.ranges; range; range = range->next) {
    require(count < 256, "too many ranges to describe");
    ranges[count++] = range;
  }
  if (count > 0) qsort(ranges, count, sizeof *ranges, compare_ranges);
  text[0] = '\0';
  for (size_t i = 0; i < count; i++) {
    const gmlake_space *space = space_of(fixture, ranges[i]);
    const vmm_address range_end = ranges[i]->address + ranges[i]->size;
    const gmlake_place *first = place_at(space, ranges[i]->address);
    bool home = !first || first->home;
    used += (size_t)snprintf(text + used, text_size - used, "%s%s", i ? ", " : "", home ? "" : "<");
    for (vmm_address at = ranges[i]->address, end; at < range_end; at = end) {
      const gmlake_place *place = place_at(space, at);
      for (end = at + ranges[i]->unit; end < range_end && place_at(space, end) == place;)
        end += ranges[i]->unit;
      bool active = home && place && !place->block->base.free;
      used += (size_t)snprintf(text + used, text_size - used, place ? "%s%" PRIu64 "%s" : "%s(%" PRIu64 ")%s",
                               at > ranges[i]->address ? " " : "", (end - at) / MIB, active ? "!" : "");
    }
    if (!home) used += (size_t)snprintf(text + used, text_size - used, ">");
    require(used < text_size, "too much to describe");
  }
}

static uint64_t calls_before[VMM_CALL_COUNT];

static uint64_t calls_since(const policies_fixture *fixture, vmm_call call) {
  uint64_t now = policies_calls(fixture, call), difference = now - calls_before[call];
  calls_before[call] = now;
  return difference;
}

static void expect_calls(const policies_fixture *fixture, const char *step, gmlake_calls expected) {
  const struct {
    vmm_call call;
    uint64_t count;
  } calls[] = {{VMM_CALL_ADDRESS_RESERVE, expected.reserve},
               {VMM_CALL_CREATE, expected.create},
               {VMM_CALL_MAP, expected.map},
               {VMM_CALL_SET_ACCESS, expected.access},
               {VMM_CALL_UNMAP, expected.unmap},
               {VMM_CALL_RELEASE, expected.release},
               {VMM_CALL_ADDRESS_FREE, expected.address_free},
               {VMM_CALL_SYNCHRONIZE, expected.synchronize},
               {VMM_CALL_MALLOC, 0},
               {VMM_CALL_FREE, 0}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    uint64_t count = calls_since(fixture, calls[i].call);
    ck_assert_msg(count == calls[i].count, "%s: %" PRIu64 " calls to %s, not %" PRIu64, step, count,
                  vmm_call_name(calls[i].call), calls[i].count);
  }
}

void gmlake_expect_blocks(const policies_fixture *fixture, const char *step, const char *expected) {
  char blocks[1024];
  policies_fixture_check(fixture, step);
  describe(fixture, blocks, sizeof blocks);
  ck_assert_msg(strcmp(blocks, expected) == 0, "%s: the blocks are \"%s\", not \"%s\"", step, blocks,
                expected);
}

void gmlake_expect(const policies_fixture *fixture, const char *step, const char *blocks, uint64_t sblocks,
                   uint64_t stitched, uint64_t reserved_mib, gmlake_calls calls) {
  gmlake_expect_blocks(fixture, step, blocks);
  uint64_t reserved = policies_statistics(fixture)->reserved_bytes.current;
  ck_assert_msg(reserved == reserved_mib * MIB, "%s: %" PRIu64 " bytes are reserved", step, reserved);
  ck_assert_uint_eq(policies_counter(fixture, "pblock_bytes"), reserved);
  uint64_t all = policies_counter(fixture, "sblocks_count"),
           own = policies_counter(fixture, "stitched_sblocks_count");
  ck_assert_msg(all == sblocks && own == stitched, "%s: %" PRIu64 " sBlocks, %" PRIu64 " of them stitched",
                step, all, own);
  expect_calls(fixture, step, calls);
}

void gmlake_expect_counts(const policies_fixture *fixture, const char *expected) {
  static const char *const names[] = {"S1", "S2", "S3", "S4", "S5", "split", "stitch", "stitch_free"};
  char text[256] = "";
  for (size_t i = 0; i < 8; i++) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%" PRIu64, i ? " " : "",
             policies_operation(fixture, names[i])->count);
  }
  ck_assert_str_eq(text, expected);
}

void gmlake_forget_calls(const policies_fixture *fixture) {
  for (vmm_call call = 0; call < VMM_CALL_COUNT; call++) calls_before[call] = policies_calls(fixture, call);
}

policies_fixture gmlake_open(const char *spec, uint64_t capacity) {
  policies_fixture fixture;
  policies_fixture_open(&fixture,
                        &(policies_fixture_options){.spec = spec, .capacity = capacity, .profile = "h200"});
  gmlake_forget_calls(&fixture);
  return fixture;
}

void gmlake_expect_same_memory(const policies_fixture *fixture, vmm_address one, vmm_address other,
                               uint64_t size) {
  for (uint64_t offset = 0; offset < size; offset += 64 * KIB) {
    uint64_t place = vmm_sim_physical(fixture->sim, one + offset);
    require(place != UINT64_MAX && place == vmm_sim_physical(fixture->sim, other + offset),
            "0x%" PRIx64 " and 0x%" PRIx64 " are not the same memory", one + offset, other + offset);
  }
}
