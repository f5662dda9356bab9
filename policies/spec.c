/* Parsing "name[:key=value,...]". */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "policies/policy.h"

enum { WORD_LIMIT = 64 };

static size_t least(size_t a, size_t b, size_t c) {
  size_t smaller = a < b ? a : b;
  return smaller < c ? smaller : c;
}

/* Levenshtein distance of the first WORD_LIMIT characters. */
static size_t edit_distance(const char *left, const char *right) {
  size_t row[WORD_LIMIT + 1];
  size_t right_length = strnlen(right, WORD_LIMIT), left_length = strnlen(left, WORD_LIMIT);
  for (size_t j = 0; j <= right_length; j++) row[j] = j;
  for (size_t i = 1; i <= left_length; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= right_length; j++) {
      size_t above = row[j];
      row[j] = least(row[j] + 1, row[j - 1] + 1, diagonal + (left[i - 1] != right[j - 1]));
      diagonal = above;
    }
  }
  return row[right_length];
}

const char *policy_nearest_word(const char *misspelt, const char *const *words) {
  size_t nearest_distance = strnlen(misspelt, WORD_LIMIT) / 3 + 2;
  const char *nearest = NULL;
  for (; *words; words++) {
    size_t distance = edit_distance(misspelt, *words);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = *words;
    }
  }
  return nearest;
}

bool policy_parse_size(const char *text, uint64_t *bytes) {
  if (strcmp(text, "unlimited") == 0) {
    *bytes = UINT64_MAX;
    return true;
  }
  if (text[0] < '0' || text[0] > '9') return false;
  char *end;
  errno = 0;
  uint64_t whole = strtoull(text, &end, 10);
  if (errno != 0) return false;
  double fraction = 0;
  if (*end == '.') {
    size_t digits = strspn(end + 1, "0123456789");
    if (digits == 0) return false;
    fraction = strtod(end, NULL);
    if (fraction >= 1) return false;
    end += 1 + digits;
  }
  static const struct {
    const char *suffix;
    unsigned shift;
  } suffixes[] = {{"", 0},     {"B", 0},  {"K", 10},  {"KB", 10},  {"KiB", 10}, {"M", 20},  {"MB", 20},
                  {"MiB", 20}, {"G", 30}, {"GB", 30}, {"GiB", 30}, {"T", 40},   {"TB", 40}, {"TiB", 40}};
  while (*end == ' ') end++;
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    if (strcasecmp(end, suffixes[i].suffix) != 0) continue;
    unsigned shift = suffixes[i].shift;
    if (whole > UINT64_MAX >> shift || (fraction > 0 && shift == 0)) return false;
    uint64_t high = whole << shift, low = (uint64_t)(fraction * (double)(UINT64_C(1) << shift));
    if (high > UINT64_MAX - low) return false;
    *bytes = high + low;
    return true;
  }
  return false;
}

typedef struct parse {
  char *message;
  size_t message_size;
} parse;

static vmm_status refuse(const parse *state, const char *format, ...) __attribute__((format(printf, 2, 3)));
static vmm_status refuse(const parse *state, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(state->message, state->message_size, format, arguments);
  va_end(arguments);
  return VMM_INVALID_VALUE;
}

/* "a, b, c (did you mean b?)" */
static void list_words(const char *misspelt, const char *const *words, char *text, size_t text_size) {
  size_t used = 0;
  text[0] = '\0';
  for (const char *const *word = words; *word && used < text_size; word++) {
    used += (size_t)snprintf(text + used, text_size - used, "%s%s", word == words ? "" : ", ", *word);
  }
  const char *nearest = policy_nearest_word(misspelt, words);
  if (nearest && used < text_size) snprintf(text + used, text_size - used, " (did you mean %s?)", nearest);
}

static bool parse_boolean(const char *text, uint64_t *value) {
  static const char *const words[] = {"false", "true", "0", "1", "off", "on", "no", "yes"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcasecmp(text, words[i]) == 0) {
      *value = i % 2;
      return true;
    }
  }
  return false;
}

static bool parse_choice(const char *choices, const char *text, uint64_t *index) {
  size_t length = strlen(text);
  *index = 0;
  for (const char *word = choices; *word; (*index)++) {
    size_t word_length = strcspn(word, "|");
    if (word_length == length && strncmp(word, text, length) == 0) return true;
    word += word_length + (word[word_length] == '|');
  }
  return false;
}

static bool parse_number(const policy_option *option, const char *text, policy_value *value) {
  switch (option->type) {
    case POLICY_OPTION_SIZE:
      return policy_parse_size(text, &value->integer);
    case POLICY_OPTION_INTEGER: {
      if (strcmp(text, "unlimited") == 0) {
        value->integer = UINT64_MAX;
        return true;
      }
      char *end;
      errno = 0;
      value->integer = strtoull(text, &end, 10);
      return text[0] >= '0' && text[0] <= '9' && errno == 0 && *end == '\0';
    }
    case POLICY_OPTION_REAL: {
      char *end;
      errno = 0;
      value->real = strtod(text, &end);
      return text[0] != '\0' && errno == 0 && *end == '\0' && isfinite(value->real);
    }
    case POLICY_OPTION_BOOLEAN:
      return parse_boolean(text, &value->integer);
    case POLICY_OPTION_CHOICE:
      return parse_choice(option->choices, text, &value->integer);
    case POLICY_OPTION_TEXT:
      return true;
  }
  return false;
}

static const char *type_text(const policy_option *option) {
  switch (option->type) {
    case POLICY_OPTION_SIZE:
      return "a size such as 2MiB, 1.5GiB or unlimited";
    case POLICY_OPTION_INTEGER:
      return "a whole number or unlimited";
    case POLICY_OPTION_REAL:
      return "a number";
    case POLICY_OPTION_BOOLEAN:
      return "true or false";
    case POLICY_OPTION_CHOICE:
      return option->choices;
    case POLICY_OPTION_TEXT:
      break;
  }
  return "text";
}

static vmm_status parse_value(const parse *state, const char *policy_name, const policy_option *option,
                              const char *text, policy_value *value) {
  *value = (policy_value){0};
  if (strlen(text) >= sizeof value->text) {
    return refuse(state, "policy %s: the value of %s is longer than %zu characters", policy_name,
                  option->name, sizeof value->text - 1);
  }
  strcpy(value->text, text);
  if ((text[0] == '\0' && option->type != POLICY_OPTION_TEXT) || !parse_number(option, text, value)) {
    return refuse(state, "policy %s: %s=%s: expected %s", policy_name, option->name, text, type_text(option));
  }
  bool numeric = option->type == POLICY_OPTION_SIZE || option->type == POLICY_OPTION_INTEGER;
  double number = numeric ? (double)value->integer : value->real;
  bool bounded =
      (option->minimum != 0 || option->maximum != 0) && (numeric || option->type == POLICY_OPTION_REAL);
  /* Past every maximum, unless it is what the option begins with. */
  bool unlimited = strcmp(text, "unlimited") == 0 && strcmp(option->default_value, "unlimited") == 0;
  if (bounded && !unlimited && (number < option->minimum || number > option->maximum)) {
    if (option->type == POLICY_OPTION_SIZE && option->minimum == POLICY_GRANULARITY) {
      return refuse(state, "policy %s: %s=%s is out of range: it is a multiple of the device's granularity",
                    policy_name, option->name, text);
    }
    return refuse(state, "policy %s: %s=%s is out of range: %.12g to %.12g %s", policy_name, option->name,
                  text, option->minimum, option->maximum, option->unit ? option->unit : "");
  }
  return VMM_SUCCESS;
}

/* The end of one key=value: the next comma outside brackets. */
static const char *item_end(const char *text) {
  int depth = 0;
  for (; *text && (*text != ',' || depth > 0); text++) {
    if (*text == '[') depth++;
    if (*text == ']' && depth > 0) depth--;
  }
  return text;
}

static vmm_status parse_item(const parse *state, policy_spec *spec, const char *item, bool *seen) {
  const char *name = spec->class->name;
  char key[WORD_LIMIT];
  size_t key_length = strcspn(item, "=");
  snprintf(key, sizeof key, "%.*s", (int)(key_length < sizeof key ? key_length : sizeof key - 1), item);
  const char *words[POLICY_OPTIONS_LIMIT + 1] = {NULL};
  size_t count = 0;
  for (const policy_option *option = spec->class->options; option && option->name; option++, count++) {
    words[count] = option->name;
    if (strcmp(option->name, key) != 0) continue;
    if (item[key_length] != '=')
      return refuse(state, "policy %s: '%s' lacks its value: write %s=VALUE", name, key, key);
    if (seen[count]) return refuse(state, "policy %s: %s is given twice", name, key);
    seen[count] = true;
    return parse_value(state, name, option, item + key_length + 1, &spec->values[count]);
  }
  if (count == 0) return refuse(state, "policy %s has no option '%s': it has none at all", name, key);
  char valid[512];
  list_words(key, words, valid, sizeof valid);
  return refuse(state, "policy %s has no option '%s'; it has: %s", name, key, valid);
}

vmm_status policy_spec_parse(const char *text, policy_spec *spec, char *message, size_t message_size) {
  const parse state = {message, message_size};
  memset(spec, 0, sizeof *spec);
  if (strlen(text) >= sizeof spec->text) {
    return refuse(&state, "a policy spec is at most %zu characters long", sizeof spec->text - 1);
  }
  strcpy(spec->text, text);
  char name[WORD_LIMIT];
  size_t name_length = strcspn(text, ":");
  snprintf(name, sizeof name, "%.*s", (int)(name_length < sizeof name ? name_length : sizeof name - 1), text);
  spec->class = policy_find(name);
  if (!spec->class) {
    const char *words[WORD_LIMIT] = {NULL};
    char valid[512];
    for (size_t i = 0; policy_list()[i] && i + 1 < WORD_LIMIT; i++) words[i] = policy_list()[i]->name;
    list_words(name, words, valid, sizeof valid);
    return refuse(&state, "there is no policy '%s'; there are: %s", name, valid);
  }
  size_t count = 0;
  for (const policy_option *option = spec->class->options; option && option->name; option++, count++) {
    vmm_status status = parse_value(&state, name, option, option->default_value, &spec->values[count]);
    if (status != VMM_SUCCESS) return status;
  }
  bool seen[POLICY_OPTIONS_LIMIT] = {false};
  const char *item = text + name_length;
  if (*item == ':' && item[1] == '\0')
    return refuse(&state, "policy %s: an option is expected after ':'", name);
  while (*item) {
    const char *end = item_end(++item);
    char one[sizeof spec->text];
    snprintf(one, sizeof one, "%.*s", (int)(end - item), item);
    vmm_status status = parse_item(&state, spec, one, seen);
    if (status != VMM_SUCCESS) return status;
    item = end;
  }
  return VMM_SUCCESS;
}
