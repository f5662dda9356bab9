#include "harness/stress_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/verify_pattern.h"

vmm_status stress_memory_fill(stress_memory *self, stress_block *block) {
  block->number = self->fills++;
  vmm_status status =
      vmm_fill(self->gpu->raw, block->address, block->size, block->stream, verify_pattern(block->number));
  block->written = status == VMM_SUCCESS;
  if (block->written) self->counts.filled_bytes += block->size;
  return status;
}

vmm_status stress_memory_fill_after(stress_memory *self, stress_block *block, vmm_stream stream) {
  if (stream != block->stream) {
    vmm_driver *driver = self->gpu->raw;
    vmm_event event;
    vmm_status status = vmm_event_record(driver, block->stream, &event);
    if (status != VMM_SUCCESS) return status;
    status = vmm_stream_wait_event(driver, stream, event);
    vmm_event_discard(driver, event);
    if (status != VMM_SUCCESS) return status;
  }
  block->stream = stream;
  return stress_memory_fill(self, block);
}

/* through: by which address, where that is not the block's own. */
static void describe_wrong(const stress_memory *self, const stress_block *block, const char *through,
                           const vmm_mismatch *wrong, char *message, size_t message_size) {
  uint64_t number, offset;
  char owner[128] = "which is no block's";
  if (verify_pattern_find(wrong->found, self->fills, block->size, &number, &offset)) {
    snprintf(owner, sizeof owner, "which fill %" PRIu64 " wrote at offset %" PRIu64 " of its block", number,
             offset);
  }
  snprintf(message, message_size,
           "%" PRIu64 " bytes at 0x%" PRIx64 " (fill %" PRIu64 " on stream %" PRIu32
           ") have changed%s: %" PRIu64 " wrong words, the first at offset %" PRIu64
           ", expected 0x%016" PRIx64 ", found 0x%016" PRIx64 ", %s",
           block->size, block->address, block->number, block->stream, through, wrong->wrong_words,
           wrong->first_offset, wrong->expected, wrong->found, owner);
}

static bool fail_call(const stress_memory *self, const char *what, vmm_status status, char *message,
                      size_t message_size) {
  char cause[256];
  device_error_format(self->gpu, cause, sizeof cause);
  snprintf(message, message_size, "memory cannot be %s: %s%s%s", what, vmm_status_text(status),
           cause[0] ? "; " : "", cause);
  return false;
}

bool stress_memory_verify(stress_memory *self, const stress_block *block, char *message,
                          size_t message_size) {
  vmm_mismatch wrong;
  vmm_status status = vmm_verify(self->gpu->raw, block->address, block->size, block->stream,
                                 verify_pattern(block->number), &wrong);
  if (status != VMM_SUCCESS) return fail_call(self, "read", status, message, message_size);
  self->counts.verified_bytes += block->size;
  self->counts.verified_blocks++;
  if (wrong.wrong_words == 0) return true;
  describe_wrong(self, block, "", &wrong, message, message_size);
  return false;
}

/* ---- other addresses of the same memory ---- */

enum { PIECES = 16 };

/* A part of a block that lies in one chunk. */
typedef struct piece {
  const pool_chunk *chunk;
  uint64_t begin, size; /* in the chunk */
  vmm_address address;  /* in the block */
} piece;

static const pool_range *range_of(const pool_heap *heap, vmm_address address) {
  const pool_range *range = heap->ranges;
  while (range && (address < range->address || address - range->address >= range->size)) range = range->next;
  return range;
}

/* The first pieces of a block whose chunks are mapped more than once. */
static size_t find_pieces(const pool_heap *heap, const stress_block *block, piece pieces[PIECES]) {
  const pool_range *range = range_of(heap, block->address);
  size_t count = 0;
  for (uint64_t done = 0; range && done < block->size && count < PIECES;) {
    const uint64_t place = block->address + done - range->address;
    if (place >= range->size) break;
    const pool_slot *slot = &range->slots[place / range->unit];
    if (!slot->chunk) break;
    const uint64_t begin = slot->offset * range->unit + place % range->unit;
    uint64_t size = slot->chunk->size - begin;
    if (size > block->size - done) size = block->size - done;
    if (slot->chunk->mappings > 1) pieces[count++] = (piece){slot->chunk, begin, size, block->address + done};
    done += size;
  }
  return count;
}

/* Another address of a piece; 0: none. */
static vmm_address alias_of(const pool_heap *heap, const piece *part) {
  for (const pool_range *range = heap->ranges; range; range = range->next) {
    if (range->mapped == 0) continue;
    for (uint64_t i = 0; i < range->size / range->unit; i++) {
      const pool_slot *slot = &range->slots[i];
      if (slot->chunk != part->chunk || slot->offset != 0) continue;
      const vmm_address address = range->address + i * range->unit + part->begin;
      if (address != part->address) return address;
    }
  }
  return 0;
}

/* Written through one address, read through another. */
static bool cross(stress_memory *self, stress_block *through, vmm_address read, char *message,
                  size_t message_size) {
  vmm_mismatch wrong;
  vmm_status status = stress_memory_fill(self, through);
  if (status != VMM_SUCCESS) return fail_call(self, "written", status, message, message_size);
  status = vmm_verify(self->gpu->raw, read, through->size, through->stream, verify_pattern(through->number),
                      &wrong);
  if (status != VMM_SUCCESS) return fail_call(self, "read", status, message, message_size);
  self->counts.verified_bytes += through->size;
  if (wrong.wrong_words == 0) return true;
  describe_wrong(self, through, ", read through another address of the same memory", &wrong, message,
                 message_size);
  return false;
}

bool stress_memory_verify_aliases(stress_memory *self, const policy *subject, stress_block *block,
                                  char *message, size_t message_size) {
  piece pieces[PIECES];
  const size_t count = find_pieces(&subject->heap, block, pieces);
  for (size_t i = 0; i < count; i++) {
    const vmm_address alias = alias_of(&subject->heap, &pieces[i]);
    if (alias == 0) continue;
    block->written = false;
    stress_block through = {.address = pieces[i].address, .size = pieces[i].size, .stream = block->stream};
    if (!cross(self, &through, alias, message, message_size)) return false;
    through.address = alias;
    if (!cross(self, &through, pieces[i].address, message, message_size)) return false;
    self->counts.aliased_pieces++;
  }
  return true;
}

/* ---- slow kernels ---- */

vmm_status stress_memory_prepare_slow(stress_memory *self, char *message, size_t message_size) {
  vmm_driver *driver = self->gpu->raw;
  vmm_status status = vmm_cuda_module_load_built_in(driver, "hold", &self->slow, message, message_size);
  if (status != VMM_SUCCESS) return status;
  self->flags = vmm_cuda_host_alloc(driver, 2 * sizeof *self->flags, &self->device_flags);
  if (self->flags) {
    self->flags[0] = self->flags[1] = 0;
    return VMM_SUCCESS;
  }
  snprintf(message, message_size, "no memory for slow kernels: %s", vmm_cuda_failure(driver));
  stress_memory_close(self);
  return VMM_OUT_OF_MEMORY;
}

vmm_status stress_memory_slow(stress_memory *self, vmm_stream stream, uint64_t bound_ns) {
  if (!self->slow) return VMM_SUCCESS;
  void *arguments[] = {&self->device_flags, &bound_ns};
  const vmm_cuda_shape shape = {.grid = {1}, .block = {1}};
  vmm_status status = vmm_cuda_launch(self->gpu->raw, self->slow, "hold", &shape, stream, arguments);
  self->counts.slow_kernels += status == VMM_SUCCESS;
  return status;
}

void stress_memory_close(stress_memory *self) {
  if (self->flags) vmm_cuda_host_free(self->gpu->raw, (void *)(uintptr_t)self->flags);
  if (self->slow) vmm_cuda_module_unload(self->gpu->raw, self->slow);
  self->flags = NULL;
  self->slow = NULL;
}
