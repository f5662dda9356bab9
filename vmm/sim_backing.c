#define _GNU_SOURCE

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/sim_internal.h"

/* Physical memory is a sparse memfd, VA two arenas without access. Mapping a chunk maps
 * its part of the file at a fixed place in an arena, so that two mappings of a chunk are
 * the same pages. The arenas ask for addresses that a Linux process leaves unused; a
 * process where they are taken gets others, and one that has less room (under the thread
 * sanitizer) smaller arenas. */

#define VA_ARENA_BYTES (8 * SIM_TIB)
#define MALLOC_ARENA_BYTES SIM_TIB
#define VA_ARENA_WISH (UINT64_C(32) * SIM_TIB)
#define MALLOC_ARENA_WISH (UINT64_C(48) * SIM_TIB)
#define SMALLEST_ARENA_BYTES (SIM_TIB / 16)
#define ARENA_ALIGNMENT (UINT64_C(1) << 30)

static void *pointer_to(vmm_address address) { return (void *)(uintptr_t)address; }

static int protection(bool accessible) { return accessible ? PROT_READ | PROT_WRITE : PROT_NONE; }

/* Maps size bytes without access, with room to align the start; less where that fails. */
static unsigned char *make_arena(uint64_t wish, uint64_t *size) {
  while (true) {
    void *arena = mmap(pointer_to(wish), *size + ARENA_ALIGNMENT, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena != MAP_FAILED) return arena;
    if (*size / 2 < SMALLEST_ARENA_BYTES) return NULL;
    *size = *size / 2 & ~(ARENA_ALIGNMENT - 1);
  }
}

static uint64_t arena_start(const unsigned char *arena) {
  return ((uint64_t)(uintptr_t)arena + ARENA_ALIGNMENT - 1) & ~(ARENA_ALIGNMENT - 1);
}

vmm_status sim_backing_create(vmm_sim *sim) {
  sim->memory_file = -1;
  if (!sim->configuration.backed) return VMM_SUCCESS;
  if (sim->va_size > VA_ARENA_BYTES) sim->va_size = VA_ARENA_BYTES;
  sim->malloc_space.size = MALLOC_ARENA_BYTES;
  sim->va_arena = make_arena(VA_ARENA_WISH, &sim->va_size);
  sim->malloc_arena = make_arena(MALLOC_ARENA_WISH, &sim->malloc_space.size);
  sim->memory_file = memfd_create("lakebed-device", MFD_CLOEXEC);
  if (!sim->va_arena || !sim->malloc_arena || sim->memory_file < 0) return VMM_OUT_OF_MEMORY;
  sim->va_start = arena_start(sim->va_arena);
  sim->malloc_space.start = arena_start(sim->malloc_arena);
  return VMM_SUCCESS;
}

void sim_backing_destroy(vmm_sim *sim) {
  if (sim->va_arena) munmap(sim->va_arena, sim->va_size + ARENA_ALIGNMENT);
  if (sim->malloc_arena) munmap(sim->malloc_arena, sim->malloc_space.size + ARENA_ALIGNMENT);
  if (sim->memory_file >= 0) close(sim->memory_file);
}

vmm_status sim_backing_grow(vmm_sim *sim, uint64_t physical_end) {
  if (sim->memory_file < 0 || physical_end <= sim->memory_file_size) return VMM_SUCCESS;
  if (ftruncate(sim->memory_file, (off_t)physical_end) != 0) return VMM_OUT_OF_MEMORY;
  sim->memory_file_size = physical_end;
  return VMM_SUCCESS;
}

vmm_status sim_backing_map(vmm_sim *sim, vmm_address address, uint64_t size, uint64_t physical,
                           bool accessible) {
  if (sim->memory_file < 0) return VMM_SUCCESS;
  void *mapped = mmap(pointer_to(address), size, protection(accessible), MAP_SHARED | MAP_FIXED,
                      sim->memory_file, (off_t)physical);
  return mapped == MAP_FAILED ? VMM_OUT_OF_MEMORY : VMM_SUCCESS;
}

vmm_status sim_backing_unmap(vmm_sim *sim, vmm_address address, uint64_t size) {
  if (sim->memory_file < 0) return VMM_SUCCESS;
  void *mapped = mmap(pointer_to(address), size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return mapped == MAP_FAILED ? VMM_OUT_OF_MEMORY : VMM_SUCCESS;
}

vmm_status sim_backing_allow(vmm_sim *sim, vmm_address address, uint64_t size, bool accessible) {
  if (sim->memory_file < 0) return VMM_SUCCESS;
  return mprotect(pointer_to(address), size, protection(accessible)) == 0 ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
}

void sim_backing_discard(vmm_sim *sim, uint64_t physical, uint64_t size) {
  if (sim->memory_file < 0) return;
  fallocate(sim->memory_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical, (off_t)size);
}

vmm_status sim_fill(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                    uint64_t pattern) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_FILL;
  vmm_status status = VMM_SUCCESS;
  if (!sim_injected(sim, call, &status)) {
    if (sim->memory_file < 0) {
      status = VMM_NOT_SUPPORTED;
    } else if (!vmm_sim_accessible(driver, address, size)) {
      status = VMM_ILLEGAL_ADDRESS;
    }
  }
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, address, size, stream, pattern);
  unsigned char *bytes = pointer_to(address);
  for (uint64_t offset = 0; offset < size; offset += 8) {
    uint64_t word = vmm_pattern_word(pattern, offset / 8);
    memcpy(bytes + offset, &word, size - offset < 8 ? size - offset : 8);
  }
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}

vmm_status sim_verify(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                      uint64_t pattern, vmm_mismatch *mismatch) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_VERIFY;
  vmm_status status = VMM_SUCCESS;
  if (!sim_injected(sim, call, &status)) {
    if (!mismatch) {
      status = VMM_INVALID_VALUE;
    } else if (sim->memory_file < 0) {
      status = VMM_NOT_SUPPORTED;
    } else if (!vmm_sim_accessible(driver, address, size)) {
      status = VMM_ILLEGAL_ADDRESS;
    }
  }
  if (status != VMM_SUCCESS) return sim_refuse(sim, status, call, address, size, stream, pattern);
  *mismatch = (vmm_mismatch){0};
  const unsigned char *bytes = pointer_to(address);
  for (uint64_t offset = 0; offset < size; offset += 8) {
    uint64_t expected = vmm_pattern_word(pattern, offset / 8), found = 0;
    uint64_t length = size - offset < 8 ? size - offset : 8;
    if (length < 8) expected &= (UINT64_C(1) << (8 * length)) - 1;
    memcpy(&found, bytes + offset, length);
    if (found == expected) continue;
    if (mismatch->wrong_words++ == 0) {
      mismatch->first_offset = offset;
      mismatch->expected = expected;
      mismatch->found = found;
    }
  }
  sim_charge(sim, call, size);
  return VMM_SUCCESS;
}
