/* Hugging Face's config.json of a decoder. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "workloads/failure.h"
#include "workloads/generate.h"

typedef struct config {
  const char *path;
  const json_t *root;
  trace_error *error;
  trace_status status;
} config;

/* Of the first key that is there. required: none is a failure; otherwise, and after a failure, `missing`. */
static uint32_t number(config *read, const char *const keys[3], bool required, uint32_t missing) {
  for (unsigned i = 0; i < 3 && keys[i]; i++) {
    const json_t *value = json_object_get(read->root, keys[i]);
    if (!value || json_is_null(value)) continue;
    json_int_t found = json_is_integer(value) ? json_integer_value(value) : 0;
    if (found >= 1 && found <= UINT32_MAX) return (uint32_t)found;
    if (read->status == TRACE_OK)
      read->status =
          trace_fail(read->error, TRACE_MALFORMED, read->path,
                     "'%s' is expected to be a whole number from 1 to %" PRIu32, keys[i], UINT32_MAX);
    return missing;
  }
  if (required && read->status == TRACE_OK)
    read->status = trace_fail(read->error, TRACE_MALFORMED, read->path, "'%s' is missing", keys[0]);
  return missing;
}

static double fraction(const config *read, const char *key, double missing) {
  const json_t *value = json_object_get(read->root, key);
  if (!json_is_number(value)) return missing;
  double found = json_number_value(value);
  return found >= 0 && found <= 1 ? found : missing;
}

static const struct {
  const char *type;
  generate_family family;
} types[] = {
    {"opt", GENERATE_OPT},     {"gpt2", GENERATE_GPT2},     {"gpt_neox", GENERATE_NEOX},
    {"llama", GENERATE_LLAMA}, {"mistral", GENERATE_LLAMA}, {"glm", GENERATE_GLM},
    {"qwen2", GENERATE_LLAMA},
};

enum { TYPES = sizeof types / sizeof *types };

static bool family_of(config *read, generate_family *family) {
  const char *type = json_string_value(json_object_get(read->root, "model_type"));
  for (size_t i = 0; type && i < TYPES; i++) {
    if (strcmp(types[i].type, type) != 0) continue;
    *family = types[i].family;
    return true;
  }
  read->status =
      trace_fail(read->error, TRACE_MALFORMED, read->path,
                 "'model_type' is %s%s%s; there are: opt, gpt2, gpt_neox, llama, mistral, qwen2, glm",
                 type ? "'" : "", type ? type : "missing", type ? "'" : "");
  return false;
}

static void describe(config *read, generate_family family, generate_model *model) {
  uint32_t hidden = number(read, (const char *const[3]){"hidden_size", "n_embd"}, true, 1);
  uint32_t layers = number(read, (const char *const[3]){"num_hidden_layers", "n_layer"}, true, 1);
  uint32_t heads = number(read, (const char *const[3]){"num_attention_heads", "n_head"}, true, 1);
  bool four_times = family == GENERATE_GPT2;
  uint32_t ffn = number(read, (const char *const[3]){"ffn_dim", "intermediate_size", "n_inner"}, !four_times,
                        hidden <= UINT32_MAX / 4 ? 4 * hidden : hidden);
  uint32_t vocabulary = number(read, (const char *const[3]){"vocab_size"}, true, 1);
  generate_model_describe(model, family, hidden, layers, heads, ffn, vocabulary);
  model->key_value_heads = number(read, (const char *const[3]){"num_key_value_heads"}, false, heads);
  model->head_size = number(read, (const char *const[3]){"head_dim"}, false, model->head_size);
  if (model->positions > 0) {
    /* OPT keeps two rows more than it has positions. */
    uint32_t extra = family == GENERATE_OPT ? 2 : 0;
    uint32_t places = number(read, (const char *const[3]){"max_position_embeddings", "n_positions"}, false,
                             model->positions - extra);
    model->positions = places <= UINT32_MAX - extra ? places + extra : places;
  } else {
    double share = family == GENERATE_NEOX  ? fraction(read, "rotary_pct", 0.25)
                   : family == GENERATE_GLM ? fraction(read, "partial_rotary_factor", 0.5)
                                            : 1;
    model->rotary_size = (uint32_t)(model->head_size * share) / 2 * 2;
  }
  const json_t *tied = json_object_get(read->root, "tie_word_embeddings");
  if (json_is_boolean(tied)) model->tied_embeddings = json_is_true(tied);
  const char *dropped = family == GENERATE_GPT2  ? "resid_pdrop"
                        : family == GENERATE_OPT ? "dropout"
                                                 : "hidden_dropout";
  model->dropout = fraction(read, dropped, model->dropout ? 0.1 : 0) > 0;
}

trace_status generate_model_read(const char *path, generate_model *model, trace_error *error) {
  json_error_t where;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
  if (!root) {
    if (json_error_code(&where) == json_error_cannot_open_file)
      return trace_fail(error, TRACE_UNREADABLE, path, "cannot be opened");
    if (json_error_code(&where) == json_error_out_of_memory) return trace_fail_memory(error, path);
    return trace_fail_line(error, path, (uint64_t)(where.line > 0 ? where.line : 1), "%s", where.text);
  }
  config read = {.path = path, .root = root, .error = error};
  generate_family family;
  if (!json_is_object(root)) {
    read.status = trace_fail(error, TRACE_MALFORMED, path, "an object is expected");
  } else if (family_of(&read, &family)) {
    generate_model made;
    describe(&read, family, &made);
    if (read.status == TRACE_OK) *model = made;
  }
  json_decref(root);
  return read.status;
}
