#include "workloads/input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workloads/failure.h"

enum { BUFFER_BYTES = 256 * 1024, RAW_BUFFER_BYTES = 64 * 1024 };

/* Up to capacity bytes of the undecoded source; *got 0 at its end. */
static trace_status read_raw(trace_input *input, uint8_t *target, size_t capacity, size_t *got,
                             trace_error *error) {
  *got = 0;
  if (input->file < 0) {
    uint64_t left = input->memory_size - input->raw_read;
    size_t now = left < capacity ? (size_t)left : capacity;
    if (now > 0) memcpy(target, input->memory + input->raw_read, now);
    input->raw_read += now;
    *got = now;
  } else {
    ssize_t count;
    do {
      count = read(input->file, target, capacity);
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
      return trace_fail(error, TRACE_UNREADABLE, input->name, "cannot be read: %s", strerror(errno));
    }
    input->raw_read += (uint64_t)count;
    *got = (size_t)count;
  }
  if (*got == 0) input->raw_finished = true;
  return TRACE_OK;
}

static trace_status refill_raw(trace_input *input, trace_error *error) {
  if (input->raw_left > 0 || input->raw_finished) return TRACE_OK;
  input->raw_at = input->raw_buffer;
  return read_raw(input, input->raw_buffer, RAW_BUFFER_BYTES, &input->raw_left, error);
}

/* Decoded bytes into target; *got 0 at the end. */
static trace_status read_decoded(trace_input *input, uint8_t *target, size_t capacity, size_t *got,
                                 trace_error *error) {
  *got = 0;
  if (input->decoder == NULL) {
    if (input->raw_left == 0) return read_raw(input, target, capacity, got, error);
    size_t now = input->raw_left < capacity ? input->raw_left : capacity; /* what detection read ahead */
    memcpy(target, input->raw_at, now);
    input->raw_at += now;
    input->raw_left -= now;
    *got = now;
    return TRACE_OK;
  }
  while (*got == 0) {
    trace_status status = refill_raw(input, error);
    if (status != TRACE_OK) return status;
    switch (trace_decoder_run(input->decoder, &input->raw_at, &input->raw_left, input->raw_finished, target,
                              capacity, got)) {
      case TRACE_DECODER_OK:
        break;
      case TRACE_DECODER_END:
        return TRACE_OK;
      case TRACE_DECODER_CORRUPT:
        return trace_fail(error, TRACE_MALFORMED, input->name, "compressed offset %" PRIu64 " (%s): %s",
                          input->raw_read - input->raw_left, trace_compression_name(input->compression),
                          trace_decoder_problem(input->decoder));
      case TRACE_DECODER_NO_MEMORY:
        return trace_fail_memory(error, input->name);
    }
  }
  return TRACE_OK;
}

/* Reads the first bytes and starts the decoder they ask for. */
static trace_status start(trace_input *input, trace_error *error) {
  input->base = 0;
  input->at = input->end = input->buffer;
  input->finished = false;
  input->raw_finished = false;
  input->raw_at = input->raw_buffer;
  input->raw_left = 0;
  input->raw_read = 0;
  while (input->raw_left < TRACE_MAGIC_BYTES && !input->raw_finished) {
    size_t got;
    trace_status status =
        read_raw(input, input->raw_buffer + input->raw_left, RAW_BUFFER_BYTES - input->raw_left, &got, error);
    if (status != TRACE_OK) return status;
    input->raw_left += got;
  }
  trace_decoder_destroy(input->decoder);
  input->decoder = NULL;
  input->compression = trace_compression_detect(input->raw_at, input->raw_left);
  if (input->compression != TRACE_COMPRESSION_NONE) {
    input->decoder = trace_decoder_create(input->compression);
    if (input->decoder == NULL) return trace_fail_memory(error, input->name);
  }
  return TRACE_OK;
}

/* name is copied: messages outlive the caller's string. */
static trace_status prepare(trace_input *input, const char *name, trace_error *error) {
  memset(input, 0, sizeof *input);
  input->file = -1;
  input->buffer = malloc(BUFFER_BYTES + TRACE_INPUT_PADDING);
  input->raw_buffer = malloc(RAW_BUFFER_BYTES);
  input->owned_name = strdup(name);
  if (input->buffer == NULL || input->raw_buffer == NULL || input->owned_name == NULL) {
    trace_input_close(input);
    return trace_fail_memory(error, name);
  }
  input->name = input->owned_name;
  return TRACE_OK;
}

trace_status trace_input_open(trace_input *input, const char *path, trace_error *error) {
  bool standard_input = strcmp(path, "-") == 0;
  trace_status status = prepare(input, standard_input ? "standard input" : path, error);
  if (status != TRACE_OK) return status;
  input->file = standard_input ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
  if (input->file < 0) {
    status = trace_fail(error, TRACE_UNREADABLE, input->name, "cannot be opened: %s", strerror(errno));
    trace_input_close(input);
    return status;
  }
  struct stat about;
  if (fstat(input->file, &about) == 0 && S_ISREG(about.st_mode) && !standard_input) {
    input->rewindable = true;
    input->raw_size = (uint64_t)about.st_size;
    input->modified = about.st_mtim;
  }
  status = start(input, error);
  if (status != TRACE_OK) trace_input_close(input);
  return status;
}

trace_status trace_input_open_memory(trace_input *input, const void *bytes, size_t size, const char *name,
                                     trace_error *error) {
  trace_status status = prepare(input, name, error);
  if (status != TRACE_OK) return status;
  input->memory = bytes;
  input->memory_size = size;
  input->raw_size = size;
  input->rewindable = true;
  status = start(input, error);
  if (status != TRACE_OK) trace_input_close(input);
  return status;
}

trace_status trace_input_fill(trace_input *input, size_t wanted, trace_error *error) {
  size_t have = (size_t)(input->end - input->at);
  if (have >= wanted || input->finished) return TRACE_OK;
  uint64_t moved = (uint64_t)(input->at - input->buffer);
  memmove(input->buffer, input->at, have);
  input->base += moved;
  input->at = input->buffer;
  input->end = input->buffer + have;
  while (have < wanted && !input->finished) {
    size_t got;
    trace_status status = read_decoded(input, input->buffer + have, BUFFER_BYTES - have, &got, error);
    if (status != TRACE_OK) return status;
    have += got;
    input->end = input->buffer + have;
    if (got == 0) {
      input->finished = true;
      memset(input->buffer + have, 0, TRACE_INPUT_PADDING);
    }
  }
  return TRACE_OK;
}

trace_status trace_input_skip(trace_input *input, uint64_t count, bool *skipped, trace_error *error) {
  *skipped = true;
  for (;;) {
    uint64_t have = (uint64_t)(input->end - input->at);
    if (have >= count) {
      input->at += count;
      return TRACE_OK;
    }
    input->at = input->end;
    count -= have;
    if (input->finished) {
      *skipped = false;
      return TRACE_OK;
    }
    trace_status status = trace_input_fill(input, 1, error);
    if (status != TRACE_OK) return status;
  }
}

static bool has_changed(const trace_input *input) {
  struct stat now;
  return fstat(input->file, &now) != 0 || (uint64_t)now.st_size != input->raw_size ||
         now.st_mtim.tv_sec != input->modified.tv_sec || now.st_mtim.tv_nsec != input->modified.tv_nsec;
}

trace_status trace_input_rewind(trace_input *input, trace_error *error) {
  if (!input->rewindable) {
    return trace_fail(error, TRACE_UNREADABLE, input->name,
                      "cannot be read a second time (not a regular file)");
  }
  if (input->file >= 0 && lseek(input->file, 0, SEEK_SET) < 0) {
    return trace_fail(error, TRACE_UNREADABLE, input->name, "cannot be rewound: %s", strerror(errno));
  }
  if (input->file >= 0 && has_changed(input)) {
    return trace_fail(error, TRACE_UNREADABLE, input->name, "changed while it was read");
  }
  return start(input, error);
}

double trace_input_progress(const trace_input *input) {
  if (input->raw_size == 0) return -1.0;
  uint64_t consumed = input->raw_read - input->raw_left;
  if (input->decoder == NULL) consumed = trace_input_offset(input);
  double share = (double)consumed / (double)input->raw_size;
  return share > 1.0 ? 1.0 : share;
}

void trace_input_close(trace_input *input) {
  if (input->file >= 0) close(input->file);
  trace_decoder_destroy(input->decoder);
  free(input->buffer);
  free(input->raw_buffer);
  free(input->owned_name);
  memset(input, 0, sizeof *input);
  input->file = -1;
}
