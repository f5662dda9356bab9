/* What is written about the maps of a replay. */
#include <inttypes.h>
#include <stdio.h>

#include "harness/replay_output.h"

/* "when most memory was live" */
static const char *moment_text(const replay_settings *settings) {
  switch (settings->dump.moment) {
    case REPLAY_DUMP_EVENT:
      return "after an event";
    case REPLAY_DUMP_PEAK:
      return "when most was live";
    case REPLAY_DUMP_OOM:
      return "when a request found none";
    case REPLAY_DUMP_NEVER:
      break;
  }
  return "";
}

static const char *moment_name(const replay_settings *settings, char text[32]) {
  switch (settings->dump.moment) {
    case REPLAY_DUMP_PEAK:
      return "peak";
    case REPLAY_DUMP_OOM:
      return "oom";
    case REPLAY_DUMP_EVENT:
    case REPLAY_DUMP_NEVER:
      break;
  }
  snprintf(text, 32, "%" PRIu64, settings->dump.event);
  return text;
}

void replay_report_maps(const replay_group *group, bool details, FILE *stream) {
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (result->map_reason[0])
      fprintf(stream, "\n%s: no map of memory: %s\n", result->spec->text, result->map_reason);
    if (!result->map) continue;
    fprintf(stream, "\n%s: memory %s (lap %" PRIu64 ", event %" PRIu64 ")\n", result->spec->text,
            moment_text(group->settings), result->map->lap, result->map->event);
    memory_map_print(result->map, details, stream);
  }
}

bool replay_maps_json_append(json_t *array, const replay_group *group) {
  char number[32];
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    json_t *object = replay_json_begin(group, result);
    replay_json_provenance(object, group);
    json_object_set_new(object, "dump_at", json_string(moment_name(group->settings, number)));
    json_object_set_new(object, "no_map",
                        result->map_reason[0] ? json_string(result->map_reason) : json_null());
    json_object_set_new(object, "map", result->map ? memory_map_json(result->map) : json_null());
    if (json_array_append_new(array, object) != 0) return false;
  }
  return true;
}

bool replay_maps_draw(memory_drawing *drawing, const replay_group *group) {
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    char title[1024];
    snprintf(title, sizeof title, "%s, %s: memory %s", replay_trace_name(group->path), result->spec->text,
             moment_text(group->settings));
    if (!memory_drawing_add(drawing, title, result->map, result->map_reason)) return false;
  }
  return true;
}
