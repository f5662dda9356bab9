#include "vmm/sim_extents.h"

#include <stdlib.h>

void sim_extents_destroy(sim_extents *set) {
  free(set->nodes);
  *set = (sim_extents){0};
}

bool sim_extents_reserve(sim_extents *set, uint32_t more) {
  uint32_t used = set->nodes ? set->used : 1;
  uint32_t unused = used - 1 - set->count;
  if (set->nodes && (unused >= more || set->capacity - used >= more - unused)) return true;
  if (set->capacity > UINT32_MAX / 2 - more) return false;
  uint32_t capacity = set->capacity ? set->capacity * 2 : 64;
  while (capacity - used < more) capacity *= 2;
  sim_extent_node *grown = realloc(set->nodes, capacity * sizeof *grown);
  if (!grown) return false;
  if (!set->nodes) {
    grown[0] = (sim_extent_node){0};
    set->used = 1;
  }
  set->nodes = grown;
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

static void update_largest(sim_extent_node *nodes, sim_extent at) {
  sim_extent_node *node = &nodes[at];
  uint64_t largest = node->size;
  if (nodes[node->left].largest > largest) largest = nodes[node->left].largest;
  if (nodes[node->right].largest > largest) largest = nodes[node->right].largest;
  node->largest = largest;
}

/* Splits a tree into the starts below and those at or above start. */
static void split(sim_extent_node *nodes, sim_extent tree, uint64_t start, sim_extent *below,
                  sim_extent *above) {
  if (tree == SIM_EXTENT_NONE) {
    *below = *above = SIM_EXTENT_NONE;
    return;
  }
  if (nodes[tree].start < start) {
    split(nodes, nodes[tree].right, start, &nodes[tree].right, above);
    *below = tree;
  } else {
    split(nodes, nodes[tree].left, start, below, &nodes[tree].left);
    *above = tree;
  }
  update_largest(nodes, tree);
}

static sim_extent join(sim_extent_node *nodes, sim_extent below, sim_extent above) {
  if (below == SIM_EXTENT_NONE) return above;
  if (above == SIM_EXTENT_NONE) return below;
  if (nodes[below].priority > nodes[above].priority) {
    nodes[below].right = join(nodes, nodes[below].right, above);
    update_largest(nodes, below);
    return below;
  }
  nodes[above].left = join(nodes, below, nodes[above].left);
  update_largest(nodes, above);
  return above;
}

static sim_extent insert_node(sim_extent_node *nodes, sim_extent tree, sim_extent added) {
  if (tree == SIM_EXTENT_NONE) return added;
  if (nodes[added].priority > nodes[tree].priority) {
    split(nodes, tree, nodes[added].start, &nodes[added].left, &nodes[added].right);
    update_largest(nodes, added);
    return added;
  }
  if (nodes[added].start < nodes[tree].start) {
    nodes[tree].left = insert_node(nodes, nodes[tree].left, added);
  } else {
    nodes[tree].right = insert_node(nodes, nodes[tree].right, added);
  }
  update_largest(nodes, tree);
  return tree;
}

static sim_extent remove_node(sim_extent_node *nodes, sim_extent tree, sim_extent removed) {
  if (tree == removed) return join(nodes, nodes[tree].left, nodes[tree].right);
  if (nodes[removed].start < nodes[tree].start) {
    nodes[tree].left = remove_node(nodes, nodes[tree].left, removed);
  } else {
    nodes[tree].right = remove_node(nodes, nodes[tree].right, removed);
  }
  update_largest(nodes, tree);
  return tree;
}

/* Brings the path from the root to a changed node up to date. */
static void update_path(sim_extent_node *nodes, sim_extent tree, sim_extent changed) {
  if (tree != changed) {
    bool left = nodes[changed].start < nodes[tree].start;
    update_path(nodes, left ? nodes[tree].left : nodes[tree].right, changed);
  }
  update_largest(nodes, tree);
}

sim_extent sim_extents_insert(sim_extents *set, uint64_t start, uint64_t size, uint64_t value) {
  sim_extent added = set->first_unused;
  if (added != SIM_EXTENT_NONE) {
    set->first_unused = set->nodes[added].left;
  } else {
    added = set->used++;
  }
  set->nodes[added] = (sim_extent_node){
      .start = start, .size = size, .largest = size, .value = value, .priority = next_priority(set)};
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
  while (at != SIM_EXTENT_NONE && nodes[at].largest >= size) {
    if (nodes[nodes[at].left].largest >= size) {
      at = nodes[at].left;
    } else if (nodes[at].size >= size) {
      return at;
    } else {
      at = nodes[at].right;
    }
  }
  return SIM_EXTENT_NONE;
}

sim_extent sim_extents_last_fit(const sim_extents *set, uint64_t size) {
  const sim_extent_node *nodes = set->nodes;
  sim_extent at = set->root;
  while (at != SIM_EXTENT_NONE && nodes[at].largest >= size) {
    if (nodes[nodes[at].right].largest >= size) {
      at = nodes[at].right;
    } else if (nodes[at].size >= size) {
      return at;
    } else {
      at = nodes[at].left;
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
  if (tree == SIM_EXTENT_NONE || nodes[tree].largest < size) return SIM_EXTENT_NONE;
  sim_extent found = first_aligned_in(nodes, nodes[tree].left, size, alignment);
  if (found != SIM_EXTENT_NONE) return found;
  if (holds_aligned(&nodes[tree], size, alignment)) return tree;
  return first_aligned_in(nodes, nodes[tree].right, size, alignment);
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
