/* Snapshots that are damaged: each gets a message with its place, none crashes, hangs or takes memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/test_main.h"
#include "tests/workloads_pickle.h"
#include "tests/workloads_reading.h"

#define SMALL "tests/data/snapshots/small.p4.pickle"

static const trace_options plain = {0};
static const trace_options seeding = {.seed_from_segments = true, .free_requests = true};

static unsigned char *small_snapshot(const char *path, size_t *size) {
  unsigned char *bytes = read_bytes(path, size);
  ck_assert_ptr_nonnull(bytes);
  return bytes;
}

START_TEST(truncated_at_every_byte) {
  size_t size;
  unsigned char *bytes = small_snapshot(SMALL, &size);
  reading r;
  for (size_t length = 0; length < size; length++) {
    /* A copy of exactly this length, so that reading past it is seen. */
    unsigned char *part = malloc(length + 1);
    ck_assert_ptr_nonnull(part);
    memcpy(part, bytes, length);
    for (int seeded = 0; seeded < 2; seeded++) {
      read_memory(part, length, seeded ? &seeding : &plain, &r);
      if (length == 0) {
        assert_failed(&r, TRACE_NO_EVENTS, "holds no events");
      } else {
        assert_failed(&r, TRACE_MALFORMED, "the file is truncated");
        char place[64];
        snprintf(place, sizeof place, "memory: offset %zu: ", length);
        assert_failed(&r, TRACE_MALFORMED, place);
      }
    }
    free(part);
  }
  free(bytes);
}
END_TEST

START_TEST(every_single_bit_flipped) {
  size_t size;
  unsigned char *bytes = small_snapshot(SMALL, &size);
  reading r;
  unsigned refused = 0;
  for (size_t i = 0; i < size; i++) {
    for (int bit = 0; bit < 8; bit++) {
      bytes[i] ^= (unsigned char)(1 << bit);
      for (int seeded = 0; seeded < 2; seeded++) {
        read_memory(bytes, size, seeded ? &seeding : &plain, &r);
        refused += r.status != TRACE_END;
      }
      bytes[i] ^= (unsigned char)(1 << bit);
    }
  }
  /* Not each can be seen: a flipped bit in a time or a frame's text is as good as none. */
  ck_assert_uint_gt(refused, size * 8 / 2);
  free(bytes);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  ck_assert_int_lt(usage.ru_maxrss, 128 * 1024);
#endif
}
END_TEST

START_TEST(damaged_compression) {
  static const char *const paths[] = {SMALL ".xz", SMALL ".gz", SMALL ".zst"};
  for (size_t p = 0; p < 3; p++) {
    size_t size;
    unsigned char *bytes = small_snapshot(paths[p], &size);
    reading expected, r;
    read_memory(bytes, size, &plain, &expected);
    ck_assert_int_eq(expected.status, TRACE_END);
    for (size_t length = 8; length < size; length++) {
      read_memory(bytes, length, &plain, &r);
      assert_failed(&r, TRACE_MALFORMED, "memory: compressed offset ");
      assert_failed(&r, TRACE_MALFORMED, "the compressed data ends too early: the file is truncated");
    }
    for (size_t i = 0; i < size; i++) {
      for (int bit = 0; bit < 8; bit++) {
        bytes[i] ^= (unsigned char)(1 << bit);
        read_memory(bytes, size, &plain, &r);
        /* Their checksums find every flip that changes what is decoded. */
        if (r.status == TRACE_END) assert_same_events(&expected, &r);
        bytes[i] ^= (unsigned char)(1 << bit);
      }
    }
    free(bytes);
  }
}
END_TEST

static Suite *damaged_suite(void) {
  Suite *suite = suite_create("damaged snapshots");
  TCase *damage = tcase_create("damage");
  tcase_add_test(damage, truncated_at_every_byte);
  tcase_add_test(damage, every_single_bit_flipped);
  tcase_add_test(damage, damaged_compression);
  suite_add_tcase(suite, damage);
  return suite;
}

TEST_MAIN(damaged_suite)
