#include "harness/bench_host.h"

#include "harness/progress.h"

uint64_t bench_host_loop_ns(void) {
  enum { ROUNDS = 4000 };
  static volatile uint64_t seed = 1;
  const uint64_t begin = progress_clock_ns();
  /* Four chains that do not wait for each other: sharing a core's units shows. */
  uint64_t a = seed, b = a + 1, c = a + 2, d = a + 3;
  for (int i = 0; i < ROUNDS; i++) {
    a = (a ^ (a >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    b = (b ^ (b >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    c = (c ^ (c >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    d = (d ^ (d >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
  }
  seed = a ^ b ^ c ^ d;
  return progress_clock_ns() - begin;
}

void bench_host_wait_until(uint64_t clock_ns) {
  while (progress_clock_ns() < clock_ns) {
  }
}
