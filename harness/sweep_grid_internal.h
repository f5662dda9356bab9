/* What reading a grid and making its cells share. */
#ifndef LAKEBED_HARNESS_SWEEP_GRID_INTERNAL_H
#define LAKEBED_HARNESS_SWEEP_GRID_INTERNAL_H

#include "harness/sweep_grid.h"
#include "harness/sweep_words.h"

/* In the order in which they change, the last one fastest. */
typedef enum sweep_axis_name {
  SWEEP_SOURCES,
  SWEEP_DEVICES,
  SWEEP_CAPACITIES,
  SWEEP_LIMITS,
  SWEEP_LAPS,
  SWEEP_FREES,
  SWEEP_SEEDS,
  SWEEP_EVENT_DELAYS,
  SWEEP_CHECKS,
  SWEEP_TIMELINES,
  SWEEP_POLICIES,
  SWEEP_AXES
} sweep_axis_name;

typedef struct sweep_value {
  const sweep_source *source;
  const char *text; /* borrowed from the grid's texts */
  uint64_t number;
  double fraction;
} sweep_value;

typedef struct sweep_axis {
  sweep_value *items;
  size_t count;
} sweep_axis;

/* Settings whose product are cells. */
typedef struct sweep_block {
  sweep_axis axes[SWEEP_AXES];
  unsigned line; /* where it begins */
} sweep_block;

struct sweep_grid {
  const char *name; /* of the file, for messages; borrowed while it is read */
  sweep_words texts;
  sweep_source **sources;
  size_t source_count;
  sweep_cell *cells;
  size_t count;
  size_t *by_key; /* indices in the order of keys */
};

/* A block with a value on every axis becomes cells without keys. Says what is wrong. */
exit_status sweep_grid_add_block(sweep_grid *grid, const sweep_block *block);
/* Gives the cells their keys and leaves out those that are there already. */
exit_status sweep_grid_make_keys(sweep_grid *grid);

#endif
