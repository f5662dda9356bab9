/* The device that a run gets: chosen once, made fresh for every run, metered. */
#ifndef LAKEBED_HARNESS_DEVICE_H
#define LAKEBED_HARNESS_DEVICE_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/exit_status.h"
#include "vmm/driver.h"
#include "vmm/profile.h"

typedef struct device_choice {
  const char *driver;   /* "sim" or "cuda" */
  const char *profile;  /* sim: a built-in profile or a file */
  uint64_t capacity;    /* sim: bytes; 0: the profile's */
  bool backed;          /* sim: real memory behind the addresses */
  uint64_t event_delay; /* sim: events of a trace until a recorded event is reached; 0: it is at once */
  unsigned ordinal;     /* cuda: which of the machine's devices */
} device_choice;

/* --device, --device-ordinal and --capacity. Its input is a device_choice. */
extern const struct argp device_choice_parser;
/* The same for a command whose simulated device has 512 MiB where none is given. */
extern const struct argp device_choice_small_parser;

/* A device as it was chosen. */
typedef struct device_model {
  const char *driver;
  vmm_profile *profile; /* sim */
  vmm_driver *real;     /* cuda: keeps the device open between runs */
  unsigned ordinal;     /* cuda */
  const char *name;     /* "NVIDIA H200" */
  const char *source;   /* where its latencies come from; NULL: they are measured */
  const char *choice;   /* sim: the profile as it was named */
  char version[64];     /* cuda: "driver 580.1, CUDA 13.0" */
  uint64_t granularity; /* bytes; memory is taken in multiples */
  uint64_t capacity;    /* bytes that a process can take */
  uint64_t total;       /* bytes of the device, of which a fraction is a limit */
  bool backed;
  uint64_t event_delay;
} device_model;

typedef struct device {
  const device_model *model;
  vmm_driver *raw;      /* the device itself */
  vmm_driver *meter;    /* around it: what a policy gets */
  uint64_t free_before; /* cuda: bytes of the device that were free when the run began */
} device;

/* Can a simulated device have so many bytes? If not, says how many it can. */
bool device_capacity_allowed(uint64_t capacity, char *message, size_t message_size);
/* Checks the choice. On failure says why: usage (unknown driver or profile, bad capacity) or
 * no device. Borrows the choice's strings. */
exit_status device_model_load(const device_choice *choice, device_model *model, char *message,
                              size_t message_size);
/* The same, with the word said. */
exit_status device_model_open(const device_choice *choice, device_model *model);
void device_model_unload(device_model *model);

/* A fresh device with a meter around it. */
exit_status device_open(const device_model *model, device *opened, char *message, size_t message_size);
/* An event of the trace has been replayed. A real device is waited for: the next event finds it idle and
 * its events reached, or what a policy does would depend on how fast this program is. A simulated one is so
 * by itself, unless an event delay lets time pass event by event; for policies that use the driver's pool it
 * is waited for as well, because the pool then gives memory back. */
vmm_status device_advance(device *opened, bool uses_pool);
/* Does the device hold nothing, and has a real one as much free memory as when it was opened? If not, says
 * what is left. */
bool device_is_empty(device *opened, char *message, size_t message_size);
/* Bytes that the device holds for this process; false when it cannot tell. */
bool device_held_bytes(const device *opened, uint64_t *bytes);
/* The first failing driver call since the last clear; empty when there was none. */
void device_error_format(const device *opened, char *text, size_t text_size);
void device_error_clear(device *opened);
void device_close(device *opened);

#endif
