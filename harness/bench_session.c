#include "harness/bench_session.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/bench_build.h"
#include "harness/bench_host.h"
#include "harness/device.h"
#include "harness/output_file.h"
#include "harness/program.h"
#include "harness/replay_output.h"
#include "harness/units.h"
#include "vmm/sim.h"

/* ---- the device ---- */

static exit_status open_simulated(bench_session *session) {
  char message[BENCH_MESSAGE];
  const char *name = session->options->device.profile;
  if (vmm_profile_load(name, &session->profile, message, sizeof message) != VMM_SUCCESS) {
    program_complain("%s", message);
    return EXIT_STATUS_USAGE;
  }
  uint64_t granularity = vmm_profile_granularity(session->profile);
  uint64_t capacity = session->options->device.capacity ? session->options->device.capacity
                                                        : vmm_profile_usable_bytes(session->profile);
  if (!device_capacity_allowed(capacity, message, sizeof message)) {
    program_complain("%s", message);
    return EXIT_STATUS_USAGE;
  }
  vmm_sim_configuration configuration = {.profile = session->profile,
                                         .capacity = capacity / granularity * granularity};
  vmm_status status = vmm_sim_create(&configuration, &session->driver);
  if (status != VMM_SUCCESS) {
    program_complain("the simulated device cannot be made: %s", vmm_status_text(status));
    return status == VMM_INVALID_VALUE ? EXIT_STATUS_USAGE : EXIT_STATUS_NO_DEVICE;
  }
  session->simulated = true;
  snprintf(session->device, sizeof session->device, "%s", vmm_profile_device(session->profile));
  snprintf(session->provenance, sizeof session->provenance, "simulated from the profile '%s'", name);
  return EXIT_STATUS_DONE;
}

static vmm_status create_real(const bench_options *options, vmm_driver **driver, char *message,
                              size_t message_size) {
  vmm_cuda_configuration configuration = options->cuda;
  configuration.ordinal = options->device.ordinal;
  return vmm_cuda_create(&configuration, driver, message, message_size);
}

static vmm_status open_real(bench_session *session, char *message, size_t message_size) {
  vmm_status status = create_real(session->options, &session->driver, message, message_size);
  if (status != VMM_SUCCESS) return status;
  const vmm_cuda_information *information = vmm_cuda_information_of(session->driver);
  snprintf(session->device, sizeof session->device, "%s", information->device);
  const char *version = information->driver_version[0] ? information->driver_version : "(version unknown)";
  snprintf(session->provenance, sizeof session->provenance, "driver %s, CUDA %d.%d", version,
           information->cuda_version / 1000, information->cuda_version % 1000 / 10);
  return VMM_SUCCESS;
}

/* The real device where nothing else was asked for and one can be used. reason: why it cannot. */
static exit_status open_device(bench_session *session, char *reason, size_t reason_size) {
  const bench_options *options = session->options;
  reason[0] = '\0';
  if (options->device.driver && strcmp(options->device.driver, "sim") == 0) {
    if (!options->needs_kernels) return open_simulated(session);
    program_complain("the simulated device runs no kernels: this needs a real one");
    return EXIT_STATUS_NO_DEVICE;
  }
  vmm_status status = open_real(session, reason, reason_size);
  if (status == VMM_SUCCESS) return EXIT_STATUS_DONE;
  if (!options->device.driver && !options->needs_kernels) return open_simulated(session);
  program_complain("%s", reason);
  return status == VMM_INVALID_DEVICE ? EXIT_STATUS_USAGE : EXIT_STATUS_NO_DEVICE;
}

exit_status bench_session_add_driver(bench_session *session, vmm_driver **driver) {
  char message[BENCH_MESSAGE];
  if (create_real(session->options, driver, message, sizeof message) == VMM_SUCCESS) {
    return EXIT_STATUS_DONE;
  }
  program_complain("%s", message);
  return EXIT_STATUS_NO_DEVICE;
}

exit_status bench_session_driver_failure(bench_session *session, vmm_driver *driver, const char *doing) {
  char text[BENCH_MESSAGE];
  progress_clear(&session->shown);
  vmm_error_format(&driver->error, text, sizeof text);
  vmm_status status = driver->error.status;
  if (!text[0] && !session->simulated) snprintf(text, sizeof text, "%s", vmm_cuda_failure(driver));
  program_complain("%s: %s", doing, text[0] ? text : "the host has no memory");
  vmm_error_clear(driver);
  return status == VMM_OUT_OF_MEMORY ? EXIT_STATUS_OUT_OF_MEMORY : EXIT_STATUS_CHECK_FAILED;
}

/* Is nothing allocated through the driver object any more? If not, says what. */
static bool holds_nothing(bench_session *session, char *text, size_t text_size) {
  uint64_t bytes, handles, mappings, reservations, mallocs, events;
  if (session->simulated) {
    vmm_sim_usage usage;
    vmm_sim_usage_get(session->driver, &usage);
    bytes = usage.physical_bytes - usage.pool_bytes;
    handles = usage.handles;
    mappings = usage.mappings;
    reservations = usage.reservations;
    mallocs = usage.mallocs + usage.pool_allocations;
    events = usage.events;
  } else {
    vmm_cuda_usage usage;
    vmm_cuda_usage_get(session->driver, &usage);
    bytes = usage.physical_bytes;
    handles = usage.handles;
    mappings = usage.mappings;
    reservations = usage.reservations;
    mallocs = usage.mallocs + usage.async;
    events = usage.events;
  }
  if (!(bytes | handles | mappings | reservations | mallocs | events)) return true;
  snprintf(text, text_size,
           "the device still holds %" PRIu64 " bytes, %" PRIu64 " handles, %" PRIu64 " mappings, %" PRIu64
           " reservations, %" PRIu64 " allocations, %" PRIu64 " events",
           bytes, handles, mappings, reservations, mallocs, events);
  return false;
}

/* What the driver keeps for itself once memory was mapped, a stream used and the pool asked: it counts as
 * there before the first measurement. */
static vmm_status warm_up(bench_session *session) {
  vmm_driver *driver = session->driver;
  const bench_build_plan plan = {
      .total = 16 * session->granularity, .chunk = session->granularity, .aliases = 1, .threads = 1};
  bench_build_times times;
  vmm_driver *failed;
  vmm_address address;
  vmm_status status = bench_build_run(&driver, &plan, &times, NULL, &failed);
  if (status == VMM_SUCCESS) status = vmm_malloc(driver, session->granularity, &address);
  if (status == VMM_SUCCESS) status = vmm_free(driver, address);
  for (vmm_stream stream = 0; stream < 3 && status == VMM_SUCCESS && !session->simulated; stream++) {
    status = vmm_malloc_async(driver, session->granularity, stream, &address);
    if (status == VMM_SUCCESS) status = vmm_free_async(driver, address, stream);
    if (status == VMM_NOT_SUPPORTED) status = VMM_SUCCESS;
  }
  vmm_error_clear(driver);
  return status;
}

/* What is free when the driver's pool holds nothing. */
static vmm_status measure_free(bench_session *session, uint64_t *free_bytes) {
  vmm_driver *driver = session->driver;
  if (!session->simulated) {
    vmm_status status = vmm_synchronize(driver);
    if (status == VMM_SUCCESS) status = vmm_pool_trim(driver, 0);
    if (status != VMM_SUCCESS) return status;
  }
  uint64_t total;
  vmm_status status = vmm_memory_info(driver, free_bytes, &total);
  if (status == VMM_SUCCESS && session->simulated) {
    /* The simulated pool keeps what it has. */
    vmm_sim_usage usage;
    vmm_sim_usage_get(driver, &usage);
    *free_bytes += usage.pool_bytes;
  }
  return status;
}

vmm_status bench_session_baseline(bench_session *session) {
  return measure_free(session, &session->free_before);
}

static exit_status check_leaks(bench_session *session) {
  enum { TRIES = 20, PAUSE_US = 10000 };
  char text[BENCH_MESSAGE];
  if (!holds_nothing(session, text, sizeof text)) {
    program_complain("leak: %s", text);
    return EXIT_STATUS_CHECK_FAILED;
  }
  uint64_t free_bytes = 0;
  /* Memory that was freed may come back a moment later. */
  for (int i = 0; i < TRIES; i++) {
    if (i > 0) usleep(PAUSE_US);
    if (measure_free(session, &free_bytes) != VMM_SUCCESS) {
      return bench_session_driver_failure(session, session->driver,
                                          "the device's free memory cannot be read");
    }
    if (free_bytes >= session->free_before) return EXIT_STATUS_DONE;
  }
  program_complain("leak: everything was given back, but the device has %" PRIu64
                   " bytes less free than before (or another process has taken them)",
                   session->free_before - free_bytes);
  return EXIT_STATUS_CHECK_FAILED;
}

/* ---- header and results ---- */

static void keep(bench_session *session, json_t *object, const char *key, json_t *value) {
  if (object && value && json_object_set_new(object, key, value) == 0) return;
  session->lost = true;
}

void bench_session_note(bench_session *session, const char *key, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  keep(session, session->header, key, json_string(text));
  bench_session_print(session, "# %s: %s\n", key, text);
}

void bench_session_print(bench_session *session, const char *format, ...) {
  if (!session->outputs.report) return;
  progress_clear(&session->shown);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(session->outputs.report, format, arguments);
  va_end(arguments);
}

uint64_t bench_session_probe_host(bench_session *session) {
  if (session->simulated) return 0;
  const uint64_t nanoseconds = bench_host_loop_ns();
  bench_samples_add(&session->host_loops, nanoseconds);
  return nanoseconds;
}

static void note_host_loops(bench_session *session) {
  if (session->host_loops.count == 0) return;
  const bench_summary loops = bench_samples_summarize(&session->host_loops);
  bench_session_note(
      session, "host_loop",
      "a fixed piece of host work took %.1f us (median of %zu; from %.1f, p90 %.1f): how steady the "
      "processor was",
      loops.p50 / 1000, loops.count, (double)loops.minimum / 1000, (double)loops.p90 / 1000);
}

json_t *bench_session_record(bench_session *session, const char *benchmark) {
  json_t *record = json_object();
  if (!record || json_array_append_new(session->results, record) != 0) {
    session->lost = true;
    return NULL;
  }
  bench_record_text(session, record, "benchmark", benchmark);
  return record;
}

void bench_record_text(bench_session *session, json_t *record, const char *key, const char *value) {
  keep(session, record, key, json_string(value));
}

void bench_record_integer(bench_session *session, json_t *record, const char *key, uint64_t value) {
  keep(session, record, key, json_integer((json_int_t)value));
}

void bench_record_real(bench_session *session, json_t *record, const char *key, double value) {
  keep(session, record, key, json_real(value));
}

void bench_record_nothing(bench_session *session, json_t *record, const char *key) {
  keep(session, record, key, json_null());
}

void bench_record_microseconds(bench_session *session, json_t *record, const char *prefix,
                               const bench_summary *summary) {
  const struct {
    const char *name;
    double nanoseconds;
  } values[] = {{"p50_us", summary->p50},
                {"p90_us", (double)summary->p90},
                {"p99_us", (double)summary->p99},
                {"max_us", (double)summary->maximum}};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    char key[64];
    snprintf(key, sizeof key, "%s%s", prefix, values[i].name);
    bench_record_real(session, record, key, values[i].nanoseconds / 1000);
  }
}

static void write_csv_value(FILE *stream, const json_t *value) {
  if (json_is_string(value)) {
    replay_csv_field(stream, json_string_value(value));
  } else if (json_is_integer(value)) {
    fprintf(stream, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
  } else if (json_is_real(value)) {
    fprintf(stream, "%.9g", json_real_value(value));
  }
}

/* Every key that any result has, in the order of their first appearance. */
static json_t *collect_columns(const json_t *results) {
  json_t *columns = json_object();
  size_t index;
  json_t *record, *value;
  const char *key;
  json_array_foreach(results, index, record) {
    json_object_foreach(record, key, value) {
      if (columns && json_object_set_new(columns, key, json_null()) != 0) {
        json_decref(columns);
        columns = NULL;
      }
    }
  }
  return columns;
}

static bool write_csv(const bench_session *session, FILE *stream) {
  json_t *columns = collect_columns(session->results), *record, *value;
  if (!columns) return false;
  const char *key;
  json_object_foreach(session->header, key, value) {
    fprintf(stream, "# %s: %s\n", key, json_string_value(value));
  }
  const char *separator = "";
  json_object_foreach(columns, key, value) {
    fprintf(stream, "%s%s", separator, key);
    separator = ",";
  }
  fputc('\n', stream);
  size_t index;
  json_array_foreach(session->results, index, record) {
    separator = "";
    json_object_foreach(columns, key, value) {
      fputs(separator, stream);
      write_csv_value(stream, json_object_get(record, key));
      separator = ",";
    }
    fputc('\n', stream);
  }
  json_decref(columns);
  return true;
}

static bool write_json(const bench_session *session, FILE *stream) {
  json_t *document = json_copy(session->header);
  bool written = document && json_object_set(document, "results", session->results) == 0 &&
                 output_json(document, JSON_INDENT(2) | JSON_REAL_PRECISION(9), stream);
  json_decref(document);
  return written;
}

/* Before the work, so that a wrong path shows at once. */
static bool open_files(bench_session *session) {
  const bench_options *options = session->options;
  output_set *outputs = &session->outputs;
  outputs->report = stdout;
  return output_set_add(outputs, options->output.json_path, &outputs->json) &&
         output_set_add(outputs, options->output.csv_path, &outputs->csv);
}

static void release(bench_session *session) {
  json_decref(session->header);
  json_decref(session->results);
  vmm_driver_destroy(session->driver);
  vmm_profile_destroy(session->profile);
  bench_samples_free(&session->host_loops);
  session->header = session->results = NULL;
  session->driver = NULL;
  session->profile = NULL;
}

static void print_header(bench_session *session, const char *what, const char *reason) {
  time_t now = time(NULL);
  struct tm utc;
  if (gmtime_r(&now, &utc)) strftime(session->date, sizeof session->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  char total[UNITS_TEXT], usable[UNITS_TEXT];
  units_bytes(session->total_bytes, total);
  units_bytes(session->usable_bytes, usable);
  bench_session_note(session, "program", "lakebed %s, bench %s", PROGRAM_VERSION, what);
  if (reason[0]) bench_session_note(session, "no_device", "simulated instead of measured: %s", reason);
  bench_session_note(session, "device", "%s", session->device);
  bench_session_note(session, "driver", "%s: %s", session->simulated ? "sim" : "cuda", session->provenance);
  if (session->profile) bench_session_note(session, "source", "%s", vmm_profile_source(session->profile));
  bench_session_note(session, "memory", "%s, of which %s are free", total, usable);
  bench_session_note(session, "date", "%s", session->date);
  bench_session_note(session, "command", "%s", session->options->command);
  bench_session_note(session, "repeated", "%" PRIu64 " times after %" PRIu64 " that do not count",
                     session->options->iterations, session->options->warmup);
}

exit_status bench_session_open(bench_session *session, const bench_options *options, const char *what) {
  memset(session, 0, sizeof *session);
  session->options = options;
  progress_init(&session->shown, options->output.quiet);
  char reason[BENCH_MESSAGE];
  exit_status status = open_device(session, reason, sizeof reason);
  if (status == EXIT_STATUS_DONE) {
    vmm_status asked = vmm_granularity(session->driver, &session->granularity);
    uint64_t total = 0;
    if (asked == VMM_SUCCESS) asked = vmm_memory_info(session->driver, &session->usable_bytes, &total);
    session->total_bytes = session->profile ? vmm_profile_total_bytes(session->profile) : total;
    if (asked == VMM_SUCCESS) asked = warm_up(session);
    if (asked == VMM_SUCCESS) asked = bench_session_baseline(session);
    if (asked != VMM_SUCCESS) {
      status = bench_session_driver_failure(session, session->driver, "the device cannot be asked");
    }
  }
  if (status == EXIT_STATUS_DONE) {
    session->header = json_object();
    session->results = json_array();
    if (!session->header || !session->results) {
      program_complain("no memory for the results");
      status = EXIT_STATUS_CHECK_FAILED;
    } else if (!open_files(session)) {
      status = EXIT_STATUS_USAGE;
    }
  }
  if (status != EXIT_STATUS_DONE) {
    output_set_abandon(&session->outputs);
    release(session);
    return status;
  }
  print_header(session, what, reason);
  if (!session->simulated) bench_host_loop_ns(); /* the first one also fills its table */
  return EXIT_STATUS_DONE;
}

exit_status bench_session_close(bench_session *session, exit_status status) {
  output_set *outputs = &session->outputs;
  status = exit_status_worse(status, check_leaks(session));
  note_host_loops(session);
  if (outputs->json) output_set_wrote(outputs, outputs->json, write_json(session, outputs->json));
  if (outputs->csv) output_set_wrote(outputs, outputs->csv, write_csv(session, outputs->csv));
  status = exit_status_worse(status, output_set_close(outputs));
  if (session->lost) {
    program_complain("the host had no memory for some of the results");
    status = exit_status_worse(status, EXIT_STATUS_CHECK_FAILED);
  }
  release(session);
  return status;
}

size_t bench_sizes(const bench_options *options, uint64_t sizes[BENCH_SIZES]) {
  size_t count = 0;
  for (uint64_t size = options->minimum; count < BENCH_SIZES; size *= options->factor) {
    sizes[count++] = size;
    if (size > options->maximum / options->factor) break;
  }
  return count;
}
