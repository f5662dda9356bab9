/* Streaming decompression: xz, gzip, zstd, or bytes as they are. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_DECODER_H
#define LAKEBED_WORKLOADS_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum trace_compression {
  TRACE_COMPRESSION_NONE,
  TRACE_COMPRESSION_XZ,
  TRACE_COMPRESSION_GZIP,
  TRACE_COMPRESSION_ZSTD
} trace_compression;

typedef enum trace_decoder_result {
  TRACE_DECODER_OK,
  TRACE_DECODER_END,     /* the compressed data is complete */
  TRACE_DECODER_CORRUPT, /* trace_decoder_problem says what is wrong */
  TRACE_DECODER_NO_MEMORY
} trace_decoder_result;

enum { TRACE_MAGIC_BYTES = 6 };

typedef struct trace_decoder trace_decoder;

const char *trace_compression_name(trace_compression compression);

/* Recognises the first bytes of a file; fewer than TRACE_MAGIC_BYTES are fine. */
trace_compression trace_compression_detect(const uint8_t *bytes, size_t size);

/* NULL when memory runs out. Not for TRACE_COMPRESSION_NONE. */
trace_decoder *trace_decoder_create(trace_compression compression);

/* Decodes from *in (advancing it) into out. in_complete: nothing follows *in_size bytes.
 * Concatenated members decode as one. Uses at most 256 MiB, more is refused as corrupt. */
trace_decoder_result trace_decoder_run(trace_decoder *decoder, const uint8_t **in, size_t *in_size,
                                       bool in_complete, uint8_t *out, size_t out_size, size_t *produced);

/* What made the last run TRACE_DECODER_CORRUPT; static text. */
const char *trace_decoder_problem(const trace_decoder *decoder);

/* Accepts NULL. */
void trace_decoder_destroy(trace_decoder *decoder);

#endif
