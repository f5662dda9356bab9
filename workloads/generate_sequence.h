/* Lengths of sequences. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_GENERATE_SEQUENCE_H
#define LAKEBED_WORKLOADS_GENERATE_SEQUENCE_H

#include <stdint.h>

#include "workloads/generate.h"
#include "workloads/random_numbers.h"

uint32_t generate_sequence_draw(const generate_sequence *sequence, uint32_t iteration, uint32_t batch,
                                trace_random *random);

#endif
