// A kernel that runs until the host stops it or its time is up.

#include <stdint.h>

static __device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// flags[0] becomes 1 when the kernel runs; it ends when the host sets flags[1], or after bound_ns.
extern "C" __global__ void spin(volatile uint32_t *flags, uint64_t bound_ns) {
  const uint64_t begin = nanoseconds();
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    flags[0] = 1;
    __threadfence_system();
  }
  while (flags[1] == 0 && nanoseconds() - begin < bound_ns) __nanosleep(1000);
}
