/* Colossal-AI's Gemini (colossalai/zero/gemini): parameters lie one behind the other in chunks of one size,
 * and chunks are what is gathered, reduced and kept.
 *
 * A chunk is gathered when a module is about to use a parameter in it, and given back when the next module
 * needs it no more. In the backward a chunk stays until the gradients of all its parameters have taken
 * the parameters' places in it; then it is reduced, and this rank's part is left. Masters and averages are
 * float, one of each a chunk. Offloaded, masters and averages live on the host. */
#include <stdlib.h>

#include "workloads/sharding.h"

typedef struct chunk {
  uint64_t elements;            /* the common size, or that of a larger parameter */
  uint32_t parameters, waiting; /* how many, whose gradients are still to come */
  bool trained;
  uint32_t gathered;
} chunk;

typedef struct colossalai {
  sharding base;
  chunk *chunks;
  uint32_t chunk_count;
  uint32_t *chunk_of; /* a parameter */
  bool stepped;
} colossalai;

static uint32_t last_end(const sharding *base) { return base->units[base->unit_count - 1].end; }

static uint64_t elements_of(const sharding *base, uint32_t p) {
  const eager_parameter *parameter = eager_parameter_at(base->machine, p);
  return parameter->rows * parameter->columns;
}

/* Puts the parameters into chunks of a size; returns the elements that stay empty, all chunks together.
 * With chunks: writes them. */
static uint64_t fill(colossalai *self, uint64_t size, bool write) {
  uint64_t empty = 0;
  uint32_t count = 0;
  for (unsigned trained = 0; trained < 2; trained++) {
    uint64_t room = 0;
    uint32_t open = 0;
    for (uint32_t p = self->base.units[0].first; p < last_end(&self->base); p++) {
      if (eager_parameter_at(self->base.machine, p)->trainable != (bool)trained) continue;
      uint64_t elements = elements_of(&self->base, p);
      if (elements > room) {
        empty += room;
        open = count++;
        room = elements > size ? elements : size;
        if (write) self->chunks[open] = (chunk){.elements = room, .trained = trained};
      }
      room -= elements;
      if (write) {
        self->chunks[open].parameters++;
        self->chunk_of[p] = open;
      }
    }
    empty += room;
  }
  self->chunk_count = count;
  return empty;
}

/* The size that leaves the least empty, as search_chunk_size looks for it. */
static uint64_t choose_size(colossalai *self) {
  const uint64_t least = UINT64_C(32) << 20, most = UINT64_C(64) << 20, step = UINT64_C(1) << 20;
  uint64_t best = least, best_empty = UINT64_MAX;
  for (uint64_t size = least; size <= most; size += step) {
    uint64_t empty = fill(self, size, false);
    if (empty >= best_empty) continue;
    best = size;
    best_empty = empty;
  }
  return best;
}

static uint64_t part_of(const colossalai *self, const chunk *about) {
  return (about->elements + self->base.options->world - 1) / self->base.options->world;
}

static void give_back(colossalai *self, chunk *about) {
  eager_release(self->base.machine, about->gathered);
  about->gathered = 0;
}

static bool uses(const colossalai *self, uint32_t module, uint32_t which) {
  for (uint32_t p = module;
       p < last_end(&self->base) && eager_parameter_at(self->base.machine, p)->module == module; p++)
    if (self->chunk_of[p] == which) return true;
  return false;
}

static void before_module(eager *machine, void *context, uint32_t module) {
  colossalai *self = context;
  for (uint32_t i = 0; i < self->chunk_count; i++) {
    chunk *about = &self->chunks[i];
    bool half_reduced = about->waiting > 0 && about->waiting < about->parameters;
    if (about->gathered && !half_reduced && !uses(self, module, i)) give_back(self, about);
  }
  for (uint32_t p = module; p < last_end(&self->base) && eager_parameter_at(machine, p)->module == module;
       p++) {
    chunk *about = &self->chunks[self->chunk_of[p]];
    if (!about->gathered)
      about->gathered =
          eager_allocate_on(machine, about->elements * eager_element(machine), SHARDING_STREAM_GATHER);
  }
}

static void take_gradients(colossalai *self, uint32_t first, uint32_t end) {
  for (uint32_t p = first; p < end; p++) {
    eager_parameter *parameter = eager_parameter_at(self->base.machine, p);
    if (!parameter->gradient) continue;
    eager_release(self->base.machine, parameter->gradient);
    parameter->gradient = 0;
    chunk *about = &self->chunks[self->chunk_of[p]];
    if (about->waiting > 0 && --about->waiting == 0) give_back(self, about);
  }
}

static void after_module_backward(eager *machine, void *context, uint32_t module) {
  colossalai *self = context;
  uint32_t end = module + 1;
  while (end < last_end(&self->base) && eager_parameter_at(machine, end)->module == module) end++;
  take_gradients(self, module, end);
}

static void before_forward(sharding *base, uint32_t unit) {
  colossalai *self = (colossalai *)base;
  if (unit > 0) return;
  for (uint32_t i = 0; i < self->chunk_count; i++)
    self->chunks[i].waiting = self->chunks[i].trained ? self->chunks[i].parameters : 0;
}

static void end_backward(sharding *base) {
  colossalai *self = (colossalai *)base;
  take_gradients(self, base->units[0].first, last_end(base));
  for (uint32_t i = 0; i < self->chunk_count; i++) give_back(self, &self->chunks[i]);
}

static void begin(sharding *base) {
  colossalai *self = (colossalai *)base;
  for (uint32_t i = 0; i < self->chunk_count; i++) {
    const chunk *about = &self->chunks[i];
    eager_allocate(base->machine, part_of(self, about) * eager_element(base->machine));
    if (about->trained && !base->options->offload) eager_allocate(base->machine, part_of(self, about) * 4);
  }
}

static void step(sharding *base) {
  colossalai *self = (colossalai *)base;
  if (self->stepped || base->options->offload) return;
  self->stepped = true;
  for (uint32_t i = 0; i < self->chunk_count; i++)
    for (unsigned average = 0; average < 2 && self->chunks[i].trained; average++)
      eager_allocate(base->machine, part_of(self, &self->chunks[i]) * 4);
}

static void zero_grad(sharding *base) { (void)base; }

static void destroy(sharding *base) {
  colossalai *self = (colossalai *)base;
  free(self->chunks);
  free(self->chunk_of);
  free(self);
}

sharding *sharding_create_colossalai(eager *machine, const generate_finetune_options *options,
                                     const sharding_unit *units, uint32_t unit_count) {
  static const sharding_operations operations = {.destroy = destroy,
                                                 .begin = begin,
                                                 .before_forward = before_forward,
                                                 .before_module = before_module,
                                                 .after_module_backward = after_module_backward,
                                                 .end_backward = end_backward,
                                                 .step = step,
                                                 .zero_grad = zero_grad};
  colossalai *self = calloc(1, sizeof *self);
  if (!self) return NULL;
  self->base = (sharding){&operations, machine, options, units, unit_count};
  uint64_t size = choose_size(self);
  fill(self, size, false);
  self->chunks = calloc(self->chunk_count, sizeof *self->chunks);
  self->chunk_of = calloc(eager_parameter_end(machine), sizeof *self->chunk_of);
  if (!self->chunks || !self->chunk_of) {
    destroy(&self->base);
    return NULL;
  }
  fill(self, size, true);
  return &self->base;
}
