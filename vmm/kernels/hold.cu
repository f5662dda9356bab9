/* A kernel that holds its stream: for tests of what waits for work and what does not. */

typedef unsigned long long u64;

static __device__ u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/* flags, in the host's memory: [0] becomes 1 when the kernel runs; it ends when the host sets [1], or after
 * bound_ns. One thread. */
extern "C" __global__ void hold(volatile unsigned *flags, u64 bound_ns) {
  u64 begin = nanoseconds();
  flags[0] = 1;
  __threadfence_system();
  while (flags[1] == 0 && nanoseconds() - begin < bound_ns) __nanosleep(1000);
}
