/* The policies that a command line names. */
#ifndef LAKEBED_HARNESS_POLICY_SPECS_H
#define LAKEBED_HARNESS_POLICY_SPECS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#include "policies/policy.h"

typedef struct policy_specs {
  policy_spec *items;
  size_t count;
} policy_specs;

/* Appends those of a list such as "bfc,gmlake:frag_limit=2MiB,chunk=4MiB,native"; the word "all" stands for
 * every policy. On failure says why. */
bool policy_specs_add_list(policy_specs *specs, const char *list, char *message, size_t message_size);
/* --policy=list: the same. Ends the program with a usage error, as argp does, when it is none. */
void policy_specs_parse(struct argp_state *state, policy_specs *specs, const char *list);
/* Appends every registered policy that has none of these capabilities, with its defaults. */
bool policy_specs_add_all(policy_specs *specs, unsigned without, char *message, size_t message_size);
void policy_specs_free(policy_specs *specs);

/* A word of a list continues the spec before it when it has a '=' and no ':' before that. Commas in
 * brackets are part of a value. Returns the length of the first spec of the list. */
size_t policy_specs_first_length(const char *list);

#endif
