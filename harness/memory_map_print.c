/* A memory map as tables for people. */
#include <inttypes.h>
#include <stdlib.h>

#include "harness/memory_map.h"
#include "harness/table.h"
#include "harness/units.h"

enum { ROWS = 24, PARTS_TEXT = 240, WIDTH = 160 }; /* without details: rows a table; with: a cell, a line */

static void bytes_cell(table *rows, uint64_t bytes) {
  char text[UNITS_TEXT] = "-";
  if (bytes > 0) units_bytes(bytes, text);
  table_cell(rows, "%s", text);
}

/* ---- the largest rows ---- */

static int compare_sizes(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a < b) - (a > b);
}

/* Which of many rows to show: the largest ones, at most ROWS, of equal ones the first. */
typedef struct selection {
  uint64_t least;
  size_t left_out, equal; /* so many of the least size are shown */
  uint64_t left_out_bytes;
} selection;

static bool select_rows(selection *chosen, const uint64_t *sizes, size_t count, bool all) {
  *chosen = (selection){.equal = SIZE_MAX};
  if (all || count <= ROWS) return true;
  uint64_t *sorted = malloc(count * sizeof *sorted);
  if (!sorted) return false;
  for (size_t i = 0; i < count; i++) sorted[i] = sizes[i];
  qsort(sorted, count, sizeof *sorted, compare_sizes);
  chosen->least = sorted[ROWS - 1];
  chosen->equal = 0;
  for (size_t i = 0; i < ROWS; i++) chosen->equal += sorted[i] == chosen->least;
  free(sorted);
  return true;
}

static bool shown(selection *chosen, uint64_t size) {
  if (size > chosen->least || (size == chosen->least && chosen->equal > 0)) {
    if (size == chosen->least && chosen->equal != SIZE_MAX) chosen->equal--;
    return true;
  }
  chosen->left_out++;
  chosen->left_out_bytes += size;
  return false;
}

static void say_left_out(const selection *chosen, const char *what, const char *of_them, FILE *stream) {
  if (chosen->left_out == 0) return;
  char count[UNITS_TEXT], bytes[UNITS_TEXT];
  units_count(chosen->left_out, count);
  units_bytes(chosen->left_out_bytes, bytes);
  fprintf(stream, "and %s more %s, %s%s (--details shows all)\n", count, what, bytes, of_them);
}

/* ---- tables ---- */

static void print_regions(const memory_map *map, bool details, FILE *stream) {
  const char *titles[] = {"<address", "<kind",   "addresses", "held",         "live",  "waiting",
                          "free",     "in runs", "largest",   "mapped again", "chunks"};
  uint64_t *sizes = malloc((map->region_count + 1) * sizeof *sizes);
  selection chosen;
  for (size_t i = 0; sizes && i < map->region_count; i++)
    sizes[i] = map->regions[i].held + map->regions[i].again;
  if (!sizes || !select_rows(&chosen, sizes, map->region_count, details)) {
    fputs("(no memory for the table)\n", stream);
    free(sizes);
    return;
  }
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < map->region_count; i++) {
    const memory_region *region = &map->regions[i];
    if (!shown(&chosen, sizes[i])) continue;
    table_row(rows);
    if (region->kind == MEMORY_ELSEWHERE)
      table_cell(rows, "anywhere");
    else
      table_cell(rows, "0x%" PRIx64, region->address);
    table_cell(rows, "%s", memory_region_kind_name(region->kind));
    bytes_cell(rows, region->size);
    bytes_cell(rows, region->held);
    bytes_cell(rows, region->live_bytes);
    bytes_cell(rows, region->waiting_bytes);
    bytes_cell(rows, region->free_bytes);
    table_count(rows, region->free_runs);
    bytes_cell(rows, region->largest_free_bytes);
    bytes_cell(rows, region->again);
    table_count(rows, region->chunks);
  }
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
  say_left_out(&chosen, "segments and ranges", " mapped", stream);
  free(sizes);
}

/* Appends to a cell; false: it is full. */
static bool append(char *text, size_t *used, const char *piece) {
  size_t length = 0;
  while (piece[length]) length++;
  if (*used + length + sizeof ", ..." > PARTS_TEXT) {
    *used += (size_t)snprintf(text + *used, PARTS_TEXT - *used, ", ...");
    return false;
  }
  *used += (size_t)snprintf(text + *used, PARTS_TEXT - *used, "%s", piece);
  return true;
}

static void chunks_text(char *text, size_t size, uint64_t first, uint64_t last) {
  if (first == last)
    snprintf(text, size, "%" PRIu64, first);
  else
    snprintf(text, size, "%" PRIu64 "-%" PRIu64, first, last);
}

/* "#12: 120-135, #45-#47: 300-302": blocks at home and the numbers of their chunks. Blocks that follow one
 * another with all their chunks are taken together. */
static void parts_text(const memory_map *map, const memory_block *block, char text[PARTS_TEXT]) {
  size_t used = 0, next;
  text[0] = '\0';
  for (size_t k = 0; k < block->parts; k = next) {
    const memory_part *part = &map->parts[block->first_part + k], *last = part;
    for (next = k + 1; next < block->parts; next++, last++) {
      if (part->block == MEMORY_NO_BLOCK || last[1].block != last->block + 1 ||
          last[1].first_chunk != last->last_chunk + 1)
        break;
    }
    char piece[192], chunks[64], blocks[64] = "";
    chunks_text(chunks, sizeof chunks, part->first_chunk, last->last_chunk);
    if (part->block != MEMORY_NO_BLOCK && last == part)
      snprintf(blocks, sizeof blocks, "#%zu: ", part->block);
    else if (part->block != MEMORY_NO_BLOCK)
      snprintf(blocks, sizeof blocks, "#%zu-#%zu: ", part->block, last->block);
    snprintf(piece, sizeof piece, "%s%s%s", k ? ", " : "", blocks, chunks);
    if (!append(text, &used, piece)) return;
  }
}

static const char *block_state(const memory_block *block) {
  if (block->held) return "given out";
  return block->used_bytes == 0 ? "free" : block->stitched ? "in use" : "part used";
}

static void print_home_blocks(const memory_map *map, bool details, FILE *stream) {
  const char *titles[] = {"#", "<kind", "<address", "size", "<state", "used", "stitched", "in", "<chunks"};
  uint64_t *sizes = malloc((map->home_blocks + 1) * sizeof *sizes);
  selection chosen;
  const bool any_stitched = map->block_count > map->home_blocks;
  for (size_t i = 0; sizes && i < map->home_blocks; i++)
    sizes[i] = any_stitched ? map->blocks[i].shared_bytes : map->blocks[i].size;
  if (!sizes || !select_rows(&chosen, sizes, map->home_blocks, details)) {
    fputs("(no memory for the table)\n", stream);
    free(sizes);
    return;
  }
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < map->home_blocks; i++) {
    const memory_block *block = &map->blocks[i];
    if (!shown(&chosen, sizes[i])) continue;
    char chunks[64];
    chunks_text(chunks, sizeof chunks, block->first_chunk, block->last_chunk);
    table_row(rows);
    table_cell(rows, "%zu", i);
    table_cell(rows, "%s", block->kind);
    table_cell(rows, "0x%" PRIx64, block->address);
    bytes_cell(rows, block->size);
    table_cell(rows, "%s", block->used_bytes >= block->size && !block->held ? "used" : block_state(block));
    bytes_cell(rows, block->used_bytes);
    bytes_cell(rows, block->shared_bytes);
    table_count(rows, block->sharers);
    table_cell(rows, "%s", chunks);
  }
  fprintf(stream, "\nBlocks at home, and in how many stitched ones they are:\n");
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
  say_left_out(&chosen, "blocks", any_stitched ? " of them stitched" : "", stream);
  free(sizes);
}

static void print_stitched(const memory_map *map, bool details, FILE *stream) {
  const size_t count = map->block_count - map->home_blocks;
  const memory_block *stitched = map->blocks + map->home_blocks;
  const char *titles[] = {"<kind", "<address", "size",  "<state",
                          "used",  "shared",   "parts", "<made of chunks"};
  uint64_t *sizes = calloc(count + 1, sizeof *sizes);
  selection chosen;
  for (size_t i = 0; sizes && i < count; i++) sizes[i] = stitched[i].size;
  if (!sizes || !select_rows(&chosen, sizes, count, details)) {
    fputs("(no memory for the table)\n", stream);
    free(sizes);
    return;
  }
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  table_wrap(rows, WIDTH);
  for (size_t i = 0; i < count; i++) {
    const memory_block *block = &stitched[i];
    if (!shown(&chosen, block->size)) continue;
    char parts[PARTS_TEXT];
    parts_text(map, block, parts);
    table_row(rows);
    table_cell(rows, "%s", block->kind);
    table_cell(rows, "0x%" PRIx64, block->address);
    bytes_cell(rows, block->size);
    table_cell(rows, "%s", block_state(block));
    bytes_cell(rows, block->used_bytes);
    bytes_cell(rows, block->shared_bytes);
    table_count(rows, block->parts);
    table_cell(rows, "%s", parts);
  }
  fprintf(stream, "\nStitched%s:\n", map->home_blocks ? ", #block: its chunks" : "");
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
  say_left_out(&chosen, "stitched blocks", "", stream);
  free(sizes);
}

static void print_totals(const memory_map *map, FILE *stream) {
  char bytes[UNITS_TEXT], count[UNITS_COUNTED];
  units_bytes(map->reserved_bytes, bytes);
  fprintf(stream, "  reserved       %s", bytes);
  if (map->chunk_count > 0) {
    units_counted(map->chunk_count, "chunk", count);
    units_bytes(map->chunk_bytes, bytes);
    fprintf(stream, ", %s of it in %s", bytes, count);
  }
  fputc('\n', stream);
  for (memory_state state = MEMORY_LIVE; state < MEMORY_STATES; state++) {
    if (state == MEMORY_WAITING && map->state_bytes[state] == 0) continue;
    units_bytes(map->state_bytes[state], bytes);
    fprintf(stream, "  %-14s %s", memory_state_name(state), bytes);
    units_counted(map->live_blocks, "block", count);
    if (state == MEMORY_LIVE) fprintf(stream, " in %s", count);
    fputc('\n', stream);
  }
  units_bytes(map->state_bytes[MEMORY_FREE], bytes);
  units_counted(map->free_runs, "run", count);
  fprintf(stream, "  free           %s in %s", bytes, count);
  units_bytes(map->largest_free_bytes, bytes);
  if (map->knows_largest_free) fprintf(stream, "; can be given out at once: %s", bytes);
  fputc('\n', stream);
  if (map->elsewhere_bytes > 0) {
    units_bytes(map->elsewhere_bytes, bytes);
    fprintf(stream, "  elsewhere      %s in the driver's pool: what of it is free, and where, is not known\n",
            bytes);
  }
  if (map->address_bytes > 0) {
    units_bytes(map->address_bytes, bytes);
    fprintf(stream, "  addresses      %s reserved", bytes);
    units_bytes(map->shared_bytes, bytes);
    units_count(map->extra_mappings, count);
    fprintf(stream, "; %s mapped more than once, %s mappings besides at home\n", bytes, count);
  }
}

void memory_map_print(const memory_map *map, bool details, FILE *stream) {
  print_totals(map, stream);
  fputc('\n', stream);
  print_regions(map, details, stream);
  if (map->block_count == map->home_blocks && !details) return;
  if (map->home_blocks > 0) print_home_blocks(map, details, stream);
  if (map->block_count > map->home_blocks) print_stitched(map, details, stream);
}
