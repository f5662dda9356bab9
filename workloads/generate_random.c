#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/eager.h"
#include "workloads/failure.h"
#include "workloads/generate.h"
#include "workloads/generate_sequence.h"

#define LARGEST (UINT64_C(1) << 40)

typedef struct held {
  uint32_t storage;
  uint64_t bytes; /* rounded */
} held;

/* Live allocations in the order in which they were made; the first ones may have gone. */
typedef struct held_list {
  held *items;
  size_t begin, end, capacity;
} held_list;

void generate_random_defaults(generate_random_options *options) {
  *options = (generate_random_options){.distribution = GENERATE_LOGUNIFORM,
                                       .low = 1,
                                       .high = UINT64_C(1) << 30,
                                       .allocations = 10000,
                                       .live_bytes = UINT64_C(40) << 30,
                                       .streams = 1,
                                       .seed = 1};
}

const char *const *generate_distribution_names(void) {
  static const char *const names[] = {[GENERATE_UNIFORM] = "uniform",
                                      [GENERATE_LOGUNIFORM] = "loguniform",
                                      [GENERATE_POWERS] = "powers",
                                      NULL};
  return names;
}

const char *const *generate_victim_names(void) {
  static const char *const names[] = {
      [GENERATE_ANY] = "any", [GENERATE_OLDEST] = "oldest", [GENERATE_NEWEST] = "newest", NULL};
  return names;
}

static uint64_t rounded(uint64_t bytes) { return (bytes + 511) & ~UINT64_C(511); }

static unsigned floor_log2(uint64_t value) { return 63 - (unsigned)__builtin_clzll(value); }

static trace_status check(const generate_random_options *options, trace_error *error) {
  const char *problem = NULL;
  if (options->low < 1 || options->low > options->high || options->high > LARGEST)
    problem = "sizes are expected to go from 1 byte to 2^40, the lowest first";
  else if (options->live_bytes < rounded(options->high) || options->live_bytes > INT64_MAX / 2)
    problem = "what may live is less than the largest request, or more than 2^62 bytes";
  else if (options->streams < 1 || options->streams > 64)
    problem = "1 to 64 streams are expected";
  else if (options->allocations < 1)
    problem = "at least one allocation is expected";
  else if (options->distribution == GENERATE_POWERS &&
           (UINT64_C(1) << floor_log2(options->high)) < options->low)
    problem = "there is no power of two between the sizes";
  return problem ? trace_fail(error, TRACE_MALFORMED, "trace generate", "%s", problem) : TRACE_OK;
}

static uint64_t draw_size(const generate_random_options *options, trace_random *random) {
  switch (options->distribution) {
    case GENERATE_UNIFORM:
      return options->low + trace_random_below(random, options->high - options->low + 1);
    case GENERATE_POWERS: {
      unsigned least = options->low > 1 ? floor_log2(options->low - 1) + 1 : 0;
      return UINT64_C(1) << (least + trace_random_below(random, floor_log2(options->high) - least + 1));
    }
    default: {
      double low = log2((double)options->low), high = log2((double)options->high + 1);
      uint64_t size = (uint64_t)exp2(low + (high - low) * trace_random_unit(random));
      return size < options->low ? options->low : size > options->high ? options->high : size;
    }
  }
}

static void free_one(eager *machine, held_list *list, const generate_random_options *options,
                     trace_random *random, uint64_t *live) {
  size_t victim = list->begin;
  if (options->victim == GENERATE_NEWEST) victim = list->end - 1;
  if (options->victim == GENERATE_ANY) victim += trace_random_below(random, list->end - list->begin);
  *live -= list->items[victim].bytes;
  eager_release(machine, list->items[victim].storage);
  if (options->victim == GENERATE_OLDEST)
    list->begin++;
  else
    list->items[victim] = list->items[--list->end];
}

static bool append(held_list *list, held item) {
  if (list->end == list->capacity && list->begin > list->capacity / 2) {
    memmove(list->items, list->items + list->begin, (list->end - list->begin) * sizeof *list->items);
    list->end -= list->begin;
    list->begin = 0;
  }
  if (list->end == list->capacity) {
    size_t capacity = list->capacity ? list->capacity * 2 : 1024;
    held *grown = reallocarray(list->items, capacity, sizeof *grown);
    if (!grown) return false;
    list->items = grown;
    list->capacity = capacity;
  }
  list->items[list->end++] = item;
  return true;
}

trace_status generate_random(const generate_random_options *options, generate_sink sink, trace_error *error) {
  trace_status status = check(options, error);
  if (status != TRACE_OK) return status;
  eager *machine = eager_create(sink, 1);
  if (!machine) return trace_fail_memory(error, "trace generate");
  trace_random random = trace_random_begin(options->seed);
  held_list list = {0};
  uint64_t live = 0;
  for (uint64_t i = 0; i < options->allocations && !eager_failed(machine); i++) {
    uint64_t size = draw_size(options, &random), bytes = rounded(size);
    while (live + bytes > options->live_bytes && !eager_failed(machine))
      free_one(machine, &list, options, &random, &live);
    uint32_t stream = (uint32_t)trace_random_below(&random, options->streams);
    uint32_t storage = eager_allocate_on(machine, size, stream);
    live += bytes;
    if (append(&list, (held){storage, bytes})) continue;
    status = trace_fail_memory(error, "trace generate");
    break;
  }
  while (status == TRACE_OK && list.begin < list.end && !eager_failed(machine))
    free_one(machine, &list, options, &random, &live);
  if (status == TRACE_OK) status = eager_status(machine, error);
  free(list.items);
  eager_destroy(machine);
  return status;
}
