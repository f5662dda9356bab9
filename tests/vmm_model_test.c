/* Random programs of legal and illegal calls on the simulated device against a model that
 * knows nothing but lists: same status, same address, same memory behind every granule. A
 * program's seed follows from its number, which Check prints when it fails. */
#include <string.h>

#include "tests/test_main.h"
#include "tests/vmm_conformance.h"
#include "vmm/sim.h"

enum { VA_GRANULES = 48, CAPACITY_GRANULES = 24, LIST = 64, OPERATIONS = 1000, PROGRAMS = 16 };

#define MIB (UINT64_C(1) << 20)

typedef struct model_handle {
  vmm_handle name;
  uint64_t granules;
  bool referenced;
  uint64_t physical; /* of the device, learnt at the first mapping */
} model_handle;

typedef struct model_mapping {
  uint64_t granule, granules;
  int handle;
  bool accessible;
} model_mapping;

typedef struct model_reservation {
  uint64_t granule, granules;
} model_reservation;

typedef struct model_malloc {
  vmm_address address;
  uint64_t size;
} model_malloc;

typedef struct model {
  model_handle handles[LIST * 100];
  int handle_count;
  model_mapping mappings[VA_GRANULES];
  int mapping_count;
  model_reservation reservations[VA_GRANULES];
  int reservation_count;
  model_malloc mallocs[LIST];
  int malloc_count;
} model;

typedef struct program {
  vmm_driver *driver;
  uint64_t granule; /* bytes */
  vmm_address base; /* of granule 0 */
  uint64_t random;
  model model;
} program;

static uint64_t next_random(program *p, uint64_t limit) {
  p->random += UINT64_C(0x9E3779B97F4A7C15);
  uint64_t mixed = p->random;
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
  return (mixed ^ (mixed >> 31)) % limit;
}

/* --- the model's view --- */

static int mappings_of(const model *m, int handle) {
  int count = 0;
  for (int i = 0; i < m->mapping_count; i++) count += m->mappings[i].handle == handle;
  return count;
}

static bool handle_lives(const model *m, int handle) {
  return m->handles[handle].referenced || mappings_of(m, handle) > 0;
}

/* 2 MiB pages that live allocations of cuMemAlloc touch. */
static uint64_t malloc_bytes(const model *m) {
  static uint64_t pages[LIST * 64];
  size_t count = 0;
  for (int i = 0; i < m->malloc_count; i++) {
    uint64_t first = m->mallocs[i].address / (2 * MIB);
    uint64_t last = (m->mallocs[i].address + m->mallocs[i].size - 1) / (2 * MIB);
    for (uint64_t page = first; page <= last; page++) {
      size_t k = 0;
      while (k < count && pages[k] != page) k++;
      if (k == count) pages[count++] = page;
    }
  }
  return count * 2 * MIB;
}

static uint64_t handle_bytes(const program *p) {
  uint64_t granules = 0;
  for (int i = 0; i < p->model.handle_count; i++) {
    if (handle_lives(&p->model, i)) granules += p->model.handles[i].granules;
  }
  return granules * p->granule;
}

static bool in_one_reservation(const model *m, uint64_t granule, uint64_t granules) {
  for (int i = 0; i < m->reservation_count; i++) {
    const model_reservation *r = &m->reservations[i];
    if (granule >= r->granule && granule + granules <= r->granule + r->granules) return true;
  }
  return false;
}

static const model_mapping *mapping_at(const model *m, uint64_t granule) {
  for (int i = 0; i < m->mapping_count; i++) {
    const model_mapping *mapping = &m->mappings[i];
    if (granule >= mapping->granule && granule < mapping->granule + mapping->granules) return mapping;
  }
  return NULL;
}

/* Does the range cut no mapping? */
static bool whole_mappings(const model *m, uint64_t granule, uint64_t granules) {
  for (int i = 0; i < m->mapping_count; i++) {
    const model_mapping *mapping = &m->mappings[i];
    bool touches = mapping->granule < granule + granules && granule < mapping->granule + mapping->granules;
    bool inside = mapping->granule >= granule && mapping->granule + mapping->granules <= granule + granules;
    if (touches && !inside) return false;
  }
  return true;
}

static uint64_t lowest_hole(const model *m, uint64_t granules) {
  for (uint64_t start = 0; start + granules <= VA_GRANULES; start++) {
    bool hole = true;
    for (int i = 0; i < m->reservation_count; i++) {
      const model_reservation *r = &m->reservations[i];
      if (r->granule < start + granules && start < r->granule + r->granules) hole = false;
    }
    if (hole) return start;
  }
  return UINT64_MAX;
}

/* --- one operation of each kind --- */

static void do_reserve(program *p) {
  model *m = &p->model;
  uint64_t granules = next_random(p, 10);
  vmm_address address;
  vmm_status status = vmm_address_reserve(p->driver, granules * p->granule, 0, &address);
  uint64_t expected = granules ? lowest_hole(m, granules) : 0;
  if (granules == 0) {
    ck_assert_status(status, VMM_INVALID_VALUE);
  } else if (expected == UINT64_MAX) {
    ck_assert_status(status, VMM_OUT_OF_MEMORY);
  } else {
    ck_assert_success(status);
    ck_assert_uint_eq(address, p->base + expected * p->granule);
    m->reservations[m->reservation_count++] = (model_reservation){expected, granules};
  }
}

static void do_address_free(program *p) {
  model *m = &p->model;
  uint64_t granule = next_random(p, VA_GRANULES), granules = 1 + next_random(p, 10);
  if (m->reservation_count > 0 && next_random(p, 2)) {
    const model_reservation *r = &m->reservations[next_random(p, (uint64_t)m->reservation_count)];
    granule = r->granule;
    granules = r->granules;
  }
  int found = -1;
  for (int i = 0; i < m->reservation_count; i++) {
    if (m->reservations[i].granule == granule && m->reservations[i].granules == granules) found = i;
  }
  for (uint64_t i = 0; i < granules; i++) {
    if (mapping_at(m, granule + i)) found = -1;
  }
  vmm_status status = vmm_address_free(p->driver, p->base + granule * p->granule, granules * p->granule);
  ck_assert_status(status, found >= 0 ? VMM_SUCCESS : VMM_INVALID_VALUE);
  if (found >= 0) m->reservations[found] = m->reservations[--m->reservation_count];
}

static void do_create(program *p) {
  model *m = &p->model;
  uint64_t granules = next_random(p, 5);
  vmm_handle name;
  vmm_status status = vmm_create(p->driver, granules * p->granule, &name);
  if (granules == 0) {
    ck_assert_status(status, VMM_INVALID_VALUE);
  } else if (handle_bytes(p) + malloc_bytes(m) + granules * p->granule > CAPACITY_GRANULES * p->granule) {
    ck_assert_status(status, VMM_OUT_OF_MEMORY);
  } else {
    ck_assert_success(status);
    for (int i = 0; i < m->handle_count; i++) ck_assert_uint_ne(m->handles[i].name, name);
    m->handles[m->handle_count++] = (model_handle){name, granules, true, UINT64_MAX};
  }
}

/* A recent handle, alive or not; -1 at first. */
static int some_handle(program *p) {
  int count = p->model.handle_count;
  if (count == 0) return -1;
  int recent = count < 30 ? count : 30;
  return count - 1 - (int)next_random(p, (uint64_t)recent);
}

static void do_release(program *p) {
  int handle = some_handle(p);
  if (handle < 0) return;
  model_handle *h = &p->model.handles[handle];
  ck_assert_status(vmm_release(p->driver, h->name), h->referenced ? VMM_SUCCESS : VMM_INVALID_VALUE);
  h->referenced = false;
}

static void do_map(program *p) {
  model *m = &p->model;
  int handle = some_handle(p);
  if (handle < 0) return;
  model_handle *h = &m->handles[handle];
  uint64_t granule = next_random(p, VA_GRANULES), granules = h->granules, offset = 0;
  if (next_random(p, 10) == 0) granules = next_random(p, 6);
  if (next_random(p, 20) == 0) offset = p->granule;
  bool taken = false;
  for (uint64_t i = 0; i < granules; i++) taken = taken || mapping_at(m, granule + i);
  vmm_status expected = VMM_SUCCESS;
  if (!handle_lives(m, handle) || granules == 0) {
    expected = VMM_INVALID_VALUE;
  } else if (offset || granules != h->granules || !h->referenced) {
    expected = VMM_NOT_SUPPORTED;
  } else if (!in_one_reservation(m, granule, granules) || taken) {
    expected = VMM_INVALID_VALUE;
  }
  vmm_address address = p->base + granule * p->granule;
  ck_assert_status(vmm_map(p->driver, address, granules * p->granule, offset, h->name), expected);
  if (expected != VMM_SUCCESS) return;
  m->mappings[m->mapping_count++] = (model_mapping){granule, granules, handle, false};
  uint64_t physical = vmm_sim_physical(p->driver, address);
  if (h->physical == UINT64_MAX) h->physical = physical;
  ck_assert_uint_eq(physical, h->physical);
}

static void do_unmap(program *p) {
  model *m = &p->model;
  uint64_t granule = next_random(p, VA_GRANULES), granules = next_random(p, 8);
  bool legal =
      granules > 0 && in_one_reservation(m, granule, granules) && whole_mappings(m, granule, granules);
  vmm_status status = vmm_unmap(p->driver, p->base + granule * p->granule, granules * p->granule);
  ck_assert_status(status, legal ? VMM_SUCCESS : VMM_INVALID_VALUE);
  if (!legal) return;
  for (int i = m->mapping_count - 1; i >= 0; i--) {
    if (m->mappings[i].granule < granule || m->mappings[i].granule >= granule + granules) continue;
    m->mappings[i] = m->mappings[--m->mapping_count];
  }
}

static void do_set_access(program *p) {
  model *m = &p->model;
  uint64_t granule = next_random(p, VA_GRANULES), granules = next_random(p, 8);
  if (m->mapping_count > 0 && next_random(p, 2)) {
    const model_mapping *mapping = &m->mappings[next_random(p, (uint64_t)m->mapping_count)];
    granule = mapping->granule;
    granules = mapping->granules;
  }
  bool legal =
      granules > 0 && in_one_reservation(m, granule, granules) && whole_mappings(m, granule, granules);
  for (uint64_t i = 0; i < granules; i++) legal = legal && mapping_at(m, granule + i);
  vmm_status status = vmm_set_access(p->driver, p->base + granule * p->granule, granules * p->granule);
  ck_assert_status(status, legal ? VMM_SUCCESS : VMM_INVALID_VALUE);
  if (!legal) return;
  for (int i = 0; i < m->mapping_count; i++) {
    if (m->mappings[i].granule >= granule && m->mappings[i].granule < granule + granules) {
      m->mappings[i].accessible = true;
    }
  }
}

static void do_malloc(program *p) {
  model *m = &p->model;
  if (m->malloc_count == LIST) return;
  uint64_t size = next_random(p, 4) ? 1 + next_random(p, 3 * MIB) : 1 + next_random(p, 20 * MIB);
  if (next_random(p, 30) == 0) size = 0;
  uint64_t held = handle_bytes(p) + malloc_bytes(m);
  vmm_address address;
  vmm_status status = vmm_malloc(p->driver, size, &address);
  if (size == 0) {
    ck_assert_status(status, VMM_INVALID_VALUE);
    return;
  }
  if (status != VMM_SUCCESS) {
    ck_assert_status(status, VMM_OUT_OF_MEMORY);
    ck_assert_uint_gt(held + (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB), CAPACITY_GRANULES * p->granule);
    return;
  }
  for (int i = 0; i < m->malloc_count; i++) {
    const model_malloc *other = &m->mallocs[i];
    ck_assert(address + size <= other->address || other->address + other->size <= address);
  }
  ck_assert_uint_ge(address, p->base + VA_GRANULES * p->granule);
  m->mallocs[m->malloc_count++] = (model_malloc){address, size};
}

static void do_free(program *p) {
  model *m = &p->model;
  if (m->malloc_count == 0) return;
  int number = (int)next_random(p, (uint64_t)m->malloc_count);
  if (next_random(p, 5) == 0) {
    ck_assert_status(vmm_free(p->driver, m->mallocs[number].address + 1), VMM_INVALID_VALUE);
    return;
  }
  ck_assert_success(vmm_free(p->driver, m->mallocs[number].address));
  m->mallocs[number] = m->mallocs[--m->malloc_count];
}

/* --- comparing --- */

static void compare(program *p) {
  const model *m = &p->model;
  vmm_sim_usage usage;
  vmm_sim_usage_get(p->driver, &usage);
  ck_assert_uint_eq(usage.physical_bytes, handle_bytes(p) + malloc_bytes(m));
  ck_assert_uint_eq(usage.mappings, (uint64_t)m->mapping_count);
  ck_assert_uint_eq(usage.reservations, (uint64_t)m->reservation_count);
  ck_assert_uint_eq(usage.mallocs, (uint64_t)m->malloc_count);
  uint64_t handles = 0, reserved = 0;
  for (int i = 0; i < m->handle_count; i++) handles += handle_lives(m, i);
  for (int i = 0; i < m->reservation_count; i++) reserved += m->reservations[i].granules;
  ck_assert_uint_eq(usage.handles, handles);
  ck_assert_uint_eq(usage.reserved_address_bytes, reserved * p->granule);
  for (uint64_t granule = 0; granule < VA_GRANULES; granule++) {
    const model_mapping *mapping = mapping_at(m, granule);
    vmm_address address = p->base + granule * p->granule + 77;
    uint64_t expected = UINT64_MAX;
    if (mapping) {
      expected = m->handles[mapping->handle].physical + (granule - mapping->granule) * p->granule + 77;
    }
    /* Check's assertions are slow, and these are most of them. */
    bool accessible = mapping && mapping->accessible;
    if (vmm_sim_accessible(p->driver, address, 1) != accessible)
      ck_abort_msg("access to granule %d", (int)granule);
    if (vmm_sim_physical(p->driver, address) != expected) ck_abort_msg("memory of granule %d", (int)granule);
  }
  for (int i = 0; i < m->malloc_count; i++) {
    ck_assert(vmm_sim_accessible(p->driver, m->mallocs[i].address, m->mallocs[i].size));
  }
}

/* No two bytes of different memory have the same physical address. */
static void compare_physical(const program *p) {
  const model *m = &p->model;
  for (int i = 0; i < m->handle_count; i++) {
    for (int k = 0; k < i; k++) {
      const model_handle *a = &m->handles[i], *b = &m->handles[k];
      if (a->physical == UINT64_MAX || b->physical == UINT64_MAX) continue;
      ck_assert(a->physical + a->granules * p->granule <= b->physical ||
                b->physical + b->granules * p->granule <= a->physical);
    }
  }
}

static void give_everything_back(program *p) {
  model *m = &p->model;
  for (int i = 0; i < m->reservation_count; i++) {
    const model_reservation *r = &m->reservations[i];
    vmm_address address = p->base + r->granule * p->granule;
    ck_assert_success(vmm_unmap(p->driver, address, r->granules * p->granule));
    ck_assert_success(vmm_address_free(p->driver, address, r->granules * p->granule));
  }
  for (int i = 0; i < m->handle_count; i++) {
    if (m->handles[i].referenced) ck_assert_success(vmm_release(p->driver, m->handles[i].name));
  }
  for (int i = 0; i < m->malloc_count; i++) ck_assert_success(vmm_free(p->driver, m->mallocs[i].address));
  vmm_sim_usage usage;
  vmm_sim_usage_get(p->driver, &usage);
  ck_assert_mem_eq(&usage, &(vmm_sim_usage){0}, sizeof usage);
}

static void run_program(uint64_t seed, uint64_t granule, bool backed) {
  static void (*const operations[])(program *) = {
      do_reserve, do_address_free, do_create, do_create, do_release,    do_map,    do_map,
      do_map,     do_map,          do_unmap,  do_unmap,  do_set_access, do_malloc, do_free,
  };
  static program p;
  memset(&p, 0, sizeof p);
  p.granule = granule;
  p.random = seed;
  vmm_sim_configuration configuration = {.capacity = CAPACITY_GRANULES * granule,
                                         .granularity = granule,
                                         .address_limit = VA_GRANULES * granule,
                                         .backed = backed};
  ck_assert_success(vmm_sim_create(&configuration, &p.driver));
  ck_assert_success(vmm_address_reserve(p.driver, granule, 0, &p.base));
  ck_assert_success(vmm_address_free(p.driver, p.base, granule));
  for (int i = 0; i < OPERATIONS && p.model.handle_count < LIST * 100; i++) {
    operations[next_random(&p, sizeof operations / sizeof *operations)](&p);
    compare(&p);
  }
  compare_physical(&p);
  give_everything_back(&p);
  vmm_driver_destroy(p.driver);
}

START_TEST(random_programs) { run_program((uint64_t)_i, 2 * MIB, false); }
END_TEST

START_TEST(random_programs_on_other_granules) {
  run_program((uint64_t)_i, _i % 2 ? 4 * MIB : 8 * MIB, false);
}
END_TEST

START_TEST(random_programs_on_pages) { run_program((uint64_t)_i, 2 * MIB, true); }
END_TEST

static Suite *model_suite(void) {
  Suite *suite = suite_create("vmm model");
  TCase *tcase = tcase_create("random programs");
  tcase_add_loop_test(tcase, random_programs, 0, PROGRAMS);
  tcase_add_loop_test(tcase, random_programs_on_other_granules, PROGRAMS, PROGRAMS + 8);
  tcase_add_loop_test(tcase, random_programs_on_pages, 2 * PROGRAMS, 2 * PROGRAMS + 4);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(model_suite)
