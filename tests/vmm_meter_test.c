/* The meter: counts, times and percentiles against sorted samples, errors, observers. */
#include "vmm/meter.h"

#include <stdlib.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/vmm_conformance.h"
#include "vmm/sim.h"

#define MIB (UINT64_C(1) << 20)

/* A device whose synchronize takes as long as it is told; all else is missing. */
typedef struct slow_device {
  vmm_driver driver;
  uint64_t next_ns;
  vmm_status next_status;
} slow_device;

static vmm_status slow_synchronize(vmm_driver *driver) {
  slow_device *device = (slow_device *)driver;
  driver->busy_ns += device->next_ns;
  return device->next_status;
}

static const vmm_driver_operations slow_operations = {.name = "slow", .synchronize = slow_synchronize};

static vmm_driver *meter_over(vmm_driver *wrapped) {
  vmm_driver *meter = NULL;
  ck_assert_success(vmm_meter_create(wrapped, &meter));
  return meter;
}

static vmm_meter_call counts_of(const vmm_driver *meter, vmm_call call) {
  vmm_meter_call counts;
  vmm_meter_get(meter, call, &counts);
  return counts;
}

static uint64_t next_random(uint64_t *state) {
  *state += UINT64_C(0x9E3779B97F4A7C15);
  uint64_t mixed = *state;
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
  return mixed ^ (mixed >> 31);
}

static int compare_numbers(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return a < b ? -1 : a > b;
}

/* Samples of every magnitude, of two magnitudes, all equal, and 0. */
static uint64_t sample(int shape, uint64_t *state) {
  switch (shape) {
    case 0:
      return next_random(state) >> next_random(state) % 64;
    case 1:
      return next_random(state) % 10 ? 1000 + next_random(state) % 100
                                     : 1000000 + next_random(state) % 1000000;
    case 2:
      return 12345;
    case 3:
      return next_random(state) % 100;
    default:
      return next_random(state) % 3 ? 0 : next_random(state) % 5000;
  }
}

START_TEST(percentiles_match_sorted_samples) {
  enum { COUNT = 4000 };
  static uint64_t samples[COUNT];
  slow_device device = {.driver = {.operations = &slow_operations}};
  vmm_driver *meter = meter_over(&device.driver);
  uint64_t state = (uint64_t)_i + 1, total = 0;
  for (int i = 0; i < COUNT; i++) {
    device.next_ns = samples[i] = sample(_i, &state);
    total += samples[i];
    ck_assert_success(vmm_synchronize(meter));
  }
  qsort(samples, COUNT, sizeof *samples, compare_numbers);
  static const double shares[] = {0.001, 0.01, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    double exact_rank = shares[i] * COUNT;
    uint64_t rank = (uint64_t)exact_rank;
    if ((double)rank < exact_rank) rank++;
    uint64_t exact = samples[rank - 1];
    uint64_t found = vmm_meter_percentile(meter, VMM_CALL_SYNCHRONIZE, shares[i]);
    uint64_t off = found > exact ? found - exact : exact - found;
    ck_assert_msg((double)off <= 0.016 * (double)exact, "shape %d, share %g: %llu, exactly %llu", _i,
                  shares[i], (unsigned long long)found, (unsigned long long)exact);
  }
  ck_assert_uint_eq(vmm_meter_percentile(meter, VMM_CALL_SYNCHRONIZE, 0), samples[0]);
  ck_assert_uint_eq(vmm_meter_percentile(meter, VMM_CALL_SYNCHRONIZE, 1), samples[COUNT - 1]);
  vmm_meter_call counts = counts_of(meter, VMM_CALL_SYNCHRONIZE);
  ck_assert_uint_eq(counts.count, COUNT);
  ck_assert_uint_eq(counts.failures, 0);
  ck_assert_uint_eq(counts.total_ns, total);
  ck_assert_uint_eq(counts.minimum_ns, samples[0]);
  ck_assert_uint_eq(counts.maximum_ns, samples[COUNT - 1]);
  ck_assert_uint_eq(meter->busy_ns, total);
  vmm_driver_destroy(meter);
}
END_TEST

START_TEST(histogram_bins_hold_all_samples) {
  enum { COUNT = 3000, BINS = 4096 };
  static uint64_t lower[BINS], count[BINS];
  slow_device device = {.driver = {.operations = &slow_operations}};
  vmm_driver *meter = meter_over(&device.driver);
  uint64_t state = 42, largest = 0, smallest = UINT64_MAX;
  for (int i = 0; i < COUNT; i++) {
    device.next_ns = sample(0, &state);
    if (device.next_ns > largest) largest = device.next_ns;
    if (device.next_ns < smallest) smallest = device.next_ns;
    vmm_synchronize(meter);
  }
  size_t bins = vmm_meter_histogram(meter, VMM_CALL_SYNCHRONIZE, lower, count, BINS);
  ck_assert_uint_lt(bins, BINS);
  uint64_t sum = 0;
  for (size_t i = 0; i < bins; i++) {
    sum += count[i];
    ck_assert_uint_gt(count[i], 0);
    if (i > 0) ck_assert_uint_gt(lower[i], lower[i - 1]);
  }
  ck_assert_uint_eq(sum, COUNT);
  ck_assert_uint_le(lower[0], smallest);
  ck_assert_uint_le(lower[bins - 1], largest);
  ck_assert_uint_eq(vmm_meter_histogram(meter, VMM_CALL_SYNCHRONIZE, lower, count, 3), 3);
  ck_assert_uint_eq(vmm_meter_histogram(meter, VMM_CALL_CREATE, lower, count, BINS), 0);
  vmm_driver_destroy(meter);
}
END_TEST

START_TEST(no_calls_no_percentiles) {
  slow_device device = {.driver = {.operations = &slow_operations}};
  vmm_driver *meter = meter_over(&device.driver);
  vmm_meter_call none = counts_of(meter, VMM_CALL_CREATE);
  ck_assert_mem_eq(&none, &(vmm_meter_call){0}, sizeof none);
  ck_assert_uint_eq(vmm_meter_percentile(meter, VMM_CALL_CREATE, 0.5), 0);
  ck_assert_uint_eq(vmm_meter_percentile(meter, VMM_CALL_CREATE, 1), 0);
  vmm_driver_destroy(meter);
}
END_TEST

START_TEST(failures_count_but_not_ready_is_none) {
  slow_device device = {.driver = {.operations = &slow_operations}, .next_ns = 10};
  vmm_driver *meter = meter_over(&device.driver);
  device.next_status = VMM_NOT_READY;
  ck_assert_status(vmm_synchronize(meter), VMM_NOT_READY);
  ck_assert_int_eq(meter->error.status, VMM_SUCCESS);
  device.next_status = VMM_LAUNCH_FAILED;
  ck_assert_status(vmm_synchronize(meter), VMM_LAUNCH_FAILED);
  ck_assert_int_eq(meter->error.status, VMM_LAUNCH_FAILED);
  vmm_meter_call counts = counts_of(meter, VMM_CALL_SYNCHRONIZE);
  ck_assert_uint_eq(counts.count, 2);
  ck_assert_uint_eq(counts.failures, 1);
  ck_assert_uint_eq(counts.total_ns, 20);
  vmm_driver_destroy(meter);
}
END_TEST

/* Only what happens through the meter is its time. */
START_TEST(time_spent_around_the_meter_is_not_counted) {
  slow_device device = {.driver = {.operations = &slow_operations}, .next_ns = 100};
  ck_assert_success(vmm_synchronize(&device.driver));
  vmm_driver *meter = meter_over(&device.driver);
  ck_assert_uint_eq(meter->busy_ns, 100);
  ck_assert_success(vmm_synchronize(&device.driver));
  ck_assert_success(vmm_synchronize(meter));
  vmm_meter_call counts = counts_of(meter, VMM_CALL_SYNCHRONIZE);
  ck_assert_uint_eq(counts.total_ns, 100);
  ck_assert_uint_eq(meter->busy_ns, 200);
  vmm_meter_reset(meter);
  counts = counts_of(meter, VMM_CALL_SYNCHRONIZE);
  ck_assert_mem_eq(&counts, &(vmm_meter_call){0}, sizeof counts);
  ck_assert_uint_eq(vmm_meter_percentile(meter, VMM_CALL_SYNCHRONIZE, 0.5), 0);
  ck_assert_uint_eq(meter->busy_ns, 200);
  vmm_driver_destroy(meter);
  ck_assert_success(vmm_synchronize(&device.driver));
}
END_TEST

START_TEST(errors_carry_the_arguments_of_their_call) {
  vmm_driver *sim;
  ck_assert_success(vmm_sim_create(&(vmm_sim_configuration){.capacity = 64 * MIB}, &sim));
  vmm_driver *meter = meter_over(sim);
  vmm_handle handle;
  char text[200];
  ck_assert_status(vmm_create(meter, 3, &handle), VMM_INVALID_VALUE);
  vmm_error_clear(meter); /* the wrapped device still has its own */
  ck_assert_status(vmm_map(meter, 4096, 5, 6, 7), VMM_INVALID_VALUE);
  vmm_error_format(&meter->error, text, sizeof text);
  ck_assert_str_eq(
      text,
      "cuMemMap(address=0x1000, size=5, offset=6, handle=7) returned CUDA_ERROR_INVALID_VALUE (1): "
      "invalid value");
  vmm_driver_destroy(meter);
  vmm_driver_destroy(sim);
}
END_TEST

typedef struct heard {
  int begun, ended;
  vmm_call call;
  uint64_t argument[4];
  vmm_status status;
  uint64_t total_ns;
} heard;

static void hear_begin(void *context, vmm_call call, const uint64_t argument[4]) {
  heard *h = context;
  ck_assert_int_eq(h->begun, h->ended);
  h->begun++;
  h->call = call;
  memcpy(h->argument, argument, sizeof h->argument);
}

static void hear_end(void *context, vmm_call call, vmm_status status, uint64_t duration_ns) {
  heard *h = context;
  h->ended++;
  ck_assert_int_eq(h->begun, h->ended);
  ck_assert_int_eq(h->call, call);
  h->status = status;
  h->total_ns += duration_ns;
}

START_TEST(observers_hear_every_call) {
  vmm_profile *profile;
  char message[200];
  ck_assert_success(vmm_profile_load("h200", &profile, message, sizeof message));
  vmm_driver *sim;
  ck_assert_success(vmm_sim_create(&(vmm_sim_configuration){.profile = profile}, &sim));
  vmm_driver *meter = meter_over(sim);
  heard h = {0};
  const vmm_meter_observer observer = {&h, hear_begin, hear_end};
  vmm_meter_observe(meter, &observer);
  vmm_address address;
  vmm_handle handle;
  ck_assert_success(vmm_address_reserve(meter, 4 * MIB, 0, &address));
  ck_assert_success(vmm_create(meter, 2 * MIB, &handle));
  ck_assert_success(vmm_map(meter, address, 2 * MIB, 0, handle));
  ck_assert_int_eq(h.call, VMM_CALL_MAP);
  ck_assert_uint_eq(h.argument[0], address);
  ck_assert_uint_eq(h.argument[1], 2 * MIB);
  ck_assert_uint_eq(h.argument[2], 0);
  ck_assert_uint_eq(h.argument[3], handle);
  ck_assert_int_eq(h.status, VMM_SUCCESS);
  ck_assert_status(vmm_release(meter, 0), VMM_INVALID_VALUE);
  ck_assert_int_eq(h.status, VMM_INVALID_VALUE);
  ck_assert_int_eq(h.begun, 4);
  ck_assert_int_eq(h.ended, 4);
  ck_assert_uint_eq(h.total_ns, sim->busy_ns);
  ck_assert_uint_eq(h.total_ns, meter->busy_ns);
  vmm_meter_observe(meter, NULL);
  ck_assert_success(vmm_synchronize(meter));
  const vmm_meter_observer deaf = {NULL, NULL, NULL};
  vmm_meter_observe(meter, &deaf);
  ck_assert_success(vmm_synchronize(meter));
  ck_assert_int_eq(h.begun, 4);
  vmm_driver_destroy(meter);
  vmm_driver_destroy(sim);
  vmm_profile_destroy(profile);
}
END_TEST

START_TEST(each_call_is_counted_as_itself) {
  vmm_driver *sim;
  ck_assert_success(vmm_sim_create(&(vmm_sim_configuration){.capacity = 64 * MIB, .backed = true}, &sim));
  vmm_driver *meter = meter_over(sim);
  uint64_t free_bytes, total_bytes, granularity;
  vmm_address address, memory, pooled;
  vmm_handle handle;
  vmm_event event;
  vmm_mismatch mismatch;
  ck_assert_success(vmm_granularity(meter, &granularity));
  ck_assert_success(vmm_memory_info(meter, &free_bytes, &total_bytes));
  ck_assert_success(vmm_address_reserve(meter, 2 * MIB, 0, &address));
  ck_assert_success(vmm_create(meter, 2 * MIB, &handle));
  ck_assert_success(vmm_map(meter, address, 2 * MIB, 0, handle));
  ck_assert_success(vmm_set_access(meter, address, 2 * MIB));
  ck_assert_success(vmm_fill(meter, address, 2 * MIB, 0, 3));
  ck_assert_success(vmm_verify(meter, address, 2 * MIB, 0, 3, &mismatch));
  ck_assert_success(vmm_unmap(meter, address, 2 * MIB));
  ck_assert_success(vmm_release(meter, handle));
  ck_assert_success(vmm_address_free(meter, address, 2 * MIB));
  ck_assert_success(vmm_malloc(meter, 2 * MIB, &memory));
  ck_assert_success(vmm_free(meter, memory));
  ck_assert_success(vmm_malloc_async(meter, 2 * MIB, 0, &pooled));
  ck_assert_success(vmm_free_async(meter, pooled, 0));
  vmm_pool_usage look;
  ck_assert_success(vmm_pool_usage_get(meter, &look));
  ck_assert_uint_eq(look.used_peak_bytes, 2 * MIB);
  ck_assert_success(vmm_pool_trim(meter, 0));
  ck_assert_success(vmm_pool_configure(
      meter, &(vmm_pool_configuration){.release_threshold = 1, .maximum_bytes = UINT64_MAX}));
  ck_assert_success(vmm_event_record(meter, 0, &event));
  ck_assert_success(vmm_event_query(meter, event));
  ck_assert_success(vmm_event_wait(meter, event));
  ck_assert_success(vmm_stream_wait_event(meter, 1, event));
  ck_assert_success(vmm_synchronize(meter));
  vmm_event_discard(meter, event);
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    vmm_meter_call counts = counts_of(meter, (vmm_call)call);
    if (call == VMM_CALL_POOL_USAGE) {
      ck_assert_uint_eq(counts.count, 0); /* a look, which is not metered */
      continue;
    }
    ck_assert_msg(counts.count == 1 && counts.failures == 0, "%s", vmm_call_name((vmm_call)call));
  }
  vmm_sim_usage usage;
  vmm_sim_usage_get(sim, &usage);
  ck_assert_uint_eq(usage.events, 0);
  vmm_driver_destroy(meter);
  ck_assert_status(vmm_meter_create(NULL, &meter), VMM_INVALID_VALUE);
  ck_assert_ptr_null(meter);
  ck_assert_status(vmm_meter_create(sim, NULL), VMM_INVALID_VALUE);
  vmm_driver_destroy(sim);
}
END_TEST

static Suite *meter_suite(void) {
  Suite *suite = suite_create("vmm meter");
  TCase *tcase = tcase_create("meter");
  tcase_add_loop_test(tcase, percentiles_match_sorted_samples, 0, 5);
  tcase_add_test(tcase, histogram_bins_hold_all_samples);
  tcase_add_test(tcase, no_calls_no_percentiles);
  tcase_add_test(tcase, failures_count_but_not_ready_is_none);
  tcase_add_test(tcase, time_spent_around_the_meter_is_not_counted);
  tcase_add_test(tcase, errors_carry_the_arguments_of_their_call);
  tcase_add_test(tcase, observers_hear_every_call);
  tcase_add_test(tcase, each_call_is_counted_as_itself);
  suite_add_tcase(suite, tcase);
  return suite;
}

TEST_MAIN(meter_suite)
