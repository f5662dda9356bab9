/* Cuts a program down to what is needed for a finding: delta debugging after Zeller and Hildebrandt
 * (2002), then smaller sizes and fewer streams. */
#ifndef LAKEBED_HARNESS_STRESS_SHRINK_H
#define LAKEBED_HARNESS_STRESS_SHRINK_H

#include "harness/stress_run.h"

/* program has a finding when run by one thread, result says which; both become those of the smallest program
 * that was found within so many runs, or half a minute. Returns how many it took. */
uint64_t stress_shrink(const stress_settings *settings, stress_program *program, stress_result *result,
                       uint64_t most_runs);

#endif
