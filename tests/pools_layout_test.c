/* The line of all physical memory of a heap: order, homes, where addresses lead. */
#include <stdlib.h>

#include "pools/layout.h"
#include "tests/pools_fixture.h"
#include "tests/test_main.h"

static int owner_of_all; /* what chunks of these tests belong to */

typedef struct pieces {
  uint64_t positions[16], bytes[16];
  vmm_address addresses[16];
  size_t count;
} pieces;

static void add_piece(void *context, uint64_t position, uint64_t bytes, vmm_address address) {
  pieces *all = context;
  ck_assert_uint_lt(all->count, 16);
  all->positions[all->count] = position;
  all->bytes[all->count] = bytes;
  all->addresses[all->count++] = address;
}

static void count_allocation(void *context, const pool_allocation *allocation) {
  *(uint64_t *)context += allocation->size;
}

START_TEST(an_empty_heap_has_no_line) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  pool_layout layout;
  ck_assert_int_eq(pool_layout_make(&fixture.heap, NULL, 0, &layout), VMM_SUCCESS);
  ck_assert_uint_eq(layout.bytes + layout.extent_count + layout.place_count, 0);
  ck_assert_uint_eq(pool_layout_find(&layout, 4096), 0);
  pieces none = {0};
  pool_layout_visit(&layout, 4096, MIB, add_piece, &none);
  ck_assert_uint_eq(none.count, 0);
  pool_layout_free(&layout);
  pools_fixture_close(&fixture);
}
END_TEST

/* Three chunks at home in one range, two of them mapped again in another, in reverse; one mapped nowhere. */
START_TEST(a_chunk_has_one_position_wherever_it_is_mapped) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  pool_chunk *chunks[4], *again[2];
  pool_range *plain, *alias;
  ck_assert_int_eq(pool_chunks_create(heap, 4 * MIB, 4, &owner_of_all, chunks), VMM_SUCCESS);
  again[0] = chunks[2];
  again[1] = chunks[0];
  ck_assert_int_eq(pool_range_reserve(heap, 16 * MIB, 2 * MIB, &plain), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_reserve(heap, 8 * MIB, 4 * MIB, &alias), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, plain, 2 * MIB, chunks, 3), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, alias, 0, again, 2), VMM_SUCCESS);
  pool_layout layout;
  const pool_span home = {plain->address, plain->address + plain->size};
  for (int named = 0; named < 2; named++) {
    if (named == 0 && alias->address < plain->address) continue;
    ck_assert_int_eq(pool_layout_make(heap, &home, (size_t)named, &layout), VMM_SUCCESS);
    ck_assert_uint_eq(layout.bytes, 16 * MIB);
    ck_assert_uint_eq(layout.extent_count, 4);
    ck_assert_uint_eq(layout.place_count, 5);
    for (uint64_t i = 0; i < 4; i++) {
      const pool_extent *extent = &layout.extents[i];
      ck_assert_int_eq(extent->kind, POOL_EXTENT_CHUNK);
      ck_assert_uint_eq(extent->position, i * 4 * MIB);
      ck_assert_uint_eq(extent->size, 4 * MIB);
      ck_assert_uint_eq(extent->home, i < 3 ? plain->address + 2 * MIB + i * 4 * MIB : 0);
      ck_assert_uint_eq(extent->mappings, i == 3 ? 0 : i == 1 ? 1 : 2);
      ck_assert_ptr_eq(extent->range, i < 3 ? plain : NULL);
    }
    pieces seen = {0};
    pool_layout_visit(&layout, alias->address + MIB, 5 * MIB, add_piece, &seen);
    ck_assert_uint_eq(seen.count, 2);
    ck_assert_uint_eq(seen.positions[0], 9 * MIB);
    ck_assert_uint_eq(seen.bytes[0], 3 * MIB);
    ck_assert_uint_eq(seen.addresses[0], alias->address + MIB);
    ck_assert_uint_eq(seen.positions[1], 0);
    ck_assert_uint_eq(seen.bytes[1], 2 * MIB);
    /* Nothing is mapped in front of the first chunk. */
    seen.count = 0;
    pool_layout_visit(&layout, plain->address, 3 * MIB, add_piece, &seen);
    ck_assert_uint_eq(seen.count, 1);
    ck_assert_uint_eq(seen.positions[0], 0);
    ck_assert_uint_eq(seen.bytes[0], MIB);
    pool_layout_free(&layout);
  }
  /* Home is where the caller says. */
  const pool_span other = {alias->address, alias->address + alias->size};
  ck_assert_int_eq(pool_layout_make(heap, &other, 1, &layout), VMM_SUCCESS);
  uint64_t in_alias = 0;
  for (size_t i = 0; i < layout.extent_count; i++) in_alias += layout.extents[i].range == alias;
  ck_assert_uint_eq(in_alias, 2);
  ck_assert_uint_eq(layout.bytes, 16 * MIB);
  pool_layout_free(&layout);
  ck_assert_int_eq(pool_range_unmap(heap, alias, 0, alias->size), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_unmap(heap, plain, 2 * MIB, 12 * MIB), VMM_SUCCESS);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(pool_chunk_release(heap, chunks[i]), VMM_SUCCESS);
  pools_fixture_close(&fixture);
}
END_TEST

START_TEST(segments_lie_by_address_and_blocks_elsewhere_are_seen) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  pool_heap *heap = &fixture.heap;
  pool_segment *segments[2];
  ck_assert_int_eq(pool_segment_allocate(heap, 4 * MIB, &segments[0]), VMM_SUCCESS);
  ck_assert_int_eq(pool_segment_allocate(heap, 6 * MIB, &segments[1]), VMM_SUCCESS);
  const int low = segments[0]->address < segments[1]->address ? 0 : 1;
  heap->memory_elsewhere = true;
  ck_assert_int_eq(pool_heap_hand_out(heap, 4096, 2 * MIB, MIB, 0, &owner_of_all), VMM_SUCCESS);
  ck_assert_int_eq(pool_heap_hand_out(heap, segments[0]->address + MIB, MIB, MIB, 0, &owner_of_all),
                   VMM_SUCCESS);
  pool_layout layout;
  ck_assert_int_eq(pool_layout_make(heap, NULL, 0, &layout), VMM_SUCCESS);
  ck_assert_uint_eq(layout.extent_count, 3);
  ck_assert_int_eq(layout.extents[0].kind, POOL_EXTENT_ELSEWHERE);
  ck_assert_uint_eq(layout.extents[0].size, 2 * MIB);
  ck_assert_int_eq(layout.extents[1].kind, POOL_EXTENT_SEGMENT);
  ck_assert_uint_eq(layout.extents[1].home, segments[low]->address);
  ck_assert_uint_eq(layout.extents[2].position, 2 * MIB + segments[low]->size);
  ck_assert_uint_eq(layout.bytes, 12 * MIB);
  uint64_t bytes = 0;
  pool_heap_visit_allocations(heap, count_allocation, &bytes);
  ck_assert_uint_eq(bytes, 3 * MIB);
  pool_layout_free(&layout);
  pool_allocation taken;
  vmm_status status;
  ck_assert(pool_heap_take_back(heap, pool_heap_find(heap, 4096), &taken, &status));
  ck_assert(pool_heap_take_back(heap, pool_heap_find(heap, segments[0]->address + MIB), &taken, &status));
  pools_fixture_close(&fixture);
}
END_TEST

static Suite *layout_suite(void) {
  Suite *suite = suite_create("pools_layout");
  TCase *cases = tcase_create("layout");
  tcase_add_test(cases, an_empty_heap_has_no_line);
  tcase_add_test(cases, a_chunk_has_one_position_wherever_it_is_mapped);
  tcase_add_test(cases, segments_lie_by_address_and_blocks_elsewhere_are_seen);
  suite_add_tcase(suite, cases);
  return suite;
}

TEST_MAIN(layout_suite)
