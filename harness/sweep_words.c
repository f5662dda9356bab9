#include "harness/sweep_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r\n\f\v";

bool sweep_words_add(sweep_words *words, const char *text, size_t length) {
  /* Grows when the count is a power of two. */
  if ((words->count & (words->count - 1)) == 0) {
    char **items = realloc(words->items, (words->count ? 2 * words->count : 1) * sizeof *items);
    if (!items) return false;
    words->items = items;
  }
  char *copy = strndup(text, length);
  if (!copy) return false;
  words->items[words->count++] = copy;
  words->bytes += length;
  return true;
}

void sweep_words_free(sweep_words *words) {
  for (size_t i = 0; i < words->count; i++) free(words->items[i]);
  free(words->items);
  *words = (sweep_words){0};
}

static bool complain(char *message, size_t message_size, const char *what) {
  snprintf(message, message_size, "%s", what);
  return false;
}

static bool no_memory(char *message, size_t message_size) {
  return complain(message, message_size, "no memory for the grid");
}

bool sweep_words_split(sweep_words *words, const char *line, char *message, size_t message_size) {
  for (line += strspn(line, blanks); *line && *line != '#'; line += strspn(line, blanks)) {
    bool quoted = *line == '"';
    if (quoted) line++;
    size_t length = strcspn(line, quoted ? "\"\n" : blanks);
    if (quoted && line[length] != '"') return complain(message, message_size, "a closing '\"' is missing");
    if (!sweep_words_add(words, line, length)) return no_memory(message, message_size);
    line += length + quoted;
  }
  return true;
}

/* The end of the alternative that begins at text: its ',' or '}', or NULL. */
static const char *alternative_end(const char *text) {
  size_t depth = 0;
  for (; *text; text++) {
    if (depth == 0 && (*text == ',' || *text == '}')) return text;
    if (*text == '{') depth++;
    if (*text == '}') depth--;
  }
  return NULL;
}

/* The '}' of the group whose first alternative begins at text, or NULL. */
static const char *group_end(const char *text) {
  const char *end = alternative_end(text);
  while (end && *end == ',') end = alternative_end(end + 1);
  return end;
}

/* groups: that the word has had already. */
static bool expand(sweep_words *words, const char *text, unsigned groups, char *message,
                   size_t message_size) {
  size_t before = strcspn(text, "{}");
  if (!text[before]) {
    if (words->count >= SWEEP_WORDS_LIMIT || words->bytes >= SWEEP_WORDS_BYTES)
      return complain(message, message_size, "the braces stand for more than a million words, or 64 MiB");
    return sweep_words_add(words, text, strlen(text)) || no_memory(message, message_size);
  }
  const char *first = text + before + 1, *close = text[before] == '{' ? group_end(first) : NULL;
  if (!close) {
    snprintf(message, message_size, "'%s': a '%c' without its partner", text, text[before]);
    return false;
  }
  if (groups == SWEEP_WORDS_GROUPS) {
    snprintf(message, message_size, "'%.80s': more than %d groups of braces in a word", text,
             SWEEP_WORDS_GROUPS);
    return false;
  }
  bool expanded = true;
  for (const char *begin = first; expanded && begin <= close;) {
    const char *end = alternative_end(begin);
    size_t length = (size_t)(end - begin);
    char *chosen = malloc(before + length + strlen(close));
    if (!chosen) return no_memory(message, message_size);
    memcpy(chosen, text, before);
    memcpy(chosen + before, begin, length);
    strcpy(chosen + before + length, close + 1);
    expanded = expand(words, chosen, groups + 1, message, message_size);
    free(chosen);
    begin = end + 1;
  }
  return expanded;
}

bool sweep_words_expand(sweep_words *words, const char *text, char *message, size_t message_size) {
  return expand(words, text, 0, message, message_size);
}

char *sweep_words_join(const sweep_words *words, size_t first) {
  size_t size = 1;
  for (size_t i = first; i < words->count; i++) size += strlen(words->items[i]) + 3;
  char *line = malloc(size), *end = line;
  for (size_t i = first; line && i < words->count; i++) {
    const char *word = words->items[i];
    if (strchr(word, '"')) {
      free(line);
      return NULL;
    }
    bool quoted = !*word || strpbrk(word, blanks) || *word == '#';
    end += sprintf(end, quoted ? "%s\"%s\"" : "%s%s", i > first ? " " : "", word);
  }
  return line;
}
