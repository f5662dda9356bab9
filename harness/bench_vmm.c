/* lakebed bench vmm. */
#include "harness/bench_vmm.h"

#include <inttypes.h>
#include <string.h>

#include "harness/bench.h"
#include "harness/option_values.h"
#include "harness/program.h"

enum option_key {
  OPTION_TOTAL = 0x200,
  OPTION_ACCESS,
  OPTION_MEMORY,
  OPTION_LIVE_HANDLES,
  OPTION_ALIASES,
  OPTION_THREADS,
  OPTION_DURING,
  OPTION_HANDLE_TYPE,
  OPTION_GPU_DIRECT,
  OPTION_SAVE_PROFILE,
};

enum { LIVE_HANDLES_LIMIT = 10000000, ALIASES_LIMIT = 4096, ITERATIONS_DEFAULT = 20, WARMUP_DEFAULT = 3 };

static const bench_case cases[] = {
    {"table1", "2 GiB from chunks, call by call, relative to cuMemAlloc (GMLake, Table 1)", false},
    {"figure6",
     "time to allocate 512 MiB, 1 GiB, 2 GiB from chunks, by cuMemAlloc, by cuMemAllocAsync (GMLake, Figure "
     "6)",
     false},
    {"profile", "every call by size and live handles: what the simulated device charges; see --save-profile",
     true},
    {NULL, NULL, false},
};

static const struct argp_option option_table[] = {
    {"total", OPTION_TOTAL, "SIZE[,...]", 0, "sizes to allocate; default: those of the paper",
     BENCH_GROUP_OWN},
    {"access", OPTION_ACCESS, "chunk|range", 0,
     "one cuMemSetAccess and cuMemUnmap a chunk, or one for all; default: chunk", BENCH_GROUP_OWN},
    {"memory", OPTION_MEMORY, "settled|warm|cold", 0,
     "warm: a build gets what the build before gave back at once, as in any loop; settled: the driver gets "
     "time to clear it first; cold: that memory is kept away from it; default: warm, settled for a profile",
     BENCH_GROUP_OWN},
    {"live-handles", OPTION_LIVE_HANDLES, "N|full", 0,
     "so many other handles of one granule live, mapped, meanwhile; full: as many as fit; default: 0",
     BENCH_GROUP_OWN},
    {"aliases", OPTION_ALIASES, "N", 0,
     "each handle is mapped at N places, the measured one is the last; default: 1", BENCH_GROUP_OWN},
    {"threads", OPTION_THREADS, "N", 0, "threads that build side by side, each its part; default: 1",
     BENCH_GROUP_OWN},
    {"during", OPTION_DURING, "idle|kernel|traffic", 0,
     "what the device does meanwhile: nothing, a kernel that only waits, one that reads memory; default: "
     "idle",
     BENCH_GROUP_OWN},
    {"handle-type", OPTION_HANDLE_TYPE, "none|posix_fd", 0,
     "can the memory be shared with processes; default: none", BENCH_GROUP_OWN},
    {"gpu-direct", OPTION_GPU_DIRECT, "on|off", 0, "can other PCIe devices reach the memory; default: off",
     BENCH_GROUP_OWN},
    {"save-profile", OPTION_SAVE_PROFILE, "FILE", 0,
     "run 'profile' and write what it found as a device profile", BENCH_GROUP_OWN},
    {0},
};

static const char documentation[] =
    "Measures what it costs to build memory from chunks through the virtual memory calls of the CUDA driver, "
    "and to "
    "take it down again. --min, --max, --factor give the sizes of the chunks.\v"
    "BENCHMARK: see --list; default: table1 figure6. Times are spent in the driver's calls; with --threads "
    "they are "
    "wall times of a stage that all threads do side by side.\n"
    "Exit status: 0 done; 1 a driver call failed or memory leaked; 2 bad usage; 3 the device has too little "
    "memory; 4 "
    "the device is unusable.";

static const char *const access_words[] = {"chunk", "range", NULL};
static const char *const memory_words[] = {"settled", "warm", "cold", NULL};
static const char *const during_words[] = {"idle", "kernel", "traffic", NULL};
static const char *const handle_words[] = {"none", "posix_fd", NULL};
static const char *const switch_words[] = {"off", "on", NULL};

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  bench_vmm *bench = state->input;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &bench->options;
      return 0;
    case OPTION_TOTAL:
      bench->total_count = bench_parse_sizes(state, "total", argument, bench->totals, BENCH_TOTALS);
      return 0;
    case OPTION_ACCESS:
      bench->whole_range = bench_parse_choice(state, "access", argument, access_words);
      return 0;
    case OPTION_MEMORY:
      bench->memory = (bench_memory)bench_parse_choice(state, "memory", argument, memory_words);
      bench->memory_chosen = true;
      return 0;
    case OPTION_LIVE_HANDLES:
      bench->live_handles_full = strcmp(argument, "full") == 0;
      if (!bench->live_handles_full) {
        bench->live_handles = option_parse_count(state, "live-handles", argument, 0, LIVE_HANDLES_LIMIT);
      }
      return 0;
    case OPTION_ALIASES:
      bench->aliases = option_parse_count(state, "aliases", argument, 1, ALIASES_LIMIT);
      return 0;
    case OPTION_THREADS:
      bench->threads = (unsigned)option_parse_count(state, "threads", argument, 1, BENCH_THREADS);
      return 0;
    case OPTION_DURING:
      bench->during = (bench_during)bench_parse_choice(state, "during", argument, during_words);
      return 0;
    case OPTION_HANDLE_TYPE:
      bench->options.cuda.handle_type = bench_parse_choice(state, "handle-type", argument, handle_words)
                                            ? VMM_CUDA_HANDLE_POSIX_FD
                                            : VMM_CUDA_HANDLE_NONE;
      return 0;
    case OPTION_GPU_DIRECT:
      bench->options.cuda.gpu_direct = bench_parse_choice(state, "gpu-direct", argument, switch_words);
      return 0;
    case OPTION_SAVE_PROFILE:
      bench->profile_path = argument;
      bench_options_choose(&bench->options, "profile");
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

void bench_vmm_record_conditions(bench_vmm *bench, json_t *record) {
  bench_session *session = &bench->session;
  bench_record_text(session, record, "access", access_words[bench->whole_range]);
  bench_record_text(session, record, "memory", memory_words[bench->memory]);
  bench_record_integer(session, record, "live_handles", bench->live_handles);
  bench_record_integer(session, record, "aliases", bench->aliases);
  bench_record_integer(session, record, "threads", bench->threads);
  bench_record_text(session, record, "during", during_words[bench->during]);
  bench_record_text(session, record, "handle_type",
                    handle_words[bench->options.cuda.handle_type == VMM_CUDA_HANDLE_POSIX_FD]);
  bench_record_text(session, record, "gpu_direct", switch_words[bench->options.cuda.gpu_direct]);
}

static exit_status refuse(const char *what) {
  program_complain("%s", what);
  return EXIT_STATUS_USAGE;
}

/* The profile is written at the end: what would stop it is said before. */
static exit_status check_profile_path(const bench_vmm *bench) {
  const output_options *output = &bench->options.output;
  const char *const outputs[] = {output->json_path, output->csv_path, bench->profile_path};
  return output_paths_are_apart(outputs, 3, NULL) ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

/* What cannot be measured together, or on this device. */
static exit_status check_conditions(const bench_vmm *bench) {
  const bench_session *session = &bench->session;
  const bool plain = bench->live_handles == 0 && !bench->live_handles_full && bench->aliases == 1 &&
                     bench->memory == BENCH_MEMORY_SETTLED && bench->threads == 1 &&
                     bench->during == BENCH_DURING_IDLE;
  if (bench_options_chosen(&bench->options, "profile") && !plain) {
    return refuse(
        "a profile is measured with one thread, on an idle device, with settled memory and without aliases");
  }
  if (bench->options.minimum % session->granularity != 0) {
    program_complain("--min must be a multiple of the device's granularity of %" PRIu64 " bytes",
                     session->granularity);
    return EXIT_STATUS_USAGE;
  }
  for (size_t i = 0; i < bench->total_count; i++) {
    if (bench->totals[i] % session->granularity == 0) continue;
    program_complain("--total must be multiples of the device's granularity of %" PRIu64 " bytes",
                     session->granularity);
    return EXIT_STATUS_USAGE;
  }
  if (!session->simulated) return EXIT_STATUS_DONE;
  if (bench->threads > 1)
    return refuse("the simulated device serves one thread: --threads needs --driver cuda");
  if (bench->during != BENCH_DURING_IDLE)
    return refuse("the simulated device runs no kernels: --during needs --driver cuda");
  if (bench->memory != BENCH_MEMORY_SETTLED)
    return refuse("the simulated device's memory is always the same: --memory needs --driver cuda");
  if (bench->options.cuda.handle_type != VMM_CUDA_HANDLE_NONE || bench->options.cuda.gpu_direct) {
    return refuse(
        "the simulated device has one kind of memory: --handle-type and --gpu-direct need --driver cuda");
  }
  return EXIT_STATUS_DONE;
}

static uint64_t largest_total(const bench_vmm *bench) {
  uint64_t largest = bench->total_count ? 0 : UINT64_C(2) << 30;
  for (size_t i = 0; i < bench->total_count; i++) {
    if (bench->totals[i] > largest) largest = bench->totals[i];
  }
  return largest;
}

/* The handles that live meanwhile. A full device keeps room for two builds and what the driver needs for
 * itself. */
static exit_status open_filler(bench_vmm *bench) {
  vmm_driver *driver = bench->session.driver;
  const uint64_t spare = 2 * largest_total(bench) + (UINT64_C(512) << 20);
  if (bench->live_handles_full) {
    bench->live_handles = bench->session.usable_bytes > spare
                              ? (bench->session.usable_bytes - spare) / bench->session.granularity
                              : 0;
  }
  if (bench->live_handles == 0) return EXIT_STATUS_DONE;
  progress_begin(&bench->session.shown, "%" PRIu64 " other handles", bench->live_handles);
  vmm_status status =
      bench_filler_open(&bench->filler, driver, bench->live_handles, bench->session.granularity);
  for (uint64_t count = 0; count < bench->live_handles && status == VMM_SUCCESS;) {
    count = bench->live_handles - count > 1024 ? count + 1024 : bench->live_handles;
    status = bench_filler_grow(&bench->filler, driver, count);
    progress_update(&bench->session.shown, (double)count / (double)bench->live_handles, 0, UINT64_MAX);
  }
  progress_end(&bench->session.shown, status == VMM_SUCCESS ? "live" : "failed");
  if (status == VMM_SUCCESS) return EXIT_STATUS_DONE;
  return bench_vmm_failure(bench, driver, "filling the device with %" PRIu64 " handles", bench->live_handles);
}

static exit_status open_conditions(bench_vmm *bench) {
  if (!bench->memory_chosen && !bench->session.simulated &&
      !bench_options_chosen(&bench->options, "profile")) {
    bench->memory = BENCH_MEMORY_WARM;
  }
  exit_status status = check_conditions(bench);
  bench->drivers[0] = bench->session.driver;
  for (unsigned i = 1; i < bench->threads && status == EXIT_STATUS_DONE; i++) {
    status = bench_session_add_driver(&bench->session, &bench->drivers[i]);
  }
  if (status == EXIT_STATUS_DONE && bench->during != BENCH_DURING_IDLE) {
    char message[BENCH_MESSAGE];
    if (bench_spin_open(&bench->spin, bench->session.driver, bench->during == BENCH_DURING_TRAFFIC, message,
                        sizeof message) != VMM_SUCCESS) {
      program_complain("%s", message);
      status = EXIT_STATUS_CHECK_FAILED;
    }
  }
  return status == EXIT_STATUS_DONE ? open_filler(bench) : status;
}

static exit_status close_conditions(bench_vmm *bench) {
  exit_status status = bench_vmm_forget_kept(bench);
  if (bench_filler_close(&bench->filler, bench->session.driver) != VMM_SUCCESS) {
    status = exit_status_worse(
        status, bench_vmm_failure(bench, bench->session.driver, "giving the other handles back"));
  }
  if (bench->during != BENCH_DURING_IDLE && bench_spin_close(&bench->spin) != VMM_SUCCESS) {
    status = exit_status_worse(status, bench_vmm_failure(bench, bench->session.driver, "ending the kernel"));
  }
  for (unsigned i = 1; i < bench->threads; i++) vmm_driver_destroy(bench->drivers[i]);
  return status;
}

static void note_conditions(bench_vmm *bench) {
  static const char *const memory_texts[] = {
      "settled: before each build the driver has had time to clear what the one before gave back",
      "warm: each build gets what the one before has just given back",
      "cold: before each build a handle as large as the last one is created and kept, so that the build does "
      "not get "
      "that memory again"};
  static const char *const during_texts[] = {"idle",
                                             "kernel: one that only waits runs from before each build to "
                                             "after it; while cuMemAlloc and cuMemFree are "
                                             "measured it ends by itself after 50 ms",
                                             "traffic: a kernel that reads memory all the time runs from "
                                             "before each build to after it; while cuMemAlloc "
                                             "and cuMemFree are measured it ends by itself after 50 ms"};
  bench_session *session = &bench->session;
  bench_session_note(session, "access", "%s",
                     bench->whole_range ? "range: one cuMemSetAccess and one cuMemUnmap for all chunks"
                                        : "chunk: one cuMemSetAccess and one cuMemUnmap a chunk");
  bench_session_note(session, "memory_state", "%s", memory_texts[bench->memory]);
  bench_session_note(session, "live_handles", "%" PRIu64 " others, mapped, beside those that are measured",
                     bench->live_handles);
  bench_session_note(session, "aliases", "%" PRIu64, bench->aliases);
  bench_session_note(session, "threads", "%u%s", bench->threads,
                     bench->threads > 1 ? ": wall times of stages that all do side by side" : "");
  bench_session_note(session, "during", "%s", during_texts[bench->during]);
  bench_session_note(session, "handle_type", "%s",
                     handle_words[bench->options.cuda.handle_type == VMM_CUDA_HANDLE_POSIX_FD]);
  bench_session_note(session, "gpu_direct", "%s", switch_words[bench->options.cuda.gpu_direct]);
}

static exit_status run(bench_vmm *bench) {
  exit_status status = open_conditions(bench);
  if (status == EXIT_STATUS_DONE) {
    note_conditions(bench);
    const bench_options *options = &bench->options;
    if (bench_options_chosen(options, "table1")) status = bench_vmm_table1(bench);
    if (status == EXIT_STATUS_DONE && bench_options_chosen(options, "figure6"))
      status = bench_vmm_figure6(bench);
    if (status == EXIT_STATUS_DONE && bench_options_chosen(options, "profile"))
      status = bench_vmm_profile(bench);
  }
  return exit_status_worse(status, close_conditions(bench));
}

exit_status command_bench_vmm(int argc, char **argv) {
  static const struct argp_child children[] = {{&bench_options_argp, 0, NULL, 0}, {0}};
  static const struct argp parser = {option_table, parse_option, "[BENCHMARK...]", documentation, children,
                                     NULL,         NULL};
  bench_vmm bench = {.options = {.cases = cases,
                                 .device = {.profile = "h200"},
                                 .minimum = UINT64_C(2) << 20,
                                 .maximum = UINT64_C(2) << 30,
                                 .factor = 2,
                                 .warmup = WARMUP_DEFAULT,
                                 .iterations = ITERATIONS_DEFAULT},
                     .aliases = 1,
                     .threads = 1};
  bool done;
  exit_status status = bench_options_parse(argc, argv, &parser, &bench, &bench.options, &done);
  if (status == EXIT_STATUS_DONE && !done) status = check_profile_path(&bench);
  if (status == EXIT_STATUS_DONE && !done) {
    status = bench_session_open(&bench.session, &bench.options, "vmm");
    if (status == EXIT_STATUS_DONE) status = bench_session_close(&bench.session, run(&bench));
  }
  bench_options_free(&bench.options);
  return status;
}
