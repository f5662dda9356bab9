/* lakebed bench alloc: what malloc and free cost in a policy that has found its steady state. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench.h"
#include "harness/bench_session.h"
#include "harness/option_values.h"
#include "harness/policy_specs.h"
#include "harness/program.h"
#include "harness/table.h"
#include "harness/units.h"
#include "policies/policy.h"
#include "workloads/random_numbers.h"

enum option_key {
  OPTION_POLICY = 'p',
  OPTION_LIVE = 0x200,
  OPTION_SIZES,
  OPTION_SEED,
  OPTION_SECONDS,
};

enum {
  LIVE_COUNTS = 16,
  LIVE_LIMIT = 10000000,
  SECONDS_LIMIT = 3600,
  PAIRS_DEFAULT = 10000,
  WARMUP_DEFAULT = 1000,
  STREAM = 1
};

typedef enum size_rule { SIZES_EQUAL, SIZES_MIXED } size_rule;
static const char *const size_words[] = {"equal", "mixed", NULL};

typedef struct bench_alloc {
  bench_options options;
  bench_session session;
  policy_spec *specs;
  size_t spec_count;
  uint64_t live[LIVE_COUNTS];
  size_t live_count;
  size_rule sizes;
  uint64_t seed;
  uint64_t seconds; /* most that one row may take */
  table *rows;
} bench_alloc;

/* What one of the two operations took. */
typedef struct operation_samples {
  bench_samples host, driver;
} operation_samples;

/* One policy with so many live blocks of a size. */
typedef struct steady_state {
  bench_alloc *bench;
  policy *policy;
  uint64_t size, count;
  vmm_address *blocks;
  uint64_t live; /* blocks[0 .. live) */
  trace_random random;
  operation_samples alloc, free;
  char message[BENCH_MESSAGE];
} steady_state;

static const bench_case cases[] = {
    {"steady", "free one of N live blocks, allocate another, again and again", false},
    {NULL, NULL, false},
};

static const struct argp_option option_table[] = {
    {"policy", OPTION_POLICY, "P[,P...]", 0,
     "policies, each NAME[:KEY=VALUE,...]; may be repeated; default: all", BENCH_GROUP_OWN},
    {"live", OPTION_LIVE, "N[,N...]", 0, "blocks that live; default: 16,256,4096", BENCH_GROUP_OWN},
    {"sizes", OPTION_SIZES, "equal|mixed", 0,
     "equal: all blocks have the row's size; mixed: each has one from half of it up to it; default: equal",
     BENCH_GROUP_OWN},
    {"seed", OPTION_SEED, "N", 0, "of the choice which block is freed and how large the next is; default: 1",
     BENCH_GROUP_OWN},
    {"seconds", OPTION_SECONDS, "N", 0, "most time for a row; it then has fewer iterations; default: 2",
     BENCH_GROUP_OWN},
    {0},
};

static const char documentation[] =
    "Measures malloc and free of allocator policies: with N blocks live it frees one at random and allocates "
    "another, "
    "--iterations times after --warmup. --min, --max, --factor give the sizes.\v"
    "Host times are those of the policy itself: time in the driver's calls is left out on a real device, and "
    "apart from "
    "them; the simulated driver's own work counts as the host's.\n"
    "Exit status: 0 done; 1 a policy or a driver call failed, or memory leaked; 2 bad usage; 3 a policy "
    "found no memory; "
    "4 the device is unusable.";

static void add_spec(bench_alloc *bench, struct argp_state *state, const char *text) {
  char message[BENCH_MESSAGE];
  policy_spec *specs = realloc(bench->specs, (bench->spec_count + 1) * sizeof *specs);
  if (!specs) {
    argp_failure(state, EXIT_STATUS_CHECK_FAILED, 0, "no memory for the policies");
    return;
  }
  bench->specs = specs;
  if (policy_spec_parse(text, &specs[bench->spec_count], message, sizeof message) != VMM_SUCCESS) {
    argp_failure(state, EXIT_STATUS_USAGE, 0, "%s", message);
    return;
  }
  bench->spec_count++;
}

/* An oracle must see a trace first: there is none here. */
static void add_all_specs(bench_alloc *bench, struct argp_state *state) {
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    if (!((*class)->capabilities & POLICY_NEEDS_LIFETIMES)) add_spec(bench, state, (*class)->name);
  }
}

static void add_spec_list(bench_alloc *bench, struct argp_state *state, const char *list) {
  while (true) {
    size_t length = policy_specs_first_length(list);
    char *text = strndup(list, length);
    if (!text) {
      argp_failure(state, EXIT_STATUS_CHECK_FAILED, 0, "no memory for the policies");
      return;
    }
    if (strcmp(text, "all") == 0) {
      add_all_specs(bench, state);
    } else {
      add_spec(bench, state, text);
    }
    free(text);
    if (!list[length]) return;
    list += length + 1;
  }
}

static error_t finish_options(bench_alloc *bench, struct argp_state *state) {
  if (bench->spec_count == 0) add_all_specs(bench, state);
  for (size_t i = 0; i < bench->spec_count; i++) {
    if (!(bench->specs[i].class->capabilities & POLICY_NEEDS_LIFETIMES)) continue;
    argp_error(state, "policy '%s' must see a trace before it begins; there is none here",
               bench->specs[i].text);
  }
  return 0;
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  bench_alloc *bench = state->input;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &bench->options;
      return 0;
    case OPTION_POLICY:
      add_spec_list(bench, state, argument);
      return 0;
    case OPTION_LIVE:
      bench->live_count =
          bench_parse_counts(state, "live", argument, 1, LIVE_LIMIT, bench->live, LIVE_COUNTS);
      return 0;
    case OPTION_SIZES:
      bench->sizes = (size_rule)bench_parse_choice(state, "sizes", argument, size_words);
      return 0;
    case OPTION_SEED:
      bench->seed = option_parse_count(state, "seed", argument, 0, UINT64_MAX);
      return 0;
    case OPTION_SECONDS:
      bench->seconds = option_parse_count(state, "seconds", argument, 1, SECONDS_LIMIT);
      return 0;
    case ARGP_KEY_END:
      return bench->options.cases ? finish_options(bench, state) : 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static uint64_t next_size(steady_state *self) {
  if (self->bench->sizes == SIZES_EQUAL || self->size < 2) return self->size;
  return self->size - trace_random_below(&self->random, self->size / 2);
}

/* The two clocks around one operation. */
typedef struct stopwatch {
  uint64_t wall, busy;
} stopwatch;

static stopwatch start(const steady_state *self) {
  return (stopwatch){progress_clock_ns(), self->bench->session.driver->busy_ns};
}

static void stop(const steady_state *self, stopwatch started, operation_samples *samples) {
  const uint64_t wall = progress_clock_ns() - started.wall;
  const uint64_t busy = self->bench->session.driver->busy_ns - started.busy;
  /* A simulated call takes none of the wall's time for its modelled latency. */
  const uint64_t inside = self->bench->session.simulated ? 0 : busy;
  bench_samples_add(&samples->host, wall > inside ? wall - inside : 0);
  bench_samples_add(&samples->driver, busy);
}

static vmm_status allocate(steady_state *self, bool counts) {
  const uint64_t size = next_size(self);
  const stopwatch started = start(self);
  vmm_status status = policy_alloc(self->policy, size, STREAM, &self->blocks[self->live]);
  if (counts) stop(self, started, &self->alloc);
  if (status == VMM_SUCCESS) self->live++;
  return status;
}

static vmm_status release(steady_state *self, bool counts) {
  const uint64_t chosen = trace_random_below(&self->random, self->live);
  const vmm_address address = self->blocks[chosen];
  const stopwatch started = start(self);
  vmm_status status = policy_free(self->policy, address);
  if (counts) stop(self, started, &self->free);
  if (status == VMM_SUCCESS) self->blocks[chosen] = self->blocks[--self->live];
  return status;
}

static vmm_status run_pairs(steady_state *self) {
  const bench_options *options = &self->bench->options;
  const uint64_t limit_ns = self->bench->seconds * UINT64_C(1000000000);
  vmm_status status = VMM_SUCCESS;
  while (self->live < self->count && status == VMM_SUCCESS) status = allocate(self, false);
  /* Warming up may take half of the time. */
  uint64_t begin = progress_clock_ns();
  for (uint64_t i = 0; i < options->warmup && status == VMM_SUCCESS; i++) {
    status = release(self, false);
    if (status == VMM_SUCCESS) status = allocate(self, false);
    if (progress_clock_ns() - begin > limit_ns / 2) break;
  }
  begin = progress_clock_ns();
  for (uint64_t i = 0; i < options->iterations && status == VMM_SUCCESS; i++) {
    status = release(self, true);
    if (status == VMM_SUCCESS) status = allocate(self, true);
    if (progress_clock_ns() - begin > limit_ns / 2) break;
  }
  return status;
}

static void record_operation(bench_session *session, json_t *record, const char *operation, const char *where,
                             const bench_summary *times) {
  const struct {
    const char *name;
    double value;
  } values[] = {{"p50", times->p50},
                {"p90", (double)times->p90},
                {"p99", (double)times->p99},
                {"max", (double)times->maximum},
                {"mean", times->mean}};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    char key[64];
    snprintf(key, sizeof key, "%s_%s_%s_ns", operation, where, values[i].name);
    bench_record_real(session, record, key, values[i].value);
  }
}

static void add_cells(table *rows, const bench_summary *host, const bench_summary *driver) {
  table_number(rows, host->p50);
  table_count(rows, host->p99);
  table_number(rows, driver->p50);
  table_count(rows, driver->p99);
  table_number(rows, driver->mean);
}

static void report(steady_state *self, const policy_spec *spec) {
  bench_session *session = &self->bench->session;
  const bench_summary alloc_host = bench_samples_summarize(&self->alloc.host);
  const bench_summary alloc_driver = bench_samples_summarize(&self->alloc.driver);
  const bench_summary free_host = bench_samples_summarize(&self->free.host);
  const bench_summary free_driver = bench_samples_summarize(&self->free.driver);
  json_t *record = bench_session_record(session, "steady");
  bench_record_text(session, record, "policy", spec->text);
  bench_record_integer(session, record, "size_bytes", self->size);
  bench_record_integer(session, record, "live", self->count);
  bench_record_text(session, record, "sizes", size_words[self->bench->sizes]);
  bench_record_integer(session, record, "pairs", alloc_host.count);
  record_operation(session, record, "malloc", "host", &alloc_host);
  record_operation(session, record, "malloc", "driver", &alloc_driver);
  record_operation(session, record, "free", "host", &free_host);
  record_operation(session, record, "free", "driver", &free_driver);
  bench_record_integer(session, record, "reserved_bytes",
                       self->policy->heap.statistics.reserved_bytes.current);
  session->lost |=
      self->alloc.host.lost || self->alloc.driver.lost || self->free.host.lost || self->free.driver.lost;

  char size[BENCH_SIZE_TEXT], count[UNITS_TEXT], pairs[UNITS_TEXT];
  bench_size_text(self->size, size);
  units_count(self->count, count);
  units_count(alloc_host.count, pairs);
  table *rows = self->bench->rows;
  table_row(rows);
  table_cell(rows, "%s", spec->text);
  table_cell(rows, "%s", size);
  table_cell(rows, "%s", count);
  add_cells(rows, &alloc_host, &alloc_driver);
  add_cells(rows, &free_host, &free_driver);
  table_cell(rows, "%s", pairs);
}

/* The driver's failure, or the policy's own. */
static exit_status complain(steady_state *self, const policy_spec *spec, vmm_status status) {
  bench_session *session = &self->bench->session;
  char size[BENCH_SIZE_TEXT], driver_error[BENCH_MESSAGE];
  bench_size_text(self->size, size);
  vmm_error_format(&session->driver->error, driver_error, sizeof driver_error);
  vmm_error_clear(session->driver);
  progress_clear(&session->shown);
  if (status == VMM_NOT_SUPPORTED) {
    bench_session_print(session, "# %s: not on this device: %s\n", spec->text,
                        driver_error[0] ? driver_error : vmm_status_text(status));
    return EXIT_STATUS_DONE;
  }
  program_complain("%s, %" PRIu64 " blocks of %s: %s%s%s", spec->text, self->count, size,
                   self->message[0] ? self->message : vmm_status_text(status), driver_error[0] ? ": " : "",
                   driver_error);
  return status == VMM_OUT_OF_MEMORY ? EXIT_STATUS_OUT_OF_MEMORY : EXIT_STATUS_CHECK_FAILED;
}

static exit_status measure(bench_alloc *bench, const policy_spec *spec, uint64_t size, uint64_t live) {
  steady_state self = {
      .bench = bench, .size = size, .count = live, .random = trace_random_begin(bench->seed)};
  vmm_error_clear(bench->session.driver);
  self.blocks = calloc(live, sizeof *self.blocks);
  vmm_status status = self.blocks ? policy_create(spec, bench->session.driver, UINT64_MAX, &self.policy,
                                                  self.message, sizeof self.message)
                                  : VMM_OUT_OF_MEMORY;
  const bool created = status == VMM_SUCCESS;
  if (created) {
    self.message[0] = '\0';
    status = run_pairs(&self);
  }
  exit_status ended = EXIT_STATUS_DONE;
  if (status == VMM_SUCCESS) {
    report(&self, spec);
  } else {
    ended = complain(&self, spec, status);
  }
  if (created) policy_destroy(self.policy);
  free(self.blocks);
  bench_samples_free(&self.alloc.host);
  bench_samples_free(&self.alloc.driver);
  bench_samples_free(&self.free.host);
  bench_samples_free(&self.free.driver);
  return ended;
}

/* Half of the device is left to the policies' rounding and fragmentation. */
static bool fits(const bench_alloc *bench, uint64_t size, uint64_t live) {
  return live <= bench->session.usable_bytes / 2 / size;
}

static exit_status measure_policy(bench_alloc *bench, const policy_spec *spec) {
  uint64_t sizes[BENCH_SIZES];
  const size_t count = bench_sizes(&bench->options, sizes);
  exit_status status = EXIT_STATUS_DONE;
  progress_begin(&bench->session.shown, "%s", spec->text);
  for (size_t i = 0; i < count; i++) {
    for (size_t j = 0; j < bench->live_count; j++) {
      progress_update(&bench->session.shown,
                      (double)(i * bench->live_count + j) / (double)(count * bench->live_count), 0,
                      UINT64_MAX);
      if (!fits(bench, sizes[i], bench->live[j])) continue;
      status = exit_status_worse(status, measure(bench, spec, sizes[i], bench->live[j]));
    }
  }
  progress_end(&bench->session.shown, status == EXIT_STATUS_DONE ? "measured" : "failed");
  return status;
}

/* What two readings of the clock cost: it is in every host time. */
static uint64_t clock_cost(void) {
  bench_samples samples = {0};
  for (int i = 0; i < 1000; i++) {
    const uint64_t begin = progress_clock_ns();
    bench_samples_add(&samples, progress_clock_ns() - begin);
  }
  const uint64_t cost = (uint64_t)bench_samples_summarize(&samples).p50;
  bench_samples_free(&samples);
  return cost;
}

static exit_status run(bench_alloc *bench) {
  static const char *const titles[] = {"<policy",    "size", "live", "malloc p50", "p99",
                                       "driver p50", "p99",  "mean", "free p50",   "p99",
                                       "driver p50", "p99",  "mean", "pairs"};
  bench_session *session = &bench->session;
  bench_session_note(session, "seed", "%" PRIu64, bench->seed);
  bench_session_note(session, "sizes", "%s", size_words[bench->sizes]);
  bench_session_note(session, "host_times",
                     "nanoseconds; a reading of the clock, %" PRIu64 " ns here, is part of each%s",
                     clock_cost(), session->simulated ? ", and so is the simulated driver's own work" : "");
  bench_session_note(session, "driver_times", "nanoseconds, %s",
                     session->simulated ? "modelled" : "measured; not part of the host's");
  bench_session_note(session, "left_out", "rows whose blocks would take more than half of the device");
  bench->rows = table_create(titles, sizeof titles / sizeof *titles);
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 0; i < bench->spec_count; i++) {
    status = exit_status_worse(status, measure_policy(bench, &bench->specs[i]));
  }
  bench_session_print(session, "\n");
  if (session->outputs.report && !table_print(bench->rows, session->outputs.report)) session->lost = true;
  table_destroy(bench->rows);
  return status;
}

exit_status command_bench_alloc(int argc, char **argv) {
  static const struct argp_child children[] = {{&bench_options_argp, 0, NULL, 0}, {0}};
  static const struct argp parser = {option_table, parse_option, "[BENCHMARK...]", documentation, children,
                                     NULL,         NULL};
  bench_alloc bench = {.options = {.cases = cases,
                                   .device = {.profile = "h200"},
                                   .minimum = UINT64_C(4) << 10,
                                   .maximum = UINT64_C(64) << 20,
                                   .factor = 16,
                                   .warmup = WARMUP_DEFAULT,
                                   .iterations = PAIRS_DEFAULT},
                       .live = {16, 256, 4096},
                       .live_count = 3,
                       .seed = 1,
                       .seconds = 2};
  bool done;
  exit_status status = bench_options_parse(argc, argv, &parser, &bench, &bench.options, &done);
  if (status == EXIT_STATUS_DONE && !done) {
    status = bench_session_open(&bench.session, &bench.options, "alloc");
    if (status == EXIT_STATUS_DONE) status = bench_session_close(&bench.session, run(&bench));
  }
  free(bench.specs);
  bench_options_free(&bench.options);
  return status;
}
