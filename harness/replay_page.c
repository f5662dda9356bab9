/* What a replay found, as part of a page. */
#include "harness/program.h"
#include "harness/replay_output.h"

/* Takes the reference; filled: there was memory for all of it. */
static exit_status add(report_page *page, json_t *array, bool filled) {
  exit_status status = EXIT_STATUS_CHECK_FAILED;
  if (array && filled)
    status = report_add_json(page, REPLAY_PAGE_SOURCE, array);
  else
    program_complain("no memory for the report");
  json_decref(array);
  return status;
}

exit_status replay_page_add(report_page *page, const replay_group *group) {
  json_t *results = json_array(), *maps = json_array();
  bool filled = results && replay_json_append(results, group);
  exit_status status = add(page, results, filled);
  filled = maps && replay_maps_json_append(maps, group);
  status = exit_status_worse(status, add(page, maps, filled));
  for (size_t i = 0; i < group->count; i++) {
    const replay_result *result = &group->results[i];
    if (result->timeline_count == 0) continue;
    status = exit_status_worse(
        status, report_add_timeline(page, REPLAY_PAGE_SOURCE, replay_trace_name(group->path),
                                    result->spec->text, result->timeline, result->timeline_count));
  }
  return status;
}
