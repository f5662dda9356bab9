/* A map of memory, cut into cells of equal size: one of 139 GiB has some ten thousand of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/report_internal.h"

enum { CELLS_MOST = 16384, CELL_LEAST = 512, REGIONS_KEPT = 64, SIZES = 64 };

/* A cell as one character, whose place here is shade * 32 + live * 4 + waiting: of its bytes are so many
 * sevenths live and thirds waiting, never none or all where it is not; shades of neighbouring blocks differ.
 */
static const char cell_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
enum { LIVE_FULL = 7, WAITING_FULL = 3, COVERED_MOST = 63 };

typedef struct map_cell {
  uint64_t live, waiting, most; /* bytes; most: of one live run */
  bool shade;
} map_cell;

typedef struct map_sizes {
  uint64_t count[SIZES], bytes[SIZES];
} map_sizes;

typedef struct map_reading {
  const report_place *place;
  const char *where;
  uint64_t line, cell_bytes, cells;
  map_cell *cell;
} map_reading;

static const report_key map_keys[] = {
    {"lap", REPORT_NUMBER},
    {"event", REPORT_NUMBER},
    {"wanted_bytes", REPORT_NUMBER},
    {"line_bytes", REPORT_NUMBER},
    {"live_bytes", REPORT_NUMBER},
    {"active_bytes", REPORT_NUMBER},
    {"reserved_bytes", REPORT_NUMBER},
    {"elsewhere_bytes", REPORT_NUMBER},
    {"largest_free_bytes", REPORT_NUMBER},
    {"free_bytes", REPORT_NUMBER},
    {"free_runs", REPORT_NUMBER},
    {"live_blocks", REPORT_NUMBER},
    {"chunks_count", REPORT_NUMBER},
    {"shared_bytes", REPORT_NUMBER},
    {"extra_mappings", REPORT_NUMBER},
    {NULL, REPORT_NUMBER},
};

static exit_status refuse(const map_reading *reading, const char *array, size_t i, const char *expected) {
  return report_refuse(reading->place, "%s%s[%zu]: expected %s", reading->where, array, i, expected);
}

/* ---- cells ---- */

static exit_status measure_line(map_reading *reading, const json_t *map) {
  if (!report_natural(json_object_get(map, "line_bytes"), &reading->line))
    return report_refuse(reading->place, "%sline_bytes: expected a number", reading->where);
  reading->cell_bytes = CELL_LEAST;
  while (reading->line / CELLS_MOST >= reading->cell_bytes) reading->cell_bytes *= 2;
  reading->cells = reading->line / reading->cell_bytes + (reading->line % reading->cell_bytes != 0);
  reading->cell = calloc(reading->cells ? reading->cells : 1, sizeof *reading->cell);
  return reading->cell ? EXIT_STATUS_DONE : report_no_memory();
}

static uint64_t lesser(uint64_t left, uint64_t right) { return left < right ? left : right; }

/* What a stretch has of each cell. */
static void spread(map_reading *reading, uint64_t position, uint64_t bytes, bool live, bool shade) {
  while (bytes > 0) {
    map_cell *cell = &reading->cell[position / reading->cell_bytes];
    const uint64_t here = lesser(bytes, reading->cell_bytes - position % reading->cell_bytes);
    *(live ? &cell->live : &cell->waiting) += here;
    if (live && here > cell->most) {
      cell->most = here;
      cell->shade = shade;
    }
    position += here;
    bytes -= here;
  }
}

static void add_size(map_sizes *sizes, uint64_t bytes) {
  const int bin = bytes ? 63 - __builtin_clzll(bytes) : 0;
  sizes->count[bin]++;
  sizes->bytes[bin] += bytes;
}

static exit_status read_runs(map_reading *reading, const json_t *map, map_sizes *free_sizes,
                             map_sizes *live_sizes) {
  const json_t *runs = json_object_get(map, "runs");
  uint64_t at = 0;
  bool shade = false;
  for (size_t i = 0; i < json_array_size(runs); i++) {
    const json_t *run = json_array_get(runs, i);
    const char *state = json_string_value(json_object_get(run, "state"));
    uint64_t position, bytes;
    if (!report_natural(json_object_get(run, "position"), &position) ||
        !report_natural(json_object_get(run, "bytes"), &bytes) || !state)
      return refuse(reading, "runs", i, "position, bytes and state");
    if (position != at || bytes > reading->line - at)
      return refuse(reading, "runs", i, "a stretch of the line that begins where the one before ends");
    at += bytes;
    const bool live = strcmp(state, "live") == 0;
    if (live || strcmp(state, "waiting") == 0) {
      spread(reading, position, bytes, live, shade);
      if (live) add_size(live_sizes, bytes);
      shade ^= live;
    } else {
      add_size(free_sizes, bytes);
    }
  }
  return EXIT_STATUS_DONE;
}

/* A share in steps: 0 only if there is nothing, all only if it is all. */
static uint64_t steps(uint64_t part, uint64_t whole, uint64_t all) {
  if (part == 0 || part == whole) return part == 0 ? 0 : all;
  const uint64_t step = (uint64_t)((double)part / (double)whole * (double)all + 0.5);
  return step == 0 ? 1 : lesser(step, all - 1);
}

static json_t *cells_text(const map_reading *reading) {
  char *text = malloc(reading->cells + 1);
  if (!text) return NULL;
  for (uint64_t i = 0; i < reading->cells; i++) {
    const map_cell *cell = &reading->cell[i];
    const uint64_t size = lesser(reading->cell_bytes, reading->line - i * reading->cell_bytes);
    text[i] = cell_letters[(cell->shade ? 32 : 0) + steps(cell->live, size, LIVE_FULL) * 4 +
                           steps(cell->waiting, size, WAITING_FULL)];
  }
  json_t *string = json_stringn(text, reading->cells);
  free(text);
  return string;
}

static json_t *sizes_array(const map_sizes *sizes) {
  json_t *array = json_array();
  for (int bin = 0; bin < SIZES; bin++) {
    if (sizes->count[bin] == 0) continue;
    json_array_append_new(
        array, json_pack("[IIi]", (json_int_t)sizes->bytes[bin], (json_int_t)sizes->count[bin], bin));
  }
  return array;
}

/* ---- stitched blocks over cells ---- */

static exit_status read_covers(const map_reading *reading, const json_t *map, json_t *into) {
  const json_t *covers = json_object_get(map, "covers");
  if (json_array_size(covers) == 0) return EXIT_STATUS_DONE;
  char *text = malloc(reading->cells + 1);
  if (!text) return report_no_memory();
  memset(text, cell_letters[0], reading->cells);
  unsigned char *most = calloc(reading->cells + 1, 1);
  uint64_t at = 0;
  exit_status status = most ? EXIT_STATUS_DONE : report_no_memory();
  for (size_t i = 0; status == EXIT_STATUS_DONE && i < json_array_size(covers); i++) {
    const json_t *cover = json_array_get(covers, i);
    uint64_t position, bytes, count;
    if (!report_natural(json_object_get(cover, "position"), &position) ||
        !report_natural(json_object_get(cover, "bytes"), &bytes) ||
        !report_natural(json_object_get(cover, "count"), &count) || position < at ||
        position > reading->line || bytes > reading->line - position) {
      status = refuse(reading, "covers", i, "a stretch of the line behind the one before, and a count");
      break;
    }
    at = position + bytes;
    count = lesser(count, COVERED_MOST);
    for (uint64_t k = position / reading->cell_bytes; bytes > 0 && k <= (at - 1) / reading->cell_bytes; k++) {
      if (count > most[k]) most[k] = (unsigned char)count;
    }
  }
  for (uint64_t k = 0; status == EXIT_STATUS_DONE && k < reading->cells; k++) text[k] = cell_letters[most[k]];
  if (status == EXIT_STATUS_DONE) json_object_set_new(into, "covers", json_stringn(text, reading->cells));
  free(most);
  free(text);
  return status;
}

/* ---- regions ---- */

typedef struct map_region {
  const json_t *object;
  uint64_t held;
  size_t index;
} map_region;

static int larger_first(const void *left, const void *right) {
  const map_region *one = left, *other = right;
  if (one->held != other->held) return one->held < other->held ? 1 : -1;
  return one->index < other->index ? -1 : 1;
}

static const report_key region_keys[] = {
    {"kind", REPORT_TEXT},
    {"address_bytes", REPORT_NUMBER},
    {"held_bytes", REPORT_NUMBER},
    {"live_bytes", REPORT_NUMBER},
    {"waiting_bytes", REPORT_NUMBER},
    {"free_bytes", REPORT_NUMBER},
    {"free_runs", REPORT_NUMBER},
    {"largest_free_bytes", REPORT_NUMBER},
    {"mapped_again_bytes", REPORT_NUMBER},
    {"chunks", REPORT_NUMBER},
    {NULL, REPORT_TEXT},
};

/* The largest regions, and in which cells one begins. */
static exit_status keep_regions(const map_reading *reading, map_region *regions, size_t count, json_t *into) {
  json_t *starts = json_array(), *kept = json_array();
  json_object_set_new(into, "starts", starts);
  json_object_set_new(into, "regions", kept);
  json_object_set_new(into, "region_count", json_integer((json_int_t)count));
  uint64_t at = 0, last = UINT64_MAX;
  for (size_t i = 0; i < count && at < reading->line; i++) {
    const uint64_t cell = at / reading->cell_bytes;
    if (regions[i].held > 0 && cell != last) json_array_append_new(starts, json_integer((json_int_t)cell));
    last = cell;
    at = regions[i].held > reading->line - at ? reading->line : at + regions[i].held;
  }
  qsort(regions, count, sizeof *regions, larger_first);
  for (size_t i = 0; i < count && i < REGIONS_KEPT; i++) {
    json_t *region = json_object();
    if (json_array_append_new(kept, region) != 0) return report_no_memory();
    char address[32];
    uint64_t number;
    if (!report_natural(json_object_get(regions[i].object, "address"), &number))
      return refuse(reading, "regions", regions[i].index, "an address");
    snprintf(address, sizeof address, "0x%" PRIx64, number);
    json_object_set_new(region, "address", json_string(address));
    exit_status status = report_pick(reading->place, reading->where, regions[i].object, region_keys, region);
    if (status != EXIT_STATUS_DONE) return status;
  }
  return EXIT_STATUS_DONE;
}

static exit_status read_regions(const map_reading *reading, const json_t *map, json_t *into) {
  const json_t *array = json_object_get(map, "regions");
  const size_t count = json_array_size(array);
  map_region *regions = calloc(count ? count : 1, sizeof *regions);
  if (!regions) return report_no_memory();
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; status == EXIT_STATUS_DONE && i < count; i++) {
    regions[i] = (map_region){.object = json_array_get(array, i), .index = i};
    if (!report_natural(json_object_get(regions[i].object, "held_bytes"), &regions[i].held))
      status = refuse(reading, "regions", i, "held_bytes");
  }
  if (status == EXIT_STATUS_DONE) status = keep_regions(reading, regions, count, into);
  free(regions);
  return status;
}

/* ---- blocks ---- */

/* kind: [blocks, given out, bytes, bytes in use]. */
static exit_status read_blocks(const map_reading *reading, const json_t *map, const char *array,
                               json_t *kinds) {
  const json_t *blocks = json_object_get(map, array);
  for (size_t i = 0; i < json_array_size(blocks); i++) {
    const json_t *block = json_array_get(blocks, i);
    const char *kind = json_string_value(json_object_get(block, "kind"));
    uint64_t bytes, used;
    if (!kind || !report_natural(json_object_get(block, "bytes"), &bytes) ||
        !report_natural(json_object_get(block, "used_bytes"), &used))
      return refuse(reading, array, i, "kind, bytes and used_bytes");
    json_t *sums = json_object_get(kinds, kind);
    if (!sums) {
      sums = json_pack("[iiii]", 0, 0, 0, 0);
      if (json_object_set_new(kinds, kind, sums) != 0) return report_no_memory();
    }
    const json_int_t more[] = {1, json_is_true(json_object_get(block, "given_out")), (json_int_t)bytes,
                               (json_int_t)used};
    for (size_t k = 0; k < 4; k++) {
      json_t *sum = json_array_get(sums, k);
      json_int_t total;
      if (__builtin_add_overflow(json_integer_value(sum), more[k], &total)) total = INT64_MAX;
      json_integer_set(sum, total);
    }
  }
  return EXIT_STATUS_DONE;
}

/* ---- all of a map ---- */

static exit_status read_parts(map_reading *reading, const json_t *map, json_t *into) {
  map_sizes free_sizes = {0}, live_sizes = {0};
  json_t *kinds = json_object();
  json_object_set_new(into, "blocks", kinds);
  exit_status status = read_runs(reading, map, &free_sizes, &live_sizes);
  if (status == EXIT_STATUS_DONE) status = read_covers(reading, map, into);
  if (status == EXIT_STATUS_DONE) status = read_regions(reading, map, into);
  if (status == EXIT_STATUS_DONE) status = read_blocks(reading, map, "blocks", kinds);
  if (status == EXIT_STATUS_DONE) status = read_blocks(reading, map, "stitched", kinds);
  if (status != EXIT_STATUS_DONE) return status;
  json_object_set_new(into, "cell_bytes", json_integer((json_int_t)reading->cell_bytes));
  json_object_set_new(into, "free_sizes", sizes_array(&free_sizes));
  json_object_set_new(into, "live_sizes", sizes_array(&live_sizes));
  return json_object_set_new(into, "cells", cells_text(reading)) == 0 ? EXIT_STATUS_DONE : report_no_memory();
}

exit_status report_read_map(const report_place *place, size_t index, const json_t *object) {
  static const report_key keys[] = {{"trace", REPORT_TEXT},   {"policy", REPORT_TEXT}, {"spec", REPORT_TEXT},
                                    {"dump_at", REPORT_TEXT}, {"no_map", REPORT_TEXT}, {NULL, REPORT_TEXT}};
  char where[64];
  snprintf(where, sizeof where, "[%zu].", index);
  json_t *into = json_object();
  const json_t *map = json_object_get(object, "map");
  if (json_object_set_new(into, "source", json_integer((json_int_t)place->source)) != 0 ||
      json_array_append_new(place->page->maps, into) != 0)
    return report_no_memory();
  exit_status status = report_pick(place, where, object, keys, into);
  if (status != EXIT_STATUS_DONE || !map || json_is_null(map)) return status;
  snprintf(where, sizeof where, "[%zu].map.", index);
  map_reading reading = {.place = place, .where = where};
  status = measure_line(&reading, map);
  if (status == EXIT_STATUS_DONE) status = report_pick(place, where, map, map_keys, into);
  if (status == EXIT_STATUS_DONE) status = read_parts(&reading, map, into);
  free(reading.cell);
  return status;
}
