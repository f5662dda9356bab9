/* Processor time that the simulated device takes per call, with 70,000 mappings of 2 MiB alive, bare and
 * behind a meter, and the host memory that they take. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "vmm/meter.h"
#include "vmm/sim.h"

enum { CHUNKS = 70000, SMALL = 50000 };

#define MIB (UINT64_C(1) << 20)
#define CHUNK (2 * MIB)

static vmm_handle handles[CHUNKS];
static vmm_address addresses[SMALL];

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Resident bytes of this process. */
static long resident_bytes(void) {
  long pages = 0, ignored = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return 0;
  if (fscanf(file, "%ld %ld", &ignored, &pages) != 2) pages = 0;
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

static int failed;

static void check(vmm_status status) {
  if (status != VMM_SUCCESS) failed++;
}

#define TIMED(name, count, ...)                                               \
  do {                                                                        \
    double begin = now_ns();                                                  \
    __VA_ARGS__;                                                              \
    printf("  %-34s %8.1f ns\n", name, (now_ns() - begin) / (double)(count)); \
  } while (0)

static void chunks(vmm_driver *driver, vmm_driver *sim, long before) {
  vmm_address address = 0;
  check(vmm_address_reserve(driver, CHUNKS * CHUNK, 0, &address));
  TIMED("create", CHUNKS, for (int i = 0; i < CHUNKS; i++) check(vmm_create(driver, CHUNK, &handles[i])));
  TIMED(
      "map", CHUNKS, for (uint64_t i = 0; i < CHUNKS; i++) {
        check(vmm_map(driver, address + i * CHUNK, CHUNK, 0, handles[i]));
      });
  TIMED(
      "set_access, one call a mapping", CHUNKS,
      for (uint64_t i = 0; i < CHUNKS; i++) { check(vmm_set_access(driver, address + i * CHUNK, CHUNK)); });
  TIMED("set_access, one call for all", CHUNKS, check(vmm_set_access(driver, address, CHUNKS * CHUNK)));
  vmm_sim_usage usage;
  vmm_sim_usage_get(sim, &usage);
  printf("  %" PRIu64 " handles and %" PRIu64 " mappings of %" PRIu64 " bytes: %.1f MB resident\n",
         usage.handles, usage.mappings, usage.physical_bytes, (double)(resident_bytes() - before) / 1e6);
  TIMED(
      "unmap and map again, at random", CHUNKS, for (uint64_t i = 0; i < CHUNKS; i++) {
        uint64_t place = i * 48271 % CHUNKS;
        check(vmm_unmap(driver, address + place * CHUNK, CHUNK));
        check(vmm_map(driver, address + place * CHUNK, CHUNK, 0, handles[place]));
      });
  TIMED(
      "unmap, one call a mapping", CHUNKS / 2,
      for (uint64_t i = 0; i < CHUNKS / 2; i++) { check(vmm_unmap(driver, address + i * CHUNK, CHUNK)); });
  TIMED("unmap, one call for all", CHUNKS / 2, check(vmm_unmap(driver, address, CHUNKS * CHUNK)));
  TIMED("release", CHUNKS, for (int i = 0; i < CHUNKS; i++) check(vmm_release(driver, handles[i])));
  check(vmm_address_free(driver, address, CHUNKS * CHUNK));
}

/* What stitching does: a reservation of its own for every mapping. */
static void reservations(vmm_driver *driver) {
  TIMED("reserve", CHUNKS,
        for (int i = 0; i < CHUNKS; i++) check(vmm_address_reserve(driver, CHUNK, 0, &addresses[i])));
  vmm_handle handle = 0;
  check(vmm_create(driver, CHUNK, &handle));
  TIMED(
      "map one handle everywhere, at random", CHUNKS, for (uint64_t i = 0; i < CHUNKS; i++) {
        check(vmm_map(driver, addresses[i * 48271 % CHUNKS], CHUNK, 0, handle));
      });
  TIMED(
      "unmap everywhere, at random", CHUNKS, for (uint64_t i = 0; i < CHUNKS; i++) {
        check(vmm_unmap(driver, addresses[i * 40009 % CHUNKS], CHUNK));
      });
  check(vmm_release(driver, handle));
  TIMED(
      "address_free, at random", CHUNKS, for (uint64_t i = 0; i < CHUNKS; i++) {
        check(vmm_address_free(driver, addresses[i * 48271 % CHUNKS], CHUNK));
      });
}

static void allocations(vmm_driver *driver) {
  TIMED(
      "malloc, 512 B to 64 KiB", SMALL, for (uint64_t i = 0; i < SMALL; i++) {
        check(vmm_malloc(driver, 1 + i * 7919 % 65536, &addresses[i]));
      });
  TIMED(
      "free, at random", SMALL,
      for (uint64_t i = 0; i < SMALL; i++) { check(vmm_free(driver, addresses[i * 48271 % SMALL])); });
  TIMED(
      "malloc, 2 to 62 MiB", 2000, for (uint64_t i = 0; i < 2000; i++) {
        check(vmm_malloc(driver, (2 + i * 7919 % 61) * MIB, &addresses[i]));
      });
  TIMED(
      "free, at random", 2000,
      for (uint64_t i = 0; i < 2000; i++) { check(vmm_free(driver, addresses[i * 1009 % 2000])); });
  TIMED(
      "malloc_async, 512 B to 64 KiB", SMALL, for (uint64_t i = 0; i < SMALL; i++) {
        check(vmm_malloc_async(driver, 1 + i * 7919 % 65536, 0, &addresses[i]));
      });
  TIMED(
      "free_async, at random", SMALL, for (uint64_t i = 0; i < SMALL; i++) {
        check(vmm_free_async(driver, addresses[i * 48271 % SMALL], 0));
      });
  vmm_event event = 0;
  TIMED(
      "event record, query and discard", SMALL, for (int i = 0; i < SMALL; i++) {
        check(vmm_event_record(driver, 0, &event));
        check(vmm_event_query(driver, event));
        vmm_event_discard(driver, event);
      });
}

int main(void) {
  char message[300];
  vmm_profile *profile = NULL;
  if (vmm_profile_load("h200", &profile, message, sizeof message) != VMM_SUCCESS) {
    fprintf(stderr, "%s\n", message);
    return 1;
  }
  for (int metered = 0; metered < 2; metered++) {
    long before = resident_bytes();
    vmm_driver *sim = NULL, *meter = NULL;
    vmm_sim_configuration configuration = {.profile = profile};
    if (vmm_sim_create(&configuration, &sim) != VMM_SUCCESS) return 1;
    if (metered && vmm_meter_create(sim, &meter) != VMM_SUCCESS) return 1;
    vmm_driver *driver = metered ? meter : sim;
    printf(metered ? "behind a meter\n" : "bare\n");
    chunks(driver, sim, before);
    reservations(driver);
    allocations(driver);
    vmm_driver_destroy(meter);
    vmm_driver_destroy(sim);
  }
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("peak resident of the whole run: %.1f MB\n", (double)usage.ru_maxrss / 1e3);
  vmm_profile_destroy(profile);
  if (failed) printf("%d calls failed\n", failed);
  return failed ? 1 : 0;
}
