#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/cuda_internal.h"
#include "vmm/embedded_kernels.h"

typedef struct module_function {
  char *name;
  CUfunction function;
} module_function;

struct vmm_cuda_module {
  CUmodule module;
  void *image;                /* a copy: the driver may read it until the module goes */
  module_function *functions; /* those that were looked up */
  size_t function_count;
};

vmm_status vmm_cuda_module_load(vmm_driver *driver, const void *image, size_t size, vmm_cuda_module **module,
                                char *message, size_t message_size) {
  vmm_cuda *cuda = cuda_of(driver);
  *module = NULL;
  if (message_size > 0) message[0] = '\0';
  vmm_cuda_module *loaded = calloc(1, sizeof *loaded);
  /* Aligned as a fatbin must be; the driver reads its size from it. */
  void *copy = malloc(size);
  if (!loaded || !copy) {
    free(loaded);
    free(copy);
    snprintf(message, message_size, "no memory for the kernels");
    return VMM_OUT_OF_MEMORY;
  }
  memcpy(copy, image, size);
  loaded->image = copy;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->ModuleLoadData(&loaded->module, copy);
  cuda_leave(cuda, &span);
  if (result != CUDA_SUCCESS) {
    free(copy);
    free(loaded);
    cuda_describe(cuda->api, result, "cuModuleLoadData", message, message_size);
    return cuda_fail(cuda, result, "cuModuleLoadData");
  }
  *module = loaded;
  return VMM_SUCCESS;
}

vmm_status vmm_cuda_module_load_built_in(vmm_driver *driver, const char *name, vmm_cuda_module **module,
                                         char *message, size_t message_size) {
  *module = NULL;
  for (const vmm_embedded_kernel *kernel = vmm_embedded_kernels; kernel->name; kernel++) {
    if (strcmp(kernel->name, name) != 0) continue;
    return vmm_cuda_module_load(driver, kernel->image, kernel->size, module, message, message_size);
  }
  snprintf(message, message_size, "no kernels named '%s' are built in", name);
  return VMM_NOT_FOUND;
}

void vmm_cuda_module_unload(vmm_driver *driver, vmm_cuda_module *module) {
  if (!module) return;
  vmm_cuda *cuda = cuda_of(driver);
  cuda_span span;
  if (cuda_enter(cuda, &span) == CUDA_SUCCESS) cuda->api->ModuleUnload(module->module);
  cuda_leave(cuda, &span);
  for (size_t i = 0; i < module->function_count; i++) free(module->functions[i].name);
  free(module->functions);
  free(module->image);
  free(module);
}

/* The context must be current. */
static CUresult find_function(const vmm_cuda *cuda, vmm_cuda_module *module, const char *name,
                              CUfunction *function) {
  for (size_t i = 0; i < module->function_count; i++) {
    if (strcmp(module->functions[i].name, name) != 0) continue;
    *function = module->functions[i].function;
    return CUDA_SUCCESS;
  }
  module_function *grown =
      realloc(module->functions, (module->function_count + 1) * sizeof *module->functions);
  if (!grown) return CUDA_ERROR_OUT_OF_MEMORY;
  module->functions = grown;
  CUresult result = cuda->api->ModuleGetFunction(function, module->module, name);
  if (result != CUDA_SUCCESS) return result;
  char *copy = strdup(name);
  if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  module->functions[module->function_count++] = (module_function){.name = copy, .function = *function};
  return CUDA_SUCCESS;
}

/* The context must be current. */
static CUresult launch(vmm_cuda *cuda, vmm_cuda_module *module, const char *kernel,
                       const vmm_cuda_shape *shape, vmm_stream index, void **arguments) {
  CUfunction function;
  CUstream stream;
  CUresult result = find_function(cuda, module, kernel, &function);
  if (result == CUDA_SUCCESS) result = (CUresult)cuda_stream_of(cuda, index, &stream);
  if (result != CUDA_SUCCESS) return result;
  uint32_t grid[3], block[3];
  for (int i = 0; i < 3; i++) {
    grid[i] = shape->grid[i] ? shape->grid[i] : 1;
    block[i] = shape->block[i] ? shape->block[i] : 1;
  }
  return cuda->api->LaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                 shape->shared_bytes, stream, arguments, NULL);
}

vmm_status vmm_cuda_launch(vmm_driver *driver, vmm_cuda_module *module, const char *kernel,
                           const vmm_cuda_shape *shape, vmm_stream stream, void **arguments) {
  vmm_cuda *cuda = cuda_of(driver);
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = launch(cuda, module, kernel, shape, stream, arguments);
  cuda_leave(cuda, &span);
  return cuda_fail(cuda, result, "cuLaunchKernel");
}

/* The context becomes current, and the stream is found. cuda_leave in any case. */
static CUresult enter_stream(vmm_cuda *cuda, vmm_stream index, cuda_span *span, CUstream *stream) {
  CUresult result = cuda_enter(cuda, span);
  return result == CUDA_SUCCESS ? (CUresult)cuda_stream_of(cuda, index, stream) : result;
}

vmm_status vmm_cuda_copy_to(vmm_driver *driver, vmm_address destination, const void *source, uint64_t size,
                            vmm_stream index) {
  vmm_cuda *cuda = cuda_of(driver);
  CUstream stream;
  cuda_span span;
  CUresult result = enter_stream(cuda, index, &span, &stream);
  if (result == CUDA_SUCCESS) result = cuda->api->MemcpyHtoDAsync(destination, source, size, stream);
  if (result == CUDA_SUCCESS) result = cuda->api->StreamSynchronize(stream);
  cuda_leave(cuda, &span);
  return cuda_fail(cuda, result, "cuMemcpyHtoDAsync");
}

vmm_status vmm_cuda_copy_from(vmm_driver *driver, void *destination, vmm_address source, uint64_t size,
                              vmm_stream index) {
  vmm_cuda *cuda = cuda_of(driver);
  CUstream stream;
  cuda_span span;
  CUresult result = enter_stream(cuda, index, &span, &stream);
  if (result == CUDA_SUCCESS) result = cuda->api->MemcpyDtoHAsync(destination, source, size, stream);
  if (result == CUDA_SUCCESS) result = cuda->api->StreamSynchronize(stream);
  cuda_leave(cuda, &span);
  return cuda_fail(cuda, result, "cuMemcpyDtoHAsync");
}

vmm_status vmm_cuda_set_bytes(vmm_driver *driver, vmm_address address, uint8_t value, uint64_t size,
                              vmm_stream index) {
  vmm_cuda *cuda = cuda_of(driver);
  CUstream stream;
  cuda_span span;
  CUresult result = enter_stream(cuda, index, &span, &stream);
  if (result == CUDA_SUCCESS) result = cuda->api->MemsetD8Async(address, value, size, stream);
  cuda_leave(cuda, &span);
  return cuda_fail(cuda, result, "cuMemsetD8Async");
}

void *vmm_cuda_host_alloc(vmm_driver *driver, uint64_t size, vmm_address *device_address) {
  vmm_cuda *cuda = cuda_of(driver);
  void *memory = NULL;
  CUdeviceptr seen = 0;
  cuda_span span;
  CUresult result = cuda_enter(cuda, &span);
  if (result == CUDA_SUCCESS) result = cuda->api->MemHostAlloc(&memory, size, CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_SUCCESS) {
    result = cuda->api->MemHostGetDevicePointer(&seen, memory, 0);
    if (result != CUDA_SUCCESS) cuda->api->MemFreeHost(memory);
  }
  cuda_leave(cuda, &span);
  if (cuda_fail(cuda, result, "cuMemHostAlloc") != VMM_SUCCESS) return NULL;
  *device_address = seen;
  return memory;
}

void vmm_cuda_host_free(vmm_driver *driver, void *memory) {
  if (!memory) return;
  vmm_cuda *cuda = cuda_of(driver);
  cuda_span span;
  if (cuda_enter(cuda, &span) == CUDA_SUCCESS) cuda->api->MemFreeHost(memory);
  cuda_leave(cuda, &span);
}

/* ---- fill and verify ---- */

enum { FINDINGS = 3, THREADS = 256, BLOCKS_A_MULTIPROCESSOR = 16 };

void cuda_patterns_destroy(vmm_cuda *cuda) {
  vmm_cuda_module_unload(&cuda->driver, cuda->patterns);
  vmm_cuda_host_free(&cuda->driver, cuda->findings);
  cuda->patterns = NULL;
  cuda->findings = NULL;
}

/* Loads the kernels at their first use. */
static vmm_status prepare_patterns(vmm_cuda *cuda) {
  char message[256];
  if (!cuda->findings) {
    cuda->findings =
        vmm_cuda_host_alloc(&cuda->driver, FINDINGS * sizeof *cuda->findings, &cuda->findings_address);
    if (!cuda->findings) return VMM_OUT_OF_MEMORY;
  }
  if (cuda->patterns) return VMM_SUCCESS;
  return vmm_cuda_module_load_built_in(&cuda->driver, "pattern", &cuda->patterns, message, sizeof message);
}

/* Enough threads for the whole device, but not more than there are words. */
static vmm_cuda_shape shape_for(const vmm_cuda *cuda, uint64_t size) {
  uint64_t blocks = (size / 8 + THREADS) / THREADS;
  uint64_t most = (uint64_t)cuda->information.multiprocessors * BLOCKS_A_MULTIPROCESSOR;
  return (vmm_cuda_shape){.grid = {(uint32_t)(blocks < most ? blocks : most)}, .block = {THREADS}};
}

vmm_status cuda_fill(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                     uint64_t pattern) {
  vmm_cuda *cuda = cuda_of(driver);
  vmm_status status = VMM_SUCCESS;
  /* A kernel that touches other memory would destroy the context. */
  if (!cuda_ledger_accessible(&cuda->ledger, address, size)) status = VMM_ILLEGAL_ADDRESS;
  if (status == VMM_SUCCESS) status = prepare_patterns(cuda);
  if (status == VMM_SUCCESS) {
    vmm_cuda_shape shape = shape_for(cuda, size);
    cuda_span span;
    status = (vmm_status)cuda_enter(cuda, &span);
    if (status == VMM_SUCCESS) {
      void *arguments[] = {&address, &size, &pattern};
      status = (vmm_status)launch(cuda, cuda->patterns, "pattern_fill", &shape, stream, arguments);
    }
    cuda_leave(cuda, &span);
  }
  if (status == VMM_SUCCESS) return VMM_SUCCESS;
  return cuda_refuse(cuda, status, VMM_CALL_FILL, address, size, stream, pattern);
}

/* Runs the kernel and waits for it; a second one reads the first wrong word. The context must be current. */
static CUresult run_verify(vmm_cuda *cuda, vmm_address address, uint64_t size, vmm_stream index,
                           uint64_t pattern) {
  vmm_cuda_shape shape = shape_for(cuda, size);
  void *arguments[] = {&address, &size, &pattern, &cuda->findings_address};
  cuda->findings[0] = 0;
  cuda->findings[1] = UINT64_MAX;
  CUstream stream;
  CUresult result = launch(cuda, cuda->patterns, "pattern_verify", &shape, index, arguments);
  if (result == CUDA_SUCCESS) result = (CUresult)cuda_stream_of(cuda, index, &stream);
  if (result == CUDA_SUCCESS) result = cuda->api->StreamSynchronize(stream);
  if (result != CUDA_SUCCESS || cuda->findings[0] == 0) return result;
  const vmm_cuda_shape one = {.grid = {1}};
  void *read_arguments[] = {&address, &size, &cuda->findings_address};
  result = launch(cuda, cuda->patterns, "pattern_read", &one, index, read_arguments);
  return result == CUDA_SUCCESS ? cuda->api->StreamSynchronize(stream) : result;
}

vmm_status cuda_verify(vmm_driver *driver, vmm_address address, uint64_t size, vmm_stream stream,
                       uint64_t pattern, vmm_mismatch *mismatch) {
  vmm_cuda *cuda = cuda_of(driver);
  vmm_status status = mismatch ? VMM_SUCCESS : VMM_INVALID_VALUE;
  if (status == VMM_SUCCESS && !cuda_ledger_accessible(&cuda->ledger, address, size)) {
    status = VMM_ILLEGAL_ADDRESS;
  }
  if (status == VMM_SUCCESS) status = prepare_patterns(cuda);
  if (status == VMM_SUCCESS) {
    cuda_span span;
    status = (vmm_status)cuda_enter(cuda, &span);
    if (status == VMM_SUCCESS) status = (vmm_status)run_verify(cuda, address, size, stream, pattern);
    cuda_leave(cuda, &span);
  }
  if (status != VMM_SUCCESS)
    return cuda_refuse(cuda, status, VMM_CALL_VERIFY, address, size, stream, pattern);
  *mismatch = (vmm_mismatch){0};
  if (cuda->findings[0] == 0) return VMM_SUCCESS;
  uint64_t first = cuda->findings[1], left = size - 8 * first;
  uint64_t mask = left < 8 ? (UINT64_C(1) << (8 * left)) - 1 : UINT64_MAX;
  *mismatch = (vmm_mismatch){.wrong_words = cuda->findings[0],
                             .first_offset = 8 * first,
                             .expected = vmm_pattern_word(pattern, first) & mask,
                             .found = cuda->findings[2]};
  return VMM_SUCCESS;
}
