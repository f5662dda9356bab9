/* Ranges for NVTX, for whichever tool listens: Nsight Systems, Nsight Compute, or another that the
 * environment's NVTX_INJECTION64_PATH names. Domain "lakebed", a category a layer. */
#ifndef LAKEBED_HARNESS_INSTRUMENT_NVTX_H
#define LAKEBED_HARNESS_INSTRUMENT_NVTX_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/instrument.h"

/* Was this program built with NVTX? */
bool instrument_nvtx_is_built(void);

/* coarse: the harness's and the policy's ranges; otherwise all, and live allocations by name. NULL when no
 * tool listens or the host has no memory. */
instrument *instrument_nvtx_create(bool coarse);

/* Is NVTX built in, and does a tool listen? Says so. For doctor. */
bool instrument_nvtx_examine(char *text, size_t text_size);

#endif
