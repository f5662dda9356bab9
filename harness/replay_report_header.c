/* The head of a report: what was replayed, and on what. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/replay_output.h"
#include "harness/units.h"

enum { INDENT = 10, WIDTH = 110, OPTIONS_TEXT = 2048 };

/* Prints words in lines of at most WIDTH columns; the first begins after the title. Long words stay whole. */
static void print_wrapped(const char *title, const char *text, FILE *stream) {
  size_t column = INDENT;
  fprintf(stream, "%-*s", INDENT, title);
  while (*text) {
    size_t length = strcspn(text, " ");
    if (column > INDENT && column + 1 + length > WIDTH) {
      fprintf(stream, "\n%*s", INDENT, "");
      column = INDENT;
    } else if (column > INDENT) {
      fputc(' ', stream);
      column++;
    }
    fwrite(text, 1, length, stream);
    column += length;
    text += length;
    text += *text == ' ';
  }
  fputc('\n', stream);
}

/* As many words as a line holds. */
static void print_cut(const char *title, const char *text, FILE *stream) {
  size_t length = WIDTH - INDENT;
  if (strlen(text) <= length) {
    print_wrapped(title, text, stream);
    return;
  }
  length -= sizeof " ..." - 1;
  while (length > 0 && text[length] != ' ') length--;
  fprintf(stream, "%-*s%.*s ...\n", INDENT, title, (int)length, text);
}

void replay_report_recorded(const trace_summary *summary, uint64_t recorded_ooms, FILE *stream) {
  char text[UNITS_TEXT], more[UNITS_COUNTED];
  if (summary->seeded) {
    units_count(summary->seeded, text);
    fprintf(stream, ", %s from before the recording", text);
  }
  if (summary->orphan_frees) {
    units_counted(summary->orphan_frees, "free", more);
    fprintf(stream, ", %s of older allocations left out", more);
  }
  if (recorded_ooms) {
    units_counted(recorded_ooms, "time", more);
    fprintf(stream, ", out of memory %s when recorded", more);
  }
}

static void print_events(const replay_group *group, FILE *stream) {
  const trace_summary *summary = &group->summary;
  const replay_settings *settings = group->settings;
  char text[UNITS_TEXT], allocations[UNITS_COUNTED], more[UNITS_COUNTED];
  units_count(summary->allocations + summary->frees, text);
  units_counted(summary->allocations, "allocation", allocations);
  units_counted(summary->streams, "stream", more);
  fprintf(stream, "%-*s%s: %s, %s", INDENT, "events", text, allocations, more);
  units_count(summary->live_at_end, text);
  fprintf(stream, ", %s live at the end", text);
  replay_report_recorded(summary, summary->out_of_memory_events, stream);
  if (settings->laps > 1) {
    units_counted(settings->laps, "time", more);
    fprintf(stream, ", replayed %s", more);
  }
  if (settings->frees_requested) fputs(", freed when the caller asked for it", stream);
  fputc('\n', stream);
}

static void print_device(const replay_settings *settings, FILE *stream) {
  const device_model *model = settings->model;
  char text[UNITS_TEXT], more[UNITS_COUNTED];
  units_bytes(model->capacity, text);
  fprintf(stream, "%-*s%s, %s%s", INDENT, "device", model->name, text, model->source ? ", simulated" : "");
  if (settings->limit != UINT64_MAX) {
    units_bytes(settings->limit, text);
    fprintf(stream, ", policies limited to %s", text);
  }
  if (settings->limit != UINT64_MAX && settings->limit_fraction > 0) {
    units_bytes(model->total, text);
    fprintf(stream, " (%.12g of %s)", settings->limit_fraction, text);
  }
  if (model->event_delay) {
    units_counted(model->event_delay, "event", more);
    fprintf(stream, ", work done after %s", more);
  }
  fputc('\n', stream);
}

/* One line a policy with all options. */
static void print_all_options(const policy_specs *specs, FILE *stream) {
  char options[OPTIONS_TEXT], words[OPTIONS_TEXT + 256];
  for (size_t i = 0; i < specs->count; i++) {
    const policy_spec *spec = &specs->items[i];
    replay_options_text(spec, options, sizeof options);
    /* Spaces only to break lines at. */
    size_t used = (size_t)snprintf(words, sizeof words, "%s%s", spec->class->name, options[0] ? ": " : "");
    for (const char *at = options; *at && used + 2 < sizeof words; at++) {
      words[used++] = *at;
      if (*at == ',') words[used++] = ' ';
    }
    words[used] = '\0';
    print_wrapped(i ? "" : "policies", words, stream);
  }
}

/* Says what a run says of a policy on this device beside its numbers. */
static void print_model_note(const policy_spec *spec, const device_model *model, FILE *stream) {
  char note[256];
  const char *model_note = replay_model_note(spec, model);
  if (!model_note) return;
  snprintf(note, sizeof note, "%s is %s", spec->class->name, model_note);
  print_wrapped("note", note, stream);
}

/* All policies in a row, with what was changed of their options. */
static void print_changed_options(const policy_specs *specs, const char *hint, FILE *stream) {
  char *words = NULL, options[OPTIONS_TEXT];
  size_t size;
  bool have_options = false, changed = false;
  FILE *text = open_memstream(&words, &size);
  if (!text) return;
  for (size_t i = 0; i < specs->count; i++) {
    const policy_spec *spec = &specs->items[i];
    replay_changed_options_text(spec, options, sizeof options);
    fprintf(text, "%s%s%s%s", i ? ", " : "", spec->class->name, options[0] ? ":" : "", options);
    have_options |= spec->class->options && spec->class->options->name;
    changed |= options[0] != '\0';
  }
  if (have_options) fprintf(text, "; %s%s", changed ? "other options by default" : "default options", hint);
  if (fclose(text) == 0) print_wrapped("policies", words, stream);
  free(words);
}

/* An option that is nothing without a limit. */
static void print_limit_notes(const policy_spec *spec, FILE *stream) {
  char note[512];
  const policy_option *option = spec->class->options;
  for (size_t i = 0; option && option[i].name; i++) {
    if (option[i].type != POLICY_OPTION_REAL || spec->values[i].real <= 0 ||
        strcmp(option[i].unit ? option[i].unit : "", POLICY_SHARE_OF_LIMIT) != 0)
      continue;
    snprintf(note, sizeof note, "%s: without --limit, %s does nothing", spec->text, option[i].name);
    print_wrapped("note", note, stream);
  }
}

static void print_notes(const replay_group *group, FILE *stream) {
  const replay_settings *settings = group->settings;
  if (settings->limit != UINT64_MAX && settings->limit > settings->model->capacity) {
    print_wrapped("note", "the limit is more than the device has, so that it limits nothing", stream);
  }
  for (size_t i = 0; i < group->count; i++) {
    const policy_spec *spec = group->results[i].spec;
    print_model_note(spec, settings->model, stream);
    if (settings->limit == UINT64_MAX) print_limit_notes(spec, stream);
  }
}

void replay_report_header(const replay_group *group, bool details, FILE *stream) {
  const device_model *model = group->settings->model;
  fprintf(stream, "%-*s%s\n", INDENT, "trace", replay_trace_name(group->path));
  if (group->has_summary) print_events(group, stream);
  print_device(group->settings, stream);
  if (model->source && group->first) {
    if (details) {
      print_wrapped("latencies", model->source, stream);
    } else {
      print_cut("latencies", model->source, stream);
    }
  }
  if (details) {
    print_all_options(group->specs, stream);
  } else {
    print_changed_options(group->specs, " (--details)", stream);
  }
  print_notes(group, stream);
  fputc('\n', stream);
}

void replay_report_policies(const policy_specs *specs, const device_model *model, FILE *stream) {
  print_changed_options(specs, "", stream);
  for (size_t i = 0; i < specs->count; i++) print_model_note(&specs->items[i], model, stream);
}
