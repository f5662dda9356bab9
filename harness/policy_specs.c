#include "harness/policy_specs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/exit_status.h"

size_t policy_specs_first_length(const char *list) {
  size_t length = 0;
  while (true) {
    int depth = 0;
    for (; list[length] && (list[length] != ',' || depth > 0); length++) {
      if (list[length] == '[') depth++;
      if (list[length] == ']' && depth > 0) depth--;
    }
    if (!list[length]) return length;
    const char *next = list + length + 1;
    if (next[strcspn(next, "=:,")] != '=') return length;
    length++;
  }
}

static bool add_spec(policy_specs *specs, const char *text, char *message, size_t message_size) {
  policy_spec *items = realloc(specs->items, (specs->count + 1) * sizeof *items);
  if (!items) {
    snprintf(message, message_size, "no memory for the policies");
    return false;
  }
  specs->items = items;
  if (policy_spec_parse(text, &items[specs->count], message, message_size) != VMM_SUCCESS) return false;
  specs->count++;
  return true;
}

void policy_specs_parse(struct argp_state *state, policy_specs *specs, const char *list) {
  char message[1024];
  if (!policy_specs_add_list(specs, list, message, sizeof message)) {
    argp_failure(state, EXIT_STATUS_USAGE, 0, "%s", message);
  }
}

bool policy_specs_add_all(policy_specs *specs, unsigned without, char *message, size_t message_size) {
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    if ((*class)->capabilities & without) continue;
    if (!add_spec(specs, (*class)->name, message, message_size)) return false;
  }
  return true;
}

bool policy_specs_add_list(policy_specs *specs, const char *list, char *message, size_t message_size) {
  const char *whole = list;
  while (true) {
    size_t length = policy_specs_first_length(list);
    if (length == 0) {
      snprintf(message, message_size, "%s'%s': a policy is expected %s",
               *whole ? "the list of policies " : "", whole,
               list == whole  ? "at its beginning"
               : list[length] ? "between two commas"
                              : "after the last comma");
      return false;
    }
    char *text = strndup(list, length);
    if (!text) {
      snprintf(message, message_size, "no memory for the policies");
      return false;
    }
    bool added = strcmp(text, "all") == 0 ? policy_specs_add_all(specs, 0, message, message_size)
                                          : add_spec(specs, text, message, message_size);
    free(text);
    if (!added) return false;
    if (!list[length]) return true;
    list += length + 1;
  }
}

void policy_specs_free(policy_specs *specs) {
  free(specs->items);
  *specs = (policy_specs){0};
}
