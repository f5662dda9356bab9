#include "tests/policies_program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const *policies_specs(void) {
  static const char *specs[64];
  static const char *const variants[] = {
      "async:release_threshold=64MiB,reuse_opportunistic=false,reuse_event=false,reuse_internal=false",
      "bfc:max_split_size_mb=20,garbage_collection_threshold=0.5",
      "bfc:roundup_power2_divisions=[4:2,>:4]",
      "expandable:max_split_size_mb=20,oversize_rule=pytorch",
      "rawvmm:chunk=8MiB",
      "tfbfc:allow_growth=false",
      "tfbfc:streams=ignore,fragmentation_fraction=0.01",
      "gmlake:frag_limit=8MiB",
      "gmlake:chunk=4MiB,frag_limit=4MiB,stitch_count=6,stitch_bytes=64MiB",
      "gmlake:stitch_count=0",
      "gmlake:stitch_ratio=1,cross_stream=seen",
      "gmlake:largest_chunk=2MiB,stitch_mappings=20,cross_stream=wait",
      "gmlake:largest_chunk=16MiB,room=8MiB,cross_stream=seen,tolerance=2MiB",
      "gmlake:largest_chunk=6MiB,room=0,stitch=after_growing,small_limit=5MiB",
      "gmlake:stitching=views,candidates=smallest,stitch_bytes=48MiB",
      "gmlake:stitching=eager,stitch_count=12",
      "gmlake:stitching=eager,candidates=oldest,stitch_mappings=12",
      "gmlake:variant=published,request_limit=4MiB",
      "gmlake:frag_limit=unlimited",
  };
  size_t count = 0;
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    if (!((*class)->capabilities & POLICY_NEEDS_LIFETIMES)) specs[count++] = (*class)->name;
  }
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) specs[count++] = variants[i];
  specs[count] = NULL;
  return specs;
}

policies_holdings policies_holdings_of(const policies_fixture *fixture) {
  const pool_heap *heap = &fixture->policy->heap;
  return (policies_holdings){.allocations = heap->statistics.allocations.current,
                             .allocated = heap->statistics.allocated_bytes.current,
                             .reserved = heap->statistics.reserved_bytes.current - heap->stranded_bytes,
                             .pending = heap->pending_count};
}

static uint64_t below(policies_program *program, uint64_t bound) {
  return policies_random_below(&program->random, bound);
}

static void begin(policies_program *program) {
  if (program->largest == 0) program->largest = 24 * MIB;
  if (program->room == 0) program->room = 256 * MIB;
  for (int i = 0; i < PROGRAM_SIZES; i++) {
    uint64_t bound = i < 4 ? 4 * KIB : i < 7 ? 2 * MIB : program->largest;
    program->sizes[i] = 1 + below(program, bound);
    if (i % 3 == 2) program->sizes[i] = (program->sizes[i] + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
  }
}

static void note(policies_program *program, uint64_t value) {
  program->digest = (program->digest ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  program->digest ^= program->digest >> 31;
}

static void check_served(policies_program *program, vmm_address address, uint64_t size) {
  policies_fixture *fixture = program->fixture;
  require(address != 0, "step %" PRIu64 ": address 0", program->steps);
  for (uint32_t i = 0; i < program->live_count; i++) {
    require(address + size <= program->live[i].address ||
                program->live[i].address + program->live[i].size <= address,
            "step %" PRIu64 ": 0x%" PRIx64 " of %" PRIu64 " bytes overlaps 0x%" PRIx64 " of %" PRIu64,
            program->steps, address, size, program->live[i].address, program->live[i].size);
  }
  require((fixture->policy->class->capabilities & POLICY_NO_MEMORY) ||
              vmm_sim_accessible(fixture->sim, address, size),
          "step %" PRIu64 ": 0x%" PRIx64 " of %" PRIu64 " bytes cannot be accessed", program->steps, address,
          size);
}

static void check_unchanged(const policies_program *program, policies_holdings before, vmm_status status) {
  policies_holdings after = policies_holdings_of(program->fixture);
  require(after.allocations == before.allocations && after.allocated == before.allocated,
          "step %" PRIu64 ": a request that failed with %s changed what is allocated", program->steps,
          vmm_status_name(status));
  /* These keep memory that they got before a later call failed, as free memory; PyTorch does so too. */
  const char *name = program->fixture->policy->class->name;
  if (strcmp(name, "expandable") == 0 || strcmp(name, "aliasheap") == 0) return;
  /* Out of memory empties caches. */
  bool emptied = status == VMM_OUT_OF_MEMORY || program->failing_twice;
  require(after.reserved == before.reserved || (emptied && after.reserved < before.reserved),
          "step %" PRIu64 ": a request that failed with %s changed what is reserved from %" PRIu64
          " to %" PRIu64,
          program->steps, vmm_status_name(status), before.reserved, after.reserved);
}

static void step_alloc(policies_program *program) {
  policies_fixture *fixture = program->fixture;
  uint64_t size = below(program, 4) ? program->sizes[below(program, PROGRAM_SIZES)]
                                    : 1 + below(program, program->largest);
  vmm_stream stream = (vmm_stream)below(program, program->streams);
  if (program->live_bytes + size > program->room || program->live_count == PROGRAM_LIVE) return;
  policies_holdings before = policies_holdings_of(fixture);
  vmm_address address = 77;
  vmm_status status = policy_alloc(fixture->policy, size, stream, &address);
  note(program, address + (uint64_t)status);
  if (status == VMM_SUCCESS) {
    check_served(program, address, size);
    program->live[program->live_count].address = address;
    program->live[program->live_count].size = size;
    program->live_count++;
    program->live_bytes += size;
    program->served++;
    return;
  }
  check_unchanged(program, before, status);
  if (status == VMM_OUT_OF_MEMORY) {
    program->out_of_memory++;
    require(program->may_run_out || program->failing,
            "step %" PRIu64 ": out of memory for %" PRIu64 " bytes with %" PRIu64 " live", program->steps,
            size, program->live_bytes);
  } else {
    program->errors++;
    require(program->failing, "step %" PRIu64 ": %s", program->steps, vmm_status_name(status));
  }
}

static void forget(policies_program *program, uint32_t i) {
  program->live_bytes -= program->live[i].size;
  program->live[i] = program->live[--program->live_count];
}

static void step_free(policies_program *program) {
  if (program->live_count == 0) return;
  uint32_t i = (uint32_t)below(program, program->live_count);
  policies_holdings before = policies_holdings_of(program->fixture);
  vmm_status status = policy_free(program->fixture->policy, program->live[i].address);
  note(program, (uint64_t)status);
  if (status == VMM_SUCCESS) {
    vmm_status again = policy_free(program->fixture->policy, program->live[i].address);
    require(again == VMM_INVALID_VALUE, "step %" PRIu64 ": a second free: %s", program->steps,
            vmm_status_name(again));
    forget(program, i);
    return;
  }
  check_unchanged(program, before, status);
  require(program->failing, "step %" PRIu64 ": a free: %s", program->steps, vmm_status_name(status));
  program->refused_frees++;
}

static void step_other(policies_program *program, uint64_t what) {
  policies_fixture *fixture = program->fixture;
  vmm_status status = VMM_SUCCESS;
  if (what == 0) {
    status = policy_trim(fixture->policy);
  } else if (what < 8 && program->live_count > 0) {
    uint32_t i = (uint32_t)below(program, program->live_count);
    vmm_stream stream = (vmm_stream)below(program, program->streams);
    status = policy_record_stream(fixture->policy, program->live[i].address, stream);
  } else {
    vmm_sim_tick(fixture->sim);
  }
  note(program, (uint64_t)status);
  if (status == VMM_SUCCESS) return;
  require(program->failing, "step %" PRIu64 ": %s", program->steps, vmm_status_name(status));
  program->refused_frees++;
}

static void add_range(void *context, uint64_t bytes) { *(uint64_t *)context += bytes; }

/* What is free and what is in use are all that the policy holds. */
static void check_free_ranges(const policies_program *program, const char *where) {
  const pool_heap *heap = &program->fixture->policy->heap;
  uint64_t free_bytes = 0, held = heap->statistics.reserved_bytes.current - heap->stranded_bytes;
  if (!program->fixture->policy->class->free_ranges) return;
  policy_free_ranges(program->fixture->policy, add_range, &free_bytes);
  require(free_bytes + heap->statistics.active_bytes.current == held,
          "%s: %" PRIu64 " free and %" PRIu64 " active bytes do not make up %" PRIu64, where, free_bytes,
          heap->statistics.active_bytes.current, held);
}

static void check_all(const policies_program *program) {
  char where[64];
  snprintf(where, sizeof where, "step %" PRIu64, program->steps);
  policies_fixture_check(program->fixture, where);
  const pool_heap *heap = &program->fixture->policy->heap;
  const pool_statistics *statistics = &heap->statistics;
  require(statistics->allocations.current == program->live_count, "%s: %" PRIu64 " allocations, not %" PRIu32,
          where, statistics->allocations.current, program->live_count);
  require(statistics->requested_bytes.current == program->live_bytes ||
              (heap->pending_count > 0 && statistics->requested_bytes.current > program->live_bytes),
          "%s: %" PRIu64 " bytes requested, not %" PRIu64, where, statistics->requested_bytes.current,
          program->live_bytes);
  require(statistics->allocated_bytes.current >= program->live_bytes, "%s: less allocated than live", where);
  check_free_ranges(program, where);
}

void policies_program_step(policies_program *program) {
  if (program->steps == 0) begin(program);
  program->steps++;
  uint64_t kind = below(program, 100);
  bool filling = program->steps / 150 % 2 == 0;
  if (kind < (filling ? 50u : 35u)) {
    step_alloc(program);
  } else if (kind < 85) {
    step_free(program);
  } else {
    step_other(program, kind - 85);
  }
  check_all(program);
}

void policies_program_free_all(policies_program *program) {
  while (program->live_count > 0) {
    policies_free(program->fixture, program->live[0].address);
    forget(program, 0);
  }
  check_all(program);
}
