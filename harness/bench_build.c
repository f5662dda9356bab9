#include "harness/bench_build.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "harness/progress.h"

const char *const bench_stage_words[BENCH_STAGE_COUNT] = {
#define XX(name, word, call) [BENCH_##name] = word,
    BENCH_STAGE_MAP(XX)
#undef XX
};

const vmm_call bench_stage_calls[BENCH_STAGE_COUNT] = {
#define XX(name, word, call) [BENCH_##name] = VMM_CALL_##call,
    BENCH_STAGE_MAP(XX)
#undef XX
};

/* A place where chunks are mapped one after the other, and unmapped in the same order. */
typedef struct place {
  vmm_address address; /* 0: not reserved */
  uint64_t begin, end; /* mapped bytes */
} place;

/* One thread's part of a build. */
typedef struct part {
  const bench_build_plan *plan;
  vmm_driver *driver;
  uint64_t size, chunks;
  vmm_handle *handles;
  uint64_t released, created; /* handles[released .. created) live */
  place measured;
  place *others; /* aliases - 1 */
  vmm_status status;
  uint64_t calls[BENCH_STAGE_COUNT];
  uint64_t ns[BENCH_STAGE_COUNT];
  bench_samples samples[BENCH_STAGE_COUNT];
  bool keep_samples;
} part;

static uint64_t chunk_size(const part *self, uint64_t index) {
  uint64_t begin = index * self->plan->chunk;
  uint64_t rest = self->size - begin;
  return rest < self->plan->chunk ? rest : self->plan->chunk;
}

static vmm_status map_chunks(const part *self, place *at) {
  vmm_status status = VMM_SUCCESS;
  for (uint64_t i = 0; i < self->chunks && status == VMM_SUCCESS; i++) {
    uint64_t size = chunk_size(self, i);
    status = vmm_map(self->driver, at->address + at->end, size, 0, self->handles[i]);
    if (status == VMM_SUCCESS) at->end += size;
  }
  return status;
}

/* Maps the handles at the places that are not measured. */
static vmm_status open_others(part *self) {
  vmm_status status = VMM_SUCCESS;
  for (uint64_t i = 0; i + 1 < self->plan->aliases && status == VMM_SUCCESS; i++) {
    place *other = &self->others[i];
    status = vmm_address_reserve(self->driver, self->size, 0, &other->address);
    if (status == VMM_SUCCESS) status = map_chunks(self, other);
    if (status == VMM_SUCCESS) status = vmm_set_access(self->driver, other->address, self->size);
  }
  return status;
}

static void keep_first(vmm_status *first, vmm_status status) {
  if (*first == VMM_SUCCESS) *first = status;
}

/* What cannot be given back stays, to be tried again. */
static vmm_status close_place(const part *self, place *at) {
  if (at->end > at->begin) {
    vmm_status status = vmm_unmap(self->driver, at->address + at->begin, at->end - at->begin);
    if (status != VMM_SUCCESS) return status;
    at->begin = at->end = 0;
  }
  if (!at->address) return VMM_SUCCESS;
  vmm_status status = vmm_address_free(self->driver, at->address, self->size);
  if (status == VMM_SUCCESS) *at = (place){0};
  return status;
}

static vmm_status close_others(part *self) {
  vmm_status first = VMM_SUCCESS;
  for (uint64_t i = 0; i + 1 < self->plan->aliases; i++)
    keep_first(&first, close_place(self, &self->others[i]));
  return first;
}

/* One call of a stage; index counts the stage's calls. */
static vmm_status make_call(part *self, bench_stage stage, uint64_t index) {
  vmm_driver *driver = self->driver;
  place *at = &self->measured;
  const bool whole = self->plan->whole_range;
  const uint64_t size = chunk_size(self, index);
  vmm_status status = VMM_SUCCESS;
  switch (stage) {
    case BENCH_RESERVE:
      return vmm_address_reserve(driver, self->size, 0, &at->address);
    case BENCH_CREATE:
      status = vmm_create(driver, size, &self->handles[index]);
      if (status == VMM_SUCCESS) self->created++;
      return status;
    case BENCH_MAP:
      status = vmm_map(driver, at->address + at->end, size, 0, self->handles[index]);
      if (status == VMM_SUCCESS) at->end += size;
      return status;
    case BENCH_SET_ACCESS:
      return whole ? vmm_set_access(driver, at->address, self->size)
                   : vmm_set_access(driver, at->address + index * self->plan->chunk, size);
    case BENCH_UNMAP:
      status = vmm_unmap(driver, at->address + at->begin, whole ? self->size : size);
      if (status == VMM_SUCCESS) at->begin += whole ? self->size : size;
      return status;
    case BENCH_RELEASE:
      status = vmm_release(driver, self->handles[index]);
      if (status == VMM_SUCCESS) self->released++;
      return status;
    case BENCH_ADDRESS_FREE:
      status = vmm_address_free(driver, at->address, self->size);
      if (status == VMM_SUCCESS) *at = (place){0};
      return status;
    case BENCH_STAGE_COUNT:
      break;
  }
  return VMM_INVALID_VALUE;
}

static uint64_t stage_calls(const part *self, bench_stage stage) {
  if (stage == BENCH_RESERVE || stage == BENCH_ADDRESS_FREE) return 1;
  if (stage == BENCH_SET_ACCESS || stage == BENCH_UNMAP) return self->plan->whole_range ? 1 : self->chunks;
  return self->chunks;
}

static void run_stage(part *self, bench_stage stage) {
  const uint64_t count = stage_calls(self, stage);
  const uint64_t begin = self->driver->busy_ns;
  for (uint64_t i = 0; i < count && self->status == VMM_SUCCESS; i++) {
    const uint64_t before = self->driver->busy_ns;
    self->status = make_call(self, stage, i);
    if (self->keep_samples) bench_samples_add(&self->samples[stage], self->driver->busy_ns - before);
  }
  self->ns[stage] = self->driver->busy_ns - begin;
  self->calls[stage] = count;
  /* Outside the measured stages. */
  if (self->status == VMM_SUCCESS && stage == BENCH_CREATE) self->status = open_others(self);
  if (self->status == VMM_SUCCESS && stage == BENCH_UNMAP) self->status = close_others(self);
}

/* Gives back what a failed build left. The first error stays stored. */
static void undo(part *self) {
  if (self->status == VMM_SUCCESS) return;
  close_place(self, &self->measured);
  close_others(self);
  for (; self->released < self->created; self->released++) {
    vmm_release(self->driver, self->handles[self->released]);
  }
}

static bool part_open(part *self, const bench_build_plan *plan, vmm_driver *driver, unsigned index,
                      bool keep_samples) {
  const uint64_t chunks = bench_build_chunks(plan);
  const uint64_t first = chunks * index / plan->threads, end = chunks * (index + 1) / plan->threads;
  const uint64_t end_byte = end == chunks ? plan->total : end * plan->chunk;
  *self = (part){.plan = plan,
                 .driver = driver,
                 .size = end_byte - first * plan->chunk,
                 .chunks = end - first,
                 .keep_samples = keep_samples};
  self->handles = calloc(self->chunks ? self->chunks : 1, sizeof *self->handles);
  self->others = calloc(plan->aliases, sizeof *self->others);
  return self->handles && self->others;
}

static void part_close(part *self) {
  for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) bench_samples_free(&self->samples[stage]);
  free(self->handles);
  free(self->others);
}

/* Threads that do every stage side by side. */
typedef struct crew {
  pthread_mutex_t gate; /* held until all threads exist */
  bool complete;        /* they do: work; false: go home */
  pthread_barrier_t barrier;
  uint64_t wall_ns[BENCH_STAGE_COUNT]; /* written by the first thread only */
} crew;

typedef struct crew_member {
  crew *crew;
  part *part;
  bool first;
} crew_member;

static void work(crew_member *self) {
  for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) {
    pthread_barrier_wait(&self->crew->barrier);
    const uint64_t begin = progress_clock_ns();
    run_stage(self->part, (bench_stage)stage);
    pthread_barrier_wait(&self->crew->barrier);
    if (self->first) self->crew->wall_ns[stage] = progress_clock_ns() - begin;
  }
}

static void *member_main(void *argument) {
  crew_member *self = argument;
  pthread_mutex_lock(&self->crew->gate);
  const bool complete = self->crew->complete;
  pthread_mutex_unlock(&self->crew->gate);
  if (complete) work(self);
  return NULL;
}

/* Every part on a thread of its own, the first on the caller's. false: a thread cannot be made. */
static bool run_crew(part *parts, unsigned threads, bench_build_times *times) {
  crew shared = {.gate = PTHREAD_MUTEX_INITIALIZER};
  crew_member members[BENCH_THREADS];
  pthread_t handles[BENCH_THREADS];
  if (pthread_barrier_init(&shared.barrier, NULL, threads) != 0) return false;
  unsigned made = 1;
  pthread_mutex_lock(&shared.gate);
  members[0] = (crew_member){.crew = &shared, .part = &parts[0], .first = true};
  for (; made < threads; made++) {
    members[made] = (crew_member){.crew = &shared, .part = &parts[made]};
    if (pthread_create(&handles[made], NULL, member_main, &members[made]) != 0) break;
  }
  const bool complete = shared.complete = made == threads;
  pthread_mutex_unlock(&shared.gate);
  if (complete) work(&members[0]);
  for (unsigned i = 1; i < made; i++) pthread_join(handles[i], NULL);
  pthread_barrier_destroy(&shared.barrier);
  pthread_mutex_destroy(&shared.gate);
  memcpy(times->ns, shared.wall_ns, sizeof times->ns);
  return complete;
}

/* The parts' own times and calls; with several threads the times are the crew's. */
static void collect(part *parts, const bench_build_plan *plan, bench_build_times *times,
                    bench_samples calls[BENCH_STAGE_COUNT]) {
  for (unsigned i = 0; i < plan->threads; i++) {
    for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) {
      times->calls[stage] += parts[i].calls[stage];
      if (plan->threads == 1) times->ns[stage] = parts[i].ns[stage];
      for (size_t j = 0; calls && j < parts[i].samples[stage].count; j++) {
        bench_samples_add(&calls[stage], parts[i].samples[stage].values[j]);
      }
      if (calls) calls[stage].lost |= parts[i].samples[stage].lost;
    }
  }
}

vmm_status bench_build_run(vmm_driver *const *drivers, const bench_build_plan *plan, bench_build_times *times,
                           bench_samples calls[BENCH_STAGE_COUNT], vmm_driver **failed) {
  *times = (bench_build_times){0};
  *failed = drivers[0];
  if (plan->chunk == 0 || plan->aliases == 0 || plan->threads == 0 || plan->threads > BENCH_THREADS ||
      plan->threads > bench_build_chunks(plan)) {
    return VMM_INVALID_VALUE;
  }
  part parts[BENCH_THREADS];
  unsigned opened = 0;
  bool ready = true;
  for (; opened < plan->threads && ready; opened++) {
    ready = part_open(&parts[opened], plan, drivers[opened], opened, calls != NULL);
  }
  if (ready && plan->threads > 1) {
    ready = run_crew(parts, plan->threads, times);
  } else if (ready) {
    for (int stage = 0; stage < BENCH_STAGE_COUNT; stage++) run_stage(&parts[0], (bench_stage)stage);
  }
  vmm_status status = ready ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  if (ready) collect(parts, plan, times, calls);
  for (unsigned i = 0; i < opened; i++) {
    undo(&parts[i]);
    if (status == VMM_SUCCESS && parts[i].status != VMM_SUCCESS) {
      status = parts[i].status;
      *failed = drivers[i];
    }
    part_close(&parts[i]);
  }
  return status;
}

vmm_status bench_filler_open(bench_filler *filler, vmm_driver *driver, uint64_t capacity,
                             uint64_t granularity) {
  *filler = (bench_filler){.capacity = capacity, .granularity = granularity};
  if (capacity == 0) return VMM_SUCCESS;
  filler->handles = calloc(capacity, sizeof *filler->handles);
  if (!filler->handles) return VMM_OUT_OF_MEMORY;
  vmm_status status = vmm_address_reserve(driver, capacity * granularity, 0, &filler->address);
  if (status == VMM_SUCCESS) return status;
  free(filler->handles);
  *filler = (bench_filler){0};
  return status;
}

vmm_status bench_filler_grow(bench_filler *filler, vmm_driver *driver, uint64_t count) {
  if (count > filler->capacity) return VMM_INVALID_VALUE;
  vmm_status status = VMM_SUCCESS;
  while (filler->count < count && status == VMM_SUCCESS) {
    status = vmm_create(driver, filler->granularity, &filler->handles[filler->count]);
    if (status == VMM_SUCCESS) filler->count++;
  }
  while (filler->mapped < filler->count && status == VMM_SUCCESS) {
    status = vmm_map(driver, filler->address + filler->mapped * filler->granularity, filler->granularity, 0,
                     filler->handles[filler->mapped]);
    if (status == VMM_SUCCESS) filler->mapped++;
  }
  if (filler->accessible < filler->mapped && status == VMM_SUCCESS) {
    status = vmm_set_access(driver, filler->address + filler->accessible * filler->granularity,
                            (filler->mapped - filler->accessible) * filler->granularity);
    if (status == VMM_SUCCESS) filler->accessible = filler->mapped;
  }
  return status;
}

vmm_status bench_filler_close(bench_filler *filler, vmm_driver *driver) {
  vmm_status first = VMM_SUCCESS;
  if (filler->mapped > 0)
    keep_first(&first, vmm_unmap(driver, filler->address, filler->mapped * filler->granularity));
  while (filler->count > 0) keep_first(&first, vmm_release(driver, filler->handles[--filler->count]));
  if (filler->address) {
    keep_first(&first, vmm_address_free(driver, filler->address, filler->capacity * filler->granularity));
  }
  free(filler->handles);
  *filler = (bench_filler){0};
  return first;
}
