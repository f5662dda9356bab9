// A kernel that keeps the device busy until the host stops it or its time is up.

#include <stdint.h>

static __device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// flags, in the host's memory: [0] becomes 1 when the kernel runs, the host sets [1] to stop it. One thread
// alone asks there, seldom, and passes it on through *stop, in the device's memory: asking is traffic too, and
// shall not be what is measured. Without words the other blocks only wait; with words all their threads read data
// without end. It ends after bound_ns in any case.
extern "C" __global__ void spin(volatile uint32_t *flags, volatile uint32_t *stop, uint64_t bound_ns,
                                const uint64_t *data, uint64_t words, uint64_t *sink) {
  const uint64_t begin = nanoseconds();
  if (blockIdx.x == 0) {
    if (threadIdx.x != 0) return;
    flags[0] = 1;
    __threadfence_system();
    while (flags[1] == 0 && nanoseconds() - begin < bound_ns) __nanosleep(20000);
    *stop = 1;
    return;
  }
  if (words == 0) {
    if (threadIdx.x != 0) return;
    while (*stop == 0 && nanoseconds() - begin < bound_ns) __nanosleep(20000);
    return;
  }
  const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
  uint64_t place = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
  while (*stop == 0 && nanoseconds() - begin < bound_ns) {
    for (int i = 0; i < 256; i++) {
      sum += data[place % words];
      place += stride;
    }
  }
  if (sum == 1) *sink = sum;  // never: the words are 0
}
