/* What the kinds of lakebed trace generate share. */
#ifndef LAKEBED_HARNESS_COMMAND_TRACE_GENERATE_H
#define LAKEBED_HARNESS_COMMAND_TRACE_GENERATE_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "harness/exit_status.h"
#include "workloads/generate.h"
#include "workloads/trace_writer.h"

/* Where a generated trace goes. Begins as {0}. */
typedef struct generate_target {
  const char *output; /* the command's one argument */
  trace_file_format format;
  bool quiet;
} generate_target;

/* argp child: --format, --quiet and the argument OUT. Input: a generate_target. */
extern const struct argp generate_target_parser;
#define GENERATE_ARGUMENTS "OUT"
/* For the end of a kind's description. */
#define GENERATE_OUTPUT_HELP \
  "to OUT (- is standard output; .xz, .gz and .zst are compressed). The same options give the same bytes."

typedef trace_status generate_call(const void *options, generate_sink sink, trace_error *error);

/* Writes what call emits, and says what it is. */
exit_status generate_run(const generate_target *target, generate_call *call, const void *options);

/* --option=text: the index in names (ended by NULL) of text; else a usage error with the nearest. */
unsigned generate_parse_name(struct argp_state *state, const char *option, const char *text,
                             const char *const *names);
/* Ends with a usage error that names option and text. */
void generate_parse_sequence(struct argp_state *state, const char *option, const char *text,
                             generate_sequence *sequence);

/* The options that describe a model, which finetune and serving share. Begins as {0}. */
typedef struct generate_model_choice {
  const char *model, *config;
  uint32_t hidden, layers, heads, key_value_heads, ffn, vocabulary; /* 0: not given */
  bool has_family;
  generate_family family;
} generate_model_choice;

/* argp child: --model, --config and the sizes of a decoder of one's own. Input: a generate_model_choice. */
extern const struct argp generate_model_parser;
/* The model that was chosen, after parsing; *model stays as it is where none was. False: says why. */
bool generate_model_load(const generate_model_choice *choice, generate_model *model);
/* --precision=text */
generate_precision generate_parse_precision(struct argp_state *state, const char *text);

exit_status command_trace_generate_finetune(int argc, char **argv);
exit_status command_trace_generate_random(int argc, char **argv);
exit_status command_trace_generate_adversarial(int argc, char **argv);
exit_status command_trace_generate_serving(int argc, char **argv);

#endif
