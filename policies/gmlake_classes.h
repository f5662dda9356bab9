/* pPool and sPool: all pBlocks and sBlocks by stream and size.
 *
 * A class is one size on one stream. An exact match is a look-up in a table and the lowest mark
 * of a set; best fit goes through a tree of the classes that may have a free pBlock. Marks and tree
 * are kept lazily: what turns out not to be free is taken out when a search meets it, and
 * put back when it is freed. */
#ifndef LAKEBED_POLICIES_GMLAKE_CLASSES_H
#define LAKEBED_POLICIES_GMLAKE_CLASSES_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

#include "policies/gmlake_set.h"

typedef struct gmlake_class gmlake_class;
struct gmlake_class {
  uint64_t size;
  vmm_stream stream;
  bool may_be_free; /* is in the tree of those whose pBlocks may be free */
  gmlake_set pblocks;
  gmlake_set sblocks;
  RB_ENTRY(gmlake_class) by_size;      /* all */
  RB_ENTRY(gmlake_class) free_by_size; /* those with may_be_free */
};

RB_HEAD(gmlake_class_tree, gmlake_class);
RB_HEAD(gmlake_free_class_tree, gmlake_class);

typedef struct gmlake_classes {
  gmlake_class **table; /* open addressing */
  uint64_t capacity;    /* a power of two */
  uint64_t count;
  struct gmlake_class_tree all;
  struct gmlake_free_class_tree free;
} gmlake_classes;

void gmlake_classes_init(gmlake_classes *classes);
void gmlake_classes_fini(gmlake_classes *classes);

/* NULL if there is none. O(1). */
gmlake_class *gmlake_class_find(const gmlake_classes *classes, vmm_stream stream, uint64_t size);
/* Makes it if there is none; NULL when the host has no memory. It stays until it is empty and
 * gmlake_classes_forget_empty is called. */
gmlake_class *gmlake_class_get(gmlake_classes *classes, vmm_stream stream, uint64_t size);
void gmlake_classes_forget_empty(gmlake_classes *classes);

/* All classes, by stream and size. NULL at the end. */
gmlake_class *gmlake_classes_first(const gmlake_classes *classes);
gmlake_class *gmlake_classes_next(gmlake_class *class);
/* The smallest class of the stream of at least this size; the next larger of the stream. NULL if none. O(log
 * n). */
gmlake_class *gmlake_class_at_least(const gmlake_classes *classes, vmm_stream stream, uint64_t size);
gmlake_class *gmlake_class_larger(gmlake_class *class);

/* A pBlock of the class has become free. O(1), or O(log n) the first time since a search passed by. */
void gmlake_class_has_free(gmlake_classes *classes, gmlake_class *class);
/* The free pBlock of the class with the lowest number, NULL if none. Amortised O(1). */
gmlake_block *gmlake_class_free_pblock(gmlake_class *class);
/* The smallest free pBlock of at least this size, NULL if none. Amortised O(log n). */
gmlake_block *gmlake_classes_best_fit(gmlake_classes *classes, vmm_stream stream, uint64_t size);

/* The size of the largest free pBlock of any stream, 0 if none. O(classes). */
uint64_t gmlake_classes_largest_free(const gmlake_classes *classes);

/* Goes through the free pBlocks of a stream by size, those of one size by number. Between two steps
 * none may be split; given out or freed they may be. */
typedef struct gmlake_cursor {
  gmlake_classes *classes;
  vmm_stream stream;
  bool descending;
  gmlake_class *class;
  uint32_t number; /* the next one to look at */
} gmlake_cursor;

void gmlake_cursor_begin(gmlake_cursor *cursor, gmlake_classes *classes, vmm_stream stream, bool descending);
/* NULL at the end. */
gmlake_block *gmlake_cursor_next(gmlake_cursor *cursor);

/* Marks that are where they should be: every free pBlock has one, in a class of its size and
 * stream. */
bool gmlake_classes_check(const gmlake_classes *classes, char *message, size_t message_size);

#endif
