#include "policies/plan_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A block that has no offset yet. */
typedef struct pending {
  uint32_t block;
  uint32_t rank;   /* by preference; no two are equal */
  uint64_t lowest; /* it rests on what is placed below it */
  uint64_t least;  /* it cannot begin lower; of the present node only */
  bool asleep;     /* not before a block is placed that it overlaps: all else has been tried */
} pending;

/* An entry of the stack and the least offset that it can still get. */
typedef struct bound {
  uint64_t offset;
  size_t entry;
} bound;

/* Which blocks are decided next. */
typedef enum region {
  REGION_LOWEST,    /* where a block can end lowest */
  REGION_NARROWEST, /* where the fewest can come next */
  REGION_PREFERRED, /* where the most preferred block can come next */
  REGIONS
} region;

typedef struct search {
  plan *made;
  uint64_t limit;
  uint64_t steps, until; /* of this attempt */
  uint64_t random;
  region region;
  double slope;              /* bytes that one rank is worth, when candidates are compared */
  double *failures;          /* of each block: how often a branch ended because of it, over all attempts */
  uint64_t *totals, *joined; /* of each section: bytes pending; does it go on in the next. Of one node only */
  bound *bounds;             /* of the entries of one node */
  uint64_t *offsets;
  pending *stack; /* the lists of all nodes down to the present one */
  size_t stack_size, stack_capacity;
  bool failed; /* the host has no memory */
} search;

/* Room for count more entries; moves the stack. */
static bool push(search *self, size_t count) {
  if (self->stack_size + count > self->stack_capacity) {
    size_t capacity = (self->stack_size + count) * 2;
    pending *stack = realloc(self->stack, capacity * sizeof *stack);
    if (!stack) {
      self->failed = true;
      return false;
    }
    self->stack = stack;
    self->stack_capacity = capacity;
  }
  self->stack_size += count;
  return true;
}

static const plan_block *block_of(const search *self, const pending *one) {
  return &self->made->blocks[one->block];
}

/* Low ones first, and preferred ones: a rank weighs as much as so many bytes. */
static bool comes_before(const search *self, const pending *left, const pending *right) {
  const double worth_left = (double)left->lowest + self->slope * left->rank,
               worth_right = (double)right->lowest + self->slope * right->rank;
  return worth_left != worth_right ? worth_left < worth_right : left->rank < right->rank;
}

static bool overlap(const plan_block *left, const plan_block *right) {
  return left->begin < right->end && right->begin < left->end;
}

/* The least offset that a block can still get. One that sleeps has to rest on another pending block. */
static uint64_t least_offset(search *self, size_t first, size_t count, const pending *one) {
  if (!one->asleep) return one->lowest;
  const plan_block *block = block_of(self, one);
  uint64_t least = UINT64_MAX;
  for (size_t i = first; i < first + count; i++) {
    const pending *other = &self->stack[i];
    const plan_block *below = block_of(self, other);
    if (other != one && overlap(below, block) && other->lowest + below->size < least)
      least = other->lowest + below->size;
  }
  self->steps += count;
  return least;
}

/* Sections that the list spans. */
static void span(const search *self, size_t first, size_t count, uint32_t *begin, uint32_t *end) {
  *begin = UINT32_MAX;
  *end = 0;
  for (size_t i = first; i < first + count; i++) {
    const plan_block *block = block_of(self, &self->stack[i]);
    if (block->begin < *begin) *begin = block->begin;
    if (block->end > *end) *end = block->end;
  }
}

static int compare_bounds(const void *left, const void *right) {
  const bound *a = left, *b = right;
  if (a->offset != b->offset) return a->offset > b->offset ? -1 : 1;
  return a->entry < b->entry ? -1 : a->entry > b->entry;
}

/* What is pending in a section no longer fits: all that lies as high as the last of these bounds, at least.
 */
static void note_failure(search *self, uint32_t section, size_t bounds) {
  for (size_t i = 0; i <= bounds; i++) {
    const pending *one = &self->stack[self->bounds[i].entry];
    const plan_block *block = block_of(self, one);
    if (block->begin <= section && section < block->end) self->failures[one->block] += 1.0 / 8;
  }
}

/* Is there room for all? In a section whatever cannot begin below an offset has to fit above it. Leaves in
 * totals how much is pending in each section, and with each entry its least offset. */
static bool has_room(search *self, size_t first, size_t count, uint32_t begin, uint32_t end) {
  for (size_t i = 0; i < count; i++) {
    pending *one = &self->stack[first + i];
    one->least = least_offset(self, first, count, one);
    if (one->least > self->limit - block_of(self, one)->size) {
      self->failures[one->block] += 1;
      return false;
    }
    self->bounds[i] = (bound){one->least, first + i};
  }
  qsort(self->bounds, count, sizeof *self->bounds, compare_bounds);
  for (uint32_t s = begin; s < end; s++) self->totals[s] = 0;
  self->steps += end - begin + 4 * count;
  for (size_t i = 0; i < count; i++) {
    const plan_block *block = block_of(self, &self->stack[self->bounds[i].entry]);
    const uint64_t room = self->limit - self->bounds[i].offset;
    self->steps += 2 + block->end - block->begin;
    for (uint32_t s = block->begin; s < block->end; s++) {
      self->totals[s] += block->size;
      if (self->totals[s] <= room) continue;
      note_failure(self, s, i);
      return false;
    }
  }
  return true;
}

static bool solve(search *self, size_t first, size_t count);

/* Solves the stretches of time that share no pending block one after the other. Returns how many there are;
 * if it is only one does nothing. */
static uint32_t solve_parts(search *self, size_t first, size_t count, uint32_t begin, uint32_t end,
                            bool *solved) {
  /* Number the stretches in totals: a section in which no block begins or lives on from the one before. */
  uint32_t parts = 0;
  for (uint32_t s = begin; s < end; s++) self->joined[s] = 0; /* of each section: lives on into the next */
  for (size_t i = first; i < first + count; i++) {
    const plan_block *block = block_of(self, &self->stack[i]);
    for (uint32_t s = block->begin; s + 1 < block->end; s++) self->joined[s] = 1;
  }
  for (uint32_t s = begin; s < end; s++) {
    if (self->totals[s] > 0 && (s == begin || self->joined[s - 1] == 0)) parts++;
    self->totals[s] = parts;
  }
  if (parts < 2) return parts;
  const size_t bottom = self->stack_size;
  uint32_t *part_of = malloc(count * sizeof *part_of);
  if (!part_of) {
    self->failed = true;
    *solved = false;
    return parts;
  }
  for (size_t i = 0; i < count; i++)
    part_of[i] = (uint32_t)self->totals[block_of(self, &self->stack[first + i])->begin];
  *solved = true;
  for (uint32_t part = 1; *solved && part <= parts; part++) {
    size_t size = 0;
    if (!push(self, count)) {
      *solved = false;
      break;
    }
    for (size_t i = 0; i < count; i++) {
      if (part_of[i] == part) self->stack[bottom + size++] = self->stack[first + i];
    }
    self->stack_size = bottom + size;
    *solved = solve(self, bottom, size);
    self->stack_size = bottom;
  }
  free(part_of);
  return parts;
}

/* Puts a block on its place and solves what remains. */
static bool place_and_solve(search *self, size_t first, size_t count, size_t chosen) {
  const pending placing = self->stack[chosen];
  const plan_block *placed = block_of(self, &placing);
  const uint64_t top = placing.lowest + placed->size;
  const size_t child = self->stack_size;
  if (!push(self, count - 1)) return false;
  size_t size = 0;
  for (size_t i = first; i < first + count; i++) {
    if (i == chosen) continue;
    pending one = self->stack[i];
    if (overlap(block_of(self, &one), placed)) {
      one.asleep = false;
      if (one.lowest < top) one.lowest = top;
    }
    self->stack[child + size++] = one;
  }
  self->steps += count;
  self->offsets[placing.block] = placing.lowest;
  const bool solved = solve(self, child, size);
  self->stack_size = child;
  return solved;
}

/* Blocks of which one has to be placed next: those that could begin below a roof and are joined in time. */
typedef struct choice {
  uint64_t roof;
  uint32_t begin, end;
  uint32_t awake;
} choice;

static bool is_among(const search *self, const choice *of, const pending *one) {
  const plan_block *block = block_of(self, one);
  return one->least < of->roof && block->begin < of->end && of->begin < block->end;
}

/* The choice that a block gives. If none of these came next, all that is placed from now on and overlaps one
 * of them would lie above the roof, and the block could be pushed down to where it ends there. */
static choice choice_of(search *self, size_t first, size_t count, const pending *one) {
  const plan_block *block = block_of(self, one);
  choice made = {one->least + block->size, block->begin, block->end, 0};
  for (bool grown = true; grown;) {
    grown = false;
    made.awake = 0;
    for (size_t i = first; i < first + count; i++) {
      if (!is_among(self, &made, &self->stack[i])) continue;
      const plan_block *other = block_of(self, &self->stack[i]);
      made.awake += !self->stack[i].asleep;
      if (other->begin < made.begin) made.begin = other->begin, grown = true;
      if (other->end > made.end) made.end = other->end, grown = true;
    }
    self->steps += count;
  }
  return made;
}

static uint64_t least_end(const search *self, const pending *one) {
  return one->least + block_of(self, one)->size;
}

/* Where a block can end lowest. */
static choice choose_lowest(search *self, size_t first, size_t count) {
  const pending *lowest = &self->stack[first];
  for (size_t i = first + 1; i < first + count; i++) {
    if (least_end(self, &self->stack[i]) < least_end(self, lowest)) lowest = &self->stack[i];
  }
  return choice_of(self, first, count, lowest);
}

static choice choose_narrowest(search *self, size_t first, size_t count) {
  choice narrowest = {.awake = UINT32_MAX};
  for (size_t i = first; i < first + count && narrowest.awake > 1; i++) {
    const choice made = choice_of(self, first, count, &self->stack[i]);
    if (made.awake < narrowest.awake) narrowest = made;
  }
  return narrowest;
}

/* Of the blocks below which no other one could lie wholly, the most preferred decides. */
static choice choose_preferred(search *self, size_t first, size_t count) {
  const pending *best = NULL, *deciding = &self->stack[first];
  for (size_t i = first; i < first + count; i++) {
    const pending *one = &self->stack[i], *below = one;
    if (one->asleep || (best && !comes_before(self, one, best))) continue;
    for (size_t k = first; k < first + count && one->lowest < least_end(self, below); k++) {
      const pending *other = &self->stack[k];
      if (least_end(self, other) < least_end(self, below) &&
          overlap(block_of(self, other), block_of(self, one)))
        below = other;
    }
    self->steps += count;
    if (one->lowest >= least_end(self, below)) continue;
    best = one;
    deciding = below;
  }
  return choice_of(self, first, count, deciding);
}

static choice choose(search *self, size_t first, size_t count) {
  if (self->region == REGION_LOWEST) return choose_lowest(self, first, count);
  return self->region == REGION_NARROWEST ? choose_narrowest(self, first, count)
                                          : choose_preferred(self, first, count);
}

/* Finds offsets for count blocks of the stack. false: there are none, or it has taken too long. */
static bool solve(search *self, size_t first, size_t count) {
  if (count == 0) return true;
  uint32_t begin, end;
  self->made->nodes++;
  span(self, first, count, &begin, &end);
  if (self->steps > self->until || !has_room(self, first, count, begin, end)) return false;
  bool solved = false;
  if (solve_parts(self, first, count, begin, end, &solved) > 1) return solved;
  const choice open = choose(self, first, count);
  while (true) {
    size_t best = SIZE_MAX;
    for (size_t i = first; i < first + count; i++) {
      const pending *one = &self->stack[i];
      if (one->asleep || !is_among(self, &open, one)) continue;
      if (best == SIZE_MAX || comes_before(self, one, &self->stack[best])) best = i;
    }
    self->steps += count;
    if (best == SIZE_MAX) return false;
    if (place_and_solve(self, first, count, best)) return true;
    if (self->failed || self->steps > self->until) return false;
    self->stack[best].asleep = true;
  }
}

/* ---- attempts ---- */

static const double forgetting = 0.97; /* what failures weigh in the next attempt */

/* The most that is live at once during a block's life. */
static uint64_t crowd(const plan_block *block, const uint64_t *live) {
  uint64_t most = 0;
  for (uint32_t s = block->begin; s < block->end; s++) {
    if (live[s] > most) most = live[s];
  }
  return most;
}

typedef struct preferred {
  double worth;
  uint32_t block;
} preferred;

static int compare_preferred(const void *left, const void *right) {
  const preferred *a = left, *b = right;
  if (a->worth != b->worth) return a->worth > b->worth ? -1 : 1;
  return a->block < b->block ? -1 : a->block > b->block;
}

/* An order of preference: mostly by what has failed so far, else by one of size, life and crowd or a mixture
 * of them; more or less shuffled. */
static void prefer(search *self, preferred *order, const uint64_t *live) {
  enum { BY_SIZE, BY_LIFE, BY_AREA, BY_CROWD, BY_ALL = 8, LEARNED = 24 };
  const int by = (int)(plan_random(&self->random) * LEARNED);
  double size = plan_random(&self->random), life = plan_random(&self->random),
         most = plan_random(&self->random);
  const double noise = plan_random(&self->random) * plan_random(&self->random) * (by < BY_ALL ? 2 : 2.0 / 3);
  if (by <= BY_CROWD) {
    size = by == BY_SIZE || by == BY_AREA;
    life = by == BY_LIFE || by == BY_AREA;
    most = by == BY_CROWD;
  }
  for (uint32_t i = 0; i < self->made->count; i++) {
    const plan_block *block = &self->made->blocks[i];
    double worth = log(1e-9 + self->failures[i]);
    if (by < BY_ALL)
      worth = size * log((double)block->size) + life * log(block->end - block->begin) +
              4 * most * log((double)crowd(block, live));
    order[i] = (preferred){worth + noise * plan_random(&self->random), i};
    self->failures[i] *= forgetting;
  }
  qsort(order, self->made->count, sizeof *order, compare_preferred);
}

/* One attempt from scratch. */
static bool attempt(search *self, uint64_t steps, preferred *order, const uint64_t *live) {
  const size_t count = self->made->count;
  const double slope = plan_random(&self->random);
  self->stack_size = 0;
  self->until = self->steps + steps;
  self->region = (region)(plan_random(&self->random) * REGIONS);
  self->slope =
      plan_random(&self->random) < 0.4 ? 0 : slope * slope * slope * (double)self->limit / (double)count;
  prefer(self, order, live);
  if (!push(self, count)) return false;
  for (uint32_t i = 0; i < count; i++) self->stack[i] = (pending){.block = order[i].block, .rank = i};
  return solve(self, 0, count);
}

/* Attempts of different lengths, most of them short: 1, 2, 1, 4, 1, 2, 1, 8, ... (after Luby, Sinclair and
 * Zuckerman, 1993). */
static bool attempt_repeatedly(search *self, uint64_t effort, preferred *order, const uint64_t *live) {
  const uint64_t shortest = 1 << 20;
  for (uint64_t number = 1; !self->failed && self->steps < effort; number++) {
    const uint64_t steps = (number & -number) * shortest, left = effort - self->steps;
    if (attempt(self, steps < left ? steps : left, order, live)) return true;
  }
  return false;
}

static void take_over(const search *self) {
  plan *made = self->made;
  made->peak = 0;
  for (uint64_t i = 0; i < made->count; i++) {
    made->blocks[i].offset = self->offsets[i];
    const uint64_t end = self->offsets[i] + made->blocks[i].size;
    if (end > made->peak) made->peak = end;
  }
}

vmm_status plan_search(plan *made, uint64_t limit, uint64_t effort) {
  search self = {.made = made, .limit = limit, .random = UINT64_C(88172645463325252)};
  uint64_t *live = calloc(made->sections, sizeof *live);
  preferred *order = malloc(made->count * sizeof *order);
  self.totals = malloc(made->sections * sizeof *self.totals);
  self.joined = malloc(made->sections * sizeof *self.joined);
  self.bounds = malloc(made->count * sizeof *self.bounds);
  self.offsets = malloc(made->count * sizeof *self.offsets);
  self.failures = calloc(made->count, sizeof *self.failures);
  self.failed =
      !live || !order || !self.totals || !self.joined || !self.bounds || !self.offsets || !self.failures;
  for (uint64_t i = 0; !self.failed && i < made->count; i++) {
    for (uint32_t s = made->blocks[i].begin; s < made->blocks[i].end; s++) live[s] += made->blocks[i].size;
  }
  if (!self.failed && attempt_repeatedly(&self, effort, order, live)) take_over(&self);
  made->steps += self.steps;
  free(live);
  free(order);
  free(self.totals);
  free(self.joined);
  free(self.bounds);
  free(self.offsets);
  free(self.failures);
  free(self.stack);
  return self.failed ? VMM_OUT_OF_MEMORY : VMM_SUCCESS;
}
