#include <string.h>

#include "workloads/generate.h"

static const generate_model catalogue[] = {
    {.name = "opt-1.3b",
     .family = GENERATE_OPT,
     .hidden = 2048,
     .layers = 24,
     .heads = 32,
     .key_value_heads = 32,
     .head_size = 64,
     .ffn = 8192,
     .vocabulary = 50272,
     .positions = 2050,
     .tied_embeddings = true,
     .dropout = true},
    {.name = "opt-13b",
     .family = GENERATE_OPT,
     .hidden = 5120,
     .layers = 40,
     .heads = 40,
     .key_value_heads = 40,
     .head_size = 128,
     .ffn = 20480,
     .vocabulary = 50272,
     .positions = 2050,
     .tied_embeddings = true,
     .dropout = true},
    {.name = "gpt2-xl",
     .family = GENERATE_GPT2,
     .hidden = 1600,
     .layers = 48,
     .heads = 25,
     .key_value_heads = 25,
     .head_size = 64,
     .ffn = 6400,
     .vocabulary = 50257,
     .positions = 1024,
     .tied_embeddings = true,
     .dropout = true},
    {.name = "glm-10b",
     .family = GENERATE_GLM,
     .hidden = 4096,
     .layers = 48,
     .heads = 32,
     .key_value_heads = 2,
     .head_size = 128,
     .ffn = 13696,
     .vocabulary = 50304,
     .rotary_size = 64},
    {.name = "vicuna-13b",
     .family = GENERATE_LLAMA,
     .hidden = 5120,
     .layers = 40,
     .heads = 40,
     .key_value_heads = 40,
     .head_size = 128,
     .ffn = 13824,
     .vocabulary = 32000,
     .rotary_size = 128},
    {.name = "gpt-neox-20b",
     .family = GENERATE_NEOX,
     .hidden = 6144,
     .layers = 44,
     .heads = 64,
     .key_value_heads = 64,
     .head_size = 96,
     .ffn = 24576,
     .vocabulary = 50432,
     .rotary_size = 24},
};

enum { MODELS = sizeof catalogue / sizeof *catalogue };

const generate_model *generate_model_find(const char *name) {
  for (size_t i = 0; i < MODELS; i++)
    if (strcmp(catalogue[i].name, name) == 0) return &catalogue[i];
  return NULL;
}

const char *const *generate_model_names(void) {
  static const char *const names[] = {"opt-1.3b",   "opt-13b",      "gpt2-xl", "glm-10b",
                                      "vicuna-13b", "gpt-neox-20b", NULL};
  return names;
}

const char *const *generate_family_names(void) {
  static const char *const names[] = {
      [GENERATE_OPT] = "opt",     [GENERATE_GPT2] = "gpt2", [GENERATE_NEOX] = "neox",
      [GENERATE_LLAMA] = "llama", [GENERATE_GLM] = "glm",   NULL};
  return names;
}

void generate_model_describe(generate_model *model, generate_family family, uint32_t hidden, uint32_t layers,
                             uint32_t heads, uint32_t ffn, uint32_t vocabulary) {
  static const uint32_t positions[] = {[GENERATE_OPT] = 2050, [GENERATE_GPT2] = 1024, [GENERATE_GLM] = 0};
  *model = (generate_model){.family = family,
                            .hidden = hidden,
                            .layers = layers,
                            .heads = heads,
                            .key_value_heads = heads,
                            .head_size = heads ? hidden / heads : 0,
                            .ffn = ffn,
                            .vocabulary = vocabulary,
                            .positions = positions[family],
                            .tied_embeddings = family == GENERATE_OPT || family == GENERATE_GPT2,
                            .dropout = family == GENERATE_OPT || family == GENERATE_GPT2};
  strcpy(model->name, "decoder");
  /* A quarter of each head in GPT-NeoX, half in GLM, all in LLaMA; whole pairs. */
  if (family == GENERATE_NEOX) model->rotary_size = model->head_size / 4 / 2 * 2;
  if (family == GENERATE_GLM) model->rotary_size = model->head_size / 2 / 2 * 2;
  if (family == GENERATE_LLAMA) model->rotary_size = model->head_size;
}

uint64_t generate_model_parameters(const generate_model *model) {
  uint64_t hidden = model->hidden, ffn = model->ffn;
  uint64_t query = (uint64_t)model->heads * model->head_size;
  uint64_t key = (uint64_t)model->key_value_heads * model->head_size;
  bool biased = model->family <= GENERATE_NEOX;
  uint64_t norm = biased ? 2 * hidden : hidden;
  uint64_t attention = hidden * (query + 2 * key) + query * hidden;
  if (biased || model->family == GENERATE_GLM) attention += query + 2 * key;
  if (biased) attention += hidden;
  uint64_t forward = biased ? 2 * hidden * ffn + ffn + hidden : 3 * hidden * ffn;
  uint64_t tables = (uint64_t)model->vocabulary * hidden * (model->tied_embeddings ? 1 : 2) +
                    (uint64_t)model->positions * hidden;
  return tables + norm + model->layers * (attention + forward + 2 * norm);
}
