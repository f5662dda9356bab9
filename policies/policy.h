/* The policy interface: one struct of functions per allocator policy.
 *
 * A policy turns requests into driver calls. It is created over a driver
 * (metered, simulated or real), serves alloc and free, and gives everything back
 * when destroyed. Policies are found by name (policy_find) and made from a spec
 * "name[:key=value,...]" (policy_create). To add one: one file, one line in
 * policies/list.h, its golden numbers.
 *
 * Not thread-safe unless the capability says so: one caller at a time. */
#ifndef LAKEBED_POLICIES_POLICY_H
#define LAKEBED_POLICIES_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pools/heap.h"
#include "vmm/driver.h"

#define POLICY_MAGIC UINT32_C(0x4c4b4244) /* "LKBD" */
#define POLICY_ABI UINT32_C(2)

typedef enum policy_capability {
  POLICY_NEEDS_VMM = 1u << 0,       /* uses reserve, create, map */
  POLICY_NEEDS_ASYNC = 1u << 1,     /* uses the driver's stream-ordered pool */
  POLICY_NEEDS_LIFETIMES = 1u << 2, /* an oracle: must see the whole trace first */
  POLICY_NO_MEMORY = 1u << 3        /* hands out addresses without memory behind them: nothing to verify */
} policy_capability;

typedef enum policy_option_type {
  POLICY_OPTION_SIZE,    /* bytes with suffix: 2MiB, 2MB, 1.5GiB, 4096; K, KB and KiB are 1024; "unlimited" is
                            UINT64_MAX */
  POLICY_OPTION_INTEGER, /* a non-negative whole number; "unlimited" is UINT64_MAX */
  POLICY_OPTION_REAL,
  POLICY_OPTION_BOOLEAN, /* true, false, 1, 0, on, off, yes, no */
  POLICY_OPTION_CHOICE,  /* one of the words in choices */
  POLICY_OPTION_TEXT     /* the policy parses it */
} policy_option_type;

typedef struct policy_option {
  const char *name;
  policy_option_type type;
  const char *default_value; /* as it would be written on the command line */
  double minimum, maximum;   /* SIZE, INTEGER, REAL: inclusive; both 0: any */
  const char *choices;       /* CHOICE: words separated by '|' */
  const char *unit;          /* "bytes", "blocks", "" */
  const char *help;          /* one sentence */
} policy_option;

/* The minimum of a size that is a multiple of the device's granularity. */
#define POLICY_GRANULARITY 1

/* The unit of a real option that does nothing without a limit. */
#define POLICY_SHARE_OF_LIMIT "share of --limit"

/* Values after parsing, in the order of the policy's table. */
typedef struct policy_value {
  uint64_t integer; /* SIZE, INTEGER, BOOLEAN (0, 1), CHOICE (index of the word) */
  double real;      /* REAL */
  char text[128];   /* as written, or the default */
} policy_value;

typedef struct policy policy;

/* A request, as a policy with POLICY_NEEDS_LIFETIMES is told of it in advance. */
typedef struct policy_lifetime {
  uint64_t size; /* of at least one byte */
  uint64_t end;  /* requests that are made before its free, itself included; all where it is not freed */
  vmm_stream stream;
  bool optional; /* it failed when the trace was recorded, and may fail again; freed at once */
} policy_lifetime;

/* All requests of a trace that reach the policy, in their order. Several laps repeat them, each after all
 * has been freed. */
typedef struct policy_lifetimes {
  const policy_lifetime *items;
  uint64_t count;
} policy_lifetimes;

typedef struct policy_configuration {
  vmm_driver *driver;                /* borrowed; outlives the policy */
  const policy_value *values;        /* one per option */
  uint64_t limit;                    /* most bytes the policy may hold from the driver; UINT64_MAX: none */
  const policy_lifetimes *lifetimes; /* borrowed during create; NULL: nobody knows the future */
} policy_configuration;

/* A number that only this policy has: "stitch_free", "calls", 12. */
typedef struct policy_counter {
  const char *name; /* snake_case with the unit as its ending; static */
  uint64_t value;
} policy_counter;

/* A run of addresses that a policy keeps as one: a pBlock, an sBlock, a window. For maps of memory. */
typedef struct policy_block {
  const char *kind; /* "pBlock"; static */
  bool stitched;    /* maps memory that is at home elsewhere; else its memory is at home here */
  bool held;        /* given out, or some of it is */
  vmm_address address;
  uint64_t size;
  vmm_stream stream;
} policy_block;

typedef void policy_block_visit(void *context, const policy_block *block);

typedef struct policy_class {
  uint32_t magic; /* POLICY_MAGIC */
  uint32_t abi;   /* POLICY_ABI */
  size_t size;    /* sizeof(policy_class) */
  const char *name;
  const char *summary; /* one line */
  uint32_t capabilities;
  const policy_option *options; /* ends with a name of NULL; NULL: none */

  /* Makes the policy. Mandatory. On failure nothing remains and message says why
   * (bad combination of options: INVALID_VALUE). */
  vmm_status (*create)(const policy_configuration *configuration, policy **created, char *message,
                       size_t message_size);
  /* Gives everything back to the driver, live allocations too. Mandatory. */
  void (*destroy)(policy *self);
  /* size > 0. Mandatory. OUT_OF_MEMORY, or the driver's failure, leaves the policy as if not asked. */
  vmm_status (*alloc)(policy *self, uint64_t size, vmm_stream stream, vmm_address *address);
  /* Mandatory. INVALID_VALUE for an address that is not live. */
  vmm_status (*free)(policy *self, vmm_address address);
  /* stream also uses the allocation: not to be reused before that stream's work is done. */
  vmm_status (*record_stream)(policy *self, vmm_address address, vmm_stream stream);
  /* Returns unused memory to the driver, as empty_cache does. */
  vmm_status (*trim)(policy *self);
  /* Another limit from now on, as policy_set_limit says. NULL: the heap's limit is all there is to set. */
  vmm_status (*set_limit)(policy *self, uint64_t limit);
  /* Policy-specific counters: writes at most capacity, returns how many there are. */
  size_t (*counters)(const policy *self, policy_counter *counters, size_t capacity);
  /* The largest run of bytes the policy could hand out without asking the driver, on any
   * stream; for out-of-memory reports. O(streams * log n) or better. */
  uint64_t (*largest_free)(const policy *self);
  /* Visits the runs of free memory that the policy keeps, on any stream; for out-of-memory reports.
   * Together with what is handed out, or waits for streams, they are all that it holds. O(runs). */
  void (*free_ranges)(const policy *self, pool_range_visit *visit, void *context);
  /* The policy's own invariants, after pool_heap_check has passed. Returns false and says
   * what is broken. O(all blocks). */
  bool (*check)(const policy *self, char *message, size_t message_size);
  /* Visits the blocks that the policy keeps itself, in no order, where it maps memory at more than one
   * address: those at home do not overlap, and have all memory that stitched ones map. O(blocks). */
  void (*blocks)(const policy *self, policy_block_visit *visit, void *context);
} policy_class;

/* Every policy begins with this; the wrappers below rely on it. */
struct policy {
  const policy_class *class;
  pool_heap heap; /* memory held, live allocations, statistics: see pools/heap.h */
};

/* All registered policies in their listed order, NULL-terminated, static. */
const policy_class *const *policy_list(void);
/* NULL when there is none of this name. */
const policy_class *policy_find(const char *name);
/* The one of words (NULL-terminated) most like a misspelt one: the fewest edits, at most a
 * third of its length and one more; NULL if none is near. O(words * length^2). */
const char *policy_nearest_word(const char *misspelt, const char *const *words);

enum { POLICY_OPTIONS_LIMIT = 32 };

/* A parsed spec. */
typedef struct policy_spec {
  const policy_class *class;
  policy_value values[POLICY_OPTIONS_LIMIT];
  char text[256]; /* as given */
} policy_spec;

/* Parses "name[:key=value,...]". On failure returns INVALID_VALUE and message names the
 * offending word, the valid ones and the nearest match: unknown policy, unknown or
 * repeated key, missing '=', bad value, value out of range. */
vmm_status policy_spec_parse(const char *text, policy_spec *spec, char *message, size_t message_size);
/* Parses a size as POLICY_OPTION_SIZE does. false on anything else, negative or overflowing. */
bool policy_parse_size(const char *text, uint64_t *bytes);

/* Makes a policy from a spec over a driver. The caller destroys it with policy_destroy. */
vmm_status policy_create(const policy_spec *spec, vmm_driver *driver, uint64_t limit, policy **created,
                         char *message, size_t message_size);
/* The same for a policy that may need to know the future; lifetimes are borrowed for the call. Without them,
 * as with policy_create, a policy with POLICY_NEEDS_LIFETIMES is refused: INVALID_VALUE. */
vmm_status policy_create_with_lifetimes(const policy_spec *spec, vmm_driver *driver, uint64_t limit,
                                        const policy_lifetimes *lifetimes, policy **created, char *message,
                                        size_t message_size);
/* Accepts NULL. */
void policy_destroy(policy *self);

/* From here on requests are answered with OUT_OF_MEMORY at once: 1 EiB. */
#define POLICY_SIZE_LIMIT (UINT64_C(1) << 60)

/* Size 0: SUCCESS and address 0, nothing counted, as PyTorch does. POLICY_SIZE_LIMIT: see above.
 * Served after the driver had refused something on the way: that failure is no longer the driver's error.
 * A stream from POOL_STREAM_LIMIT on: INVALID_VALUE, here and in policy_record_stream. */
vmm_status policy_alloc(policy *self, uint64_t size, vmm_stream stream, vmm_address *address);
/* Address 0: SUCCESS and nothing done. */
vmm_status policy_free(policy *self, vmm_address address);
/* Nothing to do where the policy has no such hook. */
vmm_status policy_record_stream(policy *self, vmm_address address, vmm_stream stream);
vmm_status policy_trim(policy *self);
/* The most bytes to hold from now on; UINT64_MAX: no limit. One below what is held makes nothing go: requests
 * that need more memory are out of memory until less is held. NOT_PERMITTED by async, whose pool the
 * driver bounds, while anything is allocated; then the limit is as before. O(1). */
vmm_status policy_set_limit(policy *self, uint64_t limit);
/* 0 where the policy has no such hook. */
size_t policy_counters(const policy *self, policy_counter *counters, size_t capacity);
uint64_t policy_largest_free(const policy *self);
/* Visits nothing where the policy has no such hook. */
void policy_free_ranges(const policy *self, pool_range_visit *visit, void *context);
/* The same. */
void policy_blocks(const policy *self, policy_block_visit *visit, void *context);
/* pool_heap_check, then the policy's own check. */
bool policy_check(const policy *self, char *message, size_t message_size);

#endif
