/* A CUPTI library for tests, which LAKEBED_CUPTI names. The test plays the driver: it announces calls, which
 * go to the subscriber, and memory records, which go into its buffers.
 *
 * FAKE_CUPTI_SUBSCRIBE, FAKE_CUPTI_CALLBACKS, FAKE_CUPTI_ACTIVITY: the CUptiResult that subscribing, enabling
 * callbacks and enabling records return; default: 0. */
#if defined(LAKEBED_HAVE_CUDA) && __has_include("cupti.h")

#include <cupti.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { IDS = 1024 };

static CUpti_CallbackFunc subscriber;
static void *subscriber_data;
static bool enabled[IDS];
static CUpti_BuffersCallbackRequestFunc request_buffer;
static CUpti_BuffersCallbackCompleteFunc complete_buffer;
static bool records_enabled;
static uint8_t *buffer;
static size_t buffer_size, buffer_used, dropped;

static CUptiResult chosen(const char *name) {
  const char *value = getenv(name);
  return value ? (CUptiResult)atoi(value) : CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *version) {
  *version = 123456;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **text) {
  *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
              ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
          : result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                                                          : "CUPTI_ERROR_OTHER";
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback, void *data) {
  CUptiResult result = chosen("FAKE_CUPTI_SUBSCRIBE");
  if (result == CUPTI_SUCCESS && subscriber) result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  if (result != CUPTI_SUCCESS) return result;
  subscriber = callback;
  subscriber_data = data;
  *handle = (CUpti_SubscriberHandle)(void *)&subscriber;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
  if (handle != (CUpti_SubscriberHandle)(void *)&subscriber || !subscriber)
    return CUPTI_ERROR_INVALID_PARAMETER;
  subscriber = NULL;
  memset(enabled, 0, sizeof enabled);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle,
                                         CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  CUptiResult result = chosen("FAKE_CUPTI_CALLBACKS");
  if (result != CUPTI_SUCCESS) return result;
  if (handle != (CUpti_SubscriberHandle)(void *)&subscriber || domain != CUPTI_CB_DOMAIN_DRIVER_API ||
      id >= IDS) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  enabled[id] = enable != 0;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                    CUpti_BuffersCallbackCompleteFunc complete) {
  request_buffer = request;
  complete_buffer = complete;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
  CUptiResult result = chosen("FAKE_CUPTI_ACTIVITY");
  if (result == CUPTI_SUCCESS) records_enabled = kind == CUPTI_ACTIVITY_KIND_MEMORY2;
  return result;
}

CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (kind == CUPTI_ACTIVITY_KIND_MEMORY2) records_enabled = false;
  return CUPTI_SUCCESS;
}

static void hand_over(void) {
  if (!buffer) return;
  uint8_t *full = buffer;
  buffer = NULL;
  complete_buffer(NULL, 0, full, buffer_size, buffer_used);
}

CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
  (void)flag;
  hand_over();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *bytes, size_t valid, CUpti_Activity **record) {
  size_t next = *record ? (size_t)((uint8_t *)*record - bytes) + sizeof(CUpti_ActivityMemory4) : 0;
  if (next + sizeof(CUpti_ActivityMemory4) > valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = (CUpti_Activity *)(void *)(bytes + next);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *count) {
  (void)context;
  (void)stream;
  *count = dropped;
  dropped = 0;
  return CUPTI_SUCCESS;
}

/* ---- for the test ---- */

/* A driver function is entered (site 0) or left (site 1). */
void fake_cupti_call(const char *function, int site, uint64_t *correlation);
void fake_cupti_call(const char *function, int site, uint64_t *correlation) {
  static const struct {
    const char *name;
    CUpti_CallbackId id;
  } functions[] = {
      {"cuMemGetAllocationGranularity", CUPTI_DRIVER_TRACE_CBID_cuMemGetAllocationGranularity},
      {"cuMemGetInfo", CUPTI_DRIVER_TRACE_CBID_cuMemGetInfo_v2},
      {"cuMemAddressReserve", CUPTI_DRIVER_TRACE_CBID_cuMemAddressReserve},
      {"cuMemAddressFree", CUPTI_DRIVER_TRACE_CBID_cuMemAddressFree},
      {"cuMemCreate", CUPTI_DRIVER_TRACE_CBID_cuMemCreate},
      {"cuMemRelease", CUPTI_DRIVER_TRACE_CBID_cuMemRelease},
      {"cuMemMap", CUPTI_DRIVER_TRACE_CBID_cuMemMap},
      {"cuMemUnmap", CUPTI_DRIVER_TRACE_CBID_cuMemUnmap},
      {"cuMemSetAccess", CUPTI_DRIVER_TRACE_CBID_cuMemSetAccess},
      {"cuMemAlloc", CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2},
      {"cuMemFree", CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2},
      {"cuMemAllocAsync", CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync},
      {"cuMemFreeAsync", CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync},
      {"cuEventRecord", CUPTI_DRIVER_TRACE_CBID_cuEventRecord},
      {"cuEventQuery", CUPTI_DRIVER_TRACE_CBID_cuEventQuery},
      {"cuEventSynchronize", CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize},
      {"cuStreamWaitEvent", CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent},
      {"cuCtxSynchronize", CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize},
      {"cuMemcpy", CUPTI_DRIVER_TRACE_CBID_cuMemcpy},
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    CUpti_CallbackId id = functions[i].id;
    if (strcmp(functions[i].name, function) != 0 || !subscriber || !enabled[id]) continue;
    CUpti_CallbackData data = {.callbackSite = site == 0 ? CUPTI_API_ENTER : CUPTI_API_EXIT,
                               .functionName = function,
                               .correlationData = correlation};
    subscriber(subscriber_data, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  }
}

/* A memory operation took place. */
void fake_cupti_record(int released, uint64_t bytes, uint64_t pool_bytes, uint64_t pool_used_bytes);
void fake_cupti_record(int released, uint64_t bytes, uint64_t pool_bytes, uint64_t pool_used_bytes) {
  if (!records_enabled) return;
  if (buffer && buffer_used + sizeof(CUpti_ActivityMemory4) > buffer_size) hand_over();
  if (!buffer) {
    size_t limit;
    buffer_used = 0;
    request_buffer(&buffer, &buffer_size, &limit);
  }
  if (!buffer) {
    dropped++;
    return;
  }
  CUpti_ActivityMemory4 *record = (CUpti_ActivityMemory4 *)(void *)(buffer + buffer_used);
  memset(record, 0, sizeof *record);
  record->kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  record->memoryOperationType = released ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE
                                         : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  record->bytes = bytes;
  if (pool_bytes) {
    record->memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
    record->memoryPoolConfig.pool.size = pool_bytes;
    record->memoryPoolConfig.utilizedSize = pool_used_bytes;
  }
  buffer_used += sizeof *record;
}

/* The buffer goes astray: it comes back only when restored, so that buffers run out. */
uint8_t *fake_cupti_withhold(void);
uint8_t *fake_cupti_withhold(void) {
  uint8_t *withheld = buffer;
  buffer = NULL;
  return withheld;
}

#endif
