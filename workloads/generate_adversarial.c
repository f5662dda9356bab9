#include <stdlib.h>

#include "workloads/eager.h"
#include "workloads/failure.h"
#include "workloads/generate.h"

enum { BLOCKS = 1 << 20 };

void generate_adversarial_defaults(generate_adversarial_options *options) {
  *options = (generate_adversarial_options){
      .bytes = 4 << 20, .step_bytes = 512 << 10, .live_bytes = UINT64_C(8) << 30, .rounds = 8};
}

const char *const *generate_pattern_names(void) {
  static const char *const names[] = {[GENERATE_SAWTOOTH] = "sawtooth",
                                      [GENERATE_CHECKERBOARD] = "checkerboard",
                                      [GENERATE_STAIRCASE] = "staircase",
                                      [GENERATE_DOUBLING] = "doubling",
                                      NULL};
  return names;
}

typedef struct game {
  const generate_adversarial_options *options;
  eager *machine;
  uint32_t *blocks;
  uint64_t *sizes; /* of blocks */
  uint32_t count;
  uint64_t live;
} game;

static uint64_t rounded(uint64_t bytes) { return (bytes + 511) & ~UINT64_C(511); }

static bool take(game *played, uint64_t bytes) {
  if (played->count == BLOCKS || rounded(bytes) > played->options->live_bytes - played->live) return false;
  played->live += rounded(bytes);
  played->sizes[played->count] = bytes;
  played->blocks[played->count++] = eager_allocate(played->machine, bytes);
  return true;
}

static void release_at(game *played, uint32_t index) {
  played->live -= rounded(played->sizes[index]);
  eager_release(played->machine, played->blocks[index]);
}

static void release_all(game *played) {
  for (uint32_t i = 0; i < played->count; i++) release_at(played, i);
  played->count = 0;
}

/* Every second block goes, the first of them first; the others move together. */
static void release_every_second(game *played) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < played->count; i++) {
    if (i % 2 == 0) {
      release_at(played, i);
      continue;
    }
    played->blocks[kept] = played->blocks[i];
    played->sizes[kept++] = played->sizes[i];
  }
  played->count = kept;
}

static void sawtooth(game *played) {
  uint64_t bytes = played->options->bytes;
  for (uint32_t round = 0; round < played->options->rounds && bytes <= played->options->live_bytes; round++) {
    while (take(played, bytes)) continue;
    release_all(played);
    bytes += bytes / 2 > 0 ? bytes / 2 : 1;
  }
}

static void checkerboard(game *played) {
  uint64_t bytes = played->options->bytes;
  for (uint32_t round = 0; round < played->options->rounds; round++) {
    while (take(played, bytes)) continue;
    release_every_second(played);
    bytes += played->options->step_bytes;
    while (take(played, bytes)) continue;
    release_all(played);
  }
}

static void staircase(game *played) {
  /* Room for the last step too. */
  const generate_adversarial_options *options = played->options;
  uint64_t window = options->live_bytes / rounded(options->bytes) / 2;
  if (window < 2) window = 2;
  if (window > BLOCKS) window = BLOCKS;
  uint64_t bytes = options->bytes;
  while (played->count < window && take(played, bytes)) bytes += options->step_bytes;
  if (played->count == 0) return;
  uint32_t even = (played->count + 1) / 2;
  for (uint64_t turn = 0; turn < (uint64_t)options->rounds * played->count; turn++) {
    /* Every second one first, so that the holes do not grow together. */
    uint32_t place = (uint32_t)(turn % played->count);
    uint32_t victim = place < even ? 2 * place : 2 * (place - even) + 1;
    release_at(played, victim);
    if (rounded(bytes) > options->live_bytes - played->live) bytes = options->bytes;
    played->live += rounded(bytes);
    played->sizes[victim] = bytes;
    played->blocks[victim] = eager_allocate(played->machine, bytes);
    bytes += options->step_bytes;
  }
  release_all(played);
}

static void doubling(game *played) {
  uint64_t bytes = played->options->bytes;
  while (take(played, bytes)) continue;
  for (uint32_t round = 1; round < played->options->rounds; round++) {
    release_every_second(played);
    bytes *= 2;
    if (bytes > played->options->live_bytes) break;
    while (take(played, bytes)) continue;
  }
  release_all(played);
}

static trace_status check(const generate_adversarial_options *options, trace_error *error) {
  const char *problem = NULL;
  if (options->bytes < 1 || options->step_bytes < 1 || options->rounds < 1)
    problem = "blocks, steps and rounds are expected to be at least 1";
  else if (options->live_bytes > INT64_MAX / 4)
    problem = "at most 2^61 bytes can live";
  else if (rounded(options->bytes) > options->live_bytes / 2 || options->step_bytes > options->live_bytes)
    problem = "two blocks are expected to fit in what may live, and a step";
  else if (options->live_bytes / rounded(options->bytes) > BLOCKS)
    problem = "more than 2^20 blocks would live: larger blocks, or less live";
  return problem ? trace_fail(error, TRACE_MALFORMED, "trace generate", "%s", problem) : TRACE_OK;
}

trace_status generate_adversarial(const generate_adversarial_options *options, generate_sink sink,
                                  trace_error *error) {
  typedef void play(game *);
  static play *const patterns[] = {[GENERATE_SAWTOOTH] = sawtooth,
                                   [GENERATE_CHECKERBOARD] = checkerboard,
                                   [GENERATE_STAIRCASE] = staircase,
                                   [GENERATE_DOUBLING] = doubling};
  trace_status status = check(options, error);
  if (status != TRACE_OK) return status;
  game played = {.options = options, .machine = eager_create(sink, 1)};
  played.blocks = calloc(BLOCKS, sizeof *played.blocks);
  played.sizes = calloc(BLOCKS, sizeof *played.sizes);
  if (played.machine && played.blocks && played.sizes) {
    patterns[options->pattern](&played);
    status = eager_status(played.machine, error);
  } else {
    status = trace_fail_memory(error, "trace generate");
  }
  free(played.blocks);
  free(played.sizes);
  eager_destroy(played.machine);
  return status;
}
