#include "policies/gmlake_set.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 8 };

static uint32_t words_of(uint32_t capacity, uint32_t level) {
  uint64_t words = capacity;
  for (uint32_t i = 0; i <= level; i++) words = (words + 63) / 64;
  return (uint32_t)words;
}

/* Levels until one word is enough. */
static uint32_t levels_of(uint32_t capacity) {
  uint32_t level = 0;
  while (words_of(capacity, level) > 1) level++;
  return level + 1;
}

void gmlake_set_fini(gmlake_set *set) {
  free(set->members);
  free(set->levels[0]);
  *set = (gmlake_set){0};
}

static void set_bit(gmlake_set *set, uint32_t number) {
  for (uint32_t level = 0; level < set->level_count; level++) {
    uint64_t *word = &set->levels[level][number >> 6];
    uint64_t before = *word;
    *word |= UINT64_C(1) << (number & 63);
    if (before != 0) return;
    number >>= 6;
  }
}

static void clear_bit(gmlake_set *set, uint32_t number) {
  for (uint32_t level = 0; level < set->level_count; level++) {
    uint64_t *word = &set->levels[level][number >> 6];
    *word &= ~(UINT64_C(1) << (number & 63));
    if (*word != 0) return;
    number >>= 6;
  }
}

static bool is_marked(const gmlake_set *set, uint32_t number) {
  return set->levels[0][number >> 6] >> (number & 63) & 1;
}

/* Moves the members into a table of this capacity, closing the gaps. */
static bool rebuild(gmlake_set *set, uint32_t capacity) {
  gmlake_set larger = {.capacity = capacity, .level_count = levels_of(capacity), .count = set->count};
  size_t words = 0;
  for (uint32_t level = 0; level < larger.level_count; level++) words += words_of(capacity, level);
  larger.members = calloc(capacity, sizeof(gmlake_block *));
  larger.levels[0] = calloc(words, sizeof(uint64_t));
  if (!larger.members || !larger.levels[0]) {
    free(larger.members);
    free(larger.levels[0]);
    return false;
  }
  for (uint32_t level = 1; level < larger.level_count; level++) {
    larger.levels[level] = larger.levels[level - 1] + words_of(capacity, level - 1);
  }
  for (uint32_t i = 0; i < set->used; i++) {
    gmlake_block *block = set->members[i];
    if (!block) continue;
    block->number = larger.used;
    larger.members[larger.used] = block;
    if (is_marked(set, i)) set_bit(&larger, larger.used);
    larger.used++;
  }
  gmlake_set_fini(set);
  *set = larger;
  return true;
}

bool gmlake_set_prepare(gmlake_set *set, uint32_t additions) {
  if (additions <= set->capacity - set->used) return true;
  uint32_t capacity = set->capacity > 0 ? set->capacity : FIRST_CAPACITY;
  /* Gaps are closed when half of the numbers are gone; else more room is made. */
  while (set->count + additions > capacity / 2) {
    if (capacity > UINT32_MAX / 4) return false;
    capacity *= 2;
  }
  return rebuild(set, capacity);
}

void gmlake_set_add(gmlake_set *set, gmlake_block *block) {
  block->number = set->used;
  set->members[set->used++] = block;
  set->count++;
}

void gmlake_set_remove(gmlake_set *set, gmlake_block *block) {
  uint32_t number = block->number;
  clear_bit(set, number);
  set->members[number] = NULL;
  set->count--;
  if (number + 1 == set->used) set->used--;
}

void gmlake_set_mark(gmlake_set *set, const gmlake_block *block) { set_bit(set, block->number); }

void gmlake_set_unmark(gmlake_set *set, const gmlake_block *block) { clear_bit(set, block->number); }

gmlake_block *gmlake_set_marked_from(const gmlake_set *set, uint32_t number) {
  if (number >= set->used) return NULL;
  /* Up until a word has a mark at or after the number, then down along the lowest marks. */
  uint32_t level = 0;
  for (;; level++) {
    if (level == set->level_count) return NULL;
    uint32_t word = number >> 6;
    if (word < words_of(set->capacity, level)) {
      uint64_t rest = set->levels[level][word] & (UINT64_MAX << (number & 63));
      if (rest != 0) {
        number = word * 64 + (uint32_t)__builtin_ctzll(rest);
        break;
      }
    }
    number = word + 1;
  }
  while (level-- > 0) number = number * 64 + (uint32_t)__builtin_ctzll(set->levels[level][number]);
  return set->members[number];
}
