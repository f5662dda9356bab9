#include "harness/replay_laps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LEAK_LAPS = 5 }; /* caches may grow for some laps before they settle */

/* A number of a lap that is compared with other laps'. */
typedef struct lap_number {
  const char *name;
  uint64_t before, after;
} lap_number;

enum { LAP_NUMBERS = 9 };

static void compare_laps(const replay_lap *before, const replay_lap *after, lap_number numbers[LAP_NUMBERS]) {
  const lap_number compared[LAP_NUMBERS] = {
      {"allocated bytes", before->allocated_bytes, after->allocated_bytes},
      {"reserved bytes", before->reserved_bytes, after->reserved_bytes},
      {"reserved address bytes", before->address_bytes, after->address_bytes},
      {"segments", before->segments, after->segments},
      {"chunks", before->chunks, after->chunks},
      {"address ranges", before->ranges, after->ranges},
      {"split free blocks", before->split_blocks, after->split_blocks},
      {"largest free bytes", before->largest_free_bytes, after->largest_free_bytes},
      {"driver calls", before->driver_calls, after->driver_calls}};
  memcpy(numbers, compared, sizeof compared);
}

static bool laps_equal(const replay_lap *left, const replay_lap *right) {
  lap_number numbers[LAP_NUMBERS];
  compare_laps(left, right, numbers);
  for (size_t i = 0; i < LAP_NUMBERS; i++) {
    if (numbers[i].before != numbers[i].after) return false;
  }
  return true;
}

bool replay_laps_same(const replay_lap *left, const replay_lap *right) {
  return laps_equal(left, right) && left->events == right->events &&
         left->failed_allocs == right->failed_allocs && left->driver_ns == right->driver_ns;
}

void replay_laps_settle(replay_result *result) {
  uint64_t count = result->lap_count;
  if (count < 2) return;
  const replay_lap *last = &result->laps[count - 1];
  uint64_t settled = count;
  while (settled > 1 && laps_equal(&result->laps[settled - 2], last)) settled--;
  result->settled_lap = settled < count ? settled : 0;
  lap_number numbers[LAP_NUMBERS];
  compare_laps(last - 1, last, numbers);
  for (size_t i = 0; i < LAP_NUMBERS; i++) {
    if (numbers[i].after <= numbers[i].before) continue;
    snprintf(result->drift, sizeof result->drift, "%s grew from %" PRIu64 " to %" PRIu64 " in lap %" PRIu64,
             numbers[i].name, numbers[i].before, numbers[i].after, count);
    return;
  }
}

bool replay_laps_check(const replay_result *result, char *message, size_t message_size) {
  const replay_lap *laps = result->laps;
  uint64_t count = result->lap_count;
  if (count < 2) return true;
  for (uint64_t i = 0; i < count; i++) {
    if (laps[i].allocated_bytes == 0) continue;
    snprintf(message, message_size,
             "%" PRIu64 " bytes are still allocated after lap %" PRIu64 ", though all was freed",
             laps[i].allocated_bytes, i + 1);
    return false;
  }
  uint64_t grown = 0;
  for (uint64_t i = 1; i < count; i++) grown += laps[i].reserved_bytes > laps[i - 1].reserved_bytes;
  if (count < LEAK_LAPS || grown < count - 1) return true;
  snprintf(message, message_size,
           "reserved memory grew in every lap: %" PRIu64 " bytes after the first, %" PRIu64
           " after lap %" PRIu64,
           laps[0].reserved_bytes, laps[count - 1].reserved_bytes, count);
  return false;
}
