#include "vmm/driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *vmm_status_name(vmm_status status) {
  switch (status) {
#define XX(name, value, text) \
  case VMM_##name:            \
    return VMM_##name == VMM_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_" #name;
    VMM_STATUS_MAP(XX)
#undef XX
  }
  return "CUDA_ERROR_UNKNOWN";
}

const char *vmm_status_text(vmm_status status) {
  switch (status) {
#define XX(name, value, text) \
  case VMM_##name:            \
    return text;
    VMM_STATUS_MAP(XX)
#undef XX
  }
  return "unknown error";
}

/* The parameters of each call, in the order of vmm_error.argument. */
static const char *const parameter_names[VMM_CALL_COUNT][4] = {
    [VMM_CALL_ADDRESS_RESERVE] = {"size", "alignment"},
    [VMM_CALL_ADDRESS_FREE] = {"address", "size"},
    [VMM_CALL_CREATE] = {"size"},
    [VMM_CALL_RELEASE] = {"handle"},
    [VMM_CALL_MAP] = {"address", "size", "offset", "handle"},
    [VMM_CALL_UNMAP] = {"address", "size"},
    [VMM_CALL_SET_ACCESS] = {"address", "size"},
    [VMM_CALL_MALLOC] = {"size"},
    [VMM_CALL_FREE] = {"address"},
    [VMM_CALL_MALLOC_ASYNC] = {"size", "stream"},
    [VMM_CALL_FREE_ASYNC] = {"address", "stream"},
    [VMM_CALL_POOL_CONFIGURE] = {"threshold", "maximum"},
    [VMM_CALL_POOL_TRIM] = {"keep"},
    [VMM_CALL_EVENT_RECORD] = {"stream"},
    [VMM_CALL_EVENT_QUERY] = {"event"},
    [VMM_CALL_EVENT_WAIT] = {"event"},
    [VMM_CALL_STREAM_WAIT_EVENT] = {"stream", "event"},
    [VMM_CALL_FILL] = {"address", "size", "stream", "pattern"},
    [VMM_CALL_VERIFY] = {"address", "size", "stream", "pattern"},
};

const char *vmm_call_name(vmm_call call) {
  static const char *const names[VMM_CALL_COUNT] = {
#define XX(name, text) [VMM_CALL_##name] = text,
      VMM_CALL_MAP(XX)
#undef XX
  };
  return (unsigned)call < VMM_CALL_COUNT ? names[call] : "unknown call";
}

vmm_status vmm_error_set(vmm_driver *driver, vmm_status status, vmm_call call, uint64_t argument0,
                         uint64_t argument1, uint64_t argument2, uint64_t argument3) {
  if (driver->error.status == VMM_SUCCESS && status != VMM_SUCCESS) {
    driver->error =
        (vmm_error){.status = status, .call = call, .argument = {argument0, argument1, argument2, argument3}};
  }
  return status;
}

void vmm_error_clear(vmm_driver *driver) { driver->error = (vmm_error){.status = VMM_SUCCESS}; }

/* Appends at *used; what does not fit is cut off. */
static void append(char *text, size_t text_size, size_t *used, const char *piece) {
  while (*piece && *used + 1 < text_size) text[(*used)++] = *piece++;
  text[*used] = '\0';
}

void vmm_error_format(const vmm_error *error, char *text, size_t text_size) {
  if (text_size == 0) return;
  text[0] = '\0';
  if (error->status == VMM_SUCCESS) return;
  size_t used = 0;
  append(text, text_size, &used, vmm_call_name(error->call));
  append(text, text_size, &used, "(");
  if ((unsigned)error->call < VMM_CALL_COUNT) {
    for (int i = 0; i < 4 && parameter_names[error->call][i]; i++) {
      const char *parameter = parameter_names[error->call][i];
      char number[32];
      if (strcmp(parameter, "address") == 0) {
        snprintf(number, sizeof number, "=0x%" PRIx64, error->argument[i]);
      } else {
        snprintf(number, sizeof number, "=%" PRIu64, error->argument[i]);
      }
      if (i > 0) append(text, text_size, &used, ", ");
      append(text, text_size, &used, parameter);
      append(text, text_size, &used, number);
    }
  }
  append(text, text_size, &used, ") returned ");
  append(text, text_size, &used, vmm_status_name(error->status));
  char code[24];
  snprintf(code, sizeof code, " (%d): ", (int)error->status);
  append(text, text_size, &used, code);
  bool no_addresses = error->call == VMM_CALL_ADDRESS_RESERVE && error->status == VMM_OUT_OF_MEMORY;
  append(text, text_size, &used,
         no_addresses ? "no address space left for that" : vmm_status_text(error->status));
}
