/* Stream-ordered memory: freed blocks are kept and given out for the same size. */
#include <cuda.h>
#include <stdbool.h>

#include "tests/fake_cuda/fake_cuda.h"

enum { BLOCKS = 4096 };

typedef struct pool_block {
  CUdeviceptr address;
  size_t size;
  bool used;
} pool_block;

static pool_block blocks[BLOCKS];
static size_t block_count;
static cuuint64_t pool_reserved, pool_reserved_peak, pool_used, pool_used_peak, pool_bound;

static pool_block *find_block(CUdeviceptr address) {
  for (size_t i = 0; i < block_count; i++) {
    if (blocks[i].address == address && blocks[i].used) return &blocks[i];
  }
  return NULL;
}

static void use_block(pool_block *block, bool used) {
  block->used = used;
  pool_used += used ? block->size : -block->size;
  if (pool_used > pool_used_peak) pool_used_peak = pool_used;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  BEGIN();
  pool_block *block = find_block(address);
  if (block) {
    use_block(block, false);
    return CUDA_SUCCESS;
  }
  if (address) fake_lose();
  return fake_result_of(vmm_free(fake_sim, address));
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
  BEGIN();
  pool_bound = properties->maxSize ? properties->maxSize : UINT64_MAX;
  *pool = (CUmemoryPool)(void *)blocks;
  pool_reserved_peak = pool_reserved;
  pool_used_peak = pool_used;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  (void)pool;
  for (size_t i = 0; i < block_count && pool_reserved > keep;) {
    if (blocks[i].used) {
      i++;
      continue;
    }
    CUresult result = fake_result_of(vmm_free(fake_sim, blocks[i].address));
    if (result != CUDA_SUCCESS) return result;
    pool_reserved -= blocks[i].size;
    blocks[i] = blocks[--block_count];
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) { return cuMemPoolTrimTo(pool, 0); }

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  (void)pool;
  (void)attribute;
  (void)value;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  (void)pool;
  cuuint64_t *bytes = value;
  *bytes = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool_reserved
           : attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH  ? pool_reserved_peak
           : attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT   ? pool_used
                                                             : pool_used_peak;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
  (void)pool;
  (void)access;
  (void)count;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
  BEGIN();
  (void)pool;
  (void)stream;
  *address = 0;
  if (size == 0) return CUDA_SUCCESS;
  for (size_t i = 0; i < block_count; i++) {
    if (blocks[i].used || blocks[i].size != size) continue;
    use_block(&blocks[i], true);
    *address = blocks[i].address;
    return CUDA_SUCCESS;
  }
  if (pool_reserved + size > pool_bound) return CUDA_ERROR_OUT_OF_MEMORY;
  vmm_address allocated = 0;
  CUresult result = block_count < BLOCKS ? fake_result_of(vmm_malloc(fake_sim, size, &allocated))
                                         : CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) return result;
  blocks[block_count] = (pool_block){.address = allocated, .size = size};
  pool_reserved += size;
  if (pool_reserved > pool_reserved_peak) pool_reserved_peak = pool_reserved;
  use_block(&blocks[block_count++], true);
  *address = allocated;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  BEGIN();
  (void)stream;
  pool_block *block = find_block(address);
  if (!block) return address ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  use_block(block, false);
  return CUDA_SUCCESS;
}
