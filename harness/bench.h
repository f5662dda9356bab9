/* lakebed bench: micro-benchmarks of the driver, of stitched memory, of the policies. */
#ifndef LAKEBED_HARNESS_BENCH_H
#define LAKEBED_HARNESS_BENCH_H

#include "harness/exit_status.h"

exit_status command_bench(int argc, char **argv);
exit_status command_bench_vmm(int argc, char **argv);
exit_status command_bench_access(int argc, char **argv);
exit_status command_bench_alloc(int argc, char **argv);

#endif
