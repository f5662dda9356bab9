/* One layer's forward, family by family. A local is dropped where the module's code lets go of it. */
#include "workloads/transformer.h"

typedef struct layer_run {
  transformer *model;
  eager *machine;
  const transformer_layer *layer;
  uint64_t rows, hidden, ffn, query, key; /* rows of activations, columns */
} layer_run;

/* Gathers the weight where the platform does so module by module. */
static void enter_module(const layer_run *run, const transformer_linear *linear) {
  sharding *shards = run->model->sharding;
  if (shards->operations->before_module)
    shards->operations->before_module(run->machine, shards, linear->weight);
}

static void leave_module(const layer_run *run, const transformer_linear *linear, eager_tensor *output) {
  sharding *shards = run->model->sharding;
  if (shards->operations->after_module)
    shards->operations->after_module(run->machine, shards, linear->weight);
  if (shards->operations->before_module)
    eager_on_gradient(run->machine, output, shards->operations->before_module, shards, linear->weight);
}

/* A projection, with its adapter: base(x) + B(A(dropout(x))) * scaling. */
static eager_tensor project(const layer_run *run, unsigned which, eager_tensor input, bool folded) {
  eager *machine = run->machine;
  eager_handles *handles = &run->model->handles;
  const transformer_linear *linear = &run->layer->linears[which];
  const sharding *shards = run->model->sharding;
  uint64_t rank = run->model->options->lora_rank;
  enter_module(run, linear);
  if (shards->operations->after_module_backward && eager_wanted(machine, input))
    eager_on_gradient(machine, &input, shards->operations->after_module_backward, run->model->sharding,
                      linear->weight);
  eager_tensor result = eager_linear(machine, handles, input, linear->weight, linear->bias,
                                     (eager_linear_shape){run->rows, linear->in, linear->out, folded});
  if (linear->lora_a) {
    eager_tensor dropped = eager_dropout(machine, input, run->rows * linear->in);
    eager_tensor low = eager_linear(machine, handles, dropped, linear->lora_a, 0,
                                    (eager_linear_shape){run->rows, linear->in, rank, folded});
    eager_drop(machine, &dropped);
    eager_tensor high = eager_linear(machine, handles, low, linear->lora_b, 0,
                                     (eager_linear_shape){run->rows, rank, linear->out, folded});
    eager_drop(machine, &low);
    eager_replace(machine, &high, eager_scale(machine, high, run->rows * linear->out));
    eager_tensor sum = eager_add(machine, result, high, run->rows * linear->out);
    eager_drop(machine, &high);
    eager_replace(machine, &result, sum);
  }
  leave_module(run, linear, &result);
  return result;
}

static eager_tensor norm(const layer_run *run, unsigned which, eager_tensor input) {
  const transformer_norm *about = &run->layer->norms[which];
  if (about->bias)
    return eager_layer_norm(run->machine, input, about->weight, about->bias, run->rows, run->hidden);
  return eager_root_mean_square_norm(run->machine, input, about->weight, run->rows, run->hidden);
}

static eager_tensor attend(const layer_run *run, eager_tensor query, eager_tensor key, eager_tensor value) {
  const generate_model *model = run->model->model;
  return eager_attention(run->machine, query, key, value,
                         (eager_attention_shape){.batch = run->model->options->batch,
                                                 .heads = model->heads,
                                                 .key_value_heads = model->key_value_heads,
                                                 .tokens = run->model->tokens,
                                                 .head_size = model->head_size});
}

static void drop_all(eager *machine, eager_tensor *tensors, unsigned count) {
  for (unsigned i = 0; i < count; i++) eager_drop(machine, &tensors[i]);
}

static void dropout(const layer_run *run, eager_tensor *tensor) {
  if (!run->model->model->dropout) return;
  eager_replace(run->machine, tensor, eager_dropout(run->machine, *tensor, run->rows * run->hidden));
}

static eager_tensor rotate(const layer_run *run, eager_tensor input, uint64_t heads) {
  const generate_model *model = run->model->model;
  return eager_rotary(run->machine, input, run->model->options->batch, heads, run->model->tokens,
                      model->head_size, model->rotary_size);
}

static eager_tensor opt_forward(const layer_run *run, eager_tensor input) {
  eager *machine = run->machine;
  uint64_t elements = run->rows * run->hidden;
  eager_tensor normed = norm(run, 0, input);
  eager_tensor parts[3];
  parts[0] = project(run, 0, normed, true);
  eager_replace(machine, &parts[0], eager_scale(machine, parts[0], run->rows * run->query));
  parts[1] = project(run, 1, normed, true);
  parts[2] = project(run, 2, normed, true);
  eager_tensor attended = attend(run, parts[0], parts[1], parts[2]);
  eager_tensor projected = project(run, 3, attended, true);
  eager_drop(machine, &attended);
  drop_all(machine, parts, 3);
  eager_drop(machine, &normed);
  dropout(run, &projected);
  eager_tensor hidden = eager_add(machine, input, projected, elements);
  eager_drop(machine, &projected);
  eager_view(machine, &hidden); /* the feed-forward's part has two dimensions */
  normed = norm(run, 1, hidden);
  eager_tensor wide = project(run, 4, normed, false);
  eager_drop(machine, &normed);
  eager_replace(machine, &wide, eager_relu(machine, wide, run->rows * run->ffn));
  projected = project(run, 5, wide, false);
  eager_drop(machine, &wide);
  dropout(run, &projected);
  eager_tensor output = eager_add(machine, hidden, projected, elements);
  eager_drop(machine, &projected);
  eager_drop(machine, &hidden);
  eager_view(machine, &output);
  return output;
}

static eager_tensor gpt2_forward(const layer_run *run, eager_tensor input) {
  eager *machine = run->machine;
  uint64_t elements = run->rows * run->hidden;
  eager_tensor normed = norm(run, 0, input);
  eager_tensor joined = project(run, 0, normed, false), parts[3];
  eager_split(machine, &joined, run->rows * (run->query + 2 * run->key), parts);
  eager_tensor attended = attend(run, parts[0], parts[1], parts[2]);
  eager_tensor projected = project(run, 1, attended, false);
  eager_drop(machine, &attended);
  dropout(run, &projected);
  drop_all(machine, parts, 3);
  eager_tensor hidden = eager_add(machine, projected, input, elements);
  eager_drop(machine, &normed);
  normed = norm(run, 1, hidden);
  eager_tensor wide = project(run, 2, normed, false);
  eager_replace(machine, &wide, eager_gelu_by_parts(machine, wide, run->rows * run->ffn));
  eager_tensor fed = project(run, 3, wide, false);
  eager_drop(machine, &wide);
  dropout(run, &fed);
  eager_tensor output = eager_add(machine, hidden, fed, elements);
  eager_drop(machine, &normed);
  eager_drop(machine, &projected);
  eager_drop(machine, &hidden);
  eager_drop(machine, &fed);
  return output;
}

static eager_tensor neox_forward(const layer_run *run, eager_tensor input) {
  eager *machine = run->machine;
  uint64_t elements = run->rows * run->hidden, joined_elements = run->rows * (run->query + 2 * run->key);
  eager_tensor normed = norm(run, 0, input);
  eager_tensor joined = project(run, 0, normed, true), parts[3];
  eager_transposed_view(machine, &joined, joined_elements);
  eager_split(machine, &joined, joined_elements, parts);
  eager_tensor query = rotate(run, parts[0], run->model->model->heads);
  eager_tensor key = rotate(run, parts[1], run->model->model->key_value_heads);
  eager_tensor attended = attend(run, query, key, parts[2]);
  eager_replace(machine, &attended, eager_copy(machine, attended, run->rows * run->query));
  eager_tensor projected = project(run, 1, attended, true);
  eager_drop(machine, &attended);
  eager_drop(machine, &query);
  eager_drop(machine, &key);
  drop_all(machine, parts, 3);
  eager_drop(machine, &normed);
  dropout(run, &projected);
  normed = norm(run, 1, input);
  eager_tensor wide = project(run, 2, normed, true);
  eager_replace(machine, &wide, eager_activation(machine, wide, run->rows * run->ffn));
  eager_tensor fed = project(run, 3, wide, true);
  eager_drop(machine, &wide);
  eager_drop(machine, &normed);
  dropout(run, &fed);
  eager_tensor both = eager_add(machine, fed, projected, elements);
  eager_tensor output = eager_add(machine, both, input, elements);
  eager_drop(machine, &both);
  eager_drop(machine, &projected);
  eager_drop(machine, &fed);
  return output;
}

static eager_tensor llama_forward(const layer_run *run, eager_tensor input) {
  eager *machine = run->machine;
  const generate_model *model = run->model->model;
  uint64_t elements = run->rows * run->hidden, wide = run->rows * run->ffn;
  bool fused = model->family == GENERATE_GLM;
  eager_tensor normed = norm(run, 0, input);
  eager_tensor parts[3];
  for (unsigned i = 0; i < 3; i++) parts[i] = project(run, i, normed, true);
  eager_tensor query = rotate(run, parts[0], model->heads);
  eager_tensor key = rotate(run, parts[1], model->key_value_heads);
  eager_drop(machine, &parts[0]);
  eager_drop(machine, &parts[1]);
  eager_tensor attended = attend(run, query, key, parts[2]);
  eager_replace(machine, &attended, eager_copy(machine, attended, run->rows * run->query));
  eager_tensor projected = project(run, 3, attended, true);
  eager_drop(machine, &attended);
  eager_drop(machine, &query);
  eager_drop(machine, &key);
  eager_drop(machine, &parts[2]);
  eager_drop(machine, &normed);
  eager_tensor hidden = eager_add(machine, input, projected, elements);
  eager_drop(machine, &projected);
  normed = norm(run, 1, hidden);
  eager_tensor gate = project(run, 4, normed, true), up = {0};
  if (fused) {
    eager_tensor halves[3];
    eager_split(machine, &gate, 2 * wide, halves);
    gate = halves[0];
    up = halves[1];
    eager_drop(machine, &halves[2]);
  }
  eager_tensor active = eager_activation(machine, gate, wide);
  eager_drop(machine, &gate);
  if (!fused) up = project(run, 5, normed, true);
  eager_tensor product = eager_multiply(machine, active, up, wide);
  eager_drop(machine, &active);
  eager_drop(machine, &up);
  eager_tensor fed = project(run, fused ? 5 : 6, product, true);
  eager_drop(machine, &product);
  eager_drop(machine, &normed);
  eager_tensor output = eager_add(machine, hidden, fed, elements);
  eager_drop(machine, &fed);
  eager_drop(machine, &hidden);
  return output;
}

eager_tensor transformer_layer_forward(eager *machine, void *context, uint32_t layer, eager_tensor input) {
  transformer *model = context;
  const generate_model *shape = model->model;
  layer_run run = {.model = model,
                   .machine = machine,
                   .layer = &model->layers[layer],
                   .rows = (uint64_t)model->options->batch * model->tokens,
                   .hidden = shape->hidden,
                   .ffn = shape->ffn,
                   .query = (uint64_t)shape->heads * shape->head_size,
                   .key = (uint64_t)shape->key_value_heads * shape->head_size};
  switch (shape->family) {
    case GENERATE_OPT:
      return opt_forward(&run, input);
    case GENERATE_GPT2:
      return gpt2_forward(&run, input);
    case GENERATE_NEOX:
      return neox_forward(&run, input);
    default:
      return llama_forward(&run, input);
  }
}
