/* What 'lakebed sweep' is asked to run: a grid file, as a list of cells. docs/sweep.md describes the file. */
#ifndef LAKEBED_HARNESS_SWEEP_GRID_H
#define LAKEBED_HARNESS_SWEEP_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/exit_status.h"

enum { SWEEP_KEY_TEXT = 17 };

/* What is replayed. Cells that replay the same have the same source. */
typedef struct sweep_source {
  char *text; /* a path, or what is generated: "finetune --model opt-1.3b --strategy LR" */
  bool generated;
  unsigned line;        /* of the grid file */
  uint64_t fingerprint; /* of the file's bytes, or of those that the description names */
} sweep_source;

/* One replay. */
typedef struct sweep_cell {
  const sweep_source *source;
  const char *policy; /* a spec; valid */
  const char *device; /* a profile; valid with the capacity */
  uint64_t capacity;  /* 0: the device's */
  uint64_t limit;     /* UINT64_MAX: none */
  double limit_fraction;
  uint64_t laps, event_delay, timeline_points;
  bool frees_requested, seed_from_segments, check;
  /* Hexadecimal hash of all that determines the result: settings, content of the source and of a device's
   * file, and the program itself. */
  char key[SWEEP_KEY_TEXT];
} sweep_cell;

typedef struct sweep_grid sweep_grid;

/* Reads a grid file, checks all that it names, and gives every cell its key. What is wrong is said with file
 * and line. The caller frees *grid. O(cells + bytes of the traces). */
exit_status sweep_grid_read(const char *path, sweep_grid **grid);
/* The same from text; name is for messages. */
exit_status sweep_grid_parse(const char *text, const char *name, sweep_grid **grid);
size_t sweep_grid_count(const sweep_grid *grid);
/* Cells in the order of the grid: sources change slowest, policies fastest. No two have the same key. */
const sweep_cell *sweep_grid_cell(const sweep_grid *grid, size_t index);
/* The index of the cell with this key; SIZE_MAX: there is none. O(log n). */
size_t sweep_grid_find(const sweep_grid *grid, const char *key);
/* "edge  gmlake:frag_limit=2MiB  a100 80 GiB": what a message calls the cell. */
void sweep_cell_text(const sweep_cell *cell, char *text, size_t text_size);
/* Accepts NULL. */
void sweep_grid_free(sweep_grid *grid);

#endif
