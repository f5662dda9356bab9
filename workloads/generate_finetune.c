#include "workloads/failure.h"
#include "workloads/generate.h"
#include "workloads/generate_check.h"
#include "workloads/generate_sequence.h"
#include "workloads/transformer.h"

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

static trace_status check(const generate_finetune_options *options, trace_error *error) {
  const generate_check_range ranges[] = {
      {"batch", options->batch, 1, 1 << 20},
      {"the adapters' rank", options->lora_rank, 1, 1 << 16},
      {"world", options->world, 1, 1 << 16},
      {"iterations", options->iterations, 1, 1000000},
      {"the shortest sequence", options->sequence.low, 1, options->sequence.high},
      {"the longest sequence", options->sequence.high, 1, 1 << 20},
  };
  trace_status status = generate_check_ranges(ranges, sizeof ranges / sizeof *ranges, error);
  if (status == TRACE_OK)
    status = generate_check_model(&options->model, options->sequence.high, options->batch, error);
  return status;
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
  trace_random random = trace_random_begin(options->seed);
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
