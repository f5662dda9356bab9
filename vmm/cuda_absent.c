/* The real device in a program that was built without the CUDA toolkit: there is none. */
#include <stdio.h>
#include <string.h>

#include "vmm/cuda.h"

static vmm_status refuse(char *message, size_t message_size) {
  snprintf(
      message, message_size,
      "this program was built without CUDA: install the CUDA toolkit (or set CUDA_HOME) and build it again");
  return VMM_NO_DEVICE;
}

vmm_status vmm_cuda_create(const vmm_cuda_configuration *configuration, vmm_driver **driver, char *message,
                           size_t message_size) {
  (void)configuration;
  *driver = NULL;
  return refuse(message, message_size);
}

vmm_status vmm_cuda_inspect(unsigned ordinal, vmm_cuda_information *information, char *message,
                            size_t message_size) {
  memset(information, 0, sizeof *information);
  information->ordinal = ordinal;
  return refuse(message, message_size);
}

/* No driver object exists here, so nothing below is ever given one. */

const vmm_cuda_information *vmm_cuda_information_of(const vmm_driver *driver) {
  (void)driver;
  static const vmm_cuda_information none;
  return &none;
}

vmm_status vmm_cuda_granularities(vmm_driver *driver, uint64_t *minimum, uint64_t *recommended) {
  (void)driver;
  *minimum = *recommended = 0;
  return VMM_NO_DEVICE;
}

void vmm_cuda_usage_get(const vmm_driver *driver, vmm_cuda_usage *usage) {
  (void)driver;
  *usage = (vmm_cuda_usage){0};
}

vmm_status vmm_cuda_stream_adopt(vmm_driver *driver, vmm_stream index, void *stream) {
  (void)driver;
  (void)index;
  (void)stream;
  return VMM_NO_DEVICE;
}

vmm_status vmm_cuda_module_load(vmm_driver *driver, const void *image, size_t size, vmm_cuda_module **module,
                                char *message, size_t message_size) {
  (void)driver;
  (void)image;
  (void)size;
  *module = NULL;
  return refuse(message, message_size);
}

vmm_status vmm_cuda_module_load_built_in(vmm_driver *driver, const char *name, vmm_cuda_module **module,
                                         char *message, size_t message_size) {
  (void)driver;
  (void)name;
  *module = NULL;
  return refuse(message, message_size);
}

void vmm_cuda_module_unload(vmm_driver *driver, vmm_cuda_module *module) {
  (void)driver;
  (void)module;
}

vmm_status vmm_cuda_launch(vmm_driver *driver, vmm_cuda_module *module, const char *kernel,
                           const vmm_cuda_shape *shape, vmm_stream stream, void **arguments) {
  (void)driver;
  (void)module;
  (void)kernel;
  (void)shape;
  (void)stream;
  (void)arguments;
  return VMM_NO_DEVICE;
}

vmm_status vmm_cuda_time_record(vmm_driver *driver, vmm_stream stream, vmm_event *event) {
  (void)driver;
  (void)stream;
  (void)event;
  return VMM_NO_DEVICE;
}

vmm_status vmm_cuda_time_between(vmm_driver *driver, vmm_event begin, vmm_event end, double *milliseconds) {
  (void)driver;
  (void)begin;
  (void)end;
  (void)milliseconds;
  return VMM_NO_DEVICE;
}

vmm_status vmm_cuda_copy_to(vmm_driver *driver, vmm_address destination, const void *source, uint64_t size,
                            vmm_stream stream) {
  (void)driver;
  (void)destination;
  (void)source;
  (void)size;
  (void)stream;
  return VMM_NO_DEVICE;
}

vmm_status vmm_cuda_copy_from(vmm_driver *driver, void *destination, vmm_address source, uint64_t size,
                              vmm_stream stream) {
  (void)driver;
  (void)destination;
  (void)source;
  (void)size;
  (void)stream;
  return VMM_NO_DEVICE;
}

vmm_status vmm_cuda_set_bytes(vmm_driver *driver, vmm_address address, uint8_t value, uint64_t size,
                              vmm_stream stream) {
  (void)driver;
  (void)address;
  (void)value;
  (void)size;
  (void)stream;
  return VMM_NO_DEVICE;
}

void *vmm_cuda_host_alloc(vmm_driver *driver, uint64_t size, vmm_address *device_address) {
  (void)driver;
  (void)size;
  *device_address = 0;
  return NULL;
}

void vmm_cuda_host_free(vmm_driver *driver, void *memory) {
  (void)driver;
  (void)memory;
}

const char *vmm_cuda_failure(const vmm_driver *driver) {
  (void)driver;
  return "";
}
