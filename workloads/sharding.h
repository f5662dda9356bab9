/* How a training platform keeps parameters, gradients and optimizer states: whole on one device, or sharded
 * over ranks and gathered when needed. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_SHARDING_H
#define LAKEBED_WORKLOADS_SHARDING_H

#include "workloads/eager.h"

enum {
  SHARDING_STREAM_GATHER = 1, /* all-gather and what is copied for it */
  SHARDING_STREAM_REDUCE = 2  /* reduce-scatter */
};

/* Parameters first to end-1, which are gathered and reduced together. Unit 0 is the root. */
typedef struct sharding_unit {
  uint32_t first, end;
} sharding_unit;

typedef struct sharding sharding;

/* Any may be NULL. unit: index of a unit; parameter: of a weight that a module is about to use. */
typedef struct sharding_operations {
  void (*destroy)(sharding *self);
  void (*begin)(sharding *self); /* what lives through the whole training */
  void (*before_forward)(sharding *self, uint32_t unit);
  void (*after_forward)(sharding *self, uint32_t unit);
  eager_hook *before_backward; /* context is self, index the unit */
  eager_hook *after_backward;
  eager_hook *before_module; /* context is self, index the parameter, in forward and backward alike */
  eager_hook *after_module;
  eager_hook *after_module_backward;
  void (*end_backward)(sharding *self);
  void (*step)(sharding *self); /* clip the gradients, run the optimizer */
  void (*zero_grad)(sharding *self);
} sharding_operations;

struct sharding {
  const sharding_operations *operations;
  eager *machine;
  const generate_finetune_options *options;
  const sharding_unit *units;
  uint32_t unit_count;
};

/* NULL: no memory. All is borrowed. */
sharding *sharding_create_whole(eager *machine, const generate_finetune_options *options,
                                const sharding_unit *units, uint32_t unit_count);
sharding *sharding_create_fsdp(eager *machine, const generate_finetune_options *options,
                               const sharding_unit *units, uint32_t unit_count);
sharding *sharding_create_deepspeed(eager *machine, const generate_finetune_options *options,
                                    const sharding_unit *units, uint32_t unit_count);
sharding *sharding_create_colossalai(eager *machine, const generate_finetune_options *options,
                                     const sharding_unit *units, uint32_t unit_count);

/* Of sharding_adamw.c: torch.optim.AdamW with foreach, and clip_grad_norm_ before it. */
typedef struct sharding_adamw {
  uint64_t *bytes;    /* of each tensor that is trained, owned */
  uint32_t *averages; /* two storages a tensor; 0: before the first step */
  uint32_t *scratch;  /* a storage a tensor */
  uint32_t count, capacity;
} sharding_adamw;
/* False: no memory. */
bool sharding_adamw_add(sharding_adamw *adamw, uint64_t bytes);
/* sharded: the gradients' norms are of shards. */
void sharding_adamw_step(sharding_adamw *adamw, eager *machine, bool sharded);
void sharding_adamw_free(sharding_adamw *adamw);

#endif
