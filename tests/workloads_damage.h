/* Damages a small trace in every way there is. */
#ifndef LAKEBED_TESTS_WORKLOADS_DAMAGE_H
#define LAKEBED_TESTS_WORKLOADS_DAMAGE_H

#include <stddef.h>

#include "tests/workloads_reading.h"

/* The whole of a file of tests/data/traces that reads to its end; the caller frees. */
unsigned char *damage_read(const char *name, size_t *size);

/* Reads every beginning of bytes, from none to all but the last, each in memory of just that size. */
void damage_truncate(const unsigned char *bytes, size_t size,
                     void (*check)(const unsigned char *bytes, size_t length, const reading *result));

/* Flips each bit, one at a time, and reads; returns how many were refused. Fails when that takes memory. */
unsigned damage_flip_bits(unsigned char *bytes, size_t size);

/* Fails unless text is refused as malformed, with a message that contains part. */
void damage_refused(const char *text, const char *part);

#endif
