#include "harness/instrument_cupti.h"

#include <stdio.h>

#if defined(LAKEBED_HAVE_CUDA) && defined(__has_include)
#if __has_include("cupti.h")
#define HAVE_CUPTI 1
#endif
#endif

#ifndef HAVE_CUPTI

instrument_cupti *instrument_cupti_open(char *why, size_t why_size) {
  snprintf(why, why_size, "this program was built without CUPTI's headers, which come with a CUDA toolkit");
  return NULL;
}

void instrument_cupti_start(instrument_cupti *self, instrument_cupti_listener *listener, void *context,
                            vmm_driver *device) {
  (void)self, (void)listener, (void)context, (void)device;
}

void instrument_cupti_stop(instrument_cupti *self, instrument_cupti_facts *facts) {
  (void)self;
  *facts = (instrument_cupti_facts){0};
}

void instrument_cupti_close(instrument_cupti *self) { (void)self; }

#else

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/progress.h"

/* XX(function): what cannot be done without. */
#define REQUIRED_FUNCTIONS(XX) \
  XX(cuptiGetVersion) XX(cuptiSubscribe) XX(cuptiUnsubscribe) XX(cuptiEnableCallback)
/* XX(function): all of them, or there are no records. */
#define ACTIVITY_FUNCTIONS(XX)       \
  XX(cuptiActivityRegisterCallbacks) \
  XX(cuptiActivityEnable)            \
  XX(cuptiActivityDisable)           \
  XX(cuptiActivityFlushAll) XX(cuptiActivityGetNextRecord) XX(cuptiActivityGetNumDroppedRecords)

/* XX(what the driver names the function, the call of ours that it is): the versions and per-thread variants
 * that a program may have got hold of. */
#define HEARD_FUNCTIONS(XX)                      \
  XX(cuMemGetAllocationGranularity, GRANULARITY) \
  XX(cuMemGetInfo_v2, MEMORY_INFO)               \
  XX(cuMemAddressReserve, ADDRESS_RESERVE)       \
  XX(cuMemAddressFree, ADDRESS_FREE)             \
  XX(cuMemCreate, CREATE)                        \
  XX(cuMemRelease, RELEASE)                      \
  XX(cuMemMap, MAP)                              \
  XX(cuMemUnmap, UNMAP)                          \
  XX(cuMemSetAccess, SET_ACCESS)                 \
  XX(cuMemAlloc_v2, MALLOC)                      \
  XX(cuMemFree_v2, FREE)                         \
  XX(cuMemAllocAsync, MALLOC_ASYNC)              \
  XX(cuMemAllocAsync_ptsz, MALLOC_ASYNC)         \
  XX(cuMemAllocFromPoolAsync, MALLOC_ASYNC)      \
  XX(cuMemAllocFromPoolAsync_ptsz, MALLOC_ASYNC) \
  XX(cuMemFreeAsync, FREE_ASYNC)                 \
  XX(cuMemFreeAsync_ptsz, FREE_ASYNC)            \
  XX(cuEventRecord, EVENT_RECORD)                \
  XX(cuEventRecord_ptsz, EVENT_RECORD)           \
  XX(cuEventQuery, EVENT_QUERY)                  \
  XX(cuEventSynchronize, EVENT_WAIT)             \
  XX(cuStreamWaitEvent, STREAM_WAIT_EVENT)       \
  XX(cuStreamWaitEvent_ptsz, STREAM_WAIT_EVENT)  \
  XX(cuCtxSynchronize, SYNCHRONIZE)

static const struct {
  CUpti_CallbackId id;
  vmm_call call;
} heard[] = {
#define XX(function, call) {CUPTI_DRIVER_TRACE_CBID_##function, VMM_CALL_##call},
    HEARD_FUNCTIONS(XX)
#undef XX
};

enum {
  HEARD_COUNT = sizeof heard / sizeof *heard,
  IDS = 1024, /* ids above are never asked for */
  NOT_HEARD = UINT8_MAX,
  BUFFER_BYTES = 256 << 10, /* of activity records */
  BUFFERS = 8,
  TRIAL_CALLS = 200,
  TRIAL_BATCHES = 7,
};

_Static_assert((int)VMM_CALL_COUNT < (int)NOT_HEARD, "a call fits into a byte");

struct instrument_cupti {
#define XX(function) __typeof__(&function) function;
  REQUIRED_FUNCTIONS(XX)
  ACTIVITY_FUNCTIONS(XX)
#undef XX
  __typeof__(&cuptiGetResultString) cuptiGetResultString; /* may be NULL */
  CUpti_SubscriberHandle subscriber;
  char library[256];
  uint32_t version;
  uint8_t call_of[IDS];
  instrument_cupti_listener *listener;
  void *context;
  uint64_t callbacks;
  uint64_t trial_calls;
  atomic_uint_fast64_t elsewhere;
  double overhead_ns;
  const char *overhead_call;
  bool activity; /* is enabled */
  char activity_unavailable[256];
};

/* Whose run this thread replays. */
static _Thread_local instrument_cupti *listening_here;

/* CUPTI hands records to functions without a context. */
static struct {
  pthread_mutex_t lock;
  instrument_cupti *owner; /* NULL: records are dropped */
  instrument_cupti_activity counts;
  bool in_use[BUFFERS];
  _Alignas(8) uint8_t bytes[BUFFERS][BUFFER_BYTES];
} buffers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- callbacks ---- */

static void CUPTIAPI driver_call(void *userdata, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  const CUpti_CallbackData *call = data;
  if (call->callbackSite == CUPTI_API_ENTER) {
    *call->correlationData = progress_clock_ns();
    return;
  }
  uint64_t now_ns = progress_clock_ns();
  instrument_cupti *self = userdata;
  if (call->callbackSite != CUPTI_API_EXIT || id >= IDS || self->call_of[id] == NOT_HEARD) return;
  if (*call->correlationData == 0) return; /* entered before we listened */
  if (listening_here != self) {
    atomic_fetch_add_explicit(&self->elsewhere, 1, memory_order_relaxed);
    return;
  }
  self->callbacks++;
  self->listener(self->context, (vmm_call)self->call_of[id], now_ns - *call->correlationData);
}

static void CUPTIAPI buffer_wanted(uint8_t **buffer, size_t *size, size_t *records_limit) {
  *buffer = NULL;
  *size = *records_limit = 0;
  pthread_mutex_lock(&buffers.lock);
  for (size_t i = 0; i < BUFFERS && !*buffer; i++) {
    if (buffers.in_use[i]) continue;
    buffers.in_use[i] = true;
    *buffer = buffers.bytes[i];
    *size = BUFFER_BYTES;
  }
  pthread_mutex_unlock(&buffers.lock);
}

static void count_record(instrument_cupti_activity *counts, const CUpti_Activity *record) {
  if (record->kind != CUPTI_ACTIVITY_KIND_MEMORY2) return;
  /* Later versions of the record are longer; what is read here is the same in all of them. */
  const CUpti_ActivityMemory4 *memory = (const void *)record;
  counts->records++;
  if (memory->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION) {
    counts->allocations++;
    counts->allocated_bytes += memory->bytes;
  } else if (memory->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE) {
    counts->releases++;
    counts->released_bytes += memory->bytes;
  }
  if (memory->memoryPoolConfig.memoryPoolType == CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL) {
    uint64_t size = memory->memoryPoolConfig.pool.size, used = memory->memoryPoolConfig.utilizedSize;
    if (size > counts->pool_peak_bytes) counts->pool_peak_bytes = size;
    if (used > counts->pool_used_peak_bytes) counts->pool_used_peak_bytes = used;
  }
}

static void CUPTIAPI buffer_filled(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                   size_t valid) {
  (void)size;
  pthread_mutex_lock(&buffers.lock);
  instrument_cupti *self = buffers.owner;
  CUpti_Activity *record = NULL;
  while (self && valid > 0 && self->cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    count_record(&buffers.counts, record);
  }
  size_t dropped = 0;
  if (self && self->cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) {
    buffers.counts.dropped += dropped;
  }
  for (size_t i = 0; i < BUFFERS; i++) {
    if (buffers.bytes[i] == buffer) buffers.in_use[i] = false;
  }
  pthread_mutex_unlock(&buffers.lock);
}

/* ---- loading ---- */

static const char *reason_of(const instrument_cupti *self, CUptiResult result, char *text, size_t text_size) {
  const char *advice = "";
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    advice = ": another tool or program uses CUPTI in this process (Nsight, compute-sanitizer, a debugger)";
  } else if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES) {
    advice = ": the driver lets only administrators profile (NVreg_RestrictProfilingToAdminUsers)";
  } else if (result == CUPTI_ERROR_NOT_INITIALIZED || result == CUPTI_ERROR_UNKNOWN) {
    advice = ": there may be no NVIDIA driver here";
  }
  const char *name = NULL;
  if (self->cuptiGetResultString && self->cuptiGetResultString(result, &name) != CUPTI_SUCCESS) name = NULL;
  snprintf(text, text_size, "%s (%d)%s", name ? name : "error", (int)result, advice);
  return text;
}

/* The library, from where it usually is. */
static void *load(char *name, size_t name_size, char *why, size_t why_size) {
  static const char *const usual[] = {"libcupti.so.13",
                                      "libcupti.so.12",
                                      "libcupti.so.11.8",
                                      "libcupti.so",
                                      "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
                                      "/usr/local/cuda/lib64/libcupti.so"};
  const char *chosen = getenv("LAKEBED_CUPTI");
  void *library = NULL;
  if (chosen && *chosen) {
    snprintf(name, name_size, "%s", chosen);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *reason = library ? NULL : dlerror();
    if (!library)
      snprintf(why, why_size, "LAKEBED_CUPTI names a library that cannot be loaded: %s",
               reason ? reason : name);
    return library;
  }
  for (size_t i = 0; i < sizeof usual / sizeof *usual && !library; i++) {
    snprintf(name, name_size, "%s", usual[i]);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  const char *home = getenv("CUDA_HOME");
  static const char *const folders[] = {"extras/CUPTI/lib64", "lib64"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders && !library && home && *home; i++) {
    snprintf(name, name_size, "%s/%s/libcupti.so", home, folders[i]);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) {
    snprintf(
        why, why_size,
        "no CUPTI library: libcupti.so is neither on the library path nor in /usr/local/cuda or CUDA_HOME; "
        "LAKEBED_CUPTI may name one");
  }
  return library;
}

static bool find_functions(instrument_cupti *self, void *library, char *why, size_t why_size) {
#define XX(function)                                                         \
  self->function = (__typeof__(&function))dlsym(library, #function);         \
  if (!self->function) {                                                     \
    snprintf(why, why_size, "%s has no function " #function, self->library); \
    return false;                                                            \
  }
  REQUIRED_FUNCTIONS(XX)
#undef XX
#define XX(function)                                                        \
  self->function = (__typeof__(&function))dlsym(library, #function);        \
  if (!self->function)                                                      \
    snprintf(self->activity_unavailable, sizeof self->activity_unavailable, \
             "the library has no function " #function);
  ACTIVITY_FUNCTIONS(XX)
#undef XX
  self->cuptiGetResultString = (__typeof__(&cuptiGetResultString))dlsym(library, "cuptiGetResultString");
  return true;
}

/* Returns whether at least one function can be heard. */
static bool enable_callbacks(instrument_cupti *self, CUptiResult *failure) {
  bool any = false;
  memset(self->call_of, NOT_HEARD, sizeof self->call_of);
  for (size_t i = 0; i < HEARD_COUNT; i++) {
    /* An older library does not know the newer functions. */
    CUptiResult result =
        self->cuptiEnableCallback(1, self->subscriber, CUPTI_CB_DOMAIN_DRIVER_API, heard[i].id);
    if (result != CUPTI_SUCCESS) {
      *failure = result;
    } else if (heard[i].id < IDS) {
      self->call_of[heard[i].id] = (uint8_t)heard[i].call;
      any = true;
    }
  }
  return any;
}

static void enable_activity(instrument_cupti *self) {
  if (self->activity_unavailable[0]) return;
  CUptiResult result = self->cuptiActivityRegisterCallbacks(buffer_wanted, buffer_filled);
  if (result == CUPTI_SUCCESS) result = self->cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2);
  self->activity = result == CUPTI_SUCCESS;
  if (!self->activity) reason_of(self, result, self->activity_unavailable, sizeof self->activity_unavailable);
}

instrument_cupti *instrument_cupti_open(char *why, size_t why_size) {
  instrument_cupti *self = calloc(1, sizeof *self);
  if (!self) {
    snprintf(why, why_size, "this machine has no memory left for it");
    return NULL;
  }
  void *library = load(self->library, sizeof self->library, why, why_size);
  if (!library || !find_functions(self, library, why, why_size)) {
    if (library) dlclose(library);
    free(self);
    return NULL;
  }
  char reason[256];
  CUptiResult result = self->cuptiSubscribe(&self->subscriber, driver_call, self);
  if (result != CUPTI_SUCCESS) {
    snprintf(why, why_size, "cuptiSubscribe returned %s", reason_of(self, result, reason, sizeof reason));
    free(self); /* the library stays: others in this process may use it, and it may have threads */
    return NULL;
  }
  if (!enable_callbacks(self, &result)) {
    snprintf(why, why_size, "cuptiEnableCallback returned %s",
             reason_of(self, result, reason, sizeof reason));
    instrument_cupti_close(self);
    return NULL;
  }
  if (self->cuptiGetVersion(&self->version) != CUPTI_SUCCESS) self->version = 0;
  pthread_mutex_lock(&buffers.lock);
  buffers.owner = self;
  pthread_mutex_unlock(&buffers.lock);
  enable_activity(self);
  return self;
}

/* ---- what listening costs ---- */

typedef struct trial {
  vmm_call call;
  CUpti_CallbackId id;
} trial;

static bool try_call(vmm_driver *device, vmm_call call) {
  uint64_t first, second;
  return (call == VMM_CALL_GRANULARITY ? vmm_granularity(device, &first)
                                       : vmm_memory_info(device, &first, &second)) == VMM_SUCCESS;
}

/* Nanoseconds a call, the least of several batches. Negative when a call fails. */
static double time_calls(instrument_cupti *self, vmm_driver *device, const trial *tried, bool listen) {
  double least = -1;
  self->cuptiEnableCallback(listen, self->subscriber, CUPTI_CB_DOMAIN_DRIVER_API, tried->id);
  for (int batch = 0; batch < TRIAL_BATCHES; batch++) {
    uint64_t begin_ns = progress_clock_ns();
    for (int i = 0; i < TRIAL_CALLS; i++) {
      if (!try_call(device, tried->call)) return -1;
    }
    double each = (double)(progress_clock_ns() - begin_ns) / TRIAL_CALLS;
    if (least < 0 || each < least) least = each;
  }
  return least;
}

static void count_trial(void *context, vmm_call call, uint64_t duration_ns) {
  (void)call, (void)duration_ns;
  ((instrument_cupti *)context)->trial_calls++;
}

/* Calls that change nothing, with and without being heard. A driver that answers without asking CUDA is no
 * measure: then there are no callbacks. */
static void measure_overhead(instrument_cupti *self, vmm_driver *device) {
  static const trial trials[] = {
      {VMM_CALL_GRANULARITY, CUPTI_DRIVER_TRACE_CBID_cuMemGetAllocationGranularity},
      {VMM_CALL_MEMORY_INFO, CUPTI_DRIVER_TRACE_CBID_cuMemGetInfo_v2}};
  self->overhead_ns = -1;
  self->listener = count_trial;
  self->context = self;
  for (size_t i = 0; i < sizeof trials / sizeof *trials && device && self->overhead_ns < 0; i++) {
    self->trial_calls = 0;
    double heard_ns = time_calls(self, device, &trials[i], true);
    bool is_heard = self->trial_calls >= TRIAL_BATCHES * TRIAL_CALLS;
    double unheard_ns = is_heard ? time_calls(self, device, &trials[i], false) : -1;
    self->cuptiEnableCallback(1, self->subscriber, CUPTI_CB_DOMAIN_DRIVER_API, trials[i].id);
    if (heard_ns < 0 || unheard_ns < 0) continue;
    self->overhead_ns = heard_ns > unheard_ns ? heard_ns - unheard_ns : 0;
    self->overhead_call = vmm_call_name(trials[i].call);
  }
}

/* ---- runs ---- */

/* Hands over what records there are, and learns of those that were lost. */
static void flush(instrument_cupti *self) {
  if (!self->activity) return;
  size_t dropped = 0;
  self->cuptiActivityFlushAll(0);
  if (self->cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped) != CUPTI_SUCCESS) return;
  pthread_mutex_lock(&buffers.lock);
  buffers.counts.dropped += dropped;
  pthread_mutex_unlock(&buffers.lock);
}

void instrument_cupti_start(instrument_cupti *self, instrument_cupti_listener *listener, void *context,
                            vmm_driver *device) {
  listening_here = self;
  measure_overhead(self, device);
  flush(self);
  pthread_mutex_lock(&buffers.lock);
  buffers.counts = (instrument_cupti_activity){0};
  pthread_mutex_unlock(&buffers.lock);
  self->callbacks = 0;
  atomic_store(&self->elsewhere, 0);
  self->listener = listener;
  self->context = context;
}

void instrument_cupti_stop(instrument_cupti *self, instrument_cupti_facts *facts) {
  listening_here = NULL;
  flush(self);
  *facts = (instrument_cupti_facts){.version = self->version,
                                    .callbacks = self->callbacks,
                                    .elsewhere = atomic_load(&self->elsewhere),
                                    .overhead_ns = self->overhead_ns};
  memcpy(facts->library, self->library, sizeof facts->library);
  snprintf(facts->overhead_call, sizeof facts->overhead_call, "%s",
           self->overhead_call ? self->overhead_call : "");
  pthread_mutex_lock(&buffers.lock);
  facts->activity = buffers.counts;
  pthread_mutex_unlock(&buffers.lock);
  memcpy(facts->activity.unavailable, self->activity_unavailable, sizeof facts->activity.unavailable);
}

void instrument_cupti_close(instrument_cupti *self) {
  if (!self) return;
  if (listening_here == self) listening_here = NULL;
  flush(self);
  if (self->activity) self->cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMORY2);
  self->cuptiUnsubscribe(self->subscriber);
  pthread_mutex_lock(&buffers.lock);
  if (buffers.owner == self) buffers.owner = NULL;
  pthread_mutex_unlock(&buffers.lock);
  free(self); /* the library stays loaded: it may have threads */
}

#endif
