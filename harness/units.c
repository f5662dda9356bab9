#include "harness/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

units_scale units_bytes_scale(uint64_t largest) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t index = 0;
  double factor = 1;
  /* Three digits of 1023.7 KiB are 1.00 MiB. Bytes are not rounded. */
  while (index + 1 < sizeof names / sizeof *names &&
         (double)largest >= factor * (index == 0 ? 1024 : 1023.5)) {
    factor *= 1024;
    index++;
  }
  return (units_scale){names[index], factor};
}

/* Copies a number, with a comma before every third of its whole digits but the first. */
static void separate(const char *number, char text[UNITS_TEXT]) {
  size_t sign = number[0] == '-', whole = strspn(number + sign, "0123456789"), used = 0;
  for (size_t i = 0; number[i] && used + 2 < UNITS_TEXT; i++) {
    if (i > sign && i < sign + whole && (sign + whole - i) % 3 == 0) text[used++] = ',';
    text[used++] = number[i];
  }
  text[used] = '\0';
}

void units_significant(double value, char text[UNITS_TEXT]) {
  char digits[UNITS_TEXT];
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
  snprintf(digits, sizeof digits, "%.*f", decimals, value);
  separate(digits, text);
}

void units_scaled(uint64_t bytes, units_scale scale, char text[UNITS_TEXT]) {
  if (scale.factor <= 1) {
    units_count(bytes, text);
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
  snprintf(digits, sizeof digits, "%" PRIu64, count);
  separate(digits, text);
}

void units_counted(uint64_t count, const char *noun, char text[UNITS_COUNTED]) {
  char number[UNITS_TEXT];
  units_count(count, number);
  snprintf(text, UNITS_COUNTED, "%s %s%s", number, noun, count == 1 ? "" : "s");
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
