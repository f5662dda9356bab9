/* The invariant walker: each kind of broken heap is found, and named. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pools/heap_internal.h"
#include "tests/pools_fixture.h"
#include "tests/test_main.h"

enum { CHUNKS = 6 };

/* A sound heap: two segments, six chunks in a range, four of them in a second one too. */
typedef struct scene {
  pools_fixture fixture;
  pool_segment *segments[2];
  pool_chunk *chunks[CHUNKS];
  pool_range *plain, *alias;
  vmm_address in_segment, behind_it, in_range, pending;
  struct {
    void *place;
    unsigned char old[16];
    size_t size;
  } changes[16];
  int change_count;
  char culprits[3][96]; /* words that the message must hold */
  int culprit_count;
} scene;

static void hand_out(scene *set, vmm_address address, uint64_t size) {
  ck_assert_int_eq(pool_heap_hand_out(&set->fixture.heap, address, size, size - 12, 0, set), VMM_SUCCESS);
}

static void scene_open(scene *set) {
  memset(set, 0, sizeof *set);
  pools_fixture_open(&set->fixture, 0, 4, 256 * MIB);
  pool_heap *heap = &set->fixture.heap;
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(pool_segment_allocate(heap, 20 * MIB, &set->segments[i]), VMM_SUCCESS);
  }
  ck_assert_int_eq(pool_chunks_create(heap, 4 * MIB, CHUNKS, set, set->chunks), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_reserve(heap, 32 * MIB, 2 * MIB, &set->plain), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_reserve(heap, 16 * MIB, 2 * MIB, &set->alias), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, set->plain, 0, set->chunks, CHUNKS), VMM_SUCCESS);
  ck_assert_int_eq(pool_range_map(heap, set->alias, 0, set->chunks + 2, 4), VMM_SUCCESS);
  set->in_segment = set->segments[0]->address + MIB;
  set->behind_it = set->in_segment + 2 * MIB;
  set->in_range = set->plain->address + MIB;
  set->pending = set->segments[1]->address;
  hand_out(set, set->in_segment, 2 * MIB);
  hand_out(set, set->behind_it, MIB);
  hand_out(set, set->in_range, 9 * MIB); /* chunks 0, 1 and half of 2 */
  hand_out(set, set->pending, MIB);
  ck_assert_int_eq(pool_heap_record_stream(heap, set->pending, 1), VMM_SUCCESS);
  pool_allocation taken;
  vmm_status status;
  ck_assert(!pool_heap_take_back(heap, pool_heap_find(heap, set->pending), &taken, &status));
  pools_fixture_check(&set->fixture, "the sound heap");
}

/* Changes a field for the while of the check. */
static void corrupt(scene *set, void *place, size_t size, const void *value) {
  ck_assert_int_lt(set->change_count, 16);
  set->changes[set->change_count].place = place;
  set->changes[set->change_count].size = size;
  memcpy(set->changes[set->change_count].old, place, size);
  set->change_count++;
  memcpy(place, value, size);
}
#define CORRUPT(set, field, value)                       \
  do {                                                   \
    __typeof__(field) corrupted = (value);               \
    corrupt((set), &(field), sizeof(field), &corrupted); \
  } while (0)

static void restore(scene *set) {
  while (set->change_count > 0) {
    set->change_count--;
    memcpy(set->changes[set->change_count].place, set->changes[set->change_count].old,
           set->changes[set->change_count].size);
  }
}

static void expect(scene *set, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void expect(scene *set, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(set->culprits[set->culprit_count], sizeof set->culprits[0], format, arguments);
  va_end(arguments);
  set->culprit_count++;
}
static void expect_address(scene *set, vmm_address address) { expect(set, "0x%" PRIx64, address); }

static pool_allocation *allocation(scene *set, vmm_address address) {
  return heap_lookup(&set->fixture.heap, address);
}

/* ---- what can be broken ---- */

static void overlap_in_a_segment(scene *set) {
  CORRUPT(set, allocation(set, set->in_segment)->size, 2 * MIB + 512);
  CORRUPT(set, set->fixture.heap.statistics.allocated_bytes.current,
          set->fixture.heap.statistics.allocated_bytes.current + 512);
  CORRUPT(set, set->fixture.heap.statistics.active_bytes.current,
          set->fixture.heap.statistics.active_bytes.current + 512);
  expect(set, "share physical memory");
  expect_address(set, set->in_segment);
  expect_address(set, set->behind_it);
}

/* Far apart in addresses, the same bytes behind them: chunk 2 is mapped in both ranges. */
static void overlap_through_an_alias(scene *set) {
  hand_out(set, set->alias->address, 2 * MIB);
  expect(set, "share physical memory");
  expect_address(set, set->in_range);
  expect_address(set, set->alias->address);
}

/* The second half of chunk 2 is not the first one's: no overlap, but one byte more would be. */
static void overlap_by_a_byte(scene *set) {
  hand_out(set, set->alias->address + 2 * MIB, MIB);
  pools_fixture_check(&set->fixture, "neighbours within a chunk");
  CORRUPT(set, allocation(set, set->in_range)->size, 9 * MIB + 1);
  CORRUPT(set, set->fixture.heap.statistics.allocated_bytes.current,
          set->fixture.heap.statistics.allocated_bytes.current + 1);
  CORRUPT(set, set->fixture.heap.statistics.active_bytes.current,
          set->fixture.heap.statistics.active_bytes.current + 1);
  expect(set, "share physical memory");
  expect_address(set, set->in_range);
  expect_address(set, set->alias->address + 2 * MIB);
}

static void overlap_with_a_waiting_one(scene *set) {
  hand_out(set, set->pending + 512, 512);
  expect(set, "share physical memory");
  expect_address(set, set->pending);
  expect_address(set, set->pending + 512);
}

static void live_byte_unmapped(scene *set) {
  hand_out(set, set->plain->address + 20 * MIB, 6 * MIB);
  expect(set, "nothing is mapped at 0x%" PRIx64, set->plain->address + 24 * MIB);
  expect_address(set, set->plain->address + 20 * MIB);
}

static void outside_everything(scene *set) {
  hand_out(set, UINT64_C(0x1234000), 512);
  expect(set, "allocation 0x1234000 of 512 bytes lies outside");
}

static void past_the_end_of_its_segment(scene *set) {
  hand_out(set, set->segments[0]->address + 19 * MIB, MIB + 512);
  expect(set, "lies outside");
  expect_address(set, set->segments[0]->address + 19 * MIB);
}

static void less_than_was_asked_for(scene *set) {
  CORRUPT(set, allocation(set, set->in_segment)->requested, 2 * MIB + 1);
  expect_address(set, set->in_segment);
  expect(set, "%" PRIu64 " were asked for", 2 * MIB + 1);
}

static void wrong_allocations(scene *set) {
  CORRUPT(set, set->fixture.heap.statistics.allocations.current, 4);
  expect(set, "allocations says 4, the sum is 3");
}
static void wrong_allocated_bytes(scene *set) {
  CORRUPT(set, set->fixture.heap.statistics.allocated_bytes.current, 7);
  expect(set, "allocated bytes says 7, the sum is %" PRIu64, 12 * MIB);
}
static void wrong_active_bytes(scene *set) {
  CORRUPT(set, set->fixture.heap.statistics.active_bytes.current, 7);
  expect(set, "active bytes says 7, the sum is %" PRIu64, 13 * MIB);
}
static void wrong_requested_bytes(scene *set) {
  CORRUPT(set, set->fixture.heap.statistics.requested_bytes.current, 7);
  expect(set, "requested bytes says 7, the sum is %" PRIu64, 13 * MIB - 48);
}
static void wrong_reserved_bytes(scene *set) {
  CORRUPT(set, set->fixture.heap.statistics.reserved_bytes.current, 7);
  expect(set, "reserved bytes says 7, the sum is %" PRIu64, 64 * MIB);
}
static void wrong_segments(scene *set) {
  CORRUPT(set, set->fixture.heap.statistics.segments.current, 3);
  expect(set, "segments says 3, the sum is 2");
}
static void wrong_pending(scene *set) {
  CORRUPT(set, set->fixture.heap.pending_count, 0);
  expect(set, "pending frees says 0, the sum is 1");
}
static void wrong_reserved_addresses(scene *set) {
  CORRUPT(set, set->fixture.heap.reserved_address_bytes, 7);
  expect(set, "reserved addresses says 7, the sum is %" PRIu64, 48 * MIB);
}
static void wrong_chunk_count(scene *set) {
  CORRUPT(set, set->fixture.heap.chunk_count, 7);
  expect(set, "counts 7 chunks and holds 6");
}
static void wrong_range_count(scene *set) {
  CORRUPT(set, set->fixture.heap.range_count, 1);
  expect(set, "counts 1 ranges and holds 2");
}
static void wrong_stranded(scene *set) {
  CORRUPT(set, set->fixture.heap.stranded_bytes, 7);
  expect(set, "stranded bytes says 7, the sum is 0");
}

static void past_the_limit(scene *set) {
  CORRUPT(set, set->fixture.heap.limit, 60 * MIB);
  expect(set, "%" PRIu64 " bytes are reserved, past the limit of %" PRIu64, 64 * MIB, 60 * MIB);
}

static void chunk_without_owner(scene *set) {
  CORRUPT(set, set->chunks[3]->owner, NULL);
  expect(set, "chunk %" PRIu64 " has no owner", set->chunks[3]->handle);
}

static void mapping_not_counted(scene *set) {
  CORRUPT(set, set->chunks[3]->mappings, 1);
  expect(set, "chunk %" PRIu64 " counts 1 mappings and has 2", set->chunks[3]->handle);
}

static void mapping_counted_that_is_not(scene *set) {
  CORRUPT(set, set->chunks[0]->mappings, 2);
  expect(set, "chunk %" PRIu64 " counts 2 mappings and has 1", set->chunks[0]->handle);
}

static void range_counts_too_much(scene *set) {
  CORRUPT(set, set->alias->mapped, 18 * MIB);
  expect_address(set, set->alias->address);
  expect(set, "counts %" PRIu64 " mapped bytes and maps %" PRIu64, 18 * MIB, 16 * MIB);
}

/* A chunk that the heap gave back but a range still maps. */
static void chunk_not_held(scene *set) {
  pool_heap *heap = &set->fixture.heap;
  pool_chunk *lost = set->chunks[5];
  if (lost->previous)
    CORRUPT(set, lost->previous->next, lost->next);
  else
    CORRUPT(set, heap->chunks, lost->next);
  if (lost->next) CORRUPT(set, lost->next->previous, lost->previous);
  CORRUPT(set, heap->chunk_count, 5);
  CORRUPT(set, heap->statistics.reserved_bytes.current, 60 * MIB);
  expect(set, "chunk %" PRIu64 ", which the heap does not hold", lost->handle);
  expect_address(set, set->alias->address);
}

/* The slots of a chunk in the wrong order, all counts right. */
static void half_a_chunk(scene *set) {
  CORRUPT(set, set->plain->slots[3].offset, 0);
  CORRUPT(set, set->plain->slots[2].offset, 1);
  expect_address(set, set->plain->address + 4 * MIB);
  expect(set, "part of chunk %" PRIu64 " out of order", set->chunks[1]->handle);
}

static void ranges_overlap(scene *set) {
  CORRUPT(set, set->alias->address, set->plain->address + 30 * MIB);
  expect(set, "two runs of addresses overlap");
}

static const struct {
  const char *name;
  void (*corrupt)(scene *set);
} corruptions[] = {
#define XX(name) \
  { #name, name }
    XX(overlap_in_a_segment),
    XX(overlap_through_an_alias),
    XX(overlap_by_a_byte),
    XX(overlap_with_a_waiting_one),
    XX(live_byte_unmapped),
    XX(outside_everything),
    XX(past_the_end_of_its_segment),
    XX(less_than_was_asked_for),
    XX(wrong_allocations),
    XX(wrong_allocated_bytes),
    XX(wrong_active_bytes),
    XX(wrong_requested_bytes),
    XX(wrong_reserved_bytes),
    XX(wrong_segments),
    XX(wrong_pending),
    XX(wrong_reserved_addresses),
    XX(wrong_chunk_count),
    XX(wrong_range_count),
    XX(wrong_stranded),
    XX(past_the_limit),
    XX(chunk_without_owner),
    XX(mapping_not_counted),
    XX(mapping_counted_that_is_not),
    XX(range_counts_too_much),
    XX(chunk_not_held),
    XX(half_a_chunk),
    XX(ranges_overlap),
#undef XX
};

START_TEST(finds_and_names) {
  scene set;
  scene_open(&set);
  corruptions[_i].corrupt(&set);
  char message[512] = "";
  bool sound = pool_heap_check(&set.fixture.heap, message, sizeof message);
  restore(&set);
  ck_assert_msg(!sound, "%s is not found", corruptions[_i].name);
  for (int i = 0; i < set.culprit_count; i++) {
    ck_assert_msg(strstr(message, set.culprits[i]) != NULL, "%s: \"%s\" lacks \"%s\"", corruptions[_i].name,
                  message, set.culprits[i]);
  }
  pools_fixture_close(&set.fixture);
}
END_TEST

/* Memory that the heap does not hold (null, the driver's own pool) may still not be given out twice. */
START_TEST(finds_overlap_in_memory_of_others) {
  pools_fixture fixture;
  pools_fixture_open(&fixture, 0, 0, UINT64_MAX);
  fixture.heap.memory_elsewhere = true;
  char message[512] = "";
  ck_assert_int_eq(pool_heap_hand_out(&fixture.heap, 4096, 1024, 1000, 0, &fixture), VMM_SUCCESS);
  ck_assert_int_eq(pool_heap_hand_out(&fixture.heap, 5120, 1024, 1000, 0, &fixture), VMM_SUCCESS);
  ck_assert_msg(pool_heap_check(&fixture.heap, message, sizeof message), "%s", message);
  ck_assert_int_eq(pool_heap_hand_out(&fixture.heap, 4608, 512, 500, 0, &fixture), VMM_SUCCESS);
  ck_assert(!pool_heap_check(&fixture.heap, message, sizeof message));
  ck_assert_msg(strstr(message, "0x1000") && strstr(message, "0x1200"), "%s", message);
  pools_fixture_close(&fixture);
}
END_TEST

static Suite *check_suite(void) {
  Suite *suite = suite_create("pools_check");
  TCase *walker = tcase_create("walker");
  tcase_add_loop_test(walker, finds_and_names, 0, (int)(sizeof corruptions / sizeof *corruptions));
  tcase_add_test(walker, finds_overlap_in_memory_of_others);
  suite_add_tcase(suite, walker);
  return suite;
}

TEST_MAIN(check_suite)
