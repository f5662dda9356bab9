/* Numbers as people read them: three significant digits and a binary unit. */
#ifndef LAKEBED_HARNESS_UNITS_H
#define LAKEBED_HARNESS_UNITS_H

#include <stddef.h>
#include <stdint.h>

enum { UNITS_TEXT = 32, UNITS_COUNTED = 64 }; /* room for any text below; for a number with its noun */

/* A unit that a column of numbers shares. */
typedef struct units_scale {
  const char *name; /* "GiB" */
  double factor;
} units_scale;

/* The unit in which the largest of a column's values reads best. */
units_scale units_bytes_scale(uint64_t largest);

/* "17.3", "0.711", "123", "12,300": three significant digits at least, never an exponent. */
void units_significant(double value, char text[UNITS_TEXT]);
/* "17.3" when the scale is GiB. */
void units_scaled(uint64_t bytes, units_scale scale, char text[UNITS_TEXT]);
/* "17.3 GiB"; "512 B". */
void units_bytes(uint64_t bytes, char text[UNITS_TEXT]);
/* "1,234,567" */
void units_count(uint64_t count, char text[UNITS_TEXT]);
/* "1 event", "1,258 events" */
void units_counted(uint64_t count, const char *noun, char text[UNITS_COUNTED]);
/* "412 ns", "1.25 ms", "3.2 s" */
void units_time(uint64_t nanoseconds, char text[UNITS_TEXT]);

#endif
