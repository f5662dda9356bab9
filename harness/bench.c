#include "harness/bench.h"

#include <stddef.h>

#include "harness/program.h"

exit_status command_bench(int argc, char **argv) {
  static const program_command commands[] = {
      {"vmm", "what virtual memory calls cost: the GMLake paper's Table 1 and Figure 6, device profiles",
       command_bench_vmm},
      {"access", "bandwidth of stitched memory, and whether aliases of one memory are safe",
       command_bench_access},
      {"alloc", "what malloc and free cost in each allocator policy", command_bench_alloc},
      {NULL, NULL, NULL},
  };
  return program_dispatch(commands, "Micro-benchmarks.", argc, argv);
}
