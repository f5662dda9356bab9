#include <stdlib.h>

#include "workloads/sharding.h"

bool sharding_adamw_add(sharding_adamw *adamw, uint64_t bytes) {
  if (adamw->count == adamw->capacity) {
    uint32_t capacity = adamw->capacity ? adamw->capacity * 2 : 256;
    uint64_t *grown = reallocarray(adamw->bytes, capacity, sizeof *grown);
    if (!grown) return false;
    adamw->bytes = grown;
    uint32_t *averages = reallocarray(adamw->averages, capacity, 2 * sizeof *averages);
    if (!averages) return false;
    adamw->averages = averages;
    uint32_t *scratch = reallocarray(adamw->scratch, capacity, sizeof *scratch);
    if (!scratch) return false;
    adamw->scratch = scratch;
    adamw->capacity = capacity;
  }
  adamw->averages[2 * adamw->count] = adamw->averages[2 * adamw->count + 1] = 0;
  adamw->bytes[adamw->count++] = bytes;
  return true;
}

/* The norm of each gradient, then of all: one partial sum a chunk of 65,536 elements and gradient
 * (native/cuda/ForeachReduceOp.cu). */
static void clip(const sharding_adamw *adamw, eager *machine, bool sharded) {
  enum { CHUNK = 65536 };
  uint64_t element = eager_element(machine), chunks = 1;
  for (uint32_t i = 0; i < adamw->count; i++) {
    uint64_t own = (adamw->bytes[i] / element + CHUNK - 1) / CHUNK;
    if (own > chunks) chunks = own;
  }
  uint32_t partial = eager_allocate(machine, adamw->count * chunks * 4);
  uint32_t *norms = adamw->scratch;
  for (uint32_t i = 0; i < adamw->count; i++) norms[i] = eager_allocate(machine, element);
  eager_release(machine, partial);
  uint64_t stack_bytes = adamw->count * element;
  uint32_t stack = eager_allocate(machine, stack_bytes), whole = stack;
  if (sharded) {
    /* Norms of shards are gathered from all ranks before they are one. */
    uint32_t waiting = eager_allocate(machine, stack_bytes), gathered = eager_allocate(machine, stack_bytes);
    whole = eager_allocate(machine, stack_bytes);
    eager_release(machine, waiting);
    eager_release(machine, gathered);
  }
  uint32_t all = eager_allocate(machine, element);
  if (sharded) eager_release(machine, whole);
  eager_release(machine, stack);
  for (uint32_t i = adamw->count; i > 0; i--) eager_release(machine, norms[i - 1]);
  /* clamp(max_norm / (all + epsilon), max = 1) */
  uint32_t shifted = eager_allocate(machine, element), inverse = eager_allocate(machine, element);
  uint32_t factor = eager_allocate(machine, element);
  eager_release(machine, inverse);
  eager_release(machine, shifted);
  uint32_t clamped = eager_allocate(machine, element);
  eager_release(machine, factor);
  eager_release(machine, clamped);
  eager_release(machine, all);
}

void sharding_adamw_step(sharding_adamw *adamw, eager *machine, bool sharded) {
  if (adamw->count == 0) return;
  clip(adamw, machine, sharded);
  for (uint32_t i = 0; i < 2 * adamw->count; i++)
    if (!adamw->averages[i]) adamw->averages[i] = eager_allocate(machine, adamw->bytes[i / 2]);
  /* _foreach_sqrt of the second averages. */
  uint32_t *roots = adamw->scratch;
  for (uint32_t i = 0; i < adamw->count; i++) roots[i] = eager_allocate(machine, adamw->bytes[i]);
  for (uint32_t i = adamw->count; i > 0; i--) eager_release(machine, roots[i - 1]);
}

void sharding_adamw_free(sharding_adamw *adamw) {
  free(adamw->bytes);
  free(adamw->averages);
  free(adamw->scratch);
}
