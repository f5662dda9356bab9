#include "workloads/random_numbers.h"

trace_random trace_random_begin(uint64_t seed) { return (trace_random){seed}; }

uint64_t trace_random_next(trace_random *random) {
  uint64_t mixed = random->state += UINT64_C(0x9e3779b97f4a7c15);
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
  return mixed ^ (mixed >> 31);
}

uint64_t trace_random_below(trace_random *random, uint64_t below) {
  uint64_t unfair = (0 - below) % below; /* so many of the lowest numbers have one chance more */
  uint64_t number;
  do {
    number = trace_random_next(random);
  } while (number < unfair);
  return number % below;
}

double trace_random_unit(trace_random *random) { return (double)(trace_random_next(random) >> 11) * 0x1p-53; }

/* The sum of twelve: additions alone, so that every C library agrees on the last bit. */
double trace_random_normal(trace_random *random) {
  double sum = -6;
  for (unsigned i = 0; i < 12; i++) sum += trace_random_unit(random);
  return sum;
}
