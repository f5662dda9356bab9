#include <inttypes.h>
#include <string.h>

#include "workloads/failure.h"
#include "workloads/generate.h"
#include "workloads/generate_sequence.h"
#include "workloads/transformer.h"

static trace_status add_to_writer(void *context, const trace_event *event, uint64_t recorded_stream,
                                  trace_error *error) {
  return trace_writer_add(context, event, recorded_stream, error);
}

generate_sink generate_writer_sink(trace_writer *writer) { return (generate_sink){add_to_writer, writer}; }

void generate_finetune_defaults(generate_finetune_options *options) {
  *options =
      (generate_finetune_options){.model = *generate_model_find("opt-1.3b"),
                                  .batch = 8,
                                  .sequence = {.kind = GENERATE_SEQUENCE_FIXED, .low = 512, .high = 512},
                                  .lora_rank = 16,
                                  .world = 1,
                                  .iterations = 6,
                                  .seed = 1};
}

bool generate_strategy_parse(const char *text, generate_finetune_options *options) {
  bool lora = false, recompute = false, offload = false, none = false;
  if (!*text) return false;
  for (const char *letter = text; *letter; letter++) {
    bool *chosen = NULL;
    switch (*letter) {
      case 'L':
      case 'l':
        chosen = &lora;
        break;
      case 'R':
      case 'r':
        chosen = &recompute;
        break;
      case 'O':
      case 'o':
        chosen = &offload;
        break;
      case 'N':
      case 'n':
        chosen = &none;
        break;
      default:
        return false;
    }
    if (*chosen) return false;
    *chosen = true;
  }
  if (none && (lora || recompute || offload)) return false;
  options->lora = lora;
  options->recompute = recompute;
  options->offload = offload;
  return true;
}

static trace_status refuse(trace_error *error, const char *what, uint64_t value, uint64_t least,
                           uint64_t most) {
  return trace_fail(error, TRACE_MALFORMED, "trace generate",
                    "%s is %" PRIu64 "; expected %" PRIu64 " to %" PRIu64, what, value, least, most);
}

static trace_status check(const generate_finetune_options *options, trace_error *error) {
  const generate_model *model = &options->model;
  const struct {
    const char *what;
    uint64_t value, least, most;
  } ranges[] = {
      {"hidden", model->hidden, 1, 1 << 20},
      {"layers", model->layers, 1, 4096},
      {"heads", model->heads, 1, 1 << 16},
      {"key and value heads", model->key_value_heads, 1, model->heads},
      {"the size of a head", model->head_size, 1, 1 << 16},
      {"ffn", model->ffn, 1, 1 << 22},
      {"vocabulary", model->vocabulary, 1, 1 << 24},
      {"positions", model->positions, 0, 1 << 24},
      {"the rotated part of a head", model->rotary_size, 0, model->head_size},
      {"batch", options->batch, 1, 1 << 20},
      {"the adapters' rank", options->lora_rank, 1, 1 << 16},
      {"world", options->world, 1, 1 << 16},
      {"iterations", options->iterations, 1, 1000000},
      {"the shortest sequence", options->sequence.low, 1, options->sequence.high},
      {"the longest sequence", options->sequence.high, 1, 1 << 20},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most)
      return refuse(error, ranges[i].what, ranges[i].value, ranges[i].least, ranges[i].most);
  if (model->heads % model->key_value_heads != 0)
    return trace_fail(error, TRACE_MALFORMED, "trace generate",
                      "%u heads do not share %u key and value heads evenly", model->heads,
                      model->key_value_heads);
  /* OPT's first two rows are for padding. */
  uint32_t places =
      model->family == GENERATE_OPT && model->positions > 2 ? model->positions - 2 : model->positions;
  if (places > 0 && options->sequence.high > places)
    return trace_fail(error, TRACE_MALFORMED, "trace generate",
                      "a sequence of %u tokens is longer than the %u positions of the model",
                      options->sequence.high, places);
  uint64_t widest = (uint64_t)model->heads * model->head_size * 3;
  if (widest < 2 * (uint64_t)model->ffn) widest = 2 * (uint64_t)model->ffn;
  if (widest < model->vocabulary) widest = model->vocabulary;
  if (widest < model->hidden) widest = model->hidden;
  uint64_t largest;
  if (__builtin_mul_overflow((uint64_t)options->batch * options->sequence.high, widest, &largest) ||
      largest > UINT64_C(1) << 57)
    return trace_fail(error, TRACE_MALFORMED, "trace generate",
                      "one activation of %u sequences of %u tokens would have more than 2^57 elements",
                      options->batch, options->sequence.high);
  return TRACE_OK;
}

static sharding *create_sharding(const transformer *model, eager *machine) {
  typedef sharding *create(eager *, const generate_finetune_options *, const sharding_unit *, uint32_t);
  static create *const platforms[] = {[GENERATE_FSDP] = sharding_create_fsdp,
                                      [GENERATE_DEEPSPEED] = sharding_create_deepspeed,
                                      [GENERATE_COLOSSALAI] = sharding_create_colossalai};
  const generate_finetune_options *options = model->options;
  create *make = platforms[options->platform];
  if (options->platform == GENERATE_FSDP && options->world == 1) make = sharding_create_whole;
  return make(machine, options, model->units, model->unit_count);
}

static void end_backward(eager *machine, void *context, uint32_t index) {
  sharding *shards = context;
  (void)machine;
  (void)index;
  if (shards->operations->end_backward) shards->operations->end_backward(shards);
}

static void train(transformer *model, sharding *shards) {
  eager *machine = model->machine;
  const generate_finetune_options *options = model->options;
  generate_random_state random = generate_random_begin(options->seed);
  eager_tensor ids = {0}, mask = {0};
  shards->operations->begin(shards);
  for (uint32_t i = 0; i < options->iterations && !eager_failed(machine); i++) {
    uint32_t tokens = generate_sequence_draw(&options->sequence, i, options->batch, &random);
    uint64_t bytes = (uint64_t)options->batch * tokens * 8;
    eager_replace(machine, &ids, eager_new(machine, bytes));
    eager_replace(machine, &mask, eager_new(machine, bytes));
    eager_tensor loss = transformer_loss(model, ids, tokens);
    eager_backward(machine, loss, 4, end_backward, shards);
    shards->operations->step(shards);
    shards->operations->zero_grad(shards);
    transformer_end_iteration(model);
    eager_drop(machine, &loss);
  }
}

trace_status generate_finetune(const generate_finetune_options *options, generate_sink sink,
                               trace_error *error) {
  trace_status status = check(options, error);
  if (status != TRACE_OK) return status;
  eager *machine = eager_create(sink, options->precision == GENERATE_FP32 ? 4 : 2);
  if (!machine) return trace_fail_memory(error, "trace generate");
  transformer model;
  sharding *shards = NULL;
  bool made = transformer_create(&model, options, machine);
  if (made) shards = create_sharding(&model, machine);
  if (shards) {
    model.sharding = shards;
    train(&model, shards);
    status = eager_status(machine, error);
    shards->operations->destroy(shards);
  } else {
    status = trace_fail_memory(error, "trace generate");
  }
  transformer_destroy(&model);
  eager_destroy(machine);
  return status;
}
