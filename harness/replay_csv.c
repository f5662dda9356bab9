/* Results and timelines as CSV (RFC 4180, with '\n' line ends). */
#include <inttypes.h>
#include <string.h>

#include "harness/program.h"
#include "harness/replay_output.h"

void replay_csv_field(FILE *stream, const char *text) {
  if (!strpbrk(text, ",\"\r\n")) {
    fputs(text, stream);
    return;
  }
  fputc('"', stream);
  for (; *text; text++) {
    if (*text == '"') fputc('"', stream);
    fputc(*text, stream);
  }
  fputc('"', stream);
}

/* The columns of numbers in their order: XX(name, value of result) */
#define CSV_NUMBERS(XX)                                                 \
  XX(events, result->events)                                            \
  XX(live_peak_bytes, result->live_peak_bytes)                          \
  XX(requested_peak_bytes, result->statistics.requested_bytes.peak)     \
  XX(allocated_peak_bytes, result->statistics.allocated_bytes.peak)     \
  XX(active_peak_bytes, result->statistics.active_bytes.peak)           \
  XX(reserved_peak_bytes, result->statistics.reserved_bytes.peak)       \
  XX(final_allocated_bytes, result->statistics.allocated_bytes.current) \
  XX(final_reserved_bytes, result->statistics.reserved_bytes.current)   \
  XX(failed_allocs, result->failed_allocs)                              \
  XX(recorded_ooms, result->recorded_ooms)                              \
  XX(recorded_ooms_served, result->recorded_ooms_served)                \
  XX(segments_peak, result->statistics.segments.peak)                   \
  XX(alloc_retries, result->statistics.retries)                         \
  XX(driver_calls, result->driver_calls)

void replay_csv_provenance(FILE *stream, const char *key, const char *text) {
  fprintf(stream, "# %s: ", key);
  for (; *text; text++) fputc(*text == '\n' || *text == '\r' ? ' ' : *text, stream);
  fputc('\n', stream);
}

void replay_csv_header(const replay_group *group, FILE *stream) {
  const replay_settings *settings = group->settings;
  const device_model *model = settings->model;
  replay_csv_provenance(stream, "program", "lakebed " PROGRAM_VERSION ", replay");
  replay_csv_provenance(stream, "device", model->name);
  replay_csv_provenance(stream, "driver", model->driver);
  if (model->choice) replay_csv_provenance(stream, "profile", model->choice);
  replay_csv_provenance(stream, "source", model->source ? model->source : model->version);
  fprintf(stream, "# laps: %" PRIu64 "\n# check: %s\n# verify: %s\n# frees: %s\n", settings->laps,
          settings->check ? "yes" : "no", settings->verify ? "yes" : "no",
          settings->frees_requested ? "requested" : "completed");
  if (!model->real) fprintf(stream, "# event_delay_events: %" PRIu64 "\n", model->event_delay);
  if (group->host_timing) {
    replay_csv_provenance(stream, "date", group->date);
    replay_csv_provenance(stream, "command", group->command);
  }
  fputs("trace,policy,options,driver,device,capacity_bytes,limit_bytes,status,error", stream);
#define XX(name, value) fputs("," #name, stream);
  CSV_NUMBERS(XX)
#undef XX
  fputs(",driver_us,utilization", stream);
  if (group->host_timing) fputs(",ns_per_event,events_per_second", stream);
  fputc('\n', stream);
}

static void write_numbers(FILE *stream, const replay_result *result, bool host_timing) {
#define XX(name, value) fprintf(stream, ",%" PRIu64, value);
  CSV_NUMBERS(XX)
#undef XX
  fprintf(stream, ",%.3f,", (double)result->driver_ns / 1000);
  double utilization = replay_utilization(result);
  if (utilization >= 0) fprintf(stream, "%.6f", utilization);
  if (!host_timing) return;
  if (result->events > 0 && result->host_ns > 0) {
    fprintf(stream, ",%.1f,%.0f", (double)result->host_ns / (double)result->events,
            (double)result->events * 1e9 / (double)result->host_ns);
  } else {
    fputs(",,", stream);
  }
}

void replay_csv_rows(const replay_group *group, FILE *stream) {
  const device_model *model = group->settings->model;
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    char options[2048];
    replay_options_text(result->spec, options, sizeof options);
    replay_csv_field(stream, replay_trace_name(group->path));
    fputc(',', stream);
    replay_csv_field(stream, result->spec->class->name);
    fputc(',', stream);
    replay_csv_field(stream, options);
    fprintf(stream, ",%s,", model->driver);
    replay_csv_field(stream, model->name);
    fprintf(stream, ",%" PRIu64 ",", model->capacity);
    if (group->settings->limit != UINT64_MAX) fprintf(stream, "%" PRIu64, group->settings->limit);
    fprintf(stream, ",%s,", result->complete ? "done" : "failed");
    replay_csv_field(stream, result->message);
    if (result->complete) {
      write_numbers(stream, result, group->host_timing);
    } else {
#define XX(name, value) fputc(',', stream);
      CSV_NUMBERS(XX)
#undef XX
      fputs(group->host_timing ? ",,,," : ",,", stream);
    }
    fputc('\n', stream);
  }
}

void replay_timeline_header(FILE *stream) {
  fputs("trace,policy,event,time_us,live_bytes,allocated_bytes,reserved_bytes\n", stream);
}

void replay_timeline_rows(const replay_group *group, FILE *stream) {
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    for (size_t j = 0; j < result->timeline_count; j++) {
      const timeline_point *point = &result->timeline[j];
      replay_csv_field(stream, replay_trace_name(group->path));
      fputc(',', stream);
      replay_csv_field(stream, result->spec->text);
      fprintf(stream, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", point->event,
              point->time_us, point->live_bytes, point->allocated_bytes, point->reserved_bytes);
    }
  }
}
