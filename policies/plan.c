#include "policies/plan.h"

#include <stdlib.h>
#include <string.h>

#include "policies/plan_search.h"
#include "policies/plan_space.h"
#include "pools/holes.h"

enum { SEARCH_BLOCKS = 4096 }; /* more are not searched */

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

/* ---- sections and the lower bound ---- */

/* A section begins at the first request and at every one before which something was freed. */
static vmm_status cut_sections(const policy_lifetimes *requests, plan *made) {
  const uint64_t count = requests->count;
  uint32_t *section = calloc(count + 2, sizeof *section); /* first a mark, then the number */
  if (!section) return VMM_OUT_OF_MEMORY;
  for (uint64_t i = 0; i < count; i++) section[requests->items[i].end] = 1;
  section[0] = 0;
  for (uint64_t i = 1; i <= count; i++) section[i] += section[i - 1];
  /* What is never freed ends with the last section. */
  made->sections = section[count - 1] + 1;
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t end = requests->items[i].end;
    made->blocks[i].begin = section[i];
    made->blocks[i].end = end == count ? made->sections : section[end];
  }
  free(section);
  return VMM_SUCCESS;
}

static vmm_status find_lower_bound(plan *made) {
  uint64_t *change = calloc((size_t)made->sections + 1, sizeof *change), live = 0; /* modulo 2^64 */
  if (!change) return VMM_OUT_OF_MEMORY;
  for (uint64_t i = 0; i < made->count; i++) {
    if (made->blocks[i].optional) continue;
    change[made->blocks[i].begin] += made->blocks[i].size;
    change[made->blocks[i].end] -= made->blocks[i].size;
  }
  for (uint32_t i = 0; i < made->sections; i++) {
    live += change[i];
    if (live > made->lower_bound) made->lower_bound = live;
  }
  free(change);
  return VMM_SUCCESS;
}

/* Blocks without offsets, sections, the lower bound. */
static vmm_status prepare(const policy_lifetimes *requests, uint64_t quantum, plan *made) {
  const uint64_t count = requests->count;
  memset(made, 0, sizeof *made);
  if (count > INT32_MAX) return VMM_INVALID_VALUE;
  if (count == 0) return VMM_SUCCESS;
  made->blocks = calloc(count, sizeof *made->blocks);
  made->count = count;
  vmm_status status = made->blocks ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  uint64_t room = UINT64_MAX / 4; /* for all sizes together, so that no offset overflows */
  for (uint64_t i = 0; status == VMM_SUCCESS && i < count; i++) {
    const policy_lifetime *request = &requests->items[i];
    if (request->end <= i || request->end > count || request->size > room - quantum || request->size == 0) {
      status = VMM_INVALID_VALUE;
      break;
    }
    made->blocks[i] = (plan_block){.size = round_up(request->size, quantum), .optional = request->optional};
    room -= made->blocks[i].size;
    if (room < quantum) status = VMM_INVALID_VALUE;
  }
  if (status == VMM_SUCCESS) status = cut_sections(requests, made);
  if (status == VMM_SUCCESS) status = find_lower_bound(made);
  if (status != VMM_SUCCESS) plan_free(made);
  return status;
}

void plan_free(plan *made) {
  free(made->blocks);
  memset(made, 0, sizeof *made);
}

/* ---- orders ---- */

/* A block's place in an order: ascending by the first key, the second, its number. */
typedef struct ranked {
  double first, second;
  uint32_t block;
} ranked;

static int compare_ranked(const void *left, const void *right) {
  const ranked *a = left, *b = right;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  if (a->second != b->second) return a->second < b->second ? -1 : 1;
  return a->block < b->block ? -1 : a->block > b->block;
}

/* The larger and longer first; optional ones last. */
static ranked rank_of(const plan *made, plan_order order, uint32_t number) {
  const plan_block *block = &made->blocks[number];
  const double size = (double)block->size, life = block->end - block->begin;
  if (block->optional) return (ranked){1, 0, number};
  switch (order) {
    case PLAN_BY_SIZE:
      return (ranked){-size, -life, number};
    case PLAN_BY_AREA:
      return (ranked){-size * life, -size, number};
    case PLAN_BY_LIFETIME:
      return (ranked){-life, -size, number};
    default:
      return (ranked){0, 0, number};
  }
}

static void rank_blocks(const plan *made, plan_order order, ranked *ranks) {
  for (uint32_t i = 0; i < made->count; i++) ranks[i] = rank_of(made, order, i);
  qsort(ranks, made->count, sizeof *ranks, compare_ranked);
}

/* What the ways to a plan work with. */
typedef struct planner {
  const plan_settings *settings;
  plan *made;
  plan_space *space;
  uint64_t *offsets; /* of the plan being tried */
  uint64_t target;   /* a peak that is as good as the lower bound */
} planner;

/* Places all blocks in this order. A peak of UINT64_MAX: given up, after so many steps. */
static vmm_status place(planner *self, const ranked *ranks, uint64_t until, uint64_t *peak) {
  plan *made = self->made;
  plan_space_clear(self->space);
  *peak = 0;
  for (uint64_t i = 0; i < made->count; i++) {
    const plan_block *block = &made->blocks[ranks[i].block];
    const uint64_t offset = plan_space_lowest(self->space, block->begin, block->end, block->size);
    if (!plan_space_add(self->space, block->begin, block->end, offset, block->size)) return VMM_OUT_OF_MEMORY;
    self->offsets[ranks[i].block] = offset;
    if (!block->optional && offset + block->size > *peak) *peak = offset + block->size;
    made->steps = plan_space_steps(self->space);
    if (made->steps <= until) continue;
    *peak = UINT64_MAX;
    break;
  }
  return VMM_SUCCESS;
}

/* Blocks by the section in which they are free again: those of section s lie from first[s] to before
 * first[s + 1]. */
static uint32_t *sort_by_end(const plan *made, uint32_t *first) {
  uint32_t *sorted = malloc(made->count * sizeof *sorted);
  if (!sorted) return NULL;
  memset(first, 0, ((size_t)made->sections + 2) * sizeof *first);
  for (uint64_t i = 0; i < made->count; i++) first[made->blocks[i].end + 1]++;
  for (uint32_t s = 0; s <= made->sections; s++) first[s + 1] += first[s];
  for (uint64_t i = made->count; i > 0; i--) {
    const uint32_t end = made->blocks[i - 1].end;
    sorted[--first[end + 1]] = (uint32_t)(i - 1);
  }
  /* Each number has come down to its section's first: one place further on than it belongs. */
  for (uint32_t s = 0; s <= made->sections; s++) first[s] = first[s + 1];
  first[made->sections + 1] = (uint32_t)made->count;
  return sorted;
}

/* First fit, as an allocator does that does not know the future. O(n log n). Optional blocks are free again
 * before the next one comes, and displace nothing. */
static vmm_status place_by_start(planner *self, uint64_t *peak) {
  static const vmm_address bottom = 512; /* address 0 is nothing's */
  plan *made = self->made;
  uint32_t *first = malloc(((size_t)made->sections + 2) * sizeof *first);
  uint32_t *ending = first ? sort_by_end(made, first) : NULL;
  pool_holes holes;
  pool_holes_init(&holes);
  vmm_status status = ending ? pool_holes_prepare(&holes, 1) : VMM_OUT_OF_MEMORY;
  if (status == VMM_SUCCESS) pool_holes_insert(&holes, bottom, UINT64_MAX / 2, NULL);
  *peak = 0;
  for (uint64_t i = 0; status == VMM_SUCCESS && i < made->count; i++) {
    const plan_block *block = &made->blocks[i];
    const bool new_section = i > 0 && block->begin != made->blocks[i - 1].begin;
    for (uint32_t k = new_section ? first[block->begin] : 0;
         new_section && status == VMM_SUCCESS && k < first[block->begin + 1]; k++) {
      const vmm_address begin = bottom + self->offsets[ending[k]];
      status = pool_holes_prepare(&holes, 1);
      if (status == VMM_SUCCESS) pool_holes_insert(&holes, begin, begin + made->blocks[ending[k]].size, NULL);
    }
    if (status == VMM_SUCCESS) status = pool_holes_prepare(&holes, 1);
    if (status != VMM_SUCCESS) break;
    pool_hole *hole = pool_holes_first(&holes, block->size);
    self->offsets[i] = hole->begin - bottom;
    pool_holes_carve(&holes, hole, hole->begin, hole->begin + block->size);
    const uint64_t end = self->offsets[i] + block->size;
    if (!block->optional && end > *peak) *peak = end;
  }
  pool_holes_fini(&holes);
  free(first);
  free(ending);
  return status;
}

static void keep(planner *self, uint64_t peak) {
  for (uint64_t i = 0; i < self->made->count; i++) self->made->blocks[i].offset = self->offsets[i];
  self->made->peak = peak;
}

/* Every order once, until one is good enough or there is no effort left. The last one is cheap, and tried all
 * the same. best: the order of the plan kept. */
static vmm_status try_orders(planner *self, ranked *ranks, ranked *best) {
  plan *made = self->made;
  made->peak = UINT64_MAX;
  for (plan_order order = 0; order < PLAN_ORDERS && made->peak > self->target; order++) {
    uint64_t peak;
    if (order != PLAN_BY_START && made->steps >= self->settings->effort) continue;
    rank_blocks(made, order, ranks);
    vmm_status status = order == PLAN_BY_START ? place_by_start(self, &peak)
                                               : place(self, ranks, self->settings->effort, &peak);
    if (status != VMM_SUCCESS) return status;
    if (peak == UINT64_MAX) continue;
    made->order_peaks[order] = peak;
    if (peak >= made->peak) continue;
    keep(self, peak);
    memcpy(best, ranks, made->count * sizeof *ranks);
  }
  return VMM_SUCCESS;
}

/* ---- improvement ---- */

double plan_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (double)(*state >> 11) / 9007199254740992.0;
}

/* Blocks that end above the target are placed earlier next time, others a little shuffled (squeaky wheel
 * optimisation: Joslin and Clements, 1999). */
static vmm_status improve(planner *self, ranked *ranks, ranked *best, uint64_t until) {
  plan *made = self->made;
  uint64_t random = UINT64_C(0x9e3779b97f4a7c15), stale = 0;
  memcpy(ranks, best, made->count * sizeof *ranks);
  for (uint64_t i = 0; i < made->count; i++) self->offsets[i] = made->blocks[i].offset;
  uint64_t peak = made->peak;
  while (made->peak > self->target && made->steps < until) {
    for (uint32_t i = 0; i < made->count; i++) {
      const plan_block *block = &made->blocks[ranks[i].block];
      const uint64_t end = self->offsets[ranks[i].block] + block->size;
      double share = 0.02 * plan_random(&random);
      if (end > self->target) share = 0.3 + 0.7 * plan_random(&random);
      ranks[i].first = block->optional ? (double)made->count : i * (1 - share);
      ranks[i].second = 0;
    }
    qsort(ranks, made->count, sizeof *ranks, compare_ranked);
    vmm_status status = place(self, ranks, until, &peak);
    if (status != VMM_SUCCESS) return status;
    if (peak == UINT64_MAX) break;
    made->rounds++;
    if (peak < made->peak) {
      keep(self, peak);
      memcpy(best, ranks, made->count * sizeof *ranks);
      stale = 0;
    } else if (++stale % 50 == 0) {
      memcpy(ranks, best, made->count * sizeof *ranks);
      for (uint64_t i = 0; i < made->count; i++) self->offsets[i] = made->blocks[i].offset;
    }
  }
  return VMM_SUCCESS;
}

/* ---- all together ---- */

static vmm_status find_offsets(planner *self, ranked *ranks, ranked *best) {
  plan *made = self->made;
  const uint64_t effort = self->settings->effort;
  vmm_status status = try_orders(self, ranks, best);
  const bool searched = made->count <= SEARCH_BLOCKS;
  const uint64_t left = effort > made->steps ? effort - made->steps : 0;
  if (status == VMM_SUCCESS) status = improve(self, ranks, best, made->steps + (searched ? left / 64 : left));
  if (status == VMM_SUCCESS && searched && made->peak > self->target && made->steps < effort)
    status = plan_search(made, self->target, effort - made->steps);
  return status;
}

static vmm_status make_once(const policy_lifetimes *requests, const plan_settings *settings, plan *made) {
  vmm_status status = prepare(requests, settings->quantum, made);
  if (status != VMM_SUCCESS || made->count == 0) return status;
  planner self = {.settings = settings, .made = made};
  self.target = round_up(made->lower_bound, settings->precision);
  self.space = plan_space_create(made->sections);
  self.offsets = malloc(made->count * sizeof *self.offsets);
  ranked *ranks = malloc(made->count * sizeof *ranks), *best = malloc(made->count * sizeof *best);
  status = self.space && self.offsets && ranks && best ? find_offsets(&self, ranks, best) : VMM_OUT_OF_MEMORY;
  plan_space_destroy(self.space);
  free(self.offsets);
  free(ranks);
  free(best);
  if (status != VMM_SUCCESS) plan_free(made);
  return status;
}

/* ---- requests that failed when recorded ---- */

/* The requests, of which those that fit the room beside what is live with them are not optional. *most: the
 * most of these that is live at once; 0: there is none of those. To be freed; NULL: no memory. */
static policy_lifetime *admit(const policy_lifetimes *requests, const plan_settings *settings,
                              uint64_t *most) {
  const uint64_t count = requests->count;
  policy_lifetime *admitted = malloc(count * sizeof *admitted);
  uint64_t *change = calloc(count + 1, sizeof *change), live = 0, admissions = 0; /* modulo 2^64 */
  *most = 0;
  for (uint64_t i = 0; admitted && change && i < count; i++) {
    admitted[i] = requests->items[i];
    const uint64_t size = round_up(admitted[i].size, settings->quantum);
    live += change[i];
    const uint64_t with = live + size;
    if (!admitted[i].optional) {
      live = with;
      change[admitted[i].end] -= size;
    } else if (with <= settings->room) {
      admitted[i].optional = false;
      admissions++;
    }
    if (!admitted[i].optional && with > *most) *most = with;
  }
  if (admissions == 0) *most = 0;
  if (!change) {
    free(admitted);
    admitted = NULL;
  }
  free(change);
  return admitted;
}

/* The highest end of what is not optional in the requests. */
static uint64_t top_of(const plan *made, const policy_lifetime *requests) {
  uint64_t top = 0;
  for (uint64_t i = 0; i < made->count; i++) {
    const uint64_t end = made->blocks[i].offset + made->blocks[i].size;
    if (!requests[i].optional && end > top) top = end;
  }
  return top;
}

/* Another plan in the place of one, where those that failed when recorded lie too high in it. */
static vmm_status place_failed(const policy_lifetimes *requests, const plan_settings *settings, plan *made) {
  uint64_t most;
  policy_lifetime *admitted = admit(requests, settings, &most);
  if (!admitted) return VMM_OUT_OF_MEMORY;
  const uint64_t top = top_of(made, admitted);
  vmm_status status = VMM_SUCCESS;
  if (most > 0 && top > round_up(most, settings->precision)) {
    plan other;
    status = make_once(&(policy_lifetimes){admitted, requests->count}, settings, &other);
    if (status == VMM_SUCCESS) {
      const bool better = other.peak < top && other.peak <= settings->room;
      const uint64_t steps = made->steps + other.steps;
      plan_free(better ? made : &other);
      if (better) *made = other;
      made->steps = steps;
    }
  }
  free(admitted);
  return status;
}

vmm_status plan_make(const policy_lifetimes *requests, const plan_settings *settings, plan *made) {
  vmm_status status = make_once(requests, settings, made);
  bool optional = false;
  for (uint64_t i = 0; status == VMM_SUCCESS && i < made->count; i++) optional |= made->blocks[i].optional;
  if (!optional) return status;
  status = place_failed(requests, settings, made);
  if (status != VMM_SUCCESS) plan_free(made);
  return status;
}
