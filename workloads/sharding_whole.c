/* One rank: every parameter whole on the device. Offloaded, the optimizer states live on the host, and each
 * gradient goes there as float. */
#include <stdlib.h>

#include "workloads/sharding.h"

typedef struct whole {
  sharding base;
  sharding_adamw adamw;
} whole;

static void destroy(sharding *base) {
  whole *self = (whole *)base;
  sharding_adamw_free(&self->adamw);
  free(self);
}

static void begin(sharding *base) {
  for (uint32_t u = 0; u < base->unit_count; u++)
    for (uint32_t p = base->units[u].first; p < base->units[u].end; p++)
      eager_allocate(base->machine, eager_parameter_bytes(base->machine, p));
}

static void step(sharding *base) {
  whole *self = (whole *)base;
  if (!base->options->offload) {
    sharding_adamw_step(&self->adamw, base->machine, false);
    return;
  }
  uint32_t before = 0;
  for (uint32_t i = 0; i < self->adamw.count; i++) {
    uint32_t copy = eager_allocate(base->machine, self->adamw.bytes[i] / eager_element(base->machine) * 4);
    eager_release(base->machine, before);
    before = copy;
  }
  eager_release(base->machine, before);
}

static void zero_grad(sharding *base) {
  for (uint32_t u = 0; u < base->unit_count; u++) {
    for (uint32_t p = base->units[u].first; p < base->units[u].end; p++) {
      eager_parameter *parameter = eager_parameter_at(base->machine, p);
      eager_release(base->machine, parameter->gradient);
      parameter->gradient = 0;
    }
  }
}

sharding *sharding_create_whole(eager *machine, const generate_finetune_options *options,
                                const sharding_unit *units, uint32_t unit_count) {
  static const sharding_operations operations = {
      .destroy = destroy, .begin = begin, .step = step, .zero_grad = zero_grad};
  whole *self = calloc(1, sizeof *self);
  if (!self) return NULL;
  self->base = (sharding){&operations, machine, options, units, unit_count};
  for (uint32_t u = 0; u < unit_count; u++) {
    for (uint32_t p = units[u].first; p < units[u].end; p++) {
      if (!eager_parameter_at(machine, p)->trainable) continue;
      if (sharding_adamw_add(&self->adamw, eager_parameter_bytes(machine, p))) continue;
      destroy(&self->base);
      return NULL;
    }
  }
  return &self->base;
}
