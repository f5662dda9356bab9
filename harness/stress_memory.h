/* What the blocks of a stress run hold: patterns, written and read in stream order, through every address
 * that a block's memory has. All of it calls the driver, and so needs the policy's lock. */
#ifndef LAKEBED_HARNESS_STRESS_MEMORY_H
#define LAKEBED_HARNESS_STRESS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/device.h"
#include "policies/policy.h"
#include "vmm/cuda.h"

/* A block handed out. */
typedef struct stress_block {
  vmm_address address; /* 0: not live */
  uint64_t size;
  uint64_t number;   /* of its pattern: see verify_pattern */
  vmm_stream stream; /* that wrote it last */
  bool written;      /* and holds its pattern; else it is not to be read */
} stress_block;

typedef struct stress_memory_counts {
  uint64_t filled_bytes, verified_bytes;
  uint64_t verified_blocks;
  uint64_t aliased_pieces; /* runs of bytes written through one address and read through another */
  uint64_t slow_kernels;
} stress_memory_counts;

/* Begins with its device, the rest 0. */
typedef struct stress_memory {
  device *gpu;
  uint64_t fills; /* so far, each with a pattern of its own */
  stress_memory_counts counts;
  vmm_cuda_module *slow; /* NULL: no slow kernels */
  volatile uint32_t *flags;
  vmm_address device_flags;
} stress_memory;

/* Writes a new pattern on the block's stream. */
vmm_status stress_memory_fill(stress_memory *self, stress_block *block);
/* The same on another stream, which waits for the first. */
vmm_status stress_memory_fill_after(stress_memory *self, stress_block *block, vmm_stream stream);
/* Compares, when the stream has got so far. false, and message says what is wrong. */
bool stress_memory_verify(stress_memory *self, const stress_block *block, char *message, size_t message_size);
/* Where the block's chunks are mapped elsewhere too: writes pieces through one address and reads them through
 * the other, both ways; the block's own pattern is gone then. O(everything mapped). */
bool stress_memory_verify_aliases(stress_memory *self, const policy *subject, stress_block *block,
                                  char *message, size_t message_size);

/* Prepares slow kernels, which make what follows them on a stream come late. Only on a real device. On
 * failure message says why. */
vmm_status stress_memory_prepare_slow(stress_memory *self, char *message, size_t message_size);
/* Starts one that ends by itself after bound_ns. Without preparation nothing is done. */
vmm_status stress_memory_slow(stress_memory *self, vmm_stream stream, uint64_t bound_ns);
/* Gives back what was prepared. Before the device is closed. */
void stress_memory_close(stress_memory *self);

#endif
