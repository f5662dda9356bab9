/* An NVTX tool for tests: NVTX_INJECTION64_PATH names it, LAKEBED_NVTX_LISTENER the file that it writes at
 * the end of the process. It counts ranges by their path of names ("gmlake/alloc/S4/grow/cuMemCreate"). */
#if defined(LAKEBED_HAVE_CUDA) && __has_include("nvtx3/nvToolsExtCounters.h")

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtMem.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  PATHS = 4096,
  DEPTH = 64,
  STRINGS = 512,
  CATEGORIES = 16,
  COUNTERS = 16,
  TEXT = 512,
  SCHEMA = 4711,
  COUNTER = 100
};

typedef struct path {
  char text[TEXT];
  uint32_t category;
  uint64_t count, bytes, chunks_most, state_least, state_most;
  uint64_t structured, registered; /* with a structured payload, a registered name */
} path;

/* In the order of nvtx_payload's schema. */
typedef struct payload {
  uint64_t bytes, chunks, state;
} payload;

static struct {
  char domain[TEXT];
  char categories[CATEGORIES][TEXT];
  path paths[PATHS];
  size_t path_count;
  char strings[STRINGS][TEXT];
  size_t string_count;
  size_t stack[DEPTH]; /* indexes of paths */
  size_t depth, deepest;
  uint64_t pushes, pops, pops_too_many, lost, domains_destroyed;
  char schema[TEXT]; /* names of its fields */
  char counters[COUNTERS][TEXT];
  uint64_t counter_samples[COUNTERS];
  int64_t counter_last[COUNTERS];
  size_t counter_count;
  int64_t regions, regions_most;
  uint64_t regions_registered, regions_named;
  char region_name[TEXT]; /* the last */
} seen;

static nvtxDomainHandle_t NVTX_API domain_create(const char *name) {
  snprintf(seen.domain, sizeof seen.domain, "%s", name);
  return (nvtxDomainHandle_t)(void *)&seen;
}

static void NVTX_API domain_destroy(nvtxDomainHandle_t domain) {
  (void)domain;
  seen.domains_destroyed++;
}

static nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t domain, const char *text) {
  (void)domain;
  if (seen.string_count == STRINGS) return NULL;
  char *kept = seen.strings[seen.string_count++];
  snprintf(kept, TEXT, "%s", text);
  return (nvtxStringHandle_t)(void *)kept;
}

static void NVTX_API name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name) {
  (void)domain;
  if (category < CATEGORIES) snprintf(seen.categories[category], TEXT, "%s", name);
}

static size_t find_path(const char *text, uint32_t category) {
  for (size_t i = 0; i < seen.path_count; i++) {
    if (seen.paths[i].category == category && strcmp(seen.paths[i].text, text) == 0) return i;
  }
  if (seen.path_count == PATHS) {
    seen.lost++;
    return 0;
  }
  path *added = &seen.paths[seen.path_count];
  snprintf(added->text, sizeof added->text, "%s", text);
  added->category = category;
  added->state_least = UINT64_MAX;
  return seen.path_count++;
}

static void count_payload(path *range, const nvtxEventAttributes_t *attributes) {
  payload carried = {0};
  if (attributes->payloadType == NVTX_PAYLOAD_TYPE_EXT) {
    const nvtxPayloadData_t *data = (const void *)(uintptr_t)attributes->payload.ullValue;
    if (attributes->reserved0 == 1 && data->schemaId == SCHEMA && data->size == sizeof carried) {
      memcpy(&carried, data->payload, sizeof carried);
      range->structured++;
    }
  } else if (attributes->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) {
    carried.bytes = attributes->payload.ullValue;
  }
  range->bytes += carried.bytes;
  if (carried.chunks > range->chunks_most) range->chunks_most = carried.chunks;
  if (carried.state > range->state_most) range->state_most = carried.state;
  if (carried.state < range->state_least) range->state_least = carried.state;
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
  (void)domain;
  bool registered = attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED;
  const char *name = registered ? (const void *)attributes->message.registered : attributes->message.ascii;
  char text[TEXT];
  if (seen.depth > 0 && seen.depth <= DEPTH) {
    snprintf(text, sizeof text, "%.400s/%.100s", seen.paths[seen.stack[seen.depth - 1]].text, name);
  } else {
    snprintf(text, sizeof text, "%s", name);
  }
  size_t index = find_path(text, attributes->category);
  path *range = &seen.paths[index];
  range->count++;
  range->registered += registered;
  count_payload(range, attributes);
  seen.pushes++;
  if (seen.depth < DEPTH) seen.stack[seen.depth] = index;
  if (++seen.depth > seen.deepest) seen.deepest = seen.depth;
  return (int)seen.depth - 1;
}

static int NVTX_API pop(nvtxDomainHandle_t domain) {
  (void)domain;
  seen.pops++;
  if (seen.depth == 0) {
    seen.pops_too_many++;
    return -1;
  }
  return (int)--seen.depth;
}

/* ---- extensions ---- */

static uint64_t NVTX_API register_schema(nvtxDomainHandle_t domain,
                                         const nvtxPayloadSchemaAttr_t *attributes) {
  (void)domain;
  size_t used = 0;
  for (size_t i = 0; i < attributes->numEntries && used < TEXT; i++) {
    used +=
        (size_t)snprintf(seen.schema + used, TEXT - used, "%s%s", i ? "," : "", attributes->entries[i].name);
  }
  return attributes->payloadStaticSize == sizeof(payload) ? SCHEMA : 0;
}

static uint64_t NVTX_API register_counter(nvtxDomainHandle_t domain, const nvtxCounterAttr_t *attributes) {
  (void)domain;
  if (seen.counter_count == COUNTERS) return 0;
  snprintf(seen.counters[seen.counter_count], TEXT, "%s", attributes->name);
  return COUNTER + seen.counter_count++;
}

static void NVTX_API sample_counter(nvtxDomainHandle_t domain, uint64_t counter, int64_t value) {
  (void)domain;
  if (counter < COUNTER || counter >= COUNTER + seen.counter_count) return;
  seen.counter_samples[counter - COUNTER]++;
  seen.counter_last[counter - COUNTER] = value;
}

static void NVTX_API register_regions(nvtxDomainHandle_t domain, const nvtxMemRegionsRegisterBatch_t *batch) {
  (void)domain;
  seen.regions += (int64_t)batch->regionCount;
  seen.regions_registered += batch->regionCount;
  if (seen.regions > seen.regions_most) seen.regions_most = seen.regions;
}

static void NVTX_API name_regions(nvtxDomainHandle_t domain, const nvtxMemRegionsNameBatch_t *batch) {
  (void)domain;
  seen.regions_named += batch->regionCount;
  snprintf(seen.region_name, TEXT, "%s", batch->regionElements[0].name.ascii);
}

static void NVTX_API unregister_regions(nvtxDomainHandle_t domain,
                                        const nvtxMemRegionsUnregisterBatch_t *batch) {
  (void)domain;
  seen.regions -= (int64_t)batch->refCount;
}

/* ---- attaching ---- */

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table;
  unsigned size;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  if (size <= NVTX_CBID_CORE2_DomainDestroy) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
  *table[NVTX_CBID_CORE2_DomainDestroy] = (NvtxFunctionPointer)domain_destroy;
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)register_string;
  *table[NVTX_CBID_CORE2_DomainNameCategoryA] = (NvtxFunctionPointer)name_category;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}

/* LAKEBED_NVTX_LISTENER_PLAIN: a tool that knows no extensions. */
__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module) {
  if (getenv("LAKEBED_NVTX_LISTENER_PLAIN")) return 0;
  intptr_t *slots = module->segments[0].functionSlots;
  switch (module->moduleId) {
    case NVTX_EXT_PAYLOAD_MODULEID:
      slots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = (intptr_t)register_schema;
      return 1;
    case NVTX_EXT_COUNTERS_MODULEID:
      slots[NVTX3EXT_CBID_nvtxCounterRegister] = (intptr_t)register_counter;
      slots[NVTX3EXT_CBID_nvtxCounterSampleInt64] = (intptr_t)sample_counter;
      return 1;
    case NVTX_EXT_MODULEID_MEM:
      slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = (intptr_t)register_regions;
      slots[NVTX3EXT_CBID_nvtxMemRegionsName] = (intptr_t)name_regions;
      slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = (intptr_t)unregister_regions;
      return 1;
    default:
      return 0;
  }
}

static void write_seen(FILE *stream) {
  fprintf(stream,
          "{\"domain\":\"%s\",\"domains_destroyed\":%" PRIu64 ",\"pushes\":%" PRIu64 ",\"pops\":%" PRIu64,
          seen.domain, seen.domains_destroyed, seen.pushes, seen.pops);
  fprintf(stream, ",\"open\":%zu,\"pops_too_many\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"deepest\":%zu",
          seen.depth, seen.pops_too_many, seen.lost, seen.deepest);
  fprintf(stream, ",\"schema\":\"%s\",\"counters\":{", seen.schema);
  for (size_t i = 0; i < seen.counter_count; i++) {
    fprintf(stream, "%s\"%s\":{\"samples\":%" PRIu64 ",\"last\":%" PRId64 "}", i ? "," : "", seen.counters[i],
            seen.counter_samples[i], seen.counter_last[i]);
  }
  fprintf(stream,
          "},\"regions\":%" PRId64 ",\"regions_most\":%" PRId64 ",\"regions_registered\":%" PRIu64
          ",\"regions_named\":%" PRIu64 ",\"region_name\":\"%s\",\"ranges\":[",
          seen.regions, seen.regions_most, seen.regions_registered, seen.regions_named, seen.region_name);
  for (size_t i = 0; i < seen.path_count; i++) {
    const path *range = &seen.paths[i];
    fprintf(stream,
            "%s\n{\"path\":\"%s\",\"category\":\"%s\",\"count\":%" PRIu64 ",\"bytes\":%" PRIu64
            ",\"chunks_most\":%" PRIu64 ",\"state_least\":%" PRIu64 ",\"state_most\":%" PRIu64
            ",\"structured\":%" PRIu64 ",\"registered\":%" PRIu64 "}",
            i ? "," : "", range->text, range->category < CATEGORIES ? seen.categories[range->category] : "",
            range->count, range->bytes, range->chunks_most, range->state_least, range->state_most,
            range->structured, range->registered);
  }
  fprintf(stream, "]}\n");
}

__attribute__((destructor)) static void finish(void) {
  const char *name = getenv("LAKEBED_NVTX_LISTENER");
  FILE *stream = name ? fopen(name, "w") : NULL;
  if (!stream) return;
  write_seen(stream);
  fclose(stream);
}

#endif
