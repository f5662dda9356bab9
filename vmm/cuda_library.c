#define _GNU_SOURCE

#include "vmm/cuda_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY_NAME "libcuda.so.1"
/* CU_GET_PROC_ADDRESS_LEGACY_STREAM, which the oldest headers lack. */
#define LEGACY_STREAM UINT64_C(1)

typedef CUresult (*get_proc_address)(const char *symbol, void **function, int version, cuuint64_t flags);
/* The answer of the newer one is an enum; only its result matters here. */
typedef CUresult (*get_proc_address_v2)(const char *symbol, void **function, int version, cuuint64_t flags,
                                        int *symbol_status);

/* How the functions of an opened library are found. */
typedef struct finder {
  void *opened;
  get_proc_address_v2 newer;
  get_proc_address older;
} finder;

static void *find(const finder *find_in, const char *symbol, const char *exported, int version) {
  void *function = NULL;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  int symbol_status = 0;
  if (find_in->newer) {
    result = find_in->newer(symbol, &function, version, LEGACY_STREAM, &symbol_status);
  } else if (find_in->older) {
    result = find_in->older(symbol, &function, version, LEGACY_STREAM);
  }
  if (result != CUDA_SUCCESS || !function) function = dlsym(find_in->opened, exported);
  return function;
}

/* Finds every function; NULL, or the name of the first that is missing. */
static const char *find_all(const finder *find_in, cuda_library *library) {
  /* POSIX lets a void pointer be a function's address; C does only through its bytes. */
#define XX(name, exported, number)                                  \
  {                                                                 \
    void *function = find(find_in, "cu" #name, exported, (number)); \
    if (!function) return exported;                                 \
    memcpy(&library->name, &function, sizeof function);             \
  }
  CUDA_FUNCTION_MAP(XX)
#undef XX
  return NULL;
}

static void find_path(cuda_library *library) {
  Dl_info place;
  void *function;
  memcpy(&function, &library->Init, sizeof function);
  if (!dladdr(function, &place) || !place.dli_fname) return;
  char *resolved = realpath(place.dli_fname, NULL);
  snprintf(library->path, sizeof library->path, "%s", resolved ? resolved : place.dli_fname);
  free(resolved);
}

void cuda_describe(const cuda_library *library, CUresult result, const char *call, char *text,
                   size_t text_size) {
  const char *name = NULL, *meaning = NULL;
  if (library->GetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "an unknown error";
  if (library->GetErrorString(result, &meaning) != CUDA_SUCCESS || !meaning) meaning = "no description";
  snprintf(text, text_size, "%s returned %s (%d): %s", call, name, (int)result, meaning);
}

/* What to do about a library that does not start. */
static const char *start_advice(CUresult result) {
  switch ((int)result) {
    case VMM_STUB_LIBRARY:
      return "this is the toolkit's stub, which is for linking only: put the driver's own libcuda.so.1 "
             "before it in "
             "LD_LIBRARY_PATH";
    case VMM_NO_DEVICE:
      return "the driver's library is there but no GPU is visible: look at nvidia-smi, at "
             "CUDA_VISIBLE_DEVICES, and "
             "whether a container was given its GPUs";
    case VMM_SYSTEM_NOT_READY:
      return "on machines with NVSwitch the fabric manager must run first";
    case VMM_SYSTEM_DRIVER_MISMATCH:
      return "the kernel's driver and libcuda are of different versions: restart after an update, or mount "
             "the host's "
             "libraries into the container";
    default:
      return "look at nvidia-smi and whether /dev/nvidia* can be opened";
  }
}

static vmm_status start(cuda_library *library, char *message, size_t message_size) {
  CUresult result = library->Init(0);
  char cause[256];
  if (result != CUDA_SUCCESS) {
    cuda_describe(library, result, "cuInit(flags=0)", cause, sizeof cause);
    snprintf(message, message_size, "%s; %s", cause, start_advice(result));
    return (vmm_status)result;
  }
  result = library->DriverGetVersion(&library->version);
  if (result != CUDA_SUCCESS) {
    cuda_describe(library, result, "cuDriverGetVersion", message, message_size);
    return (vmm_status)result;
  }
  if (library->version < CUDA_OLDEST_VERSION) {
    snprintf(message, message_size, "the driver supports CUDA %d.%d; CUDA %d.%d or later is needed",
             library->version / 1000, library->version % 1000 / 10, CUDA_OLDEST_VERSION / 1000,
             CUDA_OLDEST_VERSION % 1000 / 10);
    return VMM_NOT_SUPPORTED;
  }
  return VMM_SUCCESS;
}

static vmm_status load(cuda_library *library, char *message, size_t message_size) {
  finder find_in = {.opened = dlopen(LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL)};
  if (!find_in.opened) {
    const char *reason = dlerror();
    snprintf(message, message_size,
             LIBRARY_NAME
             " cannot be loaded (%s): this machine has no NVIDIA driver, or the driver's folder is not on "
             "the loader's path",
             reason ? reason : "no reason given");
    return VMM_NO_DEVICE;
  }
  void *function = dlsym(find_in.opened, "cuGetProcAddress_v2");
  memcpy(&find_in.newer, &function, sizeof function);
  function = dlsym(find_in.opened, "cuGetProcAddress");
  memcpy(&find_in.older, &function, sizeof function);
  const char *missing = find_all(&find_in, library);
  vmm_status status;
  if (missing) {
    snprintf(message, message_size,
             LIBRARY_NAME " has no function %s: a driver for CUDA %d.%d or later is needed", missing,
             CUDA_OLDEST_VERSION / 1000, CUDA_OLDEST_VERSION % 1000 / 10);
    status = VMM_NOT_SUPPORTED;
  } else {
    find_path(library);
    status = start(library, message, message_size);
  }
  /* A library that started stays loaded until the process ends. */
  if (status != VMM_SUCCESS) dlclose(find_in.opened);
  return status;
}

vmm_status cuda_library_get(const cuda_library **library, char *message, size_t message_size) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static cuda_library shared;
  static bool loaded;
  vmm_status status = VMM_SUCCESS;
  pthread_mutex_lock(&lock);
  if (!loaded) {
    shared = (cuda_library){0};
    status = load(&shared, message, message_size);
    loaded = status == VMM_SUCCESS;
  }
  pthread_mutex_unlock(&lock);
  *library = loaded ? &shared : NULL;
  return status;
}
