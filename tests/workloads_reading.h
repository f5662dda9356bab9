/* Reads whole traces for the tests of workloads. */
#ifndef LAKEBED_TESTS_WORKLOADS_READING_H
#define LAKEBED_TESTS_WORKLOADS_READING_H

#include <stdbool.h>
#include <stddef.h>

#include "workloads/trace.h"

typedef struct reading {
  trace_status status; /* what reading ended with: TRACE_END, or the failure of open or next */
  trace_error error;
  bool opened;
  uint64_t count; /* events read; the first of them are in events */
  trace_event events[64];
  trace_summary summary;
  uint32_t slots;
  uint64_t recorded_streams[4];
} reading;

/* Checks on the way what holds for every trace: slots are reused only after their free,
 * sizes of frees match, times and live bytes never go negative, an end stays an end. */
void read_memory(const void *bytes, size_t size, const trace_options *options, reading *result);
void read_text(const char *text, reading *result);
void read_file(const char *path, const trace_options *options, reading *result);

void assert_same_event(const trace_event *left, const trace_event *right);

/* Fails unless both readings delivered the same. */
void assert_same_events(const reading *left, const reading *right);

/* Fails unless reading ended with status and a message that contains part. */
void assert_failed(const reading *result, trace_status status, const char *part);

/* The file's bytes; the caller frees. NULL when there is no such file. */
unsigned char *read_bytes(const char *path, size_t *size);

/* The path of a folder beside the project, NULL when it is not there. buffer: PATH_MAX bytes. */
const char *beside_the_project(const char *folder, char *buffer);

#endif
