/* Writes an event stream to a file, in Lakebed's own format or as plain events (docs/formats.md).
 *
 * A file whose name ends with .xz, .gz or .zst is compressed. It appears under its
 * name only when trace_writer_finish has succeeded: an interrupted conversion leaves
 * no half of a trace behind. Not thread-safe. */
#ifndef LAKEBED_WORKLOADS_TRACE_WRITER_H
#define LAKEBED_WORKLOADS_TRACE_WRITER_H

#include "workloads/trace.h"

typedef enum trace_file_format {
  TRACE_FILE_LAKEBED, /* keeps everything that trace_event has */
  TRACE_FILE_EVENTS   /* ids, sizes and streams; free requests, out-of-memory events and times are left out */
} trace_file_format;

typedef struct trace_writer trace_writer;

/* path "-" is standard output. The caller ends with trace_writer_finish or trace_writer_abandon.
 * Errors: TRACE_UNWRITABLE, TRACE_NO_MEMORY; then *opened is NULL. */
trace_status trace_writer_open(const char *path, trace_file_format format, trace_writer **opened,
                               trace_error *error);

/* Writes event (kind, stream, size, id and time_us are used). stream: the recorded stream,
 * trace_stream_recorded(trace, event->stream). O(1) amortised. After a failure only
 * trace_writer_abandon is left. */
trace_status trace_writer_add(trace_writer *writer, const trace_event *event, uint64_t stream,
                              trace_error *error);

/* Events that were left out because the format cannot hold them. */
uint64_t trace_writer_left_out(const trace_writer *writer);

/* Completes the file and frees writer, whatever the result; after a failure there is no file. */
trace_status trace_writer_finish(trace_writer *writer, trace_error *error);

/* Frees writer and leaves no file. Accepts NULL. */
void trace_writer_abandon(trace_writer *writer);

#endif
