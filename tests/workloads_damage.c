#include "tests/workloads_damage.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

unsigned char *damage_read(const char *name, size_t *size) {
  char path[256];
  snprintf(path, sizeof path, "tests/data/traces/%s", name);
  unsigned char *bytes = read_bytes(path, size);
  ck_assert_ptr_nonnull(bytes);
  reading r;
  read_memory(bytes, *size, NULL, &r);
  ck_assert_msg(r.status == TRACE_END, "%s", r.error.message);
  return bytes;
}

void damage_truncate(const unsigned char *bytes, size_t size,
                     void (*check)(const unsigned char *bytes, size_t length, const reading *result)) {
  for (size_t length = 0; length < size; length++) {
    /* A copy of exactly this length, so that reading past it is seen. */
    unsigned char *part = malloc(length + (length == 0));
    ck_assert_ptr_nonnull(part);
    memcpy(part, bytes, length);
    reading r;
    read_memory(part, length, NULL, &r);
    check(bytes, length, &r);
    free(part);
  }
}

unsigned damage_flip_bits(unsigned char *bytes, size_t size) {
  unsigned refused = 0;
  for (size_t i = 0; i < size; i++) {
    for (int bit = 0; bit < 8; bit++) {
      bytes[i] ^= (unsigned char)(1 << bit);
      reading r;
      read_memory(bytes, size, NULL, &r);
      refused += r.status != TRACE_END;
      bytes[i] ^= (unsigned char)(1 << bit);
    }
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  ck_assert_int_lt(usage.ru_maxrss, 128 * 1024);
#endif
  return refused;
}

void damage_refused(const char *text, const char *part) {
  reading r;
  read_text(text, &r);
  assert_failed(&r, TRACE_MALFORMED, part);
}
