/* lakebed doctor: what works on this machine, and what is missing. */
#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/doctor.h"
#include "harness/instrument_cupti.h"
#include "harness/instrument_nvtx.h"
#include "harness/option_values.h"
#include "harness/output_file.h"
#include "harness/program.h"
#include "vmm/profile.h"

typedef struct doctor_options {
  unsigned ordinal;
  bool probe_memory;
  const char *json_path; /* "-": standard output; NULL: none */
} doctor_options;

enum { OPTION_ORDINAL = 0x100, OPTION_PROBE_MEMORY, OPTION_JSON };

static const struct argp_option option_table[] = {
    {"device-ordinal", OPTION_ORDINAL, "N", 0, "which real device; default: 0", 0},
    {"probe-memory", OPTION_PROBE_MEMORY, NULL, 0,
     "take all free memory of the device for a moment, to see how much can be had", 0},
    {"json", OPTION_JSON, "FILE", OPTION_ARG_OPTIONAL, "what was found as JSON; default: standard output", 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  doctor_options *options = state->input;
  switch (key) {
    case OPTION_ORDINAL:
      options->ordinal = (unsigned)option_parse_count(state, "device-ordinal", argument, 0, INT32_MAX);
      return 0;
    case OPTION_PROBE_MEMORY:
      options->probe_memory = true;
      return 0;
    case OPTION_JSON:
      options->json_path = argument ? argument : "-";
      return 0;
    case ARGP_KEY_ARG:
      argp_error(state, "takes no arguments; '%s' is one", argument);
      return EINVAL;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static const char *const outcome_names[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_NOTE] = "note", [DOCTOR_MISSING] = "missing", [DOCTOR_FAILED] = "FAILED"};

static void find(doctor *self, doctor_outcome outcome, const char *name, const char *format,
                 va_list arguments) {
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  if (!self->quiet) printf("%-8s %-16s %s\n", outcome_names[outcome], name, text);
  json_array_append_new(
      json_object_get(self->json, "findings"),
      json_pack("{s:s, s:s, s:s*}", "name", name, "outcome",
                outcome == DOCTOR_FAILED ? "failed" : outcome_names[outcome], "text", text));
}

void doctor_find(doctor *self, doctor_outcome outcome, const char *name, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  find(self, outcome, name, format, arguments);
  va_end(arguments);
}

void doctor_fail(doctor *self, exit_status status, const char *name, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  find(self, DOCTOR_FAILED, name, format, arguments);
  va_end(arguments);
  self->status = exit_status_worse(self->status, status);
}

static void examine_simulator(doctor *self) {
  char names[256] = "";
  size_t used = 0;
  for (const char *const *name = vmm_profile_names(); *name && used < sizeof names; name++) {
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", *name);
  }
  doctor_find(self, DOCTOR_OK, "simulator", "works everywhere; profiles: %s", names);
}

static void examine_instruments(doctor *self) {
  char text[512] = "";
  bool works = instrument_nvtx_examine(text, sizeof text);
  doctor_find(self,
              works                        ? DOCTOR_OK
              : instrument_nvtx_is_built() ? DOCTOR_NOTE
                                           : DOCTOR_MISSING,
              "NVTX", "%s", text);
  instrument_cupti *cupti = instrument_cupti_open(text, sizeof text);
  if (cupti) {
    doctor_find(self, DOCTOR_OK, "CUPTI", "the library is there and lets this program subscribe");
  } else {
    doctor_find(self, DOCTOR_MISSING, "CUPTI", "%s; the program's own clock works without", text);
  }
  instrument_cupti_close(cupti);
}

static exit_status write_json(const doctor *self, const char *path) {
  json_object_set_new(self->json, "exit_status", json_integer(self->status));
  json_object_set_new(self->json, "usable", json_boolean(self->status == EXIT_STATUS_DONE));
  FILE *stream = output_open(path);
  if (!stream) return EXIT_STATUS_USAGE;
  const bool complete = output_json(self->json, JSON_INDENT(2), stream);
  return output_close(stream, path, complete) ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

exit_status command_doctor(int argc, char **argv) {
  static const char documentation[] =
      "Says what works on this machine and what is missing, by trying it."
      "\vThe device is tried with a round trip: addresses are reserved, memory is created, mapped at two "
      "places, "
      "filled by a kernel through one and compared through the other, and all is given back. The first call "
      "that "
      "fails is named with its arguments.\n\nExit status: 0 when the real device can be used, 1 when it "
      "answers "
      "wrongly or keeps memory, 4 when only the simulated one can be used.";
  const struct argp parser = {option_table, parse_option, NULL, documentation, NULL, NULL, NULL};
  doctor_options options = {0};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status != EXIT_STATUS_DONE) return status;
  doctor self = {.json = json_pack("{s:[]}", "findings"),
                 .quiet = options.json_path && strcmp(options.json_path, "-") == 0};
  if (!self.json) {
    program_complain("no memory for what is found");
    return EXIT_STATUS_CHECK_FAILED;
  }
  examine_simulator(&self);
  doctor_device(&self, options.ordinal, options.probe_memory);
  examine_instruments(&self);
  status = self.status;
  if (!self.quiet) {
    puts(status == EXIT_STATUS_DONE           ? "\nThe real device can be used: --driver cuda."
         : status == EXIT_STATUS_CHECK_FAILED ? "\nThe real device does not do what it should."
                                              : "\nNo real device can be used; --driver sim can.");
  }
  if (options.json_path) status = exit_status_worse(status, write_json(&self, options.json_path));
  json_decref(self.json);
  return status;
}
