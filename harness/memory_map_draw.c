/* A memory map as a picture. The line of all physical memory is cut into rows of equal size; a pixel is so
 * many bytes and has the colour of what most of them are. Below each row runs a strip: how many stitched
 * blocks lie over the memory. A second panel has a line for each of the largest stitched blocks, over the
 * same memory from the left to the right, as far as they reach: what stands below one another is shared. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory_map.h"
#include "harness/units.h"

enum {
  LEFT = 84,
  COLUMNS = 1024,
  WIDTH = LEFT + COLUMNS + 24,
  ROWS_LIMIT = 96,
  ROW = 13,
  BAR = 9,
  STRIP = 3,
  LINES_LIMIT = 120,
  LINE = 10,
  TICK_APART = 8,
};

#define LEAST_ROW_BYTES (UINT64_C(16) << 20)

struct memory_drawing {
  FILE *body;
  char *text;
  size_t size;
  unsigned y;
};

memory_drawing *memory_drawing_create(void) {
  memory_drawing *drawing = calloc(1, sizeof *drawing);
  if (!drawing) return NULL;
  drawing->y = 8;
  drawing->body = open_memstream(&drawing->text, &drawing->size);
  if (drawing->body) return drawing;
  free(drawing);
  return NULL;
}

void memory_drawing_destroy(memory_drawing *drawing) {
  if (!drawing) return;
  fclose(drawing->body);
  free(drawing->text);
  free(drawing);
}

/* ---- text ---- */

/* What came from outside as XML: no markup, no control characters, nothing that is no UTF-8. */
static void put_words(FILE *body, const char *text) {
  json_t *valid = json_string(text);
  for (; *text; text++) {
    const unsigned char byte = (unsigned char)*text;
    switch (byte) {
      case '&':
        fputs("&amp;", body);
        break;
      case '<':
        fputs("&lt;", body);
        break;
      case '>':
        fputs("&gt;", body);
        break;
      default:
        fputc(byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !valid) ? '?' : byte, body);
    }
  }
  json_decref(valid);
}

static void put_text(memory_drawing *drawing, unsigned x, unsigned y, const char *class, const char *text) {
  fprintf(drawing->body, "<text x=\"%u\" y=\"%u\" class=\"%s\">", x, y, class);
  put_words(drawing->body, text);
  fputs("</text>\n", drawing->body);
}

static void put_box(memory_drawing *drawing, unsigned x, unsigned y, unsigned width, unsigned height,
                    const char *class) {
  fprintf(drawing->body, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" class=\"%s\"/>\n", x, y, width,
          height, class);
}

/* ---- colours ---- */

/* Neighbouring live blocks have two shades. */
enum { SHADE_FREE, SHADE_LIVE, SHADE_LIVE_OTHER, SHADE_WAITING, SHADES, SHADE_NONE = SHADES };

static const char *const shade_classes[SHADES] = {"free", "live", "other", "waiting"};

enum { COVER_SHADES = 5 };

static const uint64_t cover_limits[COVER_SHADES] = {1, 2, 4, 8, UINT64_MAX};
static const char *const cover_names[COVER_SHADES] = {"1", "2", "3-4", "5-8", "9 and more"};
static const char *const cover_classes[COVER_SHADES] = {"c1", "c2", "c3", "c4", "c5"};

static unsigned cover_shade(uint64_t count) {
  unsigned i = 0;
  while (count > cover_limits[i]) i++;
  return i;
}

/* One path of rectangles for each class that the columns of a row have. classes: count of them. */
static void put_columns(memory_drawing *drawing, const unsigned char *columns, unsigned y, unsigned height,
                        const char *const *classes, unsigned count) {
  for (unsigned class = 0; class < count; class ++) {
    bool any = false;
    for (unsigned x = 0, end; x < COLUMNS; x = end) {
      for (end = x + 1; end < COLUMNS && columns[end] == columns[x];) end++;
      if (columns[x] != class) continue;
      if (!any) fprintf(drawing->body, "<path class=\"%s\" d=\"", classes[class]);
      any = true;
      fprintf(drawing->body, "M%u %uh%uv%uh-%uz", LEFT + x, y, end - x, height, end - x);
    }
    if (any) fputs("\"/>\n", drawing->body);
  }
}

/* ---- the rows ---- */

static uint64_t row_bytes(const memory_map *map) {
  uint64_t bytes = LEAST_ROW_BYTES;
  while (map->bytes > bytes * ROWS_LIMIT) bytes *= 2;
  return bytes;
}

/* Adds the bytes that [from, to), positions within a row, has in each column. */
static void add_bytes(uint64_t (*columns)[SHADES], uint64_t row, uint64_t from, uint64_t to, unsigned which) {
  const uint64_t pixel = row / COLUMNS;
  while (from < to) {
    const uint64_t column = from / pixel, end = (column + 1) * pixel < to ? (column + 1) * pixel : to;
    columns[column][which] += end - from;
    from = end;
  }
}

/* Where drawing has come to in the arrays of a map. */
typedef struct row_cursor {
  size_t run, cover, region;
  unsigned parity; /* of the next live run */
} row_cursor;

static void put_states(memory_drawing *drawing, const memory_map *map, uint64_t begin, uint64_t row,
                       row_cursor *cursor) {
  static uint64_t sums[COLUMNS][SHADES];
  unsigned char columns[COLUMNS];
  memset(sums, 0, sizeof sums);
  while (cursor->run < map->run_count && map->runs[cursor->run].position < begin + row) {
    const memory_run *run = &map->runs[cursor->run];
    const uint64_t end = run->position + run->bytes;
    const unsigned which = run->state == MEMORY_FREE      ? SHADE_FREE
                           : run->state == MEMORY_WAITING ? SHADE_WAITING
                           : cursor->parity               ? SHADE_LIVE_OTHER
                                                          : SHADE_LIVE;
    add_bytes(sums, row, run->position > begin ? run->position - begin : 0,
              end < begin + row ? end - begin : row, which);
    if (end > begin + row) break;
    if (run->state == MEMORY_LIVE) cursor->parity ^= 1;
    cursor->run++;
  }
  for (unsigned x = 0; x < COLUMNS; x++) {
    uint64_t most = 0;
    columns[x] = SHADE_NONE;
    for (unsigned which = 0; which < SHADES; which++) {
      if (sums[x][which] <= most) continue;
      most = sums[x][which];
      columns[x] = (unsigned char)which;
    }
  }
  put_columns(drawing, columns, drawing->y, BAR, shade_classes, SHADES);
}

static void put_covers(memory_drawing *drawing, const memory_map *map, uint64_t begin, uint64_t row,
                       row_cursor *cursor) {
  unsigned char columns[COLUMNS];
  memset(columns, COVER_SHADES, sizeof columns);
  const uint64_t pixel = row / COLUMNS;
  while (cursor->cover < map->cover_count && map->covers[cursor->cover].position < begin + row) {
    const memory_cover *cover = &map->covers[cursor->cover];
    const uint64_t end = cover->position + cover->bytes;
    const uint64_t from = cover->position > begin ? (cover->position - begin) / pixel : 0;
    const uint64_t to = end < begin + row ? (end - begin + pixel - 1) / pixel : COLUMNS;
    const unsigned shade = cover_shade(cover->count);
    for (uint64_t x = from; x < to; x++) {
      if (columns[x] == COVER_SHADES || columns[x] < shade) columns[x] = (unsigned char)shade;
    }
    if (end > begin + row) break;
    cursor->cover++;
  }
  put_columns(drawing, columns, drawing->y + BAR, STRIP, cover_classes, COVER_SHADES);
}

/* Where the memory of a segment or range begins. */
static void put_region_starts(memory_drawing *drawing, const memory_map *map, const uint64_t *starts,
                              uint64_t begin, uint64_t row, row_cursor *cursor) {
  bool any = false;
  unsigned last = 0;
  for (; cursor->region < map->region_count && starts[cursor->region] < begin + row; cursor->region++) {
    const unsigned x = (unsigned)((starts[cursor->region] - begin) / (row / COLUMNS));
    if (any && x < last + TICK_APART) continue;
    if (!any) fputs("<path class=\"start\" d=\"", drawing->body);
    fprintf(drawing->body, "M%u.5 %uv%u", LEFT + x, drawing->y - 1, BAR + 1u);
    any = true;
    last = x;
  }
  if (any) fputs("\"/>\n", drawing->body);
}

static void put_rows(memory_drawing *drawing, const memory_map *map) {
  const uint64_t row = row_bytes(map);
  uint64_t *starts = malloc((map->region_count + 1) * sizeof *starts), held = 0;
  for (size_t i = 0; starts && i < map->region_count; i++) {
    starts[i] = held;
    held += map->regions[i].held;
  }
  char label[UNITS_TEXT];
  row_cursor cursor = {0};
  for (uint64_t begin = 0; begin < map->bytes; begin += row) {
    units_bytes(begin, label);
    put_text(drawing, LEFT - 6, drawing->y + BAR - 1, "label", label);
    const uint64_t left = map->bytes - begin;
    put_box(drawing, LEFT, drawing->y, left < row ? (unsigned)(left / (row / COLUMNS)) + 1 : COLUMNS, BAR,
            "bar");
    put_states(drawing, map, begin, row, &cursor);
    put_covers(drawing, map, begin, row, &cursor);
    if (starts) put_region_starts(drawing, map, starts, begin, row, &cursor);
    drawing->y += ROW;
  }
  free(starts);
}

/* ---- stitched blocks ---- */

/* A stitched block to be drawn: by size, then by its lowest memory. */
typedef struct stitched_line {
  const memory_block *block;
  uint64_t lowest, highest;
} stitched_line;

static int compare_line_sizes(const void *left, const void *right) {
  const stitched_line *a = left, *b = right;
  if (a->block->size != b->block->size) return a->block->size < b->block->size ? 1 : -1;
  return a->block < b->block ? -1 : a->block > b->block;
}

static int compare_lines(const void *left, const void *right) {
  const stitched_line *a = left, *b = right;
  if (a->lowest != b->lowest) return a->lowest < b->lowest ? -1 : 1;
  return compare_line_sizes(left, right);
}

static stitched_line *choose_lines(const memory_map *map, size_t *count) {
  stitched_line *lines = malloc((map->block_count + 1) * sizeof *lines);
  if (!lines) return NULL;
  *count = 0;
  for (size_t i = map->home_blocks; i < map->block_count; i++) {
    const memory_block *block = &map->blocks[i];
    if (block->parts == 0) continue;
    stitched_line *line = &lines[(*count)++];
    *line = (stitched_line){block, UINT64_MAX, 0};
    for (size_t k = 0; k < block->parts; k++) {
      const memory_part *part = &map->parts[block->first_part + k];
      if (part->position < line->lowest) line->lowest = part->position;
      if (part->position + part->bytes > line->highest) line->highest = part->position + part->bytes;
    }
  }
  if (*count > 1) qsort(lines, *count, sizeof *lines, compare_line_sizes);
  const size_t shown = *count < LINES_LIMIT ? *count : LINES_LIMIT;
  if (shown > 1) qsort(lines, shown, sizeof *lines, compare_lines);
  return lines;
}

static const char *const line_classes[] = {"usable", "held", "blocked"};

static unsigned line_class(const memory_block *block) {
  return block->held ? 1 : block->used_bytes == 0 ? 0 : 2;
}

/* The stretch of the line that the second panel shows. */
typedef struct stretch {
  uint64_t begin, end, step; /* step: of the axis */
} stretch;

static stretch stretch_of(const stitched_line *lines, size_t count) {
  stretch all = {UINT64_MAX, 0, UINT64_C(1) << 20};
  for (size_t i = 0; i < count; i++) {
    if (lines[i].lowest < all.begin) all.begin = lines[i].lowest;
    if (lines[i].highest > all.end) all.end = lines[i].highest;
  }
  while ((all.end - all.begin) / all.step > 12) all.step *= 2;
  all.begin -= all.begin % all.step;
  return all;
}

static unsigned column_of(const stretch *all, uint64_t position) {
  return (unsigned)((double)(position - all->begin) * COLUMNS / (double)(all->end - all->begin));
}

static void put_line(memory_drawing *drawing, const memory_map *map, const stretch *all,
                     const stitched_line *line) {
  const unsigned class = line_class(line->block);
  unsigned char columns[COLUMNS];
  memset(columns, 0xff, sizeof columns);
  for (size_t k = 0; k < line->block->parts; k++) {
    const memory_part *part = &map->parts[line->block->first_part + k];
    const unsigned from = column_of(all, part->position), to = column_of(all, part->position + part->bytes);
    for (unsigned x = from; x < COLUMNS && (x == from || x < to); x++) columns[x] = (unsigned char)class;
  }
  char label[UNITS_TEXT];
  units_bytes(line->block->size, label);
  put_text(drawing, LEFT - 6, drawing->y + LINE - 3, "label", label);
  const unsigned low = column_of(all, line->lowest), high = column_of(all, line->highest);
  fprintf(drawing->body, "<path class=\"thread\" d=\"M%u %u.5h%u\"/>\n", LEFT + low,
          drawing->y + LINE / 2 - 1, high - low);
  put_columns(drawing, columns, drawing->y + 1, LINE - 3, line_classes, 3);
  drawing->y += LINE;
}

static void put_axis(memory_drawing *drawing, const stretch *all) {
  for (uint64_t at = all->begin; at <= all->end; at += all->step) {
    char label[UNITS_TEXT];
    units_bytes(at, label);
    const unsigned x = LEFT + column_of(all, at);
    fprintf(drawing->body, "<path class=\"start\" d=\"M%u %uv4\"/>\n", x, drawing->y);
    put_text(drawing, x, drawing->y + 14, "tick", label);
  }
  drawing->y += 22;
}

static unsigned put_key(memory_drawing *drawing, unsigned x, const char *class, const char *text) {
  put_box(drawing, x, drawing->y, 10, 9, class);
  put_text(drawing, x + 14, drawing->y + 9, "key", text);
  return x + 32 + 6 * (unsigned)strlen(text);
}

static void put_stitched(memory_drawing *drawing, const memory_map *map) {
  size_t count;
  stitched_line *lines = choose_lines(map, &count);
  if (!lines || count == 0) {
    free(lines);
    return;
  }
  const size_t shown = count < LINES_LIMIT ? count : LINES_LIMIT;
  char text[256], counted[UNITS_COUNTED];
  units_counted(count, "stitched block", counted);
  if (shown < count)
    snprintf(text, sizeof text, "The %zu largest of %s: where in memory each one's chunks lie", shown,
             counted);
  else
    snprintf(text, sizeof text, "%s: where in memory each one's chunks lie", counted);
  drawing->y += 22;
  put_text(drawing, LEFT, drawing->y, "heading", text);
  drawing->y += 8;
  unsigned x = put_key(drawing, LEFT, "held", "given out");
  x = put_key(drawing, x, "usable", "free: can be given out as it is");
  put_key(drawing, x, "blocked", "some of its memory is in use under another address");
  drawing->y += 16;
  const stretch all = stretch_of(lines, shown);
  for (size_t i = 0; i < shown; i++) put_line(drawing, map, &all, &lines[i]);
  put_axis(drawing, &all);
  free(lines);
}

/* ---- the whole ---- */

static void put_legend(memory_drawing *drawing, const memory_map *map) {
  char text[256], bytes[UNITS_TEXT], count[UNITS_COUNTED];
  units_bytes(map->state_bytes[MEMORY_LIVE], bytes);
  units_counted(map->live_blocks, "block", count);
  snprintf(text, sizeof text, "live: %s in %s (neighbours in two shades)", bytes, count);
  put_box(drawing, LEFT, drawing->y, 5, 9, "other");
  unsigned x = put_key(drawing, LEFT + 5, "live", text);
  units_bytes(map->state_bytes[MEMORY_WAITING], bytes);
  snprintf(text, sizeof text, "freed, waits for other streams: %s", bytes);
  if (map->state_bytes[MEMORY_WAITING] > 0) x = put_key(drawing, x, "waiting", text);
  units_bytes(map->state_bytes[MEMORY_FREE], bytes);
  units_counted(map->free_runs, "run", count);
  snprintf(text, sizeof text, "free: %s in %s", bytes, count);
  x = put_key(drawing, x, "free", text);
  fprintf(drawing->body, "<path class=\"start\" d=\"M%u.5 %uv9\"/>\n", x + 5, drawing->y);
  put_text(drawing, x + 14, drawing->y + 9, "key", "begin of a segment or range");
  drawing->y += 16;
  if (map->cover_count == 0) return;
  put_text(drawing, LEFT, drawing->y + 9, "key", "strip below: stitched blocks over it:");
  x = LEFT + 240;
  for (unsigned i = 0; i < COVER_SHADES; i++) x = put_key(drawing, x, cover_classes[i], cover_names[i]);
  drawing->y += 16;
}

static void put_summary(memory_drawing *drawing, const memory_map *map) {
  char text[256], live[UNITS_TEXT], reserved[UNITS_TEXT], wanted[UNITS_TEXT], row[UNITS_TEXT];
  units_bytes(map->live_bytes, live);
  units_bytes(map->reserved_bytes, reserved);
  int used = snprintf(text, sizeof text, "lap %" PRIu64 ", event %" PRIu64 ": %s live, %s reserved", map->lap,
                      map->event, live, reserved);
  if (map->wanted_bytes > 0 && used > 0) {
    units_bytes(map->wanted_bytes, wanted);
    snprintf(text + used, sizeof text - (size_t)used, "; a request of %s found no memory", wanted);
  }
  put_text(drawing, LEFT, drawing->y + 12, "key", text);
  units_bytes(row_bytes(map), row);
  snprintf(text, sizeof text, "Physical memory in the order of its home addresses, %s a row", row);
  drawing->y += 30;
  put_text(drawing, LEFT, drawing->y, "heading", text);
  drawing->y += 8;
}

bool memory_drawing_add(memory_drawing *drawing, const char *title, const memory_map *map,
                        const char *reason) {
  drawing->y += 16;
  fputs("<g class=\"map\">\n", drawing->body);
  put_text(drawing, LEFT, drawing->y, "title", title);
  drawing->y += 4;
  if (map && map->bytes > 0) {
    put_summary(drawing, map);
    put_legend(drawing, map);
    put_rows(drawing, map);
    put_stitched(drawing, map);
  } else {
    put_text(drawing, LEFT, drawing->y + 12, "key", map ? "No memory is held." : reason);
    drawing->y += 16;
  }
  fputs("</g>\n", drawing->body);
  drawing->y += 16;
  return !ferror(drawing->body);
}

static const char style[] =
    "text{font-family:sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}"
    ".heading{font-size:12px;font-weight:bold}.key{font-size:11px}"
    ".label{font-size:9px;text-anchor:end}.tick{font-size:9px;text-anchor:middle}"
    ".bar{fill:#fff;stroke:#999;stroke-width:.5}.live{fill:#2b6cb0}.other{fill:#63a0d8}.free{fill:#f2d9a0}"
    ".waiting{fill:#c05621}.start{stroke:#111;fill:none}.thread{stroke:#ccc;fill:none}"
    ".c1{fill:#d9c7ea}.c2{fill:#b794d6}.c3{fill:#9061bd}.c4{fill:#6b3a9c}.c5{fill:#3b1464}"
    ".held{fill:#2b6cb0}.usable{fill:#5a9e4b}.blocked{fill:#b0b0b0}";

bool memory_drawing_write(const memory_drawing *drawing, FILE *stream) {
  if (fflush(drawing->body) != 0 || ferror(drawing->body)) return false;
  fprintf(stream,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" viewBox=\"0 0 %d %u\">\n"
          "<style>%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
          WIDTH, drawing->y, WIDTH, drawing->y, style);
  fwrite(drawing->text, 1, drawing->size, stream);
  fputs("</svg>\n", stream);
  return !ferror(stream);
}
