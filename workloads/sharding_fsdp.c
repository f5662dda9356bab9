/* FSDP2 (torch.distributed.fsdp.fully_shard): a unit a layer and one of the rest, each parameter split by
 * rows.
 *
 * A unit is gathered into one buffer on the gather stream and copied out into its parameters; the buffer
 * lives until the next unit's copy. Layers are given back after their forward, and gathered again for their
 * backward, one ahead. Gradients are packed into one buffer, which lives until the next unit's, and reduced
 * into one shard on the reduce stream. Offloaded, the shards live on the host: they are copied here for each
 * gather, and the reduced gradients are copied there. */
#include <stdlib.h>

#include "workloads/sharding.h"

typedef struct fsdp {
  sharding base;
  sharding_adamw adamw;
  uint32_t *gathered;  /* storage of each parameter while it is whole */
  uint32_t *gradients; /* reduced, one storage a unit */
  bool *is_gathered;   /* a unit */
  uint32_t buffer;     /* of the latest gather whose copy has been made, in the forward */
  uint32_t ahead;      /* gathered and not yet copied, in the backward */
  uint32_t ahead_unit;
  uint32_t packed; /* gradients of the unit before */
} fsdp;

static uint64_t shard_bytes(const fsdp *self, uint32_t p) {
  const eager_parameter *parameter = eager_parameter_at(self->base.machine, p);
  uint64_t world = self->base.options->world;
  return (parameter->rows + world - 1) / world * parameter->columns * eager_element(self->base.machine);
}

static uint64_t whole_bytes(const fsdp *self, uint32_t p) {
  return shard_bytes(self, p) * self->base.options->world;
}

/* The buffer that a unit is gathered into; with what is copied here for it when it lives on the host. */
static uint32_t gather(fsdp *self, uint32_t unit) {
  eager *machine = self->base.machine;
  const sharding_unit *about = &self->base.units[unit];
  uint64_t bytes = 0;
  for (uint32_t p = about->first; p < about->end; p++) {
    bytes += whole_bytes(self, p);
    /* self->gathered is free for the copies: the parameters are not whole now. */
    if (self->base.options->offload)
      self->gathered[p] = eager_allocate_on(machine, shard_bytes(self, p), SHARDING_STREAM_GATHER);
  }
  uint32_t buffer = eager_allocate_on(machine, bytes, SHARDING_STREAM_GATHER);
  for (uint32_t p = about->end; p > about->first; p--) {
    eager_release(machine, self->gathered[p - 1]);
    self->gathered[p - 1] = 0;
  }
  return buffer;
}

/* Pointers and sizes for the kernel that copies many pieces at once; about what an H200's 132 multiprocessors
 * get. */
static uint64_t pieces_bytes(const fsdp *self, const sharding_unit *unit) {
  enum { BLOCKS = 132608, PIECE = 37 };
  return BLOCKS / self->base.options->world + (uint64_t)(unit->end - unit->first) * PIECE;
}

static void copy_out(fsdp *self, uint32_t unit) {
  eager *machine = self->base.machine;
  const sharding_unit *about = &self->base.units[unit];
  for (uint32_t p = about->first; p < about->end; p++)
    self->gathered[p] = eager_allocate(machine, whole_bytes(self, p));
  eager_workspace(machine, pieces_bytes(self, about));
  self->is_gathered[unit] = true;
}

static void reshard(fsdp *self, uint32_t unit) {
  if (!self->is_gathered[unit]) return;
  for (uint32_t p = self->base.units[unit].first; p < self->base.units[unit].end; p++) {
    eager_release(self->base.machine, self->gathered[p]);
    self->gathered[p] = 0;
  }
  self->is_gathered[unit] = false;
}

static void before_forward(sharding *base, uint32_t unit) {
  fsdp *self = (fsdp *)base;
  uint32_t buffer = gather(self, unit);
  copy_out(self, unit);
  eager_release(base->machine, self->buffer);
  self->buffer = buffer;
}

static void after_forward(sharding *base, uint32_t unit) {
  fsdp *self = (fsdp *)base;
  if (unit > 0) {
    reshard(self, unit);
    return;
  }
  eager_release(base->machine, self->buffer);
  self->buffer = 0;
}

static void before_backward(eager *machine, void *context, uint32_t unit) {
  fsdp *self = context;
  if (unit > 0) {
    if (self->ahead_unit != unit) self->ahead = gather(self, unit);
    copy_out(self, unit);
    eager_release(machine, self->ahead);
    self->ahead = self->ahead_unit = 0;
  }
  uint32_t next = unit > 0 ? unit - 1 : self->base.unit_count - 1;
  if (next == 0) return;
  self->ahead = gather(self, next);
  self->ahead_unit = next;
}

/* The unit's gradients are packed, let go and reduced. */
static void reduce(fsdp *self, uint32_t unit) {
  enum { PIECE = 48, HEAD = 24, BYTES_A_BLOCK = 256 };
  eager *machine = self->base.machine;
  const sharding_unit *about = &self->base.units[unit];
  uint64_t bytes = 0, pieces = 0;
  uint32_t last = 0;
  for (uint32_t p = about->first; p < about->end; p++) {
    if (!eager_parameter_at(machine, p)->gradient) continue;
    bytes += whole_bytes(self, p);
    pieces++;
    last = p;
  }
  if (pieces == 0) return;
  eager_release(machine, self->packed);
  self->packed = eager_allocate(machine, bytes);
  eager_workspace(machine, bytes / self->base.options->world / BYTES_A_BLOCK + pieces * PIECE + HEAD);
  for (uint32_t p = about->first; p < last; p++) {
    eager_release(machine, eager_parameter_at(machine, p)->gradient);
    eager_parameter_at(machine, p)->gradient = 0;
  }
  uint32_t reduced = eager_allocate_on(machine, bytes / self->base.options->world, SHARDING_STREAM_REDUCE);
  eager_release(machine, eager_parameter_at(machine, last)->gradient);
  eager_parameter_at(machine, last)->gradient = 0;
  if (self->base.options->offload) {
    eager_release(machine, reduced);
  } else {
    self->gradients[unit] = reduced;
  }
}

static void after_backward(eager *machine, void *context, uint32_t unit) {
  (void)machine;
  reshard(context, unit);
  reduce(context, unit);
}

static void end_backward(sharding *base) {
  fsdp *self = (fsdp *)base;
  /* Units whose input wants no gradient have had no hook. */
  for (uint32_t unit = base->unit_count; unit > 0; unit--) after_backward(base->machine, self, unit - 1);
  eager_release(base->machine, self->packed);
  eager_release(base->machine, self->ahead);
  self->packed = self->ahead = self->ahead_unit = 0;
}

static void begin(sharding *base) {
  fsdp *self = (fsdp *)base;
  if (base->options->offload) return;
  uint32_t first = base->units[0].first, kept = 0;
  for (uint32_t u = 0; u < base->unit_count; u++) {
    for (uint32_t p = base->units[u].first; p < base->units[u].end; p++) {
      uint32_t shard = eager_allocate(base->machine, shard_bytes(self, p));
      if (p == first) kept = shard;
    }
  }
  if (!base->options->model.tied_embeddings) return;
  /* to_empty meets a tied weight once more, at the output projection. */
  eager_allocate(base->machine, shard_bytes(self, first));
  eager_release(base->machine, kept);
}

static void step(sharding *base) {
  if (!base->options->offload) sharding_adamw_step(&((fsdp *)base)->adamw, base->machine, true);
}

static void zero_grad(sharding *base) {
  fsdp *self = (fsdp *)base;
  for (uint32_t u = 0; u < base->unit_count; u++) {
    eager_release(base->machine, self->gradients[u]);
    self->gradients[u] = 0;
  }
}

static void destroy(sharding *base) {
  fsdp *self = (fsdp *)base;
  sharding_adamw_free(&self->adamw);
  free(self->gathered);
  free(self->gradients);
  free(self->is_gathered);
  free(self);
}

sharding *sharding_create_fsdp(eager *machine, const generate_finetune_options *options,
                               const sharding_unit *units, uint32_t unit_count) {
  static const sharding_operations operations = {.destroy = destroy,
                                                 .begin = begin,
                                                 .before_forward = before_forward,
                                                 .after_forward = after_forward,
                                                 .before_backward = before_backward,
                                                 .after_backward = after_backward,
                                                 .end_backward = end_backward,
                                                 .step = step,
                                                 .zero_grad = zero_grad};
  fsdp *self = calloc(1, sizeof *self);
  if (!self) return NULL;
  self->base = (sharding){&operations, machine, options, units, unit_count};
  self->gathered = calloc(eager_parameter_end(machine), sizeof *self->gathered);
  self->gradients = calloc(unit_count, sizeof *self->gradients);
  self->is_gathered = calloc(unit_count, sizeof *self->is_gathered);
  bool made = self->gathered && self->gradients && self->is_gathered;
  for (uint32_t u = 0; made && u < unit_count; u++)
    for (uint32_t p = units[u].first; made && p < units[u].end; p++)
      if (eager_parameter_at(machine, p)->trainable)
        made = sharding_adamw_add(&self->adamw, shard_bytes(self, p));
  if (made) return &self->base;
  destroy(&self->base);
  return NULL;
}
