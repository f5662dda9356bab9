/* How fast this machine's processor is at the moment. The driver's calls are host work, and a virtual
 * machine's processor changes speed with what runs beside it: without a yardstick nobody can tell
 * whether two times differ because the calls do. */
#ifndef LAKEBED_HARNESS_BENCH_HOST_H
#define LAKEBED_HARNESS_BENCH_HOST_H

#include <stdint.h>

/* Nanoseconds that a fixed piece of work (arithmetic, memory, system calls: some 10 us) takes now. */
uint64_t bench_host_loop_ns(void);
/* Returns when the clock shows this time. The processor does not sleep: one that did would start slowly. */
void bench_host_wait_until(uint64_t clock_ns);

#endif
