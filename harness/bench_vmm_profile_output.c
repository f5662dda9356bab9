/* What the sweep behind --save-profile found: for people, for the files, as a profile. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "harness/bench_vmm.h"
#include "harness/output_file.h"
#include "harness/program.h"
#include "harness/table.h"
#include "harness/units.h"

static const char *call_word(vmm_call call, char text[32]) {
  static const char *const names[VMM_CALL_COUNT] = {
#define XX(name, called) [VMM_CALL_##name] = #name,
      VMM_CALL_MAP(XX)
#undef XX
  };
  size_t i = 0;
  for (; names[call][i] && i < 31; i++) text[i] = (char)tolower((unsigned char)names[call][i]);
  text[i] = '\0';
  return text;
}

static bool write_profile(bench_vmm *bench, const bench_points *self, FILE *stream) {
  const bench_session *session = &bench->session;
  fprintf(stream,
          "lakebed-profile 1\n"
          "device %s\n"
          "source '%s' on %s: %s, %s\n"
          "total_bytes %" PRIu64
          "\n"
          "usable_bytes %" PRIu64
          "\n"
          "granularity_bytes %" PRIu64 "\n\n",
          session->device, session->options->command, session->date, session->device, session->provenance,
          session->total_bytes, session->usable_bytes, session->granularity);
  fprintf(stream,
          "# cost CALL SIZE_BYTES LIVE_HANDLES MICROSECONDS\n"
          "# create, map, set_access, unmap, release: the mean call of a build of 2 GiB or one larger chunk, "
          "with\n"
          "# one set_access and unmap %s, beside other handles of one granule that are all mapped.\n"
          "# malloc, free: the mean call of a batch on an idle device. malloc_async, free_async: from a pool "
          "that\n"
          "# holds the memory already. Size 0: calls that move no memory; create, malloc and malloc_async "
          "refused by\n"
          "# a full device, the release of a mapped handle.\n"
          "# Medians of %" PRIu64 " repetitions; of %" PRIu64 " samples %" PRIu64
          " were used, those taken at the processor's usual speed.\n",
          bench->whole_range ? "for all chunks" : "a chunk", session->options->iterations, self->samples,
          self->steady_samples);
  for (size_t i = 0; i < self->count; i++) {
    const bench_cost_point *point = &self->points[i];
    char word[32];
    if (i == 0 || point->call != self->points[i - 1].call) fputc('\n', stream);
    fprintf(stream, "cost %s %" PRIu64 " %" PRIu64 " %.6g\n", call_word(point->call, word), point->size,
            point->live_handles, point->nanoseconds / 1000);
  }
  return fflush(stream) == 0 && !ferror(stream);
}

static exit_status save_profile(bench_vmm *bench, const bench_points *self, const char *path) {
  FILE *stream = output_open(path);
  if (!stream) return EXIT_STATUS_USAGE;
  const bool complete = write_profile(bench, self, stream);
  return output_close(stream, path, complete) ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

static void record_points(bench_vmm *bench, const bench_points *self) {
  bench_session *session = &bench->session;
  for (size_t i = 0; i < self->count; i++) {
    const bench_cost_point *point = &self->points[i];
    char word[32];
    json_t *record = bench_session_record(session, "profile");
    bench_record_text(session, record, "call", call_word(point->call, word));
    bench_record_integer(session, record, "size_bytes", point->size);
    bench_record_integer(session, record, "live_handles", point->live_handles);
    bench_record_real(session, record, "p50_us", point->nanoseconds / 1000);
    bench_record_integer(session, record, "samples", point->count);
  }
}

static void print_points(bench_vmm *bench, const bench_points *self) {
  bench_session *session = &bench->session;
  bench_session_print(session,
                      "\n# Profile: microseconds of one call (medians of the %" PRIu64 " of %" PRIu64
                      " samples that were taken at the processor's usual speed)\n",
                      self->steady_samples, self->samples);
  static const char *const titles[] = {"<call", "size", "live handles", "us"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < self->count; i++) {
    const bench_cost_point *point = &self->points[i];
    char word[32], size[BENCH_SIZE_TEXT], live[UNITS_TEXT], time[UNITS_TEXT];
    bench_size_text(point->size, size);
    units_count(point->live_handles, live);
    units_significant(point->nanoseconds / 1000, time);
    table_row(rows);
    table_cell(rows, "%s", call_word(point->call, word));
    table_cell(rows, "%s", point->size ? size : "-");
    table_cell(rows, "%s", live);
    table_cell(rows, "%s", time);
  }
  if (session->outputs.report && !table_print(rows, session->outputs.report)) session->lost = true;
  table_destroy(rows);
}

exit_status bench_vmm_profile_report(bench_vmm *bench, const bench_points *points) {
  record_points(bench, points);
  print_points(bench, points);
  return bench->profile_path ? save_profile(bench, points, bench->profile_path) : EXIT_STATUS_DONE;
}
