/* Where a report's results come from, and what all kinds of them have in common. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/program.h"
#include "harness/replay_output.h"
#include "harness/report_internal.h"

enum { NOTED_VALUES = 6 };

exit_status report_refuse(const report_place *place, const char *format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  program_complain("%s: %s", place->path, message);
  return EXIT_STATUS_USAGE;
}

exit_status report_no_memory(void) {
  program_complain("no memory for the report");
  return EXIT_STATUS_CHECK_FAILED;
}

/* ---- sources ---- */

/* The source of this path and kind; its index, or how many there are. */
static size_t find_source(const report_page *page, const char *path, const char *kind) {
  size_t i;
  json_t *source, *known = report_text(path);
  json_array_foreach(page->sources, i, source) {
    if (json_equal(json_array_get(page->paths, i), known) &&
        strcmp(json_string_value(json_object_get(source, "kind")), kind) == 0)
      break;
  }
  json_decref(known);
  return i;
}

exit_status report_begin_source(report_place *place, const char *kind) {
  place->source = find_source(place->page, place->path, kind);
  if (place->source < json_array_size(place->page->sources)) return EXIT_STATUS_DONE;
  json_t *source = json_object();
  bool made = json_object_set_new(source, "file", report_text(replay_trace_name(place->path))) == 0;
  made &= json_object_set_new(source, "kind", json_string(kind)) == 0;
  made &= json_object_set_new(source, "count", json_integer(0)) == 0;
  made &= json_object_set_new(source, "provenance", json_object()) == 0;
  made &= json_array_append_new(place->page->sources, source) == 0;
  made &= json_array_append_new(place->page->paths, report_text(place->path)) == 0;
  return made ? EXIT_STATUS_DONE : report_no_memory();
}

void report_count(const report_place *place, size_t more) {
  json_t *count = json_object_get(json_array_get(place->page->sources, place->source), "count");
  json_integer_set(count, json_integer_value(count) + (json_int_t)more);
}

void report_note(const report_place *place, const char *key, json_t *value) {
  json_t *provenance = json_object_get(json_array_get(place->page->sources, place->source), "provenance");
  json_t *values = json_object_get(provenance, key);
  if (!value || json_is_null(value)) {
    json_decref(value);
    return;
  }
  if (!values) {
    values = json_array();
    json_object_set_new(provenance, key, values);
  }
  size_t i = 0;
  while (i < json_array_size(values) && !json_equal(json_array_get(values, i), value)) i++;
  if (i == json_array_size(values) && i < NOTED_VALUES)
    json_array_append(values, value);
  else if (i == NOTED_VALUES)
    json_array_append_new(values, json_null());
  json_decref(value);
}

void report_note_all(const report_place *place, const json_t *result) {
  static const char *const keys[] = {
      "program",   "device", "driver", "profile", "source", "capacity_bytes", "limit_bytes",
      "lap_count", "check",  "verify", "frees",   "date",   "command",        "event_delay_events"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    report_note(place, keys[i], json_incref(json_object_get(result, keys[i])));
}

bool report_has_twin(const report_page *page, const char *path, const char *kind, const char *ending) {
  const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
  if (!dot || (slash && dot < slash)) return false;
  const size_t stem = (size_t)(dot - path);
  size_t i;
  json_t *source;
  json_array_foreach(page->sources, i, source) {
    const char *other = json_string_value(json_array_get(page->paths, i));
    if (strcmp(json_string_value(json_object_get(source, "kind")), kind) == 0 &&
        strncmp(other, path, stem) == 0 && strcmp(other + stem, ending) == 0)
      return true;
  }
  return false;
}

/* ---- values ---- */

json_t *report_text(const char *text) {
  json_t *string = json_string(text);
  if (string) return string;
  char *copy = strdup(text);
  for (char *at = copy; at && *at; at++) {
    if ((unsigned char)*at >= 0x80) *at = '?';
  }
  string = copy ? json_string(copy) : NULL;
  free(copy);
  return string;
}

json_t *report_cell(const char *text) {
  if (*text == '\0') return json_null();
  if (text[strspn(text, "0123456789+-.eE")] != '\0') return report_text(text);
  char *end;
  errno = 0;
  const long long whole = strtoll(text, &end, 10);
  if (*end == '\0' && errno == 0) return json_integer(whole);
  const double number = strtod(text, &end);
  return *end == '\0' && isfinite(number) ? json_real(number) : report_text(text);
}

bool report_natural(const json_t *value, uint64_t *number) {
  if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
  *number = (uint64_t)json_integer_value(value);
  return true;
}

exit_status report_pick(const report_place *place, const char *where, const json_t *object,
                        const report_key *keys, json_t *into) {
  for (const report_key *key = keys; key->name; key++) {
    json_t *value = json_object_get(object, key->name);
    if (!value || json_is_null(value)) continue;
    if (key->type == REPORT_NUMBER ? !json_is_number(value) : !json_is_string(value))
      return report_refuse(place, "%s%s: expected a %s", where, key->name,
                           key->type == REPORT_NUMBER ? "number" : "text");
    if (json_object_set(into, key->name, value) != 0) return report_no_memory();
  }
  return EXIT_STATUS_DONE;
}
