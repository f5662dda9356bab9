/* lakebed trace generate serving: a language model that answers requests. */
#include "harness/command_trace_generate.h"
#include "harness/option_values.h"

enum {
  OPTION_EVERY = 0x200,
  OPTION_PROMPT,
  OPTION_OUTPUT,
  OPTION_CACHE,
  OPTION_BLOCK,
  OPTION_PRECISION,
  OPTION_SEED
};

static const struct argp_option option_table[] = {
    {NULL, 0, NULL, 0, "The requests:", 2},
    {"requests", 'n', "N", 0, "how many; default: 64", 2},
    {"batch", 'b', "N", 0, "the most that run at a time; default: 16", 2},
    {"every", OPTION_EVERY, "N", 0, "steps between arrivals, on average; default: 4", 2},
    {"prompt", OPTION_PROMPT, "LENGTH", 0,
     "tokens, as finetune's --sequence, one draw a request; default: lognormal:5,1:16-1024", 2},
    {"output", OPTION_OUTPUT, "LENGTH", 0, "tokens to compute; default: uniform:16-256", 2},
    {"cache", OPTION_CACHE, "growing|blocks", 0,
     "keys and values: a tensor of each a layer and request, copied into a larger one when full; or blocks "
     "of "
     "all layers; default: growing",
     2},
    {"block", OPTION_BLOCK, "N", 0, "tokens that a cache grows by; default: 64", 2},
    {"precision", OPTION_PRECISION, "bf16|fp16|fp32", 0, "default: bf16", 2},
    {"seed", OPTION_SEED, "N", 0, "default: 1", 2},
    {0},
};

typedef struct serving_options {
  generate_target target;
  generate_model_choice model;
  generate_serving_options serving;
} serving_options;

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  serving_options *options = state->input;
  generate_serving_options *serving = &options->serving;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->target;
      state->child_inputs[1] = &options->model;
      return 0;
    case 'n':
      serving->requests = (uint32_t)option_parse_count(state, "requests", argument, 1, 1000000);
      return 0;
    case 'b':
      serving->batch = (uint32_t)option_parse_count(state, "batch", argument, 1, 4096);
      return 0;
    case OPTION_EVERY:
      serving->every = (uint32_t)option_parse_count(state, "every", argument, 1, 1000000);
      return 0;
    case OPTION_PROMPT:
      generate_parse_sequence(state, "prompt", argument, &serving->prompt);
      return 0;
    case OPTION_OUTPUT:
      generate_parse_sequence(state, "output", argument, &serving->output);
      return 0;
    case OPTION_CACHE:
      serving->cache = (generate_cache)generate_parse_name(state, "cache", argument, generate_cache_names());
      return 0;
    case OPTION_BLOCK:
      serving->block = (uint32_t)option_parse_count(state, "block", argument, 1, 1 << 20);
      return 0;
    case OPTION_PRECISION:
      serving->precision = generate_parse_precision(state, argument);
      return 0;
    case OPTION_SEED:
      serving->seed = option_parse_count(state, "seed", argument, 0, UINT64_MAX);
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static trace_status call_generator(const void *options, generate_sink sink, trace_error *error) {
  return generate_serving(options, sink, error);
}

exit_status command_trace_generate_serving(int argc, char **argv) {
  serving_options options = {0};
  generate_serving_defaults(&options.serving);
  const struct argp_child children[] = {
      {&generate_target_parser, 0, NULL, 50}, {&generate_model_parser, 0, NULL, 1}, {0}};
  const struct argp parser = {option_table,
                              parse_option,
                              GENERATE_ARGUMENTS,
                              "Writes the trace of a language model that answers requests, in batches that "
                              "they join and leave, " GENERATE_OUTPUT_HELP,
                              children,
                              NULL,
                              NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status != EXIT_STATUS_DONE) return status;
  if (!generate_model_load(&options.model, &options.serving.model)) return EXIT_STATUS_USAGE;
  return generate_run(&options.target, call_generator, &options.serving);
}
