#include "harness/bench_host.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness/progress.h"

enum { ROUNDS = 1500, SYSTEM_CALLS = 30, STEPS = 400, PLACES = 1 << 15 };

/* Four chains that do not wait for each other: sharing a core's units shows. */
static uint64_t do_arithmetic(uint64_t seed) {
  uint64_t a = seed, b = a + 1, c = a + 2, d = a + 3;
  for (int i = 0; i < ROUNDS; i++) {
    a = (a ^ (a >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    b = (b ^ (b >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    c = (c ^ (c >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    d = (d ^ (d >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
  }
  return a ^ b ^ c ^ d;
}

/* Goes through 128 KiB, every place once before the first again (a generator of full period). */
static uint64_t walk_memory(void) {
  static uint32_t next[PLACES];
  if (next[0] == 0) {
    for (uint32_t i = 0; i < PLACES; i++) next[i] = (i * 5u + 12345u) % PLACES;
  }
  static uint32_t place;
  for (int i = 0; i < STEPS; i++) place = next[place];
  return place;
}

uint64_t bench_host_loop_ns(void) {
  static volatile uint64_t seed = 1;
  const uint64_t begin = progress_clock_ns();
  uint64_t result = do_arithmetic(seed) ^ walk_memory();
  for (int i = 0; i < SYSTEM_CALLS; i++) result ^= (uint64_t)syscall(SYS_getppid);
  seed = result;
  return progress_clock_ns() - begin;
}

void bench_host_wait_until(uint64_t clock_ns) {
  while (progress_clock_ns() < clock_ns) {
  }
}
