#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "vmm/cuda_internal.h"

/* By number: the headers of the oldest CUDA lack the newest names. */
static const struct {
  const char *name;
  int number;
} attributes[] = {
    {"virtual memory management", CUDA_ATTRIBUTE_VMM},
    {"handles as POSIX file descriptors", CUDA_ATTRIBUTE_POSIX_FD},
    {"fabric handles", 128},
    {"GPUDirect RDMA", 116},
    {"GPUDirect RDMA with virtual memory management", CUDA_ATTRIBUTE_GPU_DIRECT_VMM},
    {"dma-buf export", 124},
    {"compressible memory", 107},
    {"stream-ordered pools", CUDA_ATTRIBUTE_POOLS},
    {"pool handle types (mask)", 119},
    {"memory of a host's NUMA node", 141},
    {"host memory through virtual memory management", 145},
    {"unified addressing", 41},
    {"multicast", 132},
    {"ECC", 32},
    {"integrated", 18},
    {"multiprocessors", CUDA_ATTRIBUTE_MULTIPROCESSORS},
    {"copy engines", 40},
    {"L2 cache (bytes)", 38},
    {"memory bus (bits)", 37},
};

int cuda_attribute(const cuda_library *library, CUdevice device, int number) {
  int value = 0;
  CUresult result = library->DeviceGetAttribute(&value, (CUdevice_attribute)number, device);
  return result == CUDA_SUCCESS ? value : 0;
}

/* Copies the first word of a text that looks like "580.159.04". */
static bool find_version(const char *text, char *version, size_t version_size) {
  for (const char *word = text; *word;) {
    size_t length = strcspn(word, " \t\n"), digits = strspn(word, "0123456789.");
    const char *dot = memchr(word, '.', length);
    if (length > 0 && digits == length && isdigit((unsigned char)word[0]) && dot && dot + 1 < word + length) {
      snprintf(version, version_size, "%.*s", (int)length, word);
      return true;
    }
    word += length;
    word += strspn(word, " \t\n");
  }
  return false;
}

/* The version of the kernel's driver, from where it shows it, or from the name of its library's file. */
static void find_driver_version(const char *library_path, char *version, size_t version_size) {
  static const char *const files[] = {"/proc/driver/nvidia/version", "/sys/module/nvidia/version"};
  version[0] = '\0';
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    FILE *file = fopen(files[i], "r");
    if (!file) continue;
    char line[512] = "";
    bool found = fgets(line, sizeof line, file) && find_version(line, version, version_size);
    fclose(file);
    if (found) return;
  }
  const char *suffix = strstr(library_path, ".so.");
  if (suffix) find_version(suffix + strlen(".so."), version, version_size);
}

static vmm_status fail(const cuda_library *library, CUresult result, const char *call, char *message,
                       size_t message_size) {
  cuda_describe(library, result, call, message, message_size);
  return (vmm_status)result;
}

vmm_status cuda_inspect(const cuda_library *library, unsigned ordinal, CUdevice *device,
                        vmm_cuda_information *information, char *message, size_t message_size) {
  char call[64];
  information->cuda_version = library->version;
  snprintf(information->library, sizeof information->library, "%s", library->path);
  find_driver_version(library->path, information->driver_version, sizeof information->driver_version);
  information->ordinal = ordinal;
  int count = 0;
  CUresult result = library->DeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return fail(library, result, "cuDeviceGetCount", message, message_size);
  information->device_count = count < 0 ? 0 : (unsigned)count;
  if (information->device_count == 0) {
    snprintf(message, message_size,
             "the NVIDIA driver sees no device: look at nvidia-smi and at CUDA_VISIBLE_DEVICES");
    return VMM_NO_DEVICE;
  }
  if (ordinal >= information->device_count) {
    snprintf(message, message_size, "there is no device %u: this machine has %u, numbered from 0", ordinal,
             information->device_count);
    return VMM_INVALID_DEVICE;
  }
  snprintf(call, sizeof call, "cuDeviceGet(ordinal=%u)", ordinal);
  result = library->DeviceGet(device, (int)ordinal);
  if (result != CUDA_SUCCESS) return fail(library, result, call, message, message_size);
  snprintf(call, sizeof call, "cuDeviceGetName(device=%u)", ordinal);
  result = library->DeviceGetName(information->device, sizeof information->device, *device);
  if (result != CUDA_SUCCESS) return fail(library, result, call, message, message_size);
  size_t total = 0;
  snprintf(call, sizeof call, "cuDeviceTotalMem(device=%u)", ordinal);
  result = library->DeviceTotalMem(&total, *device);
  if (result != CUDA_SUCCESS) return fail(library, result, call, message, message_size);
  information->total_bytes = total;
  /* The bus is for people; without it the rest still holds. */
  if (library->DeviceGetPCIBusId(information->bus, sizeof information->bus, *device) != CUDA_SUCCESS) {
    information->bus[0] = '\0';
  }
  information->compute_major = cuda_attribute(library, *device, CUDA_ATTRIBUTE_COMPUTE_MAJOR);
  information->compute_minor = cuda_attribute(library, *device, CUDA_ATTRIBUTE_COMPUTE_MINOR);
  information->multiprocessors = cuda_attribute(library, *device, CUDA_ATTRIBUTE_MULTIPROCESSORS);
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
    int value = 0;
    result = library->DeviceGetAttribute(&value, (CUdevice_attribute)attributes[i].number, *device);
    information->attributes[information->attribute_count++] =
        (vmm_cuda_attribute){.name = attributes[i].name,
                             .number = attributes[i].number,
                             .value = result == CUDA_SUCCESS ? value : -1};
  }
  return VMM_SUCCESS;
}

_Static_assert(sizeof attributes / sizeof *attributes <= VMM_CUDA_ATTRIBUTES, "the list is full");

vmm_status vmm_cuda_inspect(unsigned ordinal, vmm_cuda_information *information, char *message,
                            size_t message_size) {
  *information = (vmm_cuda_information){.cuda_build_version = CUDA_VERSION};
  const cuda_library *library;
  vmm_status status = cuda_library_get(&library, message, message_size);
  CUdevice device;
  return status == VMM_SUCCESS ? cuda_inspect(library, ordinal, &device, information, message, message_size)
                               : status;
}
