/* lakebed trace generate finetune: the event stream of fine-tuning a language model. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_trace_generate.h"
#include "harness/option_values.h"
#include "harness/program.h"

enum {
  OPTION_CONFIG = 0x200,
  OPTION_FAMILY,
  OPTION_WIDTH,
  OPTION_LAYERS,
  OPTION_HEADS,
  OPTION_KEY_VALUE_HEADS,
  OPTION_FFN,
  OPTION_VOCABULARY,
  OPTION_PRECISION,
  OPTION_LORA_RANK,
  OPTION_PLATFORM,
  OPTION_SEED
};

static const struct argp_option option_table[] = {
    {NULL, 0, NULL, 0, "The model:", 1},
    {"model", 'm', "NAME", 0, "opt-1.3b (the default), opt-13b, gpt2-xl, glm-10b, vicuna-13b or gpt-neox-20b",
     1},
    {"config", OPTION_CONFIG, "FILE", 0,
     "a Hugging Face config.json of a decoder: model_type opt, gpt2, gpt_neox, llama, mistral, qwen2 or glm",
     1},
    {"family", OPTION_FAMILY, "NAME", 0,
     "how the blocks of a decoder of your own are wired: opt, gpt2, neox, llama (the default) or glm", 1},
    {"hidden", OPTION_WIDTH, "N", 0, "a decoder of your own: width; with --layers and --heads", 1},
    {"layers", OPTION_LAYERS, "N", 0, "blocks", 1},
    {"heads", OPTION_HEADS, "N", 0, "heads of attention, a divisor of the width", 1},
    {"kv-heads", OPTION_KEY_VALUE_HEADS, "N", 0, "heads of keys and values; default: as many as heads", 1},
    {"ffn", OPTION_FFN, "N", 0, "width of the feed-forward; default: 4 times the model's", 1},
    {"vocab", OPTION_VOCABULARY, "N", 0, "vocabulary; default: 32000", 1},
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
    {NULL, 0, NULL, 0, "The output:", 50},
    {0},
};

typedef struct finetune_options {
  generate_target target;
  generate_finetune_options finetune;
  const char *model, *config;
  uint32_t hidden, layers, heads, key_value_heads, ffn, vocabulary; /* 0: not given */
  bool has_family;
  generate_family family;
} finetune_options;

static uint32_t parse_number(struct argp_state *state, const char *option, const char *text) {
  return (uint32_t)option_parse_count(state, option, text, 1, 1 << 24);
}

static void choose_own(finetune_options *options, struct argp_state *state) {
  if (!options->hidden || !options->layers || !options->heads)
    argp_error(state, "a decoder of your own needs --hidden, --layers and --heads");
  if (options->hidden % options->heads != 0)
    argp_error(state, "--heads=%u: does not divide the width %u", options->heads, options->hidden);
  generate_model_describe(&options->finetune.model, options->has_family ? options->family : GENERATE_LLAMA,
                          options->hidden, options->layers, options->heads,
                          options->ffn ? options->ffn : 4 * options->hidden,
                          options->vocabulary ? options->vocabulary : 32000);
  if (!options->key_value_heads) return;
  if (options->heads % options->key_value_heads != 0)
    argp_error(state, "--kv-heads=%u: does not divide %u heads", options->key_value_heads, options->heads);
  options->finetune.model.key_value_heads = options->key_value_heads;
}

static void choose_model(finetune_options *options, struct argp_state *state) {
  bool own = options->hidden || options->layers || options->heads || options->key_value_heads ||
             options->ffn || options->vocabulary || options->has_family;
  if (own + (options->model != NULL) + (options->config != NULL) > 1)
    argp_error(state, "one model: --model, --config, or a decoder of your own");
  if (own) choose_own(options, state);
  if (options->model) {
    generate_parse_name(state, "model", options->model, generate_model_names());
    const generate_model *found = generate_model_find(options->model);
    if (found) options->finetune.model = *found;
  }
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  static const char *const precisions[] = {
      [GENERATE_BF16] = "bf16", [GENERATE_FP16] = "fp16", [GENERATE_FP32] = "fp32", NULL};
  static const char *const platforms[] = {[GENERATE_FSDP] = "fsdp",
                                          [GENERATE_DEEPSPEED] = "deepspeed",
                                          [GENERATE_COLOSSALAI] = "colossalai",
                                          NULL};
  finetune_options *options = state->input;
  generate_finetune_options *finetune = &options->finetune;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->target;
      return 0;
    case 'm':
      options->model = argument;
      return 0;
    case OPTION_CONFIG:
      options->config = argument;
      return 0;
    case OPTION_FAMILY:
      options->family =
          (generate_family)generate_parse_name(state, "family", argument, generate_family_names());
      options->has_family = true;
      return 0;
    case OPTION_WIDTH:
      options->hidden = parse_number(state, "hidden", argument);
      return 0;
    case OPTION_LAYERS:
      options->layers = parse_number(state, "layers", argument);
      return 0;
    case OPTION_HEADS:
      options->heads = parse_number(state, "heads", argument);
      return 0;
    case OPTION_KEY_VALUE_HEADS:
      options->key_value_heads = parse_number(state, "kv-heads", argument);
      return 0;
    case OPTION_FFN:
      options->ffn = parse_number(state, "ffn", argument);
      return 0;
    case OPTION_VOCABULARY:
      options->vocabulary = parse_number(state, "vocab", argument);
      return 0;
    case 'b':
      finetune->batch = parse_number(state, "batch", argument);
      return 0;
    case 's':
      generate_parse_sequence(state, "sequence", argument, &finetune->sequence);
      return 0;
    case OPTION_PRECISION:
      finetune->precision = (generate_precision)generate_parse_name(state, "precision", argument, precisions);
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
    case ARGP_KEY_END:
      choose_model(options, state);
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
  const struct argp_child children[] = {{&generate_target_parser, 0, NULL, 50}, {0}};
  const struct argp parser = {
      option_table,
      parse_option,
      "OUT",
      "Writes the trace of fine-tuning a language model to OUT (- is standard output; .xz, .gz and .zst are "
      "compressed). The same options give the same bytes.",
      children,
      NULL,
      NULL};
  error_t failure = argp_parse(&parser, argc, argv, 0, NULL, &options);
  if (failure != 0) {
    program_complain("the command line cannot be read: %s", strerror(failure));
    return EXIT_STATUS_USAGE;
  }
  trace_error error;
  if (options.config && generate_model_read(options.config, &options.finetune.model, &error) != TRACE_OK) {
    program_complain("%s", error.message);
    return EXIT_STATUS_USAGE;
  }
  return generate_run(&options.target, call_generator, &options.finetune);
}
