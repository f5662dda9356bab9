/* Random numbers that are the same on any machine, and lengths of sequences. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_GENERATE_SEQUENCE_H
#define LAKEBED_WORKLOADS_GENERATE_SEQUENCE_H

#include <stdint.h>

#include "workloads/generate.h"

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
typedef struct generate_random_state {
  uint64_t state;
} generate_random_state;

generate_random_state generate_random_begin(uint64_t seed);
uint64_t generate_random_next(generate_random_state *random);
/* 0 to below - 1; below is at least 1. Without bias. */
uint64_t generate_random_below(generate_random_state *random, uint64_t below);
/* From 0, below 1. */
double generate_random_unit(generate_random_state *random);
/* Mean 0, deviation 1. */
double generate_random_normal(generate_random_state *random);

uint32_t generate_sequence_draw(const generate_sequence *sequence, uint32_t iteration, uint32_t batch,
                                generate_random_state *random);

#endif
