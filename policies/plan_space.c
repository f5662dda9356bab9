#include "policies/plan_space.h"

#include <stdlib.h>
#include <string.h>

typedef struct run {
  uint64_t begin, end;
} run;

/* Disjoint runs in ascending order; runs that touch are one. */
typedef struct runs {
  run *items;
  uint32_t count, capacity;
} runs;

typedef struct node {
  runs throughout; /* taken during all of the node's time */
  runs sometime;   /* taken at any time of it */
} node;

enum { GATHERED_LIMIT = 128 };

struct plan_space {
  node *nodes; /* a binary heap: the children of i are 2i and 2i + 1 */
  uint32_t leaves;
  uint64_t steps;
  const runs *gathered[GATHERED_LIMIT]; /* all that stands in the way of one block */
  uint32_t gathered_count;
};

plan_space *plan_space_create(uint32_t sections) {
  plan_space *space = calloc(1, sizeof *space);
  if (!space) return NULL;
  space->leaves = 1;
  while (space->leaves < sections) space->leaves *= 2;
  space->nodes = calloc(2 * (size_t)space->leaves, sizeof *space->nodes);
  if (space->nodes) return space;
  free(space);
  return NULL;
}

void plan_space_destroy(plan_space *space) {
  if (!space) return;
  for (size_t i = 0; i < 2 * (size_t)space->leaves; i++) {
    free(space->nodes[i].throughout.items);
    free(space->nodes[i].sometime.items);
  }
  free(space->nodes);
  free(space);
}

void plan_space_clear(plan_space *space) {
  for (size_t i = 0; i < 2 * (size_t)space->leaves; i++)
    space->nodes[i].throughout.count = space->nodes[i].sometime.count = 0;
}

uint64_t plan_space_steps(const plan_space *space) { return space->steps; }

/* The first run that ends after the address, or at it if touching counts. */
static uint32_t first_after(const runs *set, uint64_t address, bool touching) {
  uint32_t low = 0, high = set->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (set->items[middle].end > address || (touching && set->items[middle].end == address)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

static bool add_run(plan_space *space, runs *set, uint64_t begin, uint64_t end) {
  const uint32_t first = first_after(set, begin, true);
  uint32_t after = first;
  while (after < set->count && set->items[after].begin <= end) after++;
  space->steps += 8 + after - first;
  if (after > first) {
    run *merged = &set->items[first];
    if (begin < merged->begin) merged->begin = begin;
    merged->end = set->items[after - 1].end > end ? set->items[after - 1].end : end;
    if (after - first == 1) return true;
    memmove(&set->items[first + 1], &set->items[after], (set->count - after) * sizeof *set->items);
    set->count -= after - first - 1;
    return true;
  }
  if (set->count == set->capacity) {
    uint32_t capacity = set->capacity ? set->capacity * 2 : 4;
    run *items = realloc(set->items, capacity * sizeof *items);
    if (!items) return false;
    set->items = items;
    set->capacity = capacity;
  }
  memmove(&set->items[first + 1], &set->items[first], (set->count - first) * sizeof *set->items);
  set->items[first] = (run){begin, end};
  set->count++;
  return true;
}

static void gather(plan_space *space, uint32_t at, uint32_t low, uint32_t high, uint32_t begin,
                   uint32_t end) {
  const node *here = &space->nodes[at];
  const bool whole = begin <= low && high <= end;
  const runs *set = whole ? &here->sometime : &here->throughout;
  if (here->sometime.count == 0) return;
  if (set->count > 0) space->gathered[space->gathered_count++] = set;
  if (whole) return;
  uint32_t middle = low + (high - low) / 2;
  if (begin < middle) gather(space, 2 * at, low, middle, begin, end);
  if (end > middle) gather(space, 2 * at + 1, middle, high, begin, end);
}

/* The lowest address from here on at which a set leaves size bytes free. */
static uint64_t next_fit(plan_space *space, const runs *set, uint64_t address, uint64_t size) {
  uint32_t i = first_after(set, address, false);
  space->steps += 4;
  for (; i < set->count && set->items[i].begin < address + size; i++) {
    address = set->items[i].end;
    space->steps++;
  }
  return address;
}

uint64_t plan_space_lowest(plan_space *space, uint32_t begin, uint32_t end, uint64_t size) {
  space->gathered_count = 0;
  gather(space, 1, 0, space->leaves, begin, end);
  uint64_t address = 0;
  uint32_t agreed = 0; /* sets in a row that leave the address free */
  for (uint32_t i = 0; agreed < space->gathered_count; i = (i + 1) % space->gathered_count) {
    uint64_t next = next_fit(space, space->gathered[i], address, size);
    agreed = next == address ? agreed + 1 : 1;
    address = next;
  }
  return address;
}

static bool add(plan_space *space, uint32_t at, uint32_t low, uint32_t high, uint32_t begin, uint32_t end,
                const run *taken) {
  node *here = &space->nodes[at];
  if (!add_run(space, &here->sometime, taken->begin, taken->end)) return false;
  if (begin <= low && high <= end) return add_run(space, &here->throughout, taken->begin, taken->end);
  uint32_t middle = low + (high - low) / 2;
  return (begin >= middle || add(space, 2 * at, low, middle, begin, end, taken)) &&
         (end <= middle || add(space, 2 * at + 1, middle, high, begin, end, taken));
}

bool plan_space_add(plan_space *space, uint32_t begin, uint32_t end, uint64_t address, uint64_t size) {
  const run taken = {address, address + size};
  return add(space, 1, 0, space->leaves, begin, end, &taken);
}
