#include "policies/gmlake_classes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_CAPACITY = 64 };

static inline int compare(const gmlake_class *a, const gmlake_class *b) {
  if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
  return a->size < b->size ? -1 : a->size > b->size;
}

RB_PROTOTYPE(gmlake_class_tree, gmlake_class, by_size, compare)
RB_GENERATE(gmlake_class_tree, gmlake_class, by_size, compare)
RB_PROTOTYPE(gmlake_free_class_tree, gmlake_class, free_by_size, compare)
RB_GENERATE(gmlake_free_class_tree, gmlake_class, free_by_size, compare)

void gmlake_classes_init(gmlake_classes *classes) {
  *classes = (gmlake_classes){0};
  RB_INIT(&classes->all);
  RB_INIT(&classes->free);
}

static void delete_class(gmlake_class *class) {
  gmlake_set_fini(&class->pblocks);
  gmlake_set_fini(&class->sblocks);
  free(class);
}

void gmlake_classes_fini(gmlake_classes *classes) {
  for (uint64_t i = 0; i < classes->capacity; i++) {
    if (classes->table[i]) delete_class(classes->table[i]);
  }
  free(classes->table);
  *classes = (gmlake_classes){0};
}

/* ---- the table ---- */

static inline uint64_t home(const gmlake_classes *classes, vmm_stream stream, uint64_t size) {
  return ((size ^ (uint64_t)stream << 44) * UINT64_C(0x9E3779B97F4A7C15) >> 24) & (classes->capacity - 1);
}

gmlake_class *gmlake_class_find(const gmlake_classes *classes, vmm_stream stream, uint64_t size) {
  if (classes->capacity == 0) return NULL;
  for (uint64_t i = home(classes, stream, size);; i = (i + 1) & (classes->capacity - 1)) {
    gmlake_class *class = classes->table[i];
    if (!class || (class->size == size && class->stream == stream)) return class;
  }
}

static void place(gmlake_classes *classes, gmlake_class *class) {
  uint64_t i = home(classes, class->stream, class->size);
  while (classes->table[i]) i = (i + 1) & (classes->capacity - 1);
  classes->table[i] = class;
}

/* A new table of the classes that are in the tree of all. */
static bool rebuild_table(gmlake_classes *classes, uint64_t capacity) {
  gmlake_class **table = calloc(capacity, sizeof(gmlake_class *));
  if (!table) return false;
  free(classes->table);
  classes->table = table;
  classes->capacity = capacity;
  gmlake_class *class;
  RB_FOREACH(class, gmlake_class_tree, &classes->all) place(classes, class);
  return true;
}

gmlake_class *gmlake_class_get(gmlake_classes *classes, vmm_stream stream, uint64_t size) {
  gmlake_class *class = gmlake_class_find(classes, stream, size);
  if (class) return class;
  if (classes->count * 2 >= classes->capacity) {
    uint64_t capacity = classes->capacity ? classes->capacity * 2 : FIRST_CAPACITY;
    if (!rebuild_table(classes, capacity)) return NULL;
  }
  class = calloc(1, sizeof *class);
  if (!class) return NULL;
  class->stream = stream;
  class->size = size;
  RB_INSERT(gmlake_class_tree, &classes->all, class);
  place(classes, class);
  classes->count++;
  return class;
}

void gmlake_classes_forget_empty(gmlake_classes *classes) {
  gmlake_class *class, *next;
  for (class = RB_MIN(gmlake_class_tree, &classes->all); class; class = next) {
    next = RB_NEXT(gmlake_class_tree, &classes->all, class);
    if (class->pblocks.count + class->sblocks.count > 0) continue;
    RB_REMOVE(gmlake_class_tree, &classes->all, class);
    if (class->may_be_free) RB_REMOVE(gmlake_free_class_tree, &classes->free, class);
    for (uint64_t i = 0; i < classes->capacity; i++) {
      if (classes->table[i] == class) classes->table[i] = NULL;
    }
    classes->count--;
    delete_class(class);
  }
  /* Entries have left gaps in the probe runs. */
  for (uint64_t i = 0; i < classes->capacity; i++) classes->table[i] = NULL;
  RB_FOREACH(class, gmlake_class_tree, &classes->all) place(classes, class);
}

/* ---- by size ---- */

gmlake_class *gmlake_classes_first(const gmlake_classes *classes) {
  struct gmlake_class_tree tree = classes->all;
  return RB_MIN(gmlake_class_tree, &tree);
}

gmlake_class *gmlake_classes_next(gmlake_class *class) { return RB_NEXT(gmlake_class_tree, NULL, class); }

gmlake_class *gmlake_class_at_least(const gmlake_classes *classes, vmm_stream stream, uint64_t size) {
  gmlake_class key = {.stream = stream, .size = size};
  struct gmlake_class_tree tree = classes->all;
  gmlake_class *class = RB_NFIND(gmlake_class_tree, &tree, &key);
  return class && class->stream == stream ? class : NULL;
}

gmlake_class *gmlake_class_larger(gmlake_class *class) {
  gmlake_class *next = RB_NEXT(gmlake_class_tree, NULL, class);
  return next && next->stream == class->stream ? next : NULL;
}

void gmlake_class_has_free(gmlake_classes *classes, gmlake_class *class) {
  if (class->may_be_free) return;
  class->may_be_free = true;
  RB_INSERT(gmlake_free_class_tree, &classes->free, class);
}

gmlake_block *gmlake_class_free_pblock(gmlake_class *class) {
  for (;;) {
    gmlake_block *block = gmlake_set_first_marked(&class->pblocks);
    if (!block || block->free) return block;
    gmlake_set_unmark(&class->pblocks, block);
  }
}

static void has_none(gmlake_classes *classes, gmlake_class *class) {
  class->may_be_free = false;
  RB_REMOVE(gmlake_free_class_tree, &classes->free, class);
}

gmlake_block *gmlake_classes_best_fit(gmlake_classes *classes, vmm_stream stream, uint64_t size) {
  gmlake_class key = {.stream = stream, .size = size}, *next;
  for (gmlake_class *class = RB_NFIND(gmlake_free_class_tree, &classes->free, &key);
       class && class->stream == stream; class = next) {
    gmlake_block *block = gmlake_class_free_pblock(class);
    if (block) return block;
    next = RB_NEXT(gmlake_free_class_tree, &classes->free, class);
    has_none(classes, class);
  }
  return NULL;
}

static bool has_free(const gmlake_class *class) {
  for (uint32_t number = 0;;) {
    const gmlake_block *block = gmlake_set_marked_from(&class->pblocks, number);
    if (!block) return false;
    if (block->free) return true;
    number = block->number + 1;
  }
}

uint64_t gmlake_classes_largest_free(const gmlake_classes *classes) {
  uint64_t largest = 0;
  struct gmlake_free_class_tree tree = classes->free;
  gmlake_class *class;
  RB_FOREACH(class, gmlake_free_class_tree, &tree) {
    if (class->size > largest && has_free(class)) largest = class->size;
  }
  return largest;
}

/* ---- in order ---- */

void gmlake_cursor_begin(gmlake_cursor *cursor, gmlake_classes *classes, vmm_stream stream, bool descending) {
  *cursor = (gmlake_cursor){.classes = classes, .stream = stream, .descending = descending};
  gmlake_class key = {.stream = stream, .size = descending ? UINT64_MAX : 0};
  gmlake_class *class = RB_NFIND(gmlake_free_class_tree, &classes->free, &key);
  if (descending) {
    class = class ? RB_PREV(gmlake_free_class_tree, &classes->free, class)
                  : RB_MAX(gmlake_free_class_tree, &classes->free);
  }
  cursor->class = class;
}

gmlake_block *gmlake_cursor_next(gmlake_cursor *cursor) {
  while (cursor->class && cursor->class->stream == cursor->stream) {
    gmlake_class *class = cursor->class;
    gmlake_block *block;
    while ((block = gmlake_set_marked_from(&class->pblocks, cursor->number))) {
      cursor->number = block->number + 1;
      if (block->free) return block;
      gmlake_set_unmark(&class->pblocks, block);
    }
    cursor->number = 0;
    cursor->class = cursor->descending ? RB_PREV(gmlake_free_class_tree, NULL, class)
                                       : RB_NEXT(gmlake_free_class_tree, NULL, class);
    if (!gmlake_set_first_marked(&class->pblocks)) has_none(cursor->classes, class);
  }
  return NULL;
}

bool gmlake_classes_check(const gmlake_classes *classes, char *message, size_t message_size) {
  struct gmlake_class_tree tree = classes->all;
  uint64_t count = 0;
  gmlake_class *class;
  RB_FOREACH(class, gmlake_class_tree, &tree) {
    count++;
    bool found = gmlake_class_find(classes, class->stream, class->size) == class, any_free = false;
    for (uint32_t i = 0; found && i < class->pblocks.used; i++) {
      const gmlake_block *block = class->pblocks.members[i];
      if (!block) continue;
      bool free = block->free;
      any_free |= free;
      found = block->number == i && block->size == class->size && block->stream == class->stream &&
              (!free || gmlake_set_marked_from(&class->pblocks, i) == block);
    }
    if (found && (class->may_be_free || !any_free)) continue;
    snprintf(message, message_size,
             "the class of %" PRIu64 " bytes on stream %" PRIu32 " does not hold what it says", class->size,
             class->stream);
    return false;
  }
  if (count == classes->count) return true;
  snprintf(message, message_size, "there are %" PRIu64 " classes, not %" PRIu64, count, classes->count);
  return false;
}
