#include "vmm/sim_extents.h"

#include <stdlib.h>

void sim_extents_destroy(sim_extents *set) {
  free(set->nodes);
  *set = (sim_extents){0};
}

bool sim_extents_reserve(sim_extents *set, uint32_t more) {
  uint32_t used = set->nodes ? set->used : 1; /* nodes[0] stands for none */
  uint64_t needed = (uint64_t)set->count + 1 + more;
  if (needed <= set->capacity) return true;
  if (needed > UINT32_MAX / 2) return false;
  uint32_t capacity = set->capacity ? set->capacity : 32;
  while (capacity < needed) capacity *= 2;
  sim_extent_node *grown = realloc(set->nodes, capacity * sizeof *grown);
  if (!grown) return false;
  if (!set->nodes) grown[0] = (sim_extent_node){0};
  set->nodes = grown;
  set->used = used;
  set->capacity = capacity;
  return true;
}

/* splitmix64 */
static uint32_t next_priority(sim_extents *set) {
  set->random += UINT64_C(0x9E3779B97F4A7C15);
  uint64_t mixed = set->random;
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
  return (uint32_t)(mixed >> 32);
}

static uint64_t largest_of(const sim_extent_node *nodes, sim_extent tree) {
  if (tree == SIM_EXTENT_NONE) return 0;
  const sim_extent_node *node = &nodes[tree];
  uint64_t largest = node->size;
  if (node->left_largest > largest) largest = node->left_largest;
  if (node->right_largest > largest) largest = node->right_largest;
  return largest;
}

static void set_left(sim_extent_node *nodes, sim_extent tree, sim_extent left) {
  nodes[tree].left = left;
  nodes[tree].left_largest = largest_of(nodes, left);
}

static void set_right(sim_extent_node *nodes, sim_extent tree, sim_extent right) {
  nodes[tree].right = right;
  nodes[tree].right_largest = largest_of(nodes, right);
}

/* Splits a tree into the starts below and those at or above start. */
static void split(sim_extent_node *nodes, sim_extent tree, uint64_t start, sim_extent *below,
                  sim_extent *above) {
  if (tree == SIM_EXTENT_NONE) {
    *below = *above = SIM_EXTENT_NONE;
    return;
  }
  sim_extent between;
  if (nodes[tree].start < start) {
    split(nodes, nodes[tree].right, start, &between, above);
    set_right(nodes, tree, between);
    *below = tree;
  } else {
    split(nodes, nodes[tree].left, start, below, &between);
    set_left(nodes, tree, between);
    *above = tree;
  }
}

static sim_extent join(sim_extent_node *nodes, sim_extent below, sim_extent above) {
  if (below == SIM_EXTENT_NONE) return above;
  if (above == SIM_EXTENT_NONE) return below;
  if (nodes[below].priority > nodes[above].priority) {
    set_right(nodes, below, join(nodes, nodes[below].right, above));
    return below;
  }
  set_left(nodes, above, join(nodes, below, nodes[above].left));
  return above;
}

static sim_extent insert_node(sim_extent_node *nodes, sim_extent tree, sim_extent added) {
  if (tree == SIM_EXTENT_NONE) return added;
  if (nodes[added].priority > nodes[tree].priority) {
    sim_extent below, above;
    split(nodes, tree, nodes[added].start, &below, &above);
    set_left(nodes, added, below);
    set_right(nodes, added, above);
    return added;
  }
  if (nodes[added].start < nodes[tree].start) {
    set_left(nodes, tree, insert_node(nodes, nodes[tree].left, added));
  } else {
    set_right(nodes, tree, insert_node(nodes, nodes[tree].right, added));
  }
  return tree;
}

static sim_extent remove_node(sim_extent_node *nodes, sim_extent tree, sim_extent removed) {
  if (tree == removed) return join(nodes, nodes[tree].left, nodes[tree].right);
  if (nodes[removed].start < nodes[tree].start) {
    set_left(nodes, tree, remove_node(nodes, nodes[tree].left, removed));
  } else {
    set_right(nodes, tree, remove_node(nodes, nodes[tree].right, removed));
  }
  return tree;
}

/* Brings the path from the root to an extent whose size has changed up to date. */
static void update_path(sim_extent_node *nodes, sim_extent tree, sim_extent changed) {
  if (tree == changed) return;
  if (nodes[changed].start < nodes[tree].start) {
    update_path(nodes, nodes[tree].left, changed);
    set_left(nodes, tree, nodes[tree].left);
  } else {
    update_path(nodes, nodes[tree].right, changed);
    set_right(nodes, tree, nodes[tree].right);
  }
}

sim_extent sim_extents_insert(sim_extents *set, uint64_t start, uint64_t size, uint64_t value) {
  sim_extent added = set->first_unused;
  if (added != SIM_EXTENT_NONE) {
    set->first_unused = set->nodes[added].left;
  } else {
    added = set->used++;
  }
  set->nodes[added] =
      (sim_extent_node){.start = start, .size = size, .value = value, .priority = next_priority(set)};
  set->root = insert_node(set->nodes, set->root, added);
  set->count++;
  return added;
}

void sim_extents_remove(sim_extents *set, sim_extent extent) {
  set->root = remove_node(set->nodes, set->root, extent);
  set->nodes[extent].left = set->first_unused;
  set->first_unused = extent;
  set->count--;
}

void sim_extents_resize(sim_extents *set, sim_extent extent, uint64_t start, uint64_t size) {
  set->nodes[extent].start = start;
  set->nodes[extent].size = size;
  update_path(set->nodes, set->root, extent);
}

sim_extent sim_extents_floor(const sim_extents *set, uint64_t address) {
  sim_extent found = SIM_EXTENT_NONE, at = set->root;
  while (at != SIM_EXTENT_NONE) {
    const sim_extent_node *node = &set->nodes[at];
    if (node->start <= address) {
      found = at;
      at = node->right;
    } else {
      at = node->left;
    }
  }
  return found;
}

sim_extent sim_extents_ceiling(const sim_extents *set, uint64_t address) {
  sim_extent found = SIM_EXTENT_NONE, at = set->root;
  while (at != SIM_EXTENT_NONE) {
    const sim_extent_node *node = &set->nodes[at];
    if (node->start >= address) {
      found = at;
      at = node->left;
    } else {
      at = node->right;
    }
  }
  return found;
}

sim_extent sim_extents_containing(const sim_extents *set, uint64_t address) {
  sim_extent at = sim_extents_floor(set, address);
  if (at == SIM_EXTENT_NONE) return at;
  const sim_extent_node *node = &set->nodes[at];
  return address - node->start < node->size ? at : SIM_EXTENT_NONE;
}

sim_extent sim_extents_first_fit(const sim_extents *set, uint64_t size) {
  const sim_extent_node *nodes = set->nodes;
  sim_extent at = set->root;
  while (at != SIM_EXTENT_NONE) {
    if (nodes[at].left_largest >= size) {
      at = nodes[at].left;
    } else if (nodes[at].size >= size) {
      return at;
    } else {
      at = nodes[at].right_largest >= size ? nodes[at].right : SIM_EXTENT_NONE;
    }
  }
  return SIM_EXTENT_NONE;
}

sim_extent sim_extents_last_fit(const sim_extents *set, uint64_t size) {
  const sim_extent_node *nodes = set->nodes;
  sim_extent at = set->root;
  while (at != SIM_EXTENT_NONE) {
    if (nodes[at].right_largest >= size) {
      at = nodes[at].right;
    } else if (nodes[at].size >= size) {
      return at;
    } else {
      at = nodes[at].left_largest >= size ? nodes[at].left : SIM_EXTENT_NONE;
    }
  }
  return SIM_EXTENT_NONE;
}

static bool holds_aligned(const sim_extent_node *node, uint64_t size, uint64_t alignment) {
  uint64_t skipped = -node->start & (alignment - 1);
  return skipped <= node->size && node->size - skipped >= size;
}

static sim_extent first_aligned_in(const sim_extent_node *nodes, sim_extent tree, uint64_t size,
                                   uint64_t alignment) {
  if (tree == SIM_EXTENT_NONE) return SIM_EXTENT_NONE;
  const sim_extent_node *node = &nodes[tree];
  if (node->left_largest >= size) {
    sim_extent found = first_aligned_in(nodes, node->left, size, alignment);
    if (found != SIM_EXTENT_NONE) return found;
  }
  if (holds_aligned(node, size, alignment)) return tree;
  return node->right_largest >= size ? first_aligned_in(nodes, node->right, size, alignment)
                                     : SIM_EXTENT_NONE;
}

sim_extent sim_extents_first_fit_aligned(const sim_extents *set, uint64_t size, uint64_t alignment) {
  return first_aligned_in(set->nodes, set->root, size, alignment);
}

void sim_extents_carve(sim_extents *set, sim_extent extent, uint64_t start, uint64_t size) {
  sim_extent_node *node = &set->nodes[extent];
  uint64_t end = start + size;
  uint64_t extent_start = node->start, extent_end = node->start + node->size;
  if (start == extent_start && end == extent_end) {
    sim_extents_remove(set, extent);
  } else if (start == extent_start) {
    sim_extents_resize(set, extent, end, extent_end - end);
  } else {
    sim_extents_resize(set, extent, extent_start, start - extent_start);
    if (end != extent_end) sim_extents_insert(set, end, extent_end - end, 0);
  }
}

void sim_extents_merge(sim_extents *set, uint64_t start, uint64_t size) {
  sim_extent before = start > 0 ? sim_extents_floor(set, start - 1) : SIM_EXTENT_NONE;
  sim_extent after = sim_extents_floor(set, start + size);
  bool joins_before =
      before != SIM_EXTENT_NONE && set->nodes[before].start + set->nodes[before].size == start;
  bool joins_after = after != SIM_EXTENT_NONE && set->nodes[after].start == start + size;
  if (joins_after) {
    uint64_t after_size = set->nodes[after].size;
    if (!joins_before) {
      sim_extents_resize(set, after, start, size + after_size);
      return;
    }
    sim_extents_remove(set, after);
    size += after_size;
  }
  if (joins_before) {
    sim_extents_resize(set, before, set->nodes[before].start, set->nodes[before].size + size);
  } else {
    sim_extents_insert(set, start, size, 0);
  }
}
