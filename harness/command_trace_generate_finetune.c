/* lakebed trace generate finetune: the event stream of fine-tuning a language model. */
#include "harness/command_trace_generate.h"
#include "harness/option_values.h"

enum { OPTION_PRECISION = 0x200, OPTION_LORA_RANK, OPTION_PLATFORM, OPTION_SEED };

static const struct argp_option option_table[] = {
    {NULL, 0, NULL, 0, "The training:", 2},
    {"batch", 'b', "N", 0, "sequences a rank and iteration; default: 8", 2},
    {"sequence", 's', "LENGTH", 0,
     "tokens a sequence: N; a list N,N,..., an entry an iteration; uniform:LOW-HIGH; or "
     "lognormal:MEAN,DEVIATION:LOW-HIGH, the longest of the batch; default: 512",
     2},
    {"precision", OPTION_PRECISION, "bf16|fp16|fp32", 0, "of weights and activations; default: bf16", 2},
    {"strategy", 'S', "LETTERS", 0,
     "N, or any of L (LoRA adapters), R (recomputation of activations), O (offload to the host); default: N",
     2},
    {"lora-rank", OPTION_LORA_RANK, "N", 0, "of the adapters; default: 16", 2},
    {"world", 'w', "N", 0, "ranks that share the model; the trace is that of rank 0; default: 1", 2},
    {"platform", OPTION_PLATFORM, "fsdp|deepspeed|colossalai", 0,
     "who shards: PyTorch's FSDP (with one rank: nobody), DeepSpeed ZeRO-3, Colossal-AI's Gemini; default: "
     "fsdp",
     2},
    {"iterations", 'i', "N", 0, "default: 6", 2},
    {"seed", OPTION_SEED, "N", 0, "of a distribution of lengths; default: 1", 2},
    {0},
};

typedef struct finetune_options {
  generate_target target;
  generate_model_choice model;
  generate_finetune_options finetune;
} finetune_options;

static uint32_t parse_number(struct argp_state *state, const char *option, const char *text) {
  return (uint32_t)option_parse_count(state, option, text, 1, 1 << 24);
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  static const char *const platforms[] = {[GENERATE_FSDP] = "fsdp",
                                          [GENERATE_DEEPSPEED] = "deepspeed",
                                          [GENERATE_COLOSSALAI] = "colossalai",
                                          NULL};
  finetune_options *options = state->input;
  generate_finetune_options *finetune = &options->finetune;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->model;
      state->child_inputs[1] = &options->target;
      return 0;
    case 'b':
      finetune->batch = parse_number(state, "batch", argument);
      return 0;
    case 's':
      generate_parse_sequence(state, "sequence", argument, &finetune->sequence);
      return 0;
    case OPTION_PRECISION:
      finetune->precision = generate_parse_precision(state, argument);
      return 0;
    case 'S':
      if (!generate_strategy_parse(argument, finetune))
        argp_error(state, "--strategy=%s: expected N, or some of the letters L, R and O", argument);
      return 0;
    case OPTION_LORA_RANK:
      finetune->lora_rank = parse_number(state, "lora-rank", argument);
      return 0;
    case 'w':
      finetune->world = parse_number(state, "world", argument);
      return 0;
    case OPTION_PLATFORM:
      finetune->platform = (generate_platform)generate_parse_name(state, "platform", argument, platforms);
      return 0;
    case 'i':
      finetune->iterations = parse_number(state, "iterations", argument);
      return 0;
    case OPTION_SEED:
      finetune->seed = option_parse_count(state, "seed", argument, 0, UINT64_MAX);
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static trace_status call_generator(const void *options, generate_sink sink, trace_error *error) {
  return generate_finetune(options, sink, error);
}

exit_status command_trace_generate_finetune(int argc, char **argv) {
  finetune_options options = {0};
  generate_finetune_defaults(&options.finetune);
  const struct argp_child children[] = {
      {&generate_model_parser, 0, NULL, 1}, {&generate_target_parser, 0, NULL, 50}, {0}};
  const struct argp parser = {option_table,
                              parse_option,
                              GENERATE_ARGUMENTS,
                              "Writes the trace of fine-tuning a language model " GENERATE_OUTPUT_HELP,
                              children,
                              NULL,
                              NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status != EXIT_STATUS_DONE) return status;
  if (!generate_model_load(&options.model, &options.finetune.model)) return EXIT_STATUS_USAGE;
  return generate_run(&options.target, call_generator, &options.finetune);
}
