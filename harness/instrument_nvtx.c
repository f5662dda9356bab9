#include "harness/instrument_nvtx.h"

#include <stdio.h>

#if defined(LAKEBED_HAVE_CUDA) && defined(__has_include)
#if __has_include("nvtx3/nvToolsExt.h")
#define HAVE_NVTX 1
#endif
#endif

#ifndef HAVE_NVTX

bool instrument_nvtx_is_built(void) { return false; }

instrument *instrument_nvtx_create(bool coarse) {
  (void)coarse;
  return NULL;
}

bool instrument_nvtx_examine(char *text, size_t text_size) {
  snprintf(text, text_size, "this program was built without NVTX's headers, which come with a CUDA toolkit");
  return false;
}

#else

#include <inttypes.h>
#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>
#include <string.h>

#if __has_include("nvtx3/nvToolsExtPayload.h")
#include <nvtx3/nvToolsExtPayload.h>
#define HAVE_PAYLOAD_EXTENSION 1
#endif
#if __has_include("nvtx3/nvToolsExtMem.h")
#include <nvtx3/nvToolsExtMem.h>
#define HAVE_MEMORY_EXTENSION 1
#endif
#if defined(HAVE_PAYLOAD_EXTENSION) && __has_include("nvtx3/nvToolsExtCounters.h")
#include <nvtx3/nvToolsExtCounters.h>
#define HAVE_COUNTERS_EXTENSION 1
#endif

/* Ranges whose name is longer than NAME share nothing; more names than STRINGS are passed as they are. */
enum { STRINGS = 256, NAME = 256, COUNTERS = 3 };

typedef struct nvtx_string {
  const char *key; /* where it was last seen; its text may have changed since */
  char *text;
  nvtxStringHandle_t handle;
} nvtx_string;

/* What a range carries. The layout is told to the tool. */
typedef struct nvtx_payload {
  uint64_t bytes;
  uint64_t chunks;
  uint64_t state;
} nvtx_payload;

typedef struct nvtx {
  instrument base;
  nvtxDomainHandle_t domain;
  bool names_memory;
  nvtx_string strings[STRINGS]; /* open addressing by key */
  unsigned string_count;
  uint64_t schema; /* 0: the tool knows no structured payloads and gets the bytes alone */
  uint64_t counters[COUNTERS];
  instrument_memory memory; /* last sampled */
  char run[NAME];           /* the policy of the run, for names of memory */
} nvtx;

/* ARGB by layer. */
static const uint32_t colors[INSTRUMENT_LAYER_COUNT] = {
    [INSTRUMENT_HARNESS] = 0xff808080,
    [INSTRUMENT_POLICY] = 0xff1f77b4,
    [INSTRUMENT_POOL] = 0xffff7f0e,
    [INSTRUMENT_DRIVER] = 0xffd62728,
};

/* Category 0 is none. */
static uint32_t category_of(instrument_layer layer) { return (uint32_t)layer + 1; }

/* ---- names ---- */

/* The entry of a name, new when it has none yet; NULL when there is no room. */
static nvtx_string *find_string(nvtx *self, const char *name) {
  uintptr_t hash = (uintptr_t)name / 8 * UINT64_C(0x9E3779B97F4A7C15);
  for (unsigned i = 0; i < STRINGS; i++) {
    nvtx_string *entry = &self->strings[((hash >> 56) + i) % STRINGS];
    if (entry->key == name && strcmp(entry->text, name) == 0) return entry;
    if (entry->text) continue;
    if (self->string_count >= STRINGS * 3 / 4) return NULL;
    entry->text = strdup(name);
    if (!entry->text) return NULL;
    entry->key = name;
    entry->handle = nvtxDomainRegisterStringA(self->domain, name);
    self->string_count++;
    return entry;
  }
  return NULL;
}

static void set_message(nvtx *self, nvtxEventAttributes_t *attributes, const char *name) {
  const nvtx_string *string = find_string(self, name);
  if (string && string->handle) {
    attributes->messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes->message.registered = string->handle;
  } else {
    attributes->messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes->message.ascii = name;
  }
}

/* ---- ranges ---- */

static void push(nvtx *self, instrument_layer layer, const char *name, const nvtx_payload *payload) {
  nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                      .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                      .category = category_of(layer),
                                      .colorType = NVTX_COLOR_ARGB,
                                      .color = colors[layer],
                                      .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                      .payload.ullValue = payload->bytes};
  set_message(self, &attributes, name);
#ifdef HAVE_PAYLOAD_EXTENSION
  nvtxPayloadData_t data = {self->schema, sizeof *payload, payload};
  if (self->schema) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    attributes.reserved0 = 1;
    attributes.payload.ullValue = (uintptr_t)&data;
  }
#endif
  nvtxDomainRangePushEx(self->domain, &attributes);
}

static void begin(instrument *base, const instrument_range *range) {
  const nvtx_payload payload = {range->bytes, range->chunks, range->state};
  push((nvtx *)base, range->layer, range->name, &payload);
}

static void end(instrument *base, const instrument_range *range, const instrument_outcome *outcome) {
  (void)range, (void)outcome;
  nvtxDomainRangePop(((nvtx *)base)->domain);
}

static void run_begin(instrument *base, const instrument_run *run) {
  nvtx *self = (nvtx *)base;
  snprintf(self->run, sizeof self->run, "%s", run->policy);
  push(self, INSTRUMENT_HARNESS, run->policy, &(nvtx_payload){0});
}

static void run_end(instrument *base) { nvtxDomainRangePop(((nvtx *)base)->domain); }

/* ---- extensions: structured payloads, counters, names of memory ---- */

#ifdef HAVE_PAYLOAD_EXTENSION
static uint64_t register_schema(nvtxDomainHandle_t domain) {
  const nvtxPayloadSchemaEntry_t entries[] = {
      {.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT64, .name = "bytes", .description = "size of the request or call"},
      {.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT64,
       .name = "chunks",
       .description = "physical chunks held as it begins"},
      {.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT64,
       .name = "state",
       .description = "S1 to S5, 0 outside of them"}};
  const nvtxPayloadSchemaAttr_t attributes = {
      .fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                   NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                   NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE,
      .name = "lakebed range",
      .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC,
      .entries = entries,
      .numEntries = sizeof entries / sizeof *entries,
      .payloadStaticSize = sizeof(nvtx_payload)};
  return nvtxPayloadSchemaRegister(domain, &attributes);
}
#endif

static void memory(instrument *base, const instrument_memory *now) {
#ifdef HAVE_COUNTERS_EXTENSION
  nvtx *self = (nvtx *)base;
  const uint64_t values[COUNTERS] = {now->live_bytes, now->allocated_bytes, now->reserved_bytes};
  const uint64_t before[COUNTERS] = {self->memory.live_bytes, self->memory.allocated_bytes,
                                     self->memory.reserved_bytes};
  for (size_t i = 0; i < COUNTERS; i++) {
    if (self->counters[i] && values[i] != before[i]) {
      nvtxCounterSampleInt64(self->domain, self->counters[i], (int64_t)values[i]);
    }
  }
  self->memory = *now;
#else
  (void)base, (void)now;
#endif
}

#ifdef HAVE_COUNTERS_EXTENSION
static void register_counters(nvtx *self) {
  static const char *const names[COUNTERS] = {"live bytes", "allocated bytes", "reserved bytes"};
  for (size_t i = 0; i < COUNTERS; i++) {
    const nvtxCounterAttr_t attributes = {.structSize = sizeof attributes,
                                          .schemaId = NVTX_PAYLOAD_ENTRY_TYPE_INT64,
                                          .name = names[i],
                                          .scopeId = NVTX_SCOPE_CURRENT_VM};
    self->counters[i] = nvtxCounterRegister(self->domain, &attributes);
  }
}
#endif

#ifdef HAVE_MEMORY_EXTENSION
static void allocated(instrument *base, vmm_address address, uint64_t size, uint64_t number) {
  nvtx *self = (nvtx *)base;
  char name[NAME + 64];
  snprintf(name, sizeof name, "%s event %" PRIu64 ": %" PRIu64 " bytes", self->run, number, size);
  const nvtxMemVirtualRangeDesc_t range = {.size = (size_t)size, .ptr = (const void *)(uintptr_t)address};
  const nvtxMemRegionsRegisterBatch_t batch = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                                               .structSize = sizeof batch,
                                               .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                                               .heap = NVTX_MEM_HEAP_HANDLE_PROCESS_WIDE,
                                               .regionCount = 1,
                                               .regionDescElementSize = sizeof range,
                                               .regionDescElements = &range};
  nvtxMemRegionsRegister(self->domain, &batch);
  const nvtxMemRegionNameDesc_t label = {.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER,
                                         .nameType = NVTX_MESSAGE_TYPE_ASCII,
                                         .region.pointer = range.ptr,
                                         .name.ascii = name};
  const nvtxMemRegionsNameBatch_t labels = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                                            .structSize = sizeof labels,
                                            .regionCount = 1,
                                            .regionElementSize = sizeof label,
                                            .regionElements = &label};
  nvtxMemRegionsName(self->domain, &labels);
}

static void freed(instrument *base, vmm_address address) {
  nvtx *self = (nvtx *)base;
  const nvtxMemRegionRef_t reference = {.pointer = (const void *)(uintptr_t)address};
  const nvtxMemRegionsUnregisterBatch_t batch = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                                                 .structSize = sizeof batch,
                                                 .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
                                                 .refCount = 1,
                                                 .refElementSize = sizeof reference,
                                                 .refElements = &reference};
  nvtxMemRegionsUnregister(self->domain, &batch);
}
#endif

/* ---- beginning and end ---- */

static bool destroy(instrument *base, char *message, size_t message_size) {
  (void)message, (void)message_size;
  nvtx *self = (nvtx *)base;
  nvtxDomainDestroy(self->domain);
  for (unsigned i = 0; i < STRINGS; i++) free(self->strings[i].text);
  free(self);
  return true;
}

static const instrument_class coarse_class = {.name = "nvtx",
                                              .run_begin = run_begin,
                                              .run_end = run_end,
                                              .begin = begin,
                                              .end = end,
                                              .memory = memory,
                                              .destroy = destroy};

static const instrument_class all_class = {.name = "nvtx",
                                           .run_begin = run_begin,
                                           .run_end = run_end,
                                           .begin = begin,
                                           .end = end,
                                           .memory = memory,
#ifdef HAVE_MEMORY_EXTENSION
                                           .allocated = allocated,
                                           .freed = freed,
#endif
                                           .destroy = destroy};

bool instrument_nvtx_is_built(void) { return true; }

instrument *instrument_nvtx_create(bool coarse) {
  /* A tool gives a domain; without one there is none. */
  nvtxDomainHandle_t domain = nvtxDomainCreateA("lakebed");
  if (!domain) return NULL;
  nvtx *self = calloc(1, sizeof *self);
  if (!self) {
    nvtxDomainDestroy(domain);
    return NULL;
  }
  self->domain = domain;
  self->base.class = coarse ? &coarse_class : &all_class;
  self->base.layers = coarse ? 1u << INSTRUMENT_HARNESS | 1u << INSTRUMENT_POLICY : INSTRUMENT_ALL_LAYERS;
  for (int layer = 0; layer < INSTRUMENT_LAYER_COUNT; layer++) {
    nvtxDomainNameCategoryA(domain, category_of((instrument_layer)layer),
                            instrument_layer_name((instrument_layer)layer));
  }
#ifdef HAVE_PAYLOAD_EXTENSION
  self->schema = register_schema(domain);
#endif
#ifdef HAVE_COUNTERS_EXTENSION
  register_counters(self);
#endif
  return &self->base;
}

bool instrument_nvtx_examine(char *text, size_t text_size) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("lakebed");
  const char *tool = getenv("NVTX_INJECTION64_PATH");
  if (domain) nvtxDomainDestroy(domain);
  snprintf(text, text_size, "built in; %s%s", domain ? "listening: " : "no tool listens",
           domain ? (tool && *tool ? tool : "a tool") : "");
  return true;
}

#endif
