#include <stdlib.h>

#include "vmm/sim_internal.h"

/* An event of any stream completes event_delay ticks after its record. Waiting for one
 * lets the ticks pass that it lacks. */

void sim_events_destroy(vmm_sim *sim) { free(sim->events); }

static sim_event *find_event(const vmm_sim *sim, vmm_event name) {
  uint64_t index = name & UINT32_MAX;
  if (index == 0 || index >= sim->events_used) return NULL;
  sim_event *event = &sim->events[index];
  return event->live && event->generation == name >> 32 ? event : NULL;
}

static bool events_prepare(vmm_sim *sim) {
  if (sim->first_unused_event || sim->events_used < sim->events_capacity) return true;
  if (sim->events_capacity > UINT32_MAX / 2) return false;
  uint32_t capacity = sim->events_capacity ? sim->events_capacity * 2 : 64;
  sim_event *grown = realloc(sim->events, capacity * sizeof *grown);
  if (!grown) return false;
  if (!sim->events) sim->events_used = 1; /* 0 is none */
  sim->events = grown;
  sim->events_capacity = capacity;
  return true;
}

vmm_status sim_event_record(vmm_driver *driver, vmm_stream stream, vmm_event *event) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_EVENT_RECORD;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, stream, 0, 0, 0);
  if (!event) return sim_refuse(sim, VMM_INVALID_VALUE, call, stream, 0, 0, 0);
  if (!events_prepare(sim)) return sim_refuse(sim, VMM_OUT_OF_MEMORY, call, stream, 0, 0, 0);
  uint32_t index = sim->first_unused_event;
  uint32_t generation = 0;
  if (index) {
    sim->first_unused_event = sim->events[index].next_unused;
    generation = sim->events[index].generation;
  } else {
    index = sim->events_used++;
  }
  uint64_t complete_at = sim->now + sim->configuration.event_delay;
  sim->events[index] = (sim_event){.complete_at = complete_at,
                                   .pool_frees = sim_pool_frees(sim, stream),
                                   .stream = stream,
                                   .generation = generation,
                                   .live = true};
  if (sim->work_until < complete_at) sim->work_until = complete_at;
  sim->usage.events++;
  *event = (uint64_t)generation << 32 | index;
  sim_charge(sim, call, 0);
  return VMM_SUCCESS;
}

vmm_status sim_event_query(vmm_driver *driver, vmm_event name) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_EVENT_QUERY;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, name, 0, 0, 0);
  const sim_event *event = find_event(sim, name);
  if (!event) return sim_refuse(sim, VMM_INVALID_HANDLE, call, name, 0, 0, 0);
  sim_charge(sim, call, 0);
  return event->complete_at <= sim->now ? VMM_SUCCESS : VMM_NOT_READY;
}

vmm_status sim_event_wait(vmm_driver *driver, vmm_event name) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_EVENT_WAIT;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, name, 0, 0, 0);
  const sim_event *event = find_event(sim, name);
  if (!event) return sim_refuse(sim, VMM_INVALID_HANDLE, call, name, 0, 0, 0);
  sim_charge(sim, call, 0);
  if (sim->now < event->complete_at) sim->now = event->complete_at;
  sim_pool_synchronized(sim);
  return VMM_SUCCESS;
}

vmm_status sim_stream_wait_event(vmm_driver *driver, vmm_stream stream, vmm_event name) {
  vmm_sim *sim = sim_of(driver);
  const vmm_call call = VMM_CALL_STREAM_WAIT_EVENT;
  vmm_status status;
  if (sim_injected(sim, call, &status)) return sim_refuse(sim, status, call, stream, name, 0, 0);
  const sim_event *event = find_event(sim, name);
  if (!event) return sim_refuse(sim, VMM_INVALID_HANDLE, call, stream, name, 0, 0);
  sim_pool_stream_waits(sim, stream, event->stream, event->pool_frees);
  sim_charge(sim, call, 0);
  return VMM_SUCCESS;
}

void sim_event_discard(vmm_driver *driver, vmm_event name) {
  vmm_sim *sim = sim_of(driver);
  sim_event *event = find_event(sim, name);
  if (!event) return;
  event->live = false;
  event->generation++;
  event->next_unused = sim->first_unused_event;
  sim->first_unused_event = (uint32_t)(event - sim->events);
  sim->usage.events--;
}

vmm_status sim_synchronize(vmm_driver *driver) {
  vmm_sim *sim = sim_of(driver);
  vmm_status status;
  if (sim_injected(sim, VMM_CALL_SYNCHRONIZE, &status)) {
    return sim_refuse(sim, status, VMM_CALL_SYNCHRONIZE, 0, 0, 0, 0);
  }
  sim_charge(sim, VMM_CALL_SYNCHRONIZE, 0);
  sim_finish_work(sim);
  sim_pool_synchronized(sim);
  return VMM_SUCCESS;
}

void vmm_sim_tick(vmm_driver *driver) { sim_of(driver)->now++; }
