/* lakebed bench access. */
#include "harness/bench_access.h"

#include <inttypes.h>
#include <string.h>

#include "harness/bench.h"
#include "harness/option_values.h"
#include "harness/program.h"

enum option_key { OPTION_TOTAL = 0x200, OPTION_ALIAS_TOTAL, OPTION_LAUNCHES };

enum {
  ITERATIONS_DEFAULT = 20,
  WARMUP_DEFAULT = 3,
  LAUNCHES_DEFAULT = 400,
  LAUNCHES_LIMIT = 100000,
  THREADS = 256
};

static const bench_case cases[] = {
    {"bandwidth", "read, write, copy and random access of stitched memory against one cuMemAlloc", false},
    {"aliases", "two kernels at once change neighbouring blocks of one memory through two addresses", false},
    {"handover", "kernels change one memory in turn through two addresses, by stream order and by event",
     false},
    {NULL, NULL, false},
};

static const struct argp_option option_table[] = {
    {"total", OPTION_TOTAL, "SIZE", 0, "of the buffer whose bandwidth is measured; default: 8GiB",
     BENCH_GROUP_OWN},
    {"alias-total", OPTION_ALIAS_TOTAL, "SIZE", 0, "of the memory that has two addresses; default: 256MiB",
     BENCH_GROUP_OWN},
    {"launches", OPTION_LAUNCHES, "N", 0, "handovers from address to address; default: 400", BENCH_GROUP_OWN},
    {0},
};

static const char documentation[] =
    "Measures whether memory stitched from chunks is as fast as one allocation, and counts what goes wrong "
    "when one "
    "memory is used through two addresses. --min, --max, --factor give the sizes of the chunks. All data are "
    "verified.\v"
    "BENCHMARK: see --list; default: all. Needs a real device.\n"
    "Exit status: 0 done; 1 a word was wrong, a driver call failed, or memory leaked; 2 bad usage; 3 the "
    "device has too "
    "little memory; 4 the device is unusable.";

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  bench_access *bench = state->input;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &bench->options;
      return 0;
    case OPTION_TOTAL:
      bench->total = option_parse_size(state, "total", argument);
      return 0;
    case OPTION_ALIAS_TOTAL:
      bench->alias_total = option_parse_size(state, "alias-total", argument);
      return 0;
    case OPTION_LAUNCHES:
      bench->launches = option_parse_count(state, "launches", argument, 1, LAUNCHES_LIMIT);
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

exit_status bench_access_failure(bench_access *bench, const char *doing) {
  return bench_session_driver_failure(&bench->session, bench->session.driver, doing);
}

vmm_status bench_access_launch(bench_access *bench, const char *kernel, uint32_t blocks_per_multiprocessor,
                               vmm_stream stream, void **arguments) {
  const vmm_cuda_shape shape = {.grid = {bench->multiprocessors * blocks_per_multiprocessor},
                                .block = {THREADS}};
  return vmm_cuda_launch(bench->session.driver, bench->module, kernel, &shape, stream, arguments);
}

vmm_status bench_access_report_clear(bench_access *bench, vmm_stream stream) {
  const access_report nothing = {.wrong = 0, .first = UINT64_MAX};
  return vmm_cuda_copy_to(bench->session.driver, bench->scratch, &nothing, sizeof nothing, stream);
}

vmm_status bench_access_report_get(bench_access *bench, vmm_stream stream, access_report *report) {
  return vmm_cuda_copy_from(bench->session.driver, report, bench->scratch, sizeof *report, stream);
}

static exit_status check_sizes(const bench_access *bench) {
  const struct {
    const char *name;
    uint64_t size;
  } sizes[] = {
      {"--min", bench->options.minimum}, {"--total", bench->total}, {"--alias-total", bench->alias_total}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    if (sizes[i].size % bench->session.granularity == 0) continue;
    program_complain("%s must be a multiple of the device's granularity of %" PRIu64 " bytes", sizes[i].name,
                     bench->session.granularity);
    return EXIT_STATUS_USAGE;
  }
  return EXIT_STATUS_DONE;
}

static exit_status open_kernels(bench_access *bench) {
  char message[BENCH_MESSAGE];
  vmm_driver *driver = bench->session.driver;
  int multiprocessors = vmm_cuda_information_of(driver)->multiprocessors;
  bench->multiprocessors = multiprocessors > 0 ? (uint32_t)multiprocessors : 1;
  if (vmm_cuda_module_load_built_in(driver, "access", &bench->module, message, sizeof message) !=
      VMM_SUCCESS) {
    program_complain("%s", message);
    return EXIT_STATUS_NO_DEVICE;
  }
  if (vmm_malloc(driver, ACCESS_SCRATCH, &bench->scratch) != VMM_SUCCESS) {
    return bench_access_failure(bench, "allocating memory for results");
  }
  return EXIT_STATUS_DONE;
}

static exit_status run(bench_access *bench) {
  exit_status status = check_sizes(bench);
  if (status == EXIT_STATUS_DONE) status = open_kernels(bench);
  const bench_options *options = &bench->options;
  if (status == EXIT_STATUS_DONE && bench_options_chosen(options, "bandwidth"))
    status = bench_access_bandwidth(bench);
  if (status == EXIT_STATUS_DONE && bench_options_chosen(options, "aliases"))
    status = bench_access_aliases(bench);
  if (status == EXIT_STATUS_DONE && bench_options_chosen(options, "handover"))
    status = bench_access_handover(bench);
  if (bench->scratch && vmm_free(bench->session.driver, bench->scratch) != VMM_SUCCESS) {
    status = exit_status_worse(status, bench_access_failure(bench, "freeing memory for results"));
  }
  if (bench->module) vmm_cuda_module_unload(bench->session.driver, bench->module);
  if (bench->wrong_words > 0) {
    program_complain("%" PRIu64 " words were wrong", bench->wrong_words);
    status = exit_status_worse(status, EXIT_STATUS_CHECK_FAILED);
  }
  return status;
}

exit_status command_bench_access(int argc, char **argv) {
  static const struct argp_child children[] = {{&bench_options_argp, 0, NULL, 0}, {0}};
  static const struct argp parser = {option_table, parse_option, "[BENCHMARK...]", documentation, children,
                                     NULL,         NULL};
  bench_access bench = {.options = {.cases = cases,
                                    .needs_kernels = true,
                                    .device = {.profile = "h200"},
                                    .minimum = UINT64_C(2) << 20,
                                    .maximum = UINT64_C(1) << 30,
                                    .factor = 8,
                                    .warmup = WARMUP_DEFAULT,
                                    .iterations = ITERATIONS_DEFAULT},
                        .total = UINT64_C(8) << 30,
                        .alias_total = UINT64_C(256) << 20,
                        .launches = LAUNCHES_DEFAULT};
  bool done;
  exit_status status = bench_options_parse(argc, argv, &parser, &bench, &bench.options, &done);
  if (status == EXIT_STATUS_DONE && !done) {
    status = bench_session_open(&bench.session, &bench.options, "access");
    if (status == EXIT_STATUS_DONE) status = bench_session_close(&bench.session, run(&bench));
  }
  bench_options_free(&bench.options);
  return status;
}
