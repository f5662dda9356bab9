#include "harness/stress_output.h"

#include <inttypes.h>
#include <string.h>

#include "harness/program.h"
#include "harness/replay_output.h"
#include "harness/table.h"
#include "harness/units.h"

void stress_total_add(stress_total *total, const stress_result *result) {
  stress_result *sum = &total->sum;
  const uint64_t *from = (const uint64_t *)&result->counts;
  uint64_t *to = (uint64_t *)&sum->counts;
  for (size_t i = 0; i < sizeof sum->counts / sizeof *to; i++) to[i] += from[i];
  sum->memory.filled_bytes += result->memory.filled_bytes;
  sum->memory.verified_bytes += result->memory.verified_bytes;
  sum->memory.verified_blocks += result->memory.verified_blocks;
  sum->memory.aliased_pieces += result->memory.aliased_pieces;
  sum->memory.slow_kernels += result->memory.slow_kernels;
  sum->driver_calls += result->driver_calls;
  sum->driver_ns += result->driver_ns;
  sum->host_ns += result->host_ns;
  if (result->statistics.reserved_bytes.peak > sum->statistics.reserved_bytes.peak)
    sum->statistics.reserved_bytes.peak = result->statistics.reserved_bytes.peak;
  if (result->statistics.requested_bytes.peak > sum->statistics.requested_bytes.peak)
    sum->statistics.requested_bytes.peak = result->statistics.requested_bytes.peak;
  sum->statistics.host_waits += result->statistics.host_waits;
  total->programs++;
  if (!result->failed) return;
  sum->failed = true;
  sum->thread = result->thread;
  sum->step = result->step;
  memcpy(sum->message, result->message, sizeof sum->message);
}

/* The numbers of a policy in their order: XX(name, value of total) */
#define STRESS_NUMBERS(XX)                                             \
  XX(programs, total->programs)                                        \
  XX(steps, total->sum.counts.steps)                                   \
  XX(served, total->sum.counts.served)                                 \
  XX(out_of_memory, total->sum.counts.out_of_memory)                   \
  XX(frees, total->sum.counts.frees)                                   \
  XX(handed_over, total->sum.counts.handed_over)                       \
  XX(streams_recorded, total->sum.counts.records)                      \
  XX(trims, total->sum.counts.trims)                                   \
  XX(limits_set, total->sum.counts.limits)                             \
  XX(checks, total->sum.counts.checks)                                 \
  XX(filled_bytes, total->sum.memory.filled_bytes)                     \
  XX(verified_bytes, total->sum.memory.verified_bytes)                 \
  XX(verified_blocks, total->sum.memory.verified_blocks)               \
  XX(aliased_pieces, total->sum.memory.aliased_pieces)                 \
  XX(slow_kernels, total->sum.memory.slow_kernels)                     \
  XX(requested_peak_bytes, total->sum.statistics.requested_bytes.peak) \
  XX(reserved_peak_bytes, total->sum.statistics.reserved_bytes.peak)   \
  XX(host_waits, total->sum.statistics.host_waits)                     \
  XX(driver_calls, total->sum.driver_calls)

static const char *model_source(const device_model *model) {
  return model->source ? model->source : model->version;
}

void stress_output_header(const stress_group *group, FILE *stream) {
  fprintf(stream, "# program: lakebed " PROGRAM_VERSION ", %s\n", group->name);
  replay_csv_provenance(stream, "device", group->model->name);
  replay_csv_provenance(stream, "driver", group->model->driver);
  if (group->model->real) replay_csv_provenance(stream, "source", group->model->version);
  replay_csv_provenance(stream, "date", group->date);
  replay_csv_provenance(stream, "command", group->command);
  fprintf(stream, "# seed: %" PRIu64 "\n", group->seed);
}

void stress_output_table(const stress_total *totals, size_t count, FILE *stream) {
  const char *titles[] = {"<policy",      "steps",        "served",  "out of memory", "trims",
                          "checks",       "verified GiB", "aliases", "slow",          "reserved peak GiB",
                          "driver calls", "seconds",      "<outcome"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < count; i++) {
    const stress_result *sum = &totals[i].sum;
    table_row(rows);
    table_cell(rows, "%s", totals[i].spec->text);
    table_count(rows, sum->counts.steps);
    table_count(rows, sum->counts.served);
    table_count(rows, sum->counts.out_of_memory);
    table_count(rows, sum->counts.trims);
    table_count(rows, sum->counts.checks);
    table_number(rows, (double)sum->memory.verified_bytes / (double)(UINT64_C(1) << 30));
    table_count(rows, sum->memory.aliased_pieces);
    table_count(rows, sum->memory.slow_kernels);
    table_number(rows, (double)sum->statistics.reserved_bytes.peak / (double)(UINT64_C(1) << 30));
    table_count(rows, sum->driver_calls);
    table_number(rows, (double)sum->host_ns * 1e-9);
    table_cell(rows, "%s", sum->failed ? "FAILED" : "sound");
  }
  if (!table_print(rows, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(rows);
}

void stress_output_csv(const stress_group *group, const stress_total *totals, size_t count, FILE *stream) {
  stress_output_header(group, stream);
  fputs("policy,spec,threads,streams,verify", stream);
#define XX(name, value) fputs("," #name, stream);
  STRESS_NUMBERS(XX)
#undef XX
  fputs(",seconds,outcome,message\n", stream);
  for (size_t i = 0; i < count; i++) {
    const stress_total *total = &totals[i];
    fprintf(stream, "%s,", total->spec->class->name);
    replay_csv_field(stream, total->spec->text);
    fprintf(stream, ",%" PRIu32 ",%" PRIu32 ",%s", group->threads, group->streams,
            group->verify ? "yes" : "no");
#define XX(name, value) fprintf(stream, ",%" PRIu64, (value));
    STRESS_NUMBERS(XX)
#undef XX
    fprintf(stream, ",%.3f,%s,", (double)total->sum.host_ns * 1e-9, total->sum.failed ? "failed" : "sound");
    replay_csv_field(stream, total->sum.message);
    fputc('\n', stream);
  }
}

static bool set_provenance(const stress_group *group, const policy_spec *spec, json_t *object) {
  return json_object_set_new(object, "policy", json_string(spec->class->name)) == 0 &&
         json_object_set_new(object, "spec", json_string(spec->text)) == 0 &&
         json_object_set_new(object, "program", json_string("lakebed " PROGRAM_VERSION)) == 0 &&
         json_object_set_new(object, "command", json_string(group->command)) == 0 &&
         json_object_set_new(object, "date", json_string(group->date)) == 0 &&
         json_object_set_new(object, "device", json_string(group->model->name)) == 0 &&
         json_object_set_new(object, "driver", json_string(group->model->driver)) == 0 &&
         json_object_set_new(object, "source", json_string(model_source(group->model))) == 0;
}

static bool set_number(json_t *object, const char *key, uint64_t value) {
  return json_object_set_new(object, key, json_integer((json_int_t)value)) == 0;
}

/* Appends an object. */
static json_t *append(json_t *array) {
  json_t *object = json_object();
  return object && json_array_append_new(array, object) == 0 ? object : NULL;
}

bool stress_output_json(const stress_group *group, const stress_total *totals, size_t count, json_t *array) {
  for (size_t i = 0; i < count; i++) {
    const stress_total *total = &totals[i];
    json_t *object = append(array);
    if (!object || !set_provenance(group, total->spec, object)) return false;
    bool set = set_number(object, "seed", group->seed) && set_number(object, "threads", group->threads) &&
               set_number(object, "streams", group->streams) &&
               json_object_set_new(object, "verify", json_boolean(group->verify)) == 0 &&
               json_object_set_new(
                   object, "limit_bytes",
                   group->limit == UINT64_MAX ? json_null() : json_integer((json_int_t)group->limit)) == 0;
#define XX(name, value) set = set && set_number(object, #name, (value));
    STRESS_NUMBERS(XX)
#undef XX
    set = set && set_number(object, "driver_us", total->sum.driver_ns / 1000) &&
          json_object_set_new(object, "seconds", json_real((double)total->sum.host_ns * 1e-9)) == 0 &&
          json_object_set_new(object, "sound", json_boolean(!total->sum.failed)) == 0;
    if (total->sum.failed) {
      set = set && set_number(object, "failed_seed", total->seed) &&
            set_number(object, "failed_step", total->sum.step) &&
            json_object_set_new(object, "message", json_string(total->sum.message)) == 0;
    }
    if (!set) return false;
  }
  return true;
}

/* ---- faults ---- */

/* The numbers of a row in their order: XX(name, value of counts) */
#define FAULT_NUMBERS(XX)                  \
  XX(runs, counts->runs)                   \
  XX(served, counts->served)               \
  XX(out_of_memory, counts->out_of_memory) \
  XX(errors, counts->errors)               \
  XX(refused, counts->refused)             \
  XX(rolled_back, counts->rolled_back)     \
  XX(emptied, counts->emptied)             \
  XX(kept, counts->kept)

static fault_counts sum_of(const fault_report *report) {
  fault_counts sum = {0};
  const size_t numbers = sizeof sum / sizeof(uint64_t);
  for (int call = 0; call < VMM_CALL_COUNT; call++) {
    const uint64_t *from = (const uint64_t *)&report->calls[call];
    for (size_t i = 0; i < numbers; i++) ((uint64_t *)&sum)[i] += from[i];
  }
  return sum;
}

void fault_output_table(const fault_row *rows, size_t count, FILE *stream) {
  const char *titles[] = {"<policy",    "<program",      "<failures", "driver calls", "runs",
                          "all served", "out of memory", "errors",    "refused",      "undone",
                          "emptied",    "kept free",     "<outcome"};
  table *lines = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < count; i++) {
    const fault_row *row = &rows[i];
    const fault_counts sum = sum_of(&row->report), *counts = &sum;
    table_row(lines);
    table_cell(lines, "%s", row->spec->text);
    table_cell(lines, "%s", row->program);
    table_cell(lines, "%s", row->pairs ? "two" : "one");
    table_count(lines, row->report.clean_calls);
#define XX(name, value) table_count(lines, (value));
    FAULT_NUMBERS(XX)
#undef XX
    table_cell(lines, "%s", row->report.failed ? "FAILED" : "sound");
  }
  if (!table_print(lines, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(lines);
}

static bool first_of_policy(const fault_row *rows, size_t row) {
  for (size_t i = 0; i < row; i++) {
    if (rows[i].spec == rows[row].spec) return false;
  }
  return true;
}

void fault_output_stages(const fault_row *rows, size_t count, FILE *stream) {
  const char *titles[] = {"<policy", "<stage", "times", "one failure", "two failures", "times with failures",
                          "programs"};
  table *lines = table_create(titles, sizeof titles / sizeof *titles);
  for (size_t first = 0; first < count; first++) {
    if (!first_of_policy(rows, first)) continue;
    for (unsigned stage = 0; stage < rows[first].report.stage_count; stage++) {
      uint64_t times = 0, after = 0, one = 0, two = 0, programs = 0;
      for (size_t i = first; i < count; i++) {
        if (rows[i].spec != rows[first].spec || stage >= rows[i].report.stage_count) continue;
        const fault_stage *seen = &rows[i].report.stages[stage];
        *(rows[i].pairs ? &two : &one) += seen->runs;
        after += seen->times_with_failures;
        if (rows[i].pairs) continue;
        times += seen->times;
        programs += seen->times > 0;
      }
      if (times + after == 0) continue;
      table_row(lines);
      table_cell(lines, "%s", rows[first].spec->text);
      table_cell(lines, "%s", rows[first].report.stages[stage].name);
      table_count(lines, times);
      table_count(lines, one);
      table_count(lines, two);
      table_count(lines, after);
      table_count(lines, programs);
    }
  }
  if (!table_print(lines, stream)) fputs("(no memory for the whole table)\n", stream);
  table_destroy(lines);
}

void fault_output_csv(const stress_group *group, const fault_row *rows, size_t count, FILE *stream) {
  stress_output_header(group, stream);
  fputs("policy,spec,trace,failures,call", stream);
#define XX(name, value) fputs("," #name, stream);
  FAULT_NUMBERS(XX)
#undef XX
  fputs(",outcome\n", stream);
  for (size_t i = 0; i < count; i++) {
    const fault_row *row = &rows[i];
    for (int call = 0; call < VMM_CALL_COUNT; call++) {
      const fault_counts *counts = &row->report.calls[call];
      if (counts->runs == 0) continue;
      fprintf(stream, "%s,", row->spec->class->name);
      replay_csv_field(stream, row->spec->text);
      fputc(',', stream);
      replay_csv_field(stream, row->program);
      fprintf(stream, ",%s,%s", row->pairs ? "two" : "one", vmm_call_name((vmm_call)call));
#define XX(name, value) fprintf(stream, ",%" PRIu64, (value));
      FAULT_NUMBERS(XX)
#undef XX
      fprintf(stream, ",%s\n", row->report.failed ? "failed" : "sound");
    }
  }
}

bool fault_output_json(const stress_group *group, const fault_row *rows, size_t count, json_t *array) {
  for (size_t i = 0; i < count; i++) {
    const fault_row *row = &rows[i];
    json_t *object = append(array), *calls = json_object();
    bool set = object && calls && set_provenance(group, row->spec, object) &&
               json_object_set_new(object, "trace", json_string(row->program)) == 0 &&
               json_object_set_new(object, "failures", json_integer(row->pairs ? 2 : 1)) == 0 &&
               set_number(object, "steps", row->report.steps) &&
               set_number(object, "driver_calls", row->report.clean_calls) &&
               json_object_set_new(object, "sound", json_boolean(!row->report.failed)) == 0;
    if (set && row->report.failed)
      set = json_object_set_new(object, "message", json_string(row->report.result.message)) == 0;
    for (int call = 0; set && call < VMM_CALL_COUNT; call++) {
      const fault_counts *counts = &row->report.calls[call];
      if (counts->runs == 0) continue;
      json_t *numbers = json_object();
      set = numbers != NULL;
#define XX(name, value) set = set && set_number(numbers, #name, (value));
      FAULT_NUMBERS(XX)
#undef XX
      set = json_object_set_new(calls, vmm_call_name((vmm_call)call), numbers) == 0 && set;
    }
    json_t *stages = json_object();
    for (unsigned k = 0; set && stages && k < row->report.stage_count; k++) {
      const fault_stage *stage = &row->report.stages[k];
      json_t *numbers = json_object();
      set = numbers && set_number(numbers, "times", stage->times) &&
            set_number(numbers, "runs", stage->runs) &&
            set_number(numbers, "times_with_failures", stage->times_with_failures);
      set = json_object_set_new(stages, stage->name, numbers) == 0 && set;
    }
    set = json_object_set_new(object, "stages", stages) == 0 && set;
    if (json_object_set_new(object, "calls", calls) != 0 || !set) return false;
  }
  return true;
}
