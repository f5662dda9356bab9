/* Random numbers that are the same on any machine: SplitMix64 (Steele, Lea, Flood: Fast splittable
 * pseudorandom number generators, OOPSLA 2014). Equal seeds give equal numbers. O(1), no failures. */
#ifndef LAKEBED_WORKLOADS_RANDOM_NUMBERS_H
#define LAKEBED_WORKLOADS_RANDOM_NUMBERS_H

#include <stdint.h>

typedef struct trace_random {
  uint64_t state;
} trace_random;

trace_random trace_random_begin(uint64_t seed);
uint64_t trace_random_next(trace_random *random);
/* 0 to below - 1; below is at least 1. Without bias. */
uint64_t trace_random_below(trace_random *random, uint64_t below);
/* From 0, below 1. */
double trace_random_unit(trace_random *random);
/* Mean 0, deviation 1. */
double trace_random_normal(trace_random *random);

#endif
