#include "harness/bench_options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/option_values.h"
#include "harness/output_set.h"
#include "harness/program.h"
#include "harness/units.h"
#include "policies/policy.h"

enum option_key {
  OPTION_MINIMUM = 'b',
  OPTION_MAXIMUM = 'e',
  OPTION_FACTOR = 'f',
  OPTION_ITERATIONS = 'n',
  OPTION_WARMUP = 'w',
  OPTION_LIST = 'l',
  OPTION_DRIVER = 0x100,
};

enum { ITERATIONS_LIMIT = 1000000, FACTOR_LIMIT = 1024 };

static const struct argp_option option_table[] = {
    {"list", OPTION_LIST, NULL, 0, "list the benchmarks", BENCH_GROUP_SHARED},
    {"min", OPTION_MINIMUM, "SIZE", 0, "smallest size", BENCH_GROUP_SHARED},
    {"max", OPTION_MAXIMUM, "SIZE", 0, "largest size", BENCH_GROUP_SHARED},
    {"factor", OPTION_FACTOR, "N", 0, "from a size to the next; default: 2", BENCH_GROUP_SHARED},
    {"iterations", OPTION_ITERATIONS, "N", 0, "times that each measurement is repeated", BENCH_GROUP_SHARED},
    {"warmup", OPTION_WARMUP, "N", 0, "times before that, which do not count", BENCH_GROUP_SHARED},
    {"driver", OPTION_DRIVER, "sim|cuda", 0,
     "the simulated device or the real one; default: cuda where a device can be used, else sim",
     BENCH_GROUP_SHARED},
    {0},
};

/* "chunk, range" */
static void join_words(const char *const *words, char *text, size_t text_size) {
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; words[i] && used < text_size; i++) {
    used += (size_t)snprintf(text + used, text_size - used, "%s%s", i ? ", " : "", words[i]);
  }
}

unsigned bench_parse_choice(struct argp_state *state, const char *option, const char *text,
                            const char *const *words) {
  for (unsigned i = 0; words[i]; i++) {
    if (strcmp(words[i], text) == 0) return i;
  }
  char valid[256];
  join_words(words, valid, sizeof valid);
  const char *nearest = policy_nearest_word(text, words);
  argp_error(state, "--%s=%s: expected one of %s%s%s%s", option, text, valid,
             nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
  return 0;
}

/* The next item of a comma-separated list, cut out of *rest. NULL at the end. */
static char *next_item(char **rest) { return strsep(rest, ","); }

static size_t parse_list(struct argp_state *state, const char *option, const char *text, bool sizes,
                         uint64_t least, uint64_t most, uint64_t *values, size_t capacity) {
  char *copy = strdup(text);
  if (!copy) {
    argp_failure(state, EXIT_STATUS_CHECK_FAILED, 0, "no memory for --%s", option);
    return 0;
  }
  size_t count = 0;
  char *rest = copy;
  for (char *item; (item = next_item(&rest)) != NULL; count++) {
    if (count == capacity) {
      argp_error(state, "--%s=%s: expected at most %zu values", option, text, capacity);
      break;
    }
    values[count] =
        sizes ? option_parse_size(state, option, item) : option_parse_count(state, option, item, least, most);
  }
  free(copy);
  return count;
}

size_t bench_parse_sizes(struct argp_state *state, const char *option, const char *text, uint64_t *values,
                         size_t capacity) {
  return parse_list(state, option, text, true, 0, 0, values, capacity);
}

size_t bench_parse_counts(struct argp_state *state, const char *option, const char *text, uint64_t least,
                          uint64_t most, uint64_t *values, size_t capacity) {
  return parse_list(state, option, text, false, least, most, values, capacity);
}

void bench_size_text(uint64_t bytes, char text[BENCH_SIZE_TEXT]) {
  units_scale scale = units_bytes_scale(bytes);
  uint64_t unit = (uint64_t)scale.factor;
  if (bytes % unit == 0) {
    snprintf(text, BENCH_SIZE_TEXT, "%" PRIu64 " %s", bytes / unit, scale.name);
  } else {
    units_bytes(bytes, text);
  }
}

static void choose_case(bench_options *options, struct argp_state *state, const char *name) {
  const char *names[BENCH_CASES + 1] = {NULL};
  for (size_t i = 0; i < BENCH_CASES && options->cases[i].name; i++) {
    names[i] = options->cases[i].name;
    if (strcmp(names[i], name) != 0) continue;
    options->chosen[i] = true;
    return;
  }
  char valid[256];
  join_words(names, valid, sizeof valid);
  const char *nearest = policy_nearest_word(name, names);
  argp_error(state, "no benchmark '%s'%s%s%s; there are: %s", name, nearest ? " (did you mean " : "",
             nearest ? nearest : "", nearest ? "?)" : "", valid);
}

static void parse_driver(bench_options *options, struct argp_state *state, const char *text) {
  static const char *const drivers[] = {"sim", "cuda", NULL};
  options->device.driver = drivers[bench_parse_choice(state, "driver", text, drivers)];
}

/* A run that names no benchmark runs all that wait for no name. */
static void choose_default_cases(bench_options *options) {
  for (size_t i = 0; i < BENCH_CASES && options->cases[i].name; i++) {
    if (options->chosen[i]) return;
  }
  for (size_t i = 0; i < BENCH_CASES && options->cases[i].name; i++) {
    options->chosen[i] = !options->cases[i].only_when_named;
  }
}

static error_t finish(bench_options *options, struct argp_state *state) {
  if (options->minimum > options->maximum) {
    char least[BENCH_SIZE_TEXT], most[BENCH_SIZE_TEXT];
    bench_size_text(options->minimum, least);
    bench_size_text(options->maximum, most);
    argp_error(state, "--min is more than --max: %s, %s", least, most);
  }
  choose_default_cases(options);
  return 0;
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  bench_options *options = state->input;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->device;
      state->child_inputs[1] = &options->output;
      return 0;
    case OPTION_LIST:
      for (const bench_case *listed = options->cases; listed->name; listed++) {
        printf("%-12s %s%s\n", listed->name, listed->summary,
               listed->only_when_named ? " (only when named)" : "");
      }
      options->cases = NULL;
      state->next = state->argc;
      return 0;
    case OPTION_MINIMUM:
      options->minimum = option_parse_size(state, "min", argument);
      return 0;
    case OPTION_MAXIMUM:
      options->maximum = option_parse_size(state, "max", argument);
      return 0;
    case OPTION_FACTOR:
      options->factor = option_parse_count(state, "factor", argument, 2, FACTOR_LIMIT);
      return 0;
    case OPTION_ITERATIONS:
      options->iterations = option_parse_count(state, "iterations", argument, 1, ITERATIONS_LIMIT);
      return 0;
    case OPTION_WARMUP:
      options->warmup = option_parse_count(state, "warmup", argument, 0, ITERATIONS_LIMIT);
      return 0;
    case OPTION_DRIVER:
      parse_driver(options, state, argument);
      return 0;
    case ARGP_KEY_ARG:
      choose_case(options, state, argument);
      return 0;
    case ARGP_KEY_END:
      return options->cases ? finish(options, state) : 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp_child children[] = {{&device_choice_parser, 0, NULL, BENCH_GROUP_SHARED},
                                             {&output_options_parser, 0, NULL, BENCH_GROUP_SHARED},
                                             {0}};
const struct argp bench_options_argp = {option_table, parse_option, NULL, NULL, children, NULL, NULL};

exit_status bench_options_parse(int argc, char **argv, const struct argp *parser, void *input,
                                bench_options *options, bool *done) {
  *done = false;
  exit_status status = option_read_command(parser, argc, argv, input, &options->command);
  if (status != EXIT_STATUS_DONE) return status;
  *done = options->cases == NULL;
  const char *const outputs[] = {options->output.json_path, options->output.csv_path};
  return output_paths_are_apart(outputs, 2, NULL) ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
}

void bench_options_free(bench_options *options) {
  free(options->command);
  options->command = NULL;
}

bool bench_options_chosen(const bench_options *options, const char *name) {
  for (size_t i = 0; i < BENCH_CASES && options->cases[i].name; i++) {
    if (strcmp(options->cases[i].name, name) == 0) return options->chosen[i];
  }
  return false;
}

void bench_options_choose(bench_options *options, const char *name) {
  for (size_t i = 0; i < BENCH_CASES && options->cases[i].name; i++) {
    if (strcmp(options->cases[i].name, name) == 0) options->chosen[i] = true;
  }
}
