/* A byte stream over a file, standard input or memory, decompressed on the way. Internal to workloads.
 *
 * The reader looks at the bytes between at and end and advances at itself; it
 * asks for more with trace_input_fill. Once finished, TRACE_INPUT_PADDING zero bytes after
 * end may be read too, so that a decoder can look at a whole record and check only
 * afterwards that it did not run past end. */
#ifndef LAKEBED_WORKLOADS_INPUT_H
#define LAKEBED_WORKLOADS_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "workloads/decoder.h"
#include "workloads/trace.h"

enum {
  TRACE_INPUT_PADDING = 512,
  TRACE_INPUT_LARGEST_FILL = 64 * 1024 /* the most bytes one fill can promise */
};

typedef struct trace_input trace_input;
struct trace_input {
  const uint8_t *at;
  const uint8_t *end;
  bool finished;    /* nothing follows end */
  const char *name; /* for messages */

  uint64_t base; /* offset, uncompressed, of buffer[0] */
  uint8_t *buffer;
  char *owned_name;
  int file; /* -1 for memory */
  bool rewindable;
  struct timespec modified; /* of a file, when it was opened */
  bool raw_finished;
  const uint8_t *memory;
  uint64_t memory_size;
  uint64_t raw_size; /* compressed size, 0 when unknown */
  uint64_t raw_read; /* compressed bytes taken from the file or memory */
  trace_compression compression;
  trace_decoder *decoder;
  uint8_t *raw_buffer;
  const uint8_t *raw_at;
  size_t raw_left;
};

/* path "-" is standard input. On failure nothing needs closing. */
trace_status trace_input_open(trace_input *input, const char *path, trace_error *error);
/* bytes and name are borrowed until close (name is copied). */
trace_status trace_input_open_memory(trace_input *input, const void *bytes, size_t size, const char *name,
                                     trace_error *error);

/* Makes at least wanted (at most TRACE_INPUT_LARGEST_FILL) bytes readable at at,
 * or all that is left, then finished is set. at and end move. */
trace_status trace_input_fill(trace_input *input, size_t wanted, trace_error *error);

/* Skips count bytes; *skipped is false where the input ended first. */
trace_status trace_input_skip(trace_input *input, uint64_t count, bool *skipped, trace_error *error);

static inline uint64_t trace_input_offset(const trace_input *input) {
  return input->base + (uint64_t)(input->at - input->buffer);
}

trace_status trace_input_rewind(trace_input *input, trace_error *error);
/* 0 to 1, negative when the size is not known. */
double trace_input_progress(const trace_input *input);
void trace_input_close(trace_input *input);

#endif
