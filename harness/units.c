#include "harness/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

units_scale units_bytes_scale(uint64_t largest) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t index = 0;
  double factor = 1;
  while (index + 1 < sizeof names / sizeof *names && (double)largest >= factor * 1024) {
    factor *= 1024;
    index++;
  }
  return (units_scale){names[index], factor};
}

void units_significant(double value, char text[UNITS_TEXT]) {
  double magnitude = fabs(value);
  int decimals = 0;
  /* The bounds are those of rounding: 9.996 is 10.0. */
  if (magnitude < 0.0009995) {
    decimals = magnitude == 0 ? 0 : 5;
  } else if (magnitude < 0.9995) {
    decimals = 3;
  } else if (magnitude < 9.995) {
    decimals = 2;
  } else if (magnitude < 99.95) {
    decimals = 1;
  }
  snprintf(text, UNITS_TEXT, "%.*f", decimals, value);
}

void units_scaled(uint64_t bytes, units_scale scale, char text[UNITS_TEXT]) {
  if (scale.factor <= 1) {
    snprintf(text, UNITS_TEXT, "%" PRIu64, bytes);
  } else {
    units_significant((double)bytes / scale.factor, text);
  }
}

void units_bytes(uint64_t bytes, char text[UNITS_TEXT]) {
  units_scale scale = units_bytes_scale(bytes);
  units_scaled(bytes, scale, text);
  size_t length = strlen(text);
  snprintf(text + length, UNITS_TEXT - length, " %s", scale.name);
}

void units_count(uint64_t count, char text[UNITS_TEXT]) {
  char digits[UNITS_TEXT];
  int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
  size_t used = 0;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0) text[used++] = ',';
    text[used++] = digits[i];
  }
  text[used] = '\0';
}

void units_time(uint64_t nanoseconds, char text[UNITS_TEXT]) {
  static const char *const names[] = {"ns", "us", "ms", "s"};
  double value = (double)nanoseconds;
  size_t index = 0;
  while (index < 3 && value >= 999.5) {
    value /= 1000;
    index++;
  }
  units_significant(value, text);
  size_t length = strlen(text);
  snprintf(text + length, UNITS_TEXT - length, " %s", names[index]);
}
