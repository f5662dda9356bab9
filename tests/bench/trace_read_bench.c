/* How fast traces are read: bazel run -c opt //tests/bench:trace_read_bench [-- FILE...]
 *
 * Each file is decompressed into memory first, then read from there RUNS times; printed is the
 * median run. The last column reads the file as it is, decompression included. Times are those
 * of the processor, so that what else runs on the machine counts little. Without a FILE it reads
 * bundled traces; make_large_snapshot.py writes larger ones. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "workloads/input.h"
#include "workloads/trace.h"

enum { RUNS = 11 };

static double processor_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int by_value(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* The whole content of a file, decompressed; NULL with a message when it cannot be read. */
static unsigned char *decompress(const char *path, size_t *size) {
  trace_input input;
  trace_error error;
  trace_status status = trace_input_open(&input, path, &error);
  if (status != TRACE_OK) {
    fprintf(stderr, "%s\n", error.message);
    return NULL;
  }
  unsigned char *bytes = NULL;
  *size = 0;
  for (;;) {
    status = trace_input_fill(&input, 1, &error);
    size_t got = (size_t)(input.end - input.at);
    if (status != TRACE_OK || got == 0) break;
    unsigned char *grown = realloc(bytes, *size + got);
    if (grown == NULL) break;
    bytes = grown;
    memcpy(bytes + *size, input.at, got);
    *size += got;
    input.at = input.end;
  }
  trace_input_close(&input);
  if (status == TRACE_OK) return bytes;
  fprintf(stderr, "%s\n", error.message);
  free(bytes);
  return NULL;
}

/* Reads *opened, which opening with status has set, to its end and closes it; returns the number
 * of events, 0 on a failure. */
static uint64_t drain(trace_status status, trace *const *opened, trace_error *error) {
  uint64_t events = 0;
  if (status == TRACE_OK) {
    trace_event event;
    while ((status = trace_next(*opened, &event, error)) == TRACE_OK) events++;
    trace_close(*opened);
  }
  if (status == TRACE_END) return events;
  fprintf(stderr, "%s\n", error->message);
  return 0;
}

static int measure(const char *path) {
  size_t size;
  unsigned char *bytes = decompress(path, &size);
  if (bytes == NULL) return 1;
  double from_memory[RUNS], from_file[RUNS];
  uint64_t events = 0;
  for (int run = 0; run < RUNS; run++) {
    trace *opened = NULL;
    trace_error error;
    double start = processor_us();
    events = drain(trace_open_memory(bytes, size, path, NULL, &opened, &error), &opened, &error);
    double middle = processor_us();
    if (events != 0) events = drain(trace_open(path, NULL, &opened, &error), &opened, &error);
    from_file[run] = processor_us() - middle;
    from_memory[run] = middle - start;
    if (events == 0) break;
  }
  free(bytes);
  if (events == 0) return 1;
  qsort(from_memory, RUNS, sizeof from_memory[0], by_value);
  qsort(from_file, RUNS, sizeof from_file[0], by_value);
  const char *slash = strrchr(path, '/');
  printf("%-44s %8.1f MB %9" PRIu64 " events %7.0f MB/s %6.2f M events/s   as stored %6.0f MB/s\n",
         slash != NULL ? slash + 1 : path, (double)size * 1e-6, events, (double)size / from_memory[RUNS / 2],
         (double)events / from_memory[RUNS / 2], (double)size / from_file[RUNS / 2]);
  return 0;
}

int main(int count, char **arguments) {
  static const char *const bundled[] = {"workloads/bundled/opt-1.3b-LR-b16-s512-w4-v0-i8.pickle.xz",
                                        "workloads/bundled/opt-1.3b-LR-b16-s1024-w1-v1.pickle.xz",
                                        "workloads/bundled/opt-1.3b-N-b8-s512-w4-v1.pickle.xz",
                                        "workloads/bundled/multi_stream.txt.xz"};
  int failures = 0;
  for (int i = 1; i < count; i++) failures += measure(arguments[i]);
  if (count > 1) return failures > 0;
  for (size_t i = 0; i < sizeof bundled / sizeof bundled[0]; i++) failures += measure(bundled[i]);
  return failures > 0;
}
