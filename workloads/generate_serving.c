#include <stdlib.h>

#include "workloads/failure.h"
#include "workloads/generate.h"
#include "workloads/generate_check.h"
#include "workloads/generate_sequence.h"
#include "workloads/transformer.h"

void generate_serving_defaults(generate_serving_options *options) {
  *options = (generate_serving_options){
      .model = *generate_model_find("opt-1.3b"),
      .requests = 64,
      .batch = 16,
      .every = 4,
      .prompt = {.kind = GENERATE_SEQUENCE_LOGNORMAL, .low = 16, .high = 1024, .mean = 5, .deviation = 1},
      .output = {.kind = GENERATE_SEQUENCE_UNIFORM, .low = 16, .high = 256},
      .block = 64,
      .seed = 1};
}

const char *const *generate_cache_names(void) {
  static const char *const names[] = {
      [GENERATE_CACHE_GROWING] = "growing", [GENERATE_CACHE_BLOCKS] = "blocks", NULL};
  return names;
}

typedef struct request {
  uint32_t tokens;   /* in the cache */
  uint32_t capacity; /* that the cache has room for */
  uint32_t left;     /* to compute */
  uint32_t *cache;   /* storages: two a layer, or one a block */
} request;

typedef struct server {
  const generate_serving_options *options;
  generate_finetune_options forward; /* what the transformer reads: batch changes from step to step */
  transformer model;
  eager *machine;
  request *running;
  uint32_t count;
  uint32_t slots; /* of a request's cache */
} server;

/* Bytes of keys (or values) of a token in one layer. */
static uint64_t token_bytes(const server *self) {
  const generate_model *model = &self->options->model;
  return (uint64_t)model->key_value_heads * model->head_size * eager_element(self->machine);
}

static uint32_t blocks_for(const server *self, uint32_t tokens) {
  return (tokens + self->options->block - 1) / self->options->block;
}

/* Room for the tokens that it has in one layer: two larger tensors take the old ones' place. */
static void grow_layer(server *self, request *about, uint32_t layer) {
  for (uint32_t i = 2 * layer; i < 2 * layer + 2; i++) {
    uint32_t larger = eager_allocate(self->machine, about->capacity * token_bytes(self));
    eager_release(self->machine, about->cache[i]);
    about->cache[i] = larger;
  }
}

/* A request has tokens more; says whether its cache has to grow in every layer. */
static bool extend(server *self, request *about, uint32_t tokens) {
  about->tokens += tokens;
  if (about->tokens <= about->capacity) return false;
  uint32_t before = about->capacity / self->options->block, blocks = blocks_for(self, about->tokens);
  about->capacity = blocks * self->options->block;
  if (self->options->cache == GENERATE_CACHE_GROWING) return true;
  uint64_t bytes = 2 * token_bytes(self) * self->options->block * self->options->model.layers;
  for (uint32_t i = before; i < blocks; i++) about->cache[i] = eager_allocate(self->machine, bytes);
  return false;
}

/* A forward of `tokens` tokens of `count` requests, those from first on; grow: whose caches grow on the way.
 * Ends with a token of each. */
static void forward(server *self, uint32_t first, uint32_t count, uint32_t tokens, const bool *grow) {
  eager *machine = self->machine;
  const generate_model *model = &self->options->model;
  self->forward.batch = count;
  self->model.tokens = tokens;
  uint64_t rows = (uint64_t)count * tokens, element = eager_element(machine);
  eager_tensor ids = eager_new(machine, rows * 8);
  eager_tensor hidden = eager_embedding(machine, ids, self->model.embedding, rows);
  for (uint32_t layer = 0; layer < model->layers && !eager_failed(machine); layer++) {
    for (uint32_t i = 0; i < count; i++)
      if (grow[i]) grow_layer(self, &self->running[first + i], layer);
    eager_replace(machine, &hidden, transformer_layer_forward(machine, &self->model, layer, hidden));
  }
  eager_replace(machine, &hidden, eager_new(machine, rows * model->hidden * element)); /* the last norm */
  eager_tensor logits = eager_new(machine, (uint64_t)count * model->vocabulary * element);
  eager_drop(machine, &hidden);
  eager_tensor chances = eager_new(machine, (uint64_t)count * model->vocabulary * 4);
  eager_drop(machine, &logits);
  eager_tensor chosen = eager_new(machine, (uint64_t)count * 8);
  eager_drop(machine, &chances);
  eager_drop(machine, &chosen);
  eager_drop(machine, &ids);
}

static void finish(server *self, uint32_t index) {
  request *about = &self->running[index];
  for (uint32_t i = 0; i < self->slots; i++) {
    eager_release(self->machine, about->cache[i]);
    about->cache[i] = 0;
  }
  request last = self->running[--self->count];
  self->running[self->count] = *about; /* its cache's array is used again */
  self->running[index] = last;
}

static void admit(server *self, trace_random *random) {
  request *about = &self->running[self->count++];
  uint32_t prompt = generate_sequence_draw(&self->options->prompt, 0, 1, random);
  about->left = generate_sequence_draw(&self->options->output, 0, 1, random);
  about->tokens = about->capacity = 0;
  bool grow = extend(self, about, prompt);
  forward(self, self->count - 1, 1, prompt, &grow);
}

static void serve(server *self, bool *grow) {
  trace_random random = trace_random_begin(self->options->seed);
  uint32_t to_come = self->options->requests, waiting = 0;
  while ((to_come > 0 || waiting > 0 || self->count > 0) && !eager_failed(self->machine)) {
    if (to_come > 0 && trace_random_below(&random, self->options->every) == 0) {
      to_come--;
      waiting++;
    }
    for (; waiting > 0 && self->count < self->options->batch; waiting--) admit(self, &random);
    if (self->count == 0) continue;
    for (uint32_t i = 0; i < self->count; i++) grow[i] = extend(self, &self->running[i], 1);
    forward(self, 0, self->count, 1, grow);
    for (uint32_t i = self->count; i > 0; i--)
      if (--self->running[i - 1].left == 0) finish(self, i - 1);
  }
}

static trace_status check(const generate_serving_options *options, trace_error *error) {
  const generate_check_range ranges[] = {
      {"requests", options->requests, 1, 1000000},
      {"batch", options->batch, 1, 4096},
      {"steps between arrivals", options->every, 1, 1000000},
      {"tokens that a cache grows by", options->block, 1, 1 << 20},
      {"the shortest prompt", options->prompt.low, 1, options->prompt.high},
      {"the longest prompt", options->prompt.high, 1, 1 << 20},
      {"the shortest output", options->output.low, 1, options->output.high},
      {"the longest output", options->output.high, 1, 1 << 20},
  };
  trace_status status = generate_check_ranges(ranges, sizeof ranges / sizeof *ranges, error);
  if (status == TRACE_OK)
    status = generate_check_model(&options->model, options->prompt.high + options->output.high,
                                  options->batch, error);
  return status;
}

static void run(server *self, trace_error *error, trace_status *status) {
  const generate_serving_options *options = self->options;
  sharding *shards =
      sharding_create_whole(self->machine, &self->forward, self->model.units, self->model.unit_count);
  uint32_t longest = options->prompt.high + options->output.high;
  self->slots =
      options->cache == GENERATE_CACHE_BLOCKS ? blocks_for(self, longest) : 2 * options->model.layers;
  self->running = calloc(options->batch, sizeof *self->running);
  bool *grow = calloc(options->batch, sizeof *grow);
  bool made = shards && self->running && grow;
  for (uint32_t i = 0; made && i < options->batch; i++) {
    self->running[i].cache = calloc(self->slots, sizeof *self->running[i].cache);
    made = self->running[i].cache != NULL;
  }
  if (made) {
    self->model.sharding = shards;
    shards->operations->begin(shards);
    serve(self, grow);
    *status = eager_status(self->machine, error);
  } else {
    *status = trace_fail_memory(error, "trace generate");
  }
  for (uint32_t i = 0; self->running && i < options->batch; i++) free(self->running[i].cache);
  free(self->running);
  free(grow);
  if (shards) shards->operations->destroy(shards);
}

trace_status generate_serving(const generate_serving_options *options, generate_sink sink,
                              trace_error *error) {
  trace_status status = check(options, error);
  if (status != TRACE_OK) return status;
  server self = {.options = options,
                 .machine = eager_create(sink, options->precision == GENERATE_FP32 ? 4 : 2)};
  if (!self.machine) return trace_fail_memory(error, "trace generate");
  eager_without_gradients(self.machine);
  generate_finetune_defaults(&self.forward);
  self.forward.model = options->model;
  self.forward.model.dropout = false;
  if (transformer_create(&self.model, &self.forward, self.machine)) {
    run(&self, error, &status);
  } else {
    status = trace_fail_memory(error, "trace generate");
  }
  transformer_destroy(&self.model);
  eager_destroy(self.machine);
  return status;
}
