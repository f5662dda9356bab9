/* The options of lakebed trace generate that describe a model. */
#include <stdio.h>

#include "harness/command_trace_generate.h"
#include "harness/option_values.h"
#include "harness/program.h"

enum {
  OPTION_CONFIG = 0x300,
  OPTION_FAMILY,
  OPTION_WIDTH,
  OPTION_LAYERS,
  OPTION_HEADS,
  OPTION_KEY_VALUE_HEADS,
  OPTION_FFN,
  OPTION_VOCABULARY
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
    {0},
};

static uint32_t parse_number(struct argp_state *state, const char *option, const char *text) {
  return (uint32_t)option_parse_count(state, option, text, 1, 1 << 24);
}

static bool is_own(const generate_model_choice *choice) {
  return choice->hidden || choice->layers || choice->heads || choice->key_value_heads || choice->ffn ||
         choice->vocabulary || choice->has_family;
}

static void check_choice(const generate_model_choice *choice, struct argp_state *state) {
  if (is_own(choice) + (choice->model != NULL) + (choice->config != NULL) > 1)
    argp_error(state, "one model: --model, --config, or a decoder of your own");
  if (choice->model) generate_parse_name(state, "model", choice->model, generate_model_names());
  if (!is_own(choice)) return;
  if (!choice->hidden || !choice->layers || !choice->heads)
    argp_error(state, "a decoder of your own needs --hidden, --layers and --heads");
  if (choice->hidden % choice->heads != 0)
    argp_error(state, "--heads=%u: does not divide the width %u", choice->heads, choice->hidden);
  if (choice->key_value_heads && choice->heads % choice->key_value_heads != 0)
    argp_error(state, "--kv-heads=%u: does not divide %u heads", choice->key_value_heads, choice->heads);
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  generate_model_choice *choice = state->input;
  switch (key) {
    case 'm':
      choice->model = argument;
      return 0;
    case OPTION_CONFIG:
      choice->config = argument;
      return 0;
    case OPTION_FAMILY:
      choice->family =
          (generate_family)generate_parse_name(state, "family", argument, generate_family_names());
      choice->has_family = true;
      return 0;
    case OPTION_WIDTH:
      choice->hidden = parse_number(state, "hidden", argument);
      return 0;
    case OPTION_LAYERS:
      choice->layers = parse_number(state, "layers", argument);
      return 0;
    case OPTION_HEADS:
      choice->heads = parse_number(state, "heads", argument);
      return 0;
    case OPTION_KEY_VALUE_HEADS:
      choice->key_value_heads = parse_number(state, "kv-heads", argument);
      return 0;
    case OPTION_FFN:
      choice->ffn = parse_number(state, "ffn", argument);
      return 0;
    case OPTION_VOCABULARY:
      choice->vocabulary = parse_number(state, "vocab", argument);
      return 0;
    case ARGP_KEY_END:
      check_choice(choice, state);
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

const struct argp generate_model_parser = {option_table, parse_option, NULL, NULL, NULL, NULL, NULL};

bool generate_model_load(const generate_model_choice *choice, generate_model *model) {
  trace_error error;
  if (choice->config) {
    if (generate_model_read(choice->config, model, &error) == TRACE_OK) return true;
    program_complain("%s", error.message);
    return false;
  }
  if (choice->model) *model = *generate_model_find(choice->model);
  if (!is_own(choice)) return true;
  generate_model_describe(model, choice->has_family ? choice->family : GENERATE_LLAMA, choice->hidden,
                          choice->layers, choice->heads, choice->ffn ? choice->ffn : 4 * choice->hidden,
                          choice->vocabulary ? choice->vocabulary : 32000);
  if (choice->key_value_heads) model->key_value_heads = choice->key_value_heads;
  return true;
}

generate_precision generate_parse_precision(struct argp_state *state, const char *text) {
  static const char *const names[] = {
      [GENERATE_BF16] = "bf16", [GENERATE_FP16] = "fp16", [GENERATE_FP32] = "fp32", NULL};
  return (generate_precision)generate_parse_name(state, "precision", text, names);
}
