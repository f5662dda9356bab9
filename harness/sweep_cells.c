/* The cells of a grid: the product of a block's settings, and their keys. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/device.h"
#include "harness/program.h"
#include "harness/replay_output.h"
#include "harness/sweep_grid_internal.h"
#include "harness/units.h"

enum { CELLS_LIMIT = 1000000 };

/* ---- products ---- */

static exit_status no_memory(void) {
  program_complain("no memory for the grid");
  return EXIT_STATUS_CHECK_FAILED;
}

/* Can the device be limited so? */
static exit_status check_limit(const sweep_grid *grid, const sweep_block *block, const device_model *model,
                               const sweep_value *value) {
  uint64_t limit = value->fraction > 0 ? (uint64_t)(value->fraction * (double)model->total) : value->number;
  if (limit >= model->granularity) return EXIT_STATUS_DONE;
  char granularity[UNITS_TEXT];
  units_bytes(model->granularity, granularity);
  program_complain("%s:%u: a limit of %" PRIu64 " bytes is less than the %s in which the device gives memory",
                   grid->name, block->line, limit, granularity);
  return EXIT_STATUS_USAGE;
}

/* Is there such a device, and can it have this capacity and each of the limits? */
static exit_status check_device(const sweep_grid *grid, const sweep_block *block, const char *profile,
                                uint64_t capacity) {
  const sweep_axis *limits = &block->axes[SWEEP_LIMITS];
  device_model model;
  char message[1024];
  const device_choice choice = {.driver = "sim", .profile = profile, .capacity = capacity};
  exit_status status = device_model_load(&choice, &model, message, sizeof message);
  if (status != EXIT_STATUS_DONE) {
    program_complain("%s:%u: %s", grid->name, block->line, message);
    return status;
  }
  for (size_t i = 0; i < limits->count && status == EXIT_STATUS_DONE; i++)
    status = check_limit(grid, block, &model, &limits->items[i]);
  device_model_unload(&model);
  return status;
}

static sweep_cell make_cell(const sweep_block *block, const size_t *at) {
#define VALUE(name) (&block->axes[name].items[at[name]])
  return (sweep_cell){.source = VALUE(SWEEP_SOURCES)->source,
                      .policy = VALUE(SWEEP_POLICIES)->text,
                      .device = VALUE(SWEEP_DEVICES)->text,
                      .capacity = VALUE(SWEEP_CAPACITIES)->number,
                      .limit = VALUE(SWEEP_LIMITS)->number,
                      .limit_fraction = VALUE(SWEEP_LIMITS)->fraction,
                      .laps = VALUE(SWEEP_LAPS)->number,
                      .event_delay = VALUE(SWEEP_EVENT_DELAYS)->number,
                      .timeline_points = VALUE(SWEEP_TIMELINES)->number,
                      .frees_requested = VALUE(SWEEP_FREES)->number == 1,
                      .seed_from_segments = VALUE(SWEEP_SEEDS)->number == 1,
                      .check = VALUE(SWEEP_CHECKS)->number == 1};
#undef VALUE
}

/* Every device is tried with every capacity and limit. */
static exit_status check_devices(const sweep_grid *grid, const sweep_block *block) {
  const sweep_axis *devices = &block->axes[SWEEP_DEVICES], *capacities = &block->axes[SWEEP_CAPACITIES];
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < devices->count; i++)
    for (size_t k = 0; k < capacities->count && status == EXIT_STATUS_DONE; k++)
      status = check_device(grid, block, devices->items[i].text, capacities->items[k].number);
  return status;
}

exit_status sweep_grid_add_block(sweep_grid *grid, const sweep_block *block) {
  size_t product = 1;
  for (size_t i = 0; i < SWEEP_AXES; i++) {
    if (__builtin_mul_overflow(product, block->axes[i].count, &product) ||
        product > CELLS_LIMIT - grid->count) {
      program_complain("%s:%u: the grid has more than %d cells", grid->name, block->line, CELLS_LIMIT);
      return EXIT_STATUS_USAGE;
    }
  }
  exit_status status = check_devices(grid, block);
  if (status != EXIT_STATUS_DONE) return status;
  sweep_cell *cells = realloc(grid->cells, (grid->count + product) * sizeof *cells);
  if (!cells) return no_memory();
  grid->cells = cells;
  size_t at[SWEEP_AXES] = {0};
  for (size_t i = 0; i < product; i++) {
    grid->cells[grid->count++] = make_cell(block, at);
    for (size_t axis = SWEEP_AXES; axis-- > 0;) {
      if (++at[axis] < block->axes[axis].count) break;
      at[axis] = 0;
    }
  }
  return EXIT_STATUS_DONE;
}

/* ---- keys ---- */

/* FNV-1a, 64 bits. */
static const uint64_t hash_begin = UINT64_C(0xcbf29ce484222325);

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size) {
  const unsigned char *byte = bytes;
  for (size_t i = 0; i < size; i++) hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
  return hash;
}

static exit_status hash_file(const char *path, uint64_t *hash) {
  enum { BLOCK = 1 << 16 };
  static unsigned char block[BLOCK];
  FILE *stream = fopen(path, "r");
  *hash = hash_begin;
  bool whole = stream;
  for (size_t got = 1; whole && got > 0;) {
    got = fread(block, 1, BLOCK, stream);
    *hash = hash_bytes(*hash, block, got);
    whole = !ferror(stream);
  }
  if (!whole) program_complain("%s cannot be read: %s", path, strerror(errno));
  if (stream) fclose(stream);
  return whole ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

/* Of the files that a description names, such as --config=FILE: they may change. */
static exit_status hash_named_files(const char *text, uint64_t *hash) {
  sweep_words words = {0};
  char message[128];
  exit_status status =
      sweep_words_split(&words, text, message, sizeof message) ? EXIT_STATUS_DONE : no_memory();
  *hash = hash_begin;
  for (size_t i = 0; i < words.count && status == EXIT_STATUS_DONE; i++) {
    const char *equals = strrchr(words.items[i], '='), *path = equals ? equals + 1 : words.items[i];
    struct stat about;
    uint64_t content;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) continue;
    status = hash_file(path, &content);
    *hash = hash_bytes(*hash, &content, sizeof content);
  }
  sweep_words_free(&words);
  return status;
}

static bool is_built_in(const char *profile) {
  for (const char *const *name = vmm_profile_names(); *name; name++) {
    if (strcmp(*name, profile) == 0) return true;
  }
  return false;
}

/* What the cells of one device share: what its file holds, where it is one. */
typedef struct profile_hash {
  const char *profile;
  uint64_t hash;
} profile_hash;

static exit_status hash_profile(const char *profile, profile_hash *last) {
  if (last->profile && strcmp(last->profile, profile) == 0) return EXIT_STATUS_DONE;
  last->profile = profile;
  last->hash = 0;
  return is_built_in(profile) ? EXIT_STATUS_DONE : hash_file(profile, &last->hash);
}

static void make_key(sweep_cell *cell, uint64_t program, uint64_t profile) {
  char text[1024];
  const sweep_source *source = cell->source;
  /* A trace may lie in another folder than before. */
  const char *name = source->generated ? source->text : replay_trace_name(source->text);
  const char *profile_name = profile ? "" : cell->device;
  int length =
      snprintf(text, sizeof text,
               "%016" PRIx64 "|%016" PRIx64 "|%d|%s|%016" PRIx64 "|%" PRIu64 "|%" PRIu64 "|%a|%" PRIu64
               "|%" PRIu64 "|%" PRIu64 "|%d|%d|%d|%s",
               program, source->fingerprint, source->generated, profile_name, profile, cell->capacity,
               cell->limit, cell->limit_fraction, cell->laps, cell->event_delay, cell->timeline_points,
               cell->frees_requested, cell->seed_from_segments, cell->check, cell->policy);
  uint64_t hash = hash_bytes(hash_begin, text, (size_t)length + 1);
  snprintf(cell->key, sizeof cell->key, "%016" PRIx64, hash_bytes(hash, name, strlen(name)));
}

static int compare_keys(const void *left, const void *right, void *context) {
  const sweep_cell *cells = context;
  size_t first = *(const size_t *)left, second = *(const size_t *)right;
  int order = strcmp(cells[first].key, cells[second].key);
  return order ? order : (first > second) - (first < second);
}

static exit_status sort_keys(sweep_grid *grid) {
  free(grid->by_key);
  grid->by_key = malloc((grid->count + 1) * sizeof *grid->by_key);
  if (!grid->by_key) return no_memory();
  for (size_t i = 0; i < grid->count; i++) grid->by_key[i] = i;
  qsort_r(grid->by_key, grid->count, sizeof *grid->by_key, compare_keys, grid->cells);
  return EXIT_STATUS_DONE;
}

/* Of several cells with one key the first stays. */
static exit_status leave_out_repeated(sweep_grid *grid) {
  exit_status status = sort_keys(grid);
  if (status != EXIT_STATUS_DONE) return status;
  for (size_t i = grid->count; i-- > 1;) {
    sweep_cell *cell = &grid->cells[grid->by_key[i]];
    if (strcmp(cell->key, grid->cells[grid->by_key[i - 1]].key) == 0) cell->source = NULL;
  }
  size_t kept = 0;
  for (size_t i = 0; i < grid->count; i++) {
    if (grid->cells[i].source) grid->cells[kept++] = grid->cells[i];
  }
  if (kept == grid->count) return EXIT_STATUS_DONE;
  grid->count = kept;
  return sort_keys(grid);
}

exit_status sweep_grid_make_keys(sweep_grid *grid) {
  uint64_t program;
  exit_status status = hash_file("/proc/self/exe", &program);
  for (size_t i = 0; i < grid->source_count && status == EXIT_STATUS_DONE; i++) {
    sweep_source *source = grid->sources[i];
    status = source->generated ? hash_named_files(source->text, &source->fingerprint)
                               : hash_file(source->text, &source->fingerprint);
  }
  profile_hash profile = {0};
  for (size_t i = 0; i < grid->count && status == EXIT_STATUS_DONE; i++) {
    status = hash_profile(grid->cells[i].device, &profile);
    make_key(&grid->cells[i], program, profile.hash);
  }
  return status == EXIT_STATUS_DONE ? leave_out_repeated(grid) : status;
}

size_t sweep_grid_find(const sweep_grid *grid, const char *key) {
  size_t low = 0, high = grid->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(grid->cells[grid->by_key[middle]].key, key);
    if (order == 0) return grid->by_key[middle];
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return SIZE_MAX;
}

/* Appends " WORD" for a setting that is not as by default. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t text_size, const char *format,
                                                         ...) {
  size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, text_size - used, format, arguments);
  va_end(arguments);
}

void sweep_cell_text(const sweep_cell *cell, char *text, size_t text_size) {
  const sweep_source *source = cell->source;
  char size[UNITS_TEXT];
  snprintf(text, text_size, "%s  %s  %s", source->generated ? source->text : replay_trace_name(source->text),
           cell->policy, cell->device);
  if (cell->capacity) {
    units_bytes(cell->capacity, size);
    append(text, text_size, " %s", size);
  }
  if (cell->limit_fraction > 0) {
    append(text, text_size, " limit=%g", cell->limit_fraction);
  } else if (cell->limit != UINT64_MAX) {
    units_bytes(cell->limit, size);
    append(text, text_size, " limit=%s", size);
  }
  if (cell->laps > 1) append(text, text_size, " laps=%" PRIu64, cell->laps);
  if (cell->frees_requested) append(text, text_size, " frees=requested");
  if (cell->seed_from_segments) append(text, text_size, " seed-from-segments");
  if (cell->event_delay) append(text, text_size, " event-delay=%" PRIu64, cell->event_delay);
  if (cell->check) append(text, text_size, " check");
}
