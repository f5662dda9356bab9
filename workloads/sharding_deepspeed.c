/* DeepSpeed ZeRO, stage 3 (deepspeed/runtime/zero: stage3, partitioned_param_coordinator), with the sizes
 * that transformers' "auto" gives: buckets of hidden^2 elements, 0.9 hidden^2 ahead, parameters of at most 10
 * hidden elements never split.
 *
 * A module's parameters are gathered one by one when it is about to run, and those that run next ahead of
 * time, as far as the prefetch bucket goes; they are given back after the module. Gradients are copied into a
 * bucket, which is reduced when the next does not fit, into one flat buffer of this rank's part. Masters and
 * averages are flat and float; the step makes the gradients float too. Offloaded, masters, averages and the
 * gradients' flat buffer live on the host. */
#include <stdlib.h>

#include "workloads/sharding.h"

typedef struct deepspeed {
  sharding base;
  uint32_t *gathered; /* storage of each parameter; those that are never split keep theirs */
  uint64_t bucket_elements, ahead_elements, kept_elements; /* limits */
  uint64_t trained_elements;                               /* this rank's part */
  uint64_t in_bucket, ahead;                               /* elements now */
} deepspeed;

static uint64_t elements_of(const deepspeed *self, uint32_t p) {
  const eager_parameter *parameter = eager_parameter_at(self->base.machine, p);
  return parameter->rows * parameter->columns;
}

static uint64_t part_of(const deepspeed *self, uint32_t p) {
  return (elements_of(self, p) + self->base.options->world - 1) / self->base.options->world;
}

static bool is_split(const deepspeed *self, uint32_t p) { return elements_of(self, p) > self->kept_elements; }

static uint32_t last_end(const sharding *base) { return base->units[base->unit_count - 1].end; }

static void gather(deepspeed *self, uint32_t p) {
  if (self->gathered[p] || !is_split(self, p)) return;
  uint64_t bytes = part_of(self, p) * self->base.options->world * eager_element(self->base.machine);
  self->gathered[p] = eager_allocate_on(self->base.machine, bytes, SHARDING_STREAM_GATHER);
}

static void give_back(deepspeed *self, uint32_t p) {
  if (!is_split(self, p)) return;
  eager_release(self->base.machine, self->gathered[p]);
  self->gathered[p] = 0;
}

/* The parameters of a module: module to the end that is returned. */
static uint32_t module_end(const deepspeed *self, uint32_t module) {
  uint32_t end = module + 1;
  while (end < last_end(&self->base) && eager_parameter_at(self->base.machine, end)->module == module) end++;
  return end;
}

static void before_module(eager *machine, void *context, uint32_t module) {
  deepspeed *self = context;
  uint32_t end = module_end(self, module);
  for (uint32_t p = module; p < end; p++) gather(self, p);
  uint64_t ahead = 0;
  if (eager_in_backward(machine)) {
    for (uint32_t p = module - 1; p >= self->base.units[0].end && ahead < self->ahead_elements; p--) {
      if (!is_split(self, p)) continue;
      ahead += elements_of(self, p);
      if (ahead <= self->ahead_elements) gather(self, p);
    }
    return;
  }
  for (uint32_t p = end; p < last_end(&self->base) && ahead < self->ahead_elements; p++) {
    if (!is_split(self, p)) continue;
    ahead += elements_of(self, p);
    if (ahead <= self->ahead_elements) gather(self, p);
  }
}

static void after_module(eager *machine, void *context, uint32_t module) {
  deepspeed *self = context;
  (void)machine;
  for (uint32_t p = module, end = module_end(self, module); p < end; p++) give_back(self, p);
}

/* What is in the bucket is split among the ranks, summed, and added to this rank's flat gradients. */
static void flush(deepspeed *self) {
  if (self->in_bucket == 0) return;
  eager *machine = self->base.machine;
  uint64_t world = self->base.options->world, part = (self->in_bucket + world - 1) / world;
  uint32_t split = eager_allocate_on(machine, part * world * eager_element(machine), SHARDING_STREAM_REDUCE);
  uint32_t reduced = eager_allocate_on(machine, part * eager_element(machine), SHARDING_STREAM_REDUCE);
  eager_release(machine, split);
  eager_release(machine, reduced);
  self->in_bucket = 0;
}

static void take_gradients(deepspeed *self, uint32_t first, uint32_t end) {
  for (uint32_t p = first; p < end; p++) {
    eager_parameter *parameter = eager_parameter_at(self->base.machine, p);
    if (!parameter->gradient) continue;
    uint64_t elements = parameter->rows * parameter->columns;
    if (self->in_bucket + elements > self->bucket_elements) flush(self);
    self->in_bucket += elements;
    eager_release(self->base.machine, parameter->gradient);
    parameter->gradient = 0;
  }
}

static void after_module_backward(eager *machine, void *context, uint32_t module) {
  deepspeed *self = context;
  after_module(machine, context, module);
  take_gradients(self, module, module_end(self, module));
}

static void end_backward(sharding *base) {
  deepspeed *self = (deepspeed *)base;
  uint32_t end = last_end(base);
  for (uint32_t p = end - 1; p >= base->units[0].first; p--) give_back(self, p);
  take_gradients(self, base->units[0].first, end);
  flush(self);
}

static void begin(sharding *base) {
  deepspeed *self = (deepspeed *)base;
  eager *machine = base->machine;
  uint64_t element = eager_element(machine);
  for (uint32_t p = base->units[0].first; p < last_end(base); p++) {
    bool trainable = eager_parameter_at(machine, p)->trainable;
    if (!is_split(self, p)) self->gathered[p] = eager_allocate(machine, elements_of(self, p) * element);
    if (trainable)
      self->trained_elements += part_of(self, p);
    else
      eager_allocate(machine, part_of(self, p) * element);
  }
  eager_allocate(machine, self->trained_elements * element);
  eager_allocate(machine, self->bucket_elements * element);
  if (base->options->offload) return;
  eager_allocate(machine, self->trained_elements * element); /* gradients */
  for (unsigned i = 0; i < 3; i++)
    eager_allocate(machine, self->trained_elements * 4); /* masters, averages */
}

static void step(sharding *base) {
  deepspeed *self = (deepspeed *)base;
  if (!base->options->offload) eager_workspace(base->machine, self->trained_elements * 4);
}

static void zero_grad(sharding *base) { (void)base; }

static void destroy(sharding *base) {
  free(((deepspeed *)base)->gathered);
  free(base);
}

sharding *sharding_create_deepspeed(eager *machine, const generate_finetune_options *options,
                                    const sharding_unit *units, uint32_t unit_count) {
  static const sharding_operations operations = {.destroy = destroy,
                                                 .begin = begin,
                                                 .before_module = before_module,
                                                 .after_module = after_module,
                                                 .after_module_backward = after_module_backward,
                                                 .end_backward = end_backward,
                                                 .step = step,
                                                 .zero_grad = zero_grad};
  deepspeed *self = calloc(1, sizeof *self);
  if (!self) return NULL;
  self->base = (sharding){&operations, machine, options, units, unit_count};
  uint64_t hidden = options->model.hidden;
  self->bucket_elements = hidden * hidden;
  self->ahead_elements = hidden * hidden * 9 / 10;
  self->kept_elements = 10 * hidden;
  self->gathered = calloc(eager_parameter_end(machine), sizeof *self->gathered);
  if (self->gathered) return &self->base;
  destroy(&self->base);
  return NULL;
}
