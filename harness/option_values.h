/* Values of options that several commands have. The parse_ functions end the program with a usage error,
 * as argp does, when a value is none. */
#ifndef LAKEBED_HARNESS_OPTION_VALUES_H
#define LAKEBED_HARNESS_OPTION_VALUES_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/exit_status.h"

/* --option=text: "80GiB", "512MiB" or a number of bytes, more than 0. */
uint64_t option_parse_size(struct argp_state *state, const char *option, const char *text);
/* --option=text: a whole number from least to most. */
uint64_t option_parse_count(struct argp_state *state, const char *option, const char *text, uint64_t least,
                            uint64_t most);
/* --frees=text: completed (false) or requested (true). */
bool option_parse_frees(struct argp_state *state, const char *text);
/* "40GiB" and such gives bytes and a fraction of 0; "0.5" or "50%" the fraction, above 0 and at most 1, and 0
 * bytes. A plain number is bytes. false: it is neither. */
bool option_read_share(const char *text, uint64_t *bytes, double *fraction);
/* What it expects, for messages. */
#define OPTION_SHARE                                                                                     \
  "a size such as 40GiB or a number of bytes, or a fraction of the device's memory above 0 and at most " \
  "1.0, such as 0.5 or 50%%"
/* --option=text: the same. */
void option_parse_share(struct argp_state *state, const char *option, const char *text, uint64_t *bytes,
                        double *fraction);

/* --option=text: "K/N", the K-th of N parts, both from 1 and N at most most. *number: K. Returns N. */
uint64_t option_parse_part(struct argp_state *state, const char *option, const char *text, uint64_t most,
                           uint64_t *number);

/* Reads the command line with the parser into input. *command, unless command is NULL, gets it as one line,
 * to be freed by the caller in any case. Ends the program where the usage is wrong, as argp does; where it
 * cannot be read for another reason, says why and returns that status. */
exit_status option_read_command(const struct argp *parser, int argc, char **argv, void *input,
                                char **command);

enum { OPTION_DATE_TEXT = 32 };
/* "2025-01-31T12:00:00Z": now. */
void option_date(char text[OPTION_DATE_TEXT]);

#endif
