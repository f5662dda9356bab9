#include "workloads/transformer.h"

#include <stdlib.h>

static bool adapted(const transformer *made) { return made->options->lora; }

static void add_linear(transformer *made, transformer_linear *linear, uint64_t in, uint64_t out,
                       bool has_bias) {
  bool train_base = !adapted(made);
  uint64_t rank = made->options->lora_rank;
  /* GPT-2's Conv1D keeps its weight the other way round. */
  bool turned = made->model->family == GENERATE_GPT2;
  linear->in = in;
  linear->out = out;
  linear->weight = eager_add_parameter(made->machine, turned ? in : out, turned ? out : in, train_base, 0);
  if (has_bias) linear->bias = eager_add_parameter(made->machine, out, 1, train_base, linear->weight);
  if (!adapted(made)) return;
  linear->lora_a = eager_add_parameter(made->machine, rank, in, true, linear->weight);
  linear->lora_b = eager_add_parameter(made->machine, out, rank, true, linear->weight);
}

static void add_norm(transformer *made, transformer_norm *norm) {
  bool has_bias = made->model->family <= GENERATE_NEOX;
  norm->weight = eager_add_parameter(made->machine, made->model->hidden, 1, !adapted(made), 0);
  if (has_bias)
    norm->bias = eager_add_parameter(made->machine, made->model->hidden, 1, !adapted(made), norm->weight);
}

/* In the order in which the modules are declared. */
static void add_layer(transformer *made, transformer_layer *layer) {
  const generate_model *model = made->model;
  uint64_t hidden = model->hidden, ffn = model->ffn;
  uint64_t query = (uint64_t)model->heads * model->head_size;
  uint64_t key = (uint64_t)model->key_value_heads * model->head_size;
  transformer_linear *linears = layer->linears;
  switch (model->family) {
    case GENERATE_OPT:
      add_linear(made, &linears[1], hidden, key, true);
      add_linear(made, &linears[2], hidden, key, true);
      add_linear(made, &linears[0], hidden, query, true);
      add_linear(made, &linears[3], query, hidden, true);
      add_norm(made, &layer->norms[0]);
      add_linear(made, &linears[4], hidden, ffn, true);
      add_linear(made, &linears[5], ffn, hidden, true);
      add_norm(made, &layer->norms[1]);
      return;
    case GENERATE_GPT2:
      add_norm(made, &layer->norms[0]);
      add_linear(made, &linears[0], hidden, query + 2 * key, true);
      add_linear(made, &linears[1], query, hidden, true);
      add_norm(made, &layer->norms[1]);
      add_linear(made, &linears[2], hidden, ffn, true);
      add_linear(made, &linears[3], ffn, hidden, true);
      return;
    case GENERATE_NEOX:
      add_norm(made, &layer->norms[0]);
      add_norm(made, &layer->norms[1]);
      add_linear(made, &linears[0], hidden, query + 2 * key, true);
      add_linear(made, &linears[1], query, hidden, true);
      add_linear(made, &linears[2], hidden, ffn, true);
      add_linear(made, &linears[3], ffn, hidden, true);
      return;
    case GENERATE_LLAMA:
    case GENERATE_GLM: {
      bool fused = model->family == GENERATE_GLM;
      add_linear(made, &linears[0], hidden, query, fused);
      add_linear(made, &linears[1], hidden, key, fused);
      add_linear(made, &linears[2], hidden, key, fused);
      add_linear(made, &linears[3], query, hidden, false);
      add_linear(made, &linears[4], hidden, fused ? 2 * ffn : ffn, false);
      if (!fused) add_linear(made, &linears[5], hidden, ffn, false);
      add_linear(made, &linears[fused ? 5 : 6], ffn, hidden, false);
      add_norm(made, &layer->norms[0]);
      add_norm(made, &layer->norms[1]);
      return;
    }
  }
}

bool transformer_create(transformer *made, const generate_finetune_options *options, eager *machine) {
  const generate_model *model = &options->model;
  *made = (transformer){.options = options, .model = model, .machine = machine};
  made->layers = calloc(model->layers, sizeof *made->layers);
  made->unit_count = model->layers + 1;
  made->units = calloc(made->unit_count, sizeof *made->units);
  if (!made->layers || !made->units) {
    transformer_destroy(made);
    return false;
  }
  bool train_base = !adapted(made);
  made->units[0].first = eager_parameter_end(machine);
  made->embedding = eager_add_parameter(machine, model->vocabulary, model->hidden, train_base, 0);
  if (model->positions > 0)
    made->positions = eager_add_parameter(machine, model->positions, model->hidden, train_base, 0);
  add_norm(made, &made->norm);
  made->head = model->tied_embeddings
                   ? made->embedding
                   : eager_add_parameter(machine, model->vocabulary, model->hidden, train_base, 0);
  made->units[0].end = eager_parameter_end(machine);
  for (uint32_t i = 0; i < model->layers; i++) {
    made->units[i + 1].first = eager_parameter_end(machine);
    add_layer(made, &made->layers[i]);
    made->units[i + 1].end = eager_parameter_end(machine);
  }
  /* enable_input_require_grads: the embeddings' gradient is wanted, so that a checkpoint has one to give. */
  if (options->lora && options->recompute) made->input_leaf = eager_add_parameter(machine, 1, 1, true, 0);
  return !eager_failed(machine);
}

void transformer_destroy(transformer *made) {
  free(made->layers);
  free(made->units);
  made->layers = NULL;
  made->units = NULL;
}

/* Is any token masked? The answer needs a few small tensors. */
static void check_mask(transformer *model) {
  eager *machine = model->machine;
  uint64_t tokens = (uint64_t)model->options->batch * model->tokens;
  uint32_t wanted = eager_allocate(machine, tokens), index = eager_allocate(machine, 8);
  eager_workspace(machine, tokens * 8);
  uint32_t answer = eager_allocate(machine, 1);
  eager_release(machine, index);
  eager_release(machine, answer);
  eager_release(machine, wanted);
}

/* Cosines and sines of the positions, kept for all layers. */
static void make_rotary(transformer *model) {
  eager *machine = model->machine;
  uint64_t rotated = model->model->rotary_size, tokens = model->tokens, wide = tokens * rotated * 4;
  uint32_t positions = eager_allocate(machine, tokens * 4), angles = eager_allocate(machine, wide / 2);
  uint32_t doubled = eager_allocate(machine, wide);
  uint32_t tables[2];
  for (unsigned i = 0; i < 2; i++) {
    uint32_t table = eager_allocate(machine, wide);
    tables[i] = eager_allocate(machine, wide);
    eager_release(machine, table);
  }
  for (unsigned i = 0; i < 2; i++)
    model->rotary[i] = eager_new(machine, tokens * rotated * eager_element(machine));
  eager_release(machine, positions);
  eager_release(machine, angles);
  eager_release(machine, doubled);
  for (unsigned i = 0; i < 2; i++) eager_release(machine, tables[i]);
}

/* Calls a hook of the platform's, where it has it. */
static void call_module(transformer *model, eager_hook *called, uint32_t parameter) {
  if (called) called(model->machine, model->sharding, parameter);
}

/* Rows of a table, which is gathered for it and for its gradient. */
static eager_tensor look_up(transformer *model, eager_tensor indices, uint32_t table, uint64_t tokens) {
  const sharding_operations *operations = model->sharding->operations;
  call_module(model, operations->before_module, table);
  eager_tensor rows = eager_embedding(model->machine, indices, table, tokens);
  call_module(model, operations->after_module, table);
  if (operations->before_module)
    eager_on_gradient(model->machine, &rows, operations->before_module, model->sharding, table);
  return rows;
}

/* The embeddings of tokens and positions, added. */
static eager_tensor embed(transformer *model, eager_tensor ids, eager_tensor locals[2]) {
  eager *machine = model->machine;
  uint64_t tokens = (uint64_t)model->options->batch * model->tokens;
  uint64_t elements = tokens * model->model->hidden;
  eager_tensor embedded = look_up(model, ids, model->embedding, tokens);
  if (model->input_leaf) {
    embedded.parameter = model->input_leaf;
    model->embedded = eager_again(machine, embedded);
  }
  uint64_t positions = model->model->family == GENERATE_OPT ? tokens : model->tokens;
  uint32_t counted[2];
  unsigned count = model->model->family == GENERATE_OPT ? 2 : 1;
  for (unsigned i = 0; i < count; i++) counted[i] = eager_allocate(machine, positions * 8);
  eager_tensor places = eager_new(machine, positions * 8);
  while (count > 0) eager_release(machine, counted[--count]);
  if (model->model->family == GENERATE_OPT) check_mask(model);
  locals[0] = places;
  if (!model->positions) {
    locals[1] = eager_again(machine, embedded);
    check_mask(model);
    return embedded;
  }
  eager_tensor shifted = eager_again(machine, places);
  if (model->model->family == GENERATE_OPT)
    eager_replace(machine, &shifted, eager_new(machine, positions * 8));
  eager_tensor placed = look_up(model, shifted, model->positions, positions);
  eager_drop(machine, &shifted);
  eager_tensor sum = eager_add(machine, embedded, placed, elements);
  eager_drop(machine, &embedded);
  locals[1] = placed;
  if (model->model->family == GENERATE_GPT2) check_mask(model);
  if (model->model->dropout && model->model->family == GENERATE_GPT2)
    eager_replace(machine, &sum, eager_dropout(machine, sum, elements));
  return sum;
}

static eager_tensor run_layer(transformer *model, uint32_t layer, eager_tensor *hidden) {
  eager *machine = model->machine;
  sharding *shards = model->sharding;
  const sharding_operations *operations = shards->operations;
  if (operations->before_forward) operations->before_forward(shards, layer + 1);
  if (operations->after_backward)
    eager_on_gradient(machine, hidden, operations->after_backward, shards, layer + 1);
  eager_tensor output = model->options->recompute
                            ? eager_checkpoint(machine, transformer_layer_forward, model, layer, *hidden)
                            : transformer_layer_forward(machine, model, layer, *hidden);
  if (operations->after_forward) operations->after_forward(shards, layer + 1);
  if (operations->before_backward)
    eager_on_gradient(machine, &output, operations->before_backward, shards, layer + 1);
  return output;
}

eager_tensor transformer_loss(transformer *model, eager_tensor ids, uint32_t tokens) {
  eager *machine = model->machine;
  sharding *shards = model->sharding;
  const sharding_operations *operations = shards->operations;
  uint64_t rows = (uint64_t)model->options->batch * tokens;
  model->tokens = tokens;
  if (operations->before_forward) operations->before_forward(shards, 0);
  eager_tensor locals[2];
  eager_tensor hidden = embed(model, ids, locals);
  if (model->model->rotary_size) make_rotary(model);
  for (uint32_t i = 0; i < model->model->layers; i++)
    eager_replace(machine, &hidden, run_layer(model, i, &hidden));
  eager_tensor normed = model->norm.bias ? eager_layer_norm(machine, hidden, model->norm.weight,
                                                            model->norm.bias, rows, model->model->hidden)
                                         : eager_root_mean_square_norm(machine, hidden, model->norm.weight,
                                                                       rows, model->model->hidden);
  eager_drop(machine, &hidden);
  for (unsigned i = 0; i < 2; i++) eager_drop(machine, &locals[i]);
  for (unsigned i = 0; i < 2; i++) eager_drop(machine, &model->rotary[i]);
  call_module(model, operations->before_module, model->head);
  if (operations->after_module_backward)
    eager_on_gradient(machine, &normed, operations->after_module_backward, shards, model->head);
  eager_tensor logits = eager_linear(
      machine, &model->handles, normed, model->head, 0,
      (eager_linear_shape){
          .rows = rows, .in = model->model->hidden, .out = model->model->vocabulary, .folded = true});
  call_module(model, operations->after_module, model->head);
  if (operations->before_module)
    eager_on_gradient(machine, &logits, operations->before_module, shards, model->head);
  eager_tensor loss =
      eager_cross_entropy(machine, logits, model->options->batch, tokens, model->model->vocabulary);
  eager_drop(machine, &normed);
  if (operations->after_forward) operations->after_forward(shards, 0);
  eager_drop(machine, &logits);
  if (operations->before_backward) eager_on_gradient(machine, &loss, operations->before_backward, shards, 0);
  return loss;
}

void transformer_end_iteration(transformer *model) {
  if (!model->input_leaf) return;
  eager_parameter *leaf = eager_parameter_at(model->machine, model->input_leaf);
  eager_release(model->machine, leaf->gradient);
  leaf->gradient = 0;
  eager_drop(model->machine, &model->embedded);
}
