/* What an instrument is: something that hears the ranges of a run as they begin and end.
 *
 * Ranges nest: the run > the harness's own work or an operation of the policy > operations of the pool layer
 * and of the policy's own > driver calls. Everything happens on the thread that replays. */
#ifndef LAKEBED_HARNESS_INSTRUMENT_H
#define LAKEBED_HARNESS_INSTRUMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "pools/heap.h"
#include "vmm/driver.h"

/* XX(name, text) */
#define INSTRUMENT_LAYER_MAP(XX)                                              \
  XX(HARNESS, "harness") /* the run itself, filling, verifying */             \
  XX(POLICY, "policy")   /* alloc, free, record_stream, trim */               \
  XX(POOL, "pool")       /* grow, and what a policy defines: S1, stitch... */ \
  XX(DRIVER, "driver")   /* cuMemCreate and so on */

typedef enum instrument_layer {
#define XX(name, text) INSTRUMENT_##name,
  INSTRUMENT_LAYER_MAP(XX)
#undef XX
      INSTRUMENT_LAYER_COUNT
} instrument_layer;

typedef struct instrument_range {
  instrument_layer layer;
  const char *name; /* static, or lives as long as the run */
  vmm_call call;    /* DRIVER */
  uint64_t bytes;   /* what it is about; 0: unknown or nothing */
  uint64_t chunks;  /* physical chunks that the policy holds as it begins */
  uint32_t state;   /* 1 to 5 in a policy's S1 to S5, whatever is nested in it; else 0 */
} instrument_range;

/* How it ended. */
typedef struct instrument_outcome {
  vmm_status status;     /* DRIVER; else SUCCESS */
  uint64_t driver_ns;    /* in driver calls, nested ones too: modelled by sim, measured by cuda */
  uint64_t driver_calls; /* nested */
} instrument_outcome;

typedef struct instrument_memory {
  uint64_t live_bytes; /* sizes of live requests, each rounded up to 512 */
  uint64_t allocated_bytes;
  uint64_t reserved_bytes;
} instrument_memory;

/* One trace through one policy. */
typedef struct instrument_run {
  const char *policy; /* its spec: "gmlake:chunk=4MiB" */
  const char *trace;  /* the name of the file */
  bool modelled;      /* driver calls take no time of their own: busy_ns says how long they would */
  vmm_driver *device; /* under the meter */
} instrument_run;

typedef struct instrument instrument;

typedef struct instrument_class {
  const char *name;
  /* The outermost range: the run. */
  void (*run_begin)(instrument *self, const instrument_run *run);
  void (*run_end)(instrument *self);
  /* The ranges within it, of the layers that the instrument asked for. */
  void (*begin)(instrument *self, const instrument_range *range);
  void (*end)(instrument *self, const instrument_range *range, const instrument_outcome *outcome);
  /* What follows may be NULL. */
  /* Reading the trace is no part of the run. */
  void (*pause)(instrument *self);
  void (*resume)(instrument *self);
  /* After an event that changed it. */
  void (*memory)(instrument *self, const instrument_memory *memory);
  /* A request was served. number: the event's, over all laps, from 0. */
  void (*allocated)(instrument *self, vmm_address address, uint64_t size, uint64_t number);
  void (*freed)(instrument *self, vmm_address address);
  /* Ends it. Returns false and says why when its output is not complete. */
  bool (*destroy)(instrument *self, char *message, size_t message_size);
} instrument_class;

struct instrument {
  const instrument_class *class;
  unsigned layers; /* bits: 1u << instrument_layer */
};

enum { INSTRUMENT_ALL_LAYERS = (1u << INSTRUMENT_LAYER_COUNT) - 1 };

/* "policy" and so on. Static. */
const char *instrument_layer_name(instrument_layer layer);

#endif
