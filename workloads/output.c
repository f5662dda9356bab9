#include "workloads/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <lzma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "workloads/decoder.h"
#include "workloads/failure.h"
#include "workloads/partial_file.h"

enum { OUTPUT_BYTES = 128 * 1024, ZSTD_LEVEL = 9, MOST_TEMPORARY_NAMES = 100 };

struct trace_output {
  char *path;
  char *temporary; /* the file's name until it is finished; NULL: written in place */
  int file;
  trace_compression compression;
  bool encoding; /* stream is set up */
  union {
    lzma_stream xz;
    z_stream gzip;
    ZSTD_CStream *zstd;
  } stream;
  uint8_t buffer[OUTPUT_BYTES]; /* encoded */
};

static trace_compression compression_of_name(const char *path) {
  static const struct {
    const char *ending;
    trace_compression compression;
  } endings[] = {
      {".xz", TRACE_COMPRESSION_XZ}, {".gz", TRACE_COMPRESSION_GZIP}, {".zst", TRACE_COMPRESSION_ZSTD}};
  size_t length = strlen(path);
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
    size_t size = strlen(endings[i].ending);
    if (length > size && strcmp(path + length - size, endings[i].ending) == 0) return endings[i].compression;
  }
  return TRACE_COMPRESSION_NONE;
}

static bool start_encoder(trace_output *output) {
  switch (output->compression) {
    case TRACE_COMPRESSION_XZ:
      output->encoding =
          lzma_easy_encoder(&output->stream.xz, LZMA_PRESET_DEFAULT, LZMA_CHECK_CRC64) == LZMA_OK;
      return output->encoding;
    case TRACE_COMPRESSION_GZIP:
      output->encoding = deflateInit2(&output->stream.gzip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS,
                                      MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) == Z_OK;
      return output->encoding;
    case TRACE_COMPRESSION_ZSTD:
      output->stream.zstd = ZSTD_createCStream();
      output->encoding = output->stream.zstd != NULL;
      if (!output->encoding) return false;
      return !ZSTD_isError(
                 ZSTD_CCtx_setParameter(output->stream.zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL)) &&
             !ZSTD_isError(ZSTD_CCtx_setParameter(output->stream.zstd, ZSTD_c_checksumFlag, 1));
    case TRACE_COMPRESSION_NONE:
      break;
  }
  return true;
}

/* A file of its own beside path, with the permissions that path will have. */
static int create_temporary(trace_output *output) {
  size_t size = strlen(output->path) + 64;
  output->temporary = malloc(size);
  if (output->temporary == NULL) {
    errno = ENOMEM;
    return -1;
  }
  int file = -1;
  for (int attempt = 0; attempt < MOST_TEMPORARY_NAMES; attempt++) {
    snprintf(output->temporary, size, "%s.partial-%ld-%d", output->path, (long)getpid(), attempt);
    file = partial_file_create(output->temporary);
    if (file >= 0 || errno != EEXIST) break;
  }
  if (file < 0) {
    int kept = errno;
    free(output->temporary);
    output->temporary = NULL;
    errno = kept;
  }
  return file;
}

static int create_file(trace_output *output) {
  struct stat about;
  if (strcmp(output->path, "-") == 0) return dup(STDOUT_FILENO);
  bool exists = lstat(output->path, &about) == 0; /* a symbolic link stays, /dev/stdout is one */
  if (exists && S_ISDIR(about.st_mode)) {
    errno = EISDIR;
    return -1;
  }
  if (exists && !S_ISREG(about.st_mode)) {
    return open(output->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  return create_temporary(output);
}

trace_status trace_output_open(const char *path, trace_output **opened, trace_error *error) {
  *opened = NULL;
  trace_output *output = calloc(1, sizeof *output);
  if (output == NULL) return trace_fail_memory(error, path);
  output->file = -1;
  output->path = strdup(path);
  output->compression = compression_of_name(path);
  if (output->path == NULL || !start_encoder(output)) {
    trace_output_abandon(output);
    return trace_fail_memory(error, path);
  }
  output->file = create_file(output);
  if (output->file < 0) {
    trace_status status = trace_fail(error, TRACE_UNWRITABLE, path, "cannot be created: %s", strerror(errno));
    trace_output_abandon(output);
    return status;
  }
  *opened = output;
  return TRACE_OK;
}

static trace_status write_file(trace_output *output, const uint8_t *bytes, size_t size, trace_error *error) {
  while (size > 0) {
    ssize_t count = write(output->file, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return trace_fail(error, TRACE_UNWRITABLE, output->path, "cannot be written: %s", strerror(errno));
    }
    bytes += count;
    size -= (size_t)count;
  }
  return TRACE_OK;
}

/* One call of the encoder: some of bytes in, the encoded bytes into the buffer. *done: with end set, nothing
 * is left. */
static bool encode(trace_output *output, const uint8_t **bytes, size_t *size, bool end, size_t *encoded,
                   bool *done) {
  switch (output->compression) {
    case TRACE_COMPRESSION_XZ: {
      lzma_stream *xz = &output->stream.xz;
      xz->next_in = *bytes;
      xz->avail_in = *size;
      xz->next_out = output->buffer;
      xz->avail_out = OUTPUT_BYTES;
      lzma_ret result = lzma_code(xz, end ? LZMA_FINISH : LZMA_RUN);
      *bytes = xz->next_in;
      *size = xz->avail_in;
      *encoded = OUTPUT_BYTES - xz->avail_out;
      *done = result == LZMA_STREAM_END;
      return result == LZMA_OK || result == LZMA_STREAM_END;
    }
    case TRACE_COMPRESSION_GZIP: {
      z_stream *gzip = &output->stream.gzip;
      size_t now = *size < UINT_MAX ? *size : UINT_MAX;
      gzip->next_in = (Bytef *)(uintptr_t)*bytes; /* zlib reads only, its type predates const */
      gzip->avail_in = (uInt)now;
      gzip->next_out = output->buffer;
      gzip->avail_out = OUTPUT_BYTES;
      int result = deflate(gzip, end ? Z_FINISH : Z_NO_FLUSH);
      *bytes += now - gzip->avail_in;
      *size -= now - gzip->avail_in;
      *encoded = OUTPUT_BYTES - gzip->avail_out;
      *done = result == Z_STREAM_END;
      return result == Z_OK || result == Z_STREAM_END;
    }
    case TRACE_COMPRESSION_ZSTD: {
      ZSTD_inBuffer source = {*bytes, *size, 0};
      ZSTD_outBuffer target = {output->buffer, OUTPUT_BYTES, 0};
      size_t left =
          ZSTD_compressStream2(output->stream.zstd, &target, &source, end ? ZSTD_e_end : ZSTD_e_continue);
      *bytes += source.pos;
      *size -= source.pos;
      *encoded = target.pos;
      *done = left == 0;
      return !ZSTD_isError(left);
    }
    case TRACE_COMPRESSION_NONE:
      break;
  }
  return false;
}

static trace_status write_encoded(trace_output *output, const uint8_t *bytes, size_t size, bool end,
                                  trace_error *error) {
  bool done = false;
  while (size > 0 || (end && !done)) {
    size_t encoded = 0;
    if (!encode(output, &bytes, &size, end, &encoded, &done)) {
      return trace_fail(error, TRACE_UNWRITABLE, output->path, "the %s encoder failed",
                        trace_compression_name(output->compression));
    }
    trace_status status = write_file(output, output->buffer, encoded, error);
    if (status != TRACE_OK) return status;
  }
  return TRACE_OK;
}

trace_status trace_output_write(trace_output *output, const void *bytes, size_t size, trace_error *error) {
  if (output->compression == TRACE_COMPRESSION_NONE) return write_file(output, bytes, size, error);
  return write_encoded(output, bytes, size, false, error);
}

trace_status trace_output_finish(trace_output *output, trace_error *error) {
  trace_status status = TRACE_OK;
  if (output->compression != TRACE_COMPRESSION_NONE) status = write_encoded(output, NULL, 0, true, error);
  int file = output->file;
  output->file = -1;
  if (close(file) != 0 && status == TRACE_OK) {
    status = trace_fail(error, TRACE_UNWRITABLE, output->path, "cannot be written: %s", strerror(errno));
  }
  if (status == TRACE_OK && output->temporary != NULL) {
    if (!partial_file_finish(output->temporary, output->path)) {
      status = trace_fail(error, TRACE_UNWRITABLE, output->path, "cannot be created: %s", strerror(errno));
    }
    free(output->temporary);
    output->temporary = NULL;
  }
  trace_output_abandon(output);
  return status;
}

void trace_output_abandon(trace_output *output) {
  if (output == NULL) return;
  if (output->file >= 0) close(output->file);
  if (output->temporary != NULL) partial_file_remove(output->temporary);
  if (output->encoding) {
    if (output->compression == TRACE_COMPRESSION_XZ) lzma_end(&output->stream.xz);
    if (output->compression == TRACE_COMPRESSION_GZIP) deflateEnd(&output->stream.gzip);
    if (output->compression == TRACE_COMPRESSION_ZSTD) ZSTD_freeCStream(output->stream.zstd);
  }
  free(output->temporary);
  free(output->path);
  free(output);
}
