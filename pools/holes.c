#include "pools/holes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS_AT_FIRST = 4 };

void pool_holes_init(pool_holes *holes) { *holes = (pool_holes){.streams = STREAMS_AT_FIRST}; }

static void delete_node(pool_hole *hole) {
  free(hole->last);
  free(hole);
}

/* The lowest node of a subtree. */
static pool_hole *leftmost(pool_hole *hole) {
  while (hole && hole->left) hole = hole->left;
  return hole;
}

static pool_hole *successor(pool_hole *hole) {
  if (hole->right) return leftmost(hole->right);
  while (hole->parent && hole->parent->right == hole) hole = hole->parent;
  return hole->parent;
}

static pool_hole *predecessor(pool_hole *hole) {
  if (hole->left) {
    for (hole = hole->left; hole->right;) hole = hole->right;
    return hole;
  }
  while (hole->parent && hole->parent->left == hole) hole = hole->parent;
  return hole->parent;
}

void pool_holes_fini(pool_holes *holes) {
  while (holes->root) {
    pool_hole *leaf = holes->root;
    while (leaf->left || leaf->right) leaf = leaf->left ? leaf->left : leaf->right;
    if (!leaf->parent)
      holes->root = NULL;
    else if (leaf->parent->left == leaf)
      leaf->parent->left = NULL;
    else
      leaf->parent->right = NULL;
    delete_node(leaf);
  }
  for (pool_hole *hole = holes->unused, *next; hole; hole = next) {
    next = hole->right;
    delete_node(hole);
  }
  pool_holes_init(holes);
}

static vmm_status widen(pool_hole *hole, uint32_t from, uint32_t to) {
  uint64_t *last = realloc(hole->last, to * sizeof *last);
  if (!last) return VMM_OUT_OF_MEMORY;
  memset(last + from, 0, (to - from) * sizeof *last);
  hole->last = last;
  return VMM_SUCCESS;
}

vmm_status pool_holes_prepare_stream(pool_holes *holes, vmm_stream stream) {
  if (stream < holes->streams) return VMM_SUCCESS;
  uint32_t streams = stream + STREAMS_AT_FIRST;
  for (pool_hole *hole = leftmost(holes->root); hole; hole = successor(hole)) {
    if (widen(hole, holes->streams, streams) != VMM_SUCCESS) return VMM_OUT_OF_MEMORY;
  }
  for (pool_hole *hole = holes->unused; hole; hole = hole->right) {
    if (widen(hole, holes->streams, streams) != VMM_SUCCESS) return VMM_OUT_OF_MEMORY;
  }
  holes->streams = streams;
  return VMM_SUCCESS;
}

vmm_status pool_holes_prepare(pool_holes *holes, uint64_t count) {
  while (holes->spare < count) {
    pool_hole *hole = calloc(1, sizeof *hole);
    uint64_t *last = calloc(holes->streams, sizeof *last);
    if (!hole || !last) {
      free(hole);
      free(last);
      return VMM_OUT_OF_MEMORY;
    }
    hole->last = last;
    hole->right = holes->unused;
    holes->unused = hole;
    holes->spare++;
  }
  return VMM_SUCCESS;
}

/* ---- the treap ---- */

static uint64_t longest_of(const pool_hole *hole) {
  uint64_t longest = hole->end - hole->begin;
  if (hole->left && hole->left->longest > longest) longest = hole->left->longest;
  if (hole->right && hole->right->longest > longest) longest = hole->right->longest;
  return longest;
}

/* Renews longest from a node that has changed up to the root, as far as it matters. */
static void renew(pool_hole *hole) {
  for (; hole; hole = hole->parent) {
    uint64_t longest = longest_of(hole);
    if (longest == hole->longest) return;
    hole->longest = longest;
  }
}

static void replace_child(pool_holes *holes, pool_hole *parent, pool_hole *child, pool_hole *with) {
  if (!parent)
    holes->root = with;
  else if (parent->left == child)
    parent->left = with;
  else
    parent->right = with;
  if (with) with->parent = parent;
}

/* Lifts a node above its parent. */
static void rotate_up(pool_holes *holes, pool_hole *hole) {
  pool_hole *parent = hole->parent;
  replace_child(holes, parent->parent, parent, hole);
  if (parent->left == hole) {
    parent->left = hole->right;
    if (hole->right) hole->right->parent = parent;
    hole->right = parent;
  } else {
    parent->right = hole->left;
    if (hole->left) hole->left->parent = parent;
    hole->left = parent;
  }
  parent->parent = hole;
  parent->longest = longest_of(parent);
  hole->longest = longest_of(hole);
}

/* Priorities from addresses make the shape depend on the content alone. */
static uint64_t priority_of(vmm_address address) {
  uint64_t mixed = address * UINT64_C(0x9E3779B97F4A7C15);
  mixed ^= mixed >> 29;
  return mixed * UINT64_C(0xBF58476D1CE4E5B9);
}

static pool_hole *link_new(pool_holes *holes, vmm_address begin, vmm_address end) {
  pool_hole *hole = holes->unused;
  holes->unused = hole->right;
  holes->spare--;
  hole->begin = begin;
  hole->end = end;
  hole->longest = end - begin;
  hole->priority = priority_of(begin);
  hole->left = hole->right = hole->parent = NULL;
  pool_hole *parent = NULL;
  for (pool_hole *at = holes->root; at; at = begin < at->begin ? at->left : at->right) parent = at;
  hole->parent = parent;
  if (!parent)
    holes->root = hole;
  else if (begin < parent->begin)
    parent->left = hole;
  else
    parent->right = hole;
  renew(parent);
  while (hole->parent && hole->parent->priority < hole->priority) rotate_up(holes, hole);
  holes->count++;
  return hole;
}

static void unlink_hole(pool_holes *holes, pool_hole *hole) {
  while (hole->left || hole->right) {
    pool_hole *left = hole->left, *right = hole->right;
    rotate_up(holes, !right || (left && left->priority > right->priority) ? left : right);
  }
  pool_hole *parent = hole->parent;
  replace_child(holes, parent, hole, NULL);
  renew(parent);
  hole->right = holes->unused;
  holes->unused = hole;
  holes->spare++;
  holes->count--;
}

static void merge_last(const pool_holes *holes, uint64_t *into, const uint64_t *last) {
  for (uint32_t i = 0; last && i < holes->streams; i++) {
    if (last[i] > into[i]) into[i] = last[i];
  }
}

void pool_holes_insert(pool_holes *holes, vmm_address begin, vmm_address end, const uint64_t *last) {
  pool_hole *before = NULL, *after = NULL;
  for (pool_hole *at = holes->root; at;) {
    if (at->begin < begin) {
      before = at;
      at = at->right;
    } else {
      after = at;
      at = at->left;
    }
  }
  holes->bytes += end - begin;
  if (before && before->end != begin) before = NULL;
  if (after && after->begin != end) after = NULL;
  if (before && after) {
    merge_last(holes, before->last, after->last);
    merge_last(holes, before->last, last);
    vmm_address far_end = after->end;
    unlink_hole(holes, after);
    before->end = far_end;
    renew(before);
  } else if (before) {
    merge_last(holes, before->last, last);
    before->end = end;
    renew(before);
  } else if (after) {
    merge_last(holes, after->last, last);
    after->begin = begin;
    renew(after);
  } else {
    pool_hole *hole = link_new(holes, begin, end);
    if (last)
      memcpy(hole->last, last, holes->streams * sizeof *last);
    else
      memset(hole->last, 0, holes->streams * sizeof *last);
  }
}

void pool_holes_carve(pool_holes *holes, pool_hole *hole, vmm_address begin, vmm_address end) {
  holes->bytes -= end - begin;
  vmm_address far_end = hole->end;
  if (begin == hole->begin && end == hole->end) {
    unlink_hole(holes, hole);
  } else if (begin == hole->begin) {
    hole->begin = end;
    renew(hole);
  } else {
    hole->end = begin;
    renew(hole);
    if (end < far_end) {
      pool_hole *rest = link_new(holes, end, far_end);
      memcpy(rest->last, hole->last, holes->streams * sizeof *rest->last);
    }
  }
}

pool_hole *pool_holes_first(const pool_holes *holes, uint64_t size) {
  pool_hole *at = holes->root;
  if (!at || at->longest < size) return NULL;
  for (;;) {
    if (at->left && at->left->longest >= size)
      at = at->left;
    else if (at->end - at->begin >= size)
      return at;
    else
      at = at->right;
  }
}

pool_hole *pool_holes_next(pool_hole *hole, uint64_t size) {
  for (;;) {
    if (hole->right && hole->right->longest >= size) {
      for (hole = hole->right;;) {
        if (hole->left && hole->left->longest >= size)
          hole = hole->left;
        else if (hole->end - hole->begin >= size)
          return hole;
        else
          hole = hole->right;
      }
    }
    while (hole->parent && hole->parent->right == hole) hole = hole->parent;
    hole = hole->parent;
    if (!hole || hole->end - hole->begin >= size) return hole;
  }
}

pool_hole *pool_holes_first_below(const pool_holes *holes, uint64_t size, uint64_t bound, uint32_t tries) {
  pool_hole *hole = pool_holes_first(holes, size);
  while (hole && hole->end - hole->begin >= bound) hole = --tries > 0 ? pool_holes_next(hole, size) : NULL;
  return hole;
}

pool_hole *pool_holes_at_or_above(const pool_holes *holes, vmm_address address) {
  pool_hole *found = NULL;
  for (pool_hole *at = holes->root; at;) {
    if (at->end > address) {
      found = at;
      at = at->left;
    } else {
      at = at->right;
    }
  }
  return found;
}

void pool_holes_visit(const pool_holes *holes, pool_range_visit *visit, void *context) {
  for (pool_hole *hole = pool_holes_first(holes, 1); hole; hole = pool_holes_next(hole, 1))
    visit(context, hole->end - hole->begin);
}

bool pool_holes_check(const pool_holes *holes, char *message, size_t message_size) {
  uint64_t count = 0, bytes = 0;
  for (pool_hole *hole = leftmost(holes->root); hole; hole = successor(hole)) {
    const pool_hole *before = predecessor(hole);
    count++;
    bytes += hole->end - hole->begin;
    if (hole->begin < hole->end && (!before || before->end < hole->begin) &&
        hole->longest == longest_of(hole) && (!hole->parent || hole->parent->priority >= hole->priority)) {
      continue;
    }
    snprintf(message, message_size,
             "hole 0x%" PRIx64 " of %" PRIu64 " bytes is out of order, not merged or miscounted", hole->begin,
             hole->end - hole->begin);
    return false;
  }
  if (count == holes->count && bytes == holes->bytes) return true;
  snprintf(message, message_size,
           "the holes count %" PRIu64 ", %" PRIu64 " bytes and are %" PRIu64 ", %" PRIu64, holes->count,
           holes->bytes, count, bytes);
  return false;
}
