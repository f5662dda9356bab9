#include "harness/timeline.h"

#include <stdbool.h>
#include <stdlib.h>

/* What is kept of a stretch of events. */
typedef struct stretch {
  timeline_point lowest_live, highest_live, highest_allocated, highest_reserved;
} stretch;

enum { POINTS_A_STRETCH = 4, FIRST_STRIDE = 8 };

struct timeline {
  size_t limit;
  timeline_point *raw; /* all points, until there are too many */
  bool thinned;
  stretch *stretches;
  size_t stretch_limit;
  uint64_t stride; /* points a stretch */
  uint64_t added;
  timeline_point first, last;
};

timeline *timeline_create(size_t points) {
  timeline *line = calloc(1, sizeof *line);
  if (!line) return NULL;
  line->limit = points < TIMELINE_LEAST_POINTS ? TIMELINE_LEAST_POINTS : points;
  line->stretch_limit = (line->limit - 2) / POINTS_A_STRETCH;
  line->stride = FIRST_STRIDE;
  line->raw = malloc(line->limit * sizeof *line->raw);
  line->stretches = malloc(line->stretch_limit * sizeof *line->stretches);
  if (!line->raw || !line->stretches) {
    timeline_destroy(line);
    return NULL;
  }
  return line;
}

/* Ties keep the earlier point. */
static void stretch_merge(stretch *left, const stretch *right) {
  if (right->lowest_live.live_bytes < left->lowest_live.live_bytes) left->lowest_live = right->lowest_live;
  if (right->highest_live.live_bytes > left->highest_live.live_bytes)
    left->highest_live = right->highest_live;
  if (right->highest_allocated.allocated_bytes > left->highest_allocated.allocated_bytes) {
    left->highest_allocated = right->highest_allocated;
  }
  if (right->highest_reserved.reserved_bytes > left->highest_reserved.reserved_bytes) {
    left->highest_reserved = right->highest_reserved;
  }
}

static void add_to_stretch(timeline *line, uint64_t number, const timeline_point *point) {
  if (number / line->stride == line->stretch_limit) {
    for (size_t i = 0; i < line->stretch_limit; i++) {
      if (i % 2 == 0) {
        line->stretches[i / 2] = line->stretches[i];
      } else {
        stretch_merge(&line->stretches[i / 2], &line->stretches[i]);
      }
    }
    line->stride *= 2;
  }
  stretch single = {*point, *point, *point, *point};
  stretch *into = &line->stretches[number / line->stride];
  /* With an odd limit, the last merged stretch goes on being filled. */
  if (number % line->stride == 0) {
    *into = single;
  } else {
    stretch_merge(into, &single);
  }
}

void timeline_add(timeline *line, const timeline_point *point) {
  if (line->added == 0) line->first = *point;
  line->last = *point;
  if (!line->thinned && line->added < line->limit) {
    line->raw[line->added++] = *point;
    return;
  }
  if (!line->thinned) {
    for (size_t i = 0; i < line->limit; i++) add_to_stretch(line, i, &line->raw[i]);
    line->thinned = true;
  }
  add_to_stretch(line, line->added++, point);
}

static int compare_events(const void *left, const void *right) {
  uint64_t a = ((const timeline_point *)left)->event, b = ((const timeline_point *)right)->event;
  return (a > b) - (a < b);
}

size_t timeline_points(const timeline *line, timeline_point *points) {
  if (!line->thinned) {
    for (size_t i = 0; i < line->added; i++) points[i] = line->raw[i];
    return line->added;
  }
  size_t count = 0;
  points[count++] = line->first;
  for (size_t i = 0; i <= (line->added - 1) / line->stride; i++) {
    const stretch *part = &line->stretches[i];
    points[count++] = part->lowest_live;
    points[count++] = part->highest_live;
    points[count++] = part->highest_allocated;
    points[count++] = part->highest_reserved;
  }
  points[count++] = line->last;
  qsort(points, count, sizeof *points, compare_events);
  size_t distinct = 1;
  for (size_t i = 1; i < count; i++) {
    if (points[i].event != points[distinct - 1].event) points[distinct++] = points[i];
  }
  return distinct;
}

void timeline_destroy(timeline *line) {
  if (!line) return;
  free(line->raw);
  free(line->stretches);
  free(line);
}
