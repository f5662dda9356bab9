/* What the laps of a run say when they are compared. */
#ifndef LAKEBED_HARNESS_REPLAY_LAPS_H
#define LAKEBED_HARNESS_REPLAY_LAPS_H

#include "harness/replay.h"

/* Are all numbers of two laps the same? */
bool replay_laps_same(const replay_lap *left, const replay_lap *right);

/* Finds settled_lap and drift of a run whose laps are all recorded. O(laps). */
void replay_laps_settle(replay_result *result);

/* A policy that keeps what was freed, or holds more after every lap, leaks: then false, and
 * message says so, always terminated. O(laps). */
bool replay_laps_check(const replay_result *result, char *message, size_t message_size);

#endif
