/* An event stream of allocations, read one event at a time.
 *
 * A trace is opened from a file (format and compression detected from its
 * content), read forward in bounded memory, and can be rewound for another lap.
 * Readers number the live allocations with slots: a small index that is reused
 * after its free, so that whoever replays needs an array, not a map.
 *
 * Memory: some hundred KiB, a window of the decoder (at most 256 MiB), and about 100
 * bytes for each allocation live at the same time. It does not grow with the number
 * of events. The exceptions: seed_from_segments also keeps the distinct addresses of
 * the trace while it looks for the seeds, and minimalloc lifetimes and profiles, whose
 * events have to be sorted, are kept whole (some 50 bytes an event).
 *
 * The formats are described in docs/formats.md. Not thread-safe: one caller per
 * trace at a time. */
#ifndef LAKEBED_WORKLOADS_TRACE_H
#define LAKEBED_WORKLOADS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum trace_event_kind {
  TRACE_ALLOC,          /* size bytes wanted on stream; slot names it until its TRACE_FREE */
  TRACE_FREE,           /* the memory of slot is free for reuse (free_completed) */
  TRACE_FREE_REQUESTED, /* the caller is done with slot, other streams may not be; only on demand */
  TRACE_OUT_OF_MEMORY   /* the recorded run failed to get size bytes here; informative */
} trace_event_kind;

typedef struct trace_event {
  trace_event_kind kind;
  uint32_t slot;    /* 0 .. trace_slots()-1; for ALLOC, FREE, FREE_REQUESTED */
  uint32_t stream;  /* dense index; 0 is the recorded stream 0, others follow as they are first seen */
  uint64_t size;    /* bytes asked for, unrounded, 0 to 2^63-1; for FREE the size of its ALLOC */
  uint64_t id;      /* as recorded: address or id; for messages. OUT_OF_MEMORY: bytes of the device that were
                       free, 0 where the format does not say */
  uint64_t time_us; /* as recorded, 0 where the format has none */
} trace_event;

typedef enum trace_status {
  TRACE_OK = 0,
  TRACE_END,        /* no more events */
  TRACE_MALFORMED,  /* the input breaks its format; message says where and what was expected */
  TRACE_NO_EVENTS,  /* well-formed, but no events to deliver: a snapshot taken without recording, an empty
                       file, a device that it does not have */
  TRACE_UNREADABLE, /* the file cannot be opened or read, or its format is not known */
  TRACE_NO_MEMORY,
  TRACE_UNWRITABLE /* trace_writer.h: the file cannot be written */
} trace_status;

typedef struct trace_error {
  trace_status status;
  char message[512]; /* "FILE:LINE: ..." or "FILE: offset N: ...", always terminated */
} trace_error;

typedef struct trace_options {
  uint32_t device;         /* device_traces[device] of a snapshot; Device Id of a log that has several */
  bool seed_from_segments; /* begin a snapshot or profile with what was live when its recording began */
  bool free_requests;      /* also deliver TRACE_FREE_REQUESTED */
  bool marks;              /* also look for the ends of iterations: trace_marks */
} trace_options;

/* What reading has met so far; complete once TRACE_END has been returned. */
typedef struct trace_summary {
  const char *format; /* "pytorch-snapshot", "events", "lakebed", "rmm", "stalloc", "minimalloc", "kineto" */
  const char *compression; /* "none", "xz", "gzip", "zstd"; static */
  uint64_t allocations;
  uint64_t frees;
  uint64_t orphan_frees; /* frees of allocations from before the recording began, left out */
  uint64_t orphan_bytes; /* their sizes, where they are recorded */
  uint64_t
      live_before_bytes; /* live when the recording began, where it says so, and not delivered as seeds */
  uint64_t free_size_mismatches; /* frees that state another size than their allocation, which counts */
  uint64_t seeded;               /* allocations delivered because of seed_from_segments */
  uint64_t out_of_memory_events;
  uint64_t segments_bytes; /* what a snapshot's segments hold at its end; known when seeding, else 0 */
  uint64_t other_events;   /* segment_alloc and the like, other devices, null pointers: skipped */
  uint64_t live_at_end;
  uint64_t live_bytes; /* requested bytes live now */
  uint64_t live_peak_bytes;
  uint64_t rounded_live_bytes; /* each request rounded up to 512 bytes: the project's measure of live */
  uint64_t rounded_live_peak_bytes;
  uint64_t largest_bytes;
  uint32_t streams;     /* one more than the highest dense index, stream 0 included */
  uint32_t devices;     /* device_traces lists in a snapshot, devices with events in a log, else 1 */
  uint64_t input_bytes; /* uncompressed bytes read */
} trace_summary;

typedef struct trace trace;

/* Opens path ("-" is standard input, which cannot be rewound) and reads as far
 * as is needed to know the format; with seed_from_segments, all of a snapshot, which
 * standard input and pipes do not allow (TRACE_UNREADABLE). options: NULL for defaults.
 * The caller closes *opened. On failure *opened is NULL and error filled. Every error
 * pointer of this file may be NULL. */
trace_status trace_open(const char *path, const trace_options *options, trace **opened, trace_error *error);

/* The same over size bytes of memory, borrowed until close; name is for messages. */
trace_status trace_open_memory(const void *bytes, size_t size, const char *name, const trace_options *options,
                               trace **opened, trace_error *error);

/* The next event. TRACE_OK, TRACE_END, or a failure with error filled; after
 * a failure or the end the same answer comes again. A file without any event
 * gives TRACE_NO_EVENTS at the first call. A duplicate id that is still live, a
 * free of an unknown id in a format that has no beginning mid-run, and a double
 * free are TRACE_MALFORMED. Amortised O(1). */
trace_status trace_next(trace *opened, trace_event *event, trace_error *error);

/* Back to the first event. TRACE_UNREADABLE for standard input, and for a file that has changed since. */
trace_status trace_rewind(trace *opened, trace_error *error);

bool trace_can_rewind(const trace *opened);
/* What messages call it: the path, or "standard input". */
const char *trace_name(const trace *opened);

/* One more than the highest slot delivered so far. */
uint32_t trace_slots(const trace *opened);
/* The recorded stream behind a dense index (a handle in snapshots). */
uint64_t trace_stream_recorded(const trace *opened, uint32_t stream);
void trace_summary_get(const trace *opened, trace_summary *summary);
/* When the recorded run's iterations ended, in ascending time_us, as far as the trace says: a snapshot does,
 * by its annotations of optimizer steps. An event later than a mark belongs to the next iteration. Complete
 * once TRACE_END has been returned; valid until the trace is rewound or closed. Returns how many there are.
 */
size_t trace_marks(trace *opened, const uint64_t **marks);
/* Share of the input consumed so far, 0 to 1, for progress; negative when unknown. */
double trace_progress(const trace *opened);
/* Accepts NULL. */
void trace_close(trace *opened);

/* A whole trace in memory: events in order. For repeated replays and benchmarks. */
typedef struct trace_events {
  trace_event *events;
  uint64_t count;
  uint32_t slots;
  trace_summary summary;
} trace_events;

/* Reads all events of path. The caller frees with trace_events_free. 40 bytes an event. */
trace_status trace_load(const char *path, const trace_options *options, trace_events *loaded,
                        trace_error *error);
void trace_events_free(trace_events *loaded);

#endif
