/* lakebed policies: all of them, or one with its options. */
#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "harness/option_values.h"
#include "harness/output_file.h"
#include "harness/program.h"
#include "harness/table.h"
#include "harness/units.h"
#include "policies/policy.h"

typedef struct policies_options {
  const char *name;
  bool json;
} policies_options;

enum { OPTION_JSON = 0x100, WIDTH = 110 };

/* Maxima of sizes and whole numbers that from here on stand for none. */
#define NO_MAXIMUM 1e15
#define NO_COUNT 1e9

static const struct argp_option option_table[] = {
    {"json", OPTION_JSON, NULL, 0, "print JSON instead", 0},
    {0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  policies_options *options = state->input;
  switch (key) {
    case OPTION_JSON:
      options->json = true;
      return 0;
    case ARGP_KEY_ARG:
      if (options->name) argp_error(state, "one policy at a time");
      options->name = argument;
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static const char *type_name(policy_option_type type) {
  static const char *const names[] = {[POLICY_OPTION_SIZE] = "size",     [POLICY_OPTION_INTEGER] = "integer",
                                      [POLICY_OPTION_REAL] = "real",     [POLICY_OPTION_BOOLEAN] = "boolean",
                                      [POLICY_OPTION_CHOICE] = "choice", [POLICY_OPTION_TEXT] = "text"};
  return (size_t)type < sizeof names / sizeof *names ? names[type] : "unknown";
}

static const struct {
  uint32_t flag;
  const char *name;
} capabilities[] = {{POLICY_NEEDS_VMM, "vmm"},
                    {POLICY_NEEDS_ASYNC, "async"},
                    {POLICY_NEEDS_LIFETIMES, "lifetimes"},
                    {POLICY_NO_MEMORY, "no_memory"}};
enum { CAPABILITY_COUNT = sizeof capabilities / sizeof *capabilities };

static void format_bound(const policy_option *option, double bound, char text[UNITS_TEXT]) {
  if (option->type == POLICY_OPTION_INTEGER) {
    units_count((uint64_t)bound, text);
  } else {
    snprintf(text, UNITS_TEXT, "%.12g", bound);
  }
}

static bool is_granular(const policy_option *option) {
  return option->type == POLICY_OPTION_SIZE && option->minimum == POLICY_GRANULARITY;
}

/* "2 MiB to 1 GiB", "a|b|c", "any" */
static void format_range(const policy_option *option, char *text, size_t text_size) {
  if (option->type == POLICY_OPTION_CHOICE) {
    snprintf(text, text_size, "%s", option->choices);
  } else if (option->type == POLICY_OPTION_BOOLEAN) {
    snprintf(text, text_size, "true|false");
  } else if ((option->minimum == 0 && option->maximum == 0) || option->type == POLICY_OPTION_TEXT) {
    snprintf(text, text_size, "any");
  } else if (option->type == POLICY_OPTION_SIZE) {
    char least[UNITS_TEXT], most[UNITS_TEXT];
    units_bytes((uint64_t)option->minimum, least);
    if (is_granular(option)) snprintf(least, sizeof least, "granularity");
    if (option->maximum >= NO_MAXIMUM) {
      snprintf(text, text_size, "from %s", least);
      return;
    }
    units_bytes((uint64_t)option->maximum, most);
    snprintf(text, text_size, "%s to %s", least, most);
  } else {
    char least[UNITS_TEXT], most[UNITS_TEXT];
    if (option->type == POLICY_OPTION_INTEGER && option->maximum >= NO_COUNT) {
      snprintf(text, text_size, "from %.12g", option->minimum);
      return;
    }
    format_bound(option, option->minimum, least);
    format_bound(option, option->maximum, most);
    snprintf(text, text_size, "%s to %s", least, most);
  }
}

/* changed: options were given with the name, and their values are shown. */
static void print_policy(const policy_spec *spec, bool changed) {
  const policy_class *class = spec->class;
  printf("%s: %s\n", class->name, class->summary);
  const char *needs[CAPABILITY_COUNT] = {"the driver's virtual memory management",
                                         "the driver's stream-ordered pool", "the whole trace in advance",
                                         NULL};
  for (size_t i = 0; i < CAPABILITY_COUNT; i++) {
    if (!(class->capabilities & capabilities[i].flag)) continue;
    if (needs[i]) {
      printf("needs %s\n", needs[i]);
    } else {
      puts("hands out addresses without memory");
    }
  }
  if (!class->options || !class->options->name) {
    puts("It has no options.");
    return;
  }
  putchar('\n');
  const char *plain[] = {"<option", "<type", "<default", "<range", "<unit", "<meaning"};
  const char *with_values[] = {"<option", "<value", "<type", "<default", "<range", "<unit", "<meaning"};
  table *rows = changed ? table_create(with_values, sizeof with_values / sizeof *with_values)
                        : table_create(plain, sizeof plain / sizeof *plain);
  table_wrap(rows, WIDTH);
  bool has_sizes = false, has_granular = false;
  for (size_t i = 0; class->options[i].name; i++) {
    const policy_option *option = &class->options[i];
    char range[128];
    format_range(option, range, sizeof range);
    table_row(rows);
    table_cell(rows, "%s", option->name);
    if (changed) table_cell(rows, "%s", spec->values[i].text);
    table_cell(rows, "%s", type_name(option->type));
    has_sizes |= option->type == POLICY_OPTION_SIZE;
    has_granular |= is_granular(option);
    table_cell(rows, "%s", option->default_value);
    table_cell(rows, "%s", range);
    table_cell(rows, "%s", option->unit ? option->unit : "");
    table_cell(rows, "%s", option->help);
  }
  table_print(rows, stdout);
  table_destroy(rows);
  if (has_sizes) putchar('\n');
  if (has_granular) puts("granularity: the device's, 2 MiB on an H200; such a size is a multiple of it.");
  if (has_sizes)
    puts("In a size K, KB and KiB are all 1024 bytes, M, MB and MiB 1024 times that, and so on.");
}

static void print_list(void) {
  const char *titles[] = {"<policy", "options", "<what it is"};
  table *rows = table_create(titles, sizeof titles / sizeof *titles);
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    size_t count = 0;
    while ((*class)->options && (*class)->options[count].name) count++;
    table_row(rows);
    table_cell(rows, "%s", (*class)->name);
    table_count(rows, count);
    table_cell(rows, "%s", (*class)->summary);
  }
  table_print(rows, stdout);
  table_destroy(rows);
  puts("\n'lakebed policies NAME' shows the options of one.");
}

static json_t *option_object(const policy_option *option) {
  json_t *object = json_object();
  json_object_set_new(object, "name", json_string(option->name));
  json_object_set_new(object, "type", json_string(type_name(option->type)));
  json_object_set_new(object, "default", json_string(option->default_value));
  bool bounded = option->minimum != 0 || option->maximum != 0;
  json_object_set_new(object, "minimum", bounded ? json_real(option->minimum) : json_null());
  json_object_set_new(object, "maximum", bounded ? json_real(option->maximum) : json_null());
  json_object_set_new(object, "choices", option->choices ? json_string(option->choices) : json_null());
  json_object_set_new(object, "unit", json_string(option->unit ? option->unit : ""));
  json_object_set_new(object, "help", json_string(option->help));
  return object;
}

static json_t *policy_object(const policy_class *class) {
  json_t *object = json_object(), *needs = json_array(), *options = json_array();
  json_object_set_new(object, "name", json_string(class->name));
  json_object_set_new(object, "summary", json_string(class->summary));
  for (size_t i = 0; i < CAPABILITY_COUNT; i++) {
    if (class->capabilities & capabilities[i].flag)
      json_array_append_new(needs, json_string(capabilities[i].name));
  }
  json_object_set_new(object, "capabilities", needs);
  for (const policy_option *option = class->options; option && option->name; option++) {
    json_array_append_new(options, option_object(option));
  }
  json_object_set_new(object, "options", options);
  return object;
}

static exit_status print_json(const policy_class *only) {
  json_t *array = json_array();
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    if (!only || only == *class) json_array_append_new(array, policy_object(*class));
  }
  const bool complete = output_json(array, JSON_INDENT(2) | JSON_REAL_PRECISION(15), stdout);
  json_decref(array);
  return output_close(stdout, "-", complete) ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

exit_status command_policies(int argc, char **argv) {
  policies_options options = {0};
  const struct argp parser = {option_table,
                              parse_option,
                              "[NAME[:KEY=VALUE,...]]",
                              "Lists the allocator policies, or shows one with its options. With values the "
                              "table shows those that hold then.",
                              NULL,
                              NULL,
                              NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status != EXIT_STATUS_DONE) return status;
  const policy_class *only = NULL;
  policy_spec spec = {0};
  if (options.name) {
    char message[1024];
    /* Parsing names the valid policies and the nearest; options given with the name are checked too. */
    if (policy_spec_parse(options.name, &spec, message, sizeof message) != VMM_SUCCESS) {
      program_complain("%s", message);
      return EXIT_STATUS_USAGE;
    }
    only = spec.class;
  }
  if (options.json) return print_json(only);
  if (only) {
    print_policy(&spec, strchr(options.name, ':') != NULL);
  } else {
    print_list();
  }
  return EXIT_STATUS_DONE;
}
