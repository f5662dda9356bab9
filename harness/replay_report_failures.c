/* What is said about requests that found no memory. */
#include <inttypes.h>

#include "harness/replay_output.h"
#include "harness/units.h"

static void print_free_ranges(const replay_failure *failure, FILE *stream) {
  char size[UNITS_TEXT], sum[UNITS_TEXT];
  const replay_free_ranges *ranges = &failure->free_ranges;
  const char *title = "free ranges";
  if (!failure->knows_free_ranges) return;
  for (unsigned bin = 64; bin-- > 0;) {
    if (ranges->count[bin] == 0) continue;
    units_bytes(UINT64_C(1) << bin, size);
    units_bytes(ranges->bytes[bin], sum);
    fprintf(stream, "  %-14s %" PRIu64 " from %s up, %s together\n", title, ranges->count[bin], size, sum);
    title = "";
  }
  if (title[0]) fprintf(stream, "  %-14s none\n", title);
}

static const char *describe_refusal(const replay_failure *failure) {
  if (failure->driver_error[0]) return failure->driver_error;
  return failure->refused_by == REPLAY_REFUSED_BY_LIMIT
             ? "was not asked: more would be past the limit"
             : "was not asked: the policy knows that it cannot serve this";
}

void replay_report_situation(const replay_failure *failure, const device_model *model, uint64_t limit,
                             FILE *stream) {
  char bytes[UNITS_TEXT];
  units_bytes(failure->size, bytes);
  fprintf(stream, "  wanted         %s (%" PRIu64 " bytes)\n", bytes, failure->size);
  units_bytes(failure->live_bytes, bytes);
  fprintf(stream, "  live           %s\n", bytes);
  units_bytes(failure->allocated_bytes, bytes);
  fprintf(stream, "  allocated      %s\n", bytes);
  units_bytes(failure->reserved_bytes, bytes);
  fprintf(stream, "  reserved       %s", bytes);
  if (limit != UINT64_MAX) {
    units_bytes(limit, bytes);
    fprintf(stream, " of a limit of %s", bytes);
  }
  fputc('\n', stream);
  if (failure->knows_largest_free) {
    units_bytes(failure->largest_free_bytes, bytes);
    fprintf(stream, "  largest free   %s\n", bytes);
  }
  print_free_ranges(failure, stream);
  if (failure->device_free_bytes != UINT64_MAX) {
    char capacity[UNITS_TEXT];
    units_bytes(failure->device_free_bytes, bytes);
    units_bytes(model->capacity, capacity);
    fprintf(stream, "  device         %s free of %s\n", bytes, capacity);
  }
  fprintf(stream, "  driver         %s\n", describe_refusal(failure));
}

bool replay_served_by(const replay_result *other, const replay_result *result) {
  return other != result && !(other->spec->class->capabilities & POLICY_NO_MEMORY) &&
         replay_served(other, result->first_failure.number);
}

static void print_served_by(const replay_group *group, const replay_result *result, FILE *stream) {
  const replay_result *best = NULL;
  size_t served = 0;
  fputs("  served by      ", stream);
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *other = &group->results[i];
    if (!replay_served_by(other, result)) continue;
    fprintf(stream, "%s%s", served++ ? ", " : "", other->spec->text);
    /* One that failed other requests got by with less because it served less. */
    if (!other->complete || other->failed_allocs > 0) continue;
    if (!best || other->statistics.reserved_bytes.peak < best->statistics.reserved_bytes.peak) best = other;
  }
  fputs(served ? "\n" : "none of the other policies of this run\n", stream);
  if (!best) return;
  char bytes[UNITS_TEXT];
  units_bytes(best->statistics.reserved_bytes.peak, bytes);
  fprintf(stream, "  best           %s, which served all with at most %s reserved\n", best->spec->text,
          bytes);
}

static void print_failure(const replay_group *group, const replay_result *result, FILE *stream) {
  const replay_failure *failure = &result->first_failure;
  char requests[UNITS_COUNTED];
  units_counted(result->failed_allocs, "request", requests);
  fprintf(stream, "\n%s: %s found no memory%s\n", result->spec->text, requests,
          result->failed_allocs == 1 ? ":" : "; the first:");
  fprintf(stream, "  event          %" PRIu64, failure->event);
  if (group->settings->laps > 1) fprintf(stream, " of lap %" PRIu64, failure->lap);
  fprintf(stream, ", id %" PRIu64 ", stream %" PRIu32 "\n", failure->id, failure->stream);
  replay_report_situation(failure, group->settings->model, group->settings->limit, stream);
  print_served_by(group, result, stream);
}

/* The recorded run's own failures, and who would have served them. */
static void print_recorded(const replay_group *group, FILE *stream) {
  bool any = false;
  for (size_t i = 0; i < group->count; i++)
    any |= group->results[i].complete && group->results[i].recorded_ooms > 0;
  if (!any) return;
  fputs("\nRequests that found no memory when recorded, made again here:\n", stream);
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (!result->complete || result->spec->class->capabilities & POLICY_NO_MEMORY) continue;
    fprintf(stream, "  %s: %" PRIu64 " of %" PRIu64 " served\n", result->spec->text,
            result->recorded_ooms_served, result->recorded_ooms);
  }
}

void replay_report_failures(const replay_group *group, FILE *stream) {
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (result->complete && result->failed_allocs > 0) print_failure(group, result, stream);
  }
  print_recorded(group, stream);
}
