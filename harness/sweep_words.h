/* Lines of a grid file: words, quotes, comments and alternatives in braces. */
#ifndef LAKEBED_HARNESS_SWEEP_WORDS_H
#define LAKEBED_HARNESS_SWEEP_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Begins as {0}. */
typedef struct sweep_words {
  char **items; /* owned */
  size_t count, bytes;
} sweep_words;

enum { SWEEP_WORDS_LIMIT = 1 << 20, SWEEP_WORDS_BYTES = 1 << 26, SWEEP_WORDS_GROUPS = 64 };

/* Appends a copy. false: no memory. */
bool sweep_words_add(sweep_words *words, const char *text, size_t length);
/* Appends the words of a line: separated by blanks, "several in quotes" are one, '#' at the beginning of a
 * word begins a comment. On failure says why. */
bool sweep_words_split(sweep_words *words, const char *line, char *message, size_t message_size);
/* Appends what a text with alternatives stands for, in order: "a{b,c}d" is "abd" and "acd"; several groups
 * give all combinations, the last one changing fastest; groups may be nested. On failure (a brace without
 * its partner, more than SWEEP_WORDS_GROUPS groups in a word, more than SWEEP_WORDS_LIMIT words or
 * SWEEP_WORDS_BYTES in all, no memory) says why. O(length of what is appended). */
bool sweep_words_expand(sweep_words *words, const char *text, char *message, size_t message_size);
/* The words from the first-th on as a line that splits into them again, to be freed. NULL: no memory, or a
 * word has a quote in it. */
char *sweep_words_join(const sweep_words *words, size_t first);
void sweep_words_free(sweep_words *words);

#endif
