#include "harness/paper_grid.h"

#include <stdio.h>
#include <string.h>

/* One model's workloads over what a figure varies: strategy, GPUs or batch. */
#define STRATEGY(model, strategy, batch, pytorch, gmlake, utilization) \
  { PAPER_STRATEGIES, model, strategy, "fsdp", 4, batch, pytorch, gmlake, utilization }
#define GPUS(model, gpus, batch, pytorch, gmlake, utilization) \
  { PAPER_GPUS, model, "LR", "deepspeed", gpus, batch, pytorch, gmlake, utilization }
#define PLATFORM(model, platform, batch, pytorch, gmlake) \
  { PAPER_PLATFORMS, model, "LR", platform, 4, batch, pytorch, gmlake, 0 }
#define BATCH(model, batch, pytorch, gmlake) \
  { PAPER_BATCHES, model, "LR", "deepspeed", 4, batch, pytorch, gmlake, 0 }

const paper_workload paper_workloads[PAPER_WORKLOADS] = {
    STRATEGY("opt-1.3b", "N", 55, 58, 56, 0.97),
    STRATEGY("opt-1.3b", "R", 125, 64, 48, 0.80),
    STRATEGY("opt-1.3b", "LR", 118, 61, 44, 0.76),
    STRATEGY("opt-1.3b", "RO", 114, 59, 42, 0.70),
    STRATEGY("opt-1.3b", "LRO", 114, 58, 42, 0.73),
    STRATEGY("vicuna-13b", "N", 10, 76, 76, 0),
    STRATEGY("vicuna-13b", "R", 124, 78, 74, 0),
    STRATEGY("vicuna-13b", "LR", 124, 72, 60, 0),
    STRATEGY("vicuna-13b", "RO", 146, 76, 64, 0),
    STRATEGY("vicuna-13b", "LRO", 142, 70, 61, 0),
    STRATEGY("gpt-neox-20b", "N", 6, 68, 68, 0),
    STRATEGY("gpt-neox-20b", "R", 58, 68, 68, 0),
    STRATEGY("gpt-neox-20b", "LR", 79, 72, 60, 0),
    STRATEGY("gpt-neox-20b", "RO", 86, 68, 54, 0),
    STRATEGY("gpt-neox-20b", "LRO", 85, 70, 53, 0),

    GPUS("opt-13b", 1, 70, 70, 64, 0.91),
    GPUS("opt-13b", 2, 72, 60, 52, 0.84),
    GPUS("opt-13b", 4, 83, 58, 51, 0.78),
    GPUS("opt-13b", 8, 80, 54, 46, 0.80),
    GPUS("opt-13b", 16, 66, 46, 37, 0.76),
    GPUS("vicuna-13b", 1, 61, 68, 53, 0),
    GPUS("vicuna-13b", 2, 106, 66, 58, 0),
    GPUS("vicuna-13b", 4, 105, 55, 51, 0),
    GPUS("vicuna-13b", 8, 101, 51, 46, 0),
    GPUS("vicuna-13b", 16, 98, 49, 43, 0),
    GPUS("gpt-neox-20b", 1, 44, 71, 69, 0),
    GPUS("gpt-neox-20b", 2, 61, 67, 58, 0),
    GPUS("gpt-neox-20b", 4, 83, 73, 60, 0),
    GPUS("gpt-neox-20b", 8, 81, 66, 54, 0),
    GPUS("gpt-neox-20b", 16, 79, 66, 50, 0),

    PLATFORM("glm-10b", "fsdp", 99, 65, 58),
    PLATFORM("opt-13b", "fsdp", 85, 0, 0),
    PLATFORM("gpt2-xl", "fsdp", 124, 0, 0),
    PLATFORM("glm-10b", "deepspeed", 99, 0, 0),
    PLATFORM("opt-13b", "deepspeed", 85, 70, 52),
    PLATFORM("gpt2-xl", "deepspeed", 124, 0, 0),
    PLATFORM("glm-10b", "colossalai", 99, 0, 0),
    PLATFORM("opt-13b", "colossalai", 85, 0, 0),
    PLATFORM("gpt2-xl", "colossalai", 124, 74, 50),

    BATCH("opt-1.3b", 32, 0, 0),
    BATCH("opt-1.3b", 64, 0, 0),
    BATCH("opt-1.3b", 96, 0, 0),
    BATCH("opt-1.3b", 128, 0, 0),
    BATCH("opt-1.3b", 160, 0, 0),
    BATCH("opt-1.3b", 176, 0, 0),
    BATCH("opt-1.3b", 192, 78, 57),
    BATCH("opt-1.3b", 200, 0, 0),
    BATCH("opt-1.3b", 208, 0, 0),
    BATCH("opt-1.3b", 216, 0, 0),
    BATCH("opt-1.3b", 224, 0, 0),
    BATCH("opt-1.3b", 232, 0, 0),
    BATCH("opt-1.3b", 248, 0, 73),
    BATCH("opt-13b", 24, 0, 0),
    BATCH("opt-13b", 48, 0, 0),
    BATCH("opt-13b", 72, 0, 0),
    BATCH("opt-13b", 88, 0, 0),
    BATCH("opt-13b", 96, 0, 0),
    BATCH("opt-13b", 104, 0, 0),
    BATCH("opt-13b", 112, 0, 0),
    BATCH("opt-13b", 120, 0, 77),
    BATCH("opt-13b", 128, 0, 0),
    BATCH("opt-13b", 136, 0, 0),
    BATCH("opt-13b", 144, 0, 0),
    BATCH("opt-13b", 152, 0, 0),
    BATCH("gpt-neox-20b", 24, 0, 0),
    BATCH("gpt-neox-20b", 48, 0, 0),
    BATCH("gpt-neox-20b", 64, 0, 0),
    BATCH("gpt-neox-20b", 72, 0, 69),
    BATCH("gpt-neox-20b", 80, 0, 0),
    BATCH("gpt-neox-20b", 88, 0, 0),
    BATCH("gpt-neox-20b", 96, 0, 0),
    BATCH("gpt-neox-20b", 104, 0, 0),
    BATCH("gpt-neox-20b", 112, 0, 0),
    BATCH("gpt-neox-20b", 120, 0, 0),
    BATCH("gpt-neox-20b", 128, 0, 0),
    BATCH("gpt-neox-20b", 136, 0, 0),
};

/* Names for the generator, and for people. */
static const char *const names[][2] = {
    {"opt-1.3b", "OPT-1.3B"}, {"opt-13b", "OPT-13B"},       {"gpt2-xl", "GPT-2"},
    {"glm-10b", "GLM-10B"},   {"vicuna-13b", "Vicuna-13B"}, {"gpt-neox-20b", "GPT-NeoX-20B"},
    {"fsdp", "FSDP"},         {"deepspeed", "DeepSpeed"},   {"colossalai", "Colossal-AI"},
};

static const char *written(const char *word) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i][0], word) == 0) return names[i][1];
  }
  return word;
}

const char *paper_model_name(const char *model) { return written(model); }
const char *paper_platform_name(const char *platform) { return written(platform); }

void paper_workload_line(const paper_workload *workload, char line[PAPER_LINE]) {
  snprintf(
      line, PAPER_LINE,
      "finetune --model %s --strategy %s --platform %s --world %u --batch %u --sequence %d --iterations %d",
      workload->model, workload->strategy, workload->platform, workload->gpus, workload->batch,
      PAPER_SEQUENCE, PAPER_ITERATIONS);
}
