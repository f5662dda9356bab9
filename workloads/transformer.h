/* A transformer's parameters, and its forward on the machine of eager.h. Internal to workloads.
 *
 * Module code is transformers', with the adapters of peft where there are some. */
#ifndef LAKEBED_WORKLOADS_TRANSFORMER_H
#define LAKEBED_WORKLOADS_TRANSFORMER_H

#include "workloads/eager_ops.h"
#include "workloads/generate.h"
#include "workloads/sharding.h"

typedef struct transformer_linear {
  uint32_t weight, bias; /* parameters; 0: none */
  uint32_t lora_a, lora_b;
  uint64_t in, out;
} transformer_linear;

typedef struct transformer_norm {
  uint32_t weight, bias;
} transformer_norm;

enum { TRANSFORMER_LINEARS = 7 };

typedef struct transformer_layer {
  /* By family, in the order in which they run:
   * OPT: q, k, v, out, fc1, fc2; GPT2 and NEOX: qkv, out, up, down;
   * LLAMA: q, k, v, out, gate, up, down; GLM: q, k, v, out, gate and up, down */
  transformer_linear linears[TRANSFORMER_LINEARS];
  transformer_norm norms[2];
} transformer_layer;

typedef struct transformer {
  const generate_finetune_options *options;
  const generate_model *model;
  eager *machine;
  eager_handles handles;
  transformer_layer *layers;
  uint32_t embedding, positions, head; /* parameters; head is the embedding where they are tied */
  transformer_norm norm;
  sharding_unit *units; /* the root, then one a layer; their parameters are consecutive */
  uint32_t unit_count;
  sharding *sharding;  /* set before the first forward; borrowed */
  uint32_t tokens;     /* of a sequence, in this iteration */
  uint32_t input_leaf; /* stands for the embeddings where adapters and recomputation make their gradient
                          wanted; 0: it is not */
  eager_tensor embedded, rotary[2]; /* of this iteration */
} transformer;

/* False: no memory. options and machine are borrowed. */
bool transformer_create(transformer *made, const generate_finetune_options *options, eager *machine);
void transformer_destroy(transformer *made);

/* Forward and loss of one iteration over ids (int64); the logits are dropped. */
eager_tensor transformer_loss(transformer *model, eager_tensor ids, uint32_t tokens);
/* When the iteration's loss is let go. */
void transformer_end_iteration(transformer *model);

/* Of transformer_layers.c: one layer's forward, as eager_checkpoint wants it; context is the transformer. */
eager_tensor transformer_layer_forward(eager *machine, void *context, uint32_t layer, eager_tensor input);

#endif
