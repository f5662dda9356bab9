/* What the kinds of lakebed trace generate share. */
#ifndef LAKEBED_HARNESS_COMMAND_TRACE_GENERATE_H
#define LAKEBED_HARNESS_COMMAND_TRACE_GENERATE_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "harness/exit_status.h"
#include "workloads/generate.h"

/* Where a generated trace goes. Begins as {0}. */
typedef struct generate_target {
  const char *output; /* the command's one argument */
  trace_file_format format;
  bool quiet;
} generate_target;

/* argp child: --format, --quiet and the argument OUT. Input: a generate_target. */
extern const struct argp generate_target_parser;

typedef trace_status generate_call(const void *options, generate_sink sink, trace_error *error);

/* Writes what call emits, and says what it is. */
exit_status generate_run(const generate_target *target, generate_call *call, const void *options);

/* --option=text: the index in names (ended by NULL) of text; else a usage error with the nearest. */
unsigned generate_parse_name(struct argp_state *state, const char *option, const char *text,
                             const char *const *names);
/* Ends with a usage error that names option and text. */
void generate_parse_sequence(struct argp_state *state, const char *option, const char *text,
                             generate_sequence *sequence);

exit_status command_trace_generate_finetune(int argc, char **argv);

#endif
