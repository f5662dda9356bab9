/* PyTorch's size rules, shared by the policies that follow it: rounding of requests
 * and sizes of segments. Source: c10/cuda/CUDACachingAllocator.cpp, round_size,
 * get_allocation_size, roundup_power2_next_division. Sizes are bytes; all O(1). */
#ifndef LAKEBED_POLICIES_PYTORCH_ROUNDING_H
#define LAKEBED_POLICIES_PYTORCH_ROUNDING_H

#include <stdbool.h>
#include <stdint.h>

#define PYTORCH_BLOCK_MINIMUM UINT64_C(512)
#define PYTORCH_SMALL_MAXIMUM UINT64_C(1048576) /* up to here the small pool serves */
#define PYTORCH_SMALL_SEGMENT UINT64_C(2097152)
#define PYTORCH_LARGE_MINIMUM UINT64_C(10485760) /* from here on a request has its own segment */

typedef struct pytorch_rounding {
  uint64_t large_segment; /* segment for requests above the small pool's and below PYTORCH_LARGE_MINIMUM */
  uint32_t divisions[16]; /* roundup_power2_divisions for 1 MiB, 2 MiB ... 32 GiB and more; 0 or 1: off */
} pytorch_rounding;

/* What pytorch_rounding_parse takes, for messages. */
#define PYTORCH_ROUNDUP_EXPECTED "a power of two, or [256:1,512:2,>:8] whose keys are powers of two in MiB"

/* Parses roundup_power2_divisions: "N", or "[256:1,512:2,>:8]" with keys in MiB; sets divisions. */
bool pytorch_rounding_parse(pytorch_rounding *rounding, const char *text);
/* The block size for a request. size < 2^60. */
uint64_t pytorch_round(const pytorch_rounding *rounding, uint64_t size);
/* The segment to take from the driver for a block of this rounded size. */
uint64_t pytorch_segment_size(const pytorch_rounding *rounding, uint64_t size);

#endif
