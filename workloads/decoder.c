#include "workloads/decoder.h"

#include <limits.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define DECODER_MEMORY_LIMIT (UINT64_C(256) << 20)
#define ZSTD_LARGEST_WINDOW_LOG 27

struct trace_decoder {
  trace_compression compression;
  const char *problem;
  bool between_members; /* nothing is owed: the input may end here */
  union {
    lzma_stream xz;
    z_stream gzip;
    ZSTD_DStream *zstd;
  } stream;
};

static const char truncated[] = "the compressed data ends too early: the file is truncated";

const char *trace_compression_name(trace_compression compression) {
  switch (compression) {
    case TRACE_COMPRESSION_XZ:
      return "xz";
    case TRACE_COMPRESSION_GZIP:
      return "gzip";
    case TRACE_COMPRESSION_ZSTD:
      return "zstd";
    case TRACE_COMPRESSION_NONE:
      break;
  }
  return "none";
}

trace_compression trace_compression_detect(const uint8_t *bytes, size_t size) {
  static const uint8_t xz[] = {0xFD, '7', 'z', 'X', 'Z', 0x00};
  static const uint8_t gzip[] = {0x1F, 0x8B};
  static const uint8_t zstd[] = {0x28, 0xB5, 0x2F, 0xFD};
  if (size >= sizeof xz && memcmp(bytes, xz, sizeof xz) == 0) return TRACE_COMPRESSION_XZ;
  if (size >= sizeof gzip && memcmp(bytes, gzip, sizeof gzip) == 0) return TRACE_COMPRESSION_GZIP;
  if (size >= sizeof zstd && memcmp(bytes, zstd, sizeof zstd) == 0) return TRACE_COMPRESSION_ZSTD;
  return TRACE_COMPRESSION_NONE;
}

static bool start_stream(trace_decoder *decoder) {
  switch (decoder->compression) {
    case TRACE_COMPRESSION_XZ:
      return lzma_stream_decoder(&decoder->stream.xz, DECODER_MEMORY_LIMIT, LZMA_CONCATENATED) == LZMA_OK;
    case TRACE_COMPRESSION_GZIP:
      return inflateInit2(&decoder->stream.gzip, 16 + MAX_WBITS) == Z_OK;
    case TRACE_COMPRESSION_ZSTD:
      decoder->stream.zstd = ZSTD_createDStream();
      if (decoder->stream.zstd == NULL) return false;
      ZSTD_DCtx_setParameter(decoder->stream.zstd, ZSTD_d_windowLogMax, ZSTD_LARGEST_WINDOW_LOG);
      return true;
    case TRACE_COMPRESSION_NONE:
      break;
  }
  return false;
}

trace_decoder *trace_decoder_create(trace_compression compression) {
  trace_decoder *decoder = calloc(1, sizeof *decoder);
  if (decoder == NULL) return NULL;
  decoder->compression = compression;
  if (!start_stream(decoder)) {
    free(decoder);
    return NULL;
  }
  return decoder;
}

static trace_decoder_result corrupt(trace_decoder *decoder, const char *problem) {
  decoder->problem = problem;
  return TRACE_DECODER_CORRUPT;
}

static trace_decoder_result run_xz(trace_decoder *decoder, const uint8_t **in, size_t *in_size,
                                   bool in_complete, uint8_t *out, size_t out_size, size_t *produced) {
  lzma_stream *xz = &decoder->stream.xz;
  xz->next_in = *in;
  xz->avail_in = *in_size;
  xz->next_out = out;
  xz->avail_out = out_size;
  lzma_ret result = lzma_code(xz, in_complete ? LZMA_FINISH : LZMA_RUN);
  *in = xz->next_in;
  *in_size = xz->avail_in;
  *produced = out_size - xz->avail_out;
  switch (result) {
    case LZMA_OK:
      return TRACE_DECODER_OK;
    case LZMA_STREAM_END:
      return TRACE_DECODER_END;
    case LZMA_BUF_ERROR:
      if (*produced > 0 || !in_complete) return TRACE_DECODER_OK;
      return corrupt(decoder, truncated);
    case LZMA_MEM_ERROR:
      return TRACE_DECODER_NO_MEMORY;
    case LZMA_MEMLIMIT_ERROR:
      return corrupt(decoder, "the xz data wants more than 256 MiB to decompress");
    case LZMA_FORMAT_ERROR:
      return corrupt(decoder, "what follows is not xz data");
    case LZMA_OPTIONS_ERROR:
      return corrupt(decoder, "the xz header asks for something this xz library does not know");
    default:
      return corrupt(decoder, "the xz data is corrupt");
  }
}

static trace_decoder_result run_gzip(trace_decoder *decoder, const uint8_t **in, size_t *in_size,
                                     bool in_complete, uint8_t *out, size_t out_size, size_t *produced) {
  z_stream *gzip = &decoder->stream.gzip;
  if (decoder->between_members) {
    if (*in_size == 0) return in_complete ? TRACE_DECODER_END : TRACE_DECODER_OK;
    if (inflateReset(gzip) != Z_OK) return TRACE_DECODER_NO_MEMORY;
    decoder->between_members = false;
  }
  size_t in_now = *in_size < UINT_MAX ? *in_size : UINT_MAX;
  size_t out_now = out_size < UINT_MAX ? out_size : UINT_MAX;
  gzip->next_in = (Bytef *)(uintptr_t)*in; /* zlib reads only, its type predates const */
  gzip->avail_in = (uInt)in_now;
  gzip->next_out = out;
  gzip->avail_out = (uInt)out_now;
  int result = inflate(gzip, Z_NO_FLUSH);
  *in += in_now - gzip->avail_in;
  *in_size -= in_now - gzip->avail_in;
  *produced = out_now - gzip->avail_out;
  switch (result) {
    case Z_OK:
      return TRACE_DECODER_OK;
    case Z_STREAM_END:
      decoder->between_members = true;
      return TRACE_DECODER_OK;
    case Z_BUF_ERROR:
      if (*produced > 0 || *in_size > 0 || !in_complete) return TRACE_DECODER_OK;
      return corrupt(decoder, truncated);
    case Z_MEM_ERROR:
      return TRACE_DECODER_NO_MEMORY;
    default:
      return corrupt(decoder, "the gzip data is corrupt");
  }
}

static trace_decoder_result run_zstd(trace_decoder *decoder, const uint8_t **in, size_t *in_size,
                                     bool in_complete, uint8_t *out, size_t out_size, size_t *produced) {
  if (decoder->between_members && *in_size == 0) return in_complete ? TRACE_DECODER_END : TRACE_DECODER_OK;
  ZSTD_inBuffer source = {*in, *in_size, 0};
  ZSTD_outBuffer target = {out, out_size, 0};
  size_t result = ZSTD_decompressStream(decoder->stream.zstd, &target, &source);
  *in += source.pos;
  *in_size -= source.pos;
  *produced = target.pos;
  if (ZSTD_isError(result)) return corrupt(decoder, ZSTD_getErrorName(result));
  decoder->between_members = result == 0;
  if (*in_size == 0 && *produced == 0 && in_complete && result != 0) return corrupt(decoder, truncated);
  return TRACE_DECODER_OK;
}

trace_decoder_result trace_decoder_run(trace_decoder *decoder, const uint8_t **in, size_t *in_size,
                                       bool in_complete, uint8_t *out, size_t out_size, size_t *produced) {
  *produced = 0;
  switch (decoder->compression) {
    case TRACE_COMPRESSION_XZ:
      return run_xz(decoder, in, in_size, in_complete, out, out_size, produced);
    case TRACE_COMPRESSION_GZIP:
      return run_gzip(decoder, in, in_size, in_complete, out, out_size, produced);
    case TRACE_COMPRESSION_ZSTD:
      return run_zstd(decoder, in, in_size, in_complete, out, out_size, produced);
    case TRACE_COMPRESSION_NONE:
      break;
  }
  return TRACE_DECODER_END;
}

const char *trace_decoder_problem(const trace_decoder *decoder) { return decoder->problem; }

void trace_decoder_destroy(trace_decoder *decoder) {
  if (decoder == NULL) return;
  switch (decoder->compression) {
    case TRACE_COMPRESSION_XZ:
      lzma_end(&decoder->stream.xz);
      break;
    case TRACE_COMPRESSION_GZIP:
      inflateEnd(&decoder->stream.gzip);
      break;
    case TRACE_COMPRESSION_ZSTD:
      ZSTD_freeDStream(decoder->stream.zstd);
      break;
    case TRACE_COMPRESSION_NONE:
      break;
  }
  free(decoder);
}
