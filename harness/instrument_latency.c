#include "harness/instrument_latency.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/program.h"
#include "harness/progress.h"
#include "harness/table.h"
#include "harness/units.h"

enum { NODES = 256, CLOCK_TRIALS = 1000, CLOCK_BATCHES = 7 };

typedef struct measure {
  instrument_histogram own, cupti;
} measure;

/* A path of nested operations: a name below a parent. Node 0 is the run. */
typedef struct node {
  const char *name;
  uint16_t parent, child, sibling; /* 0: none */
  measure *calls[VMM_CALL_COUNT];
} node;

typedef struct latency {
  instrument base;
  instrument_cupti *cupti; /* NULL: unavailable */
  char unavailable[sizeof((instrument_report *)0)->cupti_unavailable];
  bool warned;
  double own_overhead_ns;
  bool measuring, modelled;
  node nodes[NODES];
  uint16_t count, current;
  unsigned deeper; /* operations that have no node: counted with the one around them */
  uint64_t lost;
} latency;

static void forget(latency *self) {
  for (uint16_t i = 0; i < self->count; i++) {
    for (unsigned call = 0; call < VMM_CALL_COUNT; call++) free(self->nodes[i].calls[call]);
  }
  memset(self->nodes, 0, sizeof self->nodes);
  self->count = 1;
  self->current = 0;
  self->deeper = 0;
  self->lost = 0;
}

/* The node of an operation below the current one, made if need be; 0 when there is no room. */
static uint16_t enter(latency *self, const char *name) {
  uint16_t *link = &self->nodes[self->current].child;
  while (*link) {
    const node *sibling = &self->nodes[*link];
    if (sibling->name == name || strcmp(sibling->name, name) == 0) return *link;
    link = &self->nodes[*link].sibling;
  }
  if (self->count == NODES) return 0;
  self->nodes[self->count] = (node){.name = name, .parent = self->current};
  *link = self->count;
  return self->count++;
}

static measure *measure_of(latency *self, vmm_call call) {
  measure **place = &self->nodes[self->current].calls[call];
  if (!*place) *place = calloc(1, sizeof **place);
  if (!*place) self->lost++;
  return *place;
}

static void heard_by_cupti(void *context, vmm_call call, uint64_t duration_ns) {
  latency *self = context;
  measure *place = self->measuring ? measure_of(self, call) : NULL;
  if (place) instrument_histogram_add(&place->cupti, duration_ns);
}

static void run_begin(instrument *base, const instrument_run *run) {
  latency *self = (latency *)base;
  forget(self);
  self->modelled = run->modelled;
  if (self->cupti)
    instrument_cupti_start(self->cupti, heard_by_cupti, self, run->modelled ? NULL : run->device);
  self->measuring = true;
}

static void run_end(instrument *base) {
  latency *self = (latency *)base;
  instrument_cupti_facts unread;
  if (self->measuring && self->cupti) instrument_cupti_stop(self->cupti, &unread);
  self->measuring = false;
}

static void begin(instrument *base, const instrument_range *range) {
  latency *self = (latency *)base;
  if (!self->measuring || range->layer == INSTRUMENT_DRIVER) return;
  uint16_t inner = self->deeper ? 0 : enter(self, range->name);
  if (inner) {
    self->current = inner;
  } else {
    self->deeper++;
  }
}

static void end(instrument *base, const instrument_range *range, const instrument_outcome *outcome) {
  latency *self = (latency *)base;
  if (!self->measuring) return;
  if (range->layer == INSTRUMENT_DRIVER) {
    measure *place = measure_of(self, range->call);
    if (place) instrument_histogram_add(&place->own, outcome->driver_ns);
  } else if (self->deeper) {
    self->deeper--;
  } else {
    self->current = self->nodes[self->current].parent;
  }
}

static bool destroy(instrument *base, char *message, size_t message_size) {
  (void)message, (void)message_size;
  latency *self = (latency *)base;
  run_end(base);
  instrument_cupti_close(self->cupti);
  forget(self);
  free(self);
  return true;
}

static const instrument_class latency_class = {.name = "latency",
                                               .run_begin = run_begin,
                                               .run_end = run_end,
                                               .begin = begin,
                                               .end = end,
                                               .destroy = destroy};

/* What two readings of the clock cost, which is what timing a call adds to it. */
static double clock_overhead(void) {
  double least = -1;
  for (int batch = 0; batch < CLOCK_BATCHES; batch++) {
    uint64_t begin_ns = progress_clock_ns();
    for (int i = 0; i < CLOCK_TRIALS; i++) {
      progress_clock_ns();
      progress_clock_ns();
    }
    double each = (double)(progress_clock_ns() - begin_ns) / CLOCK_TRIALS;
    if (least < 0 || each < least) least = each;
  }
  return least;
}

static void warn(latency *self, const char *why) {
  if (!self->warned) program_complain("--cupti is unavailable: %s; our own clock measures alone", why);
  self->warned = true;
}

instrument *instrument_latency_create(instrument_cupti *cupti, const char *why) {
  latency *self = calloc(1, sizeof *self);
  if (!self) {
    instrument_cupti_close(cupti);
    return NULL;
  }
  self->base = (instrument){&latency_class, INSTRUMENT_ALL_LAYERS};
  self->cupti = cupti;
  self->count = 1;
  self->own_overhead_ns = clock_overhead();
  if (!cupti) {
    snprintf(self->unavailable, sizeof self->unavailable, "%s", why);
    warn(self, why);
  }
  return &self->base;
}

/* ---- the report ---- */

static void write_path(const latency *self, uint16_t number, char *path, size_t size) {
  const char *names[NODES];
  size_t depth = 0, used = 0;
  for (; number; number = self->nodes[number].parent) names[depth++] = self->nodes[number].name;
  if (depth == 0) snprintf(path, size, "none");
  while (depth > 0 && used < size) {
    depth--;
    used += (size_t)snprintf(path + used, size - used, "%s%s", names[depth], depth ? "/" : "");
  }
}

/* Outer before inner: a node, then what is nested in it. */
static void add_rows(const latency *self, uint16_t number, instrument_report *report) {
  const node *operation = &self->nodes[number];
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    const measure *place = operation->calls[call];
    if (!place) continue;
    instrument_latency *row = &report->rows[report->count++];
    write_path(self, number, row->path, sizeof row->path);
    row->call = (vmm_call)call;
    row->own = place->own;
    row->cupti = place->cupti;
  }
  for (uint16_t child = operation->child; child; child = self->nodes[child].sibling)
    add_rows(self, child, report);
}

static size_t count_rows(const latency *self) {
  size_t count = 0;
  for (uint16_t i = 0; i < self->count; i++) {
    for (unsigned call = 0; call < VMM_CALL_COUNT; call++) count += self->nodes[i].calls[call] != NULL;
  }
  return count;
}

/* A device of ours that makes no driver calls leaves CUPTI nothing to hear. */
static void explain_silence(latency *self, instrument_report *report) {
  if (!self->cupti) {
    memcpy(report->cupti_unavailable, self->unavailable, sizeof report->cupti_unavailable);
  } else if (report->cupti.callbacks == 0 && report->count > 0) {
    snprintf(report->cupti_unavailable, sizeof report->cupti_unavailable, "it heard no driver call%s",
             self->modelled ? ": the simulated device makes none" : "");
    warn(self, report->cupti_unavailable);
  }
}

instrument_report *instrument_latency_report(instrument *base) {
  latency *self = (latency *)base;
  if (!self->measuring) return NULL;
  self->measuring = false;
  instrument_report *report = calloc(1, sizeof *report);
  size_t rows = count_rows(self);
  if (report) report->rows = calloc(rows ? rows : 1, sizeof *report->rows);
  instrument_cupti_facts facts = {0};
  if (self->cupti) instrument_cupti_stop(self->cupti, &facts);
  if (!report || !report->rows) {
    instrument_report_free(report);
    return NULL;
  }
  report->cupti = facts;
  report->lost = self->lost;
  report->own_overhead_ns = self->own_overhead_ns;
  report->modelled = self->modelled;
  add_rows(self, 0, report);
  explain_silence(self, report);
  return report;
}

void instrument_report_free(instrument_report *report) {
  if (report) free(report->rows);
  free(report);
}

/* ---- output ---- */

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }
static json_t *microseconds(uint64_t nanoseconds) { return json_real((double)nanoseconds / 1000); }

static json_t *histogram_object(const instrument_histogram *histogram) {
  json_t *object = json_object(), *bins = json_array();
  json_object_set_new(object, "count", number(histogram->count));
  json_object_set_new(object, "us", microseconds(histogram->total_ns));
  json_object_set_new(object, "min_us", microseconds(histogram->minimum_ns));
  json_object_set_new(object, "p50_us", microseconds(instrument_histogram_percentile(histogram, 0.5)));
  json_object_set_new(object, "p90_us", microseconds(instrument_histogram_percentile(histogram, 0.9)));
  json_object_set_new(object, "p99_us", microseconds(instrument_histogram_percentile(histogram, 0.99)));
  json_object_set_new(object, "max_us", microseconds(histogram->maximum_ns));
  for (unsigned bin = 0; bin < INSTRUMENT_BINS; bin++) {
    if (histogram->bins[bin] == 0) continue;
    json_t *pair = json_array();
    json_array_append_new(pair, number(instrument_histogram_lower_ns(bin)));
    json_array_append_new(pair, number(histogram->bins[bin]));
    json_array_append_new(bins, pair);
  }
  json_object_set_new(object, "histogram_ns", bins);
  return object;
}

/* What our clock saw and CUPTI's did not, a call. Where they saw the same calls. */
static bool clocks_differ_by(const instrument_latency *row, double *nanoseconds) {
  if (row->own.count == 0 || row->own.count != row->cupti.count) return false;
  *nanoseconds = ((double)row->own.total_ns - (double)row->cupti.total_ns) / (double)row->own.count;
  return true;
}

static json_t *row_object(const instrument_report *report, const instrument_latency *row) {
  json_t *object = json_object();
  double difference_ns;
  json_object_set_new(object, "operation", json_string(row->path));
  json_object_set_new(object, "call", json_string(vmm_call_name(row->call)));
  json_object_set_new(object, "own", histogram_object(&row->own));
  if (report->cupti_unavailable[0]) return object;
  json_object_set_new(object, "cupti", histogram_object(&row->cupti));
  json_object_set_new(object, "own_minus_cupti_ns",
                      clocks_differ_by(row, &difference_ns) ? json_real(difference_ns) : json_null());
  return object;
}

static json_t *activity_object(const instrument_cupti_activity *activity) {
  if (activity->unavailable[0]) return json_sprintf("unavailable: %s", activity->unavailable);
  json_t *object = json_object();
  json_object_set_new(object, "records", number(activity->records));
  json_object_set_new(object, "dropped_records", number(activity->dropped));
  json_object_set_new(object, "allocations", number(activity->allocations));
  json_object_set_new(object, "releases", number(activity->releases));
  json_object_set_new(object, "allocated_bytes", number(activity->allocated_bytes));
  json_object_set_new(object, "released_bytes", number(activity->released_bytes));
  json_object_set_new(object, "pool_peak_bytes", number(activity->pool_peak_bytes));
  json_object_set_new(object, "pool_used_peak_bytes", number(activity->pool_used_peak_bytes));
  return object;
}

static json_t *cupti_object(const instrument_report *report, bool host_timing) {
  if (report->cupti_unavailable[0]) return json_sprintf("unavailable: %s", report->cupti_unavailable);
  const instrument_cupti_facts *facts = &report->cupti;
  json_t *object = json_object();
  json_object_set_new(object, "library", json_string(facts->library));
  json_object_set_new(object, "api_version", number(facts->version));
  json_object_set_new(object, "calls", number(facts->callbacks));
  json_object_set_new(object, "calls_on_other_threads", number(facts->elsewhere));
  if (host_timing) {
    bool known = facts->overhead_ns >= 0;
    json_object_set_new(object, "overhead_ns_per_call", known ? json_real(facts->overhead_ns) : json_null());
    json_object_set_new(object, "overhead_measured_with",
                        known ? json_string(facts->overhead_call) : json_null());
  }
  json_object_set_new(object, "memory_records", activity_object(&facts->activity));
  return object;
}

bool instrument_report_json(const instrument_report *report, json_t *object, bool host_timing) {
  json_t *rows = json_array(), *clock = json_object();
  for (size_t i = 0; i < report->count; i++)
    json_array_append_new(rows, row_object(report, &report->rows[i]));
  json_object_set_new(clock, "times", json_string(report->modelled ? "modelled" : "measured"));
  if (host_timing) json_object_set_new(clock, "overhead_ns_per_call", json_real(report->own_overhead_ns));
  json_object_set_new(clock, "calls_not_counted", number(report->lost));
  return json_object_set_new(object, "cupti", cupti_object(report, host_timing)) == 0 &&
         json_object_set_new(object, "own_clock", clock) == 0 &&
         json_object_set_new(object, "call_latency", rows) == 0;
}

static void print_overheads(const instrument_report *report, FILE *stream) {
  char text[UNITS_TEXT];
  units_significant(report->own_overhead_ns, text);
  if (report->modelled) {
    fprintf(stream, "Our clock's times are the simulated device's model.\n");
  } else {
    fprintf(stream, "Reading our clock costs %s ns a call.\n", text);
  }
  const instrument_cupti_facts *facts = &report->cupti;
  if (report->cupti_unavailable[0]) {
    fprintf(stream, "CUPTI is unavailable: %s.\n", report->cupti_unavailable);
    return;
  }
  if (facts->overhead_ns >= 0) {
    units_significant(facts->overhead_ns, text);
    fprintf(stream,
            "Being heard by CUPTI costs a call %s ns more (measured with %s), which our clock sees.\n", text,
            facts->overhead_call);
  } else {
    fprintf(stream, "What being heard by CUPTI costs a call could not be measured.\n");
  }
  if (facts->activity.unavailable[0]) {
    fprintf(stream, "CUPTI's memory records are unavailable: %s.\n", facts->activity.unavailable);
  } else {
    fprintf(stream,
            "CUPTI's memory records: %" PRIu64 " allocations, %" PRIu64 " releases, %" PRIu64 " dropped.\n",
            facts->activity.allocations, facts->activity.releases, facts->activity.dropped);
  }
}

/* The three times of a histogram, in microseconds. */
static void histogram_cells(table *rows, const instrument_histogram *histogram) {
  const uint64_t times[] = {histogram->total_ns, instrument_histogram_percentile(histogram, 0.5),
                            instrument_histogram_percentile(histogram, 0.99), histogram->maximum_ns};
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
    char text[UNITS_TEXT];
    units_significant((double)times[i] / 1000, text);
    table_cell(rows, "%s", histogram->count ? text : "");
  }
}

void instrument_report_print(const instrument_report *report, FILE *stream) {
  static const char *const titles[] = {"<operation", "<driver call", "calls", "us",  "p50", "p99",
                                       "max",        "CUPTI us",     "p50",   "p99", "max", "own - CUPTI ns"};
  bool both = !report->cupti_unavailable[0];
  table *rows = table_create(titles, both ? 12 : 7);
  for (size_t i = 0; i < report->count; i++) {
    const instrument_latency *row = &report->rows[i];
    double difference_ns;
    char text[UNITS_TEXT] = "";
    table_row(rows);
    table_cell(rows, "%s", row->path);
    table_cell(rows, "%s", vmm_call_name(row->call));
    table_count(rows, row->own.count);
    histogram_cells(rows, &row->own);
    if (!both) continue;
    histogram_cells(rows, &row->cupti);
    if (clocks_differ_by(row, &difference_ns)) units_significant(difference_ns, text);
    table_cell(rows, "%s", text);
  }
  if (!table_print(rows, stream)) fprintf(stream, "(rows are missing: no memory)\n");
  table_destroy(rows);
  print_overheads(report, stream);
}
